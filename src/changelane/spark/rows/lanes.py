# SPDX-License-Identifier: Apache-2.0
"""Event rows of plain messages, by the lanes of a format (:mod:`changelane.formats.contract.lane`).

A row is equal to that of the event path; property tests compare both.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final

from changelane.apply.deduplication import ordinal_of
from changelane.event import DataChange, Source, is_first_snapshot
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.lane import Lane, Lanes
from changelane.message import Message
from changelane.position import DELETE_PHASE, UPSERT_PHASE, Position, encode_order
from changelane.spark.rows.compiled_schema import CompiledSchema
from changelane.spark.rows.lane_images import ImageFunctions
from changelane.spark.rows.schema import microseconds

Row = tuple[Any, ...]
MakeRow = Callable[[Message], Row | None]
"""Returns the row of a plain message; ``None`` or any exception = not plain."""

MESSAGES_BEFORE_LANE: Final = 100
"""The messages of a table before its lane is opened, on the event path.

A lane of 9 columns is opened in 0.4 ms and one of 60 columns in 2 ms. A lane saves that time in 100
and in 250 messages.
"""
_MAX_LANES: Final = 1_000
_MAX_CANDIDATES: Final = 10_000


class LaneRows:
    """Turns plain messages into event rows, within one task.

    Attributes:
        count: The number of plain messages.
    """

    def __init__(
        self,
        lanes: Lanes,
        *,
        epoch: int,
        keeps_before_images: bool,
        shared: frozenset[str],
        fallback_position: Callable[[Source, Message, int], Position],
    ) -> None:
        """Create the lanes.

        Args:
            lanes: The lanes of the codec.
            epoch: The epoch of the orders.
            keeps_before_images: Whether rows have before images that the tables do not need.
            shared: The domains of positions that several row changes may have.
            fallback_position: Returns the position of an event without one.
        """
        self.count = 0
        self._lanes = lanes
        self._epoch = epoch
        self._keeps_before_images = keeps_before_images
        self._shared = shared
        self._fallback_position = fallback_position
        self._header_names = lanes.header_names
        self._version = lanes.version
        self._by_topic: BoundedCache[str | None, MakeRow] = BoundedCache(_MAX_LANES)
        self._by_identity: BoundedCache[Hashable, MakeRow] = BoundedCache(_MAX_LANES)
        self._candidates: BoundedCache[Hashable, int] = BoundedCache(_MAX_CANDIDATES)
        self._identity: Hashable | None = None

    def row(self, message: Message) -> Row | None:
        """Return the row of a message; ``None`` = it is not plain."""
        self._identity = None
        value = message.value
        if not value or (message.headers and self._has_own_header(message)):
            return None
        if self._lanes.version != self._version:
            self._version = self._lanes.version
            self._by_topic.clear()
            self._by_identity.clear()
            self._candidates.clear()
        topic = message.topic
        last = self._by_topic.get(topic)
        if last is not None:
            try:
                row = last(message)
            except Exception:  # noqa: BLE001 - any doubt: the message takes the event path
                row = None
            if row is not None:
                self.count += 1
                return row
        self._identity = identity = self._lanes.identity(value)
        make_row = self._by_identity.get(identity)
        if make_row is None or make_row is last:
            return None
        self._by_topic.add(topic, make_row)
        try:
            row = make_row(message)
        except Exception:  # noqa: BLE001 - any doubt: the message takes the event path
            return None
        if row is not None:
            self.count += 1
        return row

    def is_due(self, message: Message) -> bool:
        """Whether it is time to open the lane of the last message, a change on the event path.

        It is due again after as many such messages as before, because the columns of messages
        without a schema may have changed, or the lane could not be opened.
        """
        identity = self._identity
        if identity is None and message.value:
            # the event path has cached the schema block
            self._identity = identity = self._lanes.identity(message.value)
        if identity is None:
            return False
        count = self._candidates.get(identity, 0) + 1
        self._candidates.add(identity, count)
        tries, rest = divmod(count, MESSAGES_BEFORE_LANE)
        return rest == 0 and tries & (tries - 1) == 0

    def open(self, message: Message, change: DataChange, compiled: CompiledSchema) -> None:
        """Open the lane of the last message, if messages such as this one are plain.

        Args:
            message: The last message.
            change: Its only event.
            compiled: The schema of the event.
        """
        try:
            lane = self._lanes.open(message, change)
            make_row = self._row_maker(lane, change, compiled)
        except Exception:  # noqa: BLE001 - any doubt: the messages take the event path
            return
        self._by_identity.add(self._identity, make_row)
        self._by_topic.add(message.topic, make_row)

    def _has_own_header(self, message: Message) -> bool:
        return any(name in self._header_names for name, _ in message.headers)

    def _row_maker(self, lane: Lane, change: DataChange, compiled: CompiledSchema) -> MakeRow:
        images, deleted = ImageFunctions(lane, compiled), lane.deleted_columns
        read_change = lane.reader(images.row())
        key_of, read, write = images.key(), images.read(), images.write()
        values = None if deleted is None else images.values(deleted)
        has_deletes = deleted is None or set(compiled.key or ()) <= set(deleted)
        write_values = compiled.writer.write
        table_id, schema_id = compiled.table_id, compiled.id
        is_snapshot = change.source.snapshot is not None
        is_first = is_first_snapshot(change.source)
        source, fallback_position = change.source, self._fallback_position
        epoch, shared, keeps_before = self._epoch, self._shared, self._keeps_before_images

        def make_row(message: Message) -> Row | None:
            plain = read_change(message.value, message.key)  # type: ignore[arg-type]
            if plain is None:
                return None
            op, before, after, position, transaction, field_id, time_ns = plain
            if position is None:
                position = fallback_position(source, message, 0)
            before_text = before_missing = after_text = None
            if op == "d":
                if not has_deletes:
                    return None
                key, phase = key_of(before), DELETE_PHASE
                if values is None:
                    before_text = write(before)
                else:
                    before_text, before_missing = write_values(values(before))
            else:
                key, phase = key_of(after), UPSERT_PHASE
                if before is not None:
                    if key_of(before) != key:
                        return None
                    if keeps_before:
                        before_text = write(before)
                    else:
                        read(before)
                after_text = write(after)
            transaction_id = None
            if not is_first:
                transaction_id = transaction.id if transaction is not None else None
                if not transaction_id:
                    transaction_id = None if field_id is None else str(field_id)
            return (
                "data",
                op,
                table_id,
                schema_id,
                key,
                None,
                before_text,
                before_missing,
                after_text,
                None,
                after_text is not None,
                encode_order(position, epoch=epoch, snapshot=is_first, phase=phase),
                transaction_id,
                ordinal_of(
                    position, transaction, is_snapshot=is_snapshot or op == "r", shared=shared
                ),
                microseconds(time_ns),
                message.topic,
                message.partition,
                message.offset,
                0,
                None,
                None,
                None,
                None,
                None,
            )

        return make_row
