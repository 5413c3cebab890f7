# SPDX-License-Identifier: Apache-2.0
"""The topics and partitions of the messages of events."""

import re
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import msgspec

from changelane.codec import Codec, Encoded
from changelane.conversion.lanes import ConversionLanes, conversion_lanes
from changelane.errors import EncodeError
from changelane.event import ChangeEvent, DataChange, HalfUpdate, SchemaChange, Truncate
from changelane.formats.contract.format import Framing
from changelane.formats.contract.losses import LossPolicy
from changelane.message import Message
from changelane.pipeline.kafka_source import is_topic
from changelane.pipeline.topic_sink import PLACEHOLDER
from changelane.position import SequencePosition
from changelane.profiles.profile import Frame, PartitionsOf, Profile
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId

_PARTITION_BITS: Final = 12
_EVENT_BITS: Final = 11
_OFFSET_BITS: Final = 63 - _PARTITION_BITS - _EVENT_BITS


class Origin(NamedTuple):
    """The message of an event, and the index of the event in it; ``None`` = all events.

    Of an update that was joined from two messages it is that of the second half, with the
    *first_half*.
    """

    message: Message
    number: int | None
    first_half: "Origin | None" = None


Deliver = Callable[[ChangeEvent, Origin, str | None], Encoded]
"""Returns the messages of an event with topic, key, headers and, if set, partition. The topic of a
route has priority. It raises :class:`EncodeError` if the event cannot be encoded.
"""


class Address(msgspec.Struct, frozen=True):
    """The topics of messages, without a producer's profile.

    Attributes:
        topic: A name with placeholders such as ``cdc.{database}.{table}``.
        by_source: The partition of a message is that of its origin, modulo the number of
            partitions. Otherwise this rule applies only to messages without a key, and Kafka
            chooses the partition of all others by the key.
        is_same_broker: Source and sink are one broker: no topic is written into itself.
    """

    topic: str
    by_source: bool = False
    is_same_broker: bool = False

    def place(
        self,
        event: ChangeEvent,
        message: Message,
        origin: Message,
        partitions_of: PartitionsOf,
        topic: str | None = None,
    ) -> Message:
        """Return a message with its topic, which may come from a route, and its partition.

        Raises:
            DestinationError: The message has no topic, or the topic does not exist.
        """
        topic = self._topic(event, origin) if topic is None else topic
        count = self.check(topic, origin, partitions_of)
        partition = None
        if self.by_source or message.key is None:
            partition = (origin.partition or 0) % count
        value, key, headers = message.value, message.key, message.headers
        return Message(value, key, headers, topic, partition)

    def check(self, topic: str | None, origin: Message, partitions_of: PartitionsOf) -> int:
        """Return the number of partitions of a topic.

        Raises:
            DestinationError: The topic does not exist, or the message was read from it.
        """
        if self.is_same_broker and topic == origin.topic:
            raise DestinationError(
                ReasonCode.SAME_TOPIC,
                "it would be written into the topic that it was read from",
            )
        count = None if topic is None else partitions_of(topic)
        if count is None:
            raise DestinationError(ReasonCode.NO_TOPIC, f"there is no topic {topic}: create it")
        return count

    def _topic(self, event: ChangeEvent, origin: Message) -> str:
        if "{" not in self.topic:
            return self.topic
        changed = event.change if isinstance(event, HalfUpdate) else event
        table = getattr(changed, "table", None) or TableId()
        parts = {
            "topic": origin.topic,
            "database": table.database,
            "schema": table.schema,
            "table": table.name,
        }

        def part(match: re.Match[str]) -> str:
            part = parts[match.group(1)]
            if part is None:
                words = f"the event has no {match.group(1)}, which is a part of its topic's name"
                raise DestinationError(ReasonCode.NO_TOPIC_NAME, words)
            return part

        topic = PLACEHOLDER.sub(part, self.topic)
        if not is_topic(topic):
            # without the characters that Kafka does not allow, two names could be equal
            raise DestinationError(
                ReasonCode.NO_TOPIC_NAME, "the name of its table is not allowed in a topic name"
            )
        return topic


