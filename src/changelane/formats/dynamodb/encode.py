# SPDX-License-Identifier: Apache-2.0
"""Change events to records of DynamoDB in the form of Kinesis Data Streams."""

from collections.abc import Mapping
from typing import Any, Final

from changelane.errors import EncodeError
from changelane.event import ChangeEvent, Completeness, DataChange, Image, Op
from changelane.formats.contract import json
from changelane.formats.contract.details import add_further, take_documented
from changelane.formats.contract.format import Report
from changelane.formats.dynamodb.attributes import SETS as SET_TYPES
from changelane.formats.dynamodb.attributes import is_attribute, write
from changelane.formats.dynamodb.decode import (
    EVENT_SOURCE,
    IMAGES,
    MICROSECOND,
    MILLISECOND,
    OPERATIONS,
    SETS,
    sequence_number,
    time_position,
)
from changelane.formats.dynamodb.wire import RECORD_FIELDS, STREAM_FIELDS, Row
from changelane.message import Message
from changelane.schema import TableId, option_for_table

_NAMES: Final = {op: name for name, op in OPERATIONS.items()}
_NO_SETS: Final[Mapping[str, Any]] = {}
_RECORD_DETAILS: Final[dict[str, type]] = {
    "awsRegion": str,
    "eventID": str,
    "eventVersion": str,
    "eventSourceARN": str,
    "userIdentity": dict,
    "eventSource": str,
}
_STREAM_DETAILS: Final[dict[str, type]] = {"SizeBytes": int, "StreamViewType": str}


class Writer:
    """Encodes events that are reduced to the capabilities of DynamoDB."""

    def __init__(self, keys: Mapping[str, tuple[str, ...]], *, is_typed: bool) -> None:
        self._keys = keys
        self._is_typed = is_typed

    def __call__(self, event: ChangeEvent, report: Report) -> Message:
        """Return the message of an event."""
        if not isinstance(event, DataChange):
            raise EncodeError(f"DynamoDB has no record for {type(event).__name__}")
        details = dict(event.details)
        sets = _sets(details.pop(SETS, None), report)
        known = take_documented(details, _RECORD_DETAILS, report)
        known_stream = take_documented(details, _STREAM_DETAILS, report)
        stream = self._stream(event, sets, report) | known_stream
        if event.position != time_position(event.source_time_ns, known.get("eventID")):
            number = sequence_number(event.position)
            if number is not None:
                stream["SequenceNumber"] = number
            elif event.position is not None:
                report(("position", "not a sequence number of DynamoDB"))
        stream |= _stream_fields(details.pop("dynamodb", None), report)
        record: Row = {
            "awsRegion": known.pop("awsRegion", None),
            "eventID": known.pop("eventID", None),
            "eventName": _NAMES[event.op],
            "userIdentity": known.pop("userIdentity", None),
            "recordFormat": "application/json",
            "tableName": event.table.name,
            "dynamodb": stream,
            "eventSource": known.pop("eventSource", EVENT_SOURCE),
            **known,
        }
        add_further(record, details, RECORD_FIELDS, report)
        return Message(json.dumps(record))

    def _stream(self, event: DataChange, sets: Mapping[str, Any], report: Report) -> Row:
        """Return the object ``dynamodb``."""
        stream: Row = {}
        precision = None
        if event.source_time_ns is not None:
            time_us = event.source_time_ns // 1000
            has_micros = time_us % 1000 != 0
            precision = MICROSECOND if has_micros else MILLISECOND
            stream["ApproximateCreationDateTime"] = time_us if has_micros else time_us // 1000
        row = event.before if event.op is Op.DELETE else event.after
        if not row:
            raise EncodeError("the change has no row image, or one without columns")
        keys = self._key_attributes(event, row, report)
        if keys is not None:
            stream["Keys"] = keys
        is_key_only = keys is not None and keys.keys() == row.keys()
        if event.op is Op.DELETE:
            if not is_key_only or event.before_holds is Completeness.FULL:
                stream["OldImage"] = self._image(row, sets.get(IMAGES[1], _NO_SETS), report)
        else:
            stream["NewImage"] = self._image(row, sets.get(IMAGES[0], _NO_SETS), report)
            if event.op is Op.UPDATE and event.before is not None:
                types = sets.get(IMAGES[1], _NO_SETS)
                stream["OldImage"] = self._image(event.before, types, report)
        if precision is not None:
            stream["ApproximateCreationDateTimePrecision"] = precision
        return stream

    def _key_attributes(self, event: DataChange, row: Image, report: Report) -> Row | None:
        if event.key is None or not event.key.columns:
            report(("key", "a record of DynamoDB has a key"))
            return None
        columns = event.key.columns
        configured = option_for_table(self._keys, TableId(name=event.table.name))
        if columns != (configured or tuple(sorted(columns))):
            report(("key", "readers order its attributes by name, or by their options"))
        images = (
            (row,) if event.op is not Op.UPDATE or event.before is None else (row, event.before)
        )
        if any(image.get(name) is None for image in images for name in columns):
            raise EncodeError("an image lacks a key column")
        return {name: write(row[name], report) for name in columns}

    def _image(self, image: Image, sets: Mapping[str, Any], report: Report) -> Row:
        return {
            name: value
            if self._is_typed and is_attribute(value)
            else write(value, report, sets.get(name))
            for name, value in image.items()
        }


def _sets(value: object, report: Report) -> Mapping[str, Any]:
    """Return the types of sets in the details of an event."""
    if value is None:
        return _NO_SETS
    if (
        isinstance(value, dict)
        and value.keys() <= set(IMAGES)
        and all(isinstance(types, dict) for types in value.values())
        and all(
            isinstance(kind, str) and kind in SET_TYPES
            for types in value.values()
            for kind in types.values()
        )
    ):
        return value
    report((f"details.{SETS}", "not the types of sets"))
    return _NO_SETS


def _stream_fields(fields: object, report: Report) -> Row:
    """Return the undocumented keys of the object ``dynamodb`` from details."""
    if fields is None:
        return {}
    if not isinstance(fields, dict) or not STREAM_FIELDS.isdisjoint(fields):
        report(("details.dynamodb", "no further fields of a record"))
        return {}
    return fields
