# SPDX-License-Identifier: Apache-2.0
"""Purge: delete tombstones that no source can contradict any more (docs/merge-rule.md, Storage).

The lake stores a tombstone so that an older event of its key that comes late has no effect. After
a purge the table's horizon ``H`` replaces the tombstones: an event up to ``H`` whose row does not
exist is quarantined as ``too_late``. The purge stores ``H`` before it deletes any tombstone. If it
dies in between, the lake only stores more tombstones than necessary.

The horizon stays below every tombstone that is younger than the cutoff or has no source time. It
also stays below the events of the running batch: they may come again when the run restarts from
the checkpoint, and a replayed source continues from there.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from changelane.position import BY_PARTITION, order_text
from changelane.spark.evolution.table_properties import columns_of_source
from changelane.spark.lake.interface import Lake, name_of
from changelane.spark.lake.lookup import existing_rows, is_incomplete
from changelane.spark.lake.modes import HISTORY, mode_of
from changelane.spark.rows.added_columns import additions_of
from changelane.spark.rows.batch_stats import TableBatch
from changelane.spark.rows.schema import RowSchema, table_id_of
from changelane.spark.rows.target import Target
from changelane.spark.runtime.sql import ORDER
from changelane.spark.state.fencing import is_of_others
from changelane.spark.state.tombstones import TombstoneTable

NOTE_PARTITION_OFFSETS: Final = (
    "its events have no positions, and offsets start again in another partition or file"
)

NOTE_HISTORY_MODE: Final = (
    "a history table needs every tombstone, because a late event may belong before it"
)
NOTE_SOFT_DELETES: Final = (
    "a table with soft deletes needs the tombstones of its marked rows, or the rows would come back"
)
NOTE_NO_SOURCE_TIME: Final = "its events have no source time"


class PurgeReport(msgspec.Struct):
    """The tombstones of one table that a purge deletes, or would delete.

    Attributes:
        table: The table's name at the source.
        tombstones: The number of tombstones before the purge.
        deleted: The number of tombstones that the purge deletes.
        position: The table's new horizon, as a position in the source's log.
        note: Why the purge deletes none.
    """

    table: str
    tombstones: int
    deleted: int = 0
    position: str = ""
    note: str = ""


class EventBounds(NamedTuple):
    """The oldest and newest event of one table, in the running batch or in the change log.

    Attributes:
        oldest: The oldest order of an event.
        time_us: The newest source time of a change, microseconds since 1970-01-01 UTC.
    """

    oldest: bytes
    time_us: int | None = None

    def union(self, bounds: "EventBounds") -> "EventBounds":
        """Return the bounds of both sets of events."""
        times = [time_us for time_us in (self.time_us, bounds.time_us) if time_us is not None]
        return EventBounds(min(self.oldest, bounds.oldest), max(times, default=None))


def add_event_bounds(
    event_bounds: dict[str, EventBounds], table_batches: Iterable[TableBatch]
) -> None:
    """Add the event bounds of a batch's tables."""
    for table_batch in table_batches:
        bounds = EventBounds(table_batch.min_order, table_batch.time_us)
        event_bounds[table_batch.table_id] = event_bounds.get(table_batch.table_id, bounds).union(
            bounds
        )


