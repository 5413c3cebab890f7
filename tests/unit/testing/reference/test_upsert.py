# SPDX-License-Identifier: Apache-2.0
"""What memory tables add to the rule: keyless tables, soft deletes, refusals, and steps alone."""

from typing import Any

import msgspec
import pytest

from changelane.apply import KeyDelete, NoKeyError, Upsert, operations_of, resolve
from changelane.errors import ApplyError, UnorderedError
from changelane.event import (
    Completeness,
    DataChange,
    HalfUpdate,
    Key,
    Op,
    Source,
    Tombstone,
    Truncate,
    Watermark,
)
from changelane.position import OffsetPosition, Position, PostgresPosition, SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.reference.table import Table
from changelane.testing.reference.upsert import MemoryTables
from changelane.types import UNAVAILABLE, Integer, String

T = TableId(name="t")
SCHEMA = TableSchema((Column("id", Integer()), Column("a", String())))


def change(op: str, at: int | Position, *, key: Any = ("id",), **images: Any) -> DataChange:
    position = PostgresPosition(at) if isinstance(at, int) else at
    return DataChange(
        Op(op), T, None if key is None else Key(key), schema=SCHEMA, position=position, **images
    )


def row(number: int, a: str | None = "a") -> dict[str, Any]:
    return {"id": number, "a": a}


def codes(tables: MemoryTables) -> list[str]:
    return [refused.code for refused in tables.quarantine]


def test_memory_tables_are_tables() -> None:
    tables: Table = MemoryTables()
    tables.apply([Watermark(), Tombstone(T)])
    assert tables.rows(T) == []
    assert tables.incomplete(T) == {}


def test_appended_rows_without_a_key_stay_apart_and_come_once() -> None:
    tables = MemoryTables()
    events = [change("c", at, key=None, after=row(1)) for at in (1, 2)]
    places = [OffsetPosition("t", 0, at) for at in (1, 2)]
    for size in (2, 1):
        tables.apply(events[:size], positions=places[:size])
    assert tables.rows(T) == [row(1), row(1)]
    tables.apply([change("d", 3, key=None, before=row(1))])
    tables.apply([change("u", 4, key=None, before=row(1), after=row(2))])
    assert codes(tables) == ["no_key", "no_key"]
    tables.apply([Truncate(T, position=PostgresPosition(5))])
    assert tables.rows(T) == []


def test_equal_rows_are_one_row_where_the_whole_row_is_the_key() -> None:
    tables = MemoryTables(tables_without_key="row")
    tables.apply([change("c", at, key=None, after=row(1, None)) for at in (1, 2)])
    assert tables.rows(T) == [row(1, None)]
    tables.apply([change("u", 3, key=None, before=row(1, None), after=row(2))])
    assert tables.rows(T) == [row(2)]
    tables.apply([change("u", 4, key=None, after=row(3))])
    tables.apply([change("u", 5, key=None, before={"id": 2, "a": UNAVAILABLE}, after=row(3))])
    assert codes(tables) == ["no_key", "no_key"]
    tables.apply([change("d", 6, key=None, before=row(2))])
    assert tables.rows(T) == []


def test_soft_deletes_keep_what_was_last_known() -> None:
    tables = MemoryTables(deletes="soft")
    tables.apply([change("c", 1, after=row(1)), change("d", 2, before={"id": 1})])
    assert tables.rows(T) == [{**row(1), "_changelane_deleted": True}]
    tables.purge(T, operations_of(change("d", 2, before={"id": 1}))[0].order)
    assert len(tables.rows(T)) == 1
    tables.apply([change("c", 3, after=row(1, "again")), change("d", 4, before={"id": 9})])
    assert tables.rows(T) == [{**row(1, "again"), "_changelane_deleted": False}]


def test_offsets_of_two_partitions_are_refused_for_one_key() -> None:
    tables = MemoryTables()
    tables.apply([change("c", OffsetPosition("t", 0, 5), after=row(1, "first"))])
    tables.apply([change("c", OffsetPosition("t", 1, 9), after=row(1, "second"))])
    assert tables.rows(T) == [row(1, "first")]
    assert codes(tables) == ["unordered"]
    assert tables.counts["conflicts"] == 1


def test_within_one_batch_the_refusal_does_not_depend_on_the_order_of_arrival() -> None:
    events = [change("c", OffsetPosition("t", part, 5 + part), after=row(1)) for part in (0, 1)]
    refused = []
    for arrival in (events, events[::-1]):
        tables = MemoryTables()
        tables.apply(arrival)
        refused.append(tables.quarantine)
    assert refused[0] == refused[1]


def test_a_truncate_holds_for_its_partition_only_and_others_are_refused() -> None:
    tables = MemoryTables()
    tables.apply([Truncate(T, position=OffsetPosition("t", 0, 5))])
    tables.apply([Truncate(T, position=OffsetPosition("t", 1, 6))])
    tables.apply([change("c", OffsetPosition("t", 1, 7), after=row(1))])
    assert codes(tables) == ["unordered", "unordered"]


def test_another_domain_of_positions_is_a_conflict() -> None:
    tables = MemoryTables()
    tables.apply([change("c", 1, after=row(1)), change("d", 2, before={"id": 2})])
    tables.apply([change("c", SequencePosition(9), after=row(n)) for n in (1, 2)])
    assert tables.counts["conflicts"] == 2


