# SPDX-License-Identifier: Apache-2.0
"""The schema history: the changes of tables by DDL statements, each at its order in the log.

The mapping of a table's columns depends only on its schema history and on the order of an event
(:mod:`changelane.apply.column_mapping`). So a replay maps every event by the names at its order.
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
from changelane.ddl.parse_column import implicit_default, is_stored_unchanged
from changelane.schema import TableId
from changelane.types import LogicalType, Value


class Backfill(StrEnum):
    """The value of existing rows in a new column."""

    NULL = "null"
    VALUE = "value"
    UNKNOWN = "unknown"


class ColumnAdded(msgspec.Struct, frozen=True):
    """A new column.

    Attributes:
        fill: The value of existing rows.
        value: The value for ``fill = value``, of the type *kind*.
        may_exist: An existing column of this name stays unchanged.
    """

    name: str
    kind: LogicalType
    fill: Backfill = Backfill.NULL
    value: Value = None
    may_exist: bool = False


class TableAltered(msgspec.Struct, frozen=True):
    """The changes of a table's columns by one statement; old names are those before it.

    Attributes:
        order: Its position in the log (docs/merge-rule.md, Orders), with phase 0.
        part: The number of the change among those at one position.
        key: The key columns after it, by their new names; ``None`` if the key stays unchanged.
    """

    order: bytes
    part: int
    table: TableId
    dropped: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    added: tuple[ColumnAdded, ...] = ()
    key: tuple[str, ...] | None = None


class TableDropped(msgspec.Struct, frozen=True):
    """A table is dropped with its rows.

    Attributes:
        is_replaced: The statement creates a new table of this name.
    """

    order: bytes
    part: int
    table: TableId
    is_replaced: bool = False


class SchemaDropped(msgspec.Struct, frozen=True):
    """All tables of a database, or of a schema in it, are dropped."""

    order: bytes
    part: int
    table: TableId


class TableRenamed(msgspec.Struct, frozen=True):
    """A table has a new name from this order on."""

    order: bytes
    part: int
    table: TableId
    new_table: TableId


class ShadowSwapped(msgspec.Struct, frozen=True):
    """A table gets the columns of its shadow table, and keeps its rows."""

    order: bytes
    part: int
    table: TableId
    shadow: TableId


SchemaChangeEntry = TableAltered | TableDropped | SchemaDropped | TableRenamed | ShadowSwapped

PARTS_PER_TEXT: Final = 1000
"""The maximum number of changes by one text of statements at one position in the log."""
_SHADOW: Final = re.compile(r"_{1,10}(?P<of>.+?)(?:_\d{14})?_(?P<what>gho|ghc|del|new|old)")


def table_of_shadow(table: TableId) -> TableId | None:
    """Return the table of a shadow table, by its name; ``None`` if it is no shadow table.

    gh-ost copies into ``_x_gho``, logs into ``_x_ghc`` and leaves ``_x_del``;
    pt-online-schema-change copies into ``_x_new`` and leaves ``_x_old``.

    >>> str(table_of_shadow(TableId("shop", None, "_orders_gho")))
    'shop.orders'
    """
    match = _SHADOW.fullmatch(table.name or "")
    return match and msgspec.structs.replace(table, name=match["of"])


def shadow_of(table: TableId, shadow: TableId, shadowed: TableId) -> TableId:
    """Return the shadow table of a table, named as another shadow table is.

    >>> orders, shadow = TableId("shop", None, "orders"), TableId("shop", None, "_orders_gho")
    >>> str(shadow_of(TableId("ods", None, "orders_raw"), shadow, orders))
    'ods._orders_raw_gho'

    Args:
        table: The table.
        shadow: The other shadow table.
        shadowed: Its table.
    """
    if table == shadowed:
        return shadow
    match = _SHADOW.fullmatch(shadow.name or "")
    if match is None:
        raise ValueError(f"{shadow} is no shadow table")
    first, last = match.span("of")
    prefix, suffix = match.string[:first], match.string[last:]
    return msgspec.structs.replace(table, name=f"{prefix}{table.name}{suffix}")


def schema_changes_of(
    order: bytes,
    statements: Iterable[Statement],
    dialect: Dialect,
    *,
    shadows: bool = True,
    before: int = 0,
) -> list[SchemaChangeEntry]:
    """Return the schema changes of the statements at one position in the log.

    Args:
        order: The position.
        statements: The statements, in their order.
        dialect: The SQL dialect: the value of existing rows in a new column depends on it.
        shadows: Treat the tables of online schema changes as shadow tables.
        before: The number of earlier texts of statements at this position: Debezium sends one event
            for each table of a RENAME TABLE.
    """
    entries: list[SchemaChangeEntry] = []
    for statement in statements:
        for entry in _entries(order, statement, dialect, shadows=shadows):
            entries.append(
                msgspec.structs.replace(entry, part=PARTS_PER_TEXT * before + len(entries))
            )
    return entries


def _entries(
    order: bytes, statement: Statement, dialect: Dialect, *, shadows: bool
) -> Iterator[SchemaChangeEntry]:
    if (altered := _table_altered(order, statement, dialect)) is not None:
        yield altered
    for change in statement.changes:
        match change:
            case CreateTable(temporary=False, if_not_exists=False):
                yield TableDropped(order, 0, change.table, is_replaced=True)
            case DropTable(temporary=False):
                yield TableDropped(order, 0, change.table)
            case DropDatabase():
                yield SchemaDropped(order, 0, change.name)
            case RenameTable(old, new) if shadows and table_of_shadow(old) == new:
                yield ShadowSwapped(order, 0, new, old)
            case RenameTable(old, new) if shadows and table_of_shadow(new) == old:
                pass  # the renamed old table; the shadow table contains its rows, too
            case RenameTable(old, new):
                yield TableRenamed(order, 0, old, new)
            case _:
                pass


def _table_altered(order: bytes, statement: Statement, dialect: Dialect) -> TableAltered | None:
    dropped: list[str] = []
    renamed: list[tuple[str, str]] = []
    added: list[ColumnAdded] = []
    key: tuple[str, ...] | None = None
    key_columns = {
        name
        for change in statement.changes
        if isinstance(change, SetPrimaryKey | AddIndex)
        for name in change.columns or ()
    }
    for change in statement.changes:
        match change:
            case AddColumn(column):
                fill, value = _backfill_of(change, dialect, key_columns)
                added.append(
                    ColumnAdded(column.name, column.type, fill, value, change.if_not_exists)
                )
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
    return TableAltered(
        order, 0, statement.table, tuple(dropped), tuple(renamed), tuple(added), key
    )


def _backfill_of(
    change: AddColumn, dialect: Dialect, key_columns: Collection[str]
) -> tuple[Backfill, Value]:
    """Return the value of existing rows in a new column, from its statement.

    The value is the literal default if the source stores it unchanged, and MySQL's implicit default
    for a NOT NULL column without default. The value of an expression is unknown, because the source
    does not send it. Other databases reject such a NOT NULL column on rows, unless they compute its
    values (``serial``, ``IDENTITY``).
    """
    column = change.column
    if column.generated:
        return Backfill.UNKNOWN, None
    if column.default is not UNSET and column.default is not None:
        if is_stored_unchanged(column.default, column, dialect):
            return Backfill.VALUE, column.default
        return Backfill.UNKNOWN, None
    if change.default is not None:
        return Backfill.UNKNOWN, None
    if dialect != "mysql":
        return Backfill.UNKNOWN if column.nullable is False else Backfill.NULL, None
    if column.nullable:
        return Backfill.NULL, None
    # a key column may be AUTO_INCREMENT; a TIMESTAMP may have the current time as its default
    if column.nullable is None or column.name in key_columns:
        return Backfill.UNKNOWN, None
    value = implicit_default(column.type)
    if value is None or not is_stored_unchanged(value, column, dialect):
        return Backfill.UNKNOWN, None
    return Backfill.VALUE, value


def sorted_entries(entries: Sequence[SchemaChangeEntry]) -> list[SchemaChangeEntry]:
    """Return schema changes in the order of the log, each once."""
    return sorted(
        dict.fromkeys(entries), key=lambda entry: (entry.order, entry.part, str(entry.table))
    )
