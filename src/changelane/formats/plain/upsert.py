# SPDX-License-Identifier: Apache-2.0
"""``plain-json``: the row is the value, the key the message key, null is a delete.

Product: topics that Flink's connector ``upsert-kafka`` writes with the format ``json`` or
``avro-confluent``
(https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/upsert-kafka/), and
other compacted topics of that shape. Version studied: that page, and the pages of the formats.

Sample (the message key is ``{"id":106}``)::

    {"id":106,"name":"hammer","weight":1}

Choices: a row is an update without a before image, which may be an insert: messages do not tell
the two apart. The message key is required, because it identifies the row. A message in Avro is the
JSON message with a schema block that Connect would have written, so both have one reader.

Known gaps: messages name no table, in JSON they have no types, and keys that are no objects are not
read; see ``docs/formats/plain-json.md``.
"""

from typing import Any, Final

import msgspec

from changelane.errors import DecodeError, EncodeError
from changelane.event import (
    NO_SOURCE,
    ChangeEvent,
    Completeness,
    DataChange,
    Image,
    Key,
    Op,
)
from changelane.formats.contract import json
from changelane.formats.contract.capabilities import AbsentMeans, Carries, Extreme, SchemaDetail
from changelane.formats.contract.declared_tables import DeclaredTable
from changelane.formats.contract.format import Format, Report
from changelane.formats.debezium_envelope.registry.avro_styles import AvroStyle
from changelane.formats.debezium_envelope.registry.options import Serde, SerdeOptions
from changelane.formats.debezium_envelope.registry.registry_format import with_serde
from changelane.formats.plain.connect_rows import ConnectRows, ConnectWriter, TypedRow
from changelane.formats.plain.lanes import upsert_lanes
from changelane.formats.plain.tables import (
    FORMS,
    TYPES,
    WRAPPED,
    Keys,
    Row,
    Tables,
    load_row,
    typed,
    with_key,
)
from changelane.message import Message
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId, TableSchema
from changelane.types import LogicalType, Unknown

__all__ = ["Options", "make"]

# module names, because a look-up in the enum class is as slow as reading a number
_UPDATE: Final = Op.UPDATE
_FULL: Final = Completeness.FULL
_UNKNOWN: Final = Completeness.UNKNOWN
_NULL: Final = b"null"
_TYPED: Final[dict[str, Any]] = {
    "schema": SchemaDetail.FULL,
    "column_flags": True,
    "types": frozenset(LogicalType.__subclasses__()) - {Unknown},
    "forms": frozenset(),
    "extremes": frozenset({Extreme.NON_FINITE, Extreme.TEMPORAL_TEXT}),
}
"""The capabilities of rows with a schema."""
_ADDED: Final = "__"
"""The start of the names of columns that other producers add to rows."""


