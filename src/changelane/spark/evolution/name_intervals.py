# SPDX-License-Identifier: Apache-2.0
"""Which table, and which names of its columns, the events of a batch meant at their places.

Where names changed hands among the events of a batch, ``schema_id`` gets the number of a span.
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


class Span(NamedTuple):
    """Events of one name between two turns.

    Attributes:
        table_id: The table as the events name it.
        after: The turn before them; empty = none.
        place: The table of the lake.
    """

    table_id: str
    after: bytes
    place: LakeTable

    @property
    def sample(self) -> bytes:
        """An order among theirs, as far as turns are concerned."""
        return self.after + b"\0"


def spans_of(works: Sequence[TableBatch], tables: TableMapping) -> list[Span]:
    """Return the spans that the events of a batch stand in.

    Args:
        works: What the batch holds of each name.
        tables: The statements of the source.
    """
    return [
        Span(work.table_id, after, place)
        for work in works
        for after, place in _met(timeline(table_id_of(work.table_id), tables), work)
    ]


def timeline(table: TableId, tables: TableMapping) -> list[tuple[bytes, LakeTable]]:
    """Return the turns that matter to events of a name, and which table it means after each."""
    cuts = {b"", *tables.name_change_orders(table)}
    for place in {tables.lake_table(table, cut + b"\0") for cut in cuts}:
        cuts |= {turn.order for turn in tables.alterations(place)}
        cuts |= {end.order for end in tables.ends(place)}
    return [(cut, tables.lake_table(table, cut + b"\0")) for cut in sorted(cuts)]


def _met(
    turns: Sequence[tuple[bytes, LakeTable]], work: TableBatch
) -> list[tuple[bytes, LakeTable]]:
    """Return the part of a timeline that events of a batch stand in."""
    newest = max((*work.newest.values(), *work.newest_truncates.values()), default=b"")
    oldest = b"" if work.truncates else min(work.oldest.values(), default=b"")
    ends = [after for after, _ in turns[1:]]
    return [
        turn
        for turn, end in zip(turns, [*ends, None], strict=True)
        if turn[0] < newest and (end is None or end >= oldest)
    ]


def needs_labels(
    spans: Sequence[Span], works: Sequence[TableBatch], leaves: Callable[[Span], bool]
) -> bool:
    """Say whether names changed hands among the events of a batch.

    Args:
        spans: Those of the batch.
        works: What it holds of each name.
        leaves: Says of a span whether its events leave a column with a value that nobody told.
    """
    by_table: dict[str, list[Span]] = {}
    for span in spans:
        by_table.setdefault(span.table_id, []).append(span)
    for work in works:
        intervals = by_table.get(work.table_id, [])
        if any(table_id_text(*span.place) != work.table_id for span in intervals):
            return True
        oldest = min(work.oldest.values(), default=None)
        if oldest is None:
            continue
        newest = max(work.newest.values())
        if any(oldest <= span.after < newest for span in intervals):
            return True
        reached = [span for span in intervals if span.after < oldest]
        if reached and leaves(reached[-1]):
            return True
    return False


def labelled(events: DataFrame, spans: Sequence[Span], leaves: Callable[[Span], bool]) -> DataFrame:
    """Return event rows with the tables of the lake, and with numbers of spans at schemas.

    Args:
        events: Event rows.
        spans: Those of the batch.
        leaves: As of :func:`needs_labels`; such events count as partial.
    """
    place: Column | None = None
    number: Column | None = None
    hidden: list[Column] = []
    for index in reversed(range(len(spans))):  # the newest span of a table decides first
        span = spans[index]
        within = F.col("table_id") == span.table_id
        if span.after:
            within = within & (F.col("order") > F.lit(bytearray(span.after)))
        table_id, at = F.lit(table_id_text(*span.place)), F.lit(f"{INTERVAL_SEPARATOR}{index}")
        place = F.when(within, table_id) if place is None else place.when(within, table_id)
        number = F.when(within, at) if number is None else number.when(within, at)
        if leaves(span):
            hidden.append(number == at)
    if place is None or number is None:
        return events
    is_row = F.col("kind").isin("data", "truncate")
    label = F.concat("schema_id", F.coalesce(number, F.lit("")))
    is_full: Column = F.col("whole")
    for is_hidden in hidden:
        is_full = F.when(F.coalesce(is_hidden, F.lit(False)), F.lit(False)).otherwise(is_full)
    return events.withColumns(
        {
            SOURCE_NAMES: F.struct("table_id", "whole"),
            "table_id": F.when(is_row, F.coalesce(place, "table_id")).otherwise(F.col("table_id")),
            "schema_id": F.when(F.col("kind") == "data", label).otherwise(F.col("schema_id")),
            "whole": is_full,
        }
    )
