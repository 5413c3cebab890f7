# SPDX-License-Identifier: Apache-2.0
"""The registers of a key: they only grow, so order, duplicates and batches do not matter.

``D`` newest delete, ``C`` per column the newest value with its order, ``W`` the order of the
newest event that set the full row (every column without a newer ``C`` is NULL since then). ``U``,
the newest upsert, is the greatest of ``W`` and all ``C``: every upsert carries its key columns.
With ``d = max(D, T)``, the row exists iff ``U > d``; a column is known iff its order is above d.

The registers are last-write-wins registers of a CRDT.
"""

import datetime as dt
import decimal
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Final, NamedTuple

import msgspec

from changelane.apply.added_columns import Addition, unlisted_order
from changelane.apply.keys import canonical
from changelane.apply.operations import KeyDelete, Upsert
from changelane.types.scalars import Geometry, Value

NO_ORDER: Final = b""
"""The order below every order: that of a missing event and of an unknown column."""


class ColumnVersion(NamedTuple):
    """A column's register ``C``: the order of the newest event with the column, and its value."""

    order: bytes
    value: Value


class KeyState(msgspec.Struct, frozen=True):
    """The registers of one key.

    Attributes:
        deleted: ``D``.
        moved_to: The new key of the row, if the newest delete is the departure of a key change.
        full_row_order: ``W``; a column that is not in *cells* is NULL from this order on.
        cells: ``C`` by column.
        transactions: The stored records of transactions that moved rows to the key or away.
    """

    deleted: bytes = NO_ORDER
    moved_to: bytes | None = None
    full_row_order: bytes = NO_ORDER
    cells: Mapping[str, ColumnVersion] = {}
    transactions: tuple["TransactionRecord", ...] = ()

    @property
    def upserted(self) -> bytes:
        """``U``: the newest upsert."""
        return max((self.full_row_order, *(cell.order for cell in self.cells.values())))

    def cell(self, column: str, added: Iterable[Addition] = ()) -> ColumnVersion:
        """Return the newest version of a column.

        Args:
            column: The column.
            added: The columns that were added to the table later.
        """
        return self.cells.get(column) or ColumnVersion(
            unlisted_order(column, self.full_row_order, added), None
        )


EMPTY_STATE: Final = KeyState()


class TransactionRecord(msgspec.Struct, frozen=True):
    """The operations of one transaction on one key: a set that only grows.

    Inside a transaction two rows may have one key, and only the complete transaction decides which
    row remains. So its operations are stored (docs/merge-rule.md, Keys inside one transaction).

    Attributes:
        transaction: The name of the transaction; empty for the record of all forgotten ones.
        operations: Upserts and deletes of the key, and deletes that move a row to it, by order;
            empty for forgotten transactions.
        outside_state: The registers of the key without all such transactions, up to the last of the
            operations. For forgotten transactions, ``D`` is their last operation: a later row
            replaced their rows and all earlier rows.
    """

    transaction: bytes
    operations: tuple[Upsert | KeyDelete, ...]
    outside_state: KeyState = EMPTY_STATE

    @property
    def last(self) -> bytes:
        """The order of the last operation, including an insert that only its delete reveals."""
        return max(
            (operation.order for operation in self.operations), default=self.outside_state.deleted
        )


def stored_state(
    values: Mapping[str, Value],
    orders: Mapping[str, bytes | None],
    *,
    deleted: bytes = NO_ORDER,
    moved_to: bytes | None = None,
) -> KeyState:
    """Return the registers of a stored row, from its values and its unpacked orders."""
    cells = {
        column: ColumnVersion(order, values[column]) for column, order in orders.items() if order
    }
    full_order = (
        min(cell.order for cell in cells.values()) if len(cells) == len(orders) else NO_ORDER
    )
    return KeyState(deleted, moved_to, full_order, cells)


_NUMBER, _NULL, _TEXT = 3, 0, 1
_RANKS: Final[Mapping[type, int]] = {
    type(None): _NULL,
    str: _TEXT,
    bytes: 2,
    int: _NUMBER,
    float: _NUMBER,
    decimal.Decimal: _NUMBER,
    list: 4,
    bool: 5,
    dt.date: 6,
    dt.timedelta: 8,
    Geometry: 9,
}
_LOCAL, _AWARE, _OTHER = 6, 7, 10


