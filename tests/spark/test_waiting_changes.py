# SPDX-License-Identifier: Apache-2.0
"""Changes that wait in the change log, when something fails or changes before their merge."""

from pathlib import Path
from typing import Any, Final

import lake_tables
import pytest
from msgspec.structs import replace
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark_settings import lakes
from test_crash import LOG, ONE, TWO, WIDER, insert
from test_dispatch import DIRECT, LATER, DiedError, altered, dispatcher, dying, take
from test_latest import pipeline

from changelane.errors import BudgetError
from changelane.event import DataChange
from changelane.pipeline.config import load
from changelane.position import OffsetPosition
from changelane.schema import TableId
from changelane.spark import decode
from changelane.spark.apply.applier import Applier
from changelane.spark.apply.dispatch import MergeSchedule, TableDispatcher
from changelane.spark.evolution.evolution import SchemaEvolver
from changelane.spark.evolution.evolution_state import Evolution
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import Marker
from changelane.spark.lake.modes import Modes, TableMode
from changelane.spark.lake.sql_tables import SqlLake
from changelane.spark.maintenance.quarantine_view import EntryFilter
from changelane.spark.replay.replay import replay
from changelane.spark.run.latest import latest_tables
from changelane.spark.state.change_log import ChangeLog
from changelane.spark.state.paused_tables import PausedTables
from changelane.spark.state.replays import Settings, pending_entries

RENAME: Final = "ALTER TABLE one RENAME COLUMN a TO letter"


def raising(*_: Any) -> None:
    raise PySparkException("no")


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


def unpause(spark: SparkSession, lake: str) -> None:
    paused_tables = PausedTables(ChangeLog(open_lake(spark, lake, Path(lake).name)))
    tables = paused_tables.tables().values()
    paused_tables.record(*(replace(paused, state="unpaused") for paused in tables))


def columns(spark: SparkSession, lake: str, table: TableId = ONE) -> set[str]:
    return set(lake_tables.table_of(spark, lake, table).columns)


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_statement_without_rows_of_its_table_is_executed_by_the_next_merge(
    spark: SparkSession, lake: str
) -> None:
    to = dispatcher(spark, lake, LATER)
    take(spark, to, [insert(ONE, 1, 1), insert(TWO, 1, 1)], 0)
    to.merge(all_of_them=True)
    take(spark, to, [altered(5, RENAME)], 1)
    (rows,) = latest_tables(pipeline(lake), ["one"], spark=spark).tables.values()
    assert "letter" in rows.columns
    to = dispatcher(spark, lake, LATER)  # another process goes on
    to.merge(all_of_them=True)
    assert "letter" in columns(spark, lake)


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_a_statement_without_rows_of_its_table_is_executed_though_the_batch_died(
    spark: SparkSession, lake: str
) -> None:
    take(spark, dispatcher(spark, lake, DIRECT), [insert(ONE, 1, 1), insert(TWO, 1, 1)], 0)
    with pytest.MonkeyPatch.context() as patch:
        dying(patch, SchemaEvolver, "record_statements")
        with pytest.raises(DiedError):
            take(spark, dispatcher(spark, lake, DIRECT), [altered(5, RENAME)], 1)
    take(spark, dispatcher(spark, lake, DIRECT), [altered(5, RENAME)], 1)
    assert "letter" in columns(spark, lake)


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_a_statement_without_rows_is_executed_while_another_table_is_paused(
    spark: SparkSession, lake: str
) -> None:
    to = dispatcher(spark, lake, DIRECT)
    take(spark, to, [insert(ONE, 1, 1), insert(TWO, 1, 1)], 0)
    with pytest.MonkeyPatch.context() as patch:
        lake_tables.merges_fail(patch, "SELECT cast(4711 AS tinyint)", TWO)
        take(spark, to, [insert(TWO, 3, 2)], 1)
    take(spark, to, [altered(5, RENAME)], 2)
    assert "letter" in columns(spark, lake)


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_statement_that_fails_without_rows_of_its_renamed_table_is_executed_again(
    spark: SparkSession, lake: str
) -> None:
    to = dispatcher(spark, lake, LATER)
    take(
        spark, to, [insert(ONE, 1, 1), insert(TWO, 1, 1), altered(2, "RENAME TABLE one TO uno")], 0
    )
    to.merge(all_of_them=True)
    statement = altered(5, RENAME.replace("one", "uno"))
    take(spark, to, [replace(statement, table=replace(ONE, name="uno"))], 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlLake, "rename_column", raising)
        to.merge(all_of_them=True)
    assert sorted(to.paused) == ["shop.one", "shop.uno"]
    unpause(spark, lake)
    to.merge()
    assert to.paused == {}
    assert "letter" in columns(spark, lake)


