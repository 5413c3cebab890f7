# SPDX-License-Identifier: Apache-2.0
"""How the batches of one stream come to its many tables: at once, or through the change log.

*direct*: every table of a batch is merged with it. *log*: the batch is one commit in the change
log, and each table is merged on its own cadence, so that a batch costs the same for one table as
for a thousand. In both a table that fails is paused, and the others go on.
"""

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from changelane.errors import ApplyError
from changelane.spark.apply.applier import Applier, Begin
from changelane.spark.lake.interface import Lake, Marker
from changelane.spark.rows.batch_stats import BatchReport, batch_stats
from changelane.spark.rows.schema import REJECTED, table_id_of
from changelane.spark.state.change_log import ChangeLog, Pending
from changelane.spark.state.paused_tables import PausedTable, PausedTables
from changelane.spark.state.quarantine import without_rejected

MAX_BATCHES: Final = 50
"""The log is swept when this many of its oldest batches are in all tables."""


class AllFailedError(ApplyError):
    """No table took its events: the cause is not one table's."""


class Cadence(msgspec.Struct, frozen=True):
    """When tables take what the change log holds for them.

    Attributes:
        is_log: Whether batches go through the log at all.
        events: A table is merged once so many events wait for it,
        seconds: or once the oldest has waited for so long.
    """

    is_log: bool = False
    events: int = 100_000
    seconds: float = 60.0


class _Waiting(msgspec.Struct):
    """What waits for one table: since when, from which batch, how many events."""

    since: float
    first: int
    last: int
    events: int


