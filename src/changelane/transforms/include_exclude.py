# SPDX-License-Identifier: Apache-2.0
"""``include`` and ``exclude``: the tables and operations that pass."""

from typing import Literal

from changelane.schema import TableId
from changelane.transforms.transform import Transform, covers

Operation = Literal[
    "create", "update", "delete", "read", "truncate", "schema", "tombstone", "transaction",
    "watermark", "message", "control",
]  # fmt: skip

_TABLELESS = frozenset({"transaction", "watermark", "message"})


class Include(Transform, frozen=True, kw_only=True, tag="include", tag_field="type"):
    """Passes only these tables and operations; a missing list passes all.

    Events without a table (transactions, heartbeats, messages) pass a list of tables; a tombstone
    without a table name does not.

    Attributes:
        tables: Globs on full names, such as ``shop.public.*``.
        operations: The operations of events; a half of an update is an ``update``.
    """

    tables: tuple[str, ...] = ("*",)
    operations: tuple[Operation, ...] | None = None

    def __post_init__(self) -> None:
        """Reject an empty selection."""
        if self.tables == ("*",) and self.operations is None:
            raise ValueError("include needs tables or operations")

    def covers(self, table: TableId) -> bool | None:
        return covers(self.tables, table)

    def passes(self, table: TableId, operation: str) -> bool:
        if self.operations is not None and operation not in self.operations:
            return False
        return operation in _TABLELESS or bool(covers(self.tables, table))

    def passes_any(self, operation: str) -> bool:
        """Whether events of any table with this operation pass."""
        return self.operations is None or operation in self.operations


class Exclude(Transform, frozen=True, kw_only=True, tag="exclude", tag_field="type"):
    """Excludes these operations of these tables; a missing list excludes all.

    A tombstone without a table name passes a list of tables.

    Attributes:
        tables: Globs on full names.
        operations: The operations of events; a half of an update is an ``update``.
    """

    tables: tuple[str, ...] = ("*",)
    operations: tuple[Operation, ...] | None = None

    def __post_init__(self) -> None:
        """Reject a transform that excludes everything."""
        if self.tables == ("*",) and self.operations is None:
            raise ValueError("exclude needs tables or operations")

    def covers(self, table: TableId) -> bool | None:
        return covers(self.tables, table)

    def passes(self, table: TableId, operation: str) -> bool:
        if self.operations is not None and operation not in self.operations:
            return True
        if operation in _TABLELESS and self.tables != ("*",):
            return True
        return not covers(self.tables, table)

    def passes_any(self, operation: str) -> bool:
        """Whether events of any table with this operation pass."""
        return "*" not in self.tables or operation not in (self.operations or (operation,))
