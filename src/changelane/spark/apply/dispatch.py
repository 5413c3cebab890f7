# SPDX-License-Identifier: Apache-2.0
"""Dispatches the batches of a stream to their tables: per batch, or deferred through a change log.

With ``merge: per_batch`` each batch is merged into its tables. With ``merge: deferred`` a batch is
one commit in the change log, and each table is merged on a schedule of its own, so that a batch
costs the same for one table as for a thousand. In both, a table that fails is paused, and the
other tables continue.
"""

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from changelane.errors import ApplyError
from changelane.spark.apply.applier import Applier, OnPlanned, is_small_batch
from changelane.spark.lake.interface import Lake, Marker
from changelane.spark.rows.batch_stats import BatchReport, batch_stats
from changelane.spark.rows.schema import REJECTED, table_id_of
from changelane.spark.runtime.computed import persisted
from changelane.spark.state.change_log import ChangeLog, Pending
from changelane.spark.state.paused_tables import PausedTable, PausedTables
from changelane.spark.state.quarantine import without_rejected

MAX_APPLIED_BATCHES: Final = 50
"""The log deletes its oldest batches once this many of them are applied to all tables."""


class AllTablesFailedError(ApplyError):
    """All tables failed: the cause is not in one of them."""


class MergeSchedule(msgspec.Struct, frozen=True):
    """When a table merges its events of the change log.

    Attributes:
        is_deferred: Whether batches go through the change log.
        events: A table is merged when it has at least this many pending events,
        seconds: or when its oldest pending event is this old.
    """

    is_deferred: bool = False
    events: int = 100_000
    seconds: float = 60.0


class _PendingEvents(msgspec.Struct):
    """The pending events of one table: time of the first, first and last batch, and number.

    A number of 0 is unknown.
    """

    since: float
    first: int
    last: int
    events: int


