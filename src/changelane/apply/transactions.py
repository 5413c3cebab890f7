# SPDX-License-Identifier: Apache-2.0
"""Which changes are of one transaction, as far as their ids or their positions tell."""

from typing import Final

from changelane.apply.operations import Departure, Upsert
from changelane.position import LsnPosition, MySqlPosition, PostgresPosition, ScnPosition, domain_of

TRANSACTION_BYTES: Final = {
    PostgresPosition.code: 8,  # the last commit before the event
    ScnPosition.code: 16,  # the commit's SCN
    LsnPosition.code: 24,  # the commit's LSN
}
"""The leading bytes of a position that all changes of one transaction share, by domain."""
_EPOCH_END: Final = 6
IMMEDIATE: Final = frozenset({PostgresPosition.code, MySqlPosition.code})
"""Domains where a before image of nothing but the key comes of immediate constraints.

PostgreSQL takes no deferrable key as a replica identity; MySQL checks each row.
"""
HEADER_BYTES: Final = 7
"""What stands before the position in an order."""


def transaction_of(order: bytes) -> bytes | None:
    """Return the part of an order that the changes of one transaction share, if it tells any."""
    length = TRANSACTION_BYTES.get(domain_of(order)) if order else None
    if length is None:
        return None
    part = order[: HEADER_BYTES + length]
    return part if any(part[HEADER_BYTES:]) else None


def name_of(step: Upsert | Departure) -> bytes | None:
    """Return what names the transaction of a step: its id, or else a part of its position.

    The ids of two epochs do not meet: a source may count from the beginning again.
    """
    if step.transaction:
        identity = step.transaction.encode("utf-8", "surrogatepass")
        return step.order[:_EPOCH_END] + b"#" + identity
    return transaction_of(step.order)


def same_transaction(one: Upsert, other: Departure) -> bool:
    """Say whether an arrival and a departure are of one transaction, as far as anything tells."""
    if one.transaction is not None and other.transaction is not None:
        return one.transaction == other.transaction
    place = transaction_of(one.order)
    return place is not None and place == transaction_of(other.order)
