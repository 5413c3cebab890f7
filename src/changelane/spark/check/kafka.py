# SPDX-License-Identifier: Apache-2.0
"""The Kafka part of ``changelane check``: findings about topics; it writes nothing."""

from collections.abc import Generator, Iterator, Mapping
from typing import Final, NamedTuple, cast

from pyspark.sql import SparkSession

from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.config_checks import Finding, ok, problem, warning
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.kafka_offsets import Offsets, partitions
from changelane.pipeline.kafka_sink import KafkaSink
from changelane.pipeline.kafka_source import KafkaSource, client_options
from changelane.pipeline.topic_sink import OrderedSource
from changelane.profiles.profile import changed_partitions
from changelane.spark.check import dry_run
from changelane.spark.check.findings import (
    MAX_SHOWN,
    SampleFindings,
    SourceSample,
    checkpoint_findings,
    error_finding,
)
from changelane.spark.sinks.interface import check_order, ends_of
from changelane.spark.sinks.kafka import check_topics
from changelane.spark.sinks.partition_counts import TopicCounts
from changelane.spark.sources.interface import input_of
from changelane.spark.sources.kafka import check_starts
from changelane.spark.sources.kafka_admin import Topic, topic_admin
from changelane.spark.sources.sample import MAX_MESSAGES, sample_topics

TIMEOUT_MS: Final = 10_000
"""The timeout of requests to a broker, milliseconds."""
SAMPLE_TIMEOUT_S: Final = 30.0
"""The timeout of the sample of messages, seconds."""


class _BrokerOffsets(NamedTuple):
    """The topics of a broker, with the first and the end offset of each partition."""

    topics: Mapping[str, Topic]
    earliest: Offsets
    latest: Offsets


def source_findings(spark: SparkSession, pipeline: Pipeline) -> SampleFindings:
    """Yield the findings of topics and the checkpoint; return the sample of their messages."""
    source = cast("KafkaSource | DatabaseSource", pipeline.source).topic_source
    options = client_options(source.spark_options)
    try:
        with topic_admin(spark, source.bootstrap_servers, options, timeout_ms=TIMEOUT_MS) as broker:
            if source.topic_pattern is None:
                names = list(source.names)
            else:
                names = broker.matching_names(source.topic_pattern)
            topics = broker.describe(names)
            broker_offsets = _BrokerOffsets(topics, broker.earliest(topics), broker.latest(topics))
            operations_by_topic = broker.allowed_operations(topics)
            broker_topics = broker.names()
    except ConfigError as error:
        yield error_finding("source", error)
        return None
    yield ok("source", f"the broker at {source.bootstrap_servers} answers")
    if missing := [name for name in names if name not in topics]:
        text = f"there is no topic {', '.join(missing)} at {source.bootstrap_servers}"
        yield problem("source.topics", text, "create it, or change source.topics")
        return None
    if not topics:
        fix = "a run reads matching topics once they exist"
        yield warning("source.topic_pattern", "no topic matches it", fix)
    forbidden = [
        name for name, operations in operations_by_topic.items() if not {"READ", "ALL"} & operations
    ]
    if forbidden:
        text = f"the user is not permitted to read {', '.join(forbidden)}"
        yield problem("source", text, "grant READ on it")
        return None
    starts = yield from _start_offsets(spark, pipeline, source, broker_offsets)
    if starts is None:
        return None
    for name in sorted(topics)[:MAX_SHOWN]:
        waiting = sum(
            max(0, end - starts[name][number])
            for number, end in broker_offsets.latest[name].items()
        )
        partition_count = len(topics[name].partitions)
        yield ok(
            f"topic {name}", f"{partition_count} partitions; {waiting:,} messages would be read"
        )
    if (unnamed_count := len(topics) - MAX_SHOWN) > 0:
        yield ok("source", f"and {unnamed_count} more topics")
    window = _sample_window(starts, broker_offsets, sorted(topics)[:MAX_SHOWN])
    try:
        return SourceSample(
            sample_topics(spark, source, *window, SAMPLE_TIMEOUT_S), topics.keys(), broker_topics
        )
    except ConfigError as error:
        yield problem("source", str(error))
        return None


