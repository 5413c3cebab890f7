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
from changelane.formats.maxwell.message_types import OPERATIONS
from changelane.formats.maxwell.wire import RowMap
from changelane.message import Message

_FULL: Final = Completeness.FULL
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE


class _PlainRow(RowMap, forbid_unknown_fields=True, gc=False):
    """A plain message; the values of the key are details, which limit nested values."""

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
_probe: Final = msgspec.json.Decoder(_Probe).decode


def lanes_of(reader: Reader) -> ProbedLanes:
    """Return the lanes of a codec."""

    def identity(value: bytes) -> Hashable:
        probe = _probe(value)
        is_update = OPERATIONS[probe.type] is _UPDATE
        return probe.database, probe.table, is_update, tuple(probe.data)

    def open_lane(_message: Message, change: DataChange) -> UntypedLane:
        return UntypedLane(
            change,
            None,
            lambda event_form: _reader(reader, change, event_form),
            has_whole_before=not reader.is_old_partial,
        )

    return ProbedLanes(identity, open_lane)


def _reader(reader: Reader, opened: DataChange, event_form: EventForm) -> ReadChange:
    database, table = opened.table.database or "", opened.table.name or ""
    lane_key = opened.key
    is_partial = opened.op is _UPDATE and opened.after_holds is not _FULL
    key_of, images_of, position_of = reader.key, reader.images, reader.position
    is_before = event_form.before_check()
    names, has_details = event_form.names, event_form.has_details

    def read(value: bytes, message_key: bytes | None) -> PlainChange | None:
        wire: Any = _decode(value)
        if wire.database != database or wire.table != table:
            return None
        op, data = OPERATIONS[wire.type], wire.data
        key = key_of(wire, database, table, data, message_key)
        if key is not lane_key and key != lane_key:
            return None
        before, after, _, after_holds = images_of(op, data, wire.old, key)
        if (op is _UPDATE and after_holds is not _FULL) is not is_partial:
            return None
        if tuple((before if op is _DELETE else after) or ()) != names:
            return None
        if op is _UPDATE and before is not None and not is_before(before):
            return None
        position = position_of(wire)
        return (
            op._value_,
            before,
            after,
            position,
            transaction_of(wire),
            None,
            time_ns(wire.ts),
            push_time_ns(wire.push_ts),
            has_details and bool(details_of(wire, {}, has_position=position is not None)),
        )

    return read