def _is_nan(value: float | decimal.Decimal) -> bool:
    return value.is_nan() if isinstance(value, decimal.Decimal) else math.isnan(value)


def sort_key(value: Value) -> tuple[Any, ...]:
    """Return a sort key for column values, which decides conflicts like Spark's ``>``.

    NULL is lowest; False < True; numbers numerically, NaN above all; text by UTF-8 bytes (which
    is the order of code points); bytes by bytes; dates and times by the calendar; lists element by
    element. Other values compare by their canonical text, and different types by a fixed rank.
    """
    kind = type(value)
    rank = _RANKS.get(kind)
    if rank is None:
        rank = next((_RANKS[base] for base in kind.__mro__ if base in _RANKS), _OTHER)
    match value:
        case None:
            return (rank,)
        case dt.datetime():
            if value.tzinfo is None:
                return (_LOCAL, value)
            return (_AWARE, value)
        case dt.date():
            return (rank, dt.datetime.combine(value, dt.time()))
        case float() | decimal.Decimal() if _is_nan(value):
            return (rank, 1)
        case float() | decimal.Decimal() | int() if rank == _NUMBER:
            return (rank, 0, value)
        case list():
            return (rank, [sort_key(item) for item in value])
        case Geometry():
            return (rank, sort_key(value.wkb), sort_key(value.srid))
        case _ if rank == _OTHER:
            return (rank, canonical(value))
        case _:
            return (rank, value)


class Rule:
    """The decisions of the merge rule; mutation tests replace them one by one.

    Attributes:
        added: The columns that were added to the table without a statement; older full-row events
            do not contain them.
    """

    added: Sequence[Addition] = ()

    def with_additions(self, added: Sequence[Addition]) -> "Rule":
        """Return the same rule for a table with these additions."""
        rule = copy(self)
        rule.added = added
        return rule

    def order(self, order: bytes) -> bytes:
        """Return the order of an operation."""
        return order

    def wins(self, new: ColumnVersion, old: ColumnVersion) -> bool:
        """Whether a column version replaces another."""
        if new.order != old.order:
            return new.order > old.order
        return sort_key(new.value) > sort_key(old.value)

    def is_newer(self, order: bytes, cleared: bytes) -> bool:
        """Whether an order is above the newest delete: the column is known, or the row exists."""
        return order > cleared

    def is_cleared(self, order: bytes, cleared: bytes) -> bool:
        """Whether a delete clears a column of a row that exists."""
        return not self.is_newer(order, cleared)

    def stored_delete(self, deleted: bytes) -> bytes:
        """Return the order of a delete as the tombstones store it."""
        return deleted

    def stored_truncate(self, order: bytes) -> bytes:
        """Return the order of a truncate as the tombstones store it."""
        return order


RULE: Final = Rule()


def join(first: KeyState, second: KeyState, rule: Rule = RULE) -> KeyState:
    """Return the least upper bound of two states: commutative, associative and idempotent."""
    cells = dict(first.cells)
    for column, cell in second.cells.items():
        known_cell = cells.get(column)
        if known_cell is None or rule.wins(cell, known_cell):
            cells[column] = cell
    deleted, moved_to = max(
        (first.deleted, first.moved_to or b""), (second.deleted, second.moved_to or b"")
    )
    full_order = max(first.full_row_order, second.full_row_order)
    transactions = _joined_transactions(first.transactions, second.transactions, rule)
    lifted_cells = prune(cells, full_order, rule)
    return KeyState(deleted, moved_to or None, full_order, lifted_cells, transactions)


def _joined_transactions(
    first: tuple[TransactionRecord, ...], second: tuple[TransactionRecord, ...], rule: Rule
) -> tuple[TransactionRecord, ...]:
    if not first or not second:
        return first or second
    transactions = {record.transaction: record for record in first}
    for record in second:
        known_record = transactions.get(record.transaction, record)
        operations = (
            *known_record.operations,
            *(
                operation
                for operation in record.operations
                if operation not in known_record.operations
            ),
        )
        ordered = tuple(sorted(operations, key=lambda operation: operation.order))
        transactions[record.transaction] = TransactionRecord(
            record.transaction,
            ordered,
            join(known_record.outside_state, record.outside_state, rule),
        )
    return tuple(transactions[name] for name in sorted(transactions))


