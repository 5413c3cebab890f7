# SPDX-License-Identifier: Apache-2.0
"""Change events to rows of TiCDC's Avro protocol."""

import re
from collections.abc import Mapping
from typing import Any, Final

from changelane.errors import DecodeError, EncodeError
from changelane.event import ChangeEvent, DataChange, Image, Op
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.format import Report
from changelane.formats.contract.tidb_time_stamps import position_of
from changelane.formats.debezium_envelope.rows.connect_schema import Schema, struct
from changelane.formats.debezium_envelope.rows.epoch_times import Inexact
from changelane.formats.debezium_envelope.rows.raw_json import wrapped
from changelane.formats.ticdc.avro.columns import ColumnWriter, column_of, column_writer_of
from changelane.formats.ticdc.avro.decode import (
    COMMIT_TS,
    EXTENSION,
    OP,
    OPERATIONS,
    PHYSICAL_TIME,
)
from changelane.formats.ticdc.avro.options import Options
from changelane.message import Message
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.types import Bits, String
from changelane.types.scalars import parse_zone
from changelane.types.values import value_text

_NOT_A_VALUE: Final = (ValueError, TypeError, ArithmeticError, AttributeError, DecodeError)
_MAX_SCHEMAS: Final = 1024
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_]|^(?=[0-9])", re.ASCII)
_CODES: Final = {op: code for code, op in OPERATIONS.items()}
_FIELDS: Final = (
    Schema("string", field=OP),
    Schema("int64", field=COMMIT_TS),
    Schema("int64", field=PHYSICAL_TIME),
)


