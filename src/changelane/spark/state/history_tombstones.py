# SPDX-License-Identifier: Apache-2.0
"""Where versions ended: every delete, departure and truncate of the tables of mode ``history``.

The side table keeps the newest departure of a key, which is all that a row needs; versions need
every one of them, because an event that comes late may belong before any. One table per stream:
table, key (NULL for a truncate), order, and whether a row arrived there by a change of its key,
which ends what the key held (:mod:`changelane.apply.history`). It is written before the targets:
telling it twice is harmless.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.spark.lake.interface import Lake, retried
from changelane.spark.lake.merge import Clause, Merge
from changelane.spark.runtime.sql import quoted

NAME: Final = "_changelane/ends"
COLUMNS: Final = {
    "table_id": "STRING",
    "key": "STRING",
    "order": "BINARY",
    "source_time": "TIMESTAMP",
    "arrived": "BOOLEAN",
}
_TOLD: Final = Merge(
    keys=("table_id", "key", "order"),
    matched=(
        Clause(
            "(s.arrived AND NOT t.arrived OR coalesce(s.source_time > t.source_time, "
            "s.source_time IS NOT NULL AND t.source_time IS NULL))",
            {
                "arrived": "s.arrived OR t.arrived",
                "source_time": "greatest(s.source_time, t.source_time)",
            },
        ),
    ),
    values={name: f"s.{quoted(name)}" for name in COLUMNS},
)


class Ends:
    """The ends of one stream; the table is made when it is first needed."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark = spark
        self._lake = lake

    def remember(self, events: DataFrame, table_ids: Sequence[str]) -> None:
        """Keep what a batch tells of ends, in one commit.

        Args:
            events: ``data`` and ``truncate`` event rows.
            table_ids: The tables whose ends are kept.
        """
        self._lake.create(NAME, COLUMNS, {})
        told = _ends(events.where(F.col("table_id").isin(*table_ids)))
        newest = told.groupBy("table_id", "key", "order").agg(
            F.max("source_time").alias("source_time"), F.max("arrived").alias("arrived")
        )
        retried(lambda: self._lake.merge(self._spark, NAME, newest, _TOLD))

    def of(self, table_id: str, keys: DataFrame, *, are_few: bool = True) -> DataFrame:
        """Return ``key``, ``order``, ``source_time`` and ``arrived`` of the ends of some keys.

        Args:
            table_id: The table.
            keys: The keys in a column ``key``.
            are_few: Whether the keys are few enough to be broadcast.
        """
        mine = self._mine(table_id).where("key IS NOT NULL")
        wanted = keys.select("key").distinct()
        found = mine.join(F.broadcast(wanted) if are_few else wanted, "key", "left_semi")
        return found.drop("table_id")

    def truncates(self, table_id: str) -> DataFrame:
        """Return one row: ``truncates``, the orders and times of a table's truncates."""
        found = self._mine(table_id).where("key IS NULL")
        every = F.collect_list(F.struct(F.col("order").alias("o"), F.col("source_time").alias("t")))
        return found.agg(every.alias("truncates"))

    def _mine(self, table_id: str) -> DataFrame:
        if not self._lake.exists(NAME):
            self._lake.create(NAME, COLUMNS, {})
        return self._lake.read(NAME).where(F.col("table_id") == F.lit(table_id))


def _ends(events: DataFrame) -> DataFrame:
    """Return the ends that event rows tell; a change of the key tells two."""
    leaves = F.col("op") == "d"
    moves = ~leaves & F.col("other_key").isNotNull()
    departed = F.expr("concat(substring(`order`, 1, length(`order`) - 1), unhex('00'))")

    def told(rows: Column, key: Column, order: Column, *, arrived: bool = False) -> DataFrame:
        named = (key.alias("key"), order.alias("order"), "source_time")
        return events.where(rows).select("table_id", *named, F.lit(arrived).alias("arrived"))

    gone = F.when(F.col("kind") == "data", F.col("key"))
    left = told(leaves | (F.col("kind") == "truncate"), gone, F.col("order"))
    # the first half of a key change that two messages tell is a delete
    moved = told(moves & (F.col("op") == "u"), F.col("other_key"), departed)
    come = told(moves, F.col("key"), departed, arrived=True)
    return left.unionByName(moved).unionByName(come)
