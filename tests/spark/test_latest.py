# SPDX-License-Identifier: Apache-2.0
"""The newest rows of tables, the change log included, are those of the next merge."""

import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lake_tables
import msgspec
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from spark_settings import lakes
from test_crash import BATCHES, LOG, ONE, TWO, change, dies_at, insert
from test_crash import DiedError as CrashedError
from test_dispatch import LATER, DiedError, altered, dispatcher, dying, take
from uncommitted import content

from changelane.cli import main
from changelane.errors import MissingViewsError, UnknownNameError
from changelane.schema import TableId
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import name_of
from changelane.spark.lake.uncommitted import VersionedLake
from changelane.spark.rows.schema import table_id_text
from changelane.spark.run.latest import create_latest_views, latest_tables, view_names
from changelane.spark.state.change_log import ChangeLog


def pipeline(lake: str, **options: Any) -> Path:
    """Write the pipeline of :func:`dispatcher`."""
    file = Path(lake).parent / "pipeline.yaml"
    kind = Path(lake).name
    config = {
        "name": "test",
        "source": {"type": "files", "path": f"{Path(lake).parent}/in", "format": "native-json"},
        "sink": {"type": kind, "path": lake},
        "options": {"merge": "deferred", "tables_without_key": "append", **options},
    }
    file.write_bytes(msgspec.json.encode(config))
    return file


def latest(spark: SparkSession, lake: str, *tables: str) -> dict[str, Counter[str]]:
    """Return the rows of the views of tables, by the last part of their names."""
    found = latest_tables(pipeline(lake), tables, spark=spark)
    assert not found.failed
    return {table.name: content(rows) for table, rows in found.tables.items()}


def committed(spark: SparkSession, lake: str) -> dict[str, Counter[str]]:
    tables = open_lake(spark, lake, Path(lake).name)
    return {name.rpartition(".")[2]: content(tables.read(name)) for name in tables.tables()}


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_the_views_are_the_tables_after_the_next_merge(spark: SparkSession, lake: str) -> None:
    """Deletes, key changes that lack columns, truncates, late events; tables without a key."""
    waiting = dispatcher(spark, lake, LATER)
    assert latest_tables(pipeline(lake), spark=spark).tables == {}
    merged: dict[str, Counter[str]] = {}
    for number, batch in enumerate(BATCHES):
        take(spark, waiting, batch, number)
        assert committed(spark, lake) == merged
        rows = latest_tables(pipeline(lake), spark=spark).tables
        found = {table.name or "": content(frame) for table, frame in rows.items()}
        are_as_in_memory(rows, number)
        if number == 0:
            waiting.merge(all_of_them=True)
            assert committed(spark, lake) == (merged := found)
    waiting.merge(all_of_them=True)
    assert committed(spark, lake) == found == latest(spark, lake)


def are_as_in_memory(rows: Mapping[TableId, DataFrame], number: int) -> None:
    """Compare the views with the tables in memory after a batch."""
    oracle = lake_tables.oracle(BATCHES[: number + 1])
    assert sorted(map(str, rows)) == ["shop.log", "shop.one", "shop.two"]
    for table in (ONE, TWO):
        found = {row["id"]: row for row in rows[table].select("id", "a", "b").collect()}
        expected = lake_tables.remembered(oracle, table).rows.values()
        assert {key: row.asDict() for key, row in found.items()} == {
            row["id"]: row for row in expected
        }
    assert rows[LOG].count() == len(oracle.rows(LOG))


@pytest.mark.long
@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_views_after_a_crash_between_the_tables_of_a_merge(spark: SparkSession, lake: str) -> None:
    waiting = dispatcher(spark, lake, LATER)
    take(spark, waiting, BATCHES[0], 0)
    take(spark, waiting, BATCHES[1], 1)
    found = latest(spark, lake)
    for place in ("after the side table", "between two tables"):
        with pytest.MonkeyPatch.context() as patch:
            dies_at(place)(patch)
            with pytest.raises(CrashedError):
                dispatcher(spark, lake, LATER).merge(all_of_them=True)
        assert latest(spark, lake) == found, place
    # the log is appended, the rest of the batch is not
    with pytest.MonkeyPatch.context() as patch:
        dying(patch, ChangeLog, "append")
        with pytest.raises(DiedError):
            take(spark, dispatcher(spark, lake, LATER), BATCHES[2], 2)
    found = latest(spark, lake)
    again = dispatcher(spark, lake, LATER)
    take(spark, again, BATCHES[2], 2)
    # of one table only
    assert latest(spark, lake, "shop.two") == {"two": found["two"]}
    again.merge(all_of_them=True)
    assert committed(spark, lake) == found


