# SPDX-License-Identifier: Apache-2.0
"""Messages of CockroachDB's changefeeds to change events."""

import decimal
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UnsetType

from changelane.errors import DecodeError
from changelane.event import (
    NO_DETAILS,
    ChangeEvent,
    Completeness,
    DataChange,
    Details,
    Key,
    KeyOrigin,
    Op,
    Source,
    Tombstone,
    Watermark,
)
from changelane.formats.cockroachdb.avro_columns import AvroBlock
from changelane.formats.cockroachdb.columns import column_of, json_text, readers_of, typed
from changelane.formats.cockroachdb.timestamps import position_of, time_ns
from changelane.formats.cockroachdb.wire import (
    METADATA,
    Body,
    Envelope,
    Field,
    Metadata,
    OldPublication,
    Publication,
    Row,
)
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.column_values import whole_unless_fraction
from changelane.formats.contract.declared_tables import DeclaredTable, DeclaredTables
from changelane.formats.debezium_envelope.registry.avro_styles import cockroachdb_sql_name
from changelane.message import Message
from changelane.position import Position
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId, TableSchema
from changelane.types import Json

SOURCE: Final = Source(product="cockroachdb", connector="cockroachdb")
OPERATIONS: Final = {"c": Op.CREATE, "u": Op.UPDATE, "d": Op.DELETE}

_MARK: Final = f'"{METADATA}"'.encode()
_PAYLOAD: Final = b'"payload"'
_PUBLISHED: Final = b'"Value"'
_OLD_PUBLISHED: Final = b'"value"'
_MAX_TABLES: Final = 4096
_MAX_SCHEMAS: Final = 1024
_MOST_NS: Final = 253_402_300_800 * 1_000_000_000
NAMES: Final = ("database_name", "schema_name", "table_name")
_NO_NAMES: Final = [None, None, None]
_SOURCE_FIELDS: Final = frozenset(
    {"database_name", "schema_name", "table_name", "primary_keys", "ts_hlc", "ts_ns"}
)
"""Fields of ``source`` with a place in the event."""


class SchemaBlock:
    """The column types in the schema of an enriched message."""

    def __init__(self, raw: bytes) -> None:
        """Parse a schema.

        Raises:
            DecodeError: The schema is not valid, or a type is unknown.
        """
        try:
            envelope = json.loads(raw, Field)
        except DecodeError as error:
            path = f"$.schema{error.path[1:]}"
            raise DecodeError(error.reason, code=error.code, path=path) from None
        rows = {part.field: part for part in envelope.fields or ()}
        row = rows.get("after") or rows.get("before")
        try:
            columns = tuple(map(column_of, (row and row.fields) or ()))
            self.schema = TableSchema(columns)
        except DecodeError as error:
            raise DecodeError(error.reason, code=error.code, path="$.schema.fields") from None
        except ValueError as error:
            code = ReasonCode.WRONG_SCHEMA
            raise DecodeError(str(error), code=code, path="$.schema.fields") from None
        self.readers = readers_of(self.schema)


Block = SchemaBlock | AvroBlock
"""The columns of a message, by its schema."""


