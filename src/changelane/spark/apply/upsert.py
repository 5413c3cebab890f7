# SPDX-License-Identifier: Apache-2.0
"""The mode ``upsert``: the events of a batch become the newest row of each key, in one MERGE."""

from collections.abc import Callable
from typing import Final, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.spark.apply.classify import key_changes
from changelane.spark.apply.classify.key_changes import Moved
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.interface import Lake
from changelane.spark.lake.merge import Form, column_form, row_form
from changelane.spark.rows import latest_per_key
from changelane.spark.state.tombstones import TableTombstones, TombstoneTable

MAX_REMEMBERED_BYTES: Final = 32 << 20
"""So much is read whole, which takes less time than to look up the keys of a batch."""
_BESIDE_KEY_BYTES: Final = 100
"""What is remembered beside a key: an order, and what a row of a join takes."""


class _Batch(NamedTuple):
    """What a batch holds of one table, and what is known of it."""

    rows: DataFrame
    plan: TablePlan
    known: TableTombstones | None
    moved: Moved | None

    def steps(self) -> DataFrame:
        """Return what a fold decides."""
        steps = latest_per_key.upserts_and_departures(
            self.rows, moves=self.plan.work.has_key_changes
        )
        if self.moved is None:
            return steps
        return steps.join(F.broadcast(self.moved.keys), "key", "left_anti")


class Upserts:
    """Writes the tables of the mode.

    Args:
        lake: The tables.
        side: What is remembered of rows that are not there.
    """

    def __init__(self, lake: Lake, side: TombstoneTable) -> None:
        self._lake = lake
        self._side = side

    def merge(
        self,
        begin: Callable[[int], SparkSession],
        rows: DataFrame,
        plan: TablePlan,
        table_tombstones: TableTombstones | None,
        moved: Moved | None,
    ) -> None:
        """Merge the events of a batch into their table, in one commit.

        Args:
            begin: Returns what commits with the batch's marker, told for how many keys and
                positions two whole rows differ.
            rows: ``data`` rows of one table, which has a key.
            plan: How they are applied.
            table_tombstones: Those of the whole table; ``None`` when it never lost a row.
            moved: The keys that the rule itself decided, and what became of them.
        """
        target = plan.target
        batch = _Batch(rows.where("key IS NOT NULL"), plan, table_tombstones, moved)
        session = begin(0)
        form = column_form(keeps_deleted=target.keeps_deleted)
        if not plan.is_exceptional and moved is None:
            folded = self._with_memory(latest_per_key.latest_per_key(batch.steps()), batch)
            changed = row_form(keeps_deleted=target.keeps_deleted)
            if self._merge_untied(session, latest_per_key.full_rows(folded, target), plan, changed):
                return
        elif not plan.is_uneven and self._merge_untied(
            session, self._final(batch, is_apart=False), plan, form
        ):
            return
        # two whole events at one position: column by column, the greater value wins; of whole
        # events that do not carry the same columns each column takes its newest
        session = begin(latest_per_key.conflict_count(batch.steps()))
        self._merge(session, self._final(batch, is_apart=True), plan, form)

    def _merge_untied(
        self, session: SparkSession, source: DataFrame, plan: TablePlan, form: Form
    ) -> bool:
        """Merge, unless two whole events share a position; say whether it was done."""
        try:
            self._merge(session, source, plan, form)
        except Exception as error:  # PySpark's and Py4J's of many kinds: the text tells which
            if latest_per_key.is_conflict(error):
                return False
            raise
        return True

    def _merge(self, session: SparkSession, source: DataFrame, plan: TablePlan, form: Form) -> None:
        """Merge a source that is computed once, however often the table format reads it."""
        merge = form(plan.target.keys, tuple(plan.target.columns))
        try:
            cached_source = source.persist(StorageLevel.MEMORY_AND_DISK)
            self._lake.merge(session, plan.name, cached_source, merge)
        finally:
            source.unpersist()

    def _final(self, batch: "_Batch", *, is_apart: bool) -> DataFrame:
        """Return final rows; the table may hold columns of different ages afterwards."""
        plan = batch.plan
        if "exceptions" not in plan.properties:
            self._lake.set_properties(plan.name, {"exceptions": "true"})
        parts = latest_per_key.latest_per_column(batch.steps(), plan.target, by_column=is_apart)
        folded = self._with_memory(parts, batch)
        table = self._lake.read(plan.name)
        source = latest_per_key.merge_source(
            latest_per_key.with_stored_rows(folded, table, plan.target), plan.target
        )
        if batch.moved is None:
            return source
        return source.unionByName(key_changes.final(batch.moved.states, plan))

    def _with_memory(self, folded: DataFrame, batch: "_Batch") -> DataFrame:
        """Raise ``d`` to what is remembered of the keys and of the table."""
        own = F.coalesce("d", latest_per_key.empty_order())
        if batch.known is None:
            return folded.withColumn("d", own)
        work = batch.plan.work
        size = batch.known.keys * (work.widest_key + _BESIDE_KEY_BYTES)
        are_few = True
        if size <= MAX_REMEMBERED_BYTES:
            tombstones = self._side.of_table(work.table_id)
        else:
            are_few = work.has_few_keys
            keys = latest_per_key.touched_keys(batch.rows, moves=work.has_key_changes)
            tombstones = self._side.for_keys(work.table_id, keys, are_few=are_few)
        joined = folded.join(F.broadcast(tombstones) if are_few else tombstones, "key", "left")
        deleted = F.coalesce("deleted", latest_per_key.empty_order())
        floor = F.lit(bytearray(batch.known.truncated))
        return joined.withColumn("d", F.greatest(own, deleted, floor))
