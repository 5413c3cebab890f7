# SPDX-License-Identifier: Apache-2.0
"""CloudEvents around the messages of Debezium's family, in both directions.

The rules are those of ``io.debezium.converters.CloudEventsConverter``
(https://debezium.io/documentation/reference/stable/integrations/cloudevents.html). ``data`` has the
images, with or without a schema. The operation, and the fields of the blocks ``source`` and
``transaction``, are attributes with the prefix ``iodebezium``. An attribute is the name of its
field without the characters that attributes do not have, such as ``iodebeziumserverid``; 64-bit
numbers are text.

In the structured mode the value is the whole event. The binary mode, in which the value is ``data``
and the attributes are headers, is that of the Kafka protocol binding of CloudEvents 1.0.2
(https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md);
Debezium does not write it.
"""

import datetime as dt
import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent
from changelane.formats.contract import iso_times, json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.format import Report
from changelane.formats.debezium_envelope.blocks import FIELD_NAMES, FIELD_TYPES
from changelane.formats.debezium_envelope.details_check import Read, Write
from changelane.formats.debezium_envelope.rows.connect_schema import (
    UNSET,
    Blocks,
    Schema,
    parse,
    struct,
    unwrap,
)
from changelane.formats.debezium_envelope.source_block import integer
from changelane.message import Message
from changelane.reason_codes import ReasonCode

EXTENSION: Final = "iodebezium"
_OP: Final = EXTENSION + "op"
_CONNECTOR: Final = EXTENSION + "connector"
_HEADER: Final = "ce_"
_VERSION: Final = "specversion"
BINARY_HEADER: Final = _HEADER + _VERSION
"""The header that each event of the binary mode has."""
_TRANSACTION: Final = ("id", "total_order", "data_collection_order")
_IMAGES: Final = ("before", "after")
_INTEGERS: Final = frozenset({"int64", "int32"})
_MILLISECOND: Final = 1_000_000
_MAX_BLOCKS: Final = 1024
_MAX_PRODUCTS: Final = 16
_TIMES: Final = ("ts_ms", "ts_us", "ts_ns")
_FIELDS: Final = frozenset({*_IMAGES, "source", "transaction", "op", *_TIMES})
_NULL: Final = b"null"
USUAL_START: Final = b'{"id":"'
"""The start of events that Debezium writes, and of no message of its own."""
_OBJECT_OR_NULL: Final[Any] = dict[str, Any] | None

_IDS: Final[Mapping[str | None, tuple[str, ...]]] = {
    "postgresql": ("lsn", "txId", "sequence"),
    "mysql": ("file", "pos"),
    "mariadb": ("file", "pos"),
    "oracle": ("scn", "commit_scn", "lcr_position"),
    "sqlserver": ("change_lsn", "commit_lsn", "event_serial_no"),
    "db2": ("change_lsn", "commit_lsn"),
}
"""Product -> the source fields in the id of an event, from its class ``CloudEventsMaker``."""

Attributes = dict[str, Any]


class CloudEventsMode(StrEnum):
    """The form of written messages."""

    NONE = "none"
    """Debezium's own envelope."""
    STRUCTURED = "structured"
    """The value is the event with all its attributes."""
    BINARY = "binary"
    """The value is ``data``, and the attributes are headers."""


def _attribute(name: str) -> str:
    """Return the attribute of a source field.

    >>> _attribute("server_id"), _attribute("txId")
    ('iodebeziumserverid', 'iodebeziumtxId')
    """
    return EXTENSION + re.sub(r"[^A-Za-z0-9]", "", name)


_TRANSACTION_NAMES: Final = {_attribute("tx_" + name): name for name in _TRANSACTION}
_SOURCE_NAMES: Final = {
    # the documentation has names in lower case; `iodebeziumtxid` is the transaction's
    **{_attribute(name).lower(): name for name in FIELD_NAMES},
    **{_attribute(name): name for name in FIELD_NAMES},
}
_ANY_TYPES: Final = {name: kind for types in FIELD_TYPES.values() for name, kind in types.items()}


def _types_of(product: object) -> Mapping[str, str]:
    """Return the types of the source fields of a product."""
    return FIELD_TYPES.get(product, _ANY_TYPES) if isinstance(product, str) else _ANY_TYPES


# numbers with a fraction are in the data only, which is not decoded here
_attributes_of: Final = msgspec.json.Decoder(dict[str, Any], float_hook=str).decode
_time_text: Final = iso_times.writer(dt.UTC, digits=3, zulu=True)


class _Event(msgspec.Struct):
    """The part of a structured event that is not decoded further."""

    specversion: Any = None
    iodebeziumop: Any = None
    data: msgspec.Raw = msgspec.Raw()


