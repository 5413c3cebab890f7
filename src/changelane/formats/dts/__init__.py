# SPDX-License-Identifier: Apache-2.0
r"""``dts-avro``: the records of Alibaba Cloud Data Transmission Service (DTS) in Avro.

Product: DTS, "DTS Avro" in a Kafka cluster
(https://www.alibabacloud.com/help/en/dts/user-guide/data-formats-of-a-kafka-cluster) and in a
change tracking (subscription) topic; producers built on ``dts-deliver-sdk``. Schema:
https://github.com/LioRoger/subscribe_example (``avro/Record.avsc``).

Versions studied: both versions of the schema, without and (since 2020-06) with ``bornTimestamp``;
``aliyun-dts-subscribe-sdk-java`` (master and master-fast-deserialize), ``dts-deliver-sdk``.

A message is one record in Avro's binary form, without magic byte, schema id and container. Sample,
in JSON::

    {"version":0,"id":1700382,"sourceTimestamp":1696984408,"sourcePosition":"72469@78",
     "safeSourcePosition":"72347@78","sourceTxid":"0",
     "source":{"sourceType":"MySQL","version":"8.0.28"},"operation":"INSERT",
     "objectName":"mydb.t1","processTimestamps":null,
     "tags":{"pk_uk_info":"{\"PRIMARY\":[\"a\"]}","readerThroughoutTime":"1696984408050"},
     "fields":[{"name":"a","dataTypeNumber":8},{"name":"b","dataTypeNumber":253}],
     "beforeImages":null,
     "afterImages":[{"Integer":{"precision":8,"value":"123456789"}},
                    {"Character":{"charset":"utf8mb4","value":"test insert statement."}}],
     "bornTimestamp":1696984408}

Choices: ``NONE`` is a missing column. A value of at most two bytes only pushes the offset and gives
no event. The number of a column gives its type. A value of another branch has the type of its
branch, so a column of NULLs may have another type. Records are written in version 2 of the schema.

Known gaps: the form of positions of other sources than MySQL is not published, so they are text.
The form of message keys is not published, either. See ``docs/formats/dts-avro.md``.
"""

from typing import Final, Literal

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Op, Source
from changelane.formats.contract.avro_binary import NOT_A_DATUM
from changelane.formats.contract.capabilities import AbsentMeans, Carries, Extreme, SchemaDetail
from changelane.formats.contract.format import Format, Report
from changelane.formats.dts.branches import TYPES
from changelane.formats.dts.decode import CONNECTOR, Reader, ReadOptions
from changelane.formats.dts.encode import WriteOptions, Writer
from changelane.formats.dts.lanes import DtsLanes
from changelane.formats.dts.record import read_head
from changelane.message import Message

FILLER_BYTES: Final = 2
"""Values up to this length only push the offset of their topic."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``dts-avro``.

    Attributes:
        binlog_prefix: The name of MySQL's binary log files, of which records have the numbers only.
        message_key: The key of a row's message: none, or the texts of its primary key with commas
            between them. The key that DTS itself writes is not documented.
        strict: Reject bytes after a record. Otherwise they are counted and left out.
    """

    binlog_prefix: str = "mysql-bin"
    message_key: Literal["none", "primary_key"] = "none"
    strict: bool = False


class Dts:
    """See the module."""

    carries: Final = Carries(
        operations=frozenset(Op),
        kinds=frozenset({"schema", "truncate", "transaction", "watermark", "control"}),
        before=True,
        partial_before=True,
        key_change_partial=True,
        absent=True,
        absent_means=AbsentMeans.UNCHANGED,
        schema=SchemaDetail.SOURCE_TYPES,
        untyped_nulls=True,
        types=TYPES,
        extremes=frozenset(Extreme),
        key=True,
        key_change=True,
        table=frozenset({"database", "schema", "name"}),
        positions=frozenset({"mysql"}),
        shared_positions=frozenset({"mysql"}),  # without the number of the row in its event
        transaction=frozenset({"id"}),
        source=frozenset({"product", "snapshot"}),
        stamp=Source(connector=CONNECTOR),
        source_time="ms",
        process_time="ms",
        details=True,
        text_only=True,
    )

    def __init__(self, options: Options) -> None:
        self._options = options
        self._read = Reader(ReadOptions(options.binlog_prefix, options.strict))
        self.lanes = DtsLanes(self._read)
        self._write = Writer(WriteOptions(options.binlog_prefix, options.message_key))

    def __reduce__(self) -> tuple[object, ...]:
        return (Dts, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Read a record. A filler gives no event."""
        if message.value is None or len(message.value) <= FILLER_BYTES:
            return ()
        return self._read(message.value)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Write an event as a record."""
        return self._write(event, report)

    def detects(self, message: Message) -> bool:
        """Return whether a message is a record to its last byte, with a source position.

        The first byte proves nothing: version 0 looks like the magic byte of a schema registry.
        """
        value = message.value
        if value is None or len(value) <= FILLER_BYTES:
            return False
        try:
            head, _ = read_head(value)
            return bool(head.sourcePosition) and bool(_STRICT(value))
        except (DecodeError, *NOT_A_DATUM):
            return False


_STRICT: Final = Reader(ReadOptions(is_strict=True))


def make(options: Options) -> Format:
    """Return the format."""
    return Dts(options)
