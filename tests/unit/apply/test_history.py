# SPDX-License-Identifier: Apache-2.0
"""Versions of rows: any delivery of the events gives those that replaying the log gives."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changelane.apply import KeyDelete, Upsert, key_bytes, operations_of, sort_key
from changelane.apply import history as rule
from changelane.apply.history import Version
from changelane.event import ChangeEvent, DataChange, HalfUpdate, Key, Op, Transaction, Truncate
from changelane.position import DELETE_PHASE, PostgresPosition, at_phase, encode_order
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.conformance import EFFORT
from changelane.testing.histories import (
    COLUMNS,
    KEY,
    TABLE,
    Profile,
    history,
    rewound,
    shuffled,
)
from changelane.testing.reference.history import HistoryTables
from changelane.types import UNAVAILABLE, Integer, String

chances = st.randoms(use_true_random=True)
quick = settings(max_examples=60 * EFFORT, deadline=None)

ANY: Final = Profile(moves="whole", ties=True, size=16)
Shown = Mapping[bytes, Sequence[tuple[Any, ...]]]


def landed(batches: Iterable[Sequence[ChangeEvent]], **options: Any) -> HistoryTables:
    tables = HistoryTables(**options)
    for batch in batches:
        tables.apply(batch)
    return tables


def told_times(events: Sequence[ChangeEvent]) -> list[ChangeEvent]:
    """Give events times that are no order: the clock goes back and forth."""
    return [
        msgspec.structs.replace(event, change=timed(event.change, number))
        if isinstance(event, HalfUpdate)
        else timed(event, number)
        for number, event in enumerate(events)
    ]


def timed(event: Any, number: int) -> Any:
    # one time for what is told at one position
    lsn = event.position.lsn if event.position else number
    return msgspec.structs.replace(event, source_time_ns=lsn * 7919 % 1000 * 1_000_000)


class _Open(NamedTuple):
    order: bytes
    row: dict[str, Any]
    time: int | None


def replayed(events: Sequence[ChangeEvent]) -> Shown:
    """Play the log and take a picture of a row after every event that tells of it.

    Nothing of the rule is used: events come in order, a row is what stands in a mapping.
    """
    live: dict[bytes, _Open] = {}
    found: dict[bytes, list[tuple[Any, ...]]] = {}

    def close(key: bytes, order: bytes, time: int | None) -> None:
        if (was := live.pop(key, None)) is not None:
            row = {c: was.row.get(c) for c in COLUMNS}
            lacking = frozenset(COLUMNS) - was.row.keys()
            found.setdefault(key, []).append((row, lacking, was.order, order, was.time, time))

    for event in events:
        change = event.change if isinstance(event, HalfUpdate) else event
        time = None if change.source_time_ns is None else change.source_time_ns // 1000
        if isinstance(event, Truncate):
            (step,) = operations_of(event)
            for key in list(live):
                close(key, step.order, time)
            continue
        for step in operations_of(event, keys=KEY):
            if isinstance(step, KeyDelete):
                close(step.key, step.order, time)
                continue
            assert isinstance(step, Upsert)
            was = live.get(step.key)
            if was is not None and was.order == step.order:  # a tie
                for name, value in step.values.items():
                    was.row[name] = max(was.row.get(name, value), value, key=sort_key)
                continue
            held = dict(was.row) if was is not None and not step.is_full_row else {}
            if step.moved_from is not None:
                held = {}
                close(step.key, at_phase(step.order, DELETE_PHASE), time)
            close(step.key, step.order, time)
            live[step.key] = _Open(step.order, {**held, **step.values}, time)
    for key in list(live):
        close(key, b"", None)
    return found


def shown(told: Mapping[bytes, Sequence[Version]]) -> Shown:
    return {
        key: [
            (dict(one.row), one.unknown, one.order, one.end_order, one.from_us, one.until_us)
            for one in versions
        ]
        for key, versions in told.items()
    }


@given(chances, st.sampled_from(["postgresql", "mysql"]))
@quick
def test_any_order_gives_the_versions_of_a_replay(chance: Random, source: Any) -> None:
    profile = msgspec.structs.replace(ANY, source=source)
    events = history(chance, profile).events
    if source == "postgresql":
        events = tuple(told_times(events))
    expected = replayed(events)
    tables = landed(shuffled(chance, events))
    assert shown(tables.versions(TABLE)) == expected
    assert not tables.quarantine


@given(chances)
@quick
def test_the_current_versions_are_the_rows_of_the_source(chance: Random) -> None:
    told = history(chance, ANY)
    found = landed(rewound(chance, told.events)).versions(TABLE)
    current = {key: one.row for key, each in found.items() for one in each if one.is_current}
    assert current == told.rows


@given(chances)
@quick
def test_rows_that_swap_keys_have_the_versions_of_the_source_or_are_set_aside(
    chance: Random,
) -> None:
    profile = Profile(moves="whole", deferred=True, transactions=True, before="full", size=16)
    told = history(chance, profile)
    tables = landed(shuffled(chance, told.events))
    if not tables.quarantine:
        found = tables.versions(TABLE)
        current = {key: one.row for key, each in found.items() for one in each if one.is_current}
        assert current == told.rows


def test_swaps_are_seldom_set_aside() -> None:
    profile = Profile(moves="whole", deferred=True, transactions=True, before="full", size=16)
    told = [landed([history(Random(seed), profile).events]) for seed in range(100)]
    assert sum(bool(tables.quarantine) for tables in told) < 10
    assert all(refused.code == "ambiguous_key_move" for t in told for refused in t.quarantine)


SEEDS: Final = 200


REAL_ENDS: Final = rule._ends


def without_ends(*_: Any) -> Any:
    return {}, []


def without_truncates(past: Any, _: Any) -> Any:
    return REAL_ENDS(past, {})


def last_call_wins(one: Any, other: Any) -> Any:
    return msgspec.structs.replace(other, is_full_row=one.is_full_row or other.is_full_row)


@pytest.mark.parametrize(
    ("name", "mutation"),
    [
        ("_ends", without_ends),
        ("_ends", without_truncates),
        ("_joined_change", last_call_wins),
    ],
)
def test_a_mutation_of_the_rule_is_noticed(
    name: str, mutation: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule, name, mutation)

    def holds(seed: int) -> bool:
        chance = Random(seed)
        events = history(chance, ANY).events
        return shown(landed(shuffled(chance, events)).versions(TABLE)) == replayed(events)

    assert not all(holds(seed) for seed in range(SEEDS))


# Some columns are tracked


def collapsed(told: Shown, columns: Sequence[str]) -> Shown:
    """Take equal pictures of some columns together, as one who looks at the replay would."""
    found: dict[bytes, list[tuple[Any, ...]]] = {}
    for key, versions in told.items():
        kept: list[tuple[Any, ...]] = []
        for row, lacking, order, until, begun, ended in versions:
            if kept and kept[-1][3] == order:
                before = [(sort_key(kept[-1][0][c]), c in kept[-1][1]) for c in columns]
                if before == [(sort_key(row[c]), c in lacking) for c in columns]:
                    kept[-1] = (row, lacking, kept[-1][2], until, kept[-1][4], ended)
                    continue
            kept.append((row, lacking, order, until, begun, ended))
        found[key] = kept
    return found


@given(chances, st.sampled_from([("state",), ("state", "total"), ()]))
@quick
def test_changes_of_untracked_columns_make_no_versions_in_any_order(
    chance: Random, columns: tuple[str, ...]
) -> None:
    events = history(chance, ANY).events
    tables = landed(shuffled(chance, events), track={"orders": columns})
    assert shown(tables.versions(TABLE)) == collapsed(replayed(events), columns)


def test_histories_hold_what_they_are_for() -> None:
    told = [history(Random(seed), ANY).events for seed in range(100)]
    plays = [replayed(events) for events in told]
    assert sum(any(len(each) > 3 for each in one.values()) for one in plays) > 30
    assert sum(any(v[1] for each in one.values() for v in each) for one in plays) > 30
    assert sum(landed([events]).counts["ties"] > 0 for events in told) > 10
    fewer = [collapsed(one, ("state",)) for one in plays]
    assert sum(one != other for one, other in zip(plays, fewer, strict=True)) > 50


# One by one


T: Final = TableId("shop", "public", "t")
SCHEMA: Final = TableSchema((Column("id", Integer()), Column("a", String()), Column("b", String())))


def change(op: str, at: int, after: Any, before: Any = None, tx: str | None = None) -> DataChange:
    transaction = None if tx is None else Transaction(tx)
    position = PostgresPosition(at)
    return DataChange(Op(op), T, Key(("id",)), before, after, SCHEMA, position, transaction)


def insert(at: int, id: int, a: Any, b: Any, op: str = "c") -> DataChange:
    return change(op, at, {"id": id, "a": a, "b": b})


def delete(at: int, id: int) -> DataChange:
    return change("d", at, None, {"id": id})


def order(at: int, phase: int = 1) -> bytes:
    return encode_order(PostgresPosition(at), phase=phase)


def of(tables: HistoryTables, id: int = 1) -> list[tuple[Any, ...]]:
    """Return (a, b, from, until) of a key's versions; a position, negative for a departure."""

    def at(told: bytes) -> int | None:
        lsn = next((n for n in range(1, 300) if told[:-1] == order(n)[:-1]), None)
        return lsn if lsn is None or told[-1] else -lsn

    found = tables.versions(T).get(key_bytes({"id": id}), [])
    return [
        (
            *("?" if c in one.unknown else one.row[c] for c in ("a", "b")),
            at(one.order),
            at(one.end_order),
        )
        for one in found
    ]


