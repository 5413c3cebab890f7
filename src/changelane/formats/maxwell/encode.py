# SPDX-License-Identifier: Apache-2.0
"""Change events to Maxwell's messages."""

import decimal
from typing import Final

from changelane.ddl import action_of
from changelane.errors import EncodeError
from changelane.event import (
    ChangeEvent,
    Control,
    DataChange,
    Details,
    Image,
    KeyOrigin,
    Op,
    SchemaChange,
    Transaction,
)
from changelane.formats.contract import json
from changelane.formats.contract.format import Report
from changelane.formats.maxwell.decode import MILLISECONDS_FROM, SOURCE
from changelane.formats.maxwell.message_key import columns_of, message_key, unique_id
from changelane.formats.maxwell.message_types import (
    ACTIONS,
    BOOTSTRAP_MARKS,
    DEAD_LETTER,
    OPERATIONS,
)
from changelane.formats.maxwell.options import KeyFormat, Options
from changelane.formats.maxwell.wire import CAMEL_CASE, DDL_FIELDS, FIELDS, Row
from changelane.message import Message
from changelane.position import MySqlPosition, Position
from changelane.types import Value

_TYPES: Final[dict[Op, str]] = {op: kind for kind, op in OPERATIONS.items()}
_DDL_TYPES: Final[dict[str, str]] = {action: kind for kind, action in ACTIONS.items()}

# details with a place of their own in a message, and the classes of their values
_ROW_DETAILS: Final[dict[str, type]] = {
    "xoffset": int,
    "commit": bool,
    "position": str,
    "gtid": str,
    "server_id": int,
    "thread_id": int,
    "schema_id": int,
    "query": str,
    "comment": str,
    "primary_key": list,
}
_DDL_DETAILS: Final[dict[str, type]] = {
    "type": str,
    "old": dict,
    "def": dict,
    "charset": str,
    "position": str,
    "gtid": str,
    "schema_id": int,
}
_PROTECTED: Final = FIELDS | DDL_FIELDS | CAMEL_CASE.keys()
_XIDS: Final = 1 << 63
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE


