# SPDX-License-Identifier: Apache-2.0
"""The transactions of a stream of pgoutput, and the events that wait for their commit.

A streamed transaction arrives in segments before its commit is known, and its subtransactions may
be aborted; a prepared transaction waits for the second phase. Their events have no place until the
commit arrives.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import (
    NO_DETAILS,
    ChangeEvent,
    Details,
    Source,
    Transaction,
    TransactionMarker,
)
from changelane.formats.pgoutput import wire
from changelane.formats.pgoutput.relations import Catalog, Relation, TypeName
from changelane.formats.pgoutput.wire import Cursor
from changelane.position import SequencePosition
from changelane.reason_codes import ReasonCode

SOURCE: Final = Source(product="postgresql", connector="pgoutput")
EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970-01-01 UTC."""
NO_TIME: Final = -(1 << 63)
"""The time ``-infinity``."""

Locate = Callable[["Place"], ChangeEvent]
"""Returns an event at its place."""


class Place(msgspec.Struct, frozen=True, gc=False):
    """The place of an event in a transaction."""

    position: SequencePosition | None
    transaction: Transaction | None
    time_ns: int | None
    details: Details = NO_DETAILS


class OpenTransaction(msgspec.Struct):
    """A transaction whose rows arrive.

    Attributes:
        commit: The LSN of its commit; ``None`` = unknown.
        count: The number of its events so far.
        gid: The global id of a prepared transaction.
    """

    transaction: Transaction | None = None
    commit: int | None = None
    time_ns: int | None = None
    details: Details = NO_DETAILS
    count: int = 0
    gid: str | None = None

    def next_place(self) -> Place:
        """Return the place of the next event."""
        position = None if self.commit is None else SequencePosition(self.commit, self.count)
        self.count += 1
        return Place(position, self.transaction, self.time_ns, self.details)


class HeldTransaction(msgspec.Struct):
    """A transaction whose commit is not known: streamed in segments, or prepared.

    Attributes:
        xid: The id of the transaction.
        events: The events without their places, each with the id of its subtransaction.
        catalog: The relations and types that the transaction has changed.
        is_too_large: It had more events than the limit, which are not kept.
    """

    xid: int
    events: list[tuple[int, Locate]] = []
    catalog: Catalog = msgspec.field(default_factory=Catalog)
    details: Details = NO_DETAILS
    is_too_large: bool = False