@pytest.mark.long
@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_merge_that_begins_while_the_tables_are_read(spark: SparkSession, lake: str) -> None:
    """Its tombstones would move rows of the tables, with the events of neither state."""
    waiting = dispatcher(spark, lake, LATER)
    take(spark, waiting, BATCHES[0], 0)
    waiting.merge(all_of_them=True)
    take(spark, waiting, [insert(ONE, 6, 9)], 1)
    pending, calls = ChangeLog.pending_by_pipeline, iter(range(9))

    def then_merge(self: ChangeLog) -> Any:
        found = pending(self)
        if next(calls) == 0:
            take(spark, waiting, BATCHES[1], 2)
            with pytest.MonkeyPatch.context() as patch:
                dies_at("after the side table")(patch)
                with pytest.raises(CrashedError):
                    waiting.merge(all_of_them=True)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChangeLog, "pending_by_pipeline", then_merge)
        found = latest(spark, lake, "one")
    assert next(calls) > 1
    dispatcher(spark, lake, LATER).merge(all_of_them=True)
    assert found == {"one": committed(spark, lake)["one"]}


@pytest.mark.long
@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_frames_stay_the_same_while_the_pipeline_goes_on(spark: SparkSession, lake: str) -> None:
    """Their rows are those of one version, whatever is merged, compacted or deleted since."""
    waiting = dispatcher(spark, lake, LATER)
    take(spark, waiting, BATCHES[0], 0)
    waiting.merge(all_of_them=True)
    take(spark, waiting, BATCHES[1], 1)
    frames = latest_tables(pipeline(lake), spark=spark).tables
    found = {table: content(rows) for table, rows in frames.items()}
    waiting.merge(all_of_them=True)
    renamed = altered(15, "ALTER TABLE one RENAME COLUMN a TO letter, ADD COLUMN more INT")
    take(spark, waiting, [renamed, *BATCHES[2]], 2)
    waiting.merge(all_of_them=True)
    assert {table: content(rows) for table, rows in frames.items()} == found
    columns = latest_tables(pipeline(lake), ["one"], spark=spark).tables[ONE].columns
    assert "letter" in columns
    assert "a" not in columns


