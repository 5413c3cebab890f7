# SPDX-License-Identifier: Apache-2.0
"""Reading a topic: where its shards begin and end, and their records as messages, in their order.

Offsets are by topic and shard, the number behind the last record that was read. Shards that were
split or merged are remembered in them under :func:`closed`, with the number at which they ended:
the service forgets such shards one day, and then nobody could say whether all of them was read.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from changelane.conversion.partition import DeliveryError
from changelane.datahub.service import Readable, ServiceError, Shard
from changelane.datahub.shard_writer import Patience
from changelane.formats.datahub.topic_schema import TopicPart
from changelane.message import Message

Offsets = dict[str, dict[int, int]]
MOST_RECORDS: Final = 1_000
"""Records of one answer."""


class LostError(DeliveryError):
    """Records that were not read yet are gone."""


def closed(topic: str) -> str:
    """Return the name under which offsets hold the ends of shards that take no more records."""
    return f"{topic}/closed"  # no topic has a slash


def end_of(service: Readable, topic: str, shard: str) -> int:
    """Return the number behind the last record of a shard; 0 = there was none yet.

    Whether the service tells the number of the last record or the one behind it, and what it tells
    of an empty shard, is not documented: so it is looked at.
    """
    latest = max(0, service.edge(topic, shard, "LATEST"))
    try:
        records = service.read(topic, shard, latest, 1)
    except ServiceError as error:
        if error.code not in {"SeekOutOfRange", "InvalidCursor"}:
            raise
        return latest
    return max([latest, *(record.sequence + 1 for record in records)])


def ends(service: Readable, topic: str, starts: Mapping[str, Mapping[int, int]]) -> Offsets:
    """Return where the shards of a topic end now.

    Args:
        service: The project.
        topic: The topic.
        starts: The offsets so far.

    Raises:
        LostError: A shard is gone, and it is not known that all of it was read.
    """
    before = starts.get(topic, {})
    end_offsets = dict(before)
    ended = dict(starts.get(closed(topic), {}))
    shards = {int(shard.id): shard for shard in service.shards(topic)}
    for number, shard in shards.items():
        if number not in ended and shard.state in {"ACTIVE", "CLOSED"}:
            end_offsets[number] = max(end_of(service, topic, shard.id), before.get(number, 0))
            if shard.state == "CLOSED":
                ended[number] = end_offsets[number]
        # a shard that is about to open or close stays where it is
    for number in before.keys() - shards.keys():
        if number not in ended or before[number] < ended[number]:
            raise LostError(f"shard {number} of topic {topic} is gone, and was not read to its end")
    return {topic: _sorted(end_offsets), closed(topic): _sorted(ended)}


def _sorted(offsets: Mapping[int, int]) -> dict[int, int]:
    return dict(sorted(offsets.items()))


def starts(service: Readable, topic: str, at: str) -> Offsets:
    """Return where a new checkpoint begins: ``earliest`` or ``latest``."""
    if at == "latest":
        return ends(service, topic, {})
    shards = [shard for shard in service.shards(topic) if shard.state in {"ACTIVE", "CLOSED"}]
    return {topic: {int(shard.id): oldest(service, topic, shard.id) for shard in shards}}


def oldest(service: Readable, topic: str, shard: str) -> int:
    """Return the number of the oldest record that a shard has."""
    return max(0, service.edge(topic, shard, "OLDEST"))


def check(service: Readable, topic: str, position: Mapping[str, Mapping[int, int]]) -> None:
    """Refuse to go on where records are gone that were not read yet.

    Raises:
        LostError: Some are.
    """
    for stretch in stretches(topic, position, ends(service, topic, position)):
        first = oldest(service, topic, str(stretch.shard))
        if first > stretch.first:
            raise LostError(lost(topic, str(stretch.shard), stretch.first, first))


class Stretch(msgspec.Struct, frozen=True):
    """Records of a shard: from the first number on, up to but not including the last."""

    shard: int
    first: int
    last: int


def chains(stretches: Sequence[Stretch], shards: Sequence[Shard]) -> list[list[Stretch]]:
    """Return which records are read one after the other: shards behind those they were made of.

    So that records of a key keep their order also where its shard was split or merged.
    """
    parents = {int(shard.id): {int(parent) for parent in shard.parents} for shard in shards}
    waiting = {stretch.shard: stretch for stretch in stretches}
    group = {shard: shard for shard in waiting}

    def root(shard: int) -> int:
        while group[shard] != shard:
            shard = group[shard]
        return shard

    above = {shard: _above(shard, parents) & waiting.keys() for shard in waiting}
    for shard, older in above.items():
        for number in older:
            group[root(shard)] = root(number)
    chained: dict[int, list[Stretch]] = {}
    for shard in sorted(waiting, key=lambda number: (len(above[number]), number)):
        chained.setdefault(root(shard), []).append(waiting[shard])
    return list(chained.values())


def _above(shard: int, parents: Mapping[int, set[int]]) -> set[int]:
    ancestors: set[int] = set()
    pending = set(parents.get(shard, ()))
    while pending:
        parent = pending.pop()
        if parent not in ancestors:
            ancestors.add(parent)
            pending |= parents.get(parent, set())
    return ancestors


def stretches(
    topic: str, start: Mapping[str, Mapping[int, int]], end: Mapping[str, Mapping[int, int]]
) -> list[Stretch]:
    """Return what lies between two offsets; a shard that is new is read from its beginning."""
    before = start.get(topic, {})
    all_stretches = [
        Stretch(n, before.get(n, 0), last) for n, last in sorted(end.get(topic, {}).items())
    ]
    return [stretch for stretch in all_stretches if stretch.first < stretch.last]


def messages(
    service: Readable, patience: Patience, topic: str, stretch: Stretch, schema: str | None
) -> Iterator[Message]:
    """Yield the records of a stretch as messages, in their order.

    Raises:
        LostError: Some of them are gone.
        DeliveryError: The service refuses, or gives nothing for too long.
    """
    shard = str(stretch.shard)
    names = None if schema is None else _names(schema)
    at, action = stretch.first, f"reading shard {shard} of topic {topic}"
    first = patience.call(action, lambda: oldest(service, topic, shard))
    if first > at:
        raise LostError(lost(topic, shard, at, first))
    while at < stretch.last:
        try:
            records = patience.call(action, partial(service.read, topic, shard, at, MOST_RECORDS))
        except ServiceError as error:
            if error.code == "SeekOutOfRange":
                raise LostError(lost(topic, shard, at, stretch.last)) from None
            raise
        if not records:
            patience.wait(action, ServiceError("NothingThere"))
            continue
        patience.went_on()
        for record in records:
            if record.sequence >= stretch.last:
                return
            if record.sequence < at:
                raise LostError(f"the numbers of shard {shard} of topic {topic} do not rise")
            if record.sequence > at:
                # numbers that were never given, or records that went between two answers
                first = patience.call(action, lambda: oldest(service, topic, shard))
                if first > at:
                    raise LostError(lost(topic, shard, at, first))
            headers = tuple((name, text.encode()) for name, text in record.attributes)
            value = _value(record.content, names)
            yield Message(value, None, headers, topic, stretch.shard, record.sequence)
            at = record.sequence + 1


def lost(topic: str, shard: str, first: int, last: int) -> str:
    """Return in words which records are gone."""
    count = last - first
    return f"{count} records of shard {shard} of topic {topic} that were not read yet are gone"


def _names(schema: str) -> tuple[str, ...]:
    return tuple(field.name for field in msgspec.json.decode(schema, type=TopicPart).fields)


def _value(content: bytes | tuple[str | None, ...], names: tuple[str, ...] | None) -> bytes:
    if isinstance(content, bytes) or names is None:
        if isinstance(content, bytes) and names is None:
            return content
        raise LostError("the topic's records are of the other kind")
    # a record that is older than a field has no value for it
    return msgspec.json.encode(dict(zip(names, content, strict=False)))
