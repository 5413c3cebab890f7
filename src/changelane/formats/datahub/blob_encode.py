# SPDX-License-Identifier: Apache-2.0
"""Change events to StreamX JSON."""

import base64
import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET

from changelane.errors import EncodeError
from changelane.event import (
    ChangeEvent,
    Control,
    DataChange,
    Details,
    HalfUpdate,
    Image,
    Key,
    Op,
    SchemaChange,
    TransactionMarker,
    Truncate,
    Watermark,
    is_incremental_read,
)
from changelane.formats.contract import json
from changelane.formats.contract.format import Report
from changelane.formats.contract.losses import Loss
from changelane.formats.datahub import streamx_wire
from changelane.formats.datahub.sequence import (
    FULL_LOAD,
    halves_of,
    milliseconds,
    sequence_of,
    sequence_of_half,
)
from changelane.formats.datahub.streamx_wire import (
    ColumnPart,
    DdlPart,
    ImagePart,
    SchemaPart,
    SourcePart,
    TimePart,
    WrittenMessage,
    WrittenPayload,
)
from changelane.formats.datahub.values import NOT_A_VALUE, ticks_of, write_number
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.types import (
    Boolean,
    Bytes,
    Date,
    Decimal,
    Float,
    InstantType,
    Integer,
    LogicalType,
    String,
    Timestamp,
    Value,
)

OPERATIONS: Final = {action: op for op, action in streamx_wire.ACTIONS.items()}
MARKERS: Final = {status: op for op, status in streamx_wire.STATUSES.items()}

TYPE_NAMES: Final[dict[type[LogicalType], str]] = {
    Boolean: "BOOLEAN",
    Bytes: "BYTES",
    Date: "DATE",
    Decimal: "DOUBLE",
    Float: "DOUBLE",
    InstantType: "DATE",
    Integer: "LONG",
    String: "STRING",
    Timestamp: "DATE",
}

NARROWED: Final[dict[type[LogicalType], Loss]] = {
    Date: ("type:date", "written as the point in time at its midnight"),
    Timestamp: ("type:timestamp", "written as a point in time"),
}
"""Types that are written as another type without a change of the value."""

_DOUBLES: Final[dict[str, tuple[type[LogicalType], Loss]]] = {
    "decimal": (Float, ("type:float", "DOUBLE is read as an exact decimal")),
    "float": (Decimal, ("type:decimal", "DOUBLE is read as a binary float")),
}
_MAX_LONG: Final = (1 << 63) - 1
_OVERSIZED: Final = ("value:uint64", "above the range of LONG; written as text")
_CUT: Final = ("value:instant", "cut to ms")
_SKIPPED: Final = ("value:timestamp", "the zone skips it when its clock goes forward; moved")
_FULL_LOAD: Final = ("position", "the sequence -1 is reserved for full loads")
_NO_TABLE: Final = TableId()
_MAX_PLANS: Final = 1024
_DETAILS: Final = frozenset({"dbVersion", "checkpointTime", "version", "ddlMeta", "ddl"})

Write = Callable[[Any, Report], Value]
OtherEvent = SchemaChange | Truncate | TransactionMarker | Watermark | Control


class WriteOptions(msgspec.Struct, frozen=True):
    """The options of a writer; see the options of the format."""

    zone: dt.tzinfo
    double: Literal["decimal", "float"] = "decimal"
    updates: Literal["two", "one"] = "two"


def _same(kind: type) -> Write:
    def write(value: Value, _report: Report) -> Value:
        if type(value) is not kind:
            raise TypeError
        return value

    return write


def _number(value: Value, _report: Report) -> Value:
    return write_number(value)


def _base64(value: bytes, _report: Report) -> str:
    return base64.b64encode(value).decode("ascii")


def _instant(value: Value, report: Report) -> int:
    ticks, is_exact = ticks_of(value, 1000)
    if not is_exact:
        report(_CUT)
    return ticks


