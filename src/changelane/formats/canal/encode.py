# SPDX-License-Identifier: Apache-2.0
"""Change events to Canal messages, one row per message."""

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from changelane.errors import EncodeError
from changelane.event import (
    NO_DETAILS,
    ChangeEvent,
    Control,
    DataChange,
    Details,
    Key,
    Op,
    SchemaChange,
    Truncate,
    Watermark,
)
from changelane.formats.canal import ddl, ticdc
from changelane.formats.canal.decode import SECONDS_BELOW
from changelane.formats.canal.dialects import Dialect
from changelane.formats.canal.table_plan import NULL, TablePlan, WriteOptions
from changelane.formats.canal.wire import JsonRow, WrittenMessage
from changelane.formats.contract import json, tidb_time_stamps
from changelane.formats.contract.format import Report
from changelane.position import SequencePosition
from changelane.schema import TableId, TableSchema
from changelane.types import Value

TYPES: Final[dict[Op, str]] = {
    Op.CREATE: "INSERT",
    Op.UPDATE: "UPDATE",
    Op.DELETE: "DELETE",
    Op.READ: "INIT",
}

CONTROLS: Final = frozenset(
    {"QUERY", "GTID", "MHEARTBEAT", "XACOMMIT", "XAROLLBACK", *TYPES.values()}
)
"""Types of control messages; with a row operation, the message is a statement in the log."""

_MAX_PLANS: Final = 1024

# module names, because a look-up in the enum class is slow
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE

Text = str | UnsetType
Rows = list[JsonRow] | UnsetType | None
Part = msgspec.Raw | UnsetType


