# SPDX-License-Identifier: Apache-2.0
"""Keys whose rows moved and took columns along: the few that need more than a fold.

A key change may lack columns (unchanged TOAST), its halves may come in different batches, late
events of the old key follow the row to its new one, and inside one transaction keys may be
swapped (docs/merge-rule.md, Keys inside one transaction). Such keys, and only these, go through
:func:`changelane.apply.merge.resolve` itself, in one task; everything else stays with the fold.
"""

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import Final, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.spark.apply.classify.deferred_constraints import (
    arrived_earlier,
    identified_moves,
    keys_of_transactions,
    leaving,
)
from changelane.spark.apply.merge_worker import resolve_keys
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.lookup import existing_rows, json_type, value_of_text
from changelane.spark.rows import latest_per_key
from changelane.spark.rows.added_columns import lacks_column
from changelane.spark.rows.target import Target, with_defaults
from changelane.spark.runtime.sql import COLUMNS, DELETED, LIVE, ORDER
from changelane.spark.state.tombstones import TableTombstones, TombstoneTable

_VALUES: Final = "map<string,string>"
TOLD: Final = (
    "what STRING, key STRING, `order` BINARY, other STRING, transaction STRING, whole BOOLEAN, "
    f"has ARRAY<STRING>, values {_VALUES}, orders MAP<STRING,BINARY>, transactions STRING"
)
RESOLVED: Final = (
    "key STRING, live BOOLEAN, deleted BINARY, moved_to STRING, `order` BINARY, "
    f"orders MAP<STRING,BINARY>, values {_VALUES}, code STRING, "
    "transactions STRING, within BINARY, until BINARY"
)


class Moved(NamedTuple):
    """Keys of a table that went through the rule itself, and what became of them."""

    keys: DataFrame
    states: DataFrame


def moved_keys(
    rows: DataFrame,
    table: DataFrame,
    side: TombstoneTable,
    plan: TablePlan,
    remembered: TableTombstones,
    *,
    late: DataFrame | None = None,
) -> DataFrame | None:
    """Return the keys of a batch that a fold cannot decide, in a column ``key``; ``None`` = none.

    Args:
        rows: ``data`` rows of one table.
        table: The table.
        side: What is remembered.
        plan: How the table's events are applied.
        remembered: What is remembered of the whole table.
        late: Keys of events that are too late; a row that arrives there left another key.
    """
    seeds: list[DataFrame] = []
    ends: list[DataFrame] = []
    if plan.work.has_other_keys:
        moves = rows.where(F.col("other_key").isNotNull()).select(
            "op", "key", "other_key", "whole", "order", "transaction"
        )
        seeds.append(_undecided(moves, rows))
        named_keys = identified_moves(rows, plan)
        seeds += [named_keys.select("key"), named_keys.select(F.col("other_key").alias("key"))]
        if late is not None:
            seeds.append(moves.where("op != 'd'").join(late, "key", "left_semi").select("key"))
        if plan.work.is_transactional:
            seeds.append(_held_arrivals(moves, rows, table, plan))
        ends.append(moves.select("key", "other_key"))
    if remembered.has_key_changes:
        stored_moves = side.moved_keys(plan.work.table_id)
        touched = latest_per_key.touched_keys(rows, moves=plan.work.has_other_keys).distinct()
        away = stored_moves.where("moved_to != key").join(F.broadcast(touched), "key", "left_semi")
        within = keys_of_transactions(side.transactions_of(plan.work.table_id), rows)
        seeds += [away.select("key"), arrived_earlier(stored_moves, rows), within]
        ends.append(stored_moves.select("key", F.col("moved_to").alias("other_key")))
    if not seeds:
        return None
    # a row that moved before and moves again in this batch: one closure over both
    closed_keys = _closure(
        reduce(DataFrame.unionByName, seeds), reduce(DataFrame.unionByName, ends)
    )
    cached_keys = (
        closed_keys.where("key IS NOT NULL").distinct().persist(StorageLevel.MEMORY_AND_DISK)
    )
    if cached_keys.isEmpty():
        cached_keys.unpersist()
        return None
    return cached_keys


def _undecided(moves: DataFrame, rows: DataFrame) -> DataFrame:
    arrives = F.col("op") != "d"
    lacking = moves.where(arrives & ~F.col("whole")).select("key")
    # the first half of a key change whose second half is not here, or not whole
    full_arrivals = moves.where(arrives & F.col("whole")).select(
        F.col("key").alias("other_key"), F.col("other_key").alias("key")
    )
    lone = (
        moves.where(~arrives).join(full_arrivals, ["key", "other_key"], "left_anti").select("key")
    )
    # a key that a row reaches and another leaves in one transaction: swaps and chains
    arrived = moves.where(arrives).select(
        "key", F.col("order").alias("came"), F.col("transaction").alias("within")
    )
    within = F.coalesce(F.col("transaction") == F.col("within"), F.lit(True))
    rivals = leaving(rows).join(arrived, "key").where((F.col("order") > F.col("came")) & within)
    return lacking.unionByName(lone).unionByName(rivals.select("key")).distinct()


