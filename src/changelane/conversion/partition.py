# SPDX-License-Identifier: Apache-2.0
"""Messages of one topic's partition into messages for other topics, in their order.

It does what ``changelane convert`` does, for a stream whose messages have coordinates: halves of an
update that lie in the same partition are joined, what cannot be carried is a failure or a counted
loss, and a failure never holds up the messages behind it.
"""

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import msgspec

from changelane.codec import Codec, Encoded
from changelane.conversion.join_update_halves import MOST_WAITING, JoinHalves, Orphans
from changelane.errors import (
    ApplyError,
    ChangelaneError,
    DecodeError,
    EncodeError,
    TransformError,
    UnsupportedError,
)
from changelane.event import ChangeEvent, HalfUpdate
from changelane.formats.contract.losses import LossPolicy
from changelane.message import Message
from changelane.pipeline.kafka import PLACEHOLDER, is_topic
from changelane.position import EventIdPosition
from changelane.profiles.profile import PartitionsOf, Profile
from changelane.schema import TableId
from changelane.transforms.chain import Chain

EVENT_ID: Final = "changelane-event-id"
"""The header that is the same whenever the same message is sent again."""
_EVENT_ID: Final = re.compile(r"(.+)-(\d{1,10})-(\d{1,20})-(\d{1,5})-(\d{1,5})", re.ASCII)


HELD: Final = "held"
"""The reason code of what waits for an earlier message of its key."""
_WAITS: Final = "an earlier message of its key is set aside: it follows when that one is replayed"


class Coming(NamedTuple):
    """A message that is to be delivered.

    Attributes:
        message: The message.
        only: Only this one of its events goes on, the others did before; ``None`` = all go.
        waits: Where keys are held: an earlier message of its key is set aside.
    """

    message: Message
    only: int | None = None
    waits: bool = False


class Origin(NamedTuple):
    """The message that an event came in, and which of its events it is; ``None`` = all of them."""

    message: Message
    number: int | None


Deliver = Callable[[ChangeEvent, Origin, str | None], Encoded]
"""The messages of an event with topic, key, headers and, where it is told, partition; a topic that
a route told goes first. It raises :class:`EncodeError` when there are none."""


class Refused(NamedTuple):
    """A message, or one event of it, that is set aside; withheld: with a mask, as hashes only."""

    origin: Origin
    code: str
    reason: str
    path: str = "$"
    table: TableId | None = None
    is_withheld: bool = False


class Counts(NamedTuple):
    """What was done, by name: ``messages``, ``events``, ``written``, and losses and refusals."""

    done: Counter[str]
    losses: Counter[tuple[str, str]]
    refused: Counter[str]


class Address(msgspec.Struct, frozen=True):
    """Where messages go that no producer's profile places.

    Attributes:
        topic: A name with placeholders such as ``cdc.{database}.{table}``.
        by_source: A message goes to the partition of the message that it came in, modulo the
            number of partitions. Otherwise only messages without a key do so, and Kafka chooses
            by the key of all others.
        is_same_broker: Topics must not be written into themselves.
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
        """Return a message with its topic, which a route may have told, and partition.

        Raises:
            PlaceError: Nothing tells its topic, or there is no such topic.
        """
        topic = self._topic(event, origin) if topic is None else topic
        count = self.check(topic, origin, partitions_of)
        partition = None
        if self.by_source or message.key is None:
            partition = (origin.partition or 0) % count
        return msgspec.structs.replace(message, topic=topic, partition=partition)

    def check(self, topic: str | None, origin: Message, partitions_of: PartitionsOf) -> int:
        """Return how many partitions a topic has.

        Raises:
            PlaceError: There is no such topic, or the message came from it.
        """
        if self.is_same_broker and topic == origin.topic:
            raise PlaceError("same_topic", "it would be written into the topic it was read from")
        count = None if topic is None else partitions_of(topic)
        if count is None:
            raise PlaceError("no_topic", f"there is no topic {topic}: create it")
        return count

    def _topic(self, event: ChangeEvent, origin: Message) -> str:
        if "{" not in self.topic:
            return self.topic
        changed = event.change if isinstance(event, HalfUpdate) else event
        table = getattr(changed, "table", None) or TableId()
        told = {
            "topic": origin.topic,
            "database": table.database,
            "schema": table.schema,
            "table": table.name,
        }

        def part(match: re.Match[str]) -> str:
            found = told[match.group(1)]
            if found is None:
                words = f"the event tells no {match.group(1)}, which names its topic"
                raise PlaceError("no_topic_name", words)
            return found

        topic = PLACEHOLDER.sub(part, self.topic)
        if not is_topic(topic):
            # two names must not become one by leaving out what Kafka does not allow
            raise PlaceError("no_topic_name", "its names cannot stand in the name of a topic")
        return topic


class PlaceError(EncodeError):
    """A message has no place in any topic."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


