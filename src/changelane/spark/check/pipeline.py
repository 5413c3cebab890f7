# SPDX-License-Identifier: Apache-2.0
"""``changelane check``: whether a pipeline would run, with a request to each of its systems.

It only reads, and creates no topic, no folder, no checkpoint and no table.
"""

import os
from collections.abc import Collection, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from changelane.errors import ConfigError, UnreachableError
from changelane.message import Message
from changelane.pipeline import connector_settings
from changelane.pipeline.config import Pipeline, Source
from changelane.pipeline.config_checks import Finding, ok, problem, warning
from changelane.pipeline.datahub_sink import DataHubSink
from changelane.pipeline.datahub_source import DataHubSource
from changelane.pipeline.files_source import FilesSource
from changelane.pipeline.kafka_offsets import Offsets, partitions
from changelane.pipeline.kafka_sink import KafkaSink
from changelane.pipeline.kafka_source import KafkaSource, client_options
from changelane.profiles.profile import changed_partitions
from changelane.spark.check import datahub, dry_run
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import Lake, file_system
from changelane.spark.rows.expressions.expression_rows import prepared_transforms
from changelane.spark.sinks.interface import check_order, ends_of, engine_of
from changelane.spark.sinks.kafka import check_topics
from changelane.spark.sinks.partition_counts import TopicCounts
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.sources.kafka import KafkaInput, check_starts, data_loss_hint
from changelane.spark.sources.kafka_admin import Topic, topic_admin
from changelane.spark.sources.sample import (
    MAX_FILES,
    MAX_MESSAGES,
    Samples,
    sample_files,
    sample_topics,
)
from changelane.spark.state.offset_log import OffsetLog, lost_checkpoint_warning

TIMEOUT_MS: Final = 10_000
"""The timeout of requests to a broker, milliseconds."""
SAMPLE_TIMEOUT_S: Final = 30.0
"""The timeout of the sample of messages, seconds."""
MAX_SHOWN: Final = 20
"""The maximum number of topics that are listed and sampled."""


class _Sample(NamedTuple):
    """The sample of a source.

    Attributes:
        messages: The messages.
        read_topics: The topics that the pipeline reads.
        broker_topics: All topics of the broker; ``None`` = the source is not Kafka.
    """

    messages: Samples
    read_topics: Collection[str] = ()
    broker_topics: Collection[str] | None = None


_NO_SAMPLE: Final = _Sample({})
SampleFindings = Generator[Finding, None, _Sample | None]


class _BrokerOffsets(NamedTuple):
    """The topics of a broker, with the first and the end offset of each partition."""

    topics: Mapping[str, Topic]
    earliest: Offsets
    latest: Offsets


def check(spark: SparkSession, pipeline: Pipeline) -> Iterator[Finding]:
    """Yield the findings of a pipeline with a valid configuration.

    Args:
        spark: The session.
        pipeline: The pipeline.
    """
    source, sink = pipeline.source, pipeline.sink
    format_options: dict[str, Any] = {}
    sample: _Sample | None
    if isinstance(source, FilesSource):
        sample = yield from _check_files(spark, source)
        yield from _check_checkpoint(spark, pipeline)
    elif isinstance(source, DataHubSource):
        position = yield from _check_checkpoint(spark, pipeline)
        topic_sample = yield from datahub.source_findings(source, position)
        samples, format_options = topic_sample or ({}, {})
        sample = _Sample(samples)
    else:
        sample = yield from _check_topics(spark, pipeline, source)
    sample = sample or _NO_SAMPLE
    if isinstance(sink, KafkaSink):
        assert isinstance(source, KafkaSource)  # noqa: S101 - the config rejects other sources
        counts = yield from _check_sink_topics(spark, pipeline, source, sink)
        if counts is not None:
            yield from dry_run.delivery_findings(source, sink, counts, pipeline, sample.messages)
        yield from _connector_findings(source, sample)
        return
    if isinstance(sink, DataHubSink):
        yield from datahub.sink_findings(sink)
        yield from _connector_findings(source, sample)
        return
    if sink.is_topics:
        yield from topic_findings(spark, pipeline)
        yield from _connector_findings(source, sample)
        return
    yield from _expression_findings(spark, pipeline)
    yield from _property_findings(spark, pipeline)
    lake = yield from _check_tables(spark, pipeline)
    tables = dry_run.TableDryRun(pipeline)
    yield from tables.read(sample.messages, format_options)
    yield from tables.tables(lake)
    yield from _connector_findings(source, sample)