def _held_arrivals(
    moves: DataFrame, rows: DataFrame, table: DataFrame, plan: TablePlan
) -> DataFrame:
    """Return the keys at which rows arrive where others seem to be.

    Under deferred constraints the other row may leave in a later batch; where positions tell the
    transaction, the rule remembers that two rows met (docs/merge-rule.md, Keys inside one
    transaction).
    """
    arrived = moves.where("op != 'd'").groupBy("key").agg(F.max("order").alias("came"))
    upserts = rows.where("op != 'd'").select("key", "order")
    overtaken_keys = (
        upserts.join(arrived, "key").where(F.col("order") < F.col("came")).select("key")
    )
    live_rows = table.where(~F.col(DELETED)) if plan.target.keeps_deleted else table
    stored_rows = existing_rows(live_rows, arrived.select("key"), plan.target)
    return overtaken_keys.unionByName(stored_rows.select("key")).distinct()


def _closure(seeds: DataFrame, moves: DataFrame) -> DataFrame:
    """Return the seeds with every key that moves lead to from them, or lead from."""
    ends = moves.select("key", "other_key").distinct()
    # not eager: the count computes what the checkpoint keeps
    reached = seeds.distinct().localCheckpoint(eager=False)
    count = reached.count()
    while count:
        forth = ends.join(reached, "key").select(F.col("other_key").alias("key"))
        back = ends.join(reached.withColumnRenamed("key", "other_key"), "other_key").select("key")
        reached = (
            reached.unionByName(forth).unionByName(back).distinct().localCheckpoint(eager=False)
        )
        grown = reached.count()
        if grown == count:
            break
        count = grown
    return reached


def resolved(
    rows: DataFrame,
    keys: DataFrame,
    table: DataFrame,
    side: TombstoneTable,
    plan: TablePlan,
    *,
    remembered: TableTombstones,
) -> DataFrame:
    """Return what becomes of moved keys: :data:`RESOLVED`, a row a key and a row a problem."""
    target = plan.target
    step_rows = _steps(rows, target, keys)
    remembers = side.for_keys(plan.work.table_id, keys).select(
        F.lit("side").alias("what"),
        "key",
        F.col("deleted").alias("order"),
        F.col("moved_to").alias("other"),
    )
    within = side.transactions_of(plan.work.table_id, keys).select(
        F.lit("within").alias("what"), "key", "transactions"
    )
    parts = [remembers, within]
    if target.keeps_deleted:
        parts.append(_held(table.where(~F.col(DELETED)), keys, target, "held"))
        parts.append(_held(table.where(DELETED), keys, target, "gone"))
    else:
        parts.append(_held(table, keys, target, "held"))
    everything = step_rows
    for part in parts:
        everything = everything.unionByName(part, allowMissingColumns=True)
    work = partial(resolve_keys, target._replace(schemas={}), remembered)
    shaped = everything.selectExpr(
        "what",
        "key",
        "`order`",
        "other",
        "transaction",
        "whole",
        "has",
        "values",
        "orders",
        "transactions",
    )
    return shaped.repartition(1).mapInArrow(work, RESOLVED)


def raised(
    rows: DataFrame, moved: Mapping[str, Moved], side: TombstoneTable, plans: Sequence[TablePlan]
) -> DataFrame:
    """Return what the batch raises in the side table; moved keys as they were resolved."""
    raised = side.tombstones_of(rows)
    cleared = [(plan.work.table_id, plan.cleared) for plan in plans if plan.cleared]
    if cleared:
        went = rows.sparkSession.createDataFrame(cleared, "table_id STRING, truncated BINARY")
        raised = raised.unionByName(went, allowMissingColumns=True)
    times = {plan.work.table_id: plan.work.time_us for plan in plans}
    for table_id, moved_keys in moved.items():
        table_keys = moved_keys.keys.select(F.lit(table_id).alias("table_id"), "key")
        raised = raised.join(F.broadcast(table_keys), ["table_id", "key"], "left_anti")
        # the newest time of the table in this batch: not before that of the departure
        time = F.lit(times.get(table_id)).cast("bigint")
        is_told = "length(deleted) > 0 OR transactions IS NOT NULL"
        settled = moved_keys.states.where(f"code IS NULL AND ({is_told})").select(
            F.lit(table_id).alias("table_id"),
            "key",
            F.expr("nullif(deleted, unhex(''))").alias("deleted"),
            "moved_to",
            F.timestamp_micros(time).alias("source_time"),
            "transactions",
            "within",
            "until",
        )
        raised = raised.unionByName(settled, allowMissingColumns=True)
    return raised


