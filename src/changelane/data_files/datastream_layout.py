# SPDX-License-Identifier: Apache-2.0
"""The layout ``datastream``: the Avro files that Google Datastream writes to Cloud Storage.

Documentation: https://cloud.google.com/datastream/docs/events-and-streams and
https://cloud.google.com/datastream/docs/unified-types. A record is an event with the fields of
``datastream-json``; ``payload`` has the row with its types. The reader of that format reads the
fields, and the types are those of the file.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from changelane import types as t
from changelane.data_files.epoch_text import timestamp_writer
from changelane.data_files.message_columns import FileMessage
from changelane.data_files.row_file import Row, RowFile, malformed
from changelane.data_files.row_messages import RowChange, RowWriter
from changelane.errors import DecodeError
from changelane.event import DataChange, Key
from changelane.formats.contract.declared_tables import DeclaredTables
from changelane.formats.datastream.decode import Reader
from changelane.message import Message
from changelane.pipeline.row_options import RowOptions
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableId

PAYLOAD: Final = "payload"
_METADATA: Final = "source_metadata"
_encode: Final = msgspec.json.Encoder().encode
_MICROS: Final = timestamp_writer(6, is_instant=True)

Convert = Callable[[dict[str, Any]], Any]


class DatastreamMessages:
    """The events of a file as messages."""

    def __init__(self, file: RowFile, topic: str, options: RowOptions) -> None:
        """Find the columns of the event.

        Args:
            file: The file.
            topic: The topic of the messages.
            options: The options.

        Raises:
            DecodeError: The file has no events of Datastream.
        """
        names = [column.name for column in file.columns]
        if PAYLOAD not in names or _METADATA not in names:
            raise malformed("the file has no events of Datastream: no payload or source_metadata")
        self._file = file
        self._names = names
        payload = file.columns[names.index(PAYLOAD)].type
        if not isinstance(payload, t.Record):
            raise malformed("the payload of the file is not a record")
        self._topic = topic
        self._options = options
        self._read = Reader(options.keys, DeclaredTables({}))
        self._converts: dict[str, Convert] = {}
        columns: list[Column] = []
        for name, kind in payload.fields:
            custom = _custom_type(kind)
            if custom is None:
                columns.append(Column(name, kind))
            else:
                columns.append(Column(name, custom.type))
                self._converts[name] = custom.convert
        self._columns = tuple(columns)
        self._writers: dict[tuple[TableId, Key | None], RowWriter] = {}

    def __iter__(self) -> Iterator[FileMessage]:
        """Yield the messages.

        Raises:
            DecodeError: The file is damaged, or does not fit the options.
        """
        number = 0
        for rows in self._file.batches():
            for row in rows:
                yield self._message(row, number)
                number += 1

    def _message(self, row: Row, number: int) -> FileMessage:
        event = dict(zip(self._names, row, strict=True))
        payload = event[PAYLOAD]
        try:
            if payload is not None and self._converts:
                payload = event[PAYLOAD] = self._converted(payload)
            change = self._read(_event_json(event))
            writer = self._writer(change)
        except DecodeError as error:
            message = Message(_event_json(event), None, (), self._topic, 0, number)
            return FileMessage(message, error)
        values = tuple(payload[column.name] for column in self._columns)
        return FileMessage(writer.message(values, number, _row_change(change)))

    def _converted(self, payload: dict[str, Any]) -> dict[str, Any]:
        converted = dict(payload)
        for name, convert in self._converts.items():
            if payload[name] is not None:
                try:
                    converted[name] = convert(payload[name])
                except DecodeError as error:
                    path = f"$.{PAYLOAD}.{name}"
                    raise DecodeError(error.reason, code=error.code, path=path) from None
        return converted

    def _writer(self, change: DataChange) -> RowWriter:
        place = change.table, change.key
        writer = self._writers.get(place)
        if writer is None:
            writer = self._writers[place] = RowWriter(
                change.table, self._columns, self._options, topic=self._topic, key=change.key
            )
        return writer


def _event_json(event: dict[str, Any]) -> bytes:
    return _encode({name: field for name, field in event.items() if field is not None})


def _row_change(change: DataChange) -> RowChange:
    return RowChange(
        change.op.value,
        change.position,
        change.source,
        change.source_time_ns,
        change.process_time_ns,
        change.transaction,
        change.details,
    )


# -- the types of Datastream that are records


class _CustomType(NamedTuple):
    """A type of Datastream that is a record.

    Attributes:
        parts: The types of its fields.
        type: The logical type.
        convert: The function to its JSON form; raises :class:`DecodeError` if a part is NULL.
    """

    parts: tuple[type[t.LogicalType] | tuple[type[t.LogicalType], ...], ...]
    type: t.LogicalType
    convert: Convert


def _custom_type(kind: t.LogicalType) -> _CustomType | None:
    """Return the type of Datastream with the fields of a record; ``None`` if there is none."""
    if not isinstance(kind, t.Record):
        return None
    custom = _CUSTOM.get(tuple(name for name, _ in kind.fields))
    if custom is None:
        return None
    pairs = zip(kind.fields, custom.parts, strict=True)
    return custom if all(isinstance(part, expected) for (_, part), expected in pairs) else None


def _check_parts(record: dict[str, Any]) -> None:
    if None in record.values():
        raise DecodeError("a part of the value is NULL", code=ReasonCode.WRONG_TYPE)


def _local_time(record: dict[str, Any]) -> str:
    _check_parts(record)
    return f"{record['date']}T{record['time']}"


def _instant(record: dict[str, Any]) -> str:
    """Return a point in time; a table has no place for its offset."""
    _check_parts(record)
    timestamp = record["timestamp"]
    return _MICROS(timestamp) if isinstance(timestamp, int) else str(timestamp)


def _interval(record: dict[str, Any]) -> str:
    """Return an interval of months, hours and microseconds as ISO 8601 text."""
    _check_parts(record)
    seconds = _seconds(record["micros"], 6)
    return f"P{record['months']}MT{record['hours']}H{seconds}S"


def _interval_of_parts(record: dict[str, Any]) -> str:
    """Return an interval of years to nanoseconds as ISO 8601 text."""
    parts = {name: part or 0 for name, part in record.items()}
    nanos = parts["seconds"] * 1_000_000_000 + parts["nanos"]
    return (
        f"P{parts['years']}Y{parts['months']}M{parts['days']}D"
        f"T{parts['hours']}H{parts['minutes']}M{_seconds(nanos, 9)}S"
    )


def _seconds(ticks: int, digits: int) -> str:
    seconds, fraction = divmod(abs(ticks), 10**digits)
    text = f"{'-' if ticks < 0 else ''}{seconds}"
    return f"{text}.{fraction:0{digits}d}" if fraction else text


_CUSTOM: Final[dict[tuple[str, ...], _CustomType]] = {
    ("date", "time"): _CustomType((t.Date, t.Time), t.Timestamp(6), _local_time),
    ("timestamp", "offset"): _CustomType(
        ((t.InstantType, t.Integer), t.LogicalType), t.InstantType(6), _instant
    ),
    ("months", "hours", "micros"): _CustomType((t.Integer,) * 3, t.Interval(), _interval),
    ("years", "months", "days", "hours", "minutes", "seconds", "nanos"): _CustomType(
        (t.Integer,) * 7, t.Interval(), _interval_of_parts
    ),
}
"""The fields of a record of Datastream -> its type."""
