# SPDX-License-Identifier: Apache-2.0
"""Columns <-> fields of a row's schema.

A field of Connect has no attribute for a generated column, for the digits of a time, or for an
unsigned number of unknown source type. :func:`losses_of` reports them.
"""

import binascii
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from changelane import types as t
from changelane.errors import DecodeError, EncodeError
from changelane.formats.contract.losses import Loss
from changelane.formats.debezium_envelope.rows import json_values
from changelane.formats.debezium_envelope.rows.connect_schema import UNSET, Schema, check
from changelane.formats.debezium_envelope.rows.modes import BinaryMode, DecimalFormat, Modes
from changelane.formats.debezium_envelope.rows.semantic_types import CONNECT, Wire, bytes_wire
from changelane.formats.debezium_envelope.rows.type_mapping import schema_of, wire_of, with_type
from changelane.schema import Column

_SOURCE_TYPE: Final = "__debezium.source.column.type"
_SOURCE_LENGTH: Final = "__debezium.source.column.length"
_SOURCE_SCALE: Final = "__debezium.source.column.scale"
_UNSIGNED: Final = re.compile(r"(\w+)\b.*\bUNSIGNED\b.*", re.DOTALL | re.IGNORECASE)
_ARGUMENTS: Final = re.compile(r"(.+)\((\d+)(?:,(\d+))?\)", re.DOTALL)


# -- reading ---------------------------------------------------------------------------------------


def column_of(field: Schema, wire: Wire) -> Column:
    """Return the column of a field of a row's schema."""
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


_NARROW: Final[Mapping[tuple[str, str, str], t.Integer]] = {
    ("tinyint", "int16", ""): t.Integer(8, unsigned=True),
    ("smallint", "int32", ""): t.Integer(16, unsigned=True),
    ("int", "int64", ""): t.Integer(32, unsigned=True),
    ("integer", "int64", ""): t.Integer(32, unsigned=True),
    ("mediumint", "int32", ""): t.Integer(32, unsigned=True),
    ("bigint", "int64", ""): t.Integer(64, unsigned=True),
    ("bigint", "bytes", f"{CONNECT}Decimal"): t.Integer(64, unsigned=True),
}
"""Unsigned type of MySQL, literal type, semantic name -> column type."""


def wire_of_field(field: Schema, *, is_binlog: bool = True) -> Wire:
    """Return the form of the values of a row's field, with the type that its source type states.

    Args:
        field: The field.
        is_binlog: The source may be MySQL or MariaDB. A TINYINT of SQL Server has no sign.

    Raises:
        DecodeError: A literal type is unknown, a part is missing, or types are nested too deeply.
    """
    check(field, t.MOST_NESTED_TYPES)
    text = field.parameter.get(_SOURCE_TYPE)
    if field.type == "int16" and text is not None and text.lower() == "tinyint":
        return wire_of(field, t.Integer(8) if is_binlog else None)
    match = None if text is None else _UNSIGNED.fullmatch(text)
    if match is None or field.parameter.get("scale", "0") != "0":
        return wire_of(field)
    return wire_of(field, _NARROW.get((match[1].lower(), field.type, field.label)))


def _default(field: Schema, wire: Wire) -> object:
    if field.default is UNSET or field.default is None:
        return UNSET
    try:
        raw = msgspec.convert(field.default, wire.json)
        return raw if wire.decode is None else wire.decode(raw)
    except (msgspec.ValidationError, DecodeError, ValueError, TypeError, KeyError, ArithmeticError):
        return UNSET


# -- writing ---------------------------------------------------------------------------------------


_ONE_BIT: Final = re.compile(r"bit(?:\(1\))?", re.IGNORECASE)


def as_written(column: Column) -> Column:
    """Return a column with the type that Debezium gives it: a BIT(1) is a boolean.

    ``JdbcValueConverters`` has ``Bits`` for longer columns, and for those of ``BIT VARYING``.
    """
    source_type = column.source_type
    if column.type != t.Bits(1) or source_type is None or not _ONE_BIT.fullmatch(source_type):
        return column
    default = column.default
    if isinstance(default, str):
        default = default == "1"
    return msgspec.structs.replace(column, type=t.Boolean(), default=default)


def field_of(column: Column, modes: Modes) -> Schema:
    """Return the field of a row's schema for a column.

    Raises:
        EncodeError: The type has more digits than any reader accepts.
    """
    schema = _binlog_schema(column, modes) if modes.binlog else schema_of(column.type, modes)
    parameters = dict(schema.parameter)
    if column.source_type is not None and modes.source_types:
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
        msg = f"column {column.name!r}: {column.type} is larger than any type that can be read"
        raise EncodeError(msg) from None
    return field if default is UNSET else msgspec.structs.replace(field, default=default)