def final(rows: DataFrame, plan: TablePlan) -> DataFrame:
    """Return resolved keys as final rows of the table; ``LIVE`` says which of them exist."""
    target = plan.target
    columns = [
        value_of_text(F.try_element_at("values", F.lit(name)), kind).alias(name)
        for name, kind in target.columns.items()
    ]
    return rows.where("code IS NULL").select(
        *columns,
        F.col("order").alias(ORDER),
        F.when(F.size("orders") > 0, F.col("orders")).alias(COLUMNS),
        F.col("live").alias(LIVE),
    )


def _as_text(row: Column, kind: str, name: str) -> Column:
    value = row[name]
    if kind == "binary":
        return F.base64(value)
    if kind.startswith(("array", "struct")):
        return F.to_json(F.struct(value.cast(json_type(kind)).alias("v")))
    return value.cast("string")


def _texts(row: Column, target: Target) -> Column:
    names = F.array(*(F.lit(name) for name in target.columns))
    values = F.array(*(_as_text(row, kind, name) for name, kind in target.columns.items()))
    return F.map_from_arrays(names, values)


def _steps(rows: DataFrame, target: Target, keys: DataFrame) -> DataFrame:
    """Return upserts and departures with typed values as text, and what each knows.

    Before its upsert an update tells the row that was there, as far as an image tells it.
    """
    leaves = F.col("op") == "d"
    moves = (F.col("op") == "u") & F.col("other_key").isNotNull()
    schema_id = F.col("schema_id")

    def step_of(column: Column, key: str, other_key: str, image: str) -> Column:
        missing = F.col(f"{image}_missing")
        return F.struct(
            column.alias("what"),
            F.col(key).alias("key"),
            F.col(other_key).alias("other"),
            F.col(image).alias("text"),
            missing.alias("missing"),
        )

    departure = step_of(F.lit("leave"), "other_key", "key", "before")
    plain = F.when(leaves, step_of(F.lit("leave"), "key", "other_key", "before")).otherwise(
        step_of(
            F.when(F.col("op") == "c", F.lit("insert")).otherwise(F.lit("arrive")),
            "key",
            "other_key",
            "after",
        )
    )
    was = step_of(F.lit("was"), "key", "other_key", "before")
    updates = (F.col("op") == "u") & F.col("before").isNotNull()
    step_rows = rows.select(
        F.explode(
            F.when(moves, F.array(plain, departure, was))
            .when(updates, F.array(plain, was))
            .otherwise(F.array(plain))
        ).alias("s"),
        "order",
        "schema_id",
        "transaction",
        "whole",
    ).select("s.*", "order", "schema_id", "transaction", "whole")
    step_rows = step_rows.join(F.broadcast(keys), "key", "left_semi")
    row = latest_per_key.parsed_row(F.col("text"), schema_id, target)
    complete = F.col("what").isin("arrive", "insert") & F.col("missing").isNull()
    complete = complete & (F.col("whole") | latest_per_key.names_all_columns(schema_id, target))
    row = with_defaults(row, F.col("order"), schema_id, target)
    return step_rows.withColumn("row", row).select(
        "what",
        "key",
        "order",
        "other",
        "transaction",
        "whole",
        _carried(target, complete).alias("has"),
        _texts(F.col("row"), target).alias("values"),
    )


def _carried(target: Target, complete: Column) -> Column:
    """Return what an event carries: a whole one the defaults, too, of columns that came later."""
    schema_id = F.col("schema_id")
    has = latest_per_key.carried_columns(schema_id, F.col("missing"), target, complete)
    for addition in target.additions:
        if not addition.is_unknown:
            is_older = lacks_column(
                F.col("order"), schema_id, addition, target.schemas_with(addition.column)
            )
            is_filled = is_older & F.col("whole") & F.col("what").isin("arrive", "insert")
            has = F.when(is_filled, F.array_append(has, F.lit(addition.column))).otherwise(has)
    return has


def _held(table: DataFrame, keys: DataFrame, target: Target, kind: str) -> DataFrame:
    return existing_rows(table, keys, target).select(
        F.lit(kind).alias("what"),
        "key",
        "order",
        _texts(F.col("row"), target).alias("values"),
        "orders",
    )
