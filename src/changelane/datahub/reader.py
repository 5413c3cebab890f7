# SPDX-License-Identifier: Apache-2.0
"""Reads a topic: the offsets of its shards, and their records as messages, in order.

Offsets are by topic and shard: the sequence after the last read record. For shards that were split
or merged, the offsets also contain the end, under :func:`closed_shards_key`. The service deletes
such shards later, and without the end it would be unknown whether they were read completely.
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
"""The maximum number of records of one answer."""


class LostError(DeliveryError):
    """Unread records were deleted."""


def closed_shards_key(topic: str) -> str:
    """Return the key of the end offsets of closed shards."""
    return f"{topic}/closed"  # topic names contain no slash


def end_of(service: Readable, topic: str, shard: str) -> int:
    """Return the sequence after the last record of a shard; 0 if there was none yet.

    DataHub does not document whether the latest sequence is that of the last record or the one
    after it, nor the latest sequence of an empty shard. So the function reads at that sequence.
    """
    latest = max(0, service.end_sequence(topic, shard, "LATEST"))
    try:
        records = service.read(topic, shard, latest, 1)
    except ServiceError as error:
        if error.code not in {"SeekOutOfRange", "InvalidCursor"}:
            raise
        return latest
    return max([latest, *(record.sequence + 1 for record in records)])


def ends(service: Readable, topic: str, starts: Mapping[str, Mapping[int, int]]) -> Offsets:
    """Return the present end offsets of a topic.

    Args:
        service: The project.
        topic: The topic.
        starts: The offsets so far.

    Raises:
        LostError: A shard was deleted, and it was not read completely.
    """
    before = starts.get(topic, {})
    end_offsets = dict(before)
    closed_ends = dict(starts.get(closed_shards_key(topic), {}))
    shards = {int(shard.id): shard for shard in service.shards(topic)}
    for number, shard in shards.items():
        if number not in closed_ends and shard.state in {"ACTIVE", "CLOSED"}:
            end_offsets[number] = max(end_of(service, topic, shard.id), before.get(number, 0))
            if shard.state == "CLOSED":
                closed_ends[number] = end_offsets[number]
        # the offset of a shard in a transient state stays unchanged
    for number in before.keys() - shards.keys():
        if number not in closed_ends or before[number] < closed_ends[number]:
            raise LostError(f"shard {number} of topic {topic} is gone, and was not read to its end")
    return {topic: _sorted(end_offsets), closed_shards_key(topic): _sorted(closed_ends)}


def _sorted(offsets: Mapping[int, int]) -> dict[int, int]:
    return dict(sorted(offsets.items()))


def starts(service: Readable, topic: str, at: str) -> Offsets:
    """Return the start offsets of a new checkpoint, for ``earliest`` or ``latest``."""
    if at == "latest":
        return ends(service, topic, {})
    shards = [shard for shard in service.shards(topic) if shard.state in {"ACTIVE", "CLOSED"}]
    return {topic: {int(shard.id): oldest(service, topic, shard.id) for shard in shards}}


def oldest(service: Readable, topic: str, shard: str) -> int:
    """Return the sequence of the oldest record of a shard."""
    return max(0, service.end_sequence(topic, shard, "OLDEST"))


def check(service: Readable, topic: str, position: Mapping[str, Mapping[int, int]]) -> None:
    """Check that no unread records were deleted, and that the shards have what was read.

    Raises:
        LostError: Unread records were deleted, or a shard ends before its offset.
    """
    read_offsets, closed_ends = position.get(topic, {}), position.get(closed_shards_key(topic), {})
    for shard in service.shards(topic):
        offset = read_offsets.get(int(shard.id), 0)
        if not offset or int(shard.id) in closed_ends or shard.state not in {"ACTIVE", "CLOSED"}:
            continue
        end = end_of(service, topic, shard.id)
        if 0 < end < offset:  # a shard without records may end at 0
            raise LostError(
                f"shard {shard.id} of topic {topic} ends at {end}, before the offset {offset} of "
                "the checkpoint: the topic was created again or cut"
            )
    for stretch in stretches(topic, position, ends(service, topic, position)):
        first = oldest(service, topic, str(stretch.shard))
        if first > stretch.first:
            raise LostError(lost_text(topic, str(stretch.shard), stretch.first, first))


class Stretch(msgspec.Struct, frozen=True):
    """A range of sequences of a shard; *last* is exclusive."""

    shard: int
    first: int
    last: int


def chains(stretches: Sequence[Stretch], shards: Sequence[Shard]) -> list[list[Stretch]]:
    """Return chains of ranges that must be read one after another: a shard after its parents.

    So the records of a key keep their order if its shard was split or merged.
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
    """Return the ranges between two offsets; a new shard is read from its beginning."""
    before = start.get(topic, {})
    all_stretches = [
        Stretch(n, before.get(n, 0), last) for n, last in sorted(end.get(topic, {}).items())
    ]
    return [stretch for stretch in all_stretches if stretch.first < stretch.last]


def messages(
    service: Readable, patience: Patience, topic: str, stretch: Stretch, schema: str | None
) -> Iterator[Message]:
    """Yield the records of a range as messages, in order.

    Raises:
        LostError: Records of the range were deleted.
        DeliveryError: The service rejects the request, or returns no record for too long.
    """
    shard = str(stretch.shard)
    names = None if schema is None else _names(schema)
    at, action = stretch.first, f"reading shard {shard} of topic {topic}"
    first = patience.call(action, lambda: oldest(service, topic, shard))
    if first > at:
        raise LostError(lost_text(topic, shard, at, first))
    while at < stretch.last:
        try:
            records = patience.call(action, partial(service.read, topic, shard, at, MOST_RECORDS))
        except ServiceError as error:
            if error.code == "SeekOutOfRange":
                raise LostError(lost_text(topic, shard, at, stretch.last)) from None
            raise
        if not records:
            patience.wait(action, ServiceError("NothingThere"))
            continue
        patience.reset()
        for record in records:
            if record.sequence >= stretch.last:
                return
            if record.sequence < at:
                raise LostError(
                    f"the sequences of shard {shard} of topic {topic} are not ascending"
                )
            if record.sequence > at:
                # unused sequences, or records that were deleted between two answers
                first = patience.call(action, lambda: oldest(service, topic, shard))
                if first > at:
                    raise LostError(lost_text(topic, shard, at, first))
            headers = tuple((name, text.encode()) for name, text in record.attributes)
            value = _value(record.content, names)
            yield Message(value, None, headers, topic, stretch.shard, record.sequence)
            at = record.sequence + 1


def lost_text(topic: str, shard: str, first: int, last: int) -> str:
    """Return the error text for deleted unread records."""
    count = last - first
    return f"{count} records of shard {shard} of topic {topic} that were not read yet are gone"


def _names(schema: str) -> tuple[str, ...]:
    return tuple(field.name for field in msgspec.json.decode(schema, type=TopicPart).fields)


def _value(content: bytes | tuple[str | None, ...], names: tuple[str, ...] | None) -> bytes:
    if isinstance(content, bytes) or names is None:
        if isinstance(content, bytes) and names is None:
            return content
        raise LostError("the kind of the topic's records changed (TUPLE, BLOB)")
    # a record from before the addition of a field has no value for it
    return msgspec.json.encode(dict(zip(names, content, strict=False)))