def topic_findings(spark: SparkSession, pipeline: Pipeline) -> Iterator[Finding]:
    """Yield the findings of a sink of topics that an installed package adds."""
    notes: list[str] = []
    try:
        source, sink = ends_of(pipeline)
        check_order(spark, source, sink, notes.append)
        engine_of(sink).check(spark, pipeline, source, notes.append)
    except ConfigError as error:
        yield _error_finding("sink", error)
        return
    yield ok("sink", f"{sink.label}: the destination answers")
    yield from (warning("sink", note) for note in notes)


def _connector_findings(source: Source, sample: _Sample) -> Iterator[Finding]:
    """Yield the settings of the source's connector that omit information."""
    messages = (message for topic in sample.messages.values() for message in topic)
    yield from connector_settings.findings(
        source.format,
        (message for message in messages if isinstance(message, Message)),
        format_options=source.format_options,
        read_topics=sample.read_topics,
        topics=sample.broker_topics,
    )


def _expression_findings(spark: SparkSession, pipeline: Pipeline) -> Iterator[Finding]:
    """Yield the columns of filters and computes; their types are known when events come."""
    try:
        prepared_expressions = prepared_transforms(
            spark, pipeline.expressions, len(pipeline.pure_steps) + 1
        )
    except ConfigError as error:
        yield problem("transforms", str(error))
        return
    for expression in prepared_expressions:
        text = (
            f"{expression.where} reads {', '.join(expression.reads)}; "
            "the first messages go without it here"
        )
        yield ok("transforms", text)


def _property_findings(spark: SparkSession, pipeline: Pipeline) -> Iterator[Finding]:
    """Yield the table properties whose values Delta rejects."""
    options = pipeline.options
    properties_by_section = {"options": options.properties}
    properties_by_section |= {
        f"options.tables.{name}": table.properties for name, table in options.tables.items()
    }
    if pipeline.table_format != "delta" or not any(properties_by_section.values()):
        return
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    error_class = loader.loadClass("org.apache.spark.sql.delta.DeltaConfigs$")
    validator = error_class.getField("MODULE$").get(None)
    for section, properties in properties_by_section.items():
        for name, value in properties.items():
            property_map = jvm.java.util.HashMap()
            property_map.put(name, value)
            try:
                validator.validateConfigurations(jvm.PythonUtils.toScalaMap(property_map))
            except Exception:  # noqa: BLE001 - of many kinds, and their text quotes the value
                text = f"Delta does not take the value of {name}"
                yield problem(f"{section}.properties", text, "see Delta's table properties")


def _error_finding(about: str, error: ConfigError) -> Finding:
    is_unreachable = isinstance(error, UnreachableError)
    fix = (
        "see source.bootstrap_servers or sink.bootstrap_servers, the network, and security.protocol"
    )
    return problem(about, str(error), fix if is_unreachable else "", is_unreachable=is_unreachable)


# -- source


def _check_files(spark: SparkSession, source: FilesSource) -> SampleFindings:
    try:
        sample, messages = sample_files(spark, source)
    except ConfigError as error:
        yield problem("source", str(error), "see source.path")
        return None
    if sample.outside:
        text = (
            f"{len(sample.outside)} symbolic links have targets outside of {source.path} and are "
        )
        text += f"skipped, such as {min(sample.outside)}"
        yield warning("source", text, "set source.follow_links: true, or copy the targets")
    for path, reason in sorted(sample.unlisted.items())[:MAX_SHOWN]:
        yield warning("source", f"{path} is skipped: {reason}")
    if not (count := len(sample.files)):
        text = f"no file in {source.path} is one of {source.glob}"
        yield warning("source", text, "see source.glob, or wait for files")
        return None
    suffix = f"; the first {MAX_FILES} of them are looked into" if count > MAX_FILES else ""
    yield ok("source", f"{count} files in {source.path}{suffix}")
    return _Sample(messages)


