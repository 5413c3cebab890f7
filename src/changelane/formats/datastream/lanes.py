# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``datastream-json`` (:mod:`changelane.formats.contract.lane`).

A plain event has the table, the key columns, the stream and the method of reading of the lane, and
scalar sort keys. Its row has values in the key columns. With declared columns, the row of a delete
has all of them, and another row lacks only columns that are NULL.
"""

import decimal
from collections.abc import Hashable
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec

from changelane.event import DataChange, Op
from changelane.formats.contract.lane import PlainChange, ReadChange, literal
from changelane.formats.contract.probed_lanes import ProbedLanes
from changelane.formats.contract.untyped_lanes import EventForm, UntypedLane
from changelane.formats.datastream.decode import (
    OPERATIONS,
    Reader,
    is_backfill,
    operation,
    time_of,
    transaction_of,
)
from changelane.formats.datastream.positions import position_of
from changelane.formats.datastream.wire import Event, SourceMetadata
from changelane.message import Message

_DELETE: Final = Op.DELETE
_READ: Final = Op.READ


class _PlainEvent(Event, forbid_unknown_fields=True, gc=False):
    """A plain event; the sort keys are details, which limit nested values."""

    sort_keys: list[int | str | bool | None] | None = None


class _Probe(msgspec.Struct, gc=False):
    """The part of an event that identifies its lane."""

    read_method: str
    source_metadata: SourceMetadata
    payload: dict[str, msgspec.Raw]
    stream_name: str | None = None


_NAMES: Final = ("database", "schema", "table", "collection", "object_name")
_names_of: Final = attrgetter(*_NAMES)
_probe: Final = msgspec.json.Decoder(_Probe).decode


def lanes_of(reader: Reader) -> ProbedLanes:
    """Return the lanes of a codec."""

    def identity(value: bytes) -> Hashable:
        probe: Any = _probe(value)
        metadata = probe.source_metadata
        source = probe.read_method, probe.stream_name, operation(probe) is _READ
        keys = tuple(metadata.primary_keys or ())
        return source, _names_of(metadata), keys, tuple(probe.payload)

    def open_lane(message: Message, change: DataChange) -> UntypedLane:
        probe, declared = _probe(message.value or b""), reader.declared.find(change.table)
        return UntypedLane(change, declared, lambda event_form: _reader(probe, change, event_form))

    return ProbedLanes(identity, open_lane)


def _reader(probe: _Probe, opened: DataChange, event_form: EventForm) -> ReadChange:
    read_method = probe.read_method
    lane_keys, names = probe.source_metadata.primary_keys, event_form.names
    is_read, may_be_read = opened.op is _READ, is_backfill(read_method)
    decode_whole = _decoder_of(probe, event_form.row)
    decode = decode_whole if names is not None else _decoder_of(probe, event_form.omitting_row())
    key_values = event_form.values_of(() if opened.key is None else opened.key.columns)

    def read(value: bytes, _key: bytes | None) -> PlainChange | None:
        event = decode(value)
        metadata = event.source_metadata
        if metadata.primary_keys != lane_keys:
            return None
        if metadata.is_deleted:
            op = _DELETE
        else:
            op = _READ if may_be_read else OPERATIONS[metadata.change_type]
        if (op is _READ) is not is_read:
            return None
        row = event.payload
        if names is None:
            if op is _DELETE:
                row = decode_whole(value).payload
        elif tuple(row) != names:
            return None
        if None in key_values(row):
            return None
        position = position_of(metadata, None if is_read else event.sort_keys)
        return (
            op._value_,
            row if op is _DELETE else None,
            None if op is _DELETE else row,
            position,
            None if metadata.tx_id is None else transaction_of(metadata),
            None,
            time_of(event.source_timestamp, "source_timestamp"),
            time_of(event.read_timestamp, "read_timestamp"),
            True,  # the method of reading is a detail
        )

    return read


def _decoder_of(probe: _Probe, row: Any) -> Any:
    """Return the decoder of events with the table, the stream and the method of an event."""
    metadata: Any = msgspec.defstruct(
        "PlainMetadata",
        [(name, *literal(getattr(probe.source_metadata, name))) for name in _NAMES],
        bases=(SourceMetadata,),
        kw_only=True,
        forbid_unknown_fields=True,
        gc=False,
    )
    event = msgspec.defstruct(
        "PlainRowEvent",
        [
            ("read_method", Literal[probe.read_method]),
            ("source_metadata", metadata),
            ("payload", row | None, None),
            ("stream_name", *literal(probe.stream_name)),
        ],
        bases=(_PlainEvent,),
        kw_only=True,
        forbid_unknown_fields=True,
    )
    return msgspec.json.Decoder(event, float_hook=decimal.Decimal).decode
