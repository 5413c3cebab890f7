# SPDX-License-Identifier: Apache-2.0
"""Tables in memory that follow the statements of their source: the oracle of schema changes.

The tables rename, drop and fill no column. They store all events and statements, and compute the
rows at each call from the rule (:mod:`changelane.testing.reference.upsert`). For that, each event
gets the final names of its columns and its table.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec

from changelane.apply.column_mapping import ColumnMapping
from changelane.apply.event_operations import operations_of
from changelane.apply.operations import Upsert
from changelane.apply.schema_history import (
    Backfill,
    SchemaChangeEntry,
    TableAltered,
    schema_changes_of,
    table_of_shadow,
)
from changelane.apply.table_mapping import LakeTable, TableMapping
from changelane.ddl import TruncateTable, dialect_of, statements_of
from changelane.errors import ApplyError
from changelane.event import ChangeEvent, DataChange, Image, Key, SchemaChange, Truncate
from changelane.position import DELETE_PHASE, UPSERT_PHASE, encode_order
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.reference.table import Row
from changelane.testing.reference.upsert import MemoryTables
from changelane.types import UNAVAILABLE

_Event = DataChange | Truncate


class FollowingTables:
    """Tables in memory that follow schema changes.

    Args:
        keep: Dropped columns stay in the tables.
        shadows: Treat the tables of online schema changes as shadow tables.
    """

    def __init__(self, *, keep: bool = True, shadows: bool = True) -> None:
        self._keep = keep
        self._shadows = shadows
        self._events: list[tuple[bytes, _Event]] = []
        self._entries: list[SchemaChangeEntry] = []
        self._texts_by_order: dict[bytes, list[str]] = {}

    def apply(self, events: Iterable[ChangeEvent]) -> None:
        """Store events, each of which needs a position."""
        for event in events:
            match event:
                case DataChange():
                    self._events.append((_order(event, UPSERT_PHASE), event))
                case Truncate():
                    self._events.append((_order(event, DELETE_PHASE), event))
                case SchemaChange():
                    self._statements(event)
                case _:
                    pass

    def _statements(self, event: SchemaChange) -> None:
        order = _order(event, DELETE_PHASE)
        dialect = dialect_of(event.source.product)
        if dialect is None:
            return
        statements = statements_of(event.ddl, event.source.product, event.table)
        for statement in statements:
            for change in statement.changes:
                if isinstance(change, TruncateTable):
                    self._events.append((order, Truncate(change.table, position=event.position)))
        actions, text = self._texts_by_order.setdefault(order, []), event.ddl or ""
        if text not in actions:
            actions.append(text)
        before = actions.index(text)
        self._entries.extend(
            schema_changes_of(order, statements, dialect, shadows=self._shadows, before=before)
        )

    def memory(self) -> MemoryTables:
        """Return the tables of all events by the merge rule, by their first names."""
        tables = TableMapping(self._entries)
        events = self._by_place(tables)
        stated = (place for place in events if tables.alterations(place) or tables.ends(place))
        memory = MemoryTables(statements=frozenset(map(stand_in, stated)))
        for place, table_events in events.items():
            newest = max((order for order, event in table_events if isinstance(event, DataChange)))
            passed_ends = [
                end for end in tables.ends(place) if end.is_replaced or end.order < newest
            ]
            cleared = max((end.order for end in passed_ends), default=b"")
            turns = [
                _without_existing(turn, table_events, cleared)
                for turn in tables.alterations(place)
                if turn.order >= cleared
            ]
            shape = ColumnMapping(turns, keep=self._keep)
            for order, event in table_events:
                # older events belong to a dropped table
                if order > cleared:
                    memory.apply([_read(event, order, place, shape)])
        return memory

    def rows(self, table: TableId) -> list[Row]:
        """Return the rows of a table by its final name."""
        tables = TableMapping(self._entries)
        last = max((turn.order for turn in self._entries), default=b"") + b"\xff"
        return list(self.memory().rows(stand_in(tables.lake_table(table, last))))

    def places(self) -> list[LakeTable]:
        """Return the tables that have or had rows."""
        return list(self._by_place(TableMapping(self._entries)))

    def _by_place(self, tables: TableMapping) -> Mapping[LakeTable, list[tuple[bytes, _Event]]]:
        events_by_place: dict[LakeTable, list[tuple[bytes, _Event]]] = {}
        for order, event in self._events:
            if self._shadows and table_of_shadow(event.table) is not None:
                continue
            events_by_place.setdefault(tables.lake_table(event.table, order), []).append(
                (order, event)
            )
        return {
            place: table_events
            for place, table_events in events_by_place.items()
            if _has_rows(table_events)
        }


def stand_in(place: LakeTable) -> TableId:
    """Return the name of a lake table in memory."""
    name = f"{place.table.name}{place.generation and '~'}{place.generation}"
    return msgspec.structs.replace(place.table, name=name)


def _has_rows(table_events: Iterable[tuple[bytes, _Event]]) -> bool:
    return any(isinstance(event, DataChange) for _, event in table_events)


def _without_existing(
    altered: TableAltered, table_events: Iterable[tuple[bytes, _Event]], cleared: bytes
) -> TableAltered:
    """Return a change without additions ``IF NOT EXISTS`` of columns that older events have."""
    older_names = {
        name.lower()
        for order, event in table_events
        if cleared < order < altered.order and isinstance(event, DataChange) and event.schema
        for name in event.schema.by_name
    }
    added = tuple(
        column
        for column in altered.added
        if not (column.may_exist and column.name.lower() in older_names)
    )
    return msgspec.structs.replace(altered, added=added)


def _order(event: DataChange | Truncate | SchemaChange, phase: int) -> bytes:
    if event.position is None:
        raise ValueError("an event without a position cannot follow")
    snapshot = event.source.snapshot is not None
    return encode_order(event.position, snapshot=snapshot, phase=phase)


def _read(event: _Event, order: bytes, place: LakeTable, shape: ColumnMapping) -> _Event:
    if isinstance(event, Truncate):
        return msgspec.structs.replace(event, table=stand_in(place))
    assert event.schema is not None  # noqa: S101 - only events with schemas follow
    event_columns = shape.event_columns(event.schema.by_name, order)
    columns = {name: target for name, target in event_columns.columns.items() if target is not None}

    def image(image: Image | None) -> Image | None:
        if image is None:
            return None
        return {columns[name]: value for name, value in image.items() if name in columns}

    table_columns = [
        Column(columns[column.name], column.type)
        for column in event.schema.columns
        if column.name in columns
    ]
    key = event.key and Key(tuple(columns.get(name, name) for name in event.key.columns))
    read = msgspec.structs.replace(
        event,
        table=stand_in(place),
        key=key,
        schema=TableSchema(tuple(table_columns)),
        before=image(event.before),
        after=image(event.after),
    )
    if read.after is None or not _is_full_row(read):
        return read
    after = dict(read.after)
    for filling in event_columns.backfills:
        if filling.column not in columns.values():
            is_told = filling.added.fill is Backfill.VALUE
            after[filling.column] = filling.added.value if is_told else UNAVAILABLE
            table_columns.append(Column(filling.column, filling.added.kind))
    return msgspec.structs.replace(read, schema=TableSchema(tuple(table_columns)), after=after)


def _is_full_row(event: DataChange) -> bool:
    """Whether an event contains its complete row; for a key change, with its before image."""
    with suppress(ApplyError):  # the merge rule rejects it later
        return any(isinstance(step, Upsert) and step.is_full_row for step in operations_of(event))
    return False
