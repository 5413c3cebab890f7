# SPDX-License-Identifier: Apache-2.0
"""The values of ``op``: codes in messages, and names in the documentation."""

from enum import StrEnum
from typing import Final


class Operation(StrEnum):
    """The operation of a message; its value is the written form."""

    INSERT = "ins"
    UPDATE = "upd"
    DELETE = "del"
    TRUNCATE = "truncate"
    DROP_COLUMN = "drop column"
    DDL = "ddl"
    BEFORE = "update before"
    AFTER = "update after"


# The codes of row changes are those of captured messages. The other operations are documented by
# name only; their short spellings are those that other readers accept.
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
"""Spelling in lower case, with single spaces between words -> operation."""

_MAX_LENGTH: Final = 64


def operation_of(text: str) -> Operation | None:
    """Return the operation of a spelling, in any case, with spaces or underscores.

    >>> operation_of("UPDATE_BEFORE") is operation_of("Update Before") is Operation.BEFORE
    True
    """
    operation = OPERATIONS.get(text)
    if operation is None and len(text) <= _MAX_LENGTH:
        operation = OPERATIONS.get(" ".join(text.lower().replace("_", " ").split()))
    return operation
