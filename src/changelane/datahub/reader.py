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
        found = service.read(topic, shard, latest, 1)
    except ServiceError as error:
        if error.code not in {"SeekOutOfRange", "InvalidCursor"}:
            raise
        return latest
    return max([latest, *(one.sequence + 1 for one in found)])


def ends(service: Readable, topic: str, known: Mapping[str, Mapping[int, int]]) -> Offsets:
    """Return where the shards of a topic end now.

    Args:
        service: The project.
        topic: The topic.
        known: The offsets so far.

    Raises:
        LostError: A shard is gone, and it is not known that all of it was read.
    """
    before = known.get(topic, {})
    found = dict(before)
    ended = dict(known.get(closed(topic), {}))
    shards = {int(one.id): one for one in service.shards(topic)}
    for number, shard in shards.items():
        if number not in ended and shard.state in {"ACTIVE", "CLOSED"}:
            found[number] = max(end_of(service, topic, shard.id), before.get(number, 0))
            if shard.state == "CLOSED":
                ended[number] = found[number]
        # a shard that is about to open or close stays where it is
    for number in before.keys() - shards.keys():
        if number not in ended or before[number] < ended[number]:
            raise LostError(f"shard {number} of topic {topic} is gone, and was not read to its end")
    return {topic: _sorted(found), closed(topic): _sorted(ended)}


def _sorted(told: Mapping[int, int]) -> dict[int, int]:
    return dict(sorted(told.items()))


def starts(service: Readable, topic: str, at: str) -> Offsets:
    """Return where a new checkpoint begins: ``oldest`` or ``latest``."""
    if at == "latest":
        return ends(service, topic, {})
    shards = [one for one in service.shards(topic) if one.state in {"ACTIVE", "CLOSED"}]
    return {topic: {int(one.id): oldest(service, topic, one.id) for one in shards}}


def oldest(service: Readable, topic: str, shard: str) -> int:
    """Return the number of the oldest record that a shard has."""
    return max(0, service.edge(topic, shard, "OLDEST"))


def check(service: Readable, topic: str, position: Mapping[str, Mapping[int, int]]) -> None:
    """Refuse to go on where records are gone that were not read yet.

    Raises:
        LostError: Some are.
    """
    for one in stretches(topic, position, ends(service, topic, position)):
        first = oldest(service, topic, str(one.shard))
        if first > one.first:
            raise LostError(lost(topic, str(one.shard), one.first, first))


class Stretch(msgspec.Struct, frozen=True):
    """Records of a shard: from the first number on, up to but not including the last."""

    shard: int
    first: int
    last: int


def chains(stretches: Sequence[Stretch], shards: Sequence[Shard]) -> list[list[Stretch]]:
    """Return which records are read one after the other: shards behind those they were made of.

    So that records of a key keep their order also where its shard was split or merged.
    """
    parents = {int(one.id): {int(parent) for parent in one.parents} for one in shards}
    waiting = {one.shard: one for one in stretches}
    group = {shard: shard for shard in waiting}

    def root(shard: int) -> int:
        while group[shard] != shard:
            shard = group[shard]
        return shard

    above = {shard: _above(shard, parents) & waiting.keys() for shard in waiting}
    for shard, older in above.items():
        for one in older:
            group[root(shard)] = root(one)
    chained: dict[int, list[Stretch]] = {}
    for shard in sorted(waiting, key=lambda one: (len(above[one]), one)):
        chained.setdefault(root(shard), []).append(waiting[shard])
    return list(chained.values())


def _above(shard: int, parents: Mapping[int, set[int]]) -> set[int]:
    found: set[int] = set()
    rest = set(parents.get(shard, ()))
    while rest:
        one = rest.pop()
        if one not in found:
            found.add(one)
            rest |= parents.get(one, set())
    return found


def stretches(
    topic: str, start: Mapping[str, Mapping[int, int]], end: Mapping[str, Mapping[int, int]]
) -> list[Stretch]:
    """Return what lies between two offsets; a shard that is new is read from its beginning."""
    before = start.get(topic, {})
    found = [Stretch(n, before.get(n, 0), last) for n, last in sorted(end.get(topic, {}).items())]
    return [one for one in found if one.first < one.last]


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
    at, what = stretch.first, f"reading shard {shard} of topic {topic}"
    first = patience.call(what, lambda: oldest(service, topic, shard))
    if first > at:
        raise LostError(lost(topic, shard, at, first))
    while at < stretch.last:
        try:
            found = patience.call(what, partial(service.read, topic, shard, at, MOST_RECORDS))
        except ServiceError as error:
            if error.code == "SeekOutOfRange":
                raise LostError(lost(topic, shard, at, stretch.last)) from None
            raise
        if not found:
            patience.wait(what, ServiceError("NothingThere"))
            continue
        patience.went_on()
        for one in found:
            if one.sequence >= stretch.last:
                return
            if one.sequence < at:
                raise LostError(f"the numbers of shard {shard} of topic {topic} do not rise")
            if one.sequence > at:
                # numbers that were never given, or records that went between two answers
                first = patience.call(what, lambda: oldest(service, topic, shard))
                if first > at:
                    raise LostError(lost(topic, shard, at, first))
            headers = tuple((name, text.encode()) for name, text in one.attributes)
            value = _value(one.content, names)
            yield Message(value, None, headers, topic, stretch.shard, one.sequence)
            at = one.sequence + 1


def lost(topic: str, shard: str, first: int, last: int) -> str:
    """Return in words which records are gone."""
    count = last - first
    return f"{count} records of shard {shard} of topic {topic} that were not read yet are gone"


def _names(schema: str) -> tuple[str, ...]:
    return tuple(one.name for one in msgspec.json.decode(schema, type=TopicPart).fields)


def _value(content: bytes | tuple[str | None, ...], names: tuple[str, ...] | None) -> bytes:
    if isinstance(content, bytes) or names is None:
        if isinstance(content, bytes) and names is None:
            return content
        raise LostError("the topic's records are of the other kind")
    # a record that is older than a field has no value for it
    return msgspec.json.encode(dict(zip(names, content, strict=False)))
