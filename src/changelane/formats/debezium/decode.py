# SPDX-License-Identifier: Apache-2.0
"""Messages to events: one dispatcher over the record kinds, by content, never by topic (B-02)."""

import decimal
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import (
    ChangeEvent,
    Completeness,
    DataChange,
    HalfUpdate,
    Image,
    Key,
    Op,
    Tombstone,
    Transaction,
    Truncate,
)
from changelane.formats.debezium import notices, sources
from changelane.formats.debezium.connect import Blocks, unwrap
from changelane.formats.debezium.declared import Declared
from changelane.formats.debezium.options import BeforeImage, Dialect, Options
from changelane.formats.debezium.placeholders import Placeholder
from changelane.formats.debezium.plans import PLAIN, KeyPlan, RowPlan, ValuePlan, decoder
from changelane.formats.debezium.sources import Place, Rest
from changelane.formats.debezium.wire import (
    Envelope,
    MySqlSource,
    PostgresSource,
    TransactionBlock,
)
from changelane.message import Message
from changelane.schema import TableId
from changelane.serdes import json
from changelane.types import UNAVAILABLE

_OPS: Final = {op.value: op for op in Op} | {op.value.upper(): op for op in Op}
_RAW_OBJECT: Final = decoder(dict[str, msgspec.Raw])
_OBJECT: Final = decoder(dict[str, Any])
_ANY: Final = decoder(Any)
_MOST_PLACES: Final = 10_000
_BOM: Final = b"\xef\xbb\xbf"

NEW_KEY: Final = "__debezium.newkey"
OLD_KEY: Final = "__debezium.oldkey"

_MISFIT: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError)


