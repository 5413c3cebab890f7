# SPDX-License-Identifier: Apache-2.0
"""Maintains tables between batches: compaction, merge mode, expiry of versions, purge of deletes.

The applier runs the maintenance: a compaction that runs in parallel with a MERGE makes one of the
two fail. A run that dies during maintenance leaves consistent tables. Each step is a commit of its
own that changes no row, and an expiry first moves the markers that it would delete.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from pyspark.sql import functions as F

from changelane.pipeline.lake_sinks import OWN_PREFIX
from changelane.pipeline.options import Maintenance
from changelane.schema import option_for_table
from changelane.spark.lake.interface import (
    TABLES,
    Files,
    Lake,
    MaintainedLake,
    MergeMode,
    name_of,
)
from changelane.spark.maintenance.merge_mode import (
    MAX_DELETED_SHARE,
    change_merge_mode,
    is_large_copy_on_write,
    may_change_merge_mode,
)
from changelane.spark.maintenance.purge import EventBounds, PurgeReport, plan_purge, purge
from changelane.spark.rows.schema import table_id_of
from changelane.spark.state import change_log, history_tombstones, quarantine, replays, tombstones
from changelane.spark.state.fencing import FencingToken, is_of_others
from changelane.spark.state.full_history import full_history_of
from changelane.spark.state.tombstones import TombstoneTable

MAINTENANCE_PROPERTY: Final = "maintained"
"""The table property with the state of the last maintenance, as JSON."""
LAST_PURGE_PROPERTY: Final = "purged_ms"
"""The property of the tombstone table with the time of the last purge, milliseconds since 1970.

That of a pipeline ends in a point and its name.
"""
_OWN_TABLES: Final = (
    tombstones.NAME,
    history_tombstones.NAME,
    quarantine.NAME,
    replays.NAME,
    change_log.NAME,
)
_MIN_OWN_RETENTION_S: Final = 3_600
"""Runs of other pipelines write these tables, too: Delta deletes files without a commit by age."""
_EXPIRE_EVERY_S: Final = 86_400
_PURGE_EVERY_S: Final = 3_600


class MaintenanceReport(msgspec.Struct):
    """The maintenance of one table.

    Attributes:
        table: The path of the table in the lake.
        files: The number of data files before the maintenance.
        small: The number of small files among them.
        deleted_rows: The number of rows marked as deleted in them.
        is_compacted: Whether the maintenance rewrote small files, and files with deleted rows.
        is_expired: Whether the maintenance expired old versions.
        merge_mode: The new way to store changed rows; ``None`` = it stays.
    """

    table: str
    files: int
    small: int
    deleted_rows: int = 0
    is_compacted: bool = False
    is_expired: bool = False
    merge_mode: MergeMode | None = None


class _LastMaintenance(msgspec.Struct, frozen=True):
    """The last maintenance of a table: its commits and time, and the time of the last expiry."""

    commits: int = 0
    expired_ms: int = 0
    time_ms: int = 0


def last_maintenance_ms(properties: Mapping[str, str]) -> int | None:
    """Return the time of a table's last maintenance, milliseconds since 1970, or ``None``."""
    return _last_maintenance(properties).time_ms or None


def _last_maintenance(properties: Mapping[str, str]) -> _LastMaintenance:
    return msgspec.json.decode(properties.get(MAINTENANCE_PROPERTY, "{}"), type=_LastMaintenance)


