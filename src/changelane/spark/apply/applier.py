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
from changelane.spark.evolution.prepare import prepare_table
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake import lake
from changelane.spark.lake.interface import Lake, Marker, name_of
from changelane.spark.lake.layout import Layouts
from changelane.spark.lake.modes import APPEND, HISTORY, UPSERT, Modes
from changelane.spark.maintenance.compaction import MaintenanceScheduler
from changelane.spark.maintenance.purge import EventBounds, add_event_bounds
from changelane.spark.rows.batch_stats import (
    APPLIED_BEFORE,
    BatchReport,
    BatchStats,
    TableBatch,
    TableReport,
    batch_stats,
)
from changelane.spark.rows.schema import table_id_of
from changelane.spark.state import tombstones
from changelane.spark.state.change_log import unapplied_rows
from changelane.spark.state.fencing import ALL_PIPELINES, FencingToken, create_fencing_token
from changelane.spark.state.history_tombstones import HistoryTombstones
from changelane.spark.state.quarantine import (
    Quarantine,
    RejectedRows,
    TableRejectedError,
    without_rejected,
)
from changelane.spark.state.tombstones import TableTombstones, TombstoneTable

MAX_TABLES_AT_ONCE: Final = 4

Begin = Callable[[BatchReport], None]
"""Told what a batch holds, before anything of it is committed."""


