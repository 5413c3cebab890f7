# SPDX-License-Identifier: Apache-2.0
"""``datastream-json``: the JSON events of Google Cloud Datastream.

Product: Datastream with a destination in Cloud Storage, file format JSON
(https://cloud.google.com/datastream/docs/events-and-streams). Versions studied: that page of 2021
to 2026, "Unified types", and events in the tests of Google's Dataflow templates.

Sample::

    {"uuid":"00c32134-f50e-4460-a6c0-399900010010","read_timestamp":"2021-12-25 05:42:04.408",
     "source_timestamp":"2021-12-25T05:42:04.408","object":"HR_JOBS",
     "read_method":"oracle-backfill","stream_name":"projects/1/locations/us-central1/streams/s",
     "schema_key":"ebdb5545","sort_keys":[1640410924408,1706664,"",0],
     "source_metadata":{"schema":"HR","table":"JOBS","database":"XE","row_id":"AAAEARAAEAAAAC9AAS",
      "scn":1706664,"is_deleted":false,"change_type":"INSERT","ssn":0,"rs_id":"","tx_id":null,
      "log_file":"","primary_keys":["JOB_ID"]},
     "payload":{"JOB_ID":"PR_REP","JOB_TITLE":"Public Relations","MIN_SALARY":4500}}

Choices: an event is a whole row, so that a missing column is NULL; the position has the coordinates
of the source; the two events of an update with change types ``UPDATE-DELETE`` and
``UPDATE-INSERT`` are a delete and an insert at one position.

Known gaps: events of MySQL, PostgreSQL and SQL Server are documented by field names only. See
``docs/formats/datastream-json.md``.
"""

from typing import Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Op, Source, Tombstone
from changelane.formats.contract import json
from changelane.formats.contract.capabilities import JSON_TYPES, AbsentMeans, Carries
from changelane.formats.contract.column_values import Binary
from changelane.formats.contract.declared_tables import DeclaredTables
from changelane.formats.contract.format import Format, Report
from changelane.formats.datastream.decode import CONNECTOR, Reader
from changelane.formats.datastream.encode import encode
from changelane.formats.datastream.lanes import lanes_of
from changelane.message import Message
from changelane.schema import TableId
from changelane.types import (
    Decimal,
    Float,
    Year,
)

_TYPES: Final = JSON_TYPES | {Year}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``datastream-json``.

    Attributes:
        schemas: Table (or its last parts) -> column -> type text, with `` key`` after it for a
            column of the key.
        keys: Table -> key columns, for events without ``primary_keys``.
        binary: The text form of bytes.
    """

    schemas: dict[str, dict[str, str]] = {}
    keys: dict[str, list[str]] = {}
    binary: Binary = "base64"


class _ProbedMetadata(msgspec.Struct):
    is_deleted: bool | None = None
    change_type: str | None = None
    table: str | None = None


class _Probe(msgspec.Struct):
    read_method: str
    source_metadata: _ProbedMetadata
    payload: dict[str, object]


class Datastream:
    """The format ``datastream-json``."""

    carries: Final = Carries(
        operations=frozenset(Op),
        absent_means=AbsentMeans.NULL,
        types=_TYPES,
        forms=frozenset({(Float, "number"), (Decimal, "number")}),
        key=True,
        table=frozenset({"database", "schema", "name"}),
        positions=frozenset({"mysql", "postgresql", "scn", "lsn"}),
        # the rows of an event of the binary log, and the halves of an update
        shared_positions=frozenset({"mysql", "scn"}),
        transaction=frozenset({"id"}),
        source=frozenset({"product", "server", "snapshot"}),
        stamp=Source(connector=CONNECTOR),
        source_time="ms",
        process_time="ms",
        details=True,
    )

    def __init__(self, options: Options) -> None:
        self._options = options
        self._read = Reader(options.keys, DeclaredTables(options.schemas, options.binary))
        self.lanes: Final = lanes_of(self._read)

    def __reduce__(self) -> tuple[object, ...]:
        return (Datastream, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message with one event."""
        if message.value is None:
            return (Tombstone(TableId()),)
        return (self._read(message.value),)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode a row change as an event."""
        return (encode(event, report),)

    def detects(self, message: Message) -> bool:
        """Return whether a message has the metadata of an event of Datastream."""
        value = message.value
        if value is None or b'"read_method"' not in value:
            return False
        try:
            metadata = json.loads(value, _Probe).source_metadata
        except DecodeError:
            return False
        return metadata.change_type is not None or metadata.is_deleted is not None


def make(options: Options) -> Format:
    """Return the format.

    Raises:
        ConfigError: The option ``schemas`` is invalid.
    """
    return Datastream(options)
