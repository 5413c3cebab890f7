# SPDX-License-Identifier: Apache-2.0
"""The tombstone table: deletes, key changes and truncates, whose rows no table contains.

There is one table per stream: table, key, ``deleted`` (D) with its ``source_time``, ``moved_to``.
The row with a NULL key has ``truncated`` (T) and ``purged`` (H, the watermark of removed
tombstones). ``transactions`` contains the changes of the key inside transactions that moved rows
(:class:`changelane.apply.row_state.TransactionRecord`), ``within`` the newest of these
transactions, and ``until`` an order that is not below its last step. The table is written before
the targets: writing a tombstone twice is harmless (docs/merge-rule.md, Storage).

Tombstones are appended, so a key may have several rows; :func:`newest_per_key` joins them.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.apply import key_bytes
from changelane.spark.lake.interface import Lake, MaintainedLake, name_of, retry_conflicts
from changelane.spark.lake.key_filter import KeyFilter, key_filter, merge_filtered
from changelane.spark.lake.merge import Clause, Merge
from changelane.spark.rows.batch_stats import TableBatch
from changelane.spark.rows.key_operations import departure_order
from changelane.spark.runtime.sql import EMPTY_ORDER, sql_literal
from changelane.spark.state.fencing import is_of_others

NAME: Final = "_changelane/side"
COLUMNS: Final = {
    "table_id": "STRING",
    "key": "STRING",
    "deleted": "BINARY",
    "moved_to": "STRING",
    "truncated": "BINARY",
    "purged": "BINARY",
    "source_time": "TIMESTAMP",
    "transactions": "STRING",
    "within": "BINARY",
    "until": "BINARY",
}
_IS_NEWER: Final = f"coalesce(s.deleted, {EMPTY_ORDER}) > coalesce(t.deleted, {EMPTY_ORDER})"
_TRANSACTION_COLUMNS: Final = ("transactions", "within", "until")
_MERGED_COLUMNS: Final = (
    "table_id",
    "key",
    "deleted",
    "moved_to",
    "truncated",
    "source_time",
    *_TRANSACTION_COLUMNS,
)
_HAS_TRANSACTIONS: Final = "s.transactions IS NOT NULL"
"""The result of the rule for a transaction replaces its result for a part of the transaction."""


def _newer(name: str) -> str:
    return f"CASE WHEN {_HAS_TRANSACTIONS} OR {_IS_NEWER} THEN s.{name} ELSE t.{name} END"


_MERGE_TOMBSTONES: Final = Merge(
    keys=("table_id", "key"),
    matched=(
        Clause(
            f"({_HAS_TRANSACTIONS} OR {_IS_NEWER} OR "
            f"coalesce(s.truncated, {EMPTY_ORDER}) > coalesce(t.truncated, {EMPTY_ORDER}))",
            {
                **{name: _newer(name) for name in ("deleted", "moved_to", "source_time")},
                **{
                    n: f"CASE WHEN {_HAS_TRANSACTIONS} THEN s.{n} ELSE t.{n} END"
                    for n in _TRANSACTION_COLUMNS
                },
                "truncated": "greatest(s.truncated, t.truncated)",
            },
        ),
    ),
    values={name: f"s.{name}" for name in _MERGED_COLUMNS},
)
_MERGE_WATERMARKS: Final = Merge(
    keys=("table_id", "key"),
    matched=(Clause(f"s.purged > coalesce(t.purged, {EMPTY_ORDER})", {"purged": "s.purged"}),),
    values={name: f"s.{name}" for name in ("table_id", "key", "purged")},
)
_IS_MOVED: Final = "(moved_to IS NOT NULL OR transactions != '')"
_IS_NOT_NEWER: Final = f"coalesce(t.deleted, {EMPTY_ORDER}) <= s.deleted"
_IS_COVERED: Final = " AND ".join(
    f"coalesce(t.{name}, {EMPTY_ORDER}) <= coalesce(s.{name}, {EMPTY_ORDER})"
    for name in ("deleted", "truncated", "purged")
)
_OF_TABLE: Final = "of_table"
_REPLACE_DUPLICATES: Final = Merge(
    keys=("table_id", "key"),
    matched=(Clause(_IS_COVERED),),
    values={"table_id": f"s.{_OF_TABLE}"} | {n: f"s.{n}" for n in COLUMNS if n != "table_id"},
    inserts="s.table_id IS NULL",
)
"""The source has a row without ``table_id`` for each row to add."""
_DELETE_TOMBSTONES: Final = Merge(keys=("table_id", "key"), matched=(Clause(_IS_NOT_NEWER),))


class TableTombstones(NamedTuple):
    """The tombstones of a whole table.

    Attributes:
        truncated: T.
        watermark: H.
        moved_keys: The approximate number of keys whose rows moved.
        keys: The approximate number of keys with tombstones.
    """

    truncated: bytes = b""
    watermark: bytes = b""
    moved_keys: int = 0
    keys: int = 0


def tombstones_after(
    tombstones_before: Mapping[str, TableTombstones], table_batches: Sequence[TableBatch]
) -> dict[str, TableTombstones]:
    """Return the tombstones of tables after a batch is recorded.

    A table with key changes in the batch counts as one with moved rows, even if none of them is
    stored.
    """
    tombstones = dict(tombstones_before)
    for table_batch in table_batches:
        if table_batch.has_removals or table_batch.has_other_keys:
            table_tombstones = tombstones.get(table_batch.table_id, TableTombstones())
            moved_keys = max(table_batch.departures, 1) if table_batch.has_other_keys else 0
            tombstones[table_batch.table_id] = table_tombstones._replace(
                truncated=max(table_tombstones.truncated, table_batch.newest_truncate),
                moved_keys=table_tombstones.moved_keys + moved_keys,
                keys=table_tombstones.keys + table_batch.departures,
            )
    return tombstones


def newest_per_key(rows: DataFrame) -> DataFrame:
    """Return one row per ``table_id`` and ``key`` of the tombstone table: its newest tombstone.

    Rows with the state of transactions are replaced in all rows of their key, so all of them are
    equal.
    """
    newest = F.max(F.struct("deleted", "moved_to", "source_time")).alias("newest")
    maxima = (F.max(name).alias(name) for name in ("truncated", "purged", *_TRANSACTION_COLUMNS))
    newest_rows = rows.groupBy("table_id", "key").agg(newest, *maxima)
    return newest_rows.select(
        "table_id", "key", "newest.*", "truncated", "purged", *_TRANSACTION_COLUMNS
    )


def _filter_of_tombstones(table_keys: Collection[tuple[str, str]] | None) -> KeyFilter | None:
    """Return the filter of the tombstones of some keys, and of their tables; ``None`` = all."""
    if table_keys is None:
        return None
    rows = {*table_keys, *((table_id, None) for table_id, _ in table_keys)}
    texts = {key_bytes({"table_id": table_id, "key": key}).decode() for table_id, key in rows}
    return key_filter(texts, COLUMNS, ("table_id", "key"))


def tombstone_watermarks(lake: Lake) -> dict[str, bytes]:
    """Return H of each table of a lake that was ever purged."""
    if not lake.exists(NAME) or "purged" not in lake.columns(NAME):
        return {}
    watermark_rows = (
        lake.read(NAME).where("purged IS NOT NULL").select("table_id", "purged").collect()
    )
    return {row["table_id"]: bytes(row["purged"]) for row in watermark_rows}


def has_newer_tombstone(lake: Lake, table_id: str, order: bytes) -> bool:
    """Return whether a table has a tombstone of a key that is newer than an order.

    Purged tombstones are gone; their watermark is also the order of a delete.
    """
    if not lake.exists(NAME):
        return False
    floor = F.lit(bytearray(order))
    is_newer = (F.col("deleted") > floor) | (F.col("purged") > floor)
    return not lake.read(NAME).where((F.col("table_id") == table_id) & is_newer).isEmpty()


class TombstoneTable:
    """The tombstone table of one stream.

    Tombstones of whole tables are kept in memory as long as no other writer commits to the table.
    """

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark = spark
        self._lake = lake
        self._cached: tuple[int, dict[str, TableTombstones]] | None = None
        lake.create(NAME, COLUMNS, {})
        stored_columns = lake.columns(NAME)
        if missing_columns := {
            name: kind for name, kind in COLUMNS.items() if name not in stored_columns
        }:
            lake.add_columns(NAME, missing_columns)  # a table of an older version

    def table(self) -> DataFrame:
        """Return the newest tombstone of each key, and the tombstones of whole tables."""
        return newest_per_key(self._lake.read(NAME))

    def tombstones_of(self, events: DataFrame) -> DataFrame:
        """Return the tombstones of deletes, key changes and truncates, in the columns of the table.

        Args:
            events: ``data`` and ``truncate`` event rows.
        """
        is_delete = F.col("op") == "d"
        is_key_change = (F.col("op") == "u") & F.col("other_key").isNotNull()
        return (
            events.where(is_delete | is_key_change | (F.col("kind") == "truncate"))
            .select(
                "table_id",
                F.when(is_delete, F.col("key"))
                .when(is_key_change, F.col("other_key"))
                .alias("key"),
                F.when(is_delete, F.col("order"))
                .when(is_key_change, departure_order())
                .alias("deleted"),
                F.when(is_delete, F.col("other_key"))
                .when(is_key_change, F.col("key"))
                .alias("moved_to"),
                F.when(F.col("kind") == "truncate", F.col("order")).alias("truncated"),
                "source_time",
            )
            .where("key IS NOT NULL OR truncated IS NOT NULL")
        )

    def record(
        self,
        tombstones: DataFrame,
        after: Mapping[str, TableTombstones] | None = None,
        *,
        has_transactions: bool = True,
        table_keys: Collection[tuple[str, str]] | None = None,
    ) -> None:
        """Raise D and T, in one commit.

        Args:
            tombstones: ``table_id``, ``key``, ``deleted``, ``moved_to``, ``truncated``,
                ``source_time``; with the state of transactions its three columns, too.
            after: The tombstones of whole tables after the commit.
            has_transactions: Whether a tombstone has the state of a transaction, which replaces the
                one of its key. Others are appended, which costs less than a merge, if maintenance
                can replace duplicates later.
            table_keys: The table and the key of all rows with a key, if they are known and few: a
                merge reads no other tombstones.
        """
        if not has_transactions and isinstance(self._lake, MaintainedLake):
            write = partial(self._lake.append, self._spark, NAME, tombstones.distinct())
        else:
            missing = (name for name in COLUMNS if name not in tombstones.columns)
            complete = tombstones.select(
                "*", *(F.lit(None).cast(COLUMNS[name]).alias(name) for name in missing)
            )
            newest = newest_per_key(complete).drop("purged")
            write = partial(
                merge_filtered,
                self._lake,
                self._spark,
                NAME,
                _MERGE_TOMBSTONES,
                batch_keys=_filter_of_tombstones(table_keys),
                source_of=lambda _: newest,
            )
        before = self._version()
        retry_conflicts(write)
        is_only_writer = before is not None and self._version() == before + 1
        if after is None or not is_only_writer or self._cached is None or self._cached[0] != before:
            self._cached = None
        elif before is not None:
            self._cached = before + 1, dict(after)

    def replace_duplicates(self, pipeline: str | None = None) -> None:
        """Replace the tombstones of keys with several ones by the newest, in one commit.

        Args:
            pipeline: Leave out the tables that only other pipelines wrote, because their runs may
                replace the state of a transaction at this moment; ``None`` = all tables.
        """
        if isinstance(self._lake, MaintainedLake):
            retry_conflicts(partial(self._replace_duplicates, pipeline))

    def _replace_duplicates(self, pipeline: str | None) -> None:
        counts = self._lake.read(NAME).groupBy("table_id", "key").count()
        keys = counts.where("count > 1").select("table_id", "key")
        if pipeline is not None:
            table_ids = [row["table_id"] for row in keys.select("table_id").distinct().collect()]
            own_ids = [name for name in table_ids if not self._is_of_others(name, pipeline)]
            if not own_ids:
                return
            keys = keys.where(F.col("table_id").isin(own_ids))
        elif keys.isEmpty():
            return
        is_of_key = F.expr("t.table_id = k.table_id AND t.key <=> k.key")
        newest = self.table().alias("t").join(keys.alias("k"), is_of_key, "left_semi")
        no_table = F.lit(None).cast("string")
        deletes = newest.withColumn(_OF_TABLE, no_table)
        inserts = newest.withColumn(_OF_TABLE, F.col("table_id")).withColumn("table_id", no_table)
        source = deletes.unionByName(inserts)
        self._lake.merge(self._spark, NAME, source, _REPLACE_DUPLICATES)

    def _is_of_others(self, table_id: str, pipeline: str) -> bool:
        name = name_of(table_id)
        return self._lake.exists(name) and is_of_others(self._lake.properties(name), pipeline)

    def _version(self) -> int | None:
        """Return the number of commits of the table; ``None`` = the format does not count them."""
        return self._lake.commits(NAME) if isinstance(self._lake, MaintainedLake) else None

    def record_watermarks(self, watermarks: DataFrame) -> None:
        """Raise H, in one commit, before any tombstone up to it is deleted.

        Args:
            watermarks: ``table_id`` and ``purged``.
        """
        watermark_rows = watermarks.withColumn("key", F.lit(None).cast("string"))
        retry_conflicts(
            lambda: self._lake.merge(self._spark, NAME, watermark_rows, _MERGE_WATERMARKS)
        )

    def delete(self, deleted_keys: DataFrame) -> None:
        """Delete tombstones that are not newer than given orders, in one commit.

        Args:
            deleted_keys: ``table_id``, ``key`` and ``deleted``.
        """
        retry_conflicts(
            lambda: self._lake.merge(self._spark, NAME, deleted_keys, _DELETE_TOMBSTONES)
        )

    def table_tombstones(self) -> dict[str, TableTombstones]:
        """Return the tombstones of each table that ever lost a row."""
        version = self._version()
        if version is None or self._cached is None or self._cached[0] != version:
            table_tombstones = self._read_table_tombstones()
            if version is None:
                return table_tombstones
            self._cached = version, table_tombstones
        return dict(self._cached[1])

    def _read_table_tombstones(self) -> dict[str, TableTombstones]:
        if isinstance(self._lake, MaintainedLake) and self._lake.is_known_empty(NAME):
            return {}
        table_rows = (
            self._lake.read(NAME)
            .groupBy("table_id")
            .agg(
                # sets of one value each: a maximum of bytes would make Spark sort all rows
                F.collect_set("truncated").alias("truncated"),
                F.collect_set("purged").alias("purged"),
                F.count_if(F.expr(_IS_MOVED)).alias("moved_keys"),
                F.count(F.lit(1)).alias("keys"),
            )
            .collect()
        )
        return {
            row["table_id"]: TableTombstones(
                max(map(bytes, row["truncated"]), default=b""),
                max(map(bytes, row["purged"]), default=b""),
                row["moved_keys"],
                row["keys"],
            )
            for row in table_rows
        }

    def rows_of_table(self, table_id: str, keys: Collection[str] | None = None) -> DataFrame:
        """Return ``key`` and ``deleted`` of a table; a key may have several rows.

        Args:
            table_id: The table.
            keys: Only these keys, if they are few.
        """
        rows = self._key_rows(table_id)
        if keys is not None:
            listed = ", ".join(map(sql_literal, sorted(keys)))
            rows = rows.where(f"key IN ({listed})" if listed else "false")
        return rows.where("deleted IS NOT NULL").select("key", "deleted")

    def _key_rows(self, table_id: str) -> DataFrame:
        is_key_of_table: Column = (F.col("table_id") == F.lit(table_id)) & F.col("key").isNotNull()
        return self._lake.read(NAME).where(is_key_of_table)

    def of_table(self, table_id: str) -> DataFrame:
        """Return ``key``, ``deleted`` and ``moved_to`` for all keys of a table."""
        return newest_per_key(self._key_rows(table_id)).select("key", "deleted", "moved_to")

    def newest(self, table_id: str) -> bytes:
        """Return the newest D of a table's keys; empty if it has none."""
        (row,) = self._key_rows(table_id).agg(F.max("deleted").alias("newest")).collect()
        return bytes(row["newest"] or b"")

    def for_keys(self, table_id: str, keys: DataFrame, *, are_few: bool = True) -> DataFrame:
        """Return ``key``, ``deleted`` and ``moved_to`` for some keys of a table.

        Args:
            table_id: The table.
            keys: The keys in a column ``key``.
            are_few: Whether the keys are few enough to be broadcast.
        """
        distinct_keys = keys.select("key").distinct()
        rows = self._key_rows(table_id).join(
            F.broadcast(distinct_keys) if are_few else distinct_keys, "key", "left_semi"
        )
        return newest_per_key(rows).select("key", "deleted", "moved_to")

    def moved_keys(self, table_id: str, *, are_few: bool) -> DataFrame:
        """Return ``key``, ``deleted`` and ``moved_to`` of a table's keys whose rows moved.

        A key with itself in ``moved_to`` is one at which a row arrived where another row was, or
        may be.

        Args:
            table_id: The table.
            are_few: Whether the keys are few enough to be broadcast.
        """
        is_moved = "moved_to IS NOT NULL"
        if not are_few:
            return self.of_table(table_id).where(is_moved)
        # most tombstones are of deletes: only those of moved keys are grouped by their keys
        return self.for_keys(table_id, self._key_rows(table_id).where(is_moved)).where(is_moved)

    def transactions_of(self, table_id: str, keys: DataFrame | None = None) -> DataFrame:
        """Return the state of keys inside transactions; without *keys*, of all keys."""
        key_transactions = self._key_rows(table_id).where("transactions != ''")
        key_transactions = key_transactions.select("key", *_TRANSACTION_COLUMNS).distinct()
        if keys is None:
            return key_transactions
        return key_transactions.join(F.broadcast(keys.select("key").distinct()), "key", "left_semi")

    def tables_with_moved_keys(self, keys: DataFrame) -> set[str]:
        """Return the tables of which some keys, in columns ``table_id`` and ``key``, moved."""
        moved_keys = self._lake.read(NAME).where(_IS_MOVED).select("table_id", "key")
        table_rows = (
            moved_keys.join(keys, ["table_id", "key"], "left_semi").select("table_id").distinct()
        )
        return {row["table_id"] for row in table_rows.collect()}
