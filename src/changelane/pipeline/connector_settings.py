# SPDX-License-Identifier: Apache-2.0
"""Missing settings of a Debezium connector, derived from its messages and topics.

No message contains the connector's configuration, but its effects are visible: types, transactions,
before images, heartbeats, the topic of schema changes. Each finding names the missing setting;
``docs/debezium.md`` has complete configurations. The findings also list settings without visible
effects, which cannot be checked.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from changelane.codec import get_codec
from changelane.errors import DecodeError
from changelane.event import (
    ChangeEvent,
    DataChange,
    HalfUpdate,
    Op,
    SchemaChange,
    Truncate,
    Watermark,
)
from changelane.message import Message
from changelane.pipeline.config_checks import Finding, ok, warning
from changelane.schema import TableId, TableSchema
from changelane.types import UNAVAILABLE, Decimal, Float, Integer, LogicalType

FORMATS: Final = frozenset({"debezium-json", "debezium-flat-json"})
"""The formats that Debezium's connectors write."""
PAGE: Final = "docs/debezium.md"
_ENVELOPE: Final = "debezium-json"
_BINLOG: Final = frozenset({"mysql", "mariadb"})
_WITH_SCHEMA_TOPIC: Final = _BINLOG | {"oracle", "sqlserver", "db2"}
"""Products with a connector that writes DDL statements to a topic (PostgreSQL's does not)."""
_DECIMAL: Final = re.compile(r"(?:decimal|numeric|number|dec|fixed|money)\b", re.IGNORECASE)
_UNSIGNED_BIGINT: Final = re.compile(r"(?:bigint\b.*\bunsigned|serial)\b", re.IGNORECASE)
_CONNECT_TIMES: Final = re.compile(
    rb'"org\.apache\.kafka\.connect\.data\.(?:Timestamp|Time)"', re.ASCII
)
_MAX_NAMES: Final = 5


class Stream(msgspec.Struct):
    """The visible properties of the messages of one connector.

    Attributes:
        server: The connector's ``topic.prefix``; ``None`` if the messages do not contain it.
        product: The database, as events name it.
        rows: The number of row changes.
        untyped: The number of row changes without column types.
        streamed: The number of row changes from the log, not from a snapshot.
        without_transaction: The number of streamed changes that do not name their transaction.
        updates: The number of streamed updates.
        without_before: Tables with updates that have no before image.
        unavailable: Columns with unavailable values (TOAST, LOB).
        has_truncate: Whether a truncate is among the messages.
        has_heartbeat: Whether a heartbeat is among the messages.
        has_statement: Whether a schema change is among the messages.
        has_connect_times: Whether times have the types of Kafka Connect, with milliseconds only.
        schemas: The distinct schemas of each table in row changes.
        declared: The columns of each table in schema changes.
    """

    server: str | None = None
    product: str | None = None
    rows: int = 0
    untyped: int = 0
    streamed: int = 0
    without_transaction: int = 0
    updates: int = 0
    without_before: set[str] = msgspec.field(default_factory=set)
    unavailable: set[str] = msgspec.field(default_factory=set)
    has_truncate: bool = False
    has_heartbeat: bool = False
    has_statement: bool = False
    has_connect_times: bool = False
    schemas: dict[TableId, dict[str, TableSchema]] = msgspec.field(default_factory=dict)
    declared: dict[TableId, TableSchema] = msgspec.field(default_factory=dict)


def findings(
    source_format: str,
    messages: Iterable[Message],
    *,
    format_options: Mapping[str, Any] | None = None,
    read_topics: Collection[str] = (),
    topics: Collection[str] | None = None,
) -> Iterator[Finding]:
    """Yield findings about the settings of Debezium's connectors; none for other formats.

    Args:
        source_format: The format of the messages.
        messages: Some messages of the source.
        format_options: The format's options.
        read_topics: The topics that the pipeline reads.
        topics: All topics of the broker; ``None`` if unknown.
    """
    if source_format not in FORMATS:
        return
    for stream in streams(source_format, messages, format_options or {}):
        about = "Debezium" if stream.server is None else f"Debezium {stream.server}"
        defects = [*_type_defects(stream)]
        if source_format == _ENVELOPE:
            defects += [*_change_defects(stream), *_topic_defects(stream, read_topics, topics)]
        for text, fix in defects:
            yield warning(about, text, f"{fix} ({PAGE})")
        unseen = ", ".join(_unseen_settings(stream, topics))
        text = f"no {'other ' if defects else ''}defect in {stream.rows} rows"
        if unseen:
            text += f"; not visible in them: {unseen}; compare the connector with {PAGE}"
        yield ok(about, text)


