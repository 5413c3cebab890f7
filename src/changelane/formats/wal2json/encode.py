# SPDX-License-Identifier: Apache-2.0
"""Change events to messages of wal2json, version 2."""

from typing import Any, Final

from changelane.errors import EncodeError
from changelane.event import (
    ChangeEvent,
    DataChange,
    Image,
    LogicalMessage,
    Op,
    Transaction,
    TransactionMarker,
    Truncate,
)
from changelane.formats.contract import json
from changelane.formats.contract.format import Report
from changelane.formats.contract.identity_cache import Memo
from changelane.formats.contract.postgres_columns import WrittenColumn, written_column
from changelane.formats.contract.postgres_log import time_text
from changelane.formats.wal2json.columns import column_reader, column_writer
from changelane.formats.wal2json.decode import MARKERS, OPERATIONS
from changelane.message import Message
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNAVAILABLE, String

_ACTIONS: Final = {op: name for name, op in OPERATIONS.items()}
_MARKERS: Final = {status: name for name, status in MARKERS.items()}
_XIDS: Final = 1 << 64

_Columns = dict[str, WrittenColumn]


class Writer:
    """Encodes events that are reduced to wal2json's capabilities."""

    def __init__(self) -> None:
        self._columns = Memo(_written_columns)

    def __call__(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Return the message of an event, or none if wal2json has no such message."""
        match event:
            case DataChange():
                fields = self._row(event, report)
            case Truncate():
                if event.ddl is not None:
                    report(("ddl", "a truncate has no statement"))
                fields = {"action": "T", **_head(event, report), **_names(event.table)}
            case TransactionMarker():
                if event.status not in _MARKERS:
                    report(("event:transaction", "wal2json writes committed transactions only"))
                    return ()
                fields = {"action": _MARKERS[event.status], **_head(event, report)}
            case LogicalMessage():
                content = _content(event)
                if content is None:
                    report(("event:message", "content that is not UTF-8 is not written"))
                    return ()
                fields = {
                    "action": "M",
                    **_head(event, report),
                    "transactional": event.transaction is not None,
                    "prefix": event.prefix,
                    "content": content,
                }
            case _:
                raise EncodeError(f"wal2json has no message for {type(event).__name__}")
        return (Message(json.dumps(fields)),)

    def _row(self, event: DataChange, report: Report) -> dict[str, Any]:
        schema, op = event.schema, event.op
        columns: _Columns = {} if schema is None else self._columns(schema)
        fields = {
            "action": _ACTIONS[op],
            **_head(event, report),
            **_names(event.table),
        }
        key = () if event.key is None else event.key.columns
        before, after = event.before, event.after
        if op is not Op.DELETE:
            fields["columns"] = _written_row(after or {}, columns, report)
            if not fields["columns"]:
                raise EncodeError("wal2json has no row without columns")
        if op is Op.DELETE:
            fields["identity"] = _written_row(before or {}, columns, report)
            if not fields["identity"]:
                raise EncodeError("wal2json has no deleted row without columns")
        elif op is Op.UPDATE:
            fields["identity"] = self._identity(event, key, columns, report)
        types = {name: column.type_text for name, column in columns.items()}
        fields["pk"] = [{"name": name, "type": types.get(name, "text")} for name in key]
        self._report_schema(event, report)
        return {name: value for name, value in fields.items() if value is not None}

    @staticmethod
    def _identity(
        event: DataChange, key: tuple[str, ...], columns: _Columns, report: Report
    ) -> list[dict[str, Any]] | None:
        """Return the old row of an update; without one, the key of the new row, as the plugin does.

        Readers skip a key that did not change.
        """
        before, after = event.before, _sent(event.after or {})
        if before is None:
            values = {name: after[name] for name in key if name in after}
            is_key = bool(key) and len(values) == len(key) < len(after)
            return _written_row(values, columns, report) if is_key else None
        written = _written_row(before, columns, report)
        if not written:
            report(("before", "an image without columns is not written"))
            return None
        old = _sent(before)
        if len(old) < len(before):
            report(("before", "an unavailable value of the old row is not written"))
        if set(old) == set(key) and len(old) < len(after) and old.items() <= after.items():
            report(("before", "readers skip an image of a key that did not change"))
        elif not old.keys() <= after.keys():
            report(("after", "readers take columns of the old row only as unchanged"))
        return written

    @staticmethod
    def _report_schema(event: DataChange, report: Report) -> None:
        """Report columns that the message does not list."""
        names = frozenset(() if event.schema is None else event.schema.names)
        sent_names: set[str] = set()
        for image in (event.before, event.after):
            if image is not None:
                names |= image.keys()
                sent_names |= _sent(image).keys()
        if sent_names >= names:
            return
        if event.op is Op.CREATE:
            report(("absent", "readers do not see columns that the row does not have"))
        else:
            report(("schema", "columns without a value in the message are not listed"))


def _sent(image: Image) -> dict[str, Any]:
    return {name: value for name, value in image.items() if value is not UNAVAILABLE}


def _written_columns(schema: TableSchema) -> _Columns:
    return {
        column.name: written_column(column, column_writer, column_reader)
        for column in schema.columns
    }


_UNTYPED: Final = written_column(Column("", String()), column_writer, lambda _kind: None)


def _written_row(image: Image, columns: _Columns, report: Report) -> list[dict[str, Any]]:
    """Return the columns of an image in the order of the schema."""
    names = [name for name in columns if name in image]
    if len(names) < len(image):
        names += [name for name in image if name not in columns]
    row: list[dict[str, Any]] = []
    for name in names:
        value = image[name]
        if value is UNAVAILABLE:
            continue
        column = columns.get(name)
        if column is None:
            column = _UNTYPED
            if columns:
                report(("schema", "a column without a type is written as text"))
            if value is not None and not isinstance(value, str):
                raise EncodeError("a value without a type is not text")
        elif column.loss is not None:
            report(column.loss)
        written = None if value is None else column.written(value, report)
        row.append({"name": name, "type": column.type_text, "value": written})
    return row


def _names(table: TableId) -> dict[str, Any]:
    if not table.name:
        raise EncodeError("a row of no table has no message")
    return {"schema": table.schema or "", "table": table.name}


def _head(
    event: DataChange | Truncate | TransactionMarker | LogicalMessage, report: Report
) -> dict[str, Any]:
    """Return ``xid`` and ``timestamp``, as far as they are known.

    The position is not written: it is that of the commit, and ``lsn`` must order the changes of a
    row inside of a transaction, too.
    """
    if event.position is not None:
        report(("position", "the LSN of a commit does not order the changes of a row; not written"))
    fields = {
        "xid": _xid(event.transaction, report),
        "timestamp": None if event.source_time_ns is None else _time(event.source_time_ns, report),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _xid(transaction: Transaction | None, report: Report) -> int | None:
    if transaction is None or not transaction.id:
        return None
    text = transaction.id
    if text.isascii() and text.isdigit() and str(int(text)) == text and int(text) < _XIDS:
        return int(text)
    report(("transaction.id", "not a number; not written"))
    return None


def _time(value_ns: int, report: Report) -> str | None:
    try:
        return time_text(value_ns)
    except OverflowError:
        report(("source_time", "outside the years 1 to 9999; not written"))
        return None


def _content(event: LogicalMessage) -> str | None:
    try:
        return event.content.decode()
    except UnicodeDecodeError:
        return None
