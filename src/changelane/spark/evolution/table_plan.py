# SPDX-License-Identifier: Apache-2.0
"""How the events of one table and batch are applied."""

from typing import NamedTuple

from changelane.spark.lake.modes import APPEND, HISTORY, UPSERT, TableMode, mode_of
from changelane.spark.rows.batch_stats import TableBatch
from changelane.spark.rows.target import Target
from changelane.spark.state.quarantine import RejectedRows


class TablePlan(NamedTuple):
    """How the events of one table and batch are applied.

    Attributes:
        table_batch: The batch's events of the table, without the rejected ones.
        name: The table's path in the lake.
        target: The table's columns and the schemas of the events.
        properties: changelane's properties of the table.
        rejected: The rejected events.
        crosses_partitions: Whether events come from several partitions, whose offsets do not
            compare.
        cleared: Rows up to this position belong to a dropped table of the same name.
        note: A note for ``changelane status``.
        warning: A warning to print once.
    """

    table_batch: TableBatch
    name: str
    target: Target
    properties: dict[str, str]
    rejected: tuple[RejectedRows, ...] = ()
    crosses_partitions: bool = False
    cleared: bytes = b""
    note: str | None = None
    warning: str = ""

    @property
    def is_exceptional(self) -> bool:
        """Whether columns of one row may have different orders, in the table or in the batch."""
        if self.table_batch.has_partial_images or "exceptions" in self.properties:
            return True
        added = self.target.additions
        return any(
            self.mode == HISTORY or self.table_batch.min_order < addition.order
            for addition in added
        )

    @property
    def is_uneven(self) -> bool:
        """Whether full events of the batch may carry different columns of the table."""
        first = self.table_batch.min_order
        return any(added.is_unknown and first < added.order for added in self.target.additions)

    @property
    def table_mode(self) -> TableMode:
        """The mode of the table, with its options."""
        return mode_of(self.properties)

    @property
    def kind(self) -> bytes:
        """The kind of positions that the table compares (2 bytes)."""
        return bytes.fromhex(self.properties.get("order", ""))[:2]

    @property
    def is_adding(self) -> bool:
        """Whether rows are only added: in mode ``append``, and to a table without a key."""
        return self.mode == APPEND or (self.mode == UPSERT and not self.target.keys)

    @property
    def mode(self) -> str:
        """The name of the mode."""
        return self.table_mode.name
