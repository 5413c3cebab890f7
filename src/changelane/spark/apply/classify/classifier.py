# SPDX-License-Identifier: Apache-2.0
"""The interface of classifiers.

A classifier gets the events of one table and what the lake stores of that table. It returns
``None`` if the MERGE of the table's mode applies all events, or else the events that the table
rejects, or the keys to which the merge rule itself is applied. A classifier writes nothing.
"""

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import Column, DataFrame

from changelane.reason_codes import ReasonCode
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.interface import Lake
from changelane.spark.lake.key_filter import KeyFilter, filtered_rows
from changelane.spark.state.history_tombstones import HistoryTombstones
from changelane.spark.state.quarantine import RejectedRows
from changelane.spark.state.tombstones import TableTombstones, TombstoneTable


class RejectedKeys(NamedTuple):
    """Keys of a table of which some events are rejected.

    Attributes:
        keys: The keys, in ``table_id`` and ``key``, beside the columns that *matches* reads.
        matches: The condition that an event of such a key is rejected.
        code: The reason code.
        reason: The reason.
        includes_other_key: Whether an event is also rejected for the other key of its key change.
    """

    keys: DataFrame
    matches: Column
    code: ReasonCode
    reason: str
    includes_other_key: bool = False


class ChangedKeys(NamedTuple):
    """Keys to which the merge rule itself is applied, because rows of them changed their keys.

    Attributes:
        keys: The keys, in a column ``key``.
        states: The states of the keys after the batch (``key_changes.RESOLVED``).
        few_keys: The keys; ``None`` = too many for a filter on the table.
    """

    keys: DataFrame
    states: DataFrame
    few_keys: frozenset[str] | None


class StoredTable(NamedTuple):
    """What the lake stores of a table before a batch.

    Attributes:
        lake: The tables.
        name: The table.
        tombstones: The tombstones of keys.
        table_tombstones: The tombstones of the whole table, with the truncates of the batch.
        history_tombstones: The ends of versions.
        has_touched_key_changes: Whether the batch touches keys whose rows moved in earlier batches.
        late_keys: The keys that ``too_late`` rejects; ``None`` = none.
    """

    lake: Lake
    name: str
    tombstones: TombstoneTable
    table_tombstones: TableTombstones
    history_tombstones: HistoryTombstones
    has_touched_key_changes: bool = False
    late_keys: DataFrame | None = None

    def rows(self, batch_keys: KeyFilter | None) -> DataFrame:
        """Return the rows of the table that a filter includes; ``None`` = all."""
        return filtered_rows(self.lake.read(self.name), batch_keys)


Decision = RejectedRows | RejectedKeys | ChangedKeys | None
Classifier = Callable[[DataFrame, TablePlan, StoredTable], Decision]
"""Classifies ``data`` rows of one table; see the module."""
