# SPDX-License-Identifier: Apache-2.0
"""DDL statements, translated to the tables and columns after the transforms.

If the tables and columns of a statement keep their names, the statement keeps its text. Any other
statement is rendered from its typed changes. A statement that cannot be translated is rejected:
otherwise a table that applies statements would diverge from its rows.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from changelane.ddl import (
    AddColumn,
    AddIndex,
    Change,
    CreateDatabase,
    CreateTable,
    Dialect,
    DropColumn,
    DropConstraint,
    DropDatabase,
    DropIndex,
    DropPrimaryKey,
    DropTable,
    ModifyColumn,
    Other,
    RenameColumn,
    RenameIndex,
    RenameTable,
    SetPrimaryKey,
    Statement,
    TruncateTable,
    action_of,
    dialect_of,
    statements_of,
    table_of,
)
from changelane.ddl.parse_column import implicit_default, literal
from changelane.ddl.render import UnwritableError, literal_text, render
from changelane.errors import TransformError
from changelane.event import SchemaChange
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableId
from changelane.transforms.table_plan import ResolvedColumn, TableTarget
from changelane.types import UNKNOWN, LogicalType

TargetOf = Callable[[TableId], TableTarget]

_replace = msgspec.structs.replace

# Changes that do not affect columns, which a translated statement omits.
_NOT_REWRITTEN = (AddIndex, DropIndex, RenameIndex, Other)


def refuse_shard(target: TableTarget, action: str) -> None:
    """Reject a statement of one shard that would change the merged table of all shards.

    Raises:
        TransformError: The table is one of several merged tables.
    """
    if target.is_merged:
        reason = f"{action} of {target.source} would affect the merged table {target.table}"
        raise TransformError(reason, code=ReasonCode.SHARD_STATEMENT)


def translate(event: SchemaChange, target_of: TargetOf) -> SchemaChange | None:
    """Return a statement for the target tables; ``None`` if nothing of it remains.

    The caller transforms the schema and the key that the producer lists.

    Raises:
        TransformError: The statement cannot be translated.
    """
    target = target_of(event.table)
    is_touched = _is_touched(target)
    statements = statements_of(event.ddl, event.source.product, event.table)
    if not statements:
        if "schema" in target.refused or (target.is_merged and not event.ddl):
            return None
        if not is_touched:
            return event
        if event.ddl:
            raise _untranslatable(target, "there is no parser for its SQL")
        return _replace(event, table=target.table)
    texts: list[str] = []
    is_same = not is_touched
    for statement in statements:
        text = _statement(statement, event, target_of)
        is_same &= text == statement.text
        if text is not None:
            texts.append(text)
    if not texts:
        return None
    if is_same:
        return event
    ddl = event.ddl if texts == [statement.text for statement in statements] else "; ".join(texts)
    table, product = target.table, event.source.product
    if "schema" in target.refused:  # the first table is excluded
        table = table_of(ddl, product, _replace(event.table, name=None))
    return _replace(event, table=table, ddl=ddl, action=action_of(ddl, product, event.action))


def _is_touched(target: TableTarget) -> bool:
    return target.table is not target.source or target.changes_columns or target.is_merged


def _untranslatable(target: TableTarget, why: str) -> TransformError:
    name = str(target.source) or "an unnamed table"
    reason = f"a statement about {name} cannot be translated for the transforms: {why}"
    return TransformError(reason, code=ReasonCode.UNTRANSLATED_STATEMENT)


def _statement(statement: Statement, event: SchemaChange, target_of: TargetOf) -> str | None:
    """Return the text of one statement for the target; ``None`` if nothing of it remains."""
    target = target_of(statement.table)
    if not statement.changes:
        if "schema" in target.refused:
            return None
        if _is_touched(target) or _is_touched(target_of(event.table)):
            raise _untranslatable(target, statement.reason or "the statement has no changes")
        return statement.text
    dialect = dialect_of(event.source.product)
    changes = statement.changes
    if dialect == "mysql":
        changes = tuple(_as_transforms_spell(change, target) for change in changes)
    kept_changes: list[Change] = []
    for change in changes:
        _check_computed(change, statement, target)
        kept_changes.extend(_change(change, target, target_of))
    if not kept_changes:
        return None
    if tuple(kept_changes) == statement.changes and target.table is target.source:
        return statement.text
    kept_changes = [
        change for change in kept_changes if not _is_omitted(change, kept_changes, dialect)
    ]
    if not kept_changes:
        return None
    if dialect is None:  # without a dialect, no statement is parsed
        raise _untranslatable(target, "there is no parser for its SQL")
    try:
        return render(kept_changes, dialect, target.table)
    except UnwritableError as error:
        raise _untranslatable(target, str(error)) from None


def _as_transforms_spell(change: Change, target: TableTarget) -> Change:
    """Return a change of MySQL, which ignores the case of names, with those of the transforms."""

    def spelled(name: str) -> str:
        spellings = target.spellings
        return name if name in spellings.values() else spellings.get(name.lower(), name)

    match change:
        case DropColumn(name) | RenameColumn(name) | ModifyColumn(name):
            if spelled(name) != name:
                change = _replace(change, name=spelled(name))
        case SetPrimaryKey(columns) | AddIndex(columns=tuple(columns)):
            change = _replace(change, columns=tuple(map(spelled, columns)))
        case _:
            pass
    if isinstance(change, AddColumn | ModifyColumn) and change.after is not None:
        change = _replace(change, after=spelled(change.after))
    return change


def _check_computed(change: Change, statement: Statement, target: TableTarget) -> None:
    """Reject the conversion of a new column that MySQL may fill with numbers (AUTO_INCREMENT).

    Raises:
        TransformError: The column is part of a key.
    """
    if not isinstance(change, AddColumn) or change.default is not None or change.column.nullable:
        return
    name = change.column.name
    keys = (change for change in statement.changes if isinstance(change, AddIndex | SetPrimaryKey))
    is_keyed = any(name in (key.columns or ()) for key in keys)
    if is_keyed and target.resolve(name, change.column).converts:
        raise _untranslatable(
            target, "the source computes the values of a column that is converted"
        )


def _is_omitted(change: Change, kept_changes: list[Change], dialect: Dialect | None) -> bool:
    """Whether the translated statement omits a change; MySQL needs the key of AUTO_INCREMENT."""
    added = {
        change_of_column.column.name
        for change_of_column in kept_changes
        if isinstance(change_of_column, AddColumn)
    }
    if dialect == "mysql" and isinstance(change, AddIndex) and added & set(change.columns or ()):
        return False
    return isinstance(change, _NOT_REWRITTEN)


def _change(change: Change, target: TableTarget, target_of: TargetOf) -> Iterator[Change]:
    match change:
        case CreateTable():
            yield from _create(change, target_of)
        case DropTable():
            yield from _whole_table(change, target_of, "a drop")
        case TruncateTable():
            yield from _whole_table(change, target_of, "a truncate", "truncate")
        case RenameTable():
            yield from _rename_table(change, target_of)
        case CreateDatabase():
            if not target.ignores_statements:
                yield change
        case DropDatabase():
            # its tables may have other targets, or other tables may have targets in it
            if target.may_move and not target.ignores_statements:
                raise _untranslatable(
                    target, "it drops a database, but the transforms move or exclude tables"
                )
            if not target.ignores_statements:
                yield change
        case _ if "schema" in target.refused:
            return
        case _ if target.is_merged:
            if not isinstance(change, AddColumn | AddIndex | Other):
                refuse_shard(target, "a change of columns")
            # a new column of one shard arrives with its rows
        case _:
            yield from _column_changes(change, target)


def _whole_table(
    change: DropTable | TruncateTable, target_of: TargetOf, action: str, operation: str = "schema"
) -> Iterator[Change]:
    target = target_of(change.table)
    if operation not in target.refused:
        refuse_shard(target, action)
        yield _replace(change, table=target.table)


def _rename_table(change: RenameTable, target_of: TargetOf) -> Iterator[Change]:
    old, new = target_of(change.table), target_of(change.new_table)
    refusals = ["schema" in target.refused for target in (old, new)]
    if all(refusals):
        return
    refuse_shard(old, "a rename")
    refuse_shard(new, "a rename")
    if any(refusals):
        raise _untranslatable(old, "include or exclude treats the new name differently")
    if old.transforms != new.transforms:
        raise _untranslatable(old, "the columns of the new name are transformed differently")
    if old.table != new.table:
        yield RenameTable(old.table, new.table)


def _create(change: CreateTable, target_of: TargetOf) -> Iterator[Change]:
    target = target_of(change.table)
    if "schema" in target.refused or target.is_merged:
        return  # the first row creates the table of all shards
    is_like_before = change.like is None or not _is_touched(target_of(change.like))
    if not _is_touched(target) and is_like_before:
        yield change
        return
    columns: list[Column] = []
    defaults: list[tuple[str, str]] = []
    column_defaults = dict(change.defaults)
    for column in change.columns:
        resolved = target.resolve(column.name, column)
        new_column, default = _column(resolved, column, column_defaults.get(column.name))
        if new_column is not None:
            columns.append(new_column)
            defaults.extend([(new_column.name, default)] if default is not None else [])
    if change.is_partial and target.changes_columns:
        raise _untranslatable(target, "it does not list all columns of the table")
    columns_by_name = {column.name: column for column in change.columns}
    key = tuple(
        target.key_column(name, columns_by_name.get(name))
        for name in change.key
        if not target.is_shadow
    )
    like = None
    if change.like is not None:
        like_target = target_of(change.like)
        if like_target.transforms != target.transforms or like_target.is_merged:
            raise _untranslatable(target, "the table of its LIKE is transformed differently")
        like = like_target.table
    yield _replace(
        change, table=target.table, columns=tuple(columns), key=key, defaults=tuple(defaults),
        like=like,
    )  # fmt: skip


def _column(
    resolved: ResolvedColumn, column: Column, default: str | None
) -> tuple[Column | None, str | None]:
    """Return the target of a column in a statement, and the text of its default."""
    new_column = None if resolved.moved is None else resolved.moved.column
    if new_column is None:
        return None, None
    if not resolved.converts:
        return new_column, default
    return _replace(new_column, generated=False, **_default(resolved, column)), _default_text(
        resolved, column
    )


def _default(resolved: ResolvedColumn, column: Column) -> dict[str, Any]:
    text = _default_text(resolved, column)
    return {"default": UNSET if text is None else resolved.value(column.default)}


def _default_text(resolved: ResolvedColumn, column: Column) -> str | None:
    if column.default is UNSET or column.default is None:
        return None
    return literal_text(resolved.value(column.default))


def _column_changes(change: Change, target: TableTarget) -> Iterator[Change]:
    """Yield the target of a change of columns, for a table that is not merged."""
    match change:
        case AddColumn():
            yield from _add_column(change, target)
        case DropColumn():
            if (name := _name(target, change.name)) is not None:
                yield _replace(change, name=name)
        case RenameColumn():
            yield from _rename(change, target, change.new_name)
        case ModifyColumn():
            yield from _modify(change, target)
        case SetPrimaryKey():
            names = tuple(target.key_column(name, None) for name in change.columns)
            yield SetPrimaryKey(names)
        case AddIndex() if change.columns is not None:
            mapped = [_name(target, name) for name in change.columns]
            mapped_names = tuple(name for name in mapped if name is not None)
            if len(mapped_names) == len(mapped):
                yield _replace(change, columns=mapped_names)
        case AddIndex(columns=None) | Other() if target.changes_columns:
            pass  # it may name a column
        case DropPrimaryKey() | DropConstraint():
            yield change
        case AddIndex() | DropIndex() | RenameIndex() | Other():
            yield change
        case _:
            raise TypeError(f"not a change of columns: {type(change).__name__}")


def _name(target: TableTarget, name: str) -> str | None:
    moved = target.resolve(name, None).moved
    return None if moved is None else moved.name


def _add_column(change: AddColumn, target: TableTarget) -> Iterator[Change]:
    resolved = target.resolve(change.column.name, change.column)
    new_column, default = _column(resolved, change.column, change.default)
    if new_column is None:
        return
    if resolved.converts:
        new_column, default = _backfilled_column(change, resolved, new_column, target)
    after = None if change.after is None else _name(target, change.after)
    yield AddColumn(new_column, default, change.first, after, change.if_not_exists)


def _backfilled_column(
    change: AddColumn, resolved: ResolvedColumn, new_column: Column, target: TableTarget
) -> tuple[Column, str | None]:
    """Return a new column with the converted default for existing rows, and its text.

    Raises:
        TransformError: The converted default has no SQL literal.
    """
    column = change.column
    if column.generated:
        raise _untranslatable(
            target, "the source computes the values of a column that is converted"
        )
    if column.default is not UNSET and column.default is not None:
        value = resolved.value(column.default)
        if value is None:  # a mask makes all values NULL
            return _replace(new_column, default=UNSET), None
        if (text := literal_text(value)) is not None:
            return _replace(new_column, default=value), text
        raise _untranslatable(target, "the converted default of a column has no SQL literal")
    if change.default is not None:
        if literal(change.default, new_column.type) is UNSET:
            return new_column, change.default  # an expression: its values are unknown
        raise _untranslatable(target, "the default of a column is ambiguous in its new type")
    if column.nullable:
        return new_column, None
    # other databases than MySQL accept the statement only for tables without rows
    before = implicit_default(column.type)
    value, after = resolved.value(before), implicit_default(new_column.type)
    if before is not None and value is None:
        return new_column, None
    is_alike = column.nullable is False or type(new_column.type) is type(column.type)
    if is_alike and (type(value), value) == (type(after), after):
        return new_column, None
    if value is not None and (text := literal_text(value)) is not None:
        return _replace(new_column, default=value), text
    raise _untranslatable(
        target, "the converted implicit default of a NOT NULL column has no SQL literal"
    )


def _rename(
    change: RenameColumn | ModifyColumn, target: TableTarget, new_name: str
) -> Iterator[Change]:
    old, new = target.resolve(change.name, None), target.resolve(new_name, None)
    if old.moved is None and new.moved is None:
        return
    if old.moved is None:
        raise _untranslatable(target, "project drops only the old name of a renamed column")
    if new.moved is None:
        yield DropColumn(old.moved.name)
        return
    if old.path != new.path:
        raise _untranslatable(target, "mask or cast treats the new name of a column differently")
    if old.found_columns != new.found_columns:
        raise _untranslatable(target, "a column that a mask requires gets a new name")
    if old.moved.name != new.moved.name:
        yield RenameColumn(old.moved.name, new.moved.name)


def _modify(change: ModifyColumn, target: TableTarget) -> Iterator[Change]:
    new_name = change.new_name or change.name
    names = list(_rename(change, target, new_name))
    if any(isinstance(name, DropColumn) for name in names):
        yield from names
        return
    kind: LogicalType = UNKNOWN if change.type is None else change.type
    column = Column(new_name, kind, change.source_type)
    resolved = target.resolve(new_name, column)
    old = target.resolve(change.name, None).moved
    if resolved.moved is None or resolved.moved.column is None or old is None:
        return
    name = resolved.moved.name
    parts: dict[str, Any] = {
        "name": old.name,
        "new_name": None if name == old.name else name,
        "after": None if change.after is None else _name(target, change.after),
    }
    if resolved.converts:
        moved_column = resolved.moved.column
        parts |= {"type": change.type and moved_column.type, "source_type": None}
        parts |= {"nullable": True} if moved_column.nullable else {}
        parts |= {"generated": UNSET if change.generated is UNSET else False}
        if isinstance(change.default, str):
            parts["default"] = None  # it is a value of the old type
    yield _replace(change, **parts)


__all__ = ["refuse_shard", "translate"]
