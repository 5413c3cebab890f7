# SPDX-License-Identifier: Apache-2.0
"""Change events to messages of Qlik Replicate."""

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.errors import EncodeError
from changelane.event import ChangeEvent, DataChange, Image, Op
from changelane.formats.contract import json
from changelane.formats.contract.details import add_further
from changelane.formats.contract.format import Report
from changelane.formats.contract.iso_times import writer
from changelane.formats.debezium_envelope.source_block import sanitised
from changelane.formats.qlik.decode import OPERATIONS, REFRESH, SEQUENCE_DIGITS, table_of
from changelane.formats.qlik.wire import MAGIC, DataMessage, Headers, Row
from changelane.message import Message
from changelane.position import SequencePosition
from changelane.schema import TableId, option_for_table

_OPERATIONS: Final = {op: name for name, op in OPERATIONS.items()}
_TIME: Final = writer(dt.UTC, digits=3, zulu=False)
_HEADERS: Final = frozenset(Headers.__struct_fields__)
_MESSAGE: Final = frozenset(DataMessage.__struct_fields__)
_ENVELOPE: Final = ("headers", "messageSchemaId", "messageSchema")
_MASKS: Final = frozenset({"changeMask", "columnMask"})
_DETAILS: Final[dict[str, type | tuple[type, ...]]] = {
    "changeSequence": str,
    "streamPosition": str,
    "externalSchemaId": (int, str),
    "transactionEventCounter": int,
    "transactionLastEvent": bool,
}
"""Details with a key of their own in ``headers`` -> their types."""


class WriteOptions(msgspec.Struct, frozen=True):
    """The options of a writer.

    Attributes:
        has_topic: The topic of a message is the name of its table.
        column: The column with the name of the table; empty = none.
        keys: Table -> columns of its key.
        has_envelope: Messages have the envelope.
    """

    has_topic: bool
    column: str
    keys: dict[str, tuple[str, ...]]
    has_envelope: bool


