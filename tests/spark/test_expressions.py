# SPDX-License-Identifier: Apache-2.0
"""``filter`` and ``compute`` by SQL expressions, inside a pipeline."""

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import lake_tables
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from changelane.errors import ConfigError
from changelane.event import ChangeEvent, DataChange, HalfUpdate, Image, Key, Op
from changelane.pipeline.config import load
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark import decode
from changelane.spark.apply.applier import Applier
from changelane.spark.lake.interface import Marker
from changelane.spark.maintenance.quarantine_view import EntryFilter
from changelane.spark.replay.replay import replay
from changelane.spark.rows.expressions.apply import apply_expressions
from changelane.spark.rows.expressions.expression_rows import prepared_transforms
from changelane.spark.rows.expressions.sql_expression import SqlExpression
from changelane.spark.run.tables import RunReport, run
from changelane.spark.state.replays import Settings
from changelane.transforms.filter_compute import Filter
from changelane.types import Integer, String

ROW: Final = {"id": "int64", "total": "decimal(10,2)", "n`a": "int32", "status": "string"}


class Log:
    """Writes messages, each at its own place in a MySQL log."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.lines: list[bytes] = []

    def add(self, op: str, **fields: Any) -> None:
        pos = 10 * (len(self.lines) + 1)
        told = {
            "op": op,
            "table": {"database": "shop", "name": self.table},
            "position": {"domain": "mysql", "file": "binlog.000001", "pos": pos},
            "source": {"product": "mysql", "server": "shop"},
            "key": ["id"],
            "schema": [{"name": name, "type": kind} for name, kind in ROW.items()],
        }
        self.lines.append(json.dumps(told | fields).encode() + b"\n")


class Landed(NamedTuple):
    """Where tables lie, and what was quarantined on the way."""

    place: Path
    quarantined: dict[str, int]


def row(nr: int, total: str, n: int | None, status: str | None) -> dict[str, Any]:
    return {"id": nr, "total": total, "n`a": n, "status": status}


def landed_by(
    spark: SparkSession, tmp_path: Path, transforms: str, batches: list[list[bytes]]
) -> RunReport:
    text = f"""
name: shop
source:
  {{type: files, path: input, format: native-json, line_format: value, max_files_per_batch: 1}}
transforms: {transforms}
sink: {{type: delta, path: delta}}
"""
    (tmp_path / "input").mkdir()
    (tmp_path / "pipeline.yaml").write_text(text)
    for number, batch in enumerate(batches):
        (tmp_path / "input" / f"{number}.jsonl").write_bytes(b"".join(batch))
    return run(spark, load(tmp_path / "pipeline.yaml"))


def table(spark: SparkSession, tmp_path: Path, name: str = "orders") -> list[dict[str, Any]]:
    found = lake_tables.table_of(spark, str(tmp_path / "delta"), TableId("shop", None, name))
    # Python knows no date before the year 1
    shown = found.drop('d"ay', *(one for one in found.columns if one.startswith("_")))
    return [one.asDict() for one in shown.orderBy("id").collect()]


FILTER: Final = """
  - {type: project, tables: [shop.other], drop: [status]}
  - type: filter
    tables: [shop.late, shop.other]
    where: "status <> 'draft' AND (100 / `n``a` > 1 OR 100 / `n``a` < -1) -- why not"
