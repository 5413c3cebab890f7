# SPDX-License-Identifier: Apache-2.0
"""``ticdc-open-json``: the open protocol of TiCDC.

Product: TiCDC (https://docs.pingcap.com/tidb/stable/ticdc-open-protocol), ``protocol =
"open-protocol"``. Versions studied: TiCDC 4.0 to 8.5 and its successor of 2025, by the
documentation and the packages ``pkg/sink/codec/open`` of https://github.com/pingcap/tiflow and
https://github.com/pingcap/ticdc.

Sample, the JSON of one event in the message key and in the value::

    {"ts":415508878783938562,"scm":"test","tbl":"t1","t":1}
    {"u":{"id":{"t":3,"h":true,"f":11,"v":1},"val":{"t":15,"f":64,"v":"aa"}}}

Choices: a message is a batch of events in the order of the batch. A row without its old row is an
insert or an update, unless the options state that updates have it. ``p`` may have only the changed
columns. The key is the handle key, not the primary key. ENUM and SET are numbers, because messages
have no labels.

Known gaps: compressed values, rows outside of the message. See
``docs/formats/ticdc-open-json.md``.
"""

from typing import Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Op
from changelane.formats.contract import json
from changelane.formats.contract.capabilities import AbsentMeans, Carries, Extreme, SchemaDetail
from changelane.formats.contract.format import Format, Report
from changelane.formats.ticdc import SOURCE
from changelane.formats.ticdc.open.decode import Reader
from changelane.formats.ticdc.open.encode import Writer
from changelane.formats.ticdc.open.lanes import lanes_of
from changelane.formats.ticdc.open.wire import VERSION, Row, Statement, frames
from changelane.message import Message
from changelane.types import (
    Bits,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Float,
    InstantType,
    Integer,
    Json,
    LogicalType,
    String,
    Time,
    Timestamp,
    Year,
)
from changelane.types.scalars import parse_zone

__all__ = ["Options", "make"]

_TYPES: Final[frozenset[type[LogicalType]]] = frozenset(
    {Bits, Bytes, Date, Decimal, Float, InstantType, Integer, Json, String, Time, Timestamp, Year}
)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``ticdc-open-json``.

    Attributes:
        time_zone: The zone of TIMESTAMP values, which is that of the changefeed: a name of the time
            zone database or an offset such as ``+08:00``.
        output_old_value: The changefeed has ``open.output-old-value = true``, so that a row without
            its old row is an insert; without that knowledge it may be an update.
    """

    time_zone: str = "UTC"
    output_old_value: bool = False


class TicdcOpen:
    """The format ``ticdc-open-json``."""

    carries: Final = Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        kinds=frozenset({"schema", "truncate", "watermark"}),
        before=True,
        absent=True,
        absent_means=AbsentMeans.ERROR,
        schema=SchemaDetail.SOURCE_TYPES,
        types=_TYPES,
        forms=frozenset({(Boolean, "tinyint")}),
        extremes=frozenset({Extreme.TEMPORAL_TEXT}),
        key=True,
        key_change=True,
        table=frozenset({"database", "name"}),
        positions=frozenset({"sequence"}),
        shared_positions=frozenset({"sequence"}),  # all changes of a transaction share a time stamp
        stamp=SOURCE,
        source_time="ms",
        details=True,
        text_only=True,
    )

    def __init__(self, options: Options) -> None:
        self._options = options
        has_old_values = options.output_old_value
        self._read = Reader(parse_zone(options.time_zone), has_old_values=has_old_values)
        self._write = Writer(options.time_zone, has_old_values=has_old_values)
        self.lanes = lanes_of(self._read)

    def __reduce__(self) -> tuple[object, ...]:
        return (TicdcOpen, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a batch of events."""
        return self._read(message)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode an event as a batch of one event."""
        return self._write(event, report)

    def detects(self, message: Message) -> bool:
        """Return whether a message has the frames of the protocol, with its JSON in the value."""
        key, value = message.key, message.value
        if value is None or (key is not None and not key.startswith(VERSION)):
            return False
        try:
            parts = frames(value, 0, "$")
            return bool(parts) and all(map(_is_value, parts))
        except DecodeError:
            return False


def _is_value(part: bytes) -> bool:
    """Return whether a part of a value is that of an event."""
    if not part:
        return True
    row = json.loads(part, Row)
    if row.u is not None or row.d is not None:
        return True
    return json.loads(part, Statement).q is not None


def make(options: Options) -> Format:
    """Return the format.

    Raises:
        ConfigError: The zone is unknown.
    """
    return TicdcOpen(options)