_BINLOG_TYPE: Final = re.compile(
    r"(tinyint|mediumint|datetime)(?:\((\d+)\))?(\s.*)?", re.IGNORECASE | re.DOTALL
)


def _binlog_schema(column: Column, modes: Modes) -> Schema:
    """Return the schema that the MySQL connector gives a column, by its source type.

    The connector has fewer integer types than MySQL. Its DATETIME has the digits that the source
    type states, or none.
    """
    match = None if column.source_type is None else _BINLOG_TYPE.fullmatch(column.source_type)
    match (match[1].lower(), column.type) if match else None:
        case ("tinyint", t.Integer(8, False)):
            return Schema("int16")
        case ("mediumint", t.Integer(32, True)):
            return Schema("int32")
        case ("datetime", t.Timestamp()) if match is not None:
            return schema_of(t.Timestamp(int(match[2] or 0)), modes)
    return schema_of(column.type, modes)


def losses_of(column: Column, field: Schema, *, is_binlog: bool = True) -> tuple[Loss, ...]:
    """Return the attributes of a column that its field does not have."""
    losses: list[Loss] = []
    wire = wire_of_field(field, is_binlog=is_binlog)
    if is_other(column.type, wire.type):
        name, field_type_name = type_name(column.type), type_name(wire.type)
        is_nested = name == field_type_name
        reason = "its parts are not written" if is_nested else f"written as {field_type_name}"
        losses.append((f"type:{name}", reason))
    if column.generated:
        losses.append(("schema.generated", "not written"))
    has_default = column.default is not UNSET and column.default is not None
    if has_default and _default(field, wire) != column.default:
        losses.append(("schema.default", "the default has no form"))
    return tuple(losses)


def type_name(kind: t.LogicalType) -> str:
    """Return the name of a type without its arguments."""
    return str(kind).partition("(")[0].partition("<")[0]


def is_other(kind: t.LogicalType, logical_type: t.LogicalType) -> bool:
    """Return whether values come back as another type, or a time with other digits."""
    match kind, logical_type:
        case (t.Array(element), t.Array(other_element)):
            return is_other(element, other_element)
        case (t.Map(key, value), t.Map(other_key, other_value)):
            return is_other(key, other_key) or is_other(value, other_value)
        case (
            (t.Record(), t.Record())
            | (t.Integer(), t.Integer())
            | (t.Time(), t.Time())
            | (t.Text(), t.Text())
        ):
            return kind != logical_type
        case _:
            return type(kind) is not type(logical_type)


def default_of(column: Column, wire: Wire) -> object:
    """Return the JSON of a column's default, ``UNSET`` where there is none or it has no form."""
    if column.default is UNSET or column.default is None:
        return UNSET
    try:
        return column.default if wire.encode is None else wire.encode(column.default)
    except (EncodeError, TypeError, ValueError, AttributeError):
        return UNSET


def wire_with(field: Schema, modes: Modes, kind: t.LogicalType | None = None) -> Wire:
    """Return the form of the values of a field, with decimals and bytes in the form of *modes*.

    Args:
        field: The field.
        modes: The writer's choices.
        kind: The column's own type, which a field may not state.
    """
    if isinstance(kind, t.Bytes) and field.type == "string" and not field.label:
        return _BINARY[modes.binary]
    wire = wire_of_field(field) if kind is None else wire_of(field, kind)
    if modes.decimals is not DecimalFormat.NUMERIC or field.label != f"{CONNECT}Decimal":
        return wire
    scale = int(field.parameter.get("scale", "0"))
    numeric = msgspec.structs.replace(
        wire, decode=json_values.numeric_in(scale), encode=json_values.numeric_out(scale), filler=0
    )
    if isinstance(wire.type, t.Integer):
        return with_type(msgspec.structs.replace(numeric, type=t.Decimal(None, scale)), wire.type)
    return numeric


_BASE64: Final = bytes_wire(json_values.bytes_in, json_values.bytes_out)
_BINARY: Final[Mapping[BinaryMode, Wire]] = {
    BinaryMode.BYTES: _BASE64,
    BinaryMode.BASE64: _BASE64,
    BinaryMode.BASE64_URL_SAFE: bytes_wire(json_values.url_safe_in, json_values.url_safe_out),
    BinaryMode.HEX: bytes_wire(binascii.unhexlify, bytes.hex),
}
