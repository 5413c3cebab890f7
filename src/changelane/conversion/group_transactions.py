# SPDX-License-Identifier: Apache-2.0
"""Groups the operations of each transaction, and releases them together and in order.

SharePlex numbers each operation
(https://www.alibabacloud.com/help/en/dts/user-guide/data-formats-of-a-kafka-cluster: "1/11
indicates that the sequence number of the operation is 1 in the transaction that contains a total
number of 11 operations"). Debezium numbers its messages and sends the size at the commit. A
transaction is complete if all its numbers have arrived. A transaction that stays incomplete within
the limits is released and reported; only duplicates are dropped. Markers without an id (DTS,
DataHub) and transactions without numbers pass immediately.
"""

import bisect
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from changelane.event import (
    ChangeEvent,
    Control,
    DataChange,
    HalfUpdate,
    LogicalMessage,
    Op,
    Source,
    Transaction,
    TransactionMarker,
    Truncate,
    shared_transaction_id,
)
from changelane.position import ScnPosition

MAX_WAITING: Final = 10_000
"""The default of *max_waiting*."""

MAX_BUFFERED: Final = 100_000
"""The default of *max_buffered*."""

MAX_ENDED: Final = 10_000
"""The number of released transactions that are stored to recognise duplicates."""

INCOMPLETE_MARK: Final = "incomplete_transaction"
"""The type of the control event before an incomplete transaction."""

_Id = tuple[str | None, str | None, str]
"""The product and server of the source, and the id of the transaction."""


class IncompleteTransaction(msgspec.Struct, frozen=True):
    """A transaction that was released without all its operations.

    Attributes:
        id: The id of the transaction.
        operations: The number of its operations that arrived.
        size: The number of all its operations, if known.
    """

    id: str
    operations: int
    size: int | None = None

    def __str__(self) -> str:
        of = "an unknown number of" if self.size is None else str(self.size)
        return f"{self.id}: {self.operations} of {of} operations"


class _OpenTransaction(msgspec.Struct):
    """An incomplete transaction in the buffer.

    Attributes:
        scn: The SCN of its commit, if it has one.
        since: The number of its first event in the stream; ``touched`` that of its last one.
        operations: Events by their number in the transaction. Two events have one number if a
            producer writes an update in two halves, or posts an operation again later.
        halves: The number of first halves minus that of second halves; 0 if all have partners.
    """

    source: Source
    scn: int | None
    since: int
    touched: int
    size: int | None = None
    begin: TransactionMarker | None = None
    commit: TransactionMarker | None = None
    operations: dict[int, list[ChangeEvent]] = {}
    highest: int = 0
    halves: int = 0
    count: int = 0


class _EndedTransaction(msgspec.Struct, frozen=True):
    """A transaction that was released."""

    is_complete: bool
    scn: int | None


class _ReadyEvents(msgspec.Struct):
    """Complete events that wait for older buffered events, which they must not overtake.

    Attributes:
        since: The number of the first of them in the stream.
        is_loose: The events belong to no transaction, so they wait for all earlier transactions.
    """

    since: int
    events: tuple[ChangeEvent, ...]
    is_loose: bool


class TransactionsState(msgspec.Struct):
    """The picklable state between two events; another :class:`CollectTransactions` can continue.

    Attributes:
        event_count: The number of events so far.
        buffered_count: The number of buffered events.
        duplicates: The number of dropped duplicates.
        open: Incomplete transactions, by their last event, the oldest first.
        open_by_start: Incomplete transactions, by their first event, the oldest first.
        ready: Complete events that wait for older ones, in order.
        ended: Released transactions, the oldest first.
    """

    event_count: int = 0
    buffered_count: int = 0
    duplicates: int = 0
    open: OrderedDict[_Id, _OpenTransaction] = msgspec.field(default_factory=OrderedDict)
    open_by_start: OrderedDict[int, _Id] = msgspec.field(default_factory=OrderedDict)
    ready: list[_ReadyEvents] = []
    ended: OrderedDict[_Id, _EndedTransaction] = msgspec.field(default_factory=OrderedDict)


