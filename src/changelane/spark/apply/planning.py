# SPDX-License-Identifier: Apache-2.0
"""Plans a batch: how each of its tables applies the events.

Planning executes the schema changes of the batch and creates or alters its tables
(:mod:`changelane.spark.evolution`); it writes no rows.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.spark.apply.classify.rejections import (
    rejected_changes_without_key,
    rejected_partitions,
    rejected_table,
)
from changelane.spark.apply.isolation import Isolation
from changelane.spark.evolution.compatibility import Policy, is_of_table
from changelane.spark.evolution.evolution import MappedBatch, SchemaEvolver
from changelane.spark.evolution.evolution_state import NO_CHANGES
from changelane.spark.evolution.prepare import Preparation, prepare_table
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.interface import Lake, name_of
from changelane.spark.lake.modes import APPEND
from changelane.spark.rows.batch_stats import TableBatch, TableReport
from changelane.spark.rows.schema import table_id_of
from changelane.spark.runtime.conditions import any_of
from changelane.spark.state.fencing import FencingToken
from changelane.spark.state.quarantine import RejectedRows, TableRejectedError
from changelane.spark.state.tombstones import TableTombstones


class PlannedBatch(NamedTuple):
    """A batch, and how its tables apply it.

    Attributes:
        events: All event rows.
        plans: The plans of the tables.
        truncated_only: The ids of tables that do not exist yet and of which the batch has nothing
            but truncates: these become tombstones.
        rejected: The rejected rows; the first match gives the reason.
        outdated: Conditions of rows of dropped tables, which have no effect.
    """

    events: DataFrame
    plans: list[TablePlan]
    truncated_only: list[str]
    rejected: list[RejectedRows]
    outdated: list[Column]

    @property
    def table_ids(self) -> list[str]:
        """The ids of the tables whose events are applied or become tombstones."""
        return [*self.truncated_only, *(plan.table_batch.table_id for plan in self.plans)]


class BatchPlanner(NamedTuple):
    """Plans one batch.

    Attributes:
        lake: The tables.
        policy: The user's choices.
        evolver: Executes the schema changes.
        tombstones: The tombstones of whole tables before the batch, by ``table_id``.
        isolation: Collects the tables that fail; they get no plan.
        fencing_token: Stops a run that a newer run of the pipeline replaced.
    """

    lake: Lake
    policy: Policy
    evolver: SchemaEvolver
    tombstones: Mapping[str, TableTombstones]
    isolation: Isolation
    fencing_token: FencingToken | None

    def plan(self, batch: MappedBatch) -> PlannedBatch:
        """Evolve, create and plan the tables of the batch."""
        self._evolve_tables_without_rows(batch)
        planned = PlannedBatch(batch.events, [], [], batch.rejected, [])
        for table_batch in batch.table_batches:
            self._plan_table(planned, batch, table_batch)
        if not planned.outdated:
            return planned
        return planned._replace(events=batch.events.where(~any_of(planned.outdated)))

    def _evolve_tables_without_rows(self, batch: MappedBatch) -> None:
        with_rows = {table_batch.table_id for table_batch in batch.table_batches}
        for table_id in dict.fromkeys(batch.altered_tables):
            if table_id not in with_rows:
                truncated = self.tombstones.get(table_id, TableTombstones()).truncated
                table_batch = TableBatch(table_id)
                table_batch.source_names = tuple(sorted(self.evolver.related_tables([table_id])))
                with self.isolation.of(table_batch):
                    self.evolver.evolve_table(table_id, b"", truncated, self.fencing_token)

    def _plan_table(
        self, planned: PlannedBatch, batch: MappedBatch, table_batch: TableBatch
    ) -> None:
        """Add the plan of one table and the rows that it rejects."""
        table_id, name = table_batch.table_id, name_of(table_batch.table_id)
        table_tombstones = self.tombstones.get(table_id, TableTombstones())
        newest = max(table_batch.newest.values(), default=b"")
        plan, state = None, NO_CHANGES
        try:
            with self.isolation.of(table_batch):
                state = self.evolver.evolve_table(
                    table_id, newest, table_tombstones.truncated, self.fencing_token
                )
                self.evolver.map_schemas(batch, table_batch, state)
                table_batch = self._without_outdated(planned, table_batch, state.cleared)
                preparation = Preparation(
                    self.lake, name, self.policy, table_tombstones, state, self.fencing_token
                )
                plan = prepare_table(preparation, table_batch)
        except TableRejectedError as rejection:
            self.evolver.record_halt(name, rejection, state)
            source_name, note = str(table_id_of(table_id)), f"{rejection.code}: {rejection.reason}"
            report = TableReport(source_name, "", table_batch.count, note)
            self.isolation.report.tables.append(report)
            planned.rejected.append(rejected_table(table_batch, rejection))
            return
        if table_id in self.isolation.failed:
            return
        if not table_batch.schemas and not (table_batch.truncates or (plan and plan.cleared)):
            return  # all events were of a dropped table, whose rows are gone
        if plan is None:
            planned.truncated_only.append(table_id)
            return
        planned.plans.append(plan)
        planned.rejected.extend(plan.rejected)
        planned.rejected.extend(rejected_partitions(plan, self.lake.lost_partitions))
        for rejected_rows in plan.rejected:
            self.evolver.record_halt(name, rejected_rows, state)
        if not plan.target.keys and plan.table_batch.changes and plan.mode != APPEND:
            planned.rejected.append(rejected_changes_without_key(plan.table_batch))

    def _without_outdated(
        self, planned: PlannedBatch, table_batch: TableBatch, cleared: bytes
    ) -> TableBatch:
        """Leave out the events of a dropped table of the same name.

        They have no effect, and their key and types may differ. Soft deletes keep their rows.
        """
        mode = self.policy.modes.of(table_id_of(table_batch.table_id))
        if not cleared or mode.keeps_deleted:
            return table_batch
        outdated = [
            name
            for name, newest in table_batch.newest.items()
            if table_batch.oldest.get(name, b"")[:2] == cleared[:2] and newest <= cleared
        ]
        if not outdated:
            return table_batch
        rows = is_of_table(table_batch, "data") & F.col("schema_id").isin(*outdated)
        planned.outdated.append(rows)
        return table_batch.with_schemas(
            name for name in table_batch.schemas if name not in outdated
        )