_event_of: Final = msgspec.json.Decoder(_Event).decode
_DATA: Final = b',"data":'


class _DataBlock:
    """A schema of ``data``, and the schemas of envelopes with its images."""

    def __init__(self, block: bytes) -> None:
        self.is_rows = True
        self._schema = parse(block)
        self._envelopes: BoundedCache[str | None, bytes] = BoundedCache(_MAX_PRODUCTS)

    def envelope(self, product: str | None) -> bytes:
        """Return the schema of the envelope of a product, as JSON."""
        cached = self._envelopes.get(product)
        if cached is not None:
            return cached
        members = {member.member: member for member in self._schema.members}
        labels = [members[name].label for name in _IMAGES if name in members]
        base = next((label.removesuffix(".Value") for label in labels if label), "")
        source_name = f"{_CONNECTORS}{product}.Source" if product else UNSET
        source = struct((), name=source_name, field="source")
        envelope = struct(
            tuple(({"source": source} | members).values()),
            name=f"{base}.Envelope" if base else UNSET,
        )
        return self._envelopes.add(product, json.dumps(envelope))


_CONNECTORS: Final = "io.debezium.connector."
_NO_BLOCK: Final = _DataBlock(b'{"type":"struct"}')


class Unwrapper:
    """Finds the messages of a member in CloudEvents."""

    def __init__(self) -> None:
        self._blocks: Blocks[_DataBlock] = Blocks(_DataBlock)

    def unwrapped(self, message: Message) -> Message | None:
        """Return the message of the member in a CloudEvent; ``None`` if it is no such event.

        Raises:
            DecodeError: The message is a CloudEvent whose data or attributes cannot be read.
        """
        value = message.value
        if value is None:
            return None
        headers = message.headers
        attributes: Attributes
        if _is_binary(message):
            binary = {name: part for name, part in headers if name.startswith(_HEADER)}
            headers = tuple(header for header in headers if header[0] not in binary)
            attributes = {name.removeprefix(_HEADER): _text(part) for name, part in binary.items()}
            data = value
        else:
            if not is_structured(value):
                return None
            try:
                event = json.loads(value, _Event)
                attributes = _attributes_of(value)
            except (DecodeError, ValueError, RecursionError):
                return None  # the member raises the error
            if not isinstance(event.specversion, str) or _OP not in attributes:
                return None
            data = bytes(event.data)
        if not isinstance(attributes.get(_OP), str):
            path = f"$.{_OP}"
            raise DecodeError("no operation", code=ReasonCode.MISSING_FIELD, path=path)
        return Message(
            self._value(attributes, data),
            message.key,
            headers,
            message.topic,
            message.partition,
            message.offset,
            message.timestamp_ms,
        )

    def plain_value(self, value: bytes) -> bytes | None:
        """Return the value of the member's message in an event whose last attribute is its data.

        Data that the member rejects may be no JSON, which :meth:`unwrapped` rejects.

        Raises:
            Exception: The event has another form.
        """
        event = _event_of(value)
        data = bytes(event.data)
        end = len(value) - len(data) - len(_DATA) - 1
        if not value.startswith(_DATA + data, end):
            return None
        attributes = _attributes_of(value[:end] + b"}")
        is_event = isinstance(event.specversion, str) and isinstance(attributes[_OP], str)
        return self._value(attributes, data) if is_event else None

    def _value(self, attributes: Attributes, data: bytes) -> bytes:
        """Return the message of the member, from the attributes and the data of an event."""
        fields = json.dumps(_blocks_of(attributes))[:-1]
        found = self._blocks.find(data)
        if found is not None:
            plan, start = found
            return self._wrapped(plan, attributes, _joined(fields, data[start:-1]))

        def read(payload: bytes, block: bytes | None, plan: _DataBlock) -> bytes:
            joined = _joined(fields, payload)
            return joined if block is None else self._wrapped(plan, attributes, joined)

        return self._blocks.read(data, _NO_BLOCK, read)

    @staticmethod
    def _wrapped(plan: _DataBlock, attributes: Attributes, payload: bytes) -> bytes:
        product = attributes.get(_CONNECTOR)
        block = plan.envelope(product if isinstance(product, str) else None)
        return b'{"schema":' + block + b',"payload":' + payload + b"}"


def is_structured(value: bytes) -> bool:
    """Return whether a value may be a CloudEvent of Debezium: a fast check."""
    return b'"specversion"' in value and b'"iodebeziumop"' in value


def _is_binary(message: Message) -> bool:
    return any(name == BINARY_HEADER for name, _ in message.headers)


def _text(header: bytes | None) -> str | None:
    try:
        return None if header is None else header.decode()
    except UnicodeDecodeError:
        raise DecodeError("a header is not UTF-8", code=ReasonCode.INVALID_UTF8) from None


