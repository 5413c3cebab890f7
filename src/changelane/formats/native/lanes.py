# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``native-json`` (:mod:`changelane.formats.contract.lane`).

A plain line is a row change with the schema, the table, the key and the source of the lane. Its
images have all columns of the schema, and its details have no arrays and at most one level of
objects.
"""

import decimal
from collections.abc import Callable, Hashable
from typing import Any, Final, Literal

import msgspec

from changelane.event import (
    Completeness,
    DataChange,
    Op,
    details_transaction_id,
    lists_sent_columns_only,
)
from changelane.formats.contract.lane import LaneColumn, NotPlainError, PlainChange, ReadChange
from changelane.message import Message
from changelane.types.values import from_json

_CHANGED: Final = Completeness.CHANGED
_NULL: Final = msgspec.Raw(b"null")
_Field: Final[Any] = str | int | bool | None


class _Probe(msgspec.Struct, gc=False):
    """The part of a line that identifies its lane."""

    schema: msgspec.Raw
    table: msgspec.Raw
    key: msgspec.Raw = _NULL
    source: msgspec.Raw = _NULL


_probe: Final = msgspec.json.Decoder(_Probe).decode


class NativeLanes:
    """The lanes of one codec; see :class:`~changelane.formats.contract.lane.Lanes`."""

    header_names: frozenset[str] = frozenset()
    version = 0

    def __init__(self, line: type[msgspec.Struct]) -> None:
        """Create the lanes; *line* is the wire class of the event path."""
        self._line = line

    def identity(self, value: bytes) -> Hashable | None:
        """Return the schema, the table, the key and the source of a line."""
        try:
            line = _probe(value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return bytes(line.schema), bytes(line.table), bytes(line.key), bytes(line.source)

    def open(self, message: Message, change: DataChange) -> "NativeLane":
        """Return the lane of a line that was decoded into one change."""
        return NativeLane(self._line, message.value or b"", change)


class NativeLane:
    """Reads the plain lines of one table; see :class:`~changelane.formats.contract.lane.Lane`.

    Raises:
        NotPlainError: The line is not plain.
    """

    is_named = False
    deleted_columns = None

    def __init__(self, line: type[msgspec.Struct], value: bytes, change: DataChange) -> None:
        if change.schema is None or not change.schema.columns or lists_sent_columns_only(change):
            raise NotPlainError
        self._line = line
        self._first: Any = msgspec.json.decode(value, type=line)
        self.columns = tuple(
            LaneColumn(column, Any, from_json(column.type)) for column in change.schema.columns
        )

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of lines."""
        read_line = self._reader(row)

        def read(value: bytes, _key: bytes | None) -> PlainChange | None:
            line = read_line(value)
            if line is None:
                return None
            field_id = details_transaction_id(line.details or {})
            return (
                line.op,
                line.before,
                line.after,
                line.position,
                line.transaction,
                field_id,
                line.source_time_ns,
                None,
                False,
            )

        return read

    def event_reader(self, row: Any, *, has_positions: bool) -> ReadChange:
        """Return the reader of events (:class:`EventLane`)."""
        del has_positions  # a line has the whole position
        read_line = self._reader(row)

        def read(value: bytes, _key: bytes | None) -> PlainChange | None:
            line = read_line(value)
            if line is None:
                return None
            return (
                line.op,
                line.before,
                line.after,
                line.position,
                line.transaction,
                None,
                line.source_time_ns,
                line.process_time_ns,
                bool(line.details),
            )

        return read

    def _reader(self, row: Any) -> Callable[[bytes], Any]:
        """Return the reader of plain lines; an error or ``None`` = the line is not plain."""
        decode, first = self._decode(row), self._first
        schema, table, key, source = bytes(first.schema), first.table, first.key, first.source

        def read(value: bytes) -> Any:
            line = decode(value)
            op, before, after = line.op, line.before, line.after
            if line.half or bytes(line.schema) != schema or line.table != table:
                return None
            if line.key != key or line.source != source:
                return None
            if _CHANGED in {line.after_holds, line.before_holds}:
                return None
            if op == "d":
                is_plain = before is not None and after is None
            else:
                is_plain = after is not None and (before is None or op == "u")
            return line if is_plain else None

        return read

    def _decode(self, row: Any) -> Callable[[bytes], Any]:
        """Return the decoder of a line; an error = the line is not plain."""
        kinds: dict[str, tuple[Any, ...]] = {
            field.name: (field.type, field.default)
            for field in msgspec.structs.fields(self._line)
            if field.default is not msgspec.NODEFAULT
        }
        kinds |= dict.fromkeys(("before", "after"), (row | None, None))
        kinds |= {
            "op": (Literal[tuple(op.value for op in Op)],),
            "unavailable": (None, None),
            "details": (dict[str, dict[str, _Field] | _Field] | None, None),
        }
        fields: list[Any] = [(name, *kind) for name, kind in kinds.items()]
        line = msgspec.defstruct("PlainLine", fields, kw_only=True, gc=False)
        return msgspec.json.Decoder(line, float_hook=decimal.Decimal).decode
