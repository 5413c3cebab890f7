# SPDX-License-Identifier: Apache-2.0
"""How the batches of one stream come to its many tables: at once, or through the change log.

*direct*: every table of a batch is merged with it. *log*: the batch is one commit in the change
log, and each table is merged on its own cadence, so that a batch costs the same for one table as
for a thousand. In both a table that fails is parked, and the others go on.
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
from changelane.spark.rows.batch_stats import BatchReport, survey
from changelane.spark.rows.schema import REFUSED, table_id_of
from changelane.spark.state.change_log import ChangeLog, Pending
from changelane.spark.state.paused_tables import Parked, Parking
from changelane.spark.state.quarantine import without

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
        self._parking = Parking(self._log)
        self._lock = threading.Lock()
        self._waiting: dict[str, dict[str, _Waiting]] = {}
        self._taken: dict[tuple[str, str], int] = {}
        self._newest: dict[str, int] = {}
        self._swept: dict[str, int] = {}
        self._parked = self._parking.tables()
        for one in self._log.pending():
            self._wait(one)

    def _wait(self, one: Pending) -> None:
        mine = self._waiting.setdefault(one.query, {})
        self._newest[one.query] = max(one.last, self._newest.get(one.query, one.last))
        held = mine.get(one.table_id)
        if held is None:
            mine[one.table_id] = _Waiting(time.monotonic(), one.first, one.last, one.events)
        else:
            held.last = one.last
            held.events += one.events

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
    def parked(self) -> dict[str, str]:
        """Why tables are parked, by their names at the source."""
        return {str(table_id_of(name)): one.reason for name, one in self._parked.items()}

    # -- at once

    def _direct(
        self,
        events: DataFrame,
        marker: Marker,
        details: Mapping[str, object] | None,
        begin: Begin | None,
    ) -> BatchReport:
        others = events
        if self._parked:
            # a table that waits may get another name in this batch
            self._applier.check_fence()
            self._applier.keep_statements(survey(events, BatchReport(marker.batch)))
        parked = self._together(self._parked)
        if parked:
            is_row = F.coalesce(~F.col("kind").isin("ddl", REFUSED), F.lit(True))
            is_parked = F.coalesce(F.col("table_id").isin(*sorted(parked)) & is_row, F.lit(False))
            others = events.where(~is_parked)
        report = self._applied(others, marker, details, begin)
        if parked:
            self._log.keep(events, parked, marker)
        if failed := self._failed(report):
            parked |= self._together(failed)
            self._log.keep(events, self._together(failed), marker)
            self._park(failed, marker.batch)
        for table_id in parked:
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
            theirs = events.where(F.col("table_id").isin(*failed))
            again = self._applier.apply(theirs, marker, details, isolated=True)
            done = [one for one in report.tables if one.failed is None]
            report.tables[:] = [*done, *again.tables]
        return report

    def _failed(self, report: BatchReport) -> dict[str, str]:
        """Return why tables failed, by ``table_id``.

        Raises:
            AllFailedError: No other table is there, so that the cause may be any.
        """
        failed = report.failed
        theirs = {place for one in failed for place in self._applier.follower.places(one)}
        if failed and not set(self._lake.tables()) - theirs:
            (reason, *_) = failed.values()
            raise AllFailedError(reason)
        return failed

    def _park(self, failed: Mapping[str, str], batch: int) -> None:
        now_ms = int(time.time() * 1000)
        parked = [Parked(table_id, why, batch, now_ms) for table_id, why in failed.items()]
        self._parking.set(*parked)
        self._parked.update((one.table_id, one) for one in parked)

    def _resume(self, report: BatchReport) -> None:
        """Let parked tables take their events, of which someone said so."""
        if not self._parked:
            return
        self._parked = self._parking.tables()
        resumed = {name: one for name, one in self._parked.items() if one.state == "resumed"}
        if not resumed:
            return
        failed = self._merge(report, self._together(resumed))
        taken = self._together(resumed) - self._together(failed)
        done = [one for name, one in self._parked.items() if name in taken]
        self._parking.set(*(msgspec.structs.replace(one, state="done") for one in done))
        for one in done:
            del self._parked[one.table_id]
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
        kept = events.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            found = survey(kept, report)
            if begin is not None:
                begin(report)
            works = found.works
            # what waits under names that change hands is of the tables that they meant so far
            self._merge(report, self._free(self._applier.follower.renamed(found)))
            # tables take their rows one by one, and a statement may be about several
            refused = self._applier.keep_statements(found)
            for one in refused:
                report.set_aside(one.code, one.size or 0)
            self._applier.quarantine.take(kept, refused, marker, report)
            if works:
                may_hold = marker.batch <= self._newest.get(marker.query, -1)
                told = without(kept, refused)
                self._log.append(told, marker, details, may_hold=may_hold)
        finally:
            kept.unpersist()
        report.logged = len(works)
        for work in works:
            batch = marker.batch
            self._wait(Pending(marker.query, work.table_id, batch, batch, work.count))
        return report

    def _merge_due(self, report: BatchReport, *, all_of_them: bool) -> None:
        now = time.monotonic()
        due = {
            table_id
            for mine in self._waiting.values()
            for table_id, one in mine.items()
            if all_of_them
            or one.events >= self._cadence.events
            or now - one.since >= self._cadence.seconds
        }
        self._merge(report, self._free(due))
        self._sweep(at_once=all_of_them)

    def _free(self, tables: Iterable[str]) -> set[str]:
        """Return tables with those that share names with them, but for parked ones."""
        return self._together(tables) - self._together(self._parked)

    def _merge(self, report: BatchReport, tables: Collection[str]) -> dict[str, str]:
        """Merge tables up to the newest batch of each query; park and return those that fail.

        Tables that share names are merged together: a batch that one of their tables holds is in
        all of them.
        """
        failed: dict[str, str] = {}
        for query, mine in self._waiting.items():
            upto = max((one.last for one in mine.values()), default=-1)
            marker = Marker(self._pipeline, query, upto)
            ours = sorted(set(tables) & set(mine) - self._together(failed))
            if not ours:
                continue
            taken = {table_id: self._taken_by(table_id, marker) for table_id in ours}
            told = self._applied(self._log.rows(query, taken), marker)
            found = self._failed(told)
            self._park(found, upto)
            failed |= found
            done = set(taken) - self._together(failed)
            for table_id in done:
                self._taken[query, table_id] = upto
                del mine[table_id]
            # all of it is in the quarantine, and no commit of the table says that it was met
            refused = {one.table for one in told.tables if not one.path and one.failed is None}
            names = self._together(done)
            met = {name for name in names if str(table_id_of(name)) in refused}
            if gone := self._together(met) & done:
                self._log.drop(query, gone, upto)
            report.tables.extend(told.tables)
            for code, count in told.quarantined.items():
                report.set_aside(code, count)
        return failed

    def _taken_by(self, table_id: str, marker: Marker) -> int:
        """Return the last batch that all tables hold which a name ever meant."""
        key = marker.query, table_id
        if key not in self._taken:
            lasts = [
                self._lake.last_batch(one, marker)
                for one in self._applier.follower.places(table_id)
            ]
            self._taken[key] = min(-1 if last is None else last for last in lasts)
        return self._taken[key]

    def _sweep(self, *, at_once: bool) -> None:
        """Forget what all tables have taken, not after every batch."""
        parked = self._together(self._parked)
        for query, mine in self._waiting.items():
            first = [one.first for name, one in mine.items() if name not in parked]
            before = min(first, default=self._newest[query] + 1)
            if before - self._swept.get(query, 0) >= (1 if at_once else MAX_BATCHES):
                self._log.forget(query, before, set(mine) & parked)
                self._swept[query] = before
