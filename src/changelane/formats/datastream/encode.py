# SPDX-License-Identifier: Apache-2.0
"""Change events to events of Datastream."""

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final

from changelane.errors import EncodeError
from changelane.event import ChangeEvent, DataChange, Op
from changelane.formats.contract import json
from changelane.formats.contract.details import add_further, take_documented
from changelane.formats.contract.format import Report
from changelane.formats.contract.iso_times import writer
from changelane.formats.datastream.decode import (
    CHANGE_TYPES,
    OPERATIONS,
    is_backfill,
    product_of,
)
from changelane.formats.datastream.positions import coordinates
from changelane.formats.datastream.wire import EVENT_FIELDS, METADATA_FIELDS, Row
from changelane.message import Message

_TIME: Final = writer(dt.UTC, digits=3, zulu=False)
_STREAM_METHODS: Final = {
    "mysql": "mysql-cdc-binlog",
    "oracle": "oracle-cdc-logminer",
    "postgresql": "postgres-cdc-wal",
    "salesforce": "salesforce-cdc",
}
_BACKFILL_METHODS: Final = {
    "mysql": "mysql-backfill-fulldump",
    "oracle": "oracle-backfill",
    "postgresql": "postgresql-backfill",
    "salesforce": "salesforce-backfill",
}
"""Product -> the documented method of reading; other products have the general one."""
_NAME_FIELDS: Final = {"mongodb": "collection", "salesforce": "object_name"}
"""Product -> the key of the table's name, if it is not ``table``."""
_DETAILS: Final[dict[str, type]] = {
    "read_method": str,
    "uuid": str,
    "object": str,
    "schema_key": str,
    "sort_keys": list,
    "row_id": str,
    "change_type": str,
}


def encode(event: ChangeEvent, report: Report) -> Message:
    """Return the message of an event that is reduced to the capabilities of Datastream."""
    if not isinstance(event, DataChange):
        raise EncodeError(f"Datastream has no event for {type(event).__name__}")
    is_delete = event.op is Op.DELETE
    row = event.before if is_delete else event.after
    if row is None:
        raise EncodeError("the change has no row image")
    details = dict(event.details)
    known = take_documented(details, _DETAILS, report)
    key = None if event.key is None else event.key.columns
    if key is not None and any(row.get(name) is None for name in key):
        raise EncodeError("the row lacks a key column")
    if key == ():
        report(("key", "a key without columns is not written"))
    read_method = _read_method(event, known, report)
    metadata = {
        "schema": event.table.schema,
        _NAME_FIELDS.get(event.source.product or "", "table"): event.table.name,
        "database": event.table.database,
        "row_id": known.get("row_id"),
        "is_deleted": is_delete,
        "change_type": _change_type(event.op, known, report),
        "tx_id": _transaction_id(event, report),
        **coordinates(event.position, report),
        "primary_keys": list(key) if key else None,
    }
    if "" in (event.table.schema, event.table.name, event.table.database):
        report(("table.name", "an empty name is read as none"))
    metadata = {name: field for name, field in metadata.items() if field is not None}
    metadata |= _further(details, "source_metadata", METADATA_FIELDS, report)
    wire = {
        "uuid": known.get("uuid"),
        "read_timestamp": _time(event.process_time_ns),
        "source_timestamp": _time(event.source_time_ns),
        "object": known.get("object", _object(event)),
        "read_method": read_method,
        "stream_name": event.source.server,
        "schema_key": known.get("schema_key"),
        "sort_keys": known.get("sort_keys"),
        "source_metadata": metadata,
        "payload": dict(row),
    }
    message = {name: field for name, field in wire.items() if field is not None}
    add_further(message, details, EVENT_FIELDS, report)
    return Message(json.dumps(message))


def _further(details: Row, name: str, documented: frozenset[str], report: Report) -> Row:
    """Remove undocumented keys of a part from details, and return them."""
    fields = details.pop(name, None)
    if fields is None:
        return {}
    if not isinstance(fields, Mapping) or not documented.isdisjoint(fields):
        report((f"details.{name}", "no further fields of an event"))
        return {}
    return dict(fields)


def _read_method(event: DataChange, known: Row, report: Report) -> str:
    """Return the method of reading: the one in the details if it fits the event."""
    source, is_read = event.source, event.op is Op.READ
    method: str = known.get("read_method", "")
    fits = product_of(method) == source.product
    if not method or not fits or (is_backfill(method) != is_read and event.op is not Op.DELETE):
        if method:
            report(("details.read_method", "it does not fit the event"))
        methods, general = (_BACKFILL_METHODS, "backfill") if is_read else (_STREAM_METHODS, "cdc")
        method = methods.get(source.product or "", general)
    if product_of(method) != source.product:
        report(("source.product", "no method of reading is documented for it"))
    if source.snapshot != (method if is_read else None):
        report(("source.snapshot", "read as the method of a backfill, otherwise as none"))
    return method


def _change_type(op: Op, known: Row, report: Report) -> str:
    change_type: str = known.get("change_type", "")
    if not change_type:
        return CHANGE_TYPES[op]
    if op is Op.DELETE or op is Op.READ or OPERATIONS.get(change_type) is op:
        return change_type
    report(("details.change_type", "it does not fit the operation"))
    return CHANGE_TYPES[op]


def _transaction_id(event: DataChange, report: Report) -> str | None:
    if event.transaction is None:
        return None
    if not event.transaction.id:
        report(("transaction.id", "an empty id is read as none"))
    return event.transaction.id


def _object(event: DataChange) -> str:
    """Return the name of the object: ``SCHEMA_TABLE``."""
    table = event.table
    return "_".join(part for part in (table.schema or table.database, table.name) if part)


def _time(value_ns: int | None) -> Any:
    return None if value_ns is None else _TIME(value_ns)
