# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``maxwell-json`` (:mod:`changelane.formats.contract.lane`).

A plain message is a row change with the table, the columns, the key and the fields of the lane. The
before image of an update has all columns of the row.
"""

import decimal
from collections.abc import Callable, Hashable
from typing import Annotated, Any, Final, Literal

import msgspec

from changelane.event import Completeness, DataChange, Op
from changelane.formats.contract.lane import (
    PlainChange,
    ReadChange,
    kinds_of,
    literal,
    plain_class,
)
from changelane.formats.contract.probed_lanes import ProbedLanes
from changelane.formats.contract.untyped_lanes import EventForm, UntypedLane
from changelane.formats.maxwell.decode import (
    MILLISECONDS_FROM,
    SECOND,
    Reader,
    details_of,
    push_time_ns,
    transaction_of,
)
from changelane.formats.maxwell.message_key import NAME_START
from changelane.formats.maxwell.message_types import OPERATIONS
from changelane.formats.maxwell.wire import Row, RowMap
from changelane.message import Message

_FULL: Final = Completeness.FULL
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE


class _Probe(msgspec.Struct, gc=False):
    """The part of a message that identifies its lane."""

    database: str
    table: str
    type: str
    data: dict[str, msgspec.Raw]


_Seconds = Annotated[int, msgspec.Meta(ge=0, lt=MILLISECONDS_FROM)]
_POINT: Final = ord(".")
_UNITS: Final = [10 ** (20 - size) if 12 <= size <= 20 else 0 for size in range(21)]
"""The nanoseconds of the last digit of ``push_ts``, by the size of its text."""
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
    is_partial = opened.op is _UPDATE and opened.after_holds is not _FULL
    has_plain_updates = (
        not reader.is_old_partial and (reader.updated_holds is not _FULL) is is_partial
    )
    key_of, images_of, position_of = reader.key, reader.images, reader.position
    is_before = event_form.before_check()
    names, has_details = list(event_form.names or ()), event_form.has_details
    push_time_of = _push_time if has_details else _check_push_time
    column_count = len(event_form.columns)
    decode = _decoder(database, table)
    first_wire = decode(first.value or b"")
    key_start = key_columns = None
    if list(first_wire.data) == names:
        key_columns = first_wire.primary_key_columns
        if key_columns is None:
            key_start = reader.key_start(first.key, database, table)
    key_size = len(key_start or b"")

    def read(value: bytes, message_key: bytes | None) -> PlainChange | None:
        wire = decode(value)
        op, data, old = OPERATIONS[wire.type], wire.data, wire.old
        has_names, columns = list(data) == names, wire.primary_key_columns
        # the key follows from the names of the columns, and from those in the message
        if not has_names or (
            columns != key_columns
            if columns is not None
            else key_start is None
            or message_key is None
            # as has_start, without a call
            or not message_key.startswith(key_start)
            or message_key.find(NAME_START, key_size) >= 0
        ):
            key = key_of(wire, database, table, data, message_key)
            if key is not lane_key and key != lane_key:
                return None
        if op is _UPDATE and has_names and has_plain_updates:
            before, after = data.copy(), data
            if old:
                before |= old
                if len(before) != column_count:
                    return None
        else:
            before, after, _, after_holds = images_of(op, data, old, lane_key)
            if (op is _UPDATE and after_holds is not _FULL) is not is_partial:
                return None
            if list((before if op is _DELETE else after) or ()) != names:
                return None
            if op is _UPDATE and before is not None and not is_before(before):
                return None
        position = None if wire.position is None else position_of(wire)
        transaction, xid = None, wire.xid
        if xid is not None and (has_details or wire.xoffset is not None):
            transaction, xid = transaction_of(wire), None
        return (
            op._value_,
            before,
            after,
            position,
            transaction,
            xid,
            None if wire.ts is None else wire.ts * SECOND,
            push_time_of(bytes(wire.push_ts)),
            has_details and bool(details_of(wire, {}, has_position=position is not None)),
        )

    return read


def _decoder(database: str, table: str) -> Callable[[bytes], Any]:
    """Return the decoder of the plain messages of a table; an error = the message is not plain."""
    kinds = kinds_of(RowMap) | {
        "database": literal(database),
        "table": literal(table),
        "type": (Literal[tuple(OPERATIONS)],),
        "ts": (_Seconds | None, None),
        "push_ts": (msgspec.Raw, msgspec.Raw()),
        # the values of the key are details, which limit nested values
        "primary_key": (list[int | str | None] | None, None),
        "data": (Row,),
        "encrypted": (None, None),
        "reason": (None, None),
    }
    return msgspec.json.Decoder(plain_class(kinds), float_hook=decimal.Decimal).decode


def _push_time(text: bytes) -> int | None:
    """Return ``push_ts`` in nanoseconds, from its JSON."""
    size = len(text)
    # a number of seconds with ten digits and a fraction of at most nine
    if 12 <= size <= 20 and text[10] == _POINT and (digits := text.replace(b".", b"")).isdigit():
        return int(digits) * _UNITS[size]
    return push_time_ns(_number(text)) if text else None


def _check_push_time(text: bytes) -> None:
    """Raise an exception if ``push_ts`` is not a time, by its JSON; see :func:`_push_time`."""
    is_usual = 12 <= len(text) <= 20 and text[10] == _POINT and text.replace(b".", b"").isdigit()
    if text and not is_usual:
        push_time_ns(_number(text))
