# SPDX-License-Identifier: Apache-2.0
"""``apply_changes`` for any DataFrame of event rows, inside or outside a stream."""

import uuid

from pyspark.sql import DataFrame

from changelane.spark.applier import Applier
from changelane.spark.lake import Marker
from changelane.spark.survey import BatchReport


def apply_changes(
    events: DataFrame,
    path: str,
    *,
    table_format: str = "delta",
    name: str = "apply_changes",
    query: str | None = None,
    batch: int = 0,
    keyless: str = "quarantine",
    sources: str = "one",
) -> BatchReport:
    """Apply event rows (of :func:`changelane.spark.decode`) to tables, one per source table.

    Applying the same events again, in any order and in any parts, changes nothing.

    Args:
        events: Event rows; in ``foreachBatch``, those of the batch.
        path: The folder of the tables.
        table_format: ``delta`` or ``iceberg``.
        name: The stream's name, as it stands in the tables' commits.
        query: Names the stream's history, such as its checkpoint; batches of one query count up,
            and one that a table holds already is skipped. Without it the call stands alone.
        batch: The number of the batch in that query.
        keyless: What happens to tables without a key: ``quarantine``, or ``append``, which is
            exactly once by the marker only: events that come again in another batch are appended
            again.
        sources: ``one`` server feeds a table, and events of another are set aside; ``many`` may,
            whose keys never meet.
    """
    applier = Applier(
        events.sparkSession, path, table_format=table_format, keyless=keyless, sources=sources
    )
    return applier.apply(events, Marker(name, query or uuid.uuid4().hex, batch))
