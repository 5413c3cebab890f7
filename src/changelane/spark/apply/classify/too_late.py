# SPDX-License-Identifier: Apache-2.0
"""Events from before the purge horizon, of rows that are not there, or were not there then.

Once deletes up to the horizon ``H`` are forgotten, nothing tells such an event from one that was
never applied: it is refused, or a replay would bring rows back that are gone (docs/merge-rule.md,
Storage). Nor what it would tell of a row that lacks columns and of which nothing is so old: it may
be of an earlier row of its key.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.lookup import existing_rows
from changelane.spark.rows import latest_per_key
from changelane.spark.state.tombstones import TableTombstones, TombstoneTable

LATE: Final = "_changelane_late"
_CLEARED: Final = "_changelane_cleared"
_HORIZON: Final = "_changelane_horizon"


def late_keys(
    rows: DataFrame,
    table: DataFrame,
    side: TombstoneTable,
    plan: TablePlan,
    table_tombstones: TableTombstones,
) -> DataFrame | None:
    """Return keys with events that are too late; ``None`` = none.

    Columns: ``table_id``, ``key``, and the orders between which events are too late: above the
    newest departure, up to the horizon.

    Args:
        rows: ``data`` rows of one table.
        table: The table as it was before the batch.
        side: What is remembered.
        plan: How the table's events are applied.
        table_tombstones: What is remembered of the whole table, with what the batch raises.
    """
    if not table_tombstones.watermark or plan.work.min_order > table_tombstones.watermark:
        return None
    leaves, order = F.col("leaves"), F.col("o")
    horizon = F.lit(bytearray(table_tombstones.watermark))
    folded = (
        latest_per_key.upserts_and_departures(
            rows.where("key IS NOT NULL"), moves=plan.work.has_key_changes
        )
        .groupBy("key")
        .agg(
            F.max(F.when(leaves, order)).alias("d"),
            F.max(F.when(~leaves & (order <= horizon), order)).alias("u"),
            F.max(F.when(F.col("whole"), order)).alias("w"),
        )
        .where("u IS NOT NULL")
    )
    tombstones = side.for_keys(plan.work.table_id, folded)
    floor = F.lit(bytearray(table_tombstones.truncated))
    departed = [F.coalesce(name, latest_per_key.empty_order()) for name in ("d", "deleted")]
    old_events = (
        folded.join(tombstones, "key", "left")
        .withColumn(_CLEARED, F.greatest(*departed, floor))
        .where(F.col("u") > F.col(_CLEARED))
        # behind a newer whole row an older event has no effect
        .where(F.coalesce("w", latest_per_key.empty_order()) <= F.greatest(_CLEARED, horizon))
        .select(F.lit(plan.work.table_id).alias("table_id"), "key", _CLEARED)
        .withColumn(_HORIZON, horizon)
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    try:
        columns = [F.lit(name) for name in plan.target.columns]
        ages = F.array(*(F.coalesce(F.try_element_at("orders", c), "order") for c in columns))
        told_at = F.filter(ages, lambda age: age > latest_per_key.empty_order())
        lacks_nothing = F.size(told_at) == len(columns)
        stored_rows = existing_rows(table, old_events, plan.target, are_few=False).where(
            (F.array_max(told_at) > floor) & (lacks_nothing | (F.array_min(told_at) <= horizon))
        )
        late_keys = old_events.join(stored_rows.select("key"), "key", "left_anti")
        late_keys = late_keys.persist(StorageLevel.MEMORY_AND_DISK)
        if late_keys.isEmpty():
            late_keys.unpersist()
            return None
        return late_keys
    finally:
        old_events.unpersist()


def without_late(
    rows: DataFrame,
    events: DataFrame,
    late: Mapping[str, DataFrame],
    moved: Mapping[str, DataFrame],
) -> tuple[DataFrame, DataFrame]:
    """Return the rows that tables take without those that are too late, and all with a mark.

    Args:
        rows: Event rows that tables take.
        events: All event rows of the batch.
        late: What :func:`late_keys` found, by table id.
        moved: Keys that the rule itself decides, by table id.
    """
    parts = [
        keys.join(F.broadcast(moved[table]), "key", "left_anti") if table in moved else keys
        for table, keys in late.items()
    ]
    return marked(rows, parts).where(~F.col(LATE)).drop(LATE), marked(events, parts)


def marked(events: DataFrame, late: Iterable[DataFrame]) -> DataFrame:
    """Return event rows with :data:`LATE`: whether one is too late.

    A departure is never too late; that of an update which changes its key belongs to a key that
    the rule itself decides.
    """
    late_events = reduce(DataFrame.unionByName, late)
    marked = events.join(late_events, ["table_id", "key"], "left")
    order = F.col("order")
    is_upsert = (F.col("kind") == "data") & (F.col("op") != "d")
    is_late = is_upsert & (order > F.col(_CLEARED)) & (order <= F.col(_HORIZON))
    return marked.withColumn(LATE, F.coalesce(is_late, F.lit(False))).select(*events.columns, LATE)
