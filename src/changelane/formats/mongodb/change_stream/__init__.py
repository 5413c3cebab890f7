# SPDX-License-Identifier: Apache-2.0
r"""``mongodb-change-stream-json``: the events of MongoDB's change streams in Extended JSON.

Product: MongoDB (https://www.mongodb.com/docs/manual/reference/change-events/), and its Kafka
connector as a source (https://www.mongodb.com/docs/kafka-connector/current/source-connector/).
Versions studied: the manual of 4.0 to 8.2, the connector's source of 1.0 to 2.0, and published
messages of the connector with MongoDB 4.2 to 7.

Sample::

    {"_id":{"_data":"82636D39C8000000012B022C0100296E5A100444B0F5E386F04767814F28CB4AAE7FEE4664..."},
     "operationType":"update","clusterTime":{"$timestamp":{"t":1668102600,"i":1}},
     "wallTime":{"$date":1668102600716},"ns":{"db":"shop","coll":"orders"},
     "documentKey":{"_id":{"$oid":"636d399b732dbb998fa8d67e"}},
     "updateDescription":{"updatedFields":{"total":105},"removedFields":[],"truncatedArrays":[]},
     "fullDocument":{"_id":{"$oid":"636d399b732dbb998fa8d67e"},"total":105}}

Choices: a row is one document in canonical Extended JSON and its ``_id`` (option ``documents``);
the position is the cluster time, and the number of the change in its transaction by the resume
token; an update without its document is rejected, unless fields are columns.

Known gaps: events about collections change no table. See
``docs/formats/mongodb-change-stream-json.md``.
"""

from typing import Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Op, Tombstone
from changelane.formats.contract.capabilities import AbsentMeans, Carries
from changelane.formats.contract.format import Format, Report
from changelane.formats.mongodb.change_stream.decode import KINDS, SOURCE, Reader
from changelane.formats.mongodb.change_stream.encode import Writer
from changelane.formats.mongodb.change_stream.fragments import Stream
from changelane.formats.mongodb.change_stream.lanes import lanes_of
from changelane.formats.mongodb.change_stream.wire import load
from changelane.formats.mongodb.documents import Form
from changelane.message import Message
from changelane.schema import TableId
from changelane.types import Boolean, Decimal, Float, Integer, Json, String

__all__ = ["Options", "make"]

_MARK: Final = b"operationType"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``mongodb-change-stream-json``.

    Attributes:
        documents: The form of rows: ``json``, the columns ``_id`` and ``document``; ``columns``, a
            column for each top-level field.
    """

    documents: Form = "json"


class ChangeStream:
    """The format ``mongodb-change-stream-json``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._read = Reader(options.documents)
        self._write = Writer(options.documents)
        is_document = options.documents == "json"
        self.lanes: Final = lanes_of(self._read) if is_document else None
        self.carries: Final = Carries(
            operations=frozenset(Op),
            before=True,
            absent=not is_document,
            absent_means=AbsentMeans.UNCHANGED if is_document else AbsentMeans.NULL,
            types=frozenset({Boolean, Integer, Json, String}),
            forms=frozenset({(Float, "number"), (Decimal, "number")}),
            key=True,
            table=frozenset({"database", "name"}),
            positions=frozenset({"sequence"}),
            shared_positions=frozenset({"sequence"}),  # two shards may have one cluster time
            transaction=frozenset({"id"}),
            source=frozenset({"snapshot"}),
            stamp=SOURCE,
            source_time="ms",
            details=True,
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (ChangeStream, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode an event, or a tombstone."""
        if message.value is None:
            return (Tombstone(TableId()),)
        return (self._read(load(message.value)),)

    def open_stream(self) -> Stream:
        """Return the decoder of the messages of one stream in their order."""
        return Stream(self._read)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode a row change."""
        return (self._write(event, report),)

    def detects(self, message: Message) -> bool:
        """Return whether a message is an event of a change stream."""
        value = message.value
        if value is None or _MARK not in value:
            return False
        try:
            fields = load(value)
        except DecodeError:
            return False
        is_event = "clusterTime" in fields or "documentKey" in fields
        return is_event and fields.get("operationType") in KINDS


def make(options: Options) -> Format:
    """Return the format."""
    return ChangeStream(options)
