# SPDX-License-Identifier: Apache-2.0
"""Change events to messages of TiCDC's simple protocol."""

from collections.abc import Collection
from typing import Any, Final

from changelane.ddl import table_of
from changelane.errors import EncodeError
from changelane.event import (
    ChangeEvent,
    Completeness,
    DataChange,
    Details,
    Image,
    Op,
    SchemaChange,
    Truncate,
    Watermark,
)
from changelane.formats.contract import json
from changelane.formats.contract.format import Report
from changelane.formats.contract.tidb_time_stamps import time_stamp_of
from changelane.formats.ticdc import SOURCE
from changelane.formats.ticdc.simple.avro import write_avro
from changelane.formats.ticdc.simple.decode import (
    ACTIONS,
    OPERATIONS,
    TRUNCATE,
    VERSION,
    WATERMARK,
    action_of_type,
)
from changelane.formats.ticdc.simple.tables import Table, Tables
from changelane.message import Message
from changelane.position import SequencePosition
from changelane.schema import TableId

_TYPES: Final = {op: name for name, op in OPERATIONS.items()}
_DDL_TYPES: Final = {action: name for name, action in ACTIONS.items()}
_MOST: Final = 1 << 63
_MILLISECOND: Final = 1_000_000
_AFTER_TIMES: Final = ("schemaVersion", "handleKeyOnly", "data", "old")
"""Fields after the times, in the order of the producer."""
_ROW_DETAILS: Final = ("tableID", "schemaVersion")
_EMPTY: Final = (
    ("position", "commitTs"),
    ("source_time", "commitTs"),
    ("details.tableID", "tableID"),
    ("details.schemaVersion", "schemaVersion"),
)
"""Fields of an event, and those of a message in Avro that are empty with 0."""


class Writer:
    """Encodes events that are reduced to the capabilities of the simple protocol.

    Args:
        declared: The declared tables.
        is_avro: Messages are written in Avro.
    """

    def __init__(self, declared: Tables, *, is_avro: bool) -> None:
        self._tables = declared
        self._is_avro = is_avro

    def __call__(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Return the message of an event; none if the protocol has no such message."""
        match event:
            case DataChange():
                fields = self._row(event, report)
            case SchemaChange() | Truncate():
                fields = _statement(event, report)
            case Watermark(type="resolved") if isinstance(event.position, SequencePosition):
                if not 0 <= event.position.value < 2 * _MOST or event.position.row:
                    report(("event:watermark", "without a time stamp, it has no message"))
                    return ()
                _report_details(event.details, (), report)
                fields = {"type": WATERMARK}
            case Watermark():
                report(("event:watermark", "only a resolved time has a message"))
                return ()
            case _:
                msg = f"the simple protocol has no message for {type(event).__name__}"
                raise EncodeError(msg)
        commit = time_stamp_of(event.position, event.source_time_ns, report)
        build = event.process_time_ns
        times = {
            "commitTs": commit,
            "buildTs": None if build is None else build // _MILLISECOND,
        }
        if build is not None and build // _MILLISECOND == 0:
            report(("process_time", "0 is read as none"))
        last: dict[str, Any] = {name: fields.pop(name) for name in _AFTER_TIMES if name in fields}
        message: dict[str, Any] = {"version": VERSION, **fields, **times, **last}
        if self._is_avro:
            return (Message(self._avro(message, report)),)
        written = {name: value for name, value in message.items() if value is not None}
        return (Message(json.dumps(written)),)

    def _avro(self, message: dict[str, Any], report: Report) -> bytes:
        """Return a message in Avro, and report what only JSON has."""
        for field, name in _EMPTY:
            if message.get(name) == 0:
                report((field, "0 is read as none"))
        for name in ("tableID", "buildTs"):
            if (message.get(name) or 0) >= _MOST:
                raise EncodeError(f"{name} has more than 63 bits")
        if message["type"] not in OPERATIONS and message["type"] != WATERMARK:
            named = table_of(message["sql"] or None, SOURCE.product, TableId())
            for part, name in (("database", "database"), ("name", "table")):
                if getattr(named, part) != message[name]:
                    report((f"table.{part}", "readers take it from the statement"))
            if message.get("tableID") is not None:
                report(("details.tableID", "a statement in Avro has no such field"))
        table = self._tables.newest(message.get("database"), message.get("table"))
        columns = () if table is None else table.schema.columns
        try:
            return write_avro(message, {column.name: column.type for column in columns})
        except (ValueError, OverflowError):
            raise EncodeError("a value has no form in Avro") from None

    def _row(self, event: DataChange, report: Report) -> dict[str, Any]:
        database, name = event.table.database, event.table.name
        table = self._tables.newest(database or None, name or None)
        details = dict(event.details)
        declared_key = None if table is None else table.key
        if event.key is not None and (
            declared_key is None or declared_key.columns != event.key.columns
        ):
            report(("key", "readers take it from the option table_schemas"))
        data = None if event.op is Op.DELETE else event.after
        old = event.before if event.op in {Op.UPDATE, Op.DELETE} else None
        if (old if event.op is Op.DELETE else data) is None:
            raise EncodeError("the change has no row image")
        is_key_only = event.op is Op.DELETE and event.before_holds is Completeness.KEY
        version = _number(details.get("schemaVersion"))
        if table is not None:
            if version is not None and version != table.version:
                report(("details.schemaVersion", "the newest declared version is written"))
            version = table.version
        fields = {
            "database": database or None,
            "table": name or None,
            "tableID": _number(details.get("tableID")),
            "type": _TYPES[event.op],
            "schemaVersion": version,
            "handleKeyOnly": is_key_only or None,
            "data": _written(table, data),
            "old": _written(table, old),
        }
        _report_details(details, [n for n in _ROW_DETAILS if fields[n] is not None], report)
        return fields


def _written(table: Table | None, image: Image | None) -> dict[str, Any] | None:
    if image is None:
        return None
    return dict(image) if table is None else table.written(image)


def _number(value: object) -> int | None:
    return value if type(value) is int and -_MOST <= value < 2 * _MOST else None


def _report_details(details: Details, written: Collection[str], report: Report) -> None:
    for name in details:
        if name not in written:
            reason = "it may be that of another row" if name == "checksum" else "no such field"
            report((f"details.{name}", reason))


def _statement(event: SchemaChange | Truncate, report: Report) -> dict[str, Any]:
    kind, action = TRUNCATE, "truncate"
    if isinstance(event, SchemaChange):
        action = event.action
        kind = _DDL_TYPES.get(action, "QUERY")
        if event.key is not None:
            report(("schema.key", "written without the columns of the table"))
    if action_of_type(kind, event.ddl or None) != action:
        report(("action", "readers take it from the statement"))
    _report_details(event.details, ("tableID",), report)
    return {
        "database": event.table.database or None,
        "table": event.table.name or None,
        "tableID": _number(event.details.get("tableID")),
        "type": kind,
        "sql": event.ddl or "",
    }
