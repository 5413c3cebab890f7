# SPDX-License-Identifier: Apache-2.0
"""The side table: what must be remembered of rows that are not there.

One table per stream: table, key, ``deleted`` (D) with its ``source_time``, ``moved_to``; the row
with a NULL key holds ``truncated`` (T) and ``purged`` (H). ``transactions`` is what transactions
that moved rows told of the key (:class:`changelane.apply.row_state.Within`), ``within`` names the
newest of them, and ``until`` is not below its last step. The table is written before the targets:
raising registers twice is harmless (docs/merge-rule.md, Storage).
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.spark.lake.interface import Lake, retried
from changelane.spark.lake.merge import Clause, Merge
from changelane.spark.rows.batch_stats import Work

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
_NEWER: Final = "coalesce(s.deleted, unhex('')) > coalesce(t.deleted, unhex(''))"
_EXACT: Final = ("transactions", "within", "until")
_RAISED: Final = ("table_id", "key", "deleted", "moved_to", "truncated", "source_time", *_EXACT)
_FOUND: Final = "s.transactions IS NOT NULL"
"""What the rule found of a transaction takes back what it had found of a part of it."""


def _newer(name: str) -> str:
    return f"CASE WHEN {_FOUND} OR {_NEWER} THEN s.{name} ELSE t.{name} END"


_RAISE: Final = Merge(
    keys=("table_id", "key"),
    matched=(
        Clause(
            f"({_FOUND} OR {_NEWER} OR "
            "coalesce(s.truncated, unhex('')) > coalesce(t.truncated, unhex('')))",
            {
                **{name: _newer(name) for name in ("deleted", "moved_to", "source_time")},
                **{n: f"CASE WHEN {_FOUND} THEN s.{n} ELSE t.{n} END" for n in _EXACT},
                "truncated": "greatest(s.truncated, t.truncated)",
            },
        ),
    ),
    values={name: f"s.{name}" for name in _RAISED},
)
_PURGE: Final = Merge(
    keys=("table_id", "key"),
    matched=(Clause("s.purged > coalesce(t.purged, unhex(''))", {"purged": "s.purged"}),),
    values={name: f"s.{name}" for name in ("table_id", "key", "purged")},
)
_MOVED: Final = "(moved_to IS NOT NULL OR transactions != '')"
_OLDER: Final = "coalesce(t.deleted, unhex('')) <= s.deleted"
_FORGET: Final = Merge(keys=("table_id", "key"), matched=(Clause(_OLDER),))


class Remembered(NamedTuple):
    """What the side table says about a whole table.

    Attributes:
        truncated: T.
        purged: H.
        has_moves: Whether keys are remembered whose rows moved.
        keys: Of how many keys something is remembered, about.
    """

    truncated: bytes = b""
    purged: bytes = b""
    has_moves: bool = False
    keys: int = 0


def after(before: Mapping[str, Remembered], works: Sequence[Work]) -> dict[str, Remembered]:
    """Return what is remembered of tables once the side table holds the batch."""
    known = dict(before)
    for work in works:
        if work.is_raising:
            held = known.get(work.table_id, Remembered())
            truncated = max(held.truncated, work.truncated)
            keys = held.keys + work.departures
            known[work.table_id] = held._replace(truncated=truncated, keys=keys)
    return known


def horizons(lake: Lake) -> dict[str, bytes]:
    """Return H of each table of a lake that was ever purged."""
    if not lake.exists(NAME) or "purged" not in lake.columns(NAME):
        return {}
    found = lake.read(NAME).where("purged IS NOT NULL").select("table_id", "purged").collect()
    return {row["table_id"]: bytes(row["purged"]) for row in found}


def remembers_newer(lake: Lake, table_id: str, order: bytes) -> bool:
    """Say whether a key left a table at an event that is newer than some order.

    What was purged is no longer remembered; its horizon is the order of a departure, too.
    """
    if not lake.exists(NAME):
        return False
    floor = F.lit(bytearray(order))
    newer = (F.col("deleted") > floor) | (F.col("purged") > floor)
    return not lake.read(NAME).where((F.col("table_id") == table_id) & newer).isEmpty()


class SideTable:
    """The side table of one stream."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark = spark
        self._lake = lake
        lake.create(NAME, COLUMNS, {})
        held = lake.columns(NAME)
        if lacking := {name: kind for name, kind in COLUMNS.items() if name not in held}:
            lake.add_columns(NAME, lacking)  # a table of before they were thought of

    def table(self) -> DataFrame:
        """Return the whole side table."""
        return self._lake.read(NAME)

    def raised(self, events: DataFrame) -> DataFrame:
        """Return the registers that departures and truncates raise, as the side table has them.

        Args:
            events: ``data`` and ``truncate`` event rows.
        """
        leaving = F.col("op") == "d"
        moving = (F.col("op") == "u") & F.col("other_key").isNotNull()
        departed = F.expr("concat(substring(`order`, 1, length(`order`) - 1), unhex('00'))")
        return (
            events.where(leaving | moving | (F.col("kind") == "truncate"))
            .select(
                "table_id",
                F.when(leaving, F.col("key")).when(moving, F.col("other_key")).alias("key"),
                F.when(leaving, F.col("order")).when(moving, departed).alias("deleted"),
                F.when(leaving, F.col("other_key")).when(moving, F.col("key")).alias("moved_to"),
                F.when(F.col("kind") == "truncate", F.col("order")).alias("truncated"),
                "source_time",
            )
            .where("key IS NOT NULL OR truncated IS NOT NULL")
        )

    def remember(self, raised: DataFrame) -> None:
        """Raise D and T, in one commit.

        Args:
            raised: ``table_id``, ``key``, ``deleted``, ``moved_to``, ``truncated``,
                ``source_time``.
        """
        newest = raised.groupBy("table_id", "key").agg(
            F.max("deleted").alias("deleted"),
            F.max_by("moved_to", "deleted").alias("moved_to"),
            F.max("truncated").alias("truncated"),
            F.max_by("source_time", "deleted").alias("source_time"),
            *(
                F.max(name if name in raised.columns else F.lit(None).cast(COLUMNS[name])).alias(
                    name
                )
                for name in _EXACT
            ),
        )
        retried(lambda: self._lake.merge(self._spark, NAME, newest, _RAISE))

    def purge(self, horizons: DataFrame) -> None:
        """Raise H, in one commit: before anything up to it is forgotten.

        Args:
            horizons: ``table_id`` and ``purged``.
        """
        told = horizons.withColumn("key", F.lit(None).cast("string"))
        retried(lambda: self._lake.merge(self._spark, NAME, told, _PURGE))

    def forget(self, departures: DataFrame) -> None:
        """Forget departures that are not newer than those told, in one commit.

        Args:
            departures: ``table_id``, ``key`` and ``deleted``.
        """
        retried(lambda: self._lake.merge(self._spark, NAME, departures, _FORGET))

    def tables(self) -> dict[str, Remembered]:
        """Return what is remembered of each table that ever lost a row."""
        found = (
            self.table()
            .groupBy("table_id")
            .agg(
                # sets, one value each: a maximum of bytes would let Spark sort all rows
                F.collect_set("truncated").alias("truncated"),
                F.collect_set("purged").alias("purged"),
                F.max(F.expr(_MOVED)).alias("moves"),
                F.count(F.lit(1)).alias("keys"),
            )
            .collect()
        )
        return {
            row["table_id"]: Remembered(
                max(map(bytes, row["truncated"]), default=b""),
                max(map(bytes, row["purged"]), default=b""),
                bool(row["moves"]),
                row["keys"],
            )
            for row in found
        }

    def all_of(self, table_id: str) -> DataFrame:
        """Return ``key``, ``deleted`` and ``moved_to`` for all keys of a table."""
        mine: Column = (F.col("table_id") == F.lit(table_id)) & F.col("key").isNotNull()
        return self.table().where(mine).select("key", "deleted", "moved_to")

    def of(self, table_id: str, keys: DataFrame, *, are_few: bool = True) -> DataFrame:
        """Return ``key``, ``deleted`` and ``moved_to`` for some keys of a table.

        Args:
            table_id: The table.
            keys: The keys in a column ``key``.
            are_few: Whether the keys are few enough to be broadcast.
        """
        wanted = keys.select("key").distinct()
        told = self.all_of(table_id)
        return told.join(F.broadcast(wanted) if are_few else wanted, "key", "left_semi")

    def moved(self, table_id: str) -> DataFrame:
        """Return ``key``, ``deleted`` and ``moved_to`` of a table's keys whose rows moved.

        A key that leads to itself is one at which a row arrived where another was, or may be.
        """
        return self.all_of(table_id).where("moved_to IS NOT NULL")

    def within(self, table_id: str, keys: DataFrame | None = None) -> DataFrame:
        """Return what is remembered of keys inside transactions; without *keys*, of all keys."""
        mine: Column = (F.col("table_id") == F.lit(table_id)) & F.col("key").isNotNull()
        told = self.table().where(mine & F.expr("transactions != ''"))
        told = told.select("key", *_EXACT)
        if keys is None:
            return told
        return told.join(F.broadcast(keys.select("key").distinct()), "key", "left_semi")

    def moved_among(self, keys: DataFrame) -> set[str]:
        """Return the tables of which some keys, in columns ``table_id`` and ``key``, moved."""
        moved = self.table().where(_MOVED).select("table_id", "key")
        found = moved.join(keys, ["table_id", "key"], "left_semi").select("table_id").distinct()
        return {row["table_id"] for row in found.collect()}
