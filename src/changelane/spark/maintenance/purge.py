# SPDX-License-Identifier: Apache-2.0
"""Purge: to forget deletes that no source can contradict any more (docs/merge-rule.md, Storage).

A delete is remembered, so that a late older event of its key stays without effect. After a purge
the table's horizon ``H`` does that work: an event up to it whose row is not there is refused as
``too_late``. H is stored before anything is forgotten, so a purge that dies in its middle only
remembers more than it must.

The horizon stays below every delete that is younger than the cutoff or of unknown age, and below
what the running batch still brought: its events may come again when the checkpoint restarts, and
a source that is replayed from there goes on from there.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from changelane.position import BY_PARTITION, shown_order
from changelane.spark.evolution.prepare import own_columns
from changelane.spark.lake.interface import Lake, name_of
from changelane.spark.lake.lookup import held_rows, is_incomplete
from changelane.spark.lake.modes import HISTORY, TableMode, mode_of
from changelane.spark.rows.added_columns import additions_of
from changelane.spark.rows.batch_stats import Work
from changelane.spark.rows.schema import RowSchema, table_id_of
from changelane.spark.rows.target import Target
from changelane.spark.runtime.sql import ORDER
from changelane.spark.state.tombstones import SideTable

OFFSETS: Final = (
    "its events have no positions, and offsets of another partition or file may begin anew"
)

VERSIONS: Final = "a table of versions needs every delete: one that comes late may belong before it"
SOFT: Final = "a row that is kept with its mark needs its delete: without it the row would be back"
TIMELESS: Final = "its events tell no time at their source"


class Purged(msgspec.Struct):
    """What a purge forgets of one table, or would.

    Attributes:
        table: Its name at the source.
        remembered: How many deletes are remembered of it.
        forgotten: How many of them the purge forgets.
        position: Up to where they stand in the source's log; the table's new horizon.
        note: Why nothing is forgotten.
    """

    table: str
    remembered: int
    forgotten: int = 0
    position: str = ""
    note: str = ""


class Seen(NamedTuple):
    """What the running batch holds of one table, or what waits for it.

    Attributes:
        oldest: The oldest order of an event.
        time_us: The newest time of a change at its source, microseconds since 1970-01-01 UTC.
    """

    oldest: bytes
    time_us: int | None = None

    def with_(self, other: "Seen") -> "Seen":
        """Return what both hold."""
        times = [one for one in (self.time_us, other.time_us) if one is not None]
        return Seen(min(self.oldest, other.oldest), max(times, default=None))


def see(seen: dict[str, Seen], works: Iterable[Work]) -> None:
    """Add what a batch holds of each table."""
    for work in works:
        now = Seen(work.first, work.time_us)
        seen[work.table_id] = seen.get(work.table_id, now).with_(now)


def horizons(
    lake: Lake,
    side: SideTable,
    *,
    before_us: int | None = None,
    after_us: int | None = None,
    seen: Mapping[str, Seen] | None = None,
) -> tuple[dict[str, bytes], list[Purged]]:
    """Return the horizon that each table can have, and what a purge up to it forgets.

    Args:
        lake: The tables.
        side: What is remembered.
        before_us: Deletes of this time at the source, and younger ones, stay (microseconds since
            1970-01-01 UTC).
        after_us: In its place, how much older than the table's newest event a delete must be.
        seen: The running batch, by table id: horizons stay below its oldest event.
    """
    departed = side.table().where("key IS NOT NULL AND deleted IS NOT NULL")
    time_us = F.unix_micros("source_time")
    told = {name: (bytearray(one.oldest), one.time_us) for name, one in (seen or {}).items()}
    batch = departed.sparkSession.createDataFrame(
        [(name, *one) for name, one in told.items()],
        "table_id string, oldest binary, time_us bigint",
    )
    tables = departed.groupBy("table_id").agg(F.max(time_us).alias("newest"))
    tables = tables.join(F.broadcast(batch), "table_id", "left")
    cutoff = F.greatest("newest", "time_us") - F.lit(after_us)
    if before_us is not None:
        cutoff = F.lit(before_us)
    tables = tables.select("table_id", "oldest", cutoff.alias("cutoff"))
    is_young = F.coalesce(time_us >= F.col("cutoff"), F.lit(True))
    ends = (
        departed.join(F.broadcast(tables), "table_id")
        .groupBy("table_id")
        .agg(F.least(F.min(F.when(is_young, F.col("deleted"))), F.first("oldest")).alias("end"))
    )
    goes = F.coalesce(F.col("deleted") < F.col("end"), F.lit(True))
    found = (
        departed.join(F.broadcast(ends), "table_id")
        .groupBy("table_id")
        .agg(
            F.count(F.lit(1)).alias("remembered"),
            F.count_if(goes).alias("forgotten"),
            F.max(F.when(goes, F.col("deleted"))).alias("horizon"),
            F.max(F.substring("deleted", 2, 1)).alias("domain"),
            F.count("source_time").alias("timed"),
        )
        .collect()
    )
    orders: dict[str, bytes] = {}
    purged: list[Purged] = []
    for row in sorted(found, key=lambda row: str(row["table_id"])):
        one = Purged(str(table_id_of(row["table_id"])), row["remembered"])
        if int.from_bytes(row["domain"]) in BY_PARTITION:
            one.note = OFFSETS
        elif (mode := _mode(lake, row["table_id"])).name == HISTORY:
            one.note = VERSIONS
        elif mode.keeps_deleted:
            one.note = SOFT
        elif not row["timed"]:
            one.note = TIMELESS
        elif row["forgotten"]:
            horizon = bytes(row["horizon"])
            one.forgotten, one.position = row["forgotten"], shown_order(horizon)
            orders[row["table_id"]] = horizon
        purged.append(one)
    return orders, purged


def _mode(lake: Lake, table_id: str) -> TableMode:
    name = name_of(table_id)
    return mode_of(lake.properties(name)) if lake.exists(name) else TableMode()


def purge(lake: Lake, side: SideTable, orders: Mapping[str, bytes]) -> None:
    """Raise the horizon of tables, then forget their deletes up to it.

    The departure of a row that is there and has unknown columns stays, or may get some with the
    next column of its table: a column that it took must not be filled by an event from before it.

    Args:
        lake: The tables.
        side: What is remembered.
        orders: Horizons by table id.
    """
    if not orders:
        return
    spark = side.table().sparkSession
    told = [(table_id, bytearray(order)) for table_id, order in orders.items()]
    raised = spark.createDataFrame(told, "table_id string, purged binary")
    side.purge(raised)
    # what a transaction told of a key is remembered as long as a part of it may come again
    newest = F.greatest("deleted", "until").alias("deleted")
    departed = side.table().where("key IS NOT NULL AND (deleted IS NOT NULL OR until IS NOT NULL)")
    departed = departed.select("table_id", "key", newest)
    goes = departed.join(F.broadcast(raised), "table_id").where("deleted <= purged")
    for table_id in orders:
        if (stays := _wanting(lake, table_id, goes)) is not None:
            goes = goes.join(stays, ["table_id", "key"], "left_anti")
    side.forget(goes)


def _wanting(lake: Lake, table_id: str, departed: DataFrame) -> DataFrame | None:
    """Return the departed keys of a table whose rows are there and lack columns, or may."""
    name = name_of(table_id)
    properties = lake.properties(name) if lake.exists(name) else {}
    added = additions_of(properties)
    if "exceptions" not in properties and not any(one.is_unknown for one in added):
        return None
    columns = own_columns(lake.columns(name), properties, mode_of(properties))
    # what a row without a base order does not have becomes unknown once the table gets it
    may_want = is_incomplete(columns, added) | (F.length(ORDER) == 0)
    wanting = lake.read(name).where(may_want)
    schema = msgspec.json.decode(properties["schema"], type=RowSchema)
    target = Target(columns, tuple(schema.key or ()), {}, additions=added)
    keys = departed.where(F.col("table_id") == table_id).select("key")
    held = held_rows(wanting, keys, target, are_few=False)
    return held.select(F.lit(table_id).alias("table_id"), "key")
