# SPDX-License-Identifier: Apache-2.0
"""Change events to DTS records, always of the second version of the schema."""

from typing import Any, Final, Literal

import msgspec

from changelane.errors import EncodeError
from changelane.event import (
    ChangeEvent,
    Control,
    DataChange,
    Details,
    Image,
    Op,
    SchemaChange,
    Source,
    Transaction,
    TransactionMarker,
    Truncate,
    Watermark,
    is_incremental_read,
)
from changelane.formats.contract.avro_binary import long_of, text_of
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.format import Report
from changelane.formats.dts import ddl
from changelane.formats.dts.avro import OPERATIONS, SOURCE_TYPES
from changelane.formats.dts.branches import NONE, NULL, writer
from changelane.formats.dts.decode import (
    GTID_TAG,
    NO_TRANSACTION,
    READ_TAG,
    ROW_OPERATIONS,
    SECONDS_UP_TO,
    SNAPSHOT,
    TRANSACTION_OPERATIONS,
)
from changelane.formats.dts.object_names import (
    ESCAPED_DOT,
    KEY_TAG,
    NO_POSITION,
    binlog,
    key_columns,
    key_info,
    object_name,
    read_binlog,
    read_object_name,
)
from changelane.formats.dts.type_numbers import FAMILIES, OTHER, number_of
from changelane.formats.dts.values import WRITE_ERRORS, ColumnForm, Write
from changelane.message import Message
from changelane.position import MySqlPosition, Position
from changelane.schema import Column, TableId, TableSchema
from changelane.types import String
from changelane.types.values import value_text

_OPERATIONS: Final = {op: name for name, op in ROW_OPERATIONS.items()}
_STATUSES: Final = {status: name for name, status in TRANSACTION_OPERATIONS.items()}
CONTROLS: Final = frozenset(OPERATIONS) - {
    *ROW_OPERATIONS,
    *TRANSACTION_OPERATIONS,
    "DDL",
    "HEARTBEAT",
}
"""The operations of control events."""

_SOURCE_TYPES: Final = {name.lower(): name for name in SOURCE_TYPES if name != "OTHER"}
_SYMBOLS: Final = {name: long_of(i) for i, name in enumerate(OPERATIONS)}
# PostgreSQL and Redis sources write milliseconds. The unit of OTHER sources is not documented;
# readers distinguish the units by the size of the number.
_IN_MILLISECONDS: Final = frozenset({"PostgreSQL", "Redis", "OTHER"})
_IN_MICROSECONDS: Final = frozenset({"MySQL", "PostgreSQL"})

_DETAILS: Final = frozenset(
    {
        "id",
        "sourcePosition",
        "safeSourcePosition",
        "sourceTxid",
        "sourceVersion",
        "processTimestamps",
        "tags",
        "bornTimestamp",
        "trailingBytes",
    }
)
_MAX_PLANS: Final = 1024
_INT64: Final = 1 << 63
_ABSENT: Final = object()
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE
_TEXT: Final = String()


class TablePlan:
    """The writer of the images of one schema.

    Attributes:
        fields: The bytes of ``fields``.
    """

    def __init__(self, schema: TableSchema, source_type: str) -> None:
        family = FAMILIES.get(source_type, OTHER)
        in_microseconds = source_type in _IN_MICROSECONDS
        self._columns: list[tuple[str, Write]] = []
        fields: list[bytes] = []
        for column in schema.columns:
            number = number_of(family, column)
            form = ColumnForm(column, number, family, in_microseconds)
            self._columns.append((column.name, writer(form)))
            fields.append(text_of(column.name) + long_of(number))
        self.fields = b"\x04" + _array(fields)

    def image(self, image: Image, report: Report) -> bytes:
        """Return the bytes of an image; a missing column is ``NONE``.

        Raises:
            EncodeError: A value is not of its column's type.
        """
        parts: list[bytes] = []
        name = ""
        try:
            for name, write in self._columns:
                value = image.get(name, _ABSENT)
                if value is None:
                    parts.append(NULL)
                elif value is _ABSENT:
                    parts.append(NONE)
                else:
                    parts.append(write(value, report))
        except WRITE_ERRORS:
            raise EncodeError(f"column {name!r} has a value that is not of its type") from None
        return b"\x04" + _array(parts)


