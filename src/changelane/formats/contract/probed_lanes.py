# SPDX-License-Identifier: Apache-2.0
"""Lanes that are found by a part of the message (:mod:`changelane.formats.contract.lane`)."""

from collections.abc import Callable, Hashable

from changelane.event import DataChange
from changelane.formats.contract.lane import Lane
from changelane.message import Message


class ProbedLanes:
    """The lanes of one codec; see :class:`~changelane.formats.contract.lane.Lanes`."""

    header_names: frozenset[str] = frozenset()
    version = 0

    def __init__(
        self,
        probe: Callable[[bytes], Hashable],
        open_lane: Callable[[Message, DataChange], Lane],
    ) -> None:
        """Create the lanes.

        Args:
            probe: Returns the identity of the lane of a message; any exception = not plain.
            open_lane: Returns the lane of a message that the event path decoded into a change.
        """
        self._probe = probe
        self.open = open_lane

    def identity(self, value: bytes) -> Hashable | None:
        """Return the identity of the lane of a message; ``None`` = the message is not plain."""
        try:
            return self._probe(value)
        except Exception:  # noqa: BLE001 - any doubt: the message takes the event path
            return None
