# SPDX-License-Identifier: Apache-2.0
"""Keys at which two rows meet inside one transaction, under deferred constraints.

A row arrives where another is that leaves later in the transaction, perhaps in a later batch. The
side table remembers such a key as one that leads to itself (docs/merge-rule.md, Keys inside one
transaction).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.apply.transactions import HEADER_BYTES, IMMEDIATE_DOMAINS, TRANSACTION_BYTES
from changelane.spark.evolution.table_plan import TablePlan


def transaction_of(name: str) -> Column:
    """Return the part of an order that the changes of one transaction share, NULL without one."""
    order = F.col(name)
    transaction = F.lit(None).cast("binary")
    for domain, length in TRANSACTION_BYTES.items():
        part = F.substring(order, HEADER_BYTES + 1, length)
        is_told = (F.substring(order, 2, 1) == F.lit(bytearray([domain]))) & (
            part != F.lit(bytearray(length))
        )
        transaction = F.when(is_told, F.substring(order, 1, HEADER_BYTES + length)).otherwise(
            transaction
        )
    return transaction


def leaving(rows: DataFrame) -> DataFrame:
    """Return ``key``, ``order`` and ``transaction`` of what leaves a key."""
    moved = rows.where("op = 'u' AND other_key IS NOT NULL")
    return (
        rows.where("op = 'd'")
        .select("key", "order", "transaction")
        .unionByName(moved.select(F.col("other_key").alias("key"), "order", "transaction"))
    )


def arrived_earlier(stored: DataFrame, rows: DataFrame) -> DataFrame:
    """Return keys at which two rows met in an earlier batch, and which one leaves now.

    The rule asks which, in the transaction in which they met (``moved_to`` is the key itself);
    after it such a departure is one like any other.
    """
    arrived = stored.where("moved_to = key").select("key", transaction_of("deleted").alias("at"))
    departures = leaving(rows).select("key", transaction_of("order").alias("at"))
    departures = F.broadcast(departures.where("at IS NOT NULL").distinct())
    return arrived.join(departures, ["key", "at"]).select("key")


def identified_moves(rows: DataFrame, plan: TablePlan) -> DataFrame:
    """Return ``key`` and ``other_key`` of changes of keys inside transactions that have a name.

    Those whose before images tell more than the key, or that nothing says to be of immediate
    constraints; and arrivals whose departures are not in the batch.

    Args:
        rows: ``data`` rows of one table.
        plan: How the table's events are applied.
    """
    parts = len(plan.target.keys)
    other_columns = [
        F.when(
            F.col("schema_id") == name,
            F.lit(sum(column.fixed is None for column in schema.columns) - parts),
        )
        for name, schema in plan.target.schemas.items()
    ]
    lacking = F.coalesce(F.size("before_missing"), F.lit(0))
    is_named = F.col("before").isNotNull() & (lacking < F.coalesce(*other_columns, F.lit(0)))
    immediate = [F.lit(bytearray([code])) for code in sorted(IMMEDIATE_DOMAINS)]
    is_told = is_named | ~F.substring("order", 2, 1).isin(*immediate)
    moved = rows.where("other_key IS NOT NULL AND other_key != key").where(_name().isNotNull())
    place = F.expr("substring(`order`, 1, length(`order`) - 1)").alias("place")  # no phase
    departures = moved.where("op = 'd'").select(
        F.col("other_key").alias("key"), F.col("key").alias("other_key"), place
    )
    arrivals = moved.where("op NOT IN ('u', 'd')").select("key", "other_key", place)
    unpaired = arrivals.join(departures, ["key", "other_key", "place"], "left_anti").drop("place")
    identified = moved.where(F.col("op").isin("u", "d") & is_told).select("key", "other_key")
    return identified.unionByName(unpaired)


def keys_of_transactions(stored: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the keys of events that belong to transactions which moved rows, or before them.

    Args:
        stored: What is remembered of keys inside transactions.
        rows: ``data`` rows of one table.
    """
    touched = rows.select("key", "order", _name().alias("name")).unionByName(
        rows.where("other_key IS NOT NULL").select(
            F.col("other_key").alias("key"), "order", _name().alias("name")
        )
    )
    is_within = (F.col("order") <= F.col("until")) | (F.col("name") == F.col("within"))
    return stored.join(touched, "key").where(is_within).select("key").distinct()


def _name() -> Column:
    """Return what names the transaction of an event, as ``apply.transactions.name_of`` does."""
    identity = F.encode("transaction", "UTF-8")
    transaction_name = F.concat(F.substring("order", 1, 6), F.lit(bytearray(b"#")), identity)
    return F.when(F.length("transaction") > 0, transaction_name).otherwise(transaction_of("order"))
