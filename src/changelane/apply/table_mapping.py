# SPDX-License-Identifier: Apache-2.0
"""Maps the table names of events to lake tables: a renamed table keeps its lake table.

If the old name is used again, it denotes another table. As for columns
(:mod:`changelane.apply.column_mapping`), the mapping depends only on the schema history and on the
order of an event.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from changelane.apply.schema_history import (
    PARTS_PER_TEXT,
    SchemaChangeEntry,
    SchemaDropped,
    ShadowSwapped,
    TableAltered,
    TableDropped,
    TableRenamed,
    sorted_entries,
)
from changelane.schema import TableId


class LakeTable(NamedTuple):
    """A table of the lake.

    Attributes:
        table: Its first name.
        generation: An id that distinguishes it from an older, renamed table with the same first
            name; empty for the oldest table.
    """

    table: TableId
    generation: str = ""


class TableEnd(NamedTuple):
    """The drop of a table with its rows.

    Attributes:
        is_replaced: A new table of the same name exists.
    """

    order: bytes
    is_replaced: bool


class TableMapping:
    """The tables of a stream over its log.

    Args:
        entries: All schema changes of all tables, in any order.
    """

    def __init__(self, entries: Iterable[SchemaChangeEntry] = ()) -> None:
        self.entries = sorted_entries(list(entries))
        self._renames = [entry for entry in self.entries if isinstance(entry, TableRenamed)]
        self._states: list[dict[TableId, LakeTable | None]] = [_initial_tables(self._renames)]
        for rename in self._renames:
            state = dict(self._states[-1])
            state[rename.new_table] = _table_named(state, rename.table)
            # after the rename, the old name denotes another table
            state[rename.table] = LakeTable(rename.table, _incarnation_of(rename))
            self._states.append(state)
        self._related_names: dict[TableId, frozenset[TableId]] = {}
        for rename in self._renames:
            related = self.related_names(rename.table) | self.related_names(rename.new_table)
            self._related_names |= dict.fromkeys(related, related)
        self._orders = [rename.order for rename in self._renames]
        self._schema_drops = [entry for entry in self.entries if isinstance(entry, SchemaDropped)]
        self._entries_by_table: dict[LakeTable, list[SchemaChangeEntry]] = {}
        self._drops_by_name: dict[TableId, list[bytes]] = {}
        for entry in self.entries:
            if isinstance(entry, TableDropped):
                self._drops_by_name.setdefault(entry.table, []).append(entry.order)
        for entry in self.entries:
            if isinstance(entry, TableAltered | TableDropped | ShadowSwapped):
                lake_table = self.lake_table(entry.table, entry.order)
                self._entries_by_table.setdefault(lake_table, []).append(entry)

    def lake_table(self, table: TableId, order: bytes) -> LakeTable:
        """Return the lake table of a name at an order."""
        interval = bisect_left(self._orders, order)
        lake_table = _table_named(self._states[interval], table)
        if lake_table is not None:
            return lake_table
        # no table has the name: the event is of a dropped table, or older than the rename
        later = next(
            index for index in range(interval, len(self._states)) if self._states[index].get(table)
        )
        name_end = self._renames[later - 1].order
        # at the drop itself, the name still denotes the dropped table
        if order < name_end and any(order <= end <= name_end for end in self._drop_orders(table)):
            return LakeTable(table)
        return self._states[later][table] or LakeTable(table)

    def related_names(self, table: TableId) -> frozenset[TableId]:
        """Return all names that may have denoted the tables of a name, including itself."""
        return self._related_names.get(table, frozenset({table}))

    def name_change_orders(self, table: TableId) -> list[bytes]:
        """Return the orders at which a name may change its table; empty if it never does."""
        if not any(table in (rename.table, rename.new_table) for rename in self._renames):
            return []
        return sorted({*self._drop_orders(table), *self._orders})

    def _drop_orders(self, table: TableId) -> list[bytes]:
        """Return the orders at which a table of this name was dropped."""
        schema_drops = [
            ending.order for ending in self._schema_drops if _is_in_dropped_schema(ending, table)
        ]
        return [*self._drops_by_name.get(table, []), *schema_drops]

    def current_name(self, lake_table: LakeTable) -> TableId:
        """Return the name of a table after all schema changes."""
        for name, named_table in self._states[-1].items():
            if named_table == lake_table:
                return name
        return lake_table.table

    def alterations(self, lake_table: LakeTable) -> list[TableAltered]:
        """Return the changes of a table's columns, including those of its shadow tables."""
        alterations: list[TableAltered] = []
        for entry in self._entries_by_table.get(lake_table, ()):
            if isinstance(entry, TableAltered):
                alterations.append(entry)
            elif isinstance(entry, ShadowSwapped):
                alterations.extend(self._shadow_alterations(entry))
        return alterations

    def _shadow_alterations(self, swap: ShadowSwapped) -> list[TableAltered]:
        """Return the changes of a shadow table since its creation, at the order of the swap."""
        alterations: list[TableAltered] = []
        # a shadow table has no lake table; its changes are listed under its own name
        for entry in self._entries_by_table.get(self.lake_table(swap.shadow, swap.order), ()):
            if entry.order >= swap.order:
                break
            if isinstance(entry, TableDropped):
                alterations.clear()
            elif isinstance(entry, TableAltered):
                alterations.append(entry)
        return [
            msgspec.structs.replace(
                entry,
                table=swap.table,
                order=swap.order,
                part=PARTS_PER_TEXT * (swap.part + 1) + number,
            )
            for number, entry in enumerate(alterations)
        ]

    def ends(self, lake_table: LakeTable) -> list[TableEnd]:
        """Return the drops of a table, in the order of the log."""
        table_drops = [
            TableEnd(entry.order, entry.is_replaced)
            for entry in self._entries_by_table.get(lake_table, ())
            if isinstance(entry, TableDropped)
        ]
        schema_drops = [
            TableEnd(entry.order, is_replaced=False)
            for entry in self._schema_drops
            if self.is_dropped_by(entry, lake_table)
        ]
        return sorted([*table_drops, *schema_drops])

    def is_dropped_by(self, drop: SchemaDropped, lake_table: LakeTable) -> bool:
        """Return whether a table is in a dropped database or schema."""
        return _is_in_dropped_schema(drop, self._name_at(lake_table, drop.order))

    def _name_at(self, lake_table: LakeTable, order: bytes) -> TableId:
        interval = bisect_left(self._orders, order)
        for name, named_table in self._states[interval].items():
            if named_table == lake_table:
                return name
        return lake_table.table


def _initial_tables(renames: list[TableRenamed]) -> dict[TableId, LakeTable | None]:
    names: dict[TableId, LakeTable | None] = {}
    for rename in renames:
        names.setdefault(rename.table, LakeTable(rename.table))
        names.setdefault(rename.new_table, None)
    return names


def _table_named(state: dict[TableId, LakeTable | None], table: TableId) -> LakeTable | None:
    return state.get(table, LakeTable(table))


def _incarnation_of(entry: TableRenamed) -> str:
    return hashlib.sha256(entry.order + bytes([entry.part % 256])).hexdigest()[:8]


def _is_in_dropped_schema(entry: SchemaDropped, table: TableId) -> bool:
    name = entry.table
    if name.schema is None and name.database is None:
        return False
    if name.schema is not None and name.schema != table.schema:
        return False
    return name.database is None or name.database == table.database
