# SPDX-License-Identifier: Apache-2.0
"""Messages to events: one dispatcher over the record kinds, by content, never by topic.

A row change of a common connector is read the short way: typed classes, and a plan compiled once
per schema. Everything else, and whatever does not fit, goes the long way, field by field; both end
in the same :meth:`Decoder._row`.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Completeness, DataChange, Key, Op, Transaction, Truncate
from changelane.formats.contract import json
from changelane.formats.debezium_envelope import other_events, source_block
from changelane.formats.debezium_envelope.declared_schemas import Declared
from changelane.formats.debezium_envelope.fillers import blanked
from changelane.formats.debezium_envelope.message_key import (
    MISFIT,
    JsonRow,
    KeyReader,
    hint_of,
    is_hinted,
    read_as,
)
from changelane.formats.debezium_envelope.options import FILLER_PRODUCTS, BeforeImage, Options
from changelane.formats.debezium_envelope.rows.connect_schema import Blocks, unwrap
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
from changelane.formats.debezium_envelope.source_block import Place, Rest
from changelane.message import Message
from changelane.position import Position
from changelane.reason_codes import ReasonCode
from changelane.types import UNAVAILABLE

# Members of an enum are found slowly, and these are needed for every message.
_CREATE, _UPDATE, _DELETE = Op.CREATE, Op.UPDATE, Op.DELETE
_UNKNOWN, _FULL, _KEY = Completeness.UNKNOWN, Completeness.FULL, Completeness.KEY

_OPS: Final = {op.value: op for op in Op} | {op.value.upper(): op for op in Op}
_TRUNCATE: Final = "t"
_ROW_OPS: Final = frozenset({*_OPS, _TRUNCATE, _TRUNCATE.upper()})
_ENVELOPE_FIELDS: Final = frozenset(
    ("op", "source", "before", "after", "transaction", *other_events.TIMES)
)
_BOM: Final = b"\xef\xbb\xbf"
_MOST_PLACES: Final = 10_000

_MISFIT: Final = (*MISFIT, DecodeError)
_PARTS: Final = decoder(dict[str, msgspec.Raw])
_ANY: Final = decoder(Any)

Origin = tuple[Place, Position | None, Rest, int | None]
"""What a source block says: place, position, the rest of it, and the time."""


class Decoder:
    """Reads the messages of one codec."""

    def __init__(self, options: Options) -> None:
        self._before_image = options.before_image
        self._placeholder = Placeholder(options.placeholder)
        self._may_hide = self._placeholder.may_be_in
        self._declared = Declared(options)
        self._guess: RowPlan = PLAIN
        self._blocks: Blocks[ValuePlan] = Blocks(ValuePlan)
        self._keys = KeyReader()
        self._places: dict[tuple[Any, ...], Place] = {}

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Return the events of a message."""
        value = message.value
        if not value:
            return (self._keys.tombstone(message),)
        envelope: Envelope[JsonRow]
        try:
            if value.startswith(b'{"schema":'):
                known_block = self._blocks.find(value)
                if known_block is None:
                    return self._slow(message, value)
                plan, start = known_block
                envelope = plan.envelope(memoryview(value)[start:-1])
                return self._row(message, envelope, plan, self._origin(envelope.source), {})
            # a guess, the last table's plan, saves a pass where tables are declared
            guess = self._guess
            try:
                envelope = guess.envelope(value)
            except _MISFIT:
                if guess is PLAIN:
                    raise
                guess = PLAIN
                envelope = guess.envelope(value)
            origin = self._origin(envelope.source)
            declared = origin[0].declared
            right = PLAIN if declared is None else declared[0]
            if right is not guess:
                self._guess = right
                envelope = right.envelope(value)
            return self._row(message, envelope, right, origin, {})
        except _MISFIT:
            return self._slow(message, value)

    def _origin(self, block: Any) -> Origin:
        """Read a source block of a known class."""
        kind = type(block)
        if kind is PostgresSource:
            schema = block.schema
            position, other_fields = source_block.read_postgres(block)
        else:
            schema = None
            position, other_fields = source_block.read_binlog(block)
        words = (kind, block.version, block.name, block.snapshot, block.db, schema, block.table)
        place = self._places.get(words) or self._place(words)
        time_ns = block.ts_ns
        if time_ns is None or block.ts_us != time_ns // 1000 or block.ts_ms != time_ns // 1_000_000:
            time_ns, times = source_block.instant(block.ts_ms, block.ts_us, time_ns)
            if times is not None:
                other_fields.update(times)
        return place, position, other_fields, time_ns

    def _place(self, words: tuple[Any, ...]) -> Place:
        names = ("version", "name", "snapshot", "db", "schema", "table")
        fields = dict(zip(names, words[1:], strict=True))
        place = source_block.place({"connector": words[0].__struct_config__.tag, **fields})
        place.declared = self._declared.find(place)
        if len(self._places) >= _MOST_PLACES:
            self._places.clear()
        self._places[words] = place
        return place

    # -- row changes ---------------------------------------------------------------------------

    def _row(  # noqa: PLR0915 - the way of every row: calls would cost more than they tell
        self,
        message: Message,
        envelope: Envelope[JsonRow],
        plan: RowPlan,
        origin: Origin,
        details: dict[str, object],
    ) -> tuple[ChangeEvent, ...]:
        place, position, other_fields, time_ns = origin
        process_ns = envelope.ts_ns
        if (
            process_ns is None
            or envelope.ts_us != process_ns // 1000
            or envelope.ts_ms != process_ns // 1_000_000
        ):
            process_ns, times = source_block.instant(envelope.ts_ms, envelope.ts_us, process_ns)
            if times is not None:
                details["times"] = times
        if place.rest:
            other_fields.update(place.rest)
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
            _describe(plan, place, details)
            if plan.schema is not None:
                details["columns"] = plain_json(tuple(plan.fields.values()))
            source = place.source
            return (
                Truncate(
                    place.table, None, position, transaction, source, time_ns, process_ns, details
                ),
            )
        before, after = envelope.before, envelope.after
        key: Key | None = None
        declared = place.declared
        if declared is not None:
            if plan is PLAIN:
                names = dict.fromkeys((*(before or ()), *(after or ())))
                declared = place.declared = self._declared.extended(place, names)
                before, after = _typed(declared[0], before, after)
                plan = declared[0]
            if plan is declared[0]:
                key = declared[1]
        if after is None and op is not _DELETE:
            raise DecodeError("a field is missing", code=ReasonCode.MISSING_FIELD, path="$.after")
        before_holds = after_holds = _UNKNOWN
        if plan.schema is None:
            after_holds = _FULL
        elif plan.base or plan.details:
            _describe(plan, place, details)
        key_row = None
        if message.key is not None:
            hint, row = place.hint, after or before
            if (
                hint is not None
                and hint.plan is plan
                and hint.form
                and row is not None
                and is_hinted(message.key, hint, row)
            ):
                key = hint.key
                key_row = None if before is None else {name: row[name] for name in key.columns}
            else:
                event_key, key_row = self._keys.read(message.key, row, plan, details)
                is_new = hint is None or hint.plan is not plan
                if is_new and event_key is not None and row is not None and "key" not in details:
                    place.hint = hint_of(message.key, event_key, row, plan)
                key = event_key or key
        if before is None and op is _DELETE and key_row:
            # nothing but the message's key tells which row went (REPLICA IDENTITY NOTHING)
            before = dict(key_row)
            plan.convert(before, "key")
            details["before"] = None
            before_holds = _UNKNOWN if plan.schema is not None else _KEY
        elif before is not None:
            partial = self._before(place, op, before, after, key_row, plan, details)
            if plan.schema is None:
                before_holds = _KEY if partial else _FULL
        if after is None:
            after_holds = _UNKNOWN
        elif self._may_hide(after, plan):
            self._finish(after, plan, "$.after", details)
        elif plan.conversions:
            plan.convert(after, "$.after")
        if op is _CREATE and place.source.snapshot is not None:
            op = Op.READ
        if op != envelope.op:
            details["op"] = envelope.op
        change = DataChange(
            op,
            place.table,
            key,
            before,
            after,
            plan.schema,
            position,
            transaction,
            place.source,
            time_ns,
            process_ns,
            before_holds,
            after_holds,
            details,
        )
        if message.headers and op is not _UPDATE:
            return (self._keys.half(change, message, plan),)
        return (change,)

    def _before(  # noqa: PLR0917 - one caller
        self,
        place: Place,
        op: Op,
        before: JsonRow,
        after: JsonRow | None,
        key: JsonRow | None,
        plan: RowPlan,
        details: dict[str, object],
    ) -> bool:
        """Finish a before image, and say whether only its key is to be believed."""
        doubtful = bool(key) and self._is_doubtful(place, op, before, after, key or {})
        if doubtful and self._before_image is BeforeImage.FULL:
            details["before_image"] = "full"
            doubtful = False
        if key is None or not doubtful:
            self._finish(before, plan, "$.before", details)
            return False
        if op is _DELETE and not key.items() <= before.items():
            typed_key = read_as(key, plan) or {}
            before.update((name, value) for name, value in typed_key.items() if name in before)
        blank = blanked(before, key, plan, details)
        self._finish(before, plan, "$.before", details)
        before.update(dict.fromkeys(blank, UNAVAILABLE))
        return True

    def _is_doubtful(
        self, place: Place, op: Op, before: JsonRow, after: JsonRow | None, key: JsonRow
    ) -> bool:
        """Say whether columns beside the key may be fillers.

        PostgreSQL's REPLICA IDENTITY decides, which no message tells. But an update whose key
        stays the same has a before image under FULL only. (Without a key there are no updates
        and deletes but under FULL.)
        """
        if self._before_image is BeforeImage.KEY:
            return True
        source = place.source
        if source.product not in FILLER_PRODUCTS:
            return False
        if op is _DELETE or after is None:
            return True
        return any(before.get(name) != after.get(name) for name in key)

    def _finish(self, row: JsonRow, plan: RowPlan, path: str, details: dict[str, object]) -> None:
        """Turn the JSON of an image into its values, in place."""
        placeholder = self._placeholder
        if not placeholder.may_be_in(row, plan):
            if plan.conversions:
                plan.convert(row, path)
            return
        placeholders = placeholder.columns_in(row, plan.wires)
        unusual = {
            name: v
            for name, v in placeholders.items()
            if not placeholder.is_usual(name, v, plan.wires)
        }
        if unusual:
            details["placeholders"] = unusual
        row.update(dict.fromkeys(placeholders))
        plan.convert(row, path)
        row.update(dict.fromkeys(placeholders, UNAVAILABLE))

    # -- the long way --------------------------------------------------------------------------

    def _slow(self, message: Message, value: bytes) -> tuple[ChangeEvent, ...]:
        """Read any message, field by field."""
        value = value.removeprefix(_BOM)
        plan: RowPlan = PLAIN
        wrapped = unwrap(value)
        block, payload = wrapped or (None, value)
        if block is not None:
            plan = self._blocks.plan(block)
        try:
            if payload.strip() == b"null":
                return (self._keys.tombstone(message),)
            parts = other_events.loads(_PARTS, payload)
            op = other_events.text_part(parts, "op") if "op" in parts else ""
            if op not in _ROW_OPS:
                return other_events.decode(message, parts, block, plan, payload)
            if block is not None and isinstance(plan, ValuePlan) and plan.is_rows:
                self._blocks.remember(value, block, plan)
            return self._slow_row(message, parts, plan, op)
        except DecodeError as error:
            path = error.path if wrapped is None else error.path.replace("$", "$.payload", 1)
            raise DecodeError(error.reason, code=error.code, path=path) from None

    def _slow_row(
        self, message: Message, parts: Mapping[str, msgspec.Raw], plan: RowPlan, op: str
    ) -> tuple[ChangeEvent, ...]:
        details: dict[str, object] = {}
        fields = other_events.object_part(parts, "source")
        place = source_block.place(fields)
        place.declared = self._declared.find(place)
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
            source=PostgresSource(),  # already read, into the origin
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
        return self._row(message, envelope, plan, (place, position, other_fields, time_ns), details)


def _typed(plan: RowPlan, before: JsonRow | None, after: JsonRow | None) -> list[JsonRow | None]:
    """Return images that were read without types as those of a table that the user declares."""
    return [
        None
        if row is None
        else other_events.loads(plan.rows_reader, json.dumps(usual_row(row, plan.wires)), path)
        for row, path in ((before, "$.before"), (after, "$.after"))
    ]


def _describe(plan: RowPlan, place: Place, details: dict[str, object]) -> None:
    """Keep what a schema says and its columns do not."""
    if plan.base != place.topic and plan.base:
        details["name"] = plan.base
    if plan.details:
        details.update(plan.details)
