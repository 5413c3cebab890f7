# SPDX-License-Identifier: Apache-2.0
"""``native-json``: the canonical event as a JSON line, exact both ways (``docs/native.md``).

Sample::

    {"op":"u","table":{"database":"shop","schema":"public","name":"customers"},"key":["id"],
     "after":{"id":1,"name":"Ann"},"unavailable":{"after":["notes"]},
     "position":{"domain":"postgresql","lsn":33204824},"order":"01020000..."}

Golden tests, the quarantine and people read this form. The message has no key: the value contains
everything.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.errors import ConfigError, DecodeError, EncodeError, UnorderedError
from changelane.event import (
    NO_DETAILS,
    ChangeEvent,
    Completeness,
    Control,
    DataChange,
    HalfUpdate,
    Image,
    Key,
    KeyOrigin,
    LogicalMessage,
    Op,
    SchemaChange,
    Source,
    Tombstone,
    Transaction,
    TransactionMarker,
    Truncate,
    Watermark,
    is_first_snapshot,
)
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.capabilities import AbsentMeans, Carries, Extreme, SchemaDetail
from changelane.formats.contract.format import Format, Report
from changelane.formats.native.lanes import NativeLanes
from changelane.message import Message
from changelane.position import DELETE_PHASE, Position, encode_order
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNAVAILABLE, UNKNOWN, LogicalType, NestedTypeError, Value, parse_type
from changelane.types.values import from_json, to_json

_DATA_OPS: Final = frozenset(op.value for op in Op)


def _all_types(kind: type[LogicalType] = LogicalType) -> frozenset[type[LogicalType]]:
    return frozenset(kind.__subclasses__())


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``native-json``: none."""


class NativeColumn(msgspec.Struct, omit_defaults=True):
    """A column of a schema."""

    name: str
    type: str
    source_type: str | None = None
    nullable: bool | None = None
    generated: bool = False
    key: bool = False
    default: Any = msgspec.UNSET


class NativeUnavailable(msgspec.Struct, omit_defaults=True):
    """Columns with an unavailable value, by image."""

    before: list[str] = []
    after: list[str] = []
    key: list[str] = []


class NativeEvent(msgspec.Struct, omit_defaults=True):
    """The JSON line, with its fields in their order on the wire."""

    op: str
    type: str | None = None
    table: TableId | None = None
    key: list[str] | None = None
    key_from: KeyOrigin | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    unavailable: NativeUnavailable | None = None
    before_holds: Completeness = Completeness.UNKNOWN
    after_holds: Completeness = Completeness.UNKNOWN
    half: bool = False
    other_key: dict[str, Any] | None = None
    pair: str | None = None
    moved_to: dict[str, Any] | None = None
    text: str | None = None
    content: str | None = None
    position: Position | None = None
    order: str | None = None
    transaction: Transaction | None = None
    source: Source | None = None
    source_time_ns: int | None = None
    process_time_ns: int | None = None
    schema: list[NativeColumn] | None = None
    details: dict[str, Any] | None = None


class NativeLine(NativeEvent, omit_defaults=True):
    """The JSON line as it is read: most lines of a table have the same bytes of a schema."""

    schema: msgspec.Raw = msgspec.Raw(b"null")  # type: ignore[assignment]  # the base class has it decoded


class Native:
    """The format ``native-json``."""

    lanes: Final = NativeLanes(NativeLine)
    carries: Final = Carries(
        operations=frozenset(Op),
        kinds=frozenset(
            {
                "half",
                "schema",
                "truncate",
                "transaction",
                "watermark",
                "message",
                "tombstone",
                "control",
            }
        ),
        before=True,
        partial_before=True,
        partial_after=True,
        absent=True,
        unavailable=True,
        partial_schema=True,
        absent_means=AbsentMeans.UNCHANGED,
        schema=SchemaDetail.FULL,
        column_flags=True,
        unknown_nullability=True,
        types=_all_types(),
        extremes=frozenset(Extreme),
        pair=True,
        key=True,
        key_change=True,
        table=frozenset({"database", "schema", "name"}),
        positions=frozenset({"mysql", "postgresql", "scn", "lsn", "sequence", "offset", "time"}),
        shared_positions=frozenset({"mysql", "sequence"}),  # events may come from such formats
        transaction=frozenset({"id", "order", "table_order", "size", "last"}),
        source=frozenset({"product", "connector", "server", "version", "snapshot"}),
        source_time="ns",
        process_time="ns",
        details=True,
        other_images=True,
        rowless_delete=True,
        inconsistent=True,
    )

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode one line; a message without a value has no event."""
        if message.value is None:
            return ()
        line = json.loads(message.value, NativeLine)
        return (_event_of(line, _schema_of(bytes(line.schema))),)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode one line."""
        del report  # this format has no losses
        return (Message(json.dumps(native_of(event))),)

    def detects(self, message: Message) -> bool:
        """Return whether a message looks like a native line."""
        if message.value is None:
            return False
        try:
            event = json.loads(message.value, NativeEvent)
        except DecodeError:
            return False
        if event.op in _DATA_OPS:
            first = message.value[:64].lstrip(b"{ \t\r\n")
            return event.table is not None and first.startswith(b'"op"')
        return event.op in Native.carries.kinds


