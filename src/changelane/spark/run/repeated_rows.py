# SPDX-License-Identifier: Apache-2.0
"""What a run says, once, of rows that its tables added and may hold already."""

from collections.abc import Callable

from changelane.spark.rows.batch_stats import BatchReport

Progress = Callable[[BatchReport], None]


def with_repeat_note(progress: Progress, say: Callable[[str], None]) -> Progress:
    """Return what is told of each batch, and says so at the first one that has such rows.

    Args:
        progress: Told of each batch, too.
        say: Told what people should know.
    """
    said: list[str] = []

    def took(report: BatchReport) -> None:
        progress(report)
        counts = {one.table: one.possible_duplicates for one in report.tables}
        if said or not any(counts.values()):
            return
        said.append(most := max(counts, key=lambda name: counts[name]))
        say(
            f"{counts[most]} rows that {most} took are possible duplicates: they equal others at "
            "one position, and no number in the transaction tells whether their producer sent one "
            "row twice, or two rows; let it send the number (Debezium: "
            "provide.transaction.metadata: true); `changelane status` counts them"
        )

    return took
