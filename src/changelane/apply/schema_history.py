# SPDX-License-Identifier: Apache-2.0
"""Turns: what statements do to tables that are followed, each at its place in the log.

A statement about a shape is a *turn* of its table. Everything else about a table's columns is a
function of its turns and of the order of an event (:mod:`changelane.apply.column_mapping`), so that
a replay reads every event with the names of its time.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import UNSET

from changelane.ddl import (
    AddColumn,
    AddIndex,
    CreateTable,
    Dialect,
    DropColumn,
    DropDatabase,
    DropPrimaryKey,
    DropTable,
    ModifyColumn,
    RenameColumn,
    RenameTable,
    SetPrimaryKey,
    Statement,
)
from changelane.ddl.parse_column import is_stored, zero
from changelane.schema import TableId
from changelane.types import LogicalType, Value


class Fill(StrEnum):
    """What the rows that are there get in a new column."""

    NULL = "null"
    VALUE = "value"
    UNKNOWN = "unknown"


class Added(msgspec.Struct, frozen=True):
    """A new column.

    Attributes:
        fill: What rows get that were there before.
        value: That value, where ``fill`` says so; of the type *kind*.
        may_exist: A column of this name may be there, and stays then.
    """

    name: str
    kind: LogicalType
    fill: Fill = Fill.NULL
    value: Value = None
    may_exist: bool = False


class Altered(msgspec.Struct, frozen=True):
    """One statement changed a table's columns: all names but the new ones are those before it.

    Attributes:
        order: Its place in the log (docs/merge-rule.md, Orders), of phase 0.
        part: Counts the turns of one place.
        key: The key columns after it, by their new names; ``None`` = it does not speak of them.
    """

    order: bytes
    part: int
    table: TableId
    dropped: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    added: tuple[Added, ...] = ()
    key: tuple[str, ...] | None = None


class Ended(msgspec.Struct, frozen=True):
    """The table went, and its rows with it; another may have come in its place.

    Attributes:
        is_replaced: A new table of this name is there.
    """

    order: bytes
    part: int
    table: TableId
    is_replaced: bool = False


class EndedAll(msgspec.Struct, frozen=True):
    """All tables of a database, or of a schema in it, went."""

    order: bytes
    part: int
    table: TableId


class Renamed(msgspec.Struct, frozen=True):
    """The table has another name from here on."""

    order: bytes
    part: int
    table: TableId
    new_table: TableId


class Swapped(msgspec.Struct, frozen=True):
    """The table takes the shape of a shadow of it, and keeps its rows."""

    order: bytes
    part: int
    table: TableId
    shadow: TableId


Turn = Altered | Ended | EndedAll | Renamed | Swapped

PARTS: Final = 1000
"""So many parts of a place in the log are those of one text of statements."""
_SHADOW: Final = re.compile(r"_{1,10}(?P<of>.+?)(?:_\d{14})?_(?P<what>gho|ghc|del|new|old)")


def shadowed(table: TableId) -> TableId | None:
    """Return the table whose shadow a table is by its name; ``None`` when it is none.

    gh-ost copies into ``_x_gho``, logs into ``_x_ghc`` and leaves ``_x_del``;
    pt-online-schema-change copies into ``_x_new`` and leaves ``_x_old``.

    >>> str(shadowed(TableId("shop", None, "_orders_gho")))
    'shop.orders'
    """
    found = _SHADOW.fullmatch(table.name or "")
    return found and msgspec.structs.replace(table, name=found["of"])


def turns_of(
    order: bytes,
    statements: Iterable[Statement],
    dialect: Dialect,
    *,
    shadows: bool = True,
    before: int = 0,
) -> list[Turn]:
    """Return the turns of the statements of one place in the log.

    Args:
        order: The place.
        statements: The statements, in their order.
        dialect: Whose SQL it is: what a new column is filled with depends on it.
        shadows: Tables of online schema changes are shadows of others; else they are tables.
        before: How many other texts of statements were told of this place before this one:
            Debezium tells each table that one RENAME TABLE renames on its own.
    """
    turns: list[Turn] = []
    for statement in statements:
        for turn in _turns(order, statement, dialect, shadows=shadows):
            turns.append(msgspec.structs.replace(turn, part=PARTS * before + len(turns)))
    return turns


def _turns(
    order: bytes, statement: Statement, dialect: Dialect, *, shadows: bool
) -> Iterator[Turn]:
    if (altered := _altered(order, statement, dialect)) is not None:
        yield altered
    for change in statement.changes:
        match change:
            case CreateTable(temporary=False, if_not_exists=False):
                yield Ended(order, 0, change.table, is_replaced=True)
            case DropTable(temporary=False):
                yield Ended(order, 0, change.table)
            case DropDatabase():
                yield EndedAll(order, 0, change.name)
            case RenameTable(old, new) if shadows and shadowed(old) == new:
                yield Swapped(order, 0, new, old)
            case RenameTable(old, new) if shadows and shadowed(new) == old:
                pass  # the old rows step aside for the shadow, which holds them, too
            case RenameTable(old, new):
                yield Renamed(order, 0, old, new)
            case _:
                pass


def _altered(order: bytes, statement: Statement, dialect: Dialect) -> Altered | None:
    dropped: list[str] = []
    renamed: list[tuple[str, str]] = []
    added: list[Added] = []
    key: tuple[str, ...] | None = None
    keyed = {
        name
        for change in statement.changes
        if isinstance(change, SetPrimaryKey | AddIndex)
        for name in change.columns or ()
    }
    for change in statement.changes:
        match change:
            case AddColumn(column):
                fill, value = _filled(change, dialect, keyed)
                added.append(Added(column.name, column.type, fill, value, change.if_not_exists))
            case DropColumn(name):
                dropped.append(name)
            case RenameColumn(name, new_name):
                renamed.append((name, new_name))
            case ModifyColumn(name=name, new_name=str(new_name)) if new_name != name:
                renamed.append((name, new_name))
            case SetPrimaryKey(columns):
                key = columns
            case DropPrimaryKey():
                key = key or ()
            case _:
                pass
    if not (dropped or renamed or added or key is not None) or statement.action == "create":
        return None
    return Altered(order, 0, statement.table, tuple(dropped), tuple(renamed), tuple(added), key)


def _filled(change: AddColumn, dialect: Dialect, keyed: Collection[str]) -> tuple[Fill, Value]:
    """Return what the rows that are there get in a new column, as its statement says.

    A literal default is that value, where the source keeps it so. An expression was computed by
    the source, which did not tell: unknown. MySQL fills NOT NULL without a default with the type's
    own zero.
    """
    column = change.column
    if column.generated:
        return Fill.UNKNOWN, None
    if column.default is not UNSET and column.default is not None:
        if is_stored(column.default, column, dialect):
            return Fill.VALUE, column.default
        return Fill.UNKNOWN, None
    if change.default is not None:
        return Fill.UNKNOWN, None
    if dialect != "mysql" or column.nullable:
        return Fill.NULL, None
    # a column of a key may be AUTO_INCREMENT; old TIMESTAMPs are filled with the time
    if column.nullable is None or column.name in keyed:
        return Fill.UNKNOWN, None
    value = zero(column.type)
    if value is None or not is_stored(value, column, dialect):
        return Fill.UNKNOWN, None
    return Fill.VALUE, value


def sorted_turns(turns: Sequence[Turn]) -> list[Turn]:
    """Return turns in the order of the log, each once."""
    return sorted(dict.fromkeys(turns), key=lambda one: (one.order, one.part, str(one.table)))
