# SPDX-License-Identifier: Apache-2.0
"""Events that are older than the tombstone watermark, of rows that are not in the table.

Tombstones up to the watermark are removed. Such an event may be older than a delete whose tombstone
is gone: applying it would bring a deleted row back (docs/merge-rule.md, Storage). An event of a row
that is in the table is rejected, too, if the row lacks columns and all of its columns are newer
than the watermark: the event may belong to an earlier row with the same key.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.apply import TOO_LATE
from changelane.spark.apply.classify.classifier import RejectedKeys, StoredTable
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.lookup import existing_rows
from changelane.spark.rows import key_operations, latest_per_key
from changelane.spark.runtime.computed import computed, computed_once, release

_DELETED_AT: Final = "_changelane_deleted_at"
_WATERMARK: Final = "_changelane_watermark"


def late_keys(rows: DataFrame, plan: TablePlan, stored: StoredTable) -> RejectedKeys | None:
    """Return the keys with events that are too late; ``None`` = none.

    Events of a key are too late above its newest delete and up to the watermark.

    Args:
        rows: ``data`` rows of one table.
        plan: The plan of the table.
        stored: The table as it is stored before the batch.
    """
    watermark, truncated = stored.table_tombstones.watermark, stored.table_tombstones.truncated
    if not plan.target.keys or not watermark or plan.table_batch.min_order > watermark:
        return None
    leaves, order = F.col("leaves"), F.col("o")
    watermark_order, truncate_order = F.lit(bytearray(watermark)), F.lit(bytearray(truncated))
    newest = (
        key_operations.upserts_and_departures(
            rows.where("key IS NOT NULL"), moves=plan.table_batch.has_key_changes
        )
        .groupBy("key")
        .agg(
            F.max(F.when(leaves, order)).alias("d"),
            F.max(F.when(~leaves & (order <= watermark_order), order)).alias("u"),
            F.max(F.when(F.col("whole"), order)).alias("w"),
        )
        .where("u IS NOT NULL")
    )
    tombstones = stored.tombstones.for_keys(plan.table_batch.table_id, newest)
    deletes = [F.coalesce(name, latest_per_key.empty_order()) for name in ("d", "deleted")]
    with computed_once(
        newest.join(tombstones, "key", "left")
        .withColumn(_DELETED_AT, F.greatest(*deletes, truncate_order))
        .where(F.col("u") > F.col(_DELETED_AT))
        # an older event has no effect below a newer full row
        .where(
            F.coalesce("w", latest_per_key.empty_order())
            <= F.greatest(_DELETED_AT, watermark_order)
        )
        .select(F.lit(plan.table_batch.table_id).alias("table_id"), "key", _DELETED_AT)
        .withColumn(_WATERMARK, watermark_order)
    ) as old_events:
        columns = [F.lit(name) for name in plan.target.columns]
        orders = F.array(*(F.coalesce(F.try_element_at("orders", c), "order") for c in columns))
        known_orders = F.filter(orders, lambda order: order > latest_per_key.empty_order())
        lacks_nothing = F.size(known_orders) == len(columns)
        rows_of_batch = stored.rows(plan.key_filter())
        known_rows = existing_rows(rows_of_batch, old_events, plan.target, are_few=False).where(
            (F.array_max(known_orders) > truncate_order)
            & (lacks_nothing | (F.array_min(known_orders) <= watermark_order))
        )
        keys = computed(old_events.join(known_rows.select("key"), "key", "left_anti"))
        if keys.isEmpty():
            release(keys)
            return None
        return RejectedKeys(keys, _is_late(), TOO_LATE, TOO_LATE.cause)


def _is_late() -> Column:
    """Return the condition of late events; a delete is never too late.

    The update that changes a key is a delete of the old key; the merge rule itself decides it.
    """
    is_upsert = (F.col("kind") == "data") & (F.col("op") != "d")
    order = F.col("order")
    return is_upsert & (order > F.col(_DELETED_AT)) & (order <= F.col(_WATERMARK))
