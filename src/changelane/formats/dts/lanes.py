# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``dts-avro`` (:mod:`changelane.formats.contract.lane`).

A plain record is a row change with the source, the object, the fields and the key of the lane. Its
images have all columns, with values of the columns' types, and only an update has both images. No
bytes follow the record.
"""

from collections.abc import Callable, Hashable
from typing import Any

from changelane.event import DataChange
from changelane.formats.contract.avro_binary import NOT_A_DATUM, read_long
from changelane.formats.contract.lane import LaneColumn, NotPlainError, PlainChange, ReadChange
from changelane.formats.dts.decode import (
    READ_OPERATION,
    ROW_OPERATIONS,
    Reader,
    in_microseconds,
    read_time_ns,
    source_time_ns,
    transaction_of,
)
from changelane.formats.dts.object_names import KEY_TAG
from changelane.formats.dts.record import Head, read_head
from changelane.formats.dts.row_reader import TablePlan
from changelane.message import Message


class DtsLanes:
    """The lanes of one codec; see :class:`~changelane.formats.contract.lane.Lanes`."""

    header_names: frozenset[str] = frozenset()
    version = 0

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def identity(self, value: bytes) -> Hashable | None:
        """Return the plan of a record, its source, object and key, and whether it is a read."""
        try:
            return _identity(self._reader, value)
        except NOT_A_DATUM:
            return None

    def open(self, message: Message, change: DataChange) -> "DtsLane":
        """Return the lane of a record that was decoded into one change."""
        return DtsLane(self._reader, message.value or b"", change)


def _identity(reader: Reader, data: bytes) -> tuple[TablePlan, str, str | None, str | None, bool]:
    """Return the identity of a record.

    Raises:
        NotPlainError: The reader has no plan of its fields.
        IndexError: The data are not a record.
        ValueError: The data are not a record.
    """
    head, at = read_head(data)
    plan = reader.cached_plan(data, at, head)
    if plan is None:
        raise NotPlainError
    is_read = head.operation == READ_OPERATION
    return plan, head.sourceType, head.objectName, head.tags.get(KEY_TAG), is_read


class DtsLane:
    """Reads the plain records of one table; see :class:`~changelane.formats.contract.lane.Lane`.

    Raises:
        NotPlainError: The record is not plain.
    """

    is_named = False
    deleted_columns = None

    def __init__(self, reader: Reader, data: bytes, change: DataChange) -> None:
        self._identity = plan, *_ = _identity(reader, data)
        if not plan.schema.columns or plan.schema is not change.schema:
            raise NotPlainError
        self._reader = reader
        self._in_microseconds = in_microseconds(read_head(data)[0])
        self.columns = tuple(LaneColumn(column, Any) for column in plan.schema.columns)

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of records."""
        plan, source_type, object_name, key_tag, is_read = self._identity
        has_microseconds, position_of = self._in_microseconds, self._reader.position_of
        raw, read_image = plan.raw, _image_reader(plan, row)
        start = len(raw)
        ops = {name: op.value for name, op in ROW_OPERATIONS.items()}

        def is_of_lane(head: Head) -> bool:
            return (
                head.sourceType == source_type
                and head.objectName == object_name
                and head.tags.get(KEY_TAG) == key_tag
                and (head.operation == READ_OPERATION) is is_read
                and in_microseconds(head) == has_microseconds
            )

        def read(value: bytes, _key: bytes | None) -> PlainChange | None:
            head, at = read_head(value)
            op = ops[head.operation]
            if not is_of_lane(head) or not value.startswith(raw, at):
                return None
            before, at = read_image(value, at + start)
            after, at = read_image(value, at)
            if at < len(value):
                _, at = read_long(value, at)
            if at != len(value):
                return None
            if op == "d":
                if before is None or after is not None:
                    return None
            elif after is None or (before is not None and op != "u"):
                return None
            transaction = transaction_of(head.sourceTxid)
            time_ns, read_ns = source_time_ns(head.sourceTimestamp), read_time_ns(head.tags)
            position = position_of(head)
            # each event has details: the id of its record
            return op, before, after, position, transaction, None, time_ns, read_ns, True

        return read

    def event_reader(self, row: Any, *, has_positions: bool) -> ReadChange:
        """Return the reader of events (:class:`EventLane`)."""
        del has_positions  # a record has the whole position
        return self.reader(row)


def _image_reader(plan: TablePlan, row: Any) -> Callable[[bytes, int], tuple[Any, int]]:
    """Return the reader of one of the two image fields: an object or ``None``, and its end."""
    read_values = plan.plain_values

    def read_image(data: bytes, at: int) -> tuple[Any, int]:
        branch = data[at]
        if branch == 4:
            values, at = read_values(data, at + 1)
            return row(*values), at
        if branch:
            raise NotPlainError
        return None, at + 1

    return read_image
