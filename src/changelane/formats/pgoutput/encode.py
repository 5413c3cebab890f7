# SPDX-License-Identifier: Apache-2.0
"""Change events to messages of pgoutput, which do not depend on other messages.

A row has the begin of its transaction and its relation before it in the same value.
"""

import zlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

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
from changelane.formats.contract.format import Report
from changelane.formats.contract.identity_cache import Memo
from changelane.formats.contract.postgres_columns import WrittenColumn, written_column
from changelane.formats.contract.postgres_log import lsn_of
from changelane.formats.contract.postgres_text import reader, type_text, writer
from changelane.formats.contract.postgres_type_numbers import NO_MODIFIER, number_of
from changelane.formats.pgoutput import wire
from changelane.formats.pgoutput.message_key import key_of
from changelane.formats.pgoutput.relations import CATALOG
from changelane.formats.pgoutput.transactions import EPOCH_US, NO_TIME
from changelane.formats.pgoutput.wire import Cells, RelationColumn, RelationMessage
from changelane.message import Message
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNAVAILABLE, LogicalType, String

_FIRST_OID: Final = 16_384
"""The first number of objects that are not built in."""
_OIDS: Final = (1 << 31) - _FIRST_OID
_XIDS: Final = 1 << 32
_MOST_COLUMNS: Final = 0x7FFF

_Columns = dict[str, WrittenColumn]


class _WrittenTable(NamedTuple):
    """The relation of a row and its columns."""

    types: bytes
    relation: RelationMessage
    columns: _Columns


