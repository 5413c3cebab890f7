# SPDX-License-Identifier: Apache-2.0
"""Recognises an event that its producer sends again after a restart.

The second message has another offset. So an event is identified by its position in the source's
log and its content and, if several row changes can share a position, by its number in the
transaction. Without that number, equal events at one position may be equal rows of one COPY, or
one row that was sent twice.
"""

from collections.abc import Container
from typing import Final

from changelane.event import Transaction
from changelane.position import Position, PositionScope

ONLY_CHANGE: Final = 0
"""The ordinal of an event alone at its position; transaction numbers start at 1."""


def ordinal_of(
    position: Position,
    transaction: Transaction | None,
    *,
    is_snapshot: bool,
    shared: Container[str] = (),
) -> int | None:
    """Return the number of an event among the changes at its position; ``None`` if not known.

    Two events of equal position, content and ordinal are the same change.

    Args:
        position: The event's position.
        transaction: Its position in its transaction.
        is_snapshot: It is a row of a snapshot; all rows of a snapshot share one position.
        shared: Domains whose positions several changes may share in the event's format.
    """
    is_shared = is_snapshot or position.__struct_config__.tag in shared
    if position.scope is PositionScope.EVENT or (
        position.scope is PositionScope.ROW and not is_shared
    ):
        return ONLY_CHANGE
    if transaction is None:
        return None
    order = transaction.table_order if transaction.order is None else transaction.order
    return order if order is not None and order > ONLY_CHANGE else None
