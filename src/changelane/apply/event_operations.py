# SPDX-License-Identifier: Apache-2.0
"""Change events as steps: what each does to the registers of which key."""

from collections.abc import Iterable, Mapping

import msgspec

from changelane.apply.keys import NoKeyError, key_bytes
from changelane.apply.operations import Departure, Step, TableTruncate, Upsert
from changelane.apply.row_state import EMPTY, NOTHING, Cell, KeyState, join
from changelane.errors import ApplyError, UnorderedError
from changelane.event import (
    ChangeEvent,
    Completeness,
    DataChange,
    HalfUpdate,
    Image,
    Op,
    Truncate,
    is_first_snapshot,
    transaction_id,
)
from changelane.position import ARRIVAL, DEPARTURE, Position, encode_order
from changelane.types import UNAVAILABLE, Value


def last_known(
    rows: Mapping[bytes, KeyState], told: Iterable[Step], keys: Iterable[bytes]
) -> dict[bytes, KeyState]:
    """Return what was last known of rows that are gone: for soft deletes.

    A row that is gone keeps each column's newest value, of all events since it was last there.

    Args:
        rows: The rows as they are stored: what is there, and what was last known of what is not.
        told: Steps of one batch.
        keys: The keys whose rows are gone after it.
    """
    gone = {key: rows.get(key, EMPTY) for key in keys}
    for step in told:
        match step:
            case Upsert(key=bytes() as key) if key in gone:
                cells = {c: Cell(step.order, value) for c, value in step.values.items()}
                said = KeyState(whole=step.order if step.whole else NOTHING, cells=cells)
                gone[key] = join(gone[key], said)
    return {
        key: KeyState(whole=state.whole, cells=state.cells)
        for key, state in gone.items()
        if state.upserted
    }


class MissingImageError(ApplyError):
    """A change without the image that its operation needs."""

    code = "missing_image"


def steps(
    event: ChangeEvent,
    *,
    keys: tuple[str, ...] | None = None,
    epoch: int = 0,
    fallback: Position | None = None,
) -> tuple[Step, ...]:
    """Return what an event does to its table; nothing for events that tell of no row.

    A change of the sink's key is a departure and an arrival at one position. The two halves of an
    update whose sink key stays are a plain update: the first says nothing, the second all. Halves
    that only a pair joins do not tell whether it stays: the first takes its row away, the second
    puts it back at the later phase of the same position, so that either may come first.

    Args:
        event: A canonical event.
        keys: The key columns of the sink; without, those that the event names.
        epoch: Raised when the source's history changes (docs/merge-rule.md, Orders).
        fallback: The position to take when the event has none: its place in the topic.

    Raises:
        ApplyError: The key's values or the needed image are not there; ``code`` says which.
        UnorderedError: There is no position.
    """
    match event:
        case DataChange():
            return _change(event, _Orders(event, epoch, fallback), keys)
        case HalfUpdate(change, None, str()):
            return _paired(change, _Orders(change, epoch, fallback), keys)
        case HalfUpdate(change, other_key):
            return _half(change, other_key, _Orders(change, epoch, fallback), keys)
        case Truncate():
            return (TableTruncate(_Orders(event, epoch, fallback).at(DEPARTURE)),)
        case _:
            return ()


class _Orders:
    """Encodes the order of one event at both phases."""

    __slots__ = ("_epoch", "_position", "_snapshot")

    def __init__(self, event: DataChange | Truncate, epoch: int, fallback: Position | None) -> None:
        position = fallback if event.position is None else event.position
        if position is None:
            raise UnorderedError("the event has no position, and nothing stands in for it")
        self._position: Position = position
        self._epoch = epoch
        self._snapshot = is_first_snapshot(event.source)

    def at(self, phase: int) -> bytes:
        return encode_order(self._position, epoch=self._epoch, snapshot=self._snapshot, phase=phase)


def _key(image: Image | None, columns: tuple[str, ...]) -> bytes | None:
    """Return the canonical key that an image holds; ``None`` when a part of it is not known."""
    if image is None:
        return None
    values = {name: image.get(name, UNAVAILABLE) for name in columns}
    if any(value is UNAVAILABLE for value in values.values()):
        return None
    return key_bytes(values)


def _columns(event: DataChange, keys: tuple[str, ...] | None) -> tuple[str, ...]:
    return keys or (() if event.key is None else event.key.columns)


