# SPDX-License-Identifier: Apache-2.0
"""``datahub-tuple``: rows of DataHub's TUPLE topics, written by DataWorks Data Integration.

Product: DataHub (https://www.alibabacloud.com/help/en/datahub), written by DataWorks.

Versions studied: the document of DataWorks, the clients of DataHub 2.x for Python and Java.

Sample (a row as an object of its columns)::

    {"_sequence_id_":"1649991610688000000","_operation_type_":"I","_excute_time_":1649991726000,
     "_source_table_":"orders","_before_image_":"N","_after_image_":"Y","id":1,"note":"ann"}

Choices: a row is a JSON object, column -> value, because DataHub has no form of a row as bytes.
Values are numbers, booleans and text, or all text, as DataHub's clients send them. An update is two
rows with one sequence: two halves. The columns have the types of the topic's schema, which is an
option; without it, values have their JSON types.

Known gaps: a row does not name its key columns; they are an option. See
``docs/formats/datahub-tuple.md``.
"""

from typing import Literal

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Key, KeyOrigin, Op, Tombstone
from changelane.formats.contract.capabilities import AbsentMeans, Carries, SchemaDetail
from changelane.formats.contract.format import Format, Report
from changelane.formats.contract.options import table_option
from changelane.formats.datahub.topic_schema import TIME, TYPES, table_schema, topic_schema
from changelane.formats.datahub.tuple_rows import SOURCE, Reader, RowOptions, Writer, load
from changelane.message import Message
from changelane.schema import Column, TableId, TableSchema
from changelane.types import Boolean, Integer, String

__all__ = ["DataHubTuple", "Options", "make", "table_schema", "topic_schema"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``datahub-tuple``.

    Attributes:
        topic_schema: The schema of the topic, as DataHub shows it:
            ``{"fields":[{"name":"id","type":"BIGINT"}]}``.
        table: The table of the topic, such as ``shop.orders`` (its last part is the name), for rows
            that do not name their table.
        keys: The key columns, as a list or as text with commas.
        time_column: The written name of the time column; both names are read.
    """

    topic_schema: str | None = None
    table: str = ""
    keys: str | tuple[str, ...] = ()
    time_column: Literal["_excute_time_", "_execute_time_"] = TIME


class DataHubTuple:
    """The format ``datahub-tuple``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        keys = options.keys
        names = tuple(filter(None, keys.split(","))) if isinstance(keys, str) else keys
        table = table_option(options.table, owner="datahub-tuple")
        row_options = RowOptions(
            table,
            Key(names, KeyOrigin.CONFIG) if names else None,
            None
            if options.topic_schema is None
            else _without_nullability(table_schema(options.topic_schema)),
            options.time_column,
        )
        parts = {part for part in ("database", "schema") if getattr(table, part) is not None}
        is_typed = row_options.schema is not None
        self._carries = Carries(
            operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
            kinds=frozenset({"half"}),
            before=True,
            partial_before=not is_typed,
            delete_partial=not is_typed,
            absent_means=AbsentMeans.NULL,
            schema=SchemaDetail.SOURCE_TYPES if is_typed else SchemaDetail.NONE,
            types=(
                frozenset(map(type, TYPES.values()))
                if is_typed
                else frozenset({Boolean, Integer, String})
            ),
            pair=True,
            key=bool(names),
            key_change=True,
            table=frozenset({"name", *parts}),
            positions=frozenset({"sequence"}),
            stamp=SOURCE,
            source_time="ms",
            details=True,
        )
        self._read = Reader(row_options)
        self._write = Writer(row_options)

    def __reduce__(self) -> tuple[object, ...]:
        return (DataHubTuple, (self._options,))

    @property
    def carries(self) -> Carries:
        """The capabilities of the format."""
        return self._carries

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode one row."""
        if message.value is None:
            return (Tombstone(TableId()),)
        return self._read(message.value, message.topic)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode an event as one row, or as the two rows of an update."""
        return tuple(Message(value) for value in self._write(event, report))

    def detects(self, message: Message) -> bool:
        """Return whether a message looks like a TUPLE row of a change."""
        if message.value is None:
            return False
        try:
            load(message.value)
        except DecodeError:
            return False
        return True


def _without_nullability(schema: TableSchema) -> TableSchema:
    # a row does not carry nullability
    return TableSchema(tuple(Column(c.name, c.type, c.source_type) for c in schema.columns))


def make(options: Options) -> Format:
    """Return the format."""
    return DataHubTuple(options)
