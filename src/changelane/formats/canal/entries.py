# SPDX-License-Identifier: Apache-2.0
"""The entries in Canal's binary messages to change events."""

from collections.abc import Sequence
from typing import Any, Final

from changelane.ddl import table_of
from changelane.errors import DecodeError
from changelane.event import (
    ChangeEvent,
    Completeness,
    Control,
    DataChange,
    Image,
    Op,
    SchemaChange,
    Transaction,
    TransactionMarker,
    Truncate,
    Watermark,
)
from changelane.formats.canal import ddl
from changelane.formats.canal.decode import Reader, ReadOptions, Row, TablePlan
from changelane.formats.canal.dialects import SOURCE
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
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.protobuf import Fields, loads
from changelane.position import MySqlPosition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId

PACKET_MESSAGES: Final = 7
PACKET_ACK: Final = 3
VERSION: Final = 1
NO_COMPRESSION: Final = 1
MYSQL: Final = 2
ENCODING: Final = "UTF-8"

BEGIN, ROWS, END, HEARTBEAT, GTID_LOG = 1, 2, 3, 4, 5
"""Types of entries."""

EVENT_TYPES: Final = tuple(
    " INSERT UPDATE DELETE CREATE ALTER ERASE QUERY TRUNCATE RENAME CINDEX DINDEX GTID XACOMMIT"
    " XAROLLBACK MHEARTBEAT".split(" ")
)
"""The names of ``EventType``, by number; there is no event type 0."""
OPERATIONS: Final = {"INSERT": Op.CREATE, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}
GTID_LOG_TYPE: Final = "GTIDLOG"
HEADER_DETAILS: Final[dict[str, type]] = {
    "serverId": int,
    "serverenCode": str,
    "eventLength": int,
    "props": dict,
}
"""Details with a field of their own in a header -> their types."""

_MAX_PLANS: Final = 1024
_FULL: Final = Completeness.FULL
_UNKNOWN: Final = Completeness.UNKNOWN

ColumnKey = tuple[tuple[str, str | None, int, bool], ...]
"""The columns of a row: name, type text, code of the type, whether it is in the key."""