def _local(zone: dt.tzinfo) -> Write:
    def write(value: Value, report: Report) -> int:
        if not isinstance(value, dt.date):
            raise TypeError
        if not isinstance(value, dt.datetime):
            return _instant(dt.datetime.combine(value, dt.time(), zone), report)
        local = value.replace(tzinfo=zone)
        if zone is not dt.UTC and _is_skipped(local, zone):
            report(_SKIPPED)
        return _instant(local, report)

    return write


def _is_skipped(local: dt.datetime, zone: dt.tzinfo) -> bool:
    """Whether the clock of a zone never shows a local time of that zone."""
    try:
        return local.astimezone(dt.UTC).astimezone(zone) != local
    except OverflowError:
        return False  # the clock of the years 1 and 9999 skips nothing


class TablePlan:
    """The conversion of images of one schema into JSON rows, compiled once.

    Attributes:
        columns: The written names and types; ``None`` without a schema.
        losses: The losses of the types, which do not depend on values.
    """

    def __init__(self, schema: TableSchema | None, options: WriteOptions) -> None:
        self.columns: tuple[ColumnPart, ...] | None = None
        self.losses: tuple[Loss, ...] = ()
        self._writers: dict[str, Write] = {}
        self._unsigned: tuple[str, ...] = ()
        self._parts: dict[tuple[object, ...], msgspec.Raw] = {}
        if schema is None:
            return
        self.columns = tuple(_column(column) for column in schema.columns)
        kinds = {type(column.type) for column in schema.columns}
        other_type, loss = _DOUBLES[options.double]
        narrowed = {**NARROWED, other_type: loss}
        self.losses = tuple(narrowed[kind] for kind in narrowed if kind in kinds)
        self._writers = {column.name: _writer(column.type, options) for column in schema.columns}
        self._unsigned = tuple(
            column.name for column in schema.columns if column.type == Integer(64, unsigned=True)
        )

    def oversized(self, *images: Image | None) -> tuple[str, ...]:
        """Return the columns with a value above the range of LONG in one of the images."""
        return tuple(
            name
            for name in self._unsigned
            for image in images
            if image is not None and isinstance(n := image.get(name), int) and n > _MAX_LONG
        )

    def row(self, image: Image, oversized: tuple[str, ...], report: Report) -> dict[str, Any]:
        """Return the JSON values of an image, with its columns in their order.

        Raises:
            EncodeError: A value is not of its column's type.
        """
        if self.columns is None:
            return dict(image)
        row: dict[str, Any] = {}
        name = ""
        try:
            for name, value in image.items():
                write = self._writers.get(name)
                if write is None:
                    report(("column", "not among the columns of the schema"))
                elif value is None:
                    row[name] = None
                elif name in oversized:
                    row[name] = str(value)
                else:
                    row[name] = write(value, report)
        except NOT_A_VALUE:
            raise EncodeError(f"column {name!r} has a value that is not of its type") from None
        return row

    def part(
        self, table: TableId, key: Key | None, source: SourcePart, oversized: tuple[str, ...] = ()
    ) -> msgspec.Raw:
        """Return the part ``schema`` of a message, cached, because each message repeats it."""
        cache_key = (table, key and key.columns, source.dbType, source.dbVersion, oversized)
        part = self._parts.get(cache_key)
        if part is None:
            columns = self.columns
            schema_part = SchemaPart(
                None
                if columns is None
                else [_as_text(c) if c.name in oversized else c for c in columns],
                None if source == SourcePart() else source,
                list(key.columns) if key is not None else None,
            )
            if len(self._parts) >= _MAX_PLANS:
                self._parts.clear()
            part = self._parts[cache_key] = msgspec.Raw(json.dumps(schema_part))
        return part


def _column(column: Column) -> ColumnPart:
    return ColumnPart(column.name, TYPE_NAMES[type(column.type)])


def _as_text(column: ColumnPart) -> ColumnPart:
    return ColumnPart(column.name, "STRING")


