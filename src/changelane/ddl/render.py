# SPDX-License-Identifier: Apache-2.0
"""SQL of typed changes, for tables with renamed tables or columns.

The rendered text is parsed again and must give the same changes, else the changes are rejected. So
a statement is either right or rejected, for all names and types.
"""

import datetime as dt
import decimal
import math
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from changelane.ddl.changes import (
    AddColumn,
    AddIndex,
    Change,
    CreateTable,
    DropColumn,
    DropConstraint,
    DropIndex,
    DropPrimaryKey,
    DropTable,
    ModifyColumn,
    RenameColumn,
    RenameIndex,
    RenameTable,
    SetPrimaryKey,
    TruncateTable,
)
from changelane.ddl.parser import Dialect, parse
from changelane.errors import EncodeError
from changelane.schema import Column, TableId
from changelane.sql_types import mysql
from changelane.types import (
    Boolean,
    Bytes,
    Date,
    Decimal,
    Float,
    InstantType,
    Integer,
    Json,
    LogicalType,
    String,
    Timestamp,
    Uuid,
)

_TABLE_CHANGES: Final = (CreateTable, DropTable, TruncateTable, RenameTable)


class UnwritableError(EncodeError):
    """Changes that the dialect cannot express."""


def render(changes: Sequence[Change], dialect: Dialect, table: TableId) -> str:
    """Return the SQL of changes: statements, separated by semicolons.

    >>> render([DropColumn("a b")], "mysql", TableId("shop", None, "t"))
    'ALTER TABLE `shop`.`t` DROP COLUMN `a b`'

    Args:
        changes: The changes of one statement.
        dialect: The SQL dialect.
        table: The table of the column changes.

    Raises:
        UnwritableError: The dialect has no such statement, or its text parses into other changes.
    """
    changes = [_with_type_texts(change, dialect) for change in changes]
    text = "; ".join(_statements(changes, dialect, table))
    statements = parse(text, dialect, TableId(table.database, table.schema))
    parsed_changes = tuple(change for statement in statements for change in statement.changes)
    if parsed_changes != tuple(changes) or any(statement.reason for statement in statements):
        raise UnwritableError("its SQL parses into other changes")
    column_statements = (
        statement
        for statement in statements
        if not any(isinstance(c, _TABLE_CHANGES) for c in statement.changes)
    )
    if any(change.table != table for change in column_statements):
        raise UnwritableError("SQL cannot express the name of its table")
    return text


def _statements(changes: Sequence[Change], dialect: Dialect, table: TableId) -> Iterator[str]:
    clauses: list[str] = []
    for change in changes:
        if clauses and isinstance(change, _TABLE_CHANGES):
            yield _alter(clauses, dialect, table)
            clauses = []
        match change:
            case CreateTable():
                yield _create(change, dialect)
            case DropTable():
                exists = "IF EXISTS " if change.if_exists else ""
                temporary = "TEMPORARY " if change.temporary else ""
                yield f"DROP {temporary}TABLE {exists}{_table(change.table, dialect)}"
            case TruncateTable():
                yield f"TRUNCATE TABLE {_table(change.table, dialect)}"
            case RenameTable():
                yield _rename_table(change, dialect)
            case _:
                clauses.append(_clause(change, dialect))
    if clauses:
        if any(isinstance(change, RenameTable) for change in changes):
            raise UnwritableError("it renames a table and changes columns of it")
        yield _alter(clauses, dialect, table)


def _alter(clauses: Sequence[str], dialect: Dialect, table: TableId) -> str:
    renames = any(clause.startswith("RENAME") for clause in clauses)
    if dialect == "postgresql" and renames and len(clauses) > 1:
        raise UnwritableError("PostgreSQL allows no other action beside a rename")
    divider = " " if dialect == "oracle" else ", "
    return f"ALTER TABLE {_table(table, dialect)} {divider.join(clauses)}"


def _with_type_texts(change: Change, dialect: Dialect) -> Change:
    """Return a change in which every type has a type text."""

    def with_type_text(column: Column) -> Column:
        if column.source_type is not None:
            return column
        text = _type(column.type, None, dialect)
        return msgspec.structs.replace(column, source_type=text)

    match change:
        case AddColumn():
            return msgspec.structs.replace(change, column=with_type_text(change.column))
        case CreateTable():
            columns = tuple(map(with_type_text, change.columns))
            return msgspec.structs.replace(change, columns=columns)
        case ModifyColumn() if change.type is not None and change.source_type is None:
            text = _type(change.type, None, dialect)
            return msgspec.structs.replace(change, source_type=text)
        case _:
            return change


