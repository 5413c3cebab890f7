# SPDX-License-Identifier: Apache-2.0
"""DDL statements of MySQL, MariaDB, PostgreSQL and Oracle, parsed into typed changes.

The text is untrusted. It is never executed, and parsing never raises, prints or logs. A statement
that cannot be parsed stays text, with a reason.

Every format determines the action of a :class:`~changelane.event.SchemaChange` by this package, so
that equal statements have equal actions.
"""

from typing import Final

from changelane.ddl.changes import (
    AddColumn,
    AddIndex,
    Change,
    ColumnChange,
    CreateDatabase,
    CreateTable,
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
)
from changelane.ddl.evolve import MisfitError, Shape, apply_changes, shape_of
from changelane.ddl.parser import Dialect, parse
from changelane.schema import TableId

_DIALECTS: Final[dict[str, Dialect]] = {
    **dict.fromkeys(("mysql", "mariadb", "tidb", "oceanbase", "polardb", "vitess"), "mysql"),
    **dict.fromkeys(("postgresql", "postgres", "yugabytedb", "cockroachdb"), "postgresql"),
    "oracle": "oracle",
}
"""Database (:attr:`~changelane.event.Source.product`) -> its SQL dialect."""


def dialect_of(product: str | None) -> Dialect | None:
    """Return the SQL dialect of a database; ``None`` if there is no parser for it."""
    return _DIALECTS.get(product or "")


def action_of(text: str | None, product: str | None, action: str = "other") -> str:
    """Return the action of statements: the common action of those that change a table.

    >>> action_of("/* nightly */ TRUNCATE TABLE `t`", "mysql")
    'truncate'
    >>> action_of("ALTER TABLE t RENAME TO u", "mysql", "alter")
    'rename'

    Args:
        text: The statements.
        product: The database.
        action: The producer's action: the result if the statements have no action, or several.
    """
    dialect = dialect_of(product)
    if not text or dialect is None:
        return action
    actions = {statement.action for statement in parse(text, dialect)} - {"other"}
    return actions.pop() if len(actions) == 1 else action


def table_of(text: str | None, product: str | None, table_id: TableId) -> TableId:
    """Return the first table that a text names, if the producer names none.

    Args:
        text: The statements.
        product: The database.
        table_id: The producer's table; the result if it has a name.
    """
    dialect = dialect_of(product)
    if not text or dialect is None or table_id.name is not None:
        return table_id
    for statement in parse(text, dialect, table_id):
        if statement.action != "other":
            return statement.table
    return table_id


def statements_of(
    text: str | None, product: str | None, table_id: TableId
) -> tuple[Statement, ...]:
    """Return the parsed statements of a text; none without text or without a parser for its SQL.

    Args:
        text: The statements.
        product: The database.
        table_id: Its database and schema are the default for tables that the text names without.
    """
    dialect = dialect_of(product)
    if not text or dialect is None:
        return ()
    return parse(text, dialect, table_id)


__all__ = [
    "AddColumn",
    "AddIndex",
    "Change",
    "ColumnChange",
    "CreateDatabase",
    "CreateTable",
    "Dialect",
    "DropColumn",
    "DropConstraint",
    "DropDatabase",
    "DropIndex",
    "DropPrimaryKey",
    "DropTable",
    "MisfitError",
    "ModifyColumn",
    "Other",
    "RenameColumn",
    "RenameIndex",
    "RenameTable",
    "SetPrimaryKey",
    "Shape",
    "Statement",
    "TruncateTable",
    "action_of",
    "apply_changes",
    "dialect_of",
    "parse",
    "shape_of",
    "statements_of",
    "table_of",
]
