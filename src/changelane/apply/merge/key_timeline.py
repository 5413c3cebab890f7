# SPDX-License-Identifier: Apache-2.0
"""The changes of one key in the order of the log, from a batch and from the stored state."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from changelane.apply.operations import KeyDelete, Upsert
from changelane.apply.row_state import (
    EMPTY_STATE,
    NO_ORDER,
    ColumnVersion,
    KeyState,
    Rule,
    join,
    prune,
    sort_key,
)
from changelane.types import Value


class RowFragment(NamedTuple):
    """The values of a row from one event, or from the stored state."""

    order: bytes
    cells: Mapping[str, ColumnVersion]
    full_row_order: bytes
    upsert: Upsert | None = None
    is_inherited: bool = False


class TimelineDelete(NamedTuple):
    """A delete of the row of a key.

    Attributes:
        is_explicit: The delete is an operation; else it follows from an upsert or from the state.
    """

    key_delete: KeyDelete
    is_explicit: bool


class Timeline:
    """All known changes of one key in this batch.

    Attributes:
        covered_order: The order up to which transactions have no effect, because a later event set
            or deleted the full row.
    """

    __slots__ = (
        *("_own_positions", "_removed_fragments", "deletes", "fragments", "key_inserts"),
        *("covered_order", "state", "timeline_deletes", "unsure_deletes"),
    )

    def __init__(self, state: KeyState) -> None:
        self.state = state
        self.key_inserts: dict[bytes, KeyDelete | None] = {}  # the delete at the old key, if known
        self.fragments: list[RowFragment] = []
        self.deletes: list[tuple[bytes, bytes]] = []  # (order, moved_to or b"")
        self.timeline_deletes: dict[tuple[bytes, bytes | None], TimelineDelete] = {}
        self.unsure_deletes: set[bytes] = set()  # deletes that may leave an unknown row
        self.covered_order = NO_ORDER
        self._own_positions: frozenset[bytes] = frozenset()
        self._removed_fragments: list[RowFragment] = []
        if state.cells or state.full_row_order:
            self.fragments.append(RowFragment(state.upserted, state.cells, state.full_row_order))
        if state.deleted:
            self.deletes.append((state.deleted, state.moved_to or b""))

    def row_as_of(self, low: bytes, high: bytes, rule: Rule) -> RowFragment:
        """Return the row as of *high*, from changes after *low*."""
        cells: dict[str, ColumnVersion] = {}
        full_order = NO_ORDER
        for fragment in self.fragments:
            if low < fragment.full_row_order < high:
                full_order = max(full_order, fragment.full_row_order)
            for column, cell in fragment.cells.items():
                if low < cell.order < high:
                    known_cell = cells.get(column)
                    if known_cell is None or rule.wins(cell, known_cell):
                        cells[column] = cell
        lifted_cells = prune(cells, full_order, rule)
        newest = max((full_order, *(cell.order for cell in lifted_cells.values())))
        return RowFragment(newest, lifted_cells, full_order)

    def remove_positions(
        self,
        state: KeyState,
        own_positions: frozenset[bytes],
        outside_states: Iterable[KeyState],
        rule: Rule,
    ) -> None:
        """Remove the changes at some positions of the log, and restore the replaced values.

        Args:
            state: The registers at the start of the timeline.
            own_positions: The positions in the log, without phases.
            outside_states: The stored registers without those positions.
            rule: The decision points of the rule.
        """
        self._own_positions = own_positions
        later = state_without(state, own_positions)
        self.covered_order = max(later.full_row_order, later.deleted)
        del self.fragments[: bool(state.cells or state.full_row_order)]
        del self.deletes[: bool(state.deleted)]
        known_states = [
            later,
            *(state_without(other_state, own_positions) for other_state in outside_states),
        ]
        self.state = EMPTY_STATE
        for known_state in known_states:
            self.state = join(self.state, known_state, rule)
            if known_state.cells or known_state.full_row_order:
                self.fragments.append(
                    RowFragment(known_state.upserted, known_state.cells, known_state.full_row_order)
                )
            if known_state.deleted:
                self.deletes.append((known_state.deleted, known_state.moved_to or b""))

    def take_between(self, key: bytes, first: bytes, last: bytes) -> list[Upsert]:
        """Remove and return the changes of stored rows between two orders.

        Their before images are not stored, so they belong to the row that arrived last.
        """
        cells_by_order: dict[bytes, dict[str, ColumnVersion]] = {}
        full_row_orders: set[bytes] = set()

        def is_between(order: bytes) -> bool:
            return first < order <= last and len(order) == len(last)

        for number, fragment in enumerate(self.fragments):
            later_cells = {c: cell for c, cell in fragment.cells.items() if is_between(cell.order)}
            if fragment.upsert is not None or not (
                later_cells or is_between(fragment.full_row_order)
            ):
                continue
            for column, cell in later_cells.items():
                cells_by_order.setdefault(cell.order, {})[column] = cell
            full_order = NO_ORDER
            if is_between(fragment.full_row_order):
                cells_by_order.setdefault(fragment.full_row_order, {})
                full_row_orders.add(fragment.full_row_order)
                full_order = fragment.full_row_order
            self._removed_fragments.append(RowFragment(fragment.order, later_cells, full_order))
            other_cells = {c: cell for c, cell in fragment.cells.items() if c not in later_cells}
            other_full_order = NO_ORDER if full_order else fragment.full_row_order
            newest = max((other_full_order, *(cell.order for cell in other_cells.values())))
            self.fragments[number] = RowFragment(newest, other_cells, other_full_order)
        return [
            Upsert(
                key, order, {c: cell.value for c, cell in cells.items()}, order in full_row_orders
            )
            for order, cells in sorted(cells_by_order.items())
        ]

    def outside_state(self, last: bytes, rule: Rule) -> KeyState:
        """Return the registers up to an order, without the removed positions."""
        high = last + b"\xff"
        orders = ((order, moved_to) for order, moved_to in self.deletes if order < high)
        foreign_orders = [order for order in orders if self._is_foreign(order[0])]
        deleted, moved_to = max(foreign_orders, default=(NO_ORDER, b""))
        cells: dict[str, ColumnVersion] = {}
        full_order = NO_ORDER
        for fragment in (*self.fragments, *self._removed_fragments):
            if deleted < fragment.full_row_order < high and self._is_foreign(
                fragment.full_row_order
            ):
                full_order = max(full_order, fragment.full_row_order)
            for column, cell in fragment.cells.items():
                if deleted < cell.order < high and self._is_foreign(cell.order):
                    known_cell = cells.get(column)
                    if known_cell is None or rule.wins(cell, known_cell):
                        cells[column] = cell
        return KeyState(deleted, moved_to or None, full_order, prune(cells, full_order, rule))

    def _is_foreign(self, order: bytes) -> bool:
        return order[: len(next(iter(self._own_positions)))] not in self._own_positions


def delete_sort_key(timeline_delete: TimelineDelete) -> tuple[bytes, bytes, bytes]:
    """Return the sort key of a delete."""
    return (
        timeline_delete.key_delete.order,
        timeline_delete.key_delete.key,
        timeline_delete.key_delete.moved_to or b"",
    )


def shared_columns(before: Mapping[str, Value], row: RowFragment) -> set[str]:
    """Return the columns known in both a before image and a row."""
    return set(before) if row.full_row_order else before.keys() & row.cells.keys()


def is_consistent(before: Mapping[str, Value], row: RowFragment) -> bool:
    """Whether a before image agrees with a row in the columns that both have."""
    return all(
        sort_key(before[column])
        == sort_key(row.cells[column].value if column in row.cells else None)
        for column in shared_columns(before, row)
    )


def is_same_row(first: RowFragment, second: RowFragment) -> bool:
    """Whether two rows have the same known columns, with the same values."""
    return first.cells.keys() == second.cells.keys() and all(
        sort_key(cell.value) == sort_key(second.cells[column].value)
        for column, cell in first.cells.items()
    )


def state_without(state: KeyState, positions: frozenset[bytes]) -> KeyState:
    """Return registers without the changes at some positions of the log."""
    if not positions:
        return state
    width = len(next(iter(positions)))

    def is_foreign(order: bytes) -> bool:
        return order[:width] not in positions

    cells = {c: cell for c, cell in state.cells.items() if is_foreign(cell.order)}
    full_order = state.full_row_order if is_foreign(state.full_row_order) else NO_ORDER
    if state.deleted and not is_foreign(state.deleted):
        return KeyState(full_row_order=full_order, cells=cells)
    return KeyState(state.deleted, state.moved_to, full_order, cells)


def inherited_fragments(
    state: KeyState, positions: frozenset[bytes]
) -> dict[bytes, list[RowFragment]]:
    """Return the values that a stored row had before its arrival, by the order of its delete."""
    if not positions:
        return {}
    width = len(next(iter(positions))) + 1
    cells_by_order: dict[bytes, dict[str, ColumnVersion]] = {}
    for column, cell in state.cells.items():
        if len(cell.order) > width and cell.order[: width - 1] in positions:
            cells_by_order.setdefault(cell.order[:width], {})[column] = cell
    return {
        start: [
            RowFragment(max(c.order for c in cells.values()), cells, NO_ORDER, is_inherited=True)
        ]
        for start, cells in cells_by_order.items()
    }