def quoted(name: str, dialect: Dialect) -> str:
    """Return a quoted name."""
    mark = "`" if dialect == "mysql" else '"'
    return mark + name.replace(mark, mark + mark) + mark


def _table(table: TableId, dialect: Dialect) -> str:
    parts: tuple[str | None, ...] = (table.schema, table.name)
    if dialect == "mysql":
        parts = (table.database, table.name)
    elif dialect == "postgresql" and table.schema is not None:
        parts = (table.database, table.schema, table.name)
    return ".".join(quoted(part, dialect) for part in parts if part is not None)


def _names(names: Sequence[str], dialect: Dialect) -> str:
    return "(" + ", ".join(quoted(name, dialect) for name in names) + ")"


def _create(change: CreateTable, dialect: Dialect) -> str:
    if change.is_partial or (change.like is not None and (change.columns or dialect != "mysql")):
        raise UnwritableError("it does not list all columns of the table")
    words = ["CREATE"]
    words += ["OR REPLACE"] if change.replaces else []
    words += ["TEMPORARY"] if change.temporary else []
    words += ["TABLE"]
    words += ["IF NOT EXISTS"] if change.if_not_exists else []
    words.append(_table(change.table, dialect))
    if change.like is not None:
        return " ".join((*words, "LIKE", _table(change.like, dialect)))
    defaults = dict(change.defaults)
    parts = [_column(column, defaults.get(column.name), dialect) for column in change.columns]
    if change.key:
        parts.append(f"PRIMARY KEY {_names(change.key, dialect)}")
    return f"{' '.join(words)} ({', '.join(parts)})"


def _rename_table(change: RenameTable, dialect: Dialect) -> str:
    old, new = change.table, change.new_table
    if dialect == "mysql":
        return f"RENAME TABLE {_table(old, dialect)} TO {_table(new, dialect)}"
    if new.name is None or (old.database, old.schema) != (new.database, new.schema):
        raise UnwritableError("it moves a table into another schema")
    return f"ALTER TABLE {_table(old, dialect)} RENAME TO {quoted(new.name, dialect)}"


def _clause(change: Change, dialect: Dialect) -> str:
    def name(text: str) -> str:
        return quoted(text, dialect)

    match change:
        case AddColumn():
            exists = "IF NOT EXISTS " if change.if_not_exists else ""
            word = "ADD " if dialect == "oracle" else "ADD COLUMN "
            text = word + exists + _column(change.column, change.default, dialect)
            return text + _placement(change, dialect)
        case DropColumn():
            return f"DROP COLUMN {'IF EXISTS ' if change.if_exists else ''}{name(change.name)}"
        case RenameColumn():
            return f"RENAME COLUMN {name(change.name)} TO {name(change.new_name)}"
        case ModifyColumn():
            return _modify(change, dialect)
        case SetPrimaryKey():
            return f"ADD PRIMARY KEY {_names(change.columns, dialect)}"
        case DropPrimaryKey():
            return "DROP PRIMARY KEY"
        case DropConstraint():
            return f"DROP CONSTRAINT {name(change.name)}"
        case AddIndex() if change.columns is not None and dialect == "mysql":
            word = "ADD UNIQUE INDEX" if change.unique else "ADD INDEX"
            own = "" if change.name is None else f" {name(change.name)}"
            return f"{word}{own} {_names(change.columns, dialect)}"
        case DropIndex() if dialect == "mysql":
            return f"DROP INDEX {name(change.name)}"
        case RenameIndex() if dialect == "mysql":
            return f"RENAME INDEX {name(change.name)} TO {name(change.new_name)}"
        case _:
            raise UnwritableError(f"{type(change).__name__} has no statement")


def _placement(change: AddColumn | ModifyColumn, dialect: Dialect) -> str:
    if change.first:
        return " FIRST"
    return "" if change.after is None else f" AFTER {quoted(change.after, dialect)}"