"""


def filter_log(table: str) -> list[bytes]:
    log = Log(table)
    for nr in range(1, 9):
        log.add("c", after=row(nr, "1.50", 5, "draft" if nr == 2 else "paid"))
    log.add("c", after=row(9, "1.00", 0, "paid"))  # divides by zero
    log.add("c", after=row(10, "1.00", None, "paid"))  # NULL is not true
    log.add("c", after=row(11, "1.00", 5000, "paid"))  # false
    log.add("u", before=row(1, "1.50", 5, "paid"), after=row(1, "2.50", 5, "draft"))  # leaves
    log.add("u", before=row(2, "1.50", 5, "draft"), after=row(2, "2.50", 5, "paid"))  # enters
    part = {"id": 3, "n`a": 6, "status": "paid"}
    log.add("u", before=row(3, "1.50", 5, "paid"), after=part)  # stays, in part
    log.add("u", before={"id": 4}, after={"id": 4, "n`a": 6, "status": "paid"})  # was it there?
    log.add("u", before={"id": 5}, after={"id": 5, "n`a": 7})  # and its status?
    log.add("u", before=row(6, "1.50", 5, "paid"), after=row(60, "9.50", 5, "draft"))  # moves out
    log.add("u", before=row(7, "1.50", 5, "paid"), after=row(70, "9.50", 5, "paid"))  # moves
    log.add("d", before={"id": 8})
    log.add("u", before={"id": 3}, after={"id": 3, "n`a": 5000, "status": "paid"})  # out, in part
    log.add("c", after=row(3, "7.00", 1, "paid"))  # and in again
    return log.lines


@pytest.fixture(scope="module")
def landed_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Landed:
    """All of it in one run of two batches: of the filtered table the newest events come first."""
    place = tmp_path_factory.mktemp("expressions")
    late, others = filter_log("late")[::-1], Log("other")
    others.add("c", after=row(1, "1.50", 5, "paid"))  # lost the column that is read
    batches = [late[:12], late[12:] + others.lines + compute_log()]
    return Landed(place, landed_by(spark, place, FILTER + COMPUTE, batches).quarantined)


def test_rows_that_do_not_pass_a_filter_are_not_in_the_table_whatever_comes_when(
    spark: SparkSession, landed_once: Landed
) -> None:
    place, quarantined = landed_once
    assert quarantined["filter_unknown"] == 3 + 1
    assert quarantined["filter_failed"] == 1
    found = {one["id"]: str(one["total"]) for one in table(spark, place, "late")}
    # 4 and 5 stay as they were before what was quarantined
    assert found == {2: "2.50", 3: "7.00", 4: "1.50", 5: "1.50", 70: "9.50"}
    aside = lake_tables.table_of(spark, str(place / "delta"), "_changelane/quarantine")
    told = aside.where("code LIKE 'filter_%'").select("event", "reason").collect()
    assert all(json.loads(one["event"])["key"] for one in told)
    assert not [one for one in told if "paid" in one["reason"] or "draft" in one["reason"]]
    assert aside.where(F.col("table_id").contains("other")).count() == 1


COMPUTE: Final = """
  - type: compute
    tables: [shop.orders]
    columns:
      net: "total * 2"
      Status: "upper(status)"
      'd"ay': "date_add(date'0001-01-01', -400 * cast(id as int))"
      at: "timestamp_seconds(id)"
      local: "cast(timestamp_seconds(id) as timestamp_ntz)"
      raw: "cast(status as binary)"
      ratio: "100D / `n``a`"
  - {type: filter, tables: [shop.orders], where: "STATUS <> 'DRAFT'"}
  - {type: compute, tables: [shop.bad], columns: {id: "id + 1"}}
  - {type: compute, tables: [shop.wrong], columns: {x: "date_add(total, 1)"}}
  - type: compute
    tables: [shop.cast]
    columns: {total: "cast(total as double)", status: "length(status)"}
  - {type: compute, tables: [shop.cast], columns: {status: "status + total"}}
  - {type: filter, tables: [shop.cast], where: "total > 1.4D AND status > 0"}
