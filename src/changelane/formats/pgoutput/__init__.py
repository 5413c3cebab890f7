# SPDX-License-Identifier: Apache-2.0
"""``pgoutput``: the bytes of PostgreSQL's own output plugin for logical replication.

Product: PostgreSQL
(https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html). Versions
studied: protocol 1 to 4 by the manual; 1 to 3 with messages of PostgreSQL 15 that were captured for
this project.

Sample: a relation, and an insert into it, as hexadecimal digits::

    5200004036 7075626c696300 636f6d706f7369746500 64 0002 01 6100 00000017 ffffffff ...
    4900004036 4e 0002 74 00000001 38 74 00000001 6b

Choices: a row is decoded with its relation, which an earlier message has. A message of this format
is one or several messages of pgoutput; :meth:`PgOutput.decode` needs the relation in the same
message, and :meth:`PgOutput.open_stream` reads the messages of a stream in their order. The writer
writes the first kind. A position is the LSN of the commit and the number of the change in it.

Known gaps: values in binary form of types without a logical type are not read. See
``docs/formats/pgoutput.md``.
"""

from typing import Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Op, Tombstone
from changelane.formats.contract.capabilities import Carries, Extreme, SchemaDetail
from changelane.formats.contract.format import Format, Report
from changelane.formats.contract.postgres_text import TYPES
from changelane.formats.pgoutput.decode import Stream
from changelane.formats.pgoutput.encode import Writer
from changelane.formats.pgoutput.relations import Relations
from changelane.formats.pgoutput.transactions import SOURCE
from changelane.message import Message
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``pgoutput``.

    Attributes:
        keys: Table (or its last parts) -> columns of its key, for tables whose replica identity is
            not the primary key.
        max_streamed_rows: The maximum number of rows of streamed and prepared transactions that
            wait for their commit.
    """

    keys: dict[str, list[str]] = {}
    max_streamed_rows: int = 1_000_000


class PgOutput:
    """The format ``pgoutput``."""

    carries: Final = Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        kinds=frozenset({"truncate", "transaction", "message"}),
        before=True,
        partial_before=True,
        unavailable=True,
        schema=SchemaDetail.SOURCE_TYPES,
        types=TYPES,
        extremes=frozenset(Extreme),
        key=True,
        key_change=True,
        table=frozenset({"schema", "name"}),
        positions=frozenset({"sequence"}),
        transaction=frozenset({"id"}),
        stamp=SOURCE,
        source_time="us",
        text_only=True,
    )

    def __init__(self, options: Options) -> None:
        self._options = options
        self._relations = Relations(options.keys)
        self._write = Writer()

    def __reduce__(self) -> tuple[object, ...]:
        return (PgOutput, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message that has all relations of its rows."""
        if message.value is None:
            return (Tombstone(TableId()),)
        stream = Stream(self._relations, self._options.max_streamed_rows, is_alone=True)
        events = stream.read(message.value, message.key)
        stream.check_end()
        return events

    def open_stream(self) -> "PgOutputStream":
        """Return the decoder of the messages of one stream in their order."""
        return PgOutputStream(Stream(self._relations, self._options.max_streamed_rows))

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode an event as a message with the relations of its rows."""
        return self._write(event, report)

    def detects(self, message: Message) -> bool:
        """Return whether a message consists of messages of pgoutput."""
        if message.value is None or len(message.value) < _SHORTEST:
            return False
        try:
            self.open_stream().decode(message)
        except DecodeError as error:
            return error.code is ReasonCode.UNKNOWN_RELATION
        return True


_SHORTEST: Final = 6
"""The bytes of the shortest message with a body."""


class PgOutputStream:
    """The decoder of one stream (:class:`~changelane.formats.contract.format.StreamDecoder`)."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode the next message of the stream."""
        if message.value is None:
            return (Tombstone(TableId()),)
        return self._stream.read(message.value, message.key)


def make(options: Options) -> Format:
    """Return the format."""
    return PgOutput(options)