def _column(column: Column, default: str | None, dialect: Dialect) -> str:
    if column.generated:
        raise UnwritableError("the expression of a generated column is unknown")
    text = f"{quoted(column.name, dialect)} {_type(column.type, column.source_type, dialect)}"
    text += "" if default is None else f" DEFAULT {default}"
    if column.nullable is False:
        return f"{text} NOT NULL"
    kind = (column.source_type or "").lower()
    is_explicit = column.nullable and dialect == "mysql" and kind.startswith("timestamp")
    return f"{text} NULL" if is_explicit else text


def _modify(change: ModifyColumn, dialect: Dialect) -> str:
    own = quoted(change.name, dialect)
    if change.generated not in {False, UNSET}:
        raise UnwritableError("the expression of a generated column is unknown")
    default = f" DEFAULT {change.default}" if isinstance(change.default, str) else ""
    null = ""
    if isinstance(change.nullable, bool):
        null = " NULL" if change.nullable else " NOT NULL"
    if dialect == "mysql":
        if change.type is None:
            raise UnwritableError("MySQL needs the type of a modified column")
        word = f"MODIFY COLUMN {'IF EXISTS ' if change.if_exists else ''}{own}"
        if change.new_name is not None:
            exists = "IF EXISTS " if change.if_exists else ""
            word = f"CHANGE COLUMN {exists}{own} {quoted(change.new_name, dialect)}"
        kind = _type(change.type, change.source_type, dialect)
        return f"{word} {kind}{null}{default}{_placement(change, dialect)}"
    kind = "" if change.type is None else f" {_type(change.type, change.source_type, dialect)}"
    if dialect == "oracle":
        return f"MODIFY ({own}{kind}{default}{null})"
    column = f"ALTER COLUMN {'IF EXISTS ' if change.if_exists else ''}{own}"
    if kind:
        return f"{column} TYPE{kind}"
    if null:
        return f"{column} {'DROP' if change.nullable else 'SET'} NOT NULL"
    return f"{column} DROP DEFAULT" if change.default is None else f"{column} SET{default}"


_TYPES: Final[dict[str, dict[type[LogicalType], str]]] = {
    "postgresql": {
        String: "text",
        Boolean: "boolean",
        Bytes: "bytea",
        Date: "date",
        Json: "jsonb",
        Uuid: "uuid",
    },
    "oracle": {String: "CLOB", Bytes: "BLOB"},
}


def _type(kind: LogicalType, source_type: str | None, dialect: Dialect) -> str:
    """Return the text of a type: the source's own text, else one that parses into the type.

    Raises:
        UnwritableError: The dialect has no such type.
    """
    if source_type is not None:
        return source_type
    if dialect == "mysql":
        try:
            return mysql.text_of(kind)
        except EncodeError as error:
            raise UnwritableError(str(error)) from None
    plain = _TYPES[dialect].get(type(kind))
    if plain is None and dialect == "postgresql":
        plain = _postgresql(kind)
    if plain is None:
        raise UnwritableError(f"{dialect} has no type {kind}")
    return plain


def _postgresql(kind: LogicalType) -> str | None:
    match kind:
        case Integer(unsigned=False) if kind.bits > 8:
            return {16: "smallint", 32: "integer", 64: "bigint"}[kind.bits]
        case Decimal(scale=None):
            return "numeric"
        case Decimal():
            return f"numeric({kind.precision},{kind.scale})"
        case Float():
            return "real" if kind.bits == 32 else "double precision"
        case Timestamp():
            return "timestamp" if kind.precision is None else f"timestamp({kind.precision})"
        case InstantType():
            return "timestamptz" if kind.precision is None else f"timestamptz({kind.precision})"
        case _:
            return None


def literal_text(value: object) -> str | None:
    """Return the SQL literal of a value; ``None`` if dialects differ."""
    match value:
        case bool():
            return None
        case int():
            return str(value)
        case decimal.Decimal() if value.is_finite():
            return format(value, "f")
        case float() if math.isfinite(value):
            return repr(value)
        case dt.datetime() if value.tzinfo is None:
            return f"'{value.isoformat(' ')}'"
        case dt.date() if not isinstance(value, dt.datetime):
            return f"'{value.isoformat()}'"
        case str() if "\\" not in value:
            return "'" + value.replace("'", "''") + "'"
        case _:
            return None
