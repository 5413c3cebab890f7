# SPDX-License-Identifier: Apache-2.0
"""Parquet, Avro and CSV files as the source of a pipeline: rows of Spark and of DMS."""

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.pipeline.config import Pipeline, parse
from changelane.spark.run.tables import run
from changelane.spark.runtime.sql import COLUMNS, ORDER

EMPLOYEES: Final = {"id": "int64 key", "name": "string", "pay": "decimal(10,2)", "hired": "date"}
ROWS: Final = """
    SELECT id, CAST(-id AS DECIMAL(28,10)) / 3 AS price,
        TIMESTAMP '0001-01-01 00:00:00.000001Z' + MAKE_INTERVAL(INT(id) * 1000) AS at,
        TIMESTAMP_NTZ '2024-02-29 12:00:00.123456' AS local,
        DATE '2024-02-29' AS day, CAST(STRING(id) AS BINARY) AS data, CAST(0.1 AS FLOAT) AS ratio,
        IF(id = 1, NULL, 'text "é"') AS note, ARRAY(id, NULL) AS numbers
    FROM RANGE(3)
"""


def pipeline(folder: Path, **source: Any) -> Pipeline:
    return parse(
        {
            "name": "files",
            "source": {"type": "files", "path": str(folder / "in"), **source},
            "sink": {"type": "delta", "path": str(folder / "lake")},
            "options": {"maintenance": "off"},
        }
    )


def table(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    (path,) = (folder / "lake/tables").glob(f"{name}*")
    return spark.read.format("delta").load(str(path)).drop(ORDER, COLUMNS)


def test_rows_that_spark_wrote_have_their_types_and_values_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.sql(ROWS)
    source = tmp_path / "in/shop/orders"
    rows.coalesce(1).write.parquet(str(source))  # with INT96 for points in time
    pq.write_table(pa.table({"id": [7], "more": ["x"]}), source / "other columns.parquet")
    load = pipeline(tmp_path, rows={"keys": {"orders": ["id"]}})
    assert not run(spark, load).quarantined
    found = table(spark, tmp_path, "shop.orders")
    assert dict(found.dtypes) == {**dict(rows.dtypes), "more": "string"}
    texts = [F.col(name).cast("string").alias(name) for name in rows.columns]  # years before 1
    whole = found.where("id < 7").select(*texts).collect()
    assert sorted(whole) == sorted(rows.select(*texts).collect())
    assert [row["id"] for row in found.where("more = 'x'").collect()] == [7]
    assert run(spark, load).batches == []


def test_files_of_dms_are_applied_in_the_order_of_their_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in/hr/employee"
    (folder / "2024/02").mkdir(parents=True)
    rows = {"layout": "dms", "schemas": {"hr.employee": EMPLOYEES}}
    (folder / "2024/02/20240202-100000000.csv").write_text(
        'U,1,"second, ""1""",2.50,2024-02-02\nD,2,NULL,NULL,NULL\nI,3,x,NULL,NULL\nI,4,x,y,NULL\n'
    )
    (folder / "LOAD00000002.parquet").touch()
    report = run(spark, pipeline(tmp_path, rows=rows))
    assert report.quarantined == {"wrong_type": 1, "malformed_file": 1}
    # the full load and older changes come late: newer ones stay
    (folder / "LOAD00000001.csv").write_text("1,a,1.00,2024-01-01\n2,b,NULL,NULL\n5,e,NULL,NULL\n")
    (folder / "2024/02/20240201-235959999.csv").write_text("U,1,first,9.99,NULL\nU,5,f,NULL,NULL\n")
    assert not run(spark, pipeline(tmp_path, rows=rows)).quarantined
    found = table(spark, tmp_path, "hr.employee").orderBy("id").collect()
    texts = [tuple(None if value is None else str(value) for value in row) for row in found]
    assert texts == [
        ("1", 'second, "1"', "2.50", "2024-02-02"),
        ("3", "x", None, None),
        ("5", "f", None, None),
    ]


@pytest.mark.long
def test_messages_that_spark_wrote_are_messages_of_their_topic(
    spark: SparkSession, tmp_path: Path
) -> None:
    values = [
        (f'{{"op":"c","table":{{"name":"t"}},"key":["id"],"after":{{"id":{n},"v":"{v}"}}}}', n, o)
        for n, v, o in ((1, "new", 8), (1, "old", 7), (2, "x", 9))
    ]
    messages = spark.createDataFrame(values, "value STRING, n INT, offset BIGINT").select(
        F.col("value").cast("binary"),
        F.lit("shop").alias("topic"),
        F.lit(0).alias("partition"),
        "offset",
        F.current_timestamp().alias("timestamp"),
    )
    messages.repartition(2).write.parquet(str(tmp_path / "in"))
    report = run(spark, pipeline(tmp_path, format="native-json"))
    assert not report.quarantined
    found = table(spark, tmp_path, "t").orderBy("id").collect()
    assert [(int(row["id"]), row["v"]) for row in found] == [(1, "new"), (2, "x")]
