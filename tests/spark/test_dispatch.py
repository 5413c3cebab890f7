# SPDX-License-Identifier: Apache-2.0
"""Many tables in one stream: the change log, and tables that are paused alone."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import lake_tables
import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark_settings import lakes
from test_crash import BATCHES, LOG, ONE, TWO, insert

from changelane.event import ChangeEvent, SchemaChange, Source
from changelane.position import PostgresPosition
from changelane.schema import TableId
from changelane.spark import decode
from changelane.spark.apply.applier import Applier
from changelane.spark.apply.dispatch import AllTablesFailedError, MergeSchedule, TableDispatcher
from changelane.spark.apply.upsert import UpsertWriter
from changelane.spark.evolution.evolution import SchemaEvolver
from changelane.spark.evolution.evolution_state import Evolution
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import Marker
from changelane.spark.lake.sql_tables import SqlLake
from changelane.spark.rows import schema
from changelane.spark.rows.batch_stats import BatchReport
from changelane.spark.rows.schema import table_id_text
from changelane.spark.state.change_log import ChangeLog
from changelane.spark.state.fencing import FencedError
from changelane.spark.state.paused_tables import PausedTables
from changelane.testing.conformance import EFFORT

LATER: Final = MergeSchedule(True, events=1_000_000, seconds=1e6)
AT_ONCE: Final = MergeSchedule(True, events=1)
DIRECT: Final = MergeSchedule()


def schedules(usual: MergeSchedule) -> list[MergeSchedule]:
    """Return the schedules to run a long stream with; both with ``CHANGELANE_EFFORT=2``."""
    return [DIRECT, AT_ONCE] if EFFORT > 1 else [usual]


class DiedError(Exception):
    """The process is gone."""


@pytest.fixture
def null_fields_in_json(spark: SparkSession) -> Iterator[None]:
    """A program's session may write NULL fields of JSON; those of commits do not."""
    spark.conf.set("spark.sql.jsonGenerator.ignoreNullFields", "false")
    yield
    spark.conf.unset("spark.sql.jsonGenerator.ignoreNullFields")


def dispatcher(
    spark: SparkSession, lake: str, schedule: MergeSchedule, changes: str = "evolve"
) -> TableDispatcher:
    """Return what a new process of the pipeline has."""
    kind, evolution = Path(lake).name, Evolution(schema_changes=changes)
    applier = Applier(
        spark, lake, table_format=kind, tables_without_key="append", evolution=evolution
    )
    return TableDispatcher(open_lake(spark, lake, kind), applier, "test", schedule)


def take(
    spark: SparkSession, to: TableDispatcher, batch: Sequence[ChangeEvent], number: int
) -> BatchReport:
    events = decode(lake_tables.messages(spark, batch), "native-json")
    return to.apply(events, Marker("test", "q", number))