def _start_offsets(
    spark: SparkSession, pipeline: Pipeline, source: KafkaSource, broker_offsets: _BrokerOffsets
) -> Generator[Finding, None, Offsets | None]:
    """Return the offsets at which a run would start; ``None`` = it would not start."""
    start_offsets = source.starts
    try:
        if not isinstance(start_offsets, str):
            check_starts(start_offsets, broker_offsets.topics)
        state = yield from checkpoint_findings(
            spark,
            pipeline,
            lambda checkpoint, log: input_of(spark, pipeline, checkpoint).check(log),
        )
    except ConfigError as error:
        yield problem("source", str(error))
        return None
    if state is not None:
        start_offsets = state
    elif isinstance(start_offsets, dict) and (
        unavailable := _unavailable_offsets(start_offsets, broker_offsets)
    ):
        yield problem("source.starting_offsets", unavailable, "use offsets in this range")
        return None
    starts: Offsets = {}
    for name, topic in broker_offsets.topics.items():
        for number in topic.partitions:
            first = broker_offsets.earliest[name][number]
            if start_offsets == "latest":
                first = broker_offsets.latest[name][number]
            elif not isinstance(start_offsets, str):
                first = start_offsets.get(name, {}).get(number, first)
            starts.setdefault(name, {})[number] = first
    return starts


def _unavailable_offsets(offsets: Offsets, broker_offsets: _BrokerOffsets) -> str:
    """Return as text the start offsets that the broker does not have; empty = none."""
    return "; ".join(
        f"{topic}-{number} has the offsets {broker_offsets.earliest[topic][number]} "
        f"to {broker_offsets.latest[topic][number]}, and not {offset}"
        for topic, number, offset in partitions(offsets)
        if not broker_offsets.earliest[topic][number]
        <= offset
        <= broker_offsets.latest[topic][number]
    )


def _sample_window(
    starts: Offsets, broker_offsets: _BrokerOffsets, names: list[str]
) -> tuple[Offsets, Offsets]:
    """Return the offsets of the sample: after the start, or the last ones before it."""
    offsets: Offsets = {}
    for name in names:
        earliest, latest = broker_offsets.earliest[name], broker_offsets.latest[name]
        begin = {number: max(start, earliest[number]) for number, start in starts[name].items()}
        if all(start >= latest[number] for number, start in begin.items()):
            begin = {
                number: max(earliest[number], latest[number] - MAX_MESSAGES) for number in begin
            }
        offsets[name] = begin
    return offsets, {name: broker_offsets.latest[name] for name in names}


def sink_findings(
    spark: SparkSession, pipeline: Pipeline, sample: SourceSample
) -> Iterator[Finding]:
    """Yield the findings of the sink's topics, and of the messages that it would get."""
    source, _ = ends_of(pipeline)
    sink = cast("KafkaSink", pipeline.sink)
    counts = yield from _sink_counts(spark, pipeline, source, sink)
    if counts is not None:
        yield from dry_run.delivery_findings(source, sink, counts, pipeline, sample.messages)


def _sink_counts(
    spark: SparkSession, pipeline: Pipeline, source: OrderedSource, sink: KafkaSink
) -> Generator[Finding, None, dict[str, int] | None]:
    """Yield the findings of the sink's topics; return the partition count of each topic."""
    try:
        options = client_options(sink.spark_options)
        with topic_admin(spark, sink.bootstrap_servers, options, timeout_ms=TIMEOUT_MS) as broker:
            topics = broker.describe(broker.names())
            operations_by_topic = broker.allowed_operations(
                [sink.topic] if sink.topic in topics else []
            )
    except ConfigError as error:
        yield error_finding("sink", error)
        return None
    counts = {name: len(topic.partitions) for name, topic in topics.items()}
    text = f"the broker at {sink.bootstrap_servers} answers"
    if sink.topic in counts:
        text += f"; topic {sink.topic} has {counts[sink.topic]} partitions"
    yield ok("sink", text)
    notes: list[str] = []
    try:
        check_order(spark, source, sink, notes.append)
        check_topics(spark, source, sink)
    except ConfigError as error:
        yield error_finding("sink", error)
        return None
    if any(not {"WRITE", "ALL"} & operations for operations in operations_by_topic.values()):
        text = f"the user is not permitted to write {sink.topic}"
        yield problem("sink", text, "grant WRITE on it")
        return None
    for name, previous_count in TopicCounts(
        spark, pipeline.folder, pipeline.name
    ).partition_counts.items():
        if change := changed_partitions(name, previous_count, counts.get(name, previous_count)):
            notes.append(change)
    for note in notes:
        yield warning("sink", note)
    return counts
