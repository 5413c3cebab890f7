# SPDX-License-Identifier: Apache-2.0
"""Change events to Canal's binary messages, with one entry in each."""

from collections.abc import Mapping
from typing import Any, Final

from changelane.errors import EncodeError
from changelane.event import (
    ChangeEvent,
    Control,
    DataChange,
    Details,
    Image,
    Op,
    SchemaChange,
    TransactionMarker,
    Truncate,
    Watermark,
)
from changelane.formats.canal import ddl
from changelane.formats.canal.encode import CONTROLS, TYPES, Writer
from changelane.formats.canal.entries import (
    BEGIN,
    ENCODING,
    END,
    EVENT_TYPES,
    GTID_LOG,
    GTID_LOG_TYPE,
    HEADER_DETAILS,
    HEARTBEAT,
    MYSQL,
    PACKET_MESSAGES,
    ROWS,
    VERSION,
)
from changelane.formats.canal.protobuf_wire import (
    COLUMN,
    ENTRY,
    HEADER,
    MESSAGES,
    PACKET,
    PAIR,
    ROW_CHANGE,
    ROW_DATA,
    TRANSACTION,
)
from changelane.formats.canal.table_plan import TablePlan, WriteOptions
from changelane.formats.contract.format import Report
from changelane.formats.contract.protobuf import Fields, dumps
from changelane.position import MySqlPosition, Position
from changelane.schema import TableId

_NUMBERS: Final = {name: number for number, name in enumerate(EVENT_TYPES) if name}
_SQL_TYPE: Final = 12
"""The code of a column without a type: VARCHAR."""
_MAX_OFFSET: Final = (1 << 63) - 1
_STATUS: Final = {"begin": BEGIN, "commit": END}
_CHANGE_DETAILS: Final = frozenset({*HEADER_DETAILS, "sqlType", "sql", "tableId"})
_STATEMENT_DETAILS: Final = frozenset({*HEADER_DETAILS, "ddlSchemaName"})
_MARKER_DETAILS: Final = frozenset({*HEADER_DETAILS, "threadId"})

Written = DataChange | SchemaChange | Truncate | Control | TransactionMarker | Watermark


