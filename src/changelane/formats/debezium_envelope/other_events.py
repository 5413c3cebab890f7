# SPDX-License-Identifier: Apache-2.0
"""Decodes messages that are no row changes: heartbeats, transactions, schema changes, messages."""

import binascii
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.ddl import action_of
from changelane.errors import DecodeError
from changelane.event import (
    ChangeEvent,
    Control,
    LogicalMessage,
    SchemaChange,
    Source,
    Transaction,
    TransactionMarker,
    Watermark,
)
from changelane.formats.contract import json
from changelane.formats.debezium_envelope import source_block, table_descriptions
from changelane.formats.debezium_envelope.reported_ddl import DDL_PREFIX, reported_statement
from changelane.formats.debezium_envelope.rows.connect_schema import unwrap, unwrap_envelope
from changelane.formats.debezium_envelope.rows.json_values import bytes_in
from changelane.formats.debezium_envelope.rows.raw_json import as_text
from changelane.formats.debezium_envelope.rows.row_reader import RowPlan, decoder
from changelane.formats.debezium_envelope.rows.wire import TransactionBlock
from changelane.message import Message
from changelane.reason_codes import ReasonCode

TIMES: Final = ("ts_ms", "ts_us", "ts_ns")
MILLISECOND: Final = 1_000_000

Parts = Mapping[str, msgspec.Raw]

_HEARTBEAT: Final = frozenset(TIMES)

_ANY: Final = decoder(Any)
_PARTS: Final = decoder(dict[str, msgspec.Raw])
_OBJECT: Final = decoder(dict[str, Any] | None)
_TEXT: Final = decoder(str | None)


def loads(reader: msgspec.json.Decoder[Any], data: bytes | msgspec.Raw, path: str = "$") -> Any:
    """Decode JSON.

    Raises:
        DecodeError: The JSON cannot be decoded; the error has a path below *path*.
    """
    try:
        return reader.decode(data)
    except Exception as error:  # translated, and re-raised when not ours
        decode_error = json.translate(error)
        if not isinstance(decode_error, DecodeError):
            raise
        where = decode_error.path.replace("$", path, 1)
        raise DecodeError(decode_error.reason, code=decode_error.code, path=where) from None


def object_part(parts: Parts, name: str) -> dict[str, Any]:
    """Return an object that may be null or missing."""
    return loads(_OBJECT, parts[name], f"$.{name}") or {} if name in parts else {}


def text_part(parts: Parts, name: str) -> str:
    """Return a required text."""
    text = loads(_TEXT, parts[name], f"$.{name}") if name in parts else None
    if text is None:
        raise DecodeError("a field is missing", code=ReasonCode.MISSING_FIELD, path=f"$.{name}")
    return str(text)


def any_part(parts: Parts, name: str) -> Any:
    """Return any value; ``None`` if it is missing."""
    return loads(_ANY, parts[name], f"$.{name}") if name in parts else None


def integer_part(parts: Parts, name: str) -> int | None:
    """Return a whole number that may be null, missing or text."""
    return source_block.integer(any_part(parts, name), f"$.{name}")


def transaction_block(
    block: Mapping[str, Any], details: dict[str, object]
) -> TransactionBlock | None:
    """Return the transaction block of a message; numbers may be text."""
    if not block:
        return None
    extra_fields = {
        name: value
        for name, value in block.items()
        if name not in TransactionBlock.__struct_fields__ and value is not None
    }
    if extra_fields:
        details["transaction"] = extra_fields
    return TransactionBlock(
        source_block.text(block.get("id"), "$.transaction.id"),
        source_block.integer(block.get("total_order"), "$.transaction.total_order"),
        source_block.integer(
            block.get("data_collection_order"), "$.transaction.data_collection_order"
        ),
    )


def transaction_of(block: TransactionBlock | None) -> Transaction | None:
    """Return the position in a transaction; ``None`` if the block has no transaction id."""
    if block is None or block.id is None:
        return None
    return Transaction(block.id, block.total_order, block.data_collection_order)


_ENVELOPE_OPS: Final = frozenset("curdtm")
_TICDC: Final = "TiCDC"
_IMAGES: Final = frozenset({"before", "after", "source", "message"})
_SCHEMA_CHANGE: Final = frozenset({"source", "ddl", "tableChanges"})


