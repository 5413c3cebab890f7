# SPDX-License-Identifier: Apache-2.0
"""Applies batches of event rows to the tables of a lake: the merge rule, on Spark.

A batch goes through five stages:

1. map: events get the lake's names of tables and columns (:mod:`changelane.spark.evolution`);
2. plan: tables are created and altered (:mod:`changelane.spark.apply.planning`);
3. classify: find the events that are rejected and those that need the whole merge rule
   (:mod:`changelane.spark.apply.classification`);
4. record: rejected events go to the quarantine, deletes to the tombstones;
5. write: one commit per table, with the marker of the batch
   (:mod:`changelane.spark.apply.table_writer`).

After a crash between any two of them the batch runs again, which repairs it.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.pipeline.options import Maintenance
from changelane.spark.apply.classification import ClassifiedBatch, StoredTables, classified
from changelane.spark.apply.classify.key_changes import tombstone_keys, tombstones_of
from changelane.spark.apply.isolation import Isolation
from changelane.spark.apply.planning import BatchPlanner
from changelane.spark.apply.table_writer import TableWriter, WrittenBatch
from changelane.spark.evolution.compatibility import Policy
from changelane.spark.evolution.evolution import MappedBatch, SchemaEvolver
from changelane.spark.evolution.evolution_state import Evolution
from changelane.spark.evolution.statement_rejections import SplitStatements
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake import lake
from changelane.spark.lake.interface import (
    Lake,
    Marker,
    in_session,
    name_of,
    small_batch_session,
)
from changelane.spark.lake.layout import Layouts
from changelane.spark.lake.modes import APPEND, HISTORY, Modes
from changelane.spark.maintenance.compaction import MaintenanceScheduler
from changelane.spark.maintenance.purge import EventBounds, add_event_bounds
from changelane.spark.rows.batch_stats import (
    APPLIED_BEFORE,
    BatchReport,
    BatchStats,
    TableReport,
    batch_stats,
)
from changelane.spark.rows.schema import table_id_of
from changelane.spark.runtime.computed import persisted
from changelane.spark.state import tombstones
from changelane.spark.state.change_log import unapplied_rows
from changelane.spark.state.fencing import FencingToken, create_fencing_token, owner_of
from changelane.spark.state.history_tombstones import HistoryTombstones
from changelane.spark.state.quarantine import Quarantine
from changelane.spark.state.tombstones import TableTombstones, TombstoneTable

MAX_TABLES_AT_ONCE: Final = 4
SMALL_BATCH: Final = 10_000
"""The maximum number of messages of a small batch: more than one task reduces larger ones."""


def is_small_batch(messages: int | None) -> bool:
    """Return whether a batch with a number of messages (``None`` = unknown) is small."""
    return messages is not None and messages <= SMALL_BATCH


OnPlanned = Callable[[BatchReport], None]
"""Called with the numbers of a batch before anything of it is committed."""


class Applier:
    """Applies event rows to the tables under one folder.

    Args:
        spark: The session; in ``foreachBatch`` that of the batch.
        root: The folder, or its tables.
        table_format: ``delta``, ``iceberg`` or ``hudi``.
        tables_without_key: What happens to tables without a key: ``quarantine`` or ``append``.
        source_servers: ``single``: one server feeds a table; ``multiple``: several with disjoint
            keys.
        modes: The modes of the tables.
        sequence: The type of the values that order plain rows, such as ``integer``.
        evolution: The options of schema evolution.
        layouts: The layouts of the tables.
        stops: Whether rejected events stop the batch before its commits instead of going to the
            quarantine.
        masks: The masks of the transforms, as ``masks_of`` names them.
        on_step: Called with each step of a batch when it begins, by several threads.
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
        self._lake = lake(spark, root, table_format) if isinstance(root, str) else root
        self._policy = Policy(
            tables_without_key, source_servers, modes, sequence, evolution, layouts
        )
        self.evolver = SchemaEvolver(spark, self._lake, self._policy)
        self.quarantine = Quarantine(spark, self._lake, is_stopping=stops, masks=masks)
        self.quarantine.create()
        self._tombstones = TombstoneTable(spark, self._lake)
        self._history_tombstones = HistoryTombstones(spark, self._lake)
        self._writer = TableWriter(self._lake, self._tombstones, self._history_tombstones)
        self._fencing_token: FencingToken | None = None
        self._event_bounds: dict[str, EventBounds] = {}
        self._on_step = on_step

    def acquire_fencing_token(self, pipeline: str) -> None:
        """Begin a run of a pipeline: earlier runs of the pipeline stop when they next write.

        If the table format allows one writer only, earlier runs of all pipelines stop.

        Raises:
            FencedError: Other runs begin at the same moment, again and again.
        """
        self._fencing_token = create_fencing_token(self._lake, tombstones.NAME, pipeline)

    def check_fencing_token(self) -> None:
        """Check that no newer run of the pipeline writes the tables.

        Raises:
            FencedError: A newer run does.
        """
        if self._fencing_token is not None:
            self._fencing_token.check(self._lake.properties(tombstones.NAME))

    def maintenance_scheduler(
        self,
        limits: Maintenance | None,
        tombstone_retention_s: int | None = None,
        *,
        pipeline: str | None = None,
    ) -> MaintenanceScheduler:
        """Return the maintenance of the tables between the batches of this run.

        Args:
            limits: The thresholds of maintenance; ``None`` = maintenance is off.
            tombstone_retention_s: The minimum age of a tombstone that a purge deletes, in seconds
                before the newest event of its table; ``None`` = no purge.
            pipeline: The pipeline whose tables are purged; ``None`` = all tables.
        """
        return MaintenanceScheduler(
            self._lake,
            self._tombstones,
            limits,
            purge_after_s=tombstone_retention_s,
            pipeline=None if pipeline is None else owner_of(self._lake, pipeline),
            fencing_token=self._fencing_token,
            lake_table_ids=self.evolver.lake_table_ids,
        )

    def take_event_bounds(self) -> dict[str, EventBounds]:
        """Return the bounds of the events of each table since the last call, by ``table_id``."""
        event_bounds, self._event_bounds = self._event_bounds, {}
        return event_bounds

    def record_statements(self, stats: BatchStats) -> SplitStatements:
        """Record the DDL statements of a batch before any table applies its rows.

        Returns:
            The accepted statements, and the rejected ones of tables without rows in the batch.
        """
        with_rows = {table_batch.table_id for table_batch in stats.table_batches}
        statement_only_rows = [
            statement for statement in stats.statements if statement.table_id not in with_rows
        ]
        # all of them in one call: statements of one position keep their order
        accepted = self.evolver.record_statements(stats).accepted
        statement_only = stats._replace(statements=statement_only_rows)
        return SplitStatements(accepted, self.evolver.record_statements(statement_only).rejected)

    def apply(
        self,
        events: DataFrame,
        marker: Marker,
        details: Mapping[str, object] | None = None,
        *,
        isolated: bool = False,
        is_small: bool = False,
        on_planned: OnPlanned | None = None,
    ) -> BatchReport:
        """Apply one batch of event rows; applying it again changes nothing.

        Args:
            events: Event rows of any tables.
            marker: The batch; a table that has it already is skipped.
            details: More for the user metadata of the commits.
            isolated: Whether the other tables go on if a table fails; the report names it.
            is_small: Whether the batch has few messages (:func:`is_small_batch`): one task reduces
                it, and its keys limit the parts of the tables that are read.
            on_planned: Called before anything is committed.

        Raises:
            FencedError: A newer run of the pipeline writes the tables.
            BudgetError: An event is rejected, and *stops* is set.
        """
        report = BatchReport(marker.batch)
        isolation = Isolation(report, isolated=isolated)
        if is_small:
            events = in_session(small_batch_session(self._lake.spark), events.coalesce(1))
        with persisted(events) as persisted_events:
            new_events = self.quarantine.without_quarantined(
                persisted_events, marker, self._policy.modes
            )
            self._apply(new_events, marker, details or {}, isolation, on_planned, is_small=is_small)
        return report

    def _apply(
        self,
        events: DataFrame,
        marker: Marker,
        details: Mapping[str, object],
        isolation: Isolation,
        on_planned: OnPlanned | None,
        *,
        is_small: bool,
    ) -> None:
        report = isolation.report
        self.check_fencing_token()
        self._on_step("reading")
        tombstones_before = self._tombstones.table_tombstones()
        mapped = self.evolver.map_events(events, report, with_keys=is_small)
        mapped = self._without_applied(mapped, marker, with_keys=is_small)
        if on_planned is not None:
            on_planned(report)
        add_event_bounds(self._event_bounds, mapped.table_batches)
        planned = BatchPlanner(
            self._lake,
            self._policy,
            self.evolver,
            tombstones_before,
            isolation,
            self._fencing_token,
        ).plan(mapped)
        stored = StoredTables(
            self._lake, self._tombstones, tombstones_before, self._history_tombstones
        )
        with classified(planned, stored, isolation) as batch:
            self._record_rejected(batch, marker, report)
            tombstones_after = tombstones.tombstones_after(
                tombstones_before, [plan.table_batch for plan in batch.plans]
            )
            self._record_tombstones(batch, planned.truncated_only, tombstones_after)
            written = WrittenBatch(
                batch.changes,
                marker,
                details,
                tombstones_after,
                tombstones_before,
                batch.changed_keys,
                batch.rejected_changes,
                has_rejected=bool(batch.rejected),
            )
            report.tables += self._write_tables(written, batch.plans, isolation)
        report.skipped += sum(table.note == APPLIED_BEFORE for table in report.tables)

    def _without_applied(
        self, batch: MappedBatch, marker: Marker, *, with_keys: bool
    ) -> MappedBatch:
        """Leave out rows of the change log that their tables have applied.

        The change log filters by the names of the source; names that tables share need this.
        """
        if "batch" not in batch.events.columns:
            return batch
        source_names = {
            table_batch.table_id: table_batch.source_names for table_batch in batch.table_batches
        }
        shared = [
            table_id
            for table_id, names in source_names.items()
            if len(self.evolver.related_tables(names)) > 1
        ]
        last_batches = {
            table_id: last
            for table_id in shared
            if (last := self._lake.last_batch(name_of(table_id), marker)) is not None
        }
        if not last_batches:
            return batch
        events = unapplied_rows(batch.events, last_batches)
        rows = events.where("kind NOT IN ('schema', 'ddl')")
        stats = batch_stats(rows, BatchReport(marker.batch), with_keys=with_keys)
        table_batches = [
            table_batch
            for table_batch in stats.table_batches
            if table_batch.table_id in source_names
        ]
        for table_batch in table_batches:
            table_batch.source_names = source_names[table_batch.table_id]
        return batch._replace(events=events, table_batches=table_batches)

    def _record_rejected(self, batch: ClassifiedBatch, marker: Marker, report: BatchReport) -> None:
        for rejection in batch.rejected:
            size = rejection.size
            if size is None:
                size = batch.events.where(rejection.rows).count()
            report.count_quarantined(rejection.code, size)
        self.quarantine.record_or_stop(batch.events, batch.rejected, marker, report)

    def _record_tombstones(
        self,
        batch: ClassifiedBatch,
        truncated_only: Sequence[str],
        tombstones_after: Mapping[str, TableTombstones],
    ) -> None:
        """Record deletes, truncates and key changes before any table is written."""
        plans = [plan for plan in batch.plans if plan.mode != APPEND]
        has_removals = any(plan.table_batch.has_removals for plan in plans)
        if batch.changed_keys:
            # the state of a transaction replaces that of a newer run, and does not only grow
            self.check_fencing_token()
        if truncated_only or batch.changed_keys or has_removals:
            table_ids = [*truncated_only, *(plan.table_batch.table_id for plan in plans)]
            rows = batch.changes.where(F.col("table_id").isin(table_ids))
            self._tombstones.record(
                tombstones_of(rows, batch.changed_keys, self._tombstones, batch.plans),
                # a truncate without a table, or of an earlier table of the name, is not in there
                None
                if truncated_only or any(plan.cleared for plan in batch.plans)
                else tombstones_after,
                has_transactions=bool(batch.changed_keys),
                table_keys=None if truncated_only else tombstone_keys(batch.changed_keys, plans),
            )
        history_tables = [
            table_id
            for table_id in truncated_only
            if self._policy.modes.of(table_id_of(table_id)).name == HISTORY
        ]
        history_tables += (
            plan.table_batch.table_id
            for plan in plans
            if plan.mode == HISTORY
            and (plan.table_batch.has_removals or plan.table_batch.has_other_keys)
        )
        if history_tables:
            self._history_tombstones.record(batch.changes, history_tables)

    def _write_tables(
        self, batch: WrittenBatch, plans: Sequence[TablePlan], isolation: Isolation
    ) -> list[TableReport]:
        """Commit a batch to its tables, several at a time."""
        numbers = count(1)
        reports: list[TableReport] = []

        def write(plan: TablePlan) -> None:
            self._on_step(f"table {next(numbers)} of {len(plans)}")
            with isolation.of(plan.table_batch):
                reports.append(self._writer.write(batch, plan))

        with ThreadPoolExecutor(MAX_TABLES_AT_ONCE) as pool:
            list(pool.map(write, plans))
        return reports