def known(image: Image | None) -> Mapping[str, Value] | None:
    """Return the columns whose values an image holds."""
    if image is None:
        return None
    return {name: value for name, value in image.items() if value is not UNAVAILABLE}


def _change(event: DataChange, orders: _Orders, keys: tuple[str, ...] | None) -> tuple[Step, ...]:
    columns = _columns(event, keys)
    if event.op is Op.DELETE:
        return (_departure(event, orders, columns, None),)
    upsert = _upsert(event, orders, columns, None)
    if event.op is not Op.UPDATE or not columns:
        return (upsert,)
    old = _key(event.before, columns)
    if old is None or old == upsert.key:
        return (upsert,)
    before = known(event.before) or {}
    moved = msgspec.structs.replace(
        upsert, moved_from=old, values=_filled(event, upsert, before), before=before
    )
    left = Departure(
        key=old,
        order=orders.at(DEPARTURE),
        moved_to=upsert.key,
        before=before,
        transaction=upsert.transaction,
    )
    return (left, msgspec.structs.replace(moved, whole=_covers(event, moved.values)))


def _half(
    change: DataChange, other: Image | None, orders: _Orders, keys: tuple[str, ...] | None
) -> tuple[Step, ...]:
    columns = _columns(change, keys)
    moved = _key(other, columns) if columns else None
    if change.op is Op.DELETE:
        left = _departure(change, orders, columns, moved)
        return () if other is None or moved == left.key else (left,)
    upsert = _upsert(change, orders, columns, moved)
    if other is None or moved == upsert.key:
        return (msgspec.structs.replace(upsert, moved_from=None),)
    return (upsert,)


def _paired(change: DataChange, orders: _Orders, keys: tuple[str, ...] | None) -> tuple[Step, ...]:
    if change.op is Op.DELETE:
        return (_departure(change, orders, _columns(change, keys), None),)
    # the row after an update: a column that it does not name is not NULL
    update = msgspec.structs.replace(change, op=Op.UPDATE)
    return (_upsert(update, orders, _columns(change, keys), None),)


def _departure(
    event: DataChange, orders: _Orders, columns: tuple[str, ...], moved_to: bytes | None
) -> Departure:
    key = _key(event.before, columns) if columns else None
    if key is None:
        raise NoKeyError("a delete does not tell the key of its row")
    return Departure(
        key=key,
        order=orders.at(DEPARTURE),
        moved_to=moved_to,
        before=known(event.before),
        transaction=transaction_id(event),
    )


def _upsert(
    event: DataChange, orders: _Orders, columns: tuple[str, ...], moved_from: bytes | None
) -> Upsert:
    if event.after is None:
        raise MissingImageError("a change has no after image")
    values = dict(known(event.after) or {})
    if event.op is not Op.UPDATE and event.schema is not None:
        # What an insert or a snapshot row does not name is NULL (docs/merge-rule.md, Registers).
        for column in event.schema.columns:
            if column.name not in event.after:
                values[column.name] = None
    for name in columns:
        # A key column that an update does not repeat did not change.
        if name not in values and event.before is not None and name in event.before:
            value = event.before[name]
            if value is not UNAVAILABLE:
                values[name] = value
    key = _key(values, columns) if columns else None
    if columns and key is None:
        raise NoKeyError("a column of the key is not in the image")
    return Upsert(
        key=key,
        order=orders.at(ARRIVAL),
        values=values,
        whole=_covers(event, values),
        moved_from=moved_from,
        transaction=transaction_id(event),
        before=known(event.before),
        inserts=event.op is Op.CREATE,
    )


def _filled(event: DataChange, upsert: Upsert, before: Mapping[str, Value]) -> dict[str, Value]:
    """Return an arrival's values, with what it lacks from the row before.

    See docs/merge-rule.md, Key changes that lack columns.
    """
    assert event.after is not None  # noqa: S101 - an upsert was made of it
    lacking = {name: value for name, value in before.items() if name not in upsert.values}
    return {**upsert.values, **lacking}


def _covers(event: DataChange, values: Mapping[str, Value]) -> bool:
    if event.schema is not None:
        return event.schema.names <= values.keys()
    if event.after is None or any(
        value is UNAVAILABLE and name not in values for name, value in event.after.items()
    ):
        return False
    return event.op is not Op.UPDATE or event.after_holds is Completeness.FULL
