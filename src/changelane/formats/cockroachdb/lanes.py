# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``cockroachdb-json`` (:mod:`changelane.formats.contract.lane`).

A plain message has the envelope ``wrapped`` or ``enriched``, and no other keys than the documented
ones of a row. Its table, its schema and the columns of its key are those of the lane. Its rows have
all columns, without types in their order, and a delete has its old row.
"""

import decimal
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from changelane.event import DataChange, Op
from changelane.formats.cockroachdb.columns import json_text
from changelane.formats.cockroachdb.decode import (
    NAMES,
    OPERATIONS,
    Reader,
    SchemaBlock,
    details_of,
    message_key,
    process_time,
    times,
)
from changelane.formats.cockroachdb.wire import Envelope
from changelane.formats.contract import json
from changelane.formats.contract.column_values import Read, lane_column, read_fraction
from changelane.formats.contract.lane import (
    Kinds,
    LaneColumn,
    NotPlainError,
    PlainChange,
    ReadChange,
    literal,
    plain_class,
)
from changelane.formats.contract.probed_lanes import ProbedLanes
from changelane.message import Message
from changelane.schema import Column
from changelane.types import UNKNOWN, Json

_Source = dict[str, str | int | bool | list[str] | None]
_OPERATIONS: Final = {name: op.value for name, op in OPERATIONS.items()}
_KEYS: Final = "primary_keys"
_TRANSACTION: Final = "txId"
"""The field of a source block that would be the id of a transaction."""


class _ProbeSource(msgspec.Struct, gc=False):
    database_name: str | None = None
    schema_name: str | None = None
    table_name: str | None = None


class _Probe(msgspec.Struct, gc=False):
    """The part of a message that identifies its lane."""

    after: dict[str, Raw] | None = None
    before: dict[str, Raw] | None = None
    topic: str | None = None
    source: _ProbeSource | None = None
    payload: "_Probe | None" = None
    schema: Raw = Raw()


_probe: Final = msgspec.json.Decoder(_Probe).decode


def lanes_of(reader: Reader) -> ProbedLanes:
    """Return the lanes of a codec."""

    def open_lane(message: Message, change: DataChange) -> CockroachDbLane:
        return CockroachDbLane(reader, message, change)

    return ProbedLanes(_identity_of, open_lane)


def _identity_of(value: bytes) -> Hashable:
    """Return the table, the columns and the schema of a message."""
    probe = _probe(value)
    envelope = probe.payload or probe
    row = envelope.before if envelope.after is None else envelope.after
    source = envelope.source or _ProbeSource()
    table = envelope.topic, *msgspec.structs.astuple(source)
    return table, tuple(row or ()), bytes(probe.schema)


class CockroachDbLane:
    """Reads the plain messages of one table; see :class:`~changelane.formats.contract.lane.Lane`.

    Raises:
        NotPlainError: The message is not plain.
        DecodeError: The message is not plain.
    """

    deleted_columns: tuple[str, ...] | None = None

    def __init__(self, reader: Reader, message: Message, change: DataChange) -> None:
        if reader.is_bare:
            raise NotPlainError
        outer = envelope = json.loads(message.value or b"", Envelope)
        self._is_nested = not isinstance(outer.payload, UnsetType)
        if not isinstance(outer.payload, UnsetType):
            envelope = json.loads(bytes(outer.payload), Envelope)
        self._envelope = envelope
        self._schema = None if isinstance(outer.schema, UnsetType) else bytes(outer.schema)
        declared = reader.declared.find(change.table)
        self._source = source = envelope.source or {}
        self._key_names = None if change.key is None else change.key.columns
        has_declared_key = declared is not None and declared.key is not None
        self._has_key_names = has_declared_key or bool(source.get(_KEYS))
        row = change.before if change.op is Op.DELETE else change.after
        if not row:
            raise NotPlainError
        self._names = tuple(row)
        self.is_named = declared is None and self._schema is None
        if self._reader(dict[str, Any])(message.value or b"", message.key) is None:
            raise NotPlainError  # such as a publication, which names a table of its own
        if self.is_named:
            self.columns = tuple(LaneColumn(Column(name, UNKNOWN), Any) for name in row)
            return
        if declared is not None:
            columns, readers = declared.schema.columns, declared.readers
        else:
            block = reader.block(outer)
            if not isinstance(block, SchemaBlock):
                raise NotPlainError
            columns, readers = block.schema.columns, block.readers
        if change.schema is None or change.schema.columns != columns:
            raise NotPlainError  # a row with further columns
        self.columns = tuple(_lane_column(column, readers) for column in columns)

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of messages."""
        read_envelope = self._reader(row)

        def read(value: bytes, key: bytes | None) -> PlainChange | None:
            envelope = read_envelope(value, key)
            if envelope is None:
                return None
            position = time_ns = None
            source, mvcc_timestamp = envelope.source, envelope.mvcc_timestamp
            if source or envelope.updated is not None or mvcc_timestamp is not None:
                position, time_ns = times(envelope, source or {}, "")
            if envelope.ts_ns is not None:
                process_time(envelope, "")  # an error is an error of the message
            op, before, after = envelope.op, envelope.before, envelope.after
            return op, before, after, position, None, None, time_ns, None, False

        return read

    def event_reader(self, row: Any, *, has_positions: bool) -> ReadChange:
        """Return the reader of events (:class:`EventLane`)."""
        del has_positions  # they are read for their errors
        read_envelope = self._reader(row)

        def read(value: bytes, key: bytes | None) -> PlainChange | None:
            envelope = read_envelope(value, key)
            if envelope is None:
                return None
            source = envelope.source or {}
            position, time_ns = times(envelope, source, "")
            process_ns, has_details = process_time(envelope, ""), bool(details_of(envelope, source))
            op, before, after = envelope.op, envelope.before, envelope.after
            return op, before, after, position, None, None, time_ns, process_ns, has_details

        return read

    def _reader(self, row: Any) -> Callable[[bytes, bytes | None], Any]:
        """Return the reader of plain envelopes, with the operation and the images of the event."""
        decode, is_nested, schema = self._decoder(row), self._is_nested, self._schema
        names = self._names if self.is_named else None
        has_key = self._key_check()
        place = [self._source.get(name) for name in (*NAMES, _KEYS)]

        def read(value: bytes, key: bytes | None) -> Any:
            envelope = decode(value)
            if is_nested:
                if schema is not None and bytes(envelope.schema) != schema:
                    return None
                envelope = envelope.payload
            source = envelope.source
            if source is not None and (
                [source.get(name) for name in (*NAMES, _KEYS)] != place or _TRANSACTION in source
            ):
                return None
            if not has_key(envelope.key, key):
                return None
            op, before, after = envelope.op, envelope.before, envelope.after
            if op is None:
                op = "d" if after is None else "c" if before is None else "u"
            elif (after is None) is not (op == "d"):
                return None
            if before is UNSET or op == "c":
                before = None
            if op == "d" and before is None:
                return None
            if names is not None:
                for image in (before, after):
                    if image is not None and tuple(image) != names:
                        return None
            envelope.op, envelope.before = op, before
            return envelope

        return read

    def _key_check(self) -> Callable[[Any, bytes | None], bool]:
        """Return the check whether a message has the names of the key's columns."""
        if self._has_key_names:
            return lambda _values, _key: True
        names = self._key_names

        def has_key(values: Any, key: bytes | None) -> bool:
            if values is None:
                if names is None and (key is None or key.startswith(b"[")):
                    return True
                values = message_key(key)
            found_names = tuple(values) if isinstance(values, dict) and values else None
            return found_names == names

        return has_key

    def _decoder(self, row: Any) -> Callable[[bytes], Any]:
        """Return the decoder of a message; an error = the message is not plain."""
        first = self._envelope
        kinds: Kinds = {
            "after": (row | None,),
            "before": (row | UnsetType | None, UNSET),
            "key": (Any, None),
            "topic": literal(first.topic),
            "updated": (str | None, None),
            "mvcc_timestamp": (str | None, None),
            "op": (None, None) if first.op is None else (Literal[tuple(OPERATIONS)],),
            "source": (_Source,) if self._source else (None, None),
            "ts_ns": (int | None, None),
        }
        plain = plain_class(kinds)
        if self._is_nested:
            schema = {} if self._schema is None else {"schema": (Raw,)}
            plain = plain_class({"payload": (plain,)} | schema)
        number = read_fraction if self.is_named else decimal.Decimal
        return msgspec.json.Decoder(plain, float_hook=number).decode


def _lane_column(column: Column, readers: Mapping[str, Read]) -> LaneColumn:
    if isinstance(column.type, Json):
        return LaneColumn(column, Any, json_text)
    return lane_column(column, readers[column.name])
