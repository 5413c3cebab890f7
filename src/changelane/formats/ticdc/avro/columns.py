# SPDX-License-Identifier: Apache-2.0
"""The columns of TiCDC's Avro protocol: types in schemas, and the values of each type.

Sources: "TiCDC Avro Protocol", Column type (https://docs.pingcap.com/tidb/stable/ticdc-avro-protocol)
and ``columnToAvroSchema`` in ``pkg/sink/codec/avro`` of https://github.com/pingcap/ticdc.
"""

import base64
import binascii
import datetime as dt
import decimal
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from changelane.errors import DecodeError
from changelane.formats.contract.column_values import Read
from changelane.formats.debezium_envelope.rows.columns import wire_of_field
from changelane.formats.debezium_envelope.rows.connect_schema import UNSET, Schema
from changelane.formats.debezium_envelope.rows.semantic_types import CONNECT
from changelane.formats.ticdc.values import MOST_BITS, value_reader, wrong_value
from changelane.reason_codes import ReasonCode
from changelane.schema import Column
from changelane.types import (
    Bits,
    Bytes,
    Date,
    Decimal,
    Enum,
    Float,
    InstantType,
    Integer,
    Json,
    LogicalType,
    Set,
    String,
    Time,
    Timestamp,
    Year,
)
from changelane.types.forms import written_form
from changelane.types.values import iso_text, plain

Write = Callable[[Any], Any]
"""A value to its JSON value; raises an exception if it is not of its type."""

TYPES: Final[frozenset[type[LogicalType]]] = frozenset(
    {
        *(Bits, Bytes, Date, Decimal, Enum, Float, InstantType, Integer, Json, Set, String, Time),
        *(Timestamp, Year),
    }
)
TIDB_TYPE: Final = "tidb_type"
_ALLOWED: Final = "allowed"
_LENGTH: Final = "length"
_DECIMAL: Final = f"{CONNECT}Decimal"
_MOST_DIGITS: Final = 65
_U64: Final = 1 << 64
_I64: Final = 1 << 63

_KINDS: Final[dict[str, LogicalType]] = {
    "INT": Integer(32),
    "INT UNSIGNED": Integer(32, unsigned=True),
    "BIGINT": Integer(64),
    "BIGINT UNSIGNED": Integer(64, unsigned=True),
    "FLOAT": Float(32),
    "DOUBLE": Float(64),
    "BIT": Bits(),
    "DECIMAL": Decimal(),
    "TEXT": String(),
    "BLOB": Bytes(),
    "ENUM": Enum(),
    "SET": Set(),
    "JSON": Json(),
    "DATE": Date(),
    "DATETIME": Timestamp(),
    "TIMESTAMP": InstantType(),
    "TIME": Time(),
    "YEAR": Year(),
    "TIDBVECTORFLOAT32": String(),
}
"""``tidb_type`` in upper case -> the logical type."""


class ColumnReader(NamedTuple):
    """A column of a schema, and the reader of its JSON values."""

    column: Column
    read: Read


def column_of(field: Schema, zone: dt.tzinfo) -> ColumnReader:
    """Return the column of a field.

    Raises:
        DecodeError: The field is not one of TiCDC, or its type is unknown.
    """
    parameters = field.parameter
    source_type = parameters.get(TIDB_TYPE)
    if source_type is None:
        reason = "a field without tidb_type, which each column of TiCDC has"
        raise DecodeError(reason, code=ReasonCode.WRONG_SCHEMA)
    kind = _KINDS.get(source_type.upper())
    if kind is None:
        raise DecodeError("an unknown column type", code=ReasonCode.UNKNOWN_TYPE)
    kind, read = _typed(field, kind, zone)
    return ColumnReader(Column(field.member, kind, source_type, bool(field.optional)), read)


def _typed(field: Schema, kind: LogicalType, zone: dt.tzinfo) -> tuple[LogicalType, Read]:
    match kind:
        case Integer(64, True):
            return kind, _read_unsigned
        case Decimal() if field.label == _DECIMAL:
            wire = wire_of_field(field)
            decode = wire.decode
            return wire.type, _checked(decode) if decode is not None else value_reader(kind, zone)
        case Bits():
            length = field.parameter.get(_LENGTH, "")
            is_length = length.isascii() and length.isdigit() and 0 < int(length[:5]) <= MOST_BITS
            kind = Bits(int(length[:5]) if is_length else None)
            return kind, _bits_reader(kind)
        case Enum() | Set():
            members = _members(field.parameter.get(_ALLOWED))
            kind = Enum(members) if isinstance(kind, Enum) else Set(members)
            return kind, _read_text
        case _:
            return kind, value_reader(kind, zone)


def _checked(decode: Callable[[Any], Any]) -> Read:
    def read(value: Any) -> Any:
        try:
            return decode(value)
        except (ValueError, TypeError, ArithmeticError, AttributeError, KeyError):
            raise wrong_value("decimal") from None

    return read


_read_unsigned_number: Final = value_reader(Integer(64, unsigned=True), dt.UTC)


def _read_unsigned(value: Any) -> Any:
    """Return an unsigned number; a long is its two's complement."""
    if type(value) is int and -_I64 <= value < 0:
        return value + _U64
    return _read_unsigned_number(value)


