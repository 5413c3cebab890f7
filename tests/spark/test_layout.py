# SPDX-License-Identifier: Apache-2.0
"""How tables are laid out: partitions, properties of the format, and columns added by hand."""

import datetime as dt
from pathlib import Path
from typing import Any, Final

import lake_tables
import pytest
from pyspark.sql import SparkSession
from spark_settings import lakes, lakes_with

from changelane.event import DataChange, Key, Op
from changelane.pipeline.lake_sinks import DELTA_PROPERTIES
from changelane.position import PostgresPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark import decode
from changelane.spark.apply.applier import Applier
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import Marker
from changelane.spark.lake.layout import Layout, Layouts
from changelane.spark.runtime.sql import quoted
from changelane.types import Bytes, InstantType, Integer, String

SCHEMA: Final = TableSchema(
    (Column("id", Integer()), Column("the land?", String()), Column("state", String()))
)
NAMES: Final = [column.name for column in SCHEMA.columns]
TABLE: Final = TableId("shop", None, "orders")
PROPERTY: Final = "write.parquet.compression-codec"
BY_LAND: Final = Layouts(
    Layout(properties={PROPERTY: "zstd"}),
    {"orders": Layout(("THE LAND?",), {PROPERTY: "zstd"})},
)


def change(op: str, at: int, *row: Any, table: TableId = TABLE) -> DataChange:
    image = dict(zip(NAMES, row, strict=False))
    before, after = (image, None) if op == "d" else (None, image)
    return DataChange(Op(op), table, Key(("id",)), before, after, SCHEMA, PostgresPosition(at))


def rows(spark: SparkSession, lake: str, *columns: str) -> list[tuple[Any, ...]]:
    found = lake_tables.table_of(spark, lake, TABLE).select("id", *columns).orderBy("id")
    return [tuple(row) for row in found.collect()]


def format_properties(spark: SparkSession, lake: str) -> dict[str, str]:
    table = open_lake(spark, lake, Path(lake).name).sql("tables/shop.orders")
    shown = spark.sql(f"SHOW TBLPROPERTIES {table}").collect()
    return {row["key"]: row["value"] for row in shown}


def partitions(spark: SparkSession, lake: str) -> set[Any]:
    if Path(lake).name == "delta":  # with column mapping, folders have random names
        table = open_lake(spark, lake, "delta").sql("tables/shop.orders")
        return {row[0] for row in spark.sql(f"SHOW PARTITIONS {table}").collect()}
    folder = Path(lake, "tables", "shop.orders", "data")
    return {path.name for path in folder.iterdir() if "=" in path.name}


BESIDE: Final = {
    "delta": {"delta.enableDeletionVectors": "true"},
    "iceberg": {f"write.{what}.mode": "merge-on-read" for what in ("delete", "merge", "update")},
}
"""What keeps the data files, and tells in others which of their rows went."""


@pytest.mark.parametrize(("lake", "is_beside"), lakes_with(True, False), indirect=["lake"])
def test_rows_move_between_the_partitions_of_a_table_and_leave_all_of_them(
    spark: SparkSession, lake: str, is_beside: bool
) -> None:
    beside = BESIDE[Path(lake).name] if is_beside else {}
    layouts = Layouts(tables={"orders": Layout(("THE LAND?",), {PROPERTY: "zstd", **beside})})
    events = [
        [
            *(change("c", 10, 1, "fr", "new"), change("c", 11, 2, None, "new")),
            *(change("c", 12, number, "fr", "new") for number in (4, 5, 6)),
        ],
        [change("u", 20, 1, "d/e", "paid"), change("c", 21, 3, "fr", "new")],
        [
            *(change("d", 30, 3, "fr", "new"), change("u", 15, 1, "it", "late")),
            # deletes that tell the key alone, and another partition than the row's
            *(change("d", 31, 4), change("d", 32, 5, "it", "new")),
        ],
    ]
    for number, batch in enumerate(events):
        report = lake_tables.apply(spark, lake, batch, batch=number, layouts=layouts)
        assert not report.quarantined, report
    found = rows(spark, lake, "`the land?`", "state")
    assert found == [(1, "d/e", "paid"), (2, None, "new"), (6, "fr", "new")]
    assert len(partitions(spark, lake)) >= 3
    assert format_properties(spark, lake)[PROPERTY] == "zstd"
    if Path(lake).name == "iceberg":
        deletes = open_lake(spark, lake, "iceberg").sql("tables/shop.orders")
        found = spark.table(f"{deletes}.all_delete_files").collect()
        # never an equality delete: by position it says which row went
        assert {row["content"] for row in found} == ({1} if is_beside else set())


