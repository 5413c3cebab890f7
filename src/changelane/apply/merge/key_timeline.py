# SPDX-License-Identifier: Apache-2.0
"""What a batch, and the state before it, tell of one key: in the order of the log."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from changelane.apply.operations import Departure, Upsert
from changelane.apply.row_state import EMPTY, NOTHING, Cell, KeyState, Rule, join, lifted, typed
from changelane.types import Value


class Carried(NamedTuple):
    """What one event, or the state so far, says about a row."""

    order: bytes
    cells: Mapping[str, Cell]
    whole: bytes
    step: Upsert | None = None
    is_inherited: bool = False


class Exit(NamedTuple):
    """A departure: up to *cleared* (exclusive) its row lived, then it arrived at *moved_to*."""

    step: Departure
    is_told: bool


class Timeline:
    """All that is known of one key in this batch.

    Attributes:
        covered: Up to where a transaction does not matter any more: a later event of another one
            set the whole row, or took it away.
    """

    __slots__ = (
        *("_apart", "_own", "arrivals", "carried", "clears"),
        *("covered", "exits", "state", "unsure"),
    )

    def __init__(self, state: KeyState) -> None:
        self.state = state
        self.arrivals: dict[bytes, Departure | None] = {}  # from where, as far as it was told
        self.carried: list[Carried] = []
        self.clears: list[tuple[bytes, bytes]] = []  # (order, moved_to or b"")
        self.exits: dict[tuple[bytes, bytes | None], Exit] = {}
        self.unsure: set[bytes] = set()  # clears, where a row may be that nothing told
        self.covered = NOTHING
        self._own: frozenset[bytes] = frozenset()
        self._apart: list[Carried] = []
        if state.cells or state.whole:
            self.carried.append(Carried(state.upserted, state.cells, state.whole))
        if state.deleted:
            self.clears.append((state.deleted, state.moved_to or b""))

    def view(self, low: bytes, high: bytes, rule: Rule) -> Carried:
        """Return the row as of *high*, from what was told after *low*."""
        cells: dict[str, Cell] = {}
        whole = NOTHING
        for carried in self.carried:
            if low < carried.whole < high:
                whole = max(whole, carried.whole)
            for column, cell in carried.cells.items():
                if low < cell.order < high:
                    held = cells.get(column)
                    if held is None or rule.wins(cell, held):
                        cells[column] = cell
        kept = lifted(cells, whole, rule)
        newest = max((whole, *(cell.order for cell in kept.values())))
        return Carried(newest, kept, whole)

    def without(
        self, state: KeyState, own: frozenset[bytes], rests: Iterable[KeyState], rule: Rule
    ) -> None:
        """Take out what was told at some places of the log, and bring back what it had hidden.

        Args:
            state: The registers that the timeline began with.
            own: The places in the log, without phases.
            rests: The registers without those places, as they were remembered.
            rule: The decision points of the rule.
        """
        self._own = own
        later = foreign(state, own)
        self.covered = max(later.whole, later.deleted)
        del self.carried[: bool(state.cells or state.whole)]
        del self.clears[: bool(state.deleted)]
        known = [later, *(foreign(rest, own) for rest in rests)]
        self.state = EMPTY
        for one in known:
            self.state = join(self.state, one, rule)
            if one.cells or one.whole:
                self.carried.append(Carried(one.upserted, one.cells, one.whole))
            if one.deleted:
                self.clears.append((one.deleted, one.moved_to or b""))

    def between(self, key: bytes, first: bytes, last: bytes) -> list[Upsert]:
        """Take out, and return, what stored rows were told between two orders.

        Nothing tells any more what the rows before were: they are changes of the row that
        arrived last.
        """
        found: dict[bytes, dict[str, Cell]] = {}
        wholes: set[bytes] = set()

        def is_between(order: bytes) -> bool:
            return first < order <= last and len(order) == len(last)

        for number, carried in enumerate(self.carried):
            apart = {c: cell for c, cell in carried.cells.items() if is_between(cell.order)}
            if carried.step is not None or not (apart or is_between(carried.whole)):
                continue
            for column, cell in apart.items():
                found.setdefault(cell.order, {})[column] = cell
            whole = NOTHING
            if is_between(carried.whole):
                found.setdefault(carried.whole, {})
                wholes.add(carried.whole)
                whole = carried.whole
            self._apart.append(Carried(carried.order, apart, whole))
            rest = {c: cell for c, cell in carried.cells.items() if c not in apart}
            left = NOTHING if whole else carried.whole
            newest = max((left, *(cell.order for cell in rest.values())))
            self.carried[number] = Carried(newest, rest, left)
        return [
            Upsert(key, order, {c: cell.value for c, cell in cells.items()}, order in wholes)
            for order, cells in sorted(found.items())
        ]

    def rest(self, last: bytes, rule: Rule) -> KeyState:
        """Return the registers up to an order, without what :meth:`without` took out."""
        high = last + b"\xff"
        orders = ((order, moved_to) for order, moved_to in self.clears if order < high)
        known = [one for one in orders if self._is_foreign(one[0])]
        deleted, moved_to = max(known, default=(NOTHING, b""))
        cells: dict[str, Cell] = {}
        whole = NOTHING
        for carried in (*self.carried, *self._apart):
            if deleted < carried.whole < high and self._is_foreign(carried.whole):
                whole = max(whole, carried.whole)
            for column, cell in carried.cells.items():
                if deleted < cell.order < high and self._is_foreign(cell.order):
                    held = cells.get(column)
                    if held is None or rule.wins(cell, held):
                        cells[column] = cell
        return KeyState(deleted, moved_to or None, whole, lifted(cells, whole, rule))

    def _is_foreign(self, order: bytes) -> bool:
        return order[: len(next(iter(self._own)))] not in self._own


def when(left: Exit) -> tuple[bytes, bytes, bytes]:
    """Return by what departures are sorted."""
    return (left.step.order, left.step.key, left.step.moved_to or b"")


def compared(before: Mapping[str, Value], row: Carried) -> set[str]:
    """Return the columns that both a before image and a row know."""
    return set(before) if row.whole else before.keys() & row.cells.keys()


def agrees(before: Mapping[str, Value], row: Carried) -> bool:
    """Say whether a before image may be of a row, as far as both are known."""
    return all(
        typed(before[column]) == typed(row.cells[column].value if column in row.cells else None)
        for column in compared(before, row)
    )


def same_row(one: Carried, other: Carried) -> bool:
    """Say whether two rows know the same columns, with the same values."""
    return one.cells.keys() == other.cells.keys() and all(
        typed(cell.value) == typed(other.cells[column].value) for column, cell in one.cells.items()
    )


def foreign(state: KeyState, places: frozenset[bytes]) -> KeyState:
    """Return registers without what was told at some places of the log."""
    if not places:
        return state
    width = len(next(iter(places)))

    def is_foreign(order: bytes) -> bool:
        return order[:width] not in places

    cells = {c: cell for c, cell in state.cells.items() if is_foreign(cell.order)}
    whole = state.whole if is_foreign(state.whole) else NOTHING
    if state.deleted and not is_foreign(state.deleted):
        return KeyState(whole=whole, cells=cells)
    return KeyState(state.deleted, state.moved_to, whole, cells)


def inherited(state: KeyState, places: frozenset[bytes]) -> dict[bytes, list[Carried]]:
    """Return what a stored row has from before it arrived, by the order of its departure."""
    if not places:
        return {}
    width = len(next(iter(places))) + 1
    found: dict[bytes, dict[str, Cell]] = {}
    for column, cell in state.cells.items():
        if len(cell.order) > width and cell.order[: width - 1] in places:
            found.setdefault(cell.order[:width], {})[column] = cell
    return {
        start: [Carried(max(c.order for c in cells.values()), cells, NOTHING, is_inherited=True)]
        for start, cells in found.items()
    }
