# SPDX-License-Identifier: Apache-2.0
"""``dynamodb-json``: the change records of Amazon DynamoDB.

Product: DynamoDB Streams, as AWS Lambda and the API deliver their records, and Kinesis Data
Streams for DynamoDB
(https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_Record.html,
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/kds.html). Versions studied: the
API reference of 2012-08-10, and published records of 2015 to 2024.

Sample::

    {"awsRegion":"us-east-1","eventID":"b015b5f0-c095-4b50-8ad0-4279aa3d88c6","eventName":"INSERT",
     "userIdentity":null,"recordFormat":"application/json","tableName":"readings",
     "dynamodb":{"ApproximateCreationDateTime":1720740233012995,
      "Keys":{"device":{"S":"foo"},"timestamp":{"S":"2024-07-12T01:17:42"}},
      "NewImage":{"humidity":{"N":"84.84"},"device":{"S":"foo"},
       "timestamp":{"S":"2024-07-12T01:17:42"}},
      "SizeBytes":99,"ApproximateCreationDateTimePrecision":"MICROSECOND"},
     "eventSource":"aws:dynamodb"}

Choices: an attribute that is missing in an image does not exist, and is NULL; the position is the
sequence number of a stream, or the time and the id of a record of Kinesis; values have the types
of their attributes unless the option ``schemas`` declares others.

Known gaps: two changes of an item in Kinesis with one time have no order. See
``docs/formats/dynamodb-json.md``.
"""

from typing import Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Op, Tombstone
from changelane.formats.contract import json
from changelane.formats.contract.capabilities import JSON_TYPES, AbsentMeans, Carries
from changelane.formats.contract.declared_tables import DeclaredTables
from changelane.formats.contract.format import Format, Report
from changelane.formats.dynamodb.decode import OPERATIONS, SOURCE, Reader
from changelane.formats.dynamodb.encode import Writer
from changelane.formats.dynamodb.lanes import lanes_of
from changelane.formats.dynamodb.options import Options
from changelane.message import Message
from changelane.schema import TableId
from changelane.types import (
    Bytes,
    Decimal,
    Float,
    Json,
    LogicalType,
    Year,
)

__all__ = ["Options", "make"]

_TYPES: Final = JSON_TYPES - {Json} | {Bytes, Year}
_FORMS: Final[frozenset[tuple[type[LogicalType], str]]] = frozenset(
    {(Float, "number"), (Decimal, "number"), (Json, "container")}
)


class _Probe(msgspec.Struct):
    eventName: str | None = None  # noqa: N815 - the producer's name
    dynamodb: dict[str, object] | None = None


class _Probes(_Probe):
    Records: list[_Probe] | None = None


class DynamoDb:
    """The format ``dynamodb-json``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.carries: Final = _carries(options)
        declared = DeclaredTables(options.schemas, "base64")
        keys = {table: tuple(columns) for table, columns in options.keys.items()}
        self._read = Reader(options, declared)
        self.lanes = lanes_of(self._read)
        self._write = Writer(keys | declared.keys, is_typed=options.nested == "typed")

    def __reduce__(self) -> tuple[object, ...]:
        return (DynamoDb, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message with one record, or with a batch of records."""
        if message.value is None:
            return (Tombstone(TableId()),)
        return self._read(message.value)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode a row change as a record."""
        return (self._write(event, report),)

    def detects(self, message: Message) -> bool:
        """Return whether a message has a record with a change of an item."""
        value = message.value
        if value is None or b'"dynamodb"' not in value:
            return False
        try:
            if value.lstrip()[:1] == b"[":
                records = json.loads(value, list[_Probe])
            else:
                probes = json.loads(value, _Probes)
                records = [probes] if probes.Records is None else probes.Records
        except DecodeError:
            return False
        return any(
            record.eventName in OPERATIONS and record.dynamodb is not None for record in records
        )


def _carries(options: Options) -> Carries:
    return Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        before=True,
        absent_means=AbsentMeans.NULL,
        types=_TYPES,
        forms=_FORMS,
        key=True,
        table=frozenset({"name"}),
        positions=frozenset(() if options.order == "offset" else ("sequence",)),
        stamp=SOURCE,
        source_time="us",
        details=True,
    )


def make(options: Options) -> Format:
    """Return the format.

    Raises:
        ConfigError: The option ``schemas`` is invalid.
    """
    return DynamoDb(options)
