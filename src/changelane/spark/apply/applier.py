# SPDX-License-Identifier: Apache-2.0
"""Applies batches of event rows to the tables of a lake: the merge rule, on Spark.

One batch: quarantine first, then the side table, then one commit per table, each with the batch's
marker. A crash between any two of these is repaired by running the batch again.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import count
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.pipeline.options import Maintenance
from changelane.spark.apply.classify import key_changes, key_swaps, too_late
from changelane.spark.apply.classify.key_changes import Moved
from changelane.spark.apply.classify.partition_conflicts import crossed_keys, marked
from changelane.spark.apply.classify.rejections import (
    changes_refused,
    crossed_refused,
    late_refused,
    moves_refused,
    partitions_refused,
    table_refused,
)
from changelane.spark.apply.isolation import Isolation
from changelane.spark.apply.table_writer import Batch, Commits
from changelane.spark.evolution.compatibility import Policy
from changelane.spark.evolution.evolution import Follower, Reading
from changelane.spark.evolution.evolution_state import NOTHING, Evolution
from changelane.spark.evolution.prepare import Plan, plan
from changelane.spark.lake import lake
from changelane.spark.lake.interface import Lake, Marker, name_of
from changelane.spark.lake.layout import Layouts
from changelane.spark.lake.modes import APPEND, HISTORY, UPSERT, Modes
from changelane.spark.maintenance.compaction import Keeper
from changelane.spark.maintenance.purge import Seen, see
from changelane.spark.rows.batch_stats import (
    APPLIED_BEFORE,
    BatchReport,
    Survey,
    TableReport,
    Work,
    survey,
)
from changelane.spark.rows.schema import table_id_of
from changelane.spark.state import tombstones
from changelane.spark.state.change_log import untaken
from changelane.spark.state.fencing import EVERY, Fence, raise_fence
from changelane.spark.state.history_tombstones import Ends
from changelane.spark.state.quarantine import Misfit, Quarantine, Refused, without
from changelane.spark.state.tombstones import Remembered, SideTable

MAX_TABLES_AT_ONCE: Final = 4

Begin = Callable[[BatchReport], None]
"""Told what a batch holds, before anything of it is committed."""


class Applier:
    """Applies event rows to the tables under one folder.

    Args:
        spark: The session; in ``foreachBatch`` that of the batch.
        root: The folder, or its tables.
        table_format: ``delta``, ``iceberg`` or ``hudi``.
        keyless: What happens to tables without a key: ``quarantine`` or ``append``.
        sources: ``one`` server feeds a table; ``many`` may, whose keys never meet.
        modes: What tables keep of their changes.
        sequence: What the values are that order plain rows, such as ``integer``.
        evolution: How far tables follow their sources.
        layouts: How they are laid out.
        stops: What cannot be applied is not set aside, but stops the batch before its commits.
        masks: What the transforms hid of the events, as ``masks_of`` names it.
        on_step: Called with the step of a batch that begins, by several threads.
    """

    def __init__(
        self,
        spark: SparkSession,
        root: str | Lake,
        *,
        table_format: str = "delta",
        keyless: str = "quarantine",
        sources: str = "one",
        modes: Modes = Modes(),  # noqa: B008 - frozen
        sequence: str | None = None,
        evolution: Evolution = Evolution(),  # noqa: B008 - frozen
        layouts: Layouts = Layouts(),  # noqa: B008 - frozen
        stops: bool = False,
        masks: str = "",
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._spark = spark
        self._fence: Fence | None = None
        self._lake = lake(spark, root, table_format) if isinstance(root, str) else root
        self._policy = Policy(keyless, sources, modes, sequence, evolution, layouts)
        self.follower = Follower(spark, self._lake, self._policy)
        self._side = SideTable(spark, self._lake)
        self._ends = Ends(spark, self._lake)
        self._commits = Commits(self._lake, self._side, self._ends)
        self.quarantine = Quarantine(spark, self._lake, stops=stops, masks=masks)
        self._seen: dict[str, Seen] = {}
        self._on_step = on_step

    def raise_fence(self, pipeline: str) -> None:
        """Begin a run of a pipeline: runs of it that began before stop when they next write.

        Runs of all pipelines where a table has one writer, for they share the side table.

        Raises:
            FencedError: Others begin at the same moment, again and again.
        """
        whose = EVERY if self._lake.has_one_writer else pipeline
        self._fence = raise_fence(self._lake, tombstones.NAME, whose)

    def keeper(self, limits: Maintenance | None, purge_after_s: int | None = None) -> Keeper:
        """Return what maintains the tables between the batches of this run."""
        return Keeper(
            self._lake, self._side, limits, purge_after_s=purge_after_s, fence=self._fence
        )

    def take_seen(self) -> dict[str, Seen]:
        """Return what came of each table since this was last asked, by table id."""
        seen, self._seen = self._seen, {}
        return seen

    def apply(
        self,
        events: DataFrame,
        marker: Marker,
        details: Mapping[str, object] | None = None,
        *,
        isolated: bool = False,
        begin: Begin | None = None,
    ) -> BatchReport:
        """Apply one batch of event rows; applying it again changes nothing.

        Args:
            events: Event rows of any tables.
            marker: The batch; a table that holds it already is skipped.
            details: More for the user metadata of the commits.
            isolated: A table that fails is named in the report, and the others go on.
            begin: Called once it is known what the batch holds, before anything is committed.

        Raises:
            FencedError: A newer run of the pipeline writes the tables.
            BudgetError: Something cannot be applied, and this one stops at that.
        """
        report = BatchReport(marker.batch)
        kept = events.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            told = self.quarantine.left(kept, marker)
            self._apply(told, marker, details or {}, report, begin, isolated=isolated)
        finally:
            kept.unpersist()
        return report

    def keep_statements(self, found: Survey) -> list[Refused]:
        """Keep what a batch says of the shapes of tables, before any of them takes its rows.

        Returns:
            Statements that are set aside now, for their tables take nothing of this batch.
        """
        with_rows = {work.table_id for work in found.works}
        alone = [one for one in found.statements if one.table_id not in with_rows]
        # all at once: those of one place in the log keep their order
        self.follower.keep(found)
        refused, _ = self.follower.keep(found._replace(statements=alone))
        return refused

    def check_fence(self) -> None:
        """Stop when a newer run of the pipeline writes the tables.

        Raises:
            FencedError: It does.
        """
        if self._fence is not None:
            self._fence.check(self._lake.properties(tombstones.NAME))

    def _apply(
        self,
        events: DataFrame,
        marker: Marker,
        details: Mapping[str, object],
        report: BatchReport,
        begin: Begin | None,
        *,
        isolated: bool,
    ) -> None:
        self.check_fence()
        self._on_step("reading")
        before = self._side.tables()
        alone = Isolation(report, isolated=isolated)
        reading = self._read(events, marker, report, begin)
        plans, unseen, refused = self._plans(reading, before, report, alone)
        events = reading.events
        told = events.where(F.col("kind").isin("data", "truncate"))
        crossed = self._crossings(told, plans, before, alone)
        if crossed:
            events = marked(events, reduce(DataFrame.unionByName, crossed))
            told = events.where(F.col("kind").isin("data", "truncate"))
            refused.append(crossed_refused(refused))
        told = without(told, refused)
        ours = [*unseen, *(each.work.table_id for each in plans)]
        told = told.where(F.col("table_id").isin(ours))
        moved: dict[str, Moved] = {}
        tardy: dict[str, DataFrame] = {}
        met = self._met(told, plans, before)
        for each in plans:
            with alone.of(each.work):
                if each.mode == HISTORY and (swapped := self._swapped(told, each)) is not None:
                    refused.append(swapped)
                    told = without(told, [swapped])
                if each.mode == UPSERT:
                    self._decide(told, each, before, moved, tardy, is_met=each.name in met)
        if alone.failed:
            plans = [each for each in plans if each.work.table_id not in alone.failed]
            told = told.where(~F.col("table_id").isin(*alone.failed))
        undone = [no for each in plans for no in moves_refused(each, moved)]
        refused += undone
        if tardy:
            decided = {name: one.keys for name, one in moved.items()}
            told, events = too_late.apart(told, events, tardy, decided)
            refused.append(late_refused(refused))
        for one in refused:
            size = events.where(one.rows).count() if one.size is None else one.size
            report.set_aside(one.code, size)
        self.quarantine.take(events, refused, marker, report)
        self._remember(told, plans, unseen, moved)
        known = tombstones.after(before, [one.work for one in plans])
        batch = Batch(told, marker, details, known, moved, undone)

        try:
            report.tables += self._write(batch, plans, alone, counts=bool(refused))
        finally:
            frames = (frame for one in moved.values() for frame in one)
            for kept in (*crossed, *tardy.values(), *frames):
                kept.unpersist()
        report.skipped += sum(table.note == APPLIED_BEFORE for table in report.tables)

    def _write(
        self, batch: Batch, plans: Sequence[Plan], alone: Isolation, *, counts: bool
    ) -> list[TableReport]:
        """Commit a batch to its tables, several at a time."""
        begun = count(1)
        reports: list[TableReport] = []

        def write(plan: Plan) -> None:
            self._on_step(f"table {next(begun)} of {len(plans)}")
            with alone.of(plan.work):
                reports.append(self._commits.write(batch, plan, counts=counts))

        with ThreadPoolExecutor(MAX_TABLES_AT_ONCE) as pool:
            list(pool.map(write, plans))
        return reports

    def _plans(
        self,
        reading: Reading,
        before: Mapping[str, Remembered],
        report: BatchReport,
        alone: Isolation,
    ) -> tuple[list[Plan], list[str], list[Refused]]:
        """Return how tables take their events, tables that only truncates tell of, and the rest."""
        see(self._seen, reading.works)
        plans: list[Plan] = []
        unseen: list[str] = []
        refused = reading.refused
        met = {work.table_id for work in reading.works}
        for table_id in dict.fromkeys(one for one in reading.told if one not in met):
            truncated = before.get(table_id, Remembered()).truncated
            with alone.of(Work(table_id)):
                self.follower.follow(table_id, b"", truncated, self._fence)
        for work in reading.works:
            name = name_of(work.table_id)
            known = before.get(work.table_id, Remembered())
            newest = max(work.newest.values(), default=b"")
            one, followed = None, NOTHING
            try:
                with alone.of(work):
                    followed = self.follower.follow(
                        work.table_id, newest, known.truncated, self._fence
                    )
                    self.follower.name_schemas(reading, work, followed)
                    one = plan(
                        self._lake,
                        name,
                        work,
                        known,
                        self._policy,
                        fence=self._fence,
                        followed=followed,
                    )
            except Misfit as misfit:
                self.follower.halt(name, misfit, followed)
                refused.append(table_refused(work, misfit, report))
                continue
            if work.table_id in alone.failed:
                continue
            if one is None:
                unseen.append(work.table_id)
                continue
            plans.append(one)
            refused.extend(one.refused)
            refused.extend(partitions_refused(one, self._lake.lost_partitions))
            for each in one.refused:
                self.follower.halt(name, each, followed)
            if not one.target.keys and one.work.changes and one.mode != APPEND:
                refused.append(changes_refused(one.work))
        return plans, unseen, refused

    def _read(
        self, events: DataFrame, marker: Marker, report: BatchReport, begin: Begin | None
    ) -> Reading:
        reading = self._untaken(self.follower.read(events, report), marker)
        if begin is not None:
            begin(report)
        return reading

    def _untaken(self, reading: Reading, marker: Marker) -> Reading:
        """Leave out what tables took of the change log, which knows names and not tables."""
        if "batch" not in reading.events.columns:
            return reading
        told_as = {work.table_id: work.told_as for work in reading.works}
        shared = [one for one in told_as if len(self.follower.together(told_as[one])) > 1]
        lasts = {one: self._lake.last_batch(name_of(one), marker) for one in shared}
        taken = {one: last for one, last in lasts.items() if last is not None}
        if not taken:
            return reading
        events = untaken(reading.events, taken)
        rows = events.where("kind NOT IN ('schema', 'ddl')")
        again = survey(rows, BatchReport(marker.batch)).works
        works = [work for work in again if work.table_id in told_as]
        for work in works:
            work.told_as = told_as[work.table_id]
        return reading._replace(events=events, works=works)

    def _crossings(
        self,
        told: DataFrame,
        plans: Sequence[Plan],
        before: Mapping[str, Remembered],
        alone: Isolation,
    ) -> list[DataFrame]:
        found: list[DataFrame] = []
        for each in plans:
            with alone.of(each.work):
                if (keys := self._crossed(told, each, before)) is not None:
                    found.append(keys)
        return found

    def _crossed(
        self, told: DataFrame, one: Plan, before: Mapping[str, Remembered]
    ) -> DataFrame | None:
        if not one.crosses or not one.target.keys or not one.work.schemas:
            return None
        mine = (F.col("table_id") == one.work.table_id) & (F.col("kind") == "data")
        rows = told.where(mine & F.col("key").isNotNull())
        table = self._lake.read(one.name)
        known = before.get(one.work.table_id, Remembered())
        return crossed_keys(rows, table, self._side, one, known)

    def _swapped(self, told: DataFrame, one: Plan) -> Refused | None:
        """Return the departures of a table of versions that nothing decides."""
        if one.work.has_other_keys and key_swaps.MOVED not in one.properties:
            self._lake.set_properties(one.name, {key_swaps.MOVED: "true"})
        mine = (F.col("table_id") == one.work.table_id) & (F.col("kind") == "data")
        return key_swaps.undecided(told.where(mine), one, self._ends)

    def _met(
        self, told: DataFrame, plans: Sequence[Plan], before: Mapping[str, Remembered]
    ) -> set[str]:
        """Return the tables whose events change no key, and meet one that a row left before.

        One question for all of them: few batches meet such keys, and few tables have them.
        """
        asked = {
            one.work.table_id: one.name
            for one in plans
            if one.mode == UPSERT
            and not one.work.has_other_keys
            and before.get(one.work.table_id, Remembered()).has_moves
        }
        if not asked:
            return set()
        rows = told.where((F.col("kind") == "data") & F.col("table_id").isin(*asked))
        return {asked[one] for one in self._side.moved_among(rows.select("table_id", "key"))}

    def _decide(
        self,
        told: DataFrame,
        one: Plan,
        before: Mapping[str, Remembered],
        moved: "dict[str, Moved]",
        tardy: dict[str, DataFrame],
        *,
        is_met: bool,
    ) -> None:
        """Find the keys of a table that are too late, and those that the rule itself decides."""
        if not one.target.keys:
            return
        known = before.get(one.work.table_id, Remembered())
        known = known._replace(truncated=max(known.truncated, one.work.truncated))
        mine = (F.col("table_id") == one.work.table_id) & (F.col("kind") == "data")
        rows = told.where(mine & F.col("key").isNotNull())
        table = self._lake.read(one.name)
        found = too_late.late_keys(rows, table, self._side, one, known)
        if found is not None:
            tardy[one.work.table_id] = found
        if not one.work.has_other_keys and not is_met:
            return
        keys = key_changes.moved_keys(rows, table, self._side, one, known, late=found)
        if keys is None:
            return
        states = key_changes.resolved(rows, keys, table, self._side, one, remembered=known)
        moved[one.work.table_id] = Moved(keys, states.persist(StorageLevel.MEMORY_AND_DISK))

    def _remember(
        self,
        told: DataFrame,
        plans: Sequence[Plan],
        unseen: Sequence[str],
        moved: Mapping[str, Moved],
    ) -> None:
        """Raise what is remembered of rows that are not there, before any table is written."""
        raising = [each for each in plans if each.mode != APPEND]
        if unseen or moved or any(each.work.is_raising for each in raising):
            named = [*unseen, *(each.work.table_id for each in raising)]
            theirs = told.where(F.col("table_id").isin(named))
            self._side.remember(key_changes.raised(theirs, moved, self._side, plans))
        modes = self._policy.modes
        ending = [one for one in unseen if modes.of(table_id_of(one)).name == HISTORY]
        ending += (
            each.work.table_id
            for each in plans
            if each.mode == HISTORY and (each.work.is_raising or each.work.has_other_keys)
        )
        if ending:
            self._ends.remember(told, ending)