class EntryReader:
    """Decodes messages of one codec."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._is_minimal = options.row_image == "minimal"
        self._time = Reader(options).time
        self._plans: BoundedCache[ColumnKey, TablePlan] = BoundedCache(_MAX_PLANS)
        self._tables: BoundedCache[tuple[str, str], TableId] = BoundedCache(_MAX_PLANS)

    def __call__(self, value: bytes) -> tuple[ChangeEvent, ...]:
        """Return the events of a message's value, in the order of its entries and rows."""
        events: list[ChangeEvent] = []
        for index, data in enumerate(entries_of(value)):
            path = f"$.messages[{index}]"
            entry = loads(data, ENTRY, path)
            header = loads(entry.get("header", b""), HEADER, f"{path}.header")
            source_type = header.get("sourceType", MYSQL)
            if source_type != MYSQL:
                raise DecodeError(
                    "the source is not MySQL",
                    code=ReasonCode.UNKNOWN_KIND,
                    path=f"{path}.header.sourceType",
                )
            body, path = entry.get("storeValue", b""), f"{path}.storeValue"
            kind = entry.get("entryType")
            if kind == ROWS:
                events += self._row_change(header, body, path)
            else:
                events.append(self._other(kind, header, body, path))
        return tuple(events)

    # -- rows ----------------------------------------------------------------------------------

    def _row_change(self, header: Fields, body: bytes, path: str) -> Sequence[ChangeEvent]:
        change = loads(body, ROW_CHANGE, path)
        number = change.get("eventType", 0)
        kind = EVENT_TYPES[number] if 0 < number < len(EVENT_TYPES) else ""
        if not kind:
            code = ReasonCode.UNKNOWN_OPERATION
            raise DecodeError("an unknown type", code=code, path=f"{path}.eventType")
        rows: list[bytes] = change.get("rowDatas", [])
        op = OPERATIONS.get(kind)
        if change.get("isDdl") or op is None:
            if rows:
                reason = "a message of this type has no rows"
                code = ReasonCode.UNKNOWN_OPERATION
                raise DecodeError(reason, code=code, path=f"{path}.eventType")
            return (self._statement(kind, header, change),)
        if not rows:
            # a statement in the source's log, which is not applied
            if not change.get("sql"):
                reason = "the message has neither rows nor a statement"
                raise DecodeError(reason, code=ReasonCode.MISSING_FIELD, path=f"{path}.rowDatas")
            return (self._control(kind, change["sql"], header),)
        return [
            self._change(op, header, change, loads(row, ROW_DATA, row_path), index, row_path)
            for index, row in enumerate(rows)
            for row_path in (f"{path}.rowDatas[{index}]",)
        ]

    def _change(  # noqa: PLR0917 - one caller
        self, op: Op, header: Fields, change: Fields, row: Fields, index: int, path: str
    ) -> DataChange:
        images: list[Row | None] = [None, None]
        columns: list[ColumnKey] = [(), ()]
        has_gaps = False
        wants = (op is not Op.CREATE, op is not Op.DELETE)
        for place, name in ((0, "beforeColumns"), (1, "afterColumns")):
            datas: list[bytes] = row.get(name, [])
            if datas and not wants[place]:
                reason = f"a message of type {EVENT_TYPES[change['eventType']]} has no {name}"
                code = ReasonCode.UNEXPECTED_IMAGE
                raise DecodeError(reason, code=code, path=f"{path}.{name}")
            if datas:
                images[place], columns[place], lacks_some = row_of(datas, f"{path}.{name}")
                has_gaps = has_gaps or lacks_some
        if images[1 if wants[1] else 0] is None:
            raise DecodeError("the row has no columns", code=ReasonCode.MISSING_IMAGE, path=path)
        plan = self._plan(_all_columns(*columns)).covering(images)
        before, after = (
            None if image is None else self._read(plan, image, f"{path}.{name}")
            for image, name in zip(images, ("beforeColumns", "afterColumns"), strict=True)
        )
        details = self._details(header)
        if change.get("sql"):
            details["sql"] = change["sql"]
        if change.get("tableId"):
            details["tableId"] = change["tableId"]
        if plan.sql_types:
            details["sqlType"] = plan.sql_types
        is_whole = before is None or after is None or before.keys() == after.keys()
        holds = after_holds = _FULL if plan.schema is None and is_whole else _UNKNOWN
        is_partial = has_gaps or not is_whole or self._is_minimal or _has_key_only(columns[1])
        if op is Op.UPDATE and is_partial:
            after_holds = Completeness.CHANGED
        return DataChange(
            op,
            self._table(header),
            plan.key,
            before,
            after,
            plan.schema,
            _position(header, index),
            None,
            SOURCE,
            self._source_time(header),
            None,
            _UNKNOWN if before is None else holds,
            _UNKNOWN if after is None else after_holds,
            details,
        )

    @staticmethod
    def _read(plan: TablePlan, row: Row, path: str) -> Image:
        try:
            return plan.read(row, "", 0)
        except DecodeError as error:
            column = error.path.rpartition("].")[2]
            raise DecodeError(error.reason, code=error.code, path=f"{path}.{column}") from None

    def _plan(self, columns: ColumnKey) -> TablePlan:
        plan = self._plans.get(columns)
        if plan is None:
            types = {name: text for name, text, _, _ in columns}
            plan = TablePlan(
                types if any(types.values()) else None,
                tuple(name for name, _, _, is_key in columns if is_key),
                {name: code for name, _, code, _ in columns if code},
                options=self._options,
            )
            self._plans.add(columns, plan)
        return plan

    # -- other entries -------------------------------------------------------------------------

    def _statement(self, kind: str, header: Fields, change: Fields) -> ChangeEvent:
        sql = change.get("sql") or None
        if not change.get("isDdl") and (kind == "QUERY" or kind not in ddl.TYPES_OF_DDL):
            return self._control(kind, sql, header)
        action = ddl.action_of_kind(kind, sql)
        table = table_of(sql, "mysql", self._table(header))
        parts = self._parts(header)
        if change.get("ddlSchemaName"):
            parts["details"]["ddlSchemaName"] = change["ddlSchemaName"]
        if action == "truncate":
            return Truncate(table, sql, **parts)
        return SchemaChange(table, action, sql, **parts)

    def _other(self, kind: int | None, header: Fields, body: bytes, path: str) -> ChangeEvent:
        parts = self._parts(header)
        match kind:
            case 1 | 3:
                fields = loads(body, TRANSACTION, path)
                if fields.get("threadId"):
                    parts["details"]["threadId"] = fields["threadId"]
                status = "begin" if kind == BEGIN else "commit"
                identity = Transaction(fields.get("transactionId", ""))
                return TransactionMarker(status, identity, **parts)
            case 4:
                return Watermark("heartbeat", **parts)
            case 5:
                pair = loads(body, PAIR, path)
                return Control(GTID_LOG_TYPE, pair.get("value") or None, TableId(), **parts)
            case _:
                path = path.replace(".storeValue", ".entryType")
                raise DecodeError("an unknown type", code=ReasonCode.UNKNOWN_KIND, path=path)

    def _control(self, kind: str, sql: str | None, header: Fields) -> Control:
        return Control(kind, sql, self._table(header), **self._parts(header))

    # -- the header ----------------------------------------------------------------------------

    def _parts(self, header: Fields) -> dict[str, Any]:
        return {
            "position": _position(header, 0),
            "source": SOURCE,
            "source_time_ns": self._source_time(header),
            "details": self._details(header),
        }

    def _source_time(self, header: Fields) -> int | None:
        return self._time(header.get("executeTime"), "messages.header.executeTime")

    def _table(self, header: Fields) -> TableId:
        names = header.get("schemaName", ""), header.get("tableName", "")
        table = self._tables.get(names)  # shared, because reducers cache by identity
        if table is None:
            table = self._tables.add(names, TableId(names[0] or None, None, names[1] or None))
        return table

    @staticmethod
    def _details(header: Fields) -> dict[str, Any]:
        details: dict[str, Any] = {}
        if header.get("serverId"):
            details["serverId"] = header["serverId"]
        if header.get("serverenCode", ENCODING) != ENCODING:
            details["serverenCode"] = header["serverenCode"]
        if header.get("eventLength"):
            details["eventLength"] = header["eventLength"]
        if "props" in header:
            pairs = [loads(data, PAIR, "$.messages.header.props") for data in header["props"]]
            details["props"] = {pair.get("key", ""): pair.get("value", "") for pair in pairs}
        return details


