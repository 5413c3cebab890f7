# SPDX-License-Identifier: Apache-2.0
"""Kinds of DDL: Canal's types and our actions."""

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

UNTOLD: Final = frozenset({"DDL", "INIT_DDL"})
"""Types of other producers that leave the kind of statement to its text."""

TYPES_OF_DDL: Final = frozenset({*ACTIONS, *UNTOLD, "TRUNCATE"})


def action_of_kind(kind: str, sql: str | None) -> str:
    """Return what a message of DDL does: what its statement says, else what its type says.

    >>> told("DDL", "/* nightly */ TRUNCATE TABLE `t`"), told("ERASE", None)
    ('truncate', 'drop')
    """
    if kind == "TRUNCATE":
        return "truncate"
    return statements.action_of(sql, "mysql", action=ACTIONS.get(kind, "other"))


def truncate_statement(database: str | None, name: str | None) -> str:
    """Return a TRUNCATE for producers whose type does not say it."""
    parts = (part.replace("`", "``") for part in (database, name) if part)
    return "TRUNCATE TABLE " + ".".join(f"`{part}`" for part in parts)
