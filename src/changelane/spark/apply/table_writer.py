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
from changelane.spark.evolution.prepare import Plan
from changelane.spark.lake.commit_totals import Tally
from changelane.spark.lake.interface import Lake, Marker
from changelane.spark.lake.merge import Form, merge_shown, merge_versions
from changelane.spark.lake.modes import HISTORY, UPSERT
from changelane.spark.rows import latest_per_key
from changelane.spark.rows.batch_stats import APPLIED_BEFORE, TableReport
from changelane.spark.rows.schema import table_id_of
from changelane.spark.state.full_history import companion_of
from changelane.spark.state.history_tombstones import Ends
from changelane.spark.state.quarantine import Refused, without
from changelane.spark.state.tombstones import Remembered, SideTable

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
    remembered: Mapping[str, Remembered]
    moved: Mapping[str, Moved]
    refused: Sequence[Refused]


class Commits:
    """Writes the tables of a lake.

    Args:
        lake: The tables.
        side: What is remembered of rows that are not there.
        ends: Where the lives of versions ended.
    """

    def __init__(self, lake: Lake, side: SideTable, ends: Ends) -> None:
        self._lake = lake
        self._ends = ends
        self._upserts = Upserts(lake, side)

    def write(self, batch: Batch, one: Plan, *, counts: bool) -> TableReport:
        """Bring a batch to one table, unless the table holds it already.

        Args:
            batch: The batch.
            one: How the table takes its events.
            counts: Some of its rows were set aside: what is left must be counted.
        """
        told = dict.fromkeys(f"{refused.code}: {refused.reason}" for refused in one.refused)
        if one.note is not None:
            told[one.note] = None
        if one.is_adding and domain_of(one.kind) in BY_MESSAGE:
            told[NO_POSITIONS] = None
        path = self._lake.path(one.name)
        name = str(table_id_of(one.work.table_id))
        table = TableReport(name, path, one.work.count, "; ".join(told), warning=one.warning)
        last = self._lake.last_batch(one.name, batch.marker)
        if last is not None and last >= batch.marker.batch:
            table.note = APPLIED_BEFORE
            table.events, table.applied_before = 0, table.events
            return table
        writing = _Writing(self._lake, batch, one, counts=counts)
        known = batch.remembered.get(one.work.table_id)
        if one.mode == HISTORY:
            self._versions(writing, known or Remembered())
        elif one.mode == UPSERT:
            if one.work.truncated and known is not None:
                clear(self._lake.spark, self._lake, one, known.truncated)
            if one.work.schemas and one.is_adding:
                floor = b"" if known is None else known.truncated
                rows = append.inserted(writing.changes, floor)
                self._append(writing, rows, append.appended)
            elif one.work.schemas:
                moved = batch.moved.get(one.work.table_id)
                self._upserts.merge(writing.session, writing.changes, one, known, moved)
        else:
            self._append(writing, writing.rows, append.changes)
        table.late, table.ties = writing.late, writing.ties
        table.repeats, table.possible_duplicates = writing.repeats, writing.possible_duplicates
        return table

    def _append(
        self, writing: "_Writing", rows: DataFrame, made: Callable[[DataFrame, Plan], DataFrame]
    ) -> None:
        """Add event rows to a table, as *made* makes rows of them, but for those that it holds."""
        one = writing.plan
        held = self._lake.read(one.name)
        high = writing.before.high
        if high is None or next(self._lake.marked(one.name), None) is None:
            # the commits that told it are forgotten, or of a version that told none; what is
            # kept of the newest one is as old as the last maintenance
            high = deduplication.newest(held)
            writing.before = msgspec.structs.replace(writing.before, high=high)
        with deduplication.taken(rows, one, held, high) as taken:
            writing.repeats = taken.repeats
            writing.possible_duplicates = taken.possible_duplicates
            self._lake.append(writing.session(), one.name, made(taken.rows, one))

    def _versions(self, writing: "_Writing", known: Remembered) -> None:
        one, rows = writing.plan, writing.rows
        if one.work.has_parts and "exceptions" not in one.properties:
            self._lake.set_properties(one.name, {"exceptions": "true"})
        ties = latest_per_key.tie_count(latest_per_key.steps(writing.changes, moves=False))
        spark = writing.session(ties)
        place = companion_of(one.name) if one.table_mode.is_tracked else one.name
        marker = writing.batch.marker
        last = self._lake.last_batch(place, marker)
        if last is None or last < marker.batch:
            table = self._lake.read(place)
            source = history.versions(
                rows, one, table, self._ends, has_truncates=bool(known.truncated)
            )
            self._run(spark, source, one._replace(name=place), merge_versions)
        if place != one.name:
            source = tracked_columns.shown(
                rows, one, self._lake.read(one.name), self._lake.read(place)
            )
            self._run(spark, source, one, merge_shown)

    def _run(self, spark: SparkSession, source: DataFrame, one: Plan, form: Form) -> None:
        self._lake.merge(spark, one.name, source, form(one.target.keys, source.columns))


class _Writing:
    """One batch on its way into one table.

    Attributes:
        batch: The batch.
        plan: How the table takes its events.
        rows: Its rows.
        changes: Those of them that are no truncates.
        before: What the table took up to its newest commit.
        late: How many of the changes come behind newer ones of batches before.
        ties: For how many keys and positions two whole rows differ.
        repeats: How many events came again, which the table does not take.
        possible_duplicates: How many that it takes may have come before.
    """

    def __init__(self, lake: Lake, batch: Batch, plan: Plan, *, counts: bool) -> None:
        self._lake = lake
        self.batch = batch
        self.plan = plan
        self.rows = batch.events.where(F.col("table_id") == plan.work.table_id)
        self.changes = self.rows.where("kind = 'data'")
        self.before = Tally.of(lake.last_commit(plan.name))
        taken = without(self.changes, batch.refused)
        self.late = self.before.late_in(taken, plan.work, plan.kind)
        self.ties = self.repeats = self.possible_duplicates = 0
        self._applied = taken.count() if counts else sum(plan.work.counts.values())

    def session(self, ties: int = 0) -> SparkSession:
        """Return a session whose commits carry the marker and the sums with this batch."""
        self.ties = ties
        work = self.plan.work
        after = self.before.plus(
            work,
            self.plan.kind,
            applied=self._applied,
            late=self.late,
            ties=self.ties,
            repeats=self.repeats,
            possible_duplicates=self.possible_duplicates,
        )
        oldest, newest = work.reach(self.plan.kind)
        reach = {"oldest": oldest.hex(), "newest": max(newest, work.truncated).hex()}
        told = {"events": work.count} | reach | after.told | dict(self.batch.details)
        return self._lake.committing(self.batch.marker, told)
