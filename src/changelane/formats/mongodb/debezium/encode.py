# SPDX-License-Identifier: Apache-2.0
"""Change events to Debezium's messages about MongoDB."""

from collections.abc import Mapping
from typing import Any

import msgspec

from changelane.errors import EncodeError
from changelane.event import ChangeEvent, DataChange, Op
from changelane.formats.contract import json
from changelane.formats.contract.details import add_further
from changelane.formats.contract.format import Report
from changelane.formats.debezium_envelope.source_block import topic_of
from changelane.formats.mongodb.debezium.decode import MOST_MS, PRODUCT, SOURCE_FIELDS, U32
from changelane.formats.mongodb.debezium.wire import Row, UpdateDescription
from changelane.formats.mongodb.documents import Form, document_of, id_of_row
from changelane.formats.mongodb.extended_json import ID, canonical, strict_text, text_of, value_of
from changelane.message import Message
from changelane.position import SequencePosition


class Writer:
    """Encodes row changes.

    Args:
        form: The form of rows.
    """

    def __init__(self, form: Form) -> None:
        self._form = form

    def __call__(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Encode a row change."""
        if not isinstance(event, DataChange):
            raise EncodeError(f"the connector has no message for {type(event).__name__}")
        message = self._written(event, report)
        if event.op is not Op.DELETE:
            return (message,)
        return message, Message(None, message.key, topic=message.topic)

    def _written(self, event: DataChange, report: Report) -> Message:
        key = () if event.key is None else event.key.columns
        if key != (ID,):
            report(("key", "readers return _id"))
        row = event.before if event.op is Op.DELETE else event.after
        if row is None:
            raise EncodeError("the change has no row image")
        details = dict(event.details)
        before = after = None
        is_key = event.op is Op.DELETE and row.keys() == {ID} and isinstance(row[ID], str)
        if is_key:
            identity = id_of_row(str(row[ID]), report)
        else:
            document = document_of(row, key or tuple(row)[:1], self._form, report)
            identity = document[ID]
            before, after = (
                (text_of(document), None) if event.op is Op.DELETE else (None, text_of(document))
            )
        if event.op is Op.UPDATE and event.before is not None:
            before = text_of(document_of(event.before, key, self._form, report))
        description = details.pop("updateDescription", None)
        details.pop("lookup", None)
        if description is not None and not _is_description(description):
            report(("details.updateDescription", "not the description of an update"))
            description = None
        time_ms = None if event.process_time_ns is None else event.process_time_ns // 1_000_000
        value = {
            "before": before,
            "after": after,
            "updateDescription": description,
            "source": _source_block(event, details, report),
            "op": event.op.value,
            "ts_ms": time_ms,
            "transaction": _transaction_block(event, report),
        }
        topic = topic_of(event.source, event.table)
        return Message(json.dumps(value), _key_bytes(identity), topic=topic or None)


def _key_bytes(identity: Any) -> bytes:
    """Return the message key: an ``_id`` that is a whole number has no type in it."""
    value = canonical(value_of(identity))
    match value:
        case {"$numberLong": str(text)} if len(value) == 1:
            return json.dumps({"id": text})
        case _:
            return json.dumps({"id": strict_text(value)})


def _is_description(value: object) -> bool:
    try:
        msgspec.convert(value, UpdateDescription)
    except msgspec.ValidationError:
        return False
    return isinstance(value, Mapping) and value.keys() <= set(UpdateDescription.__struct_fields__)


def _source_block(event: DataChange, details: Row, report: Report) -> Row:
    time_ms = None if event.source_time_ns is None else event.source_time_ns // 1_000_000
    seconds, ordinal = _coordinates(event, report)
    oplog_ms = time_ms if seconds is None else seconds * 1000
    if oplog_ms is None:
        oplog_ms = 0
        report(("source_time", "a message has a time"))
    if time_ms is None and seconds is not None:
        report(("source_time", "read as the time of the entry in the oplog"))
    snapshot = event.source.snapshot
    if snapshot == "false":
        report(("source.snapshot", "read as none"))
    if not event.table.name or not event.table.database:
        report(("table.name", "a message has a database and a collection"))
    block = {
        "version": event.source.version,
        "connector": PRODUCT,
        "name": event.source.server,
        "ts_ms": oplog_ms,
        "snapshot": "false" if snapshot is None else snapshot,
        "db": event.table.database or "",
        "collection": event.table.name or "",
        "ord": ordinal,
        "wallTime": None if time_ms == oplog_ms else time_ms,
    }
    add_further(block, details, SOURCE_FIELDS, report)
    return block


def _coordinates(event: DataChange, report: Report) -> tuple[int | None, int | None]:
    position = event.position
    if position is None:
        return None, None
    if isinstance(position, SequencePosition) and position.row == 0 and position.value >= 0:
        seconds, ordinal = divmod(position.value, U32)
        if seconds * 1000 < MOST_MS:
            return seconds, ordinal
    report(("position", "not an entry of the oplog"))
    return None, None


def _transaction_block(event: DataChange, report: Report) -> Row | None:
    transaction = event.transaction
    if transaction is None:
        return None
    if any(
        count is not None and not 1 <= count < 1 << 63
        for count in (transaction.order, transaction.table_order)
    ):
        report(("transaction.order", "out of range"))
        return None
    return {
        "id": transaction.id,
        "total_order": transaction.order,
        "data_collection_order": transaction.table_order,
    }
