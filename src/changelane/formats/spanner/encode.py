# SPDX-License-Identifier: Apache-2.0
"""Change events to data change records of Spanner, one for each change."""

import datetime as dt
import decimal
from typing import Any, Final

from changelane.errors import EncodeError
from changelane.event import ChangeEvent, DataChange, Image, Op, has_partial_after
from changelane.formats.contract import json
from changelane.formats.contract.details import add_further, other_content, take_documented
from changelane.formats.contract.format import Report
from changelane.formats.contract.iso_times import writer
from changelane.formats.spanner.decode import (
    DETAILS,
    NEW_ROW,
    NEW_ROW_AND_OLD_VALUES,
    NEW_VALUES,
    OLD_AND_NEW_VALUES,
    OPERATIONS,
    is_sequence,
    position_of,
    table_of,
)
from changelane.formats.spanner.types import value_writer, wire_type
from changelane.formats.spanner.wire import FIELDS, Row
from changelane.message import Message
from changelane.schema import Column, TableSchema
from changelane.types import Boolean, Decimal, Integer, Json, LogicalType, String
from changelane.types.values import value_text

_NAMES: Final = {op: name for name, op in OPERATIONS.items()}
_TIME: Final = writer(dt.UTC, digits=9, zulu=True)
_DETAILS: Final[dict[str, type]] = {
    "value_capture_type": str,
    "record_sequence": str,
    "is_last_record_in_transaction_in_partition": bool,
    "number_of_records_in_transaction": int,
    "number_of_partitions_in_transaction": int,
    "transaction_tag": str,
    "is_system_transaction": bool,
}


def encode(event: ChangeEvent, report: Report) -> Message:
    """Return the message of an event that is reduced to the capabilities of Spanner."""
    if not isinstance(event, DataChange):
        raise EncodeError(f"Spanner has no data change record for {type(event).__name__}")
    schema = event.schema or _inferred_schema(event, report)
    key = () if event.key is None else event.key.columns
    if not key:
        report(("key", "a row of Spanner has a key"))
    row = event.before if event.op is Op.DELETE else event.after
    if row is None:
        raise EncodeError("the change has no row image")
    if any(name not in image for name in key for image in (row, event.before or row)):
        raise EncodeError("an image lacks a key column")
    in_order = tuple(column.name for column in schema.columns if column.name in key)
    if in_order != key:
        report(("key", "readers order its columns as the table does"))
    details = dict(event.details)
    known = _known(details, report)
    capture = _capture_type(event, schema, known, report)
    sequence = known.get("record_sequence")
    _check_position(event, sequence, report)
    record = {
        "commit_timestamp": None if event.source_time_ns is None else _TIME(event.source_time_ns),
        "record_sequence": sequence,
        "server_transaction_id": None if event.transaction is None else event.transaction.id,
        "is_last_record_in_transaction_in_partition": known.get(
            "is_last_record_in_transaction_in_partition"
        ),
        "table_name": _table_name(event, report),
        "column_types": [
            {
                "name": column.name,
                "type": _wire_type(column.type, report),
                "is_primary_key": column.name in key,
                "ordinal_position": place,
            }
            for place, column in enumerate(schema.columns, 1)
        ],
        "mods": [_mod(event, row, schema, capture, report)],
        "mod_type": _NAMES[event.op],
        "value_capture_type": capture,
    }
    record |= {name: known.get(name) for name in DETAILS[3:]}
    message = {name: field for name, field in record.items() if field is not None}
    add_further(message, details, FIELDS, report)
    return Message(json.dumps(message))


def _inferred_schema(event: DataChange, report: Report) -> TableSchema:
    """Return the columns of an event without a schema, with the types of their values."""
    kinds: dict[str, LogicalType] = {}
    for image in (event.before or {}, event.after or {}):
        for name, value in image.items():
            if value is not None or name not in kinds:
                kind = _kind_of(value)
                if name in kinds and kinds[name] != kind and event.before is not image:
                    kind = _common(kinds[name], kind)
                kinds[name] = kind
    if any(isinstance(kind, Json) for kind in kinds.values()):
        report(("type:unknown", "a nested value is read as JSON text"))
    if any(
        isinstance(value, int) and isinstance(kinds[name], Decimal)
        for image in (event.before or {}, event.after or {})
        for name, value in image.items()
    ):
        report(("type:unknown", "a whole number of more than 64 bits is read as a decimal"))
    return TableSchema(tuple(Column(name, kind) for name, kind in kinds.items()))


def _kind_of(value: object) -> LogicalType:
    match value:
        case bool():
            return Boolean()
        case int():
            return Integer(64) if -(1 << 63) <= value < 1 << 63 else Decimal()
        case decimal.Decimal() | float():
            return Decimal()
        case dict() | list() | tuple():
            return Json()
        case _:
            return String()


