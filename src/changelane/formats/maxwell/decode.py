# SPDX-License-Identifier: Apache-2.0
"""Maxwell's messages to change events."""

import decimal
from typing import Any, Final

from changelane.ddl import action_of
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
    Op,
    SchemaChange,
    Source,
    Transaction,
)
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.maxwell.message_key import KeyReader, payload_key
from changelane.formats.maxwell.message_types import (
    ACTIONS,
    BOOTSTRAP_MARKS,
    DEAD_LETTER,
    OPERATIONS,
)
from changelane.formats.maxwell.options import Nulls, Options, Order, RowImage
from changelane.formats.maxwell.table_definition import schema_of
from changelane.formats.maxwell.wire import DdlMap, Row, RowMap, load
from changelane.message import Message
from changelane.position import MySqlPosition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId

SOURCE: Final = Source(product="mysql", connector="maxwell")

MILLISECONDS_FROM: Final = 10**11
"""Greater times are milliseconds; in seconds, this number is a day in the year 5138."""
AFTER_LAST_SECOND: Final = 253_402_300_800
"""The beginning of the year 10000."""

SECOND: Final = 1_000_000_000
_MILLISECOND: Final = 1_000_000
_MOST_TABLES: Final = 4096
_MOST_OFFSET: Final = (1 << 64) - 1
_ENCRYPTED: Final = "the message is encrypted: let Maxwell write it with `encrypt = none`"

# module names, because a look-up in the enum class is as slow as reading a number
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE
_FULL: Final = Completeness.FULL
_UNKNOWN: Final = Completeness.UNKNOWN

Images = tuple[Image | None, Image | None, Completeness, Completeness]
"""Before image, after image, and their completeness."""


