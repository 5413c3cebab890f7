# SPDX-License-Identifier: Apache-2.0
"""Debezium's messages to events. The content of a message determines its kind, never its topic.

Row changes of the common connectors take the fast path: typed classes, and a plan compiled once per
schema. Other messages, and messages that do not fit, take the slow path, field by field. Both paths
end in :meth:`Decoder._row`.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Completeness, DataChange, Key, Op, Transaction, Truncate
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.debezium_envelope import other_events, source_block
from changelane.formats.debezium_envelope.declared_schemas import DeclaredSchemas
from changelane.formats.debezium_envelope.fillers import blank_fillers
from changelane.formats.debezium_envelope.message_key import (
    READ_ERRORS,
    JsonRow,
    KeyReader,
    key_as_row,
    key_template_of,
    matches_template,
)
from changelane.formats.debezium_envelope.options import FILLER_PRODUCTS, BeforeImage, Options
from changelane.formats.debezium_envelope.row_images import convert_image
from changelane.formats.debezium_envelope.rows.connect_schema import Blocks, unwrap_envelope
from changelane.formats.debezium_envelope.rows.placeholders import Placeholder
from changelane.formats.debezium_envelope.rows.row_reader import (
    PLAIN,
    RowPlan,
    ValuePlan,
    decoder,
    plain_json,
)
from changelane.formats.debezium_envelope.rows.schemaless_values import usual_row
from changelane.formats.debezium_envelope.rows.wire import Envelope, PostgresSource
from changelane.formats.debezium_envelope.source_block import OtherFields, TableOrigin
from changelane.message import Message
from changelane.position import Position
from changelane.reason_codes import ReasonCode
from changelane.types import UNAVAILABLE

# module names, because a look-up in the enum class is slow
_CREATE, _UPDATE, _DELETE = Op.CREATE, Op.UPDATE, Op.DELETE
_UNKNOWN, _FULL, _KEY = Completeness.UNKNOWN, Completeness.FULL, Completeness.KEY

_OPS: Final = {op.value: op for op in Op} | {op.value.upper(): op for op in Op}
_TRUNCATE: Final = "t"
_ROW_OPS: Final = frozenset({*_OPS, _TRUNCATE, _TRUNCATE.upper()})
_ENVELOPE_FIELDS: Final = frozenset(
    ("op", "source", "before", "after", "transaction", *other_events.TIMES)
)
_MAX_TABLES: Final = 10_000

_READ_ERRORS: Final = (*READ_ERRORS, DecodeError)
_PARTS: Final = decoder(dict[str, msgspec.Raw])
_ANY: Final = decoder(Any)

SourceContent = tuple[TableOrigin, Position | None, OtherFields, int | None]
"""The content of a source block: table origin, position, other fields, and the source time."""


class Decoder:
    """Decodes the messages of one codec.

    Attributes:
        before_image: The columns of before images with real values.
        placeholder: The placeholder of unavailable values.
        blocks: The plans of schema blocks.
        keys: The reader of message keys.
        plans_version: Changes if the plan of a table without schema blocks may have changed.
    """

    def __init__(self, options: Options) -> None:
        self.before_image = options.before_image
        self.placeholder = Placeholder(options.placeholder)
        self._may_hide = self.placeholder.may_be_in
        self._declared = DeclaredSchemas(options)
        self._last_plan: RowPlan = PLAIN
        self.blocks: Blocks[RowPlan] = Blocks(ValuePlan)
        self.keys = KeyReader()
        self._table_origins: BoundedCache[tuple[Any, ...], TableOrigin] = BoundedCache(_MAX_TABLES)
        self.plans_version = 0

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Return the events of a message."""
        value = message.value
        if not value:
            return (self.keys.tombstone(message),)
        envelope: Envelope[JsonRow]
        try:
            if value.startswith(b'{"schema":'):
                cached_block = self.blocks.find(value)
                if cached_block is None:
                    return self._slow(message, value)
                plan, start = cached_block
                envelope = plan.envelope(memoryview(value)[start:-1])
                content = self._source_content(envelope.source)
                return self._row(message, envelope, plan, content, {})
            # the last table's plan is tried first, which saves a pass for declared tables
            last_plan = self._last_plan
            try:
                envelope = last_plan.envelope(value)
            except _READ_ERRORS:
                if last_plan is PLAIN:
                    raise
                last_plan = PLAIN
                envelope = last_plan.envelope(value)
            content = self._source_content(envelope.source)
            declared = content[0].declared
            table_plan = PLAIN if declared is None else declared[0]
            if table_plan is not last_plan:
                self._last_plan = table_plan
                envelope = table_plan.envelope(value)
            return self._row(message, envelope, table_plan, content, {})
        except _READ_ERRORS:
            return self._slow(message, value)

    def origin_of(self, block: Any) -> TableOrigin:
        """Return the table origin of a source block of a known class."""
        return self._source_content(block)[0]

    def _source_content(self, block: Any) -> SourceContent:
        """Return the content of a source block of a known class."""
        kind = type(block)
        if kind is PostgresSource:
            schema = block.schema
            position, other_fields = source_block.read_postgres(block)
        else:
            schema = None
            position, other_fields = source_block.read_binlog(block)
        cache_key = (kind, block.version, block.name, block.snapshot, block.db, schema, block.table)
        table_origin = self._table_origins.get(cache_key) or self._table_origin(cache_key)
        time_ns = block.ts_ns
        if time_ns is None or block.ts_us != time_ns // 1000 or block.ts_ms != time_ns // 1_000_000:
            time_ns, times = source_block.instant(block.ts_ms, block.ts_us, time_ns)
            if times is not None:
                other_fields.update(times)
        return table_origin, position, other_fields, time_ns

    def _table_origin(self, cache_key: tuple[Any, ...]) -> TableOrigin:
        names = ("version", "name", "snapshot", "db", "schema", "table")
        fields = dict(zip(names, cache_key[1:], strict=True))
        table_origin = source_block.table_origin(
            {"connector": cache_key[0].__struct_config__.tag, **fields}
        )
        table_origin.declared = self._declared.find(table_origin)
        if len(self._table_origins) >= _MAX_TABLES:
            self.plans_version += 1  # the new origins of the tables may have other plans
        return self._table_origins.add(cache_key, table_origin)

    # -- row changes ---------------------------------------------------------------------------

    def _row(  # noqa: PLR0915 - every row takes this path, and calls would cost time
        self,
        message: Message,
        envelope: Envelope[JsonRow],
        plan: RowPlan,
        content: SourceContent,
        details: dict[str, object],
    ) -> tuple[ChangeEvent, ...]:
        table_origin, position, other_fields, time_ns = content
        process_ns = envelope.ts_ns
        if (
            process_ns is None
            or envelope.ts_us != process_ns // 1000
            or envelope.ts_ms != process_ns // 1_000_000
        ):
            process_ns, times = source_block.instant(envelope.ts_ms, envelope.ts_us, process_ns)
            if times is not None:
                details["times"] = times
        if table_origin.other_fields:
            other_fields.update(table_origin.other_fields)
        if other_fields:
            details["source"] = other_fields
        block, transaction = envelope.transaction, None
        if block is not None and block.id is not None:
            transaction = Transaction(
                block.id,
                block.total_order,
                block.data_collection_order,
            )
        op = _OPS.get(envelope.op)
        if op is None:
            if envelope.op.lower() != _TRUNCATE:
                return self._slow(message, message.value or b"")
            _describe(plan, table_origin, details)
            if plan.schema is not None:
                details["columns"] = plain_json(tuple(plan.fields.values()))
            source = table_origin.source
            return (
                Truncate(
                    table_origin.table,
                    None,
                    position,
                    transaction,
                    source,
                    time_ns,
                    process_ns,
                    details,
                ),
            )
        before, after = envelope.before, envelope.after
        key: Key | None = None
        declared = table_origin.declared
        if declared is not None:
            if plan is PLAIN:
                names = dict.fromkeys((*(before or ()), *(after or ())))
                declared = self._declared.extended(table_origin, names)
                if declared is not table_origin.declared:
                    table_origin.declared = declared
                    self.plans_version += 1
                before, after = _typed(declared[0], before, after)
                plan = declared[0]
            if plan is declared[0]:
                key = declared[1]
        if after is None and op is not _DELETE:
            raise DecodeError("a field is missing", code=ReasonCode.MISSING_FIELD, path="$.after")
        before_completeness = after_completeness = _UNKNOWN
        if plan.schema is None:
            after_completeness = _FULL
        elif plan.base or plan.details:
            _describe(plan, table_origin, details)
        key_row = None
        if message.key is not None:
            template, row = table_origin.key_template, after or before
            if (
                template is not None
                and template.plan is plan
                and template.pattern
                and row is not None
                and matches_template(message.key, template, row)
            ):
                key = template.key
                key_row = None if before is None else {name: row[name] for name in key.columns}
            else:
                event_key, key_row = self.keys.read(message.key, row, plan, details)
                is_new = template is None or template.plan is not plan
                if is_new and event_key is not None and row is not None and "key" not in details:
                    table_origin.key_template = key_template_of(message.key, event_key, row, plan)
                key = event_key or key
        if before is None and op is _DELETE and key_row:
            # only the message key identifies the deleted row (REPLICA IDENTITY NOTHING)
            before = dict(key_row)
            plan.convert(before, "key")
            details["before"] = None
            before_completeness = _UNKNOWN if plan.schema is not None else _KEY
        elif before is not None:
            is_partial = self._convert_before(
                table_origin, op, before, after, key_row, plan, details
            )
            if plan.schema is None:
                before_completeness = _KEY if is_partial else _FULL
        if after is None:
            after_completeness = _UNKNOWN
        elif self._may_hide(after, plan):
            convert_image(after, plan, self.placeholder, "$.after", details)
        elif plan.conversions:
            plan.convert(after, "$.after")
        if op is _CREATE and table_origin.source.snapshot is not None:
            op = Op.READ
        if op != envelope.op:
            details["op"] = envelope.op
        change = DataChange(
            op,
            table_origin.table,
            key,
            before,
            after,
            plan.schema,
            position,
            transaction,
            table_origin.source,
            time_ns,
            process_ns,
            before_completeness,
            after_completeness,
            details,
        )
        if message.headers and op is not _UPDATE:
            return (self.keys.half(change, message, plan),)
        return (change,)

    def _convert_before(  # noqa: PLR0917 - one caller
        self,
        table_origin: TableOrigin,
        op: Op,
        before: JsonRow,
        after: JsonRow | None,
        key: JsonRow | None,
        plan: RowPlan,
        details: dict[str, object],
    ) -> bool:
        """Convert a before image in place, and return whether only its key has real values."""
        may_have_fillers = bool(key) and self._may_have_fillers(
            table_origin, op, before, after, key or {}
        )
        if may_have_fillers and self.before_image is BeforeImage.FULL:
            details["before_image"] = "full"
            may_have_fillers = False
        if key is None or not may_have_fillers:
            convert_image(before, plan, self.placeholder, "$.before", details)
            return False
        if op is _DELETE and not key.items() <= before.items():
            typed_key = key_as_row(key, plan) or {}
            before.update((name, value) for name, value in typed_key.items() if name in before)
        blank_columns = blank_fillers(before, key, plan, details)
        convert_image(before, plan, self.placeholder, "$.before", details)
        before.update(dict.fromkeys(blank_columns, UNAVAILABLE))
        return True

    def _may_have_fillers(
        self,
        table_origin: TableOrigin,
        op: Op,
        before: JsonRow,
        after: JsonRow | None,
        key: JsonRow,
    ) -> bool:
        """Return whether columns beside the key may have fillers.

        They do unless PostgreSQL's REPLICA IDENTITY is FULL, which messages do not contain. An
        update without a key change has a before image under FULL only. A table without a key has
        updates and deletes under FULL only.
        """
        if self.before_image is BeforeImage.KEY:
            return True
        source = table_origin.source
        if source.product not in FILLER_PRODUCTS:
            return False
        if op is _DELETE or after is None:
            return True
        return any(before.get(name) != after.get(name) for name in key)

    # -- the slow path -------------------------------------------------------------------------

    def _slow(self, message: Message, value: bytes) -> tuple[ChangeEvent, ...]:
        """Decode any message, field by field."""
        read = partial(self._payload, message)
        return self.blocks.read(value, PLAIN, read, unwrap=unwrap_envelope)

    def _payload(
        self, message: Message, payload: bytes, block: bytes | None, plan: RowPlan
    ) -> tuple[ChangeEvent, ...]:
        if payload.strip() == b"null":
            return (self.keys.tombstone(message),)
        parts = other_events.loads(_PARTS, payload)
        op = other_events.text_part(parts, "op") if "op" in parts else ""
        if op not in _ROW_OPS:
            return other_events.decode(message, parts, block, plan, payload)
        return self._slow_row(message, parts, plan, op)

    def _slow_row(
        self, message: Message, parts: Mapping[str, msgspec.Raw], plan: RowPlan, op: str
    ) -> tuple[ChangeEvent, ...]:
        details: dict[str, object] = {}
        fields = other_events.object_part(parts, "source")
        table_origin = source_block.table_origin(fields)
        table_origin.declared = self._declared.find(table_origin)
        position, other_fields = source_block.read(fields)
        integers = [
            source_block.integer(fields.get(name), f"$.source.{name}")
            for name in other_events.TIMES
        ]
        time_ns, times = source_block.instant(*integers)
        other_fields.update(times or {})
        block = other_events.object_part(parts, "transaction")
        before, after = (
            other_events.loads(plan.rows_reader, parts[name], f"$.{name}")
            if name in parts
            else None
            for name in ("before", "after")
        )
        envelope = Envelope(
            op=op,
            source=PostgresSource(),  # already decoded
            before=before,
            after=after,
            transaction=other_events.transaction_block(block, details),
            ts_ms=other_events.integer_part(parts, "ts_ms"),
            ts_us=other_events.integer_part(parts, "ts_us"),
            ts_ns=other_events.integer_part(parts, "ts_ns"),
        )
        extra_fields = {
            name: other_events.loads(_ANY, raw, f"$.{name}")
            for name, raw in parts.items()
            if name not in _ENVELOPE_FIELDS
        }
        if extra_fields:
            details["envelope"] = extra_fields
        return self._row(
            message, envelope, plan, (table_origin, position, other_fields, time_ns), details
        )


def _typed(plan: RowPlan, before: JsonRow | None, after: JsonRow | None) -> list[JsonRow | None]:
    """Return images without types as images of a declared table."""
    return [
        None
        if row is None
        else other_events.loads(plan.rows_reader, json.dumps(usual_row(row, plan.wires)), path)
        for row, path in ((before, "$.before"), (after, "$.after"))
    ]


def _describe(plan: RowPlan, table_origin: TableOrigin, details: dict[str, object]) -> None:
    """Keep the content of a schema block that its columns do not have in the details."""
    if plan.base != table_origin.topic and plan.base:
        details["name"] = plan.base
    if plan.details:
        details.update(plan.details)