class Writer:
    """Encodes events that are reduced to the capabilities of the protocol."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._zone = parse_zone(options.time_zone)
        self._columns: BoundedCache[TableSchema | None, Mapping[str, ColumnWriter]]
        self._columns = BoundedCache(_MAX_SCHEMAS)
        self._blocks: BoundedCache[tuple[object, ...], bytes] = BoundedCache(_MAX_SCHEMAS)

    def __call__(self, event: ChangeEvent, report: Report) -> Message:
        """Return the message of an event."""
        if not isinstance(event, DataChange):
            raise EncodeError(f"the Avro protocol has no message for {type(event).__name__}")
        image = event.before if event.op is Op.DELETE else event.after
        if image is None:
            raise EncodeError("the change has no row image")
        if event.key is None or not event.key.columns:
            raise EncodeError("the Avro protocol needs a key, which identifies the row")
        if any(name not in image for name in event.key.columns):
            raise EncodeError("the row lacks a column of its key")
        if any(name in EXTENSION for name in image):
            raise EncodeError("a column has the name of a field of the protocol")
        columns = self._columns_of(event.schema)
        key = {name: image[name] for name in event.key.columns}
        key_data = self._wrapped(event, columns, key, {}, report)
        topic = _topic(event.table, report)
        details = dict(event.details)
        time_stamp = self._time_stamp(event, details, report)
        for name in details:
            report((f"details.{name}", "the protocol has no such field"))
        if event.op is Op.DELETE:
            if len(image) > len(key):
                report(("before", "only the key of a deleted row is written"))
            elif event.schema is not None and len(event.schema.columns) > len(key):
                report(("schema", "a delete has the types of its key only"))
            for field, value in (
                ("position", event.position),
                ("source_time", event.source_time_ns),
                (f"details.{COMMIT_TS}", event.details.get(COMMIT_TS)),
            ):
                if value is not None:
                    report((field, "a deleted row has no value"))
            return Message(None, key_data, topic=topic)
        physical_ms = None if event.source_time_ns is None else event.source_time_ns // 1_000_000
        if physical_ms is None and time_stamp is not None:
            report(("source_time", "readers take it from the time stamp"))
        extension = {OP: _CODES[event.op], COMMIT_TS: time_stamp, PHYSICAL_TIME: physical_ms}
        fields = {name: value for name, value in extension.items() if value is not None}
        return Message(self._wrapped(event, columns, image, fields, report), key_data, topic=topic)

    def _time_stamp(self, event: DataChange, details: dict[str, Any], report: Report) -> int | None:
        detail = details.pop(COMMIT_TS, None)
        position = event.position
        if isinstance(position, SequencePosition):
            if detail is not None:
                report((f"details.{COMMIT_TS}", "it is the position"))
            if position.row == 0 and 0 <= position.value < 1 << 63:
                return position.value
            report(("position", "not a time stamp of TiDB"))
            return None
        try:
            found = position_of(detail, "$")
        except DecodeError:
            found = None
        value = None if found is None or found.value >= 1 << 63 else found.value
        if value is None and detail is not None:
            report((f"details.{COMMIT_TS}", "not a time stamp of TiDB"))
        if value is not None and self._options.order == "commit_ts":
            report((f"details.{COMMIT_TS}", "readers take it for the position"))
            return None
        return value

    def _columns_of(self, schema: TableSchema | None) -> Mapping[str, ColumnWriter]:
        columns = self._columns.get(schema)
        if columns is None:
            listed = () if schema is None else schema.columns
            zone = self._options.time_zone
            columns = {column.name: column_writer_of(column, zone) for column in listed}
            self._columns.add(schema, columns)
        return columns

    def _wrapped(
        self,
        event: DataChange,
        columns: Mapping[str, ColumnWriter],
        image: Image,
        extension: Mapping[str, Any],
        report: Report,
    ) -> bytes:
        """Return an image with its schema block, in the order of the table."""
        names = (*(n for n in columns if n in image), *(n for n in image if n not in columns))
        row: dict[str, Any] = {}
        for name in names:
            row[name] = self._value(name, columns.get(name), image[name], report)
        table = _schema_name(event.table, self._options.namespace)
        shape = (event.schema, table, names, tuple(extension))
        block = self._blocks.get(shape)
        if block is None:
            fields = [(columns[n] if n in columns else _text_column(n)).field for n in names]
            fields += [field for field in _FIELDS if field.member in extension]
            block = self._blocks.add(shape, json.dumps(struct(tuple(fields), name=table)))
        return wrapped(block, row | dict(extension))

    def _value(
        self, name: str, column_writer: ColumnWriter | None, value: Any, report: Report
    ) -> Any:
        """Return the JSON of a value, which can be read again."""
        if value is None:
            return None
        if column_writer is None:
            return value if isinstance(value, str) else value_text(String(), value)
        try:
            written = column_writer.write(value)
            read = column_of(column_writer.field, self._zone).read(written)
        except Inexact:
            report(("value:decimal", "more digits than its column has; written as null"))
            return None
        except _NOT_A_VALUE:
            raise EncodeError(f"column {name!r} has a value that is not of its type") from None
        if isinstance(read, str) and read != value and isinstance(value, str):
            _report_other(column_writer, report)
        return written


def _report_other(column_writer: ColumnWriter, report: Report) -> None:
    kind = column_of(column_writer.field, parse_zone("UTC")).column.type
    if isinstance(kind, Bits):
        report(("value:bits", "leading zeros of bits: messages have no length"))


def _text_column(name: str) -> ColumnWriter:
    return column_writer_of(Column(name, String()), "UTC")


def _schema_name(table: TableId, namespace: str) -> str:
    parts = (namespace, table.database or "", table.name or "")
    return ".".join(_UNSAFE.sub("_", part) or "_" for part in parts)


def _topic(table: TableId, report: Report) -> str:
    """Return the topic ``database_table``; report names that schemas do not have."""
    for part in ("database", "name"):
        name = getattr(table, part)
        if not name or _UNSAFE.search(name):
            report((f"table.{part}", "characters that Avro does not allow become _"))
    return _UNSAFE.sub("_", f"{table.database or ''}_{table.name or ''}")
