# SPDX-License-Identifier: Apache-2.0
"""Keys that were seen in two partitions, whose offsets tell no order.

An event without a position falls back to its offset, which is comparable inside one partition (or
file) only; a key seen in two of them is ``unordered`` (docs/merge-rule.md, Orders).
"""

from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.spark.evolution.prepare import Plan
from changelane.spark.lake.lookup import held_rows
from changelane.spark.rows.batch_stats import place, place_of
from changelane.spark.state.tombstones import Remembered, SideTable

CROSSED: Final = "_changelane_crossed"
REASON: Final = (
    "the events have no positions, and the key was seen in several partitions or files, whose "
    "offsets cannot be compared: use one partition for a key, a format with positions, or, when "
    "everything before is older, raise `epoch`"
)


def crossed_keys(
    rows: DataFrame, table: DataFrame, side: SideTable, one: Plan, known: Remembered
) -> DataFrame | None:
    """Return ``table_id`` and ``key`` of the keys that no order is known for; ``None`` = none.

    Args:
        rows: ``data`` rows of one table, all with a key.
        table: The table.
        side: What is remembered.
        one: How the table's events are applied.
        known: What is remembered of the whole table.
    """
    at = place(F.col("order")).alias("place")
    keys = rows.select("key", at).unionByName(
        rows.where("other_key IS NOT NULL").select(F.col("other_key").alias("key"), at)
    )
    keys = keys.distinct().persist(StorageLevel.MEMORY_AND_DISK)
    try:
        names = keys.select("key").distinct()
        seen = (
            keys.unionByName(held_rows(table, names, one.target).select("key", at))
            .unionByName(
                side.of(one.work.table_id, names).select(
                    "key", place(F.col("deleted")).alias("place")
                )
            )
            .where("place IS NOT NULL")
        )
        for truncate in place_of(known.truncated):
            seen = seen.unionByName(names.select("key", F.lit(bytearray(truncate)).alias("place")))
        epoch: Column = F.substring("place", 1, 4)
        found = (
            seen.groupBy("key", epoch.alias("epoch"))
            .agg(F.count_distinct("place").alias("places"))
            .where("places > 1")
            .select(F.lit(one.work.table_id).alias("table_id"), "key")
            .distinct()
            .persist(StorageLevel.MEMORY_AND_DISK)
        )
        if found.isEmpty():
            found.unpersist()
            return None
        return found
    finally:
        keys.unpersist()


def marked(events: DataFrame, crossed: DataFrame) -> DataFrame:
    """Return event rows with :data:`CROSSED`: whether one of their keys is among *crossed*."""
    told = crossed.select("table_id", "key", F.lit(True).alias(CROSSED))
    other = told.withColumnsRenamed({"key": "other_key", CROSSED: "_changelane_other"})
    beside = events.join(told, ["table_id", "key"], "left").join(
        other, ["table_id", "other_key"], "left"
    )
    is_crossed = F.coalesce(F.col(CROSSED), F.col("_changelane_other"), F.lit(False))
    return beside.withColumn(CROSSED, is_crossed).select(*events.columns, CROSSED)