def make(options: Options) -> Format:
    """Return the format."""
    del options
    return Native()


# -- writing -----------------------------------------------------------------------------------


def native_of(event: ChangeEvent) -> NativeEvent:
    """Return the wire form of an event."""
    if isinstance(event, HalfUpdate):
        native = native_of(event.change)
        native.half = True
        schema = event.change.schema
        native.other_key = None if event.other_key is None else _image(event.other_key, schema)[0]
        native.pair = event.pair
        return native
    native = NativeEvent(op=str(event.__struct_config__.tag))
    for field in ("position", "transaction", "source_time_ns", "process_time_ns"):
        setattr(native, field, getattr(event, field, None))
    source: Source | None = getattr(event, "source", None)
    native.source = source if source != Source() else None
    native.details = dict(event.details) or None
    match event:
        case DataChange():
            _write_data(event, native)
        case SchemaChange():
            native.table, native.type, native.text = event.table, event.action, event.ddl
            _write_schema(event.schema, event.key, native)
        case Truncate():
            native.table, native.text = event.table, event.ddl
            native.order = _order(event.position, event.source, DELETE_PHASE)
        case TransactionMarker():
            native.type = event.status
        case Watermark():
            native.type = event.type
        case LogicalMessage():
            native.type = event.prefix
            native.content = str(_value(_BYTES, event.content))
        case Tombstone():
            native.table = event.table
            _write_schema(event.schema, None, native)
            if event.key is not None:
                native.after, missing = _image(event.key, event.schema)
                if missing:
                    native.unavailable = NativeUnavailable(after=missing)
            if event.moved_to is not None:
                native.moved_to = _image(event.moved_to, event.schema)[0]
        case Control():
            native.table = event.table if event.table != TableId() else None
            native.type, native.text = event.type, event.text
    return native


_BYTES: Final = parse_type("bytes")


def _write_data(event: DataChange, native: NativeEvent) -> None:
    native.op = event.op.value
    native.table = event.table
    native.before_holds, native.after_holds = event.before_holds, event.after_holds
    missing = NativeUnavailable()
    if event.before is not None:
        native.before, missing.before = _image(event.before, event.schema)
    if event.after is not None:
        native.after, missing.after = _image(event.after, event.schema)
    if missing.before or missing.after:
        native.unavailable = missing
    _write_schema(event.schema, event.key, native)
    phase = DELETE_PHASE if event.op is Op.DELETE else 1
    native.order = _order(event.position, event.source, phase)


def _order(position: Position | None, source: Source, phase: int) -> str | None:
    if position is None:
        return None
    try:
        return encode_order(position, snapshot=is_first_snapshot(source), phase=phase).hex()
    except UnorderedError:
        return None


def _write_schema(schema: TableSchema | None, key: Key | None, native: NativeEvent) -> None:
    if key is not None:
        native.key = list(key.columns)
        native.key_from = key.origin if key.origin is not KeyOrigin.MESSAGE else None
    if schema is None:
        return
    keys = frozenset(key.columns) if key is not None else frozenset()
    native.schema = [
        NativeColumn(
            name=column.name,
            type=str(column.type),
            source_type=column.source_type,
            nullable=column.nullable,
            generated=column.generated,
            key=column.name in keys,
            default=_value(column.type, column.default),
        )
        for column in schema.columns
    ]


def _value(kind: LogicalType, value: Value) -> Value:
    if value is None or value is msgspec.UNSET:
        return value
    convert = to_json(kind)
    return value if convert is None else convert(value)


def _image(image: Image, schema: TableSchema | None) -> tuple[dict[str, Any], list[str]]:
    columns: Mapping[str, Column] = {} if schema is None else schema.by_name
    result: dict[str, Any] = {}
    missing: list[str] = []
    for name, value in image.items():
        if value is UNAVAILABLE:
            missing.append(name)
            continue
        column = columns.get(name)
        try:
            result[name] = value if column is None else _value(column.type, value)
        except (TypeError, ValueError, AttributeError):
            msg = f"column {name!r} has a value that is not of its type"
            raise EncodeError(msg) from None
    return result, missing


# -- reading -----------------------------------------------------------------------------------


def event_of(native: NativeEvent) -> ChangeEvent:
    """Return the event of a wire form.

    Raises:
        DecodeError: The op is unknown, a field is missing, or a value does not have its type.
    """
    return _event_of(native, _read_schema(native.schema))


_COLUMNS: Final[Any] = list[NativeColumn] | None
_MAX_SCHEMAS: Final = 10_000
_SCHEMAS: Final[BoundedCache[bytes, TableSchema | None]] = BoundedCache(_MAX_SCHEMAS)


