# SPDX-License-Identifier: Apache-2.0
"""Whether two changes belong to one transaction, by their ids or their positions."""

from typing import Final

from changelane.apply.operations import KeyDelete, Upsert
from changelane.position import LsnPosition, MySqlPosition, PostgresPosition, ScnPosition, domain_of

TRANSACTION_BYTES: Final = {
    PostgresPosition.code: 8,  # the last commit before the event
    ScnPosition.code: 16,  # the commit's SCN
    LsnPosition.code: 24,  # the commit's LSN
}
"""The length of the position's prefix that is equal for all changes of a transaction, by domain."""
_EPOCH_END: Final = 6
IMMEDIATE_DOMAINS: Final = frozenset({PostgresPosition.code, MySqlPosition.code})
"""Domains in which a before image of the key only proves immediate constraints.

PostgreSQL accepts no deferrable key as a replica identity; MySQL checks each row.
"""
HEADER_BYTES: Final = 7
"""The length of an order before the position."""


def transaction_of(order: bytes) -> bytes | None:
    """Return the prefix of an order that is equal for all changes of a transaction, if any."""
    length = TRANSACTION_BYTES.get(domain_of(order)) if order else None
    if length is None:
        return None
    part = order[: HEADER_BYTES + length]
    return part if any(part[HEADER_BYTES:]) else None


def name_of_transaction(operation: Upsert | KeyDelete) -> bytes | None:
    """Return the name of an operation's transaction: its id, or else a part of its position.

    The name contains the epoch, because a source may use its ids again in another epoch.
    """
    if operation.transaction:
        identity = operation.transaction.encode("utf-8", "surrogatepass")
        return operation.order[:_EPOCH_END] + b"#" + identity
    return transaction_of(operation.order)


def is_one_transaction(upsert: Upsert, key_delete: KeyDelete) -> bool:
    """Whether an upsert and a delete are known to belong to one transaction."""
    if upsert.transaction is not None and key_delete.transaction is not None:
        return upsert.transaction == key_delete.transaction
    shared_part = transaction_of(upsert.order)
    return shared_part is not None and shared_part == transaction_of(key_delete.order)
