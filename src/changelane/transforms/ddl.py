# SPDX-License-Identifier: Apache-2.0
"""Statements that change tables, said of the tables and columns that transforms make.

A statement whose tables and columns are called as before keeps its text. Any other is written
again from its typed changes. What cannot be said of the table as it is called now is refused: a
table that follows statements would otherwise go another way than its rows.
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
)
from changelane.ddl.parse_column import literal, zero
from changelane.ddl.render import UnwritableError, literal_text, written
from changelane.errors import TransformError
from changelane.event import SchemaChange
from changelane.schema import Column, TableId
from changelane.transforms.table_plan import Place, Resolved
from changelane.types import UNKNOWN, LogicalType

Places = Callable[[TableId], Place]

_replace = msgspec.structs.replace

# What says nothing about the shape of a table; it is not written again.
_BESIDE = (AddIndex, DropIndex, RenameIndex, Other)


def refuse_shard(place: Place, what: str) -> None:
    """Refuse what is said of one shard and would hold for the table of all of them.

    Raises:
        TransformError: The table is one of several that are one from now on.
    """
    if place.is_merged:
        reason = f"{what} of {place.source}, whose rows share {place.table} with other tables"
        raise TransformError(reason, code="shard_statement")


def translate(event: SchemaChange, places: Places) -> SchemaChange | None:
    """Return a statement as it is said of the tables from now on; ``None`` = nothing is left of it.

    The schema and the key that the producer lists are for the caller to change.

    Raises:
        TransformError: It cannot be said.
    """
    place = places(event.table)
    is_touched = _is_touched(place)
    found = statements_of(event)
    if not found:
        if "schema" in place.refused or (place.is_merged and not event.ddl):
            return None
        if not is_touched:
            return event
        if event.ddl:
            raise _untold(place, "its SQL is not read here")
        return _replace(event, table=place.table)
    texts: list[str] = []
    is_same = not is_touched
    for statement in found:
        text = _statement(statement, event, places)
        is_same &= text == statement.text
        if text is not None:
            texts.append(text)
    if not texts:
        return None
    if is_same:
        return event
    ddl = event.ddl if texts == [one.text for one in found] else "; ".join(texts)
    action = action_of(ddl, event.source.product, event.action)
    return _replace(event, table=place.table, ddl=ddl, action=action)


def _is_touched(place: Place) -> bool:
    return place.table is not place.source or place.changes_columns or place.is_merged


def _untold(place: Place, why: str) -> TransformError:
    name = str(place.source) or "a table that is not named"
    reason = f"a statement about {name} cannot be said of what transforms make of it: {why}"
    return TransformError(reason, code="untranslated_statement")


def _statement(statement: Statement, event: SchemaChange, places: Places) -> str | None:
    """Return the text of one statement from now on; ``None`` when nothing is left of it."""
    place = places(statement.table)
    if not statement.changes:
        if "schema" in place.refused:
            return None
        if _is_touched(place) or _is_touched(places(event.table)):
            raise _untold(place, statement.reason or "it names no change")
        return statement.text
    kept: list[Change] = []
    for change in statement.changes:
        _check_computed(change, statement, place)
        kept.extend(_change(change, place, places))
    if not kept:
        return None
    if tuple(kept) == statement.changes and place.table is place.source:
        return statement.text
    dialect = dialect_of(event.source.product)
    kept = [change for change in kept if not _is_beside(change, kept, dialect)]
    if not kept:
        return None
    if dialect is None:  # then no statement is read
        raise _untold(place, "its SQL is not read here")
    try:
        return written(kept, dialect, place.table)
    except UnwritableError as error:
        raise _untold(place, str(error)) from None


def _check_computed(change: Change, statement: Statement, place: Place) -> None:
    """Refuse that a new column is converted whose values MySQL may count (AUTO_INCREMENT).

    Raises:
        TransformError: It is one of a key.
    """
    if not isinstance(change, AddColumn) or change.default is not None or change.column.nullable:
        return
    name = change.column.name
    keys = (one for one in statement.changes if isinstance(one, AddIndex | SetPrimaryKey))
    is_keyed = any(name in (one.columns or ()) for one in keys)
    if is_keyed and place.resolve(name, change.column).converts:
        raise _untold(place, "rows get what the source computes for a column of another type")


def _is_beside(change: Change, kept: list[Change], dialect: Dialect | None) -> bool:
    """Say whether a change need not be written again; MySQL may count in a column of a key."""
    added = {one.column.name for one in kept if isinstance(one, AddColumn)}
    if dialect == "mysql" and isinstance(change, AddIndex) and added & set(change.columns or ()):
        return False
    return isinstance(change, _BESIDE)


def _change(change: Change, place: Place, places: Places) -> Iterator[Change]:
    match change:
        case CreateTable():
            yield from _create(change, places)
        case DropTable():
            yield from _whole_table(change, places, "a drop")
        case TruncateTable():
            yield from _whole_table(change, places, "a truncate", "truncate")
        case RenameTable():
            yield from _rename_table(change, places)
        case CreateDatabase():
            if not place.ignores_statements:
                yield change
        case DropDatabase():
            # tables of it may have gone elsewhere, or others may have come
            if place.may_move and not place.ignores_statements:
                raise _untold(place, "it drops a database, and not all its tables go where it says")
            if not place.ignores_statements:
                yield change
        case _ if "schema" in place.refused:
            return
        case _ if place.is_merged:
            if not isinstance(change, AddColumn | AddIndex | Other):
                refuse_shard(place, "a change of columns")
            # a column that one shard gets comes with its rows
        case _:
            yield from _inside(change, place)


def _whole_table(
    change: DropTable | TruncateTable, places: Places, what: str, operation: str = "schema"
) -> Iterator[Change]:
    place = places(change.table)
    if operation not in place.refused:
        refuse_shard(place, what)
        yield _replace(change, table=place.table)


def _rename_table(change: RenameTable, places: Places) -> Iterator[Change]:
    old, new = places(change.table), places(change.new_table)
    gone = ["schema" in one.refused for one in (old, new)]
    if all(gone):
        return
    refuse_shard(old, "a rename")
    refuse_shard(new, "a rename")
    if any(gone):
        raise _untold(old, "it gets a name that include or exclude treats otherwise")
    if old.steps != new.steps:
        raise _untold(old, "it gets a name whose columns are transformed otherwise")
    if old.table != new.table:
        yield RenameTable(old.table, new.table)


def _create(change: CreateTable, places: Places) -> Iterator[Change]:
    place = places(change.table)
    if "schema" in place.refused or place.is_merged:
        return  # the table of all shards is made when the first row comes
    is_like_before = change.like is None or not _is_touched(places(change.like))
    if not _is_touched(place) and is_like_before:
        yield change
        return
    columns: list[Column] = []
    defaults: list[tuple[str, str]] = []
    told = dict(change.defaults)
    for column in change.columns:
        found = place.resolve(column.name, column)
        made, default = _column(found, column, told.get(column.name))
        if made is not None:
            columns.append(made)
            defaults.extend([(made.name, default)] if default is not None else [])
    if change.is_partial and place.changes_columns:
        raise _untold(place, "it does not tell all columns of the table")
    key = tuple(place.key_column(name, None) for name in change.key)
    like = None
    if change.like is not None:
        other = places(change.like)
        if other.steps != place.steps or other.is_merged:
            raise _untold(place, "the table that it is like is transformed otherwise")
        like = other.table
    yield _replace(
        change, table=place.table, columns=tuple(columns), key=key, defaults=tuple(defaults),
        like=like,
    )  # fmt: skip


def _column(
    found: Resolved, column: Column, default: str | None
) -> tuple[Column | None, str | None]:
    """Return what becomes of a column that a statement defines, and the text of its default."""
    made = None if found.moved is None else found.moved.column
    if made is None:
        return None, None
    if not found.converts:
        return made, default
    return _replace(made, generated=False, **_default(found, column)), _default_text(found, column)


def _default(found: Resolved, column: Column) -> dict[str, Any]:
    text = _default_text(found, column)
    return {"default": UNSET if text is None else found.value(column.default)}


def _default_text(found: Resolved, column: Column) -> str | None:
    if column.default is UNSET or column.default is None:
        return None
    return literal_text(found.value(column.default))


def _inside(change: Change, place: Place) -> Iterator[Change]:
    """Yield what becomes of a change of columns of a table that no other one shares."""
    match change:
        case AddColumn():
            yield from _add(change, place)
        case DropColumn():
            if (name := _name(place, change.name)) is not None:
                yield _replace(change, name=name)
        case RenameColumn():
            yield from _renamed(change, place, change.new_name)
        case ModifyColumn():
            yield from _modified(change, place)
        case SetPrimaryKey():
            names = tuple(place.key_column(name, None) for name in change.columns)
            yield SetPrimaryKey(names)
        case AddIndex() if change.columns is not None:
            mapped = [_name(place, name) for name in change.columns]
            known = tuple(name for name in mapped if name is not None)
            if len(known) == len(mapped):
                yield _replace(change, columns=known)
        case AddIndex(columns=None) | Other() if place.changes_columns:
            pass  # it may name a column
        case DropPrimaryKey() | DropConstraint():
            yield change
        case AddIndex() | DropIndex() | RenameIndex() | Other():
            yield change
        case _:
            raise TypeError(f"not a change of columns: {type(change).__name__}")


def _name(place: Place, name: str) -> str | None:
    moved = place.resolve(name, None).moved
    return None if moved is None else moved.name


def _add(change: AddColumn, place: Place) -> Iterator[Change]:
    found = place.resolve(change.column.name, change.column)
    made, default = _column(found, change.column, change.default)
    if made is None:
        return
    if found.converts:
        made, default = _filling(change, found, made, place)
    after = None if change.after is None else _name(place, change.after)
    yield AddColumn(made, default, change.first, after, change.if_not_exists)


def _filling(
    change: AddColumn, found: Resolved, made: Column, place: Place
) -> tuple[Column, str | None]:
    """Give a column the default by which rows from before get what becomes of theirs.

    Raises:
        TransformError: No text says it.
    """
    column = change.column
    if column.generated:
        raise _untold(place, "rows get what the source computes for a column of another type")
    if column.default is not UNSET and column.default is not None:
        value = found.value(column.default)
        if value is not None and (text := literal_text(value)) is not None:
            return _replace(made, default=value), text
        raise _untold(place, "the default of a column has no text in its new type")
    if change.default is not None:
        if literal(change.default, made.type) is UNSET:
            return made, change.default  # an expression, whose values stay unknown
        raise _untold(place, "the default of a column would be another in its new type")
    if column.nullable:
        return made, None
    # outside MySQL there are no rows yet, or this cannot be
    before = zero(column.type)
    value, after = found.value(before), zero(made.type)
    is_alike = column.nullable is False or type(made.type) is type(column.type)
    if is_alike and (type(value), value) == (type(after), after):
        return made, None
    if before is not None and value is not None and (text := literal_text(value)) is not None:
        return _replace(made, default=value), text
    raise _untold(place, "what rows get in a column that is NOT NULL has no text in its new type")


def _renamed(change: RenameColumn | ModifyColumn, place: Place, new_name: str) -> Iterator[Change]:
    old, new = place.resolve(change.name, None), place.resolve(new_name, None)
    if old.moved is None and new.moved is None:
        return
    if old.moved is None:
        raise _untold(place, "a column that project drops gets a name that it keeps")
    if new.moved is None:
        yield DropColumn(old.moved.name)
        return
    if old.path != new.path:
        raise _untold(place, "a column gets a name under which mask or cast do not know it")
    if old.found != new.found:
        raise _untold(place, "a column that mask wants to find gets another name")
    if old.moved.name != new.moved.name:
        yield RenameColumn(old.moved.name, new.moved.name)


def _modified(change: ModifyColumn, place: Place) -> Iterator[Change]:
    new_name = change.new_name or change.name
    names = list(_renamed(change, place, new_name))
    if any(isinstance(one, DropColumn) for one in names):
        yield from names
        return
    kind: LogicalType = UNKNOWN if change.type is None else change.type
    column = Column(new_name, kind, change.source_type)
    found = place.resolve(new_name, column)
    old = place.resolve(change.name, None).moved
    if found.moved is None or found.moved.column is None or old is None:
        return
    name = found.moved.name
    parts: dict[str, Any] = {
        "name": old.name,
        "new_name": None if name == old.name else name,
        "after": None if change.after is None else _name(place, change.after),
    }
    if found.converts:
        made = found.moved.column
        parts |= {"type": change.type and made.type, "source_type": None}
        parts |= {"nullable": True} if made.nullable else {}
        parts |= {"generated": UNSET if change.generated is UNSET else False}
        if isinstance(change.default, str):
            parts["default"] = None  # said in the values of the old type
    yield _replace(change, **parts)


__all__ = ["refuse_shard", "translate"]
