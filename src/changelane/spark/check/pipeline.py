# SPDX-License-Identifier: Apache-2.0
"""``changelane check``: whether a pipeline would run, asked of everything that it needs.

It looks, and writes nothing: no topic, no folder, no checkpoint, no table.
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
from changelane.pipeline.kafka import KafkaSink, KafkaSource, Offsets, client_options, partitions
from changelane.pipeline.lake_sinks import IcebergSink
from changelane.profiles.profile import changed_partitions
from changelane.spark.check import datahub, dry_run
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import Lake, file_system
from changelane.spark.rows.expressions.expression_rows import prepared
from changelane.spark.sinks.kafka import check_topics
from changelane.spark.sinks.partition_counts import TopicCounts
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.sources.kafka import KafkaInput, check_starts, way_out
from changelane.spark.sources.kafka_admin import Topic, topics
from changelane.spark.sources.sample import MOST, MOST_FILES, First, of_files, of_topics
from changelane.spark.state.offset_log import BatchLog, lost

TIMEOUT_MS: Final = 10_000
"""How long a broker has for an answer."""
LOOK_S: Final = 30.0
"""How long first messages are waited for."""
SHOWN: Final = 20
"""How many topics are told, and looked into, one by one."""


class _Sample(NamedTuple):
    """The first messages of a source.

    Attributes:
        first: The messages.
        read: The topics that the pipeline reads.
        topics: All topics of the broker; ``None`` = the source is no broker.
    """

    first: First
    read: Collection[str] = ()
    topics: Collection[str] | None = None


_NO_SAMPLE: Final = _Sample({})
Looked = Generator[Finding, None, _Sample | None]


class _Ends(NamedTuple):
    """What the broker has of each topic."""

    facts: Mapping[str, Topic]
    earliest: Offsets
    latest: Offsets


def check(spark: SparkSession, pipeline: Pipeline) -> Iterator[Finding]:
    """Yield what is found of a pipeline whose configuration is right.

    Args:
        spark: The session.
        pipeline: The pipeline.
    """
    source, sink = pipeline.source, pipeline.sink
    learnt: dict[str, Any] = {}
    sample: _Sample | None
    if isinstance(source, FilesSource):
        sample = yield from _files(spark, source)
        yield from _state(spark, pipeline)
    elif isinstance(source, DataHubSource):
        position = yield from _state(spark, pipeline)
        found = yield from datahub.source(source, position)
        first, learnt = found or ({}, {})
        sample = _Sample(first)
    else:
        sample = yield from _topics(spark, pipeline, source)
    sample = sample or _NO_SAMPLE
    if isinstance(sink, KafkaSink):
        assert isinstance(source, KafkaSource)  # noqa: S101 - config refuses anything else
        counts = yield from _targets(spark, pipeline, source, sink)
        if counts is not None:
            yield from dry_run.deliver(source, sink, counts, pipeline, sample.first)
        yield from _connector(source, sample)
        return
    if isinstance(sink, DataHubSink):
        yield from datahub.sink(sink)
        yield from _connector(source, sample)
        return
    yield from _expressions(spark, pipeline)
    yield from _properties(spark, pipeline)
    lake = yield from _tables(spark, pipeline)
    tables = dry_run.TableTrial(pipeline)
    yield from tables.read(sample.first, learnt)
    yield from tables.tables(lake)
    yield from _connector(source, sample)


def _connector(source: Source, sample: _Sample) -> Iterator[Finding]:
    """Tell what the connector that feeds the source leaves out."""
    messages = (message for topic in sample.first.values() for message in topic)
    yield from connector_settings.findings(
        source.format,
        (message for message in messages if isinstance(message, Message)),
        format_options=source.format_options,
        read=sample.read,
        topics=sample.topics,
    )


def _expressions(spark: SparkSession, pipeline: Pipeline) -> Iterator[Finding]:
    """Tell of filters and computes; what their columns are is known when events come."""
    try:
        found = prepared(spark, pipeline.expressions, len(pipeline.pure_steps) + 1)
    except ConfigError as error:
        yield problem("transforms", str(error))
        return
    for one in found:
        text = f"{one.where} reads {', '.join(one.reads)}; the first messages go without it here"
        yield ok("transforms", text)


def _properties(spark: SparkSession, pipeline: Pipeline) -> Iterator[Finding]:
    """Tell of properties that Delta would make no table with, for their values."""
    options = pipeline.options
    told = {"options": options.properties}
    told |= {f"options.tables.{name}": one.properties for name, one in options.tables.items()}
    if pipeline.table_format != "delta" or not any(told.values()):
        return
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    kind = loader.loadClass("org.apache.spark.sql.delta.DeltaConfigs$")
    known = kind.getField("MODULE$").get(None)
    for where, properties in told.items():
        for name, value in properties.items():
            one = jvm.java.util.HashMap()
            one.put(name, value)
            try:
                known.validateConfigurations(jvm.PythonUtils.toScalaMap(one))
            except Exception:  # noqa: BLE001 - of many kinds, and their words quote the value
                text = f"Delta does not take the value of {name}"
                yield problem(f"{where}.properties", text, "see Delta's table properties")


def _refused(about: str, error: ConfigError) -> Finding:
    is_unreachable = isinstance(error, UnreachableError)
    fix = "see source.servers or sink.servers, the network, and security.protocol"
    return problem(about, str(error), fix if is_unreachable else "", is_unreachable=is_unreachable)


# -- what is read


def _files(spark: SparkSession, source: FilesSource) -> Looked:
    try:
        told, first = of_files(spark, source)
    except ConfigError as error:
        yield problem("source", str(error), "see source.path")
        return None
    if told.outside:
        text = f"{len(told.outside)} symbolic links have targets outside of {source.path} and are "
        text += f"skipped, such as {min(told.outside)}"
        yield warning("source", text, "set source.follow_links: true, or copy the targets")
    for path, why in sorted(told.unlisted.items())[:SHOWN]:
        yield warning("source", f"{path} is skipped: {why}")
    if not (count := len(told.files)):
        text = f"no file in {source.path} is one of {source.glob}"
        yield warning("source", text, "see source.glob, or wait for files")
        return None
    looked = f"; the first {MOST_FILES} of them are looked into" if count > MOST_FILES else ""
    yield ok("source", f"{count} files in {source.path}{looked}")
    return _Sample(first)


def _topics(spark: SparkSession, pipeline: Pipeline, source: KafkaSource) -> Looked:
    options = client_options(source.spark)
    try:
        with topics(spark, source.servers, options, timeout_ms=TIMEOUT_MS) as broker:
            if source.pattern is None:
                names = list(source.names)
            else:
                names = broker.matching(source.pattern)
            facts = broker.facts(names)
            ends = _Ends(facts, broker.earliest(facts), broker.latest(facts))
            allowed = broker.allowed(facts)
            everywhere = broker.names()
    except ConfigError as error:
        yield _refused("source", error)
        return None
    yield ok("source", f"the broker at {source.servers} answers")
    if missing := [name for name in names if name not in facts]:
        text = f"there is no topic {', '.join(missing)} at {source.servers}"
        yield problem("source.topics", text, "create it, or name another")
        return None
    if not facts:
        yield warning("source.pattern", "no topic matches it", "topics that come are taken")
    forbidden = [name for name, told in allowed.items() if not {"READ", "ALL"} & told]
    if forbidden:
        text = f"we may not read {', '.join(forbidden)}"
        yield problem("source", text, "grant READ on it")
        return None
    starts = yield from _starts(spark, pipeline, source, ends)
    if starts is None:
        return None
    for name in sorted(facts)[:SHOWN]:
        waiting = sum(max(0, end - starts[name][n]) for n, end in ends.latest[name].items())
        parts = len(facts[name].partitions)
        yield ok(f"topic {name}", f"{parts} partitions; {waiting:,} messages would be read")
    if (more := len(facts) - SHOWN) > 0:
        yield ok("source", f"and {more} more topics")
    window = _window(starts, ends, sorted(facts)[:SHOWN])
    try:
        return _Sample(of_topics(spark, source, *window, LOOK_S), facts.keys(), everywhere)
    except ConfigError as error:
        yield problem("source", str(error))
        return None


def _starts(
    spark: SparkSession, pipeline: Pipeline, source: KafkaSource, ends: _Ends
) -> Generator[Finding, None, Offsets | None]:
    """Return where a run would begin in each partition; ``None`` = it would not."""
    told = source.starts
    try:
        if not isinstance(told, str):
            check_starts(told, ends.facts)
        found = yield from _state(spark, pipeline)
    except ConfigError as error:
        yield problem("source", str(error))
        return None
    if found is not None:
        told = found
    elif isinstance(told, dict) and (outside := _outside(told, ends)):
        yield problem("source.starting_offsets", outside, "name offsets that are there")
        return None
    starts: Offsets = {}
    for name, topic in ends.facts.items():
        for number in topic.partitions:
            first = ends.earliest[name][number]
            if told == "latest":
                first = ends.latest[name][number]
            elif not isinstance(told, str):
                first = told.get(name, {}).get(number, first)
            starts.setdefault(name, {})[number] = first
    return starts


def _outside(told: Offsets, ends: _Ends) -> str:
    """Return in words which offsets to start from the broker does not have; empty = none."""
    return "; ".join(
        f"{topic}-{number} holds {ends.earliest[topic][number]} to {ends.latest[topic][number]}, "
        f"and not {offset}"
        for topic, number, offset in partitions(told)
        if not ends.earliest[topic][number] <= offset <= ends.latest[topic][number]
    )


def _window(starts: Offsets, ends: _Ends, names: list[str]) -> tuple[Offsets, Offsets]:
    """Return which part of topics to look at: from the start on, or what is before it."""
    found: Offsets = {}
    for name in names:
        earliest, latest = ends.earliest[name], ends.latest[name]
        begin = {n: max(start, earliest[n]) for n, start in starts[name].items()}
        if all(start >= latest[n] for n, start in begin.items()):
            begin = {n: max(earliest[n], latest[n] - MOST) for n in begin}
        found[name] = begin
    return found, {name: ends.latest[name] for name in names}


# -- where it stands


def _state(spark: SparkSession, pipeline: Pipeline) -> Generator[Finding, None, Offsets | None]:
    """Tell from where a run would go on; return the offsets behind what was read, if any.

    Raises:
        ConfigError: Messages are gone that were not read yet.
    """
    place = pipeline.checkpoint
    try:
        checkpoint = Checkpoint(spark, place)
        log = BatchLog(spark, pipeline.folder, pipeline.name).read()
        is_known = checkpoint.is_known
    except Py4JJavaError as error:
        kind = error.java_exception.getClass().getSimpleName()
        yield problem("checkpoint", f"{place} cannot be read ({kind})")
        return None
    source = pipeline.source
    if is_known:
        if not isinstance(source, KafkaSource):
            yield ok("checkpoint", f"a run goes on behind what {place} has read")
            return (checkpoint.position() or None) if isinstance(source, DataHubSource) else None
        KafkaInput(spark, source, checkpoint, way_out(pipeline)).check(log)
        yield ok("checkpoint", f"a run goes on at the offsets of {place}")
        return checkpoint.position() or None
    if log:
        if isinstance(pipeline.sink, KafkaSink | DataHubSink):
            yield warning("checkpoint", f"{place} is gone: messages would be sent again")
        else:
            try:
                yield warning("checkpoint", lost(place, pipeline.options.keyless))
            except ConfigError as error:
                yield problem("checkpoint", str(error))
        return None
    yield from _writable(spark, "checkpoint", place)
    begins = ""
    if isinstance(source, KafkaSource):
        starts = source.starting_offsets
        told = starts if isinstance(starts, str) else "source.starting_offsets"
        begins = f", and begin at {told}"
    yield ok("checkpoint", f"a run would make {place}{begins}")
    return None


def _writable(spark: SparkSession, about: str, place: str) -> Iterator[Finding]:
    """Yield a problem when a folder, or the nearest one above it, cannot be written."""
    try:
        system, path = file_system(spark, place)
        while not system.exists(path) and path.getParent() is not None:
            path = path.getParent()
        is_folder = bool(system.getFileStatus(path).isDirectory())
    except Py4JJavaError as error:
        kind = error.java_exception.getClass().getSimpleName()
        yield problem(about, f"{place} cannot be reached ({kind})", is_unreachable=True)
        return
    local = str(path.toUri().getPath())
    if not is_folder:
        yield problem(about, f"{local} is no folder")
    elif str(system.getScheme()) == "file" and not os.access(Path(local), os.W_OK):
        yield problem(about, f"{local} cannot be written", "choose another place, or grant it")


# -- where it goes


def _tables(spark: SparkSession, pipeline: Pipeline) -> Generator[Finding, None, Lake | None]:
    sink = pipeline.sink
    yield from _writable(spark, "sink", pipeline.folder)
    if isinstance(sink, IcebergSink) and sink.catalog.get("type") == "jdbc":
        text = "a jdbc catalog makes its own tables when it is opened, so it is not looked into"
        yield warning("sink.catalog", text)
        return None
    try:
        lake = lake_of(spark, pipeline)
        there = len(lake.tables())
    except ConfigError as error:
        yield problem("sink", str(error))
        return None
    except Exception as error:  # noqa: BLE001 - catalogs fail in ways of their own
        # its words may quote an address with a password
        text = f"the tables cannot be listed ({type(error).__name__})"
        yield problem("sink", text, "see the sink's options", is_unreachable=True)
        return None
    yield ok("sink", f"{there} {pipeline.table_format} tables are in {pipeline.folder}")
    return lake


def _targets(
    spark: SparkSession, pipeline: Pipeline, source: KafkaSource, sink: KafkaSink
) -> Generator[Finding, None, dict[str, int] | None]:
    """Tell of the topics that are written; return how many partitions the broker's have."""
    try:
        options = client_options(sink.spark)
        with topics(spark, sink.servers, options, timeout_ms=TIMEOUT_MS) as broker:
            facts = broker.facts(broker.names())
            allowed = broker.allowed([sink.topic] if sink.topic in facts else [])
    except ConfigError as error:
        yield _refused("sink", error)
        return None
    counts = {name: len(topic.partitions) for name, topic in facts.items()}
    answers = f"the broker at {sink.servers} answers"
    if sink.topic in counts:
        answers += f"; topic {sink.topic} has {counts[sink.topic]} partitions"
    yield ok("sink", answers)
    notes: list[str] = []
    try:
        check_topics(spark, source, sink, notes.append)
    except ConfigError as error:
        yield _refused("sink", error)
        return None
    if any(not {"WRITE", "ALL"} & may for may in allowed.values()):
        yield problem("sink", f"we may not write {sink.topic}", "grant WRITE on it")
        return None
    for name, before in TopicCounts(spark, pipeline.folder, pipeline.name).known.items():
        if changed := changed_partitions(name, before, counts.get(name, before)):
            notes.append(changed)
    for note in notes:
        yield warning("sink", note)
    return counts
