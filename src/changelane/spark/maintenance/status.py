# SPDX-License-Identifier: Apache-2.0
"""The state of a lake's tables for operators: sizes, positions, lag and counters."""

from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from changelane.position import order_text
from changelane.spark.evolution.evolution_state import EvolutionHalt
from changelane.spark.evolution.table_properties import columns_of_source
from changelane.spark.lake.commit_totals import CommitTotals
from changelane.spark.lake.interface import Commit, Lake, Marker, name_of
from changelane.spark.lake.lookup import is_incomplete
from changelane.spark.lake.modes import mode_of
from changelane.spark.maintenance.compaction import last_maintenance_ms
from changelane.spark.rows.added_columns import additions_of, is_unknown, note_of
from changelane.spark.rows.schema import table_id_of
from changelane.spark.runtime.sql import DELETED
from changelane.spark.state import change_log, quarantine, replays, tombstones
from changelane.spark.state.change_log import ChangeLog, Pending
from changelane.spark.state.paused_tables import PausedTables

NO_TABLE: Final = "(messages that name no table)"
"""The table name of the status line that counts undecodable messages in the quarantine."""


class TableStatus(msgspec.Struct):
    """The state of one table.

    Attributes:
        table: The table's name at the source.
        path: The path of the table.
        rows: The number of rows.
        incomplete: The number of rows with a column of unknown value.
        tombstones: The number of tombstones: deleted keys.
        purged: The purge horizon, as a position in the source's log.
        maintained_ms: The time of the last maintenance, milliseconds since 1970.
        quarantined: The number of quarantined events that wait.
        pending: The number of events that wait in the change log.
        paused: Why the table is paused, if it is.
        position: The position of the newest applied event in the source's log.
        source_time_ms: The source time of the newest applied change.
        committed_ms: The time of the newest commit.
        pipeline: The pipeline of the newest commit.
        batch: The newest batch that a run of this pipeline committed; ``None`` = unknown. Replays
            have numbers of their own.
        applied: The number of row changes in the table's commits, including those without effect.
        out_of_order: The number of changes that were out of order: older than one of an earlier
            batch.
        conflicts: The number of conflicts: two different full rows for one key and position in a
            batch.
        repeats: In a table that only adds rows, the number of repeated events that added none.
        possible_duplicates: The number of added rows that equal another except for their message.
        halted: Why schema evolution of the table is halted; empty = it is not.
        note: Whether the source renamed or dropped the table, and the columns that its older rows
            do not know.
    """

    table: str
    path: str
    rows: int
    incomplete: int
    tombstones: int
    quarantined: int
    position: str
    pending: int = 0
    paused: str | None = None
    source_time_ms: int | None = None
    committed_ms: int | None = None
    pipeline: str = ""
    batch: int | None = None
    halted: str = ""
    note: str = ""
    purged: str = ""
    maintained_ms: int | None = None
    applied: int = 0
    out_of_order: int = 0
    conflicts: int = 0
    repeats: int = 0
    possible_duplicates: int = 0


