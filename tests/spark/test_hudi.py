"""What only Hudi tables have: record keys and names that Hudi does not take, properties, markers.

Collected where Spark is 3.5 (`make test-hudi`); the tests of all formats run there, too.
"""

import datetime as dt
import decimal
import json
from itertools import islice
from pathlib import Path
from typing import Final

import lake_tables
import pytest
import random_kills
from click.testing import CliRunner
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from test_seed_jobs import JOBS

from changelane.cli import main
from changelane.event import DataChange, Key, Op, SchemaChange, Source
from changelane.position import MySqlPosition, SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.evolution.evolution_state import Evolution
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.hudi import Hudi
from changelane.spark.lake.interface import Marker
from changelane.spark.lake.merge import Clause, Merge
from changelane.types import Bytes, Date, Decimal, Integer, String, Timestamp

TABLE: Final = TableId("shop", None, "odd keys")
NAME: Final = "tables/shop.odd~20keys"
KEY_COLUMNS: Final = (
    Column("order no.", String()),
    Column("_hoodie_record_key", Decimal(10, 2)),
    Column("1st`", Bytes()),
    Column("at", Timestamp(6)),
    Column("day", Date()),
    Column("n", Integer()),
)
# a column that would delete its row if Hudi knew it by this name
SCHEMA: Final = TableSchema((*KEY_COLUMNS, Column("_hoodie_is_deleted", Integer())))
KEY: Final = Key(tuple(column.name for column in KEY_COLUMNS))
AT: Final = dt.datetime(1583, 1, 1, 0, 0, 0, 1)
LATER: Final = AT.replace(microsecond=2)
DAY: Final = dt.date(1, 1, 1)
ONE: Final = decimal.Decimal("1.50")
KEYS: Final = [
    ("a,b", ONE, b"\xff", AT, DAY, 1),
    ('a","b', ONE, b"\xff", AT, DAY, 1),
    ("a,b", decimal.Decimal("1.51"), b"\xff", AT, DAY, 1),
    ("a,b", ONE, b"\xfe", AT, DAY, 1),
    ("a,b", ONE, b"\xff", LATER, DAY, 1),
    ("", ONE, b"", AT, DAY, None),
    (None, ONE, b"", AT, DAY, None),
    ("null", ONE, b"", AT, DAY, None),
    (None, None, None, None, None, None),
]


def change(op: str, at: int, number: int, value: int | None = None) -> DataChange:
    image = dict(zip(KEY.columns, KEYS[number], strict=True)) | {"_hoodie_is_deleted": value}
    before, after = (image, None) if op == "d" else (None, image)
    return DataChange(Op(op), TABLE, KEY, before, after, SCHEMA, SequencePosition(at))


def values(spark: SparkSession, lake: str) -> list[int]:
    found = lake_tables.table_of(spark, lake, TABLE).select("`_hoodie_is_deleted`")
    return sorted(row[0] for row in found.collect())


def hudi(spark: SparkSession, lake: str) -> Hudi:
    found = open_lake(spark, lake, "hudi")
    assert isinstance(found, Hudi)
    return found


def test_keys_that_hudi_would_mix_up_stay_apart_and_deleted_rows_stay_gone(
    spark: SparkSession, lake: str
) -> None:
    every = range(len(KEYS))
    batches = [
        [change("c", 10, number, number) for number in every],
        [
            *(change("u", 20, number, 100 + number) for number in every if number != 8),
            *(change("d", 30, 0), change("d", 31, 5), change("d", 32, 8)),
        ],
        # late: a row that went, and one that is newer
        [change("c", 25, 0, 7), change("u", 15, 1, 7), change("u", 29, 8, 7)],
    ]
    reports = lake_tables.land(spark, lake, batches)
    assert [report.quarantined for report in reports] == [{}] * 3
    assert values(spark, lake) == [101, 102, 103, 104, 106, 107]
    stored = spark.read.format("hudi").load(lake_tables.path(lake, TABLE))
    assert stored.columns[5:] == [
        "_changelane_key",
        "_hoodie_is_deleted",
        "order_x0020_no_x002E_",
        "_x005F_hoodie_record_key",
        "_x0031_st_x0060_",
        "at",
        "day",
        "n",
        "_x005F_hoodie_is_deleted",
        "_changelane_order",
        "_changelane_columns",
    ]
    assert stored.select("_hoodie_is_deleted").distinct().collect() == [(False,)]
    told = [column.name for column in SCHEMA.columns]
    assert list(hudi(spark, lake).columns(NAME)) == [*told, *stored.columns[-2:]]