class CollectTransactions:
    """Buffers operations until their transaction is complete.

    A transaction is released as soon as it is complete. Events of no transaction (heartbeats,
    schema changes, rows without a number) wait for earlier transactions, and later transactions
    wait for these events. An incomplete transaction is released if no operation of it arrived for
    *max_waiting* events, if it is the oldest one while more than *max_buffered* events are
    buffered, and at the end of the stream. Its later operations pass one by one.

    Args:
        max_waiting: The maximum number of events between two operations of a transaction.
        max_buffered: The maximum number of buffered events.
        has_marks: Add a control event (:data:`INCOMPLETE_MARK`) before an incomplete transaction.
        report: The callback for every incomplete transaction.
        state: The state to continue from; it is changed in place, and :attr:`state` returns it.
    """

    def __init__(
        self,
        max_waiting: int = MAX_WAITING,
        *,
        max_buffered: int = MAX_BUFFERED,
        has_marks: bool = True,
        report: Callable[[IncompleteTransaction], None] | None = None,
        state: TransactionsState | None = None,
    ) -> None:
        self._max_waiting = max_waiting
        self._max_buffered = max_buffered
        self._has_marks = has_marks
        self._report = report
        self.state = TransactionsState() if state is None else state

    def push(self, event: ChangeEvent) -> tuple[ChangeEvent, ...]:
        """Add an event; return the events that are released."""
        state = self.state
        state.event_count += 1
        self._end_expired()
        if not state.open and not state.ready and _place_of(event) is None:
            return (event,)
        self._take(event)
        released = self._release_ready()
        while state.buffered_count > self._max_buffered and state.open_by_start:
            self._end(next(iter(state.open_by_start.values())), is_complete=False)
            released += self._release_ready()
        return released

    def flush(self) -> tuple[ChangeEvent, ...]:
        """Release all buffered events, including incomplete transactions."""
        for name in list(self.state.open_by_start.values()):
            self._end(name, is_complete=False)
        return self._release_ready()

    def _take(self, event: ChangeEvent) -> None:
        state = self.state
        source_transaction = _place_of(event)
        if source_transaction is None:
            self._end_uncounted(_name_of(event))
            self._add_ready(_ReadyEvents(state.event_count, (event,), is_loose=True))
            return
        source, transaction = source_transaction
        name = (source.product, source.server, _shared_id(event, transaction))
        ended = state.ended.get(name)
        if ended is None or ended.scn not in {None, _commit_scn(event)}:
            # the SCN distinguishes a later transaction with the same id
            self._collect(name, source, transaction, event)
        elif ended.is_complete and not isinstance(event, TransactionMarker):
            # all its numbers have arrived already
            state.duplicates += 1
        else:
            self._add_ready(_ReadyEvents(state.event_count, (event,), is_loose=True))

    def _add_ready(self, ready: _ReadyEvents) -> None:
        self.state.buffered_count += len(ready.events)
        bisect.insort(self.state.ready, ready, key=lambda entry: entry.since)

    def _collect(
        self, name: _Id, source: Source, transaction: Transaction, event: ChangeEvent
    ) -> None:
        state = self.state
        group = state.open.get(name)
        if group is None:
            scn = _commit_scn(event)
            group = state.open[name] = _OpenTransaction(
                source, scn, state.event_count, state.event_count
            )
            state.open_by_start[state.event_count] = name
        group.touched = state.event_count
        state.open.move_to_end(name)
        size = transaction.order if transaction.last else transaction.size
        if size is not None:
            group.size = max(size, group.size or 0)
        if not _add(group, transaction.order, event):
            state.duplicates += 1
            return
        group.count += 1
        state.buffered_count += 1
        if _is_complete(group):
            self._end(name, is_complete=True)
        elif group.begin is not None and group.commit is not None:
            self._end_uncounted(name)

    def _end_uncounted(self, name: _Id | None) -> None:
        """Release the begin of a transaction with operations that have no numbers."""
        group = None if name is None else self.state.open.get(name)
        if name is not None and group is not None and not group.operations and group.size is None:
            self._end(name, is_complete=False, is_counted=False)

    def _end_expired(self) -> None:
        state = self.state
        oldest_touched = state.event_count - self._max_waiting
        while state.open:
            name, group = next(iter(state.open.items()))
            if group.touched > oldest_touched:
                break
            self._end(name, is_complete=False)

    def _end(self, name: _Id, *, is_complete: bool, is_counted: bool = True) -> None:
        """Release the buffered operations of a transaction."""
        state = self.state
        group = state.open.pop(name)
        del state.open_by_start[group.since]
        state.ended[name] = _EndedTransaction(is_complete, group.scn)
        state.ended.move_to_end(name)
        while len(state.ended) > MAX_ENDED:
            state.ended.popitem(last=False)
        state.buffered_count -= group.count
        events = _in_order(group)
        if not is_complete and is_counted:
            incomplete = IncompleteTransaction(name[2], len(group.operations), group.size)
            if self._report is not None:
                self._report(incomplete)
            if self._has_marks:
                details = msgspec.structs.asdict(incomplete)
                mark = Control(
                    INCOMPLETE_MARK, str(incomplete), source=group.source, details=details
                )
                events = (mark, *events)
        self._add_ready(_ReadyEvents(group.since, events, is_loose=False))

    def _release_ready(self) -> tuple[ChangeEvent, ...]:
        """Return the ready events, up to the first that must wait for an open transaction."""
        state = self.state
        if not state.ready:
            return ()
        oldest = next(iter(state.open_by_start), state.event_count + 1)
        count = 0
        for ready in state.ready:
            if ready.is_loose and ready.since > oldest:
                break
            count += 1
        released = tuple(event for ready in state.ready[:count] for event in ready.events)
        del state.ready[:count]
        state.buffered_count -= len(released)
        return released