def test_10_a_late_partial_event_changes_later_versions_up_to_the_next_with_its_column() -> None:
    events = [
        insert(10, 1, "a10", "b10"),
        change("u", 20, {"id": 1, "a": "a20", "b": UNAVAILABLE}),
        change("u", 30, {"id": 1, "a": "a30", "b": "b30"}),
    ]
    late = change("u", 15, {"id": 1, "a": UNAVAILABLE, "b": "b15"})
    tables = landed([events])
    assert of(tables) == [
        ("a10", "b10", 10, 20),
        ("a20", "b10", 20, 30),
        ("a30", "b30", 30, None),
    ]
    tables.apply([late])
    assert of(tables) == [
        ("a10", "b10", 10, 15),
        ("a10", "b15", 15, 20),
        ("a20", "b15", 20, 30),
        ("a30", "b30", 30, None),
    ]


def test_an_insert_that_comes_after_the_deletes_around_it_is_closed_by_the_next_one() -> None:
    tables = landed([[delete(20, 1)], [delete(10, 1)], [insert(5, 1, "a", "b")]])
    assert of(tables) == [("a", "b", 5, -10)]
    tables.apply([insert(15, 1, "c", "d")])
    assert of(tables) == [("a", "b", 5, -10), ("c", "d", 15, -20)]


