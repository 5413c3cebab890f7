# SPDX-License-Identifier: Apache-2.0
"""``filter`` and ``compute`` on a batch of event rows, before tables apply them.

A filter turns events into deletes if their rows do not pass (:mod:`.filter`). A compute changes
images and schemas (:mod:`.compute`). An event that cannot be decided is quarantined.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame

from changelane.spark.rows.expressions.compute import computed_events
from changelane.spark.rows.expressions.expression_rows import (
    PreparedTransform,
    batch_schemas,
    with_originals,
    without_originals,
)
from changelane.spark.rows.expressions.filter import filtered_events
from changelane.spark.runtime.computed import computed_once
from changelane.transforms.filter_compute import Filter


@contextmanager
def apply_expressions(events: DataFrame, steps: Sequence[PreparedTransform]) -> Iterator[DataFrame]:
    """Yield a batch of event rows after its filters and computes.

    The batch is decoded once: its rows are kept until the context ends.

    Args:
        events: The event rows, with before images.
        steps: The filters and computes, in their order.
    """
    if not steps:
        yield events
        return
    with computed_once(events) as computed_rows:
        schemas, expression_rows = batch_schemas(computed_rows), with_originals(computed_rows)
        for step in steps:
            if isinstance(step.transform, Filter):
                expression_rows = filtered_events(expression_rows, schemas, step)
            else:
                expression_rows, schemas = computed_events(expression_rows, schemas, step)
        yield without_originals(expression_rows)
