# SPDX-License-Identifier: Apache-2.0
"""``spanner-json``: the records of Cloud Spanner's change streams.

Product: Spanner, change streams read by SQL, and Google's Dataflow template to Pub/Sub
(https://cloud.google.com/spanner/docs/change-streams/details). Versions studied: "Change streams
partitions, records, and queries" of 2022 to 2026, and Apache Beam's class ``DataChangeRecord``.

Sample::

    {"commit_timestamp":"2022-09-27T12:30:00.123456Z","record_sequence":"00000000",
     "server_transaction_id":"6329047911","is_last_record_in_transaction_in_partition":true,
     "table_name":"AccountBalance",
     "column_types":[{"name":"AccountId","type":{"code":"STRING"},"is_primary_key":true,
       "ordinal_position":1},{"name":"Balance","type":{"code":"INT64"},"is_primary_key":false,
       "ordinal_position":3}],
     "mods":[{"keys":{"AccountId":"Id1"},"new_values":{"Balance":"1000"},
       "old_values":{"Balance":"1500"}}],
     "mod_type":"UPDATE","value_capture_type":"OLD_AND_NEW_VALUES",
     "number_of_records_in_transaction":2,"number_of_partitions_in_transaction":2,
     "transaction_tag":"app=banking","is_system_transaction":false}

Choices: a mod is an event; an update whose type of capture has only the changed columns lists
these in its schema, and is no whole row; the position is the commit time, the number of the record
and the place of the mod.

Known gaps: no record was captured; the spelling of the template is that of Beam's class. See
``docs/formats/spanner-json.md``.
"""

from typing import Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Tombstone
from changelane.formats.contract.capabilities import Carries, Extreme, SchemaDetail
from changelane.formats.contract.format import Format, Report
from changelane.formats.spanner.decode import OPERATIONS, SOURCE, Reader
from changelane.formats.spanner.encode import encode
from changelane.formats.spanner.lanes import lanes_of
from changelane.formats.spanner.wire import load
from changelane.message import Message
from changelane.schema import TableId
from changelane.types import (
    Array,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Float,
    InstantType,
    Integer,
    Json,
    LogicalType,
    String,
    Uuid,
)

_TYPES: Final[frozenset[type[LogicalType]]] = frozenset(
    {Array, Boolean, Bytes, Date, Decimal, Float, InstantType, Integer, Json, String, Uuid}
)
_MARKS: Final = (b'"mods"', b'_record"', b'Record"')
"""Texts of which each message has one."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """``spanner-json`` has no options."""


class Spanner:
    """The format ``spanner-json``."""

    carries: Final = Carries(
        operations=frozenset(OPERATIONS.values()),
        before=True,
        partial_before=True,
        absent=True,
        partial_after=True,
        partial_schema=True,
        schema=SchemaDetail.SOURCE_TYPES,
        types=_TYPES,
        # times with nanoseconds are text
        extremes=frozenset({Extreme.NON_FINITE, Extreme.TEMPORAL_TEXT}),
        key=True,
        table=frozenset({"schema", "name"}),
        positions=frozenset({"sequence"}),
        # transactions that change different rows may have one commit time
        shared_positions=frozenset({"sequence"}),
        transaction=frozenset({"id"}),
        stamp=SOURCE,
        source_time="ns",
        details=True,
    )

    def __init__(self) -> None:
        self._read = Reader()
        self.lanes = lanes_of(self._read)

    def __reduce__(self) -> tuple[object, ...]:
        return (Spanner, ())

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message with one record, or several."""
        if message.value is None:
            return (Tombstone(TableId()),)
        return self._read(message.value)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode a row change as a data change record."""
        return (encode(event, report),)

    def detects(self, message: Message) -> bool:
        """Return whether a message has a record of a change stream."""
        value = message.value
        if value is None or not any(mark in value for mark in _MARKS):
            return False
        try:
            records = load(value)
        except (DecodeError, RecursionError):
            return False
        return any(
            loaded.record is None or loaded.record.mod_type in OPERATIONS for loaded in records
        )


def make(_options: Options) -> Format:
    """Return the format."""
    return Spanner()
