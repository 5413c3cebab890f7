# SPDX-License-Identifier: Apache-2.0
"""The columns of changefeeds in Avro.

A record in Avro becomes the message that Connect's JSON converter would have written, whose schema
has the SQL of each column (``pkg/ccl/changefeedccl/avro.go`` of
https://github.com/cockroachdb/cockroach).
"""

import datetime as dt
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.formats.contract.column_values import Read, reader
from changelane.formats.debezium_envelope.registry.avro_schemas import (
    DECIMAL_TEXT,
    PRECISION,
    SCALE,
    SQL_COLUMN,
)
from changelane.formats.debezium_envelope.rows import connect_schema
from changelane.formats.debezium_envelope.rows.columns import wire_of_field
from changelane.formats.debezium_envelope.rows.connect_schema import Schema
from changelane.formats.debezium_envelope.rows.row_reader import all_fields, fields_of
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableSchema
from changelane.types import (
    Bits,
    Decimal,
    Instant,
    InstantType,
    Interval,
    Json,
    LogicalType,
    String,
    Text,
    Timestamp,
    TimeTz,
    Uuid,
)

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
            row, old = parts.get("after"), parts.get("before")
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
