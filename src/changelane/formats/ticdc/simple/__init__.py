# SPDX-License-Identifier: Apache-2.0
"""``ticdc-simple-json``: the messages of TiCDC's simple protocol, in JSON and in Avro.

Product: TiCDC 8.0 and newer (https://docs.pingcap.com/tidb/stable/ticdc-simple-protocol), with
``protocol = "simple"`` and ``encoding-format`` ``json`` or ``avro``. Versions studied: the
documentation of 8.5 and the packages ``pkg/sink/codec/simple`` of
https://github.com/pingcap/tiflow and https://github.com/pingcap/ticdc.

Sample::

    {"version":1,"database":"simple","table":"user","tableID":148,"type":"UPDATE",
     "commitTs":447984099186180098,"buildTs":1708923719184,"schemaVersion":447984074911121426,
     "data":{"age":"25","id":"1","name":"John Doe","score":"95"},
     "old":{"age":"25","id":"1","name":"John Doe","score":"90.5"}}

Choices: rows have no types and no key; the option ``table_schemas`` declares both, as the messages
of the type BOOTSTRAP describe them, and in a stream these messages themselves do. A row of another
table has the values of its message.

Known gaps: rows outside of the message, compressed messages. See
``docs/formats/ticdc-simple-json.md``.
"""

from typing import Any, Final, Literal

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Op, Tombstone
from changelane.formats.contract.capabilities import TEXT_TYPES, AbsentMeans, Carries
from changelane.formats.contract.format import Format, Report
from changelane.formats.ticdc import SOURCE
from changelane.formats.ticdc.simple.avro import AVRO_STARTS
from changelane.formats.ticdc.simple.decode import TYPES, Reader, load_message
from changelane.formats.ticdc.simple.encode import Writer
from changelane.formats.ticdc.simple.lanes import lanes_of
from changelane.formats.ticdc.simple.stream import Stream
from changelane.formats.ticdc.simple.tables import Tables, Timestamps
from changelane.message import Message
from changelane.schema import TableId
from changelane.types import Boolean, Timestamp

__all__ = ["Options", "make"]

_MARK: Final = b'"version"'


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``ticdc-simple-json``.

    Attributes:
        table_schemas: The tables, as ``tableSchema`` in messages of the type BOOTSTRAP and of
            statements describes them: an object for each table and version.
        verify_checksums: Compare the rows of declared tables with their checksums, if the messages
            have them.
        encoding_format: The form of written messages; both are read.
    """

    table_schemas: tuple[dict[str, Any], ...] = ()
    verify_checksums: bool = True
    encoding_format: Literal["json", "avro"] = "json"


class TicdcSimple:
    """The format ``ticdc-simple-json``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        timestamps = self._timestamps = Timestamps()
        tables = self._tables = Tables(options.table_schemas, timestamps)
        self.carries: Final = _carries(has_tables=bool(tables))
        self._read = Reader(tables.find, timestamps, verifies=options.verify_checksums)
        self._write = Writer(tables, is_avro=options.encoding_format == "avro")
        self.lanes = lanes_of(self._read)

    def __reduce__(self) -> tuple[object, ...]:
        return (TicdcSimple, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message with one event."""
        if message.value is None:
            return (Tombstone(TableId()),)
        return (self._read(message.value),)

    def open_stream(self) -> Stream:
        """Return the decoder of the messages of one stream in their order."""
        return Stream(self._tables, self._timestamps, verifies=self._options.verify_checksums)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode an event as a message."""
        return self._write(event, report)

    def detects(self, message: Message) -> bool:
        """Return whether a message looks like one of the simple protocol."""
        value = message.value
        if not value or (_MARK not in value and value[:1] not in AVRO_STARTS):
            return False
        try:
            found = load_message(value)
        except DecodeError:
            return False
        has_content = (found.commitTs, found.data, found.old, found.tableSchema, found.sql)
        return found.type in TYPES and any(part is not None for part in has_content)


def _carries(*, has_tables: bool) -> Carries:
    return Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        kinds=frozenset({"schema", "truncate", "watermark"}),
        before=True,
        absent_means=AbsentMeans.ERROR,
        types=TEXT_TYPES,
        forms=frozenset({(Boolean, "tinyint_text"), (Timestamp, "sql")}),
        key=has_tables,
        key_change=True,
        table=frozenset({"database", "name"}),
        positions=frozenset({"sequence"}),
        shared_positions=frozenset({"sequence"}),  # all changes of a transaction share a time stamp
        stamp=SOURCE,
        source_time="ms",
        process_time="ms",
        details=True,
        text_only=True,
    )


def make(options: Options) -> Format:
    """Return the format.

    Raises:
        ConfigError: A declared schema is not one of TiCDC.
    """
    return TicdcSimple(options)