def encoder(
    codec: Codec,
    on_loss: str | LossPolicy,
    address: Address,
    partitions_of: PartitionsOf,
    profile: Profile | None = None,
) -> Deliver:
    """Return how events are delivered.

    Args:
        codec: Writes them.
        on_loss: What to do with what it cannot carry.
        address: Where messages go without a profile.
        partitions_of: How many partitions topics have.
        profile: Says where messages go instead.
    """
    encode = partial(codec.encode, on_loss=on_loss)

    def deliver(event: ChangeEvent, origin: Origin, topic: str | None) -> Encoded:
        if profile is not None:
            if topic is not None:
                raise PlaceError("two_topics", "a route tells its topic, and so does the profile")
            encoded = profile.encode(event, encode, partitions_of)
            for message in encoded.messages:
                address.check(message.topic, origin.message, partitions_of)
            return encoded
        encoded = encode(event)
        placed = tuple(
            address.place(event, message, origin.message, partitions_of, topic)
            for message in encoded.messages
        )
        return Encoded(placed, encoded.losses)

    return deliver


class DeliveryError(ChangelaneError):
    """Nothing can be delivered now, for no reason that lies in a message: the batch ends."""


class Delivery:
    """Converts the messages of one topic's partition, in their order.

    Args:
        source: Reads them.
        deliver: Writes events, and says where they go.
        chain: What becomes of events between the two.
        event_id: Whether each message gets the header :data:`EVENT_ID`.
        holds: Once something of a key is set aside, so is all that comes behind it in its
            partition; messages without a key are of one key.
        counts: Counted into.
    """

    def __init__(
        self,
        source: Codec,
        deliver: Deliver,
        *,
        chain: Chain | None = None,
        event_id: bool = False,
        holds: bool = False,
        counts: Counts,
    ) -> None:
        self._source = source
        self._deliver = deliver
        self._chain = Chain(()) if chain is None else chain
        self._event_id = event_id
        self._holds = holds
        self._waiting: set[tuple[object, ...]] = set()
        self._counts = counts
        self._join = JoinHalves(orphans=Orphans.HALF)
        self._held: dict[int, tuple[ChangeEvent, Origin]] = {}

    def push(
        self, message: Message, *, only: int | None = None, waits: bool = False
    ) -> list[Message | Refused]:
        """Return what becomes of a message, and of those that waited for it; see :class:`Coming`.

        Without *holds* no message waits.
        """
        self._counts.done["messages"] += 1
        if self._holds and (waits or place_of(message) in self._waiting):
            return [self.hold(Origin(message, only))]
        try:
            events = self._source.decode(message)
        except DecodeError as error:
            return [self.refuse(Origin(message, None), error.code, error.reason, error.path)]
        except Exception as error:  # noqa: BLE001 - a defect must not stop the other messages
            return [self.refuse(Origin(message, None), "defect", _defect(error))]
        if only is not None and only >= len(events):
            reason = f"it tells {len(events)} events now, and the one that was set aside was later"
            return [self.refuse(Origin(message, only), "no_such_event", reason)]
        self._counts.done["events"] += len(events) if only is None else 1
        found: list[Message | Refused] = []
        for index, told in enumerate(events):
            origin = Origin(message, index)
            if only not in {None, index}:
                continue
            if self._holds and place_of(message) in self._waiting:
                found.append(self.hold(origin))
                continue
            event = self._changed(told, origin, found)
            if event is None:
                continue
            released = self._join.push(event)
            if len(released) != 1 or released[0] is not event:
                self._hold(event, origin)
            for one in released:
                found += self._encode(one, self._origin(one, origin))
        return found

    def flush(self) -> list[Message | Refused]:
        """Return what becomes of the events that still wait: their halves come in another batch."""
        found: list[Message | Refused] = []
        nowhere = Origin(Message(None), 0)
        for one in self._join.flush():
            found += self._encode(one, self._origin(one, nowhere))
        self._held.clear()
        return found

    def _changed(
        self, event: ChangeEvent, origin: Origin, found: list[Message | Refused]
    ) -> ChangeEvent | None:
        """Return what the transforms make of an event; ``None``: it does not go on."""
        if not self._chain.steps:
            return event
        try:
            made = self._chain(event)
        except TransformError as error:
            found.append(self.refuse(origin, error.code, str(error)))
        except Exception as error:  # noqa: BLE001 - a defect must not stop the other messages
            found.append(self.refuse(origin, "defect", _defect(error)))
        else:
            self._counts.done["excluded"] += made is None
            return made
        return None

    def _hold(self, event: ChangeEvent, origin: Origin) -> None:
        """Remember where an event came from that the join may keep."""
        if len(self._held) > 4 * MOST_WAITING:
            self._forget()
        self._held[id(event)] = event, origin
        if isinstance(event, HalfUpdate):
            self._held[id(event.change)] = event.change, origin

    def _forget(self) -> None:
        state = self._join.state
        halves = [one.half for one in state.waiting.values()]
        halves += [state.adjacent] if state.adjacent is not None else []
        kept: list[ChangeEvent] = [*halves, *(half.change for half in halves)]
        kept += [one for waiting in state.waiting.values() for one in waiting.tombstones]
        names = {id(one) for one in kept}
        self._held = {name: told for name, told in self._held.items() if name in names}

    def _origin(self, event: ChangeEvent, current: Origin) -> Origin:
        """Return where an event came from; an update that was joined, where its second half did."""
        held = self._held.get(id(event))
        return current if held is None or held[0] is not event else held[1]

    def _encode(self, event: ChangeEvent, origin: Origin) -> list[Message | Refused]:
        if isinstance(event, HalfUpdate):
            reason = "half an update, whose other half did not come in this partition and batch"
            return [self.refuse(origin, "orphan_half", reason, table=event.change.table)]
        table = getattr(event, "table", None)
        try:
            topic = self._chain.topic(table) if isinstance(table, TableId) else None
            encoded = self._deliver(event, origin, topic)
        except UnsupportedError as error:
            return [self.refuse(origin, "unsupported", str(error), table=table)]
        except EncodeError as error:
            code = getattr(error, "code", "not_encodable")
            return [self.refuse(origin, code, str(error), table=table)]
        except DeliveryError:
            raise
        except Exception as error:  # noqa: BLE001 - a defect must not stop the other messages
            return [self.refuse(origin, "defect", _defect(error), table=table)]
        self._counts.losses.update(encoded.losses)
        self._counts.done["written"] += len(encoded.messages)
        if not self._event_id:
            return list(encoded.messages)
        return [_identified(one, origin, number) for number, one in enumerate(encoded.messages)]

    def hold(self, origin: Origin) -> Refused:
        """Return what waits for an earlier message of its key as set aside, and count it."""
        return self.refuse(origin, HELD, _WAITS)

    def refuse(
        self,
        origin: Origin,
        code: str,
        reason: str,
        path: str = "$",
        table: TableId | None = None,
    ) -> Refused:
        """Return a message, or an event of it, as set aside, and count it."""
        self._counts.refused[code] += 1
        withheld = self._chain.withheld
        told = origin.message
        if self._holds:
            self._waiting.add(place_of(told))
        kept = msgspec.structs.replace(told, key=withheld(told.key), value=withheld(told.value))
        is_withheld = self._chain.is_masking
        return Refused(Origin(kept, origin.number), code, reason, path, table, is_withheld)


