# SPDX-License-Identifier: Apache-2.0
"""The interface of a database server for its capture; one module for each product."""

from collections.abc import Callable, Collection
from typing import Protocol

import msgspec

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.finding import Finding
from changelane.capture.log_origin import LogOrigin
from changelane.capture.manifest import EngineOffset

IsPassed = Callable[[EngineOffset], bool]
"""Returns whether an offset of the engine is at a position or after it."""


class LogLag(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a server's log that is not captured, or that the server keeps for the capture.

    Attributes:
        lag_bytes: The bytes of the log after the captured position; ``None`` = unknown.
        retained_bytes: The bytes that the server keeps for the slot; PostgreSQL only.
        headroom_bytes: The bytes until the slot may be lost, at least 0; ``None`` = without a
            limit. PostgreSQL only.
        headroom_s: The seconds until the server may delete the log at the captured position, at
            least 0; ``None`` = never, or unknown. MySQL and MariaDB only.
        slot: The replication slot; PostgreSQL only.
        problem: What is wrong with the slot or the position; empty = nothing.
    """

    lag_bytes: int | None = None
    retained_bytes: int | None = None
    headroom_bytes: int | None = None
    headroom_s: float | None = None
    slot: str = ""
    problem: str = ""


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

    def origin(self) -> LogOrigin:
        """Return the server and the tables, as they are now."""
        ...

    def log_findings(self, recorded: LogOrigin, offset: EngineOffset) -> list[Finding]:
        """Return the findings about a log that is not the captured one, whatever its end is.

        Args:
            recorded: The origin of the capture log.
            offset: The position that the capture log has.
        """
        ...

    def tables_with_rows(self, names: Collection[str]) -> list[str]:
        """Return the tables of :meth:`origin` that have rows.

        Args:
            names: Names of some of the tables.
        """
        ...

    def attached_partitions(self, numbers: Collection[str]) -> set[str]:
        """Return which partitions have rows and were tables of their own before.

        Args:
            numbers: Ids of partitions of :meth:`origin`.
        """
        ...

    def prepare(self) -> list[str]:
        """Create what the capture needs and the login may create; return the statements."""
        ...

    def publish(self, names: Collection[str]) -> list[str]:
        """Let the log have the changes of tables; return the executed statements.

        Args:
            names: Names of tables of :meth:`origin`.

        Raises:
            ConfigError: The login may not do that; the error has the statements.
        """
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

    def log_lag(self, offset: EngineOffset | None) -> LogLag:
        """Return how far the log is ahead of the capture.

        Args:
            offset: The position that the capture log has; ``None`` = nothing is captured yet.
        """
        ...

    def is_end(self, offset: EngineOffset) -> bool:
        """Whether nothing was committed after an offset; ``False`` = only a reader can tell."""
        ...

    def marker(self) -> IsPassed:
        """Return a function that knows the offsets which have everything committed by now."""
        ...
