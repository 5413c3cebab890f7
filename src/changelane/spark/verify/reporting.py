# SPDX-License-Identifier: Apache-2.0
"""The report of a table, from its comparison. Pure."""

from collections.abc import Mapping, Sequence

from changelane.spark.verify.canonical_text import values_of
from changelane.spark.verify.comparison import ChunkResult, Comparison, Key
from changelane.spark.verify.report import (
    REPAIRED,
    ChunkReport,
    KeyDifference,
    Outcome,
    TableReport,
)
from changelane.spark.verify.table_plan import Bound, TablePlan


def table_report(
    name: str,
    plan: TablePlan,
    comparison: Comparison,
    *,
    bounds: Sequence[Bound],
    duration_s: float,
    position_text: str = "",
    repairs: Mapping[Key, str] = {},
) -> TableReport:
    """Return the report of a table.

    Args:
        name: The table.
        plan: What was compared.
        comparison: The result.
        bounds: The ends of all chunks but the last one.
        duration_s: The time that it took, seconds.
        position_text: The position of the first snapshot; empty = it has none.
        repairs: The results of repaired rows, by key.
    """
    names = [column.name for column in plan.key_columns]

    def key_of(key: Key) -> dict[str, str | None]:
        return dict(zip(names, values_of(key), strict=True))

    return TableReport(
        table=name,
        outcome=_outcome_of(comparison, repairs),
        position=position_text,
        row_count=comparison.row_count,
        chunks=_chunk_reports(plan, bounds, comparison.chunks),
        reading_count=comparison.reading_count,
        unproven_share=comparison.unproven_share,
        unproven_keys=tuple(map(key_of, comparison.unproven_keys)),
        compared_columns=tuple(column.name for column in plan.columns),
        unproven_columns=plan.unproven_columns,
        differences=tuple(
            KeyDifference(
                key_of(difference.key),
                difference.kind,
                difference.columns,
                repairs.get(difference.key, ""),
            )
            for difference in comparison.differences
        ),
        duration_s=duration_s,
    )


def _outcome_of(comparison: Comparison, repairs: Mapping[Key, str]) -> Outcome:
    if comparison.differences:
        are_repaired = all(repairs.get(d.key) == REPAIRED for d in comparison.differences)
        is_searched = not comparison.unsearched_chunks
        return "repaired" if are_repaired and is_searched else "different"
    return "equal" if comparison.is_complete else "not proven"


def _chunk_reports(
    plan: TablePlan, bounds: Sequence[Bound], results: Sequence[ChunkResult]
) -> tuple[ChunkReport, ...]:
    """Return the results of chunks with the ends of their ranges."""
    names = [r.column.name for r in plan.ranges]
    ends = [dict(zip(names, bound, strict=True)) for bound in bounds]
    return tuple(
        ChunkReport(
            number=result.chunk,
            last_key=ends[result.chunk] if result.chunk < len(ends) else {},
            row_count=result.row_count,
            difference_count=result.difference_count,
            is_unsearched=result.is_unsearched,
        )
        for result in results
    )
