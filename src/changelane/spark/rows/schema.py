# SPDX-License-Identifier: Apache-2.0
"""Event rows: change events of many tables as rows of one Spark schema.

=================  =============================================================================
column             meaning
=================  =============================================================================
``kind``           ``data``, ``truncate``, ``ddl``, ``schema``, ``error``, ``other`` (no row), or
                   ``refused``: a ``data`` row that is quarantined, with ``code`` and ``reason``
``op``             ``c``, ``u``, ``d`` or ``r``; of ``other`` rows the event's kind
``table_id``       JSON array text of database, schema and name
``schema_id``      16 hex digits that identify the columns, key and server of a ``schema`` row; of
                   a ``truncate`` or ``ddl`` the server itself, empty if the event has none
``key``            canonical key text of the row (of the new row of a key change)
``other_key``      the key on the other side of a key change
``before/after``   image as JSON text that Spark reads exactly (:mod:`.json_values`)
``*_missing``      columns that the image lacks; NULL = the image is complete
``whole``          the event sets every column, as an insert or a snapshot row does
``order``          docs/merge-rule.md, Orders, at the phase of an arrival (``d``: of a departure)
``transaction``    id of the transaction
``ordinal``        number of the change at its position (:mod:`changelane.apply.deduplication`)
``source_time``    time of the change in the database
``topic`` ..       coordinates of the message, and the event's index in it
``code`` ..        of an ``error``: reason code, reason, JSON path and raw message; ``after`` has
                   the other details for a replay (:mod:`.rejected`)
=================  =============================================================================

The ``after`` of a ``schema`` row is a :class:`RowSchema`; each task writes one row per schema. The
``after`` of a ``ddl`` row is a :class:`DdlText`, with statements that change tables.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa

from changelane.apply.added_columns import DefaultKind
from changelane.apply.table_mapping import LakeTable
from changelane.errors import DecodeError
from changelane.message import Message
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId
from changelane.spark.runtime.garbage import freeze_modules

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
    ("ordinal", "BIGINT", pa.int64()),
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
FIELD_INDEX: Final = {name: index for index, (name, _, _) in enumerate(FIELDS)}
EMPTY_ROW: Final = (None,) * len(FIELDS)

DATA: Final = "data"
REJECTED: Final = "refused"

TIMES: Final = (-(1 << 63), (1 << 63) - 1)
"""The least and the greatest time in microseconds."""

MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
"""The approximate size of an Arrow batch: rows differ in size, so a row count is no limit."""


class RowColumn(msgspec.Struct, frozen=True):
    """A column in a ``schema`` row.

    Attributes:
        name: Its name in the table.
        source_name: Its name in the events, if another; ``told`` in the JSON.
        fixed: For a column that was added after the events: its value in older rows, as JSON of a
            row with one field ``v``, and the type of the value.
        default: The kind of default that the schema declares.
        value: That default, if it is a literal: as JSON of a row with one field ``v``.
    """

    name: str
    type: str
    spark: str
    source_type: str | None = None
    nullable: bool | None = None
    generated: bool = False
    source_name: str | None = msgspec.field(default=None, name="told")
    fixed: tuple[str, str] | None = None
    default: DefaultKind | None = None
    value: str | None = None

    @property
    def image_name(self) -> str:
        """Its name in the images of the events."""
        return self.source_name or self.name


class RowSchema(msgspec.Struct, frozen=True):
    """The ``after`` of a ``schema`` row: the schema of some events of one table.

    Attributes:
        columns: The table's columns.
        key: Its key columns, if known.
        server: The producer's name of the source, if the events have one.
        is_partial: Whether the table may have more columns: the events have neither a schema nor
            full images, or their schema lists only the columns that changed.
        lists_columns: Whether the columns are all columns of the table at that time.
        is_merged: Whether the table has the rows of several source tables.
    """

    columns: tuple[RowColumn, ...]
    key: tuple[str, ...] | None = None
    server: str | None = None
    is_partial: bool = False
    lists_columns: bool = False
    is_merged: bool = False


class DdlText(msgspec.Struct, frozen=True):
    """The ``after`` of a ``ddl`` row: the statements' text, and the database product."""

    ddl: str
    product: str


SCHEMA_ACTIONS: Final = frozenset({"alter", "create", "drop", "rename", "drop_database"})
"""Actions of statements that may change the columns or the name of a table."""


def row_of(message: Message, **values: object) -> tuple[Any, ...]:
    """Return an event row of a message; columns without a value are NULL."""
    row: list[Any] = list(EMPTY_ROW)
    row[FIELD_INDEX["topic"]] = message.topic
    row[FIELD_INDEX["partition"]] = message.partition
    row[FIELD_INDEX["offset"]] = message.offset
    row[FIELD_INDEX["row_index"]] = 0
    for name, value in values.items():
        row[FIELD_INDEX[name]] = value
    return tuple(row)


def microseconds(time_ns: int | None) -> int | None:
    """Return a time in the unit of Spark's TIMESTAMP.

    Raises:
        DecodeError: The time does not fit 64 bits of microseconds.
    """
    if time_ns is None:
        return None
    time_us = time_ns // 1000
    if not TIMES[0] <= time_us <= TIMES[1]:
        raise DecodeError("the source time is out of range", code=ReasonCode.VALUE_OUT_OF_RANGE)
    return time_us


def table_id_text(table: TableId, generation: str = "") -> str:
    """Return the ``table_id`` of a table: injective for names with any characters.

    >>> table_id_text(TableId("shop", None, "orders"))
    '["shop",null,"orders"]'

    Args:
        table: The table.
        generation: Distinguishes the table from an older table of the same name.
    """
    parts = (table.database, table.schema, table.name)
    name_parts = (*parts, generation) if generation else parts
    return msgspec.json.encode(name_parts).decode()


def table_id_of(text: str) -> TableId:
    """Return the table of a ``table_id``."""
    return TableId(*msgspec.json.decode(text, type=list[str | None])[:3])


def generation_of(text: str) -> str:
    """Return the generation of a ``table_id``; empty = the first table of its name."""
    parts = msgspec.json.decode(text, type=list[str | None])
    return (parts[3] or "") if len(parts) > 3 else ""


def lake_table_of(text: str) -> LakeTable:
    """Return the table of a ``table_id`` with its generation."""
    return LakeTable(table_id_of(text), generation_of(text))


def arrow_batches(
    sized_rows: Iterable[tuple[int, list[tuple[Any, ...]]]],
) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches of about :data:`MAX_BATCH_BYTES`.

    Args:
        sized_rows: The size of each message in bytes, and its rows.
    """
    freeze_modules()
    gathered: list[tuple[Any, ...]] = []
    size = 0
    for length, rows in sized_rows:
        gathered.extend(rows)
        size += 200 + 2 * length
        if size >= MAX_BATCH_BYTES:
            yield arrow_batch(gathered)
            gathered, size = [], 0
    if gathered:
        yield arrow_batch(gathered)


def arrow_batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    """Return rows as one Arrow batch."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(FIELDS)
    arrays = [
        pa.array(column, type=kind) for column, (_, _, kind) in zip(columns, FIELDS, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)
