# SPDX-License-Identifier: Apache-2.0
"""The lanes of a member and of its CloudEvents (:mod:`changelane.formats.contract.lane`).

A plain CloudEvent has the structured mode in Debezium's form, and the message of the member in it
is plain.
"""

from collections.abc import Callable, Hashable

from changelane.event import DataChange
from changelane.formats.contract.lane import Lane, Lanes, NotPlainError
from changelane.formats.debezium_envelope.cloud_events import BINARY_HEADER, USUAL_START
from changelane.formats.debezium_envelope.wrapped_lanes import WrappedLanes
from changelane.message import Message


class CloudEventLanes:
    """The lanes of one codec; see :class:`~changelane.formats.contract.lane.Lanes`."""

    def __init__(self, lanes: Lanes, plain_value: Callable[[bytes], bytes | None]) -> None:
        """Create the lanes.

        Args:
            lanes: The lanes of the member.
            plain_value: Returns the value of the member's message in a CloudEvent; ``None`` or any
                exception = the event is not plain.
        """

        def inner_message(message: Message) -> Message:
            value = message.value or b""
            try:
                inner_value = plain_value(value) if _is_event(value) else None
            except Exception:  # noqa: BLE001 - any doubt: the message takes the event path
                inner_value = None
            if inner_value is None:
                raise NotPlainError
            return Message(inner_value, message.key, message.headers, message.topic)

        self._lanes = lanes
        self._events = WrappedLanes(lanes, inner_message, frozenset({BINARY_HEADER}))
        self.header_names = self._events.header_names

    @property
    def version(self) -> int:
        """The version of the plans of tables."""
        return self._lanes.version

    def identity(self, value: bytes) -> Hashable | None:
        """Return the identity of the lane of a message."""
        is_event = _is_event(value)
        identity = (self._events if is_event else self._lanes).identity(value)
        return None if identity is None else (is_event, identity)

    def open(self, message: Message, change: DataChange) -> Lane:
        """Return the lane of a message that was decoded into one change."""
        lanes = self._events if _is_event(message.value or b"") else self._lanes
        return lanes.open(message, change)


def _is_event(value: bytes) -> bool:
    """Return whether a value may be an event, as the event path decides it."""
    return value.startswith(USUAL_START)
