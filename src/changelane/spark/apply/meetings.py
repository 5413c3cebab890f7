# SPDX-License-Identifier: Apache-2.0
"""Keys at which two rows meet inside one transaction, under deferred constraints.

A row arrives where another is that leaves later in the transaction, perhaps in a later batch. The
side table remembers such a key as one that leads to itself (apply.md section 4).
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.apply.transactions import HEADER_BYTES, TRANSACTION_BYTES
from changelane.spark.lake.modes import UPSERT
from changelane.spark.ledgers.side import SideTable
from changelane.spark.schemas.evolve import Plan


def transaction_of(name: str) -> Column:
    """Return the part of an order that the changes of one transaction share, NULL without one."""
    order = F.col(name)
    found = F.lit(None).cast("binary")
    for domain, length in TRANSACTION_BYTES.items():
        part = F.substring(order, HEADER_BYTES + 1, length)
        is_told = (F.substring(order, 2, 1) == F.lit(bytearray([domain]))) & (
            part != F.lit(bytearray(length))
        )
        found = F.when(is_told, F.substring(order, 1, HEADER_BYTES + length)).otherwise(found)
    return found


def leaving(rows: DataFrame) -> DataFrame:
    """Return ``key``, ``order`` and ``transaction`` of what leaves a key."""
    moved = rows.where("op = 'u' AND other_key IS NOT NULL")
    return (
        rows.where("op = 'd'")
        .select("key", "order", "transaction")
        .unionByName(moved.select(F.col("other_key").alias("key"), "order", "transaction"))
    )


def met_before(known: DataFrame, rows: DataFrame) -> DataFrame:
    """Return keys at which two rows met in an earlier batch, and which one leaves now.

    The rule asks which, in the transaction in which they met (``moved_to`` is the key itself);
    after it such a departure is one like any other.
    """
    met = known.where("moved_to = key").select("key", transaction_of("deleted").alias("at"))
    left = leaving(rows).select("key", transaction_of("order").alias("at"))
    left = F.broadcast(left.where("at IS NOT NULL").distinct())
    return met.join(left, ["key", "at"]).select("key")


def may_have_met(told: DataFrame, side: SideTable, plans: Sequence[Plan]) -> DataFrame | None:
    """Return the arrivals at keys of which nothing was told before, where another row may be.

    The same as the rule does for keys that go through it: a row that nothing told may leave in a
    later batch of the transaction, and a before image of more than the key tells it from this one.
    """
    rest = [
        (
            one.work.table_id,
            name,
            sum(column.fixed is None for column in schema.columns) - len(one.target.keys),
        )
        for one in plans
        if one.mode == UPSERT and one.work.has_other_keys and one.work.is_transactional
        for name, schema in one.target.schemas.items()
    ]
    if not rest:
        return None
    spark = told.sparkSession
    names = spark.createDataFrame(rest, "table_id STRING, schema_id STRING, rest INT")
    is_update = F.col("op") == "u"
    start = F.expr("concat(substring(`order`, 1, length(`order`) - 1), unhex('00'))")
    lacking = F.coalesce(F.size("before_missing"), F.lit(0))
    came = (
        told.where("kind = 'data' AND op IN ('u', 'd') AND other_key IS NOT NULL")
        .where(F.col("before").isNotNull() & transaction_of("order").isNotNull())
        .join(F.broadcast(names), ["table_id", "schema_id"])
        .where(lacking < F.col("rest"))
        .select(
            "table_id",
            F.when(is_update, F.col("key")).otherwise(F.col("other_key")).alias("key"),
            start.alias("deleted"),
            "source_time",
        )
        .withColumn("moved_to", F.col("key"))
    )
    keys = F.broadcast(came.select("table_id", "key").distinct())
    known = side.table().where("deleted IS NOT NULL").select("table_id", "key")
    told_before = known.join(keys, ["table_id", "key"], "left_semi")
    return came.join(F.broadcast(told_before), ["table_id", "key"], "left_anti")
