# SPDX-License-Identifier: Apache-2.0
"""The DataHub part of ``changelane check``: findings about topics; it writes nothing."""

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

from pyspark.sql import SparkSession

from changelane.conversion.partition import DeliveryError
from changelane.datahub import reader
from changelane.datahub.reader import Offsets, Stretch
from changelane.datahub.sdk import Sdk, patience
from changelane.datahub.service import Readable, ServiceError, Topic
from changelane.datahub.shard_writer import Patience, WriteError
from changelane.errors import DecodeError, MissingExtraError
from changelane.message import Message
from changelane.pipeline.config import Pipeline
from changelane.pipeline.config_checks import Finding, ok, problem, warning
from changelane.pipeline.datahub_sink import DataHubSink
from changelane.pipeline.datahub_source import DataHubSource
from changelane.spark.check.findings import SampleFindings, SourceSample, checkpoint_findings
from changelane.spark.sources.sample import MAX_MESSAGES, Samples

TIMEOUT_S: Final = 10.0
"""The timeout of requests to DataHub, seconds."""
_FORBIDDEN: Final = (401, 403)

T = TypeVar("T")
TopicSample = tuple[Samples, dict[str, Any]]
"""The sample of a topic, and the options of its format that the topic defines."""


def source_findings(spark: SparkSession, pipeline: Pipeline) -> SampleFindings:
    """Yield the findings of the checkpoint and the topic; return the sample of its messages."""
    source = cast("DataHubSource", pipeline.source)
    position = yield from checkpoint_findings(spark, pipeline)
    try:
        service = Sdk(source)
    except MissingExtraError as error:
        yield problem("source", str(error))
        return None
    topic_sample = yield from check_source(source, service, patience(TIMEOUT_S), position)
    return (
        None
        if topic_sample is None
        else SourceSample(topic_sample[0], format_options=topic_sample[1])
    )


def sink_findings(
    spark: SparkSession, pipeline: Pipeline, sample: SourceSample
) -> Iterator[Finding]:
    """Yield the findings of the sink's topics."""
    del spark, sample
    sink = cast("DataHubSink", pipeline.sink)
    try:
        service = Sdk(sink)
    except MissingExtraError as error:
        yield problem("sink", str(error))
        return
    yield from check_sink(sink, service, patience(TIMEOUT_S))


def check_source(
    datahub_source: DataHubSource, service: Readable, patience: Patience, position: Offsets | None
) -> Generator[Finding, None, TopicSample | None]:
    """Yield the findings of a source topic, by a service; return the sample of its messages.

    Args:
        datahub_source: The topic.
        service: The service.
        patience: The retries.
        position: The offsets after the messages that were read; ``None`` = a run would start
            from the beginning.
    """
    name = datahub_source.topic
    topic = yield from _call_service(
        name, patience, lambda: _topic(service, name, datahub_source.project)
    )
    if topic is None:
        return None
    if topic.kind != datahub_source.kind:
        fix = f"set source.format: datahub-{topic.kind.lower()}"
        yield problem("source.topic", f"{name} is a {topic.kind} topic", fix)
        return None

    def read_offsets() -> tuple[Offsets, Offsets]:
        if position is not None:
            reader.check(service, name, position)
        starts = position or reader.starts(service, name, datahub_source.starting_offsets)
        return starts, reader.ends(service, name, starts)

    offsets = yield from _call_service(name, patience, read_offsets)
    if offsets is None:
        return None
    starts, ends = offsets
    record_count = sum(
        stretch.last - stretch.first for stretch in reader.stretches(name, starts, ends)
    )
    yield ok(f"topic {name}", f"{len(ends[name])} shards; {record_count:,} records would be read")

    def read_messages(window: list[Stretch]) -> list[Message | DecodeError]:
        parts = (
            reader.messages(service, patience, name, stretch, topic.schema) for stretch in window
        )
        return [message for part in parts for message in part]

    messages: list[Message | DecodeError] | None = []
    if record_count:
        messages = yield from _call_service(
            name, patience, lambda: read_messages(_unread_sample(name, starts, ends))
        )
    else:
        # they were read already, so it is no problem if they have expired
        with suppress(reader.LostError, WriteError):
            messages = read_messages(_read_sample(service, name, ends))
    if messages is None:
        return None
    return {name: messages}, {} if topic.schema is None else {"topic_schema": topic.schema}


def check_sink(
    datahub_sink: DataHubSink, service: Readable, patience: Patience
) -> Iterator[Finding]:
    """Do the work of :func:`sink_findings` with a service."""
    if not datahub_sink.is_one_topic:
        yield warning("sink.topic", "the topics of tables are checked during a run")
        return
    try:
        topic = patience.call(
            f"topic {datahub_sink.topic}", lambda: service.topic(datahub_sink.topic)
        )
    except DeliveryError as error:
        yield _error_finding("sink", error)
        return
    if topic is None and datahub_sink.create is None:
        text = f"project {datahub_sink.project} has no topic {datahub_sink.topic}"
        yield problem("sink.topic", text, "create it, or set sink.create")
    elif topic is None:
        yield ok("sink", f"a run would create the {datahub_sink.kind} topic {datahub_sink.topic}")
    elif topic.kind != datahub_sink.kind:
        text = (
            f"topic {datahub_sink.topic} is a {topic.kind} topic, "
            f"and {datahub_sink.format} needs {datahub_sink.kind}"
        )
        yield problem("sink.topic", text, "change sink.topic or sink.format")
    else:
        yield ok("sink", f"the {datahub_sink.kind} topic {datahub_sink.topic} exists")


def _topic(service: Readable, name: str, project: str) -> Topic:
    topic = service.topic(name)
    if topic is None:
        raise DeliveryError(f"project {project} has no topic {name}")
    return topic


def _call_service(
    topic: str, patience: Patience, call: Callable[[], T]
) -> Generator[Finding, None, T | None]:
    """Return the response to a call about the source, or yield why it failed."""
    try:
        return patience.call(f"topic {topic}", call)
    except DeliveryError as error:
        yield _error_finding("source", error)
        return None


def _error_finding(about: str, error: DeliveryError) -> Finding:
    if isinstance(error, WriteError):
        fix = f"check the endpoint of the {about}, and the network"
        return problem(about, str(error), fix, is_unreachable=True)
    fix = ""
    if isinstance(error, ServiceError) and error.status in _FORBIDDEN:
        fix = f"check the access keys of the {about}, and their permissions"
    elif isinstance(error, reader.LostError):
        fix = "a run stops with this error, and its fix"
    return problem(about, str(error), fix)


def _unread_sample(topic: str, starts: Offsets, ends: Offsets) -> list[Stretch]:
    """Return the sample of the unread records: the first ones of each shard."""
    unread = reader.stretches(topic, starts, ends)
    share = max(1, MAX_MESSAGES // max(1, len(unread)))
    return [
        Stretch(stretch.shard, stretch.first, min(stretch.last, stretch.first + share))
        for stretch in unread
    ]


def _read_sample(service: Readable, topic: str, ends: Offsets) -> list[Stretch]:
    """Return the sample of the records that were read: the last ones of each shard."""
    shards = [
        int(shard.id) for shard in service.shards(topic) if shard.state in {"ACTIVE", "CLOSED"}
    ]
    share = max(1, MAX_MESSAGES // max(1, len(shards)))
    stretches = []
    for shard in shards:
        end = ends[topic].get(shard, 0)
        oldest = reader.oldest(service, topic, str(shard))
        stretches.append(Stretch(shard, max(oldest, end - share), end))
    return [stretch for stretch in stretches if stretch.first < stretch.last]
