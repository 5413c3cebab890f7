# SPDX-License-Identifier: Apache-2.0
"""Events to records for DataHub's topics: which topic, which fields, which hash key.

"TUPLE: one table to one topic. BLOB: one database (multiple tables) to one topic"; both are sharded
by primary key, without one at random and by table name (seed 003). The hash is not published: it is
that of the profile ``datahub``.
"""

import decimal
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from changelane.codec import Codec, Encoded, get_codec
from changelane.conversion.partition import DestinationError, Origin
from changelane.datahub.service import Service, Topic
from changelane.datahub.shard_writer import Patience, Record
from changelane.errors import ConfigError, EncodeError
from changelane.event import ChangeEvent, DataChange, HalfUpdate, SchemaChange, Truncate
from changelane.formats.contract import json
from changelane.formats.datahub import topic_schema as tuple_topic
from changelane.message import Message
from changelane.pipeline.datahub_sink import Create, DataHubSink, is_topic
from changelane.pipeline.topic_sink import PLACEHOLDER
from changelane.position import SequencePosition
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
"""The longest text of a field (https://www.alibabacloud.com/help/en/datahub/limits)."""
MOST_RECORD_BYTES: Final = 2_900_000
"""The largest record: the body of a request has 4 MB, of which Base64 makes a third more."""

_PARTITION_BITS: Final = 12
_EVENT_BITS: Final = 11
_OFFSET_BITS: Final = 63 - _PARTITION_BITS - _EVENT_BITS

_NO_ROWS: Final = {
    "datahub-tuple": frozenset({"watermark", "transaction", "control", "tombstone", "schema"}),
    "datahub-blob": frozenset({"tombstone"}),
}
"""Events that leave no record: "TUPLE topics do not support forwarding DDL messages or heartbeat
messages" (seed 003). A truncation is no such event: it is refused where it cannot be told."""
_NOTICES: Final = frozenset({"watermark", "transaction", "control"})


class Placed(NamedTuple):
    """A record for a topic; without a hash key it goes to each shard."""

    topic: str
    record: Record
    to_each: bool = False


class _Fields(NamedTuple):
    """What is known of a TUPLE topic: its fields, and which schemas of tables fit it."""

    text: str
    types: Mapping[str, str]
    required: frozenset[str]
    time_column: str
    codecs: dict[TableId, Codec]
    fitting: set[TableSchema]


