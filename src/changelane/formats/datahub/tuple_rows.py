# SPDX-License-Identifier: Apache-2.0
"""TUPLE rows to change events and back."""

import math
import re
import struct
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError, EncodeError
from changelane.event import (
    NO_DETAILS,
    ChangeEvent,
    Completeness,
    DataChange,
    Details,
    HalfUpdate,
    Image,
    Key,
    Op,
    Source,
)
from changelane.formats.contract import json
from changelane.formats.contract.format import Report
from changelane.formats.datahub.sequence import (
    half_of,
    halves_of,
    milliseconds,
    read_sequence,
    sequence_of,
    sequence_of_half,
)
from changelane.formats.datahub.topic_schema import (
    AFTER,
    BEFORE,
    OPERATION,
    OTHER_TIME,
    SEQUENCE,
    TABLE,
    TIME,
    is_metadata,
)
from changelane.formats.datahub.values import (
    NOT_A_VALUE,
    Read,
    read_boolean,
    read_decimal,
    read_float,
    read_instant,
    read_integer,
    read_text,
    ticks_of,
    write_number,
)
from changelane.position import SequencePosition
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableId, TableSchema
from changelane.types import (
    Boolean,
    Decimal,
    Float,
    InstantType,
    Integer,
    LogicalType,
    String,
    Value,
)
from changelane.types.forms import written_form

SOURCE: Final = Source(connector="datahub")

IMAGES: Final[dict[tuple[str, str, str], Op]] = {
    ("I", "N", "Y"): Op.CREATE,
    ("D", "Y", "N"): Op.DELETE,
    ("U", "Y", "N"): Op.DELETE,
    ("U", "N", "Y"): Op.CREATE,
}
"""(_operation_type_, _before_image_, _after_image_) -> the op of the row alone."""

_MICROSECONDS_ABOVE: Final = 10**14
_AFTER_LAST_MS: Final = 253_402_300_800_000  # the beginning of the year 10000
_DIGITS: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_MAX_TABLES: Final = 1024
_SEQUENCES: Final = (str, int, type(None))
_NAMES: Final = (str, type(None))
_DELETE: Final = Op.DELETE
_FULL: Final = Completeness.FULL
_UNKNOWN: Final = Completeness.UNKNOWN


class RowOptions(msgspec.Struct, frozen=True):
    """The options of a reader or writer; see the options of the format."""

    table: TableId = TableId()
    key: Key | None = None
    schema: TableSchema | None = None
    time_column: str = TIME


def _reader(kind: LogicalType) -> Read:
    match kind:
        case Integer(bits):
            return read_integer(bits)
        case Float():
            return read_float
        case Boolean():
            return read_boolean
        case InstantType():
            return read_instant(1_000_000)
        case Decimal():
            return read_decimal
        case String():
            return read_text
        case _:
            raise TypeError(f"DataHub has no type for {type(kind).__name__}")


