# SPDX-License-Identifier: Apache-2.0
"""The columns of changefeeds in Avro.

A record in Avro becomes the message that Connect's JSON converter would have written, whose schema
has the SQL of each column (``pkg/ccl/changefeedccl/avro.go`` of
https://github.com/cockroachdb/cockroach).
"""

import datetime as dt
import decimal
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from changelane.errors import DecodeError, EncodeError
from changelane.formats.contract.column_values import Read, reader
from changelane.formats.contract.losses import Loss
from changelane.formats.debezium_envelope.registry.avro_styles import (
    DECIMAL_TEXT,
    PRECISION,
    SCALE,
    SQL_COLUMN,
)
from changelane.formats.debezium_envelope.rows import connect_schema
from changelane.formats.debezium_envelope.rows.columns import wire_of_field
from changelane.formats.debezium_envelope.rows.connect_schema import Schema
from changelane.formats.debezium_envelope.rows.epoch_times import Inexact
from changelane.formats.debezium_envelope.rows.json_values import bytes_out
from changelane.formats.debezium_envelope.rows.row_reader import all_fields, fields_of
from changelane.formats.debezium_envelope.rows.semantic_types import CONNECT, DEBEZIUM
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableSchema
from changelane.types import (
    Bits,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Float,
    Instant,
    InstantType,
    Integer,
    Interval,
    Json,
    LogicalType,
    String,
    Text,
    Time,
    Timestamp,
    TimeTz,
    Uuid,
)
from changelane.types.values import float_form, plain, unscaled

_SQL_TYPE: Final = re.compile(r'(?:"(?:[^"]|"")*"|\S+) ([A-Za-z0-9]+)(\[\])?')
_TEXT_TYPES: Final[dict[str, LogicalType]] = {
    "INTERVAL": Interval(),
    "JSONB": Json(),
    "TIMETZ": TimeTz(),
    "UUID": Uuid(),
}
"""The SQL types whose values are texts, and which have types of their own."""
_BITS: Final = frozenset({"BIT", "VARBIT"})
_WORD_BITS: Final = 64
_WORD: Final = (1 << _WORD_BITS) - 1
_WRONG: Final = (ValueError, TypeError, ArithmeticError, AttributeError, KeyError, IndexError)


class AvroBlock:
    """The columns in the schema of a message in Avro.

    Attributes:
        schema: The columns.
        readers: The readers of their JSON values.
    """

    def __init__(self, raw: bytes) -> None:
        """Compile a schema.

        Raises:
            DecodeError: The schema is not valid, or a type is unknown.
        """
        try:
            parts = fields_of(connect_schema.parse(raw))
            row, old = parts.get("after") or parts.get("record"), parts.get("before")
            row = row or old
            fields = {} if row is None else all_fields(row, old)
            columns = {name: _column(field) for name, field in fields.items()}
        except DecodeError as error:
            raise DecodeError(error.reason, code=error.code, path="$.schema") from None
        self.schema = TableSchema(tuple(column for column, _ in columns.values()))
        self.readers: Mapping[str, Read] = {name: read for name, (_, read) in columns.items()}


def _column(field: Schema) -> tuple[Column, Read]:
    sql = field.parameter.get(SQL_COLUMN, "")
    match = _SQL_TYPE.match(sql)
    name = "" if match is None or match[2] else match[1].upper()
    kind, read = _typed(field, name)
    return Column(field.member, kind, name or None, nullable=None), read


def _typed(field: Schema, name: str) -> tuple[LogicalType, Read]:
    if field.label == DECIMAL_TEXT:
        parameters = field.parameter
        kind: LogicalType = Decimal(int(parameters[PRECISION]), int(parameters[SCALE]))
        return kind, reader(kind)
    wire = wire_of_field(field)
    kind = wire.type
    if field.type == "array" and name in _BITS:
        return Bits(), _checked(_bits, "bits")
    if isinstance(kind, String) and name in _TEXT_TYPES:
        kind = _TEXT_TYPES[name]
        return kind, _read_text
    if isinstance(kind, Timestamp) and name == "TIMESTAMPTZ":
        decode = wire.decode
        kind = InstantType(6)
        return kind, _checked(lambda value: _instant(decode, value), "instant")
    if isinstance(kind, Text):
        return String(), _read_text
    decode = wire.decode
    return kind, _checked(decode, str(kind)) if decode is not None else _same


def _checked(decode: Callable[[Any], Any], noun: str) -> Read:
    def read(value: Any) -> Any:
        try:
            return decode(value)
        except _WRONG:
            raise DecodeError(f"not a value of {noun}", code=ReasonCode.WRONG_TYPE) from None

    return read


def _read_text(value: Any) -> str:
    if type(value) is not str:
        raise DecodeError("not a text", code=ReasonCode.WRONG_TYPE)
    return value


def _same(value: Any) -> Any:
    return value


def _bits(value: Any) -> str:
    """Return the bits of words of 64 bits, after the number of bits in the last word."""
    last, *words = value
    text = "".join(f"{word & _WORD:064b}" for word in words)
    if not 0 <= last <= _WORD_BITS or (not words and last):
        raise ValueError
    return text[: len(text) - _WORD_BITS + last] if words else ""


def _instant(decode: Callable[[Any], Any] | None, value: Any) -> Instant | str:
    local = value if decode is None else decode(value)
    if isinstance(local, dt.datetime):
        return Instant.of(local.replace(tzinfo=dt.UTC), 6)
    return f"{local}Z"


