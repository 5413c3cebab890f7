# SPDX-License-Identifier: Apache-2.0
"""Canal messages to change events."""

import copy
import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

import msgspec

from changelane.ddl import table_of
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
    Truncate,
    Watermark,
)
from changelane.formats.canal import ddl, ticdc
from changelane.formats.canal.dialects import HIDDEN_COLUMNS, SOURCE, Dialect
from changelane.formats.canal.values import NOT_A_VALUE, Read, json_text, reader
from changelane.formats.canal.wire import FlatMessage, JsonFlatMessage
from changelane.formats.contract import json
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableId, TableSchema
from changelane.sql_types.mysql import MySqlType, parse
from changelane.types import UNKNOWN, LogicalType, Value

T = TypeVar("T")

ROW_OPERATIONS: Final[dict[str, Op]] = {
    "INSERT": Op.CREATE,
    "UPDATE": Op.UPDATE,
    "DELETE": Op.DELETE,
    "INIT": Op.READ,
}

SECONDS_BELOW: Final = 10_000_000_000
"""Smaller times are seconds; in milliseconds, this number is a day in April 1970."""

_AFTER_LAST_MS: Final = 253_402_300_800_000
"""The beginning of the year 10000."""
_MAX_PLANS: Final = 1024
_MAX_CACHED_BYTES: Final = 1 << 20

# module names, because a look-up in the enum class is as slow as reading a number
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE
_FULL: Final = Completeness.FULL
_UNKNOWN: Final = Completeness.UNKNOWN
_CHANGED: Final = Completeness.CHANGED

RowImage = Literal["auto", "minimal"]
"""MySQL's ``binlog_row_image``: ``minimal``, also for ``NOBLOB``, if no update is a whole row;
``auto``, if an update that shows no missing column is one."""

Row = dict[str, Any]
Images = list[tuple[Image | None, Image | None, Completeness]]
"""Before image, after image, and their completeness without a schema."""


class TablePlan:
    """The conversion of rows of one ``mysqlType``, ``sqlType`` and ``pkNames``, compiled once.

    Attributes:
        schema: The columns, in their order; ``None`` if the message has no types.
        key: The key columns, if the message names them.
        hidden: Columns to drop from every row.
        sql_types: The codes in ``sqlType``, if they differ from Canal's codes of these types.
        readers: The conversions of texts, by column.
    """

    def __init__(
        self,
        types: Mapping[str, str | None] | None,
        key: tuple[str, ...],
        sql_types: Mapping[str, object] | None,
        *,
        options: "ReadOptions",
    ) -> None:
        self.key = Key(key, KeyOrigin.PAYLOAD) if key else None
        # a hidden column in the key is the table's only key
        self.hidden = tuple(name for name in options.hidden if name not in key)
        self.schema: TableSchema | None = None
        self.sql_types: Mapping[str, object] | None = None
        self._kinds: dict[str, LogicalType] = {}
        self.readers: Mapping[str, Read] = {}
        self._wider: dict[tuple[str, ...], TablePlan] = {}
        if types is None:
            self.sql_types = sql_types
            return
        columns: list[Column] = []
        readers: dict[str, Read] = {}
        for name, text in types.items():
            if name in self.hidden:
                continue
            mysql_type = _UNTYPED if text is None else parse(text)
            columns.append(Column(name, mysql_type.kind, text))
            self._kinds[name] = mysql_type.kind
            read = reader(mysql_type, labels=options.dialect.labels, zone=options.zone)
            if read is not None:
                readers[name] = read
        self.schema = TableSchema(tuple(columns))
        self.readers = readers
        if sql_types and not _are_usual(types, sql_types):
            self.sql_types = sql_types

    def covering(self, rows: Iterable[Row | None]) -> "TablePlan":
        """Return a plan with all columns of *rows* in its schema, columns without a type last.

        Removes the hidden columns from *rows*.
        """
        names = self._kinds.keys()
        other_columns: dict[str, None] = {}
        for row in rows:
            if row is not None and not row.keys() <= names:
                for name in self.hidden:
                    row.pop(name, None)
                other_columns.update((name, None) for name in row if name not in names)
        return (
            self._with(tuple(other_columns)) if other_columns and self.schema is not None else self
        )

    def _with(self, names: tuple[str, ...]) -> "TablePlan":
        plan = self._wider.get(names)
        if plan is None:
            plan = copy.copy(self)
            plan.widen(names)
            if len(self._wider) < _MAX_PLANS:
                self._wider[names] = plan
        return plan

    def widen(self, names: tuple[str, ...]) -> None:
        """Add columns without a type to this plan."""
        columns = () if self.schema is None else self.schema.columns
        self.schema = TableSchema(columns + tuple(Column(name, UNKNOWN) for name in names))
        self._kinds = self._kinds | dict.fromkeys(names, UNKNOWN)
        self._wider = {}

    def read(self, row: Row, field: str, index: int) -> Image:
        """Convert the texts of a row into values, in place, and return the row."""
        name = ""
        try:
            for name, read in self.readers.items():
                text = row.get(name)
                if text is not None:
                    row[name] = read(text)
        except NOT_A_VALUE:
            raise self._wrong(field, index, name) from None
        return row

    def as_texts(self, rows: Sequence[Row | None], field: str) -> None:
        """Convert the JSON values of typed columns into Canal's texts, in place."""
        for index, row in enumerate(rows):
            for name, kind in self._kinds.items():
                if row is None or row.get(name) is None or kind is UNKNOWN:
                    continue
                try:
                    row[name] = json_text(row[name], kind)
                except NOT_A_VALUE:
                    raise self._wrong(field, index, name) from None

    def _wrong(self, field: str, index: int, column: str) -> DecodeError:
        kind = str(self._kinds[column]).partition("(")[0]
        path = f"$.{field}[{index}].{column}"
        return DecodeError(f"not a value of {kind}", code=ReasonCode.WRONG_TYPE, path=path)


