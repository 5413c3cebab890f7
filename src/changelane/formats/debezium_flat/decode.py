# SPDX-License-Identifier: Apache-2.0
"""Flattened rows to events."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Completeness, DataChange, HalfUpdate, Op
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.debezium_envelope import other_events
from changelane.formats.debezium_envelope.message_key import (
    READ_ERRORS,
    JsonRow,
    KeyReader,
    key_as_row,
)
from changelane.formats.debezium_envelope.options import FILLER_PRODUCTS, BeforeImage
from changelane.formats.debezium_envelope.row_images import convert_image
from changelane.formats.debezium_envelope.rows import connect_schema
from changelane.formats.debezium_envelope.rows.connect_schema import Blocks, unwrap
from changelane.formats.debezium_envelope.rows.modes import Modes
from changelane.formats.debezium_envelope.rows.placeholders import Placeholder
from changelane.formats.debezium_envelope.rows.raw_json import as_text
from changelane.formats.debezium_envelope.rows.row_reader import (
    PLAIN,
    BlockPlan,
    RowPlan,
    decoder,
    fields_of,
)
from changelane.formats.debezium_flat.added_fields import (
    DELETED,
    OPS,
    AddedField,
    MetadataReader,
    RowMetadata,
    Shape,
    fields_in,
    possible_fields,
    read_flag,
)
from changelane.formats.debezium_flat.options import Deletes, Options, row_modes
from changelane.message import Message
from changelane.reason_codes import ReasonCode

_READ_ERRORS: Final = (*READ_ERRORS, DecodeError)
_PARTS: Final = decoder(dict[str, msgspec.Raw])
_TEXT: Final = decoder(Any)
_TRANSACTION: Final = frozenset(("status", "id", "event_count", "data_collections", "ts_ms"))
_TIMES: Final = frozenset(other_events.TIMES)
_MAX_SHAPES: Final = 4096

Names = Mapping[str, AddedField]


class FlatPlan(BlockPlan):
    """How the rows of one schema block are read."""

    def __init__(self, block: bytes, names: Names, modes: Modes) -> None:
        parsed = connect_schema.parse(block)
        label = parsed.label
        if parsed.type != "struct" or label.startswith("io.debezium."):
            super().__init__(None, label)
            return
        fields = fields_of(parsed)
        added = {name for name in fields if name in names or name == DELETED}
        super().__init__(fields, label, modes, added)
        self.base = label.removesuffix(".Value")


class Decoder:
    """Decodes the messages of one codec.

    Attributes:
        names: The fields that may be added to rows.
        headers: The headers that may be added to messages.
        placeholder: The placeholder of unavailable values.
        blocks: The plans of schema blocks.
        keys: The reader of message keys.
        metadata_reader: The reader of added fields.
    """

    def __init__(self, options: Options) -> None:
        prefix = options.add_fields_prefix
        names = possible_fields(prefix)
        names |= {
            added_field.name: added_field
            for added_field in fields_in(options.add_fields, prefix, "add_fields")
        }
        self.names: Names = names
        prefix = options.add_headers_prefix
        headers = possible_fields(prefix)
        headers |= {
            added_field.name: added_field
            for added_field in fields_in(options.add_headers, prefix, "add_headers")
        }
        self.headers = headers
        modes = row_modes(options)
        self._deletes = options.delete_tombstone_handling_mode
        self._before_image = options.before_image
        self.placeholder = Placeholder(options.placeholder)
        self.blocks: Blocks[RowPlan] = Blocks(lambda block: FlatPlan(block, names, modes))
        self.keys = KeyReader()
        self.metadata_reader = MetadataReader(options)
        self._shapes: BoundedCache[tuple[str, ...], Shape] = BoundedCache(_MAX_SHAPES)

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Return the events of a message."""
        value = message.value
        if not value:
            return (self._delete_or_tombstone(message),)
        try:
            plan: RowPlan = PLAIN
            cached_block = self.blocks.find(value)
            if cached_block is not None:
                plan, start = cached_block
                row = plan.rows(memoryview(value)[start:-1])
            else:
                row = PLAIN.rows(value)
            # a message with an unknown schema block, or one that is no row, takes the slow path
            if row is not None and (plan is not PLAIN or self.shape(row).names):
                return (self._row(message, row, plan),)
        except _READ_ERRORS:
            pass  # the slow path decodes the message, or raises the error
        return self.blocks.read(value, PLAIN, partial(self._payload, message))

    def is_flat(self, value: bytes) -> bool:
        """Return whether a message has the fields of a flattened row.

        Raises:
            DecodeError: The message is not a JSON object.
        """
        wrapped = unwrap(value)
        parts = other_events.loads(_PARTS, value if wrapped is None else wrapped[1])
        return DELETED in parts or any(
            name in self.names and self.names[name].field == "op" for name in parts
        )

    def _payload(
        self, message: Message, payload: bytes, block: bytes | None, plan: RowPlan
    ) -> tuple[ChangeEvent, ...]:
        """Decode any message."""
        if payload.strip() == b"null":
            return (self._delete_or_tombstone(message),)
        if not plan.is_rows:
            parts = other_events.loads(_PARTS, payload)
            if block is not None or is_other_event(parts, self.names):
                return other_events.decode(message, parts, block, plan, payload)
        return (self._row(message, other_events.loads(plan.rows_reader, payload), plan),)

    # -- rows ----------------------------------------------------------------------------------

    def shape(self, row: JsonRow) -> Shape:
        """Return the added fields of a row."""
        columns = tuple(row)
        shape = self._shapes.get(columns)
        if shape is None:
            added_names = (name for name in columns if name in self.names or name == DELETED)
            shape = self._shapes.add(columns, Shape(added_names, self.names))
        return shape

    def _row(self, message: Message, row: JsonRow, plan: RowPlan) -> ChangeEvent:
        details: dict[str, Any] = {}
        shape = self.shape(row)
        added_values = {name: row.pop(name) for name in shape.names}
        is_deleted = shape.has_flag and read_flag(added_values.pop(DELETED), f"$.{DELETED}")
        metadata: RowMetadata | None = None
        if shape.is_plain and (
            not message.headers or self._are_headers_redundant(message, shape, added_values)
        ):
            metadata = self.metadata_reader.read_plain(shape, added_values, message.topic)
        if metadata is None:
            metadata = self.metadata_of(message, added_values, details)
        table_origin = metadata.table_origin
        op = Op.UPDATE if metadata.op is None else OPS.get(metadata.op)
        if op is None:
            path = f"$.{next((n for n in added_values if self.names[n].field == 'op'), 'op')}"
            raise DecodeError("an unknown operation", code=ReasonCode.UNKNOWN_OPERATION, path=path)
        if is_deleted and op is not Op.DELETE:
            details["op"], op = metadata.op, Op.DELETE
        if op is Op.CREATE and table_origin.source.snapshot is not None:
            details["op"], op = metadata.op, Op.READ
        if plan.details:
            details.update(plan.details)
        if message.topic != table_origin.topic:
            details["topic"] = message.topic
        if plan.base and plan.base != message.topic:
            details["name"] = plan.base
        key = key_row = None
        if message.key is not None:
            key, key_row = self.keys.read(message.key, row, plan, details)
        completeness = _UNKNOWN if plan.schema is not None else Completeness.FULL
        blank_columns: tuple[str, ...] = ()
        if (
            op is Op.DELETE
            and key_row is not None
            and not self.has_full_deletes(table_origin.source.product)
        ):
            # a NOT NULL column may have a filler: only the key is used
            blank_columns = tuple(name for name in row if name not in key_row)
            key_values = (
                key_row if key_row.items() <= row.items() else key_as_row(key_row, plan) or {}
            )
            row.update((name, value) for name, value in key_values.items() if name in row)
            row.update(dict.fromkeys(blank_columns))
            completeness = Completeness.KEY if plan.schema is None else completeness
        convert_image(row, plan, self.placeholder, "$", details, blank_columns)
        is_delete = op is Op.DELETE
        change = DataChange(
            op,
            table_origin.table,
            key,
            row if is_delete else None,
            None if is_delete else row,
            plan.schema,
            metadata.position,
            metadata.transaction,
            table_origin.source,
            metadata.time_ns,
            metadata.process_ns,
            completeness if is_delete else _UNKNOWN,
            _UNKNOWN if is_delete else completeness,
            details,
        )
        return self.keys.half(change, message, plan) if message.headers else change

    def _are_headers_redundant(
        self, message: Message, shape: Shape, added_values: Mapping[str, Any]
    ) -> bool:
        """Return whether the added fields contain all metadata of the headers."""
        for name, _ in message.headers:
            added_field = self.headers.get(name)
            if (
                added_field is not None
                and added_values.get(
                    shape.names_by_field.get((added_field.part, added_field.field), "")
                )
                is None
            ):
                return False
        return True

    def has_full_deletes(self, product: str | None) -> bool:
        """Return whether deleted rows have real values beside the key."""
        match self._before_image:
            case BeforeImage.FULL:
                return True
            case BeforeImage.KEY:
                return False
        return product is not None and product not in FILLER_PRODUCTS

    def metadata_of(
        self, message: Message, added_values: Mapping[str, Any], details: dict[str, Any]
    ) -> RowMetadata:
        """Return the metadata of a message, from its added fields and then its headers.

        Raises:
            DecodeError: A field or a header is not of its type.
        """
        names = self.names
        fields = [(names[name], value) for name, value in added_values.items()]
        for name, value in message.headers:
            added_field = self.headers.get(name)
            if added_field is not None and value is not None:
                fields.append((added_field, _header(added_field, value)))
        try:
            return self.metadata_reader.read(fields, message.topic, details)
        except DecodeError as error:
            path = _wire_path(error.path, fields)
            raise DecodeError(error.reason, code=error.code, path=path) from None

    # -- tombstones ----------------------------------------------------------------------------

    def _delete_or_tombstone(self, message: Message) -> ChangeEvent:
        """Return the event of a message without a value: a delete or a tombstone.

        It is a tombstone if it has no key, or if a row with ``__deleted`` precedes it.
        """
        tombstone = self.keys.tombstone(message)
        if tombstone.key is None or self._deletes is Deletes.REWRITE_WITH_TOMBSTONE:
            return tombstone
        details = dict(tombstone.details)
        metadata = self.metadata_of(message, {}, details)
        table_origin = metadata.table_origin
        if message.topic == table_origin.topic:
            details.pop("topic", None)
        change = DataChange(
            Op.DELETE,
            table_origin.table,
            self.keys.key_of(tuple(tombstone.key)),
            before=tombstone.key,
            schema=tombstone.schema,
            position=metadata.position,
            transaction=metadata.transaction,
            source=table_origin.source,
            source_time_ns=metadata.time_ns,
            process_time_ns=metadata.process_ns,
            before_holds=_UNKNOWN if tombstone.schema is not None else Completeness.KEY,
            details=details,
        )
        if tombstone.moved_to is None:
            return change
        return HalfUpdate(change, tombstone.moved_to)


