# SPDX-License-Identifier: Apache-2.0
"""The interface of a database for snapshots of single tables; one module for each product."""

from contextlib import AbstractContextManager
from typing import Protocol

from changelane.capture.engine import CaptureError
from changelane.capture.manifest import EngineOffset
from changelane.capture.snapshot.plan import SnapshotChunk, SnapshotTable
from changelane.schema import TableId


class TableDatabase(Protocol):
    """The tables of a product's database.

    Each method raises ``UnreachableError`` if the server does not answer, and ``ConfigError`` if it
    rejects a statement.
    """

    def table(
        self, name: str, lower: tuple[str, ...] = (), upper: tuple[str, ...] = ()
    ) -> SnapshotTable | None:
        """Return a table with the rows of a range of keys; ``None`` = it is not captured.

        Args:
            name: The table, as a pattern of this table only.
            lower: The first values of the smallest key, as texts; empty = no bound.
            upper: The first values of the greatest key, which is part of the range.

        Raises:
            ConfigError: A text is no value of its column, or a column has an unknown type.
        """
        ...

    def exists(self, name: str) -> bool:
        """Return whether the source has a table, captured or not.

        Args:
            name: The table, as a pattern of this table only.
        """
        ...

    def table_id(self, planned_table: SnapshotTable) -> TableId:
        """Return the name of a table in the options of the engine's connector."""
        ...

    def settings(self) -> str:
        """Return a digest of the options that the content of a chunk depends on."""
        ...

    def settle(self, planned_table: SnapshotTable) -> None:
        """Wait until the log has all later changes of a table that is captured from now on."""
        ...

    def open_snapshot(
        self, planned_table: SnapshotTable
    ) -> AbstractContextManager[tuple[str, EngineOffset]]:
        """Yield the name of a snapshot of the present state, and the position of its rows.

        Both are empty if each reader begins transactions of its own.
        """
        ...

    def chunks(self, planned_table: SnapshotTable, snapshot: str) -> tuple[SnapshotChunk, ...]:
        """Divide a table into chunks.

        Args:
            planned_table: The table.
            snapshot: The name of the open snapshot.
        """
        ...


def check_key(planned_table: SnapshotTable) -> None:
    """Check that rows of a table can be read again.

    Raises:
        CaptureError: The table has no key, so that its rows would be doubled.
    """
    if not planned_table.key:
        raise CaptureError(
            f"{planned_table.label} has no key, so its rows would be doubled; "
            "`changelane capture PIPELINE.yaml --new-snapshot` reads the rows of all tables into a "
            "new history"
        )
