# SPDX-License-Identifier: Apache-2.0
r"""``debezium-mongodb-json``: the messages of Debezium's connector for MongoDB.

Product: Debezium (https://debezium.io/documentation/reference/stable/connectors/mongodb.html).
Versions studied: the documentation of 1.9 to 3.0, and published messages of 2.7.

Sample::

    {"before":null,
     "after":"{\"_id\": {\"$oid\": \"67ab25755c0d5ac87eb8c632\"},\"by\": \"peter\"}",
     "updateDescription":null,
     "source":{"version":"2.7.0.Final","connector":"mongodb","name":"shop","ts_ms":1739321992000,
      "snapshot":"false","db":"shop","sequence":null,"ts_us":1739321992000000,
      "ts_ns":1739321992000000000,"collection":"orders","ord":28,"lsid":null,"txnNumber":null,
      "wallTime":null},
     "op":"u","ts_ms":1739321992890,"transaction":null}

Choices: a row is one document in canonical Extended JSON and its ``_id`` (option ``documents``);
the position is the time and the number of the entry in the oplog; an update without its document
is rejected, unless fields are columns.

Known gaps: changes of one transaction share a position. See
``docs/formats/debezium-mongodb-json.md``.
"""

from typing import Final

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Op, Source
from changelane.formats.contract.capabilities import AbsentMeans, Carries
from changelane.formats.contract.format import Format, Report
from changelane.formats.debezium_envelope.registry.options import SerdeOptions
from changelane.formats.debezium_envelope.registry.registry_format import with_serde
from changelane.formats.mongodb.debezium.decode import CONNECTOR, OPERATIONS, PRODUCT, Reader
from changelane.formats.mongodb.debezium.encode import Writer
from changelane.formats.mongodb.debezium.lanes import lanes_of
from changelane.formats.mongodb.debezium.wire import load
from changelane.formats.mongodb.documents import Form
from changelane.message import Message
from changelane.types import Boolean, Decimal, Float, Integer, Json, String


class Options(SerdeOptions, frozen=True, kw_only=True):
    """Options of ``debezium-mongodb-json``, beside those of its serde.

    Attributes:
        documents: The form of rows: ``json``, the columns ``_id`` and ``document``; ``columns``, a
            column for each top-level field.
    """

    documents: Form = "json"


class DebeziumMongoDb:
    """The format ``debezium-mongodb-json``."""

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
            shared_positions=frozenset({"sequence"}),
            transaction=frozenset({"id", "order", "table_order"}),
            source=frozenset({"server", "version", "snapshot"}),
            stamp=Source(product=PRODUCT, connector=CONNECTOR),
            source_time="ms",
            process_time="ms",
            details=True,
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (DebeziumMongoDb, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a change, a tombstone, or a message that is no change."""
        return self._read(message)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode a row change."""
        return self._write(event, report)

    def detects(self, message: Message) -> bool:
        """Return whether a message is a change of the connector for MongoDB."""
        value = message.value
        if value is None or b'"collection"' not in value:
            return False
        try:
            envelope = load(value)
        except (DecodeError, RecursionError):
            return False
        return (
            envelope is not None
            and envelope.source.get("connector") == PRODUCT
            and envelope.op in OPERATIONS
        )


def make(options: Options) -> Format:
    """Return the format."""
    return with_serde(make, options, DebeziumMongoDb(options))
