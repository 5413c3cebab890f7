# SPDX-License-Identifier: Apache-2.0
"""The mode ``upsert``: a table keeps the latest row of each key, by one MERGE per batch."""

from collections.abc import Callable
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.spark.apply.classify import key_changes
from changelane.spark.apply.classify.classifier import ChangedKeys
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.interface import Lake
from changelane.spark.lake.key_filter import (
    MAX_KEYS,
    KeyFilter,
    SourceOf,
    filtered_rows,
    merge_filtered,
)
from changelane.spark.lake.merge import Form, column_form, row_form
from changelane.spark.rows import column_registers, key_operations, latest_per_key
from changelane.spark.state.tombstones import TableTombstones, TombstoneTable

MAX_TOMBSTONE_BYTES: Final = 32 << 20
"""Up to this size all tombstones of a table are read, which is faster than a lookup by key."""
_BYTES_BESIDE_KEY: Final = 100
"""The size of a tombstone without its key: an order, and the overhead of a row in a join."""


class _TableChanges(NamedTuple):
    """The changes of one table in a batch.

    Attributes:
        rows: ``data`` rows with a key.
        plan: The plan of the table.
        table_tombstones: The tombstones of the whole table; ``None`` if it never lost a row.
        changed_keys: The keys to which the merge rule itself is applied.
        had_tombstones: Whether the table had tombstones before the batch.
        is_newest: Whether every change is newer than all changes of earlier batches.
    """

    rows: DataFrame
    plan: TablePlan
    table_tombstones: TableTombstones | None
    changed_keys: ChangedKeys | None
    had_tombstones: bool
    is_newest: bool

    @property
    def reads_tombstones(self) -> bool:
        """Whether the stored tombstones of the batch's keys may decide about a row.

        Those of the batch are among its rows, and older ones have deleted their rows already. A
        soft-deleted row is still there, and only its tombstone tells that a partial change does not
        continue it.
        """
        if self.changed_keys is not None:
            return self.table_tombstones is not None
        are_older = self.is_newest and not self.plan.target.keeps_deleted
        return self.had_tombstones and not are_older

    @property
    def replaces_rows(self) -> bool:
        """Whether the rows of the batch replace stored ones, whatever their columns' orders are."""
        target = self.plan.target
        return self.is_newest and self.plan.has_complete_events and not target.keeps_deleted

    @property
    def has_few_tombstones(self) -> bool:
        """Whether the stored tombstones of the batch's keys are looked up by their values."""
        keys = self.plan.table_batch.keys
        return self.reads_tombstones and keys is not None and len(keys) <= MAX_KEYS

    @property
    def key_filter(self) -> KeyFilter | None:
        """The filter on the table that the keys of the merged rows imply, if they are known."""
        if self.changed_keys is None:
            return self.plan.key_filter()
        few_keys = self.changed_keys.few_keys  # some may be those of earlier batches
        return None if few_keys is None else self.plan.key_filter(few_keys)

    def upserts_and_departures(self) -> DataFrame:
        """Return the operations that the latest event per key decides."""
        operations = key_operations.upserts_and_departures(
            self.rows, moves=self.plan.table_batch.has_key_changes
        )
        if self.changed_keys is None:
            return operations
        return operations.join(F.broadcast(self.changed_keys.keys), "key", "left_anti")