class Records:
    """Makes records of events, in their order.

    Args:
        sink: The topics.
        service: Tells of them, and creates them where the sink says so.
        patience: Waits for it.
        owners: The tables of topics, as :func:`owner` tells them, by the topics' names in lower
            case: others are known already.

    Attributes:
        owners: The same, with those that came.
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
        drops = _NO_ROWS[sink.format]
        self._drops = drops | _NOTICES if sink.non_row_events == "drop" else drops
        self._make: Callable[..., tuple[Encoded, list[Placed]]]
        if sink.format == "datahub-tuple":
            self._make = self._rows
        else:
            self._make = partial(self._blobs, get_codec(sink.format, **sink.format_options))
        self._topics: dict[str, _Fields | DestinationError] = {}
        self._made: list[Placed] = []

    def take(self) -> list[Placed]:
        """Return the records that were made since it was called last."""
        records, self._made = self._made, []
        return records

    def __call__(self, event: ChangeEvent, origin: Origin, topic: str | None) -> Encoded:
        """Make the records of an event; this is a :data:`~changelane.conversion.partition.Deliver`.

        Args:
            event: The event.
            origin: Where it came from.
            topic: A topic that a route told, which goes first.

        Raises:
            EncodeError: It has none, or they have no place.
        """
        kind = str(event.__struct_config__.tag)
        if kind in self._drops:
            return Encoded((), ((f"event:{kind}", f"{self._sink.format} does not write it"),))
        event = numbered(event, origin)
        encoded, placed = self._make(event, origin, topic)
        for message in placed:
            if message.record.size > MOST_RECORD_BYTES:
                raise DestinationError(
                    ReasonCode.RECORD_TOO_LARGE, "a record is larger than DataHub takes"
                )
        self._made += placed
        return encoded

    # -- BLOB

    def _blobs(
        self, codec: Codec, event: ChangeEvent, origin: Origin, topic: str | None
    ) -> tuple[Encoded, list[Placed]]:
        if topic is not None:
            raise DestinationError(
                ReasonCode.TWO_TOPICS, "one topic of datahub-blob takes all tables"
            )
        encoded = codec.encode(event, on_loss=self._sink.on_loss)
        placed: list[Placed] = []
        for message in encoded.messages:
            value = message.value or b""
            text = self._text_of_blob(event, message)
            record = Record(value, len(value), 0 if text is None else hash_of(text), "", origin)
            # what is about no table keeps its order, too: a transaction ends after it began
            record = record._replace(order="" if text is None else f"k{text}")
            to_each = text is None and self._sink.non_row_events == "broadcast"
            placed.append(Placed(self._sink.topic, record, to_each))
        return encoded, placed

    def _text_of_blob(self, event: ChangeEvent, message: Message) -> str | None:
        change = event.change if isinstance(event, HalfUpdate) else event
        if isinstance(change, DataChange) and (columns := key_columns(self._sink.keys, change)):
            return key_text(change, row_of_blob(change, message), columns)
        table = table_of(event)
        return str(table) if table.name else None

    # -- TUPLE

    def _rows(
        self, event: ChangeEvent, origin: Origin, topic: str | None
    ) -> tuple[Encoded, list[Placed]]:
        if isinstance(event, Truncate):
            raise DestinationError(
                ReasonCode.TRUNCATE, "datahub-tuple cannot tell that a table was truncated"
            )
        if isinstance(event, HalfUpdate | SchemaChange) or not isinstance(event, DataChange):
            raise DestinationError(ReasonCode.NO_ROW, "datahub-tuple has no row for it")
        name = _named(self._sink.topic, event.table) if topic is None else topic
        if not is_topic(name):
            # two names must not become one by leaving out what DataHub does not allow
            words = "its names cannot stand in the name of a topic: give it one by a route"
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
        # which columns are the key is told by no row, and the shards are chosen here
        encoded = codec.encode(msgspec.structs.replace(event, key=None), on_loss=self._sink.on_loss)
        source = origin.message
        identity = f"{source.topic}-{source.partition}-{source.offset}-{origin.number}"
        placed: list[Placed] = []
        for message in encoded.messages:
            row = json.loads(message.value or b"", dict[str, Any])
            content = tuple(
                _typed(field, kind, row.get(field)) for field, kind in fields.types.items()
            )
            if any(content[n] is None for n, f in enumerate(fields.types) if f in fields.required):
                raise EncodeError(f"a column of topic {name} that takes no NULL has none")
            if columns:
                is_before = row[tuple_topic.BEFORE] == "Y"
                image = row_before(event) if is_before else row_of(event)
                text = key_text(event, image, columns)
            else:
                # "Random sharding"; the two rows of an update stay together, in each attempt
                text = identity
            record = Record(content, _size(content), hash_of(text), text, origin)
            placed.append(Placed(name, record))
        return encoded, placed

    def _check_owner(self, topic: str, table: TableId) -> None:
        """Refuse a second table for a topic: "One table to one topic", whose rows name no database.

        Raises:
            PlaceError: It is one. Names that differ in upper and lower case are one for DataHub.
        """
        own_table = owner(table)
        topic_owner = self.owners.setdefault(topic.lower(), own_table)
        if topic_owner != own_table:
            raise DestinationError(
                ReasonCode.TWO_TABLES, two_tables(topic, {topic_owner, own_table})
            )

    def _fields(self, name: str, schema: TableSchema | None) -> _Fields:
        """Return what is known of a topic, which is created where the sink says so.

        Raises:
            PlaceError: There is no such topic, or it is none for rows.
        """
        fields = self._topics.get(name)
        if fields is None:
            try:
                fields = self._open(name, schema)
            except DestinationError as error:
                if error.code == ReasonCode.NO_SCHEMA:
                    raise  # a later event may tell it
                fields = error
            self._topics[name] = fields
        if isinstance(fields, DestinationError):
            raise DestinationError(fields.code, fields.reason)
        return fields

    def _open(self, name: str, schema: TableSchema | None) -> _Fields:
        topic = self._ask(name)
        if topic is None:
            create = self._sink.create
            if create is None:
                words = f"there is no topic {name}: create it, or give sink.create"
                raise DestinationError(ReasonCode.NO_TOPIC, words)
            if schema is None:
                words = f"there is no topic {name}, and the events tell no types to create it by"
                raise DestinationError(ReasonCode.NO_SCHEMA, words)
            new_topic = Topic("TUPLE", _topic_schema(schema, self._sink))
            create_topic(self._service, self._patience, name, new_topic, create)
            # another task may have been first, with other columns
            topic = self._ask(name) or new_topic
        if topic.kind != "TUPLE" or topic.schema is None:
            raise DestinationError(
                ReasonCode.WRONG_TOPIC, f"topic {name} is a BLOB topic, and takes no rows"
            )
        return _fields_of(name, topic.schema)

    def _ask(self, name: str) -> Topic | None:
        return self._patience.call(f"topic {name}", lambda: self._service.topic(name))


def owner(table: TableId) -> str:
    """Return a table as text that is its own, whatever stands in its names."""
    return msgspec.json.encode([table.database, table.schema, table.name]).decode()


def two_tables(topic: str, owners: Iterable[str]) -> str:
    """Return why a topic cannot take the rows of several tables, and the way out."""
    return (
        f"topic {topic} takes one table, and rows of {' and '.join(sorted(owners))} (database, "
        "schema, table) go there: name topics by {database}, {schema} and {table}, or make the "
        "tables one by a route"
    )


def create_topic(
    service: Service, patience: Patience, name: str, topic: Topic, create: Create
) -> None:
    """Create a topic, unless it is there.

    Raises:
        DeliveryError: The service does not create it.
    """
    patience.call(
        f"topic {name}",
        lambda: service.create(name, topic, shards=create.shards, days=create.days),
    )


def numbered(event: ChangeEvent, origin: Origin) -> ChangeEvent:
    """Return an event with a sequence: its own, else one made of where its message lies.

    "_sequence_id_: A unique message ID of the STRING type, consisting of digits" (seed 003). From
    its highest bit on it holds 40 bits of the offset, 12 of the partition and 11 of the number of
    the event in its message: it rises with the offset, is the same in each attempt, and fits into
    64 bits.

    Raises:
        PlaceError: The numbers do not fit.
    """
    change = event.change if isinstance(event, HalfUpdate) else event
    if not isinstance(change, DataChange | SchemaChange | Truncate):
        return event
    if isinstance(change.position, SequencePosition) or isinstance(event, HalfUpdate):
        return event
    offset, partition, index = origin.message.offset, origin.message.partition, origin.number
    if offset is None or partition is None or index is None:
        return event
    parts = ((offset, _OFFSET_BITS), (partition, _PARTITION_BITS), (index, _EVENT_BITS))
    value = 0
    for number, bits in parts:
        if not 0 <= number < 1 << bits:
            raise DestinationError(
                ReasonCode.SEQUENCE, "its coordinates are too large for a sequence"
            )
        value = value << bits | number
    return msgspec.structs.replace(event, position=SequencePosition(value))


def _named(template: str, table: TableId) -> str:
    def part(match: re.Match[str]) -> str:
        parts = {"database": table.database, "schema": table.schema, "table": table.name}
        if (name := parts[match.group(1)]) is None:
            words = f"the event tells no {match.group(1)}, which names its topic"
            raise DestinationError(ReasonCode.NO_TOPIC_NAME, words)
        return name

    return PLACEHOLDER.sub(part, template)


def _table_option(table: TableId) -> str:
    """Return a table as the format's option tells it; none where its names have dots."""
    parts = [part for part in (table.database, table.schema, table.name) if part is not None]
    is_told = table.schema is None or table.database is not None
    return ".".join(parts) if is_told and not any("." in part for part in parts) else ""