_UNTYPED: Final = MySqlType(UNKNOWN, 12)


def _are_usual(types: Mapping[str, str | None], codes: Mapping[str, object]) -> bool:
    """Return whether all codes follow from the type texts."""
    for name, code in codes.items():
        text = types.get(name)
        if text is None:
            return False
        mysql_type = parse(text)
        usual_codes = {mysql_type.code, mysql_type.high_code, mysql_type.null_code}
        if not isinstance(code, int) or code not in usual_codes:
            return False
    return True


class ReadOptions(msgspec.Struct, frozen=True):
    """The options of a reader.

    Attributes:
        dialect: The dialect.
        zone: The zone of TIMESTAMP.
        hidden: The columns to drop.
        row_image: The columns in the binary log.
    """

    dialect: Dialect
    zone: dt.tzinfo
    hidden: tuple[str, ...] = HIDDEN_COLUMNS
    row_image: RowImage = "auto"


class Reader:
    """Decodes messages; caches plans by the bytes of the maps that describe the table."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._dialect = options.dialect
        self._plans: dict[tuple[bytes, bytes, bytes], TablePlan] = {}

    def __call__(self, value: bytes) -> tuple[ChangeEvent, ...]:
        """Return the events of a message's value, in the order of its rows."""
        message = load(value)
        op = ROW_OPERATIONS.get(message.type)
        if op is None or message.isDdl:
            if message.data or message.old or message.updateBefore:
                path = "$.type" if op is None else "$.isDdl"
                raise DecodeError(
                    "a message of this type has no rows",
                    code=ReasonCode.UNKNOWN_OPERATION,
                    path=path,
                )
            return (self._other(message),)
        if message.tidb is not None and op is not _DELETE:
            ticdc.check_row(message.tidb)
        if message.data or (op is _DELETE and message.old):
            return self._rows(message, op)
        if any(message.old or message.updateBefore or ()):
            reason = "the message has old rows and no new rows"
            raise DecodeError(reason, code=ReasonCode.MISSING_FIELD, path="$.data")
        return (self._statement(message),)

    # -- rows ----------------------------------------------------------------------------------

    def _rows(self, message: FlatMessage, op: Op) -> tuple[DataChange, ...]:
        data: list[Row] = message.data or []
        old_name = "old" if message.old or not message.updateBefore else "updateBefore"
        old: list[Row | None] = message.old or message.updateBefore or []
        plan = self.plan(message).covering([*data, *old])
        if isinstance(message, JsonFlatMessage):
            plan.as_texts(data, "data")
            plan.as_texts(old, old_name)
        if op is _DELETE:
            images = self._deleted(plan, data, old)
        elif op is _UPDATE:
            images = self._updated(plan, data, old)
        elif any(old):
            # "old: UPDATE only"; without an error, these rows would be lost
            reason = f"a message of type {message.type} has no old rows"
            raise DecodeError(reason, code=ReasonCode.UNEXPECTED_IMAGE, path=f"$.{old_name}")
        else:
            images = [(None, plan.read(row, "data", i), _FULL) for i, row in enumerate(data)]
        table = _table(message)
        details = details_of(message, plan.sql_types)
        source_time = self.time(message.es, "es")
        process_time = self.time(message.ts, "ts")
        typed = plan.schema is not None
        is_partial = op is _UPDATE and self._options.row_image == "minimal"
        position = None if message.tidb is None else ticdc.position(message.tidb, "commitTs")
        events = [
            DataChange(
                op,
                table,
                plan.key,
                before,
                after,
                plan.schema,
                position,
                None,
                SOURCE,
                source_time,
                process_time,
                _UNKNOWN if typed or is_partial or before is None else completeness,
                _CHANGED if is_partial else _UNKNOWN if typed or after is None else completeness,
                details,
            )
            for before, after, completeness in images
        ]
        return tuple(events)

    def _deleted(self, plan: TablePlan, data: list[Row], old: list[Row | None]) -> Images:
        in_old = bool(old) and (self._dialect.delete_row_in == "old" or not data)
        if not in_old:
            return [(plan.read(row, "data", i), None, _FULL) for i, row in enumerate(data)]
        images: Images = []
        for index, row in enumerate(old):
            if row is None:
                raise DecodeError("a deleted row is missing", path=f"$.old[{index}]")
            # in the only sample of such a message, the row has one of two columns
            images.append((plan.read(row, "old", index), None, _UNKNOWN))
        return images

    def _updated(self, plan: TablePlan, data: list[Row], old: list[Row | None]) -> Images:
        images: Images = []
        # Canal omits empty rows in `data` but not in `old`: with different lengths, the pairs are
        # unknown, and no before image is better than that of another row
        paired = len(old) == len(data)
        for index, row in enumerate(data):
            after = plan.read(row, "data", index)
            changed = old[index] if paired else None
            before = None
            if changed is not None:
                before = {**after, **plan.read(changed, "old", index)}
            if self._dialect.update_swapped and before is not None:
                images.append((after, before, _FULL))
            else:
                images.append((before, after, _FULL))
        return images

    def plan(self, message: FlatMessage) -> TablePlan:
        """Return the plan of a message's rows."""
        content = bytes(message.mysqlType), bytes(message.sqlType), bytes(message.pkNames)
        plan = self._plans.get(content)
        if plan is None:
            plan = TablePlan(
                _part(content[0], dict[str, str | None], "mysqlType"),
                tuple(_part(content[2], list[str], "pkNames") or ()),
                _part(content[1], dict[str, Any], "sqlType"),
                options=self._options,
            )
            if sum(map(len, content)) < _MAX_CACHED_BYTES:
                if len(self._plans) >= _MAX_PLANS:
                    self._plans.clear()
                self._plans[content] = plan
        return plan

    # -- other messages ------------------------------------------------------------------------

    def _other(self, message: FlatMessage) -> ChangeEvent:
        kind, sql = message.type, message.sql or None
        if kind == ticdc.WATERMARK:
            return self._watermark(message)
        if not message.isDdl and (kind == "QUERY" or kind not in ddl.TYPES_OF_DDL):
            if message.tidb is not None:
                ticdc.check_row(message.tidb)  # TiCDC before 7.5 sent a link without the type
            return self._control(message)
        action = ddl.action_of_kind(kind, sql)
        table = table_of(sql, "mysql", _table(message))
        parts = self._parts(message)
        if action == "truncate":
            return Truncate(table, sql, **parts)
        return SchemaChange(table, action, sql, **parts)

    def _watermark(self, message: FlatMessage) -> Watermark:
        position = ticdc.position(message.tidb or {}, "watermarkTs")
        if position is None:
            path = "$._tidb.watermarkTs"
            raise DecodeError("the watermark has no time", code=ReasonCode.MISSING_FIELD, path=path)
        return Watermark("resolved", **{**self._parts(message), "position": position})

    def _statement(self, message: FlatMessage) -> ChangeEvent:
        """Return the control event of a statement in the source's log: it is not applied."""
        if message.data is None and not message.sql:
            reason = "the message has neither rows nor a statement"
            raise DecodeError(reason, code=ReasonCode.MISSING_FIELD, path="$.data")
        return self._control(message)

    def _control(self, message: FlatMessage) -> Control:
        parts = self._parts(message)
        return Control(message.type, message.sql or None, _table(message), **parts)

    def _parts(self, message: FlatMessage) -> dict[str, Any]:
        return {
            "source": SOURCE,
            "source_time_ns": self.time(message.es, "es"),
            "process_time_ns": self.time(message.ts, "ts"),
            "details": details_of(message, None, sql=False),
            "position": None if message.tidb is None else ticdc.position(message.tidb, "commitTs"),
        }

    def time(self, value: int | None, field: str) -> int | None:
        """Return a time in nanoseconds; ``None`` for no time.

        Raises:
            DecodeError: The time is out of range.
        """
        if not value:  # a producer without a time writes 0 (InLong)
            return None
        seconds = self._dialect.seconds
        if seconds is None:
            seconds = -SECONDS_BELOW < value < SECONDS_BELOW
        if not -_AFTER_LAST_MS < value * (1000 if seconds else 1) < _AFTER_LAST_MS:
            raise DecodeError("out of range", code=ReasonCode.VALUE_OUT_OF_RANGE, path=f"$.{field}")
        return value * (1_000_000_000 if seconds else 1_000_000)