def test_an_event_without_a_position_takes_its_place_in_the_topic_or_is_refused() -> None:
    placeless = msgspec.structs.replace(change("c", 1, after=row(1)), position=None)
    tables = MemoryTables()
    tables.apply([placeless])
    assert codes(tables) == ["unordered"]
    tables.apply([placeless], positions=[OffsetPosition("t", 0, 1)])
    assert tables.rows(T) == [row(1)]


def test_configured_keys_are_used_instead_of_the_events_own() -> None:
    tables = MemoryTables(keys={"t": ("a",)})
    tables.apply([change("c", 1, after=row(1, "x")), change("c", 2, after=row(2, "x"))])
    assert tables.rows(T) == [row(2, "x")]


# Steps


def test_snapshot_rows_are_below_the_stream() -> None:
    read = msgspec.structs.replace(change("r", 9, after=row(1)), source=Source(snapshot="last"))
    assert operations_of(read)[0].order < operations_of(change("u", 1, after=row(1)))[0].order


def test_an_insert_sets_the_whole_row_unless_something_is_unavailable() -> None:
    (whole,) = operations_of(change("c", 1, after={"id": 1}))
    assert whole == Upsert(
        b"[1]", whole.order, {"id": 1, "a": None}, is_full_row=True, inserts=True
    )
    (part,) = operations_of(change("c", 1, after={"id": 1, "a": UNAVAILABLE}))
    assert part == Upsert(b"[1]", part.order, {"id": 1}, is_full_row=False, inserts=True)


@pytest.mark.parametrize("holds", list(Completeness))
def test_without_a_schema_the_format_defines_whether_an_update_is_full(holds: Completeness) -> None:
    event = msgspec.structs.replace(change("u", 1, after=row(1)), schema=None, after_holds=holds)
    (upsert,) = operations_of(event)
    assert isinstance(upsert, Upsert)
    assert upsert.is_full_row == (holds is Completeness.FULL)


def test_an_update_may_leave_out_key_columns_that_its_before_image_has() -> None:
    (upsert,) = operations_of(change("u", 1, before={"id": 1}, after={"a": "new"}))
    assert upsert == Upsert(b"[1]", upsert.order, row(1, "new"), is_full_row=True, before={"id": 1})


def test_a_change_of_the_key_is_a_departure_and_an_arrival_at_one_position() -> None:
    left, arrived = operations_of(change("u", 1, before=row(1, "old"), after=row(2)))
    assert isinstance(left, KeyDelete)
    assert isinstance(arrived, Upsert)
    assert (left.key, left.moved_to, left.before) == (b"[1]", b"[2]", row(1, "old"))
    assert (arrived.key, arrived.moved_from, arrived.is_full_row) == (b"[2]", b"[1]", True)
    assert left.order[:-1] == arrived.order[:-1]
    assert left.order < arrived.order


@pytest.mark.parametrize(
    "event",
    [
        change("d", 1),
        change("d", 1, before={"a": "x"}),
        change("d", 1, key=None, before=row(1)),
        change("u", 1, after={"a": "x"}),
        change("c", 1, after={"id": UNAVAILABLE}),
        HalfUpdate(change("d", 1, before={"a": "x"}), {"id": 2}),
    ],
)
def test_events_without_a_key_are_rejected_as_such(event: Any) -> None:
    with pytest.raises(NoKeyError) as raised:
        operations_of(event)
    assert raised.value.code == "no_key"
    assert "x" not in str(raised.value).split()


@pytest.mark.parametrize("new", [1, 2])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("batches", [1, 2])
def test_unjoined_halves_of_a_pair_leave_the_row_after_in_any_order(
    new: int, backwards: bool, batches: int
) -> None:
    halves = [
        HalfUpdate(change("d", 7, before=row(1, "old")), pair="7"),
        HalfUpdate(change("c", 7, after=row(new, "new")), pair="7"),
    ]
    if backwards:
        halves.reverse()
    tables = MemoryTables()
    tables.apply([change("c", 1, after=row(1, "first"))])
    for batch in [halves] if batches == 1 else [halves[:1], halves[1:]]:
        tables.apply(batch)
    assert tables.rows(T) == [row(new, "new")]


def test_the_half_after_an_update_does_not_null_what_it_does_not_name() -> None:
    half = HalfUpdate(change("c", 7, after={"id": 1}), pair="7")
    (upsert,) = operations_of(half)
    assert isinstance(upsert, Upsert)
    assert (upsert.values, upsert.is_full_row) == ({"id": 1}, False)


def test_halves_of_a_pair_without_a_key_do_not_identify_their_row() -> None:
    tables = MemoryTables()
    for half in (change("d", 7, key=None, before=row(1)), change("c", 7, key=None, after=row(1))):
        tables.apply([HalfUpdate(half, pair="7")])
    assert [refused.code for refused in tables.quarantine] == ["no_key"] * 2
    assert tables.rows(T) == []


def test_an_upsert_without_after_image_is_refused() -> None:
    with pytest.raises(ApplyError) as raised:
        operations_of(change("u", 1, before=row(1)))
    assert getattr(raised.value, "code", None) == "missing_image"


def test_an_event_without_any_position_has_no_order() -> None:
    with pytest.raises(UnorderedError):
        operations_of(Truncate(T))


def test_a_step_without_a_key_has_no_registers() -> None:
    with pytest.raises(ValueError, match="without a key"):
        resolve({}, operations_of(change("c", 1, key=None, after=row(1))))
