# SPDX-License-Identifier: Apache-2.0
"""Writes everything that is no row change (B 1.1); :mod:`notices` reads it."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.event import (
    Control,
    LogicalMessage,
    SchemaChange,
    Source,
    TransactionMarker,
    Watermark,
)
from changelane.formats.debezium import blocks, ddl
from changelane.formats.debezium.connect import Schema, struct
from changelane.formats.debezium.forms import bytes_out
from changelane.formats.debezium.notices import OURS
from changelane.formats.debezium.options import Dialect
from changelane.formats.debezium.rawtext import FOREIGN, foreign, from_text, wrapped
from changelane.formats.debezium.sources import sanitised
from changelane.message import Message
from changelane.schema import TableId
from changelane.serdes import json

_NOTHING: Final[Mapping[str, Any]] = {}
_TEXTS: Final = Schema(
    "map", keys=Schema("string"), values=Schema("string"), field="additional_data"
)
_STATUS: Final = {"begin": "BEGIN", "commit": "END", "rollback": "ROLLBACK"}

Announcement = SchemaChange | TransactionMarker | Watermark | LogicalMessage | Control


class Announcer:
    """Writes events that are no row changes."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def encode(self, event: Announcement) -> tuple[Message, ...]:
        """Return the messages of an event."""
        match event:
            case SchemaChange():
                return () if "part" in event.details else (_schema_change(event),)
            case TransactionMarker():
                return (_transaction(event),)
            case Watermark():
                return (self._heartbeat(event),)
            case LogicalMessage():
                return (_message(event),)
            case Control():
                return (_control(event),)

    def _heartbeat(self, event: Watermark) -> Message:
        payload: dict[str, Any] = _process(event)
        if event.type != "heartbeat":
            payload["type"] = event.type
        payload.update(_told(event))
        key = {"serverName": event.source.server} if event.source.server is not None else None
        schema = blocks.notice(
            "common.Heartbeat", payload, "ts_ms:int64!", **_parts(event, payload)
        )
        topic = f"{self._dialect.heartbeat_prefix}.{event.source.server}"
        return _sent(event, payload, schema, key, blocks.HEARTBEAT_KEY, topic)


def _process(event: Announcement) -> dict[str, Any]:
    """Return the producer's clock: milliseconds, and more only where it told more."""
    times: Any = event.details.get("times", _NOTHING)
    found = blocks.times_of(event.process_time_ns, times)
    ns = event.process_time_ns
    if times or (ns is not None and ns % 1_000_000):  # a loss otherwise
        return {name: value for name, value in found.items() if value is not None}
    return {"ts_ms": found["ts_ms"]}


def _source(event: Any, table: TableId | None = None) -> dict[str, Any]:
    rest: Any = event.details.get("source", _NOTHING)
    return blocks.source_block(
        event.source, table or TableId(), event.position, event.source_time_ns, rest
    )


def _told(event: Watermark | TransactionMarker) -> dict[str, Any]:
    """Return a source block where Debezium writes none and there is something to say."""
    plain = Source(connector="debezium", server=event.source.server)
    if isinstance(event, TransactionMarker):
        plain = Source(connector="debezium")
        is_plain = event.process_time_ns is None
        time_ns = event.source_time_ns
        is_plain = is_plain and (time_ns is None or time_ns % 1_000_000 == 0)
    else:
        is_plain = event.source_time_ns is None
    if event.source == plain and event.position is None and is_plain:
        return {}
    return {"source": _source(event)}


def _parts(event: Announcement, payload: Mapping[str, Any]) -> dict[str, Schema]:
    if "source" not in payload:
        return {}
    return {"source": blocks.source_schema(event.source.product, payload["source"])}


def _sent(  # noqa: PLR0917 - one kind of call
    event: Announcement,
    payload: Mapping[str, Any],
    schema: Schema,
    key: Mapping[str, Any] | None,
    key_schema: Schema,
    topic: str,
) -> Message:
    is_wrapped = event.details.get("schemas") is True
    payload = {**payload, **foreign(event.details)}
    if FOREIGN in payload:
        field = blocks.guessed(FOREIGN, "")
        schema = msgspec.structs.replace(schema, fields=(*schema.members, field))
    block = json.dumps(schema) if is_wrapped else None
    if "key" in event.details:
        key_bytes = from_text(event.details["key"])
    elif key is None:
        key_bytes = None
    else:
        key_bytes = wrapped(json.dumps(key_schema) if is_wrapped else None, key)
    name = str(event.details.get("topic") or sanitised(topic))
    return Message(wrapped(block, payload), key_bytes, topic=name)


