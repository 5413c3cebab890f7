# SPDX-License-Identifier: Apache-2.0
"""The registers of a key: they only grow, so order, duplicates and batches cannot matter.

``D`` newest departure, ``C`` per column the newest value with its order, ``W`` the order of the
newest event that set the whole row (every column without a newer ``C`` is NULL since then). ``U``,
the newest upsert, is the greatest of ``W`` and all ``C``: every upsert carries its key columns.
With ``d = max(D, T)``, the row exists iff ``U > d``; a column is known iff its order is above d.
"""

import datetime as dt
import decimal
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Final, NamedTuple

import msgspec

from changelane.apply.added_columns import Addition, implied
from changelane.apply.keys import canonical
from changelane.apply.operations import Departure, Upsert
from changelane.types.scalars import Geometry, Value

NOTHING: Final = b""
"""The order below every order: of what never happened, and of an unknown column."""


class Cell(NamedTuple):
    """A column's register ``C``: the newest event that carries it, and its value there."""

    order: bytes
    value: Value


class KeyState(msgspec.Struct, frozen=True):
    """The registers of one key.

    Attributes:
        deleted: ``D``.
        moved_to: The key that the row of that departure took.
        whole: ``W``: columns that *cells* does not name are NULL since then.
        cells: ``C`` by column.
        transactions: What transactions that moved rows to the key, or away, told of it.
    """

    deleted: bytes = NOTHING
    moved_to: bytes | None = None
    whole: bytes = NOTHING
    cells: Mapping[str, Cell] = {}
    transactions: tuple["Within", ...] = ()

    @property
    def upserted(self) -> bytes:
        """``U``: the newest upsert."""
        return max((self.whole, *(cell.order for cell in self.cells.values())))

    def cell(self, column: str, added: Iterable[Addition] = ()) -> Cell:
        """Return the newest cell of a column.

        Args:
            column: The column.
            added: The columns that came to the table later.
        """
        return self.cells.get(column) or Cell(implied(column, self.whole, added), None)


EMPTY: Final = KeyState()


class Within(msgspec.Struct, frozen=True):
    """What one transaction told of one key: a set that only grows.

    Inside a transaction two rows may have one key, and which of them stays is known when the
    transaction was seen; so what was seen of it is remembered (docs/merge-rule.md, Keys inside one
    transaction).

    Attributes:
        transaction: What names the transaction; nothing for all that are forgotten.
        steps: Upserts and departures of the key, and departures that lead to it, by order. None of
            transactions that are forgotten.
        rest: The registers of the key as they are without all such transactions, up to the last
            of the steps. Of transactions that are forgotten, ``D`` is their last step: a later row
            replaced what they and their predecessors left.
    """

    transaction: bytes
    steps: tuple[Upsert | Departure, ...]
    rest: KeyState = EMPTY

    @property
    def last(self) -> bytes:
        """The order of the last step; an arrival that only its departure told counts as one."""
        return max((step.order for step in self.steps), default=self.rest.deleted)


def stored_state(
    values: Mapping[str, Value],
    orders: Mapping[str, bytes | None],
    *,
    deleted: bytes = NOTHING,
    moved_to: bytes | None = None,
) -> KeyState:
    """Return the registers of a stored row: its values, and its orders as ``unpack`` gives them."""
    cells = {column: Cell(order, values[column]) for column, order in orders.items() if order}
    whole = min(cell.order for cell in cells.values()) if len(cells) == len(orders) else NOTHING
    return KeyState(deleted, moved_to, whole, cells)


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


