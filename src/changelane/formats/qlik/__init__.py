# SPDX-License-Identifier: Apache-2.0
"""``qlik-json``: the JSON messages of Qlik Replicate, formerly Attunity Replicate.

Product: Qlik Replicate with a Kafka target (also Amazon MSK, Confluent Cloud, Kinesis), message
format JSON (https://help.qlik.com/en-US/replicate/Content/Replicate/Main/Kafka/). Versions studied:
"Metadata and data messages" and "The Replicate envelope" of 2018 to 2026, and published messages
of 2018 to 2023 from Oracle.

Sample::

    {"magic":"atMSG","type":"DT","headers":null,"messageSchemaId":null,"messageSchema":null,
     "message":{"data":{"ID":"2","NAME":"test Kafka"},"beforeData":{"ID":"2","NAME":"ok"},
      "headers":{"operation":"UPDATE","changeSequence":"20230911032325000000000000000000005",
       "timestamp":"2023-09-11T03:23:25.000",
       "streamPosition":"00000000.00bb2531.00000001.0000.02.0000:154.6963.16",
       "transactionId":"00000000000000000000000000060008","changeMask":"02","columnMask":"07",
       "transactionEventCounter":1,"transactionLastEvent":true}}}

Choices: the table is the topic, because messages do not name it; the position is
``changeSequence``; columns, their order, types and keys come from the option ``schemas``, because
only metadata messages have them, and a mask needs the order.

Known gaps: no metadata message and no message of a full load was available. See
``docs/formats/qlik-json.md``.
"""

import re
from typing import Final

import msgspec

from changelane.errors import ConfigError, DecodeError
from changelane.event import ChangeEvent, Op, Tombstone
from changelane.formats.contract.capabilities import TEXT_TYPES, AbsentMeans, Carries
from changelane.formats.contract.declared_tables import DeclaredTables
from changelane.formats.contract.format import Format, Report
from changelane.formats.qlik.decode import OPERATIONS, SOURCE, Reader, ReadOptions
from changelane.formats.qlik.encode import WriteOptions, Writer
from changelane.formats.qlik.lanes import lanes_of
from changelane.formats.qlik.wire import DataMessage, load
from changelane.message import Message
from changelane.schema import TableId
from changelane.types import (
    Bytes,
)

_MARKS: Final = (b'"atMSG"', b'"beforeData"', b'"tableStructure"')
"""Texts of which each message has one."""
_TABLE_FROM: Final = re.compile(r"topic|none|column:(.+)", re.DOTALL)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``qlik-json``.

    Attributes:
        table_from: The place of the table's name: ``topic``, ``column:NAME`` (a column that the
            task adds) or ``none``.
        tables: ``messageSchemaId`` -> name of the table, as in the metadata message of this id.
        schemas: Table (or its last parts) -> column -> type text, with `` key`` after it for a
            column of the key. The columns are in the order of their ordinals.
        envelope: Write the envelope around a message.
    """

    table_from: str = "topic"
    tables: dict[str, str] = {}
    schemas: dict[str, dict[str, str]] = {}
    envelope: bool = True


class Qlik:
    """The format ``qlik-json``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        match = _TABLE_FROM.fullmatch(options.table_from)
        if match is None:
            msg = f"table_from: {options.table_from!r} is none of topic, none and column:NAME"
            raise ConfigError(msg)
        column, has_topic = match[1] or "", options.table_from == "topic"
        tables = DeclaredTables(options.schemas)
        self.carries: Final = _carries(options)
        self._read = Reader(ReadOptions(has_topic, column, options.tables), tables)
        self.lanes: Final = lanes_of(self._read)
        self._write = Writer(WriteOptions(has_topic, column, tables.keys, options.envelope))

    def __reduce__(self) -> tuple[object, ...]:
        return (Qlik, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a data message or a metadata message."""
        if message.value is None:
            return (Tombstone(TableId()),)
        return (self._read(message.value, message.topic),)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode a row change as a data message."""
        return (self._write(event, report),)

    def detects(self, message: Message) -> bool:
        """Return whether a message has the envelope, or the headers of a data message."""
        value = message.value
        if value is None or not any(mark in value for mark in _MARKS):
            return False
        try:
            found = load(value).message
        except DecodeError:
            return False
        return not isinstance(found, DataMessage) or found.headers.operation in OPERATIONS


def _carries(options: Options) -> Carries:
    return Carries(
        operations=frozenset(Op),
        before=True,
        absent_means=AbsentMeans.NULL,
        types=TEXT_TYPES,
        forms=frozenset({(Bytes, "hex")}),
        key=bool(options.schemas),
        key_change=True,
        table=frozenset(() if options.table_from == "none" else ("schema", "name")),
        positions=frozenset({"sequence"}),
        transaction=frozenset({"id", "order", "last"}),
        source=frozenset({"snapshot"}),
        stamp=SOURCE,
        source_time="ms",
        details=True,
        text_only=True,
    )


def make(options: Options) -> Format:
    """Return the format."""
    return Qlik(options)
