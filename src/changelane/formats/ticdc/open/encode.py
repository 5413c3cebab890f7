# SPDX-License-Identifier: Apache-2.0
"""Change events to messages of TiCDC's open protocol, one event in each message."""

import base64
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from changelane.ddl import TruncateTable
from changelane.ddl.render import UnwritableError, render
from changelane.errors import DecodeError, EncodeError
from changelane.event import (
    ChangeEvent,
    DataChange,
    Details,
    Image,
    Key,
    Op,
    SchemaChange,
    Truncate,
    Watermark,
)
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.format import Report
from changelane.formats.contract.tidb_time_stamps import time_stamp_of
from changelane.formats.ticdc.open.columns import (
    BINARY,
    CODES,
    HANDLE_KEY,
    NULLABLE,
    TEXT_TYPES,
    UNSIGNED,
    column_reader,
    quoted,
    type_of,
)
from changelane.formats.ticdc.open.decode import ACTIONS, TRUNCATE_TABLE, action_of_statement
from changelane.formats.ticdc.open.wire import (
    RESOLVED,
    ROW,
    STATEMENT,
    VERSION,
    EventKey,
    framed,
)
from changelane.message import Message
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.sql_types import mysql
from changelane.types import (
    Bits,
    Bytes,
    Date,
    Decimal,
    Float,
    InstantType,
    Integer,
    LogicalType,
    String,
    Timestamp,
)
from changelane.types.forms import written_form
from changelane.types.scalars import parse_zone
from changelane.types.values import iso_text, plain, value_text

Write = Callable[[Any], Any]
"""A value to its JSON value; raises one of :data:`_NOT_A_VALUE` if it is not of the type."""

_NOT_A_VALUE: Final = (ValueError, TypeError, ArithmeticError, AttributeError, DecodeError)
_NUMBERS: Final = {action: number for number, action in ACTIONS.items()}
_MAX_PLANS: Final = 1024
_QUOTED: Final = frozenset({CODES["varchar"], CODES["char"]})
_KEY_DETAILS: Final = ("rid", "ptn")
_VARCHAR: Final = {"t": CODES["varchar"], "f": NULLABLE}