def test_a_version_is_read_with_the_columns_of_the_table(spark: SparkSession, lake: str) -> None:
    """In Iceberg a change of the schema makes no snapshot, and a snapshot has the older names."""
    lake_tables.apply(spark, lake, [insert(ONE, 1, 1)])
    tables, name = open_lake(spark, lake, Path(lake).name), name_of(table_id_text(ONE))
    assert isinstance(tables, VersionedLake)
    version = tables.version(name)
    tables.rename_column(name, "a", "c")
    tables.rename_column(name, "b", "a")
    tables.add_columns(name, {"b": "INT"})
    assert tables.version(name) != version
    (row,) = tables.pinned(name).select("id", "a", "b", "c").collect()
    assert tuple(row) == (1, "b", None, "a1")
    assert content(tables.pinned(name)) == content(tables.read(name))


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_renamed_table_has_its_new_name(spark: SparkSession, lake: str) -> None:
    """A new table has the old name; the statement and the rows of both wait for a merge."""
    new = TableId("shop", None, "uno")
    waiting = dispatcher(spark, lake, LATER)
    take(spark, waiting, [insert(ONE, 1, 1), insert(TWO, 1, 1)], 0)
    waiting.merge(all_of_them=True)
    statement = altered(2, "RENAME TABLE shop.one TO shop.uno")
    removed = change(new, "d", 5, None, {"id": 9})
    take(spark, waiting, [statement, insert(new, 3, 2), insert(ONE, 4, 3), removed], 1)
    rows, _, tombstones, names = latest_tables(pipeline(lake), ["uno", "one"], spark=spark)
    assert {str(table): name.partition("~")[0] for table, name in names.items()} == {
        "shop.uno": "tables/shop.one",
        "shop.one": "tables/shop.one",
    }
    assert len({*names.values()}) == 2
    ids = {str(t): sorted(row["id"] for row in frame.collect()) for t, frame in rows.items()}
    assert ids == {"shop.uno": [1, 2], "shop.one": [3]}
    keys = {str(t): [row["key"] for row in frame.collect()] for t, frame in tombstones.items()}
    assert keys == {"shop.uno": ["[9]"], "shop.one": []}
    found = {table.name: content(frame) for table, frame in rows.items()}
    waiting.merge(all_of_them=True)
    rows = latest_tables(pipeline(lake), ["uno", "one"], spark=spark).tables
    assert {table.name: content(frame) for table, frame in rows.items()} == found


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_views_in_sql(spark: SparkSession, lake: str) -> None:
    take(spark, dispatcher(spark, lake, LATER), BATCHES[0], 0)
    file = pipeline(lake)
    assert create_latest_views(file, ["one"], spark=spark) == {"one_latest": ONE}
    assert spark.sql("SELECT sum(id) FROM one_latest").collect()[0][0] == 3
    sql = "SELECT id, b AS `[b]` FROM two_latest ORDER BY id;"
    shown = CliRunner().invoke(main, ["query", str(file), sql])
    assert shown.exit_code == 0
    assert shown.stdout.split() == ["id", "[b]", "1", "toast", "2", "b"]
    settings = dict(spark.sql("SET").collect())
    sql = sql.replace("b AS", "cast(NULL AS INT) AS z, b AS")
    shown = CliRunner().invoke(main, ["query", str(file), sql, "--output=json", "--limit=1"])
    assert shown.stdout == '{"id":1,"z":null,"[b]":"toast"}\n'
    assert dict(spark.sql("SET").collect()) == settings  # the session may be a program's
    assert "only the first 1 rows" in shown.stderr
    # a reader of the JSON would lose the first of two equal names
    sql = "SELECT o.id, t.id FROM one_latest o, two_latest t"
    shown = CliRunner().invoke(main, ["query", str(file), sql, "--output=json"])
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert "several columns are called id" in shown.stderr
    assert CliRunner().invoke(main, ["query", str(file), sql]).exit_code == 0
    # PySpark logs errors in SQL with the values of rows; they are raised, too
    shown = CliRunner().invoke(main, ["query", str(file), "SELECT cast('47x' AS INT)"])
    assert (shown.exit_code, "47x" in shown.output) == (1, False)
    assert not logging.getLogger("SQLQueryContextLogger").isEnabledFor(logging.ERROR)
    shown = CliRunner().invoke(main, ["query", str(file), "DROP VIEW one_latest"])
    assert shown.exit_code == 1
    assert spark.table("one_latest").count() == 2
    with pytest.raises(UnknownNameError, match=r"shop\.one"):
        latest_tables(file, ["shop.onne"], spark=spark)
    with pytest.MonkeyPatch.context() as patch:
        lake_tables.merges_fail(patch, "SELECT cast(4711 AS tinyint)", ONE)
        with pytest.raises(MissingViewsError, match=r"shop\.one"):
            create_latest_views(file, spark=spark)
        assert not spark.catalog.tableExists("one_latest")
        shown = CliRunner().invoke(main, ["query", str(file), "SELECT count(*) FROM two_latest"])
        assert (shown.exit_code, shown.stdout.split()) == (0, ["count(1)", "2"])
        assert "shop.one" in shown.stderr


def test_names_of_views() -> None:
    tables = [TableId("shop", None, "one"), TableId("mall", "x", "One"), TableId("mall", "x", "b`")]
    assert list(view_names(dict.fromkeys(tables))) == [
        "shop_one_latest",
        "mall_x_One_latest",
        "b`_latest",
    ]
