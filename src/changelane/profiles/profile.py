# SPDX-License-Identifier: Apache-2.0
"""The interface of producer profiles: the use of Kafka by one producer.

A format determines the content of a message. A profile determines its topic, key, headers and
partition, the events without messages, and the events with several messages.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from changelane.codec import Codec, Encoded, get_codec
from changelane.errors import ConfigError, EncodeError
from changelane.event import ChangeEvent, DataChange, HalfUpdate, Op, is_key_change, moved_row
from changelane.message import Message
from changelane.schema import TableId
from changelane.types import UNAVAILABLE

Formats = Mapping[str, Mapping[str, str]]
"""The formats that a producer writes -> the options that differ from their defaults."""

Encode = Callable[[ChangeEvent], Encoded]
"""The ``encode`` of a codec, with a policy for losses."""

Frame = Callable[[Message], Message]
"""The ``frame`` of a codec's framing (:class:`~changelane.formats.contract.format.Framing`)."""

PartitionsOf = Callable[[str], int | None]
"""Returns the number of partitions of a topic; ``None`` = unknown."""

Split = Callable[[ChangeEvent], tuple[ChangeEvent, ...]]
"""Returns the events that the producer writes for an event: none, one or several."""

Place = Callable[[ChangeEvent, Message, PartitionsOf], tuple[Message, ...]]
"""Returns a message of an event with topic, key, headers and partition, once for each partition.
The partition ``None`` is chosen by Kafka's default partitioner."""

_NOTHING: Final[Mapping[str, str]] = {}


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one producer, as values and two pure functions. Frozen and picklable.

    Attributes:
        formats: The formats that the producer writes.
        split: Returns the events that the producer writes for an event.
        place: Sets topic, key, headers and partition of a message.
        drops: Kinds of events (by their tags) without a message of the producer.
        tombstones: Whether tombstones are written.
        null_keys: Whether row changes may have no key and no partition, so that Kafka spreads them
            over all partitions without order.
        has_sequence: Whether the producer numbers its changes. A delivery numbers those that have
            no sequence (:func:`changelane.conversion.destinations.with_sequence`).
    """

    name: str
    formats: Formats
    split: Split
    place: Place
    drops: frozenset[str] = frozenset()
    tombstones: bool = False
    null_keys: bool = False
    has_sequence: bool = False

    def codec(self, name: str, options: Mapping[str, Any] = _NOTHING) -> Codec:
        """Return the codec of a format, with the options of this producer's messages.

        Args:
            options: The options of the user, which have priority.

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
        self,
        event: ChangeEvent,
        encode: Encode,
        partitions_of: PartitionsOf = lambda _: None,
        *,
        frame: Frame | None = None,
    ) -> Encoded:
        """Return the messages of an event with their places, and the losses.

        An event without a message of the producer is a counted loss, not an error, because the user
        chose the producer.

        Args:
            event: The event.
            encode: Encodes it.
            partitions_of: Returns the number of partitions of a topic.
            frame: Frames a message with its topic for a schema registry, before its partition is
                known, which may depend on the bytes of the key.

        Raises:
            EncodeError: *encode* or *frame* raises it, or the topic or partition of a message is
                invalid.
        """
        kind = str(event.__struct_config__.tag)
        parts = () if kind in self.drops else self.split(event)
        if not parts:
            return Encoded((), ((f"event:{kind}", f"{self.name} does not write it"),))
        placed: list[Message] = []
        losses: dict[tuple[str, str], None] = {}
        for part in parts:
            if part is not event and isinstance(part, DataChange) and _lacks_value(part):
                losses[_LOST_VALUE] = None
            encoded = encode(part)
            losses.update(dict.fromkeys(encoded.losses))
            for message in encoded.messages:
                if message.value is None and not self.tombstones:
                    losses["event:tombstone", f"{self.name} does not write it"] = None
                    continue
                framed = (
                    message if frame is None else self._framed(part, message, partitions_of, frame)
                )
                for placed_message in self.place(part, framed, partitions_of):
                    self._check(part, placed_message, partitions_of)
                    placed.append(placed_message)
        return Encoded(tuple(placed), tuple(losses))

    def _framed(
        self, event: ChangeEvent, message: Message, partitions_of: PartitionsOf, frame: Frame
    ) -> Message:
        """Return a message with the framing that it has in the topic of its place."""
        places = self.place(event, message, partitions_of)
        for place in places:
            self._check(event, place, partitions_of)
        if not places:
            return message
        framed = frame(msgspec.structs.replace(message, topic=places[0].topic))
        return msgspec.structs.replace(framed, topic=message.topic)

    def _check(self, event: ChangeEvent, message: Message, partitions_of: PartitionsOf) -> None:
        """Reject an invalid topic or partition, and a place without order.

        Raises:
            EncodeError: The topic or partition is invalid, or a row change has no key.
        """
        if message.topic is None:
            raise EncodeError(f"the message has no topic: see profile {self.name}")
        check_topic(message.topic)
        if message.partition is not None:
            count = partitions_of(message.topic)
            if count is not None and not 0 <= message.partition < count:
                raise EncodeError(
                    f"topic {message.topic} has no partition {message.partition}, only {count} "
                    f"partitions: see the options of profile {self.name}"
                )
        elif message.key is None and not self.null_keys and isinstance(event, DataChange):
            raise EncodeError(
                f"a row change of table {event.table} has no key, so its changes would be spread "
                "over all partitions without order. Set the table's key columns in the options of "
                "the format, or accept it with the profile's option null_keys=true"
            )


