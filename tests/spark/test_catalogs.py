"""Iceberg tables in a REST catalog and in Hive's metastore: exactly once, and other columns."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import iceberg_catalogs
import lake_tables
import pytest
from pyspark.sql import SparkSession
from test_crash import DiedError

from changelane.event import ChangeEvent, DataChange, Key, Op
from changelane.position import PostgresPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark import decode
from changelane.spark.apply.applier import Applier
from changelane.spark.apply.table_writer import TableWriter
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.iceberg import Iceberg
from changelane.spark.lake.interface import Lake, Marker, name_of
from changelane.spark.rows.batch_stats import BatchReport
from changelane.spark.rows.schema import table_id_text
from changelane.spark.runtime.sql import quoted
from changelane.types import Integer, String

pytestmark = pytest.mark.skipif("iceberg" not in lake_tables.LAKES, reason="Iceberg is on Spark 4")

NAMESPACES: Final = {"rest": "a `shop`", "hive": "a_shop"}
ODD: Final = TableId("Shop", None, "Größe 订单.`x`; --")
LONG: Final = TableId("shop", None, "A" * 100)
OLD: Final = TableSchema((Column("id", Integer(32)), Column("Née?", String())))
NEW: Final = TableSchema((Column("id", Integer(64)), *OLD.columns[1:], Column("more", String())))
FAR: Final = 1 << 40


def names_of(schema: TableSchema) -> list[str]:
    return [column.name for column in schema.columns]


def change(table: TableId, op: str, at: int, *row: object, schema: TableSchema = OLD) -> DataChange:
    image: Any = dict(zip(names_of(schema), row, strict=False))
    before, after = (image, None) if op == "d" else (None, image)
    # without a key an event is appended: only the marker keeps it from coming twice
    key = None if table == LONG else Key(("id",))
    return DataChange(Op(op), table, key, before, after, schema, PostgresPosition(at))


BATCHES: Final[list[list[ChangeEvent]]] = [
    [
        change(ODD, "c", 1, 1, "one"),
        change(ODD, "c", 2, 2, "two"),
        change(LONG, "c", 3, 1, "log"),
    ],
    [
        change(ODD, "u", 10, 1, "first"),
        change(ODD, "d", 11, 2),
        change(LONG, "c", 12, 1, "log"),
    ],
    [change(ODD, "c", 20, FAR, "far", "new", schema=NEW), change(ODD, "u", 9, 1, "late")],
]


@pytest.fixture(params=NAMESPACES)
def told(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """What opens a catalog that is a process of its own."""
    with getattr(iceberg_catalogs, request.param)(tmp_path) as options:
        yield {
            "catalog": options,
            "namespace": NAMESPACES[request.param],
            "location": f"{tmp_path}/far/{{table}}",
        }


def take(spark: SparkSession, lake: Lake, number: int) -> BatchReport:
    events = decode(lake_tables.messages(spark, BATCHES[number]), "native-json")
    applier = Applier(spark, lake, tables_without_key="append")
    return applier.apply(events, Marker("test", "q", number))


def rows(lake: Lake, table: TableId, *names: str) -> list[tuple[Any, ...]]:
    found = lake.read(name_of(table_id_text(table))).select(*map(quoted, names))
    return sorted(tuple(row) for row in found.collect())


def wanted(count: int, table: TableId, *names: str) -> list[tuple[Any, ...]]:
    found = lake_tables.oracle(BATCHES[:count], tables_without_key="append").rows(table)
    return sorted(tuple(row.get(name) for name in names) for row in found)


def test_tables_of_a_catalog_get_each_batch_once_and_can_change(
    spark: SparkSession, tmp_path: Path, told: dict[str, Any]
) -> None:
    def opened() -> tuple[SparkSession, Iceberg]:
        # as after a restart: a session of its own knows no table yet
        session = spark.newSession()
        found = open_lake(session, str(tmp_path / "lake"), "iceberg", **told)
        assert isinstance(found, Iceberg)
        return session, found

    session, lake = opened()
    odd, log = name_of(table_id_text(ODD)), name_of(table_id_text(LONG))
    assert not take(session, lake, 0).quarantined
    assert lake.tables() == sorted([odd, log])
    assert Path(tmp_path, "far", odd.removeprefix("tables/")).is_dir()

    # it dies where one of two tables has its rows, and the batch comes again
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableWriter, "write", dying_at(LONG, TableWriter.write))
        with pytest.raises(DiedError):
            take(session, lake, 1)
    session, lake = opened()
    assert take(session, lake, 1).skipped == 1
    assert take(session, lake, 1).skipped == 2
    assert rows(lake, ODD, *names_of(OLD)) == wanted(2, ODD, *names_of(OLD)) == [(1, "first")]
    assert rows(lake, LONG, *names_of(OLD)) == wanted(2, LONG, *names_of(OLD)) == [(1, "log")] * 2

    # a wider column and a new one
    assert not take(session, lake, 2).quarantined
    assert rows(lake, ODD, *names_of(NEW)) == wanted(3, ODD, *names_of(NEW))
    lake.rename_column(odd, "Née?", "b`; --")
    lake.drop_columns(odd, ["more"])
    lake.add_columns(odd, {"more": "date"})
    assert rows(lake, ODD, "id", "b`; --", "more") == [(1, "first", None), (FAR, "far", None)]

    # markers stay when the snapshots that had them are gone
    lake.compact(odd, 1 << 20)
    lake.expire(odd, 0)
    session, lake = opened()
    assert lake.last_batch(odd, Marker("test", "q", 2)) == 2
    assert take(session, lake, 2).skipped == 1
    assert rows(lake, ODD, "id", "more") == [(1, None), (FAR, None)]


def dying_at(table: TableId, method: Any) -> Any:
    """Return a method that dies at one of the tables."""

    def dying(self: Any, batch: Any, one: Any, **more: Any) -> Any:
        if one.table_batch.table_id == table_id_text(table):
            raise DiedError
        return method(self, batch, one, **more)

    return dying
