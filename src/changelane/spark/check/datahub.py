# SPDX-License-Identifier: Apache-2.0
"""What a look at DataHub's topics finds before a pipeline runs; nothing is written or created."""

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any, Final, TypeVar

from changelane.conversion.partition import DeliveryError
from changelane.datahub import reader
from changelane.datahub.reader import Offsets, Stretch
from changelane.datahub.sdk import Sdk, patience
from changelane.datahub.service import Readable, ServiceError, Topic
from changelane.datahub.shard_writer import Patience, WriteError
from changelane.errors import DecodeError, MissingExtraError
from changelane.message import Message
from changelane.pipeline.config_checks import Finding, ok, problem, warning
from changelane.pipeline.datahub_sink import DataHubSink
from changelane.pipeline.datahub_source import DataHubSource
from changelane.spark.sources.sample import MOST, First

TIMEOUT_S: Final = 10.0
"""After how long a service that does not answer, or is busy, is asked no more."""
_FORBIDDEN: Final = (401, 403)

T = TypeVar("T")
Looked = Generator[Finding, None, tuple[First, dict[str, Any]] | None]


def source(told: DataHubSource, position: Offsets | None) -> Looked:
    """Yield what is found of a topic that is read.

    Return its first messages, and what the topic tells of the options of their format.

    Args:
        told: The topic.
        position: The offsets behind what was read; ``None`` = a run would begin anew.
    """
    try:
        service = Sdk(told)
    except MissingExtraError as error:
        yield problem("source", str(error))
        return None
    return (yield from look(told, service, patience(TIMEOUT_S), position))


def sink(told: DataHubSink) -> Iterator[Finding]:
    """Yield what is found of the topics that are written."""
    try:
        service = Sdk(told)
    except MissingExtraError as error:
        yield problem("sink", str(error))
        return
    yield from target(told, service, patience(TIMEOUT_S))


def look(
    told: DataHubSource, service: Readable, patience: Patience, position: Offsets | None
) -> Looked:
    """Do the work of :func:`source` with a service."""
    name = told.topic
    topic = yield from _asked(name, patience, lambda: _topic(service, name, told.project))
    if topic is None:
        return None
    if topic.kind != told.kind:
        fix = f"set source.format: datahub-{topic.kind.lower()}"
        yield problem("source.topic", f"it is a {topic.kind} topic", fix)
        return None

    def stands() -> tuple[Offsets, Offsets]:
        if position is not None:
            reader.check(service, name, position)
        starts = position or reader.starts(service, name, told.starting)
        return starts, reader.ends(service, name, starts)

    found = yield from _asked(name, patience, stands)
    if found is None:
        return None
    starts, ends = found
    waiting = sum(one.last - one.first for one in reader.stretches(name, starts, ends))
    yield ok(f"topic {name}", f"{len(ends[name])} shards; {waiting:,} records would be read")

    def read(window: list[Stretch]) -> list[Message | DecodeError]:
        parts = (reader.messages(service, patience, name, one, topic.schema) for one in window)
        return [message for part in parts for message in part]

    messages: list[Message | DecodeError] | None = []
    if waiting:
        messages = yield from _asked(name, patience, lambda: read(_shares(name, starts, ends)))
    else:
        # they were read already: it is no harm that they are gone by now
        with suppress(reader.LostError, WriteError):
            messages = read(_before(service, name, ends))
    if messages is None:
        return None
    return {name: messages}, {} if topic.schema is None else {"topic_schema": topic.schema}


def target(told: DataHubSink, service: Readable, patience: Patience) -> Iterator[Finding]:
    """Do the work of :func:`sink` with a service."""
    if not told.is_one_topic:
        yield warning("sink.topic", "topics of tables are asked for when their rows come")
        return
    try:
        topic = patience.call(f"topic {told.topic}", lambda: service.topic(told.topic))
    except DeliveryError as error:
        yield _refused("sink", error)
        return
    if topic is None and told.create is None:
        text = f"project {told.project} has no topic {told.topic}"
        yield problem("sink.topic", text, "create it, or give sink.create")
    elif topic is None:
        yield ok("sink", f"a run would create the {told.kind} topic {told.topic}")
    elif topic.kind != told.kind:
        text = f"topic {told.topic} is a {topic.kind} topic, and {told.format} needs {told.kind}"
        yield problem("sink.topic", text, "name another, or another sink.format")
    else:
        yield ok("sink", f"the {told.kind} topic {told.topic} is there")


def _topic(service: Readable, name: str, project: str) -> Topic:
    found = service.topic(name)
    if found is None:
        raise DeliveryError(f"project {project} has no topic {name}")
    return found


def _asked(
    topic: str, patience: Patience, ask: Callable[[], T]
) -> Generator[Finding, None, T | None]:
    """Return an answer of the service about what is read, or yield why there is none."""
    try:
        return patience.call(f"topic {topic}", ask)
    except DeliveryError as error:
        yield _refused("source", error)
        return None


def _refused(about: str, error: DeliveryError) -> Finding:
    if isinstance(error, WriteError):
        fix = f"see the endpoint of the {about}, and the network"
        return problem(about, str(error), fix, is_unreachable=True)
    fix = ""
    if isinstance(error, ServiceError) and error.status in _FORBIDDEN:
        fix = f"see the access keys of the {about}, and what they may do"
    elif isinstance(error, reader.LostError):
        fix = "a run stops there, and tells the way out"
    return problem(about, str(error), fix)


def _shares(topic: str, starts: Offsets, ends: Offsets) -> list[Stretch]:
    """Return which records that would be read to look at: the first ones of each shard."""
    fresh = reader.stretches(topic, starts, ends)
    share = max(1, MOST // max(1, len(fresh)))
    return [Stretch(one.shard, one.first, min(one.last, one.first + share)) for one in fresh]


def _before(service: Readable, topic: str, ends: Offsets) -> list[Stretch]:
    """Return which records that were read to look at: the last ones of each shard."""
    shards = [int(one.id) for one in service.shards(topic) if one.state in {"ACTIVE", "CLOSED"}]
    share = max(1, MOST // max(1, len(shards)))
    found = []
    for shard in shards:
        end = ends[topic].get(shard, 0)
        oldest = reader.oldest(service, topic, str(shard))
        found.append(Stretch(shard, max(oldest, end - share), end))
    return [one for one in found if one.first < one.last]