def entries_of(value: bytes) -> list[bytes]:
    """Return the entries of a packet.

    Raises:
        DecodeError: The value is not a packet of messages.
    """
    packet = loads(value, PACKET, "$")
    kind = packet.get("type", 0)
    if kind != PACKET_MESSAGES:
        reason = "an error of Canal's server" if kind == PACKET_ACK else "not a packet of messages"
        raise DecodeError(reason, code=ReasonCode.UNKNOWN_KIND, path="$.type")
    if packet.get("version", VERSION) != VERSION:
        reason = "an unknown version"
        raise DecodeError(reason, code=ReasonCode.UNKNOWN_VERSION, path="$.version")
    if packet.get("compression", 0) not in {0, NO_COMPRESSION}:
        reason = "compressed packets are not read"
        raise DecodeError(reason, code=ReasonCode.UNKNOWN_KIND, path="$.compression")
    entries: list[bytes] = loads(packet.get("body", b""), MESSAGES, "$.body").get("messages", [])
    return entries


def row_of(datas: Sequence[bytes], path: str) -> tuple[Row, ColumnKey, bool]:
    """Return the texts of a row, its columns, and whether their numbers show that it lacks some.

    Raises:
        DecodeError: A column has no name, or two columns have one name.
    """
    row: Row = {}
    columns: list[tuple[str, str | None, int, bool]] = []
    last_index = 0
    for data in datas:
        column = loads(data, COLUMN, path)
        last_index = max(last_index, column.get("index", 0))
        name = column.get("name")
        if not name:
            raise DecodeError("a column has no name", code=ReasonCode.MISSING_FIELD, path=path)
        # a column that is NULL may have the value ""
        row[name] = None if column.get("isNull") else column.get("value", "")
        kind = column.get("mysqlType") or None
        columns.append((name, kind, column.get("sqlType", 0), column.get("isKey", False)))
    if len(row) != len(columns):
        raise DecodeError("two columns have one name", code=ReasonCode.WRONG_IMAGE, path=path)
    return row, tuple(columns), last_index >= len(columns)


def _has_key_only(columns: ColumnKey) -> bool:
    """Return whether a row may be that of a minimal log, whose update changed the whole key."""
    return all(is_key for *_, is_key in columns)


def _all_columns(before: ColumnKey, after: ColumnKey) -> ColumnKey:
    """Return the columns of both images; each may lack some."""
    if len(before) == len(after) and all(a[0] == b[0] for a, b in zip(before, after, strict=True)):
        return after
    longer, shorter = (after, before) if len(after) >= len(before) else (before, after)
    names = {name for name, *_ in longer}
    return (*longer, *(column for column in shorter if column[0] not in names))


def _position(header: Fields, row: int) -> MySqlPosition | None:
    file, offset = header.get("logfileName"), header.get("logfileOffset", 0)
    if not file or offset < 0:
        return None
    return MySqlPosition(file, offset, row, header.get("gtid") or None)
