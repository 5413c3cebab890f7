# SPDX-License-Identifier: Apache-2.0
"""``wal2json``: the JSON of PostgreSQL's output plugin wal2json, versions 1 and 2 of its format.

Product: wal2json (https://github.com/eulerto/wal2json). Versions studied: 2.5 with PostgreSQL 15,
by messages captured for this project, and the regression tests of the plugin.

Sample (version 2)::

    {"action":"U","xid":733,"timestamp":"2026-11-26 13:39:12.399065+00","lsn":"0/152E168",
     "schema":"public","table":"orders","columns":[{"name":"id","type":"integer","value":1},
      {"name":"state","type":"text","value":"paid"}],
     "identity":[{"name":"id","type":"integer","value":1}]}

Choices: an update lists the columns that it sends, because the plugin omits an unchanged TOAST
column together with its type; so its schema may be a part of the table. The position is the LSN of
the row (version 2), or the end of the commit and the number of the change in it (version 1). A
stream of messages has the LSN of the commit, and the columns of earlier inserts.

Known gaps: defaults, type numbers, positions of columns and origins are not read. See
``docs/formats/wal2json.md``.
"""

from typing import Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Op, Tombstone
from changelane.formats.contract.capabilities import Carries, Extreme, SchemaDetail
from changelane.formats.contract.format import Format, Report
from changelane.formats.contract.postgres_text import TYPES, DateOrder
from changelane.formats.wal2json.decode import ACTIONS, KINDS, SOURCE, Reader
from changelane.formats.wal2json.encode import Writer
from changelane.formats.wal2json.lanes import lanes_of
from changelane.formats.wal2json.stream import Stream
from changelane.formats.wal2json.wire import Action, Change, ChangeSet, load
from changelane.message import Message
from changelane.schema import TableId


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``wal2json``.

    Attributes:
        keys: Table (or its last parts) -> columns of its key, for messages without ``pk``.
        date_order: The order of the numbers in dates, if the server's ``DateStyle`` is not ISO.
    """

    keys: dict[str, list[str]] = {}
    date_order: DateOrder = "ymd"


class Wal2Json:
    """The format ``wal2json``."""

    carries: Final = Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        kinds=frozenset({"truncate", "transaction", "message"}),
        before=True,
        partial_before=True,
        absent=True,
        unavailable=True,
        partial_after=True,
        partial_schema=True,
        schema=SchemaDetail.SOURCE_TYPES,
        types=TYPES,
        extremes=frozenset({Extreme.TEMPORAL_TEXT}),
        key=True,
        key_change=True,
        table=frozenset({"schema", "name"}),
        positions=frozenset({"sequence"}),
        shared_positions=frozenset({"sequence"}),
        transaction=frozenset({"id"}),
        stamp=SOURCE,
        source_time="us",
        text_only=True,
    )

    def __init__(self, options: Options) -> None:
        self._options = options
        self._read = Reader(options.keys, options.date_order)
        self._write = Writer()
        self.lanes = lanes_of(self._read)

    def __reduce__(self) -> tuple[object, ...]:
        return (Wal2Json, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message: one event, or those of a transaction (version 1)."""
        if message.value is None:
            return (Tombstone(TableId()),)
        return self._read(message.value)

    def open_stream(self) -> Stream:
        """Return the decoder of the messages of one stream in their order."""
        return Stream(self._read)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode an event as a message of version 2."""
        return self._write(event, report)

    def detects(self, message: Message) -> bool:
        """Return whether a message looks like one of wal2json."""
        if message.value is None:
            return False
        try:
            loaded = load(message.value)
        except DecodeError:
            return False
        match loaded:
            case Action():
                return loaded.action in ACTIONS
            case Change():
                return loaded.kind in KINDS
            case ChangeSet():
                return all(change.kind in KINDS for change in loaded.change or ())
            case None:
                return False


def make(options: Options) -> Format:
    """Return the format."""
    return Wal2Json(options)
