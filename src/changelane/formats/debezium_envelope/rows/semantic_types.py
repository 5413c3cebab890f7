# SPDX-License-Identifier: Apache-2.0
"""The type table of Debezium's family: :data:`SEMANTIC_TYPES`, one entry for both directions.

A schema is read by its literal type and its semantic name, and a column is written by its logical
type. ``type_mapping`` derives both from the table, so a new type is one more entry here.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final, TypedDict

import msgspec

from changelane import types as t
from changelane.errors import DecodeError
from changelane.formats.debezium_envelope.rows import epoch_times, json_values
from changelane.formats.debezium_envelope.rows.connect_schema import UNSET, Schema
from changelane.formats.debezium_envelope.rows.json_values import Convert
from changelane.formats.debezium_envelope.rows.modes import TimePrecisionMode
from changelane.reason_codes import ReasonCode
from changelane.types.values import MAX_DECIMAL_DIGITS, float_form, parse_date, parse_timestamp

DEBEZIUM: Final = "io.debezium."
CONNECT: Final = "org.apache.kafka.connect.data."
_TIME: Final = f"{DEBEZIUM}time."
_DATA: Final = f"{DEBEZIUM}data."
VENDOR: Final = ".cdc.data."
"""Between a vendor's prefix and the last part of its semantic names (Huawei's CDL)."""


class Wire(msgspec.Struct, frozen=True):
    """How the values of one schema travel in JSON.

    Attributes:
        type: The column's type.
        json: The Python type with which msgspec reads the JSON; msgspec rejects other JSON.
        decode: Converts JSON to a value; ``None`` where both are the same.
        encode: Converts a value to JSON; ``None`` where both are the same. Raises
            :class:`~changelane.formats.debezium_envelope.rows.epoch_times.Inexact` for a value
            without a form.
        filler: Debezium's value for a NOT NULL column of unknown value.
        placeholder: The name of the placeholder's form; empty where the type has none.
        unscaled: Converts JSON text to the unscaled value of a decimal, if it is Base64 of it.
    """

    type: t.LogicalType
    json: Any
    decode: Convert | None = None
    encode: Convert | None = None
    filler: object = 0
    placeholder: str = ""
    unscaled: Convert | None = None


def text_wire(kind: t.LogicalType) -> Wire:
    """Return the form of a type whose values are text."""
    return Wire(kind, str, filler="", placeholder="text")


def bytes_wire(decode: Convert, encode: Convert) -> Wire:
    """Return the form of bytes as text of some encoding."""
    return Wire(t.Bytes(), str, decode, encode, "", "bytes")


_typed_dict: Final[Any] = TypedDict


def row_type(wires: Mapping[str, Wire]) -> Any:
    """Return the type of a struct's JSON for msgspec; a field may be null or absent."""
    # msgspec finds a field by the UTF-8 that Python keeps with its name. Names that msgspec decoded
    # itself have none until they are encoded once: without it a field like "ключ" is never found.
    msgspec.json.encode(list(wires))
    fields = {name: wire.json | None for name, wire in wires.items()}
    return _typed_dict("row", fields, total=False)


_ALL_MODES: Final = frozenset(TimePrecisionMode)


class SemanticType(msgspec.Struct, frozen=True):
    """An entry of the type table.

    Attributes:
        literal: The literal type of Connect.
        name: The semantic name; empty for a literal type without one.
        wire: The form of the values; a function where it depends on the schema's parameters.
        writes: The column types, or classes of them, that are written with this entry; empty for
            the type of ``wire`` alone.
        modes: The values of ``time.precision.mode`` that write this entry.
        digits: The most fraction digits of a column that an adaptive mode writes with it.
        parameters: Returns the parameters of the schema of a column type.
        fields: The fields of a struct.
        doc: The documentation of the schema.
    """

    literal: str
    name: str
    wire: Wire | Callable[[Schema], Wire]
    writes: tuple[t.LogicalType | type[t.LogicalType], ...] = ()
    modes: frozenset[TimePrecisionMode] = _ALL_MODES
    digits: int = 9
    parameters: Callable[[Any], Mapping[str, str] | None] | None = None
    fields: tuple[Schema, ...] = ()
    doc: str = ""

    @property
    def written_types(self) -> tuple[t.LogicalType | type[t.LogicalType], ...]:
        """The column types, or classes of them, that are written with this entry."""
        return self.writes or ((self.wire.type,) if isinstance(self.wire, Wire) else ())

    def read(self, schema: Schema) -> Wire:
        """Return the form of the values of a schema of this entry."""
        return self.wire if isinstance(self.wire, Wire) else self.wire(schema)

    def schema(self, kind: t.LogicalType) -> Schema:
        """Return the schema of a column type that this entry writes."""
        parameters = None if self.parameters is None else self.parameters(kind)
        return Schema(
            self.literal,
            fields=self.fields or UNSET,
            name=self.name or UNSET,
            version=1 if self.name else UNSET,
            doc=self.doc or UNSET,
            parameters=UNSET if parameters is None else dict(parameters),
        )


