# SPDX-License-Identifier: Apache-2.0
"""Event rows: change events of many tables as rows of one Spark schema.

=================  =============================================================================
column             meaning
=================  =============================================================================
``kind``           ``data``, ``truncate``, ``schema``, ``error`` or ``other`` (no row is told)
``op``             ``c``, ``u``, ``d`` or ``r``; of ``other`` rows the event's kind
``table_id``       JSON array text of database, schema and name
``schema_id``      16 hex digits naming columns and key (a ``schema`` row tells them)
``key``            canonical key text of the row (of the new row when the key changed)
``other_key``      the key on the other side of a key change
``before/after``   image as JSON text that Spark reads exactly (:mod:`changelane.spark.fidelity`)
``*_missing``      columns that the image does not know; NULL = it is complete
``whole``          the event sets every column: an insert, a snapshot row
``order``          apply.md section 1, at the phase of an arrival (``d``: of a departure)
``transaction``    id of the transaction
``source_time``    when the database made the change
``topic`` ..       coordinates of the message, and the event's index in it
``code`` ..        of an ``error``: reason code, reason, JSON path; the raw message is kept
=================  =============================================================================

A schema travels as a row of its own, once per task and schema, in ``after``.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa

from changelane.apply import key_bytes, known
from changelane.codec import Codec, get_codec
from changelane.errors import ApplyError, DecodeError
from changelane.event import (
    ChangeEvent,
    Completeness,
    DataChange,
    HalfUpdate,
    Image,
    Key,
    KeyOrigin,
    Op,
    Source,
    Truncate,
    is_key_change,
    key_of,
)
from changelane.message import Message
from changelane.position import DEPARTURE, OffsetPosition, Position, encode_order
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.fidelity import RowWriter, spark_type
from changelane.types import UNAVAILABLE, UNKNOWN

FIELDS: Final[tuple[tuple[str, str, pa.DataType], ...]] = (
    ("kind", "STRING", pa.string()),
    ("op", "STRING", pa.string()),
    ("table_id", "STRING", pa.string()),
    ("schema_id", "STRING", pa.string()),
    ("key", "STRING", pa.string()),
    ("other_key", "STRING", pa.string()),
    ("before", "STRING", pa.string()),
    ("before_missing", "ARRAY<STRING>", pa.list_(pa.string())),
    ("after", "STRING", pa.string()),
    ("after_missing", "ARRAY<STRING>", pa.list_(pa.string())),
    ("whole", "BOOLEAN", pa.bool_()),
    ("order", "BINARY", pa.binary()),
    ("transaction", "STRING", pa.string()),
    ("source_time", "TIMESTAMP", pa.timestamp("us", "UTC")),
    ("topic", "STRING", pa.string()),
    ("partition", "INT", pa.int32()),
    ("offset", "BIGINT", pa.int64()),
    ("row_index", "INT", pa.int32()),
    ("code", "STRING", pa.string()),
    ("reason", "STRING", pa.string()),
    ("path", "STRING", pa.string()),
    ("raw_key", "BINARY", pa.binary()),
    ("raw_value", "BINARY", pa.binary()),
)
DDL: Final = ", ".join(f"`{name}` {kind}" for name, kind, _ in FIELDS)
ARROW: Final = pa.schema([(name, kind) for name, _, kind in FIELDS])
_AT: Final = {name: index for index, (name, _, _) in enumerate(FIELDS)}
_EMPTY: Final = (None,) * len(FIELDS)

MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
"""Arrow batches are cut by bytes, not only by count (design section 5)."""


class RowColumn(msgspec.Struct, frozen=True):
    """A column as a ``schema`` row tells it."""

    name: str
    type: str
    spark: str
    source_type: str | None = None
    nullable: bool | None = None
    generated: bool = False


class RowSchema(msgspec.Struct, frozen=True):
    """The ``after`` of a ``schema`` row."""

    columns: tuple[RowColumn, ...]
    key: tuple[str, ...] | None = None


def table_id_text(table: TableId) -> str:
    """Return the ``table_id`` of a table: injective, whatever its names hold.

    >>> table_id_text(TableId("shop", None, "orders"))
    '["shop",null,"orders"]'
    """
    parts = (table.database, table.schema, table.name)
    return msgspec.json.encode(parts).decode()


def table_id_of(text: str) -> TableId:
    """Return the table of a ``table_id``."""
    return TableId(*msgspec.json.decode(text, type=tuple[str | None, str | None, str | None]))


class _Shape:
    """One schema with one key, compiled once per worker."""

    __slots__ = ("columns", "id", "key", "row", "writer")

    def __init__(self, schema: TableSchema, key: tuple[str, ...] | None) -> None:
        columns = tuple(
            RowColumn(
                c.name, str(c.type), spark_type(c.type), c.source_type, c.nullable, c.generated
            )
            for c in schema.columns
        )
        told = RowSchema(columns, key)
        self.row = msgspec.json.encode(told).decode()
        self.id = TableSchema((*schema.columns, *(Column(f"\0{c}", UNKNOWN) for c in key or ()))).id
        self.writer = RowWriter(schema)
        self.columns = schema.names
        self.key = key


class RowBuilder:
    """Turns messages into event rows, within one task."""

    def __init__(
        self,
        codec: Codec,
        *,
        epoch: int = 0,
        keys: Mapping[str, tuple[str, ...]] | None = None,
        images: bool = True,
    ) -> None:
        self._codec = codec
        self._epoch = epoch
        self._keys = dict(keys or {})
        self._images = images
        self._shapes: dict[tuple[TableSchema, tuple[str, ...] | None], _Shape] = {}
        self._tables: dict[TableId, str] = {}
        self._told: set[tuple[str, str]] = set()

    def rows(self, message: Message) -> list[tuple[Any, ...]]:
        """Return the rows of one message; a message that cannot be read is one ``error`` row."""
        try:
            events = self._codec.decode(message)
            built: list[tuple[Any, ...]] = []
            for index, event in enumerate(events):
                built.extend(self._event(event, message, index))
        except DecodeError as error:
            return [self.refuse(message, error)]
        except ApplyError as error:
            return [self._error(message, _code(error), str(error), "$")]
        return built

    def refuse(self, message: Message, error: DecodeError) -> tuple[Any, ...]:
        """Return the row of a message that cannot be read."""
        return self._error(message, error.code, error.reason, error.path)

    def _error(self, message: Message, code: str, reason: str, path: str) -> tuple[Any, ...]:
        return self._row(
            message,
            0,
            kind="error",
            code=code,
            reason=reason,
            path=path,
            raw_key=message.key,
            raw_value=message.value,
        )

    def _row(self, message: Message, index: int, **values: object) -> tuple[Any, ...]:
        row: list[Any] = list(_EMPTY)
        for name, value in values.items():
            row[_AT[name]] = value
        row[_AT["topic"]] = message.topic
        row[_AT["partition"]] = message.partition
        row[_AT["offset"]] = message.offset
        row[_AT["row_index"]] = index
        return tuple(row)

    def _event(self, event: ChangeEvent, message: Message, index: int) -> Iterator[tuple[Any, ...]]:
        match event:
            case DataChange():
                yield from self._data(event, None, message, index)
            case HalfUpdate(change, other_key):
                yield from self._data(change, other_key, message, index)
            case Truncate():
                position = self._position(event.position, message, index)
                yield self._row(
                    message,
                    index,
                    kind="truncate",
                    op="t",
                    table_id=self._table(event.table),
                    schema_id="",
                    order=self._order(position, event.source, DEPARTURE),
                    transaction=None if event.transaction is None else event.transaction.id,
                    source_time=_microseconds(event.source_time_ns),
                )
            case _:
                yield self._row(message, index, kind="other", op=str(event.__struct_config__.tag))

    def _table(self, table: TableId) -> str:
        text = self._tables.get(table)
        if text is None:
            text = self._tables[table] = table_id_text(table)
        return text

    def _position(self, position: Position | None, message: Message, index: int) -> Position:
        if position is not None:
            return position
        if message.offset is None:
            msg = "the event has no position and its message no offset"
            raise ApplyError(msg)
        return OffsetPosition(message.topic or "", message.partition or 0, message.offset, index)

    def _order(self, position: Position, source: Source, phase: int) -> bytes:
        return encode_order(
            position, epoch=self._epoch, snapshot=source.snapshot is not None, phase=phase
        )

    def _shape(self, event: DataChange) -> _Shape:
        configured = self._keys.get(event.table.name or "") or self._keys.get(str(event.table))
        key = configured or (None if event.key is None else event.key.columns)
        schema = event.schema
        if schema is None:
            names = {**(event.before or {}), **(event.after or {})}
            schema = TableSchema(tuple(Column(name, UNKNOWN) for name in names))
        shape = self._shapes.get((schema, key))
        if shape is None:
            shape = self._shapes[schema, key] = _Shape(schema, key)
        return shape

    def _data(
        self, event: DataChange, other: Image | None, message: Message, index: int
    ) -> Iterator[tuple[Any, ...]]:
        shape = self._shape(event)
        table = self._table(event.table)
        if (table, shape.id) not in self._told:
            self._told.add((table, shape.id))
            yield self._row(
                message, index, kind="schema", table_id=table, schema_id=shape.id, after=shape.row
            )
        keyed = event
        if event.key is None or event.key.columns != shape.key:
            named = None if shape.key is None else Key(shape.key, KeyOrigin.CONFIG)
            keyed = msgspec.structs.replace(event, key=named)
        deleted = event.op is Op.DELETE
        event = _told_key(keyed)
        image = event.before if deleted else event.after
        if image is None:
            reason = "a delete without before image" if deleted else "a change without after image"
            raise DecodeError(reason, code="missing_image")
        key = _key_text(event, image)
        other_key = None
        if other is not None and shape.key is not None:
            other_key = key_bytes({name: other.get(name) for name in shape.key}).decode()
        elif is_key_change(event) and event.before is not None:
            other_key = _key_text(event, event.before)
            event = _filled(event)
        if other_key == key:
            other_key = None
        before = before_missing = after = after_missing = None
        if event.before is not None and (self._images or deleted or other_key is not None):
            text, before_missing = shape.writer.write(event.before)
            before = text.decode()
        if event.after is not None:
            text, after_missing = shape.writer.write(event.after)
            after = text.decode()
            after_missing = _unknown(event, after_missing)
        position = self._position(event.position, message, index)
        phase = DEPARTURE if deleted else 1
        row: list[Any] = list(_EMPTY)
        row[:14] = (
            "data",
            event.op.value,
            table,
            shape.id,
            key,
            other_key,
            before,
            before_missing,
            after,
            after_missing,
            _is_whole(event, after_missing),
            self._order(position, event.source, phase),
            None if event.transaction is None else event.transaction.id,
            _microseconds(event.source_time_ns),
        )
        row[14:18] = (message.topic, message.partition, message.offset, index)
        yield tuple(row)


def _unknown(event: DataChange, missing: list[str] | None) -> list[str] | None:
    """Return the columns that an after image leaves as they are.

    What an insert or a snapshot row does not name is NULL (apply.md section 2).
    """
    if missing is None or event.op is Op.UPDATE or event.after is None:
        return missing
    return [name for name in missing if event.after.get(name) is UNAVAILABLE] or None


def _is_whole(event: DataChange, missing: list[str] | None) -> bool:
    if event.after is None or missing is not None:
        return False
    if event.schema is None and event.op is Op.UPDATE:
        return event.after_holds is Completeness.FULL
    return True


def _told_key(event: DataChange) -> DataChange:
    """Return an update with its key in the after image: what it does not repeat did not change."""
    if event.op is not Op.UPDATE or event.key is None or not event.before or event.after is None:
        return event
    lacking = {
        name: event.before[name]
        for name in event.key.columns
        if name not in event.after and name in event.before
    }
    if not lacking:
        return event
    return msgspec.structs.replace(event, after={**event.after, **lacking})


def _filled(event: DataChange) -> DataChange:
    """Return an arrival with what it lacks from the row before (apply.md section 4)."""
    if event.after is None:
        return event
    held = known(event.after) or {}
    lacking = {name: v for name, v in (known(event.before) or {}).items() if name not in held}
    if not lacking:
        return event
    return msgspec.structs.replace(event, after={**event.after, **lacking})


def _code(error: ApplyError) -> str:
    return getattr(error, "code", None) or "unordered"


def _key_text(event: DataChange, image: Image) -> str | None:
    if event.key is None:
        return None
    values = key_of(event, image)
    if values is None:
        raise DecodeError("a column of the key is not in the image", code="no_key")
    return key_bytes(values).decode()


def _microseconds(time_ns: int | None) -> int | None:
    return None if time_ns is None else time_ns // 1000


def gather(told: Iterable[tuple[int, list[tuple[Any, ...]]]]) -> Iterator[pa.RecordBatch]:
    """Gather rows, told with the size of their message, into batches that are cut by bytes."""
    gathered: list[tuple[Any, ...]] = []
    size = 0
    for length, built in told:
        gathered.extend(built)
        size += 200 + 2 * length
        if size >= MAX_BATCH_BYTES:
            yield to_arrow(gathered)
            gathered, size = [], 0
    if gathered:
        yield to_arrow(gathered)


def to_arrow(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    """Return rows as one Arrow batch."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(FIELDS)
    arrays = [
        pa.array(column, type=kind) for column, (_, _, kind) in zip(columns, FIELDS, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def builder(
    format: str,
    options: Mapping[str, Any],
    *,
    epoch: int = 0,
    keys: Mapping[str, tuple[str, ...]] | None = None,
    images: bool = True,
) -> RowBuilder:
    """Return a builder for messages of a format; called on the workers."""
    codec = get_codec(format, **options)
    return RowBuilder(codec, epoch=epoch, keys=keys, images=images)
