# SPDX-License-Identifier: Apache-2.0
"""What changes are applied to: tables that hold rows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from changelane.event import ChangeEvent
from changelane.schema import TableId
from changelane.types import Value

Row = Mapping[str, Value]


class Table(Protocol):
    """Tables by name, changed by batches of events of any of them, read by name."""

    def apply(self, events: Iterable[ChangeEvent]) -> None:
        """Apply one batch."""
        ...

    def rows(self, table: TableId) -> Sequence[Row]:
        """Return the rows of a table, in the order of their keys."""
        ...

    def incomplete(self, table: TableId) -> Mapping[bytes, frozenset[str]]:
        """Return the columns that are not known, by the canonical key of their row."""
        ...
