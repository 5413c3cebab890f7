# SPDX-License-Identifier: Apache-2.0
"""Columns <-> fields of a row's schema.

What a Connect field has no attribute for (a generated column, the digits of a time, an unsigned
number whose source type is not known) is lost, and :func:`losses_of` says so.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError, EncodeError
from changelane.formats.contract.losses import Loss
from changelane.formats.debezium_envelope.rows import json_values
from changelane.formats.debezium_envelope.rows.connect_schema import UNSET, Schema, check, struct
from changelane.formats.debezium_envelope.rows.semantic_types import (
    CONNECT,
    DEBEZIUM,
    UNBOUNDED_BITS,
    Wire,
    allowed_text,
    wire_of,
)
from changelane.schema import Column
from changelane.types import (
    MOST_NESTED_TYPES,
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
    Uuid,
    Xml,
    Year,
)

_SOURCE_TYPE: Final = "__debezium.source.column.type"
_SOURCE_LENGTH: Final = "__debezium.source.column.length"
_SOURCE_SCALE: Final = "__debezium.source.column.scale"
_UNSIGNED: Final = re.compile(r"(\w+)\b.*\bUNSIGNED\b.*", re.DOTALL | re.IGNORECASE)
_ARGUMENTS: Final = re.compile(r"(.+)\((\d+)(?:,(\d+))?\)", re.DOTALL)


class TimePrecisionMode(StrEnum):
    """How dates and times are written: Debezium's ``time.precision.mode``."""

    AUTO = "auto"
    """``adaptive_time_microseconds`` for MySQL, MariaDB and the unknown, else ``adaptive``."""
    ADAPTIVE = "adaptive"
    ADAPTIVE_TIME_MICROSECONDS = "adaptive_time_microseconds"
    CONNECT = "connect"
    ISOSTRING = "isostring"
    MICROSECONDS = "microseconds"
    NANOSECONDS = "nanoseconds"


class DecimalFormat(StrEnum):
    """How decimals are written: Connect's ``decimal.format``, or Debezium's ``string`` mode."""

    BASE64 = "base64"
    NUMERIC = "numeric"
    STRING = "string"


class BinaryMode(StrEnum):
    """How bytes are written: Debezium's ``binary.handling.mode``."""

    BYTES = "bytes"
    """As Base64, which is what Connect's JSON has for bytes."""
    BASE64 = "base64"
    BASE64_URL_SAFE = "base64-url-safe"
    HEX = "hex"


class Modes(msgspec.Struct, frozen=True):
    """How a writer chooses among forms.

    Attributes:
        time: Form of dates and times.
        decimals: Form of decimals.
        binary: Form of bytes.
        vendor: What the semantic names of a vendor start with, such as ``com.huawei``: decimals
            are text under its ``.cdc.data.Decimal``; empty for Debezium's own.
        binlog: The events tell of MySQL or MariaDB: types are those of their connectors.
        vendor_timestamps: Local timestamps are text under its ``.cdc.data.timestamp``.
    """

    time: TimePrecisionMode = TimePrecisionMode.ADAPTIVE
    decimals: DecimalFormat = DecimalFormat.BASE64
    binary: BinaryMode = BinaryMode.BYTES
    vendor: str = ""
    vendor_timestamps: bool = False
    binlog: bool = False


def modes_of(
    time: TimePrecisionMode,
    decimals: DecimalFormat,
    product: str | None,
    binary: BinaryMode = BinaryMode.BYTES,
) -> Modes:
    """Return the modes for a product."""
    binlog = product in {"mysql", "mariadb"}
    if time is TimePrecisionMode.AUTO:
        time = TimePrecisionMode.ADAPTIVE
        if binlog or product is None:
            time = TimePrecisionMode.ADAPTIVE_TIME_MICROSECONDS
    return Modes(time, decimals, binary, binlog=binlog)


# -- reading -----------------------------------------------------------------------------------


def column_of(field: Schema, wire: Wire) -> Column:
    """Return the column that a field of a row's schema tells."""
    parameters = field.parameter
    source_type = parameters.get(_SOURCE_TYPE)
    if source_type is not None and _SOURCE_LENGTH in parameters:
        scale = parameters.get(_SOURCE_SCALE)
        tail = parameters[_SOURCE_LENGTH] + ("" if scale is None else f",{scale}")
        source_type = f"{source_type}({tail})"
    return Column(
        field.member,
        wire.type,
        source_type,
        bool(field.optional),
        default=_default(field, wire),
    )


