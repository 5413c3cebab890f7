# SPDX-License-Identifier: Apache-2.0
"""What a batch tells of one table becomes a commit of it, with the batch's marker and the sums."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.position import BY_MESSAGE, domain_of
from changelane.spark.apply import append, deduplication, history, tracked_columns
from changelane.spark.apply.classify.key_changes import Moved
from changelane.spark.apply.truncate import clear
from changelane.spark.apply.upsert import Upserts
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.commit_totals import CommitTotals
from changelane.spark.lake.interface import Lake, Marker
from changelane.spark.lake.merge import Form, version_merge, version_replacement
from changelane.spark.lake.modes import HISTORY, UPSERT
from changelane.spark.rows import latest_per_key
from changelane.spark.rows.batch_stats import APPLIED_BEFORE, TableReport
from changelane.spark.rows.schema import table_id_of
from changelane.spark.state.full_history import full_history_of
from changelane.spark.state.history_tombstones import HistoryTombstones
from changelane.spark.state.quarantine import RejectedRows, without_rejected
from changelane.spark.state.tombstones import TableTombstones, TombstoneTable

NO_POSITIONS: Final = "its events tell no positions: what their producer sends again is added again"


class Batch(NamedTuple):
    """What the commits of one batch share.

    Attributes:
        events: The ``data`` and ``truncate`` rows that tables take.
        marker: Which batch it is.
        details: More for the user metadata of the commits.
        remembered: What is remembered of tables, by ``table_id``, with what the batch raises.
        moved: The keys that the rule itself decided, by ``table_id``.
        refused: Which of the rows it refused: they have no effect.
    """

    events: DataFrame
    marker: Marker
    details: Mapping[str, object]
    remembered: Mapping[str, TableTombstones]
    moved: Mapping[str, Moved]
    refused: Sequence[RejectedRows]


class Commits:
    """Writes the tables of a lake.

    Args:
        lake: The tables.
        side: What is remembered of rows that are not there.
        ends: Where the lives of versions ended.
    """

    def __init__(self, lake: Lake, side: TombstoneTable, ends: HistoryTombstones) -> None:
        self._lake = lake
        self._ends = ends
        self._upserts = Upserts(lake, side)

    def write(self, batch: Batch, plan: TablePlan, *, counts: bool) -> TableReport:
        """Bring a batch to one table, unless the table holds it already.

        Args:
            batch: The batch.
            plan: How the table takes its events.
            counts: Some of its rows were quarantined: what is left must be counted.
        """
        reasons = dict.fromkeys(f"{refused.code}: {refused.reason}" for refused in plan.refused)
        if plan.note is not None:
            reasons[plan.note] = None
        if plan.is_adding and domain_of(plan.kind) in BY_MESSAGE:
            reasons[NO_POSITIONS] = None
        path = self._lake.path(plan.name)
        name = str(table_id_of(plan.work.table_id))
        table = TableReport(name, path, plan.work.count, "; ".join(reasons), warning=plan.warning)
        last = self._lake.last_batch(plan.name, batch.marker)
        if last is not None and last >= batch.marker.batch:
            table.note = APPLIED_BEFORE
            table.events, table.applied_before = 0, table.events
            return table
        writing = _Writing(self._lake, batch, plan, counts=counts)
        remembered = batch.remembered.get(plan.work.table_id)
        if plan.mode == HISTORY:
            self._versions(writing, remembered or TableTombstones())
        elif plan.mode == UPSERT:
            if plan.work.newest_truncate and remembered is not None:
                clear(self._lake.spark, self._lake, plan, remembered.truncated)
            if plan.work.schemas and plan.is_adding:
                floor = b"" if remembered is None else remembered.truncated
                rows = append.inserted(writing.changes, floor)
                self._append(writing, rows, append.appended)
            elif plan.work.schemas:
                moved = batch.moved.get(plan.work.table_id)
                self._upserts.merge(writing.session, writing.changes, plan, remembered, moved)
        else:
            self._append(writing, writing.rows, append.changes)
        table.out_of_order, table.conflicts = writing.out_of_order, writing.conflicts
        table.repeats, table.possible_duplicates = writing.repeats, writing.possible_duplicates
        return table

    def _append(
        self,
        writing: "_Writing",
        rows: DataFrame,
        rows_of: Callable[[DataFrame, TablePlan], DataFrame],
    ) -> None:
        """Append the rows that *rows_of* makes of event rows, without those that the table has."""
        plan = writing.plan
        table = self._lake.read(plan.name)
        high = writing.before.high
        if high is None or next(self._lake.marked_commits(plan.name), None) is None:
            # the commits that told it are forgotten, or of a version that told none; what is
            # kept of the newest one is as old as the last maintenance
            high = deduplication.newest(table)
            writing.before = msgspec.structs.replace(writing.before, high=high)
        with deduplication.without_repeats(rows, plan, table, high) as new_rows:
            writing.repeats = new_rows.repeats
            writing.possible_duplicates = new_rows.possible_duplicates
            self._lake.append(writing.session(), plan.name, rows_of(new_rows.rows, plan))

    def _versions(self, writing: "_Writing", table_tombstones: TableTombstones) -> None:
        plan, rows = writing.plan, writing.rows
        if plan.work.has_partial_images and "exceptions" not in plan.properties:
            self._lake.set_properties(plan.name, {"exceptions": "true"})
        conflicts = latest_per_key.conflict_count(
            latest_per_key.upserts_and_departures(writing.changes, moves=False)
        )
        spark = writing.session(conflicts)
        place = full_history_of(plan.name) if plan.table_mode.is_tracked else plan.name
        marker = writing.batch.marker
        last = self._lake.last_batch(place, marker)
        if last is None or last < marker.batch:
            table = self._lake.read(place)
            source = history.versions(
                rows, plan, table, self._ends, has_truncates=bool(table_tombstones.truncated)
            )
            self._run(spark, source, plan._replace(name=place), version_merge)
        if place != plan.name:
            source = tracked_columns.shown(
                rows, plan, self._lake.read(plan.name), self._lake.read(place)
            )
            self._run(spark, source, plan, version_replacement)

    def _run(self, spark: SparkSession, source: DataFrame, plan: TablePlan, form: Form) -> None:
        self._lake.merge(spark, plan.name, source, form(plan.target.keys, source.columns))


class _Writing:
    """One batch on its way into one table.

    Attributes:
        batch: The batch.
        plan: How the table takes its events.
        rows: Its rows.
        changes: Those of them that are no truncates.
        before: What the table took up to its newest commit.
        out_of_order: How many of the changes come behind newer ones of batches before.
        conflicts: For how many keys and positions two whole rows differ.
        repeats: How many events came again, which the table does not take.
        possible_duplicates: How many that it takes may have come before.
    """

    def __init__(self, lake: Lake, batch: Batch, plan: TablePlan, *, counts: bool) -> None:
        self._lake = lake
        self.batch = batch
        self.plan = plan
        self.rows = batch.events.where(F.col("table_id") == plan.work.table_id)
        self.changes = self.rows.where("kind = 'data'")
        self.before = CommitTotals.of(lake.last_commit(plan.name))
        changes = without_rejected(self.changes, batch.refused)
        self.out_of_order = self.before.out_of_order_count(changes, plan.work, plan.kind)
        self.conflicts = self.repeats = self.possible_duplicates = 0
        self._applied = changes.count() if counts else sum(plan.work.counts.values())

    def session(self, conflicts: int = 0) -> SparkSession:
        """Return a session whose commits carry the marker and the sums with this batch."""
        self.conflicts = conflicts
        work = self.plan.work
        after = self.before.plus(
            work,
            self.plan.kind,
            applied=self._applied,
            out_of_order=self.out_of_order,
            conflicts=self.conflicts,
            repeats=self.repeats,
            possible_duplicates=self.possible_duplicates,
        )
        oldest, newest = work.order_range(self.plan.kind)
        reach = {"oldest": oldest.hex(), "newest": max(newest, work.newest_truncate).hex()}
        details = {"events": work.count} | reach | after.properties | dict(self.batch.details)
        return self._lake.commit_session(self.batch.marker, details)
