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
from changelane.formats.contract.consistency import (
    AFTER_LAST_NS,
    FIRST_NS,
    has_usual_counts,
)
from changelane.formats.contract.lane import Lanes, NotPlainError, ReadChange, values_getter
from changelane.formats.contract.losses import Loss
from changelane.formats.contract.open_lanes import OpenLanes
from changelane.message import Message

_DELETE: Final = Op.DELETE.value


class Variant(msgspec.Struct, gc=False):
    """The common result of the messages of a lane with equal traits.

    Attributes:
        losses: Their losses.
        event: One of their events.
        count: The messages that were written since :meth:`ConversionLanes.take_counts`.
    """

    losses: tuple[Loss, ...]
    event: DataChange
    count: int = 0


Variants = dict[tuple[Any, ...], Variant | None]
"""The variants of a lane by their traits, which decide the losses; ``None`` = not plain."""

Written = tuple[bytes, tuple[Any, ...], Variants]
"""The value of a written message, the traits of its variant, and the variants of its lane."""

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

    def convert(self, message: Message) -> tuple[bytes, Variant] | None:
        """Return the value and the variant of a converted message; ``None`` = it is not plain."""
        self._written = None
        written = self.result(message)
        if written is None:
            return None
        data, traits, variants = written
        variant = variants.get(traits)
        if variant is None:
            if traits not in variants:
                self._written = written
            return None
        self.count += 1
        return data, variant

    def add_written(self, variant: Variant) -> None:
        """Count a converted message that the caller has written."""
        if not variant.count:
            self._variants.append(variant)
        variant.count += 1

    def take_counts(self) -> list[tuple[tuple[Loss, ...], int]]:
        """Return the losses of the variants, and the number of messages since the last call."""
        counts = [(variant.losses, variant.count) for variant in self._variants]
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
            data, traits, variants = self._written
            variants[traits] = None
            if self._reduced(event) is not None:
                if encoded.messages == (Message(data),):
                    variants[traits] = Variant(encoded.losses, event)
                else:
                    self.difference_count += 1
        elif self.is_due(message):
            try:
                convert = self._opened(message, event)
            except Exception:  # noqa: BLE001 - any doubt: the messages take the event path
                return
            self.add(message, convert)

    def _reduced(self, event: DataChange) -> DataChange | None:
        """Return the reduced event; ``None`` if its message has parts that lanes do not write."""
        reduced, _ = self._target.reduce(event)
        if len(reduced) != 1:
            return None
        (change,) = reduced
        if not isinstance(change, DataChange) or change.details:
            return None
        has_place = change.position is not None or change.transaction is not None
        return None if has_place else change

    def _opened(self, message: Message, event: DataChange) -> Convert:
        """Return the converter of messages such as the last one.

        Raises:
            Exception: The messages are not plain.
        """
        reduced, writing_of = self._reduced(event), self._target.row_writing
        if reduced is None or writing_of is None:
            raise NotPlainError
        lane: Any = self._lanes.open(message, event)
        schema, reducer = event.schema, self._target.reducer
        if schema is not None and tuple(column.column for column in lane.columns) != schema.columns:
            raise NotPlainError  # without types, a before image may have further columns
        writing = writing_of(reduced)
        plan = None if schema is None else reducer.plan(schema)
        row, write, write_deleted = row_functions(lane, plan, reducer, writing)
        read: ReadChange = lane.event_reader(row, has_positions=False)
        key_names = () if event.key is None else event.key.columns
        key_of = values_getter(key_names, lane.columns, is_named=lane.is_named)
        (source_size, _), (process_size, _) = reducer.units.values()
        has_transaction = "id" in self._target.carries.transaction
        write_message, variants = writing.write, Variants()

        def convert(message: Message) -> Written | None:
            plain = read(message.value or b"", message.key)
            if plain is None:
                return None
            op, before, after, position, transaction, _, source_ns, process_ns, has_details = plain
            source_rest = process_rest = 0
            if source_ns is not None:
                if not FIRST_NS <= source_ns < AFTER_LAST_NS:
                    return None
                source_rest = source_ns % source_size if source_size else 1
                source_ns = source_ns - source_rest if source_size else None
            if process_ns is not None:
                if not FIRST_NS <= process_ns < AFTER_LAST_NS:
                    return None
                process_rest = process_ns % process_size if process_size else 1
                process_ns = process_ns - process_rest if process_size else None
            shape = None
            if transaction is not None:
                if has_transaction or not has_usual_counts(transaction):
                    return None
                shape = empty_fields(transaction)
            has_before, losses = before is not None, dict[Loss, None]()
            if op == _DELETE:
                before = write_deleted(before, losses)
            else:
                if has_before:
                    if key_of(before) != key_of(after):
                        return None
                    before = write(before, losses)
                after = write(after, losses)
            traits = (
                op,
                has_before,
                shape,
                has_details,
                not source_rest,
                not process_rest,
                position.__class__,
                tuple(losses),
            )
            return write_message(op, before, after, source_ns, process_ns), traits, variants

        return convert


def conversion_lanes(source: Codec, target: Codec) -> ConversionLanes | None:
    """Return the lanes from one codec to another; ``None`` if one of the formats has none.

    A lane has no state, so the messages of a stream become events.
    """
    lanes = source.lanes
    if lanes is None or target.row_writing is None or source.has_streams:
        return None
    return ConversionLanes(target, lanes)
