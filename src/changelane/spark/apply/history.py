# SPDX-License-Identifier: Apache-2.0
"""The mode ``history``: the events of a batch become versions of rows, in one MERGE per table.

The rule is :mod:`changelane.apply.history`. Of the table, only the versions of touched keys are
read, and of them only those are written that change. All of a key's upserts and ends come
together, sorted by order: a version lasts until the next of them, and a column has the value of
the newest event that carries it, unless an end is newer. That is one shuffle and one sort.

``_changelane_columns`` is NULL when the event of a version carried every column; else it tells of
each column its order, ``01`` = this version's own, empty = unknown: a column that was added later
is not in it, and so was not carried.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.modes import IS_CURRENT, OWN_ORDER, UNTIL, VALID_FROM, VALID_TO
from changelane.spark.rows import latest_per_key
from changelane.spark.rows.added_columns import version_exceptions
from changelane.spark.rows.latest_per_key import empty_order
from changelane.spark.rows.target import Target, unknown_columns
from changelane.spark.runtime.sql import COLUMNS, ORDER, quoted
from changelane.spark.state.history_tombstones import HistoryTombstones

_OURS: Final = "_changelane_"


def versions(
    rows: DataFrame,
    plan: TablePlan,
    table: DataFrame,
    ends: HistoryTombstones,
    *,
    has_truncates: bool,
) -> DataFrame:
    """Return the versions that a batch makes or changes, with every column of the table.

    Args:
        rows: ``data`` and ``truncate`` rows of one table.
        plan: How the table's events are applied.
        table: The table.
        ends: Where lives ended, this batch's among them.
        has_truncates: Whether the table was ever truncated.
    """
    names = key_columns(plan.target)
    frames: list[DataFrame] = []
    touched: list[DataFrame] = []
    if plan.work.schemas:
        row_upserts = _told(rows.where("kind = 'data' AND key IS NOT NULL"), plan)
        keys = _keys(row_upserts, plan.target)
        upserts = row_upserts.where("NOT is_end").drop("key")
        are_few = plan.work.has_few_keys
        ends_of_keys = ends.for_keys(plan.work.table_id, keys, are_few=are_few)
        ends_of_keys = ends_of_keys.join(F.broadcast(keys) if are_few else keys, "key")
        frames += [upserts, _end(ends_of_keys, names, F.col("order"), F.col("source_time"))]
        touched.append(keys)
        if has_truncates:
            frames.append(_next_truncates(upserts, names, ends.truncates(plan.work.table_id)))
    if plan.work.newest_truncate:
        spanned = _spanned(table, plan.target, rows)
        frames.append(_end(spanned, names, F.col("cut"), F.col("cut_time")))
        touched.append(spanned)
    stored_versions = _held(table, touched, plan)
    ended = stored_versions.where("substring(held_until, -1, 1) = unhex('00')")
    frames += [stored_versions, _end(ended, names, F.col("held_until"), F.col("held_to"))]
    return _written(_placed(frames, plan), plan)


def column_aliases(target: Target) -> dict[str, str]:
    """Return column -> the name it has here, where no name of a source meets one of ours."""
    return {name: f"c{index}" for index, name in enumerate(target.columns)}


def stored_columns(target: Target) -> Column:
    """Return the orders of the columns of a version; NULL = it knows all of them."""
    return version_exceptions(target.additions, [c for c in target.columns if c not in target.keys])


def key_columns(target: Target) -> list[str]:
    """Return the key columns as they are named here."""
    aliases = column_aliases(target)
    return [aliases[name] for name in target.keys]


def _told(rows: DataFrame, plan: TablePlan) -> DataFrame:
    """Return the upserts and departures of a batch, with typed columns."""
    target = plan.target
    steps = latest_per_key.upserts_and_departures(rows, moves=plan.work.has_key_changes)
    has = latest_per_key.carried_columns(F.col("schema_id"), F.col("missing"), target)
    unknown = unknown_columns(F.col("o"), F.col("schema_id"), target)
    every = F.array(*(F.lit(name) for name in target.columns))
    is_whole = F.col("whole") & (F.size(unknown) == 0)
    has = F.when(F.col("whole"), F.array_except(every, unknown)).otherwise(has)
    state = {
        f"{_OURS}o": F.col("o"),
        f"{_OURS}key": F.col("key"),
        f"{_OURS}time": F.col("time"),
        f"{_OURS}is_end": F.col("leaves"),
        f"{_OURS}whole": is_whole,
        f"{_OURS}has": F.when(~is_whole, has),
    }
    typed = latest_per_key.typed_rows(steps, F.col("text"), F.col("schema_id"), target, state)
    columns = [F.col(quoted(name)).alias(alias) for name, alias in column_aliases(target).items()]
    return typed.select(
        *columns, *(F.col(state_name).alias(state_name.removeprefix(_OURS)) for state_name in state)
    )


def _keys(rows: DataFrame, target: Target) -> DataFrame:
    """Return every touched key once: its canonical text, and its columns."""
    values = F.struct(*key_columns(target))
    key_rows = rows.groupBy("key").agg(F.first(values).alias("k"))
    return key_rows.select("key", "k.*")


def _next_truncates(upserts: DataFrame, names: Sequence[str], truncates: DataFrame) -> DataFrame:
    """Return the truncates that come next after upserts of the batch.

    Those after older versions stand in the table: these ended there.
    """
    later = F.filter("truncates", lambda truncate: truncate["o"] > F.col("o"))
    pairs = upserts.crossJoin(F.broadcast(truncates))
    followed = pairs.select(*names, F.array_min(later).alias("next")).where("next IS NOT NULL")
    return _end(followed, names, F.col("next.o"), F.col("next.t"))


def _end(frame: DataFrame, names: Sequence[str], order: Column, time: Column) -> DataFrame:
    end = F.lit(True).alias("is_end")
    return frame.select(*names, order.alias("o"), time.alias("time"), end)


def touched_keys(rows: DataFrame, plan: TablePlan, table: DataFrame) -> list[DataFrame]:
    """Return the keys that a batch touches, in the key columns.

    Args:
        rows: ``data`` and ``truncate`` rows of one table.
        plan: How the table's events are applied.
        table: The table.
    """
    touched: list[DataFrame] = []
    if plan.work.schemas:
        upserts = _told(rows.where("kind = 'data' AND key IS NOT NULL"), plan)
        touched.append(_keys(upserts, plan.target))
    if plan.work.newest_truncate:
        touched.append(_spanned(table, plan.target, rows))
    return touched


def _spanned(table: DataFrame, target: Target, events: DataFrame) -> DataFrame:
    """Return truncates of the batch with the keys that have a version there."""
    cuts = events.where("kind = 'truncate'").select(
        F.col("order").alias("cut"), F.col("source_time").alias("cut_time")
    )
    rows = table.select(
        *(F.col(quoted(name)).alias(column_aliases(target)[name]) for name in target.keys),
        F.col(ORDER).alias("o"),
        F.col(UNTIL).alias("until"),
    )
    spans = (F.col("o") < F.col("cut")) & (
        F.col("until").isNull() | (F.col("until") > F.col("cut"))
    )
    return rows.join(F.broadcast(cuts.distinct()), spans).drop("o", "until")


def _held(table: DataFrame, touched: Sequence[DataFrame], plan: TablePlan) -> DataFrame:
    """Return the versions that the table holds of touched keys."""
    columns = stored_columns(plan.target)
    own = F.map_filter(columns, lambda _, order: order == F.lit(bytearray(OWN_ORDER)))
    rows = table.select(
        *(F.col(quoted(name)).alias(alias) for name, alias in column_aliases(plan.target).items()),
        F.col(ORDER).alias("o"),
        F.col(VALID_FROM).alias("time"),
        F.lit(False).alias("is_end"),
        columns.isNull().alias("whole"),
        F.map_keys(own).alias("has"),
        F.col(UNTIL).alias("held_until"),
        F.col(VALID_TO).alias("held_to"),
        F.lit(True).alias("is_held"),
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
    are_few = plan.work.has_few_keys and not plan.work.newest_truncate
    return rows.join(F.broadcast(wanted_keys) if are_few else wanted_keys, same, "left_semi")


def _placed(frames: Sequence[DataFrame], plan: TablePlan) -> DataFrame:
    """Return every version of touched keys: its columns, with their orders where they differ."""
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

    # of two values at one order the greater one wins
    joined = (
        every.repartition(*names)
        .groupBy(*names, "o")
        .agg(
            F.max("is_end").alias("is_end"),
            F.max("whole").alias("whole"),
            F.max("time").alias("time"),
            F.max("held_until").alias("held_until"),
            F.max("held_to").alias("held_to"),
            F.max(F.col("is_held").isNull()).alias("is_told"),
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
        *("o", "is_end", "whole", "time", "held_until", "held_to", "is_told"),
        F.lead("o").over(by_order).alias("until"),
        F.lead("time").over(by_order).alias("to"),
        *map(pick, columns),
    )
    return placed.where("NOT is_end")


def _written(placed: DataFrame, plan: TablePlan) -> DataFrame:
    """Return the versions that are new or change, as the table has them."""
    names = key_columns(plan.target)
    every = column_aliases(plan.target)
    picked = {name: alias for name, alias in every.items() if alias not in names}
    moved = ~F.col("until").eqNullSafe(F.col("held_until"))
    moved = moved | ~F.col("to").eqNullSafe(F.col("held_to"))
    changed = placed.where(F.col("is_told") | moved | ~F.col("whole"))

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
