# SPDX-License-Identifier: Apache-2.0
"""Messages of TiCDC's open protocol to change events."""

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from changelane.ddl import action_of, table_of
from changelane.errors import DecodeError
from changelane.event import (
    NO_DETAILS,
    ChangeEvent,
    Completeness,
    DataChange,
    Details,
    Image,
    Key,
    KeyOrigin,
    Op,
    SchemaChange,
    Tombstone,
    Truncate,
    Watermark,
)
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.column_values import Read
from changelane.formats.contract.tidb_time_stamps import position_of, time_ns
from changelane.formats.ticdc import SOURCE
from changelane.formats.ticdc.open.columns import (
    BINARY,
    BLANK_WHEN_EMPTY,
    GENERATED,
    HANDLE_KEY,
    NULLABLE,
    TEXT_TYPES,
    column_reader,
    type_of,
)
from changelane.formats.ticdc.open.wire import (
    READ_ERRORS,
    RESOLVED,
    ROW,
    STATEMENT,
    VERSION,
    EventKey,
    Row,
    Statement,
    decode_key,
    decode_row,
    frames,
)
from changelane.formats.ticdc.open.wire import Column as WireColumn
from changelane.message import Message
from changelane.position import Position
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNAVAILABLE

T = TypeVar("T")

ACTIONS: Final[Mapping[int, str]] = {
    1: "create_database",
    2: "drop_database",
    3: "create",
    4: "drop",
    7: "create_index",
    8: "drop_index",
    14: "rename",
}
"""The number of a DDL type -> the action, if the statement does not determine it."""
TRUNCATE_TABLE: Final = 11
_ALTERS: Final = frozenset({5, 6, 12, 15, 17, 18, 19, 20, 22, 23, 30, 32, 33})
"""The numbers of DDL types that alter a table."""

_MAX_TABLES: Final = 4096

# module names, because a look-up in the enum class is as slow as reading a number
_CREATE: Final = Op.CREATE
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE
_UNKNOWN: Final = Completeness.UNKNOWN

_Columns = dict[str, WireColumn]


class RowPlan:
    """How the rows of one list of columns are read, compiled once.

    Attributes:
        columns: Name, type code, flags, mark of the handle key and reader of each column.
        schema: The columns.
        key: The handle key.
    """

    __slots__ = ("columns", "key", "schema")

    def __init__(self, columns: _Columns, zone: dt.tzinfo, path: str) -> None:
        """Compile the plan of a row.

        Raises:
            DecodeError: The type of a column is unknown.
        """
        described: list[Column] = []
        readers: list[tuple[str, int, int | None, bool | None, Read]] = []
        for name, part in columns.items():
            flags = part.f or 0
            column_type = type_of(part.t, flags)
            if column_type is None:
                place = f"{path}.{name}.t"
                reason = "an unknown column type"
                raise DecodeError(reason, code=ReasonCode.UNKNOWN_TYPE, path=place)
            type_name, kind = column_type
            nullable = None if part.f is None else bool(flags & NULLABLE)
            described.append(Column(name, kind, type_name, nullable, bool(flags & GENERATED)))
            read = column_reader(part.t, flags, kind, zone)
            readers.append((name, part.t, part.f, part.h, read))
        names = tuple(name for name, c in columns.items() if c.h or (c.f or 0) & HANDLE_KEY)
        self.columns = tuple(readers)
        self.schema = TableSchema(tuple(described))
        self.key = Key(names, KeyOrigin.PAYLOAD) if names else None

    def read(self, columns: _Columns, path: str) -> dict[str, Any] | None:
        """Return a row; ``None`` if it has other columns.

        Raises:
            DecodeError: A value is not of its type.
        """
        image: dict[str, Any] = {}
        name = ""
        try:
            for (name, part), (planned_name, code, flags, is_handle, read) in zip(
                columns.items(), self.columns, strict=True
            ):
                if (
                    name != planned_name
                    or part.t != code
                    or part.f != flags
                    or part.h is not is_handle
                ):
                    return None
                value = part.v
                image[name] = value if value is None else read(value)
        except DecodeError as error:
            raise DecodeError(error.reason, code=error.code, path=f"{path}.{name}.v") from None
        return image


