# SPDX-License-Identifier: Apache-2.0
"""Applies operations to registers: the complete merge rule, including key changes.

A row that moves to another key keeps the columns that its key insert lacks (docs/merge-rule.md, Key
changes that lack columns). The order of an inherited column version is the order of the delete,
followed by the order of the event with the value. These bytes sort above everything before the move
and below the key insert. So joining needs no exception, and a late older event of the old key sorts
correctly among the inherited versions.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial

import msgspec

from changelane.apply.merge.batch_state import BatchState
from changelane.apply.merge.key_occupants import NO_ROW
from changelane.apply.merge.key_timeline import (
    RowFragment,
    Timeline,
    TimelineDelete,
    delete_sort_key,
    inherited_fragments,
)
from changelane.apply.operations import KeyDelete, RowOperation, TableTruncate, Upsert
from changelane.apply.rejection import TOO_LATE, UNORDERED, Rejection
from changelane.apply.row_state import (
    EMPTY_STATE,
    NO_ORDER,
    RULE,
    ColumnVersion,
    KeyState,
    Rule,
    compact,
    prune,
    sort_key,
)
from changelane.apply.transactions import name_of_transaction
from changelane.position import DELETE_PHASE, at_phase, is_comparable


class Resolution(msgspec.Struct, frozen=True):
    """The result of a batch of operations on the keys that it affects.

    Attributes:
        states: The new registers of every affected key, compacted.
        truncated: The new ``T``. If it increased, the caller must evaluate all other rows, too.
        rejections: The rejected operations, in the order of the log.
        tie_count: The number of columns with different values at their newest order (conflicts).
    """

    states: Mapping[bytes, KeyState]
    truncated: bytes = NO_ORDER
    rejections: tuple[Rejection, ...] = ()
    tie_count: int = 0


def affected_keys(
    states: Mapping[bytes, KeyState], operations: Iterable[RowOperation]
) -> frozenset[bytes]:
    """Return the keys for which :func:`resolve` needs the state.

    These are the keys of the operations, and the keys that are reachable from them by ``moved_to``.
    If *states* lacks a key of the result, load its state and call the function again.
    """
    keys: set[bytes] = set()
    keys_to_visit: list[bytes | None] = []
    for operation in operations:
        match operation:
            case Upsert():
                keys_to_visit += (operation.key, operation.moved_from)
            case KeyDelete():
                keys_to_visit += (operation.key, operation.moved_to)
            case TableTruncate():
                pass
    while keys_to_visit:
        key = keys_to_visit.pop()
        if key is not None and key not in keys:
            keys.add(key)
            keys_to_visit.append(states.get(key, EMPTY_STATE).moved_to)
    return frozenset(keys)


def resolve(
    states: Mapping[bytes, KeyState],
    operations: Iterable[RowOperation],
    *,
    truncated: bytes = NO_ORDER,
    tombstone_watermark: bytes = NO_ORDER,
    complete: AbstractSet[bytes] = frozenset(),
    keys: tuple[str, ...] = (),
    rule: Rule = RULE,
) -> Resolution:
    """Return the states after a set of operations, whatever their order of arrival.

    Args:
        states: The stored registers, at least of the keys from :func:`affected_keys`; a missing key
            has no events yet.
        operations: Operations of one table.
        truncated: ``T``, the newest truncate so far.
        tombstone_watermark: ``H``; older tombstones may be purged. So an older upsert is rejected
            if it may belong to a deleted row: if its row does not exist, or may lack columns and
            has no value as old as the upsert.
        complete: The keys of rows that lack no column; an older upsert has no effect on them.
        keys: The key columns. With them, the first half of a key change (a delete with its new key)
            already creates the row at the new key, with the known columns.
        rule: The decisions of the rule; only tests replace them.
    """
    batch_operations = list(operations)
    resolver = _BatchResolver(
        states,
        truncated=truncated,
        tombstone_watermark=tombstone_watermark,
        complete=complete,
        keys=keys,
        rule=rule,
    )
    resolver.open_transactions(batch_operations)
    for operation in sorted(batch_operations, key=lambda operation: operation.order):
        resolver.add_operation(operation)
    resolver.follow_moves(affected_keys(states, batch_operations))
    return resolver.result()


class _BatchResolver(BatchState):
    """One call of :func:`resolve`."""

    def add_operation(self, operation: RowOperation) -> None:
        """Add an operation, unless its order cannot be compared."""
        match operation:
            case TableTruncate():
                order = self.rule.order(operation.order)
                if self.truncates and not is_comparable(self.truncates[0], order):
                    self.rejections.append(Rejection(None, UNORDERED, operation))
                else:
                    self.truncates.append(order)
            case KeyDelete():
                if self._is_comparable(operation.key, operation):
                    self._add_delete(operation)
            case Upsert(key=None):
                raise ValueError("a table without a key has no registers")
            case Upsert(key=bytes() as key):
                if self._is_comparable(key, operation):
                    self._add_upsert(key, operation)

    def _is_comparable(self, key: bytes, operation: Upsert | KeyDelete) -> bool:
        timeline = self.timeline(key)
        self.touched_keys.add(key)
        last_seen = (
            self.truncates[0]
            if self.truncates
            else max(timeline.state.deleted, timeline.state.upserted)
        )
        if not last_seen and timeline.fragments:
            last_seen = timeline.fragments[0].order
        if not last_seen and timeline.timeline_deletes:
            last_seen = next(iter(timeline.timeline_deletes))[0]
        if not last_seen or is_comparable(last_seen, operation.order):
            return True
        self.rejections.append(Rejection(key, UNORDERED, operation))
        return False

    def _add_delete(self, key_delete: KeyDelete) -> None:
        transaction = name_of_transaction(key_delete)
        if key_delete.moved_to is not None and key_delete.moved_to != key_delete.key:
            heir = self.transaction_keys.get((key_delete.moved_to, transaction))
            if heir is not None:
                self.touched_keys.add(heir.key)
                heir.add(key_delete)
        if (transaction_key := self.transaction_keys.get((key_delete.key, transaction))) is None:
            self._add_timeline_delete(key_delete, is_explicit=True)
        else:
            transaction_key.add(key_delete)

    def _add_timeline_delete(self, key_delete: KeyDelete, *, is_explicit: bool) -> None:
        timeline = self.timeline(key_delete.key)
        self.touched_keys.add(key_delete.key)
        order = self.rule.order(key_delete.order)
        if order != key_delete.order:
            key_delete = msgspec.structs.replace(key_delete, order=order)
        known_delete = timeline.timeline_deletes.get((order, key_delete.moved_to))
        if known_delete is None or (
            is_explicit and not (known_delete.is_explicit and known_delete.key_delete.before)
        ):
            timeline.timeline_deletes[order, key_delete.moved_to] = TimelineDelete(
                key_delete, is_explicit=is_explicit
            )
        if (
            key_delete.moved_to is not None
            and key_delete.moved_to != key_delete.key
            and (key_delete.moved_to, name_of_transaction(key_delete)) not in self.transaction_keys
        ):
            arrivals = self.timeline(key_delete.moved_to).key_inserts
            arrivals[order] = key_delete if is_explicit else arrivals.get(order)

    def _add_upsert(self, key: bytes, upsert: Upsert) -> None:
        transaction = name_of_transaction(upsert)
        if (transaction_key := self.transaction_keys.get((key, transaction))) is not None:
            transaction_key.add(upsert)
        else:
            self._add_fragment(key, upsert)
        if upsert.moved_from is None:
            return
        key_delete = KeyDelete(
            upsert.moved_from,
            at_phase(upsert.order, DELETE_PHASE),
            moved_to=key,
            transaction=upsert.transaction,
        )
        old_transaction_key = self.transaction_keys.get((upsert.moved_from, transaction))
        if old_transaction_key is None:
            self._add_timeline_delete(key_delete, is_explicit=False)
        elif upsert.moved_from != key:
            # a preliminary delete, until the message with the delete arrives
            self.touched_keys.add(upsert.moved_from)
            old_transaction_key.add(key_delete)

    def _add_fragment(self, key: bytes, upsert: Upsert) -> None:
        order = self.rule.order(upsert.order)
        cells = {column: ColumnVersion(order, value) for column, value in upsert.values.items()}
        full_order = order if upsert.is_full_row else NO_ORDER
        self.timeline(key).fragments.append(RowFragment(order, cells, full_order, upsert))

    def follow_moves(self, affected: frozenset[bytes]) -> None:
        """Determine the row of each delete, and move its known values to the new key."""
        actions: list[tuple[tuple[bytes, bytes, bytes], Callable[[], None]]] = []
        for key in sorted(self.transactions_of):
            actions += self._transaction_actions(key, affected)
        for key in affected:
            state = self.timeline(key).state
            if state.moved_to is not None and state.moved_to in affected:
                # Late older events of this key belong to the row at its new key.
                key_delete = KeyDelete(key, state.deleted, moved_to=state.moved_to)
                self.timeline(key).timeline_deletes.setdefault(
                    (state.deleted, state.moved_to), TimelineDelete(key_delete, is_explicit=False)
                )
        timeline_deletes = [
            timeline_delete
            for timeline in self.timelines.values()
            for timeline_delete in timeline.timeline_deletes.values()
        ]
        actions += [
            (delete_sort_key(timeline_delete), partial(self._follow_delete, timeline_delete))
            for timeline_delete in timeline_deletes
        ]
        for _, action in sorted(actions, key=lambda entry: entry[0]):
            action()

    def _transaction_actions(
        self, key: bytes, affected: frozenset[bytes]
    ) -> list[tuple[tuple[bytes, bytes, bytes], Callable[[], None]]]:
        """Return the actions on a key inside transactions, each with its position in the log."""
        transaction_keys = [
            transaction_key
            for transaction_key in self.transactions_of.get(key, ())
            if transaction_key.operations
        ]
        timeline = self.timeline(key)
        stored_state = self.states.get(key, EMPTY_STATE)
        for transaction_key in transaction_keys:
            transaction_key.complete(
                [
                    stored_state,
                    *(transaction_key.outside_state for transaction_key in transaction_keys),
                ]
            )
        own_positions = frozenset().union(
            *(transaction_key.positions for transaction_key in transaction_keys)
        )
        timeline.remove_positions(
            stored_state,
            own_positions,
            [transaction_key.outside_state for transaction_key in transaction_keys],
            self.rule,
        )
        if transaction_keys and (forgotten := self.forgotten.get(key)):
            # A row may have existed; a later row replaced all of its values.
            timeline.deletes.append((forgotten, b""))
            timeline.unsure_deletes.add(forgotten)
            timeline.covered_order = max(timeline.covered_order, forgotten)
        actions: list[tuple[tuple[bytes, bytes, bytes], Callable[[], None]]] = []
        for transaction_key in transaction_keys:
            for operation in transaction_key.operations:
                if isinstance(operation, KeyDelete) and operation.moved_to == key:
                    transaction_key.inherited_by_order[operation.order] = self._inherited_rows(
                        operation, key, NO_ROW
                    )
            for start, fragment in inherited_fragments(
                stored_state, transaction_key.positions
            ).items():
                transaction_key.inherited_by_order.setdefault(start, []).extend(fragment)
            other_upserts = timeline.take_between(
                transaction_key.key, transaction_key.first, transaction_key.last
            )
            actions.append(
                (
                    (transaction_key.first, b"", b""),
                    partial(self._begin_transaction, transaction_key),
                )
            )
            for order, operations in transaction_key.operations_by_order(other_upserts):
                action = partial(
                    self._apply_operations, transaction_key, order, operations, affected
                )
                actions.append(((order, key, b""), action))
            end = max(
                transaction_key.last,
                max((operation.order for operation in other_upserts), default=NO_ORDER),
            )
            actions.append(
                ((end + b"\xff", b"", b""), partial(self._end_transaction, transaction_key))
            )
        return actions

    def _follow_delete(self, timeline_delete: TimelineDelete) -> None:
        key_delete, timeline = (
            timeline_delete.key_delete,
            self.timelines[timeline_delete.key_delete.key],
        )
        if key_delete.order == timeline.state.deleted:
            # A stored tombstone: late older events of the key belong to the row at its new key.
            row = timeline.row_as_of(
                max(self._life_start(timeline, key_delete.order), self.tombstone_watermark),
                key_delete.order,
                self.rule,
            )
        else:
            cleared = key_delete.order
            start = self._life_start(timeline, cleared)
            floor = self._floor(key_delete.key, start, end=cleared)
            row = timeline.row_as_of(floor, cleared, self.rule)
            # An event of an earlier life of the key must not be forwarded later. So the key had no
            # earlier life, or every value of this row is newer than that life.
            is_forwarded = self._cleared_before(timeline, cleared) == NO_ORDER or len(
                row.full_row_order
            ) == len(cleared)
            moved_to = (key_delete.moved_to or b"") if is_forwarded else b""
            timeline.deletes.append((cleared, moved_to))
        if key_delete.moved_to is not None and key_delete.moved_to != key_delete.key:
            self._inherit_row(key_delete, key_delete.moved_to, row)

    def _clear_displaced_rows(self, key: bytes, timeline: Timeline) -> None:
        """Clear the values of a key from before the arrival of another row.

        The earlier row left the key, or a later event will move it.
        """
        for start in timeline.key_inserts:
            if timeline.row_as_of(self._life_start(timeline, start), start, self.rule).order:
                timeline.deletes.append((start, key))

    def result(self) -> Resolution:
        truncated = max(self.truncates, default=NO_ORDER)
        states: dict[bytes, KeyState] = {}
        conflict_count = 0
        for key in sorted(self.touched_keys):
            timeline = self.timelines[key]
            self._clear_displaced_rows(key, timeline)
            state, key_conflicts = self._joined_state(key, timeline, truncated)
            compacted = compact(state, truncated, self.rule)
            transactions = self._remaining_records(key, compacted, truncated)
            states[key] = msgspec.structs.replace(compacted, transactions=transactions)
            conflict_count += key_conflicts
        self.rejections.sort(
            key=lambda rejection: (rejection.operation.order, rejection.key or b"")
        )
        return Resolution(
            states, self.rule.stored_truncate(truncated), tuple(self.rejections), conflict_count
        )

    def _joined_state(
        self, key: bytes, timeline: Timeline, truncated: bytes
    ) -> tuple[KeyState, int]:
        deleted, moved_to = max(timeline.deletes, default=(NO_ORDER, b""))
        cleared = max(deleted, truncated)
        own_order = max(
            (c.order for c in timeline.fragments if not c.is_inherited), default=NO_ORDER
        )
        floor = self._floor(key, cleared)
        cells: dict[str, ColumnVersion] = {}
        conflict_orders: dict[str, bytes] = {}
        full_order = NO_ORDER
        for fragment in timeline.fragments:
            if fragment.is_inherited and fragment.order > own_order:
                continue  # its key insert has not arrived
            if cleared < fragment.order <= floor:
                if fragment.upsert is not None:
                    self.rejections.append(Rejection(key, TOO_LATE, fragment.upsert))
                continue
            full_order = max(full_order, fragment.full_row_order)
            for column, cell in fragment.cells.items():
                known_cell = cells.get(column)
                if known_cell is None:
                    cells[column] = cell
                    continue
                if known_cell.order == cell.order and sort_key(known_cell.value) != sort_key(
                    cell.value
                ):
                    conflict_orders[column] = cell.order
                if self.rule.wins(cell, known_cell):
                    cells[column] = cell
        lifted_cells = prune(cells, full_order, self.rule)
        conflict_count = sum(
            column in lifted_cells and lifted_cells[column].order == conflict_order
            for column, conflict_order in conflict_orders.items()
        )
        return KeyState(deleted, moved_to or None, full_order, lifted_cells), conflict_count