# -- numbers ---------------------------------------------------------------------------------------


def _int(bits: int) -> Any:
    low, high = t.Integer(bits).range()
    return Annotated[int, msgspec.Meta(ge=low, le=high)]


INT32 = _int(32)
INT64 = _int(64)
NUMBERS: Final[frozenset[Any]] = frozenset({bool, *map(_int, (8, 16, 32, 64))})
"""JSON types whose values are numbers or booleans, never text, arrays or objects."""


def _integer(bits: int) -> Wire:
    return Wire(t.Integer(bits), _int(bits))


def _float(bits: int) -> Wire:
    return Wire(t.Float(bits), float | str, json_values.float_in, float_form)


def _integer_parameter(schema: Schema, name: str) -> int | None:
    text = schema.parameter.get(name)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        value = MAX_DECIMAL_DIGITS + 1
    if abs(value) > MAX_DECIMAL_DIGITS:
        reason = f"parameter {name} is no usable number"
        raise DecodeError(reason, code=ReasonCode.WRONG_SCHEMA, path="$.schema")
    return value


_PRECISION: Final = "connect.decimal.precision"


def _decimal(schema: Schema) -> Wire:
    scale = _integer_parameter(schema, "scale") or 0
    kind = t.Decimal(_integer_parameter(schema, _PRECISION), scale)
    return Wire(
        kind,
        Any,
        json_values.decimal_in(scale),
        json_values.decimal_out(scale),
        "AA==",
        unscaled=json_values.unscaled_in,
    )


def _decimal_parameters(kind: t.Decimal | t.Integer) -> Mapping[str, str]:
    if isinstance(kind, t.Integer):
        return {"scale": "0"}
    scale = {"scale": str(kind.scale)}
    return scale if kind.precision is None else {**scale, _PRECISION: str(kind.precision)}


_VARIABLE_SCALE: Final = Wire(
    t.Decimal(),
    _typed_dict("scaled", {"scale": INT32, "value": str}),
    json_values.variable_in,
    json_values.variable_out,
    {"scale": 0, "value": "AA=="},
)
_VENDOR_DECIMAL: Final = Wire(t.Decimal(), str, json_values.number_in, json_values.number_out, "0")
# an unsigned bigint: Debezium's bigint.unsigned.handling.mode=precise
_DECIMALS: Final = (t.Decimal, t.Integer(64, unsigned=True))

UNBOUNDED_BITS: Final = str((1 << 31) - 1)
"""The length of a ``bit varying`` column that has none (Debezium's page of PostgreSQL)."""


def _bits(schema: Schema) -> Wire:
    length = None
    if schema.parameter.get("length") != UNBOUNDED_BITS:
        length = _integer_parameter(schema, "length")
    return Wire(t.Bits(length), str, json_values.bits_in(length), json_values.bits_out, "")


def _bits_parameters(kind: t.Bits) -> Mapping[str, str]:
    return {"length": UNBOUNDED_BITS if kind.length is None else str(kind.length)}


# -- text ------------------------------------------------------------------------------------------

_COMMA: Final = re.compile(r"(?<!\\),")


def _members(make: type[t.Enum | t.Set]) -> Callable[[Schema], Wire]:
    def read(schema: Schema) -> Wire:
        text = schema.parameter.get("allowed")
        if text is None:
            return text_wire(make())
        return text_wire(make(tuple(part.replace("\\,", ",") for part in _COMMA.split(text))))

    return read


def _allowed(kind: t.Enum | t.Set) -> Mapping[str, str] | None:
    if kind.members is None:
        return None
    return {"allowed": ",".join(member.replace(",", "\\,") for member in kind.members)}


# -- dates and times -------------------------------------------------------------------------------


def _count(
    bits: int, kind: t.LogicalType, decode: Convert | None = None, encode: Convert | None = None
) -> Wire:
    write = None if encode is None else json_values.ranged(encode, bits)
    return Wire(kind, _int(bits), decode, write)


