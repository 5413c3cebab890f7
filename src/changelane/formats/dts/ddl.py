# SPDX-License-Identifier: Apache-2.0
"""DDL records: what a statement does, and to which tables."""

from typing import Final

import msgspec

from changelane import ddl
from changelane.formats.dts.type_numbers import FAMILIES, MYSQL, ORACLE, OTHER
from changelane.schema import TableId

_DIALECTS: Final[dict[str, ddl.Dialect]] = {MYSQL.name: "mysql", ORACLE.name: "oracle"}


class Told(msgspec.Struct, frozen=True):
    """What a text of statements does; a truncate does it to each of *tables*."""

    action: str
    tables: tuple[TableId, ...]


def read(text: str, source_type: str, around: TableId) -> Told:
    """Return what a text of statements does, and to which tables.

    Args:
        text: The statements. Those of sources other than MySQL and Oracle are read as the standard
            has it, which is PostgreSQL's way.
        source_type: The ``sourceType`` of the record.
        around: What the record itself is named after; it holds where it is a table.
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
        return Told("truncate", (around,) if is_named else tuple(truncated))
    action = ddl.action_of(text, dialect)
    # whatever else such a text does, no rows are sure to be gone
    action = "other" if action == "truncate" else action
    return Told(action, (ddl.table_of(text, dialect, around),))


def truncate_statement(table: TableId, source_type: str) -> str:
    """Return a TRUNCATE for a table whose statement is not known."""
    quote = "`" if FAMILIES.get(source_type, OTHER) is MYSQL else '"'
    name_parts = (table.database if table.schema is None else None, table.schema, table.name)
    parts = (quote + part.replace(quote, quote * 2) + quote for part in name_parts if part)
    return "TRUNCATE TABLE " + ".".join(parts)