"""


def compute_log() -> list[bytes]:
    log = Log("orders")
    for nr in range(1, 8):
        log.add("c", after=row(nr, "0.10", 8, "draft" if nr == 2 else "paid"))
    log.add("c", after=row(8, "1.00", 0, "paid"))  # divides by zero
    log.add("c", after=row(9, "1.00", None, None))
    log.add("u", before=row(3, "0.10", 8, "paid"), after=row(3, "0.20", 4, 'späť "x"'))
    all_but_n = {"id": 4, "total": "0.30", "status": "sent"}
    log.add("u", before=row(4, "0.10", 8, "paid"), after=all_but_n)  # ratio stays
    log.add("u", before={"id": 5}, after={"id": 5, "n`a": 2, "status": "paid"})  # was it there?
    log.add("d", before={"id": 6})
    log.add("d", before=row(7, "0.10", 8, "paid"))
    for log.table in ("bad", "wrong", "free", "cast"):
        log.add("c", after=row(1, "1.50", 5, "paid"))
    return log.lines


def test_computed_columns_are_in_the_table_and_in_later_filters(
    spark: SparkSession, landed_once: Landed
) -> None:
    place, quarantined = landed_once
    assert (quarantined["compute_failed"], quarantined["key_column"]) == (2, 1)
    found = lake_tables.table_of(spark, str(place / "delta"), TableId("shop", None, "orders"))
    shown = found.select(
        "id",
        F.col("net").cast("string"),
        "status",
        F.col('`d"ay`').cast("string").alias("day"),
        F.col("at").cast("bigint"),
        F.col("local").cast("string"),
        F.col("raw").cast("string"),
        "ratio",
    )
    kinds = dict(found.dtypes)
    assert (kinds["net"], kinds["at"], kinds["local"]) == (
        "decimal(12,2)",
        "timestamp",
        "timestamp_ntz",
    )
    rows = {one["id"]: tuple(one)[1:] for one in shown.collect()}
    assert rows == {
        1: ("0.20", "PAID", "-0001-11-28", 1, "1970-01-01 00:00:01", "paid", 12.5),
        3: ("0.40", 'SPÄŤ "X"', "-0003-09-19", 3, "1970-01-01 00:00:03", 'späť "x"', 25.0),
        4: ("0.60", "SENT", "-0004-08-15", 4, "1970-01-01 00:00:04", "sent", 12.5),
        5: ("0.20", "PAID", "-0005-07-12", 5, "1970-01-01 00:00:05", "paid", 12.5),
    }
    assert [one["status"] for one in table(spark, place, "free")] == ["paid"]
    assert table(spark, place, "cast") == [{"id": 1, "total": 1.5, "n`a": 5, "status": 5.5}]


def test_what_was_set_aside_goes_once_through_the_expressions_that_were_mended(
    spark: SparkSession, landed_once: Landed
) -> None:
    place, _ = landed_once
    file = place / "pipeline.yaml"
    mended = file.read_text().replace("100D / `n``a`", "try_divide(100D, `n``a`)")
    file.write_text(mended.replace("100 / `n``a` > 1", "true"))
    (done,) = replay(
        spark, load(file), EntryFilter(codes=("compute_failed", "filter_failed")), Settings()
    )
    assert done.quarantined == {"compute_failed": 1}  # the types of one table still do not fit
    assert {one["id"] for one in table(spark, place, "late")} == {2, 3, 4, 5, 9, 70}
    rows = {one["id"]: one for one in table(spark, place, "orders")}
    assert (str(rows[8]["net"]), rows[8]["status"], rows[8]["ratio"]) == ("2.00", "PAID", None)
    assert bytes(rows[8]["raw"]) == b"paid"


def test_a_row_that_no_longer_passes_does_not_move_to_its_new_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Debezium sends a key change as two messages: the first half has no values of the new row."""
    table, lake = TableId("shop", None, "moving"), str(tmp_path / "delta")
    schema = TableSchema((Column("id", Integer(32)), Column("status", String())))

    def change(op: Op, at: int, before: Image | None, after: Image | None) -> DataChange:
        place = SequencePosition(at)
        return DataChange(op, table, Key(("id",)), before, after, schema, place)

    def halves(at: int, old: int, status: str) -> tuple[ChangeEvent, ChangeEvent]:
        new_row = {"id": old + 10, "status": status}
        first = change(Op.DELETE, at, {"id": old, "status": "paid"}, None)
        second = change(Op.CREATE, at, None, new_row)
        return HalfUpdate(first, {"id": old + 10}), HalfUpdate(second, {"id": old})

    together, first_comes_first = halves(11, 1, "draft"), halves(12, 2, "draft")
    second_comes_first, passing = halves(13, 3, "draft"), halves(14, 4, "sent")
    inserts = [change(Op.CREATE, n, None, {"id": n, "status": "paid"}) for n in range(1, 6)]
    whole = change(Op.UPDATE, 15, {"id": 5, "status": "paid"}, {"id": 15, "status": "draft"})
    batches = [
        [*inserts, *together, first_comes_first[0], second_comes_first[1]],
        [first_comes_first[1], second_comes_first[0], *passing, whole],
    ]
    (step,) = prepared_transforms(spark, [Filter(where="status <> 'draft'")])
    for number, batch in enumerate(batches):
        events = decode(lake_tables.messages(spark, batch), "native-json", images=True)
        with apply_expressions(events, [step]) as rows:
            Applier(spark, lake, table_format="delta").apply(rows, Marker("test", "q", number))
    landed = lake_tables.table_of(spark, lake, table).select("id", "status").collect()
    assert [tuple(one) for one in landed] == [(14, "sent")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("total >", "no SQL expression"),
        ("total > (select 1)", "subquery"),
        ("exists (select 1)", "subquery"),
        ("sum(total) > 1", "aggregates"),
        ("sum(total) over () > 1", "other rows"),
        ("explode(total)", "several rows"),
        ("rand() < total", "another run"),
        ("day < now()", "another run"),
        ("day < CURRENT_DATE", "another run"),
        ("exists(days, day -> day < current_date)", "another run"),
        ("day < date 'today'", "current time"),
        ("unix_timestamp() > total", "another run"),
        ("nosuch(total)", "not a built-in function"),
        ("1 = 1", "reads no column"),
        ("struct(*)", "star"),
        ("total > :limit", "parameter"),
    ],
)
def test_what_is_no_expression_over_one_row_is_refused_at_the_start(
    spark: SparkSession, text: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        SqlExpression(spark, text, "transform 1 (filter)")


def test_names_of_columns_are_found_where_they_stand(spark: SparkSession) -> None:
    text = "'\U0001f600 x' = `a b` and transform(c, x -> x + d)[0] > `select`.e -- f"
    assert set(SqlExpression(spark, text, "here").columns) == {"a b", "c", "d", "select"}


def test_append_shows_no_value_that_a_compute_replaced(spark: SparkSession, tmp_path: Path) -> None:
    log = Log("orders")
    log.add("u", before=row(1, "1.50", 5, "paid"), after=row(1, "2.50", 5, "sent"))
    log.add("u", before={"id": 1, "total": "2.50"}, after=row(1, "3.50", 5, "sent"))
    transforms = """
  - type: compute
    tables: [shop.orders]
    columns: {status: "left(status, 1)", total: "cast(total as double)"}
options: {mode: append}
"""
    landed_by(spark, tmp_path, transforms, [log.lines])
    found = lake_tables.table_of(spark, str(tmp_path / "delta"), TableId("shop", None, "orders"))
    rows = found.orderBy("_changelane_order").select("_changelane_before").collect()
    assert [json.loads(one[0]) for one in rows] == [
        {"id": 1, "total": 1.5, "n`a": 5, "status": "p"},
        {"id": 1, "total": 2.5},
    ]