class EntryWriter:
    """Encodes events that are reduced to the capabilities of Canal's binary messages."""

    def __init__(self, options: WriteOptions) -> None:
        self._flat = Writer(options)

    def write(self, event: ChangeEvent, report: Report) -> bytes | None:
        """Return the message's value; ``None`` if Canal has no message for the event."""
        number: int | None = None
        match event:
            case DataChange():
                kind, table, store_value = ROWS, event.table, self._row_change(event, report)
                number = _NUMBERS[TYPES[event.op]]
            case SchemaChange() | Truncate():
                kind, table = ROWS, event.table
                number, store_value = self._statement(event, report)
            case Control() if event.type in CONTROLS and event.type in _NUMBERS:
                kind, table, number = ROWS, event.table, _NUMBERS[event.type]
                if event.type in TYPES.values() and not event.text:
                    report(("event:control", "a statement without its text is not read"))
                    return None
                store_value = dumps({"eventType": number, "sql": event.text}, ROW_CHANGE)
            case Control(type=name) if name == GTID_LOG_TYPE:
                kind, table = GTID_LOG, TableId()
                if event.table != TableId():
                    report(("table.name", "a GTID has no table"))
                store_value = dumps({"key": "curtGtid", "value": event.text}, PAIR)
            case Control():
                report(("event:control", "Canal has no such type of message"))
                return None
            case TransactionMarker() if event.status in _STATUS:
                kind, table = _STATUS[event.status], TableId()
                store_value = self._transaction(event, report)
            case TransactionMarker():
                report(("event:transaction", "Canal has no rollback"))
                return None
            case Watermark(type="heartbeat"):
                kind, table, store_value = HEARTBEAT, TableId(), b""
            case Watermark():
                report(("event:watermark", "only a heartbeat has a message"))
                return None
            case _:
                raise EncodeError(f"Canal has no message for {type(event).__name__}")
        entry = {
            "header": self._header(event, table, number, report),
            "entryType": kind,
            "storeValue": store_value,
        }
        body = dumps({"messages": [dumps(entry, ENTRY)]}, MESSAGES)
        return dumps({"version": VERSION, "type": PACKET_MESSAGES, "body": body}, PACKET)

    # -- rows ----------------------------------------------------------------------------------

    def _row_change(self, event: DataChange, report: Report) -> bytes:
        details, op = event.details, event.op
        _report_details(details, _CHANGE_DETAILS, report)
        transaction = event.transaction
        if transaction is not None:
            report(("transaction.id", "a row does not name its transaction"))
        plan = self._flat.plan(event.schema)
        old: dict[str, Any] = {}
        row: Fields = {}
        if op is not Op.CREATE and event.before is not None:
            if not event.before:
                report(("before", "an image without columns is not written"))
            old = plan.row(event.before, report)
            row["beforeColumns"] = self._columns(event, plan, event.before, old, None, report)
        if op is not Op.DELETE:
            if event.after is None:
                raise EncodeError("the change has no row image")
            new = plan.row(event.after, report)
            row["afterColumns"] = self._columns(event, plan, event.after, new, old, report)
        if not row.get("beforeColumns" if op is Op.DELETE else "afterColumns"):
            raise EncodeError("the row has no columns")
        if event.key is not None:
            self._report_key(event, report)
        if not plan.texts.keys() <= {*(event.before or ()), *(event.after or ())}:
            report(("absent", "readers interpret the columns of the row as all columns"))
        fields = {
            "tableId": _integer(details, "tableId", report),
            "eventType": _NUMBERS[TYPES[op]],
            "sql": details.get("sql") if isinstance(details.get("sql"), str) else None,
            "rowDatas": [dumps(row, ROW_DATA)],
        }
        return dumps(fields, ROW_CHANGE)

    def _columns(  # noqa: PLR0917 - one caller
        self,
        event: DataChange,
        plan: TablePlan,
        image: Image,
        texts: Mapping[str, Any],
        before_texts: Mapping[str, Any] | None,
        report: Report,
    ) -> list[bytes]:
        """Return the columns of an image; *before_texts* are those of the before image."""
        if plan.unsized:
            plan.check(image, report)
        codes: Mapping[str, Any] = plan.codes(image)
        stored = event.details.get("sqlType")
        if isinstance(stored, dict) and all(type(code) is int for code in stored.values()):
            codes = {**codes, **stored}
        elif stored is not None:
            report(("details.sqlType", "not a map of codes"))
        keys = () if event.key is None else event.key.columns
        order = {name: index for index, name in enumerate(plan.texts)}
        columns: list[bytes] = []
        for name, text in texts.items():
            if not name:
                report(("column", "a column without a name is not written"))
                continue
            is_updated = before_texts is not None and (
                name not in before_texts or before_texts[name] != text
            )
            column = {
                "index": order.get(name, len(columns)) or None,
                "sqlType": codes.get(name, _SQL_TYPE),
                "name": name,
                "isKey": name in keys or None,
                "updated": is_updated or None,
                "isNull": text is None,
                "value": text,
                "mysqlType": plan.texts.get(name),
            }
            columns.append(dumps(column, COLUMN))
        return columns

    @staticmethod
    def _report_key(event: DataChange, report: Report) -> None:
        """Report a key that readers do not get: the flags of the columns have no order."""
        image = (event.before if event.op is Op.DELETE else event.after) or {}
        names = set(event.key.columns if event.key is not None else ())
        in_order = tuple(name for name in image if name in names)
        if event.key is not None and event.key.columns != in_order:
            report(("key", "readers get the key columns of the row, in the order of the columns"))

    # -- other events --------------------------------------------------------------------------

    def _statement(self, event: SchemaChange | Truncate, report: Report) -> tuple[int, bytes]:
        _report_details(event.details, _STATEMENT_DETAILS, report)
        name = "TRUNCATE"
        if isinstance(event, SchemaChange):
            if event.schema is not None:
                report(("schema", "a DDL message lists no columns"))
            if event.key is not None:
                report(("schema.key", "a DDL message lists no key columns"))
            name = ddl.TYPES.get(event.action, "QUERY")
            if ddl.action_of_kind(name, event.ddl) != event.action:
                report(("action", f"readers take it from the statement of a message {name}"))
        elif event.transaction is not None:
            report(("transaction.id", "a statement does not name its transaction"))
        schema = event.details.get("ddlSchemaName")
        fields = {
            "eventType": _NUMBERS[name],
            "isDdl": True,
            "sql": event.ddl,
            "ddlSchemaName": schema if isinstance(schema, str) else None,
        }
        return _NUMBERS[name], dumps(fields, ROW_CHANGE)

    def _transaction(self, event: TransactionMarker, report: Report) -> bytes:
        _report_details(event.details, _MARKER_DETAILS, report)
        fields = {
            "executeTime": self._flat.time(event.source_time_ns, "source_time", report),
            "transactionId": event.transaction.id or None,
            "threadId": _integer(event.details, "threadId", report),
        }
        return dumps(fields, TRANSACTION)

    # -- the header ----------------------------------------------------------------------------

    def _header(self, event: Written, table: TableId, number: int | None, report: Report) -> bytes:
        details = event.details
        if isinstance(event, Control | Watermark):
            _report_details(details, frozenset(HEADER_DETAILS), report)
        props = details.get("props")
        if props is not None and not (
            isinstance(props, dict) and all(type(value) is str for value in props.values())
        ):
            report(("details.props", "not a map of texts"))
            props = None
        encoding = details.get("serverenCode", ENCODING)
        if not isinstance(encoding, str) or (not encoding and "serverenCode" in details):
            report(("details.serverenCode", "not a text"))
            encoding = ENCODING
        for part, name in (("database", table.database), ("name", table.name)):
            if name == "":
                report((f"table.{part}", "an empty name is read as none"))
        fields = {
            "version": VERSION,
            **_coordinates(event.position, report),
            "serverId": _integer(details, "serverId", report),
            "serverenCode": encoding,
            "executeTime": self._flat.time(event.source_time_ns, "source_time", report),
            "sourceType": MYSQL,
            "schemaName": table.database or None,
            "tableName": table.name or None,
            "eventLength": _integer(details, "eventLength", report),
            "eventType": number,
            "props": [dumps({"key": k, "value": v}, PAIR) for k, v in (props or {}).items()],
        }
        return dumps(fields, HEADER)


def _coordinates(position: Position | None, report: Report) -> Fields:
    """Return the position of the event in the binary log.

    A message of one row has the row 0; another number is not written, because readers would take
    the rows of one event for the same change.
    """
    if position is None:
        return {}
    if not isinstance(position, MySqlPosition):
        raise EncodeError(f"Canal cannot express a {type(position).__name__}")
    if position.row or not position.file or not 0 <= position.pos <= _MAX_OFFSET:
        report(("position", "a row inside of an event, or no place in a file; not written"))
        return {}
    if position.gtid == "":
        report(("position", "an empty GTID is read as none"))
    return {
        "logfileName": position.file,
        "logfileOffset": position.pos or None,
        "gtid": position.gtid or None,
    }


def _integer(details: Details, name: str, report: Report) -> int | None:
    value = details.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 < abs(value) <= _MAX_OFFSET:
        report((f"details.{name}", "not a whole number other than zero"))
        return None
    return value


def _report_details(details: Details, names: frozenset[str], report: Report) -> None:
    for name in sorted(details.keys() - names):
        report((f"details.{name}", "Canal has no such field"))
