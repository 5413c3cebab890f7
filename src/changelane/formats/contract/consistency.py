# SPDX-License-Identifier: Apache-2.0
"""Removes contradictory parts of events before they are encoded.

Examples are a delete with an after image, or a time after the year 9999, which readers of a
product's format refuse. Such a part is a loss; an event without its row cannot be encoded. Only
``native-json`` encodes every event as it is, so that quarantined events stay complete.
"""

from typing import Final

import msgspec

from changelane.errors import EncodeError
from changelane.event import ChangeEvent, DataChange, HalfUpdate, Op, Tombstone, Transaction
from changelane.formats.contract.capabilities import Carries
from changelane.formats.contract.losses import Loss

FIRST_NS: Final = -62_135_596_800 * 1_000_000_000
"""The beginning of the year 1."""
AFTER_LAST_NS: Final = 253_402_300_800 * 1_000_000_000
"""The beginning of the year 10000."""
_MAX_COUNT: Final = (1 << 63) - 1
_TIME: Final = "outside the years 1 to 9999; not written"
_COUNT: Final = "out of range; not written"
_COUNTS: Final = (("order", 1), ("table_order", 1), ("size", 0))
"""Counts of a transaction, with their least values."""

# module names, because a look-up in the enum class is slow
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE
_HALVES: Final = frozenset({Op.CREATE, Op.DELETE})


def _is_consistent(event: DataChange, carries: Carries) -> bool:
    """Return whether a change is consistent: the fast path of nearly all changes."""
    time, process_time, transaction = (
        event.source_time_ns,
        event.process_time_ns,
        event.transaction,
    )
    before, after = event.before, event.after
    if event.op is _DELETE:
        before, after = after, before  # a delete needs a before image, and has no other
    return (
        after is not None
        and (before is None or event.op is _UPDATE or carries.other_images)
        and (time is None or FIRST_NS <= time < AFTER_LAST_NS)
        and (process_time is None or FIRST_NS <= process_time < AFTER_LAST_NS)
        and (transaction is None or has_usual_counts(transaction))
    )


def has_usual_counts(transaction: Transaction) -> bool:
    """Return whether all counts of a transaction are in range, and it has no size."""
    order, table_order = transaction.order, transaction.table_order
    return (
        transaction.size is None
        and (order is None or 1 <= order <= _MAX_COUNT)
        and (table_order is None or 1 <= table_order <= _MAX_COUNT)
    )


def _check_row(event: DataChange, *, rowless_delete: bool) -> None:
    """Check that a change has its row.

    Raises:
        EncodeError: The row is missing.
    """
    if event.op is _DELETE:
        if event.before is None and not rowless_delete:
            raise EncodeError("a delete has no before image")
    elif event.after is None:
        raise EncodeError("a change other than a delete has no after image")


def consistent_event(event: ChangeEvent, carries: Carries) -> tuple[ChangeEvent, tuple[Loss, ...]]:
    """Return an event without its contradictory parts, and these parts as losses.

    Raises:
        EncodeError: The row of a change is missing, or a half update is no create or delete.
    """
    if isinstance(event, HalfUpdate):
        if event.change.op not in _HALVES:
            raise EncodeError("a half update is neither a create (c) nor a delete (d)")
        change, change_losses = consistent_event(event.change, carries)
        if isinstance(change, DataChange) and change is not event.change:
            event = msgspec.structs.replace(event, change=change)
        return event, change_losses
    if type(event) is DataChange and _is_consistent(event, carries):
        return event, ()
    changes: dict[str, object] = {}
    losses: list[Loss] = []
    if isinstance(event, DataChange):
        op = event.op
        _check_row(event, rowless_delete=carries.rowless_delete)
        if carries.other_images:
            pass
        elif op is _DELETE:
            if event.after is not None:
                changes["after"] = None
                losses.append(("after", "a delete has no after image; not written"))
        elif op is not _UPDATE and event.before is not None:
            changes["before"] = None
            losses.append(("before", "an insert has no before image; not written"))
    elif isinstance(event, Tombstone) and not event.key:
        for field in ("key", "schema"):
            if getattr(event, field) is not None:
                changes[field] = None
                losses.append((field, "the tombstone's key has no column; not written"))
    for field in ("source_time", "process_time"):
        time = getattr(event, f"{field}_ns", None)
        if time is not None and not FIRST_NS <= time < AFTER_LAST_NS:
            changes[f"{field}_ns"] = None
            losses.append((field, _TIME))
    transaction: Transaction | None = getattr(event, "transaction", None)
    if transaction is not None:
        cleared = {
            name: None
            for name, minimum in _COUNTS
            if (count := getattr(transaction, name)) is not None
            and not minimum <= count <= _MAX_COUNT
        }
        if cleared:
            changes["transaction"] = msgspec.structs.replace(transaction, **cleared)
            losses += [(f"transaction.{name}", _COUNT) for name in cleared]
    return (msgspec.structs.replace(event, **changes) if changes else event), tuple(losses)
