# SPDX-License-Identifier: Apache-2.0
"""wal2json omits an unchanged column with its type: the table keeps the column's value."""

import json
from pathlib import Path
from typing import Any

import lake_tables
import pytest
from pyspark.sql import SparkSession
from spark_settings import lakes

from changelane.schema import TableId
from changelane.spark import apply_changes, decode

TABLE = TableId(schema="public", name="notes")
TYPES = {"id": "integer", "note": "text", "big": "text"}


def action(kind: str, lsn: int, columns: dict[str, Any], **fields: Any) -> str:
    row = [{"name": name, "type": TYPES[name], "value": v} for name, v in columns.items()]
    table = {"schema": "public", "table": "notes", "columns": row}
    pk = [{"name": "id", "type": "integer"}]
    return json.dumps({"action": kind, "lsn": f"0/{lsn:X}", **table, "pk": pk, **fields})


def apply(spark: SparkSession, lake: str, values: list[str], batch: int) -> Any:
    messages = spark.createDataFrame([(value,) for value in values], "value string")
    events = decode(messages, format="wal2json")
    return apply_changes(events, lake, table_format=Path(lake).name, query="notes", batch=batch)


def rows(spark: SparkSession, lake: str) -> list[tuple[Any, ...]]:
    table = lake_tables.table_of(spark, lake, TABLE)
    return sorted(tuple(row) for row in table.select("id", "note", "big").collect())


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_an_update_keeps_the_columns_that_it_omits(spark: SparkSession, lake: str) -> None:
    # a table may begin with such an update
    assert not apply(spark, lake, [action("U", 9, {"id": 4, "note": "w"})], 0).quarantined
    first = [
        action("I", 8, {"id": 4, "note": "v", "big": "E"}),
        action("I", 1, {"id": 1, "note": "a", "big": "A"}),
        action("I", 2, {"id": 2, "note": "b", "big": "B"}),
        action("U", 3, {"id": 1, "note": "x"}),
    ]
    assert not apply(spark, lake, first, 1).quarantined
    assert rows(spark, lake) == [(1, "x", "A"), (2, "b", "B"), (4, "w", "E")]
    second = [
        action("U", 5, {"id": 2, "note": "z"}),
        action("U", 4, {"id": 2, "note": "y", "big": "C"}),
        action("I", 6, {"id": 3, "note": None, "big": "D"}),
    ]
    assert not apply(spark, lake, second, 2).quarantined
    assert rows(spark, lake) == [(1, "x", "A"), (2, "z", "C"), (3, None, "D"), (4, "w", "E")]
