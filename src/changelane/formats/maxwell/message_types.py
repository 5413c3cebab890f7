# SPDX-License-Identifier: Apache-2.0
"""The values of ``type`` in messages."""

from collections.abc import Mapping
from typing import Final

from changelane.event import Op

OPERATIONS: Final[Mapping[str, Op]] = {
    "insert": Op.CREATE,
    "update": Op.UPDATE,
    "delete": Op.DELETE,
    "bootstrap-insert": Op.READ,
}
"""Types of messages about rows -> the operation."""

BOOTSTRAP_MARKS: Final = frozenset({"bootstrap-start", "bootstrap-complete"})

ACTIONS: Final[Mapping[str, str]] = {
    "table-create": "create",
    "table-alter": "alter",
    "table-drop": "drop",
    "database-create": "create_database",
    "database-alter": "other",
    "database-drop": "drop_database",
}
"""Types of messages about statements -> the action, if the statement does not determine it."""

DEAD_LETTER: Final = "dead_letter"
"""The type of the control event of a row that Maxwell could not publish."""
