"""The report of a replay into tables."""

from changelane.spark.replay.to_tables import applied_events
from changelane.spark.rows.batch_stats import APPLIED_BEFORE, BatchReport, TableReport


def test_only_tables_that_applied_their_events_are_listed() -> None:
    tables = [
        TableReport("orders", "/lake/orders", 2),
        TableReport("wide", "", 3, "schema_change: a column"),  # it rejected all of them again
        TableReport("broken", "", 0, "no space", "broken"),
        TableReport("facts", "/lake/facts", 0, APPLIED_BEFORE, applied_before=4),
    ]
    assert applied_events(BatchReport(1, tables=tables)) == {"orders": 2, "facts": 4}
