# SPDX-License-Identifier: Apache-2.0
"""Tables of versions in memory: the oracle of the mode ``history`` (SCD type 2).

Every upsert of a key begins a version of its row, which lasts until the next upsert, delete,
departure or truncate (:mod:`changelane.apply.history`). An arrival by a key change that lacks
columns takes them from the before image only. Unlike in the mode ``upsert``, they are not taken
from the versions of the old key.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from changelane.apply import (
    AMBIGUOUS,
    UNORDERED,
    KeyDelete,
    NoKeyError,
    RowOperation,
    TableTruncate,
    Upsert,
    operations_of,
)
from changelane.apply.added_columns import ColumnHistory, schemas_of
from changelane.apply.history import (
    NO_HISTORY,
    RowHistory,
    Version,
    later_time,
    versions,
    versions_of_tracked,
    with_delete,
    with_upsert,
)
from changelane.apply.row_state import sort_key
from changelane.errors import ApplyError
from changelane.event import ChangeEvent, DataChange, HalfUpdate, Truncate
from changelane.position import Position, is_comparable
from changelane.schema import TableId, option_for_table
from changelane.testing.reference.upsert import Refused


class _Table(msgspec.Struct):
    pasts: dict[bytes, RowHistory] = {}
    columns: dict[str, None] = {}
    truncates: dict[bytes, int | None] = {}
    ambiguous: dict[bytes, ChangeEvent] = {}
    source: ColumnHistory = ColumnHistory()


class HistoryTables:
    """Tables of versions, by the names of their sources.

    Args:
        keys: Table name -> key columns, instead of the keys of the events.
        track: Table name -> tracked columns: only their changes begin versions. Without it, every
            event begins a version.
        epoch: The epoch of the orders.
    """

    def __init__(
        self,
        *,
        keys: Mapping[str, tuple[str, ...]] | None = None,
        track: Mapping[str, tuple[str, ...]] | None = None,
        epoch: int = 0,
    ) -> None:
        self._keys = dict(keys or {})
        self._track = dict(track or {})
        self._epoch = epoch
        self._tables: dict[TableId, _Table] = {}
        self._ties: Counter[TableId] = Counter()
        self._refused: list[Refused] = []

    def apply(
        self, events: Iterable[ChangeEvent], *, positions: Sequence[Position | None] = ()
    ) -> None:
        """Apply one batch.

        Args:
            events: Events of any tables.
            positions: The position of each event in its topic, for events without a position.
        """
        upserts: dict[TableId, list[tuple[ChangeEvent, bytes]]] = {}
        for index, event in enumerate(events):
            change = event.change if isinstance(event, HalfUpdate) else event
            if not isinstance(change, DataChange | Truncate):
                continue
            stored_table = self._tables.setdefault(change.table, _Table())
            fallback = positions[index] if index < len(positions) else None
            try:
                for step in self._steps(event, change, fallback):
                    self._take(change.table, stored_table, step, event)
                    if isinstance(step, Upsert):
                        upserts.setdefault(change.table, []).append((event, step.order))
            except ApplyError as error:
                self._refused.append(Refused(change.table, error.code, event))

        for table, batch in upserts.items():
            stored_table = self._tables[table]
            stored_table.source = stored_table.source.after(schemas_of(batch))

    def versions(self, table: TableId) -> Mapping[bytes, list[Version]]:
        """Return the versions of every key, in order."""
        stored_table = self._tables.get(table) or _Table()
        track = self._track.get(table.name or "", self._track.get(str(table)))
        versions_by_key: dict[bytes, list[Version]] = {}
        for key, past in sorted(stored_table.pasts.items()):
            key_versions, _ = versions(
                past, stored_table.columns, stored_table.truncates, stored_table.source.added
            )
            if key_versions:
                versions_by_key[key] = (
                    key_versions if track is None else versions_of_tracked(key_versions, track)
                )
        return versions_by_key

    @property
    def quarantine(self) -> Sequence[Refused]:
        """The rejected events, with their reasons."""
        rejected = list(self._refused)
        for table, stored_table in self._tables.items():
            for past in stored_table.pasts.values():
                _, undecided = versions(past, stored_table.columns, stored_table.truncates)
                rejected += (
                    Refused(table, AMBIGUOUS, stored_table.ambiguous[s.order]) for s in undecided
                )
        return rejected

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of ``ties`` and of ``incomplete`` versions."""
        every = (self.versions(table).values() for table in self._tables)
        incomplete = sum(
            bool(version.unknown)
            for table_versions in every
            for key_versions in table_versions
            for version in key_versions
        )
        return {"ties": self._ties.total(), "incomplete": incomplete}

    def _steps(
        self, event: ChangeEvent, change: DataChange | Truncate, fallback: Position | None
    ) -> tuple[RowOperation, ...]:
        if isinstance(change, Truncate):
            return operations_of(event, epoch=self._epoch, fallback=fallback)
        columns = option_for_table(self._keys, change.table) or (
            None if change.key is None else change.key.columns
        )
        if columns is None:
            raise NoKeyError("the table has no key, so the row is unknown")
        event_steps = operations_of(event, keys=columns, epoch=self._epoch, fallback=fallback)
        names = () if change.schema is None else tuple(change.schema.by_name)
        known_columns = self._tables[change.table].columns
        for name in (*names, *(change.before or ()), *(change.after or ())):
            known_columns.setdefault(name)
        return event_steps

    def _take(
        self, table: TableId, stored_table: _Table, step: RowOperation, event: ChangeEvent
    ) -> None:
        time_us = _time_us(event)
        match step:
            case TableTruncate(order):
                stored_table.truncates[order] = later_time(
                    stored_table.truncates.get(order), time_us
                )
            case KeyDelete(key=key):
                past = self._past(stored_table, key, step.order)
                stored_table.pasts[key] = with_delete(past, step, time_us)
                stored_table.ambiguous[step.order] = event
            case Upsert(key=bytes() as key):
                past = self._past(stored_table, key, step.order)
                rival = past.changes.get(step.order)
                if rival is not None and any(
                    sort_key(step.values[c]) != sort_key(rival.values[c])
                    for c in step.values.keys() & rival.values.keys()
                ):
                    self._ties[table] += 1
                stored_table.pasts[key] = with_upsert(past, step, time_us)
            case _:
                raise NoKeyError("the table has no key, so the row is unknown")

    @staticmethod
    def _past(stored_table: _Table, key: bytes, order: bytes) -> RowHistory:
        past = stored_table.pasts.get(key, NO_HISTORY)
        known_change = next(iter(past.changes), None) or next(iter(past.ends), None)
        if known_change is not None and not is_comparable(known_change, order):
            raise _IncomparableError("the order is not comparable with the orders of the key")
        return past


class _IncomparableError(ApplyError):
    code = UNORDERED


def _time_us(event: ChangeEvent) -> int | None:
    change = event.change if isinstance(event, HalfUpdate) else event
    time_ns = change.source_time_ns if isinstance(change, DataChange | Truncate) else None
    return None if time_ns is None else time_ns // 1000
