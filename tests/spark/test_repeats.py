# SPDX-License-Identifier: Apache-2.0
"""What a producer sends again after it was killed, where rows are only added."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import lake_tables
import pytest
from pyspark.sql import SparkSession
from spark_settings import lakes

from changelane.schema import TableId
from changelane.spark import decode
from changelane.spark.apply.applier import Applier
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import Marker
from changelane.spark.lake.modes import DEDUPLICATION_COLUMNS, Modes, TableMode
from changelane.spark.maintenance.status import status
from changelane.spark.rows.batch_stats import BatchReport
from changelane.spark.rows.schema import table_id_text
from changelane.spark.state import change_log
from changelane.spark.state.change_log import ChangeLog

pytestmark = pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)

MODES: Final = Modes(TableMode(), {"log": TableMode("append")})
Told = tuple[str, dict[str, Any], str, int | None]
"""A table, what its connector tells of the place, a value, and the number in the transaction."""


def postgres(table: str, lsn: int, value: str, number: int | None = None) -> Told:
    place = {"connector": "postgresql", "lsn": lsn, "sequence": f'["1","{lsn}"]'}
    return table, place | {"schema": "public"}, value, number


def mysql(row: int, value: str) -> Told:
    place = {"connector": "mysql", "file": "binlog.000001", "pos": 10, "row": row}
    return "binlog", place, value, None


def nowhere(value: str) -> Told:
    return "nowhere", {"connector": "postgresql", "schema": "public"}, value, None


def message(told: Told, offset: int) -> tuple[bytes, str, int, int]:
    table, place, value, number = told
    source = {"name": "s", "snapshot": "false", "db": "shop", "table": table, "ts_ms": 1, **place}
    block = {"id": "7", "total_order": number, "data_collection_order": number}
    envelope = {"before": None, "after": {"a": value}, "source": source, "op": "c", "ts_ms": 1}
    envelope["transaction"] = None if number is None else block
    return json.dumps(envelope).encode(), "shop", 0, offset


def take(
    spark: SparkSession, lake: str, told: Iterable[Told], *, first: int, marker: tuple[str, int]
) -> BatchReport:
    """Apply messages that stand in a topic from an offset on, as a batch of a query."""
    rows = [message(one, first + index) for index, one in enumerate(told)]
    frame = spark.createDataFrame(rows, "value binary, topic string, partition int, offset bigint")
    applier = Applier(
        spark, lake, table_format=Path(lake).name, tables_without_key="append", modes=MODES
    )
    return applier.apply(decode(frame, "debezium-json"), Marker("test", *marker))


def values(spark: SparkSession, lake: str, table: str) -> str:
    schema = "public" if table != "binlog" else None
    found = lake_tables.table_of(spark, lake, TableId("shop", schema, table)).select("a").collect()
    return "".join(sorted(row["a"] for row in found))


def counted(report: BatchReport) -> dict[str, tuple[int, int]]:
    """Return what came again, and what may have, by table."""
    return {
        one.table.rpartition(".")[2]: (one.repeats, one.possible_duplicates)
        for one in report.tables
    }


def test_what_a_producer_sends_again_is_added_once(spark: SparkSession, lake: str) -> None:
    # of the transaction at LSN 20 two rows are equal, and their numbers tell them apart; of the
    # COPY at 30 nothing does
    numbered = [(20, "x", 1), (20, "x", 2), (20, "y", 3), (25, "x", 4)]
    first = [
        *(postgres(table, *one) for table in ("facts", "log") for one in numbered),
        *(postgres(table, 30, value) for table in ("facts", "log") for value in "cc"),
        mysql(0, "m"),
        mysql(1, "m"),
        nowhere("n"),
    ]
    # killed, the producer goes back, and sends a row more
    second = [
        *(postgres(table, *one) for table in ("facts", "log") for one in [*numbered, (40, "z", 5)]),
        *(postgres(table, 30, value) for table in ("facts", "log") for value in "cd"),
        mysql(1, "m"),
        mysql(2, "m"),
        mysql(2, "m"),
        nowhere("n"),
    ]
    report = take(spark, lake, first, first=0, marker=("one", 0))
    assert report.quarantined == {}
    once = {"facts": (0, 1), "log": (0, 1), "binlog": (0, 0), "nowhere": (0, 0)}
    assert counted(report) == once
    report = take(spark, lake, second, first=len(first), marker=("one", 1))
    # one row of the COPY more, which may be one of those that came; another value is another row
    again = {"facts": (4, 1), "log": (4, 1), "binlog": (2, 0), "nowhere": (0, 0)}
    assert counted(report) == again
    ends = {"facts": "cccdxxxyz", "log": "cccdxxxyz", "binlog": "mmm", "nowhere": "nn"}
    assert {name: values(spark, lake, name) for name in ends} == ends
    # what changelane itself reads again, from another checkpoint, has the offsets that it had
    known = [one for one in [*first, *second] if one[0] != "nowhere"]
    report = take(spark, lake, [*first, *second], first=0, marker=("two", 0))
    assert {name: values(spark, lake, name) for name in ends} == ends | {"nowhere": "nnnn"}
    assert sum(repeats for repeats, _ in counted(report).values()) == len(known)
    assert {possible for _, possible in counted(report).values()} == {0}
    found = status(open_lake(spark, lake, Path(lake).name))
    assert {one.table.rpartition(".")[2]: one.possible_duplicates for one in found} == {
        "facts": 2,
        "log": 2,
        "binlog": 0,
        "nowhere": 0,
    }


def test_tables_of_before_ordinals_were_thought_of_get_them(spark: SparkSession, lake: str) -> None:
    row = postgres("facts", 10, "x", 1)
    take(spark, lake, [row], first=0, marker=("one", 0))
    tables = open_lake(spark, lake, Path(lake).name)
    tables.drop_columns("tables/shop.public.facts", list(DEDUPLICATION_COLUMNS))
    events = decode(
        spark.createDataFrame([message(row, 7)], "value binary, t string, p int, o bigint"),
        "debezium-json",
    )
    log = ChangeLog(tables)
    log.append(events, Marker("test", "log", 0))
    tables.drop_columns(change_log.NAME, ["ordinal"])
    # nothing is known of the row that is there; from here on, it is
    for batch in (1, 2):
        take(spark, lake, [row], first=batch, marker=("one", batch))
    assert values(spark, lake, "facts") == "xx"
    wanted = {table_id_text(TableId("shop", "public", "facts")): -1}
    log = ChangeLog(tables)
    assert [one["ordinal"] for one in log.rows("log", wanted).where("kind = 'data'").collect()] == [
        None
    ]
    log.append(events, Marker("test", "log", 1))
    told = log.rows("log", wanted).where("kind = 'data'").orderBy("batch").collect()
    assert [one["ordinal"] for one in told] == [None, 1]
