# SPDX-License-Identifier: Apache-2.0
"""The interface of producer profiles: how one producer's messages lie in Kafka.

A format says what a message holds; a profile says where it goes: its topic, key, headers and
partition, which events have no message, and which become several.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from changelane.codec import Codec, Encoded, get_codec
from changelane.errors import ConfigError, EncodeError
from changelane.event import ChangeEvent, DataChange, HalfUpdate, Op, is_key_change
from changelane.message import Message
from changelane.schema import TableId

Formats = Mapping[str, Mapping[str, str]]
"""The formats that a producer writes, with options in which they differ from their defaults."""

Encode = Callable[[ChangeEvent], Encoded]
"""A codec's ``encode``, with the user's word on losses."""

PartitionsOf = Callable[[str], int | None]
"""How many partitions a topic has; ``None`` where that is not known."""

Split = Callable[[ChangeEvent], tuple[ChangeEvent, ...]]
"""What a producer tells of an event, as events: none, itself changed or not, or several."""

Place = Callable[[ChangeEvent, Message, PartitionsOf], tuple[Message, ...]]
"""Where a message of an event goes: with topic, key, headers and partition; several messages where
it goes to several partitions. A partition ``None`` leaves it to Kafka's default partitioner."""

_NOTHING: Final[Mapping[str, str]] = {}


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One producer's rules: a few data and two pure functions. Frozen and picklable.

    Attributes:
        formats: The formats that the producer writes.
        split: What the producer makes of an event.
        place: Where it puts a message.
        drops: Kinds of events (by their tags) of which the producer has no message.
        tombstones: Messages without a value are written.
        null_keys: Row changes may go without key and partition, which spreads them over all
            partitions in no order: because the producer does so, or the user wants it.
    """

    name: str
    formats: Formats
    split: Split
    place: Place
    drops: frozenset[str] = frozenset()
    tombstones: bool = False
    null_keys: bool = False

    def codec(self, name: str, options: Mapping[str, Any] = _NOTHING) -> Codec:
        """Return the codec of a format, with the options that this producer's messages have.

        Args:
            options: The user's own, which go first.

        Raises:
            ConfigError: The producer does not write that format, or an option is wrong.
        """
        if name not in self.formats:
            known = ", ".join(self.formats)
            msg = (
                f"profile {self.name} writes {known}, not {name}: choose one of them or no profile"
            )
            raise ConfigError(msg)
        return get_codec(name, **{**self.formats[name], **options})

    def encode(
        self, event: ChangeEvent, encode: Encode, partitions_of: PartitionsOf = lambda _: None
    ) -> Encoded:
        """Return the messages of an event where they go, with what was lost.

        An event that the producer has no message for is a loss that is counted, and no error: the
        user chose the producer.

        Raises:
            EncodeError: *encode* raises it, or nothing tells where a message goes.
        """
        kind = str(event.__struct_config__.tag)
        parts = () if kind in self.drops else self.split(event)
        if not parts:
            return Encoded((), ((f"event:{kind}", f"{self.name} does not write it"),))
        placed: list[Message] = []
        losses: dict[tuple[str, str], None] = {}
        for part in parts:
            encoded = encode(part)
            losses.update(dict.fromkeys(encoded.losses))
            for message in encoded.messages:
                if message.value is None and not self.tombstones:
                    losses["event:tombstone", f"{self.name} does not write it"] = None
                    continue
                for found in self.place(part, message, partitions_of):
                    self._check(part, found, partitions_of)
                    placed.append(found)
        return Encoded(tuple(placed), tuple(losses))

    def _check(self, event: ChangeEvent, message: Message, partitions_of: PartitionsOf) -> None:
        """Refuse a place that Kafka does not have, or that is in no order.

        Raises:
            EncodeError: That is so.
        """
        if message.topic is None:
            raise EncodeError(f"nothing tells the topic of a message: see profile {self.name}")
        check_topic(message.topic)
        if message.partition is not None:
            count = partitions_of(message.topic)
            if count is not None and not 0 <= message.partition < count:
                raise EncodeError(
                    f"topic {message.topic} has no partition {message.partition}, but {count} "
                    f"partitions: see the options of profile {self.name}"
                )
        elif message.key is None and not self.null_keys and isinstance(event, DataChange):
            raise EncodeError(
                f"a row change of table {event.table} has no key: its changes would be spread "
                "over all partitions in no order. Tell the format the table's key columns, or "
                "accept it with the profile's option null_keys=true"
            )


def table_of(event: ChangeEvent) -> TableId:
    """Return the table that an event is about, without parts where it is about none."""
    if isinstance(event, HalfUpdate):
        event = event.change
    table = getattr(event, "table", None)
    return table if isinstance(table, TableId) else TableId()


def whole(event: ChangeEvent) -> tuple[ChangeEvent, ...]:
    """Return an event as it is: the producer tells it by one message, or the format splits it."""
    return (event,)


def split_key_change(event: ChangeEvent) -> tuple[ChangeEvent, ...]:
    """Return a change of the key as a delete and an insert, any other event as it is.

    Each half has its own key, and so its own partition.
    """
    if not isinstance(event, DataChange) or not is_key_change(event):
        return (event,)
    before, after = event.before or {}, event.after or {}
    # a key column that the row after leaves out did not change
    columns = () if event.key is None else event.key.columns
    after = {name: before[name] for name in columns if name not in after} | dict(after)
    gone = msgspec.structs.replace(event, op=Op.DELETE, after=None)
    return gone, msgspec.structs.replace(event, op=Op.CREATE, before=None, after=after)


def partition_count(topic: str | None, partitions_of: PartitionsOf) -> int:
    """Return how many partitions a topic has.

    Raises:
        EncodeError: Nothing tells it, and the producer's rule needs it.
    """
    count = None if topic is None else partitions_of(topic)
    if count is None:
        raise EncodeError(f"how many partitions topic {topic} has is not known")
    return count


def broadcast(message: Message, count: int) -> tuple[Message, ...]:
    """Return a message once for each partition."""
    return tuple(msgspec.structs.replace(message, partition=number) for number in range(count))


_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@lru_cache(maxsize=4096)
def check_topic(topic: str) -> None:
    """Refuse a name that Kafka allows no topic to have.

    Raises:
        EncodeError: It is such a name.
    """
    if _LEGAL.fullmatch(topic) is None or topic in {".", ".."}:
        raise EncodeError(
            f"{topic!r} cannot be the name of a topic (letters, digits, '.', '_' and '-', at most "
            "249): give the table a topic of its own"
        )


def changed_partitions(topic: str, before: int, now: int) -> str | None:
    """Return a warning when a topic in use has another number of partitions than before.

    Every rule that hashes a key or a name takes the remainder by that number.
    """
    if before == now:
        return None
    return (
        f"topic {topic} had {before} partitions and has {now} now: rows go to other partitions "
        "than their earlier changes, and a reader may take the two in the wrong order. Let it "
        "read what is there before more is written, or write to a new topic"
    )
