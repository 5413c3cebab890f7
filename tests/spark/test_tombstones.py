"""The tombstone table: appended tombstones, the newest per key, and their replacement."""

from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from spark_settings import lakes

from changelane.pipeline.options import Maintenance
from changelane.schema import TableId
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import MaintainedLake, name_of
from changelane.spark.maintenance.compaction import MaintenanceScheduler
from changelane.spark.rows.batch_stats import TableBatch
from changelane.spark.rows.schema import table_id_text
from changelane.spark.state import tombstones
from changelane.spark.state.tombstones import TableTombstones, TombstoneTable, tombstones_after

SCHEMA: Final = (
    "table_id string, key string, deleted binary, moved_to string, truncated binary, "
    "source_time timestamp"
)
Row = tuple[Any, ...]


def frame(spark: SparkSession, *rows: Row) -> DataFrame:
    filled = [(*row, *[None] * (6 - len(row))) for row in rows]
    return spark.createDataFrame(filled, SCHEMA)


def stored(table: TombstoneTable) -> set[Row]:
    columns = ("table_id", "key", "deleted", "moved_to", "truncated", "purged")
    return {
        tuple(bytes(v) if isinstance(v, bytearray) else v for v in row)
        for row in table.table().select(*columns).collect()
    }


def raw_count(spark: SparkSession, lake: str) -> int:
    return open_lake(spark, lake, Path(lake).name).read(tombstones.NAME).count()


def removals(table_id: str, *, deletes: int, truncated: bytes = b"") -> TableBatch:
    batch = TableBatch(table_id)
    batch.departures, batch.newest_truncate = deletes, truncated
    return batch


@pytest.fixture
def maintained(spark: SparkSession, lake: str) -> MaintainedLake:
    opened = open_lake(spark, lake, Path(lake).name)
    if not isinstance(opened, MaintainedLake):
        pytest.skip("the format has maintenance of its own")
    return opened


def test_appended_tombstones_count_once_per_key(
    spark: SparkSession, lake: str, maintained: MaintainedLake
) -> None:
    table = TombstoneTable(spark, maintained)
    late, early = frame(spark, ("a", "[1]", b"\5", "[9]")), frame(spark, ("a", "[1]", b"\3"))
    for rows in (
        late,
        early,
        late,
        frame(spark, ("a", None, None, None, b"\4"), ("b", "[1]", b"\1")),
    ):
        table.record(rows, has_transactions=False)
    assert raw_count(spark, lake) == 5
    expected = {
        ("a", "[1]", b"\5", "[9]", None, None),
        ("a", None, None, None, b"\4", None),
        ("b", "[1]", b"\1", None, None, None),
    }
    assert stored(table) == expected
    table.replace_duplicates()
    assert raw_count(spark, lake) == 3
    assert stored(table) == expected
    before = maintained.commits(tombstones.NAME)
    table.replace_duplicates()
    assert maintained.commits(tombstones.NAME) == before  # nothing to do


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_duplicates_of_table_rows_keep_the_truncate_and_the_watermark(
    spark: SparkSession, maintained: MaintainedLake
) -> None:
    table = TombstoneTable(spark, maintained)
    for truncated in (b"\4", b"\6", b"\5"):
        table.record(frame(spark, ("a", None, None, None, truncated)), has_transactions=False)
    watermarks = spark.createDataFrame(
        [("a", None, b"\7")], "table_id string, key string, purged binary"
    )
    table.record_watermarks(watermarks)
    table.replace_duplicates()
    assert stored(table) == {("a", None, None, None, b"\6", b"\7")}
    assert tombstones.tombstone_watermarks(maintained) == {"a": b"\7"}


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_state_of_transactions_replaces_every_tombstone_of_its_key(
    spark: SparkSession, maintained: MaintainedLake
) -> None:
    table = TombstoneTable(spark, maintained)
    for order in (b"\3", b"\5"):
        table.record(frame(spark, ("a", "[1]", order)), has_transactions=False)
    state = spark.createDataFrame(
        [("a", "[1]", None, None, None, None, "{}", b"\2", b"\2")],
        f"{SCHEMA}, transactions string, within binary, until binary",
    )
    table.record(state)
    assert stored(table) == {("a", "[1]", None, None, None, None)}
    keys = spark.createDataFrame([("[1]",)], "key string")
    (row,) = table.transactions_of("a", keys).collect()
    assert row["transactions"] == "{}"
    table.replace_duplicates()
    assert stored(table) == {("a", "[1]", None, None, None, None)}
    assert table.transactions_of("a").count() == 1


