# SPDX-License-Identifier: Apache-2.0
"""Tables of versions equal those in memory, which are the rule and nothing else."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import lake_tables
import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_settings import lakes
from test_equality import SEED, VARIANTS, Story, evolving, regrouped, rekeyed

from changelane.apply import key_bytes, operations_of
from changelane.event import ChangeEvent, DataChange, HalfUpdate, Key, Op, Source, Truncate
from changelane.position import PostgresPosition, order_text
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.modes import HISTORY, Modes, TableMode
from changelane.spark.maintenance.status import status
from changelane.spark.maintenance.trace import trace
from changelane.spark.rows.batch_stats import BatchReport
from changelane.spark.runtime.sql import ORDER
from changelane.spark.state.history_tombstones import HistoryTombstones
from changelane.testing.histories import Profile, history, shuffled
from changelane.testing.reference.history import HistoryTables
from changelane.types import UNAVAILABLE, String

BATCHES: Final = 2
TRACK: Final = ("state", "total")
MODES: Final = Modes(TableMode(HISTORY), {"tracked": TableMode(HISTORY, TRACK)})


def timed(event: Any) -> Any:
    """Give an event a time that is no order: the clock goes back and forth."""
    if isinstance(event, HalfUpdate):
        return msgspec.structs.replace(event, change=timed(event.change))
    lsn = event.position.lsn
    time = None if lsn % 5 == 0 else lsn * 7919 % 1000 * 1_000_000
    return msgspec.structs.replace(event, source_time_ns=time)


CROWDS: Final = {
    "tracked": [Profile(moves="whole", ties=True, size=20)],
    "whole": [Profile(moves="none", partial=False, silent=False, ties=True)],
    "any_order": [
        Profile(moves="none", ties=True),
        Profile(moves="whole", ties=True, size=20),
        Profile(moves="whole", halves=True),
    ],
}

TRUNCATING: Final = ("times", "unsigned_and_text")


def crowd(name: str) -> Story:
    chance = Random(f"{SEED} versions {name}")
    table = TableId("crowds", None, name)
    batches: list[list[ChangeEvent]] = [[] for _ in range(BATCHES)]
    for number, profile in enumerate(CROWDS[name] * 20):
        alone = msgspec.structs.replace(profile, truncates=False)
        told = [timed(event) for event in history(chance, alone).events]
        for batch, part in zip(batches, regrouped(chance, shuffled(chance, told)), strict=True):
            batch.extend(rekeyed(chance, event, table, shift=number * 100) for event in part)
    for batch in batches:
        chance.shuffle(batch)
    return Story(table, ("id",), batches)


def truncating(name: str) -> Story:
    """One history with truncates, in a table of its own with keys of another type."""
    variant = VARIANTS[name]
    chance = Random(f"{SEED} versions {name}")
    table = TableId(None, "truncating", name)
    told: Sequence[ChangeEvent] = ()
    while sum(isinstance(event, Truncate) for event in told) < 3:
        told = history(chance, Profile(moves="whole", ties=True, size=40)).events
    events = [rekeyed(chance, timed(event), table, variant) for event in told]
    batches = list(regrouped(chance, shuffled(chance, events)))
    return Story(table, tuple(name for name, _ in variant.columns), batches, variant.python)


@pytest.fixture(scope="module")
def stories() -> dict[str, Story]:
    told = {name: crowd(name) for name in CROWDS}
    told |= {name: truncating(name) for name in TRUNCATING}
    return {**told, "evolving": evolving()}


class Stream(NamedTuple):
    lake: str
    reports: list[BatchReport]


@pytest.fixture(scope="module", params=lakes("iceberg"))
def stream(
    spark: SparkSession,
    stories: dict[str, Story],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Stream:
    """All stories, landed as one stream of a few batches."""
    lake = str(tmp_path_factory.mktemp("history") / request.param)
    reports = [
        lake_tables.apply(
            spark,
            lake,
            [event for story in stories.values() for event in story.batches[number]],
            batch=number,
            modes=MODES,
        )
        for number in range(BATCHES)
    ]
    return Stream(lake, reports)


Found = Mapping[bytes, list[tuple[Any, ...]]]


def found(spark: SparkSession, lake: str, story: Story) -> Found:
    """Return the versions by key, in their order, as the table holds them."""
    table = lake_tables.table_of(spark, lake, story.table)
    ours = {"_valid_from", "_valid_to", "_is_current"}
    columns = [c for c in table.columns if c not in ours and not c.startswith("_changelane")]
    rows = table.orderBy("_changelane_order").select(
        *(F.col(f"`{name}`") for name in columns),
        "_changelane_order",
        "_changelane_until",
        F.unix_micros("_valid_from"),
        F.unix_micros("_valid_to"),
        "_is_current",
        "_changelane_columns",
    )
    told: dict[bytes, list[tuple[Any, ...]]] = {}
    for one in rows.collect():
        row = {name: lake_tables.python(one[index]) for index, name in enumerate(columns)}
        for name, make in story.python.items():
            row[name] = make(row[name])
        order, until, begun, ended, is_current, orders = one[len(columns) :]
        key = key_bytes({name: row[name] for name in story.keys})
        unknown = {name for name, at in (orders or {}).items() if not at}
        until = None if until is None else bytes(until)
        told.setdefault(key, []).append(
            (row, bytes(order), until, begun, ended, is_current, unknown)
        )
    return told


def expected(story: Story) -> Found:
    tables = HistoryTables(track={"tracked": TRACK})
    for batch in story.batches:
        tables.apply(batch)
    assert not tables.quarantine
    return {
        key: [
            (
                dict(one.row),
                one.order,
                one.end_order or None,
                one.from_us,
                one.until_us,
                one.is_current,
                set(one.unknown),
            )
            for one in versions
        ]
        for key, versions in tables.versions(story.table).items()
    }


@pytest.mark.parametrize("name", [*CROWDS, *TRUNCATING, "evolving"])
def test_versions_equal_memory(
    spark: SparkSession, stream: Stream, stories: dict[str, Story], name: str
) -> None:
    assert found(spark, stream.lake, stories[name]) == expected(stories[name])


def test_nothing_is_set_aside_or_skipped(stream: Stream) -> None:
    assert [report.quarantined for report in stream.reports] == [{}] * BATCHES
    assert [report.skipped for report in stream.reports] == [0] * BATCHES


@pytest.mark.parametrize("source_servers", ["single", "multiple"])
def test_a_column_without_a_statement_stays_in_the_versions_whose_events_have_it(
    spark: SparkSession, tmp_path: Path, source_servers: str
) -> None:
    """The order of the column is above them: another event showed it first, or several servers."""
    columns = {name: Column(name, String()) for name in ("id", "a", "b")}
    table = TableId("shop", None, "t")

    def event(op: Op, lsn: int, **values: Any) -> DataChange:
        schema = TableSchema(tuple(columns[name] for name in values))
        position, source = PostgresPosition(lsn, lsn), Source(product="postgresql")
        return DataChange(op, table, Key(("id",)), None, values, schema, position, source=source)

    batches = [
        [event(Op.CREATE, 1, id="1", a="1"), event(Op.CREATE, 20, id="2", a="2", b="2")],
        [event(Op.CREATE, 10, id="3", a="3", b="3")],
        [event(Op.UPDATE, 15, id="3", a="4", b=UNAVAILABLE)],
    ]
    lake = str(tmp_path / lake_tables.LAKES[0])
    options = {"modes": MODES, "source_servers": source_servers}
    for number, batch in enumerate(batches):
        lake_tables.apply(spark, lake, batch, batch=number, **options)
    versions = lake_tables.table_of(spark, lake, table).where("id = '3'").orderBy(ORDER)
    assert versions.select("a", "b").collect() == [("3", "3"), ("4", "3")]


def test_a_joined_version_knows_the_columns_of_its_newest_event(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its own position is below that of the new column: status and trace called it unknown."""
    columns = {name: Column(name, String(), nullable=name != "b") for name in ("id", "state", "b")}
    table = TableId("shop", None, "tracked")

    def event(op: Op, lsn: int, **values: Any) -> DataChange:
        schema = TableSchema(tuple(columns[name] for name in values))
        position, source = PostgresPosition(lsn, lsn), Source(product="postgresql")
        return DataChange(op, table, Key(("id",)), None, values, schema, position, source=source)

    modes = Modes(TableMode(HISTORY, ("state",)))
    batches = [
        [event(Op.CREATE, 10, id="1", state="new"), event(Op.CREATE, 11, id="2", state="new")],
        [event(Op.UPDATE, 20, id="1", state="new", b="x")],
    ]
    lake = str(tmp_path / lake_tables.LAKES[0])
    for number, batch in enumerate(batches):
        lake_tables.apply(spark, lake, batch, batch=number, modes=modes)
    tables = open_lake(spark, lake, lake_tables.LAKES[0])
    (found,) = status(tables)
    assert (found.rows, found.incomplete) == (2, 1)
    states = {state.column: state for state in trace(tables, "tracked", {"id": "1"}).columns}
    assert (states["b"].value, states["b"].known) == ("x", True)
    assert states["b"].position == order_text(operations_of(batches[1][0])[0].order)