def is_debezium(value: bytes) -> bool:
    """Return whether a message has the fields of Debezium, and of no other producer.

    Raises:
        DecodeError: The message is not a JSON object.
    """
    wrapped = unwrap_envelope(value)
    parts: Parts = loads(_PARTS, value if wrapped is None else wrapped[1])
    if "op" in parts:
        is_envelope = text_part(parts, "op").lower() in _ENVELOPE_OPS
        # native lines have the table beside the operation, Debezium has it in the source block;
        # the images of its connector for MongoDB are documents as text
        others = {"table", "updateDescription"}
        return is_envelope and others.isdisjoint(parts) and not _IMAGES.isdisjoint(parts)
    if "status" in parts:
        status = text_part(parts, "status").upper()
        return status in _STATUS and {"id", "ts_ms"} <= parts.keys()
    is_change = parts.keys() >= _SCHEMA_CHANGE and "position" not in parts
    return is_change or ("ts_ms" in parts and parts.keys() <= _HEARTBEAT)


def decode(
    message: Message, parts: Parts, block: bytes | None, plan: RowPlan, payload: bytes
) -> tuple[ChangeEvent, ...]:
    """Return the events of a message that is no row change.

    Raises:
        DecodeError: The message is not one of Debezium's.
    """
    label = plan.label
    details: dict[str, object] = {}
    if message.topic is not None:
        details["topic"] = message.topic
    if block is not None:
        details["schemas"] = True
    if "op" in parts:
        if text_part(parts, "op").lower() == "m":
            if "message" in parts:
                return (_message(message, parts, details),)
            if object_part(parts, "source").get("connector") == _TICDC:
                return (_resolved(message, parts, details),)
        return (_control("op:" + text_part(parts, "op"), message, payload, parts),)
    if "status" in parts and "id" in parts:
        marker = _transaction(message, parts, details)
        return (marker or _control("transaction", message, payload, parts),)
    if "ddl" in parts or "tableChanges" in parts:
        if "position" in parts:
            return (_control("schema_history", message, payload, {}),)
        return _schema_change(message, parts, details)
    if "ts_ms" in parts and (parts.keys() <= _HEARTBEAT or label.endswith(".Heartbeat")):
        return (_heartbeat(message, parts, details),)
    if label.startswith("io.debezium.") or "aggregate_type" in parts:
        kind = label.rpartition(".")[2] or "Notification"
        return (_control(kind, message, payload, {}),)
    raise DecodeError("not a message of Debezium", code=ReasonCode.UNKNOWN_KIND)


def _keep_key(
    message: Message, expected: Mapping[str, object] | None, details: dict[str, object]
) -> None:
    """Keep a key in the details if a writer would not produce it."""
    if message.key is None:
        if expected is not None:
            details["key"] = None
        return
    wrapped = unwrap(message.key)
    try:
        key = loads(_OBJECT, message.key if wrapped is None else wrapped[1])
    except DecodeError:
        key = None
    is_wrapped = wrapped is not None and wrapped[0] is not None
    if key != expected or is_wrapped is not details.get("schemas", False):
        details["key"] = as_text(message.key)


def _origin(
    parts: Parts, details: dict[str, object]
) -> tuple[source_block.TableOrigin, dict[str, Any]]:
    """Return the table origin, and the fields of the event that come from the source block.

    The table of the block is kept in *details*, because these events have no table.
    """
    fields = object_part(parts, "source")
    table_origin = source_block.table_origin(fields)
    position, other_fields = source_block.read(fields)
    integers = [source_block.integer(fields.get(name), f"$.source.{name}") for name in TIMES]
    time_ns, times = source_block.instant(*integers)
    other_fields.update(times or {})
    other_fields.update(table_origin.other_fields)
    for name in ("db", "schema", "table"):
        if fields.get(name) is not None:
            other_fields[name] = fields[name]
    if other_fields:
        details["source"] = other_fields
    return table_origin, {
        "position": position,
        "source": table_origin.source,
        "source_time_ns": time_ns,
    }


def _process_ns(parts: Parts, details: dict[str, object]) -> int | None:
    """Return the process time; usually these messages have milliseconds only."""
    ms, us, ns = (integer_part(parts, name) for name in TIMES)
    if ns is not None or us is not None:
        time_ns, times = source_block.instant(ms, us, ns)
        if times is not None:
            details["times"] = times
        return time_ns
    return None if ms is None else ms * MILLISECOND


