# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``shareplex-json`` (:mod:`changelane.formats.contract.lane`).

A plain message is a row change with the table, the columns and the documented keys of the lane, and
the usual spelling of its operation. The before image of an update has all columns of the row.
"""

from collections.abc import Hashable
from typing import Any, Final

import msgspec

from changelane.event import Completeness, DataChange, Op
from changelane.formats.contract.json import decoder
from changelane.formats.contract.lane import PlainChange, ReadChange
from changelane.formats.contract.probed_lanes import ProbedLanes
from changelane.formats.contract.untyped_lanes import EventForm, UntypedLane
from changelane.formats.shareplex.decode import Coordinates, Reader, change_of
from changelane.formats.shareplex.operations import OPERATIONS, Operation
from changelane.formats.shareplex.wire import KnownChange, KnownTextChange
from changelane.message import Message

_ROW_CHANGES: Final = {
    spelling: operation
    for spelling, operation in OPERATIONS.items()
    if operation in {Operation.INSERT, Operation.UPDATE, Operation.DELETE}
}
_FULL: Final = Completeness.FULL
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE
_KEY: Final = Completeness.KEY


class _Meta(msgspec.Struct, gc=False):
    op: str
    table: str | None = None


class _Probe(msgspec.Struct, gc=False):
    """The part of a message that identifies its lane."""

    meta: _Meta
    data: dict[str, msgspec.Raw]
    key: dict[str, msgspec.Raw] | None = None


_probe: Final = msgspec.json.Decoder(_Probe).decode


def lanes_of(reader: Reader) -> ProbedLanes:
    """Return the lanes of a codec."""

    def identity(value: bytes) -> Hashable:
        probe = _probe(value)
        names = tuple({**(probe.key or {}), **probe.data})
        key = None if probe.key is None else tuple(probe.key)
        return probe.meta.table, _ROW_CHANGES.get(probe.meta.op), key, names

    def open_lane(message: Message, change: DataChange) -> UntypedLane:
        table = msgspec.json.decode(message.value or b"", type=_Probe).meta.table
        return UntypedLane(
            change,
            None,
            lambda event_form: _reader(reader, change, table, event_form),
            has_whole_before=reader.completeness(_UPDATE, {})[0] is _FULL,
        )

    return ProbedLanes(identity, open_lane)


def _reader(
    reader: Reader, opened: DataChange, table: str | None, event_form: EventForm
) -> ReadChange:
    decode: Any = decoder(KnownTextChange if reader.text_only else KnownChange).decode
    is_partial = opened.op is _UPDATE and opened.after_holds is not _FULL
    lane_key = None if opened.key is None else opened.key.columns
    is_before = event_form.before_check()
    completeness, time_of, names = reader.completeness, reader.time, event_form.names

    def read(value: bytes, _key: bytes | None) -> PlainChange | None:
        message = decode(value)
        meta = message.meta
        op, (before, after) = change_of(_ROW_CHANGES[meta.op], message)
        if meta.table != table:
            return None
        if op is _UPDATE:
            before_holds, after_holds = completeness(op, before)
            if (after_holds is not _FULL) is not is_partial:
                return None
            key_names = tuple(before) if before is not None and before_holds is _KEY else None
            if key_names != lane_key or (before is not None and not is_before(before)):
                return None
        elif is_partial:
            return None
        if tuple((before if op is _DELETE else after) or ()) != names:
            return None
        coordinates = Coordinates(meta, {})
        return (
            op._value_,
            before,
            after,
            coordinates.position,
            coordinates.transaction,
            None,
            time_of(meta.time, "time"),
            time_of(meta.posttime, "posttime"),
            bool(coordinates.details),
        )

    return read