def status(lake: Lake, pipeline: str = "") -> list[TableStatus]:
    """Return the state of every table of a lake.

    Args:
        lake: The lake.
        pipeline: The pipeline whose undecodable messages are counted, and that of events in the
            change log of an older version, which names none; empty = all pipelines.
    """
    tombstone_counts: dict[str, int] = {}
    if lake.exists(tombstones.NAME):
        newest_tombstones = tombstones.newest_per_key(lake.read(tombstones.NAME))
        tombstone_counts = _counts_by_table(newest_tombstones.where("deleted IS NOT NULL"))
    watermarks = tombstones.tombstone_watermarks(lake)
    quarantined_counts: dict[str, int] = {}
    if lake.exists(quarantine.NAME):
        entries = replays.pending_entries(lake)
        if pipeline:
            is_of_pipeline = F.coalesce(F.col("pipeline") == pipeline, F.lit(True))
            entries = entries.where(F.col("table_id").isNotNull() | is_of_pipeline)
        quarantined_counts = _counts_by_table(entries)
    undecodable_count = quarantined_counts.pop("", 0)
    pending = ChangeLog(lake, pipeline).pending_by_pipeline()
    paused_reasons = {
        name: paused.reason for name, paused in PausedTables(ChangeLog(lake)).tables().items()
    }
    statuses = []
    for name in lake.tables():
        if not lake.exists(name):
            continue
        properties = lake.properties(name)
        table_id = properties.get("table", "")
        # events since a rename have the new id
        table_ids = {table_id, properties.get("named", "")} - {""}
        rows, mode = lake.read(name), mode_of(properties)
        columns = columns_of_source(lake.columns(name), properties, mode)
        additions = additions_of(properties)
        if mode.keeps_deleted:
            rows = rows.where(~F.col(DELETED))
        unknown = {f"unknown{index}": is_unknown(added) for index, added in enumerate(additions)}
        # PySpark 3.5 cannot resolve their lambdas inside of an aggregate
        flags = {"incomplete": is_incomplete(columns, additions), **unknown}
        flag_rows = rows.select(*(flag.alias(flag_name) for flag_name, flag in flags.items()))
        counts = (F.count_if(flag_name).alias(flag_name) for flag_name in flags)
        (row_counts,) = flag_rows.agg(F.count(F.lit(1)).alias("rows"), *counts).collect()
        unknown_counts = {
            addition.column: row_counts[flag_name]
            for flag_name, addition in zip(unknown, additions, strict=True)
        }
        commit = lake.last_commit(name)
        details: Mapping[str, Any] = {} if commit is None else commit.details
        totals = CommitTotals.of(commit)
        table_pending = [entry for entry in pending if entry[1].table_id in table_ids]
        pending = [entry for entry in pending if entry[1].table_id not in table_ids]
        reasons = [
            paused_reasons.pop(table_id) for table_id in sorted(table_ids & set(paused_reasons))
        ]
        statuses.append(
            TableStatus(
                str(table_id_of(table_id)) if table_id else name,
                lake.path(name),
                row_counts["rows"],
                row_counts["incomplete"],
                tombstone_counts.get(table_id, 0),
                sum(quarantined_counts.pop(table_id, 0) for table_id in table_ids),
                # commits of older versions have the position of their own batch
                _position_text(totals.high or details.get("order")),
                sum(
                    _pending_count(lake, name, entry, writer, pipeline)
                    for writer, entry in table_pending
                ),
                next(iter(reasons), None),
                None if totals.source_time_us is None else totals.source_time_us // 1000,
                None if commit is None else commit.time_ms,
                str(details.get("pipeline", "")),
                _newest_batch(lake, name, commit),
                _halted_text(properties),
                _note_text(properties, note_of(additions, unknown_counts)),
                order_text(watermarks[table_id]) if table_id in watermarks else "",
                last_maintenance_ms(properties),
                totals.applied,
                totals.out_of_order,
                totals.conflicts,
                totals.repeats,
                totals.possible_duplicates,
            )
        )
    pending_counts: Counter[str] = Counter()
    for _, entry in pending:
        pending_counts[entry.table_id] += entry.events
    for table_id in sorted({*pending_counts, *paused_reasons, *quarantined_counts}):
        # tables that no batch was merged into yet
        name = str(table_id_of(table_id))
        quarantined, pending_count = quarantined_counts.get(table_id, 0), pending_counts[table_id]
        path = lake.path(name_of(table_id))
        statuses.append(
            TableStatus(
                name, path, 0, 0, 0, quarantined, "", pending_count, paused_reasons.get(table_id)
            )
        )
    if undecodable_count:
        statuses.append(
            TableStatus(NO_TABLE, lake.path(quarantine.NAME), 0, 0, 0, undecodable_count, "")
        )
    return statuses


def _newest_batch(lake: Lake, name: str, newest_commit: Commit | None) -> int | None:
    """Return the newest batch of a run in a table's commits; ``None`` = they have expired.

    Args:
        lake: The lake.
        name: The table in the lake.
        newest_commit: Its newest commit, of the pipeline whose batch is returned.
    """
    if newest_commit is None:
        return None
    # the newest commit comes first, because its metadata may outlive the history
    batches = (
        commit.details["batch"]
        for commit in chain([newest_commit], lake.marked_commits(name))
        if commit.details["pipeline"] == newest_commit.details["pipeline"]
        and not replays.is_replay(commit)
    )
    return next(batches, None)


def _position_text(high: str | None) -> str:
    return order_text(bytes.fromhex(high)) if high else ""


def _pending_count(lake: Lake, name: str, pending: Pending, writer: str, pipeline: str) -> int:
    """Return how many events of a table wait; the log deletes merged events some time later.

    Args:
        lake: The lake.
        name: The table in the lake.
        pending: The events in the log.
        writer: The pipeline that wrote them, and merges them.
        pipeline: The pipeline of events without one.
    """
    last_batch = lake.last_batch(name, Marker(writer, pending.query, 0))
    if last_batch is None or last_batch < pending.first:
        return pending.events
    if last_batch >= pending.last:
        return 0
    is_pending = (F.col("query") == pending.query) & (F.col("table_id") == pending.table_id)
    rows = change_log.rows_with_pipeline(lake, pipeline).where(F.col("pipeline") == writer)
    rows = rows.where(is_pending & (F.col("batch") > last_batch)).where("kind != 'schema'")
    return rows.count()


def _halted_text(properties: Mapping[str, str]) -> str:
    halted = EvolutionHalt.of(properties.get("halted", ""))
    return "" if halted is None else f"{halted.code}: {halted.reason} (at {halted.where})"


def _note_text(properties: Mapping[str, str], unknown_note: str) -> str:
    notes = []
    if source_name := properties.get("named"):
        notes.append(f"the source calls it {table_id_of(source_name)} now")
    if dropped := properties.get("dropped"):
        notes.append(f"the source dropped it (at {order_text(bytes.fromhex(dropped))})")
    if unknown_note:
        notes.append(unknown_note)
    return "; ".join(notes)


def _counts_by_table(rows: DataFrame) -> dict[str, int]:
    table_id = F.coalesce("table_id", F.lit("")).alias("table_id")
    counts = rows.groupBy(table_id).count().collect()
    return {row["table_id"]: row["count"] for row in counts}
