# SPDX-License-Identifier: Apache-2.0
"""The interface of a database server for its capture; one module for each product."""

from collections.abc import Callable
from typing import Protocol

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.finding import Finding
from changelane.capture.manifest import EngineOffset

IsPassed = Callable[[EngineOffset], bool]
"""Returns whether an offset of the engine is at a position or after it."""


class CapturedServer(Protocol):
    """A database server, with the login of its source.

    Each method raises ``UnreachableError`` if the server does not answer, ``ConfigError`` if it
    rejects the login or a statement, and ``MissingExtraError`` without the extra ``capture``.
    """

    def findings(self, offset: EngineOffset | None) -> list[Finding]:
        """Return what prevents or endangers the capture; nothing is written.

        Args:
            offset: The position that the capture log has; ``None`` = a snapshot comes first.
        """
        ...

    def prepare(self) -> list[str]:
        """Create what the capture needs and the login may create; return the statements."""
        ...

    def forget_position(self) -> None:
        """Drop the position that the server keeps for the capture, before a new snapshot."""
        ...

    def connector_options(self, *, heartbeat_s: float) -> ConnectorOptions:
        """Return the options of the engine's connector, with the tables as they are now.

        Args:
            heartbeat_s: The interval of heartbeats, seconds.
        """
        ...

    def marker(self) -> IsPassed:
        """Return a function that knows the offsets which have everything committed by now."""
        ...