@pytest.mark.parametrize(
    "keys", [None, [("a", "[1]"), ("a", "[4]"), ("b", "[1]")], [("a", "[4]")], [("a", '["\\n"]')]]
)
def test_tombstones_of_known_keys_are_merged_as_those_of_unknown_ones(
    spark: SparkSession, lake: str, keys: list[tuple[str, str]] | None
) -> None:
    """The keys limit what the merge reads; a key outside of them would be added once more."""
    table = TombstoneTable(spark, open_lake(spark, lake, Path(lake).name))
    older = (("a", "[1]", b"\3"), ("a", "[2]", b"\3"), ("b", "[1]", b"\3"))
    table.record(frame(spark, *older, ("a", None, None, None, b"\1")))
    newer = (("a", "[1]", b"\5", "[4]"), ("a", "[4]", b"\1"), ("b", "[1]", b"\2"))
    table.record(frame(spark, *newer, ("a", None, None, None, b"\2")), table_keys=keys)
    assert stored(table) == {
        ("a", "[1]", b"\5", "[4]", None, None),
        ("a", "[2]", b"\3", None, None, None),
        ("a", "[4]", b"\1", None, None, None),
        ("a", None, None, None, b"\2", None),
        ("b", "[1]", b"\3", None, None, None),
    }
    assert raw_count(spark, lake) == 5


