"""Large tables with small batches: changed rows are marked as deleted, and compacted later."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import lake_tables
import pytest
from lake_tables import LAKES
from pyspark.sql import SparkSession
from spark_settings import lakes, lakes_with

from changelane.event import DataChange, Key, Op
from changelane.pipeline.options import Maintenance
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.apply.applier import Applier
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import MergeMode
from changelane.spark.lake.layout import Layout, Layouts
from changelane.spark.lake.modes import Modes, TableMode
from changelane.spark.maintenance.compaction import MaintenanceReport, MaintenanceScheduler
from changelane.spark.maintenance.purge import EventBounds
from changelane.types import Integer, String

TABLE: Final = TableId("shop", None, "orders")
ID: Final = '["shop",null,"orders"]'
NAME: Final = "tables/shop.orders"
SCHEMA: Final = TableSchema(
    (Column("id", Integer(64)), Column("v", Integer(32)), Column("s", String()))
)
LIMITS: Final = Maintenance(every_commits=4, merge_on_read_mb=0)

pytestmark = pytest.mark.skipif(set(LAKES) == {"hudi"}, reason="Hudi maintains its tables itself")


def row(sequence: int, op: str = "u", **image: Any) -> DataChange:
    images = (image, None) if op == "d" else (None, image)
    return DataChange(
        Op(op), TABLE, Key(("id",)), *images, schema=SCHEMA, position=SequencePosition(sequence)
    )


def changes(first: int, ids: range, value: int) -> list[DataChange]:
    return [
        row(first + n, id=key, v=value, s=None if key % 7 == 0 else f"é {key}")
        for n, key in enumerate(ids)
    ]


def maintain(spark: SparkSession, lake: str, *, force: bool = False) -> list[MaintenanceReport]:
    applier = Applier(spark, lake, table_format=Path(lake).name)
    scheduler: MaintenanceScheduler = applier.maintenance_scheduler(LIMITS)
    reports = scheduler.maintain_all() if force else scheduler.after_run({ID: EventBounds(b"")})
    return [report for report in reports if report.table == NAME]


def values(spark: SparkSession, lake: str) -> dict[int, int]:
    rows = lake_tables.table_of(spark, lake, NAME).select("id", "v").collect()
    assert len(rows) == len({found["id"] for found in rows})
    return {found["id"]: found["v"] for found in rows}


def data_files(spark: SparkSession, lake: str) -> set[str]:
    tables: Any = open_lake(spark, lake, Path(lake).name)
    if Path(lake).name == "iceberg":
        found = spark.table(f"{tables.sql(NAME)}.files").where("content = 0")
        return {file["file_path"] for file in found.select("file_path").collect()}
    return set(tables.read(NAME).inputFiles())


@pytest.fixture
def loaded(spark: SparkSession, lake: str) -> str:
    """A lake with a table of 400 rows, after its first maintenance."""
    lake_tables.apply(spark, lake, changes(1, range(400), 0), batch=0)
    (report,) = maintain(spark, lake)
    assert report.merge_mode is MergeMode.MERGE_ON_READ
    assert not report.is_compacted
    return lake


def test_a_small_batch_keeps_the_files_of_a_large_table(spark: SparkSession, loaded: str) -> None:
    before = data_files(spark, loaded)
    assert maintain(spark, loaded) == []  # its mode is right, and nothing else is due
    deletes = [row(600 + n, "d", id=n, v=1) for n in range(3)]
    lake_tables.apply(spark, loaded, changes(500, range(10), 1) + deletes, batch=1, is_small=True)
    expected = dict.fromkeys(range(400), 0) | dict.fromkeys(range(10), 1)
    expected = {key: value for key, value in expected.items() if key > 2}
    assert values(spark, loaded) == expected
    assert before < data_files(spark, loaded)
    tables: Any = open_lake(spark, loaded, Path(loaded).name)
    files = tables.files(NAME, 1 << 20)
    assert (files.rows, files.deleted_rows) == (407, 10)

    # a later change of a row that is already marked, and of others in the same file
    lake_tables.apply(spark, loaded, changes(700, range(5, 15), 2), batch=2, is_small=False)
    expected |= dict.fromkeys(range(5, 15), 2)
    assert values(spark, loaded) == expected

    (report,) = maintain(spark, loaded, force=True)
    assert report.is_compacted
    assert report.deleted_rows
    assert tables.files(NAME, 1 << 20).deleted_rows == 0
    assert values(spark, loaded) == expected
    assert tables.last_commit(NAME).details["batch"] == 2


def test_many_deleted_rows_are_compacted_however_few_the_files(
    spark: SparkSession, loaded: str
) -> None:
    for batch in (1, 2, 3):
        first = batch * 15
        lake_tables.apply(
            spark, loaded, changes(batch * 500, range(first, first + 15), batch), batch=batch
        )
    tables: Any = open_lake(spark, loaded, Path(loaded).name)
    assert tables.files(NAME, 1 << 20).deleted_rows == 45
    expected = values(spark, loaded)
    (report,) = maintain(spark, loaded)
    assert (report.deleted_rows, report.is_compacted, report.merge_mode) == (45, True, None)
    assert tables.files(NAME, 1 << 20).deleted_rows == 0
    assert values(spark, loaded) == expected


def test_large_batches_are_copied_on_write(spark: SparkSession, loaded: str) -> None:
    for batch in (1, 2, 3, 4):
        lake_tables.apply(spark, loaded, changes(batch * 500, range(200), batch), batch=batch)
    (report,) = maintain(spark, loaded)
    assert report.merge_mode is MergeMode.COPY_ON_WRITE
    expected = dict.fromkeys(range(400), 0) | dict.fromkeys(range(200), 4)
    assert values(spark, loaded) == expected
    before = data_files(spark, loaded)
    lake_tables.apply(spark, loaded, changes(9000, range(10), 5), batch=5, is_small=True)
    assert not before <= data_files(spark, loaded)
    assert values(spark, loaded) == expected | dict.fromkeys(range(10), 5)


CHOSEN: Final = {
    "mode": {
        "iceberg": {"write.merge.mode": "copy-on-write"},
        "delta": {"delta.EnableDeletionVectors": "false"},
    },
    # with these, neither format has rows that are marked as deleted
    "readers": {
        "iceberg": {"format-version": "1"},
        "delta": {"delta.enableIcebergCompatV2": "true"},
    },
}


@pytest.mark.parametrize(("lake", "choice"), lakes_with("readers", "mode"), indirect=["lake"])
def test_a_mode_that_the_user_sets_stays(spark: SparkSession, lake: str, choice: str) -> None:
    properties = CHOSEN[choice][Path(lake).name]
    layouts = Layouts(Layout(properties=properties))
    lake_tables.apply(spark, lake, changes(1, range(400), 0), batch=0, layouts=layouts)
    assert maintain(spark, lake) == []
    assert [report.merge_mode for report in maintain(spark, lake, force=True)] == [None]
    before = data_files(spark, lake)
    lake_tables.apply(spark, lake, changes(500, range(10), 1), batch=1, layouts=layouts)
    assert not before <= data_files(spark, lake)
    assert values(spark, lake) == dict.fromkeys(range(400), 0) | dict.fromkeys(range(10), 1)


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_a_mode_that_the_user_sets_by_sql_stays(spark: SparkSession, lake: str) -> None:
    lake_tables.apply(spark, lake, changes(1, range(400), 0), batch=0)
    tables: Any = open_lake(spark, lake, Path(lake).name)
    tables.set_format_properties(NAME, tables.merge_mode_properties(MergeMode.MERGE_ON_READ))
    for batch in (1, 2, 3):
        lake_tables.apply(spark, lake, changes(batch * 500, range(300), batch), batch=batch)
    assert [report.merge_mode for report in maintain(spark, lake, force=True)] == [None]
    assert tables.merge_mode(NAME) is MergeMode.MERGE_ON_READ


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_table_that_only_gets_new_rows_keeps_its_mode(spark: SparkSession, lake: str) -> None:
    options: dict[str, Any] = {"modes": Modes(TableMode("append"))}
    lake_tables.apply(spark, lake, changes(1, range(400), 0), batch=0, **options)
    assert maintain(spark, lake) == []
    assert [report.merge_mode for report in maintain(spark, lake, force=True)] == [None]


# Readers that are not Spark --------------------------------------------------------------------

Rows = list[tuple[Any, ...]]


def _duckdb(extension: str, *others: str) -> Any:
    duckdb = pytest.importorskip("duckdb", reason="the extra `readers` is not installed")
    import_extension = pytest.importorskip("duckdb_extensions").import_extension
    connection = duckdb.connect()
    for name in (*others, extension):
        import_extension(name)
        connection.load_extension(name)
    return connection


def _metadata(folder: Path) -> str:
    newest = (folder / "metadata/version-hint.text").read_text().strip()
    return str(folder / f"metadata/v{newest}.metadata.json")


def _duckdb_iceberg(folder: Path) -> Rows:
    scan = "SELECT id, v, s FROM iceberg_scan(?)"
    return _duckdb("iceberg", "avro").execute(scan, [_metadata(folder)]).fetchall()


def _pyiceberg(folder: Path) -> Rows:
    tables = pytest.importorskip("pyiceberg.table", reason="the extra `readers` is not installed")
    table = tables.StaticTable.from_metadata(_metadata(folder))
    arrow = table.scan(selected_fields=("id", "v", "s")).to_arrow()
    return [tuple(found.values()) for found in arrow.to_pylist()]


def _duckdb_delta(folder: Path) -> Rows:
    scan = "SELECT id, v, s FROM delta_scan(?)"
    return _duckdb("delta").execute(scan, [str(folder)]).fetchall()


def _deltalake(folder: Path) -> Rows:
    deltalake = pytest.importorskip("deltalake", reason="the extra `readers` is not installed")
    table = deltalake.DeltaTable(str(folder))
    # it ignores deletion vectors and the mapping of columns, so it must refuse the table
    with pytest.raises(deltalake.exceptions.DeltaError):
        table.to_pyarrow_table()
    found = deltalake.QueryBuilder().register("t", table).execute("SELECT id, v, s FROM t")
    arrow = pytest.importorskip("pyarrow").table(found.read_all())
    return [tuple(row.values()) for row in arrow.to_pylist()]


READERS: Final[dict[str, dict[str, Callable[[Path], Rows]]]] = {
    "iceberg": {"duckdb": _duckdb_iceberg, "pyiceberg": _pyiceberg},
    "delta": {"duckdb": _duckdb_delta, "deltalake": _deltalake},
}


def test_other_readers_read_the_same_rows(spark: SparkSession, loaded: str) -> None:
    readers, folder = READERS[Path(loaded).name], Path(loaded) / NAME
    assert {name: len(read(folder)) for name, read in readers.items()} == dict.fromkeys(
        readers, 400
    )
    for batch in (1, 2):
        deletes = [row(batch * 1000 + n, "d", id=100 * batch + n, v=1) for n in range(5)]
        changed = changes(batch * 500, range(batch * 10, batch * 10 + 20), batch)
        lake_tables.apply(spark, loaded, changed + deletes, batch=batch, is_small=batch == 1)
    table = lake_tables.table_of(spark, loaded, NAME).select("id", "v", "s")
    expected = sorted(tuple(found) for found in table.collect())
    assert len(expected) == 390
    for name, read in readers.items():
        assert sorted(read(folder)) == expected, name
