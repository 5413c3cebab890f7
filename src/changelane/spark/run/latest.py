# SPDX-License-Identifier: Apache-2.0
"""The newest rows of tables: the tables with the events of the change log that wait for a merge.

With ``merge: deferred`` an event is in the change log after one commit, and in its table after the
next merge of the table. Here the same applier merges the waiting events into the tables without a
commit (:mod:`changelane.spark.lake.uncommitted`), so that the result is that of the merge.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.errors import ApplyError, ConfigError, MissingViewsError, UnknownNameError
from changelane.pipeline.config import Pipeline, load, with_tables
from changelane.schema import TableId, option_for_table
from changelane.spark.apply.applier import Applier, is_small_batch
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import TABLES, Lake, Marker, name_of
from changelane.spark.lake.uncommitted import UncommittedLake, VersionedLake
from changelane.spark.rows.schema import lake_table_of, table_id_of
from changelane.spark.run.tables import applier_of
from changelane.spark.runtime.sql import quoted
from changelane.spark.state import history_tombstones, tombstones
from changelane.spark.state.change_log import ChangeLog, Pending
from changelane.spark.state.ddl_log import DdlLog
from changelane.spark.state.fencing import is_of_others

SUFFIX: Final = "_latest"
"""The suffix of the views."""
_ATTEMPTS: Final = 20


class LatestTables(NamedTuple):
    """Tables with the waiting events of the change log.

    Attributes:
        tables: The rows of each table with its state columns, by the table's name at the source.
            They stay the same while the pipeline goes on.
        failed: The tables whose events cannot be merged, and the reasons.
        tombstones: The deletes and truncates of each table
            (:mod:`changelane.spark.state.tombstones`), with those of the waiting events.
        names: The names of the tables in the lake.
    """

    tables: dict[TableId, DataFrame]
    failed: dict[TableId, str]
    tombstones: dict[TableId, DataFrame]
    names: dict[TableId, str]


def latest_tables(
    pipeline: Pipeline | str | Path, tables: Sequence[str] = (), *, spark: SparkSession
) -> LatestTables:
    """Return the newest rows of a pipeline's tables; the pipeline may be running.

    The waiting events are merged in memory at this call. It commits nothing.

    Args:
        pipeline: The pipeline, or its file.
        tables: The names of tables at the source, in full or by their last parts; empty = all.
        spark: The session, with the table format of the pipeline.

    Raises:
        ConfigError: The pipeline has no tables, or its format is Hudi.
        UnknownNameError: There is no such table.
        ApplyError: Other writers commit to a table again and again.
    """
    if not isinstance(pipeline, Pipeline):
        pipeline = load(str(pipeline))
    lake = lake_of(spark, with_tables(pipeline))
    lake_names: set[str] = set()
    for _ in range(_ATTEMPTS):
        versions = _tombstone_versions(lake)
        # the log before the tables: these contain all events that the log has lost since
        log = ChangeLog(UncommittedLake(lake), pipeline.name)
        all_pending = log.pending_by_pipeline()
        pending = [entry for name, entry in all_pending if name == pipeline.name]
        stored_names = _names_of(lake, lake.tables(), spark, pipeline)
        chosen = _named(stored_names, tables)
        pinned_lake = UncommittedLake(lake, _markers(all_pending))
        for name in sorted(chosen | lake_names | {name_of(entry.table_id) for entry in pending}):
            pinned_lake.exists(name)
        # The tombstones and the DDL log after the tables: they have all that the events in the
        # tables have recorded there.
        applier = applier_of(spark, pinned_lake, pipeline)
        # Tombstones of events that the log does not have yet would move rows of the tables: no
        # merge may have begun since. Without pending events nothing reads them.
        is_consistent = not pending or versions == _tombstone_versions(pinned_lake)
        late_names = _lake_names(applier, pending) - pinned_lake.used_tables
        if is_consistent and not late_names:
            break
        lake_names |= late_names
    else:
        raise ApplyError("tables are merged or renamed all the time: try again")
    merged_ids = _merged_ids(applier, pending, chosen, tables)
    failed = _merge(applier, pinned_lake, log, pending, merged_ids)
    # statements among the events may have renamed tables, or created others
    names = _names_of(pinned_lake, sorted(pinned_lake.used_tables), spark, pipeline)
    failed_names = {name for table_id in failed for name in applier.evolver.lake_names(table_id)}
    chosen = _named(names, tables) - failed_names
    reasons = {table_id_of(table_id): reason for table_id, reason in failed.items()}
    others = [(name, entry) for name, entry in all_pending if name != pipeline.name]
    for name, other in _waiting_elsewhere(applier, pinned_lake, others).items():
        if name in chosen:
            chosen.remove(name)
            if tables or not is_of_others(pinned_lake.properties(name), pipeline.name):
                reasons[names[name]] = f"events of the pipeline {other} wait for a merge"
    rows = {names[name]: pinned_lake.read(name) for name in sorted(chosen)}
    # a table that was renamed at the source has the tombstones of its first name
    table_tombstones = {
        names[name]: pinned_lake.read(tombstones.NAME).where(
            F.col("table_id") == pinned_lake.properties(name)["table"]
        )
        for name in chosen
    }
    for table in tables:
        if not any(_is_named(table_id, [table]) for table_id in (*rows, *reasons)):
            known_names = {*map(str, stored_names.values()), *map(str, names.values())}
            known_names |= {str(table_id_of(entry.table_id)) for entry in pending}
            raise UnknownNameError("table", table, sorted(known_names))
    lake_names_of_tables = {names[name]: name for name in chosen}
    return LatestTables(rows, reasons, table_tombstones, lake_names_of_tables)


def create_latest_views(
    pipeline: Pipeline | str | Path, tables: Sequence[str] = (), *, spark: SparkSession
) -> dict[str, TableId]:
    """Create a temporary view ``<table>_latest`` of the newest rows of each table.

    The views show the rows of this call; call it again for newer ones. If two tables have one
    name, the names of their views have all parts: ``shop_orders_latest``.

    Args:
        pipeline: The pipeline, or its file.
        tables: The names of tables at the source, in full or by their last parts; empty = all.
        spark: The session, with the table format of the pipeline.

    Returns:
        The tables by the names of their views.

    Raises:
        ConfigError: As for :func:`latest_tables`.
        MissingViewsError: The events of some tables cannot be merged. These have no view, also none
            of an earlier call.
        ApplyError: As for :func:`latest_tables`.
    """
    latest = latest_tables(pipeline, tables, spark=spark)
    views = view_names((*latest.tables, *latest.failed))
    for view, table in views.items():
        if table in latest.failed:
            spark.catalog.dropTempView(view)
        else:
            latest.tables[table].createOrReplaceTempView(quoted(view))
    if latest.failed:
        reasons = "; ".join(f"{table}: {reason}" for table, reason in latest.failed.items())
        raise MissingViewsError(f"no view, because waiting events cannot be merged: {reasons}")
    return views


def view_names(tables: Iterable[TableId]) -> dict[str, TableId]:
    """Return the tables by the names of their views.

    Raises:
        ConfigError: Two tables would have one view.
    """
    short_names = {table: table.name or str(table) for table in tables}
    counts = Counter(map(str.lower, short_names.values()))
    names: dict[str, TableId] = {}
    for table, short_name in short_names.items():
        is_unique = counts[short_name.lower()] == 1
        name = short_name if is_unique else str(table).replace(".", "_")
        if any(name.lower() == view.lower() for view in names):
            raise ConfigError(f"several tables would have the view {name}{SUFFIX}: name one table")
        names[name] = table
    return {name + SUFFIX: table for name, table in names.items()}


def _tombstone_versions(lake: Lake | UncommittedLake) -> list[Hashable]:
    """Return the versions of the tables of tombstones; ``None`` = the table does not exist."""
    if not isinstance(lake, VersionedLake | UncommittedLake):
        return []  # its tables cannot be read at a version: the next step rejects it
    names = (tombstones.NAME, history_tombstones.NAME)
    return [lake.version(name) if lake.exists(name) else None for name in names]


def _names_of(
    lake: Lake, tables: Iterable[str], spark: SparkSession, pipeline: Pipeline
) -> dict[str, TableId]:
    """Return the names at the source of the tables of a lake that exist, after all statements."""
    ddl_log = DdlLog(spark, lake, shadows=pipeline.options.shadow_tables == "skip")
    names: dict[str, TableId] = {}
    for name in tables:
        if not name.startswith(f"{TABLES}/") or not lake.exists(name):
            continue  # such as a folder whose table is not created yet
        if table_id := lake.properties(name).get("table"):
            lake_table = lake_table_of(table_id)
            names[name] = ddl_log.table_mapping.current_name(lake_table)
    return names


def _named(names: Mapping[str, TableId], tables: Sequence[str]) -> set[str]:
    """Return the tables of a lake with some names at the source, in full or by last parts."""
    return {name for name, table_id in names.items() if not tables or _is_named(table_id, tables)}


def _is_named(table_id: TableId, tables: Sequence[str]) -> bool:
    return option_for_table(dict.fromkeys(tables, True), table_id) is not None


def _merged_ids(
    applier: Applier, pending: Sequence[Pending], chosen: set[str], tables: Sequence[str]
) -> set[str]:
    """Return the ids of the source tables whose pending events are merged."""
    named_ids = {
        entry.table_id
        for entry in pending
        if not tables
        or _is_named(table_id_of(entry.table_id), tables)
        or not chosen.isdisjoint(applier.evolver.lake_names(entry.table_id))
    }
    return applier.evolver.related_tables(named_ids)


def _lake_names(applier: Applier, pending: Sequence[Pending]) -> set[str]:
    """Return the names of the tables that pending events may change."""
    return {name for entry in pending for name in applier.evolver.lake_names(entry.table_id)}


def _markers(pending: Iterable[tuple[str, Pending]]) -> list[Marker]:
    """Return the newest batch of each pipeline and query in the change log."""
    last_batches: dict[tuple[str, str], int] = {}
    for pipeline, entry in pending:
        stream = pipeline, entry.query
        last_batches[stream] = max(entry.last, last_batches.get(stream, -1))
    return [Marker(*stream, last) for stream, last in last_batches.items()]


def _waiting_elsewhere(
    applier: Applier, lake: UncommittedLake, others: Iterable[tuple[str, Pending]]
) -> dict[str, str]:
    """Return the tables for which events of other pipelines wait, with a pipeline's name."""
    return {
        name: pipeline
        for pipeline, entry in others
        for name in applier.evolver.lake_names(entry.table_id) & lake.used_tables
        if (last := lake.last_batch(name, Marker(pipeline, entry.query, entry.last))) is None
        or last < entry.last
    }


def _merge(
    applier: Applier,
    lake: UncommittedLake,
    log: ChangeLog,
    pending: Sequence[Pending],
    merged_ids: set[str],
) -> dict[str, str]:
    """Merge the pending events of source tables; return the failed ones with the reasons."""
    failed: dict[str, str] = {}
    for marker in lake.markers:
        if not log.is_own(marker.pipeline):
            continue
        entries = [e for e in pending if e.query == marker.query and e.table_id in merged_ids]
        applied_batches = {
            entry.table_id: min(
                -1 if (last := lake.last_batch(name, marker)) is None else last
                for name in applier.evolver.lake_names(entry.table_id)
            )
            for entry in entries
        }
        waiting = [entry for entry in entries if entry.last > applied_batches[entry.table_id]]
        if not waiting:
            continue
        event_count = sum(entry.events for entry in waiting)
        events = log.rows(marker.query, {e.table_id: applied_batches[e.table_id] for e in waiting})
        report = applier.apply(events, marker, isolated=True, is_small=is_small_batch(event_count))
        failed |= report.failed
    return failed
