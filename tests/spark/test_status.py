"""``status`` and ``trace``: what people see of a lake."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import lake_tables
import msgspec
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from spark_settings import lakes

from changelane.cli import main
from changelane.errors import ConfigError
from changelane.event import DataChange, Key, Op, Truncate
from changelane.position import MySqlPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark import decode
from changelane.spark.apply.applier import Applier
from changelane.spark.apply.dispatch import MergeSchedule, TableDispatcher
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import Marker
from changelane.spark.maintenance.status import NO_TABLE, status
from changelane.spark.maintenance.trace import ColumnState, trace
from changelane.spark.state.replays import QUERY
from changelane.types import UNAVAILABLE, Integer, String

TABLE: Final = TableId("shop", None, "orders")
SCHEMA: Final = TableSchema((Column("id", Integer()), Column("state", String())))
TIME_NS: Final = 1_700_000_000_000_000_000


def change(op: str, pos: int, after: Any, before: Any = None, schema: Any = SCHEMA) -> DataChange:
    position = MySqlPosition("binlog.000003", pos)
    return DataChange(
        Op(op), TABLE, Key(("id",)), before, after, schema, position, source_time_ns=TIME_NS + pos
    )


FIT: Final = [
    change("c", 1, {"id": 1, "state": "new"}),
    change("u", 4, {"id": 1, "state": "paid"}),
    change("u", 5, {"id": 2, "state": UNAVAILABLE}),
    change("c", 6, {"id": 3, "state": "gone"}),
    change("u", 7, {"id": 4, "state": "gone"}, {"id": 3, "state": "gone"}),
]
MISFIT: Final = change(
    "u",
    9,
    {"id": 1, "state": 3},
    schema=TableSchema((Column("id", Integer()), Column("state", Integer()))),
)


@pytest.fixture
def tables(spark: SparkSession, lake: str) -> Any:
    lake_tables.land(
        spark, lake, [FIT, [MISFIT, Truncate(TABLE, position=MySqlPosition("b.000002", 1))]]
    )
    return open_lake(spark, lake, Path(lake).name)


def test_status_tells_what_each_table_holds(tables: Any) -> None:
    (one,) = status(tables)
    assert (one.table, one.rows, one.incomplete, one.quarantined) == ("shop.orders", 3, 1, 1)
    assert one.tombstones == 1
    assert one.position == "binary log 3, position 7"
    assert one.source_time_ms == TIME_NS // 1_000_000
    assert (one.pipeline, one.batch) == ("test", 0)
    now_ms = dt.datetime.now(dt.UTC).timestamp() * 1000
    assert one.committed_ms is not None
    assert now_ms - 600_000 < one.committed_ms <= now_ms


def test_status_counts_what_each_table_took(spark: SparkSession, lake: str) -> None:
    again, late = (
        change("u", 4, {"id": 1, "state": "paid"}),
        change("c", 2, {"id": 7, "state": "x"}),
    )
    tied = [change("c", 8, {"id": 9, "state": word}) for word in ("a", "b", "b")]
    lake_tables.land(spark, lake, [FIT, [MISFIT], [again, late, *tied, MISFIT]])
    (one,) = status(open_lake(spark, lake, Path(lake).name))
    # the misfit is quarantined, and stands behind all that the table took
    assert (one.applied, one.out_of_order, one.conflicts, one.quarantined) == (10, 2, 1, 2)
    assert one.position == "binary log 3, position 8"
    lake_tables.apply(spark, lake, [late], batch=3)
    (one,) = status(open_lake(spark, lake, Path(lake).name))
    assert (one.applied, one.out_of_order, one.position) == (11, 3, "binary log 3, position 8")
    assert one.source_time_ms == (TIME_NS + 8) // 1_000_000


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_a_replay_is_no_batch_of_a_run(spark: SparkSession, lake: str) -> None:
    """Replays have numbers of their own, from 1 on."""
    for number, one in enumerate(FIT[:3]):
        lake_tables.apply(spark, lake, [one], batch=number)
    late = change("c", 3, {"id": 5, "state": "late"})
    lake_tables.apply(spark, lake, [late], batch=1, query=QUERY)
    tables = open_lake(spark, lake, Path(lake).name)
    (one,) = status(tables)
    assert (one.applied, one.pipeline, one.batch) == (4, "test", 2)
    assert (one.position, one.source_time_ms) == ("binary log 3, position 5", TIME_NS // 1_000_000)
    (event,) = trace(tables, "orders", {"id": 5}).events
    assert event.commits == ["replay 1 of test"]


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_undecodable_messages_of_other_pipelines_are_not_counted(
    spark: SparkSession, lake: str
) -> None:
    for number, pipeline in enumerate(["test", "other", "other"]):
        events = decode(spark.createDataFrame([(b"{broken",)], "value binary"), "native-json")
        tables = open_lake(spark, lake, Path(lake).name)
        Applier(spark, tables).apply(events, Marker(pipeline, "q", number))
    counts = {name: [one.quarantined for one in status(tables, name)] for name in ("test", "other")}
    assert counts == {"test": [1], "other": [2]}
    assert status(tables, "new") == []
    assert [(one.table, one.quarantined) for one in status(tables)] == [(NO_TABLE, 3)]


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_table_of_which_all_is_set_aside_is_shown(spark: SparkSession, lake: str) -> None:
    keyless = msgspec.structs.replace(FIT[0], key=None)
    lake_tables.land(spark, lake, [[keyless]])
    (one,) = status(open_lake(spark, lake, Path(lake).name))
    assert (one.table, one.rows, one.applied, one.quarantined) == ("shop.orders", 0, 0, 1)


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_what_others_tell_in_their_commits_is_theirs(spark: SparkSession, lake: str) -> None:
    lake_tables.land(spark, lake, [FIT])
    place = open_lake(spark, lake, "delta")
    (name,) = place.tables()
    other = spark.newSession()
    for number, told in enumerate(("nightly fix", '{"job": 1}', "[]"), 1):
        other.conf.set("spark.databricks.delta.commitInfo.userMetadata", told)
        other.sql(f"DELETE FROM {place.sql(name)} WHERE id = {number}")
        lake_tables.apply(
            spark, lake, [change("c", 10 + number, {"id": 9, "state": "x"})], batch=number
        )
        assert status(place)[0].applied == 5 + number
        assert trace(place, "orders", {"id": 9}).events[-1].commits == [f"batch {number} of test"]


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_what_a_table_took_is_known_when_its_log_has_forgotten_the_commit(
    spark: SparkSession, lake: str
) -> None:
    lake_tables.land(spark, lake, [FIT])
    place: Any = open_lake(spark, lake, "delta")
    (name,) = place.tables()
    before = place.last_commit(name)
    place.expire(name, 0)
    place._log(name).checkpoint()
    commits = sorted(Path(place.path(name), "_delta_log").glob("*.json"))
    for old in commits[:-1]:
        old.unlink()
    assert list(place.marked_commits(name)) == []
    assert place.last_commit(name) == before
    assert status(place)[0].applied == 5


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_trace_tells_where_each_column_comes_from(tables: Any) -> None:
    found = trace(tables, "orders", {"id": 1})
    at = "binary log 3, position 4"
    assert found.columns == [
        ColumnState("id", "1", known=True, position=at),
        ColumnState("state", "paid", known=True, position=at),
    ]
    assert found.truncated == "binary log 2, position 1"
    assert [(one.position, one.effect.partition(":")[0]) for one in found.events] == [
        ("binary log 2, position 1", "truncated the table"),
        (at, "set every column"),
        ("binary log 3, position 9", "quarantined"),
    ]
    assert [one.commits for one in found.events] == [[], ["batch 0 of test"], []]
    (line,) = found.quarantined
    assert line.startswith("schema_mismatch: column 'state' is string in the table and BIGINT")
    partial = trace(tables, "shop.orders", {"id": 2})
    assert [column.known for column in partial.columns] == [True, False]


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_trace_tells_what_waits_for_a_table(spark: SparkSession, lake: str) -> None:
    place = open_lake(spark, lake, Path(lake).name)
    to = TableDispatcher(
        place, Applier(spark, place), "test", MergeSchedule(True, events=5, seconds=1e6)
    )
    truncate = Truncate(TABLE, position=MySqlPosition("binlog.000003", 9))
    later = [change("d", 8, None, {"id": 1, "state": "paid"}), truncate]
    for number, batch in enumerate([FIT, later]):
        events = decode(lake_tables.messages(spark, batch), "native-json")
        to.apply(events, Marker("test", "q", number))
    found = trace(place, "orders", {"id": 1}, "test")
    assert [(one.position, one.effect, one.commits) for one in found.events] == [
        ("binary log 3, position 4", "set every column", ["batch 0 of test"]),
        ("binary log 3, position 8", "delete: waits in the change log (batch 1)", []),
        (
            "binary log 3, position 9",
            "truncate of the table: waits in the change log (batch 1)",
            [],
        ),
    ]
    # another pipeline of the lake sees the same: the log still has the merged events
    for pipeline in ("test", "other"):
        (one,) = status(place, pipeline)
        assert (one.rows, one.applied, one.pending) == (3, 5, 2)
        assert trace(place, "orders", {"id": 1}, pipeline).events == found.events


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_trace_tells_where_a_row_went(tables: Any) -> None:
    found = trace(tables, "orders", {"id": 3})
    assert (found.columns, found.moved_to) == ([], "[4]")
    assert found.deleted == "binary log 3, position 7"
    assert [(one.effect, one.commits) for one in found.events if "row" in one.effect] == [
        ("moved the row to [4]", ["batch 0 of test"])
    ]
    with pytest.raises(ConfigError, match="the key columns of orders are: id"):
        trace(tables, "orders", {"state": "x"})
    with pytest.raises(ConfigError, match=r"the key column id is .*int, and 'abc' is none"):
        trace(tables, "orders", {"id": "abc"})
    with pytest.raises(ConfigError, match="is none"):
        trace(tables, "orders", {"id": Decimal("1e999999999")})
    with pytest.raises(ConfigError, match="no table is called 'nothing'"):
        trace(tables, "nothing", {"id": 1})


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_the_commands_show_it(spark: SparkSession, tables: Any, lake: str, tmp_path: Path) -> None:
    assert spark.sparkContext.appName
    assert tables.tables()
    file = tmp_path / "pipeline.yaml"
    name = Path(lake).name
    file.write_text(
        "name: test\nsource: {type: files, path: in, format: native-json}\n"
        f"sink: {{type: {name}, path: {name}}}\n"
    )
    shown = CliRunner().invoke(main, ["status", str(file)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert "shop.orders" in shown.stdout
    assert "binary log 3, position 7" in shown.stdout
    told = CliRunner().invoke(main, ["status", str(file), "--output", "json"])
    assert msgspec.json.decode(told.stdout)[0]["rows"] == 3
    shown = CliRunner().invoke(
        main, ["trace", str(file), "--table", "orders", "--key", "id=1"], env={"COLUMNS": "200"}
    )
    assert shown.exit_code == 0, shown.output
    assert "paid" in shown.stdout
    assert "quarantined: schema_mismatch" in shown.stdout