_UNKNOWN: Final = Completeness.UNKNOWN


def is_other_event(parts: Mapping[str, object], names: Names) -> bool:
    """Return whether a message without a schema is no row; the transformation does not change it.

    Heartbeats, transaction markers, schema changes and logical messages have only fields that rows
    hardly have, and no added fields.
    """
    part_names = parts.keys()
    if DELETED in part_names or not names.keys().isdisjoint(part_names):
        return False
    if "op" in part_names:
        return {"source", "message"} <= part_names
    return (
        (bool(part_names) and part_names <= _TIMES)
        or part_names == _TRANSACTION
        or {"source", "ts_ms", "databaseName", "ddl", "tableChanges"} <= part_names
    )


def _header(added: AddedField, value: bytes) -> Any:
    """Return the value of a header of Connect's simple or JSON converter."""
    if added.field == "op" and len(value) == 1:
        return value.decode("latin-1")
    try:
        wrapped = unwrap(value)
        text = _TEXT.decode(value if wrapped is None else wrapped[1])
    except READ_ERRORS:
        return as_text(value)
    if isinstance(text, str | int):
        return text
    return as_text(value)


def _wire_path(path: str, fields: list[tuple[AddedField, Any]]) -> str:
    """Return the path in a flattened row for a path in Debezium's envelope."""
    parts = path.removeprefix("$.").split(".")
    part, field = (parts[0], parts[1]) if len(parts) == 2 else ("envelope", parts[0])
    for added_field, _ in fields:
        if (added_field.part, added_field.field) == (part, field):
            return f"$.{added_field.name}"
    return path
