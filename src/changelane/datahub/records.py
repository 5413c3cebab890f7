# SPDX-License-Identifier: Apache-2.0
"""Converts events to records of DataHub's topics, with their topics, fields and hash keys.

"TUPLE: one table to one topic. BLOB: one database (multiple tables) to one topic"
(https://www.alibabacloud.com/help/en/dataworks/user-guide/message-formats). Both are sharded by
primary key; without a primary key, TUPLE records are sharded at random and BLOB records by table
name. DataHub does not document the hash; it is that of the profile ``datahub``.
"""

import decimal
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from changelane.codec import Codec, Encoded, get_codec
from changelane.conversion.destinations import DestinationError, Origin, with_sequence
from changelane.datahub.service import Service, Topic
from changelane.datahub.shard_writer import Patience, Record
from changelane.errors import ConfigError, EncodeError
from changelane.event import ChangeEvent, DataChange, HalfUpdate, SchemaChange, Truncate
from changelane.formats.contract import json
from changelane.formats.datahub import topic_schema as tuple_topic
from changelane.message import Message
from changelane.pipeline.datahub_sink import Create, DataHubSink, is_topic
from changelane.pipeline.topic_sink import PLACEHOLDER
from changelane.profiles.datahub import (
    hash_of,
    key_columns,
    key_text,
    row_before,
    row_of_blob,
)
from changelane.profiles.profile import table_of
from changelane.profiles.row_values import row_of
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId, TableSchema

MOST_STRING_BYTES: Final = 2 * 1024 * 1024
"""The maximum size of a text (https://www.alibabacloud.com/help/en/datahub/limits)."""
MOST_RECORD_BYTES: Final = 2_900_000
"""The maximum size of a record: a request has at most 4 MB, and Base64 adds a third."""

_WITHOUT_RECORD: Final = {
    "datahub-tuple": frozenset({"watermark", "transaction", "control", "tombstone", "schema"}),
    "datahub-blob": frozenset({"tombstone"}),
}
"""Events without a record: "TUPLE topics do not support forwarding DDL messages or heartbeat
messages". A truncate is not among them: TUPLE topics reject it."""
_NON_ROW_EVENTS: Final = frozenset({"watermark", "transaction", "control"})


class TopicRecord(NamedTuple):
    """A record and its topic; a broadcast record is written to each shard."""

    topic: str
    record: Record
    is_broadcast: bool = False


class _TopicFields(NamedTuple):
    """The fields of a TUPLE topic, and the table schemas that fit them."""

    text: str
    types: Mapping[str, str]
    required: frozenset[str]
    time_column: str
    codecs: dict[TableId, Codec]
    fitting_schemas: set[TableSchema]


