# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``ticdc-simple-json`` (:mod:`changelane.formats.contract.lane`).

A plain message is a row change of the lane's table. Its rows have the columns of the lane, without
a declared table in their order. If rows are compared with their checksums, it has none.
"""

import decimal
from collections.abc import Callable, Hashable
from typing import Any, Final, Literal

import msgspec

from changelane.event import DataChange, Op
from changelane.formats.contract.lane import (
    LaneColumn,
    NotPlainError,
    PlainChange,
    ReadChange,
    literal,
)
from changelane.formats.contract.probed_lanes import ProbedLanes
from changelane.formats.contract.tidb_time_stamps import position_of, time_ns
from changelane.formats.ticdc.simple.decode import (
    OPERATIONS,
    VERSION,
    Reader,
    build_time,
    details_of,
)
from changelane.formats.ticdc.simple.tables import Table
from changelane.formats.ticdc.simple.wire import JsonRow, SimpleMessage
from changelane.message import Message
from changelane.schema import Column
from changelane.types import UNKNOWN, String

_OPERATIONS: Final = {name: op.value for name, op in OPERATIONS.items()}


class _Probe(msgspec.Struct, gc=False):
    """The part of a message that identifies its lane."""

    type: Literal[tuple(OPERATIONS)]  # type: ignore[valid-type]
    database: str | None = None
    table: str | None = None
    schemaVersion: int | None = None  # noqa: N815 - the producer's name
    data: dict[str, msgspec.Raw] | None = None
    old: dict[str, msgspec.Raw] | None = None


_probe: Final = msgspec.json.Decoder(_Probe).decode


def lanes_of(reader: Reader) -> ProbedLanes:
    """Return the lanes of a codec."""

    def open_lane(message: Message, change: DataChange) -> TicdcSimpleLane:
        return TicdcSimpleLane(reader, message.value or b"", change)

    return ProbedLanes(_identity_of, open_lane)


def _identity_of(value: bytes) -> Hashable:
    """Return the table of a message, its version and its columns."""
    probe = _probe(value)
    row = probe.old if probe.data is None else probe.data
    return probe.database, probe.table, probe.schemaVersion, tuple(row or ())


class TicdcSimpleLane:
    """Reads the plain messages of one table; see :class:`~changelane.formats.contract.lane.Lane`.

    Raises:
        NotPlainError: The message is not plain.
    """

    deleted_columns: tuple[str, ...] | None = None

    def __init__(self, reader: Reader, value: bytes, change: DataChange) -> None:
        self._first = first = msgspec.json.decode(value, type=SimpleMessage)
        row = first.old if change.op is Op.DELETE else first.data
        if not row:
            raise NotPlainError
        table = reader.find(first.database or None, first.table or None, first.schemaVersion)
        self.is_named = table is None
        self._compares = reader.verifies and table is not None
        self._names = tuple(row)
        if table is None:
            untyped = reader.timestamps.untyped
            self.columns = tuple(
                LaneColumn(Column(name, UNKNOWN), Any, untyped, str) for name in row
            )
        elif change.schema is None or change.schema.names != row.keys():
            raise NotPlainError  # an old row with further columns
        else:
            self.columns = tuple(_lane_column(table, c, row) for c in change.schema.columns)

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of messages."""
        return self._reader(row, has_details=False)

    def event_reader(self, row: Any, *, has_positions: bool) -> ReadChange:
        """Return the reader of events (:class:`EventLane`)."""
        del has_positions  # a message has the whole position
        return self._reader(row, has_details=True)

    def _reader(self, row: Any, *, has_details: bool) -> ReadChange:
        """Return the reader of messages; *has_details*: changes state it."""
        decode = self._decoder(row)
        names = self._names if self.is_named else None

        def read(value: bytes, _key: bytes | None) -> PlainChange | None:
            message = decode(value)
            op, before, after = _OPERATIONS[message.type], message.old, message.data
            if message.handleKeyOnly:
                return None
            if op == "d":
                if before is None or after is not None:
                    return None
            elif after is None or (before is not None and op != "u"):
                return None
            if names is not None and (
                (after is not None and tuple(after) != names)
                or (before is not None and tuple(before) != names)
            ):
                return None
            process_ns = build_time(message)  # an error is an error of the message
            position, time = position_of(message.commitTs, ""), time_ns(message.commitTs)
            is_detailed = has_details and bool(details_of(message))
            return op, before, after, position, None, None, time, process_ns, is_detailed

        return read

    def _decoder(self, row: Any) -> Callable[[bytes], Any]:
        """Return the decoder of a message; an error = the message is not plain."""
        first = self._first
        kinds: dict[str, tuple[Any, ...]] = {
            field.name: (field.type, field.default)
            for field in msgspec.structs.fields(SimpleMessage)
        }
        kinds |= {name: literal(getattr(first, name)) for name in ("database", "table")}
        kinds |= dict.fromkeys(("data", "old"), (row | None, None))
        kinds |= {
            "type": (Literal[tuple(OPERATIONS)],),
            "version": literal(VERSION),
            "claimCheckLocation": (None, None),
        }
        if not self.is_named:
            kinds["schemaVersion"] = literal(first.schemaVersion)
        if self._compares:
            kinds["checksum"] = (None, None)
        fields: list[Any] = [(name, *kind) for name, kind in kinds.items()]
        message = msgspec.defstruct("PlainMessage", fields, kw_only=True, gc=False)
        return msgspec.json.Decoder(message, float_hook=decimal.Decimal).decode


def _lane_column(table: Table, column: Column, row: JsonRow) -> LaneColumn:
    """Return a column with the JSON type of its value in the row that opens the lane."""
    is_text = isinstance(row[column.name], str)
    if is_text and isinstance(column.type, String):
        return LaneColumn(column, str)
    return LaneColumn(column, str if is_text else Any, table.readers[column.name])