def _bits_reader(kind: Bits) -> Read:
    width = kind.length or 1

    def read(value: Any) -> str:
        if type(value) is not str:
            raise wrong_value("bits")
        try:
            data = binascii.a2b_base64(value, strict_mode=True) if value else b""
        except (binascii.Error, ValueError):
            raise wrong_value("bits") from None
        number = int.from_bytes(data, "big")
        if number.bit_length() > (kind.length or MOST_BITS):
            raise DecodeError("out of the range of bits", code=ReasonCode.VALUE_OUT_OF_RANGE)
        return f"{number:0{width}b}"

    return read


def _read_text(value: Any) -> str:
    if type(value) is not str:
        raise wrong_value("text")
    return value


def _members(allowed: str | None) -> tuple[str, ...] | None:
    r"""Return the members of a type; a backslash escapes a comma or another backslash.

    >>> _members(r"a,b\,c")
    ('a', 'b,c')
    """
    if allowed is None:
        return None
    parts: list[str] = [""]
    characters = iter(allowed)
    for character in characters:
        if character == ",":
            parts.append("")
        else:
            parts[-1] += next(characters, "\\") if character == "\\" else character
    return tuple(parts)


# -- writing -------------------------------------------------------------------------------------


class ColumnWriter(NamedTuple):
    """The schema of a column, and the writer of its values."""

    field: Schema
    write: Write


def column_writer_of(column: Column, zone: str) -> ColumnWriter:
    """Return how a column is written."""
    kind = column.type
    name, literal, parameters, write = _written(kind, zone)
    schema_name: Any = UNSET
    if isinstance(kind, Decimal) and literal == "bytes":
        schema_name = _DECIMAL
    is_vector = column.source_type is not None and column.source_type.upper() == _VECTOR
    if is_vector and isinstance(kind, String):
        name = column.source_type or name
    field = Schema(
        literal,
        optional=column.nullable is not False,
        name=schema_name,
        version=1 if schema_name is not UNSET else UNSET,
        parameters={**parameters, TIDB_TYPE: name},
        field=column.name,
    )
    if schema_name is not UNSET:
        encode = wire_of_field(field).encode
        write = write if encode is None else encode
    return ColumnWriter(field, write)


_VECTOR: Final = "TIDBVECTORFLOAT32"


def _written(kind: LogicalType, zone: str) -> tuple[str, str, dict[str, str], Write]:
    """Return the name of a type, the literal type, the parameters and the writer of values."""
    match kind:
        case Integer(64, True):
            return "BIGINT UNSIGNED", "int64", {}, _signed
        case Integer():
            name = "BIGINT" if kind.bits == 64 else "INT"
            is_wide = kind.bits == 64 or (kind.bits == 32 and kind.unsigned)
            return f"{name} UNSIGNED" if kind.unsigned else name, _INT[is_wide], {}, _same
        case Float():
            name = "FLOAT" if kind.bits == 32 else "DOUBLE"
            return name, name.lower(), {}, _finite
        case Bits():
            length = {} if kind.length is None else {_LENGTH: str(kind.length)}
            return "BIT", "bytes", length, _bit_bytes
        case Decimal(precision, scale) if _is_exact(precision, scale):
            return "DECIMAL", "bytes", _decimal_parameters(precision, scale), _same
        case Decimal():
            return "DECIMAL", "string", {}, plain
        case Bytes():
            return "BLOB", "bytes", {}, _base64
        case Enum() | Set():
            name = "ENUM" if isinstance(kind, Enum) else "SET"
            return name, "string", _allowed(kind.members), _same
        case Date():
            return "DATE", "string", {}, lambda v: v if isinstance(v, str) else iso_text(v)
        case Timestamp() | InstantType():
            form = written_form(kind, f"sql@{zone}")[1]
            name = "DATETIME" if isinstance(kind, Timestamp) else "TIMESTAMP"
            return name, "string", {}, lambda v: v if isinstance(v, str) else form(v)
        case Year():
            return "YEAR", "int32", {}, _same
        case Json():
            return "JSON", "string", {}, _same
        case Time():
            return "TIME", "string", {}, _same
        case _:
            return "TEXT", "string", {}, _same


_INT: Final = {False: "int32", True: "int64"}


def _is_exact(precision: int | None, scale: int | None) -> bool:
    return precision is not None and scale is not None and 0 <= scale <= precision <= _MOST_DIGITS


def _decimal_parameters(precision: int | None, scale: int | None) -> dict[str, str]:
    return {"scale": str(scale), "connect.decimal.precision": str(precision)}


def _allowed(members: tuple[str, ...] | None) -> dict[str, str]:
    if members is None:
        return {}
    escaped = (member.replace("\\", "\\\\").replace(",", "\\,") for member in members)
    return {_ALLOWED: ",".join(escaped)}


def _same(value: Any) -> Any:
    return value


def _finite(value: float) -> decimal.Decimal:
    if not math.isfinite(value):
        raise ValueError
    return decimal.Decimal(repr(float(value)))


def _signed(value: int) -> int:
    if not 0 <= value < _U64:
        raise ValueError
    return value - _U64 if value >= _I64 else value


def _bit_bytes(value: str) -> str:
    number = int(value, 2)
    return _base64(number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big"))


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")