def test_a_table_keeps_its_partitions_and_takes_new_properties(
    spark: SparkSession, lake: str
) -> None:
    lake_tables.apply(spark, lake, [change("c", 10, 1, "fr", "new")], layouts=BY_LAND)
    later = Layouts(Layout(("state",), {PROPERTY: "gzip"}))
    event = change("u", 20, 1, "de", "paid")
    report = lake_tables.apply(spark, lake, [event], batch=1, layouts=later)
    (table,) = report.tables
    assert table.note == "the table keeps the partitions of its creation: THE LAND?"
    assert format_properties(spark, lake)[PROPERTY] == "gzip"
    assert rows(spark, lake, "state") == [(1, "paid")]


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_text_that_a_partition_would_lose_is_set_aside(spark: SparkSession, lake: str) -> None:
    batches = [
        [change("c", 10, 1, "", "new"), change("c", 11, 2, "fr", "new"), change("c", 12, 3, None)],
        [change("u", 20, 2, "", "paid"), change("d", 21, 1, "")],
    ]
    told = [
        lake_tables.apply(spark, lake, batch, batch=number, layouts=BY_LAND).quarantined
        for number, batch in enumerate(batches)
    ]
    is_delta = Path(lake).name == "delta"
    assert told == ([{"lost_partition": 1}, {"lost_partition": 1}] if is_delta else [{}, {}])
    found = {row[0]: row[1] for row in rows(spark, lake, "`the land?`")}
    assert found == ({2: "fr", 3: None} if is_delta else {2: "", 3: None})


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_a_value_that_a_partition_would_change_is_set_aside(spark: SparkSession, lake: str) -> None:
    kinds = {"id": Integer(), "raw": Bytes(), "at": InstantType(6)}
    schema = TableSchema(tuple(Column(name, kind) for name, kind in kinds.items()))
    first = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
    images = [(1, b"\xff", first), (2, b"a", "-0044-03-15T00:00:00Z"), (3, "é".encode(), first)]
    events = [
        DataChange(
            Op.CREATE,
            TABLE,
            Key(("id",)),
            after=dict(zip(kinds, image, strict=True)),
            schema=schema,
            position=PostgresPosition(10 + image[0]),
        )
        for image in images
    ]
    layouts = Layouts(Layout(("raw", "at")))
    is_delta = Path(lake).name == "delta"
    report = lake_tables.apply(spark, lake, events, layouts=layouts)
    assert report.quarantined == ({"lost_partition": 2} if is_delta else {})
    stored = lake_tables.table_of(spark, lake, TABLE)
    found = stored.selectExpr("id", "hex(raw)", "string(at)").where("id = 3").collect()
    assert [tuple(row) for row in found] == [(3, "C3A9", "0001-01-01 00:00:00")]
    assert stored.count() == (1 if is_delta else 3)


def test_a_partition_that_no_event_has_yet_is_refused(spark: SparkSession, lake: str) -> None:
    layouts = Layouts(Layout(("country",)))
    report = lake_tables.apply(spark, lake, [change("c", 10, 1, "fr", "new")], layouts=layouts)
    assert report.quarantined == {"schema_mismatch": 1}
    assert open_lake(spark, lake, Path(lake).name).tables() == []


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_what_somebody_wrote_into_a_column_of_their_own_stays(
    spark: SparkSession, lake: str
) -> None:
    lake_tables.apply(
        spark, lake, [change("c", 10, 1, "fr", "new"), change("c", 10, 2, "fr", "new")]
    )
    tables = open_lake(spark, lake, Path(lake).name)
    name = tables.sql("tables/shop.orders")
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (note STRING)")
    spark.sql(f"UPDATE {name} SET note = 'ours'")
    batch = [change("u", 20, 1, "fr", "paid"), change("c", 21, 3, "fr", "new")]
    lake_tables.apply(spark, lake, batch, batch=1)
    # a partial update takes the column form of the statement
    lake_tables.apply(spark, lake, [change("u", 30, 2, "it")], batch=2)
    assert rows(spark, lake, "state", "note") == [
        (1, "paid", "ours"),
        (2, "new", "ours"),
        (3, "new", None),
    ]


def test_tables_lie_where_a_location_says(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    if Path(lake).name == "iceberg":
        url = f"jdbc:sqlite:{tmp_path}/catalog.db"
        more: dict[str, Any] = {
            "catalog": {"type": "jdbc", "uri": url, "warehouse": f"file:{tmp_path}/warehouse"},
            "namespace": "a `shop`",
        }
    else:
        more = {}
    kind = Path(lake).name
    tables = open_lake(spark, lake, kind, location=f"{tmp_path}/far/{{table}}", **more)
    (tmp_path / "far" / "foreign").mkdir(parents=True)
    batches = [
        [change("c", 10, 1, "fr", "new"), change("c", 10, 2, "fr", "new")],
        [change("u", 20, 1, "de", "paid"), change("d", 21, 2)],
    ]
    for number, batch in enumerate(batches):
        events = decode(lake_tables.messages(spark, batch), "native-json")
        Applier(spark, tables).apply(events, Marker("test", "q", number))
    assert tables.tables() == ["tables/shop.orders"]
    found = tables.read("tables/shop.orders").select(*map(quoted, NAMES)).collect()
    assert [tuple(row) for row in found] == [(1, "de", "paid")]
    assert (tmp_path / "far" / "shop.orders").is_dir()
    assert tables.last_batch("tables/shop.orders", Marker("test", "q", 1)) == 1
    tables.compact("tables/shop.orders", 1 << 20)
    tables.expire("tables/shop.orders", 0)
    assert tables.last_batch("tables/shop.orders", Marker("test", "q", 1)) == 1


def test_the_properties_that_a_pipeline_may_name_are_those_of_delta(
    spark: SparkSession, lake: str
) -> None:
    if Path(lake).name != "delta":
        return
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    kind = loader.loadClass("org.apache.spark.sql.delta.DeltaConfigs$")
    (field,) = [one for one in kind.getDeclaredFields() if one.getName().endswith("entries")]
    field.setAccessible(True)
    found = field.get(kind.getField("MODULE$").get(None))
    known = {str(found.get(name).key()) for name in found.keySet()}
    own = {f"delta.{name}" for name in DELTA_PROPERTIES}
    assert known == own if spark.version.startswith("4.1") else known < own
