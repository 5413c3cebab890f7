# SPDX-License-Identifier: Apache-2.0
"""Change events to Canal messages, one row per message."""

import datetime as dt
import decimal
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
    Image,
    Key,
    Op,
    SchemaChange,
    Truncate,
    Watermark,
)
from changelane.formats.canal import ddl, ticdc
from changelane.formats.canal.decode import SECONDS_BELOW
from changelane.formats.canal.dialects import Dialect
from changelane.formats.canal.values import NOT_A_VALUE, ForeignValue, Write, write_integer, writer
from changelane.formats.canal.wire import JsonRow, WrittenMessage
from changelane.formats.contract import json
from changelane.formats.contract.format import Report
from changelane.position import SequencePosition
from changelane.schema import TableId, TableSchema
from changelane.sql_types.mysql import MySqlType, parse, text_of
from changelane.types import Bits, Decimal, Enum, Float, Integer, Set, String, Value
from changelane.types.values import value_text

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

_NULL: Final = msgspec.Raw(b"null")
_ABSENT: Final = object()
_MAX_PLANS: Final = 1024

# module names, because a look-up in the enum class is slow
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE

Text = str | UnsetType
Rows = list[JsonRow] | UnsetType | None
Part = msgspec.Raw | UnsetType


class WriteOptions(msgspec.Struct, frozen=True):
    """The options of a writer: the dialect, the zone of TIMESTAMP, whether ``gtid`` is written."""

    dialect: Dialect
    zone: dt.tzinfo
    gtid: bool = True


