# SPDX-License-Identifier: Apache-2.0
"""The interface of pure transforms, for :mod:`changelane.transforms.chain`.

A transform is data and never receives an event. The chain calls it once per table and schema, for
the target of the table and the result for each column. The same result then applies to rows, keys,
schemas and statements.
"""

import fnmatch
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from changelane.schema import Column, TableId
from changelane.types import LogicalType

Convert = Callable[[Any], Any]
"""Converts a value that is neither NULL nor unavailable."""


class MovedColumn(msgspec.Struct, frozen=True):
    """The result of a transform for a column.

    Attributes:
        name: The new name.
        column: The new column; ``None`` without a schema.
        convert: The function that converts its values; ``None`` if they stay unchanged.
        type: The type of the converted values; ``None`` if it does not change. One transform
            converts columns with equal types equally.
        keeps_key: The conversion keeps values distinct, so the column may be part of a key.
        is_masked: Its old values must not be visible.
    """

    name: str
    column: Column | None
    convert: Convert | None = None
    type: LogicalType | None = None
    keeps_key: bool = True
    is_masked: bool = False


class Transform(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One transform of a list; the default methods change nothing."""

    def covers(self, table: TableId) -> bool | None:
        """Whether it applies to a table; ``None`` if the event has no table name."""
        raise NotImplementedError

    def passes(self, table: TableId, operation: str) -> bool:
        """Whether events of a table with one of the :data:`OPERATIONS` pass."""
        del table, operation
        return True

    def destination(self, table: TableId) -> TableId:
        """Return the new name of the table."""
        return table

    def names(self, columns: Iterable[str]) -> bool:
        """Whether it may change, or requires, one of these columns."""
        del columns
        return False

    def move(self, name: str, column: Column | None) -> MovedColumn | None:
        """Return the result for a column of a covered table; ``None`` drops the column."""
        return MovedColumn(name, column)

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns that a covered table must have."""
        return frozenset()


class ColumnTransform(Transform, frozen=True, kw_only=True):
    """A transform of columns, for tables with a full name that matches one of its globs.

    Attributes:
        tables: Globs on full names, such as ``shop.public.*`` (case-sensitive).
    """

    tables: tuple[str, ...] = ("*",)

    def covers(self, table: TableId) -> bool | None:
        return covers(self.tables, table)

    @property
    def named_columns(self) -> Iterable[str]:
        """The columns that its options name."""
        raise NotImplementedError


def covers(patterns: tuple[str, ...], table: TableId) -> bool | None:
    """Whether globs match a table; ``None`` if it has no name and the globs need one."""
    if "*" in patterns:
        return True
    if table.name is None:
        return None
    name = str(table)
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


OPERATIONS = (
    "create",
    "update",
    "delete",
    "read",
    "truncate",
    "schema",
    "tombstone",
    "transaction",
    "watermark",
    "message",
    "control",
)
"""The operations of ``include`` and ``exclude``; halves of updates are updates."""
