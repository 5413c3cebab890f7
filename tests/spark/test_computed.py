# SPDX-License-Identifier: Apache-2.0
"""Frames that are computed once."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.merge import Clause, Merge
from changelane.spark.runtime.computed import computed_once, persisted


def test_computed_rows_stay_when_the_table_is_written(spark: SparkSession, lake: str) -> None:
    tables = open_lake(spark, lake, Path(lake).name)
    tables.create("tables/numbers", {"n": "bigint"}, {})
    tables.append(spark, "tables/numbers", spark.range(2).toDF("n"))
    with computed_once(tables.read("tables/numbers").where("n < 9")) as rows:
        assert rows.count() == 2
        tables.append(spark, "tables/numbers", spark.range(2, 5).toDF("n"))
        assert {row["n"] for row in rows.collect()} == {0, 1}
    assert tables.read("tables/numbers").count() == 5


def test_rows_that_the_caller_persisted_stay(spark: SparkSession) -> None:
    rows = spark.range(2).persist()
    with persisted(rows) as same_rows, persisted(spark.range(3)) as other_rows:
        assert (same_rows.count(), other_rows.count()) == (2, 3)
    assert rows.storageLevel.useMemory
    assert not other_rows.storageLevel.useMemory
    rows.unpersist()


def test_spark_knows_the_size_of_persisted_rows_that_tasks_in_python_read(
    spark: SparkSession,
) -> None:
    """By the estimate of their plan, which is a few bytes, it would broadcast any number."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"text": ["x" * 100] * 10_000})

    with persisted(spark.range(1).mapInArrow(read, "text STRING")) as rows:
        assert rows.count() == 10_000
        plan = spark.createDataFrame([("x",)], "text STRING").join(rows, "text", "left")
        size = plan._jdf.queryExecution().optimizedPlan().children().last().stats().sizeInBytes()
        assert size > 1_000_000


def test_rows_that_the_caller_computed_stay(spark: SparkSession) -> None:
    random = F.rand().alias("n")
    with computed_once(spark.range(2).select(random)) as rows:
        with computed_once(rows) as same_rows:
            assert same_rows is rows
            numbers = same_rows.collect()
        assert rows.collect() == numbers


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_a_merge_leaves_the_settings_of_a_program(spark: SparkSession, lake: str) -> None:
    """A merge of the program, whose source is random, relies on them."""
    program = spark.newSession()
    tables = open_lake(program, lake, "delta")
    tables.create("tables/numbers", {"n": "bigint"}, {})
    settings = dict(program.conf.getAll)
    tables.merge(
        program,
        "tables/numbers",
        program.range(2).toDF("n"),
        Merge(["n"], [Clause("")], {"n": "s.n"}),
    )
    assert dict(program.conf.getAll) == settings
    assert tables.read("tables/numbers").count() == 2