def _joined(fields: bytes, data: bytes) -> bytes:
    """Return one JSON object of two; the data of MariaDB is a whole envelope, which wins.

    Raises:
        DecodeError: The data is no object.
    """
    data = data.strip()
    if data.startswith(b'"'):
        reason = "the data is Avro of a schema registry: set data.serializer.type=json"
        raise DecodeError(reason, code=ReasonCode.WRONG_TYPE)
    if not data.startswith(b"{"):
        raise DecodeError("the data is no object", code=ReasonCode.WRONG_TYPE)
    rest = data[1:].lstrip()
    return fields + (b"" if rest == b"}" else b",") + rest


class _Place(NamedTuple):
    """The place of an attribute in Debezium's envelope."""

    attribute: str
    is_transaction: bool
    name: str
    is_number: bool


@lru_cache(maxsize=_MAX_BLOCKS)
def _places_of(product: str | None, attributes: tuple[str, ...]) -> tuple[_Place, ...]:
    """Return the places of the attributes that are fields of a block."""
    types = _types_of(product)
    places: list[_Place] = []
    for attribute in attributes:
        if not attribute.startswith(EXTENSION) or attribute == _OP:
            continue
        if (name := _TRANSACTION_NAMES.get(attribute)) is not None:
            places.append(_Place(attribute, is_transaction=True, name=name, is_number=name != "id"))
            continue
        name = _SOURCE_NAMES.get(attribute) or attribute.removeprefix(EXTENSION)
        is_number = types.get(name) in _INTEGERS
        places.append(_Place(attribute, is_transaction=False, name=name, is_number=is_number))
    return tuple(places)


def _blocks_of(attributes: Attributes) -> Attributes:
    """Return the fields of an envelope that are attributes: ``op``, ``source``, ``transaction``.

    Raises:
        DecodeError: An attribute of a number is none.
    """
    source: Attributes = {}
    transaction: Attributes = {}
    product = attributes.get(_CONNECTOR)
    places = _places_of(product if isinstance(product, str) else None, tuple(attributes))
    for attribute, is_transaction, name, is_number in places:
        value = attributes[attribute]
        if value is None:
            continue
        if is_number and type(value) is not int:
            value = integer(value, f"$.{attribute}")
        if is_transaction:
            transaction[name] = value
        else:
            source[name] = value
    return {"op": attributes[_OP], "source": source, "transaction": transaction or None}


def reading(unwrap_event: Callable[[Message], Message | None], read: Read) -> Read:
    """Return the function that reads a member's messages, also those in CloudEvents."""

    def read_event(message: Message) -> tuple[ChangeEvent, ...]:
        try:
            inner = unwrap_event(message)
        except DecodeError as error:
            is_attribute = error.path.startswith("$." + EXTENSION)
            raise error if is_attribute else _in_data(error, message) from None
        if inner is None:
            return read(message)
        try:
            return read(inner)
        except DecodeError as error:
            raise _in_data(error, message) from None

    def read_any(message: Message) -> tuple[ChangeEvent, ...]:
        value = message.value
        is_usual_event = value is not None and value.startswith(USUAL_START)
        if is_usual_event or (message.headers and _is_binary(message)):
            return read_event(message)
        try:
            return read(message)
        except DecodeError:
            # no member accepts an event of the structured mode: it has no field `op`
            if value is None or not is_structured(value):
                raise
        return read_event(message)

    return read_any


def _in_data(error: DecodeError, message: Message) -> DecodeError:
    """Return an error with the path in the event; in the binary mode the value is the data."""
    path, is_binary = error.path, _is_binary(message)
    for block, prefix in (("$.source.", ""), ("$.transaction.", "tx_")):
        for start in (block, block.replace("$", "$.payload", 1)):
            if path.startswith(start):
                path = "$." + _attribute(prefix + path.removeprefix(start))
                return DecodeError(error.reason, code=error.code, path=path)
    if not is_binary:
        path = path.replace("$", "$.data", 1)
    return DecodeError(error.reason, code=error.code, path=path)


def writing(mode: CloudEventsMode, write: Write) -> Write:
    """Return the function that writes a member's messages in a mode."""
    return write if mode is CloudEventsMode.NONE else _Wrapper(mode, write).write