def streams(
    source_format: str, messages: Iterable[Message], format_options: Mapping[str, Any]
) -> list[Stream]:
    """Return the properties of the messages of each connector; unreadable messages are skipped."""
    codec = get_codec(source_format, **format_options)
    by_server: dict[str | None, Stream] = {}
    for message in messages:
        try:
            events = codec.decode(message)
        except DecodeError:
            continue
        for event in events:
            change = event.change if isinstance(event, HalfUpdate) else event
            server = _server(change)
            if server is None and not isinstance(change, DataChange):
                continue
            stream = by_server.setdefault(server, Stream(server))
            _count_event(stream, change, is_half=isinstance(event, HalfUpdate))
            if isinstance(change, DataChange) and _CONNECT_TIMES.search(message.value or b""):
                stream.has_connect_times = True
    return [stream for stream in by_server.values() if stream.rows]


def _server(event: ChangeEvent) -> str | None:
    if isinstance(event, DataChange | SchemaChange | Truncate | Watermark):
        return event.source.server
    return None


def _count_event(stream: Stream, event: ChangeEvent, *, is_half: bool) -> None:
    """Count an event."""
    match event:
        case DataChange():
            stream.product = stream.product or event.source.product
            _count_row(stream, event, is_half=is_half)
        case SchemaChange():
            stream.has_statement = True
            if event.schema is not None:
                stream.declared[event.table] = event.schema
        case Truncate():
            stream.has_truncate = True
        case Watermark():
            stream.has_heartbeat = True
        case _:
            pass


def _count_row(stream: Stream, event: DataChange, *, is_half: bool) -> None:
    stream.rows += 1
    if event.schema is None:
        stream.untyped += 1
    else:
        stream.schemas.setdefault(event.table, {})[event.schema.id] = event.schema
    stream.unavailable.update(
        f"{event.table}.{name}"
        for name, value in (event.after or {}).items()
        if value is UNAVAILABLE
    )
    if event.op is Op.READ or event.source.snapshot is not None:
        return
    stream.streamed += 1
    stream.without_transaction += event.transaction is None
    if event.op is Op.UPDATE and not is_half:
        stream.updates += 1
        if event.before is None:
            stream.without_before.add(str(event.table))


# -- defects: a sentence, and the missing setting


def _type_defects(stream: Stream) -> Iterator[tuple[str, str]]:
    """Yield defects of the types of columns."""
    if stream.untyped:
        text = f"{stream.untyped} of {stream.rows} rows have no column types: columns become text"
        yield text, "set value.converter.schemas.enable=true and key.converter.schemas.enable=true"
    if doubles := _columns(stream, _DECIMAL, lambda kind: isinstance(kind, Float)):
        text = f"decimals arrive as floating-point numbers, which are not exact: {doubles}"
        yield text, "set decimal.handling.mode=precise"
    if signed := _columns(stream, _UNSIGNED_BIGINT, lambda kind: kind == Integer(64)):
        text = f"unsigned numbers from 2^63 on arrive as negative numbers: {signed}"
        yield text, "set bigint.unsigned.handling.mode=precise"
    if stream.has_connect_times:
        text = "times have milliseconds only: further digits are cut off"
        yield text, "remove time.precision.mode=connect from the connector"