def plan_purge(
    lake: Lake,
    tombstone_table: TombstoneTable,
    *,
    before_us: int | None = None,
    after_us: int | None = None,
    event_bounds: Mapping[str, EventBounds] | None = None,
    pipeline: str | None = None,
) -> tuple[dict[str, bytes], list[PurgeReport]]:
    """Return the new horizon of each table, and the report of a purge up to it.

    Args:
        lake: The lake.
        tombstone_table: The tombstones of all tables.
        before_us: The cutoff: the purge keeps tombstones of this source time and younger ones
            (microseconds since 1970-01-01 UTC).
        after_us: Without *before_us*, the cutoff as an age before the newest event of each table,
            microseconds.
        event_bounds: The events of the running batch, by table id: horizons stay below them.
        pipeline: Leave out the tables that only other pipelines wrote, because their runs may look
            up the tombstones at this moment; ``None`` = all tables.
    """
    tombstones = tombstone_table.table().where("key IS NOT NULL AND deleted IS NOT NULL")
    time_us = F.unix_micros("source_time")
    bounds_rows = {
        name: (bytearray(bounds.oldest), bounds.time_us)
        for name, bounds in (event_bounds or {}).items()
    }
    bounds_table = tombstones.sparkSession.createDataFrame(
        [(name, *bounds) for name, bounds in bounds_rows.items()],
        "table_id string, oldest binary, time_us bigint",
    )
    table_bounds = tombstones.groupBy("table_id").agg(F.max(time_us).alias("newest"))
    table_bounds = table_bounds.join(F.broadcast(bounds_table), "table_id", "left")
    cutoff = F.greatest("newest", "time_us") - F.lit(after_us)
    if before_us is not None:
        cutoff = F.lit(before_us)
    table_bounds = table_bounds.select("table_id", "oldest", cutoff.alias("cutoff"))
    is_young = F.coalesce(time_us >= F.col("cutoff"), F.lit(True))
    horizon_limits = (
        tombstones.join(F.broadcast(table_bounds), "table_id")
        .groupBy("table_id")
        .agg(F.least(F.min(F.when(is_young, F.col("deleted"))), F.first("oldest")).alias("end"))
    )
    is_deleted = F.coalesce(F.col("deleted") < F.col("end"), F.lit(True))
    counts = (
        tombstones.join(F.broadcast(horizon_limits), "table_id")
        .groupBy("table_id")
        .agg(
            F.count(F.lit(1)).alias("tombstones"),
            F.count_if(is_deleted).alias("deleted"),
            F.max(F.when(is_deleted, F.col("deleted"))).alias("horizon"),
            F.max(F.substring("deleted", 2, 1)).alias("domain"),
            F.count("source_time").alias("timed"),
        )
        .collect()
    )
    orders: dict[str, bytes] = {}
    reports: list[PurgeReport] = []
    for row in sorted(counts, key=lambda row: str(row["table_id"])):
        name = name_of(row["table_id"])
        properties = lake.properties(name) if lake.exists(name) else {}
        if pipeline is not None and is_of_others(properties, pipeline):
            continue
        report = PurgeReport(str(table_id_of(row["table_id"])), row["tombstones"])
        if int.from_bytes(row["domain"]) in BY_PARTITION:
            report.note = NOTE_PARTITION_OFFSETS
        elif (mode := mode_of(properties)).name == HISTORY:
            report.note = NOTE_HISTORY_MODE
        elif mode.keeps_deleted:
            report.note = NOTE_SOFT_DELETES
        elif not row["timed"]:
            report.note = NOTE_NO_SOURCE_TIME
        elif row["deleted"]:
            horizon = bytes(row["horizon"])
            report.deleted, report.position = row["deleted"], order_text(horizon)
            orders[row["table_id"]] = horizon
        reports.append(report)
    return orders, reports


def purge(lake: Lake, tombstone_table: TombstoneTable, orders: Mapping[str, bytes]) -> None:
    """Raise the horizon of tables, then delete their tombstones up to it.

    A row that exists and has unknown columns, or may get some with the next column of its table,
    keeps the tombstone of its departure. Without it, an event from before the departure could set a
    column that the row inherited.

    Args:
        lake: The lake.
        tombstone_table: The tombstones of all tables.
        orders: Horizons by table id.
    """
    if not orders:
        return
    spark = tombstone_table.table().sparkSession
    table_horizons = [(table_id, bytearray(order)) for table_id, order in orders.items()]
    watermarks = spark.createDataFrame(table_horizons, "table_id string, purged binary")
    tombstone_table.record_watermarks(watermarks)
    # the state of a transaction stays until no part of it can come again
    newest = F.greatest("deleted", "until").alias("deleted")
    tombstones = tombstone_table.table().where(
        "key IS NOT NULL AND (deleted IS NOT NULL OR until IS NOT NULL)"
    )
    tombstones = tombstones.select("table_id", "key", newest)
    deleted_keys = tombstones.join(F.broadcast(watermarks), "table_id").where("deleted <= purged")
    for table_id in orders:
        if (incomplete_keys := _incomplete_keys(lake, table_id, deleted_keys)) is not None:
            deleted_keys = deleted_keys.join(incomplete_keys, ["table_id", "key"], "left_anti")
    tombstone_table.delete(deleted_keys)


def _incomplete_keys(lake: Lake, table_id: str, tombstones: DataFrame) -> DataFrame | None:
    """Return the keys among tombstones whose rows exist and lack columns, or may lack some."""
    name = name_of(table_id)
    properties = lake.properties(name) if lake.exists(name) else {}
    additions = additions_of(properties)
    if "exceptions" not in properties and not any(addition.is_unknown for addition in additions):
        return None
    columns = columns_of_source(lake.columns(name), properties, mode_of(properties))
    # a row without a base order does not know a column that the table gets later
    is_incomplete_row = is_incomplete(columns, additions) | (F.length(ORDER) == 0)
    incomplete_rows = lake.read(name).where(is_incomplete_row)
    schema = msgspec.json.decode(properties["schema"], type=RowSchema)
    target = Target(columns, tuple(schema.key or ()), {}, additions=additions)
    keys = tombstones.where(F.col("table_id") == table_id).select("key")
    stored_rows = existing_rows(incomplete_rows, keys, target, are_few=False)
    return stored_rows.select(F.lit(table_id).alias("table_id"), "key")