def _topic_schema(schema: TableSchema, sink: DataHubSink) -> str:
    column = str(sink.format_options.get("time_column", tuple_topic.TIME))
    names = [column.name.lower() for column in schema.columns]
    if len(set(names)) < len(names):
        words = "its columns differ in upper and lower case only, which DataHub's fields cannot"
        raise DestinationError(ReasonCode.TOPIC_SCHEMA, words)
    try:
        return tuple_topic.topic_schema(schema, time_column=column)
    except ConfigError as error:
        raise DestinationError(ReasonCode.TOPIC_SCHEMA, str(error)) from None


def _fields_of(name: str, text: str) -> _Fields:
    try:
        tuple_topic.table_schema(text)  # a type that is not known is refused here
        fields = json.loads(text.encode(), tuple_topic.TopicPart).fields
    except ConfigError as error:
        raise DestinationError(ReasonCode.WRONG_TOPIC, f"topic {name}: {error}") from None
    types = {field.name: field.type.upper() for field in fields}
    times = [name for name in (tuple_topic.TIME, tuple_topic.OTHER_TIME) if name in types]
    needed = [tuple_topic.SEQUENCE, tuple_topic.OPERATION, tuple_topic.BEFORE, tuple_topic.AFTER]
    if missing := [name for name in needed if name not in types]:
        words = (
            f"topic {name} has no column {missing[0]}, without which rows do not tell changes: "
            "let sink.create make the topic, or create it with the columns of datahub-tuple"
        )
        raise DestinationError(ReasonCode.WRONG_TOPIC, words)
    required = frozenset(field.name for field in fields if field.notnull)
    return _Fields(text, types, required, times[0] if times else tuple_topic.TIME, {}, set())