class TableDispatcher:
    """Dispatches the batches of one stream to its tables.

    Args:
        lake: The tables.
        applier: Applies the events; it has its fencing token.
        pipeline: The name of the pipeline.
        schedule: When tables are merged.
    """

    def __init__(
        self, lake: Lake, applier: Applier, pipeline: str, schedule: MergeSchedule
    ) -> None:
        self._lake = lake
        self._applier = applier
        self._related = applier.evolver.related_tables
        self._pipeline = pipeline
        self._schedule = schedule
        self._log = ChangeLog(lake, pipeline)
        self._paused_tables = PausedTables(self._log)
        self._lock = threading.Lock()
        self._pending: dict[str, dict[str, _PendingEvents]] = {}
        self._applied_batches: dict[tuple[str, str], int] = {}
        self._newest_batch: dict[str, int] = {}
        self._deleted_before: dict[str, int] = {}
        self._paused = self._paused_tables.tables()
        for pending in self._log.pending():
            self._add_pending(pending)

    def _add_pending(self, new_events: Pending) -> None:
        pending_tables = self._pending.setdefault(new_events.query, {})
        newest = self._newest_batch.get(new_events.query, new_events.last)
        self._newest_batch[new_events.query] = max(new_events.last, newest)
        pending = pending_tables.get(new_events.table_id)
        if pending is None:
            pending_tables[new_events.table_id] = _PendingEvents(
                time.monotonic(), new_events.first, new_events.last, new_events.events
            )
        else:
            pending.last = new_events.last
            # a sum of which one part is unknown is unknown, too
            is_known = pending.events and new_events.events
            pending.events = pending.events + new_events.events if is_known else 0

    def apply(
        self,
        events: DataFrame,
        marker: Marker,
        details: Mapping[str, object] | None = None,
        *,
        is_small: bool = False,
        on_planned: OnPlanned | None = None,
    ) -> BatchReport:
        """Apply one batch of event rows; applying it again changes nothing.

        Args:
            events: Event rows of any tables.
            marker: The batch.
            details: More for the user metadata of the commits.
            is_small: Whether the batch has few messages (:meth:`Applier.apply`).
            on_planned: Called before anything is committed.

        Raises:
            FencedError: A newer run of the pipeline writes the tables.
            AllTablesFailedError: All tables failed.
        """
        with self._lock:
            began = time.monotonic()
            unpaused = BatchReport(marker.batch)
            self._merge_unpaused(unpaused)
            if self._schedule.is_deferred:
                report = self._append_to_log(events, marker, details, on_planned)
                self._merge_due(report, all_of_them=False)
            else:
                # while a table is paused, its statements and the change log read all events, too
                with persisted(events) if self._paused else nullcontext(events) as read_events:
                    report = self._apply_batch(
                        read_events, marker, details, on_planned, is_small=is_small
                    )
            report.tables.extend(unpaused.tables)
            for code, count in unpaused.quarantined.items():
                report.count_quarantined(code, count)
            report.seconds = time.monotonic() - began
            return report

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Run no batch and no merge meanwhile: maintenance never runs beside them."""
        with self._lock:
            yield

    def merge(self, *, all_of_them: bool = False) -> BatchReport | None:
        """Merge the tables that are due, or all; return ``None`` if there are none.

        Raises:
            FencedError: A newer run of the pipeline writes the tables.
            AllTablesFailedError: All tables failed.
        """
        with self._lock:
            began = time.monotonic()
            report = BatchReport(max(self._newest_batch.values(), default=0), is_merge=True)
            self._merge_unpaused(report)
            self._merge_due(report, all_of_them=all_of_them)
            report.seconds = time.monotonic() - began
            return report if report.tables else None

    @property
    def paused(self) -> dict[str, str]:
        """The reasons of paused tables, by their names at the source."""
        return {str(table_id_of(name)): paused.reason for name, paused in self._paused.items()}

    # -- per batch

    def _apply_batch(
        self,
        events: DataFrame,
        marker: Marker,
        details: Mapping[str, object] | None,
        on_planned: OnPlanned | None,
        *,
        is_small: bool,
    ) -> BatchReport:
        running_events = events
        if self._paused:
            # the batch may rename a paused table
            self._applier.check_fencing_token()
            self._applier.record_statements(batch_stats(events, BatchReport(marker.batch)))
        paused = self._related(self._paused)
        if paused:
            is_row = F.coalesce(~F.col("kind").isin("ddl", REJECTED), F.lit(True))
            is_paused = F.coalesce(F.col("table_id").isin(*sorted(paused)) & is_row, F.lit(False))
            running_events = events.where(~is_paused)
        report = self._apply_with_retry(
            running_events, marker, details, on_planned, is_small=is_small
        )
        if paused:
            self._log.append_tables(events, paused, marker)
        if failed := self._failed_tables(report):
            paused |= self._related(failed)
            self._log.append_tables(events, self._related(failed), marker)
            self._pause(failed, marker.batch)
        for table_id in paused:
            self._add_pending(Pending(marker.query, table_id, marker.batch, marker.batch, 0))
        return report

    def _apply_with_retry(
        self,
        events: DataFrame,
        marker: Marker,
        details: Mapping[str, object] | None = None,
        on_planned: OnPlanned | None = None,
        *,
        is_small: bool,
    ) -> BatchReport:
        """Apply events, those of failed tables twice: another writer may have been the cause."""
        apply = partial(self._applier.apply, isolated=True, is_small=is_small)
        report = apply(events, marker, details, on_planned=on_planned)
        if failed := report.failed:
            # the first try may have counted and quarantined the same events
            counts_before = self._applier.quarantine.entry_counts(marker)
            second_report = apply(events.where(F.col("table_id").isin(*failed)), marker, details)
            if second_report.quarantined:
                new_counts = self._applier.quarantine.entry_counts(marker) - counts_before
                for code, count in new_counts.items():
                    report.count_quarantined(code, count)
            finished = [table for table in report.tables if table.failed is None]
            report.tables[:] = [*finished, *second_report.tables]
        return report

    def _failed_tables(self, report: BatchReport) -> dict[str, str]:
        """Return the reasons of failed tables, by ``table_id``.

        Raises:
            AllTablesFailedError: The lake has no other table.
        """
        failed = report.failed
        names = {name for table_id in failed for name in self._applier.evolver.lake_names(table_id)}
        if failed and not set(self._lake.tables()) - names:
            (reason, *_) = failed.values()
            raise AllTablesFailedError(reason)
        return failed

    def _pause(self, failed: Mapping[str, str], batch: int) -> None:
        now_ms = int(time.time() * 1000)
        paused = [
            PausedTable(table_id, why, batch, now_ms, pipeline=self._pipeline)
            for table_id, why in failed.items()
            # a statement of another table may alter a paused one, which keeps its first failure
            if table_id not in self._paused or self._paused[table_id].state != "paused"
        ]
        self._paused_tables.record(*paused)
        self._paused.update((table.table_id, table) for table in paused)

    def _merge_unpaused(self, report: BatchReport) -> None:
        """Merge the tables that a user has unpaused."""
        if not self._paused:
            return
        self._paused = self._paused_tables.tables()
        unpaused = [name for name, paused in self._paused.items() if paused.state == "unpaused"]
        if not unpaused:
            return
        # a newer run may have paused them: this one does not know their waiting events
        self._applier.check_fencing_token()
        failed = self._merge(report, self._related(unpaused))
        merged_tables = self._related(unpaused) - self._related(failed)
        done_tables = [paused for name, paused in self._paused.items() if name in merged_tables]
        self._paused_tables.record(
            *(msgspec.structs.replace(paused, state="done") for paused in done_tables)
        )
        for paused in done_tables:
            del self._paused[paused.table_id]
        self._delete_applied(at_once=True)

    # -- deferred

    def _append_to_log(
        self,
        events: DataFrame,
        marker: Marker,
        details: Mapping[str, object] | None,
        on_planned: OnPlanned | None,
    ) -> BatchReport:
        self._applier.check_fencing_token()
        report = BatchReport(marker.batch)
        with persisted(events) as cached_events:
            stats = batch_stats(cached_events, report)
            if on_planned is not None:
                on_planned(report)
            # pending events of renamed tables belong to the tables with the names so far
            merged_first = self._applier.evolver.renamed_tables(stats)
            if any(stats.servers.values()):
                # the first events of a table decide of which server it accepts statements
                merged_first |= self._pending_without_table()
            self._merge(report, self._running(merged_first))
            # tables merge one by one, and a statement may concern several
            accepted, rejected = self._applier.record_statements(stats)
            for rejection in rejected:
                report.count_quarantined(rejection.code, rejection.size or 0)
            self._applier.quarantine.record_or_stop(cached_events, rejected, marker, report)
            if stats.table_batches or accepted:
                may_have_rows = marker.batch <= self._newest_batch.get(marker.query, -1)
                logged_events = without_rejected(cached_events, rejected)
                self._log.append(logged_events, marker, details, may_have_rows=may_have_rows)
        report.logged = len(stats.table_batches)
        event_counts = Counter(statement.table_id for statement in accepted)
        event_counts.update({table.table_id: table.count for table in stats.table_batches})
        for table_id, count in event_counts.items():
            self._add_pending(Pending(marker.query, table_id, marker.batch, marker.batch, count))
        return report

    def _pending_without_table(self) -> set[str]:
        """Return the tables whose events are all in the change log."""
        return {
            table_id
            for pending_tables in self._pending.values()
            for table_id in pending_tables
            if not any(map(self._lake.exists, self._applier.evolver.lake_names(table_id)))
        }

    def _merge_due(self, report: BatchReport, *, all_of_them: bool) -> None:
        now = time.monotonic()
        due = {
            table_id
            for pending_tables in self._pending.values()
            for table_id, pending in pending_tables.items()
            if all_of_them
            or pending.events >= self._schedule.events
            or now - pending.since >= self._schedule.seconds
        }
        self._merge(report, self._running(due))
        self._delete_applied(at_once=all_of_them)

    def _running(self, tables: Iterable[str]) -> set[str]:
        """Return tables and the tables that share names with them, without paused ones."""
        return self._related(tables) - self._related(self._paused)

    def _merge(self, report: BatchReport, tables: Collection[str]) -> dict[str, str]:
        """Merge tables up to the newest batch of each query; pause and return failed tables.

        Tables that share names are merged together, so that all of them have the same batches.
        """
        failed: dict[str, str] = {}
        for query, pending_tables in self._pending.items():
            last_batch = max((pending.last for pending in pending_tables.values()), default=-1)
            marker = Marker(self._pipeline, query, last_batch)
            table_ids = sorted(set(tables) & set(pending_tables) - self._related(failed))
            if not table_ids:
                continue
            applied = {table_id: self._applied_batch(table_id, marker) for table_id in table_ids}
            event_counts = [pending_tables[table_id].events for table_id in table_ids]
            event_count = sum(event_counts) if all(event_counts) else None
            merge_report = self._apply_with_retry(
                self._log.rows(query, applied), marker, is_small=is_small_batch(event_count)
            )
            failed_tables = self._failed_tables(merge_report)
            self._pause(failed_tables, last_batch)
            failed |= failed_tables
            finished = set(table_ids) - self._related(failed)
            for table_id in finished:
                self._applied_batches[query, table_id] = last_batch
                del pending_tables[table_id]
            self._delete_rejected(query, finished, merge_report, last_batch)
            report.tables.extend(merge_report.tables)
            for code, count in merge_report.quarantined.items():
                report.count_quarantined(code, count)
        return failed

    def _delete_rejected(
        self, query: str, finished: set[str], report: BatchReport, last_batch: int
    ) -> None:
        """Delete the rows of tables that rejected all of them: no commit has their marker."""
        rejected_tables = {
            table.table for table in report.tables if not table.path and table.failed is None
        }
        rejected_names = {
            name for name in self._related(finished) if str(table_id_of(name)) in rejected_tables
        }
        if rejected := self._related(rejected_names) & finished:
            self._log.delete_tables(query, rejected, last_batch)

    def _applied_batch(self, table_id: str, marker: Marker) -> int:
        """Return the last batch that each lake table of a name has applied; -1 = none.

        Only a finished merge records it: an interrupt may end a merge after its commits, and the
        batch of another thread follows.
        """
        if (last_batch := self._applied_batches.pop((marker.query, table_id), None)) is not None:
            return last_batch
        last_batches = [
            self._lake.last_batch(name, marker)
            for name in self._applier.evolver.lake_names(table_id)
        ]
        return min(-1 if last_batch is None else last_batch for last_batch in last_batches)

    def _delete_applied(self, *, at_once: bool) -> None:
        """Delete batches from the log that all tables have applied, not after every batch."""
        paused = self._related(self._paused)
        for query, pending_tables in self._pending.items():
            first_batches = [
                pending.first for name, pending in pending_tables.items() if name not in paused
            ]
            before = min(first_batches, default=self._newest_batch[query] + 1)
            applied_count = before - self._deleted_before.get(query, 0)
            if applied_count >= (1 if at_once else MAX_APPLIED_BATCHES):
                self._log.delete_before(query, before, set(pending_tables) & paused)
                self._deleted_before[query] = before
