# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``mongodb-change-stream-json`` (:mod:`changelane.formats.contract.lane`).

A plain message is an event with its document, or a delete without it, in the form ``json`` of rows.
It is not wrapped, its documents are objects and have the ``_id`` of ``documentKey``. It has the
collection of the lane, the fields of the message that opens the lane, and its forms of times.
"""

import decimal
from collections.abc import Callable, Hashable
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw

from changelane.event import DataChange, Op
from changelane.formats.contract import json
from changelane.formats.contract.lane import (
    Kind,
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
from changelane.formats.mongodb.change_stream.decode import (
    COPYING,
    OPERATIONS,
    Reader,
    cluster_time_ns,
    nanoseconds,
    position_of,
    transaction_of,
    wall_time_ns,
)
from changelane.formats.mongodb.change_stream.wire import EVENT_FIELDS, Row, UpdateDescription
from changelane.formats.mongodb.documents import DOCUMENT, SCHEMA
from changelane.formats.mongodb.extended_json import ID
from changelane.message import Message

_Parts = dict[str, Raw]
_NULL: Final = b"null"
_MOST_DIGITS: Final = 15
_OPERATIONS: Final = {name: op.value for name, op in OPERATIONS.items()}


class _ProbeNamespace(msgspec.Struct, gc=False):
    db: str
    coll: str | None = None


class _Probe(msgspec.Struct, gc=False):
    """The part of a message that identifies its lane."""

    ns: _ProbeNamespace
    token: dict[str, Raw] | None = msgspec.field(name="_id", default=None)


_probe: Final = msgspec.json.Decoder(_Probe).decode


def lanes_of(reader: Reader) -> ProbedLanes:
    """Return the lanes of a codec."""

    def open_lane(message: Message, change: DataChange) -> ChangeStreamLane:
        return ChangeStreamLane(reader, message.value or b"", change)

    return ProbedLanes(_identity_of, open_lane)


def _identity_of(value: bytes) -> Hashable:
    """Return the collection of a message, and the fields of its token: a copy has others."""
    probe = _probe(value)
    return probe.ns.db, probe.ns.coll, tuple(probe.token or ())


class ChangeStreamLane:
    """Reads the plain events of a collection (:class:`~changelane.formats.contract.lane.Lane`).

    Raises:
        Exception: The message is not plain.
    """

    columns = tuple(LaneColumn(column, str) for column in SCHEMA.columns)
    is_named = False
    deleted_columns: tuple[str, ...] | None

    def __init__(self, reader: Reader, value: bytes, change: DataChange) -> None:
        self._read_document, self._read_key = reader.texts.read, reader.keys.read
        self._parts = parts = json.loads(value, _Parts)
        self._is_copy = change.op is Op.READ
        self._has_key = bytes(parts.get("documentKey", _NULL)) != _NULL
        time = json.loads(bytes(parts.get("wallTime", _NULL)), object)
        self._read_time, self._time_kind = _time_form(time)
        self._further = [name for name in parts if name not in EVENT_FIELDS and name != ID]
        has_document = change.op is Op.DELETE and DOCUMENT in (change.before or {})
        self.deleted_columns = None if has_document else (ID,)
        self._decode = self._decoder()

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of messages."""
        return self.event_reader(row, has_positions=True)

    def event_reader(self, row: Any, *, has_positions: bool) -> ReadChange:
        """Return the reader of events (:class:`~changelane.formats.contract.lane.EventLane`)."""
        del has_positions  # they are read for their errors
        decode, read_images, read_time = self._decode, self._image_reader(row), self._read_time
        operations, is_copy, further = _OPERATIONS, self._is_copy, self._further

        def read(value: bytes, _key: bytes | None) -> PlainChange | None:
            event = decode(value)
            token, op = event.token, operations[event.operationType]
            if is_copy:
                if op != "c" or token is None or token.get(COPYING) is not True:
                    return None
                op = "r"
            elif token is not None and COPYING in token:
                return None
            images = read_images(event, op)
            if images is None:
                return None
            before, after = images
            cluster_time, time_ns = event.clusterTime, read_time(event.wallTime)
            position = None if cluster_time is None else position_of(cluster_time, token)
            if time_ns is None and position is not None:
                time_ns = cluster_time_ns(position.value)
            transaction = None
            has_details = event.updateDescription is not None or (token is not None and not is_copy)
            if event.lsid is not None or event.txnNumber is not None:
                session = Row()
                transaction = transaction_of(event, session)
                has_details = has_details or bool(session)
            for name in further:
                has_details = has_details or getattr(event, name) is not UNSET
            return op, before, after, position, transaction, None, time_ns, None, has_details

        return read

    def _image_reader(self, row: Any) -> Callable[[Any, str], tuple[Any, Any] | None]:
        """Return the reader of an event's images; it returns ``None`` if they are not plain."""
        read_document, read_key = self._read_document, self._read_key
        has_key, has_document = self._has_key, self.deleted_columns is None

        def image(text: str, key: str | None) -> Any:
            """Return the row of a document with this ``_id``, or of null."""
            if text == "null":
                return None
            row_key, document = read_document(text)
            if key is not None and row_key != key:
                raise NotPlainError
            return row(row_key, document)

        def read_images(event: Any, op: str) -> tuple[Any, Any] | None:
            key = None
            if has_key:
                identity = str(event.documentKey.identity, "utf-8")
                key = read_key(f'{{"_id":{identity}}}')[0]
            before, after = event.fullDocumentBeforeChange, event.fullDocument
            if before is not None:
                before = image(str(before, "utf-8"), key)
            if after is not None:
                after = image(str(after, "utf-8"), key)
            if op == "d":
                if after is not None or (before is not None) is not has_document:
                    return None
                if before is None:
                    return None if key is None else (row(key, None), None)
            elif after is None or (before is not None and op != "u"):
                return None
            return before, after

        return read_images

    def _decoder(self) -> Callable[[bytes], Any]:
        """Return the decoder of a message; an error = the message is not plain."""
        namespace = json.loads(bytes(self._parts["ns"]), Row)
        kinds: Kinds = {
            "token": (Row | None, None),
            "operationType": (Literal[tuple(_OPERATIONS)],),
            "clusterTime": (Row | None, None),
            "wallTime": self._time_kind,
            "fullDocument": (Raw, None),
            "fullDocumentBeforeChange": (Raw, None),
            "ns": (plain_class({name: literal(namespace[name]) for name in ("db", "coll")}),),
            "documentKey": (plain_class({"identity": (Raw,)}, {"identity": ID}),)
            if self._has_key
            else (None, None),
            # msgspec does not check the text of a field that it skips
            "updateDescription": (plain_class(kinds_of(UpdateDescription)) | None, None),
            "txnNumber": (Any, None),
            "lsid": (Row | None, None),
            **dict.fromkeys(self._further, (Any, UNSET)),
        }
        # fields are found fastest in the order of the message
        order = {("token" if name == ID else name): None for name in self._parts}
        ordered = {name: kinds[name] for name in order if name in kinds} | kinds
        plain = plain_class(ordered, {"token": ID})
        return msgspec.json.Decoder(plain, float_hook=decimal.Decimal).decode


def _time_form(time: object) -> tuple[Callable[[Any], int | None], Kind]:
    """Return the reader of times such as this one, and the type of their field."""
    match time:
        case {"$date": int()}:
            number = plain_class({"date": (int,)}, {"date": "$date"})
            return lambda value: nanoseconds(value.date), (number,)
        case {"$date": {"$numberLong": str()}}:
            digits = plain_class({"digits": (str,)}, {"digits": "$numberLong"})
            text = plain_class({"date": (digits,)}, {"date": "$date"})
            return _read_digits, (text,)
        case _:
            return wall_time_ns, (Row | str | None, None)


def _read_digits(time: Any) -> int:
    digits = time.date.digits
    if not (digits.isdecimal() and digits.isascii() and len(digits) <= _MOST_DIGITS):
        raise NotPlainError
    return nanoseconds(int(digits))
