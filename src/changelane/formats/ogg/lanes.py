# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``ogg-json`` (:mod:`changelane.formats.contract.lane`).

A plain message is a row change of the operation model, with the table, the key and the columns of
the lane in each image, and without marks of missing columns. Its tokens are scalars.
"""

import decimal
from collections.abc import Hashable
from typing import Any, Final

import msgspec
from msgspec import UnsetType

from changelane.event import Completeness, DataChange, Op
from changelane.formats.contract.lane import NotPlainError, PlainChange, ReadChange
from changelane.formats.contract.probed_lanes import ProbedLanes
from changelane.formats.contract.untyped_lanes import EventForm, UntypedLane
from changelane.formats.ogg.decode import MISSING, Reader
from changelane.formats.ogg.options import Model, Order
from changelane.formats.ogg.wire import Operation
from changelane.message import Message

_FULL: Final = Completeness.FULL
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE
_MISSING: Final = MISSING.encode()


class _PlainOperation(Operation, forbid_unknown_fields=True, gc=False):
    """A plain message; the tokens are details, which limit nested values."""

    tokens: dict[str, str | int | bool | None] | None = None


class _Probe(msgspec.Struct, gc=False):
    """The part of a message that identifies its lane."""

    table: str
    op_type: str
    primary_keys: list[str] | None = None
    before: dict[str, msgspec.Raw] | UnsetType | None = None
    after: dict[str, msgspec.Raw] | UnsetType | None = None


_decode: Final = msgspec.json.Decoder(_PlainOperation, float_hook=decimal.Decimal).decode
_probe: Final = msgspec.json.Decoder(_Probe).decode


def lanes_of(reader: Reader) -> ProbedLanes:
    """Return the lanes of a codec."""

    def identity(value: bytes) -> Hashable:
        probe = _probe(value)
        names = tuple(probe.after or probe.before or ())
        is_update = reader.operations[probe.op_type] is _UPDATE
        return probe.table, tuple(probe.primary_keys or ()), is_update, names

    def open_lane(message: Message, change: DataChange) -> UntypedLane:
        if reader.options.model is Model.ROW:
            raise NotPlainError
        table = _probe(message.value or b"").table
        return UntypedLane(
            change,
            None,
            lambda event_form: _reader(reader, change, table, event_form),
            has_whole_before=reader.image_holds is _FULL,
        )

    return ProbedLanes(identity, open_lane)


def _reader(reader: Reader, opened: DataChange, table: str, event_form: EventForm) -> ReadChange:
    operations, names = reader.operations, event_form.names
    is_partial = opened.op is _UPDATE and opened.after_holds is not _FULL
    is_update_partial = reader.image_holds is not _FULL
    position_of, times_of = reader.position, reader.times
    has_positions = reader.options.order is not Order.OFFSET
    lane_key = None if opened.key is None else list(opened.key.columns)
    is_before = event_form.before_check()
    details_of = reader.details if event_form.has_details else None

    def read(value: bytes, _key: bytes | None) -> PlainChange | None:
        message: Any = _decode(value)
        op: Any = operations[message.op_type]
        if message.table != table or message.primary_keys != lane_key or _MISSING in value:
            return None
        if (op is _UPDATE and is_update_partial) is not is_partial:
            return None
        before, after = message.before or None, message.after or None
        row, other = (before, after) if op is _DELETE else (after, before)
        if row is None or tuple(row) != names:
            return None
        if other is not None and (op is not _UPDATE or not is_before(other)):
            return None
        position = position_of(message) if has_positions else None
        time = process_time = None
        if message.op_ts is not None or message.current_ts is not None:
            time, process_time = times_of(message)
        has_details = details_of is not None and bool(
            details_of(message, {}, position, time, process_time)
        )
        return op._value_, before, after, position, None, None, time, process_time, has_details

    return read
