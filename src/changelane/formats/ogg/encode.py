# SPDX-License-Identifier: Apache-2.0
"""Change events to GoldenGate's messages, in the operation model."""

import decimal
from typing import Any, Final

import msgspec

from changelane.errors import EncodeError
from changelane.event import ChangeEvent, Control, DataChange, Op, Truncate
from changelane.formats.contract import json
from changelane.formats.contract.format import Report
from changelane.formats.contract.losses import DATABASE_AS_SCHEMA
from changelane.formats.ogg.decode import has_missing_marks, zone_of
from changelane.formats.ogg.options import MessageKey, Options
from changelane.formats.ogg.positions import name_of, pos_of, table_of
from changelane.formats.ogg.times import text_of
from changelane.formats.ogg.wire import FIELDS, FLATTENED, SCHEMA, Row
from changelane.message import Message
from changelane.position import Position, SequencePosition
from changelane.schema import TableId

# details with a place of their own in a message, and the classes of their values
_DETAILS: Final[dict[str, type]] = {"op_ts": str, "current_ts": str, "pos": str, "tokens": dict}

Written = DataChange | Truncate


class Writer:
    """Encodes events that are reduced to GoldenGate's capabilities."""

    def __init__(self, options: Options) -> None:
        self._truncate = options.truncate_op_key
        self._op_keys = {
            Op.CREATE: options.insert_op_key,
            Op.UPDATE: options.update_op_key,
            Op.DELETE: options.delete_op_key,
        }
        self._zone = zone_of(options.time_zone)
        self._current_zone = zone_of(options.current_time_zone)
        self._writes_key = options.message_key is MessageKey.PRIMARY_KEYS

    def __call__(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Return the messages of an event: one, or none if GoldenGate has no such message."""
        match event:
            case DataChange():
                return (self._change(event, report),)
            case Truncate():
                if event.ddl is not None:
                    report(("ddl", "a truncate has no statement"))
                fields, attributes = self._metadata(event, self._truncate, report)
                return (Message(json.dumps(fields | attributes)),)
            case Control():
                return _schema(event, report)
            case _:
                raise EncodeError(f"GoldenGate has no message for {type(event).__name__}")

    def _change(self, event: DataChange, report: Report) -> Message:
        before, after, op = event.before, event.after, event.op
        fields, attributes = self._metadata(event, self._op_keys[op], report)
        for image in (before, after):
            if image is not None and has_missing_marks(dict(image)):
                report(("column", "read as the mark of a missing column"))
        if op is Op.DELETE:
            if not before:
                raise EncodeError("the before image of a delete has no columns")
        elif after is None:
            raise EncodeError("a change other than a delete has no after image")
        elif before is not None and not before:
            report(("before", "has no columns; not written"))
        if before:
            fields["before"] = before
        if op is not Op.DELETE:
            fields["after"] = after
        return Message(json.dumps(fields | attributes), self._message_key(event))

    def _message_key(self, event: DataChange) -> bytes | None:
        """Return the values of the key columns, joined by underscores."""
        if not self._writes_key or event.key is None:
            return None
        old = event.before or {}
        row = old if event.op is Op.DELETE else {**old, **(event.after or {})}
        values = [row.get(name) for name in event.key.columns]
        return "_".join(map(_key_text, values)).encode("utf-8", "surrogatepass")

    def _metadata(self, event: Written, op_key: str, report: Report) -> tuple[Row, Row]:
        """Return the metadata fields of a message, and its other fields."""
        own, attributes = _split(event.details.items(), report)
        tokens = own.get("tokens")
        fields = {
            "table": _table_name(event.table, report),
            "op_type": op_key,
            "op_ts": own.get("op_ts"),
            "current_ts": own.get("current_ts"),
            "pos": own.get("pos"),
        }
        times = (
            ("source_time", "op_ts", event.source_time_ns, self._zone, " "),
            ("process_time", "current_ts", event.process_time_ns, self._current_zone, "T"),
        )
        for field, name, time_ns, zone, separator in times:
            if time_ns is None or zone is None:
                continue
            try:
                fields[name] = text_of(time_ns, zone, separator)
            except OverflowError:
                report((field, "outside the years 1 to 9999; not written"))
        if event.position is not None:
            fields["pos"] = _pos(event.position, report)
        written: Row = {name: value for name, value in fields.items() if value is not None}
        if isinstance(event, DataChange) and event.key is not None:
            written["primary_keys"] = event.key.columns
        if tokens is not None:
            written["tokens"] = tokens
        for name, value in own.items():
            if written.get(name) != value:
                report((f"details.{name}", "the event's own content is written"))
        return written, attributes


def _table_name(table: TableId, report: Report) -> str:
    if not table.name:
        raise EncodeError("a row of no table has no message")
    name = name_of(table)
    if (reread := table_of(name)) != table:
        if reread == TableId(None, table.database, table.name):
            report(DATABASE_AS_SCHEMA)
        else:
            report(("table.name", "readers separate its parts elsewhere"))
    return name


def _pos(position: Position, report: Report) -> str | None:
    if not isinstance(position, SequencePosition):
        raise EncodeError(f"GoldenGate cannot express a {type(position).__name__}")
    if position.row:
        report(("position.row", "not written"))
    pos = pos_of(position)
    if pos is None:
        report(("position", "out of range; not written"))
    return pos


def _split(details: Any, report: Report) -> tuple[Row, Row]:
    """Return the details with a place of their own, and the other ones."""
    own: Row = {}
    attributes: Row = {}
    for name, value in details:
        if name in _DETAILS:
            if type(value) is _DETAILS[name]:
                own[name] = value
            else:
                report((f"details.{name}", "has another type in a message"))
        elif name in FIELDS or name == SCHEMA or name.startswith(FLATTENED):
            report((f"details.{name}", "would be read as another field"))
        else:
            attributes[name] = value
    return own, attributes


def _schema(event: Control, report: Report) -> tuple[Message, ...]:
    """Return the message about a schema, which is the text of its control event."""
    text = event.text or ""
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        fields = {}
    is_schema = isinstance(fields.get(SCHEMA), str) and isinstance(fields.get("properties"), dict)
    title = fields.get("title")
    table = table_of(title) if isinstance(title, str) else TableId()
    if event.type != SCHEMA or not is_schema or "op_type" in fields or table != event.table:
        report(("event:control", "GoldenGate has no such message"))
        return ()
    for field, value in (
        ("position", event.position),
        ("source_time", event.source_time_ns),
        ("process_time", event.process_time_ns),
        ("details", event.details or None),
    ):
        if value is not None:
            report((field, "a message about a schema has none"))
    return (Message(text.encode()),)


def _key_text(value: object) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case decimal.Decimal():
            return str(value)
        case _:
            return json.dumps(value).decode()
