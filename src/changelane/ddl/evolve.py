# SPDX-License-Identifier: Apache-2.0
"""Column changes, applied to the columns and key of a table."""

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
    """The columns of a table and the columns of its key, in their order."""

    schema: TableSchema
    key: tuple[str, ...] = ()


class MisfitError(ApplyError):
    """A change of a column that the table lacks, or an addition of one that the table has."""


def shape_of(change: CreateTable) -> Shape | None:
    """Return the shape of a new table; ``None`` if the statement does not list all columns."""
    names = {column.name for column in change.columns}
    if change.is_partial or change.like is not None or len(names) < len(change.columns):
        return None
    return Shape(TableSchema(change.columns), change.key)


def apply_changes(
    shape: Shape, changes: Iterable[ColumnChange], *, ignore_case: bool = False
) -> Shape:
    """Apply changes to a shape, in their order.

    >>> from changelane.types import Integer
    >>> before = Shape(TableSchema((Column("id", Integer()), Column("a", Integer()))), ("id",))
    >>> after = apply_changes(before, [RenameColumn("id", "nr"), DropColumn("a")])
    >>> [column.name for column in after.schema.columns], after.key
    (['nr'], ('nr',))

    Args:
        shape: The table before the changes.
        changes: The changes of a statement.
        ignore_case: Compare names of columns without case, as MySQL does.

    Raises:
        MisfitError: A changed column does not exist, an added column exists, or a dropped
            constraint may be the key.
    """
    columns = list(shape.schema.columns)
    key = shape.key
    for change in changes:
        key = _apply_change(columns, key, change, ignore_case=ignore_case)
    try:
        return Shape(TableSchema(tuple(columns)), key)
    except ValueError as error:
        raise MisfitError(str(error)) from None


def _apply_change(
    columns: list[Column], key: tuple[str, ...], change: ColumnChange, *, ignore_case: bool
) -> tuple[str, ...]:
    """Apply one change in place and return the key after it."""

    def index_of(name: str, *, may_be_missing: bool = False) -> int | None:
        return _index_of(columns, name, ignore_case=ignore_case, may_be_missing=may_be_missing)

    match change:
        case AddColumn():
            if index_of(change.column.name, may_be_missing=True) is None:
                _insert(columns, change.column, change, ignore_case=ignore_case)
            elif not change.if_not_exists:
                raise MisfitError(f"the added column {change.column.name!r} already exists")
            return key
        case DropColumn():
            index = index_of(change.name, may_be_missing=change.if_exists)
            if index is None:
                return key
            name = columns.pop(index).name
            # MySQL removes a dropped column from the key; other databases drop the key with it
            return tuple(part for part in key if part != name)
        case RenameColumn():
            return _rename(columns, key, index_of(change.name), change.new_name)
        case ModifyColumn():
            index = index_of(change.name, may_be_missing=change.if_exists)
            if index is None:
                return key
            return _modify(columns, key, index, change, ignore_case=ignore_case)
        case SetPrimaryKey():
            key_columns = [index_of(name) for name in change.columns]
            for index in key_columns:
                if index is not None:
                    columns[index] = msgspec.structs.replace(columns[index], nullable=False)
            return tuple(columns[index].name for index in key_columns if index is not None)
        case DropPrimaryKey():
            return ()
        case DropConstraint() if key:
            raise MisfitError("the dropped constraint may be the key")
        case DropConstraint() | AddIndex() | DropIndex() | RenameIndex() | Other():
            return key
        case _:
            raise TypeError(f"not a change of columns: {type(change).__name__}")


def _index_of(
    columns: Sequence[Column], name: str, *, ignore_case: bool, may_be_missing: bool
) -> int | None:
    for index, column in enumerate(columns):
        if column.name == name:
            return index
    if ignore_case:
        folded = name.casefold()
        for index, column in enumerate(columns):
            if column.name.casefold() == folded:
                return index
    if may_be_missing:
        return None
    raise MisfitError(f"the changed column {name!r} does not exist")


def _insert(
    columns: list[Column], column: Column, at: AddColumn | ModifyColumn, *, ignore_case: bool
) -> None:
    if at.first:
        columns.insert(0, column)
    elif at.after is not None:
        index = _index_of(columns, at.after, ignore_case=ignore_case, may_be_missing=False)
        columns.insert(len(columns) if index is None else index + 1, column)
    else:
        columns.append(column)


def _rename(
    columns: list[Column], key: tuple[str, ...], index: int | None, new_name: str
) -> tuple[str, ...]:
    if index is None:
        return key
    old = columns[index].name
    if any(column.name == new_name for column in columns if column.name != old):
        raise MisfitError(f"the new column name {new_name!r} already exists")
    columns[index] = msgspec.structs.replace(columns[index], name=new_name)
    return tuple(new_name if part == old else part for part in key)


def _modify(
    columns: list[Column],
    key: tuple[str, ...],
    index: int,
    change: ModifyColumn,
    *,
    ignore_case: bool,
) -> tuple[str, ...]:
    if change.new_name is not None:
        key = _rename(columns, key, index, change.new_name)
    old = columns[index]
    kind = old.type if change.type is None else change.type
    default = old.default
    if change.default is None:
        default = UNSET
    elif isinstance(change.default, str):
        default = literal(change.default, kind)
    elif kind != old.type:
        default = UNSET  # the old default is a value of the old type
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