def prune(
    cells: Mapping[str, ColumnVersion], full_order: bytes, rule: Rule = RULE
) -> Mapping[str, ColumnVersion]:
    """Return the column versions that the newest full-row event does not replace."""
    if not full_order or all(cell.order >= full_order for cell in cells.values()):
        return cells
    return {
        column: cell
        for column, cell in cells.items()
        if cell.order >= full_order or not unlisted_order(column, full_order, rule.added)
    }


def is_live(state: KeyState, truncated: bytes = NO_ORDER, rule: Rule = RULE) -> bool:
    """Whether the row exists."""
    return rule.is_newer(state.upserted, max(state.deleted, truncated))


def compact(state: KeyState, truncated: bytes = NO_ORDER, rule: Rule = RULE) -> KeyState:
    """Return the state without the values that its newest delete, or a truncate, clears."""
    cleared = max(state.deleted, truncated)
    deleted = rule.stored_delete(state.deleted)
    if not rule.is_newer(state.upserted, cleared):
        moved_to = state.moved_to if deleted else None
        return KeyState(deleted, moved_to, transactions=state.transactions)
    cells = {c: cell for c, cell in state.cells.items() if not rule.is_cleared(cell.order, cleared)}
    full_order = (
        NO_ORDER if rule.is_cleared(state.full_row_order, cleared) else state.full_row_order
    )
    moved_to = state.moved_to if deleted else None
    return KeyState(deleted, moved_to, full_order, cells, state.transactions)


def row_of(
    state: KeyState,
    columns: Iterable[str],
    truncated: bytes = NO_ORDER,
    rule: Rule = RULE,
) -> tuple[dict[str, Value], frozenset[str]] | None:
    """Return the row and its unknown columns, with NULL values; ``None`` if there is no row."""
    if not is_live(state, truncated, rule):
        return None
    compacted = compact(state, truncated, rule)
    row: dict[str, Value] = {}
    unknown: set[str] = set()
    for column in columns:
        cell = compacted.cell(column, rule.added)
        row[column] = cell.value
        if cell.order == NO_ORDER:
            unknown.add(column)
    return row, frozenset(unknown)


# The stored orders of a row: ``_changelane_order`` and ``_changelane_columns``.


def base_order_of(orders: Mapping[str, bytes | None]) -> bytes:
    """Return the most frequent order of the columns; the greatest of equally frequent orders."""
    counts = Counter(order for order in orders.values() if order)
    return max(counts, key=lambda order: (counts[order], order), default=NO_ORDER)


def pack_orders(orders: Mapping[str, bytes | None]) -> tuple[bytes, dict[str, bytes] | None]:
    """Return base order and exceptions; unknown columns (``None`` or ``b""``) are exceptions.

    >>> pack_orders({"id": b"2", "state": b"2", "total": None})
    (b'2', {'total': b''})
    """
    base = base_order_of(orders)
    exceptions = {
        c: order or NO_ORDER for c, order in orders.items() if (order or NO_ORDER) != base
    }
    return base, exceptions or None


def unpack_orders(
    base: bytes,
    exceptions: Mapping[str, bytes] | None,
    columns: Iterable[str],
    added: Sequence[Addition] = (),
) -> dict[str, bytes | None]:
    """Return the order of each column; ``None`` for an unknown column.

    Args:
        base: The row's base order.
        exceptions: The orders that the row lists.
        columns: The columns of the table.
        added: The columns that were added to the table without a statement.
    """
    column_orders = exceptions or {}
    return {
        column: column_orders.get(column, unlisted_order(column, base, added)) or None
        for column in columns
    }


def newest_order(base: bytes, exceptions: Mapping[str, bytes] | None) -> bytes:
    """Return ``U`` of a stored row: the greatest of its orders."""
    return max((base, *(exceptions or {}).values()))
