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
from changelane.spark.rows.expressions.expression_rows import Prepared, known_schemas, told, untold
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
    kept = events.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        known, made = known_schemas(kept), told(kept)
        for one in steps:
            if isinstance(one.step, Filter):
                made = filtered(made, known, one)
            else:
                made, known = computed(made, known, one)
        yield untold(made)
    finally:
        kept.unpersist()
