# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``debezium-mongodb-json`` (:mod:`changelane.formats.contract.lane`).

A plain message is a change with its document, or a delete without it, in the form ``json`` of rows.
Its collection, its source, its schema block, its fields and those of its source block are those of
the lane; fields of the source block that the format does not know are null, or have a value, as in
the message that opens the lane.
"""

import decimal
from collections.abc import Callable, Hashable
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw

from changelane.event import DataChange, Op
from changelane.formats.contract import json
from changelane.formats.contract.lane import (
    Kinds,
    LaneColumn,
    NotPlainError,
    PlainChange,
    ReadChange,
    kinds_of,
    literal,
    plain_class,
)
from changelane.formats.contract.probed_lanes import ProbedLanes
from changelane.formats.mongodb.debezium.decode import (
    OPERATIONS,
    SOURCE_FIELDS,
    Reader,
    nanoseconds,
    place_of,
    required_id,
    source_time_ns,
    transaction_of,
)
from changelane.formats.mongodb.debezium.wire import Envelope, Row, UpdateDescription
from changelane.formats.mongodb.documents import DOCUMENT, SCHEMA
from changelane.formats.mongodb.extended_json import ID
from changelane.message import Message

_Parts = dict[str, Raw]
_SAME: Final = ("version", "connector", "name", "snapshot", "db", "collection")
_NUMBERS: Final = ("ts_ms", "ts_us", "ts_ns", "ord", "wallTime")


class _ProbeSource(msgspec.Struct, gc=False):
    db: str
    collection: str
    version: str | None = None
    name: str | None = None
    snapshot: str | bool | None = None


class _Probe(msgspec.Struct, gc=False):
    """The part of a message that identifies its lane."""

    source: _ProbeSource | None = None
    payload: "_Probe | None" = None


_probe: Final = msgspec.json.Decoder(_Probe).decode


def lanes_of(reader: Reader) -> ProbedLanes:
    """Return the lanes of a codec."""

    def open_lane(message: Message, change: DataChange) -> DocumentLane:
        return DocumentLane(reader, message.value or b"", change)

    return ProbedLanes(_identity_of, open_lane)


def _identity_of(value: bytes) -> Hashable:
    """Return the collection and the source of a message."""
    probe = _probe(value)
    source = (probe.payload or probe).source
    if source is None:
        raise NotPlainError
    return msgspec.structs.astuple(source)


class DocumentLane:
    """Reads the plain messages of a collection (:class:`~changelane.formats.contract.lane.Lane`).

    Raises:
        Exception: The message is not plain.
    """

    columns = tuple(LaneColumn(column, str) for column in SCHEMA.columns)
    is_named = False
    deleted_columns: tuple[str, ...] | None

    def __init__(self, reader: Reader, value: bytes, change: DataChange) -> None:
        self._read_document = reader.texts.read
        parts = json.loads(value, _Parts)
        self._is_wrapped = "op" not in parts
        self._schema = b""
        if self._is_wrapped:
            self._schema = bytes(parts.get("schema", b""))
            parts = json.loads(bytes(parts["payload"]), _Parts)
        self._parts = parts
        self._source = json.loads(bytes(parts["source"]), Row)
        self._further = [
            name
            for name, value in self._source.items()
            if value is not None and name not in SOURCE_FIELDS
        ]
        has_document = change.op is Op.DELETE and DOCUMENT in (change.before or {})
        self.deleted_columns = None if has_document else (ID,)
        self._decode = self._decoder()

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of messages."""
        return self.event_reader(row, has_positions=True)

    def event_reader(self, row: Any, *, has_positions: bool) -> ReadChange:
        """Return the reader of events (:class:`~changelane.formats.contract.lane.EventLane`)."""
        del has_positions  # they are read for their errors
        decode, read_document = self._decode, self._read_document
        schema, is_wrapped = self._schema, self._is_wrapped
        has_document = self.deleted_columns is None
        further = self._further

        def read(value: bytes, key: bytes | None) -> PlainChange | None:
            envelope = decode(value)
            if is_wrapped:
                if bytes(envelope.schema) != schema:
                    return None
                envelope = envelope.payload
            op, source = envelope.op, envelope.source
            before, after = envelope.before, envelope.after
            if before is not None:
                before = row(*read_document(before))
            if after is not None:
                after = row(*read_document(after))
            if op == "d":
                if after is not None or (before is not None) is not has_document:
                    return None
                if before is None:
                    before = row(required_id(key), None)
            elif after is None or (before is not None and op != "u"):
                return None
            has_details = envelope.updateDescription is not None
            for name in further:
                has_details = has_details or getattr(source, name) is not None
            time_ms, process_ms = source.ts_ms, envelope.ts_ms
            transaction = envelope.transaction
            return (
                op,
                before,
                after,
                None if source.ord is None else place_of(time_ms, source.ord),
                None if transaction is None else transaction_of(transaction),
                None,
                source_time_ns(source.wallTime, time_ms),
                None if process_ms is None else nanoseconds(process_ms, ""),
                has_details,
            )

        return read

    def _decoder(self) -> Callable[[bytes], Any]:
        """Return the decoder of a message; an error = the message is not plain."""
        source: Kinds = dict.fromkeys((*_SAME, *_NUMBERS), (None, None))
        for name, value in self._source.items():
            if name in _SAME:
                source[name] = literal(value)
            elif name in _NUMBERS:
                source[name] = (Any, None)  # their readers reject what is no whole number
            else:
                source[name] = (None, None) if value is None else (Any,)
        kinds = kinds_of(Envelope) | {
            "op": (Literal[tuple(OPERATIONS)],),
            "source": (plain_class(source),),
            "updateDescription": (plain_class(kinds_of(UpdateDescription)) | None, None),
        }
        # msgspec does not check the text of a field that it skips
        plain = plain_class(dict.fromkeys(self._parts, (Any, None)) | kinds)
        if self._is_wrapped:
            plain = plain_class({"schema": (Raw, Raw()), "payload": (plain,)})
        return msgspec.json.Decoder(plain, float_hook=decimal.Decimal).decode
