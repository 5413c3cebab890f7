# SPDX-License-Identifier: Apache-2.0
"""The wire classes of DynamoDB's change records, with the producer's own names and order."""

import decimal
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.formats.contract import json
from changelane.reason_codes import ReasonCode

Row = dict[str, Any]
"""Names and JSON values."""

Attributes = dict[str, Row]
"""Attribute names and attribute values, such as ``{"id": {"N": "101"}}``."""


class StreamRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The object ``dynamodb`` of a record."""

    ApproximateCreationDateTime: Any = None  # a number, or ISO text by some clients
    Keys: Attributes | None = None
    NewImage: Attributes | None = None
    OldImage: Attributes | None = None
    SequenceNumber: str | None = None
    SizeBytes: int | None = None
    StreamViewType: str | None = None
    ApproximateCreationDateTimePrecision: str | None = None


class Record(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One record. ``tableName`` and ``recordFormat`` are in records of Kinesis only."""

    eventName: str  # noqa: N815 - the producer's name
    dynamodb: StreamRecord
    awsRegion: str | None = None  # noqa: N815 - the producer's name
    eventID: str | None = None  # noqa: N815 - the producer's name
    eventVersion: str | None = None  # noqa: N815 - the producer's name
    eventSource: str | None = None  # noqa: N815 - the producer's name
    eventSourceARN: str | None = None  # noqa: N815 - the producer's name
    userIdentity: Row | None = None  # noqa: N815 - the producer's name
    recordFormat: str | None = None  # noqa: N815 - the producer's name
    tableName: str | None = None  # noqa: N815 - the producer's name


class Loaded(msgspec.Struct, frozen=True, gc=False):
    """A record that was read.

    Attributes:
        record: The documented keys.
        fields: The undocumented keys of the record.
        stream_fields: The undocumented keys of its object ``dynamodb``.
        path: The JSON path of the record.
    """

    record: Record
    fields: Row
    stream_fields: Row
    path: str = "$"


RECORD_FIELDS: Final = frozenset(Record.__struct_fields__)
STREAM_FIELDS: Final = frozenset(StreamRecord.__struct_fields__)

_NO_FIELDS: Final[Row] = {}
_BATCH: Final = "Records"
_record: Final = msgspec.json.Decoder(Record, float_hook=decimal.Decimal).decode


def load(value: bytes) -> tuple[Loaded, ...]:
    """Return the records of a message: one, or those of a batch.

    A batch is ``{"Records": [...]}`` in AWS Lambda and the API, an array in EventBridge Pipes.

    Raises:
        DecodeError: The bytes are not records of DynamoDB.
    """
    try:
        return (Loaded(_record(value), _NO_FIELDS, _NO_FIELDS),)
    except (ValueError, RecursionError, decimal.DecimalException):
        pass  # the slow path reads the message, or raises the error
    message = json.loads(value, object)
    if isinstance(message, list):
        return _batch(message, "$")
    if not isinstance(message, dict) or _BATCH not in message:
        return (_loaded(message, "$"),)
    records = message[_BATCH]
    if not isinstance(records, list):
        raise _wrong(f"$.{_BATCH}", "not an array of records")
    return _batch(records, f"$.{_BATCH}")


def _batch(records: list[Any], path: str) -> tuple[Loaded, ...]:
    return tuple(_loaded(record, f"{path}[{index}]") for index, record in enumerate(records))


def _loaded(fields: object, path: str) -> Loaded:
    if not isinstance(fields, dict):
        raise _wrong(path, "not an object")
    known = {name: fields[name] for name in fields if name in RECORD_FIELDS}
    stream = known.get("dynamodb")
    stream_fields: Row = {}
    if isinstance(stream, dict):
        stream_fields = {name: stream[name] for name in stream if name not in STREAM_FIELDS}
        known["dynamodb"] = {name: stream[name] for name in stream if name in STREAM_FIELDS}
    record = json.convert(known, Record, path)
    other = {name: fields[name] for name in fields if name not in RECORD_FIELDS}
    return Loaded(record, other, stream_fields, path)


def _wrong(path: str, reason: str) -> DecodeError:
    return DecodeError(reason, code=ReasonCode.WRONG_TYPE, path=path)
