# SPDX-License-Identifier: Apache-2.0
"""``canal-json``: the flat JSON messages of Alibaba Canal, and of products with the same messages.

Product: Canal (https://github.com/alibaba/canal), ``canal.mq.flatMessage = true``; Alibaba Cloud
DTS with the Canal JSON format
(https://www.alibabacloud.com/help/en/dts/user-guide/data-formats-of-a-kafka-cluster).

Versions studied: Canal 1.1.4 to 1.1.8, DTS before and after 2022-03-20, TiCDC before and since 5.4,
Flink, InLong, Huawei DRS and Tencent CKafka as documented; messages of Flink CDC are accepted.

Sample::

    {"data":[{"id":"106","description":"18oz carpenter hammer"}],"database":"inventory",
     "es":1589373546000,"gtid":"","id":4,"isDdl":false,
     "mysqlType":{"id":"int(11)","description":"varchar(512)"},
     "old":[{"description":"16oz carpenter's hammer"}],"pkNames":["id"],"sql":"",
     "sqlType":{"id":4,"description":12},"table":"products","ts":1589373546301,"type":"UPDATE"}

Choices: a message of n rows is n events in the order of the rows. The before image of an update is
``data`` overlaid with ``old``; without ``old`` it is unknown. A column that is missing from
``data`` is absent, not NULL. The types come from ``mysqlType`` alone. A message without a value is
a tombstone without a table.

Known gaps: only TiCDC sends positions; compressed values are not read. The binary form
(``flatMessage = false``) is ``canal-protobuf``. See ``docs/formats/canal-json.md``.
"""

from functools import partial
from typing import Literal

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, DataChange, Op, Tombstone
from changelane.formats.canal import ddl
from changelane.formats.canal.decode import ROW_OPERATIONS, Reader, ReadOptions, RowImage, load
from changelane.formats.canal.dialects import DIALECTS, HIDDEN_COLUMNS, DialectName, carries
from changelane.formats.canal.encode import Writer
from changelane.formats.canal.lanes import CanalLanes
from changelane.formats.canal.row_writing import row_writing
from changelane.formats.canal.table_plan import WriteOptions
from changelane.formats.contract.format import Format, Report
from changelane.message import Message
from changelane.schema import TableId
from changelane.types.scalars import parse_zone


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``canal-json``.

    Attributes:
        dialect: The product that writes or reads the messages; ``auto`` reads all of them and
            writes Canal's own.
        time_zone: The zone of TIMESTAMP values, which is that of Canal's JVM: a name of the time
            zone database or an offset such as ``+08:00``.
        drop_hidden: Omit the columns that RDS and DRDS add, unless they are the key.
        gtid: Write the key ``gtid``, which Canal has since 1.1.7.
        row_image: MySQL's ``binlog_row_image``: ``minimal``, also for ``NOBLOB``, if an update may
            lack unchanged columns; ``auto``, if it is a whole row.
        snapshot_type: The written type of a snapshot read. Canal has no full load and so no
            ``INIT``; readers of Canal's own types need ``INSERT``.
    """

    dialect: DialectName = "auto"
    time_zone: str = "UTC"
    drop_hidden: bool = True
    gtid: bool = True
    row_image: RowImage = "auto"
    snapshot_type: Literal["INIT", "INSERT"] = "INIT"


class Canal:
    """The format ``canal-json``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        dialect = DIALECTS[options.dialect]
        if options.snapshot_type == "INSERT":
            dialect = msgspec.structs.replace(dialect, operations=dialect.operations - {Op.READ})
        self._dialect = dialect
        self.carries = carries(dialect)
        zone = parse_zone(options.time_zone)
        hidden = HIDDEN_COLUMNS if options.drop_hidden else ()
        read_options = ReadOptions(dialect, zone, hidden, options.row_image)
        self._read = Reader(read_options)
        self.lanes = CanalLanes(self._read, read_options)
        writer = Writer(WriteOptions(dialect, zone, options.gtid))
        self._write = writer.write
        self.row_writing = partial(row_writing, writer, dialect)

    def __reduce__(self) -> tuple[object, ...]:
        return (Canal, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message with any number of rows."""
        if message.value is None:
            return (Tombstone(TableId()),)
        try:
            return self._read(message.value)
        except DecodeError:
            # a file of TiCDC has one message in each line
            lines = [line for line in message.value.split(b"\r\n") if line.strip()]
            if len(lines) < 2:
                raise
        return tuple(event for line in lines for event in self._read(line))

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode an event as a message of one row."""
        messages = []
        for part in self._parts(event, report):
            value = self._write(part, report)
            if value is not None:
                messages.append(Message(value))
        return tuple(messages)

    def _parts(self, event: ChangeEvent, report: Report) -> tuple[ChangeEvent, ...]:
        if not self._dialect.splits_updates:
            return (event,)
        if not isinstance(event, DataChange) or event.op is not Op.UPDATE:
            return (event,)
        report(("operation:u", "written as a delete and an insert"))
        insert = msgspec.structs.replace(event, op=Op.CREATE, before=None)
        if event.before is None:
            return (insert,)
        return msgspec.structs.replace(event, op=Op.DELETE, after=None), insert

    def detects(self, message: Message) -> bool:
        """Return whether a message looks like Canal's."""
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