class Transactions:
    """The transactions of one stream.

    Args:
        max_held: The maximum number of events of transactions whose commit is not known.

    Attributes:
        catalog: The relations and types of committed transactions.
        events: The events of the last message.
        held: The streamed or prepared transaction whose rows arrive.
    """

    def __init__(self, max_held: int) -> None:
        self._max_held = max_held
        self._open: OpenTransaction | None = None
        self._streamed: dict[int, HeldTransaction] = {}
        self._prepared: dict[str, HeldTransaction] = {}
        self._is_segment = False
        self._held_count = 0
        self.catalog = Catalog()
        self.held: HeldTransaction | None = None
        self.events: list[ChangeEvent] = []
        self._begin_at: int | None = None
        self._number: int | None = None

    def clear_events(self, number: int | None) -> None:
        """Begin a message, which has no events so far.

        Args:
            number: The number of the first event in its transaction; ``None`` = after a begin, 0.
        """
        self.events, self._begin_at, self._number = [], None, number

    def take_events(self, *, is_alone: bool) -> tuple[ChangeEvent, ...]:
        """Return the events of a message.

        A message that is read alone, or that states the number of its event, is a part of a
        transaction if it has a begin before rows without a commit. Its begin is no event.

        Args:
            is_alone: Other messages of the transaction are unknown.
        """
        begin_at = self._begin_at
        is_part = begin_at is not None and begin_at + 1 < len(self.events)
        if begin_at is None or not is_part or not (is_alone or self._number is not None):
            return tuple(self.events)
        del self.events[begin_at]
        if self._number is None:
            self.events[begin_at:] = [
                msgspec.structs.replace(event, position=None) for event in self.events[begin_at:]
            ]
        self._open = None
        return tuple(self.events)

    @property
    def is_waiting(self) -> bool:
        """Whether events wait for a commit."""
        return self.held is not None or bool(self._streamed or self._prepared)

    @property
    def changed_catalog(self) -> Catalog:
        """The relations and types that the open transaction may change."""
        return self.catalog if self.held is None else self.held.catalog

    def relation(self, oid: int) -> Relation | None:
        """Return a relation; ``None`` if its message has not arrived."""
        return self.changed_catalog.relations.get(oid) or self.catalog.relations.get(oid)

    def type_names(self) -> dict[int, TypeName]:
        """Return the names of types that are not built in."""
        return self.catalog.type_names | self.changed_catalog.type_names

    def forget_relations(self) -> None:
        """Forget all relations, because a malformed message may have changed any of them."""
        held_transactions = *self._streamed.values(), *self._prepared.values()
        for catalog in (self.catalog, *(held.catalog for held in held_transactions)):
            catalog.relations.clear()

    def skip(self) -> None:
        """Count an event that cannot be decoded, so that the places after it stay."""
        if self._open is not None:
            self._open.count += 1

    def close(self) -> None:
        """Leave the open transaction, because a malformed message may have begun another one."""
        self._open, self.held, self._is_segment = None, None, False

    def sub_xid(self, cursor: Cursor) -> int:
        """Return the transaction id at the beginning of a message in a segment; else 0."""
        return cursor.integer(wire.UINT32) if self._is_segment else 0

    def read_begin(self, cursor: Cursor) -> None:
        """Read a begin."""
        lsn, time, xid = cursor.fields(wire.BEGIN_BODY)
        self._start(OpenTransaction(_transaction(xid), lsn or None, time_ns(time)))

    def _start(self, opened: OpenTransaction) -> None:
        self._open, self.held, self._is_segment = opened, None, False
        self._begin_at = len(self.events)
        self.events.append(self._marker("begin", opened))
        opened.count = self._number or 0

    @staticmethod
    def _marker(status: str, opened: OpenTransaction) -> TransactionMarker:
        position = None if opened.commit is None else SequencePosition(opened.commit)
        marked = opened.transaction or Transaction("")
        return TransactionMarker(
            status, marked, position, SOURCE, opened.time_ns, details=opened.details
        )

    def read_commit(self, cursor: Cursor) -> None:
        """Read a commit."""
        _, lsn, _, time = cursor.fields(wire.COMMIT_BODY)
        opened = self._open or OpenTransaction()
        opened.commit, opened.time_ns = lsn or None, time_ns(time)
        self.events.append(self._marker("commit", opened))
        self._open = self._begin_at = None

    def read_origin(self, cursor: Cursor) -> None:
        """Read the origin of a transaction."""
        cursor.take(8)
        details = {"origin": cursor.text()}
        if self.held is not None:
            self.held.details = details
        elif self._open is not None:
            self._open.details = details

    def read_stream_start(self, cursor: Cursor) -> None:
        """Read the start of a segment."""
        xid, is_first = cursor.fields(wire.STREAM_START_BODY)
        if is_first:
            self._drop(self._streamed.pop(xid, None))
            self._streamed[xid] = HeldTransaction(xid)
        held = self._streamed.get(xid)
        if held is None:
            reason = "the first segment of the streamed transaction is missing"
            raise DecodeError(reason, code=ReasonCode.INCOMPLETE_MESSAGE)
        self.held, self._is_segment, self._open = held, True, None

    def read_stream_stop(self, _cursor: Cursor) -> None:
        """Read the end of a segment."""
        self.held, self._is_segment = None, False

    def read_stream_commit(self, cursor: Cursor) -> None:
        """Read the commit of a streamed transaction."""
        xid, _, lsn, _, time = cursor.fields(wire.STREAM_COMMIT_BODY)
        self._commit_held(self._streamed.pop(xid, None), xid, lsn, time)

    def read_stream_abort(self, cursor: Cursor) -> None:
        """Read the abort of a streamed transaction, or of a part of it."""
        xid, sub_xid = cursor.fields(wire.STREAM_ABORT_BODY)
        # with streaming=parallel, an LSN and a time follow; no message begins with a zero byte
        if len(cursor.data) - cursor.at >= 16 and not cursor.data[cursor.at]:
            cursor.fields(wire.PARALLEL_ABORT_BODY)
        if xid == sub_xid:
            self._drop(self._streamed.pop(xid, None))
            return
        held = self._streamed.get(xid)
        if held is not None:
            kept = [event for event in held.events if event[0] != sub_xid]
            self._held_count -= len(held.events) - len(kept)
            held.events = kept

    def read_begin_prepare(self, cursor: Cursor) -> None:
        """Read the begin of a prepared transaction."""
        *_, xid = cursor.fields(wire.PREPARE_BODY)
        gid = cursor.text()
        self._drop(self._prepared.pop(gid, None))
        self._prepared[gid] = self.held = HeldTransaction(xid)
        self._is_segment, self._open = False, None

    def read_prepare(self, cursor: Cursor) -> None:
        """Read the end of a prepared transaction."""
        cursor.take(1)
        cursor.fields(wire.PREPARE_BODY)
        cursor.text()
        self.held = None

    def read_stream_prepare(self, cursor: Cursor) -> None:
        """Read the end of a prepared transaction that was streamed."""
        cursor.take(1)
        *_, xid = cursor.fields(wire.PREPARE_BODY)
        gid = cursor.text()
        held = self._streamed.pop(xid, None)
        if held is not None:
            self._prepared[gid] = held

    def read_commit_prepared(self, cursor: Cursor) -> None:
        """Read the commit of a prepared transaction."""
        cursor.take(1)
        lsn, _, time, xid = cursor.fields(wire.PREPARE_BODY)
        self._commit_held(self._prepared.pop(cursor.text(), None), xid, lsn, time)

    def read_rollback_prepared(self, cursor: Cursor) -> None:
        """Read the rollback of a prepared transaction."""
        cursor.take(1)
        cursor.fields(wire.ROLLBACK_BODY)
        self._drop(self._prepared.pop(cursor.text(), None))

    def _drop(self, held: HeldTransaction | None) -> None:
        if held is not None:
            self._held_count -= len(held.events)

    def _commit_held(self, held: HeldTransaction | None, xid: int, lsn: int, time: int) -> None:
        """Release the events of a transaction that was streamed or prepared."""
        if held is None:
            reason = "the rows of the committed transaction are not in the stream"
            raise DecodeError(reason, code=ReasonCode.INCOMPLETE_MESSAGE)
        self._drop(held)
        self.catalog.update(held.catalog)
        if held.is_too_large:
            raise DecodeError(
                f"the transaction has more than {self._max_held} rows: raise max_streamed_rows, or "
                "use the protocol version 1, with which the server keeps them",
                code=ReasonCode.EXPANSION,
            )
        opened = OpenTransaction(_transaction(xid), lsn or None, time_ns(time), held.details)
        self.events.append(self._marker("begin", opened))
        self.events += [locate(opened.next_place()) for _, locate in held.events]
        self.events.append(self._marker("commit", opened))

    def add(self, sub_xid: int, locate: Locate) -> None:
        """Add an event to the open transaction, or to the one that is held."""
        held = self.held
        if held is None:
            if self._open is None:
                self.events.append(locate(Place(None, None, None)))
            else:
                self.events.append(locate(self._open.next_place()))
        elif held.is_too_large or self._held_count >= self._max_held:
            self._drop(held)
            held.events, held.is_too_large = [], True
        else:
            held.events.append((sub_xid, locate))
            self._held_count += 1


def _transaction(xid: int) -> Transaction | None:
    return Transaction(str(xid)) if xid else None


def time_ns(time_us: int) -> int | None:
    """Return the nanoseconds since 1970-01-01 UTC of a time; ``None`` = unknown."""
    return None if time_us == NO_TIME else (time_us + EPOCH_US) * 1000
