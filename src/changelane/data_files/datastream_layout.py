# SPDX-License-Identifier: Apache-2.0
"""The layout ``datastream``: the Avro files that Google Datastream writes to Cloud Storage.

Documentation: https://cloud.google.com/datastream/docs/events-and-streams and
https://cloud.google.com/datastream/docs/unified-types. A record is an event with the fields of
``datastream-json``; ``payload`` has the row with its types. The reader of that format reads the
fields, and the types are those of the file.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

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
            custom = _CUSTOM.get(_shape(kind))
            if custom is None:
                columns.append(Column(name, kind))
            else:
                columns.append(Column(name, custom[0]))
                self._converts[name] = custom[1]
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
        if payload is not None and self._converts:
            payload = event[PAYLOAD] = self._converted(payload)
        value = _encode({name: field for name, field in event.items() if field is not None})
        try:
            change = self._read(value)
            writer = self._writer(change)
        except DecodeError as error:
            return FileMessage(Message(value, None, (), self._topic, 0, number), error)
        values = tuple(payload[column.name] for column in self._columns)
        return FileMessage(writer.message(values, number, _row_change(change)))

    def _converted(self, payload: dict[str, Any]) -> dict[str, Any]:
        converted = dict(payload)
        for name, convert in self._converts.items():
            if payload[name] is not None:
                converted[name] = convert(payload[name])
        return converted

    def _writer(self, change: DataChange) -> RowWriter:
        place = change.table, change.key
        writer = self._writers.get(place)
        if writer is None:
            writer = self._writers[place] = RowWriter(
                change.table, self._columns, self._options, topic=self._topic, key=change.key
            )
        return writer


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


def _shape(kind: t.LogicalType) -> tuple[str, ...]:
    return tuple(name for name, _ in kind.fields) if isinstance(kind, t.Record) else ()


def _local_time(record: dict[str, Any]) -> str:
    return f"{record['date']}T{record['time']}"


def _instant(record: dict[str, Any]) -> str:
    """Return a point in time; a table has no place for its offset."""
    timestamp = record["timestamp"]
    return _MICROS(timestamp) if isinstance(timestamp, int) else str(timestamp)


def _interval(record: dict[str, Any]) -> str:
    """Return an interval of months, hours and microseconds as ISO 8601 text."""
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


_CUSTOM: Final[dict[tuple[str, ...], tuple[t.LogicalType, Convert]]] = {
    ("date", "time"): (t.Timestamp(6), _local_time),
    ("timestamp", "offset"): (t.InstantType(6), _instant),
    ("months", "hours", "micros"): (t.Interval(), _interval),
    ("years", "months", "days", "hours", "minutes", "seconds", "nanos"): (
        t.Interval(),
        _interval_of_parts,
    ),
}
"""The fields of a record of Datastream -> its type, and the function to its JSON form."""
