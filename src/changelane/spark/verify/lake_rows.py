# SPDX-License-Identifier: Apache-2.0
"""The rows of a table of the lake in one version, and the keys that changed after a position."""

from collections.abc import Collection
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.apply.keys import key_values
from changelane.errors import ChangelaneError
from changelane.schema import TableId
from changelane.spark.lake.interface import Lake
from changelane.spark.rows.schema import table_id_of
from changelane.spark.runtime.sql import COLUMNS, DELETED, ORDER
from changelane.spark.state import tombstones
from changelane.spark.verify.canonical_text import key_field
from changelane.spark.verify.comparison import Chunk, Key, RowFields, Sums
from changelane.spark.verify.table_plan import (
    Bound,
    LakeSql,
    TablePlan,
    chunk_ends,
    chunk_number,
)

_NEWEST: Final = f"greatest({ORDER}, array_max(map_values({COLUMNS})))"


class TruncatedError(ChangelaneError):
    """The table was truncated, or its tombstones purged, after the position of a reading."""


class LakeTable(msgspec.Struct, frozen=True):
    """A table of the lake in one version.

    Attributes:
        rows: The rows with their state columns.
        columns_plan: What is compared.
        bounds: The ends of all chunks but the last one.
        is_source: The table is the source of a comparison of two lakes.
    """

    rows: DataFrame
    columns_plan: TablePlan
    bounds: tuple[Bound, ...] = ()
    is_source: bool = False

    @property
    def _sql(self) -> LakeSql:
        return LakeSql(self.columns_plan, is_source=self.is_source)

    def chunk_bounds(self, chunk_rows: int) -> tuple[Bound, ...]:
        """Return the keys that split the table into chunks of about a number of rows."""
        if not self.columns_plan.ranges:
            return ()
        texts = [
            F.expr(f"CAST({value} AS STRING)").alias(f"b{index}")
            for index, value in enumerate(self._sql.range_values)
        ]
        ordered = self._live.select(F.expr(self._sql.range).alias("key"), *texts)
        numbered = ordered.withColumn("n", F.expr("row_number() OVER (ORDER BY key)"))
        rows = numbered.where(f"n % {chunk_rows} = 0").orderBy("n").drop("key", "n").collect()
        return chunk_ends([tuple(row) for row in rows])

    def newest_order(self) -> bytes | None:
        """Return the newest order of a row; ``None`` = the table has no row."""
        (row,) = self.rows.agg(F.max(F.expr(_NEWEST))).collect()
        return None if row[0] is None else bytes(row[0])

    def changed_keys(self, order: bytes) -> frozenset[Key]:
        """Return the keys of the rows that have an event above an order."""
        is_newer = F.expr(_NEWEST) > F.lit(bytearray(order))
        rows = self._live.where(is_newer).select(F.expr(self._sql.key)).collect()
        return frozenset(row[0] for row in rows)

    def sums(self, left_out: frozenset[Key], chunk: Chunk | None = None) -> dict[Chunk, Sums]:
        hashed = self._hashed(left_out)
        if chunk is not None:
            hashed = hashed.where(F.col("chunk") == chunk)
        halves = (
            F.expr(f"sum(CAST(conv({half}(hash, 16), 16, 10) AS DECIMAL(20, 0)))")
            for half in ("left", "right")
        )
        rows = hashed.groupBy("chunk").agg(F.count("hash"), *halves).collect()
        return {
            number: Sums.of(count, int(first), int(second), 0)
            for number, count, first, second in rows
        }

    def hashes(self, chunk: Chunk, left_out: frozenset[Key]) -> dict[Key, list[str]]:
        hashed = self._hashed(left_out).where(F.col("chunk") == chunk)
        hashes: dict[Key, list[str]] = {}
        for key, row_hash in hashed.select("key", "hash").collect():
            hashes.setdefault(key, []).append(row_hash)
        return hashes

    def fields(self, row_keys: frozenset[Key]) -> dict[Key, RowFields]:
        sql = self._sql
        columns = [F.expr(f"md5(CAST({field} AS BINARY))") for field in sql.fields]
        rows = self._live.select(F.expr(sql.key).alias("key"), F.array(*columns).alias("fields"))
        key_rows = rows.join(F.broadcast(self._frame_of(row_keys)), "key", "left_semi").collect()
        row_fields: dict[Key, RowFields] = {}
        for key, fields in key_rows:
            row_fields.setdefault(key, []).append(tuple(fields))
        return row_fields

    @property
    def _live(self) -> DataFrame:
        is_soft = DELETED in self.rows.columns
        return self.rows.where(f"NOT coalesce({DELETED}, false)") if is_soft else self.rows

    def _hashed(self, left_out: frozenset[Key]) -> DataFrame:
        """Return ``chunk``, ``key`` and ``hash`` of the rows that are not left out."""
        sql = self._sql
        rows = self._live.select(
            F.expr(chunk_number(sql, self.bounds)).alias("chunk"),
            F.expr(sql.key).alias("key"),
            F.expr(f"md5(CAST({sql.row} AS BINARY))").alias("hash"),
        )
        if not left_out:
            return rows
        return rows.join(F.broadcast(self._frame_of(left_out)), "key", "left_anti")

    def _frame_of(self, row_keys: Collection[Key]) -> DataFrame:
        session: SparkSession = self.rows.sparkSession
        return session.createDataFrame([(key,) for key in row_keys], "key STRING")


def deleted_keys(
    lake: Lake, table_id: TableId, columns_plan: TablePlan, order: bytes
) -> frozenset[Key]:
    """Return the keys of a table with a delete or a departure above an order.

    Call it after the table is read: its deletes are recorded before they reach the table.

    Raises:
        TruncatedError: The table was truncated above the order, or tombstones were purged.
    """
    if not lake.exists(tombstones.NAME):
        return frozenset()
    floor = F.lit(bytearray(order))
    names = ("deleted", "truncated", "purged")
    is_newer = F.greatest(*(F.coalesce(name, F.unhex(F.lit(""))) for name in names)) > floor
    rows = lake.read(tombstones.NAME).where(is_newer).select("table_id", "key").distinct()
    keys = [row["key"] for row in rows.collect() if table_id_of(row["table_id"]) == table_id]
    if None in keys:
        raise TruncatedError(f"{table_id} was truncated during the verification")
    return frozenset(tombstone_key(key, columns_plan) for key in keys)


def tombstone_key(key: str, columns_plan: TablePlan) -> Key:
    """Return the canonical key of a tombstone as the key of a comparison."""
    values = zip(key_values(key.encode()), columns_plan.key_columns, strict=True)
    return "".join(
        "-" if value is None else key_field(column.key_text(value))
        for value, column in values
        if column.key_text is not None
    )


def newest_tombstone(lake: Lake, table_id: TableId) -> bytes | None:
    """Return the newest order of a delete or a truncate of a table; ``None`` = there is none."""
    if not lake.exists(tombstones.NAME):
        return None
    newest = F.greatest(
        *(F.coalesce(name, F.unhex(F.lit(""))) for name in ("deleted", "truncated"))
    )
    rows = lake.read(tombstones.NAME).groupBy("table_id").agg(F.max(newest).alias("newest"))
    orders = [
        bytes(row["newest"]) for row in rows.collect() if table_id_of(row["table_id"]) == table_id
    ]
    return max(filter(None, orders), default=None)
