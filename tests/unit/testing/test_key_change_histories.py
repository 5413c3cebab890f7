"""Transactions that change keys, against a source that enforces them (docs/merge-rule.md)."""

from collections import Counter
from random import Random

import pytest

from changelane.event import ChangeEvent, DataChange, HalfUpdate, Key, Op, Transaction
from changelane.position import LsnPosition, Position, ScnPosition
from changelane.testing.conformance import EFFORT
from changelane.testing.key_change_histories import SCHEMA, TABLE, Class, deliver, draw, judge, play
from changelane.testing.reference.upsert import MemoryTables

HISTORIES = 300 * EFFORT


def played(order: str, seed: int) -> Counter[tuple[str, str]]:
    """Count what becomes of histories, by class."""
    counts: Counter[tuple[str, str]] = Counter()
    for number in range(HISTORIES):
        chance = Random(f"{seed} {number}")
        one = draw(chance, permuted=False, by_key=order == "by-key")
        told = play(chance, one)
        verdict = judge(deliver(chance, one, told.events), told)
        word = "aside" if verdict.quarantined_count else "right" if verdict.is_right else "wrong"
        counts[one.name, word] += 1
    return counts


@pytest.mark.parametrize("order", ["in-order", "by-key"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_in_order_with_rewinds_every_transaction_ends_as_at_its_source(
    order: str, seed: int
) -> None:
    """With full images under any constraints, and with key-only ones under immediate ones.

    The order of the log, or that of each key.
    """
    counts = played(order, seed)
    decided = {key: n for key, n in counts.items() if "deferred, key-only" not in key[0]}
    assert {word for _, word in decided} == {"right"}
    assert "wrong" not in {word for _, word in counts}
    assert sum(decided.values()) > HISTORIES / 2


def test_a_class_of_histories_is_named_for_what_is_promised_of_it() -> None:
    one = Class("scn", deferred=True, full=False, permuted=True, ids=True, single=True, halves=True)
    assert one.name == "permuted, deferred, key-only images"


# -- alone ---------------------------------------------------------------------------------------

Row = tuple[int, str] | None


def event(
    op: Op, before: Row | int, after: Row, position: Position, transaction: str
) -> DataChange:
    """Return a change of a row, whose image before it may be a key alone."""

    def image(row: Row | int) -> dict[str, object] | None:
        if row is None or isinstance(row, int):
            return None if row is None else {"id": row}
        return {"id": row[0], "a": row[1], "b": "b"}

    within = Transaction(transaction)
    return DataChange(
        op, TABLE, Key(("id",)), image(before), image(after), SCHEMA, position, within
    )


def left(row: Row, to: int, position: Position, transaction: str) -> HalfUpdate:
    return HalfUpdate(event(Op.DELETE, row, None, position, transaction), {"id": to})


def came(row: Row, from_: int, position: Position, transaction: str) -> HalfUpdate:
    return HalfUpdate(event(Op.CREATE, None, row, position, transaction), {"id": from_})


def rows(*batches: list[ChangeEvent]) -> tuple[dict[object, object], list[str]]:
    """Return the rows in the end, and why events were quarantined."""
    tables = MemoryTables()
    for batch in batches:
        tables.apply(batch)
    found = {row["id"]: row["a"] for row in tables.keyed(TABLE).values()}
    return found, [refused.code for refused in tables.quarantine]


@pytest.mark.parametrize("moves_first", [False, True])
def test_arrivals_may_precede_departures(*, moves_first: bool) -> None:
    """Partitions by key bring them in any order; at key 3 two rows are until the commit."""
    before = [
        event(Op.CREATE, None, (1, "one"), ScnPosition(1, 1), "t1"),
        event(Op.CREATE, None, (3, "three"), ScnPosition(2, 2), "t2"),
    ]
    departures = [
        left((1, "one"), 3, ScnPosition(3, 9), "t3"),
        left((3, "three"), 4, ScnPosition(4, 9), "t3"),
    ]
    arrivals = [
        came((3, "one"), 1, ScnPosition(3, 9), "t3"),
        came((4, "three"), 3, ScnPosition(4, 9), "t3"),
    ]
    first = [*arrivals, *before] if moves_first else arrivals
    batches = [first, departures] if moves_first else [before, first, departures]
    assert rows(*batches) == ({3: "one", 4: "three"}, [])


def test_what_a_later_transaction_covers_is_not_set_aside_when_it_comes_again() -> None:
    """A departure of which nothing tells the row; whichever it was, the key has another now."""

    def at(commit: int, change: int) -> LsnPosition:
        return LsnPosition(f"0:0:{commit:x}", f"0:0:{change:x}")

    log = [
        event(Op.CREATE, None, (2, "two"), at(1, 1), "t1"),
        event(Op.CREATE, None, (4, "four"), at(2, 2), "t2"),
        event(Op.UPDATE, 4, (3, "four"), at(9, 3), "t3"),
        event(Op.UPDATE, 3, (4, "four"), at(9, 4), "t3"),
        event(Op.UPDATE, 4, (3, "four"), at(9, 5), "t3"),
        event(Op.UPDATE, 3, (4, "four"), at(9, 6), "t3"),
        event(Op.UPDATE, 2, (3, "two"), at(9, 7), "t3"),
        event(Op.UPDATE, None, (3, "again"), at(10, 10), "t4"),
    ]
    batches = [[one] for one in (*log, *log[4:], *log[4:], *log[2:])]
    assert rows(*batches) == ({3: "again", 4: "four"}, [])


def test_a_change_that_comes_again_before_an_arrival_is_of_a_known_row() -> None:
    """Its departure names neither of two rows: it is quarantined, and both rows stay."""
    log = [
        event(Op.CREATE, None, (1, "one"), ScnPosition(1, 1), "t1"),
        event(Op.CREATE, None, (4, "four"), ScnPosition(2, 2), "t2"),
        event(Op.UPDATE, None, (1, "first"), ScnPosition(3, 9), "t3"),
        event(Op.UPDATE, 4, (1, "four"), ScnPosition(4, 9), "t3"),
        event(Op.UPDATE, 1, (2, "first"), ScnPosition(5, 9), "t3"),
    ]
    _, codes = rows(log[:3], log[3:4], log[2:4], log[4:])
    assert codes == ["ambiguous_key_move"]


@pytest.mark.parametrize("last_batches", [1, 9])
def test_a_transaction_comes_again_from_its_middle_after_a_later_one_used_its_keys(
    last_batches: int,
) -> None:
    """Its first departure from key 3 is forgotten; the row that left does not come back."""
    log = [
        event(Op.CREATE, None, (2, "one"), ScnPosition(1, 1), "t1"),
        event(Op.UPDATE, (2, "one"), (3, "one"), ScnPosition(3, 9), "t2"),
        event(Op.UPDATE, (3, "one"), (1, "one"), ScnPosition(4, 9), "t2"),
        event(Op.UPDATE, (1, "one"), (3, "two"), ScnPosition(5, 9), "t2"),
        event(Op.UPDATE, (3, "two"), (1, "two"), ScnPosition(6, 9), "t2"),
        event(Op.DELETE, (1, "two"), None, ScnPosition(11, 19), "t3"),
        event(Op.CREATE, None, (3, "three"), ScnPosition(12, 19), "t3"),
        event(Op.UPDATE, (3, "three"), (2, "three"), ScnPosition(13, 19), "t3"),
    ]
    again = [log[3:]] if last_batches == 1 else [[one] for one in log[3:]]
    assert rows(log[:6], log[6:7], *again) == ({2: "three"}, [])
