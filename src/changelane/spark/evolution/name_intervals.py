# SPDX-License-Identifier: Apache-2.0
"""Maps the table and column names of a batch's events to lake tables, per interval.

An interval lies between two schema changes of a table. If the events of a batch are in several
intervals, ``schema_id`` gets the number of the event's interval as a suffix.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.apply.table_mapping import LakeTable, TableMapping
from changelane.schema import TableId
from changelane.spark.rows.batch_stats import INTERVAL_SEPARATOR, TableBatch
from changelane.spark.rows.schema import table_id_of, table_id_text
from changelane.spark.state.quarantine import SOURCE_NAMES


class NameInterval(NamedTuple):
    """The events of one source table between two schema changes.

    Attributes:
        table_id: The name of the table in the events.
        after: The order of the schema change before the interval; empty = none.
        lake_table: The lake table.
    """

    table_id: str
    after: bytes
    lake_table: LakeTable

    @property
    def sample(self) -> bytes:
        """An order in the interval."""
        return self.after + b"\0"


def name_intervals(table_batches: Sequence[TableBatch], tables: TableMapping) -> list[NameInterval]:
    """Return the intervals with events of a batch.

    Args:
        table_batches: The events of the batch, by their source table.
        tables: The schema history of the source.
    """
    return [
        NameInterval(table_batch.table_id, after, lake_table)
        for table_batch in table_batches
        for after, lake_table in _with_events(
            timeline(table_id_of(table_batch.table_id), tables), table_batch
        )
    ]


def timeline(table: TableId, tables: TableMapping) -> list[tuple[bytes, LakeTable]]:
    """Return the orders of schema changes of a source table, with the lake table after each."""
    orders = {b"", *tables.name_change_orders(table)}
    for lake_table in {tables.lake_table(table, order + b"\0") for order in orders}:
        orders |= {entry.order for entry in tables.alterations(lake_table)}
        orders |= {end.order for end in tables.ends(lake_table)}
    return [(order, tables.lake_table(table, order + b"\0")) for order in sorted(orders)]


def _with_events(
    changes: Sequence[tuple[bytes, LakeTable]], table_batch: TableBatch
) -> list[tuple[bytes, LakeTable]]:
    """Return the part of a timeline that has events of a batch."""
    newest = max(
        (*table_batch.newest.values(), *table_batch.newest_truncates.values()), default=b""
    )
    oldest = b"" if table_batch.truncates else min(table_batch.oldest.values(), default=b"")
    ends = [after for after, _ in changes[1:]]
    return [
        change
        for change, end in zip(changes, [*ends, None], strict=True)
        if change[0] < newest and (end is None or end >= oldest)
    ]


def needs_labels(
    intervals: Sequence[NameInterval],
    table_batches: Sequence[TableBatch],
    leaves_unknown: Callable[[NameInterval], bool],
) -> bool:
    """Return whether a schema change renames tables or columns of a batch.

    Args:
        intervals: The intervals of the batch.
        table_batches: The events of the batch, by their source table.
        leaves_unknown: Whether events of an interval lack the value of a column that was added
            later.
    """
    by_table: dict[str, list[NameInterval]] = {}
    for interval in intervals:
        by_table.setdefault(interval.table_id, []).append(interval)
    for table_batch in table_batches:
        own = by_table.get(table_batch.table_id, [])
        if any(table_id_text(*interval.lake_table) != table_batch.table_id for interval in own):
            return True
        oldest = min(table_batch.oldest.values(), default=None)
        if oldest is None:
            continue
        newest = max(table_batch.newest.values())
        if any(oldest <= interval.after < newest for interval in own):
            return True
        earlier = [interval for interval in own if interval.after < oldest]
        if earlier and leaves_unknown(earlier[-1]):
            return True
    return False


def labelled(
    events: DataFrame,
    intervals: Sequence[NameInterval],
    leaves_unknown: Callable[[NameInterval], bool],
) -> DataFrame:
    """Return event rows with the names of lake tables, and interval numbers in ``schema_id``.

    Args:
        events: Event rows.
        intervals: The intervals of the batch.
        leaves_unknown: As of :func:`needs_labels`; such events are partial.
    """
    table_id: Column | None = None
    suffix: Column | None = None
    partial_suffixes: list[Column] = []
    for index in reversed(range(len(intervals))):  # the newest interval of a table comes first
        interval = intervals[index]
        is_in_interval = F.col("table_id") == interval.table_id
        if interval.after:
            is_after = F.col("order") > F.lit(bytearray(interval.after))
            is_in_interval = is_in_interval & is_after
        lake_table = F.lit(table_id_text(*interval.lake_table))
        number = F.lit(f"{INTERVAL_SEPARATOR}{index}")
        if table_id is None or suffix is None:
            table_id, suffix = F.when(is_in_interval, lake_table), F.when(is_in_interval, number)
        else:
            table_id = table_id.when(is_in_interval, lake_table)
            suffix = suffix.when(is_in_interval, number)
        if leaves_unknown(interval):
            partial_suffixes.append(number)
    if table_id is None or suffix is None:
        return events
    is_row = F.col("kind").isin("data", "truncate")
    labelled_schema = F.concat("schema_id", F.coalesce(suffix, F.lit("")))
    is_full: Column = F.col("whole")
    if partial_suffixes:
        is_partial = F.coalesce(suffix.isin(*partial_suffixes), F.lit(False))
        is_full = F.when(is_partial, F.lit(False)).otherwise(is_full)
    return events.withColumns(
        {
            SOURCE_NAMES: F.struct("table_id", "whole"),
            "table_id": F.when(is_row, F.coalesce(table_id, "table_id")).otherwise(
                F.col("table_id")
            ),
            "schema_id": F.when(F.col("kind") == "data", labelled_schema).otherwise(
                F.col("schema_id")
            ),
            "whole": is_full,
        }
    )
