# SPDX-License-Identifier: Apache-2.0
"""StreamX JSON to change events."""

from typing import Any, Final, Literal

import msgspec

from changelane.errors import DecodeError
from changelane.event import (
    NO_DETAILS,
    ChangeEvent,
    Completeness,
    Control,
    DataChange,
    Details,
    Image,
    Key,
    KeyOrigin,
    Op,
    SchemaChange,
    Source,
    Transaction,
    TransactionMarker,
    Truncate,
    Watermark,
)
from changelane.formats.contract import json
from changelane.formats.datahub import streamx_wire
from changelane.formats.datahub.sequence import FULL_LOAD, half_of, read_sequence
from changelane.formats.datahub.streamx_wire import (
    DdlPart,
    ImagePart,
    NullParts,
    SchemaPart,
    SourcePart,
    StreamxMessage,
    TimePart,
)
from changelane.formats.datahub.values import (
    NOT_A_VALUE,
    Read,
    read_boolean,
    read_bytes,
    read_decimal,
    read_float,
    read_instant,
    read_integer,
    read_text,
)
from changelane.position import SequencePosition
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableId, TableSchema
from changelane.types import (
    Boolean,
    Bytes,
    Decimal,
    Float,
    InstantType,
    Integer,
    LogicalType,
    String,
)

CONNECTOR: Final = "streamx"
SNAPSHOT: Final = "true"
MARKER: Final = Transaction("")
"""The transaction of markers: this format sends no transaction id."""

ROWID: Final = "rowid"
"""The column that the producer adds to rows of Oracle."""
OLD_ROWID: Final = "rowidBefore"
"""The detail with the row id before an update that changed it."""

TYPES: Final[dict[str, tuple[LogicalType, Read]]] = {
    "BOOLEAN": (Boolean(), read_boolean),
    "LONG": (Integer(64), read_integer(64)),
    "DOUBLE": (Decimal(), read_decimal),
    "DATE": (InstantType(3), read_instant(1000)),
    "BYTES": (Bytes(), read_bytes),
    "STRING": (String(), read_text),
}
"""The six types of StreamX."""

FLOAT: Final[tuple[LogicalType, Read]] = (Float(64), read_float)

_AFTER_LAST_MS: Final = 253_402_300_800_000  # the beginning of the year 10000
_MAX_PLANS: Final = 1024
_MAX_CACHED_BYTES: Final = 1 << 20

# module names, because a look-up in the enum class is slow
_CREATE: Final = Op.CREATE
_READ: Final = Op.READ
_DELETE: Final = Op.DELETE
_FULL: Final = Completeness.FULL
_UNKNOWN: Final = Completeness.UNKNOWN


MissingColumns = Literal["auto", "absent", "null"]
"""The interpretation of a column that ``dataColumn`` lists and an image lacks. ``auto`` is NULL in
the after image of a message without any null, because its producer omits NULL; else absent."""


class ReadOptions(msgspec.Struct, frozen=True):
    """The options of a reader; see the options of the format."""

    double: Literal["decimal", "float"] = "decimal"
    missing_columns: MissingColumns = "auto"
    keep_rowid: bool = False
    start_checkpoint_ms: int | None = None


class TablePlan:
    """The conversion of messages with one ``schema`` part, compiled once.

    Attributes:
        schema: The columns; ``None`` if the message does not list them.
        rowid: The producer added the column ``rowid`` to the rows.
        nulls: The columns with NULL; empty if the message does not list them.
    """

    def __init__(self, part: SchemaPart, options: ReadOptions) -> None:
        source = part.source or SourcePart()
        self.table = TableId(
            source.dbName or None, source.schemaName or None, source.tableName or None
        )
        product = (source.dbType or "").lower() or None
        self.source = Source(product, CONNECTOR)
        self.snapshot = Source(product, CONNECTOR, snapshot=SNAPSHOT)
        self.key = Key(tuple(part.primaryKey), KeyOrigin.PAYLOAD) if part.primaryKey else None
        self.details: Details = {"dbVersion": source.dbVersion} if source.dbVersion else NO_DETAILS
        self.schema: TableSchema | None = None
        self.rowid = False
        self._types: dict[str, str] = {}
        self._readers: tuple[tuple[str, Read], ...] = ()
        self.nulls: dict[str, None] = {}
        self._fills = False
        if part.dataColumn is not None:
            self._add_columns(part, options)

    def _add_columns(self, part: SchemaPart, options: ReadOptions) -> None:
        columns: list[Column] = []
        readers: list[tuple[str, Read]] = []
        is_oracle = self.source.product == "oracle" and not options.keep_rowid
        for index, column_part in enumerate(part.dataColumn or ()):
            name, type_name = column_part.name, column_part.type
            path = f"$.schema.dataColumn[{index}]"
            if name in self._types:
                raise DecodeError("a column is listed twice", path=f"{path}.name")
            if type_name not in TYPES:
                raise DecodeError(
                    "not a type of StreamX", code=ReasonCode.UNKNOWN_TYPE, path=f"{path}.type"
                )
            self._types[name] = type_name
            is_float = type_name == "DOUBLE" and options.double == "float"
            kind, read = FLOAT if is_float else TYPES[type_name]
            readers.append((name, read))
            if is_oracle and name == ROWID and ROWID not in (part.primaryKey or ()):
                self.rowid = True
                continue
            columns.append(Column(name, kind, type_name))
        self.schema = TableSchema(tuple(columns))
        self._readers = tuple(readers)
        self.nulls = dict.fromkeys(column.name for column in columns)
        self._fills = options.missing_columns == "null"

    def read(self, part: ImagePart | None, field: str) -> dict[str, Any] | None:
        """Convert the JSON values of an image into typed values, in place, and return the image."""
        if part is None:
            return None
        row = part.dataColumn
        if self.schema is None:
            return row
        name = ""
        try:
            for name, read in self._readers:
                value = row.get(name)
                if value is not None:
                    row[name] = read(value)
        except (*NOT_A_VALUE, KeyError):
            path = f"$.payload.{field}.dataColumn.{name}"
            reason = f"not a value of {self._types[name]}"
            raise DecodeError(reason, code=ReasonCode.WRONG_TYPE, path=path) from None
        if not row.keys() <= self._types.keys():
            path = f"$.payload.{field}.dataColumn"
            raise DecodeError("the image has a column that schema does not list", path=path)
        return {**self.nulls, **row} if self._fills else row