def table_of(event: ChangeEvent) -> TableId:
    """Return the table of an event; without parts if the event has none."""
    if isinstance(event, HalfUpdate):
        event = event.change
    table = getattr(event, "table", None)
    return table if isinstance(table, TableId) else TableId()


def unsplit(event: ChangeEvent) -> tuple[ChangeEvent, ...]:
    """Return an event unchanged: the producer does not split it, or the format splits it."""
    return (event,)


_LOST_VALUE: Final = (
    "key_change",
    "a column whose value the producer did not send is unknown in the new row",
)


def _lacks_value(event: DataChange) -> bool:
    """Whether an insert has a column without its value, which only the row of the old key has."""
    return event.op is Op.CREATE and UNAVAILABLE in (event.after or {}).values()


def split_key_change(event: ChangeEvent) -> tuple[ChangeEvent, ...]:
    """Return a key change as a delete and an insert, any other event unchanged.

    Each half has its own key, and so its own partition.
    """
    if not isinstance(event, DataChange) or not is_key_change(event):
        return (event,)
    after = moved_row(event.before or {}, event.after or {})
    deletion = msgspec.structs.replace(event, op=Op.DELETE, after=None)
    return deletion, msgspec.structs.replace(event, op=Op.CREATE, before=None, after=after)


def partition_count(topic: str | None, partitions_of: PartitionsOf) -> int:
    """Return the number of partitions of a topic.

    Raises:
        EncodeError: The number is unknown.
    """
    count = None if topic is None else partitions_of(topic)
    if count is None:
        raise EncodeError(f"the number of partitions of topic {topic} is unknown")
    return count


def broadcast(message: Message, count: int) -> tuple[Message, ...]:
    """Return a message once for each partition."""
    return tuple(msgspec.structs.replace(message, partition=number) for number in range(count))


_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@lru_cache(maxsize=4096)
def check_topic(topic: str) -> None:
    """Reject a name that Kafka does not allow for a topic.

    Raises:
        EncodeError: Kafka does not allow it.
    """
    if _LEGAL.fullmatch(topic) is None or topic in {".", ".."}:
        raise EncodeError(
            f"{topic!r} is not a valid topic name (letters, digits, '.', '_' and '-', at most 249 "
            "characters): give the table another topic"
        )


def changed_partitions(topic: str, before: int, now: int) -> str | None:
    """Return a warning if the number of partitions of a topic in use changed.

    Every hash rule depends on that number.
    """
    if before == now:
        return None
    return (
        f"topic {topic} had {before} partitions and has {now} now: new changes of a row may be in "
        "another partition than its earlier changes, and a reader may process them in the wrong "
        "order. Let readers finish before more is written, or write to a new topic"
    )