class Writer:
    """Encodes events that are reduced to the capabilities of Qlik Replicate."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def __call__(self, event: ChangeEvent, report: Report) -> Message:
        """Return the message of an event."""
        if not isinstance(event, DataChange):
            raise EncodeError(f"Qlik Replicate has no message for {type(event).__name__}")
        if event.source.snapshot != (REFRESH if event.op is Op.READ else None):
            report(("source.snapshot", "read as REFRESH in a full load, otherwise as none"))
        row = event.before if event.op is Op.DELETE else event.after
        if not row:
            raise EncodeError("the change has no row image, or one without columns")
        columns = option_for_table(self._options.keys, event.table)
        if event.key is not None and event.key.columns != columns:
            report(("key", "readers take it from the option schemas"))
        if columns is not None and any(row.get(name) is None for name in columns):
            raise EncodeError("the row lacks a key column of the option schemas")
        topic = self._topic(event.table, report)
        before = event.before if event.op is Op.UPDATE else None
        details = dict(event.details)
        message = {
            "data": self._row(row, event.table, report),
            "beforeData": None if before is None else self._row(before, event.table, report),
            "headers": _headers(event, details, report),
        }
        message |= _further_fields(details.pop("message", None), "message", _MESSAGE, report)
        envelope = details.pop("envelope", None)
        if not self._options.has_envelope:
            if envelope is not None:
                report(("details.envelope", "the option envelope is false"))
            return Message(json.dumps(message), topic=topic)
        return Message(json.dumps(_envelope(message, envelope, report)), topic=topic)

    def _row(self, image: Image, table: TableId, report: Report) -> Row:
        """Return the columns of a row, with the name of the table if it is a column."""
        column = self._options.column
        if not column:
            return dict(image)
        if column in image:
            report(("column", "readers take its value as the name of the table"))
        return {**image, column: _name(table)}

    def _topic(self, table: TableId, report: Report) -> str | None:
        """Return the topic, by default the name of the table."""
        name = _name(table)
        if self._options.column:
            if not name:
                raise EncodeError("the change has no table for the column of table_from")
            topic = None
        elif self._options.has_topic:
            name = sanitised(name)
            topic = name or None
        else:
            return None
        if table_of(name) != TableId(schema=table.schema, name=table.name):
            report(("table.name", "readers cannot separate it from the name of the schema"))
        return topic


def _name(table: TableId) -> str:
    return ".".join(part for part in (table.schema, table.name) if part)


def _headers(event: DataChange, details: Row, report: Report) -> Row:
    """Return ``headers`` in the order of the sample, without masks: they need ordinals."""
    known = {
        name: details.pop(name)
        for name, kind in _DETAILS.items()
        if isinstance(details.get(name), kind)
        and (kind is bool or not isinstance(details[name], bool))
    }
    for name in _MASKS & details.keys():
        del details[name]
        report((f"details.{name}", "masks are not written"))
    transaction = event.transaction
    order = None if transaction is None else transaction.order
    last = None if transaction is None else transaction.last
    identity = None if transaction is None else transaction.id
    if identity == "":
        report(("transaction.id", "an empty id is read as none"))
    headers = {
        "operation": _OPERATIONS[event.op],
        "changeSequence": _sequence(event, known.pop("changeSequence", None), report),
        "timestamp": _time(event.source_time_ns, report),
        "streamPosition": known.get("streamPosition"),
        "transactionId": identity,
        "externalSchemaId": known.get("externalSchemaId"),
        "transactionEventCounter": known.get("transactionEventCounter") if order is None else order,
        "transactionLastEvent": known.get("transactionLastEvent") if last is None else last,
    }
    headers = {name: field for name, field in headers.items() if field is not None}
    add_further(headers, details, _HEADERS, report, skipped={"message", "envelope"})
    return headers


def _sequence(event: DataChange, text: str | None, report: Report) -> str | None:
    """Return ``changeSequence`` if the position is one: it begins with a date and a time."""
    position = event.position
    if position is None:
        return None
    if isinstance(position, SequencePosition) and not position.row and position.value >= 0:
        if text is not None and text.isascii() and text.isdigit() and len(text) < SEQUENCE_DIGITS:
            is_own = int(text) == position.value
        else:
            text = f"{position.value:0{SEQUENCE_DIGITS}d}"
            is_own = len(text) == SEQUENCE_DIGITS and _begins_with_time(text)
        if is_own:
            return text
    report(("position", "not a change sequence of Qlik Replicate"))
    return None


def _begins_with_time(digits: str) -> bool:
    numbers = (digits[:4], *(digits[start : start + 2] for start in range(4, 14, 2)))
    try:
        dt.datetime(*map(int, numbers))  # type: ignore[arg-type]
    except ValueError:
        return False
    return True


def _time(value_ns: int | None, report: Report) -> str | None:
    if value_ns is None:
        return None
    try:
        return _TIME(value_ns)
    except OverflowError:
        report(("source_time", "outside the years 1 to 9999"))
        return None


def _further_fields(
    fields: object, name: str, documented: frozenset[str], report: Report
) -> Mapping[str, Any]:
    """Return undocumented keys of a message from its details."""
    if fields is None:
        return {}
    if not isinstance(fields, Mapping) or not documented.isdisjoint(fields):
        report((f"details.{name}", "no further fields of a message"))
        return {}
    return fields


def _envelope(message: Row, fields: object, report: Report) -> Row:
    """Return a message in its envelope, with the keys in the order of the sample."""
    further = _further_fields(fields, "envelope", frozenset({"magic", "type", "message"}), report)
    known = dict(further)
    headers, schema_id, schema = (known.pop(name, None) for name in _ENVELOPE)
    is_known = (
        isinstance(headers, dict | None)
        and all(isinstance(text, str) for text in (headers or {}).values())
        and isinstance(schema_id, str | None)
        and isinstance(schema, str | None)
    )
    if not is_known:
        report(("details.envelope", "a documented key has other content"))
        headers = schema_id = schema = None
    return {
        "magic": MAGIC,
        "type": "DT",
        "headers": headers,
        "messageSchemaId": schema_id,
        "messageSchema": schema,
        "message": message,
        **known,
    }
