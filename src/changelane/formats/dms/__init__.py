# SPDX-License-Identifier: Apache-2.0
"""``aws-dms-json``: the messages of AWS Database Migration Service in Kafka and Kinesis.

Product: AWS DMS, targets Apache Kafka and Amazon Kinesis Data Streams
(https://docs.aws.amazon.com/dms/latest/userguide/CHAP_Target.Kafka.html). Versions studied: the
user guide of 2019 to 2024, and published messages of 2019 to 2025 from MySQL and PostgreSQL.

Sample::

    {"data":{"id":104,"name":"hammer","description":"12oz carpenter's hammer","weight":0.75},
     "metadata":{"timestamp":"2024-10-27T12:39:03.210671Z","record-type":"data",
      "operation":"insert","partition-key-type":"schema-table","schema-name":"test",
      "table-name":"product","transaction-id":670014899490}}

Choices: a missing column is NULL, because DMS omits NULL by default; the position is the commit
time with the ids of the transaction, if the task sends them; types and keys of a table come from
options, because only control records have them.

Known gaps: control records other than ``create-table`` and ``drop-table`` are documented by name
only; a control record does not change how later rows are read. See
``docs/formats/aws-dms-json.md``.
"""

from typing import Final, Literal

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Op, Tombstone
from changelane.formats.contract import json
from changelane.formats.contract.capabilities import JSON_TYPES, AbsentMeans, Carries
from changelane.formats.contract.column_values import Binary
from changelane.formats.contract.declared_tables import DeclaredTables
from changelane.formats.contract.format import Format, Report
from changelane.formats.dms.before_images import place_of, splitter
from changelane.formats.dms.decode import SOURCE, Order, Reader, ReadOptions
from changelane.formats.dms.encode import PartitionKey, WriteOptions, Writer
from changelane.formats.dms.lanes import lanes_of
from changelane.formats.dms.wire import loader
from changelane.message import Message
from changelane.schema import TableId
from changelane.types import (
    Bytes,
    Decimal,
    Float,
    LogicalType,
)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``aws-dms-json``.

    Attributes:
        owner: The part of a table's name in ``schema-name``.
        schemas: Table (or its last parts) -> column -> type text, with `` key`` after it for a
            column of the key and `` lob`` for one that an update may omit.
        keys: Table -> key columns, for tables without declared columns.
        absent: The interpretation of a column that is missing in an update.
        before: The place of before images: ``auto``, ``object``, ``none``, ``prefix:BI_`` or
            ``suffix:_BI``.
        before_field: The key of the before image in a message: ``FieldName`` of the task.
        binary: The text form of bytes.
        order: The order of the changes of a key.
        nulls: Whether NULL columns are written: ``IncludeNullAndEmpty`` of the endpoint.
        partition_key: The content of written message keys.
        partition_include_schema_table: A primary key in a message key follows the table's name.
    """

    owner: Literal["schema", "database"] = "schema"
    schemas: dict[str, dict[str, str]] = {}
    keys: dict[str, list[str]] = {}
    absent: Literal["null", "unchanged"] = "null"
    before: str = "auto"
    before_field: str = "before-image"
    binary: Binary = "hex"
    order: Order = "auto"
    nulls: Literal["omitted", "written"] = "omitted"
    partition_key: PartitionKey = "schema-table"
    partition_include_schema_table: bool = False


class Dms:
    """The format ``aws-dms-json``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        place = place_of(options.before, options.before_field)
        tables = DeclaredTables(options.schemas, options.binary)
        is_null = options.absent == "null"
        self.carries: Final = _carries(options, has_before=place != place_of("none", "before"))
        self._read = Reader(
            ReadOptions(options.owner, options.keys, is_null, options.order, options.before_field),
            loader(options.before_field),
            splitter(place, options.before_field),
            tables,
        )
        self.lanes: Final = lanes_of(self._read, place)
        keys = {table: tuple(columns) for table, columns in options.keys.items()}
        self._write = Writer(
            WriteOptions(
                owner=options.owner,
                keys=keys | tables.keys,
                writes_nulls=options.nulls == "written",
                place=place,
                before_field=options.before_field,
                partition_key=options.partition_key,
                includes_table=options.partition_include_schema_table,
            )
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (Dms, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message with one record."""
        if message.value is None:
            return (Tombstone(TableId()),)
        return (self._read(message.value),)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode a row change as a data record."""
        return (self._write(event, report),)

    def detects(self, message: Message) -> bool:
        """Return whether a message has the metadata of a record of DMS."""
        value = message.value
        if value is None or b'"record-type"' not in value:
            return False
        try:
            metadata = json.loads(value, _Probe).metadata
        except DecodeError:
            return False
        return metadata.record_type in {"data", "control"}


class _ProbedMetadata(msgspec.Struct, rename="kebab"):
    record_type: str
    operation: str


class _Probe(msgspec.Struct):
    metadata: _ProbedMetadata


def _carries(options: Options, *, has_before: bool) -> Carries:
    forms: dict[type[LogicalType], str] = {Float: "number", Decimal: "number"}
    if options.binary == "hex":
        forms[Bytes] = "hex"
    is_null = options.absent == "null"
    return Carries(
        operations=frozenset(Op),
        before=has_before,
        partial_before=has_before,
        partial_after=not is_null,
        absent=not is_null,
        absent_means=AbsentMeans.NULL if is_null else AbsentMeans.UNCHANGED,
        types=JSON_TYPES,
        forms=frozenset(forms.items()),
        key=bool(options.keys or options.schemas),
        key_change=has_before,
        table=frozenset({options.owner, "name"}),
        positions=frozenset(() if options.order == "offset" else ("sequence",)),
        transaction=frozenset({"id", "order"}),
        stamp=SOURCE,
        source_time="us",
        process_time="us",
        details=True,
    )


def make(options: Options) -> Format:
    """Return the format."""
    return Dms(options)
