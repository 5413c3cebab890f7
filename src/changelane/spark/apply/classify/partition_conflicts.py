# SPDX-License-Identifier: Apache-2.0
"""Keys with events of several partitions, whose offsets do not order them.

An event without a position is ordered by its offset. Offsets are comparable inside one partition
(or file) only; a key with events of two of them is ``unordered`` (docs/merge-rule.md, Orders).
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.reason_codes import ReasonCode
from changelane.spark.apply.classify.classifier import RejectedKeys, StoredTable
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.lookup import existing_rows
from changelane.spark.rows.batch_stats import epoch_partition, epoch_partition_of
from changelane.spark.runtime.computed import computed, computed_once, release
from changelane.spark.runtime.sql import NO_EXCEPTIONS

REASON: Final = (
    "the events have no positions, and the key was seen in several partitions or files, whose "
    "offsets cannot be compared: use one partition for a key, a format with positions, or, when "
    "everything before is older, raise `epoch`"
)


def conflicting_keys(rows: DataFrame, plan: TablePlan, stored: StoredTable) -> RejectedKeys | None:
    """Return the keys whose events have no order; ``None`` = none.

    Args:
        rows: ``data`` rows of one table.
        plan: The plan of the table.
        stored: The table as it is stored before the batch.
    """
    if not plan.crosses_partitions or not plan.target.keys or not plan.table_batch.schemas:
        return None
    table_id = plan.table_batch.table_id
    rows = rows.where("key IS NOT NULL")
    partition = epoch_partition(F.col("order")).alias("place")
    keys = rows.select("key", partition).unionByName(
        rows.where("other_key IS NOT NULL").select(F.col("other_key").alias("key"), partition)
    )
    with computed_once(keys.distinct()) as keys:
        names = keys.select("key").distinct()
        # a row from partial events only has no base order
        orders = F.array_append(
            F.map_values(F.coalesce("orders", F.expr(NO_EXCEPTIONS))), F.col("order")
        )
        stored_rows = existing_rows(stored.rows(plan.key_filter()), names, plan.target)
        stored_rows = stored_rows.select("key", F.explode(orders).alias("order"))
        stored_rows = stored_rows.select("key", partition)
        tombstones = stored.tombstones.for_keys(table_id, names).select(
            "key", epoch_partition(F.col("deleted")).alias("place")
        )
        partitions = keys.unionByName(stored_rows).unionByName(tombstones)
        partitions = partitions.where("place IS NOT NULL")
        for truncate in epoch_partition_of(stored.table_tombstones.truncated):
            partitions = partitions.unionByName(
                names.select("key", F.lit(bytearray(truncate)).alias("place"))
            )
        epoch: Column = F.substring("place", 1, 4)
        conflicts = computed(
            partitions.groupBy("key", epoch.alias("epoch"))
            .agg(F.count_distinct("place").alias("places"))
            .where("places > 1")
            .select(F.lit(table_id).alias("table_id"), "key")
            .distinct()
        )
        if conflicts.isEmpty():
            release(conflicts)
            return None
        return RejectedKeys(
            conflicts, F.lit(True), ReasonCode.UNORDERED, REASON, includes_other_key=True
        )