def test_a_late_delete_hides_older_columns_from_later_versions() -> None:
    part = change("u", 30, {"id": 1, "a": "a30", "b": UNAVAILABLE})
    tables = landed([[insert(10, 1, "a", "b"), part]])
    assert of(tables) == [("a", "b", 10, 30), ("a30", "b", 30, None)]
    tables.apply([delete(20, 1)])
    assert of(tables) == [("a", "b", 10, -20), ("a30", "?", 30, None)]


def test_a_change_of_the_key_closes_one_row_and_opens_another() -> None:
    moved = change("u", 20, {"id": 2, "a": "a", "b": UNAVAILABLE}, {"id": 1})
    tables = landed([[moved], [insert(10, 1, "a", "b")]])
    assert of(tables) == [("a", "b", 10, -20)]
    assert of(tables, 2) == [("a", "?", 20, None)]


def test_rows_that_swap_their_keys_in_one_transaction_go_on_under_the_other_key() -> None:
    def full(id: int, a: str) -> dict[str, Any]:
        return {"id": id, "a": a, "b": "b"}

    events = [
        insert(10, 1, "A", "b"),
        insert(11, 2, "B", "b"),
        change("u", 20, full(2, "A"), full(1, "A"), tx="x"),
        change("u", 21, full(1, "B"), full(2, "B"), tx="x"),
    ]
    for batches in ([events], [[one] for one in events[::-1]]):
        tables = landed(batches)
        assert of(tables) == [("A", "b", 10, -20), ("B", "b", 21, None)]
        assert of(tables, 2) == [("B", "b", 11, -20), ("A", "b", 20, None)]


def test_a_swap_that_nothing_decides_is_set_aside() -> None:
    events = [
        insert(10, 1, "A", "b"),
        insert(11, 2, "B", "b"),
        change("u", 20, {"id": 2, "a": "A", "b": "b"}, {"id": 1}, tx="x"),
        change("u", 21, {"id": 1, "a": "B", "b": "b"}, {"id": 2}, tx="x"),
    ]
    tables = landed([events])
    assert [(refused.code, refused.event) for refused in tables.quarantine] == [
        ("ambiguous_key_move", events[3])
    ]


def test_events_that_cannot_be_compared_or_have_no_key_are_quarantined() -> None:
    foreign = msgspec.structs.replace(insert(1, 1, "a", "b"), position=None)
    keyless = msgspec.structs.replace(insert(1, 1, "a", "b"), key=None)
    tables = landed([[insert(2, 1, "a", "b"), foreign, keyless]])
    assert [refused.code for refused in tables.quarantine] == ["unordered", "no_key"]
    assert of(tables) == [("a", "b", 2, None)]