class Records:
    """Converts events to records, in their order.

    Args:
        sink: The options of the sink.
        service: The project.
        patience: The retries of its calls.
        owners: Topic (lower case) -> its table (:func:`owner`), as far as known.

    Attributes:
        owners: The argument, with the topics and tables of this object.
    """

    def __init__(
        self,
        sink: DataHubSink,
        service: Service,
        patience: Patience,
        owners: Mapping[str, str] = {},
    ) -> None:
        self.owners = dict(owners)
        self._sink = sink
        self._service = service
        self._patience = patience
        drops = _WITHOUT_RECORD[sink.format]
        self._drops = drops | _NON_ROW_EVENTS if sink.non_row_events == "drop" else drops
        self._encode: Callable[..., tuple[Encoded, list[TopicRecord]]]
        if sink.format == "datahub-tuple":
            self._encode = self._tuple_records
        else:
            self._encode = partial(
                self._blob_records, get_codec(sink.format, **sink.format_options)
            )
        self._topics: dict[str, _TopicFields | DestinationError] = {}
        self._records: list[TopicRecord] = []

    def take_records(self) -> list[TopicRecord]:
        """Return the records since the last call."""
        records, self._records = self._records, []
        return records

    def __call__(self, event: ChangeEvent, origin: Origin, topic: str | None) -> Encoded:
        """Convert an event; a :data:`~changelane.conversion.partition.Deliver`.

        Args:
            event: The event.
            origin: The origin of the event.
            topic: The topic of a route, which has priority.

        Raises:
            EncodeError: The event cannot be encoded, or has no topic.
        """
        kind = str(event.__struct_config__.tag)
        if kind in self._drops:
            return Encoded((), ((f"event:{kind}", f"{self._sink.format} does not write it"),))
        event = with_sequence(event, origin)
        encoded, topic_records = self._encode(event, origin, topic)
        for message in topic_records:
            if message.record.size > MOST_RECORD_BYTES:
                raise DestinationError(
                    ReasonCode.RECORD_TOO_LARGE, "the record is larger than DataHub allows"
                )
        self._records += topic_records
        return encoded

    # -- BLOB

    def _blob_records(
        self, codec: Codec, event: ChangeEvent, origin: Origin, topic: str | None
    ) -> tuple[Encoded, list[TopicRecord]]:
        if topic is not None:
            raise DestinationError(
                ReasonCode.TWO_TOPICS, "datahub-blob has one topic for all tables"
            )
        encoded = codec.encode(event, on_loss=self._sink.on_loss)
        topic_records: list[TopicRecord] = []
        for message in encoded.messages:
            value = message.value or b""
            text = self._text_of_blob(event, message)
            record = Record(value, len(value), 0 if text is None else hash_of(text), "", origin)
            # events without a table keep their order, too: a transaction ends after its begin
            record = record._replace(order="" if text is None else f"k{text}")
            is_broadcast = text is None and self._sink.non_row_events == "broadcast"
            topic_records.append(TopicRecord(self._sink.topic, record, is_broadcast))
        return encoded, topic_records

    def _text_of_blob(self, event: ChangeEvent, message: Message) -> str | None:
        change = event.change if isinstance(event, HalfUpdate) else event
        if isinstance(change, DataChange) and (columns := key_columns(self._sink.keys, change)):
            return key_text(change, row_of_blob(change, message), columns)
        table = table_of(event)
        return str(table) if table.name else None

    # -- TUPLE

    def _tuple_records(
        self, event: ChangeEvent, origin: Origin, topic: str | None
    ) -> tuple[Encoded, list[TopicRecord]]:
        if isinstance(event, Truncate):
            raise DestinationError(ReasonCode.TRUNCATE, "datahub-tuple cannot represent a truncate")
        if isinstance(event, HalfUpdate | SchemaChange) or not isinstance(event, DataChange):
            raise DestinationError(ReasonCode.NO_ROW, "datahub-tuple cannot represent it")
        name = _topic_name(self._sink.topic, event.table) if topic is None else topic
        if not is_topic(name):
            # without the characters that DataHub does not allow, two names could be equal
            words = "the name of its table is not allowed in a topic name: set a topic with a route"
            raise DestinationError(ReasonCode.NO_TOPIC_NAME, words)
        self._check_owner(name, event.table)
        fields = self._fields(name, event.schema)
        _check_fit(name, fields, event)
        codec = fields.codecs.get(event.table)
        if codec is None:
            options = {"topic_schema": fields.text, "time_column": fields.time_column}
            codec = get_codec("datahub-tuple", **options, table=_table_option(event.table))
            fields.codecs[event.table] = codec
        columns = key_columns(self._sink.keys, event)
        # rows do not contain the key columns, and the hash key is computed here
        encoded = codec.encode(msgspec.structs.replace(event, key=None), on_loss=self._sink.on_loss)
        source = origin.message
        identity = f"{source.topic}-{source.partition}-{source.offset}-{origin.number}"
        topic_records: list[TopicRecord] = []
        for message in encoded.messages:
            row = json.loads(message.value or b"", dict[str, Any])
            content = tuple(
                _field_value(field, kind, row.get(field)) for field, kind in fields.types.items()
            )
            if any(content[n] is None for n, f in enumerate(fields.types) if f in fields.required):
                raise EncodeError(f"a NOT NULL column of topic {name} has no value")
            if columns:
                is_before = row[tuple_topic.BEFORE] == "Y"
                image = row_before(event) if is_before else row_of(event)
                text = key_text(event, image, columns)
            else:
                # "Random sharding"; both rows of an update have one shard, in each attempt
                text = identity
            record = Record(content, _size(content), hash_of(text), text, origin)
            topic_records.append(TopicRecord(name, record))
        return encoded, topic_records

    def _check_owner(self, topic: str, table: TableId) -> None:
        """Reject a second table for a topic ("one table to one topic"): rows name no database.

        Raises:
            DestinationError: The topic has another table; DataHub compares names without case.
        """
        own_table = owner(table)
        topic_owner = self.owners.setdefault(topic.lower(), own_table)
        if topic_owner != own_table:
            raise DestinationError(
                ReasonCode.TWO_TABLES, two_tables(topic, {topic_owner, own_table})
            )

    def _fields(self, name: str, schema: TableSchema | None) -> _TopicFields:
        """Return the fields of a topic, which is created if the sink allows it.

        Raises:
            DestinationError: The topic does not exist, or is not a TUPLE topic.
        """
        fields = self._topics.get(name)
        if fields is None:
            try:
                fields = self._open(name, schema)
            except DestinationError as error:
                if error.code == ReasonCode.NO_SCHEMA:
                    raise  # a later event may have a schema
                fields = error
            self._topics[name] = fields
        if isinstance(fields, DestinationError):
            raise DestinationError(fields.code, fields.reason)
        return fields

    def _open(self, name: str, schema: TableSchema | None) -> _TopicFields:
        topic = self._topic(name)
        if topic is None:
            create = self._sink.create
            if create is None:
                words = f"there is no topic {name}: create it, or set sink.create"
                raise DestinationError(ReasonCode.NO_TOPIC, words)
            if schema is None:
                words = f"there is no topic {name}, and the events have no types to create it from"
                raise DestinationError(ReasonCode.NO_SCHEMA, words)
            new_topic = Topic("TUPLE", _topic_schema(schema, self._sink))
            create_topic(self._service, self._patience, name, new_topic, create)
            # another task may have created it with other columns
            topic = self._topic(name) or new_topic
        if topic.kind != "TUPLE" or topic.schema is None:
            raise DestinationError(
                ReasonCode.WRONG_TOPIC, f"topic {name} is a BLOB topic, not a TUPLE topic"
            )
        return _fields_of(name, topic.schema)

    def _topic(self, name: str) -> Topic | None:
        return self._patience.call(f"topic {name}", lambda: self._service.topic(name))


