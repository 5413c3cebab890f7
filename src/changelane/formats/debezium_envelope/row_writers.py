# SPDX-License-Identifier: Apache-2.0
"""What all writers of the family share: rows, schema blocks, keys, headers and tombstones."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from changelane.event import DataChange, Image, Tombstone
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.format import Report
from changelane.formats.contract.identity_cache import Memo
from changelane.formats.debezium_envelope.rows.connect_schema import Schema, in_order
from changelane.formats.debezium_envelope.rows.modes import Modes
from changelane.formats.debezium_envelope.rows.placeholders import Placeholder
from changelane.formats.debezium_envelope.rows.raw_json import from_text, stored_topic, wrapped_key
from changelane.formats.debezium_envelope.rows.row_reader import key_schema
from changelane.formats.debezium_envelope.rows.row_writer import RowWriter
from changelane.message import Message
from changelane.schema import TableSchema
from changelane.types import UNAVAILABLE

_LIMIT: Final = 1024
_NOTHING: Final[Mapping[str, Any]] = {}

Headers = tuple[tuple[str, bytes | None], ...]
Fields = Callable[[TableSchema | None, Mapping[str, Any]], Mapping[str, Any]]
"""From a schema and the fields in an event's details to the fields that a writer takes."""


def _unknown_columns(schema: TableSchema | None) -> frozenset[str]:
    """Return the columns of a schema whose nullability is unknown."""
    columns = () if schema is None else schema.columns
    return frozenset(column.name for column in columns if column.nullable is None)


def _required_columns(
    event: DataChange | Tombstone, unknown_columns: frozenset[str]
) -> tuple[str, ...]:
    """Return the key columns of unknown nullability; none if one of them is NULL.

    A primary key has no NULL, and its columns are never optional in Debezium's schemas.
    """
    images: tuple[Image, ...]
    if isinstance(event, DataChange):
        images = event.before or {}, event.after or {}
        names = event.key.columns if event.key is not None else ()
    else:
        images, names = (event.key or {},), tuple(event.key or ())
    names = tuple(name for name in names if name in unknown_columns)
    has_null = any(image.get(name, UNAVAILABLE) is None for image in images for name in names)
    return () if has_null else names


def _with_required(schema: TableSchema, names: tuple[str, ...]) -> TableSchema:
    """Return a schema whose columns of these names are NOT NULL."""
    columns = tuple(
        msgspec.structs.replace(column, nullable=False) if column.name in names else column
        for column in schema.columns
    )
    return TableSchema(columns)


class RowWriters:
    """The row writers of one codec, compiled once per table version, and their schema blocks.

    Attributes:
        blocks: Schema blocks by the parts of a message that determine them; empty for no block.
    """

    def __init__(
        self,
        modes: Callable[[str | None], Modes],
        placeholder: Placeholder,
        fields: Fields = lambda _schema, raw: raw,
        attributes: Sequence[str] = (),
    ) -> None:
        """Create the writers.

        Args:
            modes: Returns the forms of values, by product.
            placeholder: The placeholder of unavailable values.
            fields: Returns the schemas of columns that are not the usual ones.
            attributes: The attributes of schemas in their order, if that is not Connect's.
        """
        self._modes = modes
        self._attributes = attributes
        self._placeholder = placeholder
        self._fields = fields
        self._writers: BoundedCache[tuple[object, ...], RowWriter] = BoundedCache(_LIMIT)
        self._unknown_columns = Memo(_unknown_columns)
        self.blocks: BoundedCache[tuple[object, ...], bytes] = BoundedCache(_LIMIT)

    def of(self, event: DataChange | Tombstone) -> RowWriter:
        """Return the writer of an event's rows."""
        raw: Any = event.details.get("fields", _NOTHING)
        product = event.source.product if isinstance(event, DataChange) else None
        unknown_columns = self._unknown_columns(event.schema)
        required = _required_columns(event, unknown_columns) if unknown_columns else ()
        key = (event.schema, product, json.dumps(raw) if raw else b"", required)
        writer = self._writers.get(key)
        if writer is None:
            schema = None if event.schema is None else _with_required(event.schema, required)
            fields = self._fields(event.schema, raw)
            writer = RowWriter(schema, fields, self._modes(product), self._placeholder)
            self._writers.add(key, writer)
        return writer

    def add_block(self, shape: tuple[object, ...], schema: Schema | None) -> bytes:
        """Store the block of a schema, and return it."""
        block = b""
        if schema is not None:
            ordered = in_order(schema, self._attributes) if self._attributes else schema
            block = json.dumps(ordered)
        return self.blocks.add(shape, block)

    def key(
        self,
        event: DataChange,
        row: Mapping[str, Any] | None,
        writer: RowWriter,
        base: str | None,
        report: Report,
        *,
        columns: Sequence[str] | None = None,
        block: bytes | None = None,
    ) -> bytes | None:
        """Return the message key of a row change; ``None`` where the row lacks a column of it.

        Args:
            event: The event.
            row: The JSON of the row.
            writer: The writer of the row.
            base: The name of the table in the name of the schema; ``None`` for no schema.
            report: Called if the row lacks a column of the key.
            columns: The key columns of an event without a key.
            block: The schema of a key whose columns have no schema; ``None`` for no schema.
        """
        if "key" in event.details:
            return from_text(event.details["key"])
        if event.key is not None:
            columns = event.key.columns
        if not columns or row is None:
            return None
        try:
            values = {name: row[name] for name in columns}
        except KeyError:
            report(("key", "the row lacks one of its columns"))
            return None
        return wrapped_key(block, values) if base is None else self._key(writer, values, base)

    def _key(self, writer: RowWriter, payload: Mapping[str, Any], base: str) -> bytes:
        shape = (writer, base, tuple(payload))
        block = self.blocks.get(shape)
        if block is None:
            schema = key_schema(base, tuple(writer.fields.get(name) for name in payload))
            block = self.add_block(shape, schema)
        return wrapped_key(block or None, payload)

    def header(
        self, event: DataChange | Tombstone, name: str, key: Image | None, report: Report
    ) -> Headers:
        """Return the header with the other key of a key change, if there is one."""
        if "header" in event.details:
            return ((name, from_text(event.details["header"])),)
        if key is None:
            return ()
        return ((name, json.dumps(self.of(event).write(key, report, _NOTHING))),)

    def tombstone(
        self,
        event: Tombstone,
        report: Report,
        headers: Headers = (),
        *,
        has_schema: bool = True,
        block: bytes | None = None,
    ) -> Message:
        """Return the message of a tombstone, with the schema of its key if *has_schema*.

        *block* is the schema of a key whose columns have no schema.
        """
        details = event.details
        topic = stored_topic(details)
        key = from_text(details.get("key"))
        if "key" not in details and event.key is not None:
            writer = self.of(event)
            payload = writer.write(event.key, report, _NOTHING)
            base = None
            if has_schema and event.schema is not None:
                for loss in writer.losses:
                    report(loss)
                base = str(details.get("name") or topic or event.table)
            key = wrapped_key(block, payload) if base is None else self._key(writer, payload, base)
        return Message(from_text(details.get("value")), key, headers, topic)
