# SPDX-License-Identifier: Apache-2.0
"""Deletes the rows of a table that a truncate or a dropped table of the same name removes.

Each row is compared with the truncate (``DELETE WHERE U <= T``), because newer rows stay.
"""

from pyspark.sql import SparkSession

from changelane.spark.evolution.dropped_tables import CLEARED
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.interface import Lake, retry_conflicts
from changelane.spark.lake.merge import column_form
from changelane.spark.rows import column_registers
from changelane.spark.runtime.sql import COLUMNS, DELETED, ORDER


def delete_truncated_rows(
    spark: SparkSession, lake: Lake, plan: TablePlan, truncated: bytes
) -> None:
    """Delete the rows of a table up to T, or mark them as deleted.

    Rows of a dropped table of the same name are deleted, never marked.

    Args:
        spark: The session.
        lake: The tables.
        plan: The plan of the table.
        truncated: T.
    """
    if plan.cleared:
        # the key of the dropped table may have been another
        dropped_at = f"unhex('{plan.cleared.hex()}')"
        has_newer = f"exists(map_values({COLUMNS}), o -> o > {dropped_at})"
        is_of_dropped = f"{ORDER} <= {dropped_at} AND NOT coalesce({has_newer}, false)"
        retry_conflicts(lambda: lake.delete(spark, plan.name, is_of_dropped))
    # a row without a key comes from one event: its columns have one order
    has_column_orders = "exceptions" in plan.properties and bool(plan.target.keys)
    if has_column_orders:
        _merge_truncated_rows(spark, lake, plan, truncated)
    elif plan.cleared != truncated:
        is_truncated = f"{ORDER} <= unhex('{truncated.hex()}')"
        if plan.target.keeps_deleted:
            sets = {DELETED: "true"}
            lake.update(spark, plan.name, sets, f"NOT {DELETED} AND {is_truncated}")
        else:
            lake.delete(spark, plan.name, is_truncated)
    if plan.cleared:
        # the last step: a batch that fails before it repeats all of them
        lake.set_properties(plan.name, {CLEARED: plan.cleared.hex()})


def _merge_truncated_rows(
    spark: SparkSession, lake: Lake, plan: TablePlan, truncated: bytes
) -> None:
    """Evaluate each row with a column up to T again, by the merge rule."""
    target = plan.target
    source = column_registers.merge_source(
        column_registers.truncated_rows(lake.read(plan.name), target, truncated), target
    )
    form = column_form(keeps_deleted=target.keeps_deleted)
    lake.merge(spark, plan.name, source, form(target.keys, tuple(target.columns)))