def reads(spark: SparkSession, to: TableDispatcher, event: ChangeEvent, number: int) -> int:
    """Apply a batch of one event; return how often the event was read."""
    count = spark.sparkContext.accumulator(0)

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            count.add(batch.column(0).to_pylist().count("data"))
            yield batch

    events = decode(lake_tables.messages(spark, [event]), "native-json")
    to.apply(events.mapInArrow(counted, schema.DDL), Marker("test", "q", number))
    return count.value


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_pipeline_leaves_the_events_of_another_in_the_log(spark: SparkSession, lake: str) -> None:
    """They share the folder; events without a pipeline are of a log of an older version."""
    take(spark, dispatcher(spark, lake, LATER), [insert(LOG, 1, 1)], 0)
    kind = Path(lake).name
    log = open_lake(spark, lake, kind)
    applier = Applier(spark, lake, table_format=kind)
    other = TableDispatcher(log, applier, "other", LATER)
    assert other.merge(all_of_them=True) is None
    # the replays of all pipelines have one name
    other_log = ChangeLog(log, "other")
    other_log.delete_before("q", 9, ())
    other_log.delete_tables("q", [table_id_text(LOG)], 9)
    assert held(spark, lake) == [(table_id_text(LOG), 0)]
    assert other_log.rows("q", {table_id_text(LOG): -1}).isEmpty()
    # what the other pipeline adds is not there already
    same_batch = decode(lake_tables.messages(spark, [insert(LOG, 3, 2)]), "native-json")
    other_log.append_tables(same_batch, [table_id_text(LOG)], Marker("other", "q", 0))
    assert other_log.rows("q", {table_id_text(LOG): -1}).where("kind = 'data'").count() == 1
    other_log.delete_tables("q", [table_id_text(LOG)], 9)
    assert [table.events for table in _merged(spark, lake).tables] == [1]
    take(spark, dispatcher(spark, lake, LATER), [insert(ONE, 2, 1)], 1)
    log.drop_columns("_changelane/log", ["pipeline"])
    assert [table.table for table in _merged(spark, lake).tables] == ["shop.one"]


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_only_the_newest_run_of_its_pipeline_resumes_a_table(
    spark: SparkSession, lake: str
) -> None:
    """Another run does not know what waits for the table."""

    def run(pipeline: str) -> TableDispatcher:
        applier = Applier(spark, lake, table_format=Path(lake).name)
        applier.acquire_fencing_token(pipeline)
        return TableDispatcher(open_lake(spark, lake, Path(lake).name), applier, pipeline, DIRECT)

    def pause(to: TableDispatcher, event: ChangeEvent, number: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            lake_tables.merges_fail(patch, "SELECT cast(4711 AS tinyint)")
            take(spark, to, [event], number)

    older = run("test")
    take(spark, older, [insert(ONE, 1, 1), insert(TWO, 2, 1)], 0)
    pause(older, insert(TWO, 3, 2), 1)
    newer = run("test")
    pause(newer, insert(ONE, 4, 2), 2)
    paused_tables = PausedTables(ChangeLog(open_lake(spark, lake, Path(lake).name)))
    paused = paused_tables.tables()[table_id_text(ONE)]
    paused_tables.record(replace(paused, state="unpaused"))
    other = run("other")
    assert other.paused == {}
    other.merge()
    with pytest.raises(FencedError):
        older.merge()
    take(spark, newer, [insert(ONE, 5, 3)], 3)
    newer.merge(all_of_them=True)
    ids = lake_tables.table_of(spark, lake, ONE).select("id").collect()
    assert sorted(row["id"] for row in ids) == [1, 2, 3]


def _merged(spark: SparkSession, lake: str) -> BatchReport:
    report = dispatcher(spark, lake, LATER).merge(all_of_them=True)
    assert report is not None
    return report


def ends_as_in_memory(spark: SparkSession, lake: str, tables: Sequence[TableId]) -> None:
    oracle = lake_tables.oracle(BATCHES)
    for table in tables:
        if table == LOG:
            assert lake_tables.table_of(spark, lake, LOG).count() == len(oracle.rows(LOG))
        else:
            assert lake_tables.read(spark, lake, table, ("id",)) == lake_tables.remembered(
                oracle, table
            )


def held(spark: SparkSession, lake: str) -> list[tuple[str, int]]:
    """Return what the change log holds: tables and batches."""
    log = lake_tables.table_of(spark, lake, "_changelane/log")
    rows = log.select("table_id", "batch").distinct().collect()
    return sorted((row["table_id"], row["batch"]) for row in rows)


def dying(patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    method: Callable[..., Any] = getattr(owner, name)

    def die(*args: Any, **options: Any) -> Any:
        method(*args, **options)
        raise DiedError

    patch.setattr(owner, name, die)


def altered(at: int, ddl: str) -> SchemaChange:
    source = Source(product="mysql")
    return SchemaChange(ONE, "alter", ddl, position=PostgresPosition(at), source=source)


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_a_statement_of_another_server_is_quarantined_while_no_table_exists(
    spark: SparkSession, lake: str
) -> None:
    to = dispatcher(spark, lake, LATER)
    take(spark, to, [replace(insert(ONE, 1, 1), source=Source(server="one"))], 0)
    source = Source(product="mysql", server="two")
    drop = replace(altered(5, "DROP TABLE one"), source=source)
    assert take(spark, to, [drop], 1).quarantined == {"source_conflict": 1}


UNREAD: Final = "ALTER TABLE one FROBNICATE"
PARTLY: Final = f"ALTER TABLE one ADD COLUMN z INT; {UNREAD}"


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_a_commit_of_another_pipeline_does_not_end_the_run(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = dispatcher(spark, lake, LATER)
    append, failed = SqlLake.append, []

    def conflicting(self: SqlLake, session: SparkSession, table: str, rows: Any) -> None:
        if table not in failed and not table.endswith("schemas"):
            failed.append(table)
            raise PySparkException("[DELTA_METADATA_CHANGED]")  # such as for a paused table
        append(self, session, table, rows)

    monkeypatch.setattr(SqlLake, "append", conflicting)
    take(spark, to, [insert(TWO, 1, 1), altered(2, UNREAD)], 0)
    assert failed == ["_changelane/quarantine", "_changelane/log"]
    assert held(spark, lake) == [(table_id_text(TWO), 0)]
    assert lake_tables.table_of(spark, lake, "_changelane/quarantine").count() == 1


@pytest.mark.usefixtures("null_fields_in_json")
@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_what_is_unread_of_statements_is_set_aside_once(spark: SparkSession, lake: str) -> None:
    """With and without rows of its table in the batch, and where a part of it is read."""
    to = dispatcher(spark, lake, LATER)
    batches = [
        [altered(1, UNREAD)],
        [altered(2, UNREAD), altered(3, PARTLY), insert(TWO, 4, 1)],
        [insert(ONE, 5, 1), altered(6, UNREAD), altered(7, PARTLY)],
    ]
    told = [take(spark, to, batches[number], number) for number in (0, 0, 1, 2)]
    merged = to.merge(all_of_them=True)
    assert merged is not None
    assert [one.quarantined.get("unread_ddl", 0) for one in (*told, merged)] == [1, 1, 2, 0, 2]
    found = lake_tables.table_of(spark, lake, "_changelane/quarantine").collect()
    assert [row["code"] for row in found] == ["unread_ddl"] * 5


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_what_is_unread_of_a_statement_is_set_aside_though_the_batch_died(
    spark: SparkSession, lake: str
) -> None:
    batch = [altered(1, PARTLY), insert(ONE, 2, 1)]
    with pytest.MonkeyPatch.context() as patch:
        dying(patch, SchemaEvolver, "record_statements")
        with pytest.raises(DiedError):
            take(spark, dispatcher(spark, lake, DIRECT), batch, 0)
    assert take(spark, dispatcher(spark, lake, DIRECT), batch, 0).quarantined == {"unread_ddl": 1}


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_tables_that_take_their_events_from_the_log_end_as_in_memory(
    spark: SparkSession, lake: str
) -> None:
    first = dispatcher(spark, lake, LATER)
    with pytest.MonkeyPatch.context() as patch:
        dying(patch, ChangeLog, "append")
        with pytest.raises(DiedError):
            take(spark, first, BATCHES[0], 0)
    # the process is gone, and the batch comes again
    again = dispatcher(spark, lake, LATER)
    report = take(spark, again, BATCHES[0], 0)
    assert (report.logged, report.tables) == (3, [])
    assert [batch for _, batch in held(spark, lake)] == [0, 0, 0]
    take(spark, again, BATCHES[1], 1)
    assert open_lake(spark, lake, Path(lake).name).tables() == []
    with pytest.MonkeyPatch.context() as patch:
        dying(patch, Applier, "_apply")
        with pytest.raises(DiedError):
            again.merge(all_of_them=True)
    # now tables hold two batches, and the log still does, too
    last = dispatcher(spark, lake, LATER)
    take(spark, last, BATCHES[2], 2)
    merged = last.merge(all_of_them=True)
    assert merged is not None
    assert sorted(one.table for one in merged.tables) == ["shop.log", "shop.one", "shop.two"]
    ends_as_in_memory(spark, lake, (ONE, TWO, LOG))
    assert held(spark, lake) == []
    assert last.merge(all_of_them=True) is None


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_the_log_is_of_its_lake_whatever_session_was_used_last(
    spark: SparkSession, lake: str
) -> None:
    other = spark.newSession()
    other.createDataFrame([], "a int")  # the active session of this thread from now on
    assert SparkSession.active()._jsparkSession.equals(other._jsparkSession)
    try:
        to = dispatcher(spark, lake, LATER)
        take(spark, to, [insert(ONE, 1, 1)], 0)
        other.createDataFrame([], "a int")
        to = dispatcher(spark, lake, LATER)
        to.merge(all_of_them=True)
    finally:
        spark.createDataFrame([], "a int")
    assert held(spark, lake) == []
    assert lake_tables.table_of(spark, lake, ONE).count() == 1


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_a_table_is_merged_once_enough_events_wait_for_it(spark: SparkSession, lake: str) -> None:
    to = dispatcher(spark, lake, MergeSchedule(True, events=3, seconds=1e6))
    one, two = [insert(ONE, at, at) for at in (1, 2, 3)], [insert(TWO, 4, 4)]
    report = take(spark, to, [*one, *two], 0)
    assert [table.table for table in report.tables] == ["shop.one"]
    assert lake_tables.table_of(spark, lake, ONE).count() == 3
    assert to.merge() is None


@pytest.mark.parametrize("schedule", schedules(DIRECT))
@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_table_that_fails_is_paused_and_the_others_go_on(
    spark: SparkSession, lake: str, schedule: MergeSchedule
) -> None:
    table = TableId("shop", None, "one")
    to = dispatcher(spark, lake, schedule)
    take(spark, to, BATCHES[0], 0)
    with pytest.MonkeyPatch.context() as patch:
        lake_tables.merges_fail(patch, "SELECT cast(4711 AS tinyint)", table)
        report = take(spark, to, BATCHES[1], 1)
        assert [one.table for one in report.tables if one.failed] == ["shop.one"]
        # another process goes on, and the batch comes again: nothing waits twice
        to = dispatcher(spark, lake, schedule)
        take(spark, to, BATCHES[1], 1)
        take(spark, to, BATCHES[2], 2)
    waiting = [one for one in held(spark, lake) if one >= ('["shop",null,"one"]', 1)]
    assert waiting[:2] == [('["shop",null,"one"]', 1), ('["shop",null,"one"]', 2)]
    if schedule is DIRECT:
        assert held(spark, lake) == waiting[:2]
    (reason,) = to.paused.values()
    assert "4711" not in reason
    ends_as_in_memory(spark, lake, (TWO, LOG))
    kind = open_lake(spark, lake, Path(lake).name)
    paused_tables = PausedTables(ChangeLog(kind))
    (paused,) = paused_tables.tables().values()
    assert (paused.table_id, paused.batch) == ('["shop",null,"one"]', 1)
    paused_tables.record(
        type(paused)(paused.table_id, paused.reason, 1, paused.time_ms, "unpaused")
    )
    assert to.merge() is not None
    assert to.paused == {}
    ends_as_in_memory(spark, lake, (table, TWO, LOG))
    assert held(spark, lake) == []


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_what_a_second_try_quarantines_is_counted_once(spark: SparkSession, lake: str) -> None:
    """A first try fails before it classifies the events of a table, or after it."""
    to = dispatcher(spark, lake, DIRECT)
    take(spark, to, [insert(ONE, 1, 1), insert(TWO, 2, 1)], 0)

    def fails_once(patch: pytest.MonkeyPatch, owner: type, name: str) -> list[str]:
        method: Callable[..., Any] = getattr(owner, name)
        failures = list[str]()

        def fail(*args: Any, **options: Any) -> Any:
            if not failures:
                failures.append(name)
                raise PySparkException("[DELTA_METADATA_CHANGED]")  # by another writer
            return method(*args, **options)

        patch.setattr(owner, name, fail)
        return failures

    places = ((SchemaEvolver, "evolve_table"), (UpsertWriter, "merge"))
    for number, (owner, name) in enumerate(places, 1):
        keyless = replace(insert(ONE, 10 * number, 7), key=None)
        batch = [insert(ONE, 10 * number + 1, 1 + number), keyless]
        with pytest.MonkeyPatch.context() as patch:
            failures = fails_once(patch, owner, name)
            report = take(spark, to, batch, number)
        assert failures == [name]
        assert (report.failed, report.quarantined) == ({}, {"no_key": 1})
    assert lake_tables.table_of(spark, lake, ONE).count() == 3
    assert lake_tables.table_of(spark, lake, "_changelane/quarantine").count() == 2


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_a_paused_table_costs_no_second_reading_and_its_events_are_not_few(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = dispatcher(spark, lake, DIRECT)
    take(spark, to, [insert(ONE, 1, 1), insert(TWO, 2, 1)], 0)
    with pytest.MonkeyPatch.context() as patch:
        lake_tables.merges_fail(patch, "SELECT cast(4711 AS tinyint)", ONE)
        take(spark, to, [insert(ONE, 3, 2)], 1)
    # another process counts the events in the log, but not those that follow
    to = dispatcher(spark, lake, DIRECT)
    assert reads(spark, to, insert(ONE, 4, 3), 2) == 1
    paused_tables = PausedTables(ChangeLog(open_lake(spark, lake, Path(lake).name)))
    (paused,) = paused_tables.tables().values()
    paused_tables.record(replace(paused, state="unpaused"))
    is_small, apply = [], Applier.apply

    def noted(self: Applier, *rest: Any, **options: Any) -> BatchReport:
        is_small.append(options["is_small"])
        return apply(self, *rest, **options)

    monkeypatch.setattr(Applier, "apply", noted)
    assert to.merge() is not None
    assert is_small == [False]
    assert lake_tables.table_of(spark, lake, ONE).count() == 3


@pytest.mark.usefixtures("null_fields_in_json")
@pytest.mark.parametrize("schedule", schedules(AT_ONCE))
@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_what_a_paused_table_without_key_refused_waits_for_its_replay_alone(
    spark: SparkSession, lake: str, schedule: MergeSchedule
) -> None:
    to = dispatcher(spark, lake, schedule, "strict")
    take(spark, to, BATCHES[0], 0)
    with pytest.MonkeyPatch.context() as patch:
        lake_tables.merges_fail(patch, "SELECT cast(4711 AS tinyint)", LOG)
        report = take(spark, to, BATCHES[1], 1)
    assert [one.table for one in report.tables if one.failed] == ["shop.log"]
    lies = open_lake(spark, lake, Path(lake).name)

    def rows() -> tuple[int, int]:
        aside = lies.read("_changelane/quarantine").where("table_id LIKE '%log%'").count()
        return lake_tables.table_of(spark, lake, LOG).count(), aside

    assert rows() == (2, 1)
    # the pipeline is mended, and what waits in the log comes again
    to = dispatcher(spark, lake, schedule, "evolve")
    paused_tables = PausedTables(ChangeLog(lies))
    (paused,) = paused_tables.tables().values()
    paused_tables.record(
        type(paused)(paused.table_id, paused.reason, 1, paused.time_ms, "unpaused")
    )
    assert to.merge() is not None
    assert to.paused == {}
    assert rows() == (3, 1)


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_where_every_table_fails_the_run_stops_and_nothing_is_paused(
    spark: SparkSession, lake: str
) -> None:
    to = dispatcher(spark, lake, DIRECT)
    with pytest.MonkeyPatch.context() as patch:
        lake_tables.merges_fail(patch, "SELECT raise_error('the disk is full')")
        with pytest.raises(AllTablesFailedError):
            take(spark, to, BATCHES[0], 0)
    assert to.paused == {}
    take(spark, to, BATCHES[0], 0)
    assert lake_tables.table_of(spark, lake, LOG).count() == 2
