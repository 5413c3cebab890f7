# SPDX-License-Identifier: Apache-2.0
"""Statements that change tables, read into typed changes.

MySQL's and MariaDB's, PostgreSQL's and Oracle's SQL. The text is untrusted: it is never executed,
reading it never raises, prints or logs, and what is not read stays text with a reason.

This is the one place that says what a statement does, so that a
:class:`~changelane.event.SchemaChange` has the same action whichever format told it.
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
from changelane.ddl.evolve import MisfitError, Shape, created, evolved
from changelane.ddl.parser import Dialect, parse
from changelane.schema import TableId

_DIALECTS: Final[dict[str, Dialect]] = {
    **dict.fromkeys(("mysql", "mariadb", "tidb", "oceanbase", "polardb", "vitess"), "mysql"),
    **dict.fromkeys(("postgresql", "postgres", "yugabytedb", "cockroachdb"), "postgresql"),
    "oracle": "oracle",
}
"""Database (:attr:`~changelane.event.Source.product`) -> the SQL that it speaks."""


def dialect_of(product: str | None) -> Dialect | None:
    """Return the dialect of a database; ``None`` when its SQL is not read."""
    return _DIALECTS.get(product or "")


def action_of(text: str | None, product: str | None, action: str = "other") -> str:
    """Return what a text of statements does: the action of all that change a table.

    >>> action_of("/* nightly */ TRUNCATE TABLE `t`", "mysql")
    'truncate'
    >>> action_of("ALTER TABLE t RENAME TO u", "mysql", told="alter")
    'rename'

    Args:
        text: The statements.
        product: The database.
        action: The producer's word, which holds where the text does not tell, or tells of several.
    """
    dialect = dialect_of(product)
    if not text or dialect is None:
        return action
    actions = {statement.action for statement in parse(text, dialect)} - {"other"}
    return actions.pop() if len(actions) == 1 else action


def table_of(text: str | None, product: str | None, table_id: TableId) -> TableId:
    """Return the first table that a text names, where the producer names none.

    Args:
        text: The statements.
        product: The database.
        table_id: What the producer says; it holds where it names a table.
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
    "created",
    "dialect_of",
    "evolved",
    "parse",
    "statements_of",
    "table_of",
]
