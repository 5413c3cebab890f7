# SPDX-License-Identifier: Apache-2.0
"""What stands under ``op``: the codes of messages and the names of the documents."""

from enum import StrEnum
from typing import Final


class Operation(StrEnum):
    """What a message tells; the value is how we write it."""

    INSERT = "ins"
    UPDATE = "upd"
    DELETE = "del"
    TRUNCATE = "truncate"
    DROP_COLUMN = "drop column"
    DDL = "ddl"
    BEFORE = "update before"
    AFTER = "update after"


# The codes of rows are seen in messages; of the others only the names are documented, and the
# short spellings are those that readers in the field accept.
_SPELLINGS: Final[dict[Operation, tuple[str, ...]]] = {
    Operation.INSERT: ("ins", "insert", "i"),
    Operation.UPDATE: ("upd", "update", "u"),
    Operation.DELETE: ("del", "delete", "d"),
    Operation.TRUNCATE: ("truncate", "trunc", "trc"),
    Operation.DROP_COLUMN: ("drop column",),
    Operation.DDL: ("ddl", "alter"),
    Operation.BEFORE: ("update before", "upd before", "ub", "bef"),
    Operation.AFTER: ("update after", "upd after", "ua", "aft"),
}

OPERATIONS: Final[dict[str, Operation]] = {
    spelling: operation for operation, spellings in _SPELLINGS.items() for spelling in spellings
}
"""Spelling in lower case, words apart by one space -> operation."""

_MOST_SPELLED: Final = 64


def operation_of(text: str) -> Operation | None:
    """Return the operation of a spelling; case does not matter, nor a space or an underscore.

    >>> operation_of("UPDATE_BEFORE") is operation_of("Update Before") is Operation.BEFORE
    True
    """
    operation = OPERATIONS.get(text)
    if operation is None and len(text) <= _MOST_SPELLED:
        operation = OPERATIONS.get(" ".join(text.lower().replace("_", " ").split()))
    return operation
