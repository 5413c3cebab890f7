# SPDX-License-Identifier: Apache-2.0
"""The rows of a table of the lake in one version, and the keys that changed after a position."""

from collections.abc import Collection
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.apply.keys import key_values
from changelane.errors import UnknownNameError
from changelane.pipeline.config import Pipeline
from changelane.schema import TableId
from changelane.spark.lake.interface import Lake
from changelane.spark.run.latest import latest_tables
from changelane.spark.runtime.sql import COLUMNS, DELETED, EMPTY_ORDER, ORDER
from changelane.spark.verify.canonical_text import key_field
from changelane.spark.verify.comparison import Chunk, Key, RowFields, Sums
from changelane.spark.verify.table_plan import (
    Bound,
    LakeSql,
    TablePlan,
    chunk_ends,
    chunk_number,
)
from changelane.spark.verify.table_planning import UnverifiableError

_NEWEST: Final = f"greatest({ORDER}, array_max(map_values({COLUMNS})))"
_REMOVALS: Final = ("deleted", "truncated")
"""The columns of tombstones with the orders of removed rows."""


class TruncatedError(UnverifiableError):
    """The table was truncated, rewritten, or its tombstones purged, after the snapshot."""


class LakeVersion(NamedTuple):
    """A table of the lake in one version, with the events that wait for a merge.

    Attributes:
        rows: The rows with their state columns.
        tombstones: The deletes and truncates of at least these events.
        name: The name of the table in the lake.
    """

    rows: DataFrame
    tombstones: DataFrame
    name: str


def lake_version(pipeline: Pipeline, lake: Lake, table_id: TableId) -> LakeVersion | None:
    """Return the newest version of a table; ``None`` = the lake has no table of it.

    Raises:
        UnverifiableError: The events that wait for the table cannot be merged.
    """
    try:
        latest = latest_tables(pipeline, [str(table_id)], spark=lake.spark)
    except UnknownNameError:
        return None
    if table_id in latest.failed:
        raise UnverifiableError(f"its events cannot be merged: {latest.failed[table_id]}")
    if table_id not in latest.tables:
        return None
    return LakeVersion(latest.tables[table_id], latest.tombstones[table_id], latest.names[table_id])


class LakeTable(msgspec.Struct, frozen=True):
    """A table of the lake in one version.

    Attributes:
        version: Its rows and tombstones.
        columns_plan: What is compared.
        bounds: The ends of all chunks but the last one.
        is_source: The table is the source of a comparison of two lakes.
    """

    version: LakeVersion
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
        return chunk_ends([tuple(row) for row in rows if None not in row])

    def newest_order(self) -> bytes | None:
        """Return the newest order of an event of the table; ``None`` = it has none."""
        rows, tombstones, _ = self.version
        (newest_row,) = rows.agg(F.max(F.expr(_NEWEST))).collect()
        (newest_removals,) = tombstones.agg(*map(F.max, _REMOVALS)).collect()
        orders = (*newest_row, *newest_removals)
        return max((bytes(order) for order in orders if order is not None), default=None)

    def changed_keys(self, order: bytes) -> frozenset[Key]:
        """Return the keys with an event above an order, also those of rows that are gone.

        Raises:
            TruncatedError: The table was truncated above the order, or tombstones were purged.
        """
        is_newer = F.expr(_NEWEST) > F.lit(bytearray(order))
        rows = self._live.where(is_newer).select(F.expr(self._sql.key)).collect()
        return frozenset(row[0] for row in rows) | self._deleted_keys(order)

    def _deleted_keys(self, order: bytes) -> frozenset[Key]:
        """Return the keys with a delete or a departure above an order."""
        names = (*_REMOVALS, "purged")
        newest = F.greatest(*(F.coalesce(name, F.expr(EMPTY_ORDER)) for name in names))
        rows = self.version.tombstones.where(newest > F.lit(bytearray(order)))
        keys = [row["key"] for row in rows.select("key").distinct().collect()]
        if None in keys:
            raise TruncatedError("it was truncated during the verification")
        return frozenset(tombstone_key(key, self.columns_plan) for key in keys)

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
        rows = self.version.rows
        return rows.where(f"NOT coalesce({DELETED}, false)") if DELETED in rows.columns else rows

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
        session: SparkSession = self.version.rows.sparkSession
        return session.createDataFrame([(key,) for key in row_keys], "key STRING")


def tombstone_key(key: str, columns_plan: TablePlan) -> Key:
    """Return the canonical key of a tombstone as the key of a comparison.

    Raises:
        UnverifiableError: The tombstone is of a key with other columns.
    """
    values = key_values(key.encode())
    if len(values) != len(columns_plan.key_columns):
        raise UnverifiableError("the events of its deletes have a key with other columns")
    return "".join(
        "-" if value is None else key_field(column.key_text(value))
        for value, column in zip(values, columns_plan.key_columns, strict=True)
        if column.key_text is not None
    )