def _timestamp(digits: int, decode: Convert) -> Wire:
    encode = partial(epoch_times.timestamp_ticks, digits=digits)
    return _count(64, t.Timestamp(digits), decode, encode)


def _time(digits: int, bits: int = 64) -> Wire:
    decode = partial(epoch_times.time_text, digits=digits)
    encode = partial(epoch_times.time_ticks, digits=digits)
    return _count(bits, t.Time(digits), decode, encode)


def _iso(kind: t.LogicalType, parse: Convert, encode: Convert) -> Wire:
    return Wire(kind, str, json_values.iso_in(parse, encode), encode, "")


def _year_in(number: int) -> int:
    return 0 if number == json_values.YEAR_0 else number


_DATE: Final = _count(32, t.Date(), epoch_times.date_of, epoch_times.days_of)
_MILLIS: Final = _timestamp(3, epoch_times.millis_timestamp)
_MICROS_WIRE: Final = _timestamp(6, epoch_times.micros_timestamp)
_NANOS_WIRE: Final = _timestamp(9, epoch_times.nanos_timestamp)
_ISO_DATE: Final = _iso(t.Date(), parse_date, json_values.iso_date_out)
_ISO_TIME: Final = Wire(t.Time(), str, json_values.iso_time_in, json_values.iso_time_out, "")
_ISO_TIMESTAMP: Final = _iso(t.Timestamp(), parse_timestamp, json_values.iso_timestamp_out)
_EPOCH: Final = "1970-01-01T00:00:00.000000Z"
_INSTANT: Final = Wire(t.InstantType(), str, t.parse_instant, json_values.instant_out, _EPOCH)
_MICRO_DURATION: Final = _count(64, t.Interval("us"), json_values.micros_in, json_values.micros_out)
_NANO_DURATION: Final = _count(64, t.Interval("ns"), None, json_values.nanos_out)
_VENDOR_TIMESTAMP: Final = Wire(
    t.Timestamp(), str, json_values.lenient_timestamp_in, json_values.text_timestamp_out, "", "text"
)

_MODE: Final = TimePrecisionMode
_CONNECT: Final = frozenset({_MODE.CONNECT})
_ISO: Final = frozenset({_MODE.ISOSTRING})
_NANOS: Final = frozenset({_MODE.NANOSECONDS})
_COUNTS: Final = _ALL_MODES - _CONNECT - _ISO
_ADAPTIVE: Final = frozenset({_MODE.AUTO, _MODE.ADAPTIVE})
_ADAPTIVE_TIMESTAMP: Final = _ADAPTIVE | {_MODE.ADAPTIVE_TIME_MICROSECONDS}
_MICROS: Final = _ADAPTIVE_TIMESTAMP | {_MODE.MICROSECONDS}

# -- geometry --------------------------------------------------------------------------------------

_GEOMETRY: Final = {
    is_optional: (
        Schema("bytes", field="wkb", optional=is_optional),
        Schema("int32", field="srid", optional=True),
    )
    for is_optional in (False, True)
}


def _shape(kind: str) -> Wire:
    optional_text: Any = str | None
    members: dict[str, Any] = {"wkb": optional_text, "srid": INT32 | None}
    encode = json_values.geometry_out
    if kind == "point":
        members = {"x": float, "y": float, **members}
        encode = json_values.point_out
    shape = _typed_dict("shape", members, total=False)
    return Wire(t.GeometryType(kind), shape, json_values.geometry_in, encode, None)


# -- the table -------------------------------------------------------------------------------------

