# SPDX-License-Identifier: Apache-2.0
"""Conversion lanes: plain row changes of one table, from message to message without an event.

The source format reads the messages with a lane (:mod:`changelane.formats.contract.lane`), and the
target format states how it writes rows (:mod:`changelane.formats.contract.row_writing`). All other
messages take the event path: decode, reduce, encode.

A conversion lane is a fast path and never a second algorithm. The losses of its messages are those
of the event path: they depend on the *variant* of a message, such as its operation, and not on the
values of its rows. The first message of each variant takes the event path, and the lane must have
written the same bytes. Whatever depends on a value in another way is not plain.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from changelane.codec import Codec, Encoded
from changelane.conversion.lane_rows import row_functions
from changelane.event import ChangeEvent, DataChange, Op
from changelane.formats.contract.cached_reducer import empty_fields
from changelane.formats.contract.capabilities import Carries
from changelane.formats.contract.consistency import (
    AFTER_LAST_NS,
    FIRST_NS,
    has_usual_counts,
)
from changelane.formats.contract.lane import (
    Lanes,
    NotPlainError,
    ReadChange,
    TimedLane,
    values_getter,
)
from changelane.formats.contract.losses import Loss
from changelane.formats.contract.open_lanes import OpenLanes
from changelane.message import Message

_DELETE: Final = Op.DELETE.value


class Variant(msgspec.Struct, gc=False):
    """The common result of the messages of a lane with equal traits.

    Attributes:
        losses: Their losses.
        event: One of their events.
        message_count: The number of messages of each event.
        count: The events that were written since :meth:`ConversionLanes.take_counts`.
    """

    losses: tuple[Loss, ...]
    event: DataChange
    message_count: int
    count: int = 0


Variants = dict[tuple[Any, ...], Variant | None]
"""The variants of a lane by their traits, which decide the losses; ``None`` = not plain."""

Written = tuple[tuple[Message, ...], tuple[Any, ...], Variants]
"""The written messages of a change, the traits of its variant, and the variants of its lane."""

Convert = Callable[[Message], Written | None]
"""Converts a message; ``None`` or any exception = not plain."""


class ConversionLanes(OpenLanes[Written]):
    """Converts the plain messages of one stream.

    Attributes:
        count: The number of plain messages.
        difference_count: The number of variants that the event path writes in another way. It is
            always 0; such a variant is not plain.
    """

    def __init__(self, target: Codec, lanes: Lanes) -> None:
        """Create the lanes; see :func:`conversion_lanes`."""
        super().__init__(lanes)
        self.count = 0
        self.difference_count = 0
        self._target = target
        self._written: Written | None = None
        self._variants: list[Variant] = []

    def convert(self, message: Message) -> tuple[tuple[Message, ...], Variant] | None:
        """Return the messages and the variant of a message; ``None`` = it is not plain."""
        self._written = None
        written = self.result(message)
        if written is None:
            return None
        messages, traits, variants = written
        variant = variants.get(traits)
        if variant is None:
            if traits not in variants:
                self._written = written
            return None
        self.count += 1
        return messages, variant

    def add_written(self, variant: Variant) -> None:
        """Count a converted message that the caller has written."""
        if not variant.count:
            self._variants.append(variant)
        variant.count += 1

    def take_counts(self) -> list[tuple[tuple[Loss, ...], int, int]]:
        """Return the losses of the variants, and the events and messages since the last call."""
        counts = [
            (variant.losses, variant.count, variant.count * variant.message_count)
            for variant in self._variants
        ]
        for variant in self._variants:
            variant.count = 0
        self._variants.clear()
        return counts

    def learn(self, message: Message, event: ChangeEvent, encoded: Encoded) -> None:
        """Learn from a message that has one event and took the event path.

        Args:
            message: The message. Only the last one of :meth:`convert` opens a lane: while halves of
                updates wait, messages are not converted in lanes.
            event: Its only event.
            encoded: The messages of the event, and its losses.
        """
        if type(event) is not DataChange or not self.is_last(message):
            return
        if self._written is not None:
            messages, traits, variants = self._written
            variants[traits] = None
            if self._reduced(event) is not None:
                if _contents(encoded.messages) == _contents(messages):
                    variants[traits] = Variant(encoded.losses, event, len(messages))
                else:
                    self.difference_count += 1
        elif self.is_due(message):
            try:
                convert = self._opened(message, event)
            except Exception:  # noqa: BLE001 - any doubt: the messages take the event path
                return
            self.add(message, convert)

    def _reduced(self, event: DataChange) -> DataChange | None:
        """Return the reduced event; ``None`` if it has details, which lanes do not write."""
        reduced, _ = self._target.reduce(event)
        if len(reduced) != 1:
            return None
        (change,) = reduced
        return change if isinstance(change, DataChange) and not change.details else None

    def _lane(self, message: Message, event: DataChange) -> Any:
        """Return the lane of messages such as the last one.

        Raises:
            Exception: The messages are not plain.
        """
        lane, schema = self._lanes.open(message, event), event.schema
        if schema is not None and tuple(column.column for column in lane.columns) != schema.columns:
            raise NotPlainError  # without types, a before image may have further columns
        return lane

    def _opened(self, message: Message, event: DataChange) -> Convert:
        """Return the converter of messages such as the last one.

        Raises:
            Exception: The messages are not plain.
        """
        reduced, writing_of = self._reduced(event), self._target.row_writing
        if reduced is None or writing_of is None:
            raise NotPlainError
        lane, writing = self._lane(message, event), writing_of(reduced)
        reducer = self._target.reducer
        plan = None if event.schema is None else reducer.plan(event.schema)
        row, write, write_deleted = row_functions(lane, plan, reducer, writing)
        carries = self._target.carries
        read: ReadChange = lane.event_reader(row, has_positions=bool(carries.positions))
        key_names = () if event.key is None else event.key.columns
        key_of = values_getter(key_names, lane.columns, is_named=lane.is_named)
        (source_size, _), (process_size, _) = reducer.units.values()
        position_at = lane.position_at if isinstance(lane, TimedLane) else None
        has_position = _ByClass(carries.positions)
        write_change, variants = writing.write, Variants()
        operations, keeps_before = _written_operations(carries), carries.before

        def convert(message: Message) -> Written | None:
            plain = read(message.value or b"", message.key)
            if plain is None:
                return None
            op, before, after, position, transaction, _, source_ns, process_ns, has_details = plain
            if position_at is not None:
                position = position_at(source_ns, message.offset)
            source_rest = process_rest = 0
            if source_ns is not None:
                source_ns, source_rest = _cut(source_ns, source_size)
            if process_ns is not None:
                process_ns, process_rest = _cut(process_ns, process_size)
            shape = None
            if transaction is not None:
                if not has_usual_counts(transaction):
                    return None
                shape = empty_fields(transaction)
                transaction = reducer.transaction(transaction, {})
            has_before, losses = before is not None, dict[Loss, None]()
            if op == _DELETE:
                before = write_deleted(before, losses)
            else:
                if has_before:
                    if key_of(before) != key_of(after):
                        return None
                    before = write(before, losses) if keeps_before else None
                after = write(after, losses)
            position_class = position.__class__
            if not has_position[position_class]:
                position = None
            coordinates = position, transaction, source_ns, process_ns
            messages = write_change(operations[op], before, after, coordinates, losses.setdefault)
            traits = (
                op,
                has_before,
                shape,
                has_details,
                not source_rest,
                not process_rest,
                position_class,
                tuple(losses),
            )
            return messages, traits, variants

        return convert


def _cut(time_ns: int, size: int) -> tuple[int | None, int]:
    """Return a time in units of a size, and its rest; see :attr:`Reducer.units`.

    Raises:
        NotPlainError: The time is out of range.
    """
    if not FIRST_NS <= time_ns < AFTER_LAST_NS:
        raise NotPlainError
    if not size:
        return None, 1
    rest = time_ns % size
    return time_ns - rest, rest


def _written_operations(carries: Carries) -> dict[str, str]:
    """Return the operations of a format by those of events, as the reduction maps them."""
    operations = {op.value: op.value for op in carries.operations}
    if Op.CREATE in carries.operations:
        operations.setdefault(Op.READ.value, Op.CREATE.value)
    return operations


class _ByClass(dict[type, bool]):
    """Whether a format carries the positions of a class, computed once."""

    def __init__(self, domains: frozenset[str]) -> None:
        super().__init__()
        self._domains = domains

    def __missing__(self, position_class: type) -> bool:
        config = getattr(position_class, "__struct_config__", None)
        is_carried = self[position_class] = config is not None and config.tag in self._domains
        return is_carried


def _contents(messages: tuple[Message, ...]) -> list[tuple[object, ...]]:
    """Return the parts of messages that do not depend on their destination."""
    return [(message.value, message.key, message.headers) for message in messages]


def conversion_lanes(
    source: Codec, target: Codec, *, reads_streams: bool
) -> ConversionLanes | None:
    """Return the lanes from one codec to another; ``None`` if one of the formats has none.

    Args:
        source: The format of the messages.
        target: The format of the output.
        reads_streams: Messages are decoded in streams. A lane has no state, so messages that depend
            on earlier ones become events. So do those whose details the target keeps, because lanes
            do not write details.
    """
    lanes, own, other = source.lanes, source.carries, target.carries
    if lanes is None or target.row_writing is None or (reads_streams and source.has_streams):
        return None
    is_of_one_family = own.stamp.connector == other.stamp.connector
    if is_of_one_family and own.details and other.details:
        return None
    return ConversionLanes(target, lanes)