_NARROW: Final[Mapping[tuple[str, str, str], Integer]] = {
    ("tinyint", "int16", ""): Integer(8, unsigned=True),
    ("smallint", "int32", ""): Integer(16, unsigned=True),
    ("int", "int64", ""): Integer(32, unsigned=True),
    ("integer", "int64", ""): Integer(32, unsigned=True),
    ("mediumint", "int32", ""): Integer(32, unsigned=True),
    ("bigint", "bytes", f"{CONNECT}Decimal"): Integer(64, unsigned=True),
}
"""(Unsigned type of MySQL, literal type, semantic name) -> column type; int64 bigints wrapped."""


def wire_of_field(field: Schema) -> Wire:
    """Return how the values of a row's field travel, its source type heeded.

    Raises:
        DecodeError: A literal type is unknown, a part is missing, or types are nested too deeply.
    """
    check(field, MOST_NESTED_TYPES)
    text = field.parameter.get(_SOURCE_TYPE)
    if field.type == "int16" and text is not None and text.lower() == "tinyint":
        return wire_of(field, Integer(8))
    match = None if text is None else _UNSIGNED.fullmatch(text)
    if match is None or field.parameter.get("scale", "0") != "0":
        return wire_of(field)
    return wire_of(field, _NARROW.get((match[1].lower(), field.type, field.label)))


def _default(field: Schema, wire: Wire) -> object:
    if field.default is UNSET or field.default is None:
        return msgspec.UNSET
    try:
        raw = msgspec.convert(field.default, wire.json)
        return raw if wire.decode is None else wire.decode(raw)
    except (msgspec.ValidationError, DecodeError, ValueError, TypeError, KeyError, ArithmeticError):
        return msgspec.UNSET


# -- writing -----------------------------------------------------------------------------------


def field_of(column: Column, modes: Modes) -> Schema:
    """Return the field of a row's schema for a column.

    Raises:
        EncodeError: No reader takes a number of that size, lest it eats memory.
    """
    schema = _binlog_schema(column, modes) if modes.binlog else schema_of(column.type, modes)
    parameters = dict(schema.parameter)
    if column.source_type is not None:
        match = _ARGUMENTS.fullmatch(column.source_type)
        name, length, scale = match.groups() if match else (column.source_type, None, None)
        parameters[_SOURCE_TYPE] = name
        if length is not None:
            parameters[_SOURCE_LENGTH] = length
        if scale is not None:
            parameters[_SOURCE_SCALE] = scale
    field = msgspec.structs.replace(
        schema,
        optional=column.nullable is not False,
        parameters=parameters or UNSET,
        field=column.name,
    )
    try:
        default = default_of(column, wire_with(field, modes))
    except DecodeError:
        msg = f"column {column.name!r}: {column.type} is larger than what can be read again"
        raise EncodeError(msg) from None
    return field if default is UNSET else msgspec.structs.replace(field, default=default)


_BINLOG_TYPE: Final = re.compile(
    r"(tinyint|mediumint|datetime)(?:\((\d+)\))?(\s.*)?", re.IGNORECASE | re.DOTALL
)


def _binlog_schema(column: Column, modes: Modes) -> Schema:
    """Return the schema that the MySQL connector gives a column, by its source type.

    It knows fewer integers than MySQL, and a DATETIME without digits has none.
    """
    match = None if column.source_type is None else _BINLOG_TYPE.fullmatch(column.source_type)
    match (match[1].lower(), column.type) if match else None:
        case ("tinyint", Integer(8, False)):
            return Schema("int16")
        case ("mediumint", Integer(32, True)):
            return Schema("int32")
        case ("datetime", Timestamp()) if match is not None:
            return _timestamp(int(match[2] or 0), modes.time)
    return schema_of(column.type, modes)


def losses_of(column: Column, field: Schema) -> tuple[Loss, ...]:
    """Return what the field of a column does not say of it."""
    losses: list[Loss] = []
    field_type = wire_of_field(field).type
    if is_other(column.type, field_type):
        name, field_type_name = type_name(column.type), type_name(field_type)
        is_nested = name == field_type_name
        reason = "its parts are not written" if is_nested else f"written as {field_type_name}"
        losses.append((f"type:{name}", reason))
    if column.generated:
        losses.append(("schema.generated", "not written"))
    if column.default is not msgspec.UNSET and column.default is not None:
        wire = wire_of_field(field)
        if _default(field, wire) != column.default:
            losses.append(("schema.default", "the default has no form"))
    return tuple(losses)


def type_name(kind: LogicalType) -> str:
    """Return the name of a type without its arguments."""
    return str(kind).partition("(")[0].partition("<")[0]


def is_other(kind: LogicalType, logical_type: LogicalType) -> bool:
    """Say whether values would come back as another type, or a time with other digits."""
    match kind, logical_type:
        case (Array(one), Array(two)):
            return is_other(one, two)
        case (Map(one, one_value), Map(two, two_value)):
            return is_other(one, two) or is_other(one_value, two_value)
        case (Record(), Record()) | (Integer(), Integer()) | (Time(), Time()):
            return kind != logical_type
        case (Text(), Text()):
            return kind != logical_type
        case _:
            return type(kind) is not type(logical_type)


