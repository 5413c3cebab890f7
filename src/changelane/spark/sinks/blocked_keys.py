# SPDX-License-Identifier: Apache-2.0
"""The messages of a batch for a sink of topics, with a flag for blocked keys.

With ``block_keys_on_error``, a message is quarantined while an earlier message with the same key
is.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from changelane.conversion.partition import IncomingMessage
from changelane.spark.lake.interface import Lake, Marker
from changelane.spark.rows.decode import MESSAGE, message_rows, messages_of
from changelane.spark.runtime.computed import computed_once
from changelane.spark.state import quarantine
from changelane.spark.state.replays import pending_entries

MessageReader = Callable[[Iterable[pa.RecordBatch]], Iterator[IncomingMessage]]
"""Returns the messages of the rows of a task."""
KEY_COLUMNS: Final = ("topic", "partition", "raw_key")
"""The columns that identify a key within a partition; the key may be NULL."""


class BlockedKeys:
    """The keys of a pipeline that are blocked by a quarantined message.

    Args:
        lake: The lake with the quarantine.
        pipeline: The pipeline's name.
        is_enabled: Whether a quarantined message blocks its key (``block_keys_on_error``).
    """

    def __init__(self, lake: Lake, pipeline: str, *, is_enabled: bool) -> None:
        self._lake = lake
        self._pipeline = pipeline
        self._is_enabled = is_enabled
        self._is_quarantine_empty = is_enabled and not lake.exists(quarantine.NAME)

    def record_rejected(self, count: int) -> None:
        """Record the number of entries that a batch quarantined; the first one blocks a key."""
        self._is_quarantine_empty &= not count

    @contextmanager
    def open_batch(
        self, batch: DataFrame, marker: Marker
    ) -> Iterator[tuple[DataFrame, MessageReader]]:
        """Yield the rows of a batch, and the function that reads them on the workers.

        The join with the blocked keys is a broadcast: it neither shuffles nor sorts the messages.

        Args:
            batch: Messages.
            marker: The batch. Entries that it quarantined itself before it was killed do not
                block: it is processed again, in its order.
        """
        messages = message_rows(batch)
        if not self._is_enabled or self._is_quarantine_empty:
            yield messages, read_messages
            return
        waiting_entries = pending_entries(self._lake, self._pipeline)
        with computed_once(_blocked_keys(waiting_entries, marker)) as keys:
            if not keys.limit(1).count():
                # entries of this batch block keys of later batches, even if their messages pass now
                self._is_quarantine_empty = not waiting_entries.limit(1).count()
                yield messages, read_messages
                return
            is_same_key = F.lit(True)
            for name, entry in zip(("topic", "partition", "key"), KEY_COLUMNS, strict=True):
                is_same_key &= messages[name].eqNullSafe(keys[f"held_{entry}"])
            flagged_rows = messages.join(F.broadcast(keys), is_same_key, "left")
            yield (
                flagged_rows.select(*messages.columns, F.col("is_held").isNotNull()),
                _read_flagged,
            )


def _blocked_keys(rows: DataFrame, marker: Marker) -> DataFrame:
    """Return the keys of the entries that other batches quarantined."""
    is_of_batch = (F.col("query") == marker.query) & (F.col("batch") == marker.batch)
    waiting_rows = rows.where(~F.coalesce(is_of_batch, F.lit(False)))
    keys = waiting_rows.select(
        *(F.col(name).alias(f"held_{name}") for name in KEY_COLUMNS)
    ).distinct()
    return keys.withColumn("is_held", F.lit(True))


# -- on the workers


def read_messages(batches: Iterable[pa.RecordBatch]) -> Iterator[IncomingMessage]:
    """Return the messages of message rows."""
    return (message for batch in batches for message in map(IncomingMessage, messages_of(batch)))


def _read_flagged(batches: Iterable[pa.RecordBatch]) -> Iterator[IncomingMessage]:
    for batch in batches:
        flags = batch.column(len(MESSAGE)).to_pylist()
        for message, is_blocked in zip(messages_of(batch), flags, strict=True):
            yield IncomingMessage(message, is_blocked=is_blocked)
