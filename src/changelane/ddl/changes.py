# SPDX-License-Identifier: Apache-2.0
"""What a statement does to tables, as values."""

import msgspec
from msgspec import UNSET, UnsetType

from changelane.schema import Column, TableId
from changelane.types import LogicalType


class AddColumn(msgspec.Struct, frozen=True):
    """A new column.

    Attributes:
        column: Its name, types and flags; the default as a value where the text is a literal.
        default: The default as the statement says it: untrusted text.
        first: It stands before all others.
        after: It stands behind this column; with neither it stands at the end.
        if_not_exists: A column of this name may exist already, and stays then.
    """

    column: Column
    default: str | None = None
    first: bool = False
    after: str | None = None
    if_not_exists: bool = False


class DropColumn(msgspec.Struct, frozen=True):
    """A column goes, with all its values."""

    name: str
    if_exists: bool = False


class RenameColumn(msgspec.Struct, frozen=True):
    """A column gets another name and keeps its values."""

    name: str
    new_name: str


class ModifyColumn(msgspec.Struct, frozen=True):
    """A column changes. What the statement does not say stays as it was.

    Attributes:
        new_name: Its name from now on (MySQL's CHANGE).
        type: The new type.
        source_type: The new type as the source spells it.
        nullable: Whether it may be NULL from now on; ``None`` = the statement leaves it open.
        default: The new default as text, ``None`` = no default any more.
        generated: Whether the source computes it from now on.
        first: It moves before all others.
        after: It moves behind this column.
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
    """These columns are the key from now on; none of them may be NULL."""

    columns: tuple[str, ...]


class DropPrimaryKey(msgspec.Struct, frozen=True):
    """The table has no key from now on."""


class DropConstraint(msgspec.Struct, frozen=True):
    """A constraint goes of which only the name is told: it may be the key."""

    name: str


class AddIndex(msgspec.Struct, frozen=True):
    """A new index.

    Attributes:
        columns: Its columns; ``None`` when it holds expressions, or the statement does not say.
    """

    name: str | None
    columns: tuple[str, ...] | None = None
    unique: bool = False


class DropIndex(msgspec.Struct, frozen=True):
    """An index goes."""

    name: str


class RenameIndex(msgspec.Struct, frozen=True):
    """An index gets another name."""

    name: str
    new_name: str


class CreateTable(msgspec.Struct, frozen=True):
    """A new table.

    Attributes:
        columns: The columns that the statement lists.
        key: The columns of its primary key, empty without one.
        defaults: Texts of the defaults, by column.
        like: Another table whose columns come first.
        is_partial: A query, a parent or a type adds columns that the text does not tell.
        temporary: Only one session sees it.
        if_not_exists: A table of this name may exist already, and stays then.
        replaces: A table of this name goes first.
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
    """A table goes."""

    table: TableId
    temporary: bool = False
    if_exists: bool = False


class RenameTable(msgspec.Struct, frozen=True):
    """A table gets another name and keeps its rows."""

    table: TableId
    new_table: TableId


class TruncateTable(msgspec.Struct, frozen=True):
    """All rows of a table go."""

    table: TableId


class CreateDatabase(msgspec.Struct, frozen=True):
    """A new database, or schema where a database holds schemas."""

    name: TableId


class DropDatabase(msgspec.Struct, frozen=True):
    """A database or schema goes, with all its tables."""

    name: TableId


class Other(msgspec.Struct, frozen=True):
    """An action that changes neither columns nor keys: options, partitions, foreign keys, checks.

    Attributes:
        text: The action as the statement has it: untrusted text.
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
"""A change inside of one table."""

Change = (
    ColumnChange | CreateTable | DropTable | RenameTable | TruncateTable
    | CreateDatabase | DropDatabase
)  # fmt: skip


class Statement(msgspec.Struct, frozen=True):
    """One statement.

    Attributes:
        action: As in :class:`~changelane.event.SchemaChange`, or ``truncate``.
        table: The first table that the statement names, else the one that was given as usual.
        changes: What it does, in its order; empty when it could not be read.
        text: The statement: untrusted, never executed.
        reason: Why ``changes`` is empty, without a word of the text.
    """

    action: str
    table: TableId
    changes: tuple[Change, ...] = ()
    text: str = ""
    reason: str | None = None