class Writer:
    """Encodes events that are reduced to Maxwell's capabilities."""

    def __init__(self, options: Options) -> None:
        self._is_array = options.key_format is KeyFormat.ARRAY
        self._names_key = options.primary_key_columns

    def __call__(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Return the messages of an event: one, or none if Maxwell has no such message."""
        match event:
            case DataChange():
                return (self._row(event, report),)
            case SchemaChange():
                return _ddl(event, report)
            case Control():
                return self._control(event, report)
            case _:
                raise EncodeError(f"Maxwell has no message for {type(event).__name__}")

    # -- rows ----------------------------------------------------------------------------------

    def _row(self, event: DataChange, report: Report) -> Message:
        database, table = event.table.database, event.table.name
        if database is None or table is None:
            raise EncodeError("Maxwell's rows have a database and a table: set both with `route`")
        data, old = _images(event, report)
        own, attributes = _split(event.details, _ROW_DETAILS, report)
        columns = () if event.key is None else event.key.columns
        fields: Row = {
            "database": database,
            "table": table,
            "query": own.get("query"),
            "type": _TYPES[event.op],
            "ts": _seconds(event.source_time_ns, report),
            **_transaction(event.transaction, own, report),
            **_position(event.position, own, report),
            "server_id": own.get("server_id"),
            "thread_id": own.get("thread_id"),
            "schema_id": own.get("schema_id"),
            "push_ts": _push_time(event.process_time_ns),
            "comment": own.get("comment"),
        }
        fields = {name: value for name, value in fields.items() if value is not None} | attributes
        if "primary_key" in own:
            fields["primary_key"] = own["primary_key"]
        if event.key is not None and self._must_name(event.key.origin, columns, data):
            fields["primary_key_columns"] = columns
        fields["data"] = data
        if old:
            fields["old"] = old
        value = json.dumps(fields)
        key = message_key(database, table, columns, data, value, is_array=self._is_array)
        return Message(value, key)

    def _must_name(self, origin: KeyOrigin, columns: tuple[str, ...], data: Row) -> bool:
        """Return whether the value has the key columns, because the message key cannot have them.

        The message key has names in lower case.
        """
        if self._names_key or origin is KeyOrigin.PAYLOAD:
            return True
        return columns_of([name.lower() for name in columns], data) != columns

    # -- other messages ------------------------------------------------------------------------

    def _control(self, event: Control, report: Report) -> tuple[Message, ...]:
        database, table = event.table.database, event.table.name
        is_mark = event.type in BOOTSTRAP_MARKS
        is_known = is_mark or (event.type == DEAD_LETTER and event.text is not None)
        if database is None or table is None or not is_known:
            report(("event:control", "Maxwell has no such type of message"))
            return ()
        details = dict(event.details)
        data = details.pop("data", None)
        if data is not None and not isinstance(data, dict):
            report(("details.data", "not an object"))
            data = None
        fields: Row = {"database": database, "table": table}
        if is_mark:
            if event.text is not None:
                report(("event:control", "the text of a bootstrap's mark is not written"))
            own, attributes = _split(details, _ROW_DETAILS, report)
            fields |= {
                "type": event.type,
                "ts": _seconds(event.source_time_ns, report),
                **_position(event.position, own, report),
                "push_ts": _push_time(event.process_time_ns),
            }
            fields |= {name: own[name] for name in own if name not in fields} | attributes
        else:
            kind = details.pop("type", None)
            fields |= {"type": kind if isinstance(kind, str) else None, "reason": event.text}
            for name in details:
                report((f"details.{name}", "not written"))
            for name in ("source_time", "process_time"):
                if getattr(event, f"{name}_ns") is not None:
                    report((name, "not written"))
            if event.position is not None:
                report(("position", "not written"))
        fields = {name: value for name, value in fields.items() if value is not None}
        fields["data"] = data or {}
        value = json.dumps(fields)
        key = message_key(database, table, (), {}, value, is_array=self._is_array)
        return (Message(value, key),)


def _ddl(event: SchemaChange, report: Report) -> tuple[Message, ...]:
    table, own_details = event.table, {**event.details}
    own, attributes = _split(own_details, _DDL_DETAILS, report)
    kind = own.get("type", _DDL_TYPES.get(event.action, ""))
    is_table = kind.startswith("table-")
    if kind not in ACTIONS or table.database is None or is_table is (table.name is None):
        report(("event:schema", "Maxwell has no message for such a statement"))
        return ()
    if kind in {"table-create", "table-alter"} and "def" not in own:
        report(("event:schema", "Maxwell's message describes the table, which is not known"))
        return ()
    if event.action != action_of(event.ddl, SOURCE.product, ACTIONS[kind]):
        report(("action", "readers take it from the statement, or from the type"))
    if event.process_time_ns is not None:
        report(("process_time", "not written"))
    fields: Row = {
        "type": kind,
        "database": table.database,
        "table": table.name,
        "old": own.get("old"),
        "def": own.get("def"),
        "charset": own.get("charset"),
        "ts": _milliseconds(event.source_time_ns, report),
        "sql": event.ddl,
        **_position(event.position, own, report),
        "schema_id": own.get("schema_id"),
    }
    fields = {name: item for name, item in fields.items() if item is not None}
    value = json.dumps(fields | attributes)
    return (Message(value, unique_id(value).encode()),)


def _images(event: DataChange, report: Report) -> tuple[Row, Row | None]:
    """Return ``data`` and ``old``."""
    before, after = event.before, event.after
    if event.op is _DELETE:
        if before is None:
            raise EncodeError("a delete has no before image")
        return dict(before), None
    if after is None:
        raise EncodeError("a change other than a delete has no after image")
    data = dict(after)
    if event.op is not _UPDATE:
        return data, None
    if before is None:
        report(("before", "unknown; read as equal to the after image"))
        return data, None
    if not after.keys() <= before.keys():
        report(("before", "lacks columns of the after image"))
        return data, None
    unchanged = {name: value for name, value in before.items() if name not in after}
    if unchanged:
        report(("absent", "an unchanged column is written with the value of the before image"))
    return data | unchanged, _changed(before, after)


def _changed(before: Image, after: Image) -> Row:
    """Return the columns of the before image that differ, with their old values."""
    return {name: before[name] for name in after if not _is_same(before[name], after[name])}


def _is_same(value: Value, new: Value) -> bool:
    """Return whether two values have the same written form: 1, True and 1.0 do not."""
    kind = value.__class__
    if kind is not new.__class__:
        return False
    return value == new if kind is str or kind is int else repr(value) == repr(new)


def _split(details: Details, classes: dict[str, type], report: Report) -> tuple[Row, Row]:
    """Return the details with a place of their own, and the attributes."""
    own: Row = {}
    attributes: Row = {}
    for name, value in details.items():
        if name in classes:
            if type(value) is classes[name]:
                own[name] = value
            else:
                report((f"details.{name}", "has another type in a message"))
        elif name in _PROTECTED:
            report((f"details.{name}", "would be read as another field"))
        else:
            attributes[name] = value
    return own, attributes


def _transaction(transaction: Transaction | None, own: Row, report: Report) -> Row:
    """Return the fields of a position in a transaction."""
    if transaction is None:
        return {"xoffset": own.get("xoffset"), "commit": own.get("commit")}
    for name in ("xoffset", "commit"):
        if name in own:
            report((f"details.{name}", "the event's transaction is written"))
    text = transaction.id
    xid = int(text) if len(text) < 20 and text.isascii() and text.isdigit() else -1
    if not 0 <= xid < _XIDS or str(xid) != text:
        report(("transaction.id", "not a number; not written"))
        return {}
    if transaction.last is None:
        report(("transaction.last", "unknown; read as not the last"))
    fields: Row = {"xid": xid}
    if transaction.order is not None:
        if transaction.last:
            report(("transaction.order", "the last row has no number"))
        else:
            fields["xoffset"] = transaction.order - 1
    if transaction.last:
        fields["commit"] = True
    return fields


def _position(position: Position | None, own: Row, report: Report) -> Row:
    """Return the fields of a position."""
    if position is None:
        return {"position": own.get("position"), "gtid": own.get("gtid")}
    for name in ("position", "gtid"):
        if name in own:
            report((f"details.{name}", "the event's position is written"))
    if not isinstance(position, MySqlPosition):
        raise EncodeError(f"Maxwell cannot express a {type(position).__name__}")
    if not position.file or not 0 <= position.pos < 1 << 64:
        report(("position", "not a file and an offset; not written"))
        return {}
    if position.row:
        report(("position.row", "not written"))
    return {"position": f"{position.file}:{position.pos}", "gtid": position.gtid}


def _seconds(time_ns: int | None, report: Report) -> int | None:
    """Return the time of a row."""
    seconds = None if time_ns is None else time_ns // 1_000_000_000
    if seconds is not None and seconds >= MILLISECONDS_FROM:
        report(("source_time", "would be read as milliseconds; not written"))
        return None
    return seconds


def _milliseconds(time_ns: int | None, report: Report) -> int | None:
    """Return the time of a statement."""
    time_ms = None if time_ns is None else time_ns // 1_000_000
    if time_ms is not None and time_ms < MILLISECONDS_FROM:
        report(("source_time", "would be read as seconds; not written"))
        return None
    return time_ms


def _push_time(time_ns: int | None) -> decimal.Decimal | None:
    """Return a time as a decimal of seconds, with at least one digit of the fraction."""
    if time_ns is None:
        return None
    seconds, microseconds = divmod(time_ns // 1000, 1_000_000)
    if seconds < 0:
        return decimal.Decimal(time_ns // 1000).scaleb(-6)
    return decimal.Decimal(f"{seconds}.{f'{microseconds:06}'.rstrip('0') or '0'}")