class Writer:
    """Encodes events that are reduced to pgoutput's capabilities."""

    def __init__(self) -> None:
        self._columns = Memo(_written_columns)

    def __call__(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Return the message of an event, or none if pgoutput has no such message."""
        try:
            return self._messages(event, report)
        except (ValueError, UnicodeEncodeError):
            raise EncodeError(
                "a text has a zero byte or half of a surrogate pair, which PostgreSQL does not have"
            ) from None

    def _messages(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        match event:
            case DataChange():
                parts = [_begin(event, report), *self._row(event, report)]
            case Truncate():
                if event.ddl is not None:
                    report(("ddl", "a truncate has no statement"))
                relation = RelationMessage(*_identity(event.table, report), "d", ())
                parts = [
                    _begin(event, report),
                    wire.relation_bytes(relation),
                    bytes([wire.TRUNCATE]) + wire.UINT32.pack(1) + b"\0",
                    wire.UINT32.pack(relation.oid),
                ]
            case TransactionMarker():
                part = _marker(event, report)
                if part is None:
                    report(("event:transaction", "pgoutput sends committed transactions only"))
                    return ()
                parts = [part]
            case LogicalMessage():
                parts = _message(event, report)
            case _:
                raise EncodeError(f"pgoutput has no message for {type(event).__name__}")
        return (Message(b"".join(parts), key_of(event.position)),)

    # -- rows --------------------------------------------------------------------------------------

    def _row(self, event: DataChange, report: Report) -> list[bytes]:
        table = self._table(event, report)
        columns, oid = table.columns, wire.UINT32.pack(table.relation.oid)
        before, after = event.before, event.after
        parts = [table.types, wire.relation_bytes(table.relation)]
        if event.op is Op.CREATE:
            parts.append(bytes([wire.INSERT]) + oid)
        elif event.op is Op.UPDATE:
            parts.append(bytes([wire.UPDATE]) + oid)
        else:
            parts.append(bytes([wire.DELETE]) + oid)
        if before is not None:
            parts.append(_old(event, before, columns, report))
        if after is not None:
            if not after.keys() >= columns.keys():
                report(("absent", "a missing column is written as unavailable"))
            parts.append(wire.row_bytes(wire.NEW, _cells(after, columns, report)))
        return parts

    def _table(self, event: DataChange, report: Report) -> _WrittenTable:
        columns: _Columns = {} if event.schema is None else self._columns(event.schema)
        images = [image for image in (event.after, event.before) if image is not None]
        other_names = [name for image in images for name in image if name not in columns]
        if other_names:
            if columns:
                report(("schema", "a column without a type is written as text"))
            columns = columns | {
                name: _UNTYPED._replace(name=name) for name in dict.fromkeys(other_names)
            }
        if not 0 < len(columns) <= _MOST_COLUMNS:
            raise EncodeError("PostgreSQL has no row with so many columns")
        key = () if event.key is None else event.key.columns
        if not columns.keys() >= set(key):
            report(("key", "a column of the key has no value and no type"))
        types: dict[str, bytes] = {}
        relation_columns: list[RelationColumn] = []
        for column in columns.values():
            if column.loss is not None:
                report(column.loss)
            oid, modifier = _number(column, types)
            is_key = column.name in key
            relation_columns.append(RelationColumn(is_key, column.name, oid, modifier))
        if key and tuple(name for name in columns if name in key) != key:
            report(("key", "the columns of a key have the order of the table"))
        identity = _replica_identity(event, key, columns, report)
        relation = RelationMessage(
            *_identity(event.table, report), identity, tuple(relation_columns)
        )
        return _WrittenTable(b"".join(types.values()), relation, columns)


def _replica_identity(
    event: DataChange, key: Sequence[str], columns: _Columns, report: Report
) -> str:
    before = event.before
    is_whole = before is not None and before.keys() != set(key)
    if not is_whole:
        return "d" if key else "n"
    if len(key) == len(columns):
        report(("key", "REPLICA IDENTITY FULL marks all columns: readers take the key from `keys`"))
    return wire.IDENTITY_FULL


def _old(event: DataChange, before: Image, columns: _Columns, report: Report) -> bytes:
    """Return the old row: the whole row, or its key."""
    key = () if event.key is None else event.key.columns
    if key and before.keys() == set(key) and UNAVAILABLE not in before.values():
        cells = _cells({name: before.get(name) for name in columns}, columns, report)
        return wire.row_bytes(wire.KEY, cells)
    if not before.keys() >= columns.keys():
        report(("before", "a missing column is written as unavailable"))
    return wire.row_bytes(wire.OLD, _cells(before, columns, report))


def _cells(image: Image, columns: _Columns, report: Report) -> Cells:
    cells: Cells = []
    for name, column in columns.items():
        value = image.get(name, UNAVAILABLE)
        if value is UNAVAILABLE:
            cells.append(wire.UNCHANGED)
            continue
        text = None if value is None else column.written(value, report)
        cells.append(None if text is None else text.encode())
    return cells


def _written_columns(schema: TableSchema) -> _Columns:
    return {column.name: written_column(column, writer, _text_reader) for column in schema.columns}


def _text_reader(kind: LogicalType) -> Any:
    return reader(kind)


_UNTYPED: Final = written_column(Column("", String()), writer, lambda _kind: None)


def _number(written: WrittenColumn, types: dict[str, bytes]) -> tuple[int, int]:
    """Return the number and the modifier of a type; add the message of one that is not built in."""
    number = number_of(written.type_text) or number_of(type_text(written.kind) or "")
    if number is not None:
        return number
    name = written.type_text
    oid = _oid_of(name)
    types[name] = (
        bytes([wire.TYPE])
        + wire.UINT32.pack(oid)
        + wire.text_bytes("public")
        + wire.text_bytes(name)
    )
    return oid, NO_MODIFIER


def _oid_of(name: str) -> int:
    """Return a number for a name, which every message has again."""
    return _FIRST_OID + zlib.crc32(name.encode()) % _OIDS


def _identity(table: TableId, report: Report) -> tuple[int, str, str]:
    """Return the number of a table, its namespace and its name."""
    if not table.name:
        raise EncodeError("a row of no table has no message")
    if not table.schema:
        report(("table.schema", f"no schema is read as {CATALOG}"))
    namespace = "" if table.schema in {None, CATALOG} else table.schema
    return _oid_of(f"{namespace}.{table.name}"), namespace or "", table.name


# -- transactions --------------------------------------------------------------------------------


def _begin(event: DataChange | Truncate | LogicalMessage, report: Report) -> bytes:
    """Return the begin of a transaction; empty if nothing about it is known."""
    lsn = _lsn(event.position, report, has_number=True)
    time, xid = _time(event.source_time_ns), _xid(event.transaction, report)
    if not lsn and not xid and time == NO_TIME:
        return b""
    return bytes([wire.BEGIN]) + wire.BEGIN_BODY.pack(lsn, time, xid)


def _marker(event: TransactionMarker, report: Report) -> bytes | None:
    lsn, time = _lsn(event.position, report), _time(event.source_time_ns)
    if event.status == "begin":
        xid = _xid(event.transaction, report)
        return bytes([wire.BEGIN]) + wire.BEGIN_BODY.pack(lsn, time, xid)
    if event.status != "commit":
        return None
    if event.transaction.id:
        report(("transaction.id", "a commit has none"))
    return bytes([wire.COMMIT]) + wire.COMMIT_BODY.pack(0, lsn, lsn, time)


def _message(event: LogicalMessage, report: Report) -> list[bytes]:
    is_transactional = event.transaction is not None
    lsn = _lsn(event.position, report, has_number=is_transactional)
    if not is_transactional and event.source_time_ns is not None:
        report(("source_time", "a message outside of a transaction has none"))
    begin = _begin(event, report) if is_transactional else b""
    return [
        begin,
        bytes([wire.MESSAGE]) + wire.MESSAGE_BODY.pack(is_transactional, lsn),
        wire.text_bytes(event.prefix),
        wire.UINT32.pack(len(event.content)),
        event.content,
    ]


def _lsn(position: object, report: Report, *, has_number: bool = False) -> int:
    """Return the LSN of a position; 0 = unknown, as it is no LSN of a change.

    Args:
        position: The position.
        report: Called for each loss.
        has_number: The number of the event in its transaction is written, too.
    """
    if position is None:
        return 0
    lsn = lsn_of(position)
    if not lsn or (has_number and key_of(position) is None):
        report(("position", "not an LSN; not written"))
        return 0
    if not has_number and isinstance(position, SequencePosition) and position.row:
        report(("position.row", "the number of the change is not written"))
    return lsn


def _time(value_ns: int | None) -> int:
    return NO_TIME if value_ns is None else value_ns // 1000 - EPOCH_US


def _xid(transaction: Transaction | None, report: Report) -> int:
    """Return the number of a transaction; 0 = unknown, as it is no number of a transaction."""
    if transaction is None or not transaction.id:
        return 0
    text = transaction.id
    if text.isascii() and text.isdigit() and 0 < int(text) < _XIDS and str(int(text)) == text:
        return int(text)
    report(("transaction.id", "not a number of 32 bits; not written"))
    return 0