def _writer(kind: LogicalType, options: WriteOptions) -> Write:
    match kind:
        case Boolean():
            return _same(bool)
        case Integer():
            return _same(int)
        case Decimal() | Float():
            return _number
        case Bytes():
            return _base64
        case InstantType():
            return _instant
        case Timestamp() | Date():
            return _local(options.zone)
        case String():
            return _same(str)
        case _:
            raise EncodeError(f"StreamX has no type for {type(kind).__name__}")


class Writer:
    """Encodes events that are reduced to the capabilities of the format."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._plans: dict[TableSchema | None, TablePlan] = {}

    def __call__(self, event: ChangeEvent, report: Report) -> tuple[bytes, ...]:
        """Return the messages' values; none if StreamX has no message for the event."""
        match event:
            case DataChange(op=Op.UPDATE):
                return self._update(event, report)
            case DataChange():
                return (self._single_row(event, report),)
            case HalfUpdate(change):
                sequence = sequence_of_half(event, report)
                if sequence is None or sequence == FULL_LOAD:
                    return (self._single_row(change, report),)
                is_before = change.op is Op.DELETE
                op = streamx_wire.UPDATE_BEFORE if is_before else streamx_wire.UPDATE_AFTER
                return (self._row(change, op, sequence, report),)
            case SchemaChange() | Truncate() | TransactionMarker() | Watermark() | Control():
                value = self._other(event, report)
                return () if value is None else (value,)
            case _:
                raise EncodeError(f"StreamX has no message for {type(event).__name__}")

    # -- rows ----------------------------------------------------------------------------------

    def _single_row(self, change: DataChange, report: Report) -> bytes:
        sequence = sequence_of(change.position, report)
        is_insert = is_incremental_read(change)
        if is_insert:
            report(("operation:r", "written as an insert, because it is part of the stream"))
        if change.op is Op.READ and not is_insert:
            if change.position != SequencePosition(FULL_LOAD):
                report(("position", "every row of a full load has the sequence -1"))
            sequence = FULL_LOAD
        elif sequence == FULL_LOAD:
            report(_FULL_LOAD)
            sequence = None
        op = streamx_wire.DELETE if change.op is Op.DELETE else streamx_wire.INSERT
        return self._row(change, op, sequence, report)

    def _update(self, change: DataChange, report: Report) -> tuple[bytes, ...]:
        sequence = sequence_of(change.position, report)
        if sequence == FULL_LOAD:
            report(_FULL_LOAD)
            sequence = None
        if change.before is None:
            # UPDATE_AFTER without a before image would be a half update
            return (self._row(change, streamx_wire.UPDATE, sequence, report),)
        if sequence is None or self._options.updates == "one":
            return (self._row(change, streamx_wire.UPDATE_AFTER, sequence, report),)
        delete_half, insert_half = halves_of(change)
        oversized = self._plan(change.schema).oversized(change.before, change.after)
        return (
            self._row(delete_half, streamx_wire.UPDATE_BEFORE, sequence, report, oversized),
            self._row(insert_half, streamx_wire.UPDATE_AFTER, sequence, report, oversized),
        )

    def _row(
        self,
        change: DataChange,
        op: str,
        sequence: int | None,
        report: Report,
        oversized: tuple[str, ...] | None = None,
    ) -> bytes:
        snapshot = change.source.snapshot
        if snapshot != ("true" if change.op is Op.READ else None):
            report(("source.snapshot", "read as true in a full load, otherwise as none"))
        plan = self._plan(change.schema)
        for loss in plan.losses:
            report(loss)
        if oversized is None:
            oversized = plan.oversized(change.before, change.after)
        if oversized:
            report(_OVERSIZED)
        before, after = (
            UNSET if image is None else ImagePart(plan.row(image, oversized, report))
            for image in (change.before, change.after)
        )
        details = change.details
        part = plan.part(change.table, change.key, _source(change, change.table), oversized)
        ddl = DdlPart(_text(details, "ddl", report), _text(details, "ddlMeta", report))
        payload = WrittenPayload(op, before, after, UNSET if sequence is None else str(sequence))
        payload.ddl = UNSET if ddl == DdlPart() else ddl
        if after is not UNSET and plan.columns and len(after.dataColumn) < len(plan.columns):
            _write_null(payload, report)
        return self._message(change, part, payload, report)

    def _plan(self, schema: TableSchema | None) -> TablePlan:
        plan = self._plans.get(schema)
        if plan is None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = self._plans[schema] = TablePlan(schema, self._options)
        return plan

    # -- other events --------------------------------------------------------------------------

    def _other(self, event: OtherEvent, report: Report) -> bytes | None:
        op = _operation(event, report)
        if op is None:
            return None
        schema = key = None
        match event:
            case SchemaChange():
                ddl, schema, key = event.ddl, event.schema, event.key
            case Truncate():
                ddl = event.ddl
            case Control():
                ddl = event.text
            case _:
                ddl = _text(event.details, "ddl", report)
        plan = self._plan(schema)
        for loss in plan.losses:
            report(loss)
        sequence = sequence_of(event.position, report)
        if sequence == FULL_LOAD:
            report(_FULL_LOAD)
            sequence = None
        ddl_part = DdlPart(ddl, _text(event.details, "ddlMeta", report))
        payload = WrittenPayload(op, sequenceId=UNSET if sequence is None else str(sequence))
        payload.ddl = UNSET if ddl_part == DdlPart() else ddl_part
        table: TableId = getattr(event, "table", _NO_TABLE)
        return self._message(event, plan.part(table, key, _source(event, table)), payload, report)

    def _message(
        self,
        event: DataChange | OtherEvent,
        part: msgspec.Raw,
        payload: WrittenPayload,
        report: Report,
    ) -> bytes:
        details = event.details
        if details:
            for name in details.keys() - _DETAILS:
                report((f"details.{name}", "StreamX has no such key"))
        time_ms = milliseconds(event.source_time_ns, "source_time", report)
        process_time = milliseconds(event.process_time_ns, "process_time", report)
        # an unknown time is -1, as in a full load
        event_time = -1 if time_ms is None else time_ms
        checkpoint = details.get("checkpointTime", event_time)
        if type(checkpoint) is not int:
            report(("details.checkpointTime", "not a whole number"))
            checkpoint = event_time
        payload.timestamp = TimePart(event_time, process_time, checkpoint)
        version = _text(details, "version", report) or streamx_wire.VERSION
        return json.dumps(WrittenMessage(part, payload, version))


