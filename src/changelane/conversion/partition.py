# SPDX-License-Identifier: Apache-2.0
"""Converts the messages of one topic partition into messages for other topics, in their order.

It is the equivalent of ``changelane convert`` for messages with coordinates. Halves of an update
in the same partition are joined. Data that the target cannot carry is a failure or a counted loss,
and a failure never blocks the messages after it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from changelane.codec import Codec, Encoded
from changelane.conversion.destinations import Deliver, EventEncoder, Origin
from changelane.conversion.join_update_halves import MAX_WAITING, JoinHalves, Orphans
from changelane.conversion.lanes import ConversionLanes
from changelane.errors import (
    ApplyError,
    ChangelaneError,
    DecodeError,
    EncodeError,
    TransformError,
    UnreachableError,
    UnsupportedError,
)
from changelane.event import ChangeEvent, HalfUpdate
from changelane.message import Message
from changelane.position import EventIdPosition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId
from changelane.transforms.chain import Chain

EVENT_ID: Final = "changelane-event-id"
"""The header with the event id, which is equal for all deliveries of a message."""
_EVENT_ID: Final = re.compile(r"(.+)-(\d{1,10})-(\d{1,20})-(\d{1,5})-(\d{1,5})", re.ASCII)


_BLOCKED_REASON: Final = (
    "an earlier message of its key is quarantined; replay or discard the earlier message"
)


class IncomingMessage(msgspec.Struct, frozen=True, gc=False):
    """A message to deliver.

    Attributes:
        message: The message.
        event_index: The only event of the message to deliver; ``None`` = all events.
        is_blocked: An earlier message of its key is quarantined, and keys are blocked.
    """

    message: Message
    event_index: int | None = None
    is_blocked: bool = False


class RejectedMessage(NamedTuple):
    """A quarantined message, or one event of it; *withheld* = only hashes are stored (mask)."""

    origin: Origin
    code: ReasonCode
    reason: str
    path: str = "$"
    table: TableId | None = None
    is_withheld: bool = False


Outcomes = Sequence[Message | RejectedMessage]
"""The output of a message: messages to send, and rejected ones."""


class Counts(NamedTuple):
    """Totals by name (``messages``, ``events``, ``written``), losses, and rejections."""

    totals: Counter[str]
    losses: Counter[tuple[str, str]]
    refused: Counter[str]


class DeliveryError(ChangelaneError):
    """Delivery is impossible now, for a reason outside the messages; the batch ends."""


class Delivery:
    """Converts the messages of a topic partition in their order, or of one after the other.

    Args:
        source: The codec of the source format.
        deliver: Encodes events, and sets their topics.
        chain: The transforms of events.
        event_id: Whether each message gets the header :data:`EVENT_ID`.
        blocks_keys: After a rejection, all later messages of the key in the partition are rejected,
            too; messages without a key count as one key.
        counts: The totals to update. :meth:`add_counts` and :meth:`flush` add those of plain
            messages.
        lanes: Convert plain messages without events; the result is the same.

    Attributes:
        lanes: The lanes of plain messages; ``None`` if there are none.
    """

    def __init__(
        self,
        source: Codec,
        deliver: Deliver,
        *,
        chain: Chain | None = None,
        event_id: bool = False,
        blocks_keys: bool = False,
        counts: Counts,
        lanes: bool = True,
    ) -> None:
        self._source = source
        self._deliver = deliver
        self._chain = Chain(()) if chain is None else chain
        self._event_id = event_id
        self._blocks_keys = blocks_keys
        self._blocked_keys: set[tuple[object, ...]] = set()
        self._counts = counts
        self._join = JoinHalves(orphans=Orphans.HALF)
        self._origins: dict[int, tuple[ChangeEvent, Origin]] = {}
        self._only_event: ChangeEvent | None = None
        self.lanes: ConversionLanes | None = None
        if lanes and isinstance(deliver, EventEncoder) and not self._chain.transforms:
            self._addressed = deliver.addressed
            self.lanes = deliver.lanes_from(source)

    def convert(self, messages: Iterable[IncomingMessage]) -> Iterator[Outcomes]:
        """Convert the messages of partitions, one partition after the other.

        Yields:
            The output of each message; at the end of a partition, that of waiting halves.
        """
        push, last = self.push, None
        for incoming in messages:
            message = incoming.message
            if last is None or message.partition != last.partition or message.topic != last.topic:
                yield self.flush()
            last = message
            yield push(message, event_index=incoming.event_index, is_blocked=incoming.is_blocked)
        yield self.flush()

    def push(
        self, message: Message, *, event_index: int | None = None, is_blocked: bool = False
    ) -> Outcomes:
        """Convert a message; return its output and the output of released events.

        The arguments are those of :class:`IncomingMessage`. *is_blocked* needs *blocks_keys*.
        """
        if self._blocks_keys and (is_blocked or blocking_key_of(message) in self._blocked_keys):
            self._counts.totals["messages"] += 1
            return self.reject_blocked(Origin(message, event_index))
        if self.lanes is not None and event_index is None and self._join.passes_changes:
            plain = self._plain(message, self.lanes)
            if plain is not None:
                return plain
        self.add_counts()
        self._counts.totals["messages"] += 1
        try:
            events = self._source.decode(message)
        except DecodeError as error:
            return self.reject(Origin(message, None), error.code, error.reason, error.path)
        except UnreachableError:
            raise  # a schema registry does not answer; the message may be right
        except Exception as error:  # noqa: BLE001 - a defect must not stop the other messages
            return self.reject(Origin(message, None), ReasonCode.DEFECT, _defect_text(error))
        if event_index is not None and event_index >= len(events):
            reason = f"the message has {len(events)} events now, fewer than when it was quarantined"
            return self.reject(Origin(message, event_index), ReasonCode.NO_SUCH_EVENT, reason)
        self._counts.totals["events"] += len(events) if event_index is None else 1
        self._only_event = events[0] if len(events) == 1 else None
        outcomes: list[Message | RejectedMessage] = []
        for index, decoded in enumerate(events):
            origin = Origin(message, index)
            if event_index not in {None, index}:
                continue
            if self._blocks_keys and blocking_key_of(message) in self._blocked_keys:
                outcomes += self.reject_blocked(origin)
                continue
            event = self._transformed(decoded, origin, outcomes)
            if event is None:
                continue
            released = self._join.push(event)
            if len(released) != 1 or released[0] is not event:
                self._remember_origin(event, origin)
            if (half := self._join.first_half) is not None:
                origin = origin._replace(first_half=self._origin(half, origin))
            for released_event in released:
                outcomes += self._encode(released_event, self._origin(released_event, origin))
        return outcomes

    def flush(self) -> Outcomes:
        """Return the output of waiting halves, because their other halves are in another batch."""
        self.add_counts()
        outcomes: list[Message | RejectedMessage] = []
        nowhere = Origin(Message(None), 0)
        for released_event in self._join.flush():
            outcomes += self._encode(released_event, self._origin(released_event, nowhere))
        self._origins.clear()
        return outcomes

    def _plain(self, message: Message, lanes: ConversionLanes) -> Outcomes | None:
        """Return the output of a plain message; ``None`` = it is not plain."""
        converted = lanes.convert(message)
        if converted is None:
            return None
        messages, variant = converted
        outcomes: list[Message | RejectedMessage] = []
        try:
            for number, written in enumerate(messages):
                addressed = self._addressed(variant.event, written, message)
                if self._event_id:
                    addressed = _with_event_id(addressed, Origin(message, 0), number)
                outcomes.append(addressed)
        except EncodeError:
            return None  # the event path rejects the message
        lanes.add_written(variant)
        return outcomes

    def add_counts(self) -> None:
        """Count the plain messages so far, each of which has one event."""
        if self.lanes is None:
            return
        for losses, count, written_count in self.lanes.take_counts():
            for name in ("messages", "events"):
                self._counts.totals[name] += count
            self._counts.totals["written"] += written_count
            self._counts.losses.update(dict.fromkeys(losses, count))
            self._join.skip(count)

    def _transformed(
        self, event: ChangeEvent, origin: Origin, outcomes: list[Message | RejectedMessage]
    ) -> ChangeEvent | None:
        """Return the transformed event; ``None`` if it is excluded or rejected."""
        if not self._chain.transforms:
            return event
        try:
            transformed = self._chain(event)
        except TransformError as error:
            outcomes += self.reject(origin, error.code, str(error))
        except Exception as error:  # noqa: BLE001 - a defect must not stop the other messages
            outcomes += self.reject(origin, ReasonCode.DEFECT, _defect_text(error))
        else:
            self._counts.totals["excluded"] += transformed is None
            return transformed
        return None

    def _remember_origin(self, event: ChangeEvent, origin: Origin) -> None:
        """Store the origin of an event that the join may buffer."""
        if len(self._origins) > 4 * MAX_WAITING:
            self._forget_released_origins()
        self._origins[id(event)] = event, origin
        if isinstance(event, HalfUpdate):
            self._origins[id(event.change)] = event.change, origin

    def _forget_released_origins(self) -> None:
        state = self._join.state
        halves = [waiting_half.half for waiting_half in state.waiting_halves.values()]
        halves += [state.adjacent] if state.adjacent is not None else []
        waiting_events: list[ChangeEvent] = [*halves, *(half.change for half in halves)]
        waiting_events += [
            tombstone
            for waiting_half in state.waiting_halves.values()
            for tombstone in waiting_half.tombstones
        ]
        names = {id(event) for event in waiting_events}
        self._origins = {name: origin for name, origin in self._origins.items() if name in names}

    def _origin(self, event: ChangeEvent, current: Origin) -> Origin:
        """Return the origin of an event; for a joined update, that of its second half."""
        known_origin = self._origins.get(id(event))
        return current if known_origin is None or known_origin[0] is not event else known_origin[1]

    def _encode(self, event: ChangeEvent, origin: Origin) -> Outcomes:
        if isinstance(event, HalfUpdate):
            reason = "the other half of the update is not in this partition and batch"
            return self.reject(origin, ReasonCode.ORPHAN_HALF, reason, table=event.change.table)
        table = getattr(event, "table", None)
        try:
            topic = self._chain.topic(table) if isinstance(table, TableId) else None
            encoded = self._deliver(event, origin, topic)
        except UnsupportedError as error:
            return self.reject(origin, ReasonCode.UNSUPPORTED, str(error), table=table)
        except EncodeError as error:
            return self.reject(origin, error.code, str(error), table=table)
        except (DeliveryError, UnreachableError):
            raise  # also a schema registry that does not answer, or rejects the schema
        except Exception as error:  # noqa: BLE001 - a defect must not stop the other messages
            return self.reject(origin, ReasonCode.DEFECT, _defect_text(error), table=table)
        if self.lanes is not None and event is self._only_event:
            messages = tuple(Message(m.value, m.key, m.headers) for m in encoded.messages)
            self.lanes.learn(origin.message, event, Encoded(messages, encoded.losses))
        self._counts.losses.update(encoded.losses)
        self._counts.totals["written"] += len(encoded.messages)
        if not self._event_id:
            return encoded.messages
        return [
            _with_event_id(message, origin, number)
            for number, message in enumerate(encoded.messages)
        ]

    def reject_blocked(self, origin: Origin) -> Sequence[RejectedMessage]:
        """Reject a message because an earlier message of its key is quarantined, and count it."""
        return self.reject(origin, ReasonCode.HELD, _BLOCKED_REASON)

    def reject(
        self,
        origin: Origin,
        code: ReasonCode,
        reason: str,
        path: str = "$",
        table: TableId | None = None,
    ) -> Sequence[RejectedMessage]:
        """Reject a message, or an event of it, and count it.

        Both messages of a joined update are rejected: a replay of one of them would lose the other.
        """
        halves = (origin,) if origin.first_half is None else (origin.first_half, origin)
        return [self._rejected(half, code, reason, path, table) for half in halves]

    def _rejected(
        self, origin: Origin, code: ReasonCode, reason: str, path: str, table: TableId | None
    ) -> RejectedMessage:
        self._counts.refused[code] += 1
        redacted = self._chain.redacted
        message = origin.message
        if self._blocks_keys:
            self._blocked_keys.add(blocking_key_of(message))
        stored_message = msgspec.structs.replace(
            message, key=redacted(message.key), value=redacted(message.value)
        )
        is_withheld = self._chain.is_masking
        return RejectedMessage(
            Origin(stored_message, origin.number), code, reason, path, table, is_withheld
        )


def blocking_key_of(message: Message) -> tuple[object, ...]:
    """Return the topic, partition and key of a message; later messages with them must wait."""
    return message.topic, message.partition, message.key


def _with_event_id(message: Message, origin: Origin, number: int) -> Message:
    source = origin.message
    identity = f"{source.topic}-{source.partition}-{source.offset}-{origin.number}-{number}"
    headers = (*message.headers, (EVENT_ID, identity.encode()))
    return msgspec.structs.replace(message, headers=headers)


def event_position(message: Message, index: int) -> EventIdPosition:
    """Return the position that the event id of a message contains, for one of its events.

    Raises:
        ApplyError: The message has no event id, or another program wrote it.
    """
    id_bytes = next((value for name, value in message.headers if name == EVENT_ID), None)
    match = None if id_bytes is None else _EVENT_ID.fullmatch(id_bytes.decode("utf-8", "replace"))
    if match is None:
        reason = "no event id" if id_bytes is None else "an invalid event id"
        raise ApplyError(
            f"source.order_by_event_id: the message has {reason} in the header {EVENT_ID}"
        )
    topic, *numbers = match.groups()
    partition, offset, event, part = map(int, numbers)
    if max(part, index) > 0xFF:
        raise ApplyError("source.order_by_event_id: one event has more than 256 messages")
    return EventIdPosition(topic, partition, offset, event << 16 | part << 8 | index)


def _defect_text(error: Exception) -> str:
    return f"a defect of changelane ({type(error).__name__}): please report it"


def empty_counts() -> Counts:
    """Return empty counts."""
    return Counts(Counter(), Counter(), Counter())