def _message(
    message: Message, parts: Parts, details: dict[str, object]
) -> LogicalMessage | SchemaChange:
    body = object_part(parts, "message")
    prefix = source_block.text(body.get("prefix"), "$.message.prefix")
    content = source_block.text(body.get("content"), "$.message.content")
    try:
        data = bytes_in(content or "")
    except (binascii.Error, ValueError):
        path = "$.message.content"
        raise DecodeError("not Base64", code=ReasonCode.WRONG_TYPE, path=path) from None
    table_origin, origin = _origin(parts, details)
    block = transaction_block(object_part(parts, "transaction"), details)
    transaction = transaction_of(block)
    _keep_key(message, {"prefix": prefix}, details)
    if prefix == DDL_PREFIX and table_origin.source.product == "postgresql":
        statement = reported_statement(data, table_origin.table.database)
        if statement is not None:
            return SchemaChange(
                statement.table,
                action_of(statement.text, "postgresql"),
                statement.text,
                process_time_ns=_process_ns(parts, details),
                **origin,
            )
    return LogicalMessage(
        prefix or "",
        data,
        transaction=transaction,
        process_time_ns=_process_ns(parts, details),
        details=details,
        **origin,
    )


_STATUS: Final = {"BEGIN": "begin", "END": "commit"}


def _transaction(
    message: Message, parts: Parts, details: dict[str, object]
) -> TransactionMarker | None:
    status = _STATUS.get(text_part(parts, "status").upper())
    if status is None:
        return None
    identity = text_part(parts, "id")
    collections = any_part(parts, "data_collections")
    if collections is not None:
        details["data_collections"] = collections
    ms = integer_part(parts, "ts_ms")
    _keep_key(message, {"id": identity}, details)
    return TransactionMarker(
        status,
        Transaction(identity, size=integer_part(parts, "event_count")),
        source=Source(connector="debezium"),
        source_time_ns=None if ms is None else ms * MILLISECOND,
        details=details,
    )


def _heartbeat(message: Message, parts: Parts, details: dict[str, object]) -> Watermark:
    server = None
    if message.key is not None:
        wrapped = unwrap(message.key)
        try:
            key = loads(_OBJECT, message.key if wrapped is None else wrapped[1]) or {}
            server = source_block.text(key.get("serverName"), "$.serverName")
        except DecodeError:
            server = None
    _keep_key(message, None if server is None else {"serverName": server}, details)
    return Watermark(
        source=Source(connector="debezium", server=server),
        process_time_ns=_process_ns(parts, details),
        details=details,
    )


def _resolved(message: Message, parts: Parts, details: dict[str, object]) -> Watermark:
    """Return the event of TiCDC's ``WATERMARK``: all earlier changes are sent."""
    _, origin = _origin(parts, details)
    _keep_key(message, None, details)
    return Watermark(
        "resolved", process_time_ns=_process_ns(parts, details), details=details, **origin
    )


def _schema_change(
    message: Message, parts: Parts, details: dict[str, object]
) -> tuple[ChangeEvent, ...]:
    table_origin, origin = _origin(parts, details)
    database = source_block.text(any_part(parts, "databaseName"), "$.databaseName")
    schema = source_block.text(any_part(parts, "schemaName"), "$.schemaName")
    names = {"databaseName": database, "schemaName": schema}
    details.update({name: value for name, value in names.items() if value is not None})
    _keep_key(message, {"databaseName": database}, details)
    changes = any_part(parts, "tableChanges")
    if not isinstance(changes, list | None):
        raise DecodeError("not a list", code=ReasonCode.WRONG_TYPE, path="$.tableChanges")
    statement = source_block.text(any_part(parts, "ddl"), "$.ddl")
    origin["process_time_ns"] = _process_ns(parts, details)
    if changes is not None:
        details["tableChanges"] = changes
    return table_descriptions.events(table_origin, statement, changes or [], origin, details)


def _control(kind: str, message: Message, payload: bytes, parts: Parts) -> Control:
    """Return a control event with the whole message."""
    details: dict[str, object] = {"raw": True}
    if message.topic is not None:
        details["topic"] = message.topic
    if message.key is not None:
        details["key"] = as_text(message.key)
    table_origin = source_block.table_origin(
        object_part(parts, "source") if "source" in parts else {}
    )
    loads(_ANY, payload)
    return Control(
        kind,
        (message.value or b"").decode("utf-8"),
        table_origin.table,
        source=table_origin.source,
        details=details,
    )