class Fanout:
    """Brings the batches of one stream to its tables.

    Args:
        lake: The tables.
        applier: What applies events to them; its fence is raised.
        pipeline: The pipeline's name.
        cadence: When tables take their events.
    """

    def __init__(
        self,
        lake: Lake,
        applier: Applier,
        pipeline: str,
        cadence: Cadence,
    ) -> None:
        self._lake = lake
        self._applier = applier
        self._together = applier.follower.together
        self._pipeline = pipeline
        self._cadence = cadence
        self._log = ChangeLog(lake)
        self._paused_tables = PausedTables(self._log)
        self._lock = threading.Lock()
        self._waiting: dict[str, dict[str, _Waiting]] = {}
        self._taken: dict[tuple[str, str], int] = {}
        self._newest: dict[str, int] = {}
        self._swept: dict[str, int] = {}
        self._paused = self._paused_tables.tables()
        for pending in self._log.pending():
            self._wait(pending)

    def _wait(self, pending: Pending) -> None:
        waiting_tables = self._waiting.setdefault(pending.query, {})
        self._newest[pending.query] = max(
            pending.last, self._newest.get(pending.query, pending.last)
        )
        waiting = waiting_tables.get(pending.table_id)
        if waiting is None:
            waiting_tables[pending.table_id] = _Waiting(
                time.monotonic(), pending.first, pending.last, pending.events
            )
        else:
            waiting.last = pending.last
            waiting.events += pending.events

    def take(
        self,
        events: DataFrame,
        marker: Marker,
        details: Mapping[str, object] | None = None,
        *,
        begin: Begin | None = None,
    ) -> BatchReport:
        """Take one batch of event rows; taking it again changes nothing.

        Args:
            events: Event rows of any tables.
            marker: The batch.
            details: More for the user metadata of the commits.
            begin: Called once it is known what the batch holds, before anything is committed.

        Raises:
            FencedError: A newer run of the pipeline writes the tables.
            AllFailedError: No table took its events.
        """
        with self._lock:
            began = time.monotonic()
            resumed = BatchReport(marker.batch)
            self._resume(resumed)
            if self._cadence.is_log:
                report = self._logged(events, marker, details, begin)
                self._merge_due(report, all_of_them=False)
            else:
                report = self._direct(events, marker, details, begin)
            report.tables.extend(resumed.tables)
            report.seconds = time.monotonic() - began
            return report

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep batches and merges out meanwhile: maintenance never runs beside them."""
        with self._lock:
            yield

    def merge(self, *, all_of_them: bool = False) -> BatchReport | None:
        """Merge the tables that are due, or all; ``None`` when there is none.

        Raises:
            FencedError: A newer run of the pipeline writes the tables.
            AllFailedError: No table took its events.
        """
        with self._lock:
            began = time.monotonic()
            report = BatchReport(max(self._newest.values(), default=0), is_merge=True)
            self._resume(report)
            self._merge_due(report, all_of_them=all_of_them)
            report.seconds = time.monotonic() - began
            return report if report.tables else None

    @property
    def paused(self) -> dict[str, str]:
        """Why tables are paused, by their names at the source."""
        return {str(table_id_of(name)): paused.reason for name, paused in self._paused.items()}

    # -- at once

    def _direct(
        self,
        events: DataFrame,
        marker: Marker,
        details: Mapping[str, object] | None,
        begin: Begin | None,
    ) -> BatchReport:
        open_events = events
        if self._paused:
            # a table that waits may get another name in this batch
            self._applier.check_fence()
            self._applier.keep_statements(batch_stats(events, BatchReport(marker.batch)))
        paused = self._together(self._paused)
        if paused:
            is_row = F.coalesce(~F.col("kind").isin("ddl", REJECTED), F.lit(True))
            is_paused = F.coalesce(F.col("table_id").isin(*sorted(paused)) & is_row, F.lit(False))
            open_events = events.where(~is_paused)
        report = self._applied(open_events, marker, details, begin)
        if paused:
            self._log.append_tables(events, paused, marker)
        if failed := self._failed(report):
            paused |= self._together(failed)
            self._log.append_tables(events, self._together(failed), marker)
            self._park(failed, marker.batch)
        for table_id in paused:
            self._wait(Pending(marker.query, table_id, marker.batch, marker.batch, 0))
        return report

    def _applied(
        self,
        events: DataFrame,
        marker: Marker,
        details: Mapping[str, object] | None = None,
        begin: Begin | None = None,
    ) -> BatchReport:
        """Apply events; a table that fails gets a second chance: another writer came between."""
        report = self._applier.apply(events, marker, details, isolated=True, begin=begin)
        if failed := report.failed:
            failed_events = events.where(F.col("table_id").isin(*failed))
            again = self._applier.apply(failed_events, marker, details, isolated=True)
            finished = [table for table in report.tables if table.failed is None]
            report.tables[:] = [*finished, *again.tables]
        return report

    def _failed(self, report: BatchReport) -> dict[str, str]:
        """Return why tables failed, by ``table_id``.

        Raises:
            AllFailedError: No other table is there, so that the cause may be any.
        """
        failed = report.failed
        places = {place for table_id in failed for place in self._applier.follower.places(table_id)}
        if failed and not set(self._lake.tables()) - places:
            (reason, *_) = failed.values()
            raise AllFailedError(reason)
        return failed

    def _park(self, failed: Mapping[str, str], batch: int) -> None:
        now_ms = int(time.time() * 1000)
        paused = [PausedTable(table_id, why, batch, now_ms) for table_id, why in failed.items()]
        self._paused_tables.record(*paused)
        self._paused.update((table.table_id, table) for table in paused)

    def _resume(self, report: BatchReport) -> None:
        """Let paused tables take their events, of which someone said so."""
        if not self._paused:
            return
        self._paused = self._paused_tables.tables()
        resumed = {
            name: paused for name, paused in self._paused.items() if paused.state == "unpaused"
        }
        if not resumed:
            return
        failed = self._merge(report, self._together(resumed))
        taken_tables = self._together(resumed) - self._together(failed)
        done_tables = [paused for name, paused in self._paused.items() if name in taken_tables]
        self._paused_tables.record(
            *(msgspec.structs.replace(paused, state="done") for paused in done_tables)
        )
        for paused in done_tables:
            del self._paused[paused.table_id]
        self._sweep(at_once=True)

    # -- through the log

    def _logged(
        self,
        events: DataFrame,
        marker: Marker,
        details: Mapping[str, object] | None,
        begin: Begin | None,
    ) -> BatchReport:
        self._applier.check_fence()
        report = BatchReport(marker.batch)
        cached_events = events.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            batch_survey = batch_stats(cached_events, report)
            if begin is not None:
                begin(report)
            works = batch_survey.table_batches
            # what waits under names that change hands is of the tables that they meant so far
            self._merge(report, self._free(self._applier.follower.renamed(batch_survey)))
            # tables take their rows one by one, and a statement may be about several
            refused = self._applier.keep_statements(batch_survey)
            for rejection in refused:
                report.count_quarantined(rejection.code, rejection.size or 0)
            self._applier.quarantine.record_or_stop(cached_events, refused, marker, report)
            if works:
                may_hold = marker.batch <= self._newest.get(marker.query, -1)
                accepted = without_rejected(cached_events, refused)
                self._log.append(accepted, marker, details, may_have_rows=may_hold)
        finally:
            cached_events.unpersist()
        report.logged = len(works)
        for work in works:
            batch = marker.batch
            self._wait(Pending(marker.query, work.table_id, batch, batch, work.count))
        return report

    def _merge_due(self, report: BatchReport, *, all_of_them: bool) -> None:
        now = time.monotonic()
        due = {
            table_id
            for waiting_tables in self._waiting.values()
            for table_id, waiting in waiting_tables.items()
            if all_of_them
            or waiting.events >= self._cadence.events
            or now - waiting.since >= self._cadence.seconds
        }
        self._merge(report, self._free(due))
        self._sweep(at_once=all_of_them)

    def _free(self, tables: Iterable[str]) -> set[str]:
        """Return tables with those that share names with them, but for paused ones."""
        return self._together(tables) - self._together(self._paused)

    def _merge(self, report: BatchReport, tables: Collection[str]) -> dict[str, str]:
        """Merge tables up to the newest batch of each query; pause and return those that fail.

        Tables that share names are merged together: a batch that one of their tables holds is in
        all of them.
        """
        failed: dict[str, str] = {}
        for query, waiting_tables in self._waiting.items():
            upto = max((waiting.last for waiting in waiting_tables.values()), default=-1)
            marker = Marker(self._pipeline, query, upto)
            table_ids = sorted(set(tables) & set(waiting_tables) - self._together(failed))
            if not table_ids:
                continue
            last_batches = {table_id: self._taken_by(table_id, marker) for table_id in table_ids}
            merge_report = self._applied(self._log.rows(query, last_batches), marker)
            failed_tables = self._failed(merge_report)
            self._park(failed_tables, upto)
            failed |= failed_tables
            finished = set(last_batches) - self._together(failed)
            for table_id in finished:
                self._taken[query, table_id] = upto
                del waiting_tables[table_id]
            # all of it is in the quarantine, and no commit of the table says that it was met
            refused = {
                table.table
                for table in merge_report.tables
                if not table.path and table.failed is None
            }
            names = self._together(finished)
            rejected_names = {name for name in names if str(table_id_of(name)) in refused}
            if returned := self._together(rejected_names) & finished:
                self._log.delete_tables(query, returned, upto)
            report.tables.extend(merge_report.tables)
            for code, count in merge_report.quarantined.items():
                report.count_quarantined(code, count)
        return failed

    def _taken_by(self, table_id: str, marker: Marker) -> int:
        """Return the last batch that all tables hold which a name ever meant."""
        key = marker.query, table_id
        if key not in self._taken:
            lasts = [
                self._lake.last_batch(place, marker)
                for place in self._applier.follower.places(table_id)
            ]
            self._taken[key] = min(-1 if last is None else last for last in lasts)
        return self._taken[key]

    def _sweep(self, *, at_once: bool) -> None:
        """Forget what all tables have taken, not after every batch."""
        paused = self._together(self._paused)
        for query, waiting_tables in self._waiting.items():
            first = [
                waiting.first for name, waiting in waiting_tables.items() if name not in paused
            ]
            before = min(first, default=self._newest[query] + 1)
            if before - self._swept.get(query, 0) >= (1 if at_once else MAX_BATCHES):
                self._log.delete_before(query, before, set(waiting_tables) & paused)
                self._swept[query] = before