def _transaction(event: TransactionMarker) -> Message:
    told = _told(event)
    ns = event.source_time_ns
    payload: dict[str, Any] = {
        "status": _STATUS.get(event.status, event.status),
        "id": event.transaction.id,
        "event_count": event.transaction.size,
        "data_collections": event.details.get("data_collections"),
        "ts_ms": None if ns is None else ns // 1_000_000,
        **told,
    }
    for name in ("order", "table_order", "last"):
        if getattr(event.transaction, name) is not None:
            payload[name] = getattr(event.transaction, name)
    if event.process_time_ns is not None:
        payload["process_ts_ns"] = event.process_time_ns
    schema = blocks.notice(
        "common.TransactionMetadataValue",
        payload,
        "status! id! event_count:int64 ts_ms:int64!",
        data_collections=blocks.COLLECTIONS,
        **_parts(event, payload),
    )
    key = {"id": event.transaction.id}
    topic = f"{event.source.server or 'changelane'}.transaction"
    return _sent(event, payload, schema, key, blocks.TRANSACTION_KEY, topic)


def _message(event: LogicalMessage) -> Message:
    times = _process(event)
    more: Any = event.details.get("transaction", _NOTHING)
    product = event.source.product or "postgresql"
    payload: dict[str, Any] = {
        "op": "m",
        **times,
        "source": _source(event),
        "transaction": blocks.transaction_block(event.transaction, more),
        "message": {"prefix": event.prefix, "content": bytes_out(event.content)},
    }
    body = struct(
        blocks.MESSAGE, name=f"io.debezium.connector.{product}.Message", version=1, field="message"
    )
    schema = blocks.notice(
        f"{product}.MessageValue",
        payload,
        "op! ts_ms:int64 ts_us:int64 ts_ns:int64",
        transaction=blocks.transaction_schema(payload["transaction"]),
        message=body,
        **_parts(event, payload),
    )
    prefix = Schema("string", optional=True, field="prefix")
    key_schema = struct((prefix,), name=f"io.debezium.connector.{product}.MessageKey", version=1)
    topic = f"{event.source.server or 'changelane'}.message"
    return _sent(event, payload, schema, {"prefix": event.prefix}, key_schema, topic)


def _schema_change(event: SchemaChange) -> Message:
    details = event.details
    product = event.source.product or "changelane"
    is_told = "tableChanges" in details or "databaseName" in details
    database = details.get("databaseName") if is_told else event.table.database
    payload: dict[str, Any] = {
        "source": _source(event, None if is_told else event.table),
        **_process(event),
        "databaseName": database,
        "schemaName": details.get("schemaName") if is_told else event.table.schema,
        "ddl": event.ddl,
        "tableChanges": details.get("tableChanges") if is_told else ddl.described(event),
    }
    schema = blocks.notice(
        f"{product}.SchemaChangeValue",
        payload,
        "ts_ms:int64! databaseName schemaName ddl",
        tableChanges=blocks.TABLE_CHANGES,
        **_parts(event, payload),
    )
    key_schema = struct(
        (Schema("string", field="databaseName"),),
        name=f"io.debezium.connector.{product}.SchemaChangeKey",
        version=1,
    )
    topic = event.source.server or "changelane"
    return _sent(event, payload, schema, {"databaseName": database}, key_schema, topic)


def _control(event: Control) -> Message:
    """Write what Debezium said as it came, and what others said as a notification."""
    topic = event.details.get("topic")
    if event.details.get("raw") is True and event.text is not None:
        key = from_text(event.details.get("key"))
        return Message(event.text.encode(), key, topic=None if topic is None else str(topic))
    payload = {
        "id": event.type,
        "aggregate_type": OURS,
        "type": event.type,
        "additional_data": {} if event.text is None else {"text": event.text},
        **_process(event),
        "source": _source(event, event.table),
    }
    schema = blocks.notice(
        "common.Notification",
        payload,
        "id! aggregate_type! type! ts_ms:int64",
        additional_data=_TEXTS,
        **_parts(event, payload),
    )
    name = f"{event.source.server or OURS}.notification"
    return _sent(event, payload, schema, {"id": event.type}, blocks.TRANSACTION_KEY, name)
