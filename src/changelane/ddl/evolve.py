# SPDX-License-Identifier: Apache-2.0
"""Changes of columns applied to what is known of a table."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from changelane.ddl.changes import (
    AddColumn,
    AddIndex,
    ColumnChange,
    CreateTable,
    DropColumn,
    DropConstraint,
    DropIndex,
    DropPrimaryKey,
    ModifyColumn,
    Other,
    RenameColumn,
    RenameIndex,
    SetPrimaryKey,
)
from changelane.ddl.parse_column import literal
from changelane.errors import ApplyError
from changelane.schema import Column, TableSchema


class Shape(NamedTuple):
    """What is known of a table: its columns and the columns of its key, in their order."""

    schema: TableSchema
    key: tuple[str, ...] = ()


class MisfitError(ApplyError):
    """A change that does not fit the columns that are known: they are not the source's."""


def created(change: CreateTable) -> Shape | None:
    """Return the shape of a new table; ``None`` when the statement does not tell all of it."""
    names = {column.name for column in change.columns}
    if change.is_partial or change.like is not None or len(names) < len(change.columns):
        return None
    return Shape(TableSchema(change.columns), change.key)


def evolved(shape: Shape, changes: Iterable[ColumnChange], *, ignore_case: bool = False) -> Shape:
    """Apply changes to a shape, in their order.

    >>> from changelane.types import Integer
    >>> before = Shape(TableSchema((Column("id", Integer()), Column("a", Integer()))), ("id",))
    >>> after = evolved(before, [RenameColumn("id", "nr"), DropColumn("a")])
    >>> [column.name for column in after.schema.columns], after.key
    (['nr'], ('nr',))

    Args:
        shape: The table before.
        changes: What a statement does to it.
        ignore_case: Names that differ by case are one, as in MySQL.

    Raises:
        MisfitError: A column to change does not exist, or one to add does; or a constraint goes
            of which nothing tells whether it is the key.
    """
    columns = list(shape.schema.columns)
    key = shape.key
    for change in changes:
        key = _apply(columns, key, change, ignore_case=ignore_case)
    try:
        return Shape(TableSchema(tuple(columns)), key)
    except ValueError as error:
        raise MisfitError(str(error)) from None


def _apply(
    columns: list[Column], key: tuple[str, ...], change: ColumnChange, *, ignore_case: bool
) -> tuple[str, ...]:
    """Apply one change in place and return the key after it."""

    def place(name: str, *, may_lack: bool = False) -> int | None:
        return _place(columns, name, ignore_case=ignore_case, may_lack=may_lack)

    match change:
        case AddColumn():
            if place(change.column.name, may_lack=True) is None:
                _insert(columns, change.column, change, ignore_case=ignore_case)
            elif not change.if_not_exists:
                raise MisfitError(f"column {change.column.name!r} is to be added and is there")
            return key
        case DropColumn():
            index = place(change.name, may_lack=change.if_exists)
            if index is None:
                return key
            name = columns.pop(index).name
            # MySQL takes a dropped column out of the key; the others drop the key with it
            return tuple(part for part in key if part != name)
        case RenameColumn():
            return _renamed(columns, key, place(change.name), change.new_name)
        case ModifyColumn():
            index = place(change.name, may_lack=change.if_exists)
            if index is None:
                return key
            return _modified(columns, key, index, change, ignore_case=ignore_case)
        case SetPrimaryKey():
            key_columns = [place(name) for name in change.columns]
            for index in key_columns:
                if index is not None:
                    columns[index] = msgspec.structs.replace(columns[index], nullable=False)
            return tuple(columns[index].name for index in key_columns if index is not None)
        case DropPrimaryKey():
            return ()
        case DropConstraint() if key:
            raise MisfitError("a constraint goes that may be the key")
        case DropConstraint() | AddIndex() | DropIndex() | RenameIndex() | Other():
            return key
        case _:
            raise TypeError(f"not a change of columns: {type(change).__name__}")


def _place(
    columns: Sequence[Column], name: str, *, ignore_case: bool, may_lack: bool
) -> int | None:
    for index, column in enumerate(columns):
        if column.name == name:
            return index
    if ignore_case:
        folded = name.casefold()
        for index, column in enumerate(columns):
            if column.name.casefold() == folded:
                return index
    if may_lack:
        return None
    raise MisfitError(f"column {name!r} is to be changed and is not there")


def _insert(
    columns: list[Column], column: Column, at: AddColumn | ModifyColumn, *, ignore_case: bool
) -> None:
    if at.first:
        columns.insert(0, column)
    elif at.after is not None:
        index = _place(columns, at.after, ignore_case=ignore_case, may_lack=False)
        columns.insert(len(columns) if index is None else index + 1, column)
    else:
        columns.append(column)


def _renamed(
    columns: list[Column], key: tuple[str, ...], index: int | None, new_name: str
) -> tuple[str, ...]:
    if index is None:
        return key
    old = columns[index].name
    if any(column.name == new_name for column in columns if column.name != old):
        raise MisfitError(f"column {new_name!r} is a new name and is there")
    columns[index] = msgspec.structs.replace(columns[index], name=new_name)
    return tuple(new_name if part == old else part for part in key)


def _modified(
    columns: list[Column],
    key: tuple[str, ...],
    index: int,
    change: ModifyColumn,
    *,
    ignore_case: bool,
) -> tuple[str, ...]:
    if change.new_name is not None:
        key = _renamed(columns, key, index, change.new_name)
    old = columns[index]
    kind = old.type if change.type is None else change.type
    default = old.default
    if change.default is None:
        default = UNSET
    elif isinstance(change.default, str):
        default = literal(change.default, kind)
    elif kind != old.type:
        default = UNSET  # said in another type's values
    nullable = old.nullable if change.nullable is UNSET else change.nullable
    column = Column(
        old.name,
        kind,
        old.source_type if change.type is None else change.source_type,
        False if old.name in key else nullable,
        old.generated if isinstance(change.generated, msgspec.UnsetType) else change.generated,
        default,
    )
    if change.first or change.after is not None:
        del columns[index]
        _insert(columns, column, change, ignore_case=ignore_case)
    else:
        columns[index] = column
    return key
