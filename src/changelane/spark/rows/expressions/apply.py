# SPDX-License-Identifier: Apache-2.0
"""``filter`` and ``compute`` on a batch of event rows, before tables take them.

A filter makes deletes of events whose rows do not pass (:mod:`.filtering`), a compute writes into
images and schemas (:mod:`.computing`). What cannot be decided is set aside.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from changelane.spark.rows.expressions.compute import computed
from changelane.spark.rows.expressions.expression_rows import (
    Prepared,
    expression_rows_of,
    known_schemas,
    untold,
)
from changelane.spark.rows.expressions.filter import filtered
from changelane.transforms.filter_compute import Filter


@contextmanager
def expressed(events: DataFrame, steps: Sequence[Prepared]) -> Iterator[DataFrame]:
    """Give what filters and computes make of a batch of event rows.

    The batch is decoded once: it is kept as long as the result is used.

    Args:
        events: The event rows, with before images.
        steps: What is to be done, in this order.
    """
    if not steps:
        yield events
        return
    cached_events = events.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        schemas, expression_rows = known_schemas(cached_events), expression_rows_of(cached_events)
        for step in steps:
            if isinstance(step.step, Filter):
                expression_rows = filtered(expression_rows, schemas, step)
            else:
                expression_rows, schemas = computed(expression_rows, schemas, step)
        yield untold(expression_rows)
    finally:
        cached_events.unpersist()