class Reader:
    """Decodes messages; caches plans by the bytes of the ``schema`` part."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._plans: dict[bytes, TablePlan] = {}

    def __call__(self, value: bytes) -> tuple[ChangeEvent, ...]:
        """Return the event of a message's value; no event if it is before the start time."""
        message = load(value)
        payload = message.payload
        if self._is_before_start(payload.timestamp):
            return ()
        plan = self._plan(bytes(message.schema))
        sequence = read_sequence(payload.sequenceId, "$.payload.sequenceId")
        if payload.op in streamx_wire.ROWS:
            return (self._row(message, plan, sequence, value),)
        for field in ("before", "after"):
            part = getattr(payload, field)
            if part is not None and part.dataColumn:
                _refuse_image(payload.op, field)
        return (_other(message, plan, None if sequence == FULL_LOAD else sequence),)

    def _is_before_start(self, time: TimePart) -> bool:
        """Return whether a message is before the start time; an unknown time is not."""
        start = self._options.start_checkpoint_ms
        if start is None:
            return False
        event_time = time.eventTime if time.checkpointTime is None else time.checkpointTime
        return 0 <= event_time < start

    def _plan(self, content: bytes) -> TablePlan:
        plan = self._plans.get(content)
        if plan is None:
            try:
                none = not content or content == b"null"
                part = SchemaPart() if none else json.loads(content, SchemaPart)
            except DecodeError as error:
                path = f"$.schema{error.path[1:]}"
                raise DecodeError(error.reason, code=error.code, path=path) from None
            plan = TablePlan(part, self._options)
            if len(content) < _MAX_CACHED_BYTES:
                if len(self._plans) >= _MAX_PLANS:
                    self._plans.clear()
                self._plans[content] = plan
        return plan

    def _row(
        self, message: StreamxMessage, plan: TablePlan, sequence: int | None, value: bytes
    ) -> ChangeEvent:
        payload = message.payload
        op, needed, allowed = streamx_wire.ROWS[payload.op]
        images: dict[str, Any] = {}
        for field, part in (("before", payload.before), ("after", payload.after)):
            if part is not None and field not in allowed and part.dataColumn:
                _refuse_image(payload.op, field)
            if part is None and field in needed:
                reason = f"{payload.op} needs this image"
                raise DecodeError(reason, code=ReasonCode.MISSING_IMAGE, path=f"$.payload.{field}")
            # an optional image without columns has no content
            has_image = part is not None and (part.dataColumn or field in needed)
            images[field] = plan.read(part, field) if has_image else None
        if op is _CREATE and sequence == FULL_LOAD:
            op = _READ
        elif sequence == FULL_LOAD:
            sequence = None
        details = _details(message, plan)
        if plan.rowid:
            details = _without_rowid(images, details)
        before, after = images["before"], images["after"]
        if (
            self._options.missing_columns == "auto"
            and after is not None
            and not plan.nulls.keys() <= after.keys()
            and not _has_null(value, before, after)
        ):
            after = {**plan.nulls, **after}
        is_half = payload.op.startswith("UPDATE_") and (before is None or after is None)
        if is_half and after is not None:
            op = _CREATE
        completeness = _UNKNOWN if plan.schema is not None else _FULL
        time = payload.timestamp
        change = DataChange(
            op,
            plan.table,
            plan.key,
            before,
            after,
            plan.schema,
            None if sequence is None else SequencePosition(sequence),
            None,
            plan.snapshot if op is _READ else plan.source,
            _nanoseconds(time.eventTime, "eventTime"),
            _nanoseconds(time.systemTime, "systemTime"),
            _UNKNOWN if before is None else completeness,
            _UNKNOWN if after is None else completeness,
            details,
        )
        if not is_half:
            return change
        if sequence is not None:
            return half_of(change, sequence)
        if op is _DELETE:
            reason = "a half update needs a sequence, which joins it to the other half"
            raise DecodeError(reason, code=ReasonCode.MISSING_FIELD, path="$.payload.sequenceId")
        return msgspec.structs.replace(change, op=Op.UPDATE)


