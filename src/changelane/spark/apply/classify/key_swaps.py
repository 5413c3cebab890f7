# SPDX-License-Identifier: Apache-2.0
"""Keys of tables of versions that were held twice inside one transaction.

A departure that follows an arrival at its key, in one transaction, tells either of the row that
arrived (a chain of moves) or of the one that was there before (a swap, under deferred
constraints). :func:`changelane.apply.history.versions` decides by the before image where that is
possible; here such departures are quarantined, all of them.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.apply import AMBIGUOUS
from changelane.spark.apply.classify.deferred_constraints import leaving, transaction_of
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.state.history_tombstones import HistoryTombstones
from changelane.spark.state.quarantine import RejectedRows

MOVED: Final = "moved"
"""The property of a table of versions whose keys were ever changed."""
REASON: Final = (
    "the key was taken by another row earlier in this transaction, and a table of mode `history` "
    "does not decide which of the two left"
)


def undecided(rows: DataFrame, plan: TablePlan, ends: HistoryTombstones) -> RejectedRows | None:
    """Return the departures of a batch that come after an arrival at their key.

    Args:
        rows: ``data`` rows of one table.
        plan: How the table's events are applied.
        ends: What is remembered of arrivals.
    """
    if not plan.work.departures and not plan.work.has_other_keys:
        return None
    if not plan.work.has_other_keys and MOVED not in plan.properties:
        return None
    order, transaction = F.col("order"), F.col("transaction")
    departures = leaving(rows)
    arrived = rows.where("op <> 'd' AND other_key IS NOT NULL").select(
        "key", order.alias("came"), transaction.alias("within")
    )
    if plan.work.is_transactional:
        arrivals = ends.for_keys(plan.work.table_id, departures).where("arrived")
        before = arrivals.select(
            "key", order.alias("came"), F.lit(None).cast("string").alias("within")
        )
        arrived = arrived.unionByName(before)
    same = transaction_of("came").eqNullSafe(transaction_of("order"))
    same = same & transaction_of("order").isNotNull()
    is_same_transaction = F.coalesce(transaction == F.col("within"), same)
    rivals = departures.join(F.broadcast(arrived), "key").where(
        (order > F.col("came")) & is_same_transaction
    )
    place = F.concat(_place(order), "key")
    places = [row["place"] for row in rivals.select(place.alias("place")).distinct().collect()]
    if not places:
        return None
    is_of_table = (F.col("table_id") == plan.work.table_id) & (F.col("kind") == "data")
    leaves = F.when(F.col("op") == "d", F.col("key")).when(F.col("op") == "u", F.col("other_key"))
    is_swap = F.coalesce(F.concat(_place(order), leaves).isin(*places), F.lit(False))
    return RejectedRows(is_of_table & is_swap, AMBIGUOUS, REASON, None)


def _place(order: Column) -> Column:
    return F.hex(order.substr(F.lit(1), F.length(order) - 1))
