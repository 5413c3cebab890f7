# SPDX-License-Identifier: Apache-2.0
"""How an event is known that its producer sends again, as it does after it was killed.

The message is another one then, with another offset. So an event is known by its place in the
source's log and its content, and where several changes of rows may have one place, by its number
in the transaction. Where nothing tells that number, equal events of one place may be equal rows of
one COPY as well as one row that was told twice.
"""

from collections.abc import Container
from typing import Final

from changelane.event import Transaction
from changelane.position import Names, Position

ALONE: Final = 0
"""The ordinal of an event whose position is its alone; numbers in transactions start at 1."""


def ordinal_of(
    position: Position,
    transaction: Transaction | None,
    *,
    is_snapshot: bool,
    shared: Container[str] = (),
) -> int | None:
    """Return which of the changes at its position an event is; ``None`` when nothing tells.

    Two events of equal position, content and ordinal are the same change.

    Args:
        position: The event's position.
        transaction: Its place in its transaction.
        is_snapshot: It is a row of a snapshot; these have the position of the snapshot.
        shared: Domains whose positions several changes may have in the event's format.
    """
    is_shared = is_snapshot or position.__struct_config__.tag in shared
    if position.names is Names.EVENT or (position.names is Names.ROW and not is_shared):
        return ALONE
    if transaction is None:
        return None
    order = transaction.table_order if transaction.order is None else transaction.order
    return order if order is not None and order > ALONE else None