# -- writing -------------------------------------------------------------------------------------


TYPES: Final[frozenset[type[LogicalType]]] = frozenset(
    {
        *(Bits, Boolean, Bytes, Date, Decimal, Float, InstantType, Integer, Json, String, Time),
        *(Timestamp, TimeTz, Uuid),
    }
)
_BARE_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
_UNSIGNED: Final = Decimal(20, 0)
_DATE: Final = f"{CONNECT}Date"
_TIME: Final = f"{DEBEZIUM}time.MicroTime"
_TIMESTAMP: Final = f"{DEBEZIUM}time.MicroTimestamp"


class ColumnWriter(NamedTuple):
    """How a column is written.

    Attributes:
        field: The field of Connect, with the SQL of the column.
        write: A value to its JSON value; raises
            :class:`~changelane.formats.debezium_envelope.rows.epoch_times.Inexact` for a value
            without a form.
        kind: The name of the type.
        loss: The loss of each value.
    """

    field: Schema
    write: Callable[[Any], Any]
    kind: str
    loss: Loss | None = None


def column_writer_of(column: Column) -> ColumnWriter:
    """Return how a column is written.

    Raises:
        EncodeError: CockroachDB writes no decimals of this type.
    """
    kind, loss = column.type, None
    if kind == Integer(64, unsigned=True):
        kind, loss = _UNSIGNED, ("type:uint64", "written as DECIMAL(20)")
    sql, schema, write = _sql_and_schema(column.name, kind)
    name = column.name
    if _BARE_NAME.fullmatch(name) is None:
        name = '"' + name.replace('"', '""') + '"'
    null = " NOT NULL" if column.nullable is False else " NULL"
    parameters = {**schema.parameter, SQL_COLUMN: f"{name} {sql}{null}"}
    field = msgspec.structs.replace(schema, optional=True, parameters=parameters, field=column.name)
    return ColumnWriter(field, write, str(kind).partition("(")[0], loss)


def _sql_and_schema(name: str, kind: LogicalType) -> tuple[str, Schema, Callable[[Any], Any]]:
    """Return the SQL of a type, its schema of Connect, and the writer of its values."""
    match kind:
        case Integer(bits):
            return f"INT{max(bits, 16) // 8}", Schema("int64"), _same
        case Float(bits):
            return f"FLOAT{bits // 8}", Schema("double"), float_form
        case Decimal(int(precision), int(scale)) if 0 <= scale <= precision > 0:
            parameters = {PRECISION: str(precision), SCALE: str(scale)}
            schema = Schema("string", name=DECIMAL_TEXT, parameters=parameters)
            sql = f"DECIMAL({precision},{scale})" if scale else f"DECIMAL({precision})"
            return sql, schema, lambda value: _decimal_text(value, precision, scale)
        case Decimal():
            reason = "CockroachDB writes no decimals without a precision in Avro"
            raise EncodeError(f"column {name!r}: {reason}")
        case Boolean():
            return "BOOL", Schema("boolean"), _same
        case Bytes():
            return "BYTES", Schema("bytes"), bytes_out
        case Bits(length):
            sql = "VARBIT" if length is None else f"BIT({length})"
            return sql, Schema("array", items=Schema("int64")), _words
        case Date() | Time() | Timestamp() | InstantType():
            return _time_schema(kind)
        case Json():
            return "JSONB", Schema("string"), _same
        case TimeTz():
            return "TIMETZ", Schema("string"), _same
        case Uuid():
            return "UUID", Schema("string"), _same
        case _:
            return "STRING", Schema("string"), _same


def _time_schema(
    kind: Date | Time | Timestamp | InstantType,
) -> tuple[str, Schema, Callable[[Any], Any]]:
    match kind:
        case Date():
            sql, schema = "DATE", Schema("int32", name=_DATE, version=1)
        case Time():
            sql, schema = "TIME", Schema("int64", name=_TIME, version=1)
        case _:
            sql = "TIMESTAMP" if isinstance(kind, Timestamp) else "TIMESTAMPTZ"
            schema = Schema("int64", name=_TIMESTAMP, version=1)
    encode = wire_of_field(schema).encode or _same
    if isinstance(kind, InstantType):
        local = encode
        encode = lambda value: local(_utc(value))  # noqa: E731 - the same place as the others
    return sql, schema, encode


def _utc(value: dt.datetime | str) -> dt.datetime:
    if isinstance(value, str):
        raise Inexact("outside the years 1 to 9999, or finer than microseconds; written as null")
    return value.astimezone(dt.UTC).replace(tzinfo=None)


def _decimal_text(value: decimal.Decimal | int, precision: int, scale: int) -> str:
    number = decimal.Decimal(value)
    if number.is_nan():
        return "NaN"
    if number.is_infinite():
        return "Infinity" if number > 0 else "-Infinity"
    whole = unscaled(number, scale)
    if whole is None or abs(whole) >= 10**precision:
        raise Inexact("more digits than its column has; written as null")
    return plain(number)


def _words(text: str) -> list[int]:
    """Return bits as the number of bits in the last word, and words of 64 bits.

    >>> _words("1" * 64 + "01")
    [2, -1, 4611686018427387904]
    """
    words = [text[at : at + _WORD_BITS] for at in range(0, len(text), _WORD_BITS)]
    numbers = [int(word.ljust(_WORD_BITS, "0"), 2) for word in words]
    return [len(words[-1]) if words else 0, *(n - (n >> 63 << 64) for n in numbers)]