def place_of(message: Message) -> tuple[object, ...]:
    """Return what messages have in common of which a later one waits for an earlier."""
    return message.topic, message.partition, message.key


def _identified(message: Message, origin: Origin, number: int) -> Message:
    told = origin.message
    identity = f"{told.topic}-{told.partition}-{told.offset}-{origin.number}-{number}"
    headers = (*message.headers, (EVENT_ID, identity.encode()))
    return msgspec.structs.replace(message, headers=headers)


def event_position(message: Message, index: int) -> EventIdPosition:
    """Return the place that the id of a message tells, for one of the events in it.

    Raises:
        ApplyError: It has no id, or one that changelane did not write.
    """
    told = next((value for name, value in message.headers if name == EVENT_ID), None)
    found = None if told is None else _EVENT_ID.fullmatch(told.decode("utf-8", "replace"))
    if found is None:
        reason = "no id" if told is None else "an id that changelane did not write"
        raise ApplyError(f"source.order_by_event_id: the message has {reason} in {EVENT_ID}")
    topic, *numbers = found.groups()
    partition, offset, event, part = map(int, numbers)
    if max(part, index) > 0xFF:
        raise ApplyError("too many messages were made of one event")
    return EventIdPosition(topic, partition, offset, event << 16 | part << 8 | index)


def _defect(error: Exception) -> str:
    return f"a defect of changelane ({type(error).__name__}): please report it"


def counts() -> Counts:
    """Return counts of nothing."""
    return Counts(Counter(), Counter(), Counter())