class Decoder:
    """Reads the messages of one codec."""

    def __init__(self, options: Options, dialect: Dialect) -> None:
        self._before_image = options.before_image
        self._fillers = dialect.fillers
        text = options.placeholder
        self._placeholder = Placeholder(text) if text and text != "null" else None
        self._declared = Declared(options)
        self._values: Blocks[ValuePlan] = Blocks(ValuePlan)
        self._keys: Blocks[KeyPlan] = Blocks(KeyPlan)
        self._places: dict[tuple[Any, ...], Place] = {}
        self._key_names: dict[tuple[str, ...], Key] = {}

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Return the events of a message."""
        value = message.value
        if not value:
            return (self._tombstone(message),)
        plan: RowPlan
        try:
            if value.startswith(b'{"schema":'):
                found = self._values.find(value)
                if found is None:
                    return self._slow(message, value)
                plan, start = found
                envelope = plan.envelope(memoryview(value)[start:-1])
            else:
                plan, start = PLAIN, 0
                envelope = plan.envelope(value)
        except _MISFIT:
            return self._slow(message, value)
        source = envelope.source
        if type(source) is PostgresSource:
            schema = source.schema
            position, rest = sources.read_postgres(source)
        else:
            schema = None
            position, rest = sources.read_binlog(source)
        words = (
            source.version,
            source.name,
            source.snapshot,
            source.db,
            schema,
            source.table,
            source.__class__,
        )
        place = self._places.get(words)
        if place is None:
            place = self._place(words)
        time_ns, times = sources.instant(source.ts_ms, source.ts_us, source.ts_ns)
        if times:
            rest.update(times)
        return self._row(message, envelope, plan, start, place, position, rest, time_ns, {})

    # -- row changes ---------------------------------------------------------------------------

    def _place(self, words: tuple[Any, ...]) -> Place:
        version, name, snapshot, db, schema, table, kind = words
        place = sources.place(
            {
                "connector": kind.__struct_config__.tag,
                "version": version,
                "name": name,
                "snapshot": snapshot,
                "db": db,
                "schema": schema,
                "table": table,
            }
        )
        if len(self._places) >= _MOST_PLACES:
            self._places.clear()
        self._places[words] = place
        return place

    def _row(
        self,
        message: Message,
        envelope: Envelope[dict[str, Any]],
        plan: RowPlan,
        start: int,
        place: Place,
        position: Any,
        rest: Rest,
        time_ns: int | None,
        details: dict[str, object],
    ) -> tuple[ChangeEvent, ...]:
        op = _OPS.get(envelope.op)
        process_ns, times = sources.instant(envelope.ts_ms, envelope.ts_us, envelope.ts_ns)
        if times:
            details["times"] = times
        if place.rest:
            rest.update(place.rest)
        if rest:
            details["source"] = rest
        block = envelope.transaction
        transaction = None
        if block is not None and block.id is not None:
            transaction = Transaction(block.id, block.total_order, block.data_collection_order)
        source = place.source
        if op is None:
            return (
                self._truncate(plan, place, position, transaction, time_ns, process_ns, details),
            )
        before, after = envelope.before, envelope.after
        if plan is PLAIN and self._declared:
            plan = self._declared.plan(place) or plan
            if plan.is_declared:
                before, after = _typed(before, plan, "before"), _typed(after, plan, "after")
        if plan.schema is None:
            holds = Completeness.FULL
        else:
            holds = Completeness.UNKNOWN
            if plan.base != place.topic and plan.base:
                details["name"] = plan.base
            if plan.details:
                details.update(plan.details)
        _check_images(op, before, after)
        key, key_row = self._key(message.key, after if after is not None else before, plan, details)
        if key is None and plan.schema is not None and plan.is_declared:
            key = self._declared.key(place)
        placeholder = self._placeholder
        hidden = placeholder is not None and placeholder.may_be_in(message.value or b"", start)
        before_holds = holds
        if before is not None:
            if self._is_partial(source, op, key_row, before, after):
                before_holds = Completeness.KEY if plan.schema is None else holds
                blank = _key_only(before, key_row or {}, op, plan, details)
                self._finish(before, plan, "before", hidden, details)
                before.update(dict.fromkeys(blank, UNAVAILABLE))
            else:
                self._finish(before, plan, "before", hidden, details)
        if after is not None:
            self._finish(after, plan, "after", hidden, details)
        if source.snapshot is not None and op is Op.CREATE:
            op = Op.READ
        if op.value != envelope.op:
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
            source,
            time_ns,
            process_ns,
            Completeness.UNKNOWN if before is None else before_holds,
            Completeness.UNKNOWN if after is None else holds,
            details,
        )
        if message.headers and (op is Op.DELETE or op is Op.CREATE):
            return (self._half(change, message, plan),)
        return (change,)

    def _is_partial(
        self,
        source: Any,
        op: Op,
        key: Mapping[str, Any] | None,
        before: Mapping[str, Any],
        after: Mapping[str, Any] | None,
    ) -> bool:
        """Say whether only the key of a before image is to be believed (B-09).

        Without a key the table has REPLICA IDENTITY FULL, or there were no such event. An update
        whose key did not change has a before image only under FULL; the key columns of any other
        identity would differ.
        """
        mode = self._before_image
        if mode is BeforeImage.FULL or not key:
            return False
        if mode is BeforeImage.AUTO and (
            source.product not in self._fillers or source.connector != "debezium"
        ):
            return False
        if op is not Op.UPDATE or after is None or mode is BeforeImage.KEY:
            return True
        return any(before.get(name) != after.get(name) for name in key)

    def _finish(
        self,
        row: dict[str, Any],
        plan: RowPlan,
        part: str,
        hidden: bool,  # noqa: FBT001
        details: dict[str, object],
    ) -> None:
        """Turn the JSON of an image into its values."""
        if not hidden or self._placeholder is None:
            if plan.conversions:
                plan.convert(row, f"$.{part}")
            return
        found = self._placeholder.found(row, plan.wires)
        for name, value in found.items():
            if not self._placeholder.usual(name, value, plan.wires):
                details.setdefault("placeholders", {})[name] = value  # type: ignore[index]
            row[name] = None
        plan.convert(row, f"$.{part}")
        for name in found:
            row[name] = UNAVAILABLE

    def _truncate(
        self,
        plan: RowPlan,
        place: Place,
        position: Any,
        transaction: Transaction | None,
        time_ns: int | None,
        process_ns: int | None,
        details: dict[str, object],
    ) -> Truncate:
        if plan.schema is not None:
            details["columns"] = plan.raw_fields
            if plan.base != place.topic and plan.base:
                details["name"] = plan.base
        return Truncate(
            place.table,
            None,
            position,
            transaction,
            place.source,
            time_ns,
            process_ns,
            details,
        )

    # -- keys ----------------------------------------------------------------------------------

    def _key(
        self,
        data: bytes | None,
        row: Mapping[str, Any] | None,
        plan: RowPlan,
        details: dict[str, object],
    ) -> tuple[Key | None, dict[str, Any] | None]:
        """Return the key, and its JSON. What a writer could not tell from it stays in *details*.

        A key that cannot be read does not fail its event (B-05).
        """
        if data is None:
            return None, None
        key_plan: RowPlan = PLAIN
        try:
            if data.startswith(b'{"schema":'):
                found = self._keys.find(data)
                if found is None:
                    key_plan, values = self._wrapped_key(data)
                else:
                    key_plan = found[0]
                    values = key_plan.rows(memoryview(data)[found[1] : -1])
            else:
                values = _OBJECT.decode(data)
        except (*_MISFIT, DecodeError):
            values = None
        if not values:
            details["key"] = notices.as_text(data)
            return None, None
        names = tuple(values)
        key = self._key_names.get(names)
        if key is None:
            kept = tuple(name for name in names if not name.startswith("__dbz__"))
            if len(self._key_names) >= _MOST_PLACES:
                self._key_names.clear()
            key = self._key_names[names] = Key(kept)
        regular = row is not None and len(key.columns) == len(names)
        if regular:
            if key_plan is PLAIN:
                regular = plan.schema is None or plan.is_declared
            else:
                regular = plan.schema is not None and key_plan.fits(plan)  # type: ignore[attr-defined]
            for name, value in values.items():
                if row.get(name) != value:  # type: ignore[union-attr]
                    regular = False
        if not regular:
            details["key"] = notices.as_text(data)
            values = {name: values[name] for name in key.columns}
        return key, values

    def _wrapped_key(self, data: bytes) -> tuple[RowPlan, Any]:
        wrapped = unwrap(data)
        if wrapped is None:
            return PLAIN, _OBJECT.decode(data)
        block, payload = wrapped
        if block is None:
            return PLAIN, _OBJECT.decode(payload)
        plan = self._keys.plan(block)
        self._keys.remember(data, block, plan)
        return plan, plan.rows(payload)

    def _half(self, change: DataChange, message: Message, plan: RowPlan) -> ChangeEvent:
        wanted = NEW_KEY if change.op is Op.DELETE else OLD_KEY
        for name, value in message.headers:
            if name == wanted and value:
                details = dict(change.details)
                other = self._other_key(value, plan, details)
                change = msgspec.structs.replace(change, details=details)
                return change if other is None else HalfUpdate(change, other)
        return change

    def _other_key(
        self, data: bytes, plan: RowPlan, details: dict[str, object]
    ) -> dict[str, Any] | None:
        try:
            wrapped = unwrap(data)
            row = _OBJECT.decode(data if wrapped is None else wrapped[1])
            if json.dumps(row) != data:
                details["header"] = notices.as_text(data)
            row = plan.rows(json.dumps(row))
            plan.convert(row, "headers")
        except (*_MISFIT, DecodeError, TypeError):
            details["header"] = notices.as_text(data)
            return None
        return row  # type: ignore[no-any-return]

    def _tombstone(self, message: Message) -> Tombstone:
        details: dict[str, object] = {}
        if message.topic is not None:
            details["topic"] = message.topic
        if message.value:
            details["value"] = notices.as_text(message.value)
        elif message.value is not None:
            details["value"] = ""
        key: Image | None = None
        plan: RowPlan = PLAIN
        if message.key is not None:
            try:
                plan, row = self._wrapped_key(message.key)
                plan.convert(row, "key")
                key = row or None
            except (*_MISFIT, DecodeError, TypeError, AttributeError):
                key = None
            if key is None:
                details["key"] = notices.as_text(message.key)
                plan = PLAIN
            elif plan.base and plan.base != sources.sanitised(message.topic or ""):
                details["name"] = plan.base
            if plan.details:
                details.update(plan.details)
        moved_to = None
        for name, value in message.headers:
            if name == NEW_KEY and value:
                moved_to = self._other_key(value, plan, details)
        return Tombstone(TableId(), key, plan.schema if key else None, moved_to, details)

    # -- the long way --------------------------------------------------------------------------

    def _slow(self, message: Message, value: bytes) -> tuple[ChangeEvent, ...]:
        """Read any message, field by field."""
        value = value.removeprefix(_BOM)
        prefix, plan, block = "$", PLAIN, None
        wrapped = unwrap(value)
        payload = value
        if wrapped is not None:
            block, payload = wrapped
            prefix = "$.payload"
            if block is not None:
                plan = self._values.plan(block)
        try:
            if payload.strip() == b"null":
                return (self._tombstone(message),)
            parts = notices.loads(_RAW_OBJECT, payload)
            if "op" not in parts:
                return notices.decode(message, parts, block, plan, payload)
            op = notices.text_part(parts, "op")
            if op.lower() not in _ROW_OPS:
                return notices.decode(message, parts, block, plan, payload)
            if wrapped is not None and block is not None and plan.is_rows:
                self._values.remember(value, block, plan)
            return self._slow_row(message, parts, plan, op)
        except DecodeError as error:
            path = error.path.replace("$", prefix, 1)
            raise DecodeError(error.reason, code=error.code, path=path) from None

    def _slow_row(
        self, message: Message, parts: dict[str, msgspec.Raw], plan: RowPlan, op: str
    ) -> tuple[ChangeEvent, ...]:
        details: dict[str, object] = {}
        fields = notices.object_part(parts, "source")
        place = sources.place(fields)
        position, rest = sources.read(fields)
        whole = [sources.integer(fields.get(name), f"$.source.{name}") for name in notices.TIMES]
        time_ns, times = sources.instant(*whole)
        rest.update(times or {})
        block = notices.object_part(parts, "transaction")
        envelope: Any = Envelope(
            op=op,
            source=None,  # type: ignore[arg-type]
            before=_image(parts, "before", plan),
            after=_image(parts, "after", plan),
            transaction=notices.transaction_block(block, details),
            ts_ms=notices.integer_part(parts, "ts_ms"),
            ts_us=notices.integer_part(parts, "ts_us"),
            ts_ns=notices.integer_part(parts, "ts_ns"),
        )
        more = {
            name: notices.loads(_ANY, raw, f"$.{name}")
            for name, raw in parts.items()
            if name not in _ENVELOPE_FIELDS
        }
        if more:
            details["envelope"] = more
        return self._row(message, envelope, plan, 0, place, position, rest, time_ns, details)


def _image(parts: Mapping[str, msgspec.Raw], name: str, plan: RowPlan) -> dict[str, Any] | None:
    raw = parts.get(name)
    if raw is None:
        return None
    reader = plan.rows_reader
    return notices.loads(reader, raw, f"$.{name}")  # type: ignore[no-any-return]


def _typed(row: dict[str, Any] | None, plan: RowPlan, name: str) -> dict[str, Any] | None:
    if row is None:
        return None
    return notices.loads(plan.rows_reader, json.dumps(row), f"$.{name}")  # type: ignore[no-any-return]


def _check_images(op: Op, before: object, after: object) -> None:
    if op is Op.DELETE:
        if before is None and after is None:
            return
    elif after is None:
        raise DecodeError("a field is missing", code="missing_field", path="$.after")


def _key_only(
    before: dict[str, Any],
    key: Mapping[str, Any],
    op: Op,
    plan: RowPlan,
    details: dict[str, object],
) -> list[str]:
    """Blank the columns of a before image that may be fillers, and return their names.

    Where a column may be NULL, its filler is NULL or its default: any other value is real. Fillers
    that a writer could not tell are kept in *details*.
    """
    fillers: dict[str, object] = {}
    blank: list[str] = []
    for name, value in before.items():
        if name in key:
            if op is Op.DELETE:
                before[name] = key[name]
            continue
        if name not in plan.fillers:
            fillers[name] = value
        elif plan.fillers[name] != value:
            if value is not None and plan.is_nullable(name):
                continue
            fillers[name] = value
        before[name] = None
        blank.append(name)
    details["fillers"] = fillers
    return blank


_ROW_OPS: Final = frozenset("crudt")
_ENVELOPE_FIELDS: Final = frozenset("op source before after transaction ts_ms ts_us ts_ns".split())