def typed(value: Value) -> tuple[Any, ...]:
    """Return what compares like the value: how ties are decided, and by Spark's ``>`` the same.

    NULL is lowest; False < True; numbers numerically, NaN above all; text by UTF-8 bytes (which
    is the order of code points); bytes by bytes; dates and times by the calendar; lists element by
    element. Other values compare by their canonical text, and kinds that differ by a fixed rank.
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
            return (rank, [typed(item) for item in value])
        case Geometry():
            return (rank, typed(value.wkb), typed(value.srid))
        case _ if rank == _OTHER:
            return (rank, canonical(value))
        case _:
            return (rank, value)


class Rule:
    """The decision points of the rule. Tests replace them, to see that the tests notice.

    Attributes:
        added: The columns that came to the table without a statement: whole rows from before them
            do not carry them.
    """

    added: Sequence[Addition] = ()

    def knowing(self, added: Sequence[Addition]) -> "Rule":
        """Return the same rule for a table with these additions."""
        rule = copy(self)
        rule.added = added
        return rule

    def order(self, order: bytes) -> bytes:
        """Return the order of a step."""
        return order

    def wins(self, new: Cell, old: Cell) -> bool:
        """Say whether a cell replaces another."""
        if new.order != old.order:
            return new.order > old.order
        return typed(new.value) > typed(old.value)

    def known(self, order: bytes, cleared: bytes) -> bool:
        """Say whether a column is known, or a row exists, above the newest departure."""
        return order > cleared

    def masked(self, order: bytes, cleared: bytes) -> bool:
        """Say whether a departure takes a column of a row that goes on."""
        return not self.known(order, cleared)

    def remembered(self, deleted: bytes) -> bytes:
        """Return what the side table keeps of a departure."""
        return deleted

    def truncated(self, order: bytes) -> bytes:
        """Return what the side table keeps of a truncate."""
        return order


RULE: Final = Rule()


def join(one: KeyState, other: KeyState, rule: Rule = RULE) -> KeyState:
    """Return the least state above both: commutative, associative and idempotent."""
    cells = dict(one.cells)
    for column, cell in other.cells.items():
        held = cells.get(column)
        if held is None or rule.wins(cell, held):
            cells[column] = cell
    deleted, moved_to = max(
        (one.deleted, one.moved_to or b""), (other.deleted, other.moved_to or b"")
    )
    whole = max(one.whole, other.whole)
    transactions = _joined(one.transactions, other.transactions, rule)
    kept = lifted(cells, whole, rule)
    return KeyState(deleted, moved_to or None, whole, kept, transactions)


def _joined(one: tuple[Within, ...], other: tuple[Within, ...], rule: Rule) -> tuple[Within, ...]:
    if not one or not other:
        return one or other
    found = {within.transaction: within for within in one}
    for within in other:
        held = found.get(within.transaction, within)
        steps = (*held.steps, *(step for step in within.steps if step not in held.steps))
        ordered = tuple(sorted(steps, key=lambda step: step.order))
        found[within.transaction] = Within(
            within.transaction, ordered, join(held.rest, within.rest, rule)
        )
    return tuple(found[name] for name in sorted(found))


def lifted(cells: Mapping[str, Cell], whole: bytes, rule: Rule = RULE) -> Mapping[str, Cell]:
    """Return the cells that the newest event which set the whole row did not replace."""
    if not whole or all(cell.order >= whole for cell in cells.values()):
        return cells
    return {
        column: cell
        for column, cell in cells.items()
        if cell.order >= whole or not implied(column, whole, rule.added)
    }


def is_live(state: KeyState, truncated: bytes = NOTHING, rule: Rule = RULE) -> bool:
    """Say whether the row exists."""
    return rule.known(state.upserted, max(state.deleted, truncated))


def settle(state: KeyState, truncated: bytes = NOTHING, rule: Rule = RULE) -> KeyState:
    """Return the state without what its newest departure, or a truncate, took."""
    cleared = max(state.deleted, truncated)
    deleted = rule.remembered(state.deleted)
    if not rule.known(state.upserted, cleared):
        moved_to = state.moved_to if deleted else None
        return KeyState(deleted, moved_to, transactions=state.transactions)
    cells = {c: cell for c, cell in state.cells.items() if not rule.masked(cell.order, cleared)}
    whole = NOTHING if rule.masked(state.whole, cleared) else state.whole
    moved_to = state.moved_to if deleted else None
    return KeyState(deleted, moved_to, whole, cells, state.transactions)


def row_of(
    state: KeyState,
    columns: Iterable[str],
    truncated: bytes = NOTHING,
    rule: Rule = RULE,
) -> tuple[dict[str, Value], frozenset[str]] | None:
    """Return the row and its unknown columns (NULL there); ``None`` when there is no row."""
    if not is_live(state, truncated, rule):
        return None
    settled = settle(state, truncated, rule)
    row: dict[str, Value] = {}
    unknown: set[str] = set()
    for column in columns:
        cell = settled.cell(column, rule.added)
        row[column] = cell.value
        if cell.order == NOTHING:
            unknown.add(column)
    return row, frozenset(unknown)


# How a row's orders are stored: ``_changelane_order`` and ``_changelane_columns``.


def base_of(orders: Mapping[str, bytes | None]) -> bytes:
    """Return the order that most columns have; of equals the greatest."""
    counts = Counter(order for order in orders.values() if order)
    return max(counts, key=lambda order: (counts[order], order), default=NOTHING)


def pack(orders: Mapping[str, bytes | None]) -> tuple[bytes, dict[str, bytes] | None]:
    """Return base order and exceptions; unknown columns (``None`` or ``b""``) are exceptions.

    >>> pack({"id": b"2", "state": b"2", "total": None})
    (b'2', {'total': b''})
    """
    base = base_of(orders)
    exceptions = {c: order or NOTHING for c, order in orders.items() if (order or NOTHING) != base}
    return base, exceptions or None


def unpack(
    base: bytes,
    exceptions: Mapping[str, bytes] | None,
    columns: Iterable[str],
    added: Sequence[Addition] = (),
) -> dict[str, bytes | None]:
    """Return the order of each column; ``None`` = unknown.

    Args:
        base: The row's base order.
        exceptions: The orders that it lists.
        columns: The columns of the table.
        added: Those that came to it without a statement.
    """
    told = exceptions or {}
    return {column: told.get(column, implied(column, base, added)) or None for column in columns}


def newest(base: bytes, exceptions: Mapping[str, bytes] | None) -> bytes:
    """Return ``U`` of a stored row: the greatest of its orders."""
    return max((base, *(exceptions or {}).values()))