def test_integers_are_widened_and_rows_in_old_files_stay(spark: SparkSession, lake: str) -> None:
    table, key = TableId("shop", None, "numbers"), Key(("id",))
    narrow, wide = (
        TableSchema((Column("id", Integer(bits)), Column("v", Integer(bits)))) for bits in (32, 64)
    )

    def insert(schema: TableSchema, row: int, value: int) -> DataChange:
        image = {"id": row, "v": value}
        return DataChange(Op.CREATE, table, key, None, image, schema, SequencePosition(row + 1))

    rows = [(number, -number) for number in range(8)]
    reports = lake_tables.land(spark, lake, [[insert(narrow, *row) for row in rows]])
    # one bucket of two gets the row, and the other one still has a file of the narrow type
    rows.append((1 << 40, (1 << 31) + 1))
    reports += lake_tables.land(spark, lake, [[insert(wide, *rows[-1])]], first=1)
    assert [report.quarantined for report in reports] == [{}, {}]
    found = lake_tables.table_of(spark, lake, table).select("id", "v")
    assert sorted(found.collect()) == rows
    assert found.where("id = 1 OR v = 2147483649").count() == 2
    # a number that would be 1 in 32 bits
    assert found.where(f"id = {(1 << 32) + 1}").isEmpty()
    assert {kind for _, kind in found.dtypes} == {"bigint"}


def test_a_table_that_stops_at_a_drop_continues_with_dropped_columns_keep(
    spark: SparkSession, lake: str
) -> None:
    def insert(position: int, row: dict[str, int]) -> DataChange:
        table, place = TableId("shop", None, "dropped"), MySqlPosition("b.000001", position)
        schema = TableSchema(tuple(Column(name, Integer()) for name in row))
        return DataChange(Op.CREATE, table, Key(("id",)), None, row, schema, place)

    first = insert(1, {"id": 1, "a": 1})
    source, place = Source(product="mysql"), MySqlPosition("b.000001", 2)
    statement = "ALTER TABLE dropped DROP COLUMN a"
    drop = SchemaChange(first.table, "alter", statement, position=place, source=source)
    lake_tables.apply(spark, lake, [first])
    batch = [drop, insert(3, {"id": 2})]
    drops, keeps = Evolution(dropped_columns="drop"), Evolution(dropped_columns="keep")
    report = lake_tables.apply(spark, lake, batch, batch=1, evolution=drops)
    assert report.quarantined == {"schema_change": 1}
    assert "set `dropped_columns: keep`" in report.tables[0].note
    report = lake_tables.apply(spark, lake, batch, batch=2, evolution=keeps)
    assert report.quarantined == {}
    found = lake_tables.table_of(spark, lake, first.table).select("id", "a")
    assert sorted(found.collect()) == [(1, 1), (2, None)]


def test_two_rows_for_one_row_of_the_table_stop_the_commit(spark: SparkSession, lake: str) -> None:
    lake_of = hudi(spark, lake)
    lake_of.create("tables/t", {"id": "int", "v": "int"}, {})
    told = Merge(["id"], [Clause("", {"v": "s.`v`"})], {"id": "s.`id`", "v": "s.`v`"})
    marker = Marker("test", "q", 0)
    session = lake_of.commit_session(marker, {})
    twice = spark.createDataFrame([(1, 1), (1, 2), (2, 2)], "id int, v int")
    with pytest.raises(Py4JJavaError, match="two rows of one batch have one key"):
        lake_of.merge(session, "tables/t", twice, told)
    assert lake_of.read("tables/t").count() == 0
    assert lake_of.last_batch("tables/t", marker) is None
    lake_of.merge(session, "tables/t", twice.where("v = 2"), told)
    assert sorted(lake_of.read("tables/t").collect()) == [(1, 2), (2, 2)]
    assert lake_of.last_batch("tables/t", marker) == 0


