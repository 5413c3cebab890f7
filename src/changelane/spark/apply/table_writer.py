# SPDX-License-Identifier: Apache-2.0
"""Writes a classified batch to its tables: one commit per table, with the marker and totals."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.position import BY_MESSAGE, domain_of
from changelane.spark.apply import append, deduplication, history, tracked_columns
from changelane.spark.apply.classify.classifier import ChangedKeys
from changelane.spark.apply.classify.deferred_constraints import HAS_KEY_CHANGES
from changelane.spark.apply.truncate import delete_truncated_rows
from changelane.spark.apply.upsert import UpsertWriter
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.commit_totals import CommitTotals
from changelane.spark.lake.interface import Lake, Marker, set_small_batch
from changelane.spark.lake.key_filter import KeyFilter, merge_filtered
from changelane.spark.lake.merge import version_merge, version_replacement
from changelane.spark.lake.modes import HISTORY, STATE_TYPES, UPSERT
from changelane.spark.rows import key_operations, latest_per_key
from changelane.spark.rows.batch_stats import APPLIED_BEFORE, TableReport
from changelane.spark.rows.schema import table_id_of
from changelane.spark.state.full_history import full_history_of
from changelane.spark.state.history_tombstones import HistoryTombstones
from changelane.spark.state.quarantine import RejectedRows, without_rejected
from changelane.spark.state.tombstones import TableTombstones, TombstoneTable

NO_POSITIONS: Final = (
    "the events have no positions: an event that the producer sends again is added again"
)


class WrittenBatch(NamedTuple):
    """A batch as all of its tables write it.

    Attributes:
        changes: The ``data`` and ``truncate`` rows that the tables apply.
        marker: The batch.
        details: More for the user metadata of the commits.
        tombstones: The tombstones of whole tables after the batch, by ``table_id``.
        tombstones_before: The tables that had tombstones before the batch.
        changed_keys: The keys to which the merge rule itself is applied, by ``table_id``.
        rejected_changes: Rows of *changes* that the merge rule rejected: they have no effect.
        has_rejected: Whether any row was rejected, so that the statistics count too many rows.
    """

    changes: DataFrame
    marker: Marker
    details: Mapping[str, object]
    tombstones: Mapping[str, TableTombstones]
    tombstones_before: Collection[str]
    changed_keys: Mapping[str, ChangedKeys]
    rejected_changes: Sequence[RejectedRows]
    has_rejected: bool


class TableWriter:
    """Writes the tables of a lake.

    Args:
        lake: The tables.
        tombstones: The tombstones of keys.
        history_tombstones: The ends of versions.
    """

    def __init__(
        self, lake: Lake, tombstones: TombstoneTable, history_tombstones: HistoryTombstones
    ) -> None:
        self._lake = lake
        self._tombstones = tombstones
        self._history_tombstones = history_tombstones
        self._upserts = UpsertWriter(lake, tombstones)

    def write(self, batch: WrittenBatch, plan: TablePlan) -> TableReport:
        """Write a batch to one table, unless the table has it already."""
        report = self._report(plan)
        last = self._lake.last_batch(plan.name, batch.marker)
        if last is not None and last >= batch.marker.batch:
            report.note = APPLIED_BEFORE
            report.events, report.applied_before = 0, report.events
            return report
        write = _TableWrite(self._lake, batch, plan)
        table_tombstones = batch.tombstones.get(plan.table_batch.table_id)
        if plan.mode == HISTORY:
            self._write_versions(write, table_tombstones or TableTombstones())
        elif plan.mode == UPSERT:
            self._write_upserts(write, table_tombstones)
        else:
            self._append(write, write.rows, append.changes)
        report.out_of_order, report.conflicts = write.out_of_order, write.conflicts
        report.repeats, report.possible_duplicates = write.repeats, write.possible_duplicates
        return report

    def _report(self, plan: TablePlan) -> TableReport:
        notes = dict.fromkeys(f"{rejected.code}: {rejected.reason}" for rejected in plan.rejected)
        if plan.note is not None:
            notes[plan.note] = None
        if plan.is_adding and domain_of(plan.kind) in BY_MESSAGE:
            notes[NO_POSITIONS] = None
        source_name = str(table_id_of(plan.table_batch.table_id))
        return TableReport(
            source_name,
            self._lake.path(plan.name),
            plan.table_batch.count,
            "; ".join(notes),
            warning=plan.warning,
        )

    def _write_upserts(
        self, write: "_TableWrite", table_tombstones: TableTombstones | None
    ) -> None:
        plan = write.plan
        if plan.table_batch.newest_truncate and table_tombstones is not None:
            truncated = table_tombstones.truncated
            delete_truncated_rows(self._lake.spark, self._lake, plan, truncated)
        if not plan.table_batch.schemas:
            return
        if plan.is_adding:
            truncated = b"" if table_tombstones is None else table_tombstones.truncated
            self._append(write, append.inserted(write.changes, truncated), append.appended)
            return
        table_id = plan.table_batch.table_id
        had_tombstones = table_id in write.batch.tombstones_before
        if had_tombstones and not write.has_current_totals:
            # the next batches compare their changes with the total of this commit
            write.raise_high(self._tombstones.newest(table_id))
        changed_keys = write.batch.changed_keys.get(table_id)
        self._upserts.merge(
            write.session,
            write.changes,
            plan,
            table_tombstones,
            changed_keys,
            had_tombstones=had_tombstones,
            is_newest=write.is_newest,
        )

    def _append(
        self,
        write: "_TableWrite",
        rows: DataFrame,
        table_rows: Callable[[DataFrame, TablePlan], DataFrame],
    ) -> None:
        """Append the result of *table_rows* for event rows, without those that the table has."""
        plan = write.plan
        table = self._lake.read(plan.name)
        high = write.before.high
        if high is None or not write.has_current_totals:
            high = deduplication.newest(table)
            write.before = msgspec.structs.replace(write.before, high=high)
        with deduplication.without_repeats(rows, plan, table, high) as new_rows:
            write.repeats = new_rows.repeats
            write.possible_duplicates = new_rows.possible_duplicates
            self._lake.append(write.session(), plan.name, table_rows(new_rows.rows, plan))

    def _write_versions(self, write: "_TableWrite", table_tombstones: TableTombstones) -> None:
        plan, rows = write.plan, write.rows
        new_properties = {}
        if plan.table_batch.has_partial_images and "exceptions" not in plan.properties:
            new_properties["exceptions"] = "true"
        if plan.table_batch.has_other_keys and HAS_KEY_CHANGES not in plan.properties:
            new_properties[HAS_KEY_CHANGES] = "true"
        if new_properties:
            self._lake.set_properties(plan.name, new_properties)
        conflicts = latest_per_key.conflict_count(
            key_operations.upserts_and_departures(write.changes, moves=False)
        )
        session = write.session(conflicts)
        full_history = full_history_of(plan.name) if plan.table_mode.is_tracked else plan.name
        marker = write.batch.marker
        last = self._lake.last_batch(full_history, marker)
        target = plan.target
        columns = (*target.columns, *STATE_TYPES[HISTORY])
        # a truncate touches rows of other keys, too
        filter_of_keys = None if plan.table_batch.newest_truncate else plan.key_filter()
        if last is None or last < marker.batch:

            def versions(batch_keys: KeyFilter | None) -> DataFrame:
                return history.versions(
                    rows,
                    plan,
                    self._lake.read(full_history),
                    self._history_tombstones,
                    has_truncates=bool(table_tombstones.truncated),
                    batch_keys=batch_keys,
                )

            merge = version_merge(target.keys, columns)
            merge_filtered(
                self._lake,
                session,
                full_history,
                merge,
                batch_keys=filter_of_keys,
                source_of=versions,
            )
        if full_history != plan.name:

            def shown(batch_keys: KeyFilter | None) -> DataFrame:
                return tracked_columns.shown(
                    rows,
                    plan,
                    self._lake.read(plan.name),
                    self._lake.read(full_history),
                    batch_keys,
                )

            merge = version_replacement(target.keys, columns)
            merge_filtered(
                self._lake,
                session,
                plan.name,
                merge,
                batch_keys=filter_of_keys,
                source_of=shown,
            )


class _TableWrite:
    """The write of one batch to one table.

    Attributes:
        batch: The batch.
        plan: The plan of the table.
        rows: The ``data`` and ``truncate`` rows of the table.
        changes: The ``data`` rows.
        before: The totals of the table before the batch.
        has_current_totals: Whether *before* is of the newest commit, and has the newest order: the
            totals in the table's properties are as old as the last maintenance, and an older
            changelane wrote no order.
        is_newest: Whether every change is newer than all changes of earlier batches.
        out_of_order: The number of changes that are older than changes of earlier batches.
        conflicts: The number of keys and positions with two different full rows.
        repeats: The number of repeated events, which are not written.
        possible_duplicates: The number of written events that may be repeats.
    """

    def __init__(self, lake: Lake, batch: WrittenBatch, plan: TablePlan) -> None:
        self._lake = lake
        self.batch = batch
        self.plan = plan
        self.rows = batch.changes.where(F.col("table_id") == plan.table_batch.table_id)
        self.changes = self.rows.where("kind = 'data'")
        newest_commit = next(lake.marked_commits(plan.name), None)
        self.before = CommitTotals.of(newest_commit or lake.last_commit(plan.name))
        self.has_current_totals = newest_commit is not None and self.before.high is not None
        accepted = without_rejected(self.changes, batch.rejected_changes)
        self.out_of_order = self.before.out_of_order_count(accepted, plan.table_batch, plan.kind)
        oldest, _ = plan.table_batch.order_range(plan.kind)
        self.is_newest = self.has_current_totals and self.before.is_older_than(oldest)
        self.conflicts = self.repeats = self.possible_duplicates = 0
        self._applied = (
            accepted.count() if batch.has_rejected else sum(plan.table_batch.counts.values())
        )

    def raise_high(self, order: bytes) -> None:
        """Let the totals after this batch be at least as new as an order."""
        high = max(self.before.high or "", order.hex())
        self.before = msgspec.structs.replace(self.before, high=high)

    def session(self, conflicts: int = 0) -> SparkSession:
        """Return a session whose commits have the marker and the totals after this batch."""
        self.conflicts = conflicts
        table_batch, kind = self.plan.table_batch, self.plan.kind
        after = self.before.plus(
            table_batch,
            kind,
            applied=self._applied,
            out_of_order=self.out_of_order,
            conflicts=self.conflicts,
            repeats=self.repeats,
            possible_duplicates=self.possible_duplicates,
        )
        oldest, newest = table_batch.order_range(kind)
        bounds = {
            "oldest": oldest.hex(),
            "newest": max(newest, table_batch.newest_truncate).hex(),
        }
        details = (
            {"events": table_batch.count} | bounds | after.properties | dict(self.batch.details)
        )
        session = self._lake.commit_session(self.batch.marker, details)
        if table_batch.keys is not None:
            set_small_batch(session)
        return session
