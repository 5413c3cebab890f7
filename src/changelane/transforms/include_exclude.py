# SPDX-License-Identifier: Apache-2.0
"""``include`` and ``exclude``: which tables and which operations go on."""

from typing import Literal

from changelane.schema import TableId
from changelane.transforms.transform import Transform, covers

Operation = Literal[
    "create", "update", "delete", "read", "truncate", "schema", "tombstone", "transaction",
    "watermark", "message", "control",
]  # fmt: skip

_TABLELESS = frozenset({"transaction", "watermark", "message"})


class Include(Transform, frozen=True, kw_only=True, tag="include", tag_field="type"):
    """Only these tables and operations go on; one that is not given lets all pass.

    Events of no table (transactions, heartbeats, messages) pass a list of tables; a tombstone that
    does not name its table does not.

    Attributes:
        tables: Globs on full names, such as ``shop.public.*``.
        operations: What events do; a half of an update is an ``update``.
    """

    tables: tuple[str, ...] = ("*",)
    operations: tuple[Operation, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what chooses nothing."""
        if self.tables == ("*",) and self.operations is None:
            raise ValueError("include needs tables or operations")

    def covers(self, table: TableId) -> bool | None:
        return covers(self.tables, table)

    def passes(self, table: TableId, operation: str) -> bool:
        if self.operations is not None and operation not in self.operations:
            return False
        return operation in _TABLELESS or bool(covers(self.tables, table))

    def passes_any(self, operation: str) -> bool:
        """Say whether events of some table go on that do this."""
        return self.operations is None or operation in self.operations


class Exclude(Transform, frozen=True, kw_only=True, tag="exclude", tag_field="type"):
    """These operations of these tables do not go on; one that is not given means all.

    A tombstone that does not name its table passes a list of tables.

    Attributes:
        tables: Globs on full names.
        operations: What events do; a half of an update is an ``update``.
    """

    tables: tuple[str, ...] = ("*",)
    operations: tuple[Operation, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what lets nothing pass."""
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
        """Say whether events of some table go on that do this."""
        return "*" not in self.tables or operation not in (self.operations or (operation,))
