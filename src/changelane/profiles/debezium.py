# SPDX-License-Identifier: Apache-2.0
"""``debezium``: the profile of Debezium's connectors in Kafka Connect.

Sources: https://debezium.io/documentation/reference/stable/ and the classes
``AbstractTopicNamingStrategy``, ``HeartbeatImpl`` and ``EventDispatcher`` of debezium/debezium;
captured messages of Debezium 3.5 and 3.6 in ``tests/golden``.

The format itself determines the topics of tables, the keys, the tombstones, and the messages of a
key change with their headers: delete, tombstone and create.
"""

from functools import lru_cache, partial
from typing import Final

import msgspec

from changelane.errors import EncodeError
from changelane.event import (
    ChangeEvent,
    DataChange,
    HalfUpdate,
    LogicalMessage,
    SchemaChange,
    Source,
    Tombstone,
    TransactionMarker,
    Truncate,
    Watermark,
)
from changelane.formats.debezium_envelope.source_block import topic_of
from changelane.message import Message
from changelane.profiles.partitioners import with_key_partition
from changelane.profiles.profile import Formats, PartitionsOf, Profile

__all__ = ["FORMATS", "Options", "make"]

FORMATS: Final[Formats] = {
    "debezium-json": {},
    "debezium-flat-json": {},
    "debezium-mongodb-json": {},
}

_KEY_CHANGE: Final = "__debezium.newkey", "__debezium.oldkey"
_CONTEXT: Final = "__debezium.context."

Headers = tuple[tuple[str, bytes | None], ...]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the profile ``debezium``; most have Debezium's own names.

    Attributes:
        topic_prefix: ``topic.prefix``, for events that do not name their server.
        topic_transaction: ``topic.transaction``: the suffix of the topic of transactions.
        run_id: The id of the connector's run. If it is set, messages of tables and schema changes
            have the headers ``__debezium.context.*``, as in Debezium 3.
        task_id: The connector's task, for the headers.
    """

    topic_prefix: str | None = None
    topic_transaction: str = "transaction"
    run_id: str | None = None
    task_id: str = "0"


def _with_server(options: Options, event: ChangeEvent) -> tuple[ChangeEvent, ...]:
    """Return an event with its server, the prefix of topic and schema names."""
    prefix = options.topic_prefix
    match event:
        case HalfUpdate():
            (change,) = _with_server(options, event.change)
            return (msgspec.structs.replace(event, change=change),)
        case DataChange() | Truncate() | SchemaChange() | LogicalMessage() | Watermark():
            if event.source.server is not None or _has_topic(event):
                return (event,)
            if prefix is None:
                raise EncodeError(
                    "the event has no server, the prefix of its topic's name: set the option "
                    "topic_prefix of profile debezium"
                )
            return (msgspec.structs.replace(event, source=_source_of_server(event.source, prefix)),)
        case Tombstone() if prefix and _is_foreign(event, prefix):
            return ()
        case Tombstone() if event.table.name and prefix and "topic" not in event.details:
            topic = topic_of(Source(server=prefix), event.table)
            return (msgspec.structs.replace(event, details={**event.details, "topic": topic}),)
    return (event,)


def _is_foreign(event: Tombstone, prefix: str) -> bool:
    """Whether a tombstone of another producer names no table.

    Such a tombstone is dropped: a tombstone with the table follows its delete.
    """
    topic = event.details.get("topic")
    return topic is not None and not str(topic).startswith(f"{prefix}.")


@lru_cache(maxsize=1024)
def _source_of_server(source: Source, server: str) -> Source:
    """Return a source with its server; cached, so that all events have the same object."""
    return msgspec.structs.replace(source, server=server)


def _has_topic(event: ChangeEvent) -> bool:
    """Whether an event is from Debezium and has the topic that it was read from."""
    if isinstance(event, SchemaChange | LogicalMessage | Watermark | TransactionMarker):
        return event.source.connector == "debezium" and "topic" in event.details
    return False


def _place(
    options: Options, event: ChangeEvent, message: Message, partitions_of: PartitionsOf
) -> tuple[Message, ...]:
    placed = message
    if isinstance(event, TransactionMarker) and not _has_topic(event):
        server = event.source.server or options.topic_prefix
        topic = None if server is None else f"{server}.{options.topic_transaction}"
        placed = msgspec.structs.replace(placed, topic=topic)
    if options.run_id is not None:
        headers = _with_context(options, event, message.headers)
        placed = msgspec.structs.replace(placed, headers=headers)
    if isinstance(event, Watermark | SchemaChange):
        # heartbeats and schema changes have partition 0, whatever their key
        return (msgspec.structs.replace(placed, partition=0),)
    return (with_key_partition(placed, partitions_of),)


def _with_context(options: Options, event: ChangeEvent, headers: Headers) -> Headers:
    """Return headers with the connector's headers after those of a key change."""
    source: Source | None = None
    match event:
        case HalfUpdate():
            source = event.change.source
        case DataChange() | Truncate() | SchemaChange():
            source = event.source
        case Tombstone():
            source = Source()
    if source is None or any(name.startswith(_CONTEXT) for name, _ in headers):
        return headers
    context = {
        "connectorLogicalName": source.server or options.topic_prefix,
        "taskId": options.task_id,
        "connectorName": source.product,
        "runId": options.run_id,
    }
    context_headers = tuple(
        (_CONTEXT + name, text.encode()) for name, text in context.items() if text is not None
    )
    key_change_headers = tuple(pair for pair in headers if pair[0] in _KEY_CHANGE)
    return (
        key_change_headers
        + context_headers
        + tuple(pair for pair in headers if pair[0] not in _KEY_CHANGE)
    )


def make(options: Options) -> Profile:
    """Return the profile."""
    return Profile(
        name="debezium",
        formats=FORMATS,
        split=partial(_with_server, options),
        place=partial(_place, options),
        tombstones=True,
        null_keys=True,  # a table without a primary key has null keys
    )
