# SPDX-License-Identifier: Apache-2.0
"""Frames whose rows are stored while several steps read them.

A persisted frame is not always computed once. When a table is written, Spark drops the persisted
rows of all plans that read it, and computes them again from the table as it is then. It does so,
too, when another process has written an Iceberg table. What was decided about a batch before its
first commit must not be decided again after it, a batch must not get other rows meanwhile, and
messages must not be sent again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import StorageLevel
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
    """Yield a computed frame, and release it at the end of the ``with`` block.

    A frame that is computed already stays so. One that is only persisted is computed.
    """
    if _is_computed(frame):
        yield frame
        return
    computed_frame = computed(frame)
    try:
        yield computed_frame
    finally:
        release(computed_frame)


@contextmanager
def persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """Yield a frame with persisted rows, and drop them at the end of the ``with`` block.

    Spark knows the size of a persisted frame after its first action, and chooses joins by it. Of a
    computed frame it knows the estimate of its plan, which is a few bytes where tasks in Python
    read the rows: it would send any number of them to the driver for a broadcast.

    Frames that are persisted or computed already stay so: Spark drops persisted rows by their plan,
    whoever persisted it.
    """
    if frame.storageLevel != StorageLevel.NONE or _is_computed(frame):
        yield frame
        return
    persisted_frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield persisted_frame
    finally:
        persisted_frame.unpersist()


def _is_computed(frame: DataFrame) -> bool:
    plan: Any = frame._jdf.queryExecution().analyzed()
    return plan.nodeName() == "LogicalRDD" and bool(plan.rdd().getStorageLevel().useDisk())
