# SPDX-License-Identifier: Apache-2.0
"""Change events to messages of CockroachDB's changefeeds in Avro, in the envelope ``wrapped``.

A message is that of Connect's JSON converter, whose schema block the registry's serde writes in
CockroachDB's style. Sources: ``encoder_avro.go`` and ``avro.go`` in ``pkg/ccl/changefeedccl`` of
https://github.com/cockroachdb/cockroach.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from changelane.errors import EncodeError
from changelane.event import ChangeEvent, DataChange, Image, Op
from changelane.formats.cockroachdb.avro_columns import ColumnWriter, column_writer_of
from changelane.formats.cockroachdb.encode import add_times, topic_of
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.format import Report
from changelane.formats.debezium_envelope.registry.avro_styles import (
    cockroachdb_avro_name,
    cockroachdb_sql_name,
)
from changelane.formats.debezium_envelope.rows.connect_schema import Schema, struct
from changelane.formats.debezium_envelope.rows.epoch_times import Inexact
from changelane.formats.debezium_envelope.rows.raw_json import wrapped
from changelane.message import Message
from changelane.schema import Column, TableSchema, option_for_table
from changelane.types import String
from changelane.types.values import value_text

_NOT_A_VALUE: Final = (ValueError, TypeError, ArithmeticError, AttributeError)
_MAX_SCHEMAS: Final = 1024

Columns = Mapping[str, ColumnWriter]


class AvroWriter:
    """Encodes events that are reduced to the capabilities of a changefeed in Avro.

    Args:
        keys: Table -> columns of its key, as readers know them.
    """

    def __init__(self, keys: Mapping[str, tuple[str, ...]]) -> None:
        self._keys = keys
        self._columns: BoundedCache[TableSchema | None, Columns] = BoundedCache(_MAX_SCHEMAS)
        self._blocks: BoundedCache[tuple[object, ...], bytes] = BoundedCache(_MAX_SCHEMAS)

    def __call__(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Return the message of an event."""
        if not isinstance(event, DataChange):
            raise EncodeError(f"a changefeed in Avro has no message for {type(event).__name__}")
        is_delete = event.op is Op.DELETE
        row = event.before if is_delete else event.after
        if row is None:
            raise EncodeError("the change has no row image")
        key = self._key_of(event, row, report)
        images: dict[str, Image | None] = {}
        has_old_row = event.before is not None and not (is_delete and row.keys() == set(key))
        if event.op is Op.CREATE or has_old_row:
            images["before"] = None if event.op is Op.CREATE else event.before
        images["after"] = None if is_delete else row
        schema_names = () if event.schema is None else event.schema.names
        if is_delete and len(schema_names) > len(row):
            report(("schema", "a delete has the types of its row only"))
        times: dict[str, Any] = {}
        add_times(event, times, report)
        topic = topic_of(event.table, report)
        value = self._value(event, images, times, topic or "", report)
        return (Message(value, self._key(event, key, row, report), topic=topic),)

    def _key_of(self, event: DataChange, row: Image, report: Report) -> tuple[str, ...]:
        """Return the columns of the key in their order; none if the row lacks a value of them."""
        declared = option_for_table(self._keys, event.table)
        columns = None if event.key is None else event.key.columns
        if declared is not None and columns != declared:
            report(("key", "readers take its columns from the option schemas"))
        names = declared or columns or ()
        if all(row.get(name) is not None for name in names):
            return names
        if declared is None:
            report(("key", "the row lacks a column of its key"))
            return ()
        raise EncodeError("the row lacks a key column of the option schemas")

    def _key(
        self, event: DataChange, names: tuple[str, ...], row: Image, report: Report
    ) -> bytes | None:
        if not names:
            return None
        columns = self._columns_of(event.schema)
        shape = (event.schema, event.table, names)
        block = self._blocks.get(shape)
        if block is None:
            schema = struct(_fields(columns, names), name=_record_name(event))
            block = self._blocks.add(shape, json.dumps(schema))
        return wrapped(block, _written(columns, {name: row[name] for name in names}, report))

    def _value(
        self,
        event: DataChange,
        images: Mapping[str, Image | None],
        times: Mapping[str, Any],
        topic: str,
        report: Report,
    ) -> bytes:
        columns = self._columns_of(event.schema)
        present = dict.fromkeys(name for image in images.values() for name in image or {})
        names = (*(n for n in columns if n in present), *(n for n in present if n not in columns))
        shape = (event.schema, event.table, names, tuple(images), tuple(times))
        block = self._blocks.get(shape)
        if block is None:
            fields, record = _fields(columns, names), _record_name(event)
            records = {"before": f"{record}_before", "after": record}
            parts = [
                struct(fields, optional=True, name=records[part], field=part) for part in images
            ]
            parts += [Schema("string", optional=True, field=name) for name in times]
            envelope = f"{cockroachdb_avro_name(cockroachdb_sql_name(topic))}_envelope"
            block = self._blocks.add(shape, json.dumps(struct(tuple(parts), name=envelope)))
        payload: dict[str, Any] = {
            part: None if image is None else _written(columns, image, report)
            for part, image in images.items()
        }
        return wrapped(block, payload | dict(times))

    def _columns_of(self, schema: TableSchema | None) -> Columns:
        columns = self._columns.get(schema)
        if columns is None:
            listed = () if schema is None else schema.columns
            columns = {column.name: column_writer_of(column) for column in listed}
            self._columns.add(schema, columns)
        return columns


def _record_name(event: DataChange) -> str:
    return cockroachdb_avro_name(event.table.name or "")


def _fields(columns: Columns, names: Iterable[str]) -> tuple[Schema, ...]:
    return tuple(
        (columns.get(name) or column_writer_of(Column(name, String()))).field for name in names
    )


def _written(columns: Columns, image: Image, report: Report) -> dict[str, Any]:
    """Return the JSON of an image; a value without a form is NULL, and reported."""
    row: dict[str, Any] = {}
    for name, value in image.items():
        column = columns.get(name)
        if value is None:
            row[name] = None
        elif column is None:
            row[name] = value if isinstance(value, str) else value_text(String(), value)
        else:
            if column.loss is not None:
                report(column.loss)
            try:
                row[name] = column.write(value)
            except Inexact as error:
                report((f"value:{column.kind}", str(error)))
                row[name] = None
            except _NOT_A_VALUE:
                msg = f"column {name!r} has a value that is not of its type"
                raise EncodeError(msg) from None
    return row
