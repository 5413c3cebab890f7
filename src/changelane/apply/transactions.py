# SPDX-License-Identifier: Apache-2.0
"""Which changes are of one transaction, as far as their ids or their positions tell."""

from typing import Final

from changelane.apply.steps import Departure, Upsert
from changelane.position import LsnPosition, PostgresPosition, ScnPosition, domain_of

TRANSACTION_BYTES: Final = {
    PostgresPosition.code: 8,  # the last commit before the event
    ScnPosition.code: 16,  # the commit's SCN
    LsnPosition.code: 24,  # the commit's LSN
}
"""The leading bytes of a position that all changes of one transaction share, by domain."""
HEADER_BYTES: Final = 7
"""What stands before the position in an order."""


def transaction_of(order: bytes) -> bytes | None:
    """Return the part of an order that the changes of one transaction share, if it tells any."""
    length = TRANSACTION_BYTES.get(domain_of(order)) if order else None
    if length is None:
        return None
    part = order[: HEADER_BYTES + length]
    return part if any(part[HEADER_BYTES:]) else None


def same_transaction(one: Upsert, other: Departure) -> bool:
    """Say whether an arrival and a departure are of one transaction, as far as anything tells."""
    if one.transaction is not None and other.transaction is not None:
        return one.transaction == other.transaction
    place = transaction_of(one.order)
    return place is not None and place == transaction_of(other.order)
