# SPDX-License-Identifier: Apache-2.0
"""Flattened rows to events: what the added fields tell of the rows' origin."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Completeness, DataChange, HalfUpdate, Op
from changelane.formats.debezium_envelope import other_events
from changelane.formats.debezium_envelope.message_key import MISFIT, JsonRow, KeyReader, read_as
from changelane.formats.debezium_envelope.options import FILLER_PRODUCTS, BeforeImage
from changelane.formats.debezium_envelope.row_images import finish
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
    Added,
    Origin,
    OriginReader,
    Shape,
    every,
    flag,
    listed,
)
from changelane.formats.debezium_flat.options import Deletes, Options, row_modes
from changelane.message import Message
from changelane.reason_codes import ReasonCode

_BOM: Final = b"\xef\xbb\xbf"
_MISFIT: Final = (*MISFIT, DecodeError)
_PARTS: Final = decoder(dict[str, msgspec.Raw])
_TEXT: Final = decoder(Any)
_TRANSACTION: Final = frozenset(("status", "id", "event_count", "data_collections", "ts_ms"))
_TIMES: Final = frozenset(other_events.TIMES)
_MOST_SHAPES: Final = 4096

Names = Mapping[str, Added]


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
    """Reads the messages of one codec."""

    def __init__(self, options: Options) -> None:
        prefix = options.add_fields_prefix
        names = every(prefix)
        names |= {
            added_field.name: added_field
            for added_field in listed(options.add_fields, prefix, "add_fields")
        }
        self.names: Names = names
        prefix = options.add_headers_prefix
        headers = every(prefix)
        headers |= {
            added_field.name: added_field
            for added_field in listed(options.add_headers, prefix, "add_headers")
        }
        self._headers = headers
        modes = row_modes(options)
        self._deletes = options.delete_tombstone_handling_mode
        self._before_image = options.before_image
        self._placeholder = Placeholder(options.placeholder)
        self._blocks: Blocks[FlatPlan] = Blocks(lambda block: FlatPlan(block, names, modes))
        self._keys = KeyReader()
        self._origins = OriginReader(options)
        self._shapes: dict[tuple[str, ...], Shape] = {}

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Return the events of a message."""
        value = message.value
        if not value:
            return (self._gone(message),)
        try:
            plan: RowPlan = PLAIN
            known_block = self._blocks.find(value)
            if known_block is not None:
                plan, start = known_block
                row = plan.rows(memoryview(value)[start:-1])
            else:
                row = PLAIN.rows(value)
            # a message with its schema, or one that is no row, goes the long way
            if row is not None and (plan is not PLAIN or self._shape(row).names):
                return (self._row(message, row, plan),)
        except _MISFIT:
            pass  # the long way reads it, or says what is wrong with it
        return self._slow(message, value.removeprefix(_BOM))

    def is_flat(self, value: bytes) -> bool:
        """Say whether a message has the fields that tell a flattened row.

        Raises:
            DecodeError: It is not a JSON object.
        """
        wrapped = unwrap(value)
        parts = other_events.loads(_PARTS, value if wrapped is None else wrapped[1])
        return DELETED in parts or any(
            name in self.names and self.names[name].field == "op" for name in parts
        )

    def _slow(self, message: Message, value: bytes) -> tuple[ChangeEvent, ...]:
        """Read any message."""
        wrapped = unwrap(value)
        block, payload = wrapped or (None, value)
        try:
            if payload.strip() == b"null":
                return (self._gone(message),)
            if block is not None:
                plan: RowPlan = self._blocks.plan(block)
                if isinstance(plan, FlatPlan) and plan.is_rows:
                    row = other_events.loads(plan.rows_reader, payload)
                    event = self._row(message, row, plan)
                    self._blocks.remember(value, block, plan)
                    return (event,)
            else:
                plan = PLAIN
            parts = other_events.loads(_PARTS, payload)
            if block is not None or is_notice(parts, self.names):
                return other_events.decode(message, parts, block, plan, payload)
            return (self._row(message, other_events.loads(PLAIN.rows_reader, payload), PLAIN),)
        except DecodeError as error:
            path = error.path if wrapped is None else error.path.replace("$", "$.payload", 1)
            raise DecodeError(error.reason, code=error.code, path=path) from None

    # -- rows ----------------------------------------------------------------------------------

    def _shape(self, row: JsonRow) -> Shape:
        """Return which fields of a row are no columns."""
        columns = tuple(row)
        shape = self._shapes.get(columns)
        if shape is None:
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            added_names = (name for name in columns if name in self.names or name == DELETED)
            shape = self._shapes[columns] = Shape(added_names, self.names)
        return shape

    def _row(self, message: Message, row: JsonRow, plan: RowPlan) -> ChangeEvent:
        details: dict[str, Any] = {}
        shape = self._shape(row)
        added_values = {name: row.pop(name) for name in shape.names}
        is_deleted = shape.has_flag and flag(added_values.pop(DELETED), f"$.{DELETED}")
        origin: Origin | None = None
        if shape.is_plain and (not message.headers or self._repeats(message, shape, added_values)):
            origin = self._origins.read_plain(shape, added_values, message.topic)
        if origin is None:
            origin = self.origin(message, added_values, details)
        place = origin.place
        op = Op.UPDATE if origin.op is None else OPS.get(origin.op)
        if op is None:
            path = f"$.{next((n for n in added_values if self.names[n].field == 'op'), 'op')}"
            raise DecodeError("an unknown operation", code=ReasonCode.UNKNOWN_OPERATION, path=path)
        if is_deleted and op is not Op.DELETE:
            details["op"], op = origin.op, Op.DELETE
        if op is Op.CREATE and place.source.snapshot is not None:
            details["op"], op = origin.op, Op.READ
        if plan.details:
            details.update(plan.details)
        if message.topic != place.topic:
            details["topic"] = message.topic
        if plan.base and plan.base != message.topic:
            details["name"] = plan.base
        key = key_row = None
        if message.key is not None:
            key, key_row = self._keys.read(message.key, row, plan, details)
        holds = _UNKNOWN if plan.schema is not None else Completeness.FULL
        blank: tuple[str, ...] = ()
        if op is Op.DELETE and key_row is not None and not self.believes(place.source.product):
            # columns that are NOT NULL have invented values: trust only the key
            blank = tuple(name for name in row if name not in key_row)
            told_key = key_row if key_row.items() <= row.items() else read_as(key_row, plan) or {}
            row.update((name, value) for name, value in told_key.items() if name in row)
            row.update(dict.fromkeys(blank))
            holds = Completeness.KEY if plan.schema is None else holds
        finish(row, plan, self._placeholder, "$", details, blank)
        is_gone = op is Op.DELETE
        change = DataChange(
            op,
            place.table,
            key,
            row if is_gone else None,
            None if is_gone else row,
            plan.schema,
            origin.position,
            origin.transaction,
            place.source,
            origin.time_ns,
            origin.process_ns,
            holds if is_gone else _UNKNOWN,
            _UNKNOWN if is_gone else holds,
            details,
        )
        return self._keys.half(change, message, plan) if message.headers else change

    def _repeats(self, message: Message, shape: Shape, added_values: Mapping[str, Any]) -> bool:
        """Say whether the headers tell nothing that the added fields do not."""
        for name, _ in message.headers:
            added_field = self._headers.get(name)
            if (
                added_field is not None
                and added_values.get(shape.told.get((added_field.part, added_field.field), ""))
                is None
            ):
                return False
        return True

    def believes(self, product: str | None) -> bool:
        """Say whether a deleted row is believed beyond its key."""
        match self._before_image:
            case BeforeImage.FULL:
                return True
            case BeforeImage.KEY:
                return False
        return product is not None and product not in FILLER_PRODUCTS

    def origin(
        self, message: Message, added_values: Mapping[str, Any], details: dict[str, Any]
    ) -> Origin:
        """Return what a message tells beside its row: added fields first, then headers.

        Raises:
            DecodeError: One is not of its type.
        """
        names = self.names
        fields = [(names[name], value) for name, value in added_values.items()]
        for name, value in message.headers:
            added_field = self._headers.get(name)
            if added_field is not None and value is not None:
                fields.append((added_field, _header(added_field, value)))
        try:
            return self._origins.read(fields, message.topic, details)
        except DecodeError as error:
            path = _wire_path(error.path, fields)
            raise DecodeError(error.reason, code=error.code, path=path) from None

    # -- tombstones ----------------------------------------------------------------------------

    def _gone(self, message: Message) -> ChangeEvent:
        """Return what a message without a value means: the deletion of its key, or its echo."""
        tombstone = self._keys.tombstone(message)
        if tombstone.key is None or self._deletes is Deletes.REWRITE_WITH_TOMBSTONE:
            return tombstone
        details = dict(tombstone.details)
        origin = self.origin(message, {}, details)
        place = origin.place
        if message.topic == place.topic:
            details.pop("topic", None)
        change = DataChange(
            Op.DELETE,
            place.table,
            self._keys.key_of(tuple(tombstone.key)),
            before=tombstone.key,
            schema=tombstone.schema,
            position=origin.position,
            transaction=origin.transaction,
            source=place.source,
            source_time_ns=origin.time_ns,
            process_time_ns=origin.process_ns,
            before_holds=_UNKNOWN if tombstone.schema is not None else Completeness.KEY,
            details=details,
        )
        if tombstone.moved_to is None:
            return change
        return HalfUpdate(change, tombstone.moved_to)


_UNKNOWN: Final = Completeness.UNKNOWN


def is_notice(parts: Mapping[str, object], names: Names) -> bool:
    """Say whether a message without schema is none of a row: the transformation lets it pass.

    Heartbeats, transaction markers, schema changes and logical messages have fields that no row
    is likely to have and no others, and nothing is added to them.
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


def _header(added: Added, value: bytes) -> Any:
    """Return the value of a header, as Connect's simple or JSON converter writes it."""
    if added.field == "op" and len(value) == 1:
        return value.decode("latin-1")
    try:
        wrapped = unwrap(value)
        text = _TEXT.decode(value if wrapped is None else wrapped[1])
    except MISFIT:
        return as_text(value)
    if isinstance(text, str | int):
        return text
    return as_text(value)


def _wire_path(path: str, fields: list[tuple[Added, Any]]) -> str:
    """Return the path in the message of a path in Debezium's envelope."""
    parts = path.removeprefix("$.").split(".")
    part, field = (parts[0], parts[1]) if len(parts) == 2 else ("envelope", parts[0])
    for added_field, _ in fields:
        if (added_field.part, added_field.field) == (part, field):
            return f"$.{added_field.name}"
    return path
