# SPDX-License-Identifier: Apache-2.0
"""The interface of a sink of messages on Spark: a module with ``check`` and ``open_sender``.

A sink's options name the module (``engine``). An installed package adds a sink with an entry point
of the group ``changelane.sinks``: the class of its options.
"""

import importlib
from collections.abc import Callable
from typing import Final, Protocol, cast

from pyspark.sql import DataFrame, SparkSession

from changelane.codec import get_codec
from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.interface import Sink, Source, TopicSink
from changelane.pipeline.topic_sink import OrderedSource, ordered_source_of
from changelane.spark.lake.interface import Marker
from changelane.spark.sinks.blocked_keys import MessageReader
from changelane.spark.sinks.report import DeliveryReport

Notify = Callable[[str], None]
"""Shows a note to the user."""

_PAIRED_FORMATS: Final = {"shareplex-json"}
"""Formats that may split updates, in addition to those whose capabilities include pairs."""


class Sender(Protocol):
    """Sends batches."""

    def send(
        self, rows: DataFrame, read: MessageReader, marker: Marker, *, is_lenient: bool = False
    ) -> DeliveryReport:
        """Send one batch; a repeated send repeats its messages, and quarantines nothing twice.

        Args:
            rows: Rows.
            read: Returns the messages of the rows.
            marker: The batch.
            is_lenient: Whether to continue after rejected messages, whatever the options say.

        Raises:
            BudgetError: A message is rejected, and the options set ``on_error: stop``.
        """
        ...


class SinkEngine(Protocol):
    """A module that writes messages to a sink."""

    def check(
        self, spark: SparkSession, pipeline: Pipeline, source: OrderedSource, notify: Notify
    ) -> None:
        """Check the destination at the start of a run.

        Raises:
            ConfigError: The destination does not exist, or does not accept the messages.
        """
        ...

    def open_sender(
        self, spark: SparkSession, pipeline: Pipeline, source: OrderedSource, notify: Notify
    ) -> Sender:
        """Return the sender of batches.

        Raises:
            ConfigError: The destination does not exist, or does not accept the messages.
        """
        ...


def engine_of(sink: Sink) -> SinkEngine:
    """Return the module that writes a sink."""
    return cast("SinkEngine", importlib.import_module(sink.engine))


def ends_of(pipeline: Pipeline) -> tuple[OrderedSource, TopicSink]:
    """Return the source and the sink of a pipeline into topics.

    Raises:
        ConfigError: The sink is a lake, or the source has no order.
    """
    if not pipeline.sink.is_topics:
        raise ConfigError("the sink is a lake, and not topics")
    sink = cast("TopicSink", pipeline.sink)
    return ordered_source_of(pipeline.source, pipeline.options, sink.type_name), sink


def sender_of(
    spark: SparkSession,
    pipeline: Pipeline,
    source: OrderedSource,
    notify: Notify = lambda _: None,
) -> Sender:
    """Return the sender of a pipeline's sink.

    Raises:
        ConfigError: The topic does not exist.
        DeliveryError: The service does not answer, or rejects the request.
    """
    return engine_of(pipeline.sink).open_sender(spark, pipeline, source, notify)


def check_order(
    spark: SparkSession,
    source: Source,
    sink: Sink,
    notify: Callable[[str], None],
) -> None:
    """Reject settings that break the order of messages; warn of updates split by a batch's end."""
    codec = get_codec(source.format, **source.format_options)
    if str(spark.conf.get("spark.speculation", "false")).lower() == "true":
        msg = "spark.speculation sends messages twice in parallel, out of order: turn it off"
        raise ConfigError(msg)
    if sink.blocks_keys and (codec.carries.pair or source.format in _PAIRED_FORMATS):
        msg = (
            f"{source.format} splits an update into two messages: other messages of the key would "
            "overtake one that waits for its other half, so block_keys_on_error cannot keep their "
            "order: turn it off"
        )
        raise ConfigError(msg)
    if codec.carries.pair:
        notify(
            f"{source.format} splits an update into two messages: if a batch ends between them, "
            "both are quarantined as `orphan_half`; this is rarer with larger batches"
        )