def _change_defects(stream: Stream) -> Iterator[tuple[str, str]]:
    """Yield defects of row changes."""
    if stream.without_transaction:
        text = (
            f"{stream.without_transaction} of {stream.streamed} changes have no position in their "
            "transaction"
        )
        yield text, "set provide.transaction.metadata=true"
    is_postgres = stream.product == "postgresql"
    if stream.without_before:
        text = f"updates have no before image: {_shortened(stream.without_before)}"
        fix = "set binlog_row_image=FULL in the database"
        if is_postgres:
            fix = "ALTER TABLE ... REPLICA IDENTITY FULL for tables without a primary key"
        yield text, fix
    if stream.unavailable:
        text = (
            "unchanged large values are not sent, and tables keep their stored values: "
            f"{_shortened(stream.unavailable)}"
        )
        fix = "set lob.enabled=true for Oracle"
        if is_postgres:
            fix = "ALTER TABLE ... REPLICA IDENTITY FULL if keys change or no snapshot was read"
        yield text, fix


def _topic_defects(
    stream: Stream, read_topics: Collection[str], topics: Collection[str] | None
) -> Iterator[tuple[str, str]]:
    """Yield defects of the other topics."""
    server = stream.server
    if topics is None or server is None:
        return
    has_heartbeat_topic = any(
        "heartbeat" in name and name.endswith(f".{server}") for name in topics
    )
    if not stream.has_heartbeat and not has_heartbeat_topic:
        text = (
            "there is no heartbeat topic: while tables do not change, the database keeps its log, "
            "or deletes the part at the connector's offset"
        )
        yield text, "set heartbeat.interval.ms=10000"
    if (
        stream.product in _WITH_SCHEMA_TOPIC
        and not stream.has_statement
        and server not in read_topics
    ):
        if server in topics:
            text = f"topic {server} contains the schema changes, but the pipeline does not read it"
            yield text, f"add {server} to source.topics"
        else:
            text = f"there is no topic {server} of schema changes: renames and drops stay unknown"
            yield text, f"set include.schema.changes=true, and add {server} to source.topics"


def _unseen_settings(stream: Stream, topics: Collection[str] | None) -> Iterator[str]:
    """Yield the settings without visible effects in messages and topics."""
    if not stream.has_truncate:
        yield "skipped.operations=none"
    if not _knows_source_types(stream):
        if stream.product in _BINLOG:
            yield "bigint.unsigned.handling.mode=precise"
        if not _has_decimals(stream):
            yield "decimal.handling.mode=precise"
    if not stream.streamed:
        yield "provide.transaction.metadata=true (all rows are from a snapshot)"
    if topics is None and not stream.has_heartbeat:
        yield "heartbeat.interval.ms"
    if topics is None and stream.product in _WITH_SCHEMA_TOPIC and not stream.has_statement:
        yield "include.schema.changes=true"


def _has_decimals(stream: Stream) -> bool:
    schemas = (schema for versions in stream.schemas.values() for schema in versions.values())
    return any(isinstance(column.type, Decimal) for schema in schemas for column in schema.columns)


def _knows_source_types(stream: Stream) -> bool:
    """Whether one of the messages contains the types of the database."""
    schemas = (schema for versions in stream.schemas.values() for schema in versions.values())
    has_texts = any(column.source_type for schema in schemas for column in schema.columns)
    return has_texts or any(table in stream.declared for table in stream.schemas)


def _columns(
    stream: Stream, source_type: re.Pattern[str], is_wrong: Callable[[LogicalType], bool]
) -> str:
    """Return the columns of a database type that have a wrong type; empty if there are none."""
    names: set[str] = set()
    for table, schemas in stream.schemas.items():
        declared = stream.declared.get(table)
        for schema in schemas.values():
            for column in schema.columns:
                text = column.source_type or _declared_type(declared, column.name)
                if text and source_type.match(text) and is_wrong(column.type):
                    names.add(f"{table}.{column.name}")
    return _shortened(names)


def _declared_type(declared: TableSchema | None, name: str) -> str | None:
    column = None if declared is None else declared.by_name.get(name)
    return None if column is None else column.source_type


def _shortened(names: Collection[str]) -> str:
    """Return some of the names as text."""
    shown = sorted(names)[:_MAX_NAMES]
    hidden_count = len(names) - len(shown)
    return ", ".join(shown) + (f" and {hidden_count} more" if hidden_count else "")
