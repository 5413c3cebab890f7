# SPDX-License-Identifier: Apache-2.0
"""The canonical change event: the result of every decoder and the input of every encoder."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from changelane.position import Position, PostgresPosition
from changelane.schema import TableId, TableSchema
from changelane.types import UNAVAILABLE, Value

Image = Mapping[str, Value]
"""A row image: column name -> value. A missing column is not in the image; ``None`` is SQL NULL.
:data:`~changelane.types.UNAVAILABLE` is a value that the producer knows and did not send.
"""

Details = Mapping[str, object]
"""Fields of the producer that the model does not have, as unchanged JSON values."""

NO_DETAILS: Details = {}

_POSTGRES_TRANSACTION: Final = re.compile(r"([0-9]+):[0-9]+")
"""An id of Debezium for PostgreSQL."""


class Op(StrEnum):
    """The operation on a row."""

    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    READ = "r"


class KeyOrigin(StrEnum):
    """The source of the key columns."""

    MESSAGE = "message"
    PAYLOAD = "payload"
    CONFIG = "config"


class Key(msgspec.Struct, frozen=True):
    """The names of the key columns; their values are in the event's images."""

    columns: tuple[str, ...]
    origin: KeyOrigin = KeyOrigin.MESSAGE


class Completeness(StrEnum):
    """The part of the row that an image without schema contains."""

    FULL = "full"
    KEY = "key"
    CHANGED = "changed"
    UNKNOWN = "unknown"


