"""Purged tables equal the tables in memory that were purged alike, whatever comes again.

As in ``test_equality``, many histories share a table and many tables a batch.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import lake_tables
import msgspec
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from spark_settings import lakes
from test_equality import Deliver, Story, in_any_order, in_order, regrouped, rekeyed

from changelane.apply import KeyDelete, operations_of
from changelane.cli import main
from changelane.event import ChangeEvent, DataChange, HalfUpdate, Key, Op
from changelane.position import OffsetPosition, PostgresPosition, at_phase, order_text
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import name_of
from changelane.spark.maintenance.compaction import MaintenanceScheduler
from changelane.spark.maintenance.purge import (
    NOTE_NO_SOURCE_TIME,
    NOTE_PARTITION_OFFSETS,
    EventBounds,
    plan_purge,
    purge,
)
from changelane.spark.maintenance.status import status
from changelane.spark.rows.schema import table_id_text
from changelane.spark.state import tombstones
from changelane.spark.state.tombstones import TombstoneTable
from changelane.testing.conformance import EFFORT
from changelane.testing.histories import Profile, history
from changelane.testing.reference.upsert import MemoryTables
from changelane.types import UNAVAILABLE, Integer, String

CROWDS: Final[dict[str, list[tuple[Profile, Deliver]]]] = {
    "whole": [(Profile(moves="none", partial=False, silent=False, size=20, keys=6), in_any_order)],
    "any_order": [
        (Profile(moves="none", size=20, keys=6), in_any_order),
        (Profile(moves="whole", size=20, keys=6), in_any_order),
        (Profile(moves="whole", halves=True, size=20, keys=6), in_any_order),
    ],
    "in_order": [
        (Profile(moves="lacking", transactions=True, size=24, keys=7), in_order),
        (Profile(moves="lacking", halves=True, size=24, keys=7), in_order),
    ],
}


def replayed(chance: Random, events: Sequence[ChangeEvent]) -> Iterator[ChangeEvent]:
    """Return a few pieces of a log, each in its order: rows come again without what took them."""
    for _ in range(max(2, len(events) // 6)):
        start = chance.randrange(len(events))
        yield from events[start : start + chance.randrange(1, 4)]


NAMES: Final = (*CROWDS, "truncating") if EFFORT > 1 else ("any_order", "truncating")


def crowd(name: str) -> Story:
    """Histories in two batches, then a part of everything again."""
    chance = Random(f"purge {name}")
    table = TableId("purged", None, name)
    batches: list[list[ChangeEvent]] = [[], [], []]
    if name == "truncating":  # one that has a row to refuse between its last truncate and H
        while not remembered(one := alone(chance, table)).counts["too_late"]:
            continue
        return one
    for number, (profile, deliver) in enumerate(CROWDS[name] * (30 // len(CROWDS[name]))):
        told = history(chance, msgspec.structs.replace(profile, truncates=False))
        first, second, third = regrouped(chance, deliver(chance, told), 3)
        again = list(replayed(chance, told.events))
        for batch, part in zip(batches, ([*first, *second], third, again), strict=True):
            batch.extend(rekeyed(chance, event, table, shift=number * 100) for event in part)
    for batch in batches:
        chance.shuffle(batch)
    return Story(table, ("id",), batches)


def alone(chance: Random, table: TableId) -> Story:
    """One history with truncates, which would take the rows of others."""
    told = history(chance, Profile(moves="whole", size=60, keys=20))
    first, second, third = regrouped(chance, in_order(chance, told), 3)
    again = list(replayed(chance, told.events))
    batches = [
        [rekeyed(chance, event, table) for event in part]
        for part in ([*first, *second], third, again)
    ]
    return Story(table, ("id",), batches)


def departures(events: Iterable[ChangeEvent]) -> list[bytes]:
    return sorted(
        step.order
        for event in events
        for step in operations_of(event)
        if isinstance(step, KeyDelete)
    )


def after(story: Story, count: int, part: float) -> bytes:
    """Return a horizon: so much of what the first batches forget."""
    told = departures(event for batch in story.batches[:count] for event in batch)
    return told[int(part * (len(told) - 1))] if told else b""


class Run(NamedTuple):
    lake: str
    tables: dict[str, list[MemoryTables]]


@pytest.fixture(scope="module")
def stories() -> dict[str, Story]:
    return {name: crowd(name) for name in NAMES}


class DiedError(Exception):
    """The process is gone."""


@pytest.fixture(scope="module", params=lakes("iceberg"))
def lake(
    spark: SparkSession,
    stories: dict[str, Story],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> str:
    """All stories, with a purge after the first and after the second batch; one of them dies."""
    root = str(tmp_path_factory.mktemp("purge") / request.param)
    tables = open_lake(spark, root, request.param)
    for number in range(3):
        lake_tables.apply(
            spark, root, [e for s in stories.values() for e in s.batches[number]], batch=number
        )
        if number == 2:
            break
        orders = {
            table_id_text(story.table): after(story, number + 1, PARTS[number])
            for story in stories.values()
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TombstoneTable, "delete", die)
            with pytest.raises(DiedError):
                purge(tables, TombstoneTable(spark, tables), orders)
        purge(tables, TombstoneTable(spark, tables), orders)
    return root


PARTS: Final = (0.5, 0.95)


def die(*_: Any) -> None:
    raise DiedError


def remembered(story: Story) -> MemoryTables:
    tables = MemoryTables()
    for number, batch in enumerate(story.batches):
        tables.apply(batch)
        if number < len(PARTS):
            tables.purge(story.table, after(story, number + 1, PARTS[number]))
    return tables


def places(events: Iterable[ChangeEvent]) -> set[tuple[Any, ...]]:
    """Return where events stand, and of which key they are."""
    found = set()
    for event in events:
        change = event.change if isinstance(event, HalfUpdate) else event
        found.add(at_phase(operations_of(change)[0].order, 0))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_purged_tables_equal_memory(
    spark: SparkSession, lake: str, stories: dict[str, Story], name: str
) -> None:
    story = stories[name]
    tables = remembered(story)
    expected = lake_tables.remembered(tables, story.table)
    found = lake_tables.read(spark, lake, story.table, story.keys)
    assert found.rows == expected.rows
    assert found.unknown == expected.unknown
    assert found.orders == expected.orders
    aside = lake_tables.table_of(spark, lake, "_changelane/quarantine")
    mine = aside.where(aside.table_id == table_id_text(story.table)).collect()
    assert {row["code"] for row in mine} == {"too_late"}
    told = {bytes.fromhex(msgspec.json.decode(row["event"])["order"]) for row in mine}
    refused = places(one.event for one in tables.quarantine)
    assert {at_phase(order, 0) for order in told} == refused


def test_the_side_table_holds_what_the_oracle_remembers(
    spark: SparkSession, lake: str, stories: dict[str, Story]
) -> None:
    held = lake_tables.table_of(spark, lake, tombstones.NAME).where("key IS NOT NULL").collect()
    for story in stories.values():
        told = {
            row["key"].encode(): bytes(row["deleted"])
            for row in held
            if row["table_id"] == table_id_text(story.table)
        }
        states = remembered(story).states(story.table)
        wanted = {key: state.deleted for key, state in states.items() if state.deleted}
        # below a row that is there one may stay: which columns it may want is told in two ways
        there = remembered(story).keyed(story.table)
        assert wanted.items() <= told.items()
        assert {key for key in told if key not in wanted} <= set(there)


def test_the_stories_hold_what_they_are_for(stories: dict[str, Story]) -> None:
    for story in stories.values():
        assert remembered(story).counts["too_late"]
        unpurged = lake_tables.oracle(story.batches)
        states = remembered(story).states(story.table).values()
        kept = sum(bool(state.deleted) for state in states)
        assert kept < sum(bool(s.deleted) for s in unpurged.states(story.table).values())


SCHEMA: Final = TableSchema((Column("id", Integer()), Column("a", String())))


@pytest.mark.parametrize("kind", lakes("iceberg"))
def test_rows_that_came_after_a_purge_take_nothing_of_earlier_rows_of_their_keys(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    table = TableId("purged", None, "reborn")

    def told(op: str, at: int, id: int, a: Any, old: int | None = None) -> DataChange:
        row = {"id": id, "a": a}
        images = (row, None) if op == "d" else (old and {"id": old}, row)
        return DataChange(Op(op), table, Key(("id",)), *images, SCHEMA, PostgresPosition(at))

    old = [told("c", 1, key, "old") for key in range(1, 6)]
    lacking = [told("c", 6, key, UNAVAILABLE) for key in (1, 2)]
    # the key 4 was there, and 5 lacks nothing
    silent = [told("u", 2, 4, UNAVAILABLE), told("c", 6, 5, "new")]
    moves = told("u", 7, 8, UNAVAILABLE, old=2)
    lake, oracle = str(tmp_path / kind), MemoryTables()
    tables = open_lake(spark, lake, kind)
    first = [*old[:3], *(told("d", 2, key, "old") for key in (1, 2, 3, 5)), silent[0]]
    horizon = at_phase(operations_of(told("d", 4, 9, "old"))[0].order, 0)
    again = [old[3], old[4], old[0], old[1], moves, told("c", 6, 3, UNAVAILABLE), old[2]]
    for number, batch in enumerate(
        ([*first, told("d", 4, 9, "old")], [*lacking, silent[1]], again)
    ):
        lake_tables.apply(spark, lake, batch, batch=number)
        oracle.apply(batch)
        if not number:
            purge(tables, TombstoneTable(spark, tables), {table_id_text(table): horizon})
            oracle.purge(table, horizon)
    found = lake_tables.read(spark, lake, table, ("id",))
    assert found == lake_tables.remembered(oracle, table)
    assert {row["id"]: row["a"] for row in found.rows.values()} == {
        1: None,
        3: None,
        4: "old",
        5: "new",
        8: None,
    }
    aside = (
        lake_tables.table_of(spark, lake, "_changelane/quarantine")
        .select("code", "event")
        .collect()
    )
    assert {row["code"] for row in aside} == {"too_late"}
    # that of the key 2 is older than the move, as after a delete
    assert {msgspec.json.decode(row["event"])["key"] for row in aside} == {"[1]", "[3]"}


# Where horizons may stand

DAY_US: Final = 86_400_000_000


def gone(table: str, at: int, day: int | None, position: Any = None) -> DataChange:
    """Return the delete of a row of its own, so many days after 1970-01-01."""
    time_ns = None if day is None else day * DAY_US * 1000
    place = PostgresPosition(at) if position is None else position
    before = {"id": at, "a": None}
    name = TableId(None, None, table)
    return DataChange(
        Op("d"), name, Key(("id",)), before, None, SCHEMA, place, source_time_ns=time_ns
    )


DELETES: Final = [
    *(gone("plain", at, at) for at in (10, 20, 30, 50)),
    # one whose clock was wrong stops the horizon below it
    gone("odd", 10, 10),
    gone("odd", 20, 60),
    gone("odd", 30, 30),
    gone("timeless", 10, None),
    *(gone("half", at, day) for at, day in ((10, 10), (20, None), (30, 30))),
    gone("offsets", 10, 10, OffsetPosition("t", 0, 10)),
]


def order(at: int) -> bytes:
    (step,) = operations_of(gone("plain", at, at))
    return step.order


def test_horizons_stay_below_what_is_young_or_comes_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path / "delta")
    lake_tables.apply(spark, lake, DELETES)
    tables = open_lake(spark, lake, "delta")
    remembers = TombstoneTable(spark, tables)

    def found(**how: Any) -> dict[str, tuple[int, str]]:
        orders, told = plan_purge(tables, remembers, **how)
        assert {name for name, _ in orders.items()} == {
            table_id_text(TableId(None, None, one.table)) for one in told if one.deleted
        }
        return {one.table: (one.deleted, one.note) for one in told}

    notes = {"offsets": (0, NOTE_PARTITION_OFFSETS), "timeless": (0, NOTE_NO_SOURCE_TIME)}

    def forgotten(plain: int, odd: int, half: int) -> dict[str, tuple[int, str]]:
        return notes | {"plain": (plain, ""), "odd": (odd, ""), "half": (half, "")}

    assert found(before_us=40 * DAY_US) == forgotten(3, 1, 1)
    assert found(before_us=20 * DAY_US) == forgotten(1, 1, 1)
    # by the newest event of each table: day 50, 60 and 30
    assert found(after_us=25 * DAY_US) == forgotten(2, 1, 0)
    plain = table_id_text(TableId(None, None, "plain"))
    seen = {plain: EventBounds(order(20), 80 * DAY_US)}
    assert found(after_us=25 * DAY_US, event_bounds=seen)["plain"] == (1, "")
    assert found(after_us=25 * DAY_US, event_bounds={plain: EventBounds(order(90), 90 * DAY_US)})[
        "plain"
    ] == (
        4,
        "",
    )

    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "name: purged\nsource: {type: files, path: in, format: native-json}\n"
        f"sink: {{type: delta, path: {lake}}}\n"
    )

    def purge_by_command(*words: str) -> dict[str, int]:
        done = CliRunner().invoke(main, ["purge", str(file), "--output", "json", *words])
        assert done.exit_code == 0, done.output
        return {one["table"]: one["deleted"] for one in msgspec.json.decode(done.stdout)}

    wanted = {"half": 1, "odd": 1, "offsets": 0, "plain": 3, "timeless": 0}
    before = ["--before", "1970-02-10"]
    assert purge_by_command(*before, "--dry-run") == wanted
    assert purge_by_command(*before) == wanted
    assert purge_by_command(*before)["plain"] == 0
    # a run of another pipeline may look up the tombstones of its table at this moment
    tables.set_properties(name_of(plain), {"run.other": "1"})
    assert "plain" not in purge_by_command(*before)
    tables.set_properties(name_of(plain), {"run.purged": "1"})
    assert "plain" in purge_by_command(*before, "--dry-run")
    assert remembers.table_tombstones()[plain].watermark == order(30)
    shown = {one.table: one.purged for one in status(tables)}
    assert (shown["plain"], shown["timeless"]) == (order_text(order(30)), "")

    # and by a run: once an hour, by the times of the events
    clock = [1000.0]
    maintenance_scheduler = MaintenanceScheduler(
        tables, remembers, None, purge_after_s=86_400, now_s=lambda: clock[0]
    )
    young = {plain: EventBounds(order(90), 90 * DAY_US)}
    clock[0] += 3600
    maintenance_scheduler.after_batch(young)
    assert remembers.table_tombstones()[plain].watermark == order(50)
    lake_tables.apply(spark, lake, [gone("plain", 60, 55)], batch=1)
    maintenance_scheduler.after_batch(young)
    assert remembers.table_tombstones()[plain].watermark == order(50)
    clock[0] += 3600
    maintenance_scheduler.after_batch(young)
    assert remembers.table_tombstones()[plain].watermark == order(60)


def test_a_purge_needs_a_time() -> None:
    for text in ("yesterday", "2026-13-01"):
        done = CliRunner().invoke(main, ["purge", "none.yaml", "--before", text])
        assert done.exit_code == 2
        assert "--before must be a time" in done.stderr
