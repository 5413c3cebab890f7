# SPDX-License-Identifier: Apache-2.0
"""DDL records: the action of a statement and its tables."""

from typing import Final

import msgspec

from changelane import ddl
from changelane.formats.dts.type_numbers import FAMILIES, MYSQL, ORACLE, OTHER
from changelane.schema import TableId

_DIALECTS: Final[dict[str, ddl.Dialect]] = {MYSQL.name: "mysql", ORACLE.name: "oracle"}


class StatementEffect(msgspec.Struct, frozen=True):
    """The action of a text of statements. A truncate is one of each of *tables*."""

    action: str
    tables: tuple[TableId, ...]


def read(text: str, source_type: str, around: TableId) -> StatementEffect:
    """Return the action of a text of statements, and its tables.

    Args:
        text: The statements. Those of sources other than MySQL and Oracle are parsed in the dialect
            of PostgreSQL, which is that of the standard.
        source_type: The ``sourceType`` of the record.
        around: The object of the record. If it is a table, it is the table of a truncate.
    """
    dialect = _DIALECTS.get(FAMILIES.get(source_type, OTHER).name, "postgresql")
    statements = ddl.parse(text, dialect, around)
    changes = [change for statement in statements for change in statement.changes]
    truncated = [change.table for change in changes if isinstance(change, ddl.TruncateTable)]
    if (
        truncated
        and len(truncated) == len(changes)
        and all(statement.changes for statement in statements)
    ):
        is_named = around.name is not None and len(truncated) == 1
        return StatementEffect("truncate", (around,) if is_named else tuple(truncated))
    action = ddl.action_of(text, dialect)
    # a truncate among other statements: it is not certain that the rows are deleted
    action = "other" if action == "truncate" else action
    return StatementEffect(action, (ddl.table_of(text, dialect, around),))


def truncate_statement(table: TableId, source_type: str) -> str:
    """Return a TRUNCATE of a table, for an event without a statement."""
    quote = "`" if FAMILIES.get(source_type, OTHER) is MYSQL else '"'
    name_parts = (table.database if table.schema is None else None, table.schema, table.name)
    parts = (quote + part.replace(quote, quote * 2) + quote for part in name_parts if part)
    return "TRUNCATE TABLE " + ".".join(parts)
