# SPDX-License-Identifier: Apache-2.0
"""Change events to messages of postgres-decoderbufs."""

import re
from typing import Any, Final

from changelane.errors import EncodeError
from changelane.event import ChangeEvent, DataChange, Image, Op, Transaction, TransactionMarker
from changelane.formats.contract.format import Report
from changelane.formats.contract.identity_cache import Memo
from changelane.formats.contract.postgres_columns import WrittenColumn, written_column
from changelane.formats.contract.postgres_text import type_text
from changelane.formats.contract.postgres_type_numbers import number_of
from changelane.formats.contract.protobuf import dumps
from changelane.formats.decoderbufs.columns import TEXT_NUMBER, column_reader, column_writer
from changelane.formats.decoderbufs.decode import MOST_US, OPERATIONS, STATUSES
from changelane.formats.decoderbufs.options import Options
from changelane.formats.decoderbufs.wire import DATUM, MISSING, ROW, TYPE_INFO
from changelane.message import Message
from changelane.schema import Column, TableId, TableSchema, option_for_table
from changelane.types import UNAVAILABLE, String

_OPS: Final = {op: number for number, op in OPERATIONS.items()}
_MARKERS: Final = {status: number for number, status in STATUSES.items()}
_PLAIN_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
_U32: Final = 1 << 32

_Columns = dict[str, WrittenColumn]


class Writer:
    """Encodes events that are reduced to the capabilities of the plugin."""

    def __init__(self, options: Options) -> None:
        self._is_full = options.replica_identity == "full"
        self._keys = {name: tuple(columns) for name, columns in options.keys.items()}
        self._columns = Memo(_written_columns)

    def __call__(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Return the message of an event; none if the plugin has no such message."""
        match event:
            case DataChange():
                fields = self._row(event, report)
            case TransactionMarker():
                if event.status not in _MARKERS:
                    report(("event:transaction", "the plugin writes committed transactions only"))
                    return ()
                fields = {"op": _MARKERS[event.status]}
            case _:
                raise EncodeError(f"decoderbufs has no message for {type(event).__name__}")
        fields["transaction_id"] = _number(event.transaction, report)
        fields["commit_time"] = _time(event.source_time_ns, report)
        return (Message(dumps(fields, ROW)),)

    def _row(self, event: DataChange, report: Report) -> dict[str, Any]:
        declared = option_for_table(self._keys, event.table)
        if (None if event.key is None else event.key.columns) != declared:
            report(("key", "readers take it from the option keys"))
        schema = event.schema
        columns: _Columns = {} if schema is None else self._columns(schema)
        before = None if event.op is Op.CREATE else event.before
        after = None if event.op is Op.DELETE else event.after
        if before is not None and not self._is_full and None in before.values():
            report(("before", "a column with NULL is read as not sent"))
        fields: dict[str, Any] = {"op": _OPS[event.op], "table": _qualified(event.table)}
        names = [
            *columns,
            *dict.fromkeys(n for i in (before, after) for n in i or () if n not in columns),
        ]
        if not names:
            raise EncodeError("decoderbufs has no row without columns")
        if before is not None and self._is_full and not before.keys() >= set(names):
            report(("before", "a missing column is read as NULL"))
        if after is not None:
            fields["new_tuple"] = [_datum(n, columns, after, report) for n in names]
            fields["new_typeinfo"] = [_type_info(n, columns, schema) for n in names]
        if before is not None:
            fields["old_tuple"] = [_datum(n, columns, before, report) for n in names]
        elif after is None:
            raise EncodeError("the delete has no row image")
        return fields


def _written_columns(schema: TableSchema) -> _Columns:
    return {
        column.name: written_column(column, column_writer, column_reader)
        for column in schema.columns
    }


_UNTYPED: Final = written_column(Column("", String()), column_writer, column_reader)


def _datum(name: str, columns: _Columns, image: Image, report: Report) -> bytes:
    column = columns.get(name, _UNTYPED)
    if column.loss is not None:
        report(column.loss)
    found = number_of(column.type_text) or number_of(type_text(column.kind) or "")
    fields: dict[str, Any] = {
        "column_name": _quoted(name),
        "column_type": TEXT_NUMBER if found is None else found[0],
    }
    value = image.get(name)
    if value is UNAVAILABLE:
        fields[MISSING] = True
    elif value is not None:
        if name not in columns and not isinstance(value, str):
            raise EncodeError("a value without a type is not text")
        written = column.written(value, report)
        if written is not None:
            field, data = written
            fields[field] = data
    return dumps(fields, DATUM)


def _type_info(name: str, columns: _Columns, schema: TableSchema | None) -> bytes:
    column = None if schema is None else schema.by_name.get(name)
    is_optional = column is None or column.nullable is not False
    text = columns.get(name, _UNTYPED).type_text
    return dumps({"modifier": text, "value_optional": is_optional}, TYPE_INFO)


def _qualified(table: TableId) -> str:
    """Return the name of a table in SQL.

    >>> _qualified(TableId(None, "public", "Order"))
    'public."Order"'
    """
    if not table.name:
        raise EncodeError("a row of no table has no message")
    name = _quoted(table.name)
    return name if table.schema is None else f"{_quoted(table.schema)}.{name}"


def _quoted(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return name
    return '"' + name.replace('"', '""') + '"'


def _number(transaction: Transaction | None, report: Report) -> int | None:
    text = "" if transaction is None else transaction.id
    if text.isascii() and text.isdigit() and str(int(text)) == text and int(text) < _U32:
        return int(text)
    if text:
        report(("transaction.id", "not a number of 32 bits; not written"))
    return None


def _time(value_ns: int | None, report: Report) -> int | None:
    if value_ns is None:
        return None
    if not -MOST_US < value_ns // 1000 < MOST_US:
        report(("source_time", "out of range; not written"))
        return None
    return value_ns // 1000
