# SPDX-License-Identifier: Apache-2.0
"""What every pure transform says of tables and columns, for :mod:`changelane.transforms.chain`.

A transform is data: it never sees an event. The chain asks once per table and schema where the
table goes, and what becomes of each column, and then treats rows, keys, schemas and statements
alike.
"""

import fnmatch
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from changelane.schema import Column, TableId

Convert = Callable[[Any], Any]
"""From a value that is neither NULL nor unavailable to what takes its place."""


class MovedColumn(msgspec.Struct, frozen=True):
    """What becomes of a column.

    Attributes:
        name: Its name from now on.
        column: The column from now on; ``None`` where no schema tells of it.
        convert: What its values become; ``None`` = they stay.
        keeps_key: Values that differ still do, and equal ones are equal: it may be a key column.
        is_masked: Its values are not to be seen.
    """

    name: str
    column: Column | None
    convert: Convert | None = None
    keeps_key: bool = True
    is_masked: bool = False


class Transform(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One transform of a list; it changes nothing where it says nothing."""

    def covers(self, table: TableId) -> bool | None:
        """Say whether it is meant for a table; ``None`` = the event does not tell its table."""
        raise NotImplementedError

    def passes(self, table: TableId, operation: str) -> bool:
        """Say whether events of a table go on that are of one of the :data:`OPERATIONS`."""
        del table, operation
        return True

    def destination(self, table: TableId) -> TableId:
        """Return what the table is called from now on."""
        return table

    def names(self, columns: Iterable[str]) -> bool:
        """Say whether it may change, or misses, one of these columns."""
        del columns
        return False

    def move(self, name: str, column: Column | None) -> MovedColumn | None:
        """Return what becomes of a column of a covered table; ``None`` = it goes."""
        return MovedColumn(name, column)

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns without which a covered table is not what the transform was written for."""
        return frozenset()


class ColumnTransform(Transform, frozen=True, kw_only=True):
    """A transform of columns, for the tables whose full name matches one of its globs.

    Attributes:
        tables: Globs on full names, such as ``shop.public.*``; case counts.
    """

    tables: tuple[str, ...] = ("*",)

    def covers(self, table: TableId) -> bool | None:
        return covers(self.tables, table)


def covers(patterns: tuple[str, ...], table: TableId) -> bool | None:
    """Say whether globs match a table; ``None`` when it has no name and they want one."""
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
"""What events do, as ``include`` and ``exclude`` call it; halves of an update are updates."""