_ROW_PATHS: Final = ("$.data[", "$.old[", "$.updateBefore[")


def load(value: bytes) -> FlatMessage:
    """Return the wire class of a message; :class:`JsonFlatMessage` only if a row has JSON values.

    Raises:
        DecodeError: The value is not a Canal message.
    """
    try:
        return json.loads(value, FlatMessage)
    except DecodeError as error:
        if error.code != ReasonCode.WRONG_TYPE or not error.path.startswith(_ROW_PATHS):
            raise
    return json.loads(value, JsonFlatMessage)


def _part(raw: bytes, type: type[T], field: str) -> T | None:
    if not raw or raw == b"null":
        return None
    try:
        return json.loads(raw, type)
    except DecodeError as error:
        path = f"$.{field}{error.path[1:]}"
        raise DecodeError(error.reason, code=error.code, path=path) from None


def _table(message: FlatMessage) -> TableId:
    return TableId(message.database or None, None, message.table or None)


def details_of(
    message: FlatMessage, sql_types: Mapping[str, object] | None, *, sql: bool = True
) -> Details:
    """Return the fields of a message that have no place in its event."""
    fields = (
        message.id,
        message.gtid,
        sql_types,
        sql and message.sql,
        message.batchId,
        message.tidb,
    )
    if not any(fields):
        return NO_DETAILS
    details: dict[str, Value] = {}
    if message.id:
        details["id"] = message.id
    if message.gtid:
        details["gtid"] = message.gtid
    if sql_types:
        details["sqlType"] = sql_types
    if sql and message.sql:
        details["sql"] = message.sql
    if message.batchId:
        details["batchId"] = message.batchId
    if message.tidb and (tidb_fields := ticdc.other_fields_of(message.tidb)):
        details["_tidb"] = tidb_fields
    return details
