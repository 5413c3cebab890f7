# SPDX-License-Identifier: Apache-2.0
"""Encodes events that are no row changes; :mod:`other_events` decodes them."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.event import (
    Control,
    LogicalMessage,
    SchemaChange,
    TransactionMarker,
    Watermark,
)
from changelane.formats.contract import json
from changelane.formats.contract.format import Report
from changelane.formats.debezium_envelope import blocks, table_descriptions
from changelane.formats.debezium_envelope.other_events import MILLISECOND
from changelane.formats.debezium_envelope.rows.connect_schema import Schema, struct
from changelane.formats.debezium_envelope.rows.json_values import bytes_out
from changelane.formats.debezium_envelope.rows.raw_json import from_text, wrapped
from changelane.formats.debezium_envelope.source_block import sanitised
from changelane.message import Message
from changelane.schema import TableId

_NOTHING: Final[Mapping[str, Any]] = {}
_STATUS: Final = {"begin": "BEGIN", "commit": "END"}

_HEARTBEAT_PREFIX: Final = "__debezium-heartbeat"

OtherEvent = SchemaChange | TransactionMarker | Watermark | LogicalMessage | Control


def encode(event: OtherEvent, report: Report) -> tuple[Message, ...]:
    """Return the messages of an event; none if Debezium has no such message."""
    match event:
        case SchemaChange():
            return () if "part" in event.details else (_schema_change(event, report),)
        case TransactionMarker() if event.status in _STATUS:
            return (_transaction(event, report),)
        case Watermark() if event.type == "heartbeat":
            return (_heartbeat(event, report),)
        case LogicalMessage():
            return (_message(event, report),)
        case Control() if event.details.get("raw") is True and event.text is not None:
            return (_control(event, event.text),)
        case TransactionMarker() | Watermark() | Control():
            kind = event.__struct_config__.tag
            report((f"event:{kind}", "Debezium has no such message"))
            return ()


def _heartbeat(event: Watermark, report: Report) -> Message:
    _report_origin(event, report, written_details=("connector", "server"))
    payload = _process(event, report)
    key = {"serverName": event.source.server} if event.source.server is not None else None
    schema = blocks.message_schema(
        "common.Heartbeat", payload, "ts_ms:int64!", **_parts(event, payload)
    )
    topic = _joined(_HEARTBEAT_PREFIX, event.source.server)
    return _sent(event, payload, schema, key, blocks.HEARTBEAT_KEY, topic)


def _joined(*parts: str | None) -> str:
    """Return the name of a topic, without its unknown parts."""
    return ".".join(part for part in parts if part)


def _process(event: OtherEvent, report: Report) -> dict[str, Any]:
    """Return the process time: milliseconds, and finer fields only if the message had them."""
    times: Any = event.details.get("times", _NOTHING)
    time_fields = blocks.times_of(event.process_time_ns, times)
    if times:
        return {name: value for name, value in time_fields.items() if value is not None}
    return {"ts_ms": _millis("process_time", event.process_time_ns, report)}


def _millis(field: str, ns: int | None, report: Report) -> int | None:
    if ns is None:
        return None
    if ns % MILLISECOND:
        report((field, "cut to ms"))
    return ns // MILLISECOND


def _source(event: Any, table: TableId | None = None) -> dict[str, Any]:
    other_fields: Any = event.details.get("source", _NOTHING)
    return blocks.source_block(
        event.source, table or TableId(), event.position, event.source_time_ns, other_fields
    )


def _report_origin(
    event: Watermark | TransactionMarker, report: Report, *, written_details: tuple[str, ...]
) -> None:
    """Report the content of a source block as lost, for a message without one."""
    for name in event.source.__struct_fields__:
        if name not in written_details and getattr(event.source, name) is not None:
            report((f"source.{name}", "the message has no source block"))
    if event.position is not None:
        report(("position", "the message has no source block"))
    if isinstance(event, Watermark) and event.source_time_ns is not None:
        report(("source_time", "the message has no source block"))


def _parts(event: OtherEvent, payload: Mapping[str, Any]) -> dict[str, Schema]:
    if "source" not in payload:
        return {}
    return {"source": blocks.source_schema(event.source.product, payload["source"])}


def _sent(  # noqa: PLR0917 - one kind of call
    event: OtherEvent,
    payload: Mapping[str, Any],
    schema: Schema,
    key: Mapping[str, Any] | None,
    key_schema: Schema,
    topic: str,
) -> Message:
    is_wrapped = event.details.get("schemas") is True
    block = json.dumps(schema) if is_wrapped else None
    if "key" in event.details:
        key_bytes = from_text(event.details["key"])
    elif key is None:
        key_bytes = None
    else:
        key_bytes = wrapped(json.dumps(key_schema) if is_wrapped else None, key)
    name = str(event.details.get("topic") or sanitised(topic))
    return Message(wrapped(block, payload), key_bytes, topic=name or None)


def _transaction(event: TransactionMarker, report: Report) -> Message:
    _report_origin(event, report, written_details=("connector",))
    for name in ("order", "table_order", "last"):
        if getattr(event.transaction, name) is not None:
            report((f"transaction.{name}", "a marker does not have it"))
    if event.process_time_ns is not None:
        report(("process_time", "a marker does not have it"))
    payload: dict[str, Any] = {
        "status": _STATUS[event.status],
        "id": event.transaction.id,
        "event_count": event.transaction.size,
        "data_collections": event.details.get("data_collections"),
        "ts_ms": _millis("source_time", event.source_time_ns, report),
    }
    schema = blocks.message_schema(
        "common.TransactionMetadataValue",
        payload,
        "status! id! event_count:int64 ts_ms:int64!",
        data_collections=blocks.COLLECTIONS,
        **_parts(event, payload),
    )
    key = {"id": event.transaction.id}
    topic = _joined(event.source.server, "transaction")
    return _sent(event, payload, schema, key, blocks.TRANSACTION_KEY, topic)


def _message(event: LogicalMessage, report: Report) -> Message:
    blocks.report_position(event.position, report)
    if event.transaction is not None and event.transaction.size is not None:
        report(("transaction.size", "a message does not have it"))
    times = _process(event, report)
    extra_fields: Any = event.details.get("transaction", _NOTHING)
    product = event.source.product or "postgresql"
    payload: dict[str, Any] = {
        "op": "m",
        **times,
        "source": _source(event),
        "transaction": blocks.transaction_block(event.transaction, extra_fields),
        "message": {"prefix": event.prefix, "content": bytes_out(event.content)},
    }
    body = struct(
        blocks.MESSAGE, name=f"io.debezium.connector.{product}.Message", version=1, field="message"
    )
    schema = blocks.message_schema(
        f"{product}.MessageValue",
        payload,
        "op! ts_ms:int64 ts_us:int64 ts_ns:int64",
        transaction=blocks.transaction_schema(payload["transaction"]),
        message=body,
        **_parts(event, payload),
    )
    prefix = Schema("string", optional=True, field="prefix")
    key_schema = struct((prefix,), name=f"io.debezium.connector.{product}.MessageKey", version=1)
    topic = _joined(event.source.server, "message")
    return _sent(event, payload, schema, {"prefix": event.prefix}, key_schema, topic)


def _schema_change(event: SchemaChange, report: Report) -> Message:
    blocks.report_position(event.position, report)
    details = event.details
    product = event.source.product
    is_debezium = "tableChanges" in details or "databaseName" in details
    database = details.get("databaseName") if is_debezium else event.table.database
    payload: dict[str, Any] = {
        "source": _source(event, None if is_debezium else event.table),
        **_process(event, report),
        "databaseName": database,
        "schemaName": details.get("schemaName") if is_debezium else event.table.schema,
        "ddl": event.ddl,
        "tableChanges": details.get("tableChanges")
        if is_debezium
        else table_descriptions.table_changes(event, report),
    }
    schema = blocks.message_schema(
        None if product is None else f"{product}.SchemaChangeValue",
        payload,
        "ts_ms:int64! databaseName schemaName ddl",
        tableChanges=blocks.TABLE_CHANGES,
        **_parts(event, payload),
    )
    key_schema = struct((Schema("string", field="databaseName"),))
    if product is not None:
        name = f"io.debezium.connector.{product}.SchemaChangeKey"
        key_schema = msgspec.structs.replace(key_schema, name=name, version=1)
    topic = event.source.server or ""
    return _sent(event, payload, schema, {"databaseName": database}, key_schema, topic)


def _control(event: Control, text: str) -> Message:
    """Return a message of Debezium as it was received."""
    topic = event.details.get("topic")
    key = from_text(event.details.get("key"))
    return Message(text.encode(), key, topic=None if topic is None else str(topic))
