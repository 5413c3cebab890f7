# SPDX-License-Identifier: Apache-2.0
"""The note of a run, once, that its tables may have added repeated rows."""

from collections.abc import Callable

from changelane.spark.rows.batch_stats import BatchReport

OnBatch = Callable[[BatchReport], None]


def with_repeat_note(on_batch: OnBatch, notify: Callable[[str], None]) -> OnBatch:
    """Return a callback that also notifies the user of the first batch with possible duplicates.

    Args:
        on_batch: Called with each batch, too.
        notify: Shows a note to the user.
    """
    noted_tables: list[str] = []

    def on_batch_with_note(report: BatchReport) -> None:
        on_batch(report)
        counts = {table.table: table.possible_duplicates for table in report.tables}
        if noted_tables or not any(counts.values()):
            return
        noted_tables.append(table_name := max(counts, key=lambda name: counts[name]))
        notify(
            f"{counts[table_name]} new rows of {table_name} are possible duplicates: each equals "
            "another row at its position, and without numbers in the transaction one row that was "
            "sent twice looks like two rows; let the producer send the numbers (Debezium: "
            "provide.transaction.metadata: true); `changelane status` counts such rows"
        )

    return on_batch_with_note
