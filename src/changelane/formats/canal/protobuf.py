# SPDX-License-Identifier: Apache-2.0
"""``canal-protobuf``: the binary messages of Alibaba Canal.

Product: Canal (https://github.com/alibaba/canal), ``canal.mq.flatMessage = false``. Versions
studied: the files ``CanalProtocol.proto`` and ``EntryProtocol.proto`` of 1.1.4 to 1.1.8, the
classes ``CanalMessageSerializerUtil`` and ``LogEventConvert``; messages that the classes of Canal
1.1.7 wrote.

Sample: the start of a packet of version 1 with messages, in hexadecimal digits::

    10 01 18 07 2a

Choices: a message of n rows is n events in the order of the rows, and the number of the row is part
of its position. Columns, texts and types are those of ``canal-json``; the before image is complete,
and the position is that of the binary log.

Known gaps: compressed packets are not read; see ``docs/formats/canal-protobuf.md``.
"""

from typing import Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Op, Tombstone
from changelane.formats.canal.decode import ReadOptions, RowImage
from changelane.formats.canal.dialects import BOOLEANS, DIALECTS, HIDDEN_COLUMNS, SOURCE
from changelane.formats.canal.entries import EntryReader
from changelane.formats.canal.entries_encode import EntryWriter
from changelane.formats.canal.table_plan import WriteOptions
from changelane.formats.contract.capabilities import AbsentMeans, Carries, Extreme, SchemaDetail
from changelane.formats.contract.format import Format, Report
from changelane.message import Message
from changelane.schema import TableId
from changelane.sql_types.mysql import TYPES
from changelane.types.scalars import parse_zone

__all__ = ["Options", "make"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``canal-protobuf``.

    Attributes:
        time_zone: The zone of TIMESTAMP values, which is that of Canal's JVM: a name of the time
            zone database or an offset such as ``+08:00``.
        drop_hidden: Omit the columns that RDS and DRDS add, unless they are the key.
        row_image: MySQL's ``binlog_row_image``: ``minimal``, also for ``NOBLOB``, if no update is a
            whole row; ``auto``, if an update that shows no missing column is one.
    """

    time_zone: str = "UTC"
    drop_hidden: bool = True
    row_image: RowImage = "auto"


_CARRIES: Final = Carries(
    operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
    kinds=frozenset({"schema", "truncate", "transaction", "watermark", "control"}),
    before=True,
    partial_before=True,
    absent=True,
    absent_means=AbsentMeans.UNCHANGED,
    schema=SchemaDetail.SOURCE_TYPES,
    types=TYPES,
    forms=BOOLEANS,
    extremes=frozenset({Extreme.TEMPORAL_TEXT}),
    key=True,
    key_change=True,
    table=frozenset({"database", "name"}),
    positions=frozenset({"mysql"}),
    transaction=frozenset({"id"}),
    stamp=SOURCE,
    source_time="ms",
    details=True,
    text_only=True,
)


class CanalProtobuf:
    """The format ``canal-protobuf``."""

    carries: Final = _CARRIES

    def __init__(self, options: Options) -> None:
        self._options = options
        zone = parse_zone(options.time_zone)
        dialect = DIALECTS["canal"]
        hidden = HIDDEN_COLUMNS if options.drop_hidden else ()
        self._read = EntryReader(ReadOptions(dialect, zone, hidden, options.row_image))
        self._write = EntryWriter(WriteOptions(dialect, zone)).write

    def __reduce__(self) -> tuple[object, ...]:
        return (CanalProtobuf, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message with any number of entries and rows."""
        if message.value is None:
            return (Tombstone(TableId()),)
        return self._read(message.value)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode an event as a message of one entry."""
        value = self._write(event, report)
        return () if value is None else (Message(value),)

    def detects(self, message: Message) -> bool:
        """Return whether a message is a packet of entries."""
        try:
            return bool(message.value) and bool(self.decode(message))
        except DecodeError:
            return False


def make(options: Options) -> Format:
    """Return the format.

    Raises:
        ConfigError: The zone is unknown.
    """
    return CanalProtobuf(options)
