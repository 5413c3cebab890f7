# SPDX-License-Identifier: Apache-2.0
"""Messages in the columns of a data file.

The columns have the names of Spark's Kafka source (``key``, ``value``, ``headers``, ``topic``,
``partition``, ``offset``, ``timestamp``), which sinks of Kafka Connect use, too. Only ``value`` is
required; other columns are ignored.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from changelane import types as t
from changelane.conversion.message_files import record_of
from changelane.data_files.row_file import RowFile, malformed
from changelane.errors import DecodeError
from changelane.formats.contract import json
from changelane.formats.contract.iso_times import reader
from changelane.message import Message
from changelane.reason_codes import ReasonCode
from changelane.schema import Column

COLUMNS: Final = (
    *("key", "value", "headers", "topic", "partition", "offset", "timestamp", "timestampType"),
)
"""The columns of messages."""
_ROWS: Final = "if its rows are rows of a table, set source.rows (or -f native-json)"
_MS: Final = 1_000_000
_TIME: Final = reader(dt.UTC)
_DATA: Final = (t.Bytes, t.String)
_KINDS: Final[dict[str, tuple[type[t.LogicalType], ...]]] = {
    "key": _DATA,
    "value": _DATA,
    "headers": (t.Array, t.Map),
    "topic": (t.String,),
    "partition": (t.Integer,),
    "offset": (t.Integer,),
    "timestamp": (t.Integer, t.InstantType, t.Timestamp),
}
_VALUES: Final[dict[str, tuple[type, ...]]] = {
    "key": (bytes, str),
    "value": (bytes, str),
    "headers": (list,),
    "topic": (str,),
    "partition": (int,),
    "offset": (int,),
    "timestamp": (int, str),
}
"""The values of a column of unknown type, such as a union of Avro."""


class FileMessage(NamedTuple):
    """A message of a data file.

    Attributes:
        message: The message.
        error: The reason why its row is no valid message, if any.
        is_line: The value of an invalid message is a record
            (:mod:`changelane.conversion.message_files`), which is rejected until it is repaired.
    """

    message: Message
    error: DecodeError | None = None
    is_line: bool = False


def has_messages(columns: tuple[Column, ...]) -> bool:
    """Return whether columns look like those of messages, and not of a table."""
    kinds = {column.name: column.type for column in columns}
    return isinstance(kinds.get("value"), _DATA) and kinds.keys() <= set(COLUMNS)


def column_messages(file: RowFile, topic: str) -> Iterator[FileMessage]:
    """Yield the messages of a file.

    Args:
        file: The file.
        topic: The topic of messages without an offset; their offset is the number of the row.

    Raises:
        DecodeError: The file has no column ``value``, or a column has another type.
    """
    indexes = _indexes(file.columns)
    unions = [name for name, at in indexes.items() if isinstance(file.columns[at].type, t.Unknown)]
    number = 0
    for rows in file.batches():
        for row in rows:
            fields = {name: row[index] for name, index in indexes.items()}
            yield _message(fields, unions, topic, number)
            number += 1


def _indexes(columns: tuple[Column, ...]) -> dict[str, int]:
    indexes = {column.name: index for index, column in enumerate(columns) if column.name in _KINDS}
    if "value" not in indexes:
        raise malformed("the file has no column `value`: " + _ROWS)
    for name, index in indexes.items():
        kind = columns[index].type
        if not isinstance(kind, (*_KINDS[name], t.Unknown)):
            raise malformed(
                f"the column `{name}` has the type {kind}, unlike that of messages: {_ROWS}"
            )
    return indexes


def _message(fields: dict[str, Any], unions: Sequence[str], topic: str, number: int) -> FileMessage:
    value, key = _bytes(fields["value"]), _bytes(fields.get("key"))
    offset = fields.get("offset")
    try:
        _check_types(fields, unions)
        headers = _headers(fields.get("headers"))
        timestamp_ms = _milliseconds(fields.get("timestamp"))
        if offset is None:
            place = topic, 0, number
        else:
            place = fields.get("topic") or topic, fields.get("partition") or 0, offset
            _check_place(*place)
    except DecodeError as error:
        data = ("key", "value")
        wrong = {name: fields[name] for name in data if name in unions and _is_wrong(name, fields)}
        places = ("topic", "partition", "offset", "timestamp", "headers")
        valid = Message(None if "value" in wrong else value, None if "key" in wrong else key)
        record = record_of(valid) | {name: fields.get(name) for name in places} | wrong
        line = Message(json.dumps(record), None, (), topic, 0, number)
        return FileMessage(line, error, is_line=True)
    return FileMessage(Message(value, key, headers, *place, timestamp_ms))


def _check_types(fields: dict[str, Any], unions: Sequence[str]) -> None:
    for name in unions:
        if _is_wrong(name, fields):
            reason = "a value of another type than that of messages"
            raise DecodeError(reason, code=ReasonCode.WRONG_TYPE, path=f"$.{name}")


def _is_wrong(name: str, fields: dict[str, Any]) -> bool:
    value = fields[name]
    return value is not None and type(value) not in _VALUES[name]


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _check_place(_topic: str, partition: int, offset: int) -> None:
    if not (0 <= partition < 1 << 31 and 0 <= offset < 1 << 63):
        reason = "partition or offset is out of range"
        raise DecodeError(reason, code=ReasonCode.VALUE_OUT_OF_RANGE, path="$.offset")


def _headers(value: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers of pairs, or of records with two fields.

    Raises:
        DecodeError: The headers have another form.
    """
    pairs: list[tuple[str, bytes | None]] = []
    for header in value or ():
        pair = tuple(header.values()) if isinstance(header, dict) else header
        name, content = pair if isinstance(pair, tuple | list) and len(pair) == 2 else (None, None)
        if not isinstance(name, str) or not isinstance(content, str | bytes | None):
            raise DecodeError(
                "a header is neither text nor bytes", code=ReasonCode.NOT_A_RECORD, path="$.headers"
            )
        pairs.append((name, _bytes(content)))
    return tuple(pairs)


def _milliseconds(value: Any) -> int | None:
    if value is None or isinstance(value, int):
        return value
    try:
        return _TIME(value) // _MS
    except ValueError:
        raise DecodeError(
            "not a time", code=ReasonCode.VALUE_OUT_OF_RANGE, path="$.timestamp"
        ) from None
