# SPDX-License-Identifier: Apache-2.0
"""Messages of pgoutput to change events, with the state of their stream.

The server sends a relation before its first row in a session and after each change of it; a begin
has the coordinates of the rows after it; a streamed transaction arrives in segments before its
commit is known, and its subtransactions may be aborted.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.event import (
    ChangeEvent,
    Completeness,
    DataChange,
    LogicalMessage,
    Op,
    Transaction,
    Truncate,
    Watermark,
)
from changelane.formats.pgoutput import wire
from changelane.formats.pgoutput.message_key import number_of
from changelane.formats.pgoutput.relations import Relation, TypeName
from changelane.formats.pgoutput.transactions import (
    SOURCE,
    Locate,
    Place,
    Transactions,
    time_ns,
)
from changelane.formats.pgoutput.wire import Cursor, RelationMessage, unknown
from changelane.position import SequencePosition
from changelane.reason_codes import ReasonCode

_CREATE: Final = Op.CREATE
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE
_UNKNOWN: Final = Completeness.UNKNOWN

RelationOf = Callable[[RelationMessage, Mapping[int, TypeName]], Relation]

_DESCRIPTIONS: Final = frozenset({wire.RELATION, wire.TYPE})
_CHANGES: Final = frozenset({wire.INSERT, wire.UPDATE, wire.DELETE, wire.TRUNCATE, wire.MESSAGE})


class Stream:
    """Decodes the messages of one stream in their order.

    Args:
        relation_of: Returns the relation of its message and the names of types.
        max_held: The maximum number of events of transactions whose commit is not known.
        is_alone: Whether only one message is read.
    """

    def __init__(self, relation_of: RelationOf, max_held: int, *, is_alone: bool = False) -> None:
        self._relation_of = relation_of
        self._is_alone = is_alone
        self._transactions = Transactions(max_held)

    # -- messages ----------------------------------------------------------------------------------

    def read(self, value: bytes, key: bytes | None) -> tuple[ChangeEvent, ...]:
        """Return the events of one or several messages.

        Args:
            value: The messages.
            key: The key of the message, which may have the number of its event.

        Raises:
            DecodeError: A message is malformed, or its relation is unknown.
        """
        cursor, transactions = Cursor(value), self._transactions
        transactions.clear_events(number_of(key))
        if not value:
            raise wire.truncated()
        while cursor.at < len(value):
            start = cursor.at
            kind = cursor.byte()
            try:
                if handle := _STREAM_HANDLERS.get(kind):
                    handle(self, cursor)
                elif handle := _TRANSACTION_HANDLERS.get(kind):
                    handle(transactions, cursor)
                else:
                    raise unknown("kind of message", start)
            except DecodeError as error:
                if kind in _DESCRIPTIONS:
                    transactions.forget_relations()
                elif kind in _CHANGES:
                    transactions.skip()
                elif kind in _TRANSACTION_HANDLERS:
                    transactions.close()
                if error.path == "$":
                    raise DecodeError(error.reason, code=error.code, path=f"$[{start}]") from None
                raise
        return transactions.take_events(is_alone=self._is_alone)

    def check_end(self) -> None:
        """Check that no event waits for a message behind the last one.

        Raises:
            DecodeError: The commit of a streamed or prepared transaction is missing.
        """
        if self._transactions.is_waiting:
            raise DecodeError(
                "the commit of a streamed or prepared transaction is not in the message: read the "
                "messages as a stream, with `changelane convert`",
                code=ReasonCode.INCOMPLETE_MESSAGE,
            )

    # -- relations ---------------------------------------------------------------------------------

    def read_relation(self, cursor: Cursor) -> None:
        """Read a relation."""
        transactions = self._transactions
        transactions.sub_xid(cursor)
        message = cursor.relation()
        relation = self._relation_of(message, transactions.type_names())
        transactions.changed_catalog.relations[message.oid] = relation

    def read_type(self, cursor: Cursor) -> None:
        """Read the name of a type."""
        transactions = self._transactions
        transactions.sub_xid(cursor)
        oid = cursor.integer(wire.UINT32)
        named = TypeName.of(cursor.text(), cursor.text())
        transactions.changed_catalog.type_names[oid] = named

    def _relation(self, oid: int) -> Relation:
        relation = self._transactions.relation(oid)
        if relation is None:
            raise DecodeError(
                f"the relation {oid} is not known: its message must precede the row, in the same "
                "message or in a stream that `changelane convert` reads",
                code=ReasonCode.UNKNOWN_RELATION,
            )
        return relation

    # -- rows --------------------------------------------------------------------------------------

    def read_insert(self, cursor: Cursor) -> None:
        """Read an insert."""
        sub_xid, oid = self._transactions.sub_xid(cursor), cursor.integer(wire.UINT32)
        _expect(cursor, wire.NEW)
        cells = cursor.cells()
        relation = self._relation(oid)
        self._add_row(sub_xid, _CREATE, relation, None, relation.image(cells))

    def read_update(self, cursor: Cursor) -> None:
        """Read an update."""
        sub_xid, oid = self._transactions.sub_xid(cursor), cursor.integer(wire.UINT32)
        kind = cursor.byte()
        old_cells = None
        if kind != wire.NEW:
            old_cells = _old_cells(cursor, kind)
            _expect(cursor, wire.NEW)
        cells = cursor.cells()
        relation = self._relation(oid)
        before = None if old_cells is None else _old_image(relation, kind, old_cells)
        self._add_row(sub_xid, _UPDATE, relation, before, relation.image(cells))

    def read_delete(self, cursor: Cursor) -> None:
        """Read a delete."""
        sub_xid, oid = self._transactions.sub_xid(cursor), cursor.integer(wire.UINT32)
        kind = cursor.byte()
        cells = _old_cells(cursor, kind)
        relation = self._relation(oid)
        self._add_row(sub_xid, _DELETE, relation, _old_image(relation, kind, cells), None)

    def _add_row(self, sub_xid: int, op: Op, relation: Relation, before: Any, after: Any) -> None:
        def locate(place: Place) -> DataChange:
            return DataChange(
                op,
                relation.table,
                relation.key,
                before,
                after,
                relation.schema,
                place.position,
                place.transaction,
                SOURCE,
                place.time_ns,
                None,
                _UNKNOWN,
                _UNKNOWN,
                place.details,
            )

        self._transactions.add(sub_xid, locate)

    def read_truncate(self, cursor: Cursor) -> None:
        """Read a truncate of one or several tables."""
        sub_xid = self._transactions.sub_xid(cursor)
        count = cursor.integer(wire.UINT32)
        cursor.take(1)
        if count * 4 > len(cursor.data) - cursor.at:
            raise wire.truncated()
        oids = [cursor.integer(wire.UINT32) for _ in range(count)]
        for relation in [self._relation(oid) for oid in oids]:
            self._transactions.add(sub_xid, _truncate_of(relation))

    def read_message(self, cursor: Cursor) -> None:
        """Read a logical message."""
        sub_xid = self._transactions.sub_xid(cursor)
        flags, lsn = cursor.fields(wire.MESSAGE_BODY)
        prefix = cursor.text()
        content = cursor.take(cursor.integer(wire.UINT32))
        if flags & 1:
            self._transactions.add(sub_xid, _message_of(prefix, content))
        else:
            position = SequencePosition(lsn) if lsn else None
            self._transactions.events.append(
                LogicalMessage(prefix, content, position, None, SOURCE)
            )

    # -- transport ---------------------------------------------------------------------------------

    def read_xlog_data(self, cursor: Cursor) -> None:
        """Skip the header of a message on the wire."""
        cursor.fields(wire.XLOG_HEADER)

    def read_keepalive(self, cursor: Cursor) -> None:
        """Read a keepalive of the server."""
        _, time, _ = cursor.fields(wire.KEEPALIVE_BODY)
        self._transactions.events.append(Watermark(source=SOURCE, process_time_ns=time_ns(time)))


def _expect(cursor: Cursor, kind: int) -> None:
    if cursor.byte() != kind:
        raise unknown("kind of row", cursor.at - 1)


def _old_cells(cursor: Cursor, kind: int) -> wire.Cells:
    if kind not in {wire.OLD, wire.KEY}:
        raise unknown("kind of row", cursor.at - 1)
    return cursor.cells()


def _old_image(relation: Relation, kind: int, cells: wire.Cells) -> dict[str, Any]:
    return relation.image(cells) if kind == wire.OLD else relation.key_image(cells)


def _truncate_of(relation: Relation) -> Locate:
    return lambda place: Truncate(
        relation.table,
        None,
        place.position,
        place.transaction,
        SOURCE,
        place.time_ns,
        None,
        place.details,
    )


def _message_of(prefix: str, content: bytes) -> Locate:
    return lambda place: LogicalMessage(
        prefix,
        content,
        place.position,
        place.transaction or Transaction(""),
        SOURCE,
        place.time_ns,
        None,
        place.details,
    )


_Handle = Callable[[Any, Cursor], None]
_STREAM_HANDLERS: Final[dict[int, _Handle]] = {
    wire.RELATION: Stream.read_relation,
    wire.TYPE: Stream.read_type,
    wire.INSERT: Stream.read_insert,
    wire.UPDATE: Stream.read_update,
    wire.DELETE: Stream.read_delete,
    wire.TRUNCATE: Stream.read_truncate,
    wire.MESSAGE: Stream.read_message,
    wire.XLOG_DATA: Stream.read_xlog_data,
    wire.KEEPALIVE: Stream.read_keepalive,
}
_TRANSACTION_HANDLERS: Final[dict[int, _Handle]] = {
    wire.BEGIN: Transactions.read_begin,
    wire.COMMIT: Transactions.read_commit,
    wire.ORIGIN: Transactions.read_origin,
    wire.STREAM_START: Transactions.read_stream_start,
    wire.STREAM_STOP: Transactions.read_stream_stop,
    wire.STREAM_COMMIT: Transactions.read_stream_commit,
    wire.STREAM_ABORT: Transactions.read_stream_abort,
    wire.BEGIN_PREPARE: Transactions.read_begin_prepare,
    wire.PREPARE: Transactions.read_prepare,
    wire.COMMIT_PREPARED: Transactions.read_commit_prepared,
    wire.ROLLBACK_PREPARED: Transactions.read_rollback_prepared,
    wire.STREAM_PREPARE: Transactions.read_stream_prepare,
}
