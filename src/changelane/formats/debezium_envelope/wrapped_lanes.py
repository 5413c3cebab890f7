# SPDX-License-Identifier: Apache-2.0
"""The lanes of messages around those of a member: in a serde of a schema registry, in CloudEvents.

They are the lanes of the messages inside (:mod:`changelane.formats.contract.lane`).
"""

from collections.abc import Callable, Hashable
from typing import Any

from changelane.errors import DecodeError
from changelane.event import DataChange
from changelane.formats.contract.lane import (
    Lane,
    LaneColumn,
    Lanes,
    NotPlainError,
    PlainChange,
    ReadChange,
)
from changelane.message import Message

InnerMessage = Callable[[Message], Message]
"""Returns the message inside. It raises an exception if there is none."""


class WrappedLanes:
    """The lanes of one codec; see :class:`~changelane.formats.contract.lane.Lanes`."""

    def __init__(
        self, lanes: Lanes, inner_message: InnerMessage, header_names: frozenset[str]
    ) -> None:
        """Create the lanes.

        Args:
            lanes: The lanes of the messages inside.
            inner_message: Returns the message inside.
            header_names: Headers of messages that are not plain, because a lane has no headers.
        """
        self._lanes = lanes
        self._inner_message = inner_message
        self.header_names = lanes.header_names | header_names

    @property
    def version(self) -> int:
        """The version of the plans of tables."""
        return self._lanes.version

    def identity(self, value: bytes) -> Hashable | None:
        """Return the identity of the lane of a message."""
        try:
            inner_value = self._inner_message(Message(value)).value
        except (DecodeError, NotPlainError):
            return None
        return None if inner_value is None else self._lanes.identity(inner_value)

    def open(self, message: Message, change: DataChange) -> "_WrappedLane":
        """Return the lane of a message that was decoded into one change."""
        lane = self._lanes.open(self._inner_message(message), change)
        return _WrappedLane(lane, self._inner_message)


class _WrappedLane:
    """Reads the plain messages of one table (:class:`~changelane.formats.contract.lane.Lane`)."""

    columns: tuple[LaneColumn, ...]
    is_named: bool
    deleted_columns: tuple[str, ...] | None

    def __init__(self, lane: Lane, inner_message: InnerMessage) -> None:
        self._lane: Any = lane
        self._inner_message = inner_message
        self.columns = lane.columns
        self.is_named = lane.is_named
        self.deleted_columns = lane.deleted_columns

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of messages."""
        inner_message = self._inner_message
        read_inner: ReadChange = self._lane.reader(row)

        def read(value: bytes, key: bytes | None) -> PlainChange | None:
            message = inner_message(Message(value, key))
            return None if message.value is None else read_inner(message.value, message.key)

        return read

    def event_reader(self, row: Any, *, has_positions: bool) -> ReadChange:
        """Return the reader of events (:class:`EventLane`)."""
        inner_message = self._inner_message
        read_inner: ReadChange = self._lane.event_reader(row, has_positions=has_positions)

        def read(value: bytes, key: bytes | None) -> PlainChange | None:
            message = inner_message(Message(value, key))
            return None if message.value is None else read_inner(message.value, message.key)

        return read