def test_a_batch_reads_only_the_truncates_above_its_oldest_change(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is loaded again every hour has thousands: each upsert was compared with all."""
    read: list[int] = []
    truncates = HistoryTombstones.truncates

    def count(self: HistoryTombstones, *arguments: Any, **options: Any) -> DataFrame:
        found = truncates(self, *arguments, **options)
        read.append(len(found.collect()[0]["truncates"]))
        return found

    monkeypatch.setattr(HistoryTombstones, "truncates", count)
    schema = TableSchema((Column("id", String()),))
    table, source = TableId("shop", None, "t"), Source(product="postgresql")

    def insert(key: str, lsn: int) -> DataChange:
        position, image = PostgresPosition(lsn, lsn), {"id": key}
        return DataChange(
            Op.CREATE, table, Key(("id",)), None, image, schema, position, source=source
        )

    late, new = insert("late", 25), insert("new", 60)
    first = [insert("a", 5), *(Truncate(table, None, PostgresPosition(n, n)) for n in (10, 20, 30))]
    lake = str(tmp_path / lake_tables.LAKES[0])
    for number, batch in enumerate((first, [new], [late])):
        lake_tables.apply(spark, lake, batch, batch=number, modes=MODES, is_compared=False)
    assert read == [3, 0, 1]
    versions = lake_tables.table_of(spark, lake, table).orderBy(ORDER)
    assert versions.select("id", "_is_current").collect() == [
        ("a", False),
        ("late", False),
        ("new", True),
    ]