class Writer:
    """Encodes events that are reduced to the capabilities of the open protocol.

    Args:
        zone: The name of the zone of TIMESTAMP values.
        has_old_values: Readers take a row without its old row for an insert.
    """

    def __init__(self, zone: str, *, has_old_values: bool) -> None:
        self._zone = zone
        self._has_old_values = has_old_values
        self._plans: BoundedCache[tuple[TableSchema | None, Key | None], TablePlan]
        self._plans = BoundedCache(_MAX_PLANS)

    def __call__(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Return the message of an event; none if the protocol has no such message."""
        match event:
            case DataChange():
                return (self._row(event, report),)
            case SchemaChange() | Truncate():
                return (_statement(event, report),)
            case Watermark(type="resolved") if isinstance(event.position, SequencePosition):
                return _resolved(event, report)
            case Watermark():
                report(("event:watermark", "only a resolved time has a message"))
                return ()
            case _:
                raise EncodeError(f"the open protocol has no message for {type(event).__name__}")

    def _row(self, event: DataChange, report: Report) -> Message:
        plan_key = event.schema, event.key
        plan = self._plans.get(plan_key)
        if plan is None:
            plan = self._plans.add(plan_key, TablePlan(event.schema, event.key, self._zone))
        before, after = event.before, event.after
        row: dict[str, Any]
        if event.op is Op.DELETE:
            if before is None:
                raise EncodeError("the delete has no row image")
            row = {"d": plan.row(before, report)}
            plan.check_columns(before, report, is_delete=True)
        else:
            if after is None:
                raise EncodeError("the change has no row image")
            row = {"u": plan.row(after, report)}
            old = before if event.op is Op.UPDATE else None
            if old is not None and not after.keys() <= old.keys():
                # readers would take the missing columns from the after image
                report(("before", "lacks columns of the after image"))
                old = None
            if old is not None:
                row["p"] = plan.row(old, report)
            self._check_operation(event, report, has_old_row=old is not None)
            plan.check_columns({**(old or {}), **after}, report)
            if len(after) < len(plan.names):
                report(("absent", "readers take the row for a whole one"))
        time_stamp = time_stamp_of(event.position, event.source_time_ns, report)
        key = _key(ROW, time_stamp, event.table)
        _add_details(key, event.details, report)
        return _message(key, json.dumps(row))

    def _check_operation(self, event: DataChange, report: Report, *, has_old_row: bool) -> None:
        """Report an operation that readers take for another one."""
        if has_old_row:
            return
        if self._has_old_values:
            if event.op is Op.UPDATE:
                report(("operation:u", "without its old row, readers take it for an insert"))
        elif event.op is Op.CREATE:
            if event.key is None:
                report(("operation:c", "without a key, readers take it for an update of no row"))
            else:
                report(("operation:upsert", "an insert is read as an insert or an update"))


def _key(kind: int, time_stamp: int | None, table: TableId) -> EventKey:
    return EventKey(time_stamp, table.database or "", table.name or "", t=kind)


def _message(key: EventKey, value: bytes) -> Message:
    return Message(framed(value), VERSION + framed(json.dumps(key)))


def _add_details(key: EventKey, details: Details, report: Report) -> None:
    for name, value in details.items():
        if name in _KEY_DETAILS and type(value) is int and -(1 << 63) <= value < 1 << 63:
            setattr(key, name, value)
        else:
            report((f"details.{name}", "the open protocol has no such key"))


# -- rows ----------------------------------------------------------------------------------------


class TablePlan:
    """How the rows of one schema are written, compiled once.

    Attributes:
        names: The columns of the schema.
    """

    def __init__(self, schema: TableSchema | None, key: Key | None, zone: str) -> None:
        self._key = () if key is None else key.columns
        columns = () if schema is None else schema.columns
        self.names = tuple(column.name for column in columns)
        self._columns = {
            column.name: _column(column, zone, is_key=column.name in self._key)
            for column in columns
        }

    def row(self, image: Image, report: Report) -> dict[str, Any]:
        """Return an image with type, flags and value of each column, in the order of the table.

        Raises:
            EncodeError: A value is not of its column's type.
        """
        names: Iterable[str] = self.names
        if not image.keys() <= self._columns.keys():
            names = (*self.names, *(name for name in image if name not in self._columns))
        row: dict[str, Any] = {}
        for name in names:
            if name not in image:
                continue
            value = image[name]
            description, write = self._columns.get(name) or self._untyped(name)
            if value is not None:
                try:
                    value = write(value)
                except _NOT_A_VALUE:
                    msg = f"column {name!r} has a value that is not of its type"
                    raise EncodeError(msg) from None
                if description["t"] == CODES["bit"] and _has_leading_zero(image[name]):
                    report(("value:bits", "leading zeros of bits: messages have no length"))
            row[name] = {**description, "v": value}
        return row

    def _untyped(self, name: str) -> tuple[dict[str, Any], Write]:
        """Return how a column without a type is written: as VARCHAR."""
        if name in self._key:
            return {"t": _VARCHAR["t"], "h": True, "f": HANDLE_KEY}, _text
        return _VARCHAR, _text

    def check_columns(
        self, image: Mapping[str, object], report: Report, *, is_delete: bool = False
    ) -> None:
        """Report columns of the schema and of the key that a message does not have."""
        if any(name not in image for name in self._key):
            report(("key", "some of its columns are not in the row"))
        order = (name for name in (*self.names, *image) if name in self._key)
        if tuple(dict.fromkeys(order)) != self._key:
            report(("schema.key", "key columns have the order of the row"))
        if is_delete and not image.keys() >= set(self.names):
            report(("schema", "columns that are not in the row are not written"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else value_text(String(), value)


def _has_leading_zero(bits: object) -> bool:
    return isinstance(bits, str) and bits.startswith("0") and bits != "0"


def _column(column: Column, zone: str, *, is_key: bool) -> tuple[dict[str, Any], Write]:
    """Return type code and flags of a column, and the function from its values to JSON values."""
    kind = column.type
    # a synonym such as `numeric` has no code of its own
    names = mysql.text_of(kind, column.source_type), mysql.text_of(kind)
    code = next(CODES[word] for word in map(_word, names) if word in CODES)
    flags = HANDLE_KEY if is_key else NULLABLE
    if isinstance(kind, Integer) and kind.unsigned:
        flags |= UNSIGNED
    if not (isinstance(kind, String) and code in TEXT_TYPES):
        flags |= BINARY
    described = type_of(code, flags)
    read = column_reader(code, flags, kind if described is None else described[1], parse_zone(zone))
    write = _writer(kind, code, zone)

    def checked(value: Any) -> Any:
        """Return the JSON value if it can be read again."""
        written = write(value)
        read(written)
        return written

    description = {"t": code, "h": True, "f": flags} if is_key else {"t": code, "f": flags}
    # every finite float is a number that can be read, as an exact one
    return description, write if isinstance(kind, Float) else checked


def _word(type_text: str) -> str:
    """Return the first word of a type text.

    >>> _word("Decimal(10,2)"), _word("int unsigned")
    ('decimal', 'int')
    """
    return type_text.lower().partition("(")[0].split()[0]


def _writer(kind: LogicalType, code: int, zone: str) -> Write:
    match kind:
        case Decimal():
            return plain
        case Float():
            return _float
        case Bytes():
            return quoted if code in _QUOTED else _base64
        case String() if code not in _QUOTED:
            return lambda value: _base64(value.encode())
        case Bits():
            return lambda value: int(value, 2)
        case Date():
            return lambda value: value if isinstance(value, str) else iso_text(value)
        case Timestamp() | InstantType():
            form = written_form(kind, f"sql@{zone}")[1]
            # a text is a time outside of Python's calendar
            return lambda value: value if isinstance(value, str) else form(value)
        case _:
            return lambda value: value


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _float(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError
    return value


# -- other events --------------------------------------------------------------------------------


def _statement(event: SchemaChange | Truncate, report: Report) -> Message:
    if isinstance(event, Truncate):
        action, sql = "truncate", event.ddl or _truncate_statement(event.table)
    else:
        action, sql = event.action, event.ddl or ""
        if event.schema is not None:
            report(("schema", "a DDL message lists no columns"))
        if event.key is not None:
            report(("schema.key", "a DDL message lists no key columns"))
    details = dict(event.details)
    number = details.pop("t", None)
    default = TRUNCATE_TABLE if action == "truncate" else _NUMBERS.get(action)
    if type(number) is not int or action_of_statement(sql or None, number) != action:
        if number is not None:
            report(("details.t", "not the number of such a statement"))
        number = default
    if action_of_statement(sql or None, number) != action:
        report(("action", "readers take it from the statement"))
    time_stamp = time_stamp_of(event.position, event.source_time_ns, report)
    key = _key(STATEMENT, time_stamp, event.table)
    _add_details(key, details, report)
    statement = {"q": sql} if number is None else {"q": sql, "t": number}
    return _message(key, json.dumps(statement))


def _truncate_statement(table: TableId) -> str:
    try:
        return render([TruncateTable(table)], "mysql", table)
    except UnwritableError:
        return ""


def _resolved(event: Watermark, report: Report) -> tuple[Message, ...]:
    time_stamp = time_stamp_of(event.position, event.source_time_ns, report)
    if time_stamp is None:
        report(("event:watermark", "without a time stamp, it has no message"))
        return ()
    if event.process_time_ns is not None:
        report(("process_time", "not written"))
    key = EventKey(time_stamp, t=RESOLVED)
    _add_details(key, event.details, report)
    return (_message(key, b""),)