class Applier:
    """Applies event rows to the tables under one folder.

    Args:
        spark: The session; in ``foreachBatch`` that of the batch.
        root: The folder, or its tables.
        table_format: ``delta``, ``iceberg`` or ``hudi``.
        tables_without_key: What happens to tables without a key: ``quarantine`` or ``append``.
        source_servers: ``single``: one server feeds a table; ``multiple``: several with disjoint
            keys.
        modes: What tables keep of their changes.
        sequence: What the values are that order plain rows, such as ``integer``.
        evolution: How far tables follow their sources.
        layouts: How they are laid out.
        stops: What cannot be applied is not quarantined, but stops the batch before its commits.
        masks: What the transforms hid of the events, as ``masks_of`` names it.
        on_step: Called with the step of a batch that begins, by several threads.
    """

    def __init__(
        self,
        spark: SparkSession,
        root: str | Lake,
        *,
        table_format: str = "delta",
        tables_without_key: str = "quarantine",
        source_servers: str = "single",
        modes: Modes = Modes(),  # noqa: B008 - frozen
        sequence: str | None = None,
        evolution: Evolution = Evolution(),  # noqa: B008 - frozen
        layouts: Layouts = Layouts(),  # noqa: B008 - frozen
        stops: bool = False,
        masks: str = "",
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._spark = spark
        self._fence: FencingToken | None = None
        self._lake = lake(spark, root, table_format) if isinstance(root, str) else root
        self._policy = Policy(
            tables_without_key, source_servers, modes, sequence, evolution, layouts
        )
        self.follower = Follower(spark, self._lake, self._policy)
        self._side = TombstoneTable(spark, self._lake)
        self._ends = HistoryTombstones(spark, self._lake)
        self._commits = Commits(self._lake, self._side, self._ends)
        self.quarantine = Quarantine(spark, self._lake, is_stopping=stops, masks=masks)
        self._seen: dict[str, EventBounds] = {}
        self._on_step = on_step

    def raise_fence(self, pipeline: str) -> None:
        """Begin a run of a pipeline: runs of it that began before stop when they next write.

        Runs of all pipelines where a table has one writer, for they share the side table.

        Raises:
            FencedError: Others begin at the same moment, again and again.
        """
        whose = ALL_PIPELINES if self._lake.has_one_writer else pipeline
        self._fence = create_fencing_token(self._lake, tombstones.NAME, whose)

    def keeper(
        self, limits: Maintenance | None, purge_after_s: int | None = None
    ) -> MaintenanceScheduler:
        """Return what maintains the tables between the batches of this run."""
        return MaintenanceScheduler(
            self._lake, self._side, limits, purge_after_s=purge_after_s, fencing_token=self._fence
        )

    def take_seen(self) -> dict[str, EventBounds]:
        """Return what came of each table since this was last asked, by table id."""
        seen_tables, self._seen = self._seen, {}
        return seen_tables

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
        cached_events = events.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            new_events = self.quarantine.without_quarantined(cached_events, marker)
            self._apply(new_events, marker, details or {}, report, begin, isolated=isolated)
        finally:
            cached_events.unpersist()
        return report

    def keep_statements(self, survey: BatchStats) -> list[RejectedRows]:
        """Keep what a batch says of the shapes of tables, before any of them takes its rows.

        Returns:
            Statements that are quarantined now, for their tables take nothing of this batch.
        """
        with_rows = {work.table_id for work in survey.table_batches}
        statement_only = [
            statement for statement in survey.statements if statement.table_id not in with_rows
        ]
        # all at once: those of one place in the log keep their order
        self.follower.keep(survey)
        refused, _ = self.follower.keep(survey._replace(statements=statement_only))
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
        before = self._side.table_tombstones()
        isolation = Isolation(report, isolated=isolated)
        reading = self._read(events, marker, report, begin)
        plans, unseen, refused = self._plans(reading, before, report, isolation)
        events = reading.events
        changes = events.where(F.col("kind").isin("data", "truncate"))
        crossed = self._crossings(changes, plans, before, isolation)
        if crossed:
            events = marked(events, reduce(DataFrame.unionByName, crossed))
            changes = events.where(F.col("kind").isin("data", "truncate"))
            refused.append(crossed_refused(refused))
        changes = without_rejected(changes, refused)
        planned_tables = [*unseen, *(plan.work.table_id for plan in plans)]
        changes = changes.where(F.col("table_id").isin(planned_tables))
        moved: dict[str, Moved] = {}
        tardy: dict[str, DataFrame] = {}
        touched_tables = self._met(changes, plans, before)
        for plan in plans:
            with isolation.of(plan.work):
                if plan.mode == HISTORY and (swapped := self._swapped(changes, plan)) is not None:
                    refused.append(swapped)
                    changes = without_rejected(changes, [swapped])
                if plan.mode == UPSERT:
                    self._decide(
                        changes, plan, before, moved, tardy, is_met=plan.name in touched_tables
                    )
        if isolation.failed:
            plans = [plan for plan in plans if plan.work.table_id not in isolation.failed]
            changes = changes.where(~F.col("table_id").isin(*isolation.failed))
        undone = [no for plan in plans for no in moves_refused(plan, moved)]
        refused += undone
        if tardy:
            decided = {name: moved_keys.keys for name, moved_keys in moved.items()}
            changes, events = too_late.without_late(changes, events, tardy, decided)
            refused.append(late_refused(refused))
        for rejection in refused:
            size = (
                events.where(rejection.rows).count() if rejection.size is None else rejection.size
            )
            report.count_quarantined(rejection.code, size)
        self.quarantine.record_or_stop(events, refused, marker, report)
        self._remember(changes, plans, unseen, moved)
        remembered = tombstones.tombstones_after(before, [plan.work for plan in plans])
        batch = Batch(changes, marker, details, remembered, moved, undone)

        try:
            report.tables += self._write(batch, plans, isolation, counts=bool(refused))
        finally:
            frames = (frame for moved_keys in moved.values() for frame in moved_keys)
            for cached in (*crossed, *tardy.values(), *frames):
                cached.unpersist()
        report.skipped += sum(table.note == APPLIED_BEFORE for table in report.tables)

    def _write(
        self, batch: Batch, plans: Sequence[TablePlan], isolation: Isolation, *, counts: bool
    ) -> list[TableReport]:
        """Commit a batch to its tables, several at a time."""
        begun = count(1)
        reports: list[TableReport] = []

        def write(plan: TablePlan) -> None:
            self._on_step(f"table {next(begun)} of {len(plans)}")
            with isolation.of(plan.work):
                reports.append(self._commits.write(batch, plan, counts=counts))

        with ThreadPoolExecutor(MAX_TABLES_AT_ONCE) as pool:
            list(pool.map(write, plans))
        return reports

    def _plans(
        self,
        reading: Reading,
        before: Mapping[str, TableTombstones],
        report: BatchReport,
        isolation: Isolation,
    ) -> tuple[list[TablePlan], list[str], list[RejectedRows]]:
        """Return how tables take their events, tables that only truncates tell of, and the rest."""
        add_event_bounds(self._seen, reading.works)
        plans: list[TablePlan] = []
        unseen: list[str] = []
        refused = reading.refused
        tables_with_rows = {work.table_id for work in reading.works}
        for table_id in dict.fromkeys(
            table_id for table_id in reading.told if table_id not in tables_with_rows
        ):
            truncated = before.get(table_id, TableTombstones()).truncated
            with isolation.of(TableBatch(table_id)):
                self.follower.follow(table_id, b"", truncated, self._fence)
        for work in reading.works:
            name = name_of(work.table_id)
            remembered = before.get(work.table_id, TableTombstones())
            newest = max(work.newest.values(), default=b"")
            table_plan, followed = None, NOTHING
            try:
                with isolation.of(work):
                    followed = self.follower.follow(
                        work.table_id, newest, remembered.truncated, self._fence
                    )
                    self.follower.name_schemas(reading, work, followed)
                    table_plan = prepare_table(
                        self._lake,
                        name,
                        work,
                        remembered,
                        self._policy,
                        fence=self._fence,
                        followed=followed,
                    )
            except TableRejectedError as misfit:
                self.follower.halt(name, misfit, followed)
                refused.append(table_refused(work, misfit, report))
                continue
            if work.table_id in isolation.failed:
                continue
            if table_plan is None:
                unseen.append(work.table_id)
                continue
            plans.append(table_plan)
            refused.extend(table_plan.refused)
            refused.extend(partitions_refused(table_plan, self._lake.lost_partitions))
            for rejection in table_plan.refused:
                self.follower.halt(name, rejection, followed)
            if not table_plan.target.keys and table_plan.work.changes and table_plan.mode != APPEND:
                refused.append(changes_refused(table_plan.work))
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
        source_names = {work.table_id: work.source_names for work in reading.works}
        shared = [
            table_id
            for table_id in source_names
            if len(self.follower.together(source_names[table_id])) > 1
        ]
        lasts = {table_id: self._lake.last_batch(name_of(table_id), marker) for table_id in shared}
        last_batches = {table_id: last for table_id, last in lasts.items() if last is not None}
        if not last_batches:
            return reading
        events = unapplied_rows(reading.events, last_batches)
        rows = events.where("kind NOT IN ('schema', 'ddl')")
        again = batch_stats(rows, BatchReport(marker.batch)).table_batches
        works = [work for work in again if work.table_id in source_names]
        for work in works:
            work.source_names = source_names[work.table_id]
        return reading._replace(events=events, works=works)

    def _crossings(
        self,
        rows: DataFrame,
        plans: Sequence[TablePlan],
        before: Mapping[str, TableTombstones],
        isolation: Isolation,
    ) -> list[DataFrame]:
        crossed: list[DataFrame] = []
        for plan in plans:
            with isolation.of(plan.work):
                if (keys := self._crossed(rows, plan, before)) is not None:
                    crossed.append(keys)
        return crossed

    def _crossed(
        self, changes: DataFrame, plan: TablePlan, before: Mapping[str, TableTombstones]
    ) -> DataFrame | None:
        if not plan.crosses or not plan.target.keys or not plan.work.schemas:
            return None
        is_of_table = (F.col("table_id") == plan.work.table_id) & (F.col("kind") == "data")
        rows = changes.where(is_of_table & F.col("key").isNotNull())
        table = self._lake.read(plan.name)
        remembered = before.get(plan.work.table_id, TableTombstones())
        return crossed_keys(rows, table, self._side, plan, remembered)

    def _swapped(self, rows: DataFrame, plan: TablePlan) -> RejectedRows | None:
        """Return the departures of a table of versions that nothing decides."""
        if plan.work.has_other_keys and key_swaps.MOVED not in plan.properties:
            self._lake.set_properties(plan.name, {key_swaps.MOVED: "true"})
        is_of_table = (F.col("table_id") == plan.work.table_id) & (F.col("kind") == "data")
        return key_swaps.undecided(rows.where(is_of_table), plan, self._ends)

    def _met(
        self, changes: DataFrame, plans: Sequence[TablePlan], before: Mapping[str, TableTombstones]
    ) -> set[str]:
        """Return the tables whose events change no key, and meet one that a row left before.

        One question for all of them: few batches meet such keys, and few tables have them.
        """
        table_ids = {
            plan.work.table_id: plan.name
            for plan in plans
            if plan.mode == UPSERT
            and not plan.work.has_other_keys
            and before.get(plan.work.table_id, TableTombstones()).has_key_changes
        }
        if not table_ids:
            return set()
        rows = changes.where((F.col("kind") == "data") & F.col("table_id").isin(*table_ids))
        return {
            table_ids[table_id]
            for table_id in self._side.tables_with_moved_keys(rows.select("table_id", "key"))
        }

    def _decide(
        self,
        changes: DataFrame,
        plan: TablePlan,
        before: Mapping[str, TableTombstones],
        moved: "dict[str, Moved]",
        tardy: dict[str, DataFrame],
        *,
        is_met: bool,
    ) -> None:
        """Find the keys of a table that are too late, and those that the rule itself decides."""
        if not plan.target.keys:
            return
        remembered = before.get(plan.work.table_id, TableTombstones())
        remembered = remembered._replace(
            truncated=max(remembered.truncated, plan.work.newest_truncate)
        )
        is_of_table = (F.col("table_id") == plan.work.table_id) & (F.col("kind") == "data")
        rows = changes.where(is_of_table & F.col("key").isNotNull())
        table = self._lake.read(plan.name)
        late_rows = too_late.late_keys(rows, table, self._side, plan, remembered)
        if late_rows is not None:
            tardy[plan.work.table_id] = late_rows
        if not plan.work.has_other_keys and not is_met:
            return
        keys = key_changes.moved_keys(rows, table, self._side, plan, remembered, late=late_rows)
        if keys is None:
            return
        states = key_changes.resolved(rows, keys, table, self._side, plan, remembered=remembered)
        moved[plan.work.table_id] = Moved(keys, states.persist(StorageLevel.MEMORY_AND_DISK))

    def _remember(
        self,
        rows: DataFrame,
        plans: Sequence[TablePlan],
        unseen: Sequence[str],
        moved: Mapping[str, Moved],
    ) -> None:
        """Raise what is remembered of rows that are not there, before any table is written."""
        raising = [plan for plan in plans if plan.mode != APPEND]
        if unseen or moved or any(plan.work.has_removals for plan in raising):
            table_ids = [*unseen, *(plan.work.table_id for plan in raising)]
            table_rows = rows.where(F.col("table_id").isin(table_ids))
            self._side.record(key_changes.raised(table_rows, moved, self._side, plans))
        modes = self._policy.modes
        ending = [
            table_id for table_id in unseen if modes.of(table_id_of(table_id)).name == HISTORY
        ]
        ending += (
            plan.work.table_id
            for plan in plans
            if plan.mode == HISTORY and (plan.work.has_removals or plan.work.has_other_keys)
        )
        if ending:
            self._ends.record(rows, ending)