def _schema_of(text: bytes) -> TableSchema | None:
    """Return the schema of its JSON; equal texts give one object."""
    if text in _SCHEMAS:
        return _SCHEMAS[text]
    try:
        columns: list[NativeColumn] | None = json.loads(text, _COLUMNS)
    except DecodeError as error:
        path = f"$.schema{(error.path or '$').removeprefix('$')}"
        raise DecodeError(error.reason, code=error.code, path=path) from None
    return _SCHEMAS.add(text, _read_schema(columns))


def _event_of(native: NativeEvent, schema: TableSchema | None) -> ChangeEvent:
    key = None
    if native.key is not None:
        key = Key(tuple(native.key), native.key_from or KeyOrigin.MESSAGE)
    parts: dict[str, Any] = {
        "source_time_ns": native.source_time_ns,
        "process_time_ns": native.process_time_ns,
        "position": native.position,
        "source": native.source or Source(),
        "details": native.details or NO_DETAILS,
    }
    missing = native.unavailable or NativeUnavailable()
    if native.op in _DATA_OPS:
        change = DataChange(
            op=Op(native.op),
            table=_required(native.table, "table"),
            key=key,
            before=_read_image(native.before, missing.before, schema, "before"),
            after=_read_image(native.after, missing.after, schema, "after"),
            schema=schema,
            transaction=native.transaction,
            before_holds=native.before_holds,
            after_holds=native.after_holds,
            **parts,
        )
        if native.half:
            if change.op not in {Op.CREATE, Op.DELETE}:
                reason = "a half update must be a delete (d) or a create (c)"
                raise DecodeError(reason, code=ReasonCode.UNKNOWN_OPERATION, path="$.op")
            other_key = _read_image(native.other_key, [], schema, "other_key")
            return HalfUpdate(change, other_key, native.pair)
        return change
    match native.op:
        case "schema":
            table = _required(native.table, "table")
            action = _required(native.type, "type")
            return SchemaChange(table, action, native.text, schema, key, **parts)
        case "truncate":
            table = _required(native.table, "table")
            return Truncate(table, native.text, transaction=native.transaction, **parts)
        case "transaction":
            transaction = _required(native.transaction, "transaction")
            return TransactionMarker(_required(native.type, "type"), transaction, **parts)
        case "watermark":
            return Watermark(_required(native.type, "type"), **parts)
        case "message":
            content = _converted(_BYTES, _required(native.content, "content"), "$.content")
            prefix = _required(native.type, "type")
            return LogicalMessage(prefix, content, transaction=native.transaction, **parts)
        case "tombstone":
            return Tombstone(
                native.table or TableId(),
                _read_image(native.after, missing.after, schema, "after"),
                schema,
                _read_image(native.moved_to, [], schema, "moved_to"),
                parts["details"],
            )
        case "control":
            kind = _required(native.type, "type")
            return Control(kind, native.text, native.table or TableId(), **parts)
        case _:
            raise DecodeError("unknown op", code=ReasonCode.UNKNOWN_OPERATION, path="$.op")


def _required(value: Any, field: str) -> Any:
    if value is None:
        raise DecodeError("a field is missing", code=ReasonCode.MISSING_FIELD, path=f"$.{field}")
    return value


def _converted(kind: LogicalType, value: Value, path: str) -> Any:
    try:
        return from_json(kind)(value)
    except DecodeError as error:
        raise DecodeError(error.reason, code=error.code, path=path) from None


def _read_schema(columns: list[NativeColumn] | None) -> TableSchema | None:
    if columns is None:
        return None
    read: list[Column] = []
    for index, column in enumerate(columns):
        try:
            kind = parse_type(column.type)
        except ConfigError as error:
            path = f"$.schema[{index}].type"
            if isinstance(error, NestedTypeError):
                raise DecodeError(str(error), code=ReasonCode.TOO_DEEP, path=path) from None
            raise DecodeError("not a column type", code=ReasonCode.WRONG_TYPE, path=path) from None
        default = column.default
        if default is not None and default is not msgspec.UNSET:
            default = _converted(kind, default, f"$.schema[{index}].default")
        read.append(
            Column(
                column.name, kind, column.source_type, column.nullable, column.generated, default
            )
        )
    try:
        return TableSchema(tuple(read))
    except ValueError as error:
        raise DecodeError(str(error), code=ReasonCode.WRONG_SCHEMA, path="$.schema") from None


def _read_image(
    image: dict[str, Any] | None, missing: list[str], schema: TableSchema | None, field: str
) -> Image | None:
    if image is None:
        return dict.fromkeys(missing, UNAVAILABLE) if missing else None
    columns: Mapping[str, Column] = {} if schema is None else schema.by_name
    values: dict[str, Value] = {}
    for name, value in image.items():
        column = columns.get(name)
        kind = UNKNOWN if column is None else column.type
        values[name] = None if value is None else _converted(kind, value, f"$.{field}.{name}")
    values.update(dict.fromkeys(missing, UNAVAILABLE))
    return values
