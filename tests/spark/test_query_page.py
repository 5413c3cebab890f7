# SPDX-License-Identifier: Apache-2.0
"""The statements for Spark in ``docs/query.md`` run as they are printed, and mean what it says."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lake_tables
import pytest
from pyspark.sql import DataFrame, SparkSession

from changelane.event import DataChange, Key, Op
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.lake.modes import Modes, TableMode
from changelane.types import Integer, String

PAGE = Path(__file__).resolve().parents[2] / "docs" / "query.md"
BLOCK = re.compile(r"^```sql\n(.*?)^```", re.DOTALL | re.MULTILINE)
SCHEMA = TableSchema(
    (Column("id", Integer(32)), Column("state", String()), Column("total", Integer(32)))
)
MODES = Modes(
    tables={
        "users": TableMode(keeps_deleted=True),
        "prices": TableMode("history"),
        "clicks": TableMode("append"),
    }
)

pytestmark = pytest.mark.skipif(
    not {"delta", "iceberg"} <= set(lake_tables.LAKES), reason="both are on Spark 4"
)


def change(table: str, op: str, at: int, **row: Any) -> DataChange:
    before, after = (row, None) if op == "d" else (None, row)
    time_ns = 1_767_225_600 * 10**9 + {1: 0, 2: 14, 3: 45}[at] * 86_400 * 10**9
    return DataChange(
        Op(op),
        TableId("shop", None, table),
        Key(("id",)),
        before,
        after,
        SCHEMA,
        SequencePosition(at),
        source_time_ns=time_ns,
    )


EVENTS = [
    change("orders", "c", 1, id=1, state="new", total=5),
    change("orders", "u", 2, id=1, state="paid", total=5),
    # the total of a row that nobody told
    change("orders", "u", 2, id=2, state="paid"),
    change("users", "c", 1, id=1, state="in", total=1),
    change("users", "c", 1, id=2, state="in", total=1),
    change("users", "d", 2, id=2),
    change("prices", "c", 1, id=1, state="x", total=5),
    change("prices", "u", 3, id=1, state="x", total=7),
    change("clicks", "c", 1, id=1, state="a", total=1),
    change("clicks", "u", 2, id=1, state="b", total=1),
]


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of its own, whose catalog of the page goes with it."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    yield own
    own.sql("DROP DATABASE IF EXISTS shop CASCADE")


def blocks(folder: Path) -> list[list[str]]:
    """The statements of each block; the lake of the page is one of Delta, or of Iceberg."""
    found = []
    for block in BLOCK.findall(PAGE.read_text("utf-8")):
        text = re.sub(r"(?<=[`'])lake/", f"{folder}/delta/", block)
        text = text.replace("warehouse = lake/", f"warehouse = {folder}/iceberg")
        found.append([statement for statement in text.split(";") if statement.strip()])
    return found


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in frame.collect()), key=str)


def test_the_statements_for_spark_run_and_mean_what_the_page_says(
    spark: SparkSession, session: SparkSession, tmp_path: Path
) -> None:
    lake_tables.apply(spark, str(tmp_path / "delta"), EVENTS, modes=MODES)
    lake_tables.apply(spark, str(tmp_path / "iceberg"), EVENTS[:3])
    results = []
    for statements in blocks(tmp_path):
        for statement in statements:
            result = session.sql(statement)
        results.append(result)
    delta, named, iceberg, view, kept, versions, newest, unknown, history, snapshots = map(
        rows, results
    )
    paid = [{"id": 1, "state": "paid", "total": 5}, {"id": 2, "state": "paid", "total": None}]
    assert delta == iceberg == view == paid
    assert named == [{"count(1)": 2}]
    assert [row["id"] for row in kept] == [1]
    assert [row["total"] for row in versions] == [5]
    assert [(row["id"], row["newest"]["state"]) for row in newest] == [(1, "b")]
    assert unknown == [{"id": 2, "unknown": ["total"]}]
    assert any('"pipeline":"test"' in (row["userMetadata"] or "") for row in history)
    assert any("test" in row["summary"].get("changelane.app", "") for row in snapshots)


def test_the_view_of_the_page_takes_new_columns_of_its_table(
    spark: SparkSession, session: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path / "delta")
    lake_tables.apply(spark, lake, EVENTS[:1])
    _, named, _, view, *_ = blocks(tmp_path)
    for statement in (*named, *view):
        session.sql(statement)
    schema = TableSchema((*SCHEMA.columns, Column("note", String())))
    row = {"id": 1, "state": "new", "total": 5, "note": "more"}
    more = DataChange(
        Op.UPDATE,
        TableId("shop", None, "orders"),
        Key(("id",)),
        None,
        row,
        schema,
        SequencePosition(3),
    )
    lake_tables.apply(spark, lake, [more], batch=1)
    assert rows(session.sql("SELECT * FROM shop.orders")) == [row]
