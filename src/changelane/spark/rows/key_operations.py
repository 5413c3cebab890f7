# SPDX-License-Identifier: Apache-2.0
"""The operations of event rows on keys: upserts and departures, as rows of one form.

The columns are ``key``, ``o``, ``time``, ``schema_id``, ``leaves``, ``text``, ``missing`` and
``whole``, as in :mod:`changelane.spark.rows.latest_per_key`; ``time`` is the time at the source.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

POSITION: Final = "substring(`order`, 1, length(`order`) - 1)"
"""The order of an event without its phase, as SQL; all events of one position have it."""


def upserts_and_departures(events: DataFrame, *, moves: bool) -> DataFrame:
    """Return the upserts and departures of ``data`` rows; a key change is one of each.

    Args:
        events: ``data`` rows of one table.
        moves: Whether there may be key changes.
    """
    plain = events.selectExpr(
        "key",
        "`order` AS o",
        "source_time AS time",
        "schema_id",
        "op = 'd' AS leaves",
        "CASE WHEN op = 'd' THEN `before` ELSE `after` END AS text",
        "CASE WHEN op = 'd' THEN NULL ELSE after_missing END AS missing",
        "NOT op = 'd' AND whole AS whole",
    )
    if not moves:
        return plain
    departures = events.where((F.col("op") == "u") & F.col("other_key").isNotNull()).select(
        F.col("other_key").alias("key"),
        departure_order().alias("o"),
        F.col("source_time").alias("time"),
        "schema_id",
        F.lit(True).alias("leaves"),
        F.col("before").alias("text"),
        F.lit(None).cast("array<string>").alias("missing"),
        F.lit(False).alias("whole"),
    )
    return plain.unionByName(departures)


def departure_order() -> Column:
    """Return the order of the departure of an event's old key: the phase of deletes."""
    return F.expr(f"concat({POSITION}, unhex('00'))")


def with_tombstones(rows: DataFrame, tombstones: DataFrame) -> DataFrame:
    """Return the rows of :func:`upserts_and_departures` with the tombstones of earlier batches.

    Args:
        rows: The rows.
        tombstones: ``key`` and ``deleted``; keys without another row have no effect.
    """
    departures = tombstones.selectExpr(
        "key", "deleted AS o", "true AS leaves", "false AS whole", "true AS is_stored"
    )
    return rows.withColumn("is_stored", F.lit(False)).unionByName(
        departures, allowMissingColumns=True
    )


def touched_keys(events: DataFrame, *, moves: bool) -> DataFrame:
    """Return the keys that ``data`` rows change, in a column ``key``."""
    if not moves:
        return events.select("key")
    return events.select(F.explode(F.array("key", F.coalesce("other_key", "key"))).alias("key"))
