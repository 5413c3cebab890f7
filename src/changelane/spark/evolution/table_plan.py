# SPDX-License-Identifier: Apache-2.0
"""How the events of one table and batch are applied."""

from collections.abc import Set as AbstractSet
from typing import NamedTuple

from changelane.spark.lake.key_filter import KeyFilter, key_filter
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
        return "exceptions" in self.properties or self.has_exceptional_events

    @property
    def has_exceptional_events(self) -> bool:
        """Whether events of the batch give columns of one row different orders."""
        if self.table_batch.has_partial_images:
            return True
        added = self.target.additions
        return any(
            self.mode == HISTORY or self.table_batch.min_order < addition.order
            for addition in added
        )

    @property
    def has_complete_events(self) -> bool:
        """Whether each upsert of the batch has a value for every column of the table."""
        if self.has_exceptional_events:
            return False
        columns = {name.lower() for name in self.target.columns}
        return all(
            not schema.is_partial and columns <= {column.name.lower() for column in schema.columns}
            for schema in self.target.schemas.values()
        )

    @property
    def is_uneven(self) -> bool:
        """Whether full events of the batch may carry different columns of the table."""
        first = self.table_batch.min_order
        return any(added.is_unknown and first < added.order for added in self.target.additions)

    def key_filter(self, more_keys: AbstractSet[str] = frozenset()) -> KeyFilter | None:
        """Return the filter on the table that the keys of the batch imply, if they are known.

        Args:
            more_keys: Other canonical keys whose rows it includes.
        """
        keys = self.table_batch.keys
        if keys is None:
            return None
        return key_filter(keys | more_keys, self.target.columns, self.target.keys)

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