def _operation(event: OtherEvent, report: Report) -> str | None:
    match event:
        case SchemaChange():
            if event.action not in OPERATIONS:
                report(("action", "StreamX has no such operation"))
            return OPERATIONS.get(event.action, OPERATIONS["other"])
        case Truncate():
            return streamx_wire.TRUNCATE
        case Watermark():
            if event.type != "heartbeat":
                report(("event:watermark", "a resolved time is written as a heartbeat"))
            return streamx_wire.HEARTBEAT
        case TransactionMarker():
            if event.status not in MARKERS:
                report(("event:transaction", "StreamX has no message for a rollback"))
            return MARKERS.get(event.status)
        case Control():
            if event.type in streamx_wire.CONTROLS:
                return event.type
            report(("event:control", "StreamX has no such operation"))
            return None


def _write_null(payload: WrittenPayload, report: Report) -> None:
    """Write an empty part of a payload as null.

    In a message without any null, a reader takes a missing column for a NULL that was omitted.
    """
    for name in ("ddl", "before", "sequenceId"):
        if getattr(payload, name) is UNSET:
            setattr(payload, name, None)
            return
    report(("absent", "a missing column is read as NULL"))


def _source(event: DataChange | OtherEvent, table: TableId) -> SourcePart:
    product = event.source.product
    version = event.details.get("dbVersion")
    return SourcePart(
        table.database,
        None if product is None else streamx_wire.SPELLINGS.get(product, product),
        version if isinstance(version, str) else None,
        table.schema,
        table.name,
    )


def _text(details: Mapping[str, object] | Details, name: str, report: Report) -> str | None:
    value = details.get(name)
    if value is None or isinstance(value, str):
        return value
    report((f"details.{name}", "not text"))
    return None
