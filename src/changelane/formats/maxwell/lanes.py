# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``maxwell-json`` (:mod:`changelane.formats.contract.lane`).

A plain message is a row change with the table, the columns, the key and the fields of the lane. The
before image of an update has all columns of the row.
"""

import decimal
from collections.abc import Hashable
from typing import Any, Final

import msgspec

from changelane.event import Completeness, DataChange, Op
from changelane.formats.contract.lane import PlainChange, ReadChange
from changelane.formats.contract.probed_lanes import ProbedLanes
from changelane.formats.contract.untyped_lanes import EventForm, UntypedLane
from changelane.formats.maxwell.decode import (
    Reader,
    details_of,
    push_time_ns,
    time_ns,
    transaction_of,
)
from changelane.formats.maxwell.message_key import has_start
from changelane.formats.maxwell.message_types import OPERATIONS
from changelane.formats.maxwell.wire import RowMap
from changelane.message import Message

_FULL: Final = Completeness.FULL
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE


class _PlainRow(RowMap, forbid_unknown_fields=True, gc=False):
    """A plain message; the values of the key are details, which limit nested values."""

    push_ts: msgspec.Raw = msgspec.Raw()
    primary_key: list[int | str | None] | None = None
    encrypted: None = None
    reason: None = None


class _Probe(msgspec.Struct, gc=False):
    """The part of a message that identifies its lane."""

    database: str
    table: str
    type: str
    data: dict[str, msgspec.Raw]


_decode: Final = msgspec.json.Decoder(_PlainRow, float_hook=decimal.Decimal).decode
_FIRST_TIME: Final = 10**15
_number: Final = msgspec.json.Decoder(float_hook=decimal.Decimal).decode
_probe: Final = msgspec.json.Decoder(_Probe).decode


def lanes_of(reader: Reader) -> ProbedLanes:
    """Return the lanes of a codec."""

    def identity(value: bytes) -> Hashable:
        probe = _probe(value)
        is_update = OPERATIONS[probe.type] is _UPDATE
        return probe.database, probe.table, is_update, tuple(probe.data)

    def open_lane(message: Message, change: DataChange) -> UntypedLane:
        return UntypedLane(
            change,
            None,
            lambda event_form: _reader(reader, message, change, event_form),
            has_whole_before=not reader.is_old_partial,
        )

    return ProbedLanes(identity, open_lane)


def _reader(
    reader: Reader, first: Message, opened: DataChange, event_form: EventForm
) -> ReadChange:
    database, table = opened.table.database or "", opened.table.name or ""
    lane_key = opened.key
    is_update_partial = reader.updated_holds is not _FULL
    is_partial = opened.op is _UPDATE and opened.after_holds is not _FULL
    key_of, images_of, position_of = reader.key, reader.images, reader.position
    is_before, has_whole_before = event_form.before_check(), not reader.is_old_partial
    names, has_details = event_form.names, event_form.has_details
    column_count = len(event_form.columns)
    first_wire: Any = _decode(first.value or b"")
    key_start = key_columns = None
    if tuple(first_wire.data) == names:
        key_columns = first_wire.primary_key_columns
        if key_columns is None:
            key_start = reader.key_start(first.key, database, table)

    def read(value: bytes, message_key: bytes | None) -> PlainChange | None:
        wire: Any = _decode(value)
        if wire.database != database or wire.table != table:
            return None
        op, data, old = OPERATIONS[wire.type], wire.data, wire.old
        has_names, columns = tuple(data) == names, wire.primary_key_columns
        # the key follows from the names of the columns, and from those in the message
        if not has_names or (
            columns != key_columns
            if columns is not None
            else key_start is None or message_key is None or not has_start(message_key, key_start)
        ):
            key = key_of(wire, database, table, data, message_key)
            if key is not lane_key and key != lane_key:
                return None
        if op is _UPDATE and has_names and has_whole_before:
            before, after = {**data, **old} if old else data.copy(), data
            if is_partial is not is_update_partial or len(before) != column_count:
                return None
        else:
            before, after, _, after_holds = images_of(op, data, old, lane_key)
            if (op is _UPDATE and after_holds is not _FULL) is not is_partial:
                return None
            if tuple((before if op is _DELETE else after) or ()) != names:
                return None
            if op is _UPDATE and before is not None and not is_before(before):
                return None
        position = None if wire.position is None else position_of(wire)
        return (
            op._value_,
            before,
            after,
            position,
            None if wire.xid is None else transaction_of(wire),
            None,
            time_ns(wire.ts),
            _push_time(bytes(wire.push_ts)),
            has_details and bool(details_of(wire, {}, has_position=position is not None)),
        )

    return read


def _push_time(text: bytes) -> int | None:
    """Return ``push_ts`` in nanoseconds, from its JSON."""
    whole, _, fraction = text.partition(b".")
    digits = whole + fraction
    is_usual = len(fraction) == 6 and len(whole) == 10 and digits.isdigit()
    # a greater number has no zero at its start, which JSON does not allow
    if is_usual and (time := int(digits)) >= _FIRST_TIME:
        return time * 1000
    return push_time_ns(_number(text)) if text else None
