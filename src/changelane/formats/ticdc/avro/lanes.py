# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``ticdc-avro`` (:mod:`changelane.formats.contract.lane`).

A plain message is a new row without before image and checksum. Its schema block, and that of its
key, are those of the lane.
"""

import decimal
from collections.abc import Callable, Hashable
from typing import Any, Final

import msgspec

from changelane.event import DataChange, Op
from changelane.formats.contract.lane import (
    LaneColumn,
    NotPlainError,
    PlainChange,
    ReadChange,
    attribute,
)
from changelane.formats.contract.probed_lanes import ProbedLanes
from changelane.formats.contract.tidb_time_stamps import position_of
from changelane.formats.debezium_envelope.rows.connect_schema import unwrap
from changelane.formats.ticdc.avro.decode import (
    COMMIT_TS,
    OP,
    PHYSICAL_TIME,
    Reader,
    operation_of,
    time_of,
)
from changelane.message import Message

_read_object: Final = msgspec.json.Decoder(dict[str, Any], float_hook=decimal.Decimal).decode
_DELETE: Final = Op.DELETE
_OPERATION: Final = "operation"
_COMMIT: Final = "commit"
_TIME: Final = "time"
_FIELDS: Final = {_OPERATION: OP, _COMMIT: COMMIT_TS, _TIME: PHYSICAL_TIME}
"""The attributes of a plain payload beside its columns, and their fields."""


def lanes_of(reader: Reader) -> ProbedLanes:
    """Return the lanes of a codec."""

    def open_lane(message: Message, change: DataChange) -> TicdcAvroLane:
        return TicdcAvroLane(reader, message, change)

    return ProbedLanes(_block_of, open_lane)


def _block_of(value: bytes) -> Hashable | None:
    """Return the schema block of a message; ``None`` if it has none."""
    parts = unwrap(value)
    return None if parts is None else parts[0]


class TicdcAvroLane:
    """Reads the plain rows of one schema; see :class:`~changelane.formats.contract.lane.Lane`.

    Raises:
        NotPlainError: The message is not plain.
    """

    is_named = False
    deleted_columns: tuple[str, ...] | None = None

    def __init__(self, reader: Reader, message: Message, change: DataChange) -> None:
        self._is_ordered = reader.is_ordered
        self._prefix = _prefix_of(message.value)
        self._key_prefix = None if message.key is None else _prefix_of(message.key)
        plan = reader.plan(message.value or b"")
        if plan is None or plan.schema is not change.schema:
            raise NotPlainError
        self.columns = tuple(
            LaneColumn(column, Any, plan.readers[column.name]) for column in plan.schema.columns
        )

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of messages."""
        return self._reader(row)

    def event_reader(self, row: Any, *, has_positions: bool) -> ReadChange:
        """Return the reader of events (:class:`EventLane`)."""
        del has_positions  # a message has the whole position
        return self._reader(row)

    def _reader(self, row: Any) -> ReadChange:
        prefix, key_prefix, is_ordered = self._prefix, self._key_prefix, self._is_ordered
        start, decode = len(prefix), self._decoder()
        key_start = 0 if key_prefix is None else len(key_prefix)
        values_of, column_count = msgspec.structs.astuple, len(self.columns)

        def read(value: bytes, key: bytes | None) -> PlainChange | None:
            if not value.startswith(prefix) or value[-1:] != b"}":
                return None
            if key_prefix is None or key is None:
                if key is not key_prefix:
                    return None
            elif not key.startswith(key_prefix) or key[-1:] != b"}":
                return None
            else:
                _read_object(memoryview(key)[key_start:-1])
            payload = decode(memoryview(value)[start:-1])
            op = operation_of(payload.operation)
            if op is _DELETE:
                return None
            image = row(*values_of(payload)[:column_count])
            position = position_of(payload.commit, "")
            time = time_of(payload.time, position)
            sent = position if is_ordered else None
            has_details = position is not None and not is_ordered
            return op._value_, None, image, sent, None, None, time, None, has_details

        return read

    def _decoder(self) -> Callable[[Any], Any]:
        """Return the decoder of a payload; an error = the message is not plain."""
        names = {attribute(i): column.column.name for i, column in enumerate(self.columns)}
        msgspec.json.encode([*names.values()])  # see row_class
        fields: list[Any] = [(name, Any) for name in names]
        fields += [(name, Any, None) for name in _FIELDS]
        payload = msgspec.defstruct(
            "PlainPayload",
            fields,
            rename=names | _FIELDS,
            forbid_unknown_fields=True,
            gc=False,
        )
        return msgspec.json.Decoder(payload, float_hook=decimal.Decimal).decode


def _prefix_of(data: bytes | None) -> bytes:
    """Return the bytes before the payload of a message.

    Raises:
        NotPlainError: The message has no schema block, or fields in another order.
    """
    parts = unwrap(data or b"")
    block = None if parts is None else parts[0]
    prefix = b'{"schema":' + (block or b"") + b',"payload":'
    if block is None or data is None or not data.startswith(prefix):
        raise NotPlainError
    return prefix