def _common(first: LogicalType, second: LogicalType) -> LogicalType:
    return Decimal() if {type(first), type(second)} == {Integer, Decimal} else Json()


def _wire_type(kind: LogicalType, report: Report) -> Row:
    wire = wire_type(kind)
    if wire is None:
        report(("type:array", "Spanner has no such elements; the value is written as text"))
        return {"code": "STRING"}
    if isinstance(kind, Integer) and wire["code"] == "NUMERIC":
        report(("type:uint64", "written as NUMERIC"))
    return wire


def _known(details: Row, report: Report) -> Row:
    """Remove the documented keys from details, and return those with documented content."""
    known = take_documented(details, _DETAILS, report)
    if not is_sequence(known.get("record_sequence", "0")):
        del known["record_sequence"]
        report(other_content("record_sequence"))
    return known


def _capture_type(event: DataChange, schema: TableSchema, known: Row, report: Report) -> str:
    """Return the type of capture whose values are those of the images.

    It is that of the details if this has the same values.
    """
    fitting = _fitting_types(event, schema, report)
    capture: str | None = known.get("value_capture_type")
    if capture is None or capture in fitting:
        return capture or fitting[0]
    report(("details.value_capture_type", "the images are not of this type"))
    return fitting[0]


def _fitting_types(event: DataChange, schema: TableSchema, report: Report) -> tuple[str, ...]:
    before, after, names = event.before, event.after, schema.names
    if event.op is Op.DELETE:
        key = frozenset(() if event.key is None else event.key.columns)
        is_key = before is not None and before.keys() <= key
        return (NEW_ROW, NEW_VALUES) if is_key else (NEW_ROW_AND_OLD_VALUES, OLD_AND_NEW_VALUES)
    is_whole = after is not None and names <= after.keys() and not has_partial_after(event)
    if event.op is Op.CREATE:
        if not is_whole:
            report(("absent", "the values of a new row are all its columns"))
        return (NEW_ROW_AND_OLD_VALUES, OLD_AND_NEW_VALUES, NEW_ROW, NEW_VALUES)
    if before is None:
        return (NEW_ROW, NEW_ROW_AND_OLD_VALUES) if is_whole else (NEW_VALUES, OLD_AND_NEW_VALUES)
    if is_whole and names <= before.keys():
        return (NEW_ROW_AND_OLD_VALUES,)
    if is_whole:
        report(("after", "with some old values, read as the columns that changed"))
    return (OLD_AND_NEW_VALUES,)


def _mod(event: DataChange, row: Image, schema: TableSchema, capture: str, report: Report) -> Row:
    key = () if event.key is None else event.key.columns
    columns = schema.by_name
    image = {name: _value(columns, name, value, report) for name, value in row.items()}
    keys = {name: image.pop(name) for name in key}
    if event.op is Op.DELETE:
        return {"keys": keys, "new_values": {}, "old_values": image}
    old: Row = {}
    if event.before is not None:
        old = {
            name: _value(columns, name, value, report)
            for name, value in event.before.items()
            if name not in key
        }
        if capture == NEW_ROW_AND_OLD_VALUES:
            old = {name: value for name, value in old.items() if value != image[name]}
        if not old:
            report(("before", "without a changed column, read as none"))
    return {"keys": keys, "new_values": image, "old_values": old}


def _value(columns: Any, name: str, value: Any, report: Report) -> Any:
    column = columns.get(name)
    if value is None:
        return None
    if column is None:
        report(("column", "not in the schema; its value is written as text"))
        return value_text(String(), value)
    kind = column.type
    if isinstance(kind, Json) and not isinstance(value, str):
        return json.dumps(value).decode()
    if isinstance(kind, Decimal) and not isinstance(value, str):
        return str(value if isinstance(value, decimal.Decimal) else decimal.Decimal(repr(value)))
    return value_writer(kind)(value, report)


def _table_name(event: DataChange, report: Report) -> str:
    table = event.table
    name = table.name or ""
    text = name if table.schema is None else f"{table.schema}.{name}"
    read = table_of(text)
    if (read.schema, read.name) != (table.schema, table.name):
        report(("table.name", "readers cannot separate it from the name of the schema"))
    return text


def _check_position(event: DataChange, sequence: str | None, report: Report) -> None:
    """Report a position that is not that of the written record."""
    position = None
    if sequence is not None and event.source_time_ns is not None and event.source_time_ns >= 0:
        position = position_of(event.source_time_ns, int(sequence), 0)
    if event.position is not None and event.position != position:
        report(("position", "not that of the first change in a record of Spanner"))
