# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``shareplex-json`` (:mod:`changelane.formats.contract.lane`).

A plain message is a row change with the table, the columns and the documented keys of the lane, and
the usual spelling of its operation. The before image of an update has all columns of the row.
"""

import decimal
from collections.abc import Callable, Hashable
from typing import Any, Final, Literal

import msgspec

from changelane.event import Completeness, DataChange, Op
from changelane.formats.contract.lane import (
    NotPlainError,
    PlainChange,
    ReadChange,
    kinds_of,
    literal,
    plain_class,
)
from changelane.formats.contract.probed_lanes import ProbedLanes
from changelane.formats.contract.untyped_lanes import EventForm, UntypedLane
from changelane.formats.shareplex.decode import Reader, change_of, coordinates_of, details_of
from changelane.formats.shareplex.operations import OPERATIONS, Operation
from changelane.formats.shareplex.wire import KnownChange, KnownMeta, Row, TextRow
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
_UPDATED: Final = Operation.UPDATE


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
    decode = _decoder(table, TextRow if reader.text_only else Row)
    names, is_before = list(event_form.names or ()), event_form.before_check()
    lane_key = None if opened.key is None else list(opened.key.columns)
    is_partial = opened.op is _UPDATE and opened.after_holds is not _FULL
    before_holds, after_holds = reader.completeness(_UPDATE, {})
    _, holds_without_key = reader.completeness(_UPDATE, None)
    # `key` of an update has the columns of the key, or a before image
    has_key_columns = before_holds is _KEY
    is_bare_plain = lane_key is None and (holds_without_key is not _FULL) is is_partial
    is_keyed_plain = (after_holds is not _FULL) is is_partial
    if lane_key is not None and not is_before(dict.fromkeys(lane_key)):
        raise NotPlainError
    is_lane_key_first = lane_key is not None and lane_key == names[: len(lane_key)]
    (read_time, read_first_time), has_details = reader.times, event_form.has_details

    def read(value: bytes, _key: bytes | None) -> PlainChange | None:
        message = decode(value)
        meta, before, after = message.meta, message.key, message.data
        operation = _ROW_CHANGES[meta.op]
        if operation is _UPDATED:
            op = _UPDATE
            if not (is_bare_plain if before is None else is_keyed_plain):
                return None
            if before is None:
                is_first = True
            elif has_key_columns:
                if list(before) != lane_key:
                    return None
                is_first = is_lane_key_first
            else:
                if not is_before(before):
                    return None
                is_first = list(before) == names[: len(before)]
            # a row with all columns is the overlaid one, if its first columns are those of `key`
            if not is_first or list(after) != names:
                _, before, after = change_of(operation, message)
                if list(after or ()) != names:
                    return None
        else:
            op, before, after = change_of(operation, message)
            if is_partial or list((before if op is _DELETE else after) or ()) != names:
                return None
        details, position, transaction = None, None, None
        if has_details:
            details = details_of(meta, {})
        if (
            meta.scn is not None
            or meta.trans is not None
            or meta.seq is not None
            or meta.size is not None
            or meta.idx is not None
        ):
            position, transaction = coordinates_of(meta, {} if details is None else details)
        if has_details:
            time = None if meta.time is None else read_time(meta.time)
            process_time = None if meta.posttime is None else read_time(meta.posttime)
        else:
            time, process_time = read_first_time(meta.time, meta.posttime), None
        return (
            op._value_,
            before,
            after,
            position,
            transaction,
            None,
            time,
            process_time,
            bool(details),
        )

    return read


def _decoder(table: str | None, row: Any) -> Callable[[bytes], Any]:
    """Return the decoder of the plain messages of a table; an error = the message is not plain."""
    meta = kinds_of(KnownMeta)
    meta |= {"op": (Literal[tuple(_ROW_CHANGES)],), "table": literal(table)}
    message = kinds_of(KnownChange) | {"meta": (plain_class(meta),)}
    message |= {"data": (row,), "key": (row | None, None)}
    return msgspec.json.Decoder(plain_class(message), float_hook=decimal.Decimal).decode
