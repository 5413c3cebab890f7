# SPDX-License-Identifier: Apache-2.0
"""Kinds of DDL: Canal's types, our actions, and statements whose type does not tell."""

import re
from typing import Final

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

# atomic and possessive: comments cannot be divided in more than one way
_COMMENTS: Final = r"(?>\s+|/\*.*?\*/|--[^\n]*\n|#[^\n]*\n)*+"
_STATEMENTS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (action, re.compile(_COMMENTS + pattern, re.IGNORECASE | re.DOTALL))
    for action, pattern in (
        ("truncate", r"truncate\b"),
        ("create", r"create\s+(?:temporary\s+)?table\b"),
        ("drop", r"drop\s+(?:temporary\s+)?table\b"),
        ("rename", r"rename\s+table\b"),
        ("create_index", r"create\s+(?:(?:unique|fulltext|spatial)\s+)?index\b"),
        ("drop_index", r"drop\s+index\b"),
        ("alter", r"alter\s+(?:(?:online|offline|ignore)\s+)*table\b"),
    )
)


def action_of(sql: str) -> str:
    """Return the action that a statement begins with; ``truncate`` and ``other`` included.

    >>> action_of("/* nightly */ TRUNCATE TABLE `t`")
    'truncate'
    """
    head = sql[:4096]
    for action, pattern in _STATEMENTS:
        if pattern.match(head):
            return action
    return "other"


def truncate_statement(database: str | None, name: str | None) -> str:
    """Return a TRUNCATE for producers whose type does not say it."""
    parts = (part.replace("`", "``") for part in (database, name) if part)
    return "TRUNCATE TABLE " + ".".join(f"`{part}`" for part in parts)
