# SPDX-License-Identifier: Apache-2.0
"""Change events to Canal messages, one row a message."""

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
from changelane.formats.canal.values import NOT_A_VALUE, Foreign, Write, write_integer, writer
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
"""Types of Canal's that are neither rows nor DDL; those of rows are changes told as statements."""

_NULL: Final = msgspec.Raw(b"null")
_ABSENT: Final = object()
_MOST_PLANS: Final = 1024

# members by their own names, which saves a costly look-up in their class
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE

Text = str | UnsetType
Rows = list[JsonRow] | UnsetType | None
Part = msgspec.Raw | UnsetType


class WriteOptions(msgspec.Struct, frozen=True):
    """What a writer has to know: the dialect, the zone of TIMESTAMP, whether ``gtid`` is a key."""

    dialect: Dialect
    zone: dt.tzinfo
    gtid: bool = True


class TablePlan:
    """How images of one schema become rows of text, compiled once.

    Attributes:
        mysql_types: The map ``mysqlType`` as JSON; null without a schema.
        unsized: Columns of bits without a length.
        unlabelled: There are ENUM or SET columns whose members are not written.
    """

    def __init__(self, schema: TableSchema | None, options: WriteOptions) -> None:
        self._columns: tuple[tuple[str, Write | None], ...] = ()
        self._codes: dict[str, int] = {}
        self.unsized: list[str] = []
        self.unlabelled = False
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
            (name, writer(of, labels=options.dialect.labels, zone=options.zone))
            for name, of in types.items()
        )
        dialect = options.dialect
        if dialect.promotes:
            types = {name: promoted(of) for name, of in types.items()}
        self._codes = {
            name: dialect.codes.get(bare(texts[name]), of.code) for name, of in types.items()
        }
        self._by_value = tuple(
            # the least value whose highest bit is set
            (name, of, 1 << (getattr(of.kind, "bits", 1) - 1))
            for name, of in types.items()
            if of.high_code is not None or of.null_code is not None
        )
        self.unsized = [name for name in types if parse(texts[name]).kind == Bits()]
        if options.dialect.bare_types:
            self.unlabelled = any(isinstance(of.kind, Enum | Set) for of in types.values())
        if options.dialect.json_values:
            self._numbers = frozenset(
                name for name, of in types.items() if isinstance(of.kind, Integer | Decimal | Float)
            )
        self.mysql_types = msgspec.Raw(json.dumps(texts))
        self._sql_types = msgspec.Raw(json.dumps(self._codes))

    def row(self, image: Image, report: Report) -> JsonRow:
        """Return an image as texts, its columns in the order of the table.

        Args:
            image: The image.
            report: Called for each value that MySQL does not have.

        Raises:
            EncodeError: A value is not of its column's type.
        """
        row: JsonRow = {}
        name, absent, write_whole = "", _ABSENT, write_integer
        try:
            for name, write in self._columns:
                value = image.get(name, absent)
                if value is None:
                    row[name] = None
                elif write is write_whole and value.__class__ is int:
                    row[name] = f"{value}"  # what it writes, without the call
                elif value is absent:
                    continue
                elif write is not None:
                    row[name] = write(value)
                elif isinstance(value, str):
                    row[name] = value
                else:
                    raise TypeError
        except Foreign:
            row = self._told(image, report)
        except NOT_A_VALUE:
            raise EncodeError(f"column {name!r} holds a value that is not of its type") from None
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
        """Return a row of texts with numbers where they are numbers."""
        return {
            name: number(text) if name in self._numbers and isinstance(text, str) else text
            for name, text in row.items()
        }

    def _told(self, image: Image, report: Report) -> JsonRow:
        """Return the texts of an image of which MySQL does not have every value."""
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
            except Foreign as foreign:
                report(foreign.loss)
                row[name] = foreign.text
            except NOT_A_VALUE:
                msg = f"column {name!r} holds a value that is not of its type"
                raise EncodeError(msg) from None
        return row

    def check(self, image: Image, report: Report) -> None:
        """Report bits whose leading zeros a number does not keep and no length gives back."""
        for name in self.unsized:
            value = image.get(name)
            if isinstance(value, str) and value.startswith("0") and value != "0":
                report(("value:bits", "leading zeros of bits without a length"))

    def sql_types(self, image: Image) -> msgspec.Raw:
        """Return the map ``sqlType``, whose codes depend on the values of a row."""
        if not self._by_value:
            return self._sql_types
        codes: dict[str, int] = {}
        for name, of, high in self._by_value:
            value = image.get(name)
            if value is None:
                if of.null_code is not None and name in image:
                    codes[name] = of.null_code
            elif of.high_code is not None and isinstance(value, int) and value >= high:
                codes[name] = of.high_code
        return msgspec.Raw(json.dumps(self._codes | codes)) if codes else self._sql_types