def _place_of(event: ChangeEvent) -> tuple[Source, Transaction] | None:
    """Return source and transaction of an event that is numbered in it, or is its marker."""
    match event:
        case HalfUpdate(change=change):
            return _place_of(change)
        case TransactionMarker():
            is_edge = event.status in {"begin", "commit"}
            # with an empty id, all transactions of the stream would be one
            return (event.source, event.transaction) if is_edge and event.transaction.id else None
        case DataChange() | Truncate() | LogicalMessage():
            transaction = event.transaction
            if transaction is None or transaction.order is None:
                return None
            return event.source, transaction
        case _:
            return None


def _name_of(event: ChangeEvent) -> _Id | None:
    """Return the name of an event's transaction, with or without a number."""
    event = event.change if isinstance(event, HalfUpdate) else event
    if not isinstance(event, DataChange | Truncate | LogicalMessage) or event.transaction is None:
        return None
    shared_id = _shared_id(event, event.transaction)
    return (event.source.product, event.source.server, shared_id)


def _shared_id(event: ChangeEvent, transaction: Transaction) -> str:
    event = event.change if isinstance(event, HalfUpdate) else event
    return shared_transaction_id(transaction.id, getattr(event, "position", None))


def _commit_scn(event: ChangeEvent) -> int | None:
    position = (event.change if isinstance(event, HalfUpdate) else event).position  # type: ignore[union-attr]
    if not isinstance(position, ScnPosition):
        return None
    return position.scn if position.commit_scn is None else position.commit_scn


def _add(group: _OpenTransaction, order: int | None, event: ChangeEvent) -> bool:
    """Add an event to its transaction; return whether it is new."""
    match event:
        case TransactionMarker(status="begin"):
            is_new = group.begin is None
            group.begin = group.begin or event
            return is_new
        case TransactionMarker():
            is_new = group.commit is None
            group.commit = group.commit or event
            return is_new
        case _:
            number = order or 0
            same_number = group.operations.setdefault(number, [])
            if any(_is_same(operation, event) for operation in same_number):
                return False
            same_number.append(event)
            group.highest = max(group.highest, number)
            if isinstance(event, HalfUpdate):
                group.halves += 1 if event.change.op is Op.DELETE else -1
            return True


def _is_same(first: ChangeEvent, second: ChangeEvent) -> bool:
    """Whether two events are equal, apart from their process time."""
    return _without_process_time(first) == _without_process_time(second)


def _without_process_time(event: ChangeEvent) -> ChangeEvent:
    if isinstance(event, HalfUpdate):
        change = msgspec.structs.replace(event.change, process_time_ns=None)
        return msgspec.structs.replace(event, change=change)
    if isinstance(event, DataChange | Truncate | LogicalMessage):
        return msgspec.structs.replace(event, process_time_ns=None)
    return event


def _is_complete(group: _OpenTransaction) -> bool:
    """Whether all numbers, the partners of all halves, and the commit of a begin arrived."""
    return (
        len(group.operations) == group.size
        and group.highest == group.size
        and not group.halves
        and (group.begin is None or group.commit is not None)
    )


def _in_order(group: _OpenTransaction) -> tuple[ChangeEvent, ...]:
    events = (
        event
        for number in sorted(group.operations)
        for event in sorted(group.operations[number], key=_is_after)
    )
    return tuple(event for event in (group.begin, *events, group.commit) if event is not None)


def _is_after(event: ChangeEvent) -> bool:
    return isinstance(event, HalfUpdate) and event.change.op is not Op.DELETE
