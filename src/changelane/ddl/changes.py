# SPDX-License-Identifier: Apache-2.0
"""The typed changes of DDL statements."""

import msgspec
from msgspec import UNSET, UnsetType

from changelane.schema import Column, TableId
from changelane.types import LogicalType


class AddColumn(msgspec.Struct, frozen=True):
    """A new column.

    Attributes:
        column: Its name, types and flags; the default as a value if the text is a literal.
        default: The text of the default in the statement (untrusted).
        first: The column becomes the first one.
        after: The column before the new one. Without *first* and *after* the new one is the last.
        if_not_exists: An existing column of this name stays unchanged.
    """

    column: Column
    default: str | None = None
    first: bool = False
    after: str | None = None
    if_not_exists: bool = False


class DropColumn(msgspec.Struct, frozen=True):
    """A column is dropped, with all its values."""

    name: str
    if_exists: bool = False


class RenameColumn(msgspec.Struct, frozen=True):
    """A column gets another name and keeps its values."""

    name: str
    new_name: str


class ModifyColumn(msgspec.Struct, frozen=True):
    """A column changes; attributes that the statement does not contain stay unchanged.

    Attributes:
        new_name: Its new name (MySQL's CHANGE).
        type: The new type.
        source_type: The new type as the source spells it.
        nullable: Whether it may be NULL; ``None`` if the statement does not determine it.
        default: The text of the new default; ``None`` removes the default.
        generated: Whether the source computes it.
        first: The column becomes the first one.
        after: The column that is before it from now on.
    """

    name: str
    new_name: str | None = None
    type: LogicalType | None = None
    source_type: str | None = None
    nullable: bool | UnsetType | None = UNSET
    default: str | UnsetType | None = UNSET
    generated: bool | UnsetType = UNSET
    first: bool = False
    after: str | None = None
    if_exists: bool = False


class SetPrimaryKey(msgspec.Struct, frozen=True):
    """The columns become the primary key; none of them may be NULL."""

    columns: tuple[str, ...]


class DropPrimaryKey(msgspec.Struct, frozen=True):
    """The primary key is dropped."""


class DropConstraint(msgspec.Struct, frozen=True):
    """A constraint is dropped by its name; it may be the primary key."""

    name: str


class AddIndex(msgspec.Struct, frozen=True):
    """A new index.

    Attributes:
        columns: Its columns; ``None`` if it contains expressions or the statement lists none.
    """

    name: str | None
    columns: tuple[str, ...] | None = None
    unique: bool = False


class DropIndex(msgspec.Struct, frozen=True):
    """An index is dropped."""

    name: str


class RenameIndex(msgspec.Struct, frozen=True):
    """An index gets another name."""

    name: str
    new_name: str


class CreateTable(msgspec.Struct, frozen=True):
    """A new table.

    Attributes:
        columns: The columns that the statement lists.
        key: The columns of its primary key; empty if there is none.
        defaults: Texts of the defaults, by column.
        like: Another table; the new table has its columns before *columns*.
        is_partial: A query, a parent table or a type adds columns that the text does not list.
        temporary: The table belongs to one session.
        if_not_exists: An existing table of this name stays unchanged.
        replaces: An existing table of this name is dropped first.
    """

    table: TableId
    columns: tuple[Column, ...] = ()
    key: tuple[str, ...] = ()
    defaults: tuple[tuple[str, str], ...] = ()
    like: TableId | None = None
    is_partial: bool = False
    temporary: bool = False
    if_not_exists: bool = False
    replaces: bool = False


class DropTable(msgspec.Struct, frozen=True):
    """A table is dropped."""

    table: TableId
    temporary: bool = False
    if_exists: bool = False


class RenameTable(msgspec.Struct, frozen=True):
    """A table gets another name and keeps its rows."""

    table: TableId
    new_table: TableId


class TruncateTable(msgspec.Struct, frozen=True):
    """All rows of a table are deleted."""

    table: TableId


class CreateDatabase(msgspec.Struct, frozen=True):
    """A new database, or a new schema in a database that has schemas."""

    name: TableId


class DropDatabase(msgspec.Struct, frozen=True):
    """A database or schema is dropped, with all its tables."""

    name: TableId


class Other(msgspec.Struct, frozen=True):
    """An action that changes neither columns nor keys: options, partitions, foreign keys, checks.

    Attributes:
        text: The text of the action in the statement (untrusted).
    """

    text: str


ColumnChange = (
    AddColumn
    | DropColumn
    | RenameColumn
    | ModifyColumn
    | SetPrimaryKey
    | DropPrimaryKey
    | DropConstraint
    | AddIndex
    | DropIndex
    | RenameIndex
    | Other
)
"""A change of the columns, key or indexes of one table."""

Change = (
    ColumnChange | CreateTable | DropTable | RenameTable | TruncateTable
    | CreateDatabase | DropDatabase
)  # fmt: skip


class Statement(msgspec.Struct, frozen=True):
    """One statement.

    Attributes:
        action: As in :class:`~changelane.event.SchemaChange`, or ``truncate``.
        table: The first table that the statement names, else the default table of the parser.
        changes: Its changes, in order; empty if it cannot be parsed.
        text: The text of the statement (untrusted, never executed).
        reason: The reason why ``changes`` is empty, without words of the text.
    """

    action: str
    table: TableId
    changes: tuple[Change, ...] = ()
    text: str = ""
    reason: str | None = None