class Reader:
    """Decodes messages.

    Args:
        zone: The zone of TIMESTAMP values.
        has_old_values: Updates have their old row, so that a row without it is an insert.

    Attributes:
        op_without_old_row: The operation of a row without its old row.
    """

    def __init__(self, zone: dt.tzinfo, *, has_old_values: bool) -> None:
        self._zone = zone
        self.op_without_old_row = _CREATE if has_old_values else _UPDATE
        self._tables: BoundedCache[tuple[str | None, str | None], TableId]
        self._tables = BoundedCache(_MAX_TABLES)
        self._plans: BoundedCache[tuple[str | None, str | None, int], RowPlan]
        self._plans = BoundedCache(_MAX_TABLES)

    def __call__(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Return the events of a message, in the order of the batch."""
        key, value = message.key, message.value
        if key is None or not key.startswith(VERSION):
            if value is None:
                return (Tombstone(TableId()),)
            if key is None:
                reason = "no message key, which has the table and the time stamp"
                raise DecodeError(reason, code=ReasonCode.MISSING_FIELD, path="$.key")
            reason = "the message key does not begin with version 1"
            raise DecodeError(reason, code=ReasonCode.UNKNOWN_VERSION, path="$.key")
        keys = frames(key, len(VERSION), "$.key")
        values = frames(value or b"", 0, "$.value")
        if not values:
            values = [b""] * len(keys)  # a resolved event has no value
        if len(values) != len(keys):
            reason = "the key and the value have different numbers of events"
            raise DecodeError(reason, code=ReasonCode.WRONG_LENGTH, path="$.value")
        return tuple(map(self._event, keys, values, range(len(keys))))

    def _event(self, key_part: bytes, value_part: bytes, index: int) -> ChangeEvent:
        try:
            key = decode_key(key_part)
        except READ_ERRORS:
            key = _loads(key_part, EventKey, f"$.key[{index}]")
        position = position_of(key.ts, f"$.key[{index}].ts")
        if key.t == ROW:
            return self._row(key, position, value_part, index)
        if key.t == STATEMENT:
            return self._statement(key, position, value_part, index)
        if key.t != RESOLVED or value_part:
            path = f"$.key[{index}].t"
            raise DecodeError("an unknown kind", code=ReasonCode.UNKNOWN_KIND, path=path)
        if position is None:
            path = f"$.key[{index}].ts"
            raise DecodeError("no time stamp", code=ReasonCode.MISSING_FIELD, path=path)
        return Watermark("resolved", position, SOURCE, time_ns(key.ts))

    # -- rows ----------------------------------------------------------------------------------

    def _row(
        self, key: EventKey, position: Position | None, value_part: bytes, index: int
    ) -> DataChange:
        path = f"$.value[{index}]"
        if key.ccl:
            raise _incomplete("the message has only a link to the row", f"$.key[{index}].ccl")
        try:
            row = decode_row(value_part)
        except READ_ERRORS:
            row = _loads(value_part, Row, path)
        before: Image | None = None
        after: Image | None = None
        if row.d is not None:
            if row.u is not None or row.p is not None:
                code = ReasonCode.UNEXPECTED_IMAGE
                raise DecodeError("a deleted row has no other image", code=code, path=f"{path}.d")
            op = _DELETE
            before, plan = self.image(key, row.d, f"{path}.d")
        else:
            if row.u is None:
                raise DecodeError("no row", code=ReasonCode.MISSING_FIELD, path=f"{path}.u")
            if key.ohk:
                reason = "the message has only the key of the row"
                raise _incomplete(reason, f"$.key[{index}].ohk")
            after, plan = self.image(key, row.u, f"{path}.u")
            op = self.op_without_old_row
            if row.p is not None:
                op = _UPDATE
                before, before_plan = self.image(key, row.p, f"{path}.p")
                if before_plan is not plan:
                    if not row.p.keys() >= row.u.keys():
                        before = {**after, **before, **_blanks(row.p, f"{path}.p")}
                    if not row.p.keys() <= row.u.keys():
                        plan = self._plan(key, {**row.p, **row.u}, f"{path}.p")
        return DataChange(
            op,
            self._table(key),
            plan.key,
            before,
            after,
            plan.schema,
            position,
            None,
            SOURCE,
            time_ns(key.ts),
            None,
            _UNKNOWN,
            _UNKNOWN,
            _details(key),
        )

    def image(self, key: EventKey, columns: _Columns, path: str) -> tuple[Image, RowPlan]:
        """Return a row and its plan."""
        plan = self._plans.get((key.scm, key.tbl, len(columns)))
        if plan is not None:
            image = plan.read(columns, path)
            if image is not None:
                return image, plan
        plan = self._plan(key, columns, path)
        return plan.read(columns, path) or {}, plan

    def _plan(self, key: EventKey, columns: _Columns, path: str) -> RowPlan:
        plan = RowPlan(columns, self._zone, path)
        return self._plans.add((key.scm, key.tbl, len(columns)), plan)

    def _table(self, key: EventKey) -> TableId:
        names = key.scm, key.tbl
        table = self._tables.get(names)  # shared, because reducers cache by identity
        if table is None:
            table = self._tables.add(names, TableId(key.scm or None, None, key.tbl or None))
        return table

    # -- statements ----------------------------------------------------------------------------

    def _statement(
        self, key: EventKey, position: Position | None, value_part: bytes, index: int
    ) -> SchemaChange | Truncate:
        statement = _loads(value_part, Statement, f"$.value[{index}]")
        sql, number = statement.q or None, statement.t
        details = dict(_details(key))
        if number is not None:
            details["t"] = number
        table = table_of(sql, SOURCE.product, self._table(key))
        action = action_of_statement(sql, number)
        if action == "truncate":
            return Truncate(table, sql, position, None, SOURCE, time_ns(key.ts), details=details)
        return SchemaChange(
            table, action, sql, None, None, position, SOURCE, time_ns(key.ts), details=details
        )


def action_of_statement(sql: str | None, number: int | None) -> str:
    """Return the action of a DDL event: that of its statement, else that of its type.

    >>> action_of_statement(None, 11), action_of_statement("DROP TABLE t", 3)
    ('truncate', 'drop')
    """
    if number == TRUNCATE_TABLE:
        return "truncate"
    action = "other"
    if number is not None:
        action = ACTIONS.get(number, "alter" if number in _ALTERS else "other")
    return action_of(sql, SOURCE.product, action)


def _blanks(columns: _Columns, path: str) -> dict[str, object]:
    """Return the old values that are null in a message with only the changed columns."""
    return {
        name: _blank(part, f"{path}.{name}")
        for name, part in columns.items()
        if part.v is None and part.f is not None
    }


def _blank(part: WireColumn, path: str) -> object:
    """Return the old value of a changed column that is null in the message.

    In ``p`` with only the changed columns, newer versions of TiCDC write null for an empty or zero
    value, too (``writeColumnFieldValueIfUpdated``).

    Raises:
        DecodeError: The value is unknown, and it is part of the old key.
    """
    flags = part.f or 0
    if part.t in TEXT_TYPES:
        if flags & NULLABLE:
            return UNAVAILABLE
        return b"" if flags & BINARY else ""
    if part.t not in BLANK_WHEN_EMPTY:
        return None
    if part.h or flags & HANDLE_KEY:
        raise _incomplete("the old key of the row is unknown", f"{path}.v")
    return UNAVAILABLE


def _incomplete(reason: str, path: str) -> DecodeError:
    return DecodeError(reason, code=ReasonCode.INCOMPLETE_ROW, path=path)


def _details(key: EventKey) -> Details:
    if key.rid is None and key.ptn is None:
        return NO_DETAILS
    fields = {"rid": key.rid, "ptn": key.ptn}
    return {name: value for name, value in fields.items() if value is not None}


def _loads(part: bytes, type: type[T], path: str) -> T:
    try:
        return json.loads(part, type)
    except DecodeError as error:
        reason = error.reason
        if part[:1] not in {b"{", b""} and error.code is not ReasonCode.INVALID_UTF8:
            reason = "not a JSON object; compressed messages are not read"
        raise DecodeError(reason, code=error.code, path=path + error.path[1:]) from None