def default_of(column: Column, wire: Wire) -> object:
    """Return the JSON of a column's default, ``UNSET`` when there is none or it has no form."""
    if column.default is msgspec.UNSET or column.default is None:
        return UNSET
    try:
        return column.default if wire.encode is None else wire.encode(column.default)
    except (EncodeError, TypeError, ValueError, AttributeError):
        return UNSET


def wire_with(field: Schema, modes: Modes, kind: LogicalType | None = None) -> Wire:
    """Return how the values of a field travel, with decimals in the form of *modes*.

    Args:
        field: The field.
        modes: The writer's choices.
        kind: The column's own type, where a field may not tell it.
    """
    if isinstance(kind, Bytes) and field.type == "string" and not field.label:
        return _BINARY[modes.binary]
    wire = wire_of_field(field) if kind is None else wire_of(field, kind)
    if modes.decimals is DecimalFormat.NUMERIC and field.label == f"{CONNECT}Decimal":
        scale = int(field.parameter.get("scale", "0"))
        read, write = json_values.numeric_in(scale), json_values.numeric_out(scale)
        if isinstance(wire.type, Integer):
            low, high = wire.type.range()
            return msgspec.structs.replace(
                wire,
                decode=lambda value: json_values.within(int(read(value)), low, high),
                encode=lambda value: write(
                    json_values.whole_number(json_values.within(value, low, high))
                ),
                filler=0,
            )
        return msgspec.structs.replace(wire, decode=read, encode=write, filler=0)
    return wire


def _bytes_as(decode: json_values.Convert, encode: json_values.Convert) -> Wire:
    return Wire(Bytes(), str, decode, encode, "", "bytes")


_BINARY: Final[Mapping[BinaryMode, Wire]] = {
    BinaryMode.BYTES: _bytes_as(json_values.bytes_in, json_values.bytes_out),
    BinaryMode.BASE64: _bytes_as(json_values.bytes_in, json_values.bytes_out),
    BinaryMode.BASE64_URL_SAFE: _bytes_as(json_values.url_safe_in, json_values.url_safe_out),
    BinaryMode.HEX: _bytes_as(json_values.hex_in, json_values.hex_out),
}


def _named(literal: str, name: str, **attributes: Any) -> Schema:
    return Schema(literal, name=DEBEZIUM + name, version=1, **attributes)


_PLAIN: Final[Mapping[LogicalType, Schema]] = {
    Boolean(): Schema("boolean"),
    Integer(8): Schema("int8"),
    Integer(16): Schema("int16"),
    Integer(32): Schema("int32"),
    Integer(64): Schema("int64"),
    Integer(8, unsigned=True): Schema("int16"),
    Integer(16, unsigned=True): Schema("int32"),
    Integer(32, unsigned=True): Schema("int64"),
    Float(32): Schema("float"),
    Float(64): Schema("double"),
    String(): Schema("string"),
    Bytes(): Schema("bytes"),
    Year(): _named("int32", "time.Year"),
    Interval("us"): _named("int64", "time.MicroDuration"),
    Interval("ns"): _named("int64", "time.NanoDuration"),
    Interval(): _named("string", "time.Interval"),
    Json(): _named("string", "data.Json"),
    Uuid(): _named("string", "data.Uuid"),
    Xml(): _named("string", "data.Xml"),
    Text("ltree"): _named("string", "data.Ltree"),
    Text("tsvector"): _named("string", "data.Tsvector"),
}


