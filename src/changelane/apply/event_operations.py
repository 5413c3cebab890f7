# SPDX-License-Identifier: Apache-2.0
"""Converts change events to row operations, which raise the registers of keys."""

from collections.abc import Iterable, Mapping

import msgspec

from changelane.apply.keys import NoKeyError, key_bytes
from changelane.apply.operations import KeyDelete, RowOperation, TableTruncate, Upsert
from changelane.apply.row_state import EMPTY_STATE, NO_ORDER, ColumnVersion, KeyState, join
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
    lists_changed_only,
    transaction_id,
)
from changelane.position import DELETE_PHASE, UPSERT_PHASE, Position, encode_order
from changelane.reason_codes import ReasonCode
from changelane.types import UNAVAILABLE, Value


def last_known_states(
    rows: Mapping[bytes, KeyState], operations: Iterable[RowOperation], keys: Iterable[bytes]
) -> dict[bytes, KeyState]:
    """Return the last known values of deleted rows, for soft deletes.

    The value of a column is that of the newest event since the row last existed.

    Args:
        rows: The stored rows; for a deleted row, its last known values.
        operations: The operations of one batch.
        keys: The keys of the rows that are deleted after the batch.
    """
    deleted_states = {key: rows.get(key, EMPTY_STATE) for key in keys}
    for operation in operations:
        match operation:
            case Upsert(key=bytes() as key) if key in deleted_states:
                cells = {
                    c: ColumnVersion(operation.order, value)
                    for c, value in operation.values.items()
                }
                update_state = KeyState(
                    full_row_order=operation.order if operation.is_full_row else NO_ORDER,
                    cells=cells,
                )
                deleted_states[key] = join(deleted_states[key], update_state)
    return {
        key: KeyState(full_row_order=state.full_row_order, cells=state.cells)
        for key, state in deleted_states.items()
        if state.upserted
    }


class MissingImageError(ApplyError):
    """A change without the image that its operation requires."""

    code = ReasonCode.MISSING_IMAGE


def operations_of(
    event: ChangeEvent,
    *,
    keys: tuple[str, ...] | None = None,
    epoch: int = 0,
    fallback: Position | None = None,
) -> tuple[RowOperation, ...]:
    """Return the operations of an event on its table; none for events without a row.

    A change of the sink's key is a delete of the old key and an upsert of the new key, at one
    position. Two halves of an update that keeps the sink's key are a plain update: the first half
    has no operation. Two halves with a pair id do not contain the other key: the first half is a
    delete, the second an upsert at the later phase of the same position. So the halves may arrive
    in any order.

    Args:
        event: A canonical event.
        keys: The key columns of the sink; the default is the key of the event.
        epoch: The number of the source's history (docs/merge-rule.md, Orders).
        fallback: The position for an event without one: its offset in the topic.

    Raises:
        NoKeyError: A value of the key is missing.
        MissingImageError: The required image is missing.
        UnorderedError: There is no position.
    """
    match event:
        case DataChange():
            return _change_operations(event, _Orders(event, epoch, fallback), keys)
        case HalfUpdate(change, None, str()):
            return _paired_half_operations(change, _Orders(change, epoch, fallback), keys)
        case HalfUpdate(change, other_key):
            return _half_operations(change, other_key, _Orders(change, epoch, fallback), keys)
        case Truncate():
            return (TableTruncate(_Orders(event, epoch, fallback).at(DELETE_PHASE)),)
        case _:
            return ()


class _Orders:
    """Encodes the order of one event at both phases."""

    __slots__ = ("_epoch", "_position", "_snapshot")

    def __init__(self, event: DataChange | Truncate, epoch: int, fallback: Position | None) -> None:
        position = fallback if event.position is None else event.position
        if position is None:
            raise UnorderedError("the event has no position, and its message has no offset")
        self._position: Position = position
        self._epoch = epoch
        self._snapshot = is_first_snapshot(event.source)

    def at(self, phase: int) -> bytes:
        return encode_order(self._position, epoch=self._epoch, snapshot=self._snapshot, phase=phase)


def _key_of(image: Image | None, columns: tuple[str, ...]) -> bytes | None:
    """Return the canonical key in an image; ``None`` if a part of it is unknown."""
    if image is None:
        return None
    values = {name: image.get(name, UNAVAILABLE) for name in columns}
    if any(value is UNAVAILABLE for value in values.values()):
        return None
    return key_bytes(values)


def _key_columns(event: DataChange, keys: tuple[str, ...] | None) -> tuple[str, ...]:
    return keys or (() if event.key is None else event.key.columns)


