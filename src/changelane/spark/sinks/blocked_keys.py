# SPDX-License-Identifier: Apache-2.0
"""The messages of a batch as they come to be delivered.

With ``hold_keys`` those wait of whose key an earlier message was set aside.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from changelane.conversion.partition import Coming
from changelane.spark.lake.interface import Lake, Marker
from changelane.spark.rows.decode import MESSAGE, message_rows, messages_of
from changelane.spark.state.replays import waiting

Read = Callable[[Iterable[pa.RecordBatch]], Iterator[Coming]]
"""Returns the messages that the rows of a task tell."""
KEY: Final = ("topic", "partition", "raw_key")
"""What entries have in common of which a later one waits for an earlier; the key may be NULL."""


class Incoming:
    """What comes of the batches of a pipeline.

    Args:
        lake: Where its quarantine lies.
        pipeline: Its name.
        holds: Whether later messages of a key wait.
    """

    def __init__(self, lake: Lake, pipeline: str, *, holds: bool) -> None:
        self._lake = lake
        self._pipeline = pipeline
        self._holds = holds
        self._is_empty = False

    def set_aside(self, count: int) -> None:
        """Remember that a batch set something aside; nothing else makes the first key wait."""
        self._is_empty &= not count

    @contextmanager
    def of(self, batch: DataFrame, marker: Marker) -> Iterator[tuple[DataFrame, Read]]:
        """Return the rows of a batch, and what reads them on the workers.

        The join with the keys that wait moves and sorts nothing: they are told to every task.

        Args:
            batch: Messages.
            marker: The batch. What it set aside itself before it was killed does not count: it
                comes again, in its order.
        """
        told = message_rows(batch)
        if not self._holds or self._is_empty:
            yield told, read_messages
            return
        held = waiting(self._lake, self._pipeline)
        keys = _keys(held, marker).persist()
        try:
            if not keys.limit(1).count():
                # what the batch set aside itself makes later ones wait, even if it now passes
                self._is_empty = not held.limit(1).count()
                yield told, read_messages
                return
            same = F.lit(True)
            for name, entry in zip(("topic", "partition", "key"), KEY, strict=True):
                same &= told[name].eqNullSafe(keys[f"held_{entry}"])
            beside = told.join(F.broadcast(keys), same, "left")
            yield beside.select(*told.columns, F.col("is_held").isNotNull()), _read_marked
        finally:
            keys.unpersist()


def _keys(held: DataFrame, marker: Marker) -> DataFrame:
    """Return the keys of entries that others than a batch set aside."""
    is_mine = (F.col("query") == marker.query) & (F.col("batch") == marker.batch)
    found = held.where(~F.coalesce(is_mine, F.lit(False)))
    keys = found.select(*(F.col(name).alias(f"held_{name}") for name in KEY)).distinct()
    return keys.withColumn("is_held", F.lit(True))


# -- on the workers


def read_messages(batches: Iterable[pa.RecordBatch]) -> Iterator[Coming]:
    """Return the messages of message rows."""
    return (Coming(message) for batch in batches for message in messages_of(batch))


def _read_marked(batches: Iterable[pa.RecordBatch]) -> Iterator[Coming]:
    for batch in batches:
        waits = batch.column(len(MESSAGE)).to_pylist()
        for message, one in zip(messages_of(batch), waits, strict=True):
            yield Coming(message, waits=one)