class Reader:
    """Decodes rows."""

    def __init__(self, options: RowOptions) -> None:
        self._options = options
        schema = options.schema
        columns = () if schema is None else schema.columns
        self._tables: dict[str | None, TableId] = {None: options.table}
        self._readers = tuple((column.name, _reader(column.type)) for column in columns)
        self._kinds = {column.name: column.source_type for column in columns}

    def __call__(self, value: bytes, topic: str | None = None) -> tuple[ChangeEvent, ...]:
        """Return the event of a row; *topic* names its table if the row and the options do not."""
        row = load(value)
        operation, is_before, is_after = row.pop(OPERATION), row.pop(BEFORE), row.pop(AFTER)
        try:
            op = IMAGES[operation, is_before, is_after]
        except (KeyError, TypeError):
            reason = f"the operation does not have this combination of {BEFORE} and {AFTER}"
            raise DecodeError(reason, code=ReasonCode.WRONG_IMAGE, path=f"$.{BEFORE}") from None
        sequence = read_sequence(row.pop(SEQUENCE, None), f"$.{SEQUENCE}")
        if sequence is not None and sequence < 0:
            raise DecodeError(
                "the sequence must consist of digits",
                code=ReasonCode.WRONG_TYPE,
                path=f"$.{SEQUENCE}",
            )
        options = self._options
        table = self._table(row.pop(TABLE, None) or None, topic)
        time_ns = _time(row.pop(TIME, None), row.pop(OTHER_TIME, None))
        image, details = self._image(row)
        completeness = _UNKNOWN if options.schema is not None else _FULL
        change = DataChange(
            op,
            table,
            options.key,
            image if op is _DELETE else None,
            None if op is _DELETE else image,
            options.schema,
            None if sequence is None else SequencePosition(sequence),
            None,
            SOURCE,
            time_ns,
            None,
            completeness if op is _DELETE else _UNKNOWN,
            _UNKNOWN if op is _DELETE else completeness,
            details,
        )
        if operation != "U":
            return (change,)
        if sequence is not None:
            return (half_of(change, sequence),)
        if op is _DELETE:
            reason = "a half update needs a sequence, which joins it to the other half"
            raise DecodeError(reason, code=ReasonCode.MISSING_FIELD, path=f"$.{SEQUENCE}")
        return (msgspec.structs.replace(change, op=Op.UPDATE),)

    def _table(self, name: str | None, topic: str | None) -> TableId:
        """Return the table that a row names, else the configured one, else the topic's."""
        table = self._tables.get(name)
        if table is not None and (name is not None or topic is None):
            return table
        configured = self._options.table
        if name is None:
            return TableId(name=topic) if configured.name is None and topic else configured
        table = TableId(configured.database, configured.schema, name)
        if len(self._tables) >= _MAX_TABLES:
            self._tables = {None: configured}
        self._tables[name] = table
        return table

    def _image(self, row: dict[str, Any]) -> tuple[dict[str, Any], Details]:
        """Return the business columns of a row, and its other metadata columns as details."""
        details = NO_DETAILS
        image = row
        if any(name[:1] == "_" for name in row):
            details = {name: value for name, value in row.items() if is_metadata(name)}
            image = {name: value for name, value in row.items() if name not in details}
        if self._options.schema is None:
            return image, details
        if not image.keys() <= self._kinds.keys():
            raise DecodeError(
                "the row has a column that the topic does not have", code=ReasonCode.UNKNOWN_COLUMN
            )
        typed: dict[str, Any] = {}
        name = ""
        try:
            for name, read in self._readers:
                value = image.get(name)
                # a missing column is NULL: a row has every column of its topic
                typed[name] = None if value is None else read(value)
        except (*NOT_A_VALUE, KeyError):
            reason = f"not a value of {self._kinds[name]}"
            raise DecodeError(reason, code=ReasonCode.WRONG_TYPE, path=f"$.{name}") from None
        return typed, details


_METADATA_NAMES: Final = frozenset({SEQUENCE, OPERATION, TIME, OTHER_TIME, TABLE, BEFORE, AFTER})


def load(value: bytes) -> dict[str, Any]:
    """Return a row as an object of its columns.

    Raises:
        DecodeError: The value is not an object, or lacks a required metadata column.
    """
    row = json.loads(value, object)
    if not isinstance(row, dict):
        raise DecodeError("the value is not an object of columns", code=ReasonCode.WRONG_TYPE)
    for name in (OPERATION, BEFORE, AFTER):
        if name not in row:
            raise DecodeError(
                "a metadata column is missing", code=ReasonCode.MISSING_FIELD, path=f"$.{name}"
            )
    if row[OPERATION] not in ("I", "U", "D"):
        raise DecodeError(
            "the operation is none of I, U, D",
            code=ReasonCode.UNKNOWN_OPERATION,
            path=f"$.{OPERATION}",
        )
    if type(row.get(SEQUENCE)) not in _SEQUENCES:
        raise DecodeError("not a sequence", code=ReasonCode.WRONG_TYPE, path=f"$.{SEQUENCE}")
    if type(row.get(TABLE)) not in _NAMES:
        raise DecodeError("not text", code=ReasonCode.WRONG_TYPE, path=f"$.{TABLE}")
    return row


def _time(first: Any, second: Any) -> int | None:
    """Return the time of a row in nanoseconds: BIGINT or STRING of ms, or TIMESTAMP of µs."""
    if first is not None and second is not None and first != second:
        raise DecodeError("the two time columns differ", path=f"$.{OTHER_TIME}")
    value = second if first is None else first
    if value is None:
        return None
    path = f"$.{OTHER_TIME if first is None else TIME}"
    if type(value) is str and _DIGITS.fullmatch(value):
        value = int(value)
    if type(value) is not int:
        raise DecodeError("not a time in milliseconds", code=ReasonCode.WRONG_TYPE, path=path)
    if value < 0:
        return None
    if value > _MICROSECONDS_ABOVE and value < _AFTER_LAST_MS * 1000:
        return value * 1_000
    if value >= _AFTER_LAST_MS:
        raise DecodeError(
            "the time is after the year 9999", code=ReasonCode.VALUE_OUT_OF_RANGE, path=path
        )
    return value * 1_000_000


def _written_time(value_ns: int | None, report: Report) -> int | None:
    value = milliseconds(value_ns, "source_time", report)
    if value is not None and value > _MICROSECONDS_ABOVE:
        report(("source_time", "so great that readers interpret it as microseconds"))
        return None
    return value