class Transaction(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event's position in its transaction; counts start at 1."""

    id: str
    order: int | None = None
    table_order: int | None = None
    size: int | None = None
    last: bool | None = None


class Source(msgspec.Struct, frozen=True, omit_defaults=True):
    """The producer of an event.

    Attributes:
        product: The database, in lower case: ``postgresql``, ``mysql``, ``oracle`` ...
        connector: The software that captured the event, such as ``debezium`` or ``canal``.
        server: The producer's name of the source (Debezium: ``topic.prefix``).
        version: The version of the connector.
        snapshot: The producer's own word if the row comes from a snapshot, else ``None``.
    """

    product: str | None = None
    connector: str | None = None
    server: str | None = None
    version: str | None = None
    snapshot: str | None = None


NO_SOURCE = Source()
OWN_VERSION: Final = "changelane"
"""The version of the connector in the events of rows that changelane reads again.

Their schemas have the types of the columns, but neither NOT NULL nor defaults.
"""


class DataChange(msgspec.Struct, frozen=True, tag="data", tag_field="kind"):
    """A change of one row. An update is one event with both images.

    Attributes:
        op: The operation; a ``u`` without before image may be an upsert.
        table: The table at its source.
        key: The key columns, if known; a key change is one update here.
        before: The row before the change, as far as the producer sends it; else ``None``.
        after: The row after the change; ``None`` for a delete.
        schema: The columns, if the message or the configuration lists them.
        position: The producer's own coordinates.
        transaction: The position in the transaction.
        source: The producer.
        source_time_ns: When the database made the change, nanoseconds since 1970-01-01 UTC.
        process_time_ns: When the producer handled it, nanoseconds since 1970-01-01 UTC.
        before_holds: The part of the row that *before* contains, if there is no schema.
        after_holds: The part of the row that *after* contains, if there is no schema; ``changed``
            beside a schema: see :func:`lists_sent_columns_only`.
        details: The producer's fields beyond this model.
    """

    op: Op
    table: TableId
    key: Key | None = None
    before: Image | None = None
    after: Image | None = None
    schema: TableSchema | None = None
    position: Position | None = None
    transaction: Transaction | None = None
    source: Source = NO_SOURCE
    source_time_ns: int | None = None
    process_time_ns: int | None = None
    before_holds: Completeness = Completeness.UNKNOWN
    after_holds: Completeness = Completeness.UNKNOWN
    details: Details = NO_DETAILS


class HalfUpdate(msgspec.Struct, frozen=True, tag="half", tag_field="kind"):
    """One half of an update in two messages; a join turns both halves into one update.

    Attributes:
        change: The half as the producer wrote it: a ``d`` or a ``c``.
        other_key: The key in the other half: of the new row for a ``d``, of the old row for a
            ``c``; ``None`` if the key did not change or the producer does not send it.
        pair: The id that both halves have, such as a sequence number, if their keys differ: two
            halves of one table with equal pairs are one update.
    """

    change: DataChange
    other_key: Image | None = None
    pair: str | None = None


class SchemaChange(msgspec.Struct, frozen=True, tag="schema", tag_field="kind"):
    """A DDL statement, or a producer's notice that a table has a new schema.

    Attributes:
        table: The first table of the change; parts may be missing.
        action: ``create``, ``alter``, ``drop``, ``rename``, ``create_index``, ``drop_index``,
            ``create_database``, ``drop_database`` or ``other``. If the statement determines it,
            the value is that of :func:`changelane.ddl.action_of`.
        ddl: The statement as the producer sent it: untrusted text, never executed.
        schema: The table's columns after the change, if the producer lists them.
        key: The key columns after the change, if the producer lists them.
    """

    table: TableId
    action: str
    ddl: str | None = None
    schema: TableSchema | None = None
    key: Key | None = None
    position: Position | None = None
    source: Source = NO_SOURCE
    source_time_ns: int | None = None
    process_time_ns: int | None = None
    details: Details = NO_DETAILS


class Truncate(msgspec.Struct, frozen=True, tag="truncate", tag_field="kind"):
    """All rows of a table are deleted."""

    table: TableId
    ddl: str | None = None
    position: Position | None = None
    transaction: Transaction | None = None
    source: Source = NO_SOURCE
    source_time_ns: int | None = None
    process_time_ns: int | None = None
    details: Details = NO_DETAILS


class TransactionMarker(msgspec.Struct, frozen=True, tag="transaction", tag_field="kind"):
    """The begin, commit or rollback of a transaction.

    Attributes:
        status: ``begin``, ``commit`` or ``rollback``.
        transaction: Its id, empty if the producer does not send one; at the commit also its size,
            if the producer counts.
    """

    status: str
    transaction: Transaction
    position: Position | None = None
    source: Source = NO_SOURCE
    source_time_ns: int | None = None
    process_time_ns: int | None = None
    details: Details = NO_DETAILS


class Watermark(msgspec.Struct, frozen=True, tag="watermark", tag_field="kind"):
    """A heartbeat, or the promise that all events up to a time are sent.

    Attributes:
        type: ``heartbeat`` or ``resolved``.
    """

    type: str = "heartbeat"
    position: Position | None = None
    source: Source = NO_SOURCE
    source_time_ns: int | None = None
    process_time_ns: int | None = None
    details: Details = NO_DETAILS


class LogicalMessage(msgspec.Struct, frozen=True, tag="message", tag_field="kind"):
    """A message that an application wrote into the log (``pg_logical_emit_message``)."""

    prefix: str
    content: bytes
    position: Position | None = None
    transaction: Transaction | None = None
    source: Source = NO_SOURCE
    source_time_ns: int | None = None
    process_time_ns: int | None = None
    details: Details = NO_DETAILS


class Tombstone(msgspec.Struct, frozen=True, tag="tombstone", tag_field="kind"):
    """A key without a row: the deletion marker of a compacted topic.

    Attributes:
        key: The key's columns and values; ``None`` if the message has no readable key.
        schema: The key's columns, if the message lists them.
        moved_to: The new key, if the tombstone belongs to a key change.
    """

    table: TableId
    key: Image | None = None
    schema: TableSchema | None = None
    moved_to: Image | None = None
    details: Details = NO_DETAILS


class Control(msgspec.Struct, frozen=True, tag="control", tag_field="kind"):
    """Any other message of a producer, which passes as an event and is never an error.

    Attributes:
        type: The producer's own name of the kind of message.
        text: The body as text.
    """

    type: str
    text: str | None = None
    table: TableId = TableId()
    position: Position | None = None
    source: Source = NO_SOURCE
    source_time_ns: int | None = None
    process_time_ns: int | None = None
    details: Details = NO_DETAILS


ChangeEvent = (
    DataChange
    | HalfUpdate
    | SchemaChange
    | Truncate
    | TransactionMarker
    | Watermark
    | LogicalMessage
    | Tombstone
    | Control
)


def is_complete(image: Image, schema: TableSchema | None, completeness: Completeness) -> bool:
    """Whether an image contains a known value for every column.

    The schema decides if it lists all columns of the table, else the completeness that the format
    declares.
    """
    if completeness is Completeness.CHANGED or any(
        value is UNAVAILABLE for value in image.values()
    ):
        return False
    if schema is not None:
        return all(name in image for name in schema.names)
    return completeness is Completeness.FULL


def lists_sent_columns_only(event: DataChange) -> bool:
    """Whether the schema lists only the columns of the message, and the table may have others.

    Some producers omit an unchanged column together with its type (wal2json). Then ``changed`` is
    the completeness of the after image of an update, or of the before image of a delete.
    """
    if event.schema is None:
        return False
    if event.op is Op.DELETE:
        return event.before_holds is Completeness.CHANGED
    return event.op is Op.UPDATE and event.after_holds is Completeness.CHANGED


def has_partial_after(event: DataChange) -> bool:
    """Whether the table may have columns that the after image of an update lacks.

    Without a schema, an image has all columns if the format says so. If that is unknown, it has all
    columns of the table if it has all columns of a full before image.
    """
    after, before = event.after, event.before
    if event.op is not Op.UPDATE or after is None:
        return False
    if event.schema is not None:
        return event.after_holds is Completeness.CHANGED
    if event.after_holds is not Completeness.UNKNOWN:
        return event.after_holds is not Completeness.FULL
    if before is None or not is_complete(before, None, event.before_holds):
        return True
    return not before.keys() <= after.keys()


INCREMENTAL_SNAPSHOT: Final = "incremental"
"""The kind of snapshot whose rows are part of the stream (``source.snapshot``)."""


def is_first_snapshot(source: Source) -> bool:
    """Whether an event is a row of the first snapshot, which sorts below the stream.

    Rows of an incremental snapshot are part of the stream and keep their position in it.
    """
    return source.snapshot is not None and source.snapshot != INCREMENTAL_SNAPSHOT


def is_incremental_read(event: "DataChange") -> bool:
    """Whether an event is a row of an incremental snapshot.

    Formats whose reads are always rows of a first snapshot write it as an insert: as a read it
    would be older than each row that readers have, and they would discard it.
    """
    return event.op is Op.READ and event.source.snapshot == INCREMENTAL_SNAPSHOT


def transaction_id(event: "DataChange | Truncate") -> str | None:
    """Return the id of an event's transaction, if a field other than its position contains one.

    For PostgreSQL and Oracle, Debezium sends the id (``source.txId``) even if it does not send the
    event's position in the transaction. A row of a first snapshot belongs to no transaction, even
    if the snapshot has an id.
    """
    if is_first_snapshot(event.source):
        return None
    if event.transaction is not None and event.transaction.id:
        return shared_transaction_id(event.transaction.id, event.position)
    return details_transaction_id(event.details)


def shared_transaction_id(identity: str, position: Position | None) -> str:
    """Return the part of a transaction's id that all of its events have.

    Debezium's id for PostgreSQL is ``txID:LSN`` with the LSN of the operation, which differs for
    each row (Debezium, PostgreSQL connector, Transaction metadata).

    Args:
        identity: The id in an event or a marker of the transaction.
        position: The position of the event; ``None`` = unknown, as that of Debezium's markers.

    >>> shared_transaction_id("571:53195829", PostgresPosition(53195829))
    '571'
    """
    is_of_postgres = position is None or isinstance(position, PostgresPosition)
    match = _POSTGRES_TRANSACTION.fullmatch(identity) if is_of_postgres else None
    return identity if match is None else match[1]


def details_transaction_id(details: Details) -> str | None:
    """Return the transaction id in details, which Debezium sends as ``source.txId``."""
    source_fields = details.get("source") if details else None
    identity = source_fields.get("txId") if isinstance(source_fields, Mapping) else None
    return None if identity is None else str(identity)


def key_of(event: DataChange, image: Image) -> Image | None:
    """Return the values of the key columns in an image; ``None`` if one is unknown."""
    if event.key is None:
        return None
    values: dict[str, Value] = {}
    for name in event.key.columns:
        value = image.get(name, UNAVAILABLE)
        if value is UNAVAILABLE:
            return None
        values[name] = value
    return values


def moved_row(before: Image, after: Image) -> Image:
    """Return the row at its new key: a column that the after image lacks did not change.

    Args:
        before: The before image of a key change.
        after: Its after image.
    """
    known = {name: value for name, value in after.items() if value is not UNAVAILABLE}
    return {**after, **before, **known}


def is_key_change(event: DataChange) -> bool:
    """Whether an update changes the key of its row, as far as both images contain the key.

    A key column that is missing in the after image did not change.
    """
    if event.op is not Op.UPDATE or event.before is None or event.after is None:
        return False
    old = key_of(event, event.before)
    new = key_of(event, event.after) or key_of(event, {**event.before, **event.after})
    return old is not None and old != new