class Reader:
    """Decodes messages.

    Attributes:
        is_old_partial: The before image of an update is not known to be whole.
        updated_holds: The completeness of the after image of an update.
    """

    def __init__(self, options: Options) -> None:
        self._keys = KeyReader()
        self._tables: BoundedCache[tuple[str | None, str | None], TableId]
        self._tables = BoundedCache(_MOST_TABLES)
        self._has_positions = options.order is Order.POSITION
        is_minimal = options.row_image is RowImage.MINIMAL
        omits_nulls = options.nulls is Nulls.DROPPED
        self.is_old_partial = is_minimal or omits_nulls
        self._deleted_holds = _UNKNOWN if is_minimal else _FULL
        lists_all = omits_nulls or options.row_image is RowImage.FULL
        self.updated_holds = _FULL if lists_all else _UNKNOWN

    def __call__(self, message: Message, value: bytes) -> ChangeEvent:
        """Return the event of a message's value."""
        wire, attributes = load(value)
        if isinstance(wire, DdlMap):
            return self._ddl(wire, attributes)
        if wire.encrypted is not None:
            raise DecodeError(_ENCRYPTED, code=ReasonCode.ENCRYPTED, path="$.encrypted")
        op = OPERATIONS.get(wire.type)  # type: ignore[arg-type]  # None is no type
        if wire.reason is not None:
            if wire.ts is None:
                return self._dead_letter(wire, attributes)
            attributes["reason"] = wire.reason  # a filter may add an attribute of this name
        if op is not None:
            return self._row(op, wire, attributes, message.key)
        if wire.type in BOOTSTRAP_MARKS:
            return self._mark(wire, attributes)
        if wire.type is None:
            raise DecodeError("no type", code=ReasonCode.MISSING_FIELD, path="$.type")
        raise DecodeError("an unknown type", code=ReasonCode.UNKNOWN_OPERATION, path="$.type")

    # -- rows ----------------------------------------------------------------------------------

    def _row(self, op: Op, wire: RowMap, attributes: Row, message_key: bytes | None) -> DataChange:
        data, database, table = wire.data, wire.database, wire.table
        if data is None:
            raise DecodeError("no row", code=ReasonCode.MISSING_FIELD, path="$.data")
        if database is None or table is None:
            path = "$.table" if table is None else "$.database"
            raise DecodeError("a row of no table", code=ReasonCode.MISSING_FIELD, path=path)
        key = self.key(wire, database, table, data, message_key)
        before, after, before_holds, after_holds = self.images(op, data, wire.old, key)
        position = self.position(wire)
        return DataChange(
            op,
            self._table(database, table),
            key,
            before,
            after,
            None,
            position,
            transaction_of(wire),
            SOURCE,
            time_ns(wire.ts),
            push_time_ns(wire.push_ts),
            before_holds,
            after_holds,
            details_of(wire, attributes, has_position=position is not None),
        )

    def key(
        self, wire: RowMap, database: str, table: str, data: Row, message_key: bytes | None
    ) -> Key | None:
        """Return the key of a row; ``None`` = unknown."""
        if wire.primary_key_columns is not None:
            return payload_key(wire.primary_key_columns, data)
        return None if message_key is None else self._keys.read(message_key, database, table, data)

    def key_start(self, message_key: bytes | None, database: str, table: str) -> bytes | None:
        """Return the start of message keys with the column of this one; ``None`` = unknown."""
        return None if message_key is None else self._keys.start(message_key, database, table)

    def position(self, wire: RowMap | DdlMap) -> MySqlPosition | None:
        """Return the position of a message, if it has one that orders the changes.

        Raises:
            DecodeError: The text is no position.
        """
        has_position = wire.position is not None and self._has_positions
        return position_of(wire.position or "", wire.gtid) if has_position else None

    def images(self, op: Op, data: Row, old_values: Row | None, key: Key | None) -> Images:
        """Return the images of a row, and their completeness; *data* may get further columns.

        Raises:
            DecodeError: The message has an image that the operation does not have.
        """
        if op is not _UPDATE:
            if old_values:
                code = ReasonCode.UNEXPECTED_FIELD
                raise DecodeError("only an update has this field", code=code, path="$.old")
            if op is _DELETE:
                return data, None, self._deleted_holds, _UNKNOWN
            # an inserted row has all columns: an omitted one is NULL, or has its default
            return None, data, _UNKNOWN, _FULL
        changed = old_values or {}
        before: Row | None
        if self.is_old_partial:
            # a column of `data` only is unchanged, or it was NULL, or its old value is not logged
            columns = () if key is None else key.columns
            before = {name: data[name] for name in columns if name in data} | changed or None
            before_holds = Completeness.CHANGED if before else _UNKNOWN
        else:
            before, before_holds = {**data, **changed}, _FULL
        if not changed.keys() <= data.keys():
            # the old image has only columns of the new one: Maxwell omitted a NULL there
            data |= {name: None for name in changed if name not in data}
        return before, data, before_holds, self.updated_holds

    # -- other messages ------------------------------------------------------------------------

    def _mark(self, wire: RowMap, attributes: Row) -> Control:
        if wire.data:
            attributes["data"] = wire.data
        return Control(
            wire.type or "",
            None,
            self._table(wire.database, wire.table),
            source=SOURCE,
            source_time_ns=time_ns(wire.ts),
            process_time_ns=push_time_ns(wire.push_ts),
            details=details_of(wire, attributes, has_position=False),
        )

    def _dead_letter(self, wire: RowMap, attributes: Row) -> Control:
        if wire.type is not None:
            attributes["type"] = wire.type
        if wire.data:
            attributes["data"] = wire.data
        return Control(
            DEAD_LETTER,
            wire.reason,
            self._table(wire.database, wire.table),
            source=SOURCE,
            details=details_of(wire, attributes, has_position=False),
        )

    def _ddl(self, wire: DdlMap, attributes: Row) -> SchemaChange:
        kind_action = ACTIONS.get(wire.type)
        if kind_action is None:
            raise DecodeError("an unknown type", code=ReasonCode.UNKNOWN_OPERATION, path="$.type")
        if wire.database is None or (wire.table is None and wire.type.startswith("table-")):
            path = "$.database" if wire.database is None else "$.table"
            raise DecodeError("no name", code=ReasonCode.MISSING_FIELD, path=path)
        action = action_of(wire.sql, SOURCE.product, kind_action)
        if action == "truncate":  # Maxwell does not write such statements
            code = ReasonCode.UNEXPECTED_FIELD
            raise DecodeError("not a statement of this type", code=code, path="$.sql")
        schema, key = schema_of(wire.definition)
        position = self.position(wire)
        fields = {
            "type": None if kind_action == action else wire.type,
            "old": wire.old,
            "def": wire.definition,
            "charset": wire.charset,
            "schema_id": wire.schema_id,
            "position": wire.position if position is None else None,
            "gtid": wire.gtid if position is None else None,
        }
        return SchemaChange(
            self._table(wire.database, wire.table),
            action,
            wire.sql,
            schema,
            key,
            position,
            SOURCE,
            time_ns(wire.ts),
            details=_present(fields) | attributes,
        )

    def _table(self, database: str | None, name: str | None) -> TableId:
        identity = database, name
        table = self._tables.get(identity)  # shared, because reducers cache by identity
        return self._tables.add(identity, TableId(database, None, name)) if table is None else table


