# SPDX-License-Identifier: Apache-2.0
"""Keys that two rows have inside one transaction, under deferred constraints.

A row is inserted at a key whose row is deleted later in the transaction, perhaps in a later batch.
The tombstone table marks such a key with itself in ``moved_to`` (docs/merge-rule.md, Keys inside
one transaction).
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.apply import AMBIGUOUS
from changelane.apply.transactions import HEADER_BYTES, IMMEDIATE_DOMAINS, TRANSACTION_BYTES
from changelane.spark.apply.classify.classifier import StoredTable
from changelane.spark.evolution.compatibility import is_of_table
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.rows.key_operations import POSITION
from changelane.spark.state.quarantine import RejectedRows

HAS_KEY_CHANGES: Final = "moved"
"""The property of a table of mode ``history`` that ever had a key change."""
REASON: Final = (
    "the key was taken by another row earlier in this transaction, and a table of mode `history` "
    "does not decide which of the two left"
)


def swapped_departures(
    rows: DataFrame, plan: TablePlan, stored: StoredTable
) -> RejectedRows | None:
    """Return the deletes of a ``history`` table that follow an insert at their key.

    Inside one transaction such a delete removes either the inserted row (a chain of key changes)
    or the row that was there before (a swap). :func:`changelane.apply.history.versions` decides by
    the before image where that is possible; here all of them are rejected.

    Args:
        rows: ``data`` rows of one table.
        plan: The plan of the table.
        stored: The table as it is stored before the batch.
    """
    table_batch = plan.table_batch
    if not table_batch.departures and not table_batch.has_other_keys:
        return None
    if not table_batch.has_other_keys and HAS_KEY_CHANGES not in plan.properties:
        return None
    order, transaction = F.col("order"), F.col("transaction")
    deletes = key_deletes(rows)
    inserts = rows.where("op <> 'd' AND other_key IS NOT NULL").select(
        "key", order.alias("inserted_at"), transaction.alias("inserted_in")
    )
    if table_batch.is_transactional:
        stored_ends = stored.history_tombstones.for_keys(table_batch.table_id, deletes)
        stored_inserts = stored_ends.where("arrived").select(
            "key", order.alias("inserted_at"), F.lit(None).cast("string").alias("inserted_in")
        )
        inserts = inserts.unionByName(stored_inserts)
    same = transaction_of("inserted_at").eqNullSafe(transaction_of("order"))
    same = same & transaction_of("order").isNotNull()
    is_same_transaction = F.coalesce(transaction == F.col("inserted_in"), same)
    conflicts = deletes.join(F.broadcast(inserts), "key").where(
        (order > F.col("inserted_at")) & is_same_transaction
    )
    position_and_key = F.concat(_hex_position(), "key").alias("position_and_key")
    positions = [row[0] for row in conflicts.select(position_and_key).distinct().collect()]
    if not positions:
        return None
    deleted_key = F.when(F.col("op") == "d", F.col("key")).when(
        F.col("op") == "u", F.col("other_key")
    )
    is_swap = F.concat(_hex_position(), deleted_key).isin(*positions)
    rejected = is_of_table(table_batch, "data") & F.coalesce(is_swap, F.lit(False))
    return RejectedRows(rejected, AMBIGUOUS, REASON, None)


def _hex_position() -> Column:
    """Return the position of an event in hexadecimal digits."""
    return F.hex(F.expr(POSITION))


def transaction_of(name: str) -> Column:
    """Return the part of an order that the changes of one transaction share, NULL without one."""
    order = F.col(name)
    transaction = F.lit(None).cast("binary")
    for domain, length in TRANSACTION_BYTES.items():
        part = F.substring(order, HEADER_BYTES + 1, length)
        has_transaction = (F.substring(order, 2, 1) == F.lit(bytearray([domain]))) & (
            part != F.lit(bytearray(length))
        )
        transaction = F.when(
            has_transaction, F.substring(order, 1, HEADER_BYTES + length)
        ).otherwise(transaction)
    return transaction


def key_deletes(rows: DataFrame) -> DataFrame:
    """Return ``key``, ``order`` and ``transaction`` of deletes and of the old keys of updates."""
    key_changes = rows.where("op = 'u' AND other_key IS NOT NULL")
    return (
        rows.where("op = 'd'")
        .select("key", "order", "transaction")
        .unionByName(key_changes.select(F.col("other_key").alias("key"), "order", "transaction"))
    )


def shared_keys_with_deletes(stored_moves: DataFrame, rows: DataFrame) -> DataFrame:
    """Return keys that two rows had after an earlier batch, and that this batch deletes.

    The rule decides which of the rows is deleted, if the delete is in the same transaction as the
    insert of the second row (``moved_to`` is the key itself). A later delete is an ordinary one.
    """
    shared_keys = stored_moves.where("moved_to = key").select(
        "key", transaction_of("deleted").alias("transaction")
    )
    deletes = key_deletes(rows).select("key", transaction_of("order").alias("transaction"))
    deletes = F.broadcast(deletes.where("transaction IS NOT NULL").distinct())
    return shared_keys.join(deletes, ["key", "transaction"]).select("key")


def identified_moves(rows: DataFrame, plan: TablePlan) -> DataFrame:
    """Return ``key`` and ``other_key`` of key changes inside transactions with a name.

    Left out are key changes in a domain of immediate constraints whose before images have nothing
    but the key. Key inserts whose key deletes are not in the batch are included.

    Args:
        rows: ``data`` rows of one table.
        plan: The plan of the table.
    """
    key_count = len(plan.target.keys)
    other_columns = [
        F.when(
            F.col("schema_id") == name,
            F.lit(sum(column.fixed is None for column in schema.columns) - key_count),
        )
        for name, schema in plan.target.schemas.items()
    ]
    missing_count = F.coalesce(F.size("before_missing"), F.lit(0))
    has_other_columns = F.col("before").isNotNull() & (
        missing_count < F.coalesce(*other_columns, F.lit(0))
    )
    immediate = [F.lit(bytearray([code])) for code in sorted(IMMEDIATE_DOMAINS)]
    is_identified = has_other_columns | ~F.substring("order", 2, 1).isin(*immediate)
    moves = rows.where("other_key IS NOT NULL AND other_key != key")
    moves = moves.where(_transaction_name().isNotNull())
    position = F.expr(POSITION).alias("position")
    deletes = moves.where("op = 'd'").select(
        F.col("other_key").alias("key"), F.col("key").alias("other_key"), position
    )
    inserts = moves.where("op NOT IN ('u', 'd')").select("key", "other_key", position)
    unpaired = inserts.join(deletes, ["key", "other_key", "position"], "left_anti")
    identified = moves.where(F.col("op").isin("u", "d") & is_identified).select("key", "other_key")
    return identified.unionByName(unpaired.drop("position"))


def keys_of_transactions(stored_transactions: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the keys of events that belong to transactions with key changes, or are older.

    Args:
        stored_transactions: The states of keys inside transactions, of earlier batches.
        rows: ``data`` rows of one table.
    """
    touched = rows.select("key", "order", _transaction_name().alias("name")).unionByName(
        rows.where("other_key IS NOT NULL").select(
            F.col("other_key").alias("key"), "order", _transaction_name().alias("name")
        )
    )
    is_within = (F.col("order") <= F.col("until")) | (F.col("name") == F.col("within"))
    return stored_transactions.join(touched, "key").where(is_within).select("key").distinct()


def _transaction_name() -> Column:
    """Return the name of the transaction of an event, as ``apply.transactions.name_of`` does."""
    identity = F.encode("transaction", "UTF-8")
    name = F.concat(F.substring("order", 1, 6), F.lit(bytearray(b"#")), identity)
    return F.when(F.length("transaction") > 0, name).otherwise(transaction_of("order"))
