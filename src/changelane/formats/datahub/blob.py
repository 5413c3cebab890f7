# SPDX-License-Identifier: Apache-2.0
"""``datahub-blob``: StreamX JSON, the messages of DataHub's BLOB topics.

Product: DataWorks Data Integration to DataHub, and the same JSON to Kafka
(https://www.alibabacloud.com/help/en/dataworks/user-guide/message-formats).

Versions studied: format version 0.0.1 (all samples) and 1.0.0 (the description).

Sample::

    {"schema":{"dataColumn":[{"name":"id","type":"LONG"},{"name":"name","type":"STRING"}],
     "source":{"dbName":"example_db","dbType":"MySQL","tableName":"example_table_pk"},
     "primaryKey":["id"]},
     "payload":{"op":"INSERT","after":{"dataColumn":{"id":1,"name":"joe"}},
     "sequenceId":"1605339516000000004",
     "timestamp":{"eventTime":1605339932000,"systemTime":1605339932736,
     "checkpointTime":1605339932000}},"version":"0.0.1"}

Choices: the sequence is the position. Rows with the sequence -1 belong to a full load, and are
snapshot reads. UPDATE_BEFOR and UPDATE_AFTER are halves that their sequence joins; UPDATE_AFTER
with both images is a whole update. A column that is missing from an image is absent. ``ddlMeta`` is
a serialised Java object: its text is kept and never deserialised.

Known gaps: JSON keys outside of the documentation are not kept; an event without a sequence is
written without one. See ``docs/formats/datahub-blob.md``.
"""

import datetime as dt
import re
import zoneinfo
from typing import Final, Literal

import msgspec

from changelane.errors import ConfigError, DecodeError
from changelane.event import ChangeEvent, Op, Source, Tombstone
from changelane.formats.contract.capabilities import AbsentMeans, Carries, SchemaDetail
from changelane.formats.contract.format import Format, Report
from changelane.formats.datahub.blob_decode import (
    CONNECTOR,
    MissingColumns,
    Reader,
    ReadOptions,
    load,
)
from changelane.formats.datahub.blob_encode import TYPE_NAMES, WriteOptions, Writer
from changelane.message import Message
from changelane.schema import TableId
from changelane.types import Decimal


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``datahub-blob``.

    Attributes:
        double: The type of a DOUBLE: an exact ``decimal``, or a binary ``float``, which rejects
            numbers with more digits than a float has.
        missing_columns: The interpretation of a column that ``dataColumn`` lists and an image
            lacks: ``absent``; ``null`` for a producer that omits NULL, as fastjson does by default;
            ``auto``: NULL in the after image of a message without any null, else absent.
        keep_rowid: Keep ``rowid`` of Oracle as a column; else it is a detail.
        start_checkpoint_ms: Skip messages with a ``checkpointTime`` (else ``eventTime``) before
            this time, in milliseconds since 1970; messages with an unknown time are not skipped.
        updates: Write an update as ``two`` messages, or as ``one`` with both images.
        time_zone: The zone of written dates and local timestamps.
    """

    double: Literal["decimal", "float"] = "decimal"
    missing_columns: MissingColumns = "auto"
    keep_rowid: bool = False
    start_checkpoint_ms: int | None = None
    updates: Literal["two", "one"] = "two"
    time_zone: str = "UTC"


class DataHubBlob:
    """The format ``datahub-blob``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        types = frozenset(TYPE_NAMES)
        self._carries = Carries(
            operations=frozenset(Op),
            kinds=frozenset({"half", "schema", "truncate", "transaction", "watermark", "control"}),
            before=True,
            partial_before=True,
            absent=options.missing_columns != "null",
            absent_means=(
                AbsentMeans.NULL if options.missing_columns == "null" else AbsentMeans.UNCHANGED
            ),
            schema=SchemaDetail.SOURCE_TYPES,
            # without the type, a decimal is written as text, which keeps every digit
            types=types - {Decimal} if options.double == "float" else types,
            pair=True,
            key=True,
            key_change=True,
            table=frozenset({"database", "schema", "name"}),
            positions=frozenset({"sequence"}),
            source=frozenset({"product", "snapshot"}),
            stamp=Source(connector=CONNECTOR),
            source_time="ms",
            process_time="ms",
            details=True,
        )
        self._read = Reader(
            ReadOptions(
                options.double,
                options.missing_columns,
                options.keep_rowid,
                options.start_checkpoint_ms,
            )
        )
        self._write = Writer(
            WriteOptions(_zone(options.time_zone), options.double, options.updates)
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (DataHubBlob, (self._options,))

    @property
    def carries(self) -> Carries:
        """The capabilities of the format."""
        return self._carries

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message into its event; a message before the start time has none."""
        if message.value is None:
            return (Tombstone(TableId()),)
        return self._read(message.value)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode an event as one message, or as the two halves of an update."""
        return tuple(Message(value) for value in self._write(event, report))

    def detects(self, message: Message) -> bool:
        """Return whether a message looks like StreamX JSON."""
        if message.value is None:
            return False
        try:
            load(message.value)
        except DecodeError:
            return False
        return True


_OFFSET: Final = re.compile(r"([+-])(\d\d):(\d\d)", re.ASCII)


def _zone(name: str) -> dt.tzinfo:
    if name.upper() in {"UTC", "Z", "GMT"}:
        return dt.UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        span = dt.timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        if span < dt.timedelta(hours=24):
            return dt.timezone(-span if offset[1] == "-" else span)
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"datahub-blob: the time zone {name!r} does not exist") from None


def make(options: Options) -> Format:
    """Return the format."""
    return DataHubBlob(options)