class Options(SerdeOptions, frozen=True, kw_only=True):
    """Options of ``plain-json``, beside those of its serde.

    Attributes:
        table: The table of all messages, such as ``shop.orders``. Empty = the name of the topic.
        schemas: Table (or its last parts) -> column -> type text, with `` key`` after it for a
            column of the key of rows without a message key.
    """

    table: str = ""
    schemas: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class Plain:
    """The format ``plain-json``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._tables = Tables(options.table, options.schemas)
        self._keys = Keys()
        self._connect_rows = ConnectRows()
        has_types = options.serde is not Serde.JSON
        self._typed_writer = ConnectWriter() if has_types else None
        self.lanes: Final = None if has_types else upsert_lanes(self._tables, self._keys)
        carries = Carries(
            operations=frozenset(Op),
            absent_means=AbsentMeans.NULL,
            types=TYPES,
            forms=FORMS,
            key=True,
            requires_key=True,
            table=frozenset(self._tables.parts),
        )
        if self._typed_writer is not None:
            carries = msgspec.structs.replace(carries, **_TYPED)
        self.carries: Final = carries

    def __reduce__(self) -> tuple[object, ...]:
        return (Plain, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message with one row, or with the key of a deleted row."""
        table, declared = self._tables.of(message.topic)
        found = self._keys.read(message.key)
        key, key_row = (None, {}) if found is None else found
        typed_key = self._typed_key(message.key)
        if not message.value or message.value == _NULL:  # RisingWave writes an empty value for null
            if key is None:
                reason = "neither a row nor a key that is a JSON object"
                raise DecodeError(reason, code=ReasonCode.NO_KEY)
            return (_delete(table, key, key_row, typed_key, declared),)
        typed_row = self._connect_rows.read(message.value)
        declared_key = None if declared is None else declared.key
        row: Row
        after: Row
        schema: TableSchema | None
        if typed_row is not None:
            typed_row = self._connect_rows.with_key(typed_row, key_row, typed_key)
            row = after = typed_row.values
            schema = typed_row.schema
        else:
            row = with_key(_load(message.value), key_row)
            after, schema, declared_key = typed(declared, row, "$", is_whole=True)
        key = key or declared_key
        if key is None or (found is None and any(name not in row for name in key.columns)):
            reason = "no message key that is a JSON object, and no declared key"
            raise DecodeError(reason, code=ReasonCode.NO_KEY)
        holds = _FULL if schema is None else _UNKNOWN
        event = DataChange(
            _UPDATE,
            table,
            key,
            None,
            after,
            schema,
            None,
            None,
            NO_SOURCE,
            None,
            None,
            _UNKNOWN,
            holds,
        )
        return (event,)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode a row change: the row, or null for a delete."""
        if not isinstance(event, DataChange):
            raise EncodeError(f"plain rows have no message for {type(event).__name__}")
        topic = self._tables.topic_of(event.table, report)
        if event.op is Op.DELETE:
            before = event.before or {}
            key = _key_row(event.key, before)
            if len(before) > len(key):
                report(("before", "only the key of a deleted row is written"))
            return (self._message(event, None, key, topic, report),)
        if event.after is None:
            raise EncodeError("the change has no row image")
        if event.op is not Op.UPDATE:
            report((f"operation:{event.op.value}", "read as an update, which may be an insert"))
        key = _key_row(event.key, event.after)
        return (self._message(event, event.after, key, topic, report),)

    def _message(
        self, event: DataChange, row: Image | None, key: Row, topic: str | None, report: Report
    ) -> Message:
        if self._typed_writer is None or event.schema is None:
            value = None if row is None else json.dumps(row)
            return Message(value, json.with_jackson_escapes(json.dumps(key)), topic=topic)
        if row is None and len(event.schema.columns) > len(key):
            report(("schema", "a delete has the types of its key only"))
        written, key_data = self._typed_writer.write(event, row or key, topic, report)
        return Message(None if row is None else written, key_data, topic=topic)

    def _typed_key(self, data: bytes | None) -> TypedRow | None:
        """Return a key with the types of its schema block, if there is one."""
        try:
            return self._connect_rows.read(data)
        except DecodeError as error:
            path = error.path.replace("$", "$.key", 1)
            raise DecodeError(error.reason, code=error.code, path=path) from None

    def detects(self, message: Message) -> bool:
        """Return whether a row contains its message key, and no column of other producers."""
        found = self._keys.read(message.key)
        if message.value is None or found is None:
            return False
        try:
            row = _load(message.value)
        except DecodeError:
            return False
        has_added_columns = any(name.startswith(_ADDED) for name in row)
        has_nested_key = any(isinstance(value, dict | list) for value in found[1].values())
        return found[1].items() <= row.items() and not has_added_columns and not has_nested_key


def _delete(
    table: TableId,
    key: Key,
    key_row: Row,
    typed_key: TypedRow | None,
    declared: DeclaredTable | None,
) -> DataChange:
    before, schema, holds = key_row, None, Completeness.KEY
    if typed_key is not None:  # the schema lists the columns of the key only
        before, schema, holds = typed_key.values, typed_key.schema, Completeness.CHANGED
    elif declared is not None:
        before, schema, _ = typed(declared, key_row, "$.key", is_whole=False)
        holds = _UNKNOWN
    return DataChange(Op.DELETE, table, key, before, schema=schema, before_holds=holds)


def _load(value: bytes) -> Row:
    row = load_row(value)
    if len(row) == 2 and row.keys() == WRAPPED:
        reason = "the schema block is not that of a row"
        raise DecodeError(reason, code=ReasonCode.UNKNOWN_KIND)
    return row


def _key_row(key: Key | None, image: Image) -> dict[str, Any]:
    """Return the values of the key columns.

    Raises:
        EncodeError: The key is not known.
    """
    if key is None or not key.columns:
        raise EncodeError("a plain row needs a key, which identifies it")
    if any(name not in image for name in key.columns):
        raise EncodeError("the row lacks a column of its key")
    if WRAPPED in {frozenset(image), frozenset(key.columns)}:
        raise EncodeError("readers interpret the columns schema and payload as a schema block")
    return {name: image[name] for name in key.columns}


def make(options: Options) -> Format:
    """Return the format.

    Raises:
        ConfigError: The name of the table has more than three parts, or a text is no type.
    """
    return with_serde(make, options, Plain(options), style=AvroStyle.LOGICAL_TYPES)
