# SPDX-License-Identifier: Apache-2.0
"""The state of one batch: the timelines of keys, and keys inside transactions."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from changelane.apply.keys import key_values
from changelane.apply.merge.key_occupants import NO_ROW, TransactionKey, identifies_row
from changelane.apply.merge.key_timeline import RowFragment, Timeline, state_without
from changelane.apply.operations import KeyDelete, RowOperation, Upsert
from changelane.apply.rejection import AMBIGUOUS, Rejection
from changelane.apply.row_state import (
    EMPTY_STATE,
    NO_ORDER,
    ColumnVersion,
    KeyState,
    Rule,
    TransactionRecord,
    is_live,
)
from changelane.apply.transactions import IMMEDIATE_DOMAINS, name_of_transaction
from changelane.position import DELETE_PHASE, UPSERT_PHASE, at_phase, domain_of


class BatchState:
    """The state of all keys of one batch."""

    def __init__(
        self,
        states: Mapping[bytes, KeyState],
        *,
        truncated: bytes,
        tombstone_watermark: bytes,
        complete: AbstractSet[bytes],
        keys: tuple[str, ...],
        rule: Rule,
    ) -> None:
        self.states = states
        self.truncates = [truncated] if truncated else []
        self.tombstone_watermark = tombstone_watermark
        self.complete = complete
        self.keys = keys
        self.rule = rule
        self.timelines: dict[bytes, Timeline] = {}
        self.transaction_keys: dict[tuple[bytes, bytes | None], TransactionKey] = {}
        self.transactions_of: dict[bytes, list[TransactionKey]] = {}  # the same, by key
        self.forgotten: dict[bytes, bytes] = {}  # key -> last order of forgotten transactions
        self.touched_keys: set[bytes] = set()
        self.rejections: list[Rejection] = []

    def timeline(self, key: bytes) -> Timeline:
        timeline = self.timelines.get(key)
        if timeline is None:
            timeline = self.timelines[key] = Timeline(self.states.get(key, EMPTY_STATE))
        return timeline

    def open_transactions(self, batch_operations: Iterable[RowOperation]) -> None:
        """Find the keys inside transactions that may have several rows.

        These are the old and the new key of a key change, if its before image contains more than
        the key, or if immediate constraints are not certain.
        """
        for key, state in self.states.items():
            for record in state.transactions:
                if record.operations:
                    self._transaction_key(key, record.transaction).add_record(record)
                else:
                    self.forgotten[key] = record.last
        operations = list(batch_operations)
        key_deletes = {
            (operation.key, operation.order)
            for operation in operations
            if isinstance(operation, KeyDelete)
        }
        for operation in operations:
            if isinstance(operation, KeyDelete):
                old_key, new_key = operation.key, operation.moved_to
                is_named = identifies_row(operation.before, self._parts(old_key))
                is_explicit = is_named or domain_of(operation.order) not in IMMEDIATE_DOMAINS
            elif isinstance(operation, Upsert) and operation.moved_from is not None:
                # a half of a key change, without the old row
                old_key, new_key = operation.moved_from, operation.key
                start = at_phase(operation.order, DELETE_PHASE)
                is_explicit = (old_key, start) not in key_deletes
                if (old_key, name_of_transaction(operation)) not in self.transaction_keys:
                    is_explicit = is_explicit and not self._is_applied(old_key, start)
            else:
                continue
            transaction = name_of_transaction(operation)
            if new_key is None or new_key == old_key or transaction is None:
                continue
            if is_explicit and operation.order > self.tombstone_watermark:
                self._transaction_key(old_key, transaction)
                self._transaction_key(new_key, transaction)

    def _is_applied(self, key: bytes, start: bytes) -> bool:
        """Whether an earlier batch may have applied a delete without a row's before image.

        A later delete replaces it in the registers. Under immediate constraints, the insert at the
        new key needs no other information.
        """
        deleted = self.states.get(key, EMPTY_STATE).deleted
        return deleted >= start if domain_of(start) in IMMEDIATE_DOMAINS else deleted == start

    def _parts(self, key: bytes) -> int:
        """Return the number of key columns."""
        return len(self.keys) or len(key_values(key))

    def _transaction_key(self, key: bytes, transaction: bytes) -> TransactionKey:
        transaction_key = self.transaction_keys.get((key, transaction))
        if transaction_key is None:
            column_count = self._parts(key)
            transaction_key = self.transaction_keys[key, transaction] = TransactionKey(
                key, transaction, column_count, self.rule
            )
            self.transactions_of.setdefault(key, []).append(transaction_key)
        return transaction_key

    def _cleared_before(self, timeline: Timeline, end: bytes) -> bytes:
        """Return the newest delete or truncate before *end*."""
        cleared = [order for order, _ in timeline.deletes if order < end]
        cleared += [order for order in self.truncates if order < end]
        return max(cleared, default=NO_ORDER)

    def _life_start(self, timeline: Timeline, end: bytes) -> bytes:
        """Return the order after which the life of a key's row just before *end* began."""
        key_insert_orders = (
            at_phase(fragment.order, DELETE_PHASE)
            for fragment in timeline.fragments
            if fragment.upsert is not None and fragment.upsert.moved_from and fragment.order < end
        )
        return max(self._cleared_before(timeline, end), max(key_insert_orders, default=NO_ORDER))

    def _floor(self, key: bytes, cleared: bytes, *, end: bytes | None = None) -> bytes:
        """Return the order up to which changes of a key may belong to another row than at *end*.

        Changes up to the tombstone watermark may belong to a row with a purged tombstone, unless
        the row existed at the watermark or lacks no column.
        """
        timeline = self.timelines[key]
        orders = [
            *filter(
                None,
                (timeline.state.full_row_order, *(c.order for c in timeline.state.cells.values())),
            )
        ]
        if is_live(timeline.state, max(self.truncates, default=NO_ORDER), self.rule) and (
            key in self.complete or min(orders) <= self.tombstone_watermark
        ):
            return cleared
        floor = max(cleared, self.tombstone_watermark)
        full_row_orders = (fragment.full_row_order for fragment in timeline.fragments)
        is_covered = any(
            floor < full_order and (end is None or full_order < end)
            for full_order in full_row_orders
        )
        return cleared if is_covered else floor

    def _inherit_row(self, key_delete: KeyDelete, moved_to: bytes, row: RowFragment) -> None:
        inherited_rows = self._inherited_rows(key_delete, moved_to, row)
        for transaction_key in self.transactions_of.get(moved_to, ()):
            if key_delete.order[:-1] in transaction_key.positions:
                transaction_key.inherited_by_order[key_delete.order] = (
                    inherited_rows + transaction_key.inherited(key_delete.order, inherited_rows)
                )
                return
        target_timeline = self.timeline(moved_to)
        if inherited_rows:
            self.touched_keys.add(moved_to)
            target_timeline.fragments += inherited_rows

    def _inherited_rows(
        self, key_delete: KeyDelete, moved_to: bytes, row: RowFragment
    ) -> list[RowFragment]:
        """Return the values of a row that its new key inherits."""
        width = len(key_delete.order)
        fragments: list[RowFragment] = []

        def inherited(order: bytes) -> bytes:
            return key_delete.order + order[-width:]

        cells = {
            c: ColumnVersion(inherited(cell.order), cell.value) for c, cell in row.cells.items()
        }
        for column, value in (key_delete.before or {}).items():
            cells[column] = ColumnVersion(inherited(key_delete.order), value)
        if cells or row.full_row_order:
            full_order = inherited(row.full_row_order) if row.full_row_order else NO_ORDER
            fragments.append(
                RowFragment(inherited(key_delete.order), cells, full_order, is_inherited=True)
            )
        values = key_values(moved_to) if self.keys else ()
        if self.keys and len(values) == len(self.keys):
            order = self.rule.order(at_phase(key_delete.order, UPSERT_PHASE))
            named_cells = {
                c: ColumnVersion(order, v) for c, v in zip(self.keys, values, strict=True)
            }
            fragments.append(RowFragment(order, named_cells, NO_ORDER))
        return fragments

    def _begin_transaction(self, transaction_key: TransactionKey) -> None:
        """Begin a transaction at a key, with the row from before it."""
        timeline = self.timelines[transaction_key.key]
        start = self._life_start(timeline, transaction_key.first)
        floor = self._floor(transaction_key.key, start, end=transaction_key.first)
        base = timeline.row_as_of(floor, transaction_key.first, self.rule)
        cleared = self._cleared_before(timeline, transaction_key.first)
        is_empty = not base.order and bool(cleared) and cleared not in timeline.unsure_deletes
        transaction_key.begin(base, is_empty=is_empty)

    def _apply_operations(
        self,
        transaction_key: TransactionKey,
        order: bytes,
        operations: list[Upsert | KeyDelete],
        affected: frozenset[bytes],
    ) -> None:
        key_deletes = [
            operation
            for operation in operations
            if isinstance(operation, KeyDelete) and operation.key == transaction_key.key
        ]
        if not key_deletes:
            transaction_key.upsert(order, operations)
            return
        operation = max(
            key_deletes,
            key=lambda key_delete: (key_delete.before == {}, len(key_delete.before or ())),
        )
        if (
            transaction_key.is_key_only(operation)
            and domain_of(operation.order) not in IMMEDIATE_DOMAINS
            and transaction_key.is_shared
        ):
            if (
                transaction_key.is_from_batch(operation)
                and transaction_key.last > self.timelines[transaction_key.key].covered_order
            ):
                self.rejections.append(Rejection(operation.key, AMBIGUOUS, operation))
            transaction_key.remove_all_rows(operation)
            return
        row = transaction_key.remove_row(operation)
        if (
            operation.moved_to is not None
            and operation.moved_to != operation.key
            and operation.moved_to in affected
        ):
            fullest = max(key_deletes, key=lambda key_delete: len(key_delete.before or ()))
            self._inherit_row(fullest, operation.moved_to, row or NO_ROW)

    def _end_transaction(self, transaction_key: TransactionKey) -> None:
        """Determine the row that has the key after a transaction."""
        timeline = self.timelines[transaction_key.key]
        transaction_key.outside_state = timeline.outside_state(transaction_key.last, self.rule)
        truncated = max(self.truncates, default=NO_ORDER)
        occupant = transaction_key.final_occupant(truncated)
        if occupant is None or not occupant.fragments:
            order, moved_to = transaction_key.last_delete
            if order:
                timeline.deletes.append((order, moved_to))
                if occupant is not None:
                    timeline.unsure_deletes.add(order)
            return
        if occupant.start:
            timeline.deletes.append((occupant.start, transaction_key.key))
        timeline.fragments += transaction_key.new_fragments(occupant)

    def _remaining_records(
        self, key: bytes, state: KeyState, truncated: bytes
    ) -> tuple[TransactionRecord, ...]:
        """Return the transaction records of a key that must still be stored.

        A record is obsolete if it is older than the tombstone watermark, a truncate, or a later
        full-row event of an earlier batch.
        """
        transaction_keys = [
            transaction_key
            for transaction_key in self.transactions_of.get(key, ())
            if transaction_key.operations
        ]
        if not transaction_keys:
            return self.states.get(key, EMPTY_STATE).transactions
        own_positions = frozenset().union(
            *(transaction_key.positions for transaction_key in transaction_keys)
        )
        later = state_without(state, own_positions)
        floor = max(self.tombstone_watermark, truncated)
        covered = max(floor, later.full_row_order)
        # all or none, because the outside state of each record excludes the other records
        forgotten = self.forgotten.get(key, NO_ORDER)
        transactions: list[TransactionRecord] = []
        if all(
            transaction_key.last <= (floor if transaction_key.is_in_batch else covered)
            for transaction_key in transaction_keys
        ):
            forgotten = max(
                forgotten, *(transaction_key.last for transaction_key in transaction_keys)
            )
        else:
            transactions = sorted(
                (transaction_key.record for transaction_key in transaction_keys),
                key=lambda record: record.transaction,
            )
        if forgotten > floor:
            transactions.insert(0, TransactionRecord(NO_ORDER, (), KeyState(forgotten)))
        return tuple(transactions)
