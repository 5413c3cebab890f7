# SPDX-License-Identifier: Apache-2.0
"""The report of a verification, as a value and as lines of text."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

MAX_LISTED: Final = 100
"""The number of differences of a table that the text lists; the JSON has all."""

REPAIRED: Final = "repaired"
"""The result of a row that was repaired; other results say why it was not."""
Outcome = Literal["equal", "repaired", "different", "not proven", "not verified"]


class KeyDifference(msgspec.Struct, frozen=True):
    """A row that differs.

    Attributes:
        key: The canonical texts of the key columns, by name (``docs/verify.md``).
        kind: ``missing`` (the lake has no row), ``extra`` (the source has none), ``repeated`` (the
            lake has several rows) or ``columns``.
        columns: The different columns.
        repair: ``repaired``, or why the row was not repaired; empty = nothing was tried.
    """

    key: dict[str, str | None]
    kind: str
    columns: tuple[str, ...] = ()
    repair: str = ""


class ChunkReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a chunk: a range of keys.

    Attributes:
        number: Its number, in the order of the keys.
        last_key: The values of the columns that end the range; empty = it is the last chunk.
        row_count: The number of rows of the source.
        difference_count: The number of different rows. A row that changed during the first reading
            belongs to none.
        is_unsearched: It differs, but its rows were not searched: there were too many differences.
    """

    number: int
    last_key: dict[str, str] = {}
    row_count: int = 0
    difference_count: int = 0
    is_unsearched: bool = False


class TableReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one table.

    Attributes:
        table: The table at the source.
        outcome: ``equal``: all rows are proven; ``repaired``: all differences were repaired;
            ``not proven``: no difference is known, but some
            rows are not proven; ``not verified``: the table cannot be compared.
        reason: Why it cannot be compared, or why it differs as a whole.
        position: The position of the source's first snapshot; empty = the source is a lake.
        row_count: The number of rows of the source in it.
        chunks: The chunks with rows, in the order of their keys.
        reading_count: The number of readings.
        unproven_share: The share of rows about which nothing is proven.
        unproven_keys: Their keys.
        compared_columns: The compared columns.
        unproven_columns: Columns that are not compared, with the reasons.
        differences: The different rows.
        duration_s: The time that it took, seconds.
    """

    table: str
    outcome: Outcome
    reason: str = ""
    position: str = ""
    row_count: int = 0
    chunks: tuple[ChunkReport, ...] = ()
    reading_count: int = 0
    unproven_share: float = 0.0
    unproven_keys: tuple[dict[str, str | None], ...] = ()
    compared_columns: tuple[str, ...] = ()
    unproven_columns: dict[str, str] = {}
    differences: tuple[KeyDifference, ...] = ()
    duration_s: float = 0.0

    @property
    def unrepaired_count(self) -> int:
        """The number of differences that were not repaired."""
        return sum(difference.repair != REPAIRED for difference in self.differences)


class VerificationReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a verification.

    Attributes:
        pipeline: The name of the pipeline.
        tables: The results by table.
    """

    pipeline: str
    tables: tuple[TableReport, ...]

    @property
    def has_differences(self) -> bool:
        """Whether some table differs."""
        return any(table.outcome == "different" for table in self.tables)


def report_lines(report: VerificationReport) -> Iterator[str]:
    """Yield the lines of a report for people."""
    for table in report.tables:
        yield from _table_lines(table)


def _table_lines(report: TableReport) -> Iterator[str]:
    if report.reason:
        yield f"{report.table}: {report.outcome}: {report.reason}"
        return
    position = f" at {report.position}" if report.position else ""
    yield (
        f"{report.table}: {report.outcome}, {report.row_count:,} rows{position} in "
        f"{len(report.chunks):,} chunks, {100 * report.unproven_share:.2f} % not proven "
        f"({report.reading_count} readings, {report.duration_s:.1f} s)"
    )
    for name, reason in report.unproven_columns.items():
        yield f"  column {name} not proven: {reason}"
    if count := sum(chunk.is_unsearched for chunk in report.chunks):
        yield f"  {count:,} more chunks differ: too many differences to search their rows"
    kinds = Counter(difference.kind for difference in report.differences)
    if kinds:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
        yield f"  {len(report.differences):,} differences: {counts}"
    for difference in report.differences[:MAX_LISTED]:
        columns = f": {', '.join(difference.columns)}" if difference.columns else ""
        repair = f" ({difference.repair})" if difference.repair else ""
        yield f"  {difference.kind} {key_text(difference.key)}{columns}{repair}"
    if len(report.differences) > MAX_LISTED:
        yield f"  and {len(report.differences) - MAX_LISTED:,} more: --json FILE has all"


def key_text(key: Mapping[str, str | None]) -> str:
    """Return a key for people."""
    return ", ".join(f"{name}={value}" for name, value in key.items())