def _is_kept(value: float, kind: LogicalType) -> bool:
    """Whether a float of 32 bits keeps a value of a type; that of 32 bits is rounded already."""
    if kind != Float(64) or not math.isfinite(value):
        return True
    return bool(struct.unpack("f", struct.pack("f", value))[0] == value)


def _json_value(kind: LogicalType, value: Any, logical_type: LogicalType) -> Value:
    """Return the JSON form of a value of *logical_type* in a topic's column of type *kind*."""
    match kind:
        case Integer() if type(value) is int:
            low, high = kind.range()
            if low <= value <= high:
                return value
        case Float(32) if type(value) is float and not _is_kept(value, logical_type):
            pass  # DataHub would round it
        case Float() if type(value) is float:
            return write_number(value)
        case Decimal() if type(value) is not str:
            return str(write_number(value))
        case Boolean() if type(value) is bool:
            return value
        case InstantType():
            return ticks_of(value, 1_000_000)[0]
        case String():
            return value if type(value) is str else written_form(logical_type, None)[1](value)
    raise TypeError


class Writer:
    """Encodes events that are reduced to the capabilities of the format."""

    def __init__(self, options: RowOptions) -> None:
        self._options = options

    def __call__(self, event: ChangeEvent, report: Report) -> tuple[bytes, ...]:
        """Return the rows of an event."""
        match event:
            case DataChange(op=Op.UPDATE):
                return self._update(event, report)
            case DataChange():
                return (self._row(event, "ID"[event.op is Op.DELETE], report),)
            case HalfUpdate(change):
                sequence = sequence_of_half(event, report)
                if sequence is None or sequence < 0:
                    return (self._row(change, "ID"[change.op is Op.DELETE], report),)
                return (self._row(change, "U", report),)
            case _:
                raise EncodeError(f"TUPLE has no row for {type(event).__name__}")

    def _update(self, change: DataChange, report: Report) -> tuple[bytes, ...]:
        sequence = sequence_of(change.position, report)
        if change.before is None:
            if sequence is not None:
                report(("operation:u", "without a before image, read as a half update"))
            insert_half = msgspec.structs.replace(change, op=Op.CREATE)
            return (self._row(insert_half, "U", report),)
        delete_half, insert_half = halves_of(change)
        if sequence is None or sequence < 0:
            report(("operation:u", "without a sequence, written as a delete and an insert"))
            return (self._row(delete_half, "D", report), self._row(insert_half, "I", report))
        return (self._row(delete_half, "U", report), self._row(insert_half, "U", report))

    def _row(self, change: DataChange, operation: str, report: Report) -> bytes:
        options = self._options
        is_delete = change.op is Op.DELETE
        image = change.before if is_delete else change.after
        if image is None:
            raise EncodeError("the change has no row image")
        key, option_key = change.key, options.key
        if key is not None and option_key is not None and key.columns != option_key.columns:
            report(("key", "differs from the option keys"))
        for part in ("database", "schema"):
            if getattr(change.table, part) != getattr(options.table, part):
                report((f"table.{part}", "differs from the option table"))
        sequence = sequence_of(change.position, report)
        if sequence is not None and sequence < 0:
            report(("position", "a sequence consists of digits"))
            sequence = None
        row: dict[str, Any] = {
            SEQUENCE: None if sequence is None else str(sequence),
            OPERATION: operation,
            options.time_column: _written_time(change.source_time_ns, report),
            TABLE: change.table.name,
            BEFORE: "Y" if is_delete else "N",
            AFTER: "N" if is_delete else "Y",
        }
        for name, value in change.details.items():
            if is_metadata(name) and name not in _METADATA_NAMES:
                row[name] = value
            else:
                report((f"details.{name}", "no name of a metadata column (such as `_name_`)"))
        self._add(row, image, change.schema, report)
        return json.dumps(row)

    def _add(
        self, row: dict[str, Any], image: Image, table_schema: TableSchema | None, report: Report
    ) -> None:
        schema = self._options.schema
        if schema is None:
            for name, value in image.items():
                if is_metadata(name):
                    report(("column", "named like a metadata column"))
                else:
                    row[name] = value
            return
        columns: Mapping[str, Column] = {} if table_schema is None else table_schema.by_name
        for name in image:
            if name not in schema.names:
                report(("column", "the topic has no such column, and its schema is fixed"))
        for column in schema.columns:
            name, kind = column.name, column.type
            value = image.get(name)
            table_kind = columns[name].type if name in columns else kind
            if type(table_kind) is not type(kind):
                report(("type", f"written as {column.source_type}, the topic's type"))
            try:
                row[name] = None if value is None else _json_value(kind, value, table_kind)
            except NOT_A_VALUE:
                msg = f"column {name!r}: the value does not fit the topic's {column.source_type}"
                raise EncodeError(msg) from None
