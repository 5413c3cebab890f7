# SPDX-License-Identifier: Apache-2.0
"""Isolates the failure of one table from the other tables of a batch."""

from collections.abc import Iterator
from contextlib import contextmanager

from changelane.spark.rows.batch_stats import BatchReport, TableBatch, TableReport
from changelane.spark.rows.schema import table_id_of
from changelane.spark.runtime.disk_space import is_full_disk
from changelane.spark.runtime.redact import FAILURES, reason_of


class Isolation:
    """Collects the tables of a batch that fail.

    Args:
        report: The report of the batch, which gets the errors.
        isolated: Whether the other tables go on; without, the first error ends the batch.

    Attributes:
        failed: The ids of the tables that failed.
    """

    def __init__(self, report: BatchReport, *, isolated: bool) -> None:
        self.report = report
        self.failed: set[str] = set()
        self._isolated = isolated

    @contextmanager
    def of(self, table_batch: TableBatch) -> Iterator[None]:
        """Catch an error of statements that concern one table."""
        try:
            yield
        except FAILURES as error:
            if not self._isolated or is_full_disk(error):
                raise  # the other tables have no space, either
            self.failed.add(table_batch.table_id)
            # events of the table may use several names
            for source_name in table_batch.source_names:
                report = TableReport(
                    str(table_id_of(source_name)), "", 0, reason_of(error), source_name
                )
                self.report.tables.append(report)