def _array(items: list[bytes]) -> bytes:
    return long_of(len(items)) + b"".join(items) + b"\x00" if items else b"\x00"


class WriteOptions(msgspec.Struct, frozen=True):
    """The options of a writer: the name of binary log files, and the message key."""

    binlog_prefix: str = "mysql-bin"
    message_key: Literal["none", "primary_key"] = "none"


class Writer:
    """Encodes events that are reduced to the capabilities of the format."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._plans: BoundedCache[tuple[TableSchema, str], TablePlan] = BoundedCache(_MAX_PLANS)

    def __call__(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Return the message of an event; none where DTS has no record for the event."""
        try:
            return self._messages(event, report)
        except UnicodeEncodeError:
            raise EncodeError("a text has a lone surrogate, which UTF-8 cannot encode") from None

    def _messages(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        match event:
            case DataChange():
                return self._row(event, report)
            case SchemaChange():
                return self._schema(event, report)
            case Truncate():
                source_type = self._source_type(event.source, _mute)
                text = event.ddl or ddl.truncate_statement(event.table, source_type)
                return self._statement(event, "DDL", text, "truncate", report)
            case TransactionMarker() if event.status in _STATUSES:
                return self._record(event, _STATUSES[event.status], _NOTHING, report)
            case Watermark() if event.type == "heartbeat":
                return self._record(event, "HEARTBEAT", _NOTHING, report)
            case Control() if event.type in CONTROLS:
                body = b"\x00\x00" + _text_image(event.text)
                return self._record(event, event.type, body, report)
            case TransactionMarker() | Watermark() | Control():
                kind = event.__struct_config__.tag
                report((f"event:{kind}", "DTS has no such operation"))
                return ()
            case _:
                raise EncodeError(f"DTS has no record for {type(event).__name__}")

    # -- rows ----------------------------------------------------------------------------------

    def _row(self, event: DataChange, report: Report) -> tuple[Message, ...]:
        if not event.table.name:
            raise EncodeError("a row of no table")
        before, after = event.before, event.after
        if (before if event.op is _DELETE else after) is None:
            raise EncodeError("an event without its row")
        schema = event.schema
        if schema is None:
            schema = _as_texts(before, after)
        elif not all(image is None or image.keys() <= schema.names for image in (before, after)):
            report(("column", "not in the schema; not written"))
        plan = self._plan(schema, self._source_type(event.source, _mute))
        body = (
            plan.fields
            + (NULL if before is None else plan.image(before, report))
            + (NULL if after is None else plan.image(after, report))
        )
        return self._record(event, _operation(event, report), body, report, self._key(event))

    def _plan(self, schema: TableSchema, source_type: str) -> TablePlan:
        identity = schema, source_type
        plan = self._plans.get(identity)
        return plan or self._plans.add(identity, TablePlan(schema, source_type))

    def _key(self, event: DataChange) -> bytes | None:
        if self._options.message_key == "none" or event.key is None:
            return None
        image = (event.before if event.op is _DELETE else event.after) or {}
        kinds = {} if event.schema is None else event.schema.by_name
        texts: list[str] = []
        for name in event.key.columns:
            value = image.get(name)
            kind = kinds[name].type if name in kinds else _TEXT
            texts.append("" if value is None else value_text(kind, value))
        return ",".join(texts).encode()

    # -- statements ----------------------------------------------------------------------------

    def _schema(self, event: SchemaChange, report: Report) -> tuple[Message, ...]:
        if event.schema is not None:
            report(("schema", "a DDL record lists no columns"))
        if event.key is not None:
            report(("schema.key", "a DDL record lists no key columns"))
        if event.ddl is None:
            report(("event:schema", "a change of schema without its statement"))
            return ()
        operation = "COMMAND" if event.details.get("operation") == "COMMAND" else "DDL"
        return self._statement(event, operation, event.ddl, event.action, report)

    def _statement(
        self,
        event: SchemaChange | Truncate,
        operation: str,
        text: str,
        action: str,
        report: Report,
    ) -> tuple[Message, ...]:
        """Return the record of a statement, with its database as object if that is unambiguous."""
        table = event.table
        around = TableId(table.database)
        source_type = self._source_type(event.source, _mute)
        statement = ddl.read(text, source_type, around)
        if statement.action != action:
            report(("action", "the statement has another action"))
        if statement.tables == (table,):
            table = around
        elif action == "truncate" and len(statement.tables) > 1:
            report(("event:truncate", "its statement truncates other tables, too"))
            text = ddl.truncate_statement(table, source_type)
        body = b"\x00\x00" + _text_image(text)
        return self._record(event, operation, body, report, table=table)

    # -- the datum -----------------------------------------------------------------------------

    def _record(
        self,
        event: Any,
        operation: str,
        body: bytes,
        report: Report,
        key: bytes | None = None,
        *,
        table: TableId | None = None,
    ) -> tuple[Message, ...]:
        details: Details = event.details
        if details:
            _check(details, event, report)
        source_type = self._source_type(event.source, report)
        source_time = _time(event.source_time_ns, source_type, report)
        if table is None:
            table = getattr(event, "table", _NO_TABLE)
        version = _text_detail(details, "sourceVersion", "")
        value = b"".join(
            (
                b"\x00",
                long_of(_number(details, "id", 0)),
                source_time,
                text_of(self._position(event, source_type, report)),
                text_of(_text_detail(details, "safeSourcePosition", "")),
                text_of(_transaction(event, report)),
                long_of(SOURCE_TYPES.index(source_type)),
                text_of(version),
                _SYMBOLS[operation],
                _name(table, report),
                _times(details.get("processTimestamps")),
                self._tags(event, report),
                body,
                _born(details, source_time),
            )
        )
        return (Message(value, key),)

    def _source_type(self, source: Source, report: Report) -> str:
        product = source.product
        if product is None:
            return "OTHER"
        number = _SOURCE_TYPES.get(product)
        if number is not None:
            return number
        number = _NEAREST.get(product, "OTHER")
        report(("source.product", f"DTS has no such source type; written as {number}"))
        return number

    def _position(self, event: Any, source_type: str, report: Report) -> str:
        position: Position | None = event.position
        stated = _text_detail(event.details, "sourcePosition", NO_POSITION)
        if not isinstance(position, MySqlPosition):
            return stated
        text = binlog(position)
        if text is None or source_type != "MySQL":
            report(("position", "a position of another source or without a file number"))
            return stated
        prefix = self._options.binlog_prefix
        back = read_binlog(text, prefix, position.gtid)
        if back is None or back.file != position.file or back.pos != position.pos:
            report(("position.file", "only the number of the binary log file is written"))
        if position.row:
            report(("position.row", "not written"))
        return text

    def _tags(self, event: Any, report: Report) -> bytes:
        """Return the tags of the producer, with the key and the times of the event."""
        stated = event.details.get("tags")
        tags: dict[str, str] = {}
        if isinstance(stated, dict):
            tags = {str(name): str(text) for name, text in stated.items()}
        key = getattr(event, "key", None)
        if isinstance(event, DataChange):
            names = [*(event.before or {}), *(event.after or {})]
            if event.schema is not None:
                names = [column.name for column in event.schema.columns]
            key_names = key_columns(tags.get(KEY_TAG, ""), names)
            columns = () if key is None else key.columns
            if not columns and key_names:
                del tags[KEY_TAG]
            elif columns and key_names != columns:
                tags = {KEY_TAG: key_info(columns)} | tags | {KEY_TAG: key_info(columns)}
                if key_columns(tags[KEY_TAG], names) != columns:
                    report(("key", "names no column of the row"))
        _set_time(tags, event.process_time_ns)
        position = event.position
        gtid = position.gtid if isinstance(position, MySqlPosition) else None
        if gtid is not None:
            tags[GTID_TAG] = gtid
        elif isinstance(position, MySqlPosition):
            tags.pop(GTID_TAG, None)
        if not tags:
            return b"\x00"
        return (
            long_of(len(tags))
            + b"".join(text_of(name) + text_of(text) for name, text in tags.items())
            + b"\x00"
        )


_NO_TABLE: Final = TableId()
_NOTHING: Final = b"\x00\x00\x00"
"""No fields and no images."""

_NEAREST: Final = {"mariadb": "MySQL"}
"""Product without a source type -> the source type of the same protocol."""


def _mute(_loss: tuple[str, str]) -> None:
    """Ignore a loss that another call reports."""


def _operation(event: DataChange, report: Report) -> str:
    """Return the operation of a row."""
    op, snapshot = event.op, event.source.snapshot
    if is_incremental_read(event):
        report(("operation:r", "written as an insert, because it is part of the stream"))
        op = Op.CREATE
    if snapshot != (SNAPSHOT if op is Op.READ else None):
        report(("source.snapshot", "read as true in a full load, otherwise as none"))
    return _OPERATIONS[op]


def _text_image(text: str | None) -> bytes:
    return NULL if text is None else b"\x02" + text_of(text)


def _as_texts(before: Image | None, after: Image | None) -> TableSchema:
    names = dict.fromkeys([*(before or {}), *(after or {})])
    return TableSchema(tuple(Column(name, _TEXT) for name in names))


def _name(table: TableId, report: Report) -> bytes:
    name = object_name(table)
    if name is None:
        return NULL
    if read_object_name(name) != table:
        part = "schema" if table.schema is not None and table.name is None else "name"
        report((f"table.{part}", f"a part is missing, or has {ESCAPED_DOT} in its name"))
    return b"\x02" + text_of(name)


def _time(value_ns: int | None, source_type: str, report: Report) -> bytes:
    if value_ns is None:
        return b"\x00"
    in_ms = source_type in _IN_MILLISECONDS
    value, remainder = divmod(value_ns, 1_000_000 if in_ms else 1_000_000_000)
    if remainder:
        report(("source_time", "cut to ms" if in_ms else "cut to s"))
    if value == 0 or (value <= SECONDS_UP_TO) is in_ms:
        report(("source_time", "readers take a time so near to 1970, or so far, for another unit"))
    if not -_INT64 <= value < _INT64:
        raise EncodeError("the source time has more than 64 bits")
    return long_of(value)


def _set_time(tags: dict[str, str], value_ns: int | None) -> None:
    if value_ns is not None:
        tags[READ_TAG] = str(value_ns // 1_000_000)
    elif tags.get(READ_TAG, "").isdigit():
        del tags[READ_TAG]


def _transaction(event: Any, report: Report) -> str:
    transaction: Transaction | None = getattr(event, "transaction", None)
    if transaction is None or not transaction.id:
        return _text_detail(event.details, "sourceTxid", "")
    if transaction.id == NO_TRANSACTION:
        report(("transaction.id", "0 is read as no transaction"))
    return transaction.id


def _times(value: object) -> bytes:
    if not isinstance(value, list):
        return NULL
    return b"\x02" + _array([long_of(_int64(number)) for number in value])


def _born(details: Details, source_time: bytes) -> bytes:
    """Return ``bornTimestamp``: the source time in its unit, as in the records of DTS."""
    return (
        long_of(_number(details, "bornTimestamp", 0)) if "bornTimestamp" in details else source_time
    )


def _number(details: Details, name: str, otherwise: int) -> int:
    return _int64(details.get(name, otherwise))


def _int64(value: object) -> int:
    if isinstance(value, int) and -_INT64 <= value < _INT64:
        return value
    raise EncodeError("a detail is not a number of 64 bits")


def _text_detail(details: Details, name: str, otherwise: str) -> str:
    value = details.get(name, otherwise)
    return value if isinstance(value, str) else otherwise


def _check(details: Details, event: ChangeEvent, report: Report) -> None:
    for name in details.keys() - _DETAILS:
        if name == "operation" and isinstance(event, SchemaChange):
            continue
        report((f"details.{name}", "DTS has no such field"))
    if "trailingBytes" in details:
        report(("details.trailingBytes", "not written"))
