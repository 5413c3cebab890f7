# SPDX-License-Identifier: Apache-2.0
"""Frames that are computed once, whatever is written after that.

A persisted frame is not: when a table is written, Spark drops the persisted rows of all plans that
read it, and computes them again from the table as it is then. What was decided about a batch before
its first commit must not be decided again after it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame


def computed(frame: DataFrame) -> DataFrame:
    """Return a frame with the rows of another one, which its first action computes.

    They are kept in memory, and on the disk beyond it, until :func:`release`. MERGE of Delta
    accepts such a source without a copy of its own.
    """
    return frame.localCheckpoint(eager=False)


def release(frame: DataFrame) -> None:
    """Free the rows of a frame that :func:`computed` returned."""
    frame._jdf.queryExecution().analyzed().rdd().unpersist(False)


@contextmanager
def computed_once(frame: DataFrame) -> Iterator[DataFrame]:
    """Yield a computed frame, and release it at the end of the ``with`` block."""
    computed_frame = computed(frame)
    try:
        yield computed_frame
    finally:
        release(computed_frame)
