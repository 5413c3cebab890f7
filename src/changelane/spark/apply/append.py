# SPDX-License-Identifier: Apache-2.0
"""The mode ``append``: every event of a table is a row of it, with what it did and where it stood.

Exactly once by the marker, as in every mode. Beyond that, where positions order the events, one
that comes again in another batch is known by its order and its content and is not appended again;
where only offsets do, it is: a topic that was copied tells other offsets.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.position import OffsetPosition
from changelane.spark.events import fold
from changelane.spark.events.fold import nothing
from changelane.spark.events.survey import told_schema
from changelane.spark.schemas.evolve import Plan
from changelane.spark.sql import COLUMNS, ORDER, quoted

EVENT: Final = "_changelane_event"


def changes(rows: DataFrame, one: Plan, table: DataFrame, high: str) -> DataFrame:
    """Return the events of a batch that the table does not hold, with its columns.

    Args:
        rows: ``data`` and ``truncate`` rows of one table.
        one: How the table's events are applied.
        table: The table.
        high: The newest order that the table holds, as hexadecimal digits.
    """
    content = ("kind", "op", "key", "other_key", told_schema(), "before", "after")
    told = rows.withColumn(EVENT, F.xxhash64(*content))
    if is_known_by_order(one):
        told = _fresh(told.dropDuplicates(["order", EVENT]), table, high)
    leaves = F.col("op") == "d"
    state = {
        "_changelane_op": F.col("op"),
        "_changelane_time": F.col("source_time"),
        ORDER: F.col("order"),
        COLUMNS: _unknown(one),
        "_changelane_before": F.when(~leaves, F.col("before")),
        "_changelane_transaction": F.col("transaction"),
        "_changelane_topic": F.col("topic"),
        "_changelane_partition": F.col("partition"),
        "_changelane_offset": F.col("offset"),
        "_changelane_index": F.col("row_index"),
        EVENT: F.col(EVENT),
    }
    columns = one.target.columns
    if not one.work.schemas:
        nulls = (F.lit(None).cast(kind).alias(name) for name, kind in columns.items())
        return told.select(*nulls, *(value.alias(name) for name, value in state.items()))
    text = F.when(leaves, F.col("before")).otherwise(F.col("after"))
    typed = fold.typed_rows(told, text, F.col("schema_id"), one.target, state)
    return typed.select(*(F.col(quoted(name)) for name in (*columns, *state)))


def newest(table: DataFrame) -> str:
    """Return the newest order that a table holds, as hexadecimal digits."""
    (row,) = table.agg(F.max(ORDER).alias("newest")).collect()
    return bytes(row["newest"] or b"").hex()


def is_known_by_order(one: Plan) -> bool:
    """Say whether an event that comes again has the order that it had."""
    # those of other kinds are set aside
    return one.kind[1:] != bytes([OffsetPosition.code])


def _fresh(told: DataFrame, table: DataFrame, high: str) -> DataFrame:
    (row,) = told.agg(F.min("order").alias("lowest")).collect()
    if row["lowest"] is None:
        return told
    if bytes(row["lowest"]).hex() > high:
        return told
    held = table.where(F.col(ORDER) >= F.lit(row["lowest"])).select(
        F.col(ORDER).alias("order"), EVENT
    )
    return told.join(held, ["order", EVENT], "left_anti")


def _unknown(one: Plan) -> Column:
    """Return the columns that an event does not tell, as exceptions: unknown."""
    none = F.lit(None).cast("map<string,binary>")
    if not one.work.schemas:
        return none
    leaves = F.col("op") == "d"
    missing = F.when(leaves, F.col("before_missing")).otherwise(F.col("after_missing"))
    known = fold.carried(F.col("schema_id"), missing, one.target)
    lacking = F.array_except(F.array(*(F.lit(name) for name in one.target.columns)), known)
    every = (leaves & missing.isNull()) | F.col("whole") | (F.col("kind") == "truncate")
    told = F.map_from_arrays(lacking, F.transform(lacking, lambda _: nothing()))
    return F.when(~F.coalesce(every, F.lit(False)) & (F.size(lacking) > 0), told).otherwise(none)