class DestinationError(EncodeError):
    """A message has no topic to which it can be written."""

    def __init__(self, code: ReasonCode, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


def with_sequence(event: ChangeEvent, origin: Origin) -> ChangeEvent:
    """Return an event with a sequence: its own, else one from the coordinates of its message.

    "_sequence_id_: A unique message ID of the STRING type, consisting of digits". From the highest
    bit on it has 40 bits of the offset, 12 bits of the partition, and 11 bits of the number of the
    event in its message. It rises with the offset, is equal in each attempt, and has 63 bits.

    Raises:
        DestinationError: The coordinates are too large.
    """
    change = event.change if isinstance(event, HalfUpdate) else event
    if not isinstance(change, DataChange | SchemaChange | Truncate):
        return event
    if isinstance(change.position, SequencePosition) or isinstance(event, HalfUpdate):
        return event
    offset, partition, index = origin.message.offset, origin.message.partition, origin.number
    if offset is None or partition is None or index is None:
        return event
    parts = ((offset, _OFFSET_BITS), (partition, _PARTITION_BITS), (index, _EVENT_BITS))
    value = 0
    for number, bits in parts:
        if not 0 <= number < 1 << bits:
            raise DestinationError(
                ReasonCode.SEQUENCE, "the coordinates of its message do not fit into a sequence"
            )
        value = value << bits | number
    return msgspec.structs.replace(event, position=SequencePosition(value))


class EventEncoder:
    """Encodes events into messages with topics: a :data:`Deliver`.

    Args:
        codec: The codec of the target format.
        on_loss: The policy for losses.
        address: The topics of messages, if there is no profile.
        partitions_of: Returns the number of partitions of a topic.
        profile: The producer whose rules determine the topics.
        is_dry_run: Whether no schema is registered: messages stay as they were before their
            framing, but those that have none are rejected.
    """

    def __init__(
        self,
        codec: Codec,
        on_loss: str | LossPolicy,
        address: Address,
        partitions_of: PartitionsOf,
        profile: Profile | None = None,
        *,
        is_dry_run: bool = False,
    ) -> None:
        self._codec = codec
        self._encode = partial(codec.encode_unframed, on_loss=on_loss)
        framing = codec.framing
        self._frame: Frame | None = None
        if framing is not None:
            self._frame = partial(_checked, framing) if is_dry_run else framing.frame
        self._address = address
        self._partitions_of = partitions_of
        self._profile = profile

    def __call__(self, event: ChangeEvent, origin: Origin, topic: str | None) -> Encoded:
        """Return the messages of an event; see :data:`Deliver`."""
        if self._profile is None:
            encoded = self._encode(event)
            addressed = tuple(
                self.addressed(event, message, origin.message, topic)
                for message in encoded.messages
            )
            if self._frame is not None:
                addressed = tuple(map(self._frame, addressed))
            return Encoded(addressed, encoded.losses)
        if topic is not None:
            raise DestinationError(
                ReasonCode.TWO_TOPICS, "a route and the profile give it different topics"
            )
        if self._profile.has_sequence:
            event = with_sequence(event, origin)

        frame = self._frame and partial(self._framed, self._frame, origin.message)
        encoded = self._profile.encode(event, self._encode, self._partitions_of, frame=frame)
        for message in encoded.messages:
            self._address.check(message.topic, origin.message, self._partitions_of)
        return encoded

    def _framed(self, frame: Frame, origin: Message, message: Message) -> Message:
        """Return a framed message; one without a valid topic has no subject of a schema."""
        self._address.check(message.topic, origin, self._partitions_of)
        return frame(message)

    def addressed(
        self, event: ChangeEvent, message: Message, origin: Message, topic: str | None = None
    ) -> Message:
        """Return a message of an event with its topic and partition; see :meth:`Address.place`."""
        return self._address.place(event, message, origin, self._partitions_of, topic)

    def lanes_from(self, source: Codec) -> ConversionLanes | None:
        """Return the lanes from a format; a profile needs events."""
        if self._profile is not None:
            return None
        return conversion_lanes(source, self._codec, reads_streams=False)


def _checked(framing: Framing, message: Message) -> Message:
    """Return a message unchanged, if it has a form in the serde of a registry."""
    framing.check(message)
    return message
