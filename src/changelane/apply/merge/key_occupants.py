# SPDX-License-Identifier: Apache-2.0
"""The rows that have one key inside one transaction, and the row that remains.

Under deferred constraints a key may have several occupants until the commit. Every event removes
the row of its before image and adds the row of its after image. A full before image identifies its
row. So the events of a transaction may be split over batches and arrive in any order, if all of
them are stored (:class:`changelane.apply.row_state.TransactionRecord`). An event without such an
image belongs to the row that arrived last, as under immediate constraints.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from changelane.apply.merge.key_timeline import RowFragment, is_consistent, shared_columns
from changelane.apply.operations import KeyDelete, Upsert
from changelane.apply.row_state import (
    EMPTY_STATE,
    NO_ORDER,
    ColumnVersion,
    KeyState,
    Rule,
    TransactionRecord,
    join,
    prune,
)
from changelane.apply.transactions import IMMEDIATE_DOMAINS
from changelane.position import DELETE_PHASE, UPSERT_PHASE, at_phase, domain_of
from changelane.types import Value

NO_ROW: Final = RowFragment(NO_ORDER, {}, NO_ORDER)


class Occupant:
    """A row that has the key.

    Attributes:
        start: The order of its arrival, of phase 0; empty for the row from before the transaction.
        fragments: The values from the events of the transaction.
    """

    __slots__ = ("fragments", "start")

    def __init__(self, start: bytes, fragments: list[RowFragment]) -> None:
        self.start = start
        self.fragments = fragments

    def row(self, rule: Rule) -> RowFragment:
        """Return the current row."""
        cells: dict[str, ColumnVersion] = {}
        full_order = max((fragment.full_row_order for fragment in self.fragments), default=NO_ORDER)
        for fragment in self.fragments:
            for column, cell in fragment.cells.items():
                known_cell = cells.get(column)
                if known_cell is None or rule.wins(cell, known_cell):
                    cells[column] = cell
        lifted_cells = prune(cells, full_order, rule)
        return RowFragment(
            max((full_order, *(cell.order for cell in lifted_cells.values()))),
            lifted_cells,
            full_order,
        )


class TransactionKey:
    """One key inside one transaction.

    Attributes:
        key: The key.
        parts: The number of key columns.
        record: The operations to store.
        inherited_by_order: The values that arriving rows keep, by the order of their delete.
    """

    def __init__(self, key: bytes, transaction: bytes, column_count: int, rule: Rule) -> None:
        self.key = key
        self.transaction = transaction
        self.parts = column_count
        self.rule = rule
        self.operations: list[Upsert | KeyDelete] = []
        self.inherited_by_order: dict[bytes, list[RowFragment]] = {}
        self.outside_state: KeyState = EMPTY_STATE
        self._batch_ids: set[int] = set()
        self._known_orders: set[bytes] = set()
        self._occupants: list[Occupant] = []
        self._base: Occupant | None = None
        self._was_known = False
        self._is_immediate = False
        self._last_delete: tuple[KeyDelete, Occupant | None] | None = None

    def add_record(self, record: TransactionRecord) -> None:
        """Add the operations of an earlier batch."""
        self.outside_state = join(self.outside_state, record.outside_state)
        for operation in record.operations:
            self.add(operation, is_fresh=False)
            self._known_orders.add(operation.order)

    def add(self, operation: Upsert | KeyDelete, *, is_fresh: bool = True) -> None:
        """Add an operation of the key, or a delete that moves a row to it; each once."""
        if operation not in self.operations:
            self.operations.append(operation)
        if is_fresh:
            self._batch_ids.add(id(operation))

    def complete(self, known_states: Sequence[KeyState]) -> None:
        """Add operations that were applied before the transaction was known to move rows.

        These are key inserts with deletes that arrived later, and a delete with an empty image,
        because its original before image is not stored.

        Args:
            known_states: The registers of the key and of its transaction records.
        """
        state = known_states[0]
        if state.deleted and state.deleted not in self._known_orders:
            key_deletes = [
                msgspec.structs.replace(operation, before={})
                for operation in self.operations
                if isinstance(operation, KeyDelete)
                and operation.key == self.key
                and operation.order == state.deleted
            ]
            # a delete at the position of an operation; a move to the key itself marks an insert
            is_placed = state.deleted[:-1] in self.positions and state.moved_to != self.key
            if not key_deletes and is_placed:
                key_deletes = [KeyDelete(self.key, state.deleted, state.moved_to, {})]
            self.operations += key_deletes
        orders = {operation.order for operation in self.operations if isinstance(operation, Upsert)}
        for operation in [
            operation for operation in self.operations if isinstance(operation, KeyDelete)
        ]:
            order = at_phase(operation.order, UPSERT_PHASE)
            if operation.moved_to != self.key or operation.key == self.key or order in orders:
                continue
            cells = [
                cell
                for key_state in known_states
                for cell in key_state.cells.items()
                if cell[1].order == order
            ]
            values = {column: cell.value for column, cell in cells}
            is_full = any(key_state.full_row_order == order for key_state in known_states)
            if values or is_full:
                self.operations.append(
                    Upsert(self.key, order, values, is_full, moved_from=operation.key)
                )

    @property
    def positions(self) -> frozenset[bytes]:
        """The positions of the operations in the log, without their phases."""
        return frozenset(operation.order[:-1] for operation in self.operations)

    @property
    def is_in_batch(self) -> bool:
        """Whether this batch contains operations of the key and transaction."""
        return bool(self._batch_ids)

    @property
    def first(self) -> bytes:
        """The order of the first operation."""
        return min(operation.order for operation in self.operations)

    @property
    def last(self) -> bytes:
        """The order of the last operation."""
        return max(operation.order for operation in self.operations)

    def inherited(self, start: bytes, inherited_rows: Sequence[RowFragment]) -> list[RowFragment]:
        """Return the known values that a row kept, without those in *inherited_rows*."""
        columns = {column for fragment in inherited_rows for column in fragment.cells}
        return [
            fragment._replace(cells={c: v for c, v in fragment.cells.items() if c not in columns})
            for fragment in self.inherited_by_order.get(start, ())
            if fragment.is_inherited
        ]

    # Replay of the transaction, operation by operation

    @property
    def record(self) -> TransactionRecord:
        """The operations to store."""
        operations = tuple(sorted(self.operations, key=lambda operation: operation.order))
        return TransactionRecord(self.transaction, operations, self.outside_state)

    def begin(self, base: RowFragment, *, is_empty: bool) -> None:
        """Begin with the row from before the transaction, which may be unknown.

        Args:
            base: Its known values.
            is_empty: No row existed for certain.
        """
        self._occupants = []
        self._is_immediate = any(self._proves_immediate(operation) for operation in self.operations)
        self._was_known = bool(base.order)
        self._base = None if is_empty else Occupant(NO_ORDER, [base] if base.order else [])

    def _proves_immediate(self, operation: Upsert | KeyDelete) -> bool:
        """Whether an operation proves that a key never has two rows."""
        is_departure = isinstance(operation, KeyDelete) and self.is_key_only(operation)
        return is_departure and domain_of(operation.order) in IMMEDIATE_DOMAINS

    def is_key_only(self, key_delete: KeyDelete) -> bool:
        """Whether the before image of a delete contains only the key."""
        return bool(key_delete.before) and not identifies_row(key_delete.before, self.parts)

    def operations_by_order(
        self, other_upserts: Iterable[Upsert]
    ) -> Iterator[tuple[bytes, list[Upsert | KeyDelete]]]:
        """Return the operations by order, with those that were applied before any row moved."""
        steps_by_order: dict[bytes, list[Upsert | KeyDelete]] = {}
        for operation in (*self.operations, *other_upserts):
            is_own = isinstance(operation, Upsert) or operation.key == self.key
            order = operation.order if is_own else at_phase(operation.order, UPSERT_PHASE)
            steps_by_order.setdefault(order, []).append(operation)
        yield from sorted(steps_by_order.items())

    def remove_row(self, key_delete: KeyDelete) -> RowFragment | None:
        """Remove the row of a delete and return its known values."""
        occupant = self._occupant_named(key_delete.before)
        self._last_delete = (key_delete, occupant)
        if occupant is None:
            return None
        row = occupant.row(self.rule)
        if occupant is self._base:
            self._base = None
        else:
            self._occupants.remove(occupant)
        return row

    @property
    def is_shared(self) -> bool:
        """Whether more than one known row has the key."""
        is_known = self._base is not None and bool(self._base.fragments)
        return len(self._occupants) + is_known > 1

    def is_from_batch(self, operation: Upsert | KeyDelete) -> bool:
        """Whether an operation is from this batch."""
        return id(operation) in self._batch_ids

    def remove_all_rows(self, key_delete: KeyDelete) -> None:
        """Remove all rows, because the delete does not identify its row."""
        self._occupants, self._base, self._last_delete = [], None, (key_delete, None)

    def upsert(self, order: bytes, operations: list[Upsert | KeyDelete]) -> None:
        """Add or change a row."""
        upserts = [operation for operation in operations if isinstance(operation, Upsert)]
        start = at_phase(order, DELETE_PHASE)
        is_arrival = any(
            isinstance(operation, KeyDelete) or operation.moved_from for operation in operations
        )
        fragments = [self._fragment_of(operation) for operation in upserts]
        if is_arrival:
            fragments += self.inherited_by_order.get(start, ())
        elif not upserts[0].inserts:
            occupant = self._occupant_named(upserts[0].before)
            if occupant is not None:
                occupant.fragments += fragments
                return
        if self._is_immediate:
            self._occupants, self._base = [], None
        self._occupants.append(Occupant(start, fragments))

    def _fragment_of(self, upsert: Upsert) -> RowFragment:
        order = self.rule.order(upsert.order)
        cells = {column: ColumnVersion(order, value) for column, value in upsert.values.items()}
        new_upsert = upsert if id(upsert) in self._batch_ids else None
        return RowFragment(order, cells, order if upsert.is_full_row else NO_ORDER, new_upsert)

    def _occupant_named(self, before: Mapping[str, Value] | None) -> Occupant | None:
        """Return the occupant of a before image; without image, the newest occupant."""
        newest_first = self._occupants[::-1]
        if self._base is not None:
            newest_first.append(self._base)
        if not newest_first:
            return None
        if not before:
            return newest_first[0]
        candidates: list[tuple[int, int, Occupant]] = []
        for number, occupant in enumerate(newest_first):
            row = occupant.row(self.rule)
            if is_consistent(before, row):
                candidates.append((len(shared_columns(before, row)), -number, occupant))
        if candidates:
            return max(candidates, key=lambda candidate: candidate[:2])[2]
        return self._base or newest_first[0]

    # The result

    def final_occupant(self, cleared: bytes) -> Occupant | None:
        """Return the row that has the key after the transaction, above the newest truncate."""
        for occupant in self._occupants[::-1]:
            if occupant.row(self.rule).order > cleared:
                return occupant
        return self._base

    def new_fragments(self, occupant: Occupant) -> list[RowFragment]:
        """Return the values of a row that the transaction set."""
        return occupant.fragments[not occupant.start and self._was_known :]

    @property
    def last_delete(self) -> tuple[bytes, bytes]:
        """The newest delete, and the new key of its row if the row existed before."""
        if self._last_delete is None:
            return (NO_ORDER, b"")
        key_delete, occupant = self._last_delete
        was_there = occupant is not None and not occupant.start
        return (key_delete.order, (key_delete.moved_to or b"") if was_there else b"")


def identifies_row(before: Mapping[str, Value] | None, column_count: int) -> bool:
    """Whether a before image contains more columns than the key."""
    return before is not None and len(before) > column_count