class Writer:
    """Encodes events that were reduced to what Canal carries."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._dialect = options.dialect
        # the value of a key that does not apply
        self._none: UnsetType | None = UNSET if options.dialect.omit_null_keys else None
        self._no_gtid = self._gtid({}, lambda _: None)
        self._plans: dict[TableSchema | None, TablePlan] = {}
        self._last: tuple[TableSchema | None, TablePlan] = None, TablePlan(None, options)
        self._keys: dict[tuple[str, ...], msgspec.Raw] = {}
        self._details = _kept(_DETAILS, options.dialect)
        self._row_details = _kept(_ROW_DETAILS, options.dialect)

    def write(self, event: ChangeEvent, report: Report) -> bytes | None:
        """Return the message's value; ``None`` when Canal has no message for the event."""
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
                # without text, no rows is what tells such a message from a broken one
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
        """Return a message with the keys of a dialect, in its order."""
        details: Details = getattr(event, "details", NO_DETAILS)
        shaped: dict[str, Any] = {}
        for key in self._dialect.keys:
            match key:
                case "_tidb":
                    position = getattr(event, "position", None)
                    time = position.value if isinstance(position, SequencePosition) else None
                    name = "watermarkTs" if isinstance(event, Watermark) else "commitTs"
                    value: object = ticdc.written(time, name, details.get("_tidb"))
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
            raise EncodeError("an event without the row that it is about")
        row = plan.row(image, report)
        if plan.unsized:
            plan.check(image, report)
        if is_delete and self._dialect.delete_row_in == "old":
            message.old = [row]
        else:
            message.data = [row]
        if plan.unlabelled:
            report(("type:enum", "members are not written: values are numbers of them"))
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
            # readers would take the missing columns from the row after
            report(("before", "lacks columns of the row after"))
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
        known_plan = self._plans.get(schema)
        if known_plan is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            known_plan = self._plans[schema] = TablePlan(schema, self._options)
        self._last = schema, known_plan
        return known_plan

    def _key(self, key: Key | None) -> msgspec.Raw:
        if key is None or not key.columns:
            return _NULL
        raw = self._keys.get(key.columns)
        if raw is None:
            if len(self._keys) >= _MOST_PLANS:
                self._keys.clear()
            raw = self._keys[key.columns] = msgspec.Raw(json.dumps(key.columns))
        return raw

    def _part(self, raw: msgspec.Raw) -> Part | None:
        return self._none if raw is _NULL else raw

    # -- everything else -----------------------------------------------------------------------

    def _ddl(self, event: SchemaChange, report: Report) -> WrittenMessage:
        if event.schema is not None:
            report(("schema", "a DDL message lists no columns"))
        if event.key is not None:
            report(("schema.key", "a DDL message lists no key columns"))
        kind = self._dialect.ddl_type or ddl.TYPES.get(event.action, "QUERY")
        if ddl.action_of_kind(kind, event.ddl) != event.action:
            report(("action", f"a message of type {kind} leaves it to the statement"))
        message = self._message(event, kind, event.table, report)
        message.isDdl = True
        message.sql = event.ddl or ""
        return message

    def _truncate(self, event: Truncate, report: Report) -> WrittenMessage:
        kind, sql = self._dialect.ddl_type or "TRUNCATE", event.ddl or ""
        if kind != "TRUNCATE" and ddl.action_of_kind(kind, sql) != "truncate":
            sql = ddl.truncate_statement(event.table.database, event.table.name)
            if event.ddl:
                report(("ddl", f"a message of type {kind} leaves it to the statement: another"))
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
            report((field, "so near to 1970 that readers take it for seconds"))
        return value

    def _gtid(self, details: Details, report: Report) -> Text:
        gtid = details.get("gtid", "")
        if not self._options.gtid:
            if gtid:
                report(("details.gtid", "the key is switched off"))
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


def _kept(names: tuple[str, ...], dialect: Dialect) -> frozenset[str]:
    """Return the details that a dialect has keys for; Canal has none of the others' own."""
    own = {name for name in names if dialect.writes(name)}
    return frozenset(own if dialect.keys else own - _NEW_KEYS)


def _as_json(plan: TablePlan, rows: Rows) -> Rows:
    return [plan.as_json(row) for row in rows] if isinstance(rows, list) else rows


def promoted(of: MySqlType) -> MySqlType:
    """Return a type whose code is that of the wider type to which unsigned numbers convert.

    >>> promoted(parse("int unsigned")).code, promoted(parse("bigint unsigned")).code
    (-5, 3)
    """
    if of.high_code is None:
        return of
    return msgspec.structs.replace(of, code=of.high_code, high_code=None)


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
    """Return a number's text as a number of JSON; NaN and infinity stay text."""
    return text if text.lstrip("-")[:1] in {"N", "I", "s"} else msgspec.Raw(text.encode())


def _text(value: Value) -> str:
    return value if isinstance(value, str) else ""
