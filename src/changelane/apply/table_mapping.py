# SPDX-License-Identifier: Apache-2.0
"""Which table of the lake an event's table is: a renamed table stays where its rows are.

The new name continues the old one's history; the old name, used again, is another table. As with
columns (:mod:`changelane.apply.column_mapping`) this is a function of the turns and of an event's
order.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from changelane.apply.schema_history import (
    PARTS,
    Altered,
    Ended,
    EndedAll,
    Renamed,
    Swapped,
    Turn,
    sorted_turns,
)
from changelane.schema import TableId


class Place(NamedTuple):
    """A table of the lake.

    Attributes:
        table: The name that it came under.
        generation: Tells it from an older table that came under that name and is called otherwise
            now; empty for the first.
    """

    table: TableId
    generation: str = ""


class End(NamedTuple):
    """The table and its rows went here.

    Attributes:
        is_replaced: A new table of the name is there.
    """

    order: bytes
    is_replaced: bool


class Tables:
    """The tables of a stream in the course of its log.

    Args:
        turns: All turns of all tables, in any order.
    """

    def __init__(self, turns: Iterable[Turn] = ()) -> None:
        self.turns = sorted_turns(list(turns))
        self._renames = [one for one in self.turns if isinstance(one, Renamed)]
        self._states: list[dict[TableId, Place | None]] = [_first(self._renames)]
        for one in self._renames:
            state = dict(self._states[-1])
            state[one.new_table] = _held(state, one.table)
            # whoever comes under the old name from here on is another table
            state[one.table] = Place(one.table, _generation(one))
            self._states.append(state)
        self._together: dict[TableId, frozenset[TableId]] = {}
        for one in self._renames:
            both = self.together(one.table) | self.together(one.new_table)
            self._together |= dict.fromkeys(both, both)
        self._orders = [one.order for one in self._renames]
        self._ending_all = [one for one in self.turns if isinstance(one, EndedAll)]
        self._turns_of: dict[Place, list[Turn]] = {}
        self._ends_of: dict[TableId, list[bytes]] = {}
        for turn in self.turns:
            if isinstance(turn, Ended):
                self._ends_of.setdefault(turn.table, []).append(turn.order)
        for turn in self.turns:
            if isinstance(turn, Altered | Ended | Swapped):
                place = self.place(turn.table, turn.order)
                self._turns_of.setdefault(place, []).append(turn)

    def place(self, table: TableId, order: bytes) -> Place:
        """Return the table of the lake that was called so at an order."""
        label = bisect_left(self._orders, order)
        held = _held(self._states[label], table)
        if held is not None:
            return held
        # the name is not given yet: of a table that went before, else told too early
        later = next(
            index for index in range(label, len(self._states)) if self._states[index].get(table)
        )
        given = self._renames[later - 1].order
        # at an end itself it is still the table that goes
        if order < given and any(order <= end <= given for end in self._ended(table)):
            return Place(table)
        return self._states[later][table] or Place(table)

    def together(self, table: TableId) -> frozenset[TableId]:
        """Return the names that may have meant the tables which a name meant, with itself."""
        return self._together.get(table, frozenset({table}))

    def renamed(self, table: TableId) -> list[bytes]:
        """Return where the meaning of a name may change; nothing when it never does."""
        if not any(table in (one.table, one.new_table) for one in self._renames):
            return []
        return sorted({*self._ended(table), *self._orders})

    def _ended(self, table: TableId) -> list[bytes]:
        """Return where whatever was called so went."""
        everything = [one.order for one in self._ending_all if _is_of(one, table)]
        return [*self._ends_of.get(table, []), *everything]

    def called(self, place: Place) -> TableId:
        """Return what a table is called after all turns."""
        for name, held in self._states[-1].items():
            if held == place:
                return name
        return place.table

    def altered(self, place: Place) -> list[Altered]:
        """Return the turns of a table's columns, those that it took from a shadow among them."""
        found: list[Altered] = []
        for turn in self._turns_of.get(place, ()):
            if isinstance(turn, Altered):
                found.append(turn)
            elif isinstance(turn, Swapped):
                found.extend(self._taken(turn))
        return found

    def _taken(self, swap: Swapped) -> list[Altered]:
        """Return what was done to a shadow since it was made, as done to its table at the swap."""
        done: list[Altered] = []
        # a shadow is no table of the lake, so that its turns stand under its own name
        for turn in self._turns_of.get(self.place(swap.shadow, swap.order), ()):
            if turn.order >= swap.order:
                break
            if isinstance(turn, Ended):
                done.clear()
            elif isinstance(turn, Altered):
                done.append(turn)
        return [
            msgspec.structs.replace(
                turn, table=swap.table, order=swap.order, part=PARTS * (swap.part + 1) + number
            )
            for number, turn in enumerate(done)
        ]

    def ends(self, place: Place) -> list[End]:
        """Return where a table went, in the order of the log."""
        own = [
            End(turn.order, turn.is_replaced)
            for turn in self._turns_of.get(place, ())
            if isinstance(turn, Ended)
        ]
        everything = [
            End(turn.order, is_replaced=False)
            for turn in self._ending_all
            if _is_of(turn, self._called_at(place, turn.order))
        ]
        return sorted([*own, *everything])

    def _called_at(self, place: Place, order: bytes) -> TableId:
        label = bisect_left(self._orders, order)
        for name, held in self._states[label].items():
            if held == place:
                return name
        return place.table


def _first(renames: list[Renamed]) -> dict[TableId, Place | None]:
    names: dict[TableId, Place | None] = {}
    for one in renames:
        names.setdefault(one.table, Place(one.table))
        names.setdefault(one.new_table, None)
    return names


def _held(state: dict[TableId, Place | None], table: TableId) -> Place | None:
    return state.get(table, Place(table))


def _generation(turn: Renamed) -> str:
    return hashlib.sha256(turn.order + bytes([turn.part % 256])).hexdigest()[:8]


def _is_of(turn: EndedAll, table: TableId) -> bool:
    name = turn.table
    if name.schema is None and name.database is None:
        return False
    if name.schema is not None and name.schema != table.schema:
        return False
    return name.database is None or name.database == table.database
