# SPDX-License-Identifier: Apache-2.0
"""Decides when captured records become visible: pure, without a clock and without storage.

A publication contains whole transactions only, because all records that were appended before it
become visible together. So the records of an open transaction wait in memory. If they become too
many, the transactions before them are published first, and the open one is appended alone.

A snapshot is published at its end: the engine cannot continue one, so a part of a snapshot would
be followed by another snapshot. A change without a transaction, such as a statement of MySQL, is
complete when the next record has another offset, because one statement may be several records, or
when no record has come for a while.

The connector of SQL Server notices the end of a transaction by the next one, or some seconds later
(:attr:`~.engine_records.EngineRecord.may_end_late`). The offset of such an END may be behind a row
that has not come yet, so that of the last row before it is used. If no end is noticed for long, the
transaction is taken for complete.

Heartbeats and empty transactions only move the offset. They are no records; if nothing else
happens, the offset is published now and then, so that the server can delete its log.
"""

from collections.abc import Iterable, Iterator

import msgspec

from changelane.capture.engine_records import EngineRecord, RecordRole, closed_offset
from changelane.capture.manifest import CapturedRecord, EngineOffset, Segment


class PublicationLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits that make a publication due.

    Attributes:
        max_bytes: The size of the records, before compression.
        max_age_s: The age of the oldest record, seconds.
        idle_s: The interval at which the offset alone is published, seconds.
        open_bytes: The size of the records of an open transaction that wait in memory.
        quiet_s: The time without a record after which a change without a transaction is complete,
            seconds. The records of one statement follow each other within milliseconds.
        end_s: The time without a record but heartbeats after which a transaction whose end may not
            be noticed is complete, seconds.
    """

    max_bytes: int = 64 << 20
    max_age_s: float = 5
    idle_s: float = 60
    open_bytes: int = 4 << 20
    quiet_s: float = 2
    end_s: float = 60


class Append(msgspec.Struct, frozen=True):
    """Append records to the segments."""

    records: tuple[CapturedRecord, ...]


class AppendSegments(msgspec.Struct, frozen=True):
    """Append segments that are in the storage already."""

    segments: tuple[Segment, ...]


class Publish(msgspec.Struct, frozen=True):
    """Publish everything that was appended, then give the offset back to the engine."""

    offset: EngineOffset


PublicationStep = Append | AppendSegments | Publish


class PublicationPlanner:
    """The state between the records of the engine and the publications of the log.

    Args:
        published: The offset of the newest manifest; ``None`` = the log is empty.
        limits: The limits.
        now_s: The present time of any clock that never goes back, seconds.
        with_markers: Whether BEGIN and END of transactions are records, too. Readers need them
            only to know the size of a transaction, which a publication never splits.
    """

    def __init__(
        self,
        published: EngineOffset | None,
        *,
        limits: PublicationLimits,
        now_s: float,
        with_markers: bool = False,
    ) -> None:
        self._limits = limits
        self._with_markers = with_markers
        self._published = published
        self._published_at_s = now_s
        self._quiet_since_s = now_s
        self._changed_at_s = now_s
        # the newest offset at which nothing is open, and what was appended up to it
        self._boundary: EngineOffset | None = None
        self._closed_bytes = 0
        self._closed_count = 0
        self._closed_since_s = now_s
        self._is_awaited = False
        # what follows the boundary
        self._tail: list[CapturedRecord] = []
        self._tail_bytes = 0
        self._tail_since_s: float | None = None
        self._tail_is_awaited = False
        self._last_row: EngineRecord | None = None
        self._appended_open_bytes = 0
        self._appended_open_count = 0

    @property
    def is_open(self) -> bool:
        """Whether a part of an open transaction or snapshot is among the appended records."""
        return self._appended_open_count > 0

    def is_quiet(self, now_s: float) -> bool:
        """Whether no record waits, and none but heartbeats has come for a while.

        A transaction may be open: with GTIDs, Debezium begins one for a statement, also for one
        without a record, and ends it with the next transaction.
        """
        is_empty = self._last_row is None and self._closed_count == 0
        return is_empty and now_s - self._changed_at_s >= self._limits.quiet_s

    def accept(self, records: Iterable[EngineRecord], now_s: float) -> Iterator[PublicationStep]:
        """Yield the steps after some records of the engine; the caller executes them in order."""
        for record in records:
            yield from self._accept(record, now_s)
            if self._last_row is not None and self._tail_bytes >= self._limits.open_bytes:
                yield from self._append_open(now_s)

    def end_batch(self, now_s: float) -> None:
        """Start to measure the time without records, when those of a batch have been written."""
        self._quiet_since_s = now_s

    def tick(self, now_s: float) -> Iterator[PublicationStep]:
        """Yield the publication that is due because time has passed."""
        row = self._last_row
        if row is not None and self._is_complete(row, now_s):
            yield from self._close(closed_offset(row.offset), now_s)
        elif self._is_due(now_s):
            yield from self._publish(now_s)

    def _is_complete(self, row: EngineRecord, now_s: float) -> bool:
        """Whether no record of the same change follows the last row."""
        if row.is_closed:
            return now_s - self._quiet_since_s >= self._limits.quiet_s
        may_be_complete = row.may_end_late and not row.is_in_snapshot
        return may_be_complete and now_s - self._changed_at_s >= self._limits.end_s

    def insert(self, step: Append | AppendSegments, now_s: float) -> Iterator[PublicationStep]:
        """Yield the publication of records that are not the engine's.

        Call it only if :attr:`can_insert`.
        """
        yield step
        self._boundary = self._boundary or self._published
        yield from self._publish(now_s)

    @property
    def can_insert(self) -> bool:
        """Whether records that are not the engine's can be published: between two transactions."""
        return not self.is_open and bool(self._boundary or self._published)

    def finish(self, now_s: float) -> Iterator[PublicationStep]:
        """Yield the last publication of a capture that stops in good order.

        A change without a transaction that may be incomplete is not among it.
        """
        has_moved = self._boundary is not None and self._boundary != self._published
        if not self.is_open and has_moved:
            yield from self._publish(now_s)

    def _accept(self, record: EngineRecord, now_s: float) -> Iterator[PublicationStep]:
        if record.role is not RecordRole.HEARTBEAT:
            self._changed_at_s = now_s
        match record.role:
            case RecordRole.END:
                if self._with_markers and (self._tail or self.is_open):
                    self._add_to_tail(record, now_s)
                end = self._last_row if record.may_end_late else record
                if end is not None:
                    yield from self._close(closed_offset(end.offset), now_s)
            case RecordRole.BEGIN:
                yield from self._close_last_row(record, now_s)
                if self._with_markers:
                    self._add_to_tail(record, now_s)
            case RecordRole.HEARTBEAT | RecordRole.MARKER:
                self._tail_is_awaited |= record.role is RecordRole.MARKER
                if record.is_closed:
                    yield from self._close(record.offset, now_s)
                else:
                    yield from self._close_last_row(record, now_s)
            case RecordRole.ROW | RecordRole.STATEMENT:
                yield from self._close_last_row(record, now_s)
                self._add_to_tail(record, now_s)
                self._last_row = record

    def _add_to_tail(self, record: EngineRecord, now_s: float) -> None:
        self._tail.append(record.record)
        self._tail_bytes += record.size_bytes
        if self._tail_since_s is None:
            self._tail_since_s = now_s

    def _close_last_row(self, record: EngineRecord, now_s: float) -> Iterator[PublicationStep]:
        """Close a row without a transaction, if the record is not part of the same change."""
        row = self._last_row
        if row is not None and row.is_closed and row.offset != record.offset:
            yield from self._close(closed_offset(row.offset), now_s)

    def _close(self, offset: EngineOffset, now_s: float) -> Iterator[PublicationStep]:
        """Append what follows the boundary, and move the boundary behind it."""
        has_rows = self._last_row is not None
        if self._tail and has_rows:
            yield Append(tuple(self._tail))
        if has_rows:
            if self._closed_count == 0:
                self._closed_since_s = now_s if self._tail_since_s is None else self._tail_since_s
            self._closed_bytes += self._tail_bytes + self._appended_open_bytes
            self._closed_count += len(self._tail) + self._appended_open_count
        self._boundary = offset
        self._is_awaited |= self._tail_is_awaited
        self._set_nothing_open()
        if self._is_due(now_s):
            yield from self._publish(now_s)

    def _append_open(self, now_s: float) -> Iterator[PublicationStep]:
        """Append a part of a transaction or snapshot that is too large to wait in memory."""
        if not self.is_open and self._closed_count > 0:
            yield from self._publish(now_s)
        yield Append(tuple(self._tail))
        self._appended_open_bytes += self._tail_bytes
        self._appended_open_count += len(self._tail)
        self._tail = []
        self._tail_bytes = 0

    def _is_due(self, now_s: float) -> bool:
        if self.is_open or self._boundary is None:
            return False
        if self._published is None:
            return True  # the end of the first snapshot, which nobody wants to repeat
        if self._closed_count > 0:
            return (
                self._is_awaited
                or self._closed_bytes >= self._limits.max_bytes
                or now_s - self._closed_since_s >= self._limits.max_age_s
            )
        return self._boundary != self._published and (
            self._is_awaited or now_s - self._published_at_s >= self._limits.idle_s
        )

    def _publish(self, now_s: float) -> Iterator[PublicationStep]:
        if self._boundary is not None:
            yield Publish(self._boundary)
        self._published = self._boundary
        self._published_at_s = now_s
        self._closed_bytes = 0
        self._closed_count = 0
        self._is_awaited = False

    def _set_nothing_open(self) -> None:
        self._tail = []
        self._tail_bytes = 0
        self._tail_since_s = None
        self._tail_is_awaited = False
        self._last_row = None
        self._appended_open_bytes = 0
        self._appended_open_count = 0
