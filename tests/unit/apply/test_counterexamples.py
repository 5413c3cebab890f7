# SPDX-License-Identifier: Apache-2.0
"""The histories that broke simpler rules, one by one, and the worked example of the contract."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from changelane.apply import (
    ColumnVersion,
    KeyState,
    key_bytes,
    operations_of,
    pack_orders,
    resolve,
    row_of,
)
from changelane.event import DataChange, HalfUpdate, Image, Key, Op, Source, Transaction, Truncate
from changelane.position import DELETE_PHASE, PostgresPosition, SequencePosition, encode_order
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.reference.upsert import MemoryTables
from changelane.types import UNAVAILABLE, Integer, String

T = TableId("shop", "public", "t")
SCHEMA = TableSchema(
    (Column("id", Integer()), Column("a", String()), Column("b", String())),
)
SNAPSHOT = Source(snapshot="true")


def change(
    op: str,
    at: int,
    after: Image | None = None,
    before: Image | None = None,
    *,
    tx: str | None = None,
    source: Source = Source(),  # noqa: B008 - frozen
    row: int = 0,
) -> DataChange:
    return DataChange(
        Op(op),
        T,
        Key(("id",)),
        before,
        after,
        SCHEMA,
        PostgresPosition(at, row=row),
        None if tx is None else Transaction(tx),
        source,
    )


def insert(at: int, id: int, a: str, b: str, **more: Any) -> DataChange:
    return change("c", at, {"id": id, "a": a, "b": b}, **more)


def delete(at: int, id: int, **more: Any) -> DataChange:
    return change("d", at, None, {"id": id}, **more)


def update(at: int, id: int, *, old: int | None = None, before: Any = None, **more: Any) -> Any:
    tx = more.pop("tx", None)
    after = {"id": id, "a": UNAVAILABLE, "b": UNAVAILABLE, **more}
    if before is None and old is not None:
        before = {"id": old}
    return change("u", at, after, before, tx=tx)


def truncate(at: int) -> Truncate:
    return Truncate(T, position=PostgresPosition(at))


def order(at: int, phase: int = 1) -> bytes:
    return encode_order(PostgresPosition(at), phase=phase)


def applied(*batches: Sequence[Any], **options: Any) -> MemoryTables:
    tables = MemoryTables(**options)
    for batch in batches:
        tables.apply(batch)
    return tables


def rows(tables: MemoryTables) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in tables.rows(T)]


def one_by_one(*events: Any) -> MemoryTables:
    return applied(*([event] for event in events))


def test_1_a_late_delete_and_insert_leave_the_newer_partial_update_on_top() -> None:
    events = [
        insert(1, 1, "a1", "b1"),
        delete(2, 1),
        insert(3, 1, "a3", "b3"),
        update(4, 1, a="a4"),
    ]
    for arrival in itertools.permutations(events):
        tables = one_by_one(*arrival)
        assert rows(tables) == [(1, "a4", "b3")]
        assert not tables.incomplete(T)


def test_2_a_late_insert_does_not_survive_the_truncate_that_followed_it() -> None:
    assert rows(one_by_one(truncate(2), insert(1, 1, "a", "b"))) == []


def test_2_a_late_truncate_does_not_take_newer_rows() -> None:
    tables = one_by_one(insert(5, 1, "a", "b"), insert(1, 2, "a", "b"), truncate(2))
    assert rows(tables) == [(1, "a", "b")]


def test_3_a_partial_update_before_any_base_row_waits_for_it() -> None:
    tables = one_by_one(update(100, 1, a="new"))
    assert rows(tables) == [(1, "new", None)]
    assert tables.incomplete(T) == {b"[1]": {"b"}}
    assert tables.counts["incomplete"] == 1
    tables.apply([change("r", 50, {"id": 1, "a": "old", "b": "b"}, source=SNAPSHOT)])
    assert rows(tables) == [(1, "new", "b")]
    assert tables.counts["incomplete"] == 0


def test_4_a_delete_that_was_remembered_before_a_crash_takes_the_row_at_replay() -> None:
    held = KeyState(
        deleted=order(2, DELETE_PHASE),  # the side table was written, the target was not
        full_row_order=order(1),
        cells={name: ColumnVersion(order(1), 1) for name in ("id", "a", "b")},
    )
    replayed = resolve({b"[1]": held}, operations_of(delete(2, 1)))
    assert row_of(replayed.states[b"[1]"], ("id", "a", "b")) is None
    assert not replayed.states[b"[1]"].cells


def test_4_a_move_that_was_remembered_before_a_crash_takes_the_row_along_at_replay() -> None:
    first = operations_of(insert(1, 1, "a", "toast"))
    state = resolve({}, first).states[b"[1]"]
    crashed = msgspec.structs.replace(state, deleted=order(2, DELETE_PHASE), moved_to=b"[2]")
    replayed = resolve({b"[1]": crashed}, operations_of(update(2, 2, old=1, a="a")), keys=("id",))
    assert row_of(replayed.states[b"[1]"], SCHEMA.names) is None
    moved = row_of(replayed.states[b"[2]"], ("id", "a", "b"))
    assert moved == ({"id": 2, "a": "a", "b": "toast"}, frozenset())


def test_5_an_update_that_misses_one_of_30_columns_lists_that_one_and_keeps_its_value() -> None:
    names = ["id", *(f"c{n}" for n in range(29))]
    wide = TableSchema(tuple(Column(name, Integer()) for name in names))
    base = msgspec.structs.replace(insert(1, 1, "", ""), after=dict.fromkeys(names, 1), schema=wide)
    after = {**dict.fromkeys(names, 1), **dict.fromkeys(names[1:], 2), "c7": UNAVAILABLE}
    newer = msgspec.structs.replace(change("u", 9, after), schema=wide)
    for events in ([base, newer], [newer, base]):
        tables = one_by_one(*events)
        (stored,) = tables.stored(T).values()
        assert stored.row == {**dict.fromkeys(names, 2), "id": 1, "c7": 1}
        assert stored.order == order(9)
        assert stored.columns == {"c7": order(1)}


def test_6_a_change_of_the_key_takes_unavailable_columns_along_in_any_batches() -> None:
    events = [insert(1, 1, "a", "toast"), update(2, 2, old=1, a="a2"), update(3, 2, a="a3")]
    for batches in ([events], [events[:1], events[1:]], [[e] for e in events]):
        tables = applied(*batches)
        assert rows(tables) == [(2, "a3", "toast")]
        assert not tables.incomplete(T)


def test_6_late_events_of_the_old_key_follow_the_row() -> None:
    base, change_b = insert(1, 1, "a", "b1"), update(2, 1, b="b2")
    moved = update(3, 2, old=1, a="a3")
    for arrival in itertools.permutations([base, change_b, moved]):
        tables = one_by_one(*arrival)
        assert rows(tables) == [(2, "a3", "b2")]
        assert not tables.incomplete(T)


def test_6_late_events_follow_over_two_changes_of_the_key() -> None:
    first, second = update(3, 2, old=1, a="a3"), update(4, 3, old=2, a="a4")
    tables = one_by_one(first, second, insert(1, 1, "a", "b1"), update(2, 1, b="b2"))
    assert rows(tables) == [(3, "a4", "b2")]


def test_6_an_event_of_an_earlier_life_of_the_old_key_does_not_follow() -> None:
    events = [
        insert(1, 1, "other", "other"),
        delete(2, 1),
        update(3, 1, old=9, a="a"),  # a row that was there before the stream: b is unknown
        update(4, 2, old=1, a="a"),
    ]
    tables = applied(events, events[:1])
    assert rows(tables) == [(2, "a", None)]
    assert tables.incomplete(T) == {b"[2]": {"b"}}


def test_6_the_full_before_image_fills_what_the_arrival_lacks() -> None:
    moved = update(2, 2, before={"id": 1, "a": "a", "b": "toast"}, a="a2")
    assert rows(one_by_one(moved)) == [(2, "a2", "toast")]


def test_6_two_messages_for_one_change_of_the_key_may_come_in_two_batches() -> None:
    left = HalfUpdate(delete(2, 1), {"id": 2})
    arrived = HalfUpdate(change("c", 2, {"id": 2, "a": "a2", "b": UNAVAILABLE}), {"id": 1})
    for halves in ([left, arrived], [arrived, left]):
        tables = one_by_one(insert(1, 1, "a", "toast"), *halves)
        assert rows(tables) == [(2, "a2", "toast")]


ROWS = {1: {"id": 1, "a": "A", "b": "toast A"}, 2: {"id": 2, "a": "B", "b": "toast B"}}
BASE = [change("c", 1, ROWS[1]), change("c", 2, ROWS[2])]
SWAP = [
    update(10, 2, before=ROWS[1], a="A", tx="x"),
    update(11, 1, before=ROWS[2], a="B", tx="x"),
]


@pytest.mark.parametrize("arrival", [[BASE, SWAP], [BASE + SWAP], [SWAP, BASE], [SWAP[::-1], BASE]])
def test_7_keys_swapped_in_one_transaction(arrival: list[Any]) -> None:
    assert rows(applied(*arrival)) == [(1, "B", "toast B"), (2, "A", "toast A")]


def test_7_rows_swap_without_full_images_too_when_something_names_the_occupant() -> None:
    lean = [
        update(10, 2, before={"id": 1, "a": "A"}, a="A", tx="x"),
        update(11, 1, before={"id": 2, "a": "B"}, a="B", tx="x"),
    ]
    assert rows(applied(BASE, lean)) == [(1, "B", "toast B"), (2, "A", "toast A")]


def test_7_a_swap_that_nothing_decides_is_quarantined() -> None:
    swap = [update(10, 2, old=1, a="A", tx="x"), update(11, 1, old=2, a="B", tx="x")]
    # not in PostgreSQL, where a deferrable key is no replica identity
    at = [
        [msgspec.structs.replace(e, position=SequencePosition(e.position.lsn)) for e in batch]  # type: ignore[union-attr]
        for batch in (BASE, swap)
    ]
    tables = applied(*at)
    assert [refused.code for refused in tables.quarantine] == ["ambiguous_key_move"]
    assert key_bytes({"id": 2}) == b"[2]"


def test_7_a_chain_under_immediate_constraints_moves_the_row_on() -> None:
    chain = [update(10, 2, old=1, a="A", tx="x"), update(11, 3, old=2, a="A", tx="x")]
    for batches in ([BASE[:1], chain], [BASE[:1], chain[:1], chain[1:]], [chain, BASE[:1]]):
        assert rows(applied(*batches)) == [(3, "A", "toast A")]


def test_7_all_keys_shift_by_one_in_one_statement() -> None:
    shift = [
        update(10, 2, before=ROWS[1], a="A", tx="x"),
        update(11, 3, before=ROWS[2], a="B", tx="x"),
    ]
    assert rows(applied(BASE, shift)) == [(2, "A", "toast A"), (3, "B", "toast B")]


def test_7_a_swap_split_between_batches_is_detected_if_positions_name_the_transaction() -> None:
    placed = [
        msgspec.structs.replace(event, position=PostgresPosition(at, 9), transaction=None)
        for at, event in zip((10, 11), SWAP, strict=True)
    ]
    tables = applied(BASE, placed[:1], placed[1:])
    assert rows(tables) == [(1, "B", "toast B"), (2, "A", "toast A")]


def test_7_swaps_again_and_again_with_an_id_that_has_the_position_of_each_row() -> None:
    """Debezium's id for PostgreSQL is the transaction's number and the LSN of the operation."""
    swaps: list[list[DataChange]] = []
    rows_now = {1: ROWS[1], 2: ROWS[2]}
    for number in range(3):
        after = {1: {**rows_now[2], "id": 1}, 2: {**rows_now[1], "id": 2}}
        lsn, commit = 100 * (number + 1), 100 * (number + 1)  # the commit ends where a row begins
        swaps.append(
            [
                msgspec.structs.replace(
                    update(lsn + old, new, before=rows_now[old], a=after[new]["a"]),
                    after=after[new],
                    position=PostgresPosition(lsn + old - 1, commit),
                    transaction=Transaction(f"{700 + number}:{lsn + old - 1}", old),
                )
                for old, new in ((1, 2), (2, 1))
            ]
        )
        rows_now = after
    expected = [(1, rows_now[1]["a"], rows_now[1]["b"]), (2, rows_now[2]["a"], rows_now[2]["b"])]
    first = [msgspec.structs.replace(event, transaction=Transaction("9")) for event in BASE]
    for batches in (
        [[*first, *swaps[0], *swaps[1], *swaps[2]]],
        [first, *swaps],
        [first, [event for swap in swaps for event in swap]],
    ):
        tables = applied(*batches)
        assert rows(tables) == expected
        assert not tables.quarantine


UNTOLD = {"id": 2, "a": "H", "b": "toast H"}
"""A row that was there before the stream began, and that no event told."""
MEET = [
    update(10, 2, before=ROWS[1], a="A"),
    update(11, 3, before=UNTOLD, a="H"),
]


def _placed(event: DataChange) -> DataChange:
    return msgspec.structs.replace(event, position=PostgresPosition(event.position.lsn, 9))  # type: ignore[union-attr]


@pytest.mark.parametrize("others", [[], [change("d", 12, None, {**UNTOLD, "id": 3})]])
def test_7_an_unknown_row_leaves_the_key_that_another_row_took_in_an_earlier_batch(
    others: list[Any],
) -> None:
    placed = [_placed(event) for event in (*MEET, *others)]
    tables = applied(BASE[:1], *([event] for event in placed))
    rest = [] if others else [(3, "H", "toast H")]
    assert rows(tables) == [(2, "A", "toast A"), *rest]
    assert not tables.quarantine
    again = applied(BASE[:1], *([event] for event in (*placed, *placed)))
    assert rows(again) == rows(tables)


def test_7_the_first_half_of_a_change_of_the_key_takes_the_key_too() -> None:
    left = HalfUpdate(_placed(change("d", 10, None, ROWS[1])), {"id": 2})
    came = HalfUpdate(_placed(change("c", 10, {**ROWS[1], "id": 2})), {"id": 1})
    gone = _placed(MEET[1])
    for held in (BASE[:1], [BASE[0], change("c", 2, UNTOLD)]):
        for batches in ([[left], [came], [gone]], [[left], [came, gone]], [[left, came], [gone]]):
            tables = applied(held, *batches)
            assert rows(tables) == [(2, "A", "toast A"), (3, "H", "toast H")]


def test_7_a_row_that_arrived_and_leaves_in_a_later_batch_is_the_one_that_its_image_names() -> None:
    chain = [
        _placed(update(10, 2, before=ROWS[1], a="A")),
        _placed(update(11, 3, before={**ROWS[1], "id": 2}, a="A")),
    ]
    for batches in ([chain], [chain[:1], chain[1:]], [BASE[:1], chain[:1], chain[1:]]):
        assert rows(applied(*batches)) == [(3, "A", "toast A")]
    lean = [_placed(update(10, 2, old=1, a="A")), _placed(update(11, 3, old=2, a="A"))]
    assert rows(applied(BASE[:1], lean[:1], lean[1:])) == [(3, "A", "toast A")]


def test_8_a_second_full_load_at_the_same_position_takes_the_greater_value_and_counts() -> None:
    def load(a: str) -> DataChange:
        at = SequencePosition(-1)
        return msgspec.structs.replace(insert(1, 1, a, "b"), position=at)

    for arrival in ([load("x"), load("y")], [load("y"), load("x")]):
        tables = one_by_one(*arrival)
        assert rows(tables) == [(1, "y", "b")]
        assert tables.counts["ties"] == 1
    same = one_by_one(load("x"), load("x"))
    assert same.counts["ties"] == 0


def test_8_rows_of_one_message_differ_by_their_number_in_it() -> None:
    assert rows(one_by_one(insert(1, 1, "second", "b", row=1), insert(1, 1, "first", "b"))) == [
        (1, "second", "b")
    ]


def test_8_a_delete_and_an_insert_at_one_position_leave_the_row() -> None:
    for arrival in itertools.permutations([delete(5, 1), insert(5, 1, "new", "b")]):
        assert rows(one_by_one(insert(1, 1, "old", "b"), *arrival)) == [(1, "new", "b")]


@pytest.mark.parametrize("other", [None, {"id": 7, "a": "x"}])
def test_8_halves_of_an_update_that_keeps_the_key_of_the_sink_are_a_plain_update(
    other: Any,
) -> None:
    left = HalfUpdate(change("d", 5, None, {"id": 7, "a": "x"}), other)
    arrived = HalfUpdate(change("c", 5, {"id": 8, "a": "x", "b": UNAVAILABLE}), other)
    for halves in itertools.permutations([left, arrived]):
        tables = applied([insert(1, 7, "x", "toast")], *([h] for h in halves), keys={"t": ("a",)})
        assert rows(tables) == [(8, "x", "toast")]


def test_9_after_a_purge_a_replay_from_an_older_offset_brings_no_row_back() -> None:
    history = [insert(1, 1, "a", "b"), delete(2, 1), insert(3, 2, "a", "b"), update(4, 2, a="a4")]
    tables = applied(history)
    tables.purge(T, order(2))
    assert tables.states(T).keys() == {b"[2]"}
    tables.apply(history[:1])
    tables.apply(history[1:3])
    assert rows(tables) == [(2, "a4", "b")]
    assert tables.counts["too_late"] == 1
    assert [refused.code for refused in tables.quarantine] == ["too_late"]


def test_9_the_departure_under_a_live_incomplete_row_is_not_purged() -> None:
    tables = applied([insert(1, 1, "old", "old"), delete(2, 1), update(3, 1, a="a")])
    tables.purge(T, order(2))
    tables.apply([insert(1, 1, "old", "old")])
    assert rows(tables) == [(1, "a", None)]


def test_9_a_row_that_came_after_a_purge_takes_nothing_of_an_earlier_row_of_its_key() -> None:
    """Its departure was forgotten when there was no row, and nothing else tells the two apart."""
    old, again = insert(1, 1, "old", "old"), insert(3, 1, "a", UNAVAILABLE)
    moves = update(4, 2, old=1, a="a4")
    for batches in ([[again], [old]], [[again, old]], [[old], [again]]):
        for last in ([], [old, moves]):
            tables = applied([old, delete(2, 1)])
            tables.purge(T, order(2))
            for batch in (*batches, last):
                tables.apply(batch)
            assert rows(tables) == ([(2, "a4", None)] if last else [(1, "a", None)])
            assert {refused.code for refused in tables.quarantine} == {"too_late"}


def test_9_a_purge_leaves_late_events_to_rows_that_were_there_or_lack_nothing() -> None:
    silent = [update(1, 1, a="a"), delete(2, 9), update(4, 1, a="new")]
    tables = applied(silent[:2])
    tables.purge(T, order(2))
    tables.apply([update(0, 1, b="b")])
    tables.apply(silent[2:])
    tables.apply([insert(3, 2, "a", "b")])
    tables.apply([insert(1, 2, "old", "old")])
    assert rows(tables) == [(1, "new", "b"), (2, "a", "b")]
    assert not tables.quarantine


COLUMNS = ("id", "state", "total")
ORDERS = TableSchema(tuple(Column(name, Integer()) for name in COLUMNS))


def _example() -> Mapping[str, DataChange]:
    def told(event: DataChange) -> DataChange:
        return msgspec.structs.replace(event, schema=ORDERS)

    # The contract's example gives the snapshot row the position 50 among the stream's.
    return {
        "r@50": told(change("r", 50, {"id": 1, "state": "new", "total": 10})),
        "u@100": told(change("u", 100, {"id": 1, "state": "paid"})),
        "d@120": told(change("d", 120, None, {"id": 1})),
        "c@130": told(change("c", 130, {"id": 1, "state": "new", "total": 99})),
    }


def _stored(tables: MemoryTables) -> Any:
    row = tables.stored(T).get(b"[1]")
    state = tables.states(T).get(b"[1]", KeyState())
    return row and (tuple(row.row.values()), row.order, row.columns), state.deleted


def test_worked_example_after_each_batch() -> None:
    events, tables = _example(), MemoryTables()
    expected = {
        "u@100": (((1, "paid", None), order(100), {"total": b""}), b""),
        "c@130": (((1, "new", 99), order(130), None), b""),
        "r@50": (((1, "new", 99), order(130), None), b""),
        "d@120": (((1, "new", 99), order(130), None), order(120, DELETE_PHASE)),
    }
    for name, after in expected.items():
        tables.apply([events[name]])
        assert _stored(tables) == after, name
        assert bool(tables.incomplete(T)) == (name == "u@100")


def test_worked_example_in_any_order() -> None:
    end = (((1, "new", 99), order(130), None), order(120, DELETE_PHASE))
    for arrival in itertools.permutations(_example().values()):
        assert _stored(one_by_one(*arrival)) == end
    assert pack_orders(dict.fromkeys(COLUMNS, order(130))) == (order(130), None)