class MaintenanceScheduler:
    """Maintains the tables of one run.

    Args:
        lake: The lake.
        tombstone_table: The tombstones of the lake's tables.
        limits: The thresholds of maintenance; ``None`` = maintenance is off.
        purge_after_s: The minimum age of a tombstone that a purge deletes, in seconds before the
            newest event of its table; ``None`` = no purge.
        pipeline: The pipeline whose tables are maintained, and their tombstones purged and joined,
            as in its fencing tokens; ``None`` = all tables.
        fencing_token: The token of the run. Maintenance raises once a newer run writes.
        lake_table_ids: Returns the ids of the lake tables of a source table, which may be renamed.
        now_s: The clock, seconds since 1970.
    """

    def __init__(
        self,
        lake: Lake,
        tombstone_table: TombstoneTable,
        limits: Maintenance | None,
        *,
        purge_after_s: int | None = None,
        pipeline: str | None = None,
        fencing_token: FencingToken | None = None,
        lake_table_ids: Callable[[str], Iterable[str]] = lambda table_id: (table_id,),
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._lake = lake
        self._tombstone_table = tombstone_table
        self._limits = limits
        self._purge_after_s = purge_after_s
        self._pipeline = pipeline
        self._last_purge = LAST_PURGE_PROPERTY + ("" if pipeline is None else f".{pipeline}")
        self._fencing_token = fencing_token
        self._lake_table_ids = lake_table_ids
        self._now_s = now_s
        self._written_tables: set[str] = set()
        self._batch_count = 0
        self._next_purge_ms = 0

    def after_batch(self, event_bounds: Mapping[str, EventBounds]) -> list[MaintenanceReport]:
        """Run the maintenance that is due after a batch.

        Args:
            event_bounds: The bounds of the batch's events, by table id.

        Raises:
            FencedError: A newer run of the pipeline writes the tables.
        """
        self._batch_count += 1
        self._written_tables.update(map(name_of, event_bounds))
        if self._purge_after_s is not None:
            self._purge(event_bounds)
        if self._limits is None or self._batch_count % self._limits.every_commits:
            return []
        return self.maintain_written_tables()

    def after_run(self, event_bounds: Mapping[str, EventBounds]) -> list[MaintenanceReport]:
        """Run the maintenance that is due at the end of a run, as :meth:`after_batch`."""
        self._written_tables.update(map(name_of, event_bounds))
        return self.maintain_written_tables()

    def maintain_written_tables(self) -> list[MaintenanceReport]:
        """Maintain the tables written since the last call, and changelane's own tables.

        Raises:
            FencedError: A newer run of the pipeline writes the tables.
        """
        if self._limits is None or not self._written_tables:
            return []
        names = sorted(self._written_tables)
        self._written_tables.clear()
        return self._maintain(names)

    def maintain_all(self) -> list[MaintenanceReport]:
        """Maintain every table now, whatever the thresholds.

        Tables that only other pipelines wrote are left out, because their runs may write them at
        this moment: Delta deletes files without a commit by age.

        Raises:
            FencedError: A newer run of the pipeline writes the tables.
        """
        names = [name for name in self._lake.tables() if not self._is_of_others(name)]
        return self._maintain(names, force=True)

    def _is_of_others(self, name: str) -> bool:
        if self._pipeline is None or not self._lake.exists(name):
            return False
        return is_of_others(self._lake.properties(name), self._pipeline)

    def _maintain(self, tables: Sequence[str], *, force: bool = False) -> list[MaintenanceReport]:
        names = [*tables, *map(full_history_of, tables), *_OWN_TABLES]
        return [
            report
            for name in names
            if (report := self.maintain_table(name, force=force)) is not None
        ]

    def maintain_table(self, name: str, *, force: bool = False) -> MaintenanceReport | None:
        """Maintain one table if it is due, and if the format leaves maintenance to changelane.

        Args:
            name: The path of the table in the lake.
            force: Whether to ignore the thresholds.

        Raises:
            FencedError: A newer run of the pipeline writes the tables.
        """
        limits = self._limits or Maintenance()
        lake = self._lake
        if not isinstance(lake, MaintainedLake) or not lake.exists(name):
            return None
        properties = lake.properties(name)
        if name.startswith(TABLES) and "table" not in properties:
            return None  # changelane did not create it
        last_maintenance = _last_maintenance(properties)
        commits, now_ms = lake.commits(name), int(self._now_s() * 1000)
        is_due = force or commits - last_maintenance.commits >= limits.every_commits
        may_change_mode = (
            name.startswith(TABLES)
            and (is_due or is_large_copy_on_write(lake, name, properties, limits))
            and may_change_merge_mode(lake, name, properties)
        )
        if not is_due and not may_change_mode:
            return None
        if self._fencing_token is not None:
            self._fencing_token.check(lake.properties(tombstones.NAME))
        small_bytes = limits.small_file_mb * 1024 * 1024
        if name == tombstones.NAME:
            self._tombstone_table.replace_duplicates(self._pipeline)
        files: Files = lake.files(name, small_bytes)
        report = MaintenanceReport(name, files.total, files.small, files.deleted_rows)
        if may_change_mode:
            report.merge_mode = change_merge_mode(lake, name, properties, files, limits)
        if not is_due:
            return report if report.merge_mode is not None else None
        has_many_deleted_rows = files.deleted_rows > files.rows * MAX_DELETED_SHARE
        has_small_files = files.small >= (2 if force else limits.small_files)
        if has_small_files or has_many_deleted_rows or (force and files.deleted_rows):
            lake.compact(name, small_bytes, self._cluster_columns(name, properties, limits))
            report.is_compacted = lake.files(name, small_bytes) != files
        keep_s = limits.snapshot_retention_s
        if name in _OWN_TABLES:
            keep_s = max(keep_s, _MIN_OWN_RETENTION_S)
        expired_ms = last_maintenance.expired_ms
        if force or now_ms - expired_ms >= min(keep_s, _EXPIRE_EVERY_S) * 1000:
            lake.expire(name, keep_s)
            report.is_expired, expired_ms = True, now_ms
        maintenance = _LastMaintenance(lake.commits(name), expired_ms, now_ms)
        lake.set_properties(name, {MAINTENANCE_PROPERTY: msgspec.json.encode(maintenance).decode()})
        return report

    def _cluster_columns(
        self, name: str, properties: Mapping[str, str], limits: Maintenance
    ) -> tuple[str, ...]:
        """Return the columns that cluster a table: the configured ones that exist."""
        if "table" not in properties:
            return ()
        chosen_columns = option_for_table(limits.cluster_by, table_id_of(properties["table"])) or []
        columns_by_lower = {column.lower(): column for column in self._lake.columns(name)}
        return tuple(
            columns_by_lower[column.lower()]
            for column in chosen_columns
            if column.lower() in columns_by_lower and not column.lower().startswith(OWN_PREFIX)
        )

    def _purge(self, event_bounds: Mapping[str, EventBounds]) -> None:
        now_ms = int(self._now_s() * 1000)
        if now_ms < self._next_purge_ms:
            return
        properties = self._lake.properties(tombstones.NAME)
        self._next_purge_ms = int(properties.get(self._last_purge, "0")) + _PURGE_EVERY_S * 1000
        if now_ms < self._next_purge_ms:
            return
        if self._fencing_token is not None:
            self._fencing_token.check(properties)
        self.purge_tombstones(
            after_us=(self._purge_after_s or 0) * 1_000_000, event_bounds=event_bounds
        )
        self._lake.set_properties(tombstones.NAME, {self._last_purge: str(now_ms)})
        self._next_purge_ms = now_ms + _PURGE_EVERY_S * 1000

    def _pending_bounds(self) -> dict[str, EventBounds]:
        """Return the bounds of the events that wait in the change log, by source table."""
        if not self._lake.exists(change_log.NAME):
            return {}
        change_log_rows = self._lake.read(change_log.NAME).where("`order` IS NOT NULL")
        oldest_rows = (
            change_log_rows.groupBy("table_id").agg(F.min("order").alias("oldest")).collect()
        )
        return {row["table_id"]: EventBounds(bytes(row["oldest"])) for row in oldest_rows}

    def purge_tombstones(
        self,
        *,
        before_us: int | None = None,
        after_us: int | None = None,
        event_bounds: Mapping[str, EventBounds] | None = None,
        dry_run: bool = False,
    ) -> list[PurgeReport]:
        """Delete old tombstones (:func:`.purge.plan_purge`); return a report per table."""
        event_bounds = dict(event_bounds or {})
        for source_id, pending_bounds in self._pending_bounds().items():
            for table_id in self._lake_table_ids(source_id):
                event_bounds[table_id] = event_bounds.get(table_id, pending_bounds).union(
                    pending_bounds
                )
        orders, reports = plan_purge(
            self._lake,
            self._tombstone_table,
            before_us=before_us,
            after_us=after_us,
            event_bounds=event_bounds,
            pipeline=self._pipeline,
        )
        if not dry_run:
            purge(self._lake, self._tombstone_table, orders)
        return reports