class TablePlan:
    """The conversion of images of one schema into rows of text, compiled once.

    Attributes:
        mysql_types: The map ``mysqlType`` as JSON; null without a schema.
        unsized: BIT columns without a length.
        omits_members: There are ENUM or SET columns, and their members are not written.
    """

    def __init__(self, schema: TableSchema | None, options: WriteOptions) -> None:
        self._columns: tuple[tuple[str, Write | None], ...] = ()
        self._codes: dict[str, int] = {}
        self.unsized: list[str] = []
        self.omits_members = False
        self._numbers: frozenset[str] = frozenset()
        self._json_values = options.dialect.json_values
        self._sql_types = self.mysql_types = _NULL
        self._by_value: tuple[tuple[str, MySqlType, int], ...] = ()
        if schema is None:
            return
        texts = {column.name: text_of(column.type, column.source_type) for column in schema.columns}
        types = {name: parse(text) for name, text in texts.items()}
        if options.dialect.bare_types:
            texts = {name: bare(text) for name, text in texts.items()}
        self._columns = tuple(
            (name, writer(mysql_type, labels=options.dialect.labels, zone=options.zone))
            for name, mysql_type in types.items()
        )
        dialect = options.dialect
        if dialect.promotes:
            types = {name: promoted(mysql_type) for name, mysql_type in types.items()}
        self._codes = {
            name: dialect.codes.get(bare(texts[name]), mysql_type.code)
            for name, mysql_type in types.items()
        }
        self._by_value = tuple(
            # the least value with the highest bit set
            (name, mysql_type, 1 << (getattr(mysql_type.kind, "bits", 1) - 1))
            for name, mysql_type in types.items()
            if mysql_type.high_code is not None or mysql_type.null_code is not None
        )
        self.unsized = [name for name in types if parse(texts[name]).kind == Bits()]
        kinds = {name: mysql_type.kind for name, mysql_type in types.items()}
        if options.dialect.bare_types:
            self.omits_members = any(isinstance(kind, Enum | Set) for kind in kinds.values())
        if options.dialect.json_values:
            self._numbers = frozenset(
                name for name, kind in kinds.items() if isinstance(kind, Integer | Decimal | Float)
            )
        self.mysql_types = msgspec.Raw(json.dumps(texts))
        self._sql_types = msgspec.Raw(json.dumps(self._codes))

    def row(self, image: Image, report: Report) -> JsonRow:
        """Return an image as texts, with its columns in the order of the table.

        Args:
            image: The image.
            report: Called for each value that MySQL does not have.

        Raises:
            EncodeError: A value is not of its column's type.
        """
        row: JsonRow = {}
        name, absent, write_plain_integer = "", _ABSENT, write_integer
        try:
            for name, write in self._columns:
                value = image.get(name, absent)
                if value is None:
                    row[name] = None
                elif write is write_plain_integer and value.__class__ is int:
                    row[name] = f"{value}"  # its result, without the call
                elif value is absent:
                    continue
                elif write is not None:
                    row[name] = write(value)
                elif isinstance(value, str):
                    row[name] = value
                else:
                    raise TypeError
        except ForeignValue:
            row = self._row_with_losses(image, report)
        except NOT_A_VALUE:
            raise EncodeError(f"column {name!r} has a value that is not of its type") from None
        if len(row) != len(image):
            for name, value in image.items():
                if name not in row:
                    row[name] = self._untyped(value)
        return row

    def _untyped(self, value: Value) -> Any:
        if value is None or type(value) is str:
            return value
        if self._json_values and isinstance(value, bool | int | list | dict):
            return value
        text = value_text(String(), value)
        if self._json_values and isinstance(value, float | decimal.Decimal):
            return number(text)
        return text

    def as_json(self, row: JsonRow) -> JsonRow:
        """Return a row of texts with the numeric columns as JSON numbers."""
        return {
            name: number(text) if name in self._numbers and isinstance(text, str) else text
            for name, text in row.items()
        }

    def _row_with_losses(self, image: Image, report: Report) -> JsonRow:
        """Return the texts of an image with values that MySQL does not have."""
        row: JsonRow = {}
        for name, write in self._columns:
            value = image.get(name)
            try:
                if write is not None and value is not None:
                    row[name] = write(value)
                elif isinstance(value, str) or (value is None and name in image):
                    row[name] = value
                elif name in image:
                    raise TypeError
            except ForeignValue as foreign_value:
                report(foreign_value.loss)
                row[name] = foreign_value.text
            except NOT_A_VALUE:
                msg = f"column {name!r} has a value that is not of its type"
                raise EncodeError(msg) from None
        return row

    def check(self, image: Image, report: Report) -> None:
        """Report bits with leading zeros, which a number without the column's length loses."""
        for name in self.unsized:
            value = image.get(name)
            if isinstance(value, str) and value.startswith("0") and value != "0":
                report(("value:bits", "leading zeros of bits without a length"))

    def sql_types(self, image: Image) -> msgspec.Raw:
        """Return the map ``sqlType`` of a row: the codes depend on its values."""
        if not self._by_value:
            return self._sql_types
        codes: dict[str, int] = {}
        for name, mysql_type, high in self._by_value:
            value = image.get(name)
            if value is None:
                if mysql_type.null_code is not None and name in image:
                    codes[name] = mysql_type.null_code
            elif mysql_type.high_code is not None and isinstance(value, int) and value >= high:
                codes[name] = mysql_type.high_code
        return msgspec.Raw(json.dumps(self._codes | codes)) if codes else self._sql_types


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
                message = self._row(event, report)
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
        return json.dumps(self._shaped(message, event) if self._dialect.keys else message)

    def _shaped(self, message: WrittenMessage, event: ChangeEvent) -> dict[str, Any]:
        """Return a message with the keys of the dialect, in their order."""
        details: Details = getattr(event, "details", NO_DETAILS)
        shaped: dict[str, Any] = {}
        for key in self._dialect.keys:
            match key:
                case "_tidb":
                    position = getattr(event, "position", None)
                    time = position.value if isinstance(position, SequencePosition) else None
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

    def _row(self, event: DataChange, report: Report) -> WrittenMessage:
        plan, op, details = self._plan(event.schema), event.op, event.details
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
        message.mysqlType = self._part(plan.mysql_types)
        if isinstance(details.get("sqlType"), dict):
            message.sqlType = msgspec.Raw(json.dumps(details["sqlType"]))
        else:
            if "sqlType" in details:
                report(("details.sqlType", "not a map of codes"))
            message.sqlType = self._part(plan.sql_types(image))
        message.pkNames = self._part(self._key(event.key))
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

    def _plan(self, schema: TableSchema | None) -> TablePlan:
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
            return _NULL
        raw = self._keys.get(key.columns)
        if raw is None:
            if len(self._keys) >= _MAX_PLANS:
                self._keys.clear()
            raw = self._keys[key.columns] = msgspec.Raw(json.dumps(key.columns))
        return raw

    def _part(self, raw: msgspec.Raw) -> Part | None:
        return self._none if raw is _NULL else raw

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
            self._time(event.source_time_ns, "source_time", report),
            self._gtid(details, report) if details else self._no_gtid,
            self._id(details, isinstance(event, DataChange), report) if details else 0,
            False,  # noqa: FBT003 - positional for speed
            none,
            none,
            none,
            "",
            none,
            table.name or "",
            self._time(event.process_time_ns, "process_time", report),
            kind,
        )

    def _time(self, value_ns: int | None, field: str, report: Report) -> int | None:
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


def promoted(mysql_type: MySqlType) -> MySqlType:
    """Return a type with the code of the wider type to which its unsigned numbers convert.

    >>> promoted(parse("int unsigned")).code, promoted(parse("bigint unsigned")).code
    (-5, 3)
    """
    if mysql_type.high_code is None:
        return mysql_type
    return msgspec.structs.replace(mysql_type, code=mysql_type.high_code, high_code=None)


def bare(text: str) -> str:
    """Return a type without lengths, digits and members.

    >>> bare("ENUM('a','b')"), bare("bigint(20) unsigned")
    ('enum', 'bigint unsigned')
    """
    start, end = text.find("("), text.rfind(")")
    if 0 <= start < end:
        text = text[:start].rstrip() + text[end + 1 :]
    return text.lower()


def number(text: str) -> msgspec.Raw | str:
    """Return a number's text as a JSON number; NaN and infinity stay text."""
    return text if text.lstrip("-")[:1] in {"N", "I", "s"} else msgspec.Raw(text.encode())


def _text(value: Value) -> str:
    return value if isinstance(value, str) else ""