class Reader:
    """Decodes messages.

    Args:
        declared: The declared tables.
        is_bare: Messages are rows without an envelope.
        is_avro: Schemas are those of messages in Avro.
    """

    def __init__(self, declared: DeclaredTables, *, is_bare: bool, is_avro: bool) -> None:
        self.declared = declared
        self.is_bare = is_bare
        self._is_avro = is_avro
        self._compile: Callable[[bytes], Block] = AvroBlock if is_avro else SchemaBlock
        self._tables: BoundedCache[str, TableId] = BoundedCache(_MAX_TABLES)
        self._blocks: BoundedCache[bytes, Block] = BoundedCache(_MAX_SCHEMAS)

    def __call__(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Return the events of a message: of a batch, in its order."""
        value = message.value
        if value is None:
            return (self._without_value(message),)
        if not self.is_bare and (payload := _batch(value)) is not None:
            return tuple(
                self._event(bytes(part), message, f"$.payload[{index}]")
                for index, part in enumerate(payload)
            )
        published = _published(value, is_bare=self.is_bare)
        if published is None:
            return (self._event(value, message, "$"),)
        message = msgspec.structs.replace(message, key=bytes(published.key), topic=published.topic)
        return (self._event(bytes(published.value), message, "$.Value"),)

    def _event(self, value: bytes, message: Message, path: str) -> ChangeEvent:
        has_no_envelope = self.is_bare and not self._is_avro
        if has_no_envelope or (_MARK in value and not self._is_avro):
            row = _loads(value, Row, path)
            if has_no_envelope or METADATA in row:
                return self._bare(row, message, path)
        envelope: Envelope = _loads(value, Envelope, path)
        if not isinstance(envelope.payload, UnsetType):
            path = f"{path}.payload"
            payload: Envelope = _loads(bytes(envelope.payload), Envelope, path)
            payload.schema = envelope.schema
            envelope = payload
        if envelope.resolved is not None:
            return _watermark(envelope.resolved, f"{path}.resolved")
        if self._is_avro and isinstance(envelope.record, dict):
            return self._record(envelope.record, envelope, message, path)
        if isinstance(envelope.after, UnsetType) and envelope.op is None:
            reason = "no envelope; the option `envelope: bare` reads rows without one"
            raise DecodeError(reason, code=ReasonCode.MISSING_FIELD, path=f"{path}.after")
        after = None if isinstance(envelope.after, UnsetType) else envelope.after
        return self._row(Change(message, envelope, after), path)

    def _bare(self, row: Row, message: Message, path: str) -> ChangeEvent:
        """Return the event of a row without an envelope; without columns, of a delete."""
        metadata = _metadata(row.pop(METADATA, None), f"{path}.{METADATA}")
        if metadata.resolved is not None and not row:
            return _watermark(metadata.resolved, f"{path}.{METADATA}.resolved")
        envelope = Envelope(
            key=metadata.key,
            topic=metadata.topic,
            updated=metadata.updated,
            mvcc_timestamp=metadata.mvcc_timestamp,
        )
        return self._record(row, envelope, message, path)

    def _record(self, row: Row, envelope: Envelope, message: Message, path: str) -> ChangeEvent:
        """Return the event of a row of ``envelope = bare``; without columns, of a delete."""
        if _has_key_only(row, envelope.key or message_key(message.key)):
            reason = "a row with NULL besides its key, which is also the form of a delete"
            raise DecodeError(reason, code=ReasonCode.MISSING_IMAGE, path=path)
        return self._row(Change(message, envelope, row or None), path)

    def _without_value(self, message: Message) -> ChangeEvent:
        """Return the event of a message without a value: of ``envelope = row``, a delete."""
        if self.is_bare and message.key is not None:
            return self._row(Change(message, Envelope(), None), "$")
        return Tombstone(TableId())

    # -- rows ----------------------------------------------------------------------------------

    def _row(self, change: "Change", path: str) -> DataChange:
        envelope, after = change.envelope, change.after
        source = envelope.source or {}
        table = self._table(change.message.topic, envelope, source, path)
        declared = self.declared.find(table)
        key, key_values = _key(change, declared, source, path)
        if self._is_avro:  # messages have types, whose values have other forms than in JSON
            declared = None
        block = None if declared is not None else self.block(envelope)
        op = _operation(envelope, after, path)
        before = None if isinstance(envelope.before, UnsetType) else envelope.before
        if op is Op.DELETE and before is None:
            before = _key_row(key, key_values, path)
        elif op is Op.CREATE:
            before = None
        old = None if before is None else _typed(declared, block, before, f"{path}.before")
        new = None if after is None else _typed(declared, block, after, f"{path}.after")
        schema: TableSchema | None = None
        if declared is not None:
            schema = declared.schema_with((*(new or {}), *(old or {})))
        elif block is not None and set(new or old or ()) <= block.schema.names:
            schema = block.schema
        position, source_time_ns = times(envelope, source, path)
        holds = Completeness.FULL if schema is None else Completeness.UNKNOWN
        is_delete = op is Op.DELETE
        return DataChange(
            op,
            table,
            key,
            old,
            new,
            schema,
            position,
            None,
            SOURCE,
            source_time_ns,
            process_time(envelope, path),
            Completeness.UNKNOWN if is_delete or old is None else holds,
            Completeness.UNKNOWN if new is None else holds,
            details_of(envelope, source),
        )

    def _table(self, topic: str | None, envelope: Envelope, source: Row, path: str) -> TableId:
        """Return the table of a row: from ``source``, from ``topic`` in the value, or the topic."""
        parts = [source.get(name) for name in NAMES] if source else _NO_NAMES
        if parts[2] is not None:
            if not all(isinstance(part, str | None) for part in parts):
                code = ReasonCode.WRONG_TYPE
                raise DecodeError("not a name", code=code, path=f"{path}.source")
            return TableId(*(part or None for part in parts))
        name = envelope.topic or cockroachdb_sql_name(topic or "")
        table = self._tables.get(name)  # shared, because reducers cache by identity
        if table is None:
            table = self._tables.add(name, table_of(name))
        return table

    def block(self, envelope: Envelope) -> Block | None:
        """Return the schema of a message; ``None`` if it has none."""
        if isinstance(envelope.schema, UnsetType):
            return None
        raw = bytes(envelope.schema)
        block = self._blocks.get(raw)
        return self._blocks.add(raw, self._compile(raw)) if block is None else block


class Change(msgspec.Struct, frozen=True):
    """A row change with its message: the envelope and the new row."""

    message: Message
    envelope: Envelope
    after: Row | None


def table_of(name: str) -> TableId:
    """Return the table of a topic: its name, or with ``full_table_name`` all three parts.

    >>> table_of("movr.public.users"), table_of("users.primary")
    (TableId(database='movr', schema='public', name='users'), \
TableId(database=None, schema=None, name='users.primary'))
    """
    parts = name.split(".")
    if len(parts) == 3 and all(parts):
        return TableId(*parts)
    return TableId(name=name or None)


def _operation(envelope: Envelope, after: Row | None, path: str) -> Op:
    """Return the operation; without ``diff``, an insert and an update look the same."""
    if envelope.op is not None:
        op = OPERATIONS.get(envelope.op)
        if op is None:
            code = ReasonCode.UNKNOWN_OPERATION
            raise DecodeError("an unknown operation", code=code, path=f"{path}.op")
        if (after is None) is not (op is Op.DELETE):
            code = ReasonCode.MISSING_IMAGE if after is None else ReasonCode.UNEXPECTED_IMAGE
            raise DecodeError("not the row of this operation", code=code, path=f"{path}.after")
        return op
    if after is None:
        return Op.DELETE
    return Op.CREATE if envelope.before is None else Op.UPDATE


# -- keys ----------------------------------------------------------------------------------------


def _key(
    change: Change, declared: DeclaredTable | None, source: Row, path: str
) -> tuple[Key | None, Any]:
    """Return the key columns, if they are known, and the values of the key.

    The names are declared, or in ``source.primary_keys``, or in the key of an enriched message.
    """
    values, origin = change.envelope.key, KeyOrigin.PAYLOAD
    if values is None:
        values, origin = message_key(change.message.key), KeyOrigin.MESSAGE
    if declared is not None and declared.key is not None:
        return declared.key, values
    names = source.get("primary_keys") if source else None
    if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
        return Key(tuple(names), KeyOrigin.PAYLOAD), values
    if names:
        code = ReasonCode.WRONG_TYPE
        raise DecodeError("not names", code=code, path=f"{path}.source.primary_keys")
    if isinstance(values, dict) and values:
        return Key(tuple(values), origin), values
    return None, values


def message_key(key: bytes | None) -> Any:
    """Return the values in a message key; ``None`` if it is not one of a changefeed."""
    if key is None:
        return None
    try:
        values = json.loads(key, object)
    except DecodeError:
        return None
    if isinstance(values, dict) and isinstance(values.get("payload"), dict) and "schema" in values:
        values = values["payload"]
    return values if isinstance(values, list | dict) else None


def _has_key_only(row: Row, values: object) -> bool:
    """Return whether a row has other columns than its key, and all of them are NULL.

    CockroachDB writes a deleted row of a query so (``emitDeletedRowAsNull`` is false in ``bare``).
    """
    if isinstance(values, dict):
        values = list(values.values())
    if not isinstance(values, list) or len(row) <= len(values):
        return False
    filled = [value for value in row.values() if value is not None]
    return len(filled) == len(values) and all(value in values for value in filled)


def _key_row(key: Key | None, values: Any, path: str) -> Row:
    """Return the row of a delete, which has only its key.

    Raises:
        DecodeError: The message has no key, or the names of its columns are unknown.
    """
    if isinstance(values, dict) and values:
        return values
    if not isinstance(values, list) or not values:
        code = ReasonCode.MISSING_IMAGE
        raise DecodeError("the delete has no key", code=code, path=f"{path}.key")
    if key is None:
        reason = "the names of the key columns are unknown: declare them in the option schemas"
        raise DecodeError(reason, code=ReasonCode.MISSING_IMAGE, path=f"{path}.key")
    if len(values) != len(key.columns):
        code = ReasonCode.WRONG_LENGTH
        raise DecodeError("another number of key columns", code=code, path=f"{path}.key")
    return dict(zip(key.columns, values, strict=True))


# -- parts of a row change -----------------------------------------------------------------------


def _typed(declared: DeclaredTable | None, block: Block | None, row: Row, path: str) -> Row:
    if declared is not None:
        documents = {
            column.name: json_text(row[column.name])
            for column in declared.schema.columns
            if isinstance(column.type, Json) and row.get(column.name) is not None
        }
        return declared.typed({**row, **documents}, path)
    return untyped(row) if block is None else typed(block.readers, row, path)


def untyped(row: Row) -> Row:
    """Return a row without types, with its numbers as values."""
    for name, value in row.items():
        if value.__class__ is decimal.Decimal:
            row[name] = whole_unless_fraction(value)
    return row


def times(envelope: Envelope, source: Row, path: str) -> tuple[Position | None, int | None]:
    """Return the position and the source time.

    In an initial scan, ``updated`` is the time of the scan; the time of the row is
    ``mvcc_timestamp``.
    """
    if not source and envelope.mvcc_timestamp is None:
        updated = position_of(envelope.updated, f"{path}.updated")
        return updated, time_ns(updated)
    places = (
        (envelope.updated, f"{path}.updated"),
        (source.get("ts_hlc"), f"{path}.source.ts_hlc"),
    )
    mvcc = envelope.mvcc_timestamp, f"{path}.mvcc_timestamp"
    if mvcc[0] is None:
        mvcc = source.get("mvcc_timestamp"), f"{path}.source.mvcc_timestamp"
    for text, place in (*places, mvcc):
        if not isinstance(text, str | None):
            raise DecodeError("not a time stamp", code=ReasonCode.WRONG_TYPE, path=place)
    row_version = position_of(*mvcc)
    position = next((position_of(*place) for place in places if place[0] is not None), row_version)
    return position, time_ns(row_version or position)


def process_time(envelope: Envelope, path: str) -> int | None:
    """Return the process time in nanoseconds.

    Raises:
        DecodeError: It is out of range.
    """
    value = envelope.ts_ns
    if value is not None and not 0 <= value < _MOST_NS:
        code = ReasonCode.VALUE_OUT_OF_RANGE
        raise DecodeError("out of range", code=code, path=f"{path}.ts_ns")
    return value


def details_of(envelope: Envelope, source: Row) -> Details:
    """Return the details of an event."""
    if not source and envelope.mvcc_timestamp is None:
        return NO_DETAILS
    details: dict[str, object] = {}
    if envelope.mvcc_timestamp is not None and envelope.updated is not None:
        details["mvcc_timestamp"] = envelope.mvcc_timestamp
    fields = {name: value for name, value in source.items() if name not in _SOURCE_FIELDS}
    if fields:
        details["source"] = fields
    return details


def _watermark(text: str, path: str) -> Watermark:
    position = position_of(text, path)
    return Watermark("resolved", position, SOURCE, time_ns(position))


def _published(value: bytes, *, is_bare: bool) -> Publication | OldPublication | None:
    """Return the body of a publication; ``None`` if the value is something else.

    Without an envelope, a row may have the names of the old form.
    """
    kind: type[Publication | OldPublication] = Publication
    if _PUBLISHED not in value:
        if is_bare or _OLD_PUBLISHED not in value:
            return None
        kind = OldPublication
    try:
        body = json.loads(value, kind)
    except DecodeError:
        return None
    return body if bytes(body.value)[:1] == b"{" else None


def _metadata(fields: object, path: str) -> Metadata:
    """Return the metadata of a row without an envelope."""
    if fields is None:
        return Metadata()
    try:
        return msgspec.convert(fields, Metadata)
    except msgspec.ValidationError as error:
        wrong = json.translate(error)
        if not isinstance(wrong, DecodeError):
            raise
        place = path + wrong.path[1:]
        raise DecodeError(wrong.reason, code=wrong.code, path=place) from None


def _batch(value: bytes) -> list[msgspec.Raw] | None:
    """Return the messages in the body of a webhook; ``None`` if the value is one message."""
    if _PAYLOAD not in value:
        return None
    try:
        body = json.loads(value, Body)
    except DecodeError:
        return None  # the message is not JSON, or has a column of this name
    payload = body.payload
    is_message = body.length is None or not isinstance(body.metadata, UnsetType)
    if is_message or isinstance(payload, UnsetType) or bytes(payload)[:1] != b"[":
        return None
    parts: list[msgspec.Raw] = _loads(bytes(payload), list[msgspec.Raw], "$.payload")
    return parts


def _loads(value: bytes, type: Any, path: str) -> Any:
    try:
        return json.loads(value, type)
    except DecodeError as error:
        place = path + error.path[1:]
        raise DecodeError(error.reason, code=error.code, path=place) from None