def owner(table: TableId) -> str:
    """Return an unambiguous text of a table name."""
    return msgspec.json.encode([table.database, table.schema, table.name]).decode()


def two_tables(topic: str, owners: Iterable[str]) -> str:
    """Return the error text for several tables of one topic, with the fix."""
    return (
        f"topic {topic} can have one table only, not {' and '.join(sorted(owners))} (database, "
        "schema, table): use {database}, {schema} and {table} in the topic, or merge the tables "
        "with a route"
    )


def create_topic(
    service: Service, patience: Patience, name: str, topic: Topic, create: Create
) -> None:
    """Create a topic, unless it exists.

    Raises:
        DeliveryError: The service does not create it.
    """
    patience.call(
        f"topic {name}",
        lambda: service.create(name, topic, shards=create.shards, days=create.days),
    )


def _topic_name(template: str, table: TableId) -> str:
    def part(match: re.Match[str]) -> str:
        parts = {"database": table.database, "schema": table.schema, "table": table.name}
        if (name := parts[match.group(1)]) is None:
            words = f"the event has no {match.group(1)}, which is a part of its topic's name"
            raise DestinationError(ReasonCode.NO_TOPIC_NAME, words)
        return name

    return PLACEHOLDER.sub(part, template)


def _table_option(table: TableId) -> str:
    """Return a table as an option of the format; empty if its name contains dots."""
    parts = [part for part in (table.database, table.schema, table.name) if part is not None]
    has_all_parts = table.schema is None or table.database is not None
    return ".".join(parts) if has_all_parts and not any("." in part for part in parts) else ""


def _topic_schema(schema: TableSchema, sink: DataHubSink) -> str:
    column = str(sink.format_options.get("time_column", tuple_topic.TIME))
    names = [column.name.lower() for column in schema.columns]
    if len(set(names)) < len(names):
        words = "the names of two columns differ only by case, which DataHub does not allow"
        raise DestinationError(ReasonCode.TOPIC_SCHEMA, words)
    try:
        return tuple_topic.topic_schema(schema, time_column=column)
    except ConfigError as error:
        raise DestinationError(ReasonCode.TOPIC_SCHEMA, str(error)) from None


