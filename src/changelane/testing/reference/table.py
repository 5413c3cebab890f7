# SPDX-License-Identifier: Apache-2.0
"""The interface of tables to which changes are applied."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from changelane.event import ChangeEvent
from changelane.schema import TableId
from changelane.types import Value

Row = Mapping[str, Value]


class Table(Protocol):
    """Tables by name, with batches of events as input."""

    def apply(self, events: Iterable[ChangeEvent]) -> None:
        """Apply one batch."""
        ...

    def rows(self, table: TableId) -> Sequence[Row]:
        """Return the rows of a table, in the order of their keys."""
        ...

    def incomplete(self, table: TableId) -> Mapping[bytes, frozenset[str]]:
        """Return canonical key -> unknown columns of the row."""
        ...
