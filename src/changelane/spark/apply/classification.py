# SPDX-License-Identifier: Apache-2.0
"""Runs the classifiers over the tables of a batch.

Most batches need none of them: each classifier returns at once if the statistics of the batch and
the tombstones of the table rule it out.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from changelane.spark.apply.classify.classifier import (
    ChangedKeys,
    Classifier,
    RejectedKeys,
    StoredTable,
)
from changelane.spark.apply.classify.deferred_constraints import swapped_departures
from changelane.spark.apply.classify.key_changes import changed_keys, rejected_changes
from changelane.spark.apply.classify.partition_conflicts import conflicting_keys
from changelane.spark.apply.classify.too_late import late_keys
from changelane.spark.apply.isolation import Isolation
from changelane.spark.apply.planning import PlannedBatch
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.interface import Lake
from changelane.spark.lake.modes import APPEND, HISTORY, UPSERT
from changelane.spark.runtime.computed import release
from changelane.spark.runtime.conditions import any_of
from changelane.spark.state.history_tombstones import HistoryTombstones
from changelane.spark.state.quarantine import RejectedRows, without_rejected
from changelane.spark.state.tombstones import TableTombstones, TombstoneTable

CLASSIFIERS: Final[Mapping[str, Sequence[Classifier]]] = {
    UPSERT: (late_keys, changed_keys),
    HISTORY: (swapped_departures,),
    APPEND: (),
}
"""The classifiers of a table by its mode, in the order in which they run. ``conflicting_keys`` runs
before them: what it rejects, no other classifier gets."""

_IN_CONFLICT: Final = "_changelane_in_conflict"
_IS_LATE: Final = "_changelane_is_late"
_IS_REJECTED_KEY: Final = "_changelane_is_rejected_key"


class ClassifiedBatch(NamedTuple):
    """A batch after the classifiers.

    Attributes:
        events: All event rows, with the columns that *rejected* reads.
        changes: The ``data`` and ``truncate`` rows that the tables apply.
        plans: The plans of the tables, without tables that failed.
        rejected: The rejected rows; the first match gives the reason.
        changed_keys: The keys to which the merge rule itself is applied, by ``table_id``.
        rejected_changes: Rows in *rejected* and in *changes*: the merge rule rejected them, and
            the states of their keys are computed without them.
    """

    events: DataFrame
    changes: DataFrame
    plans: list[TablePlan]
    rejected: list[RejectedRows]
    changed_keys: dict[str, ChangedKeys]
    rejected_changes: list[RejectedRows]


class StoredTables(NamedTuple):
    """What a lake stores of the tables of a batch.

    Attributes:
        lake: The tables.
        tombstones: The tombstones of keys.
        table_tombstones: The tombstones of whole tables before the batch, by ``table_id``.
        history_tombstones: The ends of versions.
    """

    lake: Lake
    tombstones: TombstoneTable
    table_tombstones: Mapping[str, TableTombstones]
    history_tombstones: HistoryTombstones

    def table(self, plan: TablePlan, touched: frozenset[str] = frozenset()) -> StoredTable:
        """Return what is stored of one table.

        Args:
            plan: The plan of the table.
            touched: The result of :meth:`touched_key_changes`.
        """
        table_id, newest_truncate = plan.table_batch.table_id, plan.table_batch.newest_truncate
        table_tombstones = self.table_tombstones.get(table_id, TableTombstones())
        truncated = max(table_tombstones.truncated, newest_truncate)
        return StoredTable(
            self.lake,
            plan.name,
            self.tombstones,
            table_tombstones._replace(truncated=truncated),
            self.history_tombstones,
            has_touched_key_changes=table_id in touched,
        )

    def touched_key_changes(self, changes: DataFrame, plans: Sequence[TablePlan]) -> frozenset[str]:
        """Return the ids of tables whose events touch keys of rows that moved in earlier batches.

        One query answers for all tables. Tables whose events change keys themselves are left out:
        the classifier looks up their moved keys in any case.
        """
        table_ids = [
            plan.table_batch.table_id
            for plan in plans
            if plan.mode == UPSERT
            and not plan.table_batch.has_other_keys
            and self.table_tombstones.get(plan.table_batch.table_id, TableTombstones()).moved_keys
        ]
        if not table_ids:
            return frozenset()
        rows = changes.where((F.col("kind") == "data") & F.col("table_id").isin(*table_ids))
        return frozenset(self.tombstones.tables_with_moved_keys(rows.select("table_id", "key")))


@contextmanager
def classified(
    batch: PlannedBatch, stored: StoredTables, isolation: Isolation
) -> Iterator[ClassifiedBatch]:
    """Run the classifiers; release what they computed at the end of the ``with`` block."""
    frames: list[DataFrame] = []
    try:
        yield _classified(batch, stored, isolation, frames)
    finally:
        for frame in frames:
            release(frame)


def _classified(
    batch: PlannedBatch, stored: StoredTables, isolation: Isolation, frames: list[DataFrame]
) -> ClassifiedBatch:
    events, rejected = batch.events, [*batch.rejected]
    conflicts = _conflicts(batch, stored, isolation)
    frames += (conflict.keys for conflict in conflicts)
    if conflicts:
        events = _marked(events, conflicts, _IN_CONFLICT)
        rejected.append(_rejection_of(_IN_CONFLICT, conflicts[0], rejected))
    changes = without_rejected(_changes(events), rejected)
    changes = changes.where(F.col("table_id").isin(*batch.table_ids))
    touched = stored.touched_key_changes(changes, batch.plans)
    late: dict[str, RejectedKeys] = {}
    changed: dict[str, ChangedKeys] = {}
    rejected_by_key: list[RejectedRows] = []
    for plan in batch.plans:
        stored_table, rows = stored.table(plan, touched), _rows_of(changes, plan)
        with isolation.of(plan.table_batch):
            for classify in CLASSIFIERS[plan.mode]:
                match classify(rows, plan, stored_table):
                    case RejectedRows() as rejected_rows:
                        rejected_by_key.append(rejected_rows)
                        rows = without_rejected(rows, [rejected_rows])
                    case RejectedKeys() as rejected_keys:
                        frames.append(rejected_keys.keys)
                        late[plan.table_batch.table_id] = rejected_keys
                        stored_table = stored_table._replace(late_keys=rejected_keys.keys)
                    case ChangedKeys() as keys:
                        frames += (keys.keys, keys.states)
                        changed[plan.table_batch.table_id] = keys
    rejected += rejected_by_key
    changes = without_rejected(changes, rejected_by_key)
    plans = [plan for plan in batch.plans if plan.table_batch.table_id not in isolation.failed]
    if isolation.failed:
        changes = changes.where(~F.col("table_id").isin(*isolation.failed))
    rejected_by_rule = [
        rejected_rows
        for plan in plans
        if (keys_of_table := changed.get(plan.table_batch.table_id)) is not None
        for rejected_rows in rejected_changes(keys_of_table, plan)
    ]
    rejected += rejected_by_rule
    if late:
        groups = [
            keys._replace(keys=keys.keys.join(F.broadcast(changed[name].keys), "key", "left_anti"))
            if name in changed
            else keys
            for name, keys in late.items()
        ]
        changes = _marked(changes, groups, _IS_LATE).where(~F.col(_IS_LATE)).drop(_IS_LATE)
        events = _marked(events, groups, _IS_LATE)
        rejected.append(_rejection_of(_IS_LATE, groups[0], rejected))
    return ClassifiedBatch(events, changes, plans, rejected, changed, rejected_by_rule)


def _changes(events: DataFrame) -> DataFrame:
    return events.where(F.col("kind").isin("data", "truncate"))


def _rows_of(changes: DataFrame, plan: TablePlan) -> DataFrame:
    is_of_table = F.col("table_id") == plan.table_batch.table_id
    return changes.where(is_of_table & (F.col("kind") == "data"))


def _conflicts(
    batch: PlannedBatch, stored: StoredTables, isolation: Isolation
) -> list[RejectedKeys]:
    # a rejected event may have a key of another type
    changes = without_rejected(_changes(batch.events), batch.rejected)
    conflicts: list[RejectedKeys] = []
    for plan in batch.plans:
        with isolation.of(plan.table_batch):
            keys = conflicting_keys(_rows_of(changes, plan), plan, stored.table(plan))
            if keys is not None:
                conflicts.append(keys)
    return conflicts


def _marked(events: DataFrame, groups: Sequence[RejectedKeys], mark: str) -> DataFrame:
    """Return event rows with a column that is true where an event is rejected for its key."""
    keys = reduce(DataFrame.unionByName, (group.keys for group in groups))
    keys = keys.withColumn(_IS_REJECTED_KEY, F.lit(True))
    joined = events.join(keys, ["table_id", "key"], "left")
    is_rejected = F.col(_IS_REJECTED_KEY) & groups[0].matches
    if groups[0].includes_other_key:
        other = f"{_IS_REJECTED_KEY}_other"
        other_keys = keys.select(
            "table_id", F.col("key").alias("other_key"), F.lit(True).alias(other)
        )
        joined = joined.join(other_keys, ["table_id", "other_key"], "left")
        is_rejected = F.coalesce(is_rejected, F.col(other))
    return joined.withColumn(mark, F.coalesce(is_rejected, F.lit(False))).select(
        *events.columns, mark
    )


def _rejection_of(mark: str, keys: RejectedKeys, earlier: Sequence[RejectedRows]) -> RejectedRows:
    """Return the marked rows that are not rejected for an earlier reason."""
    is_rejected_before = any_of([rejection.rows for rejection in earlier])
    return RejectedRows(F.col(mark) & ~is_rejected_before, keys.code, keys.reason, None)
