# SPDX-License-Identifier: Apache-2.0
"""The type table: a schema with its semantic name <-> a logical type and its values.

:func:`wire_of` reads a schema: the logical type, what JSON may stand there, and both conversions.
An unknown semantic name degrades to what its literal type says, keeping the name where a type can.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final, TypedDict

import msgspec

from changelane.errors import DecodeError
from changelane.formats.debezium_envelope.rows import epoch_times, json_values
from changelane.formats.debezium_envelope.rows.connect_schema import Schema
from changelane.formats.debezium_envelope.rows.json_values import Convert
from changelane.reason_codes import ReasonCode
from changelane.types import (
    Array,
    Bits,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Enum,
    Float,
    GeometryType,
    InstantType,
    Integer,
    Interval,
    Json,
    LogicalType,
    Map,
    Record,
    Set,
    String,
    Text,
    Time,
    Timestamp,
    TimeTz,
    Unknown,
    Uuid,
    Xml,
    Year,
    parse_instant,
)
from changelane.types.values import MAX_DECIMAL_DIGITS, parse_date, parse_timestamp

DEBEZIUM: Final = "io.debezium."
CONNECT: Final = "org.apache.kafka.connect.data."


class Wire(msgspec.Struct, frozen=True):
    """How the values of one schema travel in JSON.

    Attributes:
        type: What the column holds.
        json: The Python type as which msgspec reads the JSON; wrong JSON is its error.
        decode: From that to the value; ``None`` when it is the value.
        encode: From a value to JSON; ``None`` when it is its own form. Raises
            :class:`~changelane.formats.debezium_envelope.rows.epoch_times.Inexact` for a value
            without a form.
        filler: What Debezium writes for a NOT NULL column whose value it does not know.
        holder: The form of the placeholder for a value that was not sent; empty when none.
    """

    type: LogicalType
    json: Any
    decode: Convert | None = None
    encode: Convert | None = None
    filler: object = 0
    holder: str = ""


_COMMA: Final = re.compile(r"(?<!\\),")


def _allowed(schema: Schema) -> tuple[str, ...] | None:
    text = schema.parameter.get("allowed")
    if text is None:
        return None
    return tuple(member.replace("\\,", ",") for member in _COMMA.split(text))


def allowed_text(members: tuple[str, ...]) -> str:
    """Return the ``allowed`` parameter of an enum or a set."""
    return ",".join(member.replace(",", "\\,") for member in members)


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


def _int(bits: int) -> Any:
    low, high = Integer(bits).range()
    return Annotated[int, msgspec.Meta(ge=low, le=high)]


INT32 = _int(32)
INT64 = _int(64)
NUMBERS: Final[frozenset[Any]] = frozenset({bool, *map(_int, (8, 16, 32, 64))})
"""JSON that is a number or a boolean and nothing else."""


_typed_dict: Final[Any] = TypedDict
_VARIABLE_SCALE: Final = _typed_dict("scaled", {"scale": INT32, "value": str})


def _decimal(schema: Schema) -> Wire:
    scale = _integer_parameter(schema, "scale") or 0
    precision = _integer_parameter(schema, "connect.decimal.precision")
    kind = Decimal(precision, scale)
    return Wire(kind, Any, json_values.decimal_in(scale), json_values.decimal_out(scale), "AA==")


def _variable(schema: Schema) -> Wire:
    del schema
    return Wire(
        Decimal(),
        _VARIABLE_SCALE,
        json_values.variable_in,
        json_values.variable_out,
        {"scale": 0, "value": "AA=="},
    )


UNBOUNDED_BITS: Final = str((1 << 31) - 1)
"""The length of a ``bit varying`` column that has none (Debezium's page of PostgreSQL)."""


def _bits(schema: Schema) -> Wire:
    length = None
    if schema.parameter.get("length") != UNBOUNDED_BITS:
        length = _integer_parameter(schema, "length")
    return Wire(Bits(length), str, json_values.bits_in(length), json_values.bits_out, "")


def _enum(schema: Schema) -> Wire:
    return Wire(Enum(_allowed(schema)), str, filler="", holder="text")


def _set(schema: Schema) -> Wire:
    return Wire(Set(_allowed(schema)), str, filler="", holder="text")


def _text(kind: LogicalType, filler: object = "") -> Callable[[Schema], Wire]:
    wire = Wire(kind, str, filler=filler, holder="text")
    return lambda _: wire


def _count(
    bits: int, kind: LogicalType, decode: Convert | None = None, encode: Convert | None = None
) -> Callable[[Schema], Wire]:
    wire = Wire(
        kind, _int(bits), decode, None if encode is None else json_values.ranged(encode, bits)
    )
    return lambda _: wire


def _ticks(digits: int, decode: Convert, bits: int = 64) -> Callable[[Schema], Wire]:
    encode = partial(epoch_times.timestamp_ticks, digits=digits)
    return _count(bits, Timestamp(digits), decode, encode)


def _clock(digits: int, bits: int = 64) -> Callable[[Schema], Wire]:
    decode, encode = (
        partial(epoch_times.time_text, digits=digits),
        partial(epoch_times.time_ticks, digits=digits),
    )
    return _count(bits, Time(digits), decode, encode)


_DATE: Final = _count(32, Date(), epoch_times.date_of, epoch_times.days_of)
_MILLIS: Final = _ticks(3, epoch_times.millis_timestamp)
_EPOCH_TEXT: Final = "1970-01-01T00:00:00.000000Z"


def _instant(schema: Schema) -> Wire:
    del schema
    return Wire(InstantType(), str, parse_instant, json_values.instant_out, _EPOCH_TEXT)


def _iso(kind: LogicalType, decode: Convert, encode: Convert) -> Callable[[Schema], Wire]:
    wire = Wire(kind, str, decode, encode, "")
    return lambda _: wire


def _shape(kind: str) -> Callable[[Schema], Wire]:
    optional_text: Any = str | None
    fields: dict[str, Any] = {"wkb": optional_text, "srid": INT32 | None}
    encode = json_values.geometry_out
    if kind == "point":
        fields = {"x": float, "y": float, **fields}
        encode = json_values.point_out
    shape = _typed_dict("shape", fields, total=False)
    wire = Wire(GeometryType(kind), shape, json_values.geometry_in, encode, None)
    return lambda _: wire


_SEMANTIC: Final[Mapping[str, tuple[str, Callable[[Schema], Wire]]]] = {
    f"{CONNECT}Decimal": ("bytes", _decimal),
    f"{CONNECT}Date": ("int32", _DATE),
    f"{CONNECT}Time": ("int32", _clock(3, 32)),
    f"{CONNECT}Timestamp": ("int64", _MILLIS),
    f"{DEBEZIUM}time.Date": ("int32", _DATE),
    f"{DEBEZIUM}time.Time": ("int32", _clock(3, 32)),
    f"{DEBEZIUM}time.MicroTime": ("int64", _clock(6)),
    f"{DEBEZIUM}time.NanoTime": ("int64", _clock(9)),
    f"{DEBEZIUM}time.Timestamp": ("int64", _MILLIS),
    f"{DEBEZIUM}time.MicroTimestamp": ("int64", _ticks(6, epoch_times.micros_timestamp)),
    f"{DEBEZIUM}time.NanoTimestamp": ("int64", _ticks(9, epoch_times.nanos_timestamp)),
    f"{DEBEZIUM}time.ZonedTimestamp": ("string", _instant),
    f"{DEBEZIUM}time.ZonedTime": ("string", _iso(TimeTz(), str, str)),
    f"{DEBEZIUM}time.Year": ("int32", _count(32, Year())),
    f"{DEBEZIUM}time.MicroDuration": (
        "int64",
        _count(64, Interval("us"), json_values.micros_in, json_values.micros_out),
    ),
    f"{DEBEZIUM}time.NanoDuration": (
        "int64",
        _count(64, Interval("ns"), None, json_values.nanos_out),
    ),
    f"{DEBEZIUM}time.Interval": ("string", _text(Interval())),
    f"{DEBEZIUM}time.IsoDate": (
        "string",
        _iso(
            Date(),
            json_values.iso_in(parse_date, json_values.iso_date_out),
            json_values.iso_date_out,
        ),
    ),
    f"{DEBEZIUM}time.IsoTime": (
        "string",
        _iso(Time(), json_values.iso_time_in, json_values.iso_time_out),
    ),
    f"{DEBEZIUM}time.IsoTimestamp": (
        "string",
        _iso(
            Timestamp(),
            json_values.iso_in(parse_timestamp, json_values.iso_timestamp_out),
            json_values.iso_timestamp_out,
        ),
    ),
    f"{DEBEZIUM}data.Bits": ("bytes", _bits),
    f"{DEBEZIUM}data.Enum": ("string", _enum),
    f"{DEBEZIUM}data.EnumSet": ("string", _set),
    f"{DEBEZIUM}data.Json": ("string", _text(Json())),
    f"{DEBEZIUM}data.Xml": ("string", _text(Xml())),
    f"{DEBEZIUM}data.Uuid": ("string", _text(Uuid())),
    f"{DEBEZIUM}data.Ltree": ("string", _text(Text("ltree"))),
    f"{DEBEZIUM}data.Tsvector": ("string", _text(Text("tsvector"))),
    f"{DEBEZIUM}data.VariableScaleDecimal": ("struct", _variable),
    f"{DEBEZIUM}data.geometry.Point": ("struct", _shape("point")),
    f"{DEBEZIUM}data.geometry.Geometry": ("struct", _shape("geometry")),
    f"{DEBEZIUM}data.geometry.Geography": ("struct", _shape("geography")),
}
"""Semantic name -> literal type, and the reader of its schema."""

_VENDOR: Final[Mapping[tuple[str, str], Wire]] = {
    ("string", "decimal"): Wire(Decimal(), str, json_values.number_in, json_values.number_out, "0"),
    ("string", "timestamp"): Wire(
        Timestamp(),
        str,
        json_values.lenient_timestamp_in,
        json_values.text_timestamp_out,
        "",
        "text",
    ),
}
"""Literal type, last part of a name ``com.<vendor>.cdc.data.<part>`` (Huawei's CDL) -> form.

Its documentation hides the vendor's part (``com.xxx``), and is not at one about upper case.
"""

_VENDOR_NAME: Final = re.compile(r"com\..+\.cdc\.data\.(\w+)", re.IGNORECASE | re.DOTALL)

_LITERAL: Final[Mapping[str, Wire]] = {
    "boolean": Wire(Boolean(), bool, filler=False),
    "int8": Wire(Integer(8), _int(8)),
    "int16": Wire(Integer(16), _int(16)),
    "int32": Wire(Integer(32), INT32),
    "int64": Wire(Integer(64), INT64),
    "float": Wire(Float(32), float | str, json_values.float_in, json_values.float_out),
    "float32": Wire(Float(32), float | str, json_values.float_in, json_values.float_out),
    "double": Wire(Float(64), float | str, json_values.float_in, json_values.float_out),
    "float64": Wire(Float(64), float | str, json_values.float_in, json_values.float_out),
    "bytes": Wire(Bytes(), str, json_values.bytes_in, json_values.bytes_out, "", "bytes"),
    "string": Wire(String(), str, filler="", holder="text"),
}

_GEOMETRY_FIELDS: Final = {"x", "y", "wkb", "srid"}


def wire_of(schema: Schema, kind: LogicalType | None = None) -> Wire:
    """Return how the values of a schema travel.

    Args:
        schema: A field's schema, or that of a part of one.
        kind: The type that an annotation states, kept where the values can be of it.

    Raises:
        DecodeError: The schema has an unknown literal type or lacks a part.
    """
    match schema.type:
        case "array" if schema.items:
            wire = _array(schema.items, kind)
        case "map" if schema.keys and schema.values:
            wire = _map(schema.keys, schema.values, kind)
        case _:
            wire = _scalar(schema, kind)
    return wire if kind is None or kind == wire.type else _refined(wire, kind)


def _scalar(schema: Schema, kind: LogicalType | None) -> Wire:
    label = schema.label
    semantic = _SEMANTIC.get(label)
    if semantic is not None and semantic[0] == schema.type:
        members = {member.member for member in schema.members}
        if "geometry" not in label or members <= _GEOMETRY_FIELDS:
            return semantic[1](schema)
    if schema.type == "struct":
        return _record(schema, kind)
    if schema.type == "string" and label:
        match = _VENDOR_NAME.fullmatch(label)
        wire = None if match is None else _VENDOR.get((schema.type, match[1].lower()))
        if wire is not None:
            return wire
        return Wire(Text(label), str, filler="", holder="text")
    if schema.type not in _LITERAL:
        raise DecodeError(
            "a schema has no known type", code=ReasonCode.WRONG_SCHEMA, path="$.schema"
        )
    return _LITERAL[schema.type]


_TEXTS: Final = (String, Json, Xml, Uuid, Text, Enum, Set, Interval)


def _refined(wire: Wire, kind: LogicalType) -> Wire:
    """Return *wire* with the stated type, where its values can be told in it."""
    wire_type = wire.type
    replace = msgspec.structs.replace
    match kind, wire_type:
        case Time(precision), Time(digits) if digits is not None:
            cut = partial(json_values.cut_fraction, digits=precision)
            decode = wire.decode or json_values.same
            return replace(wire, type=kind, decode=lambda value: cut(decode(value)))
        case Integer(unsigned=True), Decimal(scale=0):
            read, write = wire.decode or json_values.same, wire.encode or json_values.same
            low, high = kind.range()
            return replace(
                wire,
                type=kind,
                decode=lambda value: json_values.within(int(read(value)), low, high),
                encode=lambda value: write(
                    json_values.whole_number(json_values.within(value, low, high))
                ),
            )
        case Unknown(), String():
            return replace(wire, encode=json_values.untyped_out)
        case Decimal(), String():
            return replace(
                wire, type=kind, decode=json_values.decimal_text_in, encode=json_values.plain_out
            )
        case Integer(), Integer() if kind.unsigned or kind.bits < wire_type.bits:
            return replace(wire, type=kind)
        case _ if type(kind) is type(wire_type) and not isinstance(kind, Integer | Decimal):
            return replace(wire, type=kind)
        case _ if isinstance(kind, _TEXTS) and isinstance(wire_type, _TEXTS) and wire.json is str:
            return replace(wire, type=kind)
    return wire


def _nullable(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda value: None if value is None else convert(value)


_ARRAY_HOLDERS: Final = {"uuid": "uuids", "bytes": "bytes_list"}


def _array(items: Schema, kind: LogicalType | None) -> Wire:
    inner = wire_of(items, kind.element if isinstance(kind, Array) else None)
    decode, encode = _nullable(inner.decode), _nullable(inner.encode)
    holder = _ARRAY_HOLDERS.get(str(inner.type), "texts" if inner.holder == "text" else "")
    if isinstance(inner.type, Integer):
        holder = "codes"
    return Wire(
        Array(inner.type),
        list[inner.json | None],  # type: ignore[name-defined]
        None if decode is None else lambda values: [decode(value) for value in values],
        None if encode is None else lambda values: [encode(value) for value in values],
        [],
        holder,
    )


def _map(keys: Schema, values: Schema, stated: LogicalType | None) -> Wire:
    parts = (stated.key, stated.value) if isinstance(stated, Map) else (None, None)
    key, value = wire_of(keys, parts[0]), wire_of(values, parts[1])
    read_key, read_value = (
        _nullable(key.decode) or json_values.same,
        _nullable(value.decode) or json_values.same,
    )
    one_out = _nullable(key.encode) or json_values.same
    two_out = _nullable(value.encode) or json_values.same
    kind = Map(key.type, value.type)
    if keys.type == "string":
        return Wire(
            kind,
            dict[str, value.json | None],  # type: ignore[name-defined]
            lambda pairs: [(read_key(key), read_value(right)) for key, right in pairs.items()],
            lambda pairs: {one_out(key): two_out(right) for key, right in pairs},
            {},
            "map",
        )
    return Wire(
        kind,
        list[tuple[key.json | None, value.json | None]],  # type: ignore[name-defined]
        lambda pairs: [(read_key(key), read_value(right)) for key, right in pairs],
        lambda pairs: [[one_out(key), two_out(right)] for key, right in pairs],
        [],
    )


def row_type(wires: Mapping[str, Wire]) -> Any:
    """Return the type of a struct's JSON for msgspec; any field may be null or absent."""
    # msgspec finds a field by the UTF-8 that Python keeps with its name. Names that msgspec decoded
    # itself have none until they are encoded once: without it a field like "ключ" is never found.
    msgspec.json.encode(list(wires))
    fields = {name: wire.json | None for name, wire in wires.items()}
    return _typed_dict("row", fields, total=False)


def _record(schema: Schema, kind: LogicalType | None) -> Wire:
    stated = dict(kind.fields) if isinstance(kind, Record) else {}
    wires = {member.member: wire_of(member, stated.get(member.member)) for member in schema.members}
    decoders = [(name, wire.decode) for name, wire in wires.items() if wire.decode]
    encoders = [(name, wire.encode) for name, wire in wires.items() if wire.encode]

    def convert(record: dict[str, Any], converters: list[tuple[str, Convert]]) -> dict[str, Any]:
        result = dict(record)
        for name, converter in converters:
            value = result.get(name)
            if value is not None:
                result[name] = converter(value)
        return result

    return Wire(
        Record(tuple((name, wire.type) for name, wire in wires.items()), schema.label),
        row_type(wires),
        (lambda record: convert(record, decoders)) if decoders else None,
        (lambda record: convert(record, encoders)) if encoders else None,
        None,
    )