class _Wrapper:
    """Writes the messages of a member as CloudEvents."""

    def __init__(self, mode: CloudEventsMode, write: Write) -> None:
        self._mode = mode
        self._write = write
        self._blocks: BoundedCache[tuple[bytes, object], bytes] = BoundedCache(_MAX_BLOCKS)

    def write(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Return the messages of an event; a tombstone is written as it is."""
        return tuple(
            message if message.value is None else self._wrapped(message, message.value, report)
            for message in self._write(event, report)
        )

    def _wrapped(self, message: Message, value: bytes, report: Report) -> Message:
        parts = unwrap(value)
        block, payload = (None, value) if parts is None else parts
        change = json.loads(payload, dict[str, msgspec.Raw])
        if not change.keys() <= _FIELDS:
            report(("details.envelope", "data has the images only"))
        if any(bytes(change.get(name, _NULL)) != _NULL for name in _TIMES):
            report(("process_time", "not written"))
        before, after = (bytes(change[name]) for name in _IMAGES)
        data = b'{"before":' + before + b',"after":' + after + b"}"
        source = json.loads(change["source"], dict[str, Any])
        if block is not None:
            schema = self._data_block(block, source.get("connector"))
            data = b'{"schema":' + schema + b',"payload":' + data + b"}"
        attributes = _context(source, data, message.key)
        attributes[_OP] = json.loads(change["op"], str)
        is_binary = self._mode is CloudEventsMode.BINARY
        attributes |= _source_attributes(source, report, is_text=is_binary)
        transaction = json.loads(change["transaction"], _OBJECT_OR_NULL)
        attributes |= _transaction_attributes(transaction or {}, report)
        if not is_binary:
            event = json.dumps(attributes | {"data": msgspec.Raw(data)})
            return msgspec.structs.replace(message, value=event)
        headers = [("content-type", b"application/json")]
        headers += [
            (_HEADER + name, part.encode() if isinstance(part, str) else json.dumps(part))
            for name, part in attributes.items()
            if part is not None and name != "datacontenttype"
        ]
        return msgspec.structs.replace(message, value=data, headers=(*message.headers, *headers))

    def _data_block(self, block: bytes, product: object) -> bytes:
        cached = self._blocks.get((block, product))
        if cached is not None:
            return cached
        images: tuple[Schema, ...] = tuple(
            member for member in parse(block).members if member.member in _IMAGES
        )
        name = f"{_CONNECTORS}{product}.Data" if product else UNSET
        return self._blocks.add((block, product), json.dumps(struct(images, name=name)))


def _context(source: Attributes, data: bytes, key: bytes | None) -> Attributes:
    """Return the attributes that every CloudEvent has, in the order of Debezium."""
    product, server, time_ms = (source.get(name) for name in ("connector", "name", "ts_ms"))
    kind = f"connector.{product}" if product else "connector"
    context: Attributes = {
        "id": _id(source, data, key),
        "source": "/".join(("", "debezium", *(str(part) for part in (product, server) if part))),
        _VERSION: "1.0",
        "type": f"io.debezium.{kind}.DataChangeEvent",
    }
    if isinstance(time_ms, int):
        with suppress(OverflowError):  # the time is optional
            context["time"] = _time_text(time_ms * _MILLISECOND)
    return context | {"datacontenttype": "application/json"}


def _source_attributes(source: Attributes, report: Report, *, is_text: bool) -> Attributes:
    """Return the attributes of a source block; *is_text*: all values are text."""
    attributes: Attributes = {}
    types = _types_of(source.get("connector"))
    for name, value in source.items():
        attribute, kind = _attribute(name), types.get(name)
        is_read = _SOURCE_NAMES.get(attribute, attribute.removeprefix(EXTENSION)) == name
        match value:
            case None | str():
                is_read = is_read and (value is None or kind not in _INTEGERS)
            case bool():
                is_read = is_read and not is_text
            case int():
                is_read = is_read and kind in _INTEGERS
                value = value if kind == "int32" else str(value)  # noqa: PLW2901 - its form
            case _:
                is_read, value = False, None  # noqa: PLW2901 - no attribute has its type
        if not is_read:
            report(("details.source", "a field that no attribute can express"))
        attributes[attribute] = value
    return attributes


def _transaction_attributes(transaction: Attributes, report: Report) -> Attributes:
    """Return the attributes of a transaction block; they are always written."""
    if not transaction.keys() <= set(_TRANSACTION):
        report(("details.transaction", "a field that no attribute can express"))
    values = {attribute: transaction.get(n) for attribute, n in _TRANSACTION_NAMES.items()}
    return {name: None if value is None else str(value) for name, value in values.items()}


def _id(source: Attributes, data: bytes, key: bytes | None) -> str:
    """Return the id of an event: Debezium's, or a digest if the event has no position."""
    names = _IDS.get(source.get("connector"), ())
    if all(source.get(name) is None for name in names):
        return hashlib.sha256((key or b"") + b"\0" + json.dumps(source) + data).hexdigest()
    parts = [f"name:{source.get('name') or 'null'}"]
    for name in names:
        value = source.get(name)
        parts.append(f"{name}:{'null' if value is None else value}")
    return ";".join(parts)
