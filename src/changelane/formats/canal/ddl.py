# SPDX-License-Identifier: Apache-2.0
"""Canal's types of DDL messages, and the actions of schema changes."""

from typing import Final

from changelane import ddl as statements

ACTIONS: Final[dict[str, str]] = {
    "CREATE": "create",
    "ALTER": "alter",
    "ERASE": "drop",
    "RENAME": "rename",
    "CINDEX": "create_index",
    "DINDEX": "drop_index",
    "QUERY": "other",
}
"""Canal's type -> the action of a schema change."""

TYPES: Final[dict[str, str]] = {action: name for name, action in ACTIONS.items()}

GENERIC_TYPES: Final = frozenset({"DDL", "INIT_DDL"})
"""Types of other producers for statements of any kind."""

TYPES_OF_DDL: Final = frozenset({*ACTIONS, *GENERIC_TYPES, "TRUNCATE"})


def action_of_kind(kind: str, sql: str | None) -> str:
    """Return the action of a DDL message: that of its statement, else that of its type.

    >>> action_of_kind("DDL", "/* nightly */ TRUNCATE TABLE `t`"), action_of_kind("ERASE", None)
    ('truncate', 'drop')
    """
    if kind == "TRUNCATE":
        return "truncate"
    return statements.action_of(sql, "mysql", action=ACTIONS.get(kind, "other"))


def truncate_statement(database: str | None, name: str | None) -> str:
    """Return a TRUNCATE statement, for producers with one type for all DDL."""
    parts = (part.replace("`", "``") for part in (database, name) if part)
    return "TRUNCATE TABLE " + ".".join(f"`{part}`" for part in parts)
