# SPDX-License-Identifier: Apache-2.0
"""Recognises events that their producer sends again after a restart.

The second message has another offset. So an event is identified by its position in the source's
log and its content. If several row changes can have one position, its number in the transaction is
needed, too. Without that number, equal events at one position may be equal rows of one COPY, or
one row that was sent twice.
"""

from collections.abc import Container
from typing import Final

from changelane.event import Transaction
from changelane.position import Position, PositionScope

ONLY_CHANGE: Final = 0
"""The ordinal of the only event at a position; numbers in transactions start at 1."""


def ordinal_of(
    position: Position,
    transaction: Transaction | None,
    *,
    is_snapshot: bool,
    shared: Container[str] = (),
) -> int | None:
    """Return the number of an event among the changes at its position; ``None`` if unknown.

    Two events of equal position, content and ordinal are the same change.

    Args:
        position: The event's position.
        transaction: The event's position in its transaction.
        is_snapshot: The event is a row of a snapshot; all rows of a snapshot have one position.
        shared: Domains in which several changes of the event's format may have one position.
    """
    tag = str(position.__struct_config__.tag)
    if is_only_change(position.scope, tag, is_snapshot=is_snapshot, shared=shared):
        return ONLY_CHANGE
    return None if transaction is None else number_of(transaction)


def is_only_change(
    scope: PositionScope, domain: str, *, is_snapshot: bool, shared: Container[str]
) -> bool:
    """Return whether a position of a scope and a domain has one change; see :func:`ordinal_of`."""
    is_shared = is_snapshot or domain in shared
    return scope is PositionScope.EVENT or (scope is PositionScope.ROW and not is_shared)


def number_of(transaction: Transaction) -> int | None:
    """Return the number of a change in its transaction; ``None`` if it is unknown."""
    order = transaction.table_order if transaction.order is None else transaction.order
    return order if order is not None and order > ONLY_CHANGE else None
