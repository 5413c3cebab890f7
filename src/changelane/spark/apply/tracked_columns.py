# SPDX-License-Identifier: Apache-2.0
"""Tables of mode ``history`` in which only changes of tracked columns start a version.

A change of an untracked column updates the version that it belongs to. An out-of-order event needs
the earlier values of that version, so a second table, the full history, contains all versions. The
table is computed from the full history of each touched key
(:func:`changelane.apply.history.versions_of_tracked`).
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from changelane.spark.apply import history
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.key_filter import KeyFilter, filtered_rows
from changelane.spark.lake.modes import (
    IS_CURRENT,
    OWN_ORDER,
    UNTIL,
    VALID_FROM,
    VALID_TO,
    TableMode,
)
from changelane.spark.rows.added_columns import is_before_any, orders_of
from changelane.spark.rows.target import Target
from changelane.spark.runtime.sql import COLUMNS, LIVE, ORDER, quoted


def shown(
    rows: DataFrame,
    plan: TablePlan,
    table: DataFrame,
    full_history: DataFrame,
    batch_keys: KeyFilter | None = None,
) -> DataFrame:
    """Return the versions of touched keys, and the stored versions to remove.

    Args:
        rows: ``data`` and ``truncate`` rows of one table.
        plan: The plan of the table.
        table: The table.
        full_history: All versions, this batch included.
        batch_keys: The filter on both tables that the keys of the batch imply; ``None`` = unknown.
            A key outside of it fails the statement.
    """
    target = plan.target
    touched = history.touched_keys(rows, plan, table, batch_keys)
    table = filtered_rows(table, batch_keys)
    every = _versions(filtered_rows(full_history, batch_keys), touched, plan)
    shown_rows = _runs(every, history.key_columns(target), _tracked(plan), target)
    stored_versions = _versions(table, touched, plan).select(*history.key_columns(target), "o")
    keys = [*history.key_columns(target), "o"]
    removed = stored_versions.join(
        shown_rows.select(*keys), _same(stored_versions, shown_rows, keys), "left_anti"
    )
    every = shown_rows.withColumn("live", F.lit(True)).unionByName(
        removed.withColumn("live", F.lit(False)), allowMissingColumns=True
    )
    return every.select(
        *(F.col(alias).alias(name) for name, alias in history.column_aliases(target).items()),
        F.col("time").alias(VALID_FROM),
        F.col("to").alias(VALID_TO),
        F.col("until").isNull().alias(IS_CURRENT),
        F.col("o").alias(ORDER),
        F.col("orders").alias(COLUMNS),
        F.col("until").alias(UNTIL),
        F.col("live").alias(LIVE),
    )


def _same(left: DataFrame, right: DataFrame, names: Sequence[str]) -> Column:
    same = F.lit(True)
    for name in names:
        same = same & left[name].eqNullSafe(right[name])
    return same


def _tracked(plan: TablePlan) -> list[str]:
    """Return the aliases of the tracked columns."""
    mode: TableMode = plan.table_mode
    at = history.column_aliases(plan.target)
    if mode.track is not None:
        tracked_names = {name.lower() for name in mode.track}
        return [alias for name, alias in at.items() if name.lower() in tracked_names]
    unwanted = {name.lower() for name in mode.track_except or ()}
    return [alias for name, alias in at.items() if name.lower() not in unwanted]


def _versions(table: DataFrame, touched: Sequence[DataFrame], plan: TablePlan) -> DataFrame:
    rows = table.select(
        *(
            F.col(quoted(name)).alias(alias)
            for name, alias in history.column_aliases(plan.target).items()
        ),
        F.col(ORDER).alias("o"),
        F.col(UNTIL).alias("until"),
        F.col(VALID_FROM).alias("time"),
        F.col(VALID_TO).alias("to"),
        history.stored_columns(plan.target).alias("orders"),
    )
    return history.of_keys(rows, touched, plan)


def _runs(
    every: DataFrame, keys: Sequence[str], columns: Sequence[str], target: Target
) -> DataFrame:
    """Join consecutive versions of a row whose tracked columns are equal."""
    names = {alias: name for name, alias in history.column_aliases(target).items()}

    def state(alias: str) -> Column:
        order = F.try_element_at("orders", F.lit(names[alias]))
        is_unknown = F.coalesce(F.length(order) == 0, F.lit(False))
        return F.struct(F.col(alias).alias("v"), is_unknown.alias("u"))

    tracked_values = F.struct(
        F.lit(0).alias("any"), *(state(column).alias(column) for column in columns)
    )
    by_order = Window.partitionBy(*keys).orderBy("o")
    is_continued = F.lag("until").over(by_order).eqNullSafe(F.col("o"))
    is_continued = is_continued & F.lag("tracked_values").over(by_order).eqNullSafe(
        F.col("tracked_values")
    )
    marked = every.withColumn("tracked_values", tracked_values).withColumn(
        "starts_run", (~is_continued).cast("int")
    )
    numbered = marked.withColumn("run", F.sum("starts_run").over(by_order))
    other_names = [name for name in names if name not in keys]
    last = F.struct(*other_names, "until", "to", "orders", F.col("o").alias("own"))
    runs = numbered.groupBy(*keys, "run").agg(
        F.min("o").alias("o"), F.min_by("time", "o").alias("time"), F.max_by(last, "o").alias("n")
    )
    # the own order of a column is that of the newest event of the run
    own = F.transform_values(
        "orders",
        lambda _, order: F.when(order == F.lit(bytearray(OWN_ORDER)), F.col("own")).otherwise(
            order
        ),
    )
    joined = runs.select(*keys, "o", "time", "n.*").withColumn("orders", own)
    unknown = [addition for addition in target.additions if addition.is_unknown]
    if unknown:
        # a row without a list, below the order of an added column, does not know the column
        every_name = F.array(*(F.lit(names[alias]) for alias in other_names))
        is_listed = F.col("orders").isNull() & (F.col("own") != F.col("o"))
        is_listed = is_listed & is_before_any(F.col("o"), unknown)
        listed = F.when(is_listed, orders_of(every_name, F.col("own"))).otherwise(F.col("orders"))
        joined = joined.withColumn("orders", listed)
    return joined.drop("own")
