# SPDX-License-Identifier: Apache-2.0
"""``canal-json``: the flat JSON messages of Alibaba Canal, and of those who write the same.

Product: Canal (https://github.com/alibaba/canal), ``canal.mq.flatMessage = true``; Alibaba Cloud
DTS with the Canal JSON format
(https://www.alibabacloud.com/help/en/dts/user-guide/data-formats-of-a-kafka-cluster).

Versions studied: Canal 1.1.4 to 1.1.8, DTS before and after 2022-03-20; messages of Flink CDC,
InLong and Tencent CKafka are accepted.

Sample::

    {"data":[{"id":"106","description":"18oz carpenter hammer"}],"database":"inventory",
     "es":1589373546000,"gtid":"","id":4,"isDdl":false,
     "mysqlType":{"id":"int(11)","description":"varchar(512)"},
     "old":[{"description":"16oz carpenter's hammer"}],"pkNames":["id"],"sql":"",
     "sqlType":{"id":4,"description":12},"table":"products","ts":1589373546301,"type":"UPDATE"}

Choices: one message of n rows is n events in the order of the rows. An update's before image is
``data`` overlaid with ``old``; without ``old`` it is not known. A column that is missing from
``data`` is absent, not NULL. The types come from ``mysqlType`` alone. A message without a value is
a tombstone of no table.

Known gaps: no positions (Canal sends none); keys beyond the fourteen are not kept; the protobuf
form (``flatMessage = false``) is not read. See ``docs/formats/canal-json.md``.
"""

from typing import Final

import msgspec

from changelane.carries import AbsentMeans, Carries, Extreme, SchemaDetail
from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Op, Tombstone
from changelane.format import Format, Report
from changelane.formats.canal import ddl
from changelane.formats.canal.decode import ROW_OPERATIONS, SOURCE, Reader, ReadOptions, load
from changelane.formats.canal.dialects import DIALECTS, HIDDEN_COLUMNS, DialectName
from changelane.formats.canal.encode import WriteOptions, Writer
from changelane.message import Message
from changelane.scalars import parse_zone
from changelane.schema import TableId
from changelane.source_types.mysql import TYPES


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``canal-json``.

    Attributes:
        dialect: Who writes or reads the messages; ``auto`` reads all and writes Canal's own.
        time_zone: The zone in which TIMESTAMP columns are written: that of Canal's JVM. A name of
            the time zone database or an offset such as ``+08:00``.
        drop_hidden: Leave out the columns that RDS and DRDS add, unless they are the key.
        gtid: Write the key ``gtid``, which Canal has since 1.1.7.
    """

    dialect: DialectName = "auto"
    time_zone: str = "UTC"
    drop_hidden: bool = True
    gtid: bool = True


class Canal:
    """See the module."""

    carries: Final = Carries(
        operations=frozenset(Op),
        kinds=frozenset({"schema", "truncate", "control"}),
        before=True,
        absent=True,
        absent_means=AbsentMeans.UNCHANGED,
        schema=SchemaDetail.SOURCE_TYPES,
        types=TYPES,
        extremes=frozenset({Extreme.NON_FINITE, Extreme.TEMPORAL_TEXT}),
        key=True,
        key_change=True,
        table=frozenset({"database", "name"}),
        stamp=SOURCE,
        source_time="ms",
        process_time="ms",
        details=True,
        text_only=True,
    )

    def __init__(self, options: Options) -> None:
        self._options = options
        dialect = DIALECTS[options.dialect]
        zone = parse_zone(options.time_zone)
        hidden = HIDDEN_COLUMNS if options.drop_hidden else ()
        self._read = Reader(ReadOptions(dialect, zone, hidden))
        self._write = Writer(WriteOptions(dialect, zone, options.gtid))

    def __reduce__(self) -> tuple[object, ...]:
        return (Canal, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Read a message of any number of rows."""
        if message.value is None:
            return (Tombstone(TableId()),)
        return self._read(message.value)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Write an event as a message of one row."""
        value = self._write(event, report)
        return () if value is None else (Message(value),)

    def detects(self, message: Message) -> bool:
        """Say whether a message looks like Canal's."""
        if message.value is None:
            return False
        try:
            flat = load(message.value)
        except DecodeError:
            return False
        if flat.type in ROW_OPERATIONS and (flat.data or flat.old):
            return True
        return flat.isDdl is not None and (flat.type in ddl.ACTIONS or flat.sql is not None)


def make(options: Options) -> Format:
    """Return the format."""
    return Canal(options)
