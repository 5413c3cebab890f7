# SPDX-License-Identifier: Apache-2.0
"""The lanes of a format in a serde of a schema registry: those of its JSON messages."""

from collections.abc import Callable, Hashable
from typing import Any

from changelane.errors import DecodeError
from changelane.event import DataChange
from changelane.formats.contract.lane import Lane, LaneColumn, Lanes, PlainChange, ReadChange
from changelane.formats.debezium_envelope.registry.framing import HEADER_NAMES
from changelane.message import Message

JsonMessage = Callable[[Message], Message]
"""Returns a message as the JSON converter would have written it."""


class RegistryLanes:
    """The lanes of one codec; see :class:`~changelane.formats.contract.lane.Lanes`.

    A message with the id of its schema in a header is not plain, because a lane has no headers.
    """

    def __init__(self, lanes: Lanes, json_message: JsonMessage) -> None:
        self._lanes = lanes
        self._json_message = json_message
        self.header_names = lanes.header_names | HEADER_NAMES

    @property
    def version(self) -> int:
        """The version of the plans of tables."""
        return self._lanes.version

    def identity(self, value: bytes) -> Hashable | None:
        """Return the identity of the lane of a message."""
        try:
            json_value = self._json_message(Message(value)).value
        except DecodeError:
            return None
        return None if json_value is None else self._lanes.identity(json_value)

    def open(self, message: Message, change: DataChange) -> "_RegistryLane":
        """Return the lane of a message that was decoded into one change."""
        lane = self._lanes.open(self._json_message(message), change)
        return _RegistryLane(lane, self._json_message)


class _RegistryLane:
    """Reads the plain messages of one table (:class:`~changelane.formats.contract.lane.Lane`)."""

    columns: tuple[LaneColumn, ...]
    is_named: bool
    deleted_columns: tuple[str, ...] | None

    def __init__(self, lane: Lane, json_message: JsonMessage) -> None:
        self._lane = lane
        self._json_message = json_message
        self.columns = lane.columns
        self.is_named = lane.is_named
        self.deleted_columns = lane.deleted_columns

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of messages."""
        json_message, read_json = self._json_message, self._lane.reader(row)

        def read(value: bytes, key: bytes | None) -> PlainChange | None:
            message = json_message(Message(value, key))
            return None if message.value is None else read_json(message.value, message.key)

        return read