def _check_fit(name: str, fields: _Fields, event: DataChange) -> None:
    """Refuse a row whose columns the topic does not have: "a fixed schema" (seed 003).

    Raises:
        PlaceError: It names the column and the way out.
    """
    way_out = (
        "a topic's schema is fixed: append the column to the topic (DataHub takes columns that may "
        "be NULL), leave it out by a transform, or write to a new topic"
    )
    schema = event.schema
    names = {*(event.before or {}), *(event.after or {})}
    if schema is not None and schema not in fields.fitting:
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
                    f"{way_out}"
                )
                raise DestinationError(ReasonCode.TOPIC_SCHEMA, words)
        if names <= fields.types.keys():
            fields.fitting.add(schema)
    if missing := sorted(names - fields.types.keys()):
        raise DestinationError(
            ReasonCode.TOPIC_SCHEMA, f"topic {name} has no column {missing[0]!r}: {way_out}"
        )


def _columns_schema(schema: TableSchema) -> str:
    try:
        return tuple_topic.topic_schema(schema)
    except ConfigError as error:
        raise DestinationError(ReasonCode.TOPIC_SCHEMA, str(error)) from None


_INTEGERS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")


def _is_wider(topic_type: str, column_type: str) -> bool:
    """Say whether a field may hold values of another type: each is checked when it is written."""
    if topic_type == "STRING":
        return True
    if column_type in _INTEGERS:
        return topic_type in _INTEGERS or topic_type == "DECIMAL"
    return (topic_type, column_type) in {("FLOAT", "DOUBLE"), ("DOUBLE", "FLOAT")}


def _typed(name: str, kind: str, value: Any) -> Any:
    """Return a value of a row, as its JSON has it, as DataHub's client takes it.

    Raises:
        EncodeError: It does not fit.
    """
    if value is None:
        return None
    if name in {tuple_topic.TIME, tuple_topic.OTHER_TIME} and type(value) is int:
        # the format has milliseconds; topics may have been made with other types
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
    raise EncodeError(f"column {name!r} holds no {kind}")


def _string(name: str, value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    # half a surrogate pair, which is no Unicode, fails here
    if len(value.encode()) > MOST_STRING_BYTES:
        raise DestinationError(
            ReasonCode.RECORD_TOO_LARGE, f"column {name!r} has a text of more than 2 MB"
        )
    return value


def _size(content: tuple[Any, ...]) -> int:
    """Return about how many bytes a row has in a request."""
    return sum(8 + (len(value.encode()) if type(value) is str else 24) for value in content)