def known_values(image: Image | None) -> Mapping[str, Value] | None:
    """Return the columns of an image with known values."""
    if image is None:
        return None
    return {name: value for name, value in image.items() if value is not UNAVAILABLE}


def _change_operations(
    event: DataChange, orders: _Orders, keys: tuple[str, ...] | None
) -> tuple[RowOperation, ...]:
    columns = _key_columns(event, keys)
    if event.op is Op.DELETE:
        return (_key_delete(event, orders, columns, None),)
    upsert = _upsert(event, orders, columns, None)
    if event.op is not Op.UPDATE or not columns:
        return (upsert,)
    old = _key_of(event.before, columns)
    if old is None or old == upsert.key:
        return (upsert,)
    before = known_values(event.before) or {}
    moved_upsert = msgspec.structs.replace(
        upsert, moved_from=old, values=_completed_values(event, upsert, before), before=before
    )
    key_delete = KeyDelete(
        key=old,
        order=orders.at(DELETE_PHASE),
        moved_to=upsert.key,
        before=before,
        transaction=upsert.transaction,
    )
    return (
        key_delete,
        msgspec.structs.replace(moved_upsert, is_full_row=_is_full_row(event, moved_upsert.values)),
    )


def _half_operations(
    change: DataChange, image: Image | None, orders: _Orders, keys: tuple[str, ...] | None
) -> tuple[RowOperation, ...]:
    columns = _key_columns(change, keys)
    other_key = _key_of(image, columns) if columns else None
    if change.op is Op.DELETE:
        key_delete = _key_delete(change, orders, columns, other_key)
        return () if image is None or other_key == key_delete.key else (key_delete,)
    upsert = _upsert(change, orders, columns, other_key)
    if image is None or other_key == upsert.key:
        return (msgspec.structs.replace(upsert, moved_from=None),)
    return (upsert,)


def _paired_half_operations(
    change: DataChange, orders: _Orders, keys: tuple[str, ...] | None
) -> tuple[RowOperation, ...]:
    if change.op is Op.DELETE:
        return (_key_delete(change, orders, _key_columns(change, keys), None),)
    # as an update: a column that the half does not contain is not NULL
    update = msgspec.structs.replace(change, op=Op.UPDATE)
    return (_upsert(update, orders, _key_columns(change, keys), None),)


def _key_delete(
    event: DataChange, orders: _Orders, columns: tuple[str, ...], moved_to: bytes | None
) -> KeyDelete:
    key = _key_of(event.before, columns) if columns else None
    if key is None:
        raise NoKeyError("the delete does not contain the key of its row")
    return KeyDelete(
        key=key,
        order=orders.at(DELETE_PHASE),
        moved_to=moved_to,
        before=known_values(event.before),
        transaction=transaction_id(event),
    )


def _upsert(
    event: DataChange, orders: _Orders, columns: tuple[str, ...], moved_from: bytes | None
) -> Upsert:
    if event.after is None:
        raise MissingImageError("the change has no after image")
    values = dict(known_values(event.after) or {})
    if event.op is not Op.UPDATE and event.schema is not None:
        # A column missing in an insert or a snapshot row is NULL (docs/merge-rule.md, Registers).
        for column in event.schema.columns:
            if column.name not in event.after:
                values[column.name] = None
    for name in columns:
        # A key column that an update does not repeat did not change.
        if name not in values and event.before is not None and name in event.before:
            value = event.before[name]
            if value is not UNAVAILABLE:
                values[name] = value
    key = _key_of(values, columns) if columns else None
    if columns and key is None:
        raise NoKeyError("the image does not contain all columns of the key")
    return Upsert(
        key=key,
        order=orders.at(UPSERT_PHASE),
        values=values,
        is_full_row=_is_full_row(event, values),
        moved_from=moved_from,
        transaction=transaction_id(event),
        before=known_values(event.before),
        inserts=event.op is Op.CREATE,
    )


def _completed_values(
    event: DataChange, upsert: Upsert, before: Mapping[str, Value]
) -> dict[str, Value]:
    """Return the values of a key insert, completed from the before image.

    See docs/merge-rule.md, Key changes that lack columns.
    """
    assert event.after is not None  # noqa: S101 - the event has an upsert
    lacking = {name: value for name, value in before.items() if name not in upsert.values}
    return {**upsert.values, **lacking}


def _is_full_row(event: DataChange, values: Mapping[str, Value]) -> bool:
    if event.schema is not None:
        return not lists_changed_only(event) and event.schema.names <= values.keys()
    if event.after is None or any(
        value is UNAVAILABLE and name not in values for name, value in event.after.items()
    ):
        return False
    return event.op is not Op.UPDATE or event.after_holds is Completeness.FULL