class Writer:
    """Encodes events that are reduced to Canal's capabilities."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._dialect = options.dialect
        # the value of a key without content
        self._none: UnsetType | None = UNSET if options.dialect.omit_null_keys else None
        self._no_gtid = self._gtid({}, lambda _: None)
        self._plans: dict[TableSchema | None, TablePlan] = {}
        self._last: tuple[TableSchema | None, TablePlan] = None, TablePlan(None, options)
        self._keys: dict[tuple[str, ...], msgspec.Raw] = {}
        self._details = _written_details(_DETAILS, options.dialect)
        self._row_details = _written_details(_ROW_DETAILS, options.dialect)

    def write(self, event: ChangeEvent, report: Report) -> bytes | None:
        """Return the message's value; ``None`` if Canal has no message for the event."""
        match event:
            case DataChange():
                message = self.row_message(event, report)
            case SchemaChange():
                message = self._ddl(event, report)
            case Truncate():
                message = self._truncate(event, report)
            case Watermark(type="resolved") if isinstance(event.position, SequencePosition):
                message = self._message(event, ticdc.WATERMARK, TableId(), report)
            case Watermark():
                report(("event:watermark", "only a resolved time has a message"))
                return None
            case Control() if event.type in CONTROLS:
                # without text, an empty list of rows distinguishes the message from a broken one
                data: Rows = self._none
                if event.type in TYPES.values() and not event.text:
                    data = []
                message = self._message(event, event.type, event.table, report)
                message.data = data
                message.sql = event.text or ""
            case Control():
                report(("event:control", "Canal has no such type of message"))
                return None
            case _:
                raise EncodeError(f"Canal has no message for {type(event).__name__}")
        return json.dumps(self._shaped(message, event, report) if self._dialect.keys else message)

    def _shaped(
        self, message: WrittenMessage, event: ChangeEvent, report: Report
    ) -> dict[str, Any]:
        """Return a message with the keys of the dialect, in their order."""
        details: Details = getattr(event, "details", NO_DETAILS)
        shaped: dict[str, Any] = {}
        for key in self._dialect.keys:
            match key:
                case "_tidb":
                    time = tidb_time_stamps.value_of(getattr(event, "position", None), report)
                    name = "watermarkTs" if isinstance(event, Watermark) else "commitTs"
                    value: object = ticdc.extension_of(time, name, details.get("_tidb"))
                    if not value:
                        continue
                case "opType":
                    value = message.type
                case "batchId":
                    value = details.get("batchId", 0)
                case "updateBefore":
                    value = message.old
                case _:
                    value = None if key in self._dialect.nulls else getattr(message, key)
            if value is not UNSET:
                shaped[key] = value
        return shaped

    # -- rows ----------------------------------------------------------------------------------

    def row_message(self, event: DataChange, report: Report) -> WrittenMessage:
        """Return the message of a row change."""
        plan, op, details = self.plan(event.schema), event.op, event.details
        kind = "UPDATE" if op is _UPDATE else TYPES[op]
        message = self._message(event, kind, event.table, report)
        is_delete = op is _DELETE
        image = event.before if is_delete else event.after
        if image is None:
            raise EncodeError("the change has no row image")
        row = plan.row(image, report)
        if plan.unsized:
            plan.check(image, report)
        if is_delete and self._dialect.delete_row_in == "old":
            message.old = [row]
        else:
            message.data = [row]
        if plan.omits_members:
            report(("type:enum", "members are not written; values are their numbers"))
        if op is _UPDATE and event.before is not None:
            plan.check(event.before, report)
            self._add_before(message, row, plan.row(event.before, report), report)
        if self._dialect.json_values:
            message.data, message.old = _as_json(plan, message.data), _as_json(plan, message.old)
        message.mysqlType = self.part(plan.mysql_types)
        if isinstance(details.get("sqlType"), dict):
            message.sqlType = msgspec.Raw(json.dumps(details["sqlType"]))
        else:
            if "sqlType" in details:
                report(("details.sqlType", "not a map of codes"))
            message.sqlType = self.part(plan.sql_types(image))
        message.pkNames = self.part(self._key(event.key))
        if details:
            message.sql = _text(details.get("sql"))
        return message

    def _add_before(
        self, message: WrittenMessage, after: JsonRow, before: JsonRow, report: Report
    ) -> None:
        if not after.keys() <= before.keys():
            # readers would take the missing columns from the after image
            report(("before", "lacks columns of the after image"))
        elif self._dialect.update_swapped:
            message.data, message.old = [before], [{**before, **after}]
        elif self._dialect.full_old:
            message.old = [before]
        else:
            message.old = [
                {
                    name: text
                    for name, text in before.items()
                    if name not in after or after[name] != text
                }
            ]

    def plan(self, schema: TableSchema | None) -> TablePlan:
        """Return the plan of a schema."""
        last, plan = self._last
        if last is schema:
            return plan
        cached_plan = self._plans.get(schema)
        if cached_plan is None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            cached_plan = self._plans[schema] = TablePlan(schema, self._options)
        self._last = schema, cached_plan
        return cached_plan

    def _key(self, key: Key | None) -> msgspec.Raw:
        if key is None or not key.columns:
            return NULL
        raw = self._keys.get(key.columns)
        if raw is None:
            if len(self._keys) >= _MAX_PLANS:
                self._keys.clear()
            raw = self._keys[key.columns] = msgspec.Raw(json.dumps(key.columns))
        return raw

    def part(self, raw: msgspec.Raw | None) -> Any:
        """Return a part of a message; ``None`` and null are the value of a key without content."""
        return self._none if raw is None or raw is NULL else raw

    # -- other events --------------------------------------------------------------------------

    def _ddl(self, event: SchemaChange, report: Report) -> WrittenMessage:
        if event.schema is not None:
            report(("schema", "a DDL message lists no columns"))
        if event.key is not None:
            report(("schema.key", "a DDL message lists no key columns"))
        kind = self._dialect.ddl_type or ddl.TYPES.get(event.action, "QUERY")
        if ddl.action_of_kind(kind, event.ddl) != event.action:
            report(("action", f"readers take it from the statement of a message of type {kind}"))
        message = self._message(event, kind, event.table, report)
        message.isDdl = True
        message.sql = event.ddl or ""
        return message

    def _truncate(self, event: Truncate, report: Report) -> WrittenMessage:
        kind, sql = self._dialect.ddl_type or "TRUNCATE", event.ddl or ""
        if kind != "TRUNCATE" and ddl.action_of_kind(kind, sql) != "truncate":
            sql = ddl.truncate_statement(event.table.database, event.table.name)
            if event.ddl:
                reason = f"a message of type {kind} needs a TRUNCATE statement; replaced by one"
                report(("ddl", reason))
        message = self._message(event, kind, event.table, report)
        message.isDdl = True
        message.sql = sql
        return message

    def _message(
        self,
        event: DataChange | SchemaChange | Truncate | Control | Watermark,
        kind: str,
        table: TableId,
        report: Report,
    ) -> WrittenMessage:
        """Return the message without its rows and statement."""
        none, details = self._none, event.details
        return WrittenMessage(
            none,
            table.database or "",
            self.time(event.source_time_ns, "source_time", report),
            self._gtid(details, report) if details else self._no_gtid,
            self._id(details, isinstance(event, DataChange), report) if details else 0,
            False,  # noqa: FBT003 - positional for speed
            none,
            none,
            none,
            "",
            none,
            table.name or "",
            self.time(event.process_time_ns, "process_time", report),
            kind,
        )

    def time(self, value_ns: int | None, field: str, report: Report) -> int | None:
        """Return a time in the unit of the dialect."""
        if value_ns is None:
            return None
        if self._dialect.seconds:
            return value_ns // 1_000_000_000
        value = value_ns // 1_000_000
        if value >= SECONDS_BELOW:
            return value
        if value == 0 or (self._dialect.seconds is None and -SECONDS_BELOW < value < SECONDS_BELOW):
            report((field, "so near to 1970 that readers interpret it as seconds"))
        return value

    def _gtid(self, details: Details, report: Report) -> Text:
        gtid = details.get("gtid", "")
        if not self._options.gtid:
            if gtid:
                report(("details.gtid", "the option gtid is false"))
            return UNSET
        if not gtid and self._dialect.omit_null_keys:
            return UNSET
        return _text(gtid)

    def _id(self, details: Details, is_row: bool, report: Report) -> int:  # noqa: FBT001
        written_details = self._row_details if is_row else self._details
        for name in details.keys() - written_details:
            report((f"details.{name}", "Canal has no such key"))
        number = details.get("id", 0)
        if not isinstance(number, int):
            report(("details.id", "not a whole number"))
            return 0
        return number


_DETAILS: Final = ("id", "gtid", "batchId", "_tidb")
_ROW_DETAILS: Final = (*_DETAILS, "sqlType", "sql")
_NEW_KEYS: Final = frozenset({"batchId", "_tidb"})


def _written_details(names: tuple[str, ...], dialect: Dialect) -> frozenset[str]:
    """Return the details with a key in a dialect; Canal lacks the keys of other producers."""
    written = {name for name in names if dialect.writes(name)}
    return frozenset(written if dialect.keys else written - _NEW_KEYS)


def _as_json(plan: TablePlan, rows: Rows) -> Rows:
    return [plan.as_json(row) for row in rows] if isinstance(rows, list) else rows


def _text(value: Value) -> str:
    return value if isinstance(value, str) else ""
