# SPDX-License-Identifier: Apache-2.0
"""Keys that were seen in two partitions, whose offsets tell no order.

An event without a position falls back to its offset, which is comparable inside one partition (or
file) only; a key seen in two of them is ``unordered`` (docs/merge-rule.md, Orders).
"""

from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.lookup import existing_rows
from changelane.spark.rows.batch_stats import epoch_partition, epoch_partition_of
from changelane.spark.state.tombstones import TableTombstones, TombstoneTable

CROSSED: Final = "_changelane_crossed"
REASON: Final = (
    "the events have no positions, and the key was seen in several partitions or files, whose "
    "offsets cannot be compared: use one partition for a key, a format with positions, or, when "
    "everything before is older, raise `epoch`"
)


def crossed_keys(
    rows: DataFrame,
    table: DataFrame,
    side: TombstoneTable,
    plan: TablePlan,
    table_tombstones: TableTombstones,
) -> DataFrame | None:
    """Return ``table_id`` and ``key`` of the keys that no order is known for; ``None`` = none.

    Args:
        rows: ``data`` rows of one table, all with a key.
        table: The table.
        side: What is remembered.
        plan: How the table's events are applied.
        table_tombstones: What is remembered of the whole table.
    """
    at = epoch_partition(F.col("order")).alias("place")
    keys = rows.select("key", at).unionByName(
        rows.where("other_key IS NOT NULL").select(F.col("other_key").alias("key"), at)
    )
    keys = keys.distinct().persist(StorageLevel.MEMORY_AND_DISK)
    try:
        names = keys.select("key").distinct()
        touched = (
            keys.unionByName(existing_rows(table, names, plan.target).select("key", at))
            .unionByName(
                side.for_keys(plan.work.table_id, names).select(
                    "key", epoch_partition(F.col("deleted")).alias("place")
                )
            )
            .where("place IS NOT NULL")
        )
        for truncate in epoch_partition_of(table_tombstones.truncated):
            touched = touched.unionByName(
                names.select("key", F.lit(bytearray(truncate)).alias("place"))
            )
        epoch: Column = F.substring("place", 1, 4)
        conflicts = (
            touched.groupBy("key", epoch.alias("epoch"))
            .agg(F.count_distinct("place").alias("places"))
            .where("places > 1")
            .select(F.lit(plan.work.table_id).alias("table_id"), "key")
            .distinct()
            .persist(StorageLevel.MEMORY_AND_DISK)
        )
        if conflicts.isEmpty():
            conflicts.unpersist()
            return None
        return conflicts
    finally:
        keys.unpersist()


def marked(events: DataFrame, crossed: DataFrame) -> DataFrame:
    """Return event rows with :data:`CROSSED`: whether one of their keys is among *crossed*."""
    crossed_keys = crossed.select("table_id", "key", F.lit(True).alias(CROSSED))
    crossed_other_keys = crossed_keys.withColumnsRenamed(
        {"key": "other_key", CROSSED: "_changelane_other"}
    )
    marked = events.join(crossed_keys, ["table_id", "key"], "left").join(
        crossed_other_keys, ["table_id", "other_key"], "left"
    )
    is_crossed = F.coalesce(F.col(CROSSED), F.col("_changelane_other"), F.lit(False))
    return marked.withColumn(CROSSED, is_crossed).select(*events.columns, CROSSED)
