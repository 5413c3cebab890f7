# SPDX-License-Identifier: Apache-2.0
"""The interface of producer profiles: where one producer writes its messages in Kafka.

A format decides the content of a message. A profile decides its topic, key, headers and partition,
which events have no message, and which events become several.
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
"""The formats that a producer writes, with the options whose values differ from the defaults."""

Encode = Callable[[ChangeEvent], Encoded]
"""A codec's ``encode``, with the user's policy on losses."""

PartitionsOf = Callable[[str], int | None]
"""Returns the number of partitions of a topic; ``None`` = unknown."""

Split = Callable[[ChangeEvent], tuple[ChangeEvent, ...]]
"""Returns a producer's events for an event: none, itself changed or not, or several."""

Place = Callable[[ChangeEvent, Message, PartitionsOf], tuple[Message, ...]]
"""Returns a message of an event with topic, key, headers and partition; several messages for
several partitions. With the partition ``None`` Kafka's default partitioner chooses."""

_NOTHING: Final[Mapping[str, str]] = {}


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one producer: a few values and two pure functions. Frozen and picklable.

    Attributes:
        formats: The formats that the producer writes.
        split: Returns the producer's events for an event.
        place: Sets the place of a message.
        drops: Kinds of events (by their tags) for which the producer has no message.
        tombstones: Whether messages without a value are written.
        null_keys: Whether row changes may have no key and no partition, which spreads them over all
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
        """Return the codec of a format, with the options of this producer's messages.

        Args:
            options: The user's own, which win.

        Raises:
            ConfigError: The producer does not write that format, or an option is wrong.
        """
        if name not in self.formats:
            names = ", ".join(self.formats)
            msg = (
                f"profile {self.name} writes {names}, not {name}: choose one of them or no profile"
            )
            raise ConfigError(msg)
        return get_codec(name, **{**self.formats[name], **options})

    def encode(
        self, event: ChangeEvent, encode: Encode, partitions_of: PartitionsOf = lambda _: None
    ) -> Encoded:
        """Return the messages of an event with their places, and the losses.

        An event without a message of the producer counts as a loss and is no error: the user chose
        the producer.

        Raises:
            EncodeError: *encode* raises it, or the place of a message is unknown.
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
                for placed_message in self.place(part, message, partitions_of):
                    self._check(part, placed_message, partitions_of)
                    placed.append(placed_message)
        return Encoded(tuple(placed), tuple(losses))

    def _check(self, event: ChangeEvent, message: Message, partitions_of: PartitionsOf) -> None:
        """Refuse a place that Kafka does not have, or that has no order.

        Raises:
            EncodeError: The place is refused.
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
    """Return the table of an event; without parts if the event has none."""
    if isinstance(event, HalfUpdate):
        event = event.change
    table = getattr(event, "table", None)
    return table if isinstance(table, TableId) else TableId()


def unsplit(event: ChangeEvent) -> tuple[ChangeEvent, ...]:
    """Return an event unchanged: the producer writes one message, or the format splits it."""
    return (event,)


def split_key_change(event: ChangeEvent) -> tuple[ChangeEvent, ...]:
    """Return a key change as a delete and an insert, any other event unchanged.

    Each half has its own key, and therefore its own partition.
    """
    if not isinstance(event, DataChange) or not is_key_change(event):
        return (event,)
    before, after = event.before or {}, event.after or {}
    # a key column that the row after lacks did not change
    columns = () if event.key is None else event.key.columns
    after = {name: before[name] for name in columns if name not in after} | dict(after)
    deletion = msgspec.structs.replace(event, op=Op.DELETE, after=None)
    return deletion, msgspec.structs.replace(event, op=Op.CREATE, before=None, after=after)


def partition_count(topic: str | None, partitions_of: PartitionsOf) -> int:
    """Return the number of partitions of a topic.

    Raises:
        EncodeError: The number is unknown, and the producer's rule needs it.
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
    """Refuse a name that Kafka does not allow for a topic.

    Raises:
        EncodeError: Kafka does not allow it.
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