def without_position(event: DataChange, offset: int) -> DataChange:
    return replace(event, position=OffsetPosition("topic", 0, offset))


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_batch_after_an_interrupted_merge_does_not_add_its_rows_again(
    spark: SparkSession, lake: str
) -> None:
    """The second Ctrl-C ends a merge of the main thread, while a batch waits in another thread."""
    to = dispatcher(spark, lake, LATER)
    take(spark, to, [without_position(insert(LOG, 1, 1), 1)], 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableDispatcher, "_failed_tables", interrupted)
        with pytest.raises(KeyboardInterrupt):
            to.merge(all_of_them=True)
    take(spark, to, [without_position(insert(LOG, 2, 2), 2)], 1)
    to.merge(all_of_them=True)
    ids = lake_tables.table_of(spark, lake, LOG).select("id").collect()
    assert sorted(row["id"] for row in ids) == [1, 2]


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_batch_counts_what_a_resumed_table_rejects(spark: SparkSession, lake: str) -> None:
    to = dispatcher(spark, lake, DIRECT)
    take(spark, to, [insert(ONE, 1, 1), insert(TWO, 1, 1)], 0)
    with pytest.MonkeyPatch.context() as patch:
        lake_tables.merges_fail(patch, "SELECT cast(4711 AS tinyint)", ONE)
        take(spark, to, [insert(ONE, 3, 2)], 1)
    take(spark, to, [replace(insert(ONE, 4, 3), key=None)], 2)
    unpause(spark, lake)
    assert sum(take(spark, to, [insert(ONE, 5, 4)], 3).quarantined.values()) == 1


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_views_leave_out_what_waits_for_the_merge_of_another_pipeline(
    spark: SparkSession, lake: str
) -> None:
    for name, table in (("test", ONE), ("other", TWO)):
        applier = Applier(spark, lake, table_format=Path(lake).name)
        applier.acquire_fencing_token(name)
        to = TableDispatcher(open_lake(spark, lake, Path(lake).name), applier, name, LATER)
        for number in (0, 1):
            events = decode(lake_tables.messages(spark, [insert(table, 1, number)]), "native-json")
            to.apply(events, Marker(name, "q", number))
            if not number:
                to.merge(all_of_them=True)
    file = pipeline(lake)

    def counts() -> dict[str, int]:
        tables = latest_tables(file, spark=spark).tables
        return {str(table): rows.count() for table, rows in tables.items()}

    assert counts() == {"shop.one": 2}
    (reason,) = latest_tables(file, ["two"], spark=spark).failed.values()
    assert "pipeline other" in reason
    to.merge(all_of_them=True)
    assert counts() == {"shop.one": 2, "shop.two": 2}


@pytest.mark.parametrize("schedule", [DIRECT, LATER])
@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_what_a_paused_change_log_rejected_waits_for_its_replay_alone(
    spark: SparkSession, lake: str, schedule: MergeSchedule
) -> None:
    """Without positions only the number of its batch shows that an event came before."""
    kind = Path(lake).name

    def process(changes: str) -> TableDispatcher:
        modes = Modes(tables={"one": TableMode("append")})
        applier = Applier(
            spark, lake, table_format=kind, modes=modes, evolution=Evolution(schema_changes=changes)
        )
        return TableDispatcher(open_lake(spark, lake, kind), applier, "test", schedule)

    to = process("strict")
    take(spark, to, [without_position(insert(ONE, 1, 1), 1), insert(TWO, 1, 1)], 0)
    to.merge(all_of_them=True)
    wider = replace(insert(ONE, 3, 3), schema=WIDER, after={"id": 3} | dict.fromkeys("abc", "x"))
    batch = [without_position(insert(ONE, 2, 2), 2), without_position(wider, 3)]
    with pytest.MonkeyPatch.context() as patch:
        lake_tables.merges_fail(patch, "SELECT cast(4711 AS tinyint)", ONE)
        take(spark, to, batch, 1)
        to.merge(all_of_them=True)
    assert list(to.paused) == ["shop.one"]
    unpause(spark, lake)
    to = process("evolve")
    to.merge(all_of_them=True)
    assert to.paused == {}
    ids = lake_tables.table_of(spark, lake, ONE).select("id").collect()
    assert sorted(row["id"] for row in ids) == [1, 2]
    assert lake_tables.table_of(spark, lake, "_changelane/quarantine").count() == 1


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_replay_follows_the_events_that_wait_before_it(spark: SparkSession, lake: str) -> None:
    """The first events of a table decide its key."""
    unread = spark.createDataFrame([(b"{",)], "value binary")
    messages = lake_tables.messages(spark, [insert(ONE, 1, 1)]).unionAll(unread)
    rows = decode(messages, "native-json")
    dispatcher(spark, lake, LATER).apply(rows, Marker("test", "q", 0))
    (message,) = lake_tables.CODEC.encode(replace(insert(ONE, 2, 2), key=None)).messages
    (entry,) = pending_entries(open_lake(spark, lake, Path(lake).name)).collect()
    file = load(str(pipeline(lake)))
    (report,) = replay(spark, file, EntryFilter(), Settings(), {entry["entry"]: message})
    dispatcher(spark, lake, LATER).merge(all_of_them=True)
    ids = lake_tables.table_of(spark, lake, ONE).select("id").collect()
    assert [row["id"] for row in ids] == [1]
    assert report.quarantined == {"no_key": 1}


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_what_a_replay_merges_before_is_rejected_as_in_a_run(
    spark: SparkSession, lake: str
) -> None:
    take(spark, dispatcher(spark, lake, DIRECT), [insert(ONE, 1, 1)], 0)
    unread = spark.createDataFrame([(b"{",)], "value binary")
    waiting = lake_tables.messages(spark, [replace(insert(ONE, 2, 2), key=None)])
    rows = decode(waiting.unionAll(unread), "native-json")
    dispatcher(spark, lake, LATER).apply(rows, Marker("test", "q", 1))
    (message,) = lake_tables.CODEC.encode(insert(TWO, 1, 1)).messages
    (entry,) = pending_entries(open_lake(spark, lake, Path(lake).name)).collect()
    file = load(str(pipeline(lake)))
    stopping = replace(file, options=replace(file.options, on_error="stop"))
    repaired = {entry["entry"]: message}
    with pytest.raises(BudgetError, match="no_key"):
        replay(spark, stopping, EntryFilter(), Settings(), repaired)
    assert lake_tables.table_of(spark, lake, "_changelane/quarantine").count() == 1
    (report,) = replay(spark, file, EntryFilter(), Settings(), repaired)
    assert (report.quarantined, report.waiting_quarantined) == ({}, {"no_key": 1})
    assert report.tables == {"shop.two": 1}
