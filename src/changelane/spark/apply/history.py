# SPDX-License-Identifier: Apache-2.0
"""The mode ``history``: a table keeps every version of a row, by one MERGE per batch.

The rule is :mod:`changelane.apply.history`. Only the versions of touched keys are read, and only
versions that change are written. The upserts and ends of a key are sorted by order: a version
lasts until the next of them, and a column has the value of the latest event that carries it,
unless an end is newer. That is one shuffle and one sort.

``_changelane_columns`` is NULL if the event of a version carried every column. Otherwise it maps
each column to its order: ``01`` is the version's own order, an empty order is unknown. A column
that was added later is not in the map: no event of the version carried it. So a version below the
order of an added column has a map if its event carried the column.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.key_filter import KeyFilter, filtered_rows
from changelane.spark.lake.modes import IS_CURRENT, OWN_ORDER, UNTIL, VALID_FROM, VALID_TO
from changelane.spark.rows import key_operations, latest_per_key
from changelane.spark.rows.added_columns import is_before_any, version_exceptions
from changelane.spark.rows.latest_per_key import empty_order
from changelane.spark.rows.target import Target, unknown_columns
from changelane.spark.runtime.sql import COLUMNS, ORDER, quoted
from changelane.spark.state.history_tombstones import HistoryTombstones

_PREFIX: Final = "_changelane_"


def versions(
    rows: DataFrame,
    plan: TablePlan,
    table: DataFrame,
    ends: HistoryTombstones,
    *,
    has_truncates: bool,
    batch_keys: KeyFilter | None = None,
) -> DataFrame:
    """Return the versions that a batch adds or changes, with every column of the table.

    Args:
        rows: ``data`` and ``truncate`` rows of one table.
        plan: The plan of the table.
        table: The table.
        ends: The ends of versions, those of this batch included.
        has_truncates: Whether the table was ever truncated.
        batch_keys: The filter on the table that the keys of the batch imply; ``None`` = unknown.
            A key outside of it fails the statement.
    """
    names = key_columns(plan.target)
    frames: list[DataFrame] = []
    touched: list[DataFrame] = []
    if plan.table_batch.schemas:
        operations = _operations(rows.where("kind = 'data' AND key IS NOT NULL"), plan)
        keys = _keys(operations, plan.target, batch_keys)
        upserts = operations.where("NOT is_end").drop("key")
        are_few = plan.table_batch.has_few_keys
        ends_of_keys = ends.for_keys(plan.table_batch.table_id, keys, are_few=are_few)
        ends_of_keys = ends_of_keys.join(F.broadcast(keys) if are_few else keys, "key")
        frames += [upserts, _end(ends_of_keys, names, F.col("order"), F.col("source_time"))]
        touched.append(keys)
        if has_truncates:
            table_batch = plan.table_batch
            truncates = ends.truncates(table_batch.table_id, after=table_batch.min_order)
            frames.append(_next_truncates(upserts, names, truncates))
    if plan.table_batch.newest_truncate:
        spanned = _spanned(table, plan.target, rows)
        frames.append(_end(spanned, names, F.col("cut"), F.col("cut_time")))
        touched.append(spanned)
    stored_versions = _stored_versions(filtered_rows(table, batch_keys), touched, plan)
    ended = stored_versions.where("substring(stored_until, -1, 1) = unhex('00')")
    frames += [stored_versions, _end(ended, names, F.col("stored_until"), F.col("stored_to"))]
    return _written(_placed(frames, plan), plan)


def column_aliases(target: Target) -> dict[str, str]:
    """Return column -> alias; no alias equals the name of a column of a source."""
    return {name: f"c{index}" for index, name in enumerate(target.columns)}


def stored_columns(target: Target) -> Column:
    """Return the orders of the columns of a stored version; NULL = all are its own."""
    return version_exceptions(target.additions, [c for c in target.columns if c not in target.keys])


def key_columns(target: Target) -> list[str]:
    """Return the aliases of the key columns."""
    aliases = column_aliases(target)
    return [aliases[name] for name in target.keys]


def _operations(rows: DataFrame, plan: TablePlan) -> DataFrame:
    """Return the upserts and deletes of a batch, with typed columns."""
    target = plan.target
    steps = key_operations.upserts_and_departures(rows, moves=plan.table_batch.has_key_changes)
    has = latest_per_key.carried_columns(F.col("schema_id"), F.col("missing"), target)
    unknown = unknown_columns(F.col("o"), F.col("schema_id"), target)
    every = F.array(*(F.lit(name) for name in target.columns))
    # a stored version without a map has no column that was added above its order
    added = [addition for addition in target.additions if addition.is_unknown]
    is_whole = F.col("whole") & ~is_before_any(F.col("o"), added)
    has = F.when(F.col("whole"), F.array_except(every, unknown)).otherwise(has)
    state = {
        f"{_PREFIX}o": F.col("o"),
        f"{_PREFIX}key": F.col("key"),
        f"{_PREFIX}time": F.col("time"),
        f"{_PREFIX}is_end": F.col("leaves"),
        f"{_PREFIX}whole": is_whole,
        f"{_PREFIX}has": F.when(~is_whole, has),
    }
    typed = latest_per_key.typed_rows(steps, F.col("text"), F.col("schema_id"), target, state)
    columns = [F.col(quoted(name)).alias(alias) for name, alias in column_aliases(target).items()]
    return typed.select(
        *columns,
        *(F.col(state_name).alias(state_name.removeprefix(_PREFIX)) for state_name in state),
    )


def _keys(rows: DataFrame, target: Target, batch_keys: KeyFilter | None) -> DataFrame:
    """Return each touched key once: its canonical text, and its columns."""
    values = F.struct(*key_columns(target))
    key_rows = rows.groupBy("key").agg(F.first(values).alias("k")).select("key", "k.*")
    if batch_keys is None:
        return key_rows
    # a delete has no row in the source of the merge, whose keys are checked, too
    return batch_keys.checked(key_rows, column_aliases(target))


def _next_truncates(upserts: DataFrame, names: Sequence[str], truncates: DataFrame) -> DataFrame:
    """Return the next truncates after upserts of the batch.

    Stored versions that a truncate ended have its order already.
    """
    later = F.filter("truncates", lambda truncate: truncate["o"] > F.col("o"))
    pairs = upserts.crossJoin(F.broadcast(truncates))
    evolution_state = pairs.select(*names, F.array_min(later).alias("next")).where(
        "next IS NOT NULL"
    )
    return _end(evolution_state, names, F.col("next.o"), F.col("next.t"))


def _end(frame: DataFrame, names: Sequence[str], order: Column, time: Column) -> DataFrame:
    end = F.lit(True).alias("is_end")
    return frame.select(*names, order.alias("o"), time.alias("time"), end)


def touched_keys(
    rows: DataFrame, plan: TablePlan, table: DataFrame, batch_keys: KeyFilter | None
) -> list[DataFrame]:
    """Return the keys that a batch touches, in the key columns.

    Args:
        rows: ``data`` and ``truncate`` rows of one table.
        plan: The plan of the table.
        table: The table.
        batch_keys: The filter that the keys of the batch imply; ``None`` = unknown. A key outside
            of it fails the statement.
    """
    touched: list[DataFrame] = []
    if plan.table_batch.schemas:
        upserts = _operations(rows.where("kind = 'data' AND key IS NOT NULL"), plan)
        touched.append(_keys(upserts, plan.target, batch_keys))
    if plan.table_batch.newest_truncate:
        touched.append(_spanned(table, plan.target, rows))
    return touched


def _spanned(table: DataFrame, target: Target, events: DataFrame) -> DataFrame:
    """Return truncates of the batch with the keys that have a version at their positions."""
    cuts = events.where("kind = 'truncate'").select(
        F.col("order").alias("cut"), F.col("source_time").alias("cut_time")
    )
    rows = table.select(
        *(F.col(quoted(name)).alias(column_aliases(target)[name]) for name in target.keys),
        F.col(ORDER).alias("o"),
        F.col(UNTIL).alias("until"),
    )
    intervals = (F.col("o") < F.col("cut")) & (
        F.col("until").isNull() | (F.col("until") > F.col("cut"))
    )
    return rows.join(F.broadcast(cuts.distinct()), intervals).drop("o", "until")


def _stored_versions(table: DataFrame, touched: Sequence[DataFrame], plan: TablePlan) -> DataFrame:
    """Return the stored versions of touched keys."""
    columns = stored_columns(plan.target)
    own = F.map_filter(columns, lambda _, order: order == F.lit(bytearray(OWN_ORDER)))
    rows = table.select(
        *(F.col(quoted(name)).alias(alias) for name, alias in column_aliases(plan.target).items()),
        F.col(ORDER).alias("o"),
        F.col(VALID_FROM).alias("time"),
        F.lit(False).alias("is_end"),
        columns.isNull().alias("whole"),
        F.map_keys(own).alias("has"),
        F.col(UNTIL).alias("stored_until"),
        F.col(VALID_TO).alias("stored_to"),
        F.lit(True).alias("is_stored"),
    )
    return of_keys(rows, touched, plan)


def of_keys(rows: DataFrame, touched: Sequence[DataFrame], plan: TablePlan) -> DataFrame:
    """Return the rows of touched keys."""
    names = key_columns(plan.target)
    keys = touched[0].select(*names)
    for frame in touched[1:]:
        keys = keys.unionByName(frame.select(*names)).distinct()
    wanted_keys = keys.select(*(F.col(name).alias(f"w_{name}") for name in names))
    same = F.lit(True)
    for name in names:
        same = same & F.col(name).eqNullSafe(F.col(f"w_{name}"))
    # a truncate may touch every row of the table
    are_few = plan.table_batch.has_few_keys and not plan.table_batch.newest_truncate
    return rows.join(F.broadcast(wanted_keys) if are_few else wanted_keys, same, "left_semi")


def _placed(frames: Sequence[DataFrame], plan: TablePlan) -> DataFrame:
    """Return each version of touched keys, its columns with their orders where they differ."""
    names = key_columns(plan.target)
    columns = {
        alias: name for name, alias in column_aliases(plan.target).items() if alias not in names
    }
    every = frames[0]
    for frame in frames[1:]:
        every = every.unionByName(frame, allowMissingColumns=True)

    def carried(alias: str) -> Column:
        if not plan.is_exceptional:
            return ~F.col("is_end")
        is_carried = F.coalesce(F.array_contains("has", F.lit(columns[alias])), F.lit(False))
        return ~F.col("is_end") & (F.col("whole") | is_carried)

    # of two values of one order the greater one wins
    joined = (
        every.repartition(*names)
        .groupBy(*names, "o")
        .agg(
            F.max("is_end").alias("is_end"),
            F.max("whole").alias("whole"),
            F.max("time").alias("time"),
            F.max("stored_until").alias("stored_until"),
            F.max("stored_to").alias("stored_to"),
            F.max(F.col("is_stored").isNull()).alias("is_in_batch"),
            *(F.max(F.when(carried(column), F.col(column))).alias(column) for column in columns),
            *(F.max(carried(column)).alias(f"has_{column}") for column in columns),
        )
    )
    by_order = Window.partitionBy(*names).orderBy("o")
    so_far = by_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)

    def pick(alias: str) -> Column:
        own = F.struct(F.col("o").alias("o"), F.col(alias).alias("v"))
        if not plan.is_exceptional:
            return own.alias(alias)
        none = F.struct(empty_order().alias("o"), F.lit(None).alias("v"))
        event_value = F.when(F.col("is_end"), none).when(F.col(f"has_{alias}"), own)
        return F.last(event_value, ignorenulls=True).over(so_far).alias(alias)

    placed = joined.select(
        *names,
        *("o", "is_end", "whole", "time", "stored_until", "stored_to", "is_in_batch"),
        F.lead("o").over(by_order).alias("until"),
        F.lead("time").over(by_order).alias("to"),
        *map(pick, columns),
    )
    return placed.where("NOT is_end")


def _written(placed: DataFrame, plan: TablePlan) -> DataFrame:
    """Return the new and the changed versions, with the columns of the table."""
    names = key_columns(plan.target)
    every = column_aliases(plan.target)
    picked = {name: alias for name, alias in every.items() if alias not in names}
    is_end_moved = ~F.col("until").eqNullSafe(F.col("stored_until"))
    is_end_moved = is_end_moved | ~F.col("to").eqNullSafe(F.col("stored_to"))
    changed = placed.where(F.col("is_in_batch") | is_end_moved | ~F.col("whole"))

    def order(alias: str) -> Column:
        value_order = F.coalesce(F.col(alias)["o"], empty_order())
        return F.when(value_order == F.col("o"), F.lit(bytearray(OWN_ORDER))).otherwise(value_order)

    orders = F.map_from_arrays(
        F.array(*(F.lit(name) for name in picked)), F.array(*map(order, picked.values()))
    )
    none = F.lit(None).cast("map<string,binary>")
    return changed.select(
        *(
            (F.col(alias) if alias in names else F.col(alias)["v"]).alias(name)
            for name, alias in every.items()
        ),
        F.col("time").alias(VALID_FROM),
        F.col("to").alias(VALID_TO),
        F.col("until").isNull().alias(IS_CURRENT),
        F.col("o").alias(ORDER),
        (F.when(~F.col("whole"), orders) if picked else none).alias(COLUMNS),
        F.col("until").alias(UNTIL),
    )
