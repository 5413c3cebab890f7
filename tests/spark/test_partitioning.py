# SPDX-License-Identifier: Apache-2.0
"""Frames have the partitions that Spark plans with, in sessions with adaptive execution, too."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import small_batch_session


def columns_as_they_are(frame: DataFrame) -> DataFrame:
    return frame.mapInArrow(lambda batches: batches, "k long, v long")


@pytest.mark.parametrize("is_small", [False, True])
def test_groups_of_a_union_with_a_frame_in_the_cache_are_whole(
    spark: SparkSession, lake: str, *, is_small: bool
) -> None:
    """In Spark 4.1 the groups would be split, and each part a row of its own."""
    program = spark.newSession()  # as a program makes it: with Spark's defaults
    program.conf.set("spark.sql.adaptive.enabled", "true")
    tables = open_lake(program, lake, Path(lake).name)
    session = small_batch_session(tables.spark) if is_small else tables.spark
    rows = program.range(0, 10, 1, 3).selectExpr("id % 3 AS k", "id AS v")
    cached = columns_as_they_are(rows.repartition(1)).persist()
    other = session.range(0, 10, 1, 1).selectExpr("id % 3 AS k", "id + 100 AS v")
    other = other.unionAll(other).coalesce(1).groupBy("k").agg(F.max("v").alias("v"))
    union = other.unionAll(cached.where("k IS NOT NULL")).localCheckpoint(eager=False)
    groups = union.groupBy("k").agg(F.max("v"), F.count("*")).collect()
    assert sorted(map(tuple, groups)) == [(0, 109, 5), (1, 107, 4), (2, 108, 4)]
    wanted = session.range(0, 3, 1, 3).withColumnRenamed("id", "k").repartition(5, "k")
    assert union.join(wanted.hint("merge"), "k", "right").count() == 13
    cached.unpersist()