def schema_of(kind: LogicalType, modes: Modes) -> Schema:
    """Return the schema of a logical type, without a column's own attributes."""
    if isinstance(kind, Bytes) and modes.binary is not BinaryMode.BYTES:
        return Schema("string")
    plain = _PLAIN.get(kind)
    if plain is not None:
        return plain
    match kind:
        case Decimal() | Integer() if modes.vendor:
            return Schema("string", name=f"{modes.vendor}.cdc.data.Decimal")
        case Timestamp() if modes.vendor and modes.vendor_timestamps:
            return Schema("string", name=f"{modes.vendor}.cdc.data.timestamp")
        case Decimal():
            return _decimal(kind, modes)
        case Integer():  # unsigned 64: Debezium's bigint.unsigned.handling.mode=precise
            return Schema("bytes", name=f"{CONNECT}Decimal", version=1, parameters={"scale": "0"})
        case Bits(length):
            size = UNBOUNDED_BITS if length is None else str(length)
            return _named("bytes", "data.Bits", parameters={"length": size})
        case Date():
            return _DATES.get(modes.time, _named("int32", "time.Date"))
        case Time(precision):
            return _time(precision, modes.time)
        case Timestamp(precision):
            return _timestamp(precision, modes.time)
        case InstantType():
            return _named("string", "time.ZonedTimestamp")
        case TimeTz():
            return _named("string", "time.ZonedTime")
        case Enum(members) | Set(members):
            parameters = UNSET if members is None else {"allowed": allowed_text(members)}
            name = "data.Enum" if isinstance(kind, Enum) else "data.EnumSet"
            return _named("string", name, parameters=parameters)
        case Text(name) if "." in name:  # a semantic name
            return Schema("string", name=name)
        case GeometryType(shape):
            return _geometry(shape)
        case Array(element):
            return Schema("array", items=_optional(schema_of(element, modes)))
        case Map(one, other):
            return Schema(
                "map",
                keys=schema_of(one, modes),
                values=_optional(schema_of(other, modes)),
            )
        case Record(fields, name):
            parts = tuple(
                msgspec.structs.replace(_optional(schema_of(member, modes)), field=label)
                for label, member in fields
            )
            return struct(parts, name=name or UNSET)
        case _:
            return Schema("string")


def _optional(schema: Schema) -> Schema:
    return msgspec.structs.replace(schema, optional=True)


def _decimal(kind: Decimal, modes: Modes) -> Schema:
    if modes.decimals is DecimalFormat.STRING:
        return Schema("string")
    if kind.scale is None:
        members = Schema("int32", field="scale"), Schema("bytes", field="value")
        return Schema(
            "struct",
            fields=members,
            name=f"{DEBEZIUM}data.VariableScaleDecimal",
            version=1,
            doc="Variable scaled decimal",
        )
    parameters = {"scale": str(kind.scale)}
    if kind.precision is not None:
        parameters["connect.decimal.precision"] = str(kind.precision)
    return Schema("bytes", name=f"{CONNECT}Decimal", version=1, parameters=parameters)


_MODE: Final = TimePrecisionMode
_DATES: Final = {
    _MODE.CONNECT: Schema("int32", name=f"{CONNECT}Date", version=1),
    _MODE.ISOSTRING: _named("string", "time.IsoDate"),
}
_TIMES: Final = {
    _MODE.CONNECT: Schema("int32", name=f"{CONNECT}Time", version=1),
    _MODE.ISOSTRING: _named("string", "time.IsoTime"),
    _MODE.MICROSECONDS: _named("int64", "time.MicroTime"),
    _MODE.ADAPTIVE_TIME_MICROSECONDS: _named("int64", "time.MicroTime"),
    _MODE.NANOSECONDS: _named("int64", "time.NanoTime"),
}
_TIMESTAMPS: Final = {
    _MODE.CONNECT: Schema("int64", name=f"{CONNECT}Timestamp", version=1),
    _MODE.ISOSTRING: _named("string", "time.IsoTimestamp"),
    _MODE.MICROSECONDS: _named("int64", "time.MicroTimestamp"),
    _MODE.NANOSECONDS: _named("int64", "time.NanoTimestamp"),
}


def _adaptive(precision: int | None, names: tuple[Schema, Schema, Schema]) -> Schema:
    millis, micros, nanos = names
    if precision is None:
        return micros
    return millis if precision <= 3 else micros if precision <= 6 else nanos


def _time(precision: int | None, mode: TimePrecisionMode) -> Schema:
    names = (
        _named("int32", "time.Time"),
        _named("int64", "time.MicroTime"),
        _named("int64", "time.NanoTime"),
    )
    return _TIMES.get(mode) or _adaptive(precision, names)


def _timestamp(precision: int | None, mode: TimePrecisionMode) -> Schema:
    names = (
        _named("int64", "time.Timestamp"),
        _named("int64", "time.MicroTimestamp"),
        _named("int64", "time.NanoTimestamp"),
    )
    return _TIMESTAMPS.get(mode) or _adaptive(precision, names)


_SHAPE_NAMES: Final = {"point": "Point", "geometry": "Geometry", "geography": "Geography"}


def _geometry(kind: str) -> Schema:
    wkb = Schema("bytes", field="wkb", optional=kind == "point")
    srid = Schema("int32", optional=True, field="srid")
    name = _SHAPE_NAMES.get(kind, "Geometry")
    members: tuple[Schema, ...] = (wkb, srid)
    if kind == "point":
        members = (Schema("double", field="x"), Schema("double", field="y"), wkb, srid)
    return Schema(
        "struct",
        fields=members,
        name=f"{DEBEZIUM}data.geometry.{name}",
        version=1,
        doc="Geometry (POINT)" if kind == "point" else "Geometry",
    )
