# SPDX-License-Identifier: Apache-2.0
"""What every format but the native one leaves out of an event that says what cannot be.

``native-json`` keeps whatever is told, so that nothing is lost on the way to a quarantine. A
product's format has readers who refuse a delete with a row after it, or a time after the year 9999:
what is beside the point of an event is left out with a loss, and an event that lacks its point
cannot be written at all.
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
_MOST: Final = (1 << 63) - 1
_TIME: Final = "outside the years 1 to 9999; not written"
_COUNT: Final = "not such a count; not written"
_COUNTS: Final = (("order", 1), ("table_order", 1), ("size", 0))

# members by their own names, which saves a costly look-up in their class
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE
_HALVES: Final = frozenset({Op.CREATE, Op.DELETE})


def _is_sound(event: DataChange, carries: Carries) -> bool:
    """Say whether nothing is wrong with a change, as with nearly all: the short way."""
    time, process_time, transaction = (
        event.source_time_ns,
        event.process_time_ns,
        event.transaction,
    )
    before, after = event.before, event.after
    if event.op is _DELETE:
        before, after = after, before  # what it may not have, and what it needs
    return (
        after is not None
        and (before is None or event.op is _UPDATE or carries.other_images)
        and (time is None or FIRST_NS <= time < AFTER_LAST_NS)
        and (process_time is None or FIRST_NS <= process_time < AFTER_LAST_NS)
        and (
            transaction is None
            or (
                transaction.size is None
                and (transaction.order is None or 1 <= transaction.order <= _MOST)
                and (transaction.table_order is None or 1 <= transaction.table_order <= _MOST)
            )
        )
    )


def _check_row(event: DataChange, *, rowless_delete: bool) -> None:
    """Refuse a change without the row that it is about.

    Raises:
        EncodeError: It has none.
    """
    if event.op is _DELETE:
        if event.before is None and not rowless_delete:
            raise EncodeError("a delete without the row that went")
    elif event.after is None:
        raise EncodeError("an event without the row that it is about")


def sound(event: ChangeEvent, carries: Carries) -> tuple[ChangeEvent, tuple[Loss, ...]]:
    """Return an event without what cannot be, and what was left out.

    Raises:
        EncodeError: The row that a change is about is missing.
    """
    if isinstance(event, HalfUpdate):
        if event.change.op not in _HALVES:
            raise EncodeError("half an update is neither the row before nor the row after")
        change, lost = sound(event.change, carries)
        if isinstance(change, DataChange) and change is not event.change:
            event = msgspec.structs.replace(event, change=change)
        return event, lost
    if type(event) is DataChange and _is_sound(event, carries):
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
                losses.append(("after", "a delete has no row after; not written"))
        elif op is not _UPDATE and event.before is not None:
            changes["before"] = None
            losses.append(("before", "an insert has no row before; not written"))
    elif isinstance(event, Tombstone) and not event.key:
        for field in ("key", "schema"):
            if getattr(event, field) is not None:
                changes[field] = None
                losses.append((field, "a tombstone of no column; not written"))
    for field in ("source_time", "process_time"):
        time = getattr(event, f"{field}_ns", None)
        if time is not None and not FIRST_NS <= time < AFTER_LAST_NS:
            changes[f"{field}_ns"] = None
            losses.append((field, _TIME))
    transaction: Transaction | None = getattr(event, "transaction", None)
    if transaction is not None:
        wrong = {
            name: None
            for name, least in _COUNTS
            if (count := getattr(transaction, name)) is not None and not least <= count <= _MOST
        }
        if wrong:
            changes["transaction"] = msgspec.structs.replace(transaction, **wrong)
            losses += [(f"transaction.{name}", _COUNT) for name in wrong]
    return (msgspec.structs.replace(event, **changes) if changes else event), tuple(losses)
