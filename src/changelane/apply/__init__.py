# SPDX-License-Identifier: Apache-2.0
"""The merge rule: change events become rows by raising registers (docs/merge-rule.md).

Registers only grow, so order, duplicates, batches and replays do not change the result.
:func:`operations_of` returns the operations of an event, and :func:`resolve` applies them to
registers; both are pure.
"""

from changelane.apply.event_operations import (
    MissingImageError,
    known_values,
    last_known_states,
    operations_of,
)
from changelane.apply.keys import NoKeyError, canonical, key_bytes, key_values
from changelane.apply.merge.resolve import Resolution, affected_keys, resolve
from changelane.apply.operations import KeyDelete, RowOperation, TableTruncate, Upsert
from changelane.apply.rejection import AMBIGUOUS, TOO_LATE, UNORDERED, Rejection
from changelane.apply.row_state import (
    EMPTY_STATE,
    NO_ORDER,
    RULE,
    ColumnVersion,
    KeyState,
    Rule,
    base_order_of,
    compact,
    is_live,
    join,
    newest_order,
    pack_orders,
    row_of,
    sort_key,
    stored_state,
    unpack_orders,
)

__all__ = [
    "AMBIGUOUS",
    "EMPTY_STATE",
    "NO_ORDER",
    "RULE",
    "TOO_LATE",
    "UNORDERED",
    "ColumnVersion",
    "KeyDelete",
    "KeyState",
    "MissingImageError",
    "NoKeyError",
    "Rejection",
    "Resolution",
    "RowOperation",
    "Rule",
    "TableTruncate",
    "Upsert",
    "affected_keys",
    "base_order_of",
    "canonical",
    "compact",
    "is_live",
    "join",
    "key_bytes",
    "key_values",
    "known_values",
    "last_known_states",
    "newest_order",
    "operations_of",
    "pack_orders",
    "resolve",
    "row_of",
    "sort_key",
    "stored_state",
    "unpack_orders",
]
