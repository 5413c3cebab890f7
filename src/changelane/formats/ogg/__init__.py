# SPDX-License-Identifier: Apache-2.0
"""``ogg-json``: the JSON messages of Oracle GoldenGate for Big Data.

Product: Oracle GoldenGate for Big Data (now for Distributed Applications and Analytics), formatters
``json`` and ``json_row``
(https://docs.oracle.com/goldengate/bd123110/gg-bd/GADBD/using-pluggable-formatters.htm).

Versions studied: 12.2 to 23, by the pages on the formatters and the Kafka handler; the messages are
those of the documentation and of the tests of Apache Flink.

Sample::

    {"table":"QASOURCE.TCUSTORD","op_type":"U","op_ts":"2015-11-05 18:45:39.000000",
     "current_ts":"2016-10-05T10:15:51.310002","pos":"00000000000000004300",
     "before":{"CUST_CODE":"BILL","ORDER_ID":765,"PRODUCT_PRICE":15000.00},
     "after":{"CUST_CODE":"BILL","ORDER_ID":765,"PRODUCT_PRICE":14000.00}}

Choices: a column that is missing from an update is unchanged, because trails have compressed
updates. ``pos`` is the position. Times have no zone: they are details, unless an option states the
zone. Messages carry no types, and do not name the source database.

Known gaps: messages of the Kafka Connect handler, and fields that a template renames, are not read.
See ``docs/formats/ogg-json.md``.
"""

from typing import Final

from msgspec import UNSET

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Op, Source, Tombstone
from changelane.formats.contract.capabilities import JSON_TYPES, Carries
from changelane.formats.contract.format import Format, Report
from changelane.formats.ogg.decode import CONNECTOR, TRUNCATE, Reader, op_keys
from changelane.formats.ogg.encode import Writer
from changelane.formats.ogg.lanes import lanes_of
from changelane.formats.ogg.options import Options, Order, RowImage
from changelane.formats.ogg.wire import SCHEMA, documents_of, load
from changelane.message import Message
from changelane.schema import TableId
from changelane.types import (
    Decimal,
    Float,
    LogicalType,
    Timestamp,
    Year,
)

__all__ = ["Options", "make"]

_TYPES: Final = JSON_TYPES | {Year}
_FORMS: Final[frozenset[tuple[type[LogicalType], str]]] = frozenset(
    {(Decimal, "number"), (Float, "number"), (Timestamp, "sql")}
)


class GoldenGate:
    """The format ``ogg-json``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._operations = op_keys(options)
        self.carries: Final = _carries(options)
        self._read = Reader(options)
        self.lanes: Final = lanes_of(self._read)
        self._write = Writer(options)

    def __reduce__(self) -> tuple[object, ...]:
        return (GoldenGate, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message with one operation, or with those of a transaction."""
        if message.value is None:
            return (Tombstone(TableId()),)
        return self._read(message.value)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode an event as a message of the operation model."""
        return self._write(event, report)

    def detects(self, message: Message) -> bool:
        """Return whether a message looks like GoldenGate's."""
        if message.value is None:
            return False
        try:
            return self._is_operation(next(documents_of(message.value), b""))
        except DecodeError:
            return False

    def _is_operation(self, document: bytes) -> bool:
        operation, fields = load(document, self._options.model)
        if operation.op_type is None:
            properties = fields.get("properties")
            return SCHEMA in fields and isinstance(properties, dict) and "op_type" in properties
        kind = self._operations.get(operation.op_type)
        if not operation.table or kind is None:
            return False
        times = operation.op_ts, operation.current_ts, operation.pos
        has_image = operation.before is not UNSET or operation.after is not UNSET
        return kind == TRUNCATE or has_image or any(text is not None for text in times)


def _carries(options: Options) -> Carries:
    return Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        kinds=frozenset({"truncate", "control"}),
        before=True,
        partial_before=True,
        partial_after=options.row_image is not RowImage.FULL,
        absent=True,
        types=_TYPES,
        forms=_FORMS,
        key=True,
        key_change=True,
        table=frozenset({"database", "schema", "name"}),
        positions=frozenset({"sequence"} if options.order is Order.POS else ()),
        stamp=Source(product=options.product or None, connector=CONNECTOR),
        source_time="us" if options.time_zone else "",
        process_time="us" if options.current_time_zone else "",
        details=True,
    )


def make(options: Options) -> Format:
    """Return the format.

    Raises:
        ConfigError: Two operations have one name, or a zone is unknown.
    """
    return GoldenGate(options)