class UpsertWriter:
    """Writes the tables of the mode.

    Args:
        lake: The tables.
        tombstones: The tombstones of keys.
    """

    def __init__(self, lake: Lake, tombstones: TombstoneTable) -> None:
        self._lake = lake
        self._tombstones = tombstones

    def merge(
        self,
        session_of: Callable[[int], SparkSession],
        rows: DataFrame,
        plan: TablePlan,
        table_tombstones: TableTombstones | None,
        changed_keys: ChangedKeys | None,
        *,
        had_tombstones: bool = True,
        is_newest: bool = False,
    ) -> None:
        """Merge the events of a batch into their table, in one commit.

        Args:
            session_of: Returns the session of the commit, for the number of keys and positions
                with two different full rows.
            rows: ``data`` rows of one table, which has a key.
            plan: The plan of the table.
            table_tombstones: The tombstones of the whole table; ``None`` if it never lost a row.
            changed_keys: The keys to which the merge rule itself is applied.
            had_tombstones: Whether the table had tombstones before the batch.
            is_newest: Whether every change is newer than all changes of earlier batches.
        """
        target = plan.target
        table_changes = _TableChanges(
            rows.where("key IS NOT NULL"),
            plan,
            table_tombstones,
            changed_keys,
            had_tombstones,
            is_newest,
        )
        session = session_of(0)
        form = column_form(keeps_deleted=target.keeps_deleted)
        if changed_keys is None and (table_changes.replaces_rows or not plan.is_exceptional):
            latest = latest_per_key.latest_per_key(self._operations(table_changes))
            source = latest_per_key.full_rows(self._with_tombstones(latest, table_changes), target)
            full_row_form = row_form(keeps_deleted=target.keeps_deleted, is_newest=is_newest)
            if self._merge_without_conflicts(
                session, lambda _: source, table_changes, full_row_form
            ):
                return
        elif not plan.is_uneven and self._merge_without_conflicts(
            session, self._final_rows(table_changes, by_column=False), table_changes, form
        ):
            return
        # Two full rows of one position: the greater value of each column wins. Full rows of
        # different columns: each column takes its latest value.
        session = session_of(latest_per_key.conflict_count(table_changes.upserts_and_departures()))
        self._merge(session, self._final_rows(table_changes, by_column=True), table_changes, form)

    def _merge_without_conflicts(
        self, session: SparkSession, source_of: SourceOf, table_changes: _TableChanges, form: Form
    ) -> bool:
        """Merge, unless two full rows have one position; return whether it was done."""
        try:
            self._merge(session, source_of, table_changes, form)
        except Exception as error:  # PySpark's and Py4J's of many kinds: the text tells which
            if latest_per_key.is_conflict(error):
                return False
            raise
        return True

    def _merge(
        self, session: SparkSession, source_of: SourceOf, table_changes: _TableChanges, form: Form
    ) -> None:
        plan = table_changes.plan
        merge = form(plan.target.keys, tuple(plan.target.columns))
        merge_filtered(
            self._lake,
            session,
            plan.name,
            merge,
            batch_keys=table_changes.key_filter,
            source_of=source_of,
        )

    def _final_rows(self, table_changes: _TableChanges, *, by_column: bool) -> SourceOf:
        """Return the source of rows of the table whose columns may have different orders.

        It has a row for each key of the batch, so that the check of the keys sees all of them.
        """
        plan = table_changes.plan
        if "exceptions" not in plan.properties:
            self._lake.set_properties(plan.name, {"exceptions": "true"})
        operations = self._operations(table_changes)
        replaces_rows = table_changes.replaces_rows and not by_column
        latest = (
            latest_per_key.latest_per_key(operations)
            if replaces_rows
            else latest_per_key.latest_per_column(operations, plan.target, by_column=by_column)
        )
        latest = self._with_tombstones(latest, table_changes)
        changed_keys = table_changes.changed_keys

        def source_of(batch_keys: KeyFilter | None) -> DataFrame:
            if replaces_rows:
                source = latest_per_key.final_rows(latest, plan.target)
            else:
                stored_rows = filtered_rows(self._lake.read(plan.name), batch_keys)
                source = column_registers.merge_source(
                    column_registers.with_stored_rows(latest, stored_rows, plan.target), plan.target
                )
            if changed_keys is None:
                return source
            return source.unionByName(key_changes.final_rows(changed_keys.states, plan))

        return source_of

    def _operations(self, table_changes: _TableChanges) -> DataFrame:
        """Return the operations; those of a small batch include the tombstones of its keys."""
        operations = table_changes.upserts_and_departures()
        if not table_changes.has_few_tombstones:
            return operations
        table_batch = table_changes.plan.table_batch
        tombstones = self._tombstones.rows_of_table(table_batch.table_id, table_batch.keys)
        return key_operations.with_tombstones(operations, tombstones).coalesce(1)

    def _with_tombstones(self, latest: DataFrame, table_changes: _TableChanges) -> DataFrame:
        """Raise the order of the latest delete, ``d``, to the tombstones of key and table."""
        deleted_in_batch = F.coalesce("d", latest_per_key.empty_order())
        if table_changes.table_tombstones is None:
            return latest.withColumn("d", deleted_in_batch)
        if table_changes.has_few_tombstones or not table_changes.reads_tombstones:
            truncated = F.lit(bytearray(table_changes.table_tombstones.truncated))
            return latest.withColumn("d", F.greatest(deleted_in_batch, truncated))
        table_batch = table_changes.plan.table_batch
        size = table_changes.table_tombstones.keys * (table_batch.widest_key + _BYTES_BESIDE_KEY)
        are_few = True
        if size <= MAX_TOMBSTONE_BYTES:
            tombstones = self._tombstones.of_table(table_batch.table_id)
        else:
            are_few = table_batch.has_few_keys
            keys = key_operations.touched_keys(
                table_changes.rows, moves=table_batch.has_key_changes
            )
            tombstones = self._tombstones.for_keys(table_batch.table_id, keys, are_few=are_few)
        joined = latest.join(F.broadcast(tombstones) if are_few else tombstones, "key", "left")
        deleted = F.coalesce("deleted", latest_per_key.empty_order())
        truncated = F.lit(bytearray(table_changes.table_tombstones.truncated))
        return joined.withColumn("d", F.greatest(deleted_in_batch, deleted, truncated))