def _fields_of(name: str, text: str) -> _TopicFields:
    try:
        tuple_topic.table_schema(text)  # raises for unknown types
        fields = json.loads(text.encode(), tuple_topic.TopicPart).fields
    except ConfigError as error:
        raise DestinationError(ReasonCode.WRONG_TOPIC, f"topic {name}: {error}") from None
    types = {field.name: field.type.upper() for field in fields}
    times = [name for name in (tuple_topic.TIME, tuple_topic.OTHER_TIME) if name in types]
    needed = [tuple_topic.SEQUENCE, tuple_topic.OPERATION, tuple_topic.BEFORE, tuple_topic.AFTER]
    if missing := [name for name in needed if name not in types]:
        words = (
            f"topic {name} has no column {missing[0]}, which datahub-tuple requires: set "
            "sink.create, or create the topic with the columns of datahub-tuple"
        )
        raise DestinationError(ReasonCode.WRONG_TOPIC, words)
    required = frozenset(field.name for field in fields if field.notnull)
    return _TopicFields(text, types, required, times[0] if times else tuple_topic.TIME, {}, set())


def _check_fit(name: str, fields: _TopicFields, event: DataChange) -> None:
    """Reject a row with columns that the topic lacks: a topic has "a fixed schema".

    Raises:
        DestinationError: The topic cannot contain a column; the error names the fix.
    """
    advice = (
        "a topic's schema is fixed: append the column to the topic (DataHub allows nullable "
        "columns), remove it with a transform, or write to a new topic"
    )
    schema = event.schema
    names = {*(event.before or {}), *(event.after or {})}
    if schema is not None and schema not in fields.fitting_schemas:
        expected_types = {
            field.name: field.type
            for field in json.loads(_columns_schema(schema).encode(), tuple_topic.TopicPart).fields
        }
        for column in schema.columns:
            topic_type = fields.types.get(column.name)
            if topic_type is None:
                names.add(column.name)
            elif topic_type != expected_types[column.name] and not _is_wider(
                topic_type, expected_types[column.name]
            ):
                words = (
                    f"column {column.name!r} is {expected_types[column.name]} and topic {name} "
                    f"has {topic_type}: "
                    f"{advice}"
                )
                raise DestinationError(ReasonCode.TOPIC_SCHEMA, words)
        if names <= fields.types.keys():
            fields.fitting_schemas.add(schema)
    if missing := sorted(names - fields.types.keys()):
        raise DestinationError(
            ReasonCode.TOPIC_SCHEMA, f"topic {name} has no column {missing[0]!r}: {advice}"
        )


def _columns_schema(schema: TableSchema) -> str:
    try:
        return tuple_topic.topic_schema(schema)
    except ConfigError as error:
        raise DestinationError(ReasonCode.TOPIC_SCHEMA, str(error)) from None


_INTEGERS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")


def _is_wider(topic_type: str, column_type: str) -> bool:
    """Whether a field may contain values of another type, each of which is checked at the write."""
    if topic_type == "STRING":
        return True
    if column_type in _INTEGERS:
        return topic_type in _INTEGERS or topic_type == "DECIMAL"
    return (topic_type, column_type) in {("FLOAT", "DOUBLE"), ("DOUBLE", "FLOAT")}


def _field_value(name: str, kind: str, value: Any) -> Any:
    """Convert a JSON value of a row to a value for DataHub's client.

    Raises:
        EncodeError: The value is not of the field's type.
    """
    if value is None:
        return None
    if name in {tuple_topic.TIME, tuple_topic.OTHER_TIME} and type(value) is int:
        # the format has milliseconds; the topic may have another type
        value = {"STRING": str(value), "TIMESTAMP": value * 1000}.get(kind, value)
    try:
        match kind:
            case "STRING":
                return _string(name, value)
            case "DOUBLE" | "FLOAT":
                return float(value)
            case "DECIMAL":
                return decimal.Decimal(value)
            case "BOOLEAN" if type(value) is bool:
                return value
            case _ if kind != "BOOLEAN" and type(value) is int:
                return value
    except (ValueError, ArithmeticError, TypeError):
        pass
    raise EncodeError(f"the value of column {name!r} is not a {kind}")


def _string(name: str, value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    # raises for a lone surrogate
    if len(value.encode()) > MOST_STRING_BYTES:
        raise DestinationError(
            ReasonCode.RECORD_TOO_LARGE, f"column {name!r} has a text of more than 2 MB"
        )
    return value


def _size(content: tuple[Any, ...]) -> int:
    """Return the approximate size of a row in a request, in bytes."""
    return sum(8 + (len(value.encode()) if type(value) is str else 24) for value in content)
