# SPDX-License-Identifier: Apache-2.0
"""Lets the tables of a batch fail alone."""

from collections.abc import Iterator
from contextlib import contextmanager

from changelane.spark.rows.batch_stats import BatchReport, TableBatch, TableReport
from changelane.spark.rows.schema import table_id_of
from changelane.spark.runtime.redact import FAILURES, reason_of


class Isolation:
    """Lets a table fail alone, where that is wanted.

    Attributes:
        failed: The tables that failed, by ``table_id``; the report says why.
    """

    def __init__(self, report: BatchReport, *, isolated: bool) -> None:
        self.failed: set[str] = set()
        self._report = report
        self._isolated = isolated

    @contextmanager
    def of(self, work: TableBatch) -> Iterator[None]:
        """Hold the error of a statement that concerns one table."""
        try:
            yield
        except FAILURES as error:
            if not self._isolated:
                raise
            self.failed.add(work.table_id)
            # its events may have come under several names
            for source_name in work.source_names:
                report = TableReport(
                    str(table_id_of(source_name)), "", 0, reason_of(error), source_name
                )
                self._report.tables.append(report)
