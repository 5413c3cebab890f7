# SPDX-License-Identifier: Apache-2.0
"""The ends of versions: every delete, key delete and truncate of tables of mode ``history``.

The tombstone table stores the newest tombstone of a key, which is enough for a row. Versions need
every tombstone, because a late event may belong before any of them. There is one table per stream:
table, key (NULL for a truncate), order, and whether a row arrived there by a key change, which ends
the versions of the key (:mod:`changelane.apply.history`). It is written before the targets: writing
a tombstone twice is harmless.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.spark.lake.interface import Lake, retry_conflicts
from changelane.spark.lake.merge import Clause, Merge
from changelane.spark.rows.key_operations import departure_order
from changelane.spark.runtime.sql import quoted

NAME: Final = "_changelane/ends"
COLUMNS: Final = {
    "table_id": "STRING",
    "key": "STRING",
    "order": "BINARY",
    "source_time": "TIMESTAMP",
    "arrived": "BOOLEAN",
}
_MERGE: Final = Merge(
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


class HistoryTombstones:
    """The history tombstones of one stream; the first use creates the table."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark = spark
        self._lake = lake

    def record(self, events: DataFrame, table_ids: Sequence[str]) -> None:
        """Write the tombstones of a batch, in one commit.

        Args:
            events: ``data`` and ``truncate`` event rows.
            table_ids: The tables whose tombstones are stored.
        """
        self._lake.create(NAME, COLUMNS, {})
        tombstones = _tombstones_of(events.where(F.col("table_id").isin(*table_ids)))
        newest = tombstones.groupBy("table_id", "key", "order").agg(
            F.max("source_time").alias("source_time"), F.max("arrived").alias("arrived")
        )
        retry_conflicts(lambda: self._lake.merge(self._spark, NAME, newest, _MERGE))

    def for_keys(self, table_id: str, keys: DataFrame, *, are_few: bool = True) -> DataFrame:
        """Return ``key``, ``order``, ``source_time`` and ``arrived`` of tombstones of some keys.

        Args:
            table_id: The table.
            keys: The keys in a column ``key``.
            are_few: Whether the keys are few enough to be broadcast.
        """
        key_tombstones = self._rows_of_table(table_id).where("key IS NOT NULL")
        distinct_keys = keys.select("key").distinct()
        matching_tombstones = key_tombstones.join(
            F.broadcast(distinct_keys) if are_few else distinct_keys, "key", "left_semi"
        )
        return matching_tombstones.drop("table_id")

    def truncates(self, table_id: str, *, after: bytes) -> DataFrame:
        """Return one row: ``truncates``, the orders and times of a table's truncates.

        Args:
            table_id: The table.
            after: The order above which they are: a table may have thousands.
        """
        is_truncate = F.col("key").isNull() & (F.col("order") > F.lit(bytearray(after)))
        truncates = self._rows_of_table(table_id).where(is_truncate)
        truncate_list = F.collect_list(
            F.struct(F.col("order").alias("o"), F.col("source_time").alias("t"))
        )
        return truncates.agg(truncate_list.alias("truncates"))

    def _rows_of_table(self, table_id: str) -> DataFrame:
        if not self._lake.exists(NAME):
            self._lake.create(NAME, COLUMNS, {})
        return self._lake.read(NAME).where(F.col("table_id") == F.lit(table_id))


def _tombstones_of(events: DataFrame) -> DataFrame:
    """Return the tombstones of event rows; a key change has two."""
    is_delete = F.col("op") == "d"
    is_key_change = ~is_delete & F.col("other_key").isNotNull()

    def rows_of(rows: Column, key: Column, order: Column, *, arrived: bool = False) -> DataFrame:
        columns = (key.alias("key"), order.alias("order"), "source_time")
        return events.where(rows).select("table_id", *columns, F.lit(arrived).alias("arrived"))

    deleted_key = F.when(F.col("kind") == "data", F.col("key"))
    delete_rows = rows_of(is_delete | (F.col("kind") == "truncate"), deleted_key, F.col("order"))
    # the first half of a key change in two messages is a delete
    key_delete_rows = rows_of(
        is_key_change & (F.col("op") == "u"), F.col("other_key"), departure_order()
    )
    key_insert_rows = rows_of(is_key_change, F.col("key"), departure_order(), arrived=True)
    return delete_rows.unionByName(key_delete_rows).unionByName(key_insert_rows)