def _check_topics(spark: SparkSession, pipeline: Pipeline, source: KafkaSource) -> SampleFindings:
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
        yield _error_finding("source", error)
        return None
    yield ok("source", f"the broker at {source.bootstrap_servers} answers")
    if missing := [name for name in names if name not in topics]:
        text = f"there is no topic {', '.join(missing)} at {source.bootstrap_servers}"
        yield problem("source.topics", text, "create it, or name another")
        return None
    if not topics:
        yield warning("source.topic_pattern", "no topic matches it", "topics that come are taken")
    forbidden = [
        name for name, operations in operations_by_topic.items() if not {"READ", "ALL"} & operations
    ]
    if forbidden:
        text = f"we may not read {', '.join(forbidden)}"
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
        return _Sample(
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
        state = yield from _check_checkpoint(spark, pipeline)
    except ConfigError as error:
        yield problem("source", str(error))
        return None
    if state is not None:
        start_offsets = state
    elif isinstance(start_offsets, dict) and (
        unavailable := _unavailable_offsets(start_offsets, broker_offsets)
    ):
        yield problem("source.starting_offsets", unavailable, "name offsets that are there")
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
        f"{topic}-{number} holds {broker_offsets.earliest[topic][number]} "
        f"to {broker_offsets.latest[topic][number]}, "
        f"and not {offset}"
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


# -- checkpoint


def _check_checkpoint(
    spark: SparkSession, pipeline: Pipeline
) -> Generator[Finding, None, Offsets | None]:
    """Yield where a run would continue; return the offsets after the messages it read, if any.

    Raises:
        ConfigError: The broker has deleted messages that were not read yet.
    """
    path = pipeline.checkpoint
    try:
        checkpoint = Checkpoint(spark, path)
        log = OffsetLog(spark, pipeline.folder, pipeline.name).read()
        is_checkpoint_known = checkpoint.is_created
    except Py4JJavaError as error:
        error_class = error.java_exception.getClass().getSimpleName()
        yield problem("checkpoint", f"{path} cannot be read ({error_class})")
        return None
    source = pipeline.source
    if is_checkpoint_known:
        if not isinstance(source, KafkaSource):
            yield ok("checkpoint", f"a run goes on behind what {path} has read")
            return (checkpoint.position() or None) if isinstance(source, DataHubSource) else None
        KafkaInput(spark, source, checkpoint, data_loss_hint(pipeline)).check(log)
        yield ok("checkpoint", f"a run goes on at the offsets of {path}")
        return checkpoint.position() or None
    if log:
        if pipeline.sink.is_topics:
            yield warning("checkpoint", f"{path} is gone: messages would be sent again")
        else:
            try:
                yield warning(
                    "checkpoint", lost_checkpoint_warning(path, pipeline.options.tables_without_key)
                )
            except ConfigError as error:
                yield problem("checkpoint", str(error))
        return None
    yield from _folder_findings(spark, "checkpoint", path)
    start_text = ""
    if isinstance(source, KafkaSource):
        start_offsets = source.starting_offsets
        origin = start_offsets if isinstance(start_offsets, str) else "source.starting_offsets"
        start_text = f", and begin at {origin}"
    yield ok("checkpoint", f"a run would make {path}{start_text}")
    return None


def _folder_findings(spark: SparkSession, about: str, folder: str) -> Iterator[Finding]:
    """Yield a problem when a folder, or its nearest existing parent, is not writable."""
    try:
        system, path = file_system(spark, folder)
        while not system.exists(path) and path.getParent() is not None:
            path = path.getParent()
        is_folder = bool(system.getFileStatus(path).isDirectory())
    except Py4JJavaError as error:
        error_class = error.java_exception.getClass().getSimpleName()
        yield problem(about, f"{folder} cannot be reached ({error_class})", is_unreachable=True)
        return
    local_path = str(path.toUri().getPath())
    if not is_folder:
        yield problem(about, f"{local_path} is no folder")
    elif str(system.getScheme()) == "file" and not os.access(Path(local_path), os.W_OK):
        yield problem(about, f"{local_path} cannot be written", "choose another place, or grant it")


# -- sink


def _check_tables(spark: SparkSession, pipeline: Pipeline) -> Generator[Finding, None, Lake | None]:
    sink = pipeline.sink
    yield from _folder_findings(spark, "sink", pipeline.folder)
    if not sink.can_list_tables:
        text = "a jdbc catalog makes its own tables when it is opened, so it is not looked into"
        yield warning("sink.catalog", text)
        return None
    try:
        lake = lake_of(spark, pipeline)
        table_count = len(lake.tables())
    except ConfigError as error:
        yield problem("sink", str(error))
        return None
    except Exception as error:  # noqa: BLE001 - catalogs fail in ways of their own
        # its text may quote an address with a password
        text = f"the tables cannot be listed ({type(error).__name__})"
        yield problem("sink", text, "see the sink's options", is_unreachable=True)
        return None
    yield ok("sink", f"{table_count} {pipeline.table_format} tables are in {pipeline.folder}")
    return lake


def _check_sink_topics(
    spark: SparkSession, pipeline: Pipeline, source: KafkaSource, sink: KafkaSink
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
        yield _error_finding("sink", error)
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
        yield _error_finding("sink", error)
        return None
    if any(not {"WRITE", "ALL"} & operations for operations in operations_by_topic.values()):
        yield problem("sink", f"we may not write {sink.topic}", "grant WRITE on it")
        return None
    for name, previous_count in TopicCounts(
        spark, pipeline.folder, pipeline.name
    ).partition_counts.items():
        if change := changed_partitions(name, previous_count, counts.get(name, previous_count)):
            notes.append(change)
    for note in notes:
        yield warning("sink", note)
    return counts