def test_every_commit_repeats_the_last_batch_of_each_stream(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake_of = hudi(spark, lake)
    lake_of.create("tables/t", {"id": "int"}, {})
    one, other = Marker("a", "q", 4), Marker("a", "another", 1)
    row = spark.createDataFrame([(1,)], "id int")
    lake_of.append(lake_of.commit_session(one, {"source": "é"}), "tables/t", row)
    lake_of.append(lake_of.commit_session(other, {}), "tables/t", row)
    lake_of.delete(spark, "tables/t", "id = 2")
    lake_of.add_columns("tables/t", {"more": "string"})
    newest = next(lake_of._commits("tables/t"))[1]
    assert "changelane.commit.details" not in newest
    assert [lake_of.last_batch("tables/t", marker) for marker in (one, other)] == [4, 1]
    commit = lake_of.last_commit("tables/t")
    assert commit is not None
    assert commit.details["query"] == "another"
    age_s = dt.datetime.now(dt.UTC).timestamp() - commit.time_ms / 1000
    assert -5 < age_s < 600
    assert lake_of.read("tables/t").collect() == [(1, None), (1, None)]
    # Hudi archives all commits but the newest ones
    commits = Hudi._commits
    monkeypatch.setattr(Hudi, "_commits", lambda self, table: islice(commits(self, table), 1))
    assert list(lake_of.marked_commits("tables/t")) == []
    assert lake_of.last_commit("tables/t") == commit
    assert [lake_of.last_batch("tables/t", marker) for marker in (one, other)] == [4, 1]


def test_a_death_while_properties_are_written_loses_none(spark: SparkSession, lake: str) -> None:
    """Hudi copies the file, writes it anew, and removes the copy."""
    lake_of = hudi(spark, lake)
    lake_of.create("tables/t", {"id": "int"}, {"exceptions": "true", "odd": "=: \\ü\n#"})
    file = Path(lake_of.path("tables/t"), ".hoodie", "hoodie.properties")
    file.rename(file.with_name("hoodie.properties.backup"))
    assert lake_of.exists("tables/t")
    lake_of.create("tables/t", {"id": "int"}, {})
    assert lake_of.properties("tables/t")["odd"] == "=: \\ü\n#"
    lake_of.set_properties("tables/t", {"more": "yes"})
    assert file.exists()
    found = lake_of.properties("tables/t")
    assert found["buckets"] == spark.conf.get("hoodie.bucket.index.num.buckets") == "2"
    assert (found["exceptions"], found["more"]) == ("true", "yes")


def test_cdl_lands_with_unique_as_record_key(spark: SparkSession, tmp_path: Path) -> None:
    """Seed 001: CDL JSON 1.0 and 2.0 into Hudi, read with Hudi's own reader."""
    for job in ("001", "001, version 2.0"):
        codec, table, messages, expected = JOBS[job]
        folder = tmp_path / codec
        (folder / "in").mkdir(parents=True)
        lines = "".join(f"{message}\n" for _, message in reversed(messages))
        (folder / "in" / "messages.jsonl").write_text(lines)
        pipeline = {
            "name": "cdl",
            "source": {"type": "files", "path": "in", "format": codec},
            "sink": {"type": "hudi", "path": "hudi"},
        }
        (folder / "pipeline.yaml").write_text(json.dumps(pipeline))
        done = CliRunner().invoke(main, ["run", str(folder / "pipeline.yaml")])
        assert done.exit_code == 0, done.output
        found = spark.read.format("hudi").load(lake_tables.path(str(folder / "hudi"), table))
        keys = {str(number).encode().hex().upper() + "." for number in expected}
        assert {row["_hoodie_record_key"] for row in found.collect()} == keys
        names = next(iter(expected.values())).keys()
        rows = {row["id"]: {name: row[name] for name in names} for row in found.collect()}
        assert rows == expected


def test_what_hudi_prints_is_not_in_the_output_of_a_command(spark: SparkSession) -> None:
    """It measures objects with JOL, which prints warnings to stdout."""
    system = spark._jvm.java.lang.System
    assert system.out.equals(system.err)


def test_a_run_that_is_killed_between_two_tables_ends_like_the_oracle(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = random_kills.write(tmp_path, "hudi", random_kills.FEW[:2])
    random_kills.killed_at(stream, ["between two tables"])
    random_kills.finish(stream)
    assert random_kills.differences(spark, stream) == []
