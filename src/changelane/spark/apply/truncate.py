# SPDX-License-Identifier: Apache-2.0
"""After a truncate raised T every row is evaluated again: those up to it go."""

from pyspark.sql import SparkSession

from changelane.spark.evolution.prepare import CLEARED
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.interface import Lake, retry_conflicts
from changelane.spark.lake.merge import column_form
from changelane.spark.rows import latest_per_key
from changelane.spark.runtime.sql import COLUMNS, DELETED, ORDER


def clear(spark: SparkSession, lake: Lake, plan: TablePlan, truncated: bytes) -> None:
    """Take the rows of a table up to T: ``DELETE WHERE U <= T``, or mark them.

    Those of an older table of the same name, which the source dropped, are taken in any case.

    Args:
        spark: The session.
        lake: Where the table lies.
        plan: How its events are applied.
        truncated: T.
    """
    if plan.cleared:
        # all of them are of a table that went, whose key may have been another
        floor = f"unhex('{plan.cleared.hex()}')"
        newer = f"exists(map_values({COLUMNS}), o -> o > {floor})"
        is_gone = f"{ORDER} <= {floor} AND NOT coalesce({newer}, false)"
        retry_conflicts(lambda: lake.delete(spark, plan.name, is_gone))
    # a row without a key is told once: it has no columns of other ages
    may_have_parts = "exceptions" in plan.properties and bool(plan.target.keys)
    if may_have_parts or plan.cleared != truncated:
        _evaluate(spark, lake, plan, truncated, may_have_parts=may_have_parts)
    if plan.cleared:
        # last: who dies before it does all of it again
        lake.set_properties(plan.name, {CLEARED: plan.cleared.hex()})


def _evaluate(
    spark: SparkSession, lake: Lake, plan: TablePlan, truncated: bytes, *, may_have_parts: bool
) -> None:
    target = plan.target
    if may_have_parts:
        touched = latest_per_key.merge_source(
            latest_per_key.truncated_rows(lake.read(plan.name), target, truncated), target
        )
        form = column_form(keeps_deleted=target.keeps_deleted)
        lake.merge(spark, plan.name, touched, form(target.keys, tuple(target.columns)))
        return
    below = f"{ORDER} <= unhex('{truncated.hex()}')"
    if target.keeps_deleted:
        lake.update(spark, plan.name, {DELETED: "true"}, f"NOT {DELETED} AND {below}")
    else:
        lake.delete(spark, plan.name, below)
