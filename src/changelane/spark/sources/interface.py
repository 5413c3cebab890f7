# SPDX-License-Identifier: Apache-2.0
"""The interface of a source on Spark: a module with ``open_input``.

A source's options name the module (``engine``). An installed package adds a source with an entry
point of the group ``changelane.sources``: the class of its options.
"""

import importlib
from collections.abc import Callable
from typing import Any, Protocol, cast

from pyspark.sql import DataFrame, SparkSession

from changelane.pipeline.config import Pipeline
from changelane.pipeline.kafka_offsets import Lag
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.state.offset_log import ApplyBatch, BatchOffsets, OffsetLogEntry

Notify = Callable[[str], None]
"""Shows a note to the user."""


class Input(Protocol):
    """The input of a pipeline, in batches.

    A batch is a DataFrame of messages. Inputs that Spark's sources cannot read exactly once have
    a type of batch of their own (:class:`~changelane.spark.sources.batch_stream.BatchedInput`).
    """

    def verify(self) -> None:
        """Check that the source exists, before anything is written.

        Raises:
            ConfigError: It does not, or does not answer.
        """
        ...

    def stream(self) -> DataFrame:
        """Return the messages as a stream."""
        ...

    def events(self, batch: Any, pipeline: Pipeline, *, is_small: bool) -> DataFrame:
        """Return the event rows of a batch; a small one is read by one task."""
        ...

    def without_applied(self, batch: Any, query: str) -> Any:
        """Return a batch without what an earlier batch of the same checkpoint contained."""
        ...

    def offsets_of(self, number: int, batch: Any) -> BatchOffsets:
        """Return the offsets of a batch."""
        ...

    def commit_details(self, batch_offsets: BatchOffsets) -> dict[str, object]:
        """Return the source and its offsets, for the metadata of a batch's commits."""
        ...

    def message_count(self, batch_offsets: BatchOffsets) -> int | None:
        """Return the number of messages of a batch; ``None`` = unknown."""
        ...

    def lag(self, batch_offsets: BatchOffsets) -> Lag | None:
        """Return the number of messages after a batch; ``None`` = unknown."""
        ...

    def check(self, entries: list[OffsetLogEntry]) -> None:
        """Check that the messages after the checkpoint still exist.

        Raises:
            ConfigError: Some do not.
        """
        ...

    def resume(
        self, entries: list[OffsetLogEntry], apply_batch: ApplyBatch, *, allow_data_loss: bool
    ) -> BatchOffsets | None:
        """Complete the batches of a lost checkpoint; return the offsets to continue from.

        Raises:
            ConfigError: Messages of these batches do not exist any more.
        """
        ...


class OrderedInput(Input, Protocol):
    """An input whose messages can be sent in their order."""

    def messages(self, batch: Any) -> DataFrame:
        """Return the messages of a batch; one task has all of a partition, in their order."""
        ...


class SourceEngine(Protocol):
    """A module that reads a source."""

    def open_input(
        self, spark: SparkSession, pipeline: Pipeline, checkpoint: Checkpoint, notify: Notify
    ) -> Input:
        """Return the input of a pipeline."""
        ...


def input_of(
    spark: SparkSession,
    pipeline: Pipeline,
    checkpoint: Checkpoint,
    notify: Notify = lambda _: None,
) -> Input:
    """Return the input of a pipeline."""
    engine = cast("SourceEngine", importlib.import_module(pipeline.source.engine))
    return engine.open_input(spark, pipeline, checkpoint, notify)