def load(value: bytes) -> StreamxMessage:
    """Return the wire class of a message's value.

    Raises:
        DecodeError: The value is not StreamX JSON, or its operation is unknown.
    """
    message = json.loads(value, StreamxMessage)
    if message.payload.op not in streamx_wire.OPERATIONS:
        raise DecodeError(
            "an unknown operation",
            code=ReasonCode.UNKNOWN_OPERATION,
            path="$.payload.op",
        )
    return message


def _has_null(value: bytes, *images: Image | None) -> bool:
    """Return whether a message has a null, so that its producer does not omit NULL.

    "For DML operations ... the ddl field is null", and the document's samples lack it: fastjson
    omits nulls by default, and so the columns with NULL.
    """
    if any(image is not None and None in image.values() for image in images):
        return True
    parts = json.loads(value, NullParts).payload.values()
    return any(bytes(part) == b"null" for part in parts)


def _refuse_image(op: str, field: str) -> None:
    reason = f"{op} has no such image"
    raise DecodeError(reason, code=ReasonCode.UNEXPECTED_IMAGE, path=f"$.payload.{field}")


def _without_rowid(images: dict[str, Image | None], details: Details) -> Details:
    """Move the row id of Oracle from the images to the details; a moved row has two row ids."""
    fields: dict[str, object] = {}
    for field in ("before", "after"):
        image = images[field]
        if image is not None and ROWID in image:
            if fields.get(ROWID, image[ROWID]) != image[ROWID]:
                fields[OLD_ROWID] = fields[ROWID]
            fields[ROWID] = image[ROWID]
            images[field] = {name: image[name] for name in image if name != ROWID}
    return {**fields, **details}


def _nanoseconds(value: int | None, field: str) -> int | None:
    """Return a time in nanoseconds; a negative time is unknown (a full load writes -1)."""
    if value is None or value < 0:
        return None
    if value >= _AFTER_LAST_MS:
        path = f"$.payload.timestamp.{field}"
        raise DecodeError(
            "the time is after the year 9999", code=ReasonCode.VALUE_OUT_OF_RANGE, path=path
        )
    return value * 1_000_000


def _details(message: StreamxMessage, plan: TablePlan, *, is_row: bool = True) -> Details:
    payload = message.payload
    time = payload.timestamp
    details: dict[str, object] = dict(plan.details)
    if time.checkpointTime is not None and time.checkpointTime != time.eventTime:
        details["checkpointTime"] = time.checkpointTime
    if message.version is not None and message.version != streamx_wire.VERSION:
        details["version"] = message.version
    ddl = payload.ddl
    if ddl is not None and ddl.ddlMeta is not None:
        # a serialised Java object: it is kept as text and never deserialised
        details["ddlMeta"] = ddl.ddlMeta
    if ddl is not None and ddl.text is not None and is_row:
        details["ddl"] = ddl.text
    return details or NO_DETAILS


def _other(message: StreamxMessage, plan: TablePlan, sequence: int | None) -> ChangeEvent:
    payload = message.payload
    op, time = payload.op, payload.timestamp
    text = (payload.ddl or DdlPart()).text
    parts: dict[str, Any] = {
        "position": None if sequence is None else SequencePosition(sequence),
        "source": plan.source,
        "source_time_ns": _nanoseconds(time.eventTime, "eventTime"),
        "process_time_ns": _nanoseconds(time.systemTime, "systemTime"),
        "details": _details(message, plan, is_row=False),
    }
    if op in streamx_wire.ACTIONS:
        schema, key = plan.schema, plan.key
        return SchemaChange(plan.table, streamx_wire.ACTIONS[op], text, schema, key, **parts)
    if op == streamx_wire.TRUNCATE:
        return Truncate(plan.table, text, **parts)
    if op in streamx_wire.CONTROLS:
        return Control(op, text, plan.table, **parts)
    if text is not None:
        parts["details"] = {**parts["details"], "ddl": text}
    if op in streamx_wire.STATUSES:
        return TransactionMarker(streamx_wire.STATUSES[op], MARKER, **parts)
    return Watermark("heartbeat", **parts)