SEMANTIC_TYPES: Final[tuple[SemanticType, ...]] = (
    SemanticType("boolean", "", Wire(t.Boolean(), bool, filler=False)),
    SemanticType("int8", "", _integer(8)),
    SemanticType("int16", "", _integer(16), (t.Integer(16), t.Integer(8, unsigned=True))),
    SemanticType("int32", "", _integer(32), (t.Integer(32), t.Integer(16, unsigned=True))),
    SemanticType("int64", "", _integer(64), (t.Integer(64), t.Integer(32, unsigned=True))),
    SemanticType("float", "", _float(32)),
    SemanticType("float32", "", _float(32)),
    SemanticType("double", "", _float(64)),
    SemanticType("float64", "", _float(64)),
    SemanticType("bytes", "", bytes_wire(json_values.bytes_in, json_values.bytes_out)),
    SemanticType("string", "", text_wire(t.String())),
    SemanticType("bytes", CONNECT + "Decimal", _decimal, _DECIMALS, parameters=_decimal_parameters),
    SemanticType(
        "struct",
        _DATA + "VariableScaleDecimal",
        _VARIABLE_SCALE,
        fields=(Schema("int32", field="scale"), Schema("bytes", field="value")),
        doc="Variable scaled decimal",
    ),
    SemanticType("int32", _TIME + "Date", _DATE, modes=_COUNTS),
    SemanticType("int32", CONNECT + "Date", _DATE, modes=_CONNECT),
    SemanticType("string", _TIME + "IsoDate", _ISO_DATE, modes=_ISO),
    SemanticType("int32", _TIME + "Time", _time(3, 32), (t.Time,), _ADAPTIVE, 3),
    SemanticType("int64", _TIME + "MicroTime", _time(6), (t.Time,), _MICROS, 6),
    SemanticType("int64", _TIME + "NanoTime", _time(9), (t.Time,), _ADAPTIVE | _NANOS),
    SemanticType("int32", CONNECT + "Time", _time(3, 32), (t.Time,), _CONNECT),
    SemanticType("string", _TIME + "IsoTime", _ISO_TIME, (t.Time,), _ISO),
    SemanticType("int64", _TIME + "Timestamp", _MILLIS, (t.Timestamp,), _ADAPTIVE_TIMESTAMP, 3),
    SemanticType("int64", _TIME + "MicroTimestamp", _MICROS_WIRE, (t.Timestamp,), _MICROS, 6),
    SemanticType(
        "int64", _TIME + "NanoTimestamp", _NANOS_WIRE, (t.Timestamp,), _ADAPTIVE_TIMESTAMP | _NANOS
    ),
    SemanticType("int64", CONNECT + "Timestamp", _MILLIS, (t.Timestamp,), _CONNECT),
    SemanticType("string", _TIME + "IsoTimestamp", _ISO_TIMESTAMP, (t.Timestamp,), _ISO),
    SemanticType("string", _TIME + "ZonedTimestamp", _INSTANT, (t.InstantType,)),
    SemanticType("string", _TIME + "ZonedTime", Wire(t.TimeTz(), str, str, str, ""), (t.TimeTz,)),
    SemanticType("int32", _TIME + "Year", _count(32, t.Year(), _year_in)),
    SemanticType("int64", _TIME + "MicroDuration", _MICRO_DURATION),
    SemanticType("int64", _TIME + "NanoDuration", _NANO_DURATION),
    SemanticType("string", _TIME + "Interval", text_wire(t.Interval())),
    SemanticType("bytes", _DATA + "Bits", _bits, (t.Bits,), parameters=_bits_parameters),
    SemanticType("string", _DATA + "Enum", _members(t.Enum), (t.Enum,), parameters=_allowed),
    SemanticType("string", _DATA + "EnumSet", _members(t.Set), (t.Set,), parameters=_allowed),
    SemanticType("string", _DATA + "Json", text_wire(t.Json())),
    SemanticType("string", _DATA + "Xml", text_wire(t.Xml())),
    SemanticType("string", _DATA + "Uuid", text_wire(t.Uuid())),
    SemanticType("string", _DATA + "Ltree", text_wire(t.Text("ltree"))),
    SemanticType("string", _DATA + "Tsvector", text_wire(t.Text("tsvector"))),
    SemanticType(
        "struct",
        _DATA + "geometry.Point",
        _shape("point"),
        fields=(Schema("double", field="x"), Schema("double", field="y"), *_GEOMETRY[True]),
        doc="Geometry (POINT)",
    ),
    SemanticType(
        "struct",
        _DATA + "geometry.Geometry",
        _shape("geometry"),
        (t.GeometryType,),
        fields=_GEOMETRY[False],
        doc="Geometry",
    ),
    SemanticType(
        "struct",
        _DATA + "geometry.Geography",
        _shape("geography"),
        fields=_GEOMETRY[False],
        doc="Geometry",
    ),
)

VENDOR_TYPES: Final[Mapping[str, SemanticType]] = {
    "decimal": SemanticType("string", VENDOR + "Decimal", _VENDOR_DECIMAL),
    "timestamp": SemanticType("string", VENDOR + "timestamp", _VENDOR_TIMESTAMP),
}
"""The last part of a name ``com.<vendor>.cdc.data.<part>`` in lower case -> its entry.

The vendor's documentation (Huawei's CDL) hides the vendor's part (``com.xxx``), and writes the last
part in both cases.
"""