def test_moved_keys_are_those_whose_newest_tombstone_is_of_a_move(
    spark: SparkSession, lake: str
) -> None:
    table = TombstoneTable(spark, open_lake(spark, lake, Path(lake).name))
    moved = (("a", "[1]", b"\3", "[9]"), ("a", "[2]", b"\3", "[9]"), ("b", "[3]", b"\3", "[9]"))
    others = (("a", "[1]", b"\2"), ("a", "[2]", b"\4"), ("a", "[5]", b"\4"))
    for row in (*moved, *others, ("a", None, None, None, b"\1")):
        table.record(frame(spark, row), has_transactions=False)
    for are_few in (True, False):
        moved_keys = table.moved_keys("a", are_few=are_few).collect()
        assert [tuple(row) for row in moved_keys] == [("[1]", b"\3", "[9]")]


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_tombstone_that_arrives_during_the_replacement_stays(
    spark: SparkSession, maintained: MaintainedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TombstoneTable(spark, maintained)
    for order in (b"\3", b"\5"):
        table.record(frame(spark, ("a", "[1]", order)), has_transactions=False)
    merge = type(maintained).merge

    def interrupted(self: Any, session: Any, name: str, source: DataFrame, clauses: Any) -> None:
        source = source.localCheckpoint()
        monkeypatch.undo()
        # another pipeline of the lake
        TombstoneTable(spark, maintained).record(
            frame(spark, ("a", "[1]", b"\7")), has_transactions=False
        )
        merge(self, session, name, source, clauses)

    monkeypatch.setattr(type(maintained), "merge", interrupted)
    table.replace_duplicates()
    assert stored(table) == {("a", "[1]", b"\7", None, None, None)}


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_duplicates_of_tables_of_other_pipelines_stay(
    spark: SparkSession, lake: str, maintained: MaintainedLake
) -> None:
    """Their runs may lower a tombstone by the state of a transaction at this moment."""
    table_id = table_id_text(TableId("shop", None, "orders"))
    maintained.create(name_of(table_id), {"id": "int"}, {"run.theirs": "1"})
    table = TombstoneTable(spark, maintained)
    for order in (b"\3", b"\5"):
        table.record(frame(spark, (table_id, "[1]", order)), has_transactions=False)
    table.replace_duplicates("ours")
    assert raw_count(spark, lake) == 2
    table.replace_duplicates("theirs")
    assert raw_count(spark, lake) == 1
    assert stored(table) == {(table_id, "[1]", b"\5", None, None, None)}


def test_maintenance_replaces_duplicates(
    spark: SparkSession, lake: str, maintained: MaintainedLake
) -> None:
    table = TombstoneTable(spark, maintained)
    for _ in range(3):
        table.record(frame(spark, ("a", "[1]", b"\5")), has_transactions=False)
    scheduler = MaintenanceScheduler(maintained, table, None)
    scheduler.maintain_table(tombstones.NAME, force=True)
    assert raw_count(spark, lake) == 1


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_a_file_that_another_pipeline_has_not_committed_yet_stays(
    spark: SparkSession, lake: str, maintained: MaintainedLake
) -> None:
    table = TombstoneTable(spark, maintained)
    new_file = Path(lake) / tombstones.NAME / "new.parquet"
    new_file.touch()
    scheduler = MaintenanceScheduler(maintained, table, Maintenance(snapshot_retention="0 seconds"))
    report = scheduler.maintain_table(tombstones.NAME, force=True)
    assert report is not None
    assert report.is_expired
    assert new_file.exists()


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_maintenance_of_all_tables_leaves_those_of_other_pipelines_alone(
    spark: SparkSession, lake: str, maintained: MaintainedLake
) -> None:
    names = {}
    for pipeline in ("ours", "theirs"):
        table_id = table_id_text(TableId("shop", None, pipeline))
        names[pipeline] = name = name_of(table_id)
        maintained.create(name, {"id": "int"}, {"table": table_id, f"run.{pipeline}": "1"})
        (Path(lake) / name / "new.parquet").touch()  # of a merge that is not committed yet
    limits = Maintenance(snapshot_retention="0 seconds")
    table = TombstoneTable(spark, maintained)
    scheduler = MaintenanceScheduler(maintained, table, limits, pipeline="ours")
    reports = scheduler.maintain_all()
    assert [report.table for report in reports if report.table in names.values()] == [names["ours"]]
    kept = {
        pipeline: (Path(lake) / name / "new.parquet").exists() for pipeline, name in names.items()
    }
    assert kept == {"ours": False, "theirs": True}


def test_tombstones_of_tables_are_read_again_only_after_other_writers(
    spark: SparkSession, maintained: MaintainedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TombstoneTable(spark, maintained)
    reads: list[int] = []
    read = TombstoneTable._read_table_tombstones

    def counted(self: TombstoneTable) -> dict[str, TableTombstones]:
        reads.append(1)
        return read(self)

    monkeypatch.setattr(TombstoneTable, "_read_table_tombstones", counted)
    assert table.table_tombstones() == {}
    after = tombstones_after({}, [removals("a", deletes=1, truncated=b"\4")])
    rows = frame(spark, ("a", "[1]", b"\5"), ("a", None, None, None, b"\4"))
    table.record(rows, after, has_transactions=False)
    assert table.table_tombstones() == {"a": TableTombstones(b"\4", keys=1)}
    # the number of keys is an estimate
    read_again = TombstoneTable(spark, maintained).table_tombstones()
    assert read_again["a"]._replace(keys=1) == TableTombstones(b"\4", keys=1)
    assert len(reads) == 2  # the first, and the one of the other object
    TombstoneTable(spark, maintained).record(
        frame(spark, ("b", "[1]", b"\5", "[2]")), has_transactions=False
    )
    assert table.table_tombstones()["b"] == TableTombstones(moved_keys=1, keys=1)
    assert len(reads) == 3


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_without_the_numbers_after_a_commit_tombstones_are_read_again(
    spark: SparkSession, maintained: MaintainedLake
) -> None:
    table = TombstoneTable(spark, maintained)
    assert table.table_tombstones() == {}
    table.record(frame(spark, ("a", "[1]", b"\5")), None, has_transactions=False)
    assert table.table_tombstones() == {"a": TableTombstones(keys=1)}
