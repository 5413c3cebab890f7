# SPDX-License-Identifier: Apache-2.0
"""The interface of a database whose tables are verified; one module for each product."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import msgspec

from changelane.capture.captured_server import IsPassed
from changelane.event import Source
from changelane.position import Position
from changelane.schema import TableId
from changelane.spark.verify.canonical_text import ColumnType
from changelane.spark.verify.comparison import Key, RowTexts, Side
from changelane.spark.verify.table_plan import Bound, TablePlan

CONNECTOR: Final = "debezium"
"""The connector of events in the capture log."""


class VerifiedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A captured table.

    Attributes:
        id: Its name in events.
        relation: What the module of its database knows about it.
        primary_key: The columns of its primary key, in order; empty = it has none.
        unpublished: The columns that the database leaves out of the log.
        refusal: Why it cannot be verified; empty = nothing prevents it.
    """

    id: TableId
    relation: Any
    primary_key: tuple[str, ...] = ()
    unpublished: frozenset[str] = frozenset()
    refusal: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A consistent state of the database, of which one table is read.

    Attributes:
        position_text: The position up to which it has all changes, as the database writes it.
        newest: A position that is not below that of any of these changes, and below those of
            all changes that may be missing in the state.
        repair_position: Returns the position of a repaired row, by its number from 1: above those
            of the changes in the state, and below those of all changes that may be missing.
        is_passed: Returns whether an offset of the capture has all changes of the state.
        is_intact: Returns whether the table still has the rows of the state, and its columns those
            of the beginning: statements that truncate, rewrite or alter a table may hide its rows
            from older states. From then on, the columns stay the same.
        writers: Returns the transactions that may have changed the table below the position, and
            are not part of the state. It raises ``UnverifiableError`` if they are unknown.
    """

    position_text: str
    newest: Position
    repair_position: Callable[[int], Position]
    is_passed: IsPassed
    is_intact: Callable[[], bool]
    writers: Callable[[], frozenset[str]] = frozenset


class SourceRows(Side, Protocol):
    """The rows of a table in a snapshot."""

    def texts(self, row_keys: frozenset[Key]) -> Mapping[Key, list[RowTexts]]:
        """Return the canonical texts of the rows of some keys."""
        ...

    def chunk_bounds(self, chunk_rows: int) -> tuple[Bound, ...]:
        """Return the keys that split the table into chunks of a number of rows."""
        ...


class SourceDatabase(Protocol):
    """A database, with the login of the capture.

    Each method raises ``UnreachableError`` if the server does not answer, and ``ConfigError`` if
    it rejects a statement.
    """

    @property
    def event_source(self) -> Source:
        """The source of events that changelane makes of the rows."""
        ...

    def tables(self) -> Sequence[VerifiedTable]:
        """Return the captured tables."""
        ...

    def column_types(self, table: VerifiedTable) -> Mapping[str, ColumnType]:
        """Return the types of a table's columns, by name."""
        ...

    def has_rows(self, table: VerifiedTable) -> bool:
        """Whether a table has rows that are captured."""
        ...

    def open_snapshot(self, table: VerifiedTable) -> AbstractContextManager[Snapshot]:
        """Open a snapshot of a table; :meth:`rows` reads it until the end of the context."""
        ...

    def is_any_open(self, writers: frozenset[str]) -> bool:
        """Whether one of the transactions of :attr:`Snapshot.writers` has not ended."""
        ...

    def rows(
        self, table: VerifiedTable, columns_plan: TablePlan, bounds: tuple[Bound, ...] = ()
    ) -> SourceRows:
        """Return the rows of a table in the open snapshot.

        Args:
            table: The table.
            columns_plan: What is compared.
            bounds: The ends of all chunks but the last one.
        """
        ...
