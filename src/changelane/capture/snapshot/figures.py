# SPDX-License-Identifier: Apache-2.0
"""How far a snapshot is, by its plan and its complete chunks."""

from collections import Counter

import msgspec

from changelane.capture.snapshot.plan import FIRST_LOAD, SnapshotProgress
from changelane.capture.storage import Folder


class TableFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How far the snapshot of a table is.

    Attributes:
        table: The name of the table, with its schema or database.
        chunk_count: The number of chunks.
        complete_count: The number of complete chunks.
        row_count: The number of rows of the complete chunks.
    """

    table: str
    chunk_count: int
    complete_count: int
    row_count: int


class SnapshotFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How far a snapshot is.

    Attributes:
        created_ms: The time at which it began, milliseconds since 1970-01-01 UTC.
        chunk_count: The number of chunks.
        complete_count: The number of complete chunks.
        row_count: The number of rows of the complete chunks.
        tables: The same of each table.
    """

    created_ms: int
    chunk_count: int
    complete_count: int
    row_count: int
    tables: tuple[TableFigures, ...]

    @property
    def line(self) -> str:
        """The figures for people."""
        return (
            f"{self.complete_count:,} of {self.chunk_count:,} chunks of the snapshot are "
            f"complete, with {self.row_count:,} rows"
        )


def read_snapshot_figures(folder: Folder, name: str = FIRST_LOAD) -> SnapshotFigures | None:
    """Return the figures of the snapshot that is not published; ``None`` = there is none.

    Args:
        folder: The storage of the capture log.
        name: The file of its plan.

    Raises:
        OSError: The capture log cannot be read.
    """
    progress = SnapshotProgress(folder, name)
    plan = progress.plan()
    if plan is None:
        return None
    table_of = {chunk.number: chunk.table for chunk in plan.chunks}
    chunk_counts = Counter(table_of.values())
    complete_counts, row_counts = Counter[int](), Counter[int]()
    for chunk in progress.complete_chunks(plan):
        complete_counts[table_of[chunk.number]] += 1
        rows = sum(segment.record_count for segment in chunk.segments)
        row_counts[table_of[chunk.number]] += rows
    return SnapshotFigures(
        created_ms=plan.created_ms,
        chunk_count=chunk_counts.total(),
        complete_count=complete_counts.total(),
        row_count=row_counts.total(),
        tables=tuple(
            TableFigures(
                table=table.label,
                chunk_count=chunk_counts[index],
                complete_count=complete_counts[index],
                row_count=row_counts[index],
            )
            for index, table in enumerate(plan.tables)
        ),
    )