def time_ns(ts: int | None) -> int | None:
    """Return ``ts`` in nanoseconds: seconds for rows, milliseconds for statements."""
    if ts is None:
        return None
    if -AFTER_LAST_SECOND < ts < MILLISECONDS_FROM:
        return ts * SECOND
    if MILLISECONDS_FROM <= ts < AFTER_LAST_SECOND * 1000:
        return ts * _MILLISECOND
    raise DecodeError("out of range", code=ReasonCode.VALUE_OUT_OF_RANGE, path="$.ts")


def position_of(text: str, gtid: str | None) -> MySqlPosition:
    """Return the position of ``file:offset``.

    >>> position_of("master.000006:800911", None)
    MySqlPosition(file='master.000006', pos=800911, row=0, gtid=None)

    Raises:
        DecodeError: The text is no position.
    """
    file, _, offset = text.rpartition(":")
    if not (file and len(offset) <= 20 and offset.isascii() and offset.isdigit()):
        raise DecodeError("not a position", code=ReasonCode.WRONG_TYPE, path="$.position")
    if (number := int(offset)) > _MOST_OFFSET:
        raise DecodeError("out of range", code=ReasonCode.VALUE_OUT_OF_RANGE, path="$.position")
    return MySqlPosition(file, number, gtid=gtid)


def transaction_of(wire: RowMap) -> Transaction | None:
    """Return the place of a row in its transaction.

    Raises:
        DecodeError: ``xoffset`` is negative.
    """
    if wire.xid is None:
        return None
    return Transaction(str(wire.xid), _order(wire), last=bool(wire.commit))


def _order(wire: RowMap) -> int | None:
    """Return the number of a row in its transaction: ``xoffset`` counts from 0."""
    if wire.xoffset is None:
        return None
    if wire.xoffset < 0:
        raise DecodeError("negative", code=ReasonCode.VALUE_OUT_OF_RANGE, path="$.xoffset")
    return wire.xoffset + 1


def push_time_ns(push_ts: Any) -> int | None:
    """Return ``push_ts``, a decimal of seconds, in nanoseconds.

    Raises:
        DecodeError: The value is no number, or out of range.
    """
    if push_ts is None:
        return None
    if isinstance(push_ts, bool) or not isinstance(push_ts, decimal.Decimal | int):
        raise DecodeError("not a number", code=ReasonCode.WRONG_TYPE, path="$.push_ts")
    number: decimal.Decimal | int = push_ts
    try:
        time = _NANOSECONDS.multiply(number, SECOND)
        if -AFTER_LAST_SECOND < number < AFTER_LAST_SECOND and (nanoseconds := int(time)) == time:
            return nanoseconds
    except decimal.Inexact:
        pass
    raise DecodeError("out of range", code=ReasonCode.VALUE_OUT_OF_RANGE, path="$.push_ts")


_NANOSECONDS: Final = decimal.Context(prec=40, traps=[decimal.Inexact])


def details_of(wire: RowMap, attributes: Row, *, has_position: bool) -> Details:
    """Return the fields of a message that have no place in its event."""
    fields: tuple[Any, ...] = (
        wire.server_id,
        wire.thread_id,
        wire.schema_id,
        wire.query,
        wire.comment,
        wire.primary_key,
        None if has_position else wire.position,
        None if has_position else wire.gtid,
        # of a transaction of an engine without transaction ids
        None if wire.xid is not None else wire.commit,
        None if wire.xid is not None else wire.xoffset,
    )
    if not attributes and fields == _NO_FIELDS:
        return NO_DETAILS
    return _present(dict(zip(_DETAILS, fields, strict=True))) | attributes


_DETAILS: Final = (
    *("server_id", "thread_id", "schema_id", "query", "comment", "primary_key"),
    *("position", "gtid", "commit", "xoffset"),
)
_NO_FIELDS: Final = (None,) * len(_DETAILS)


def _present(fields: Row) -> Row:
    return {name: value for name, value in fields.items() if value is not None}
