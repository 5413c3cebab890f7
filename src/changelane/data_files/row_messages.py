# SPDX-License-Identifier: Apache-2.0
"""Rows of tables as messages of ``native-json``.

So a rejected row is a message like any other: the quarantine stores it, people can repair it, and
every command reads it. A text that is not of its declared type is written as an object, which no
column accepts, so that the message is rejected again until it is repaired.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from changelane.data_files.csv import ABSENT
from changelane.data_files.row_file import Row, malformed
from changelane.errors import DecodeError
from changelane.event import (
    NO_DETAILS,
    NO_SOURCE,
    Completeness,
    DataChange,
    Details,
    Key,
    KeyOrigin,
    Op,
    Source,
    Transaction,
)
from changelane.formats.contract.column_values import reader
from changelane.formats.contract.declared_tables import DeclaredTables
from changelane.formats.native import native_of
from changelane.message import Message
from changelane.pipeline.row_options import RowOptions
from changelane.position import Position
from changelane.schema import Column, TableId, TableSchema, option_for_table
from changelane.types import InstantType, LogicalType, String, Timestamp
from changelane.types.values import to_json

_encode: Final = msgspec.json.Encoder().encode
"""Writes decimals as text, as the JSON forms of values have them."""

UNREADABLE: Final = "unreadable"
"""The member of the object in place of a text that is not of its declared type."""

Convert = Callable[[str], Any]
"""Returns the JSON form of a text; raises :class:`DecodeError` if it is not of its type."""


class RowChange(msgspec.Struct, frozen=True):
    """The operation of a row, and its coordinates.

    Attributes:
        op: The operation, or a text that is no operation in ``native-json``.
        position: The position; ``None`` = the place of the row in its file.
        source: The producer.
        source_time: The time of the change in nanoseconds, or a text that is no time.
        process_time: The time when the producer wrote it, in the same way.
        transaction: The transaction.
        details: Further fields of the producer.
    """

    op: str
    position: Position | None = None
    source: Source = NO_SOURCE
    source_time: int | str | None = None
    process_time: int | str | None = None
    transaction: Transaction | None = None
    details: Details = NO_DETAILS


class RowWriter:
    """Writes the rows of one table of one file as messages."""

    def __init__(
        self,
        table: TableId,
        columns: Sequence[Column],
        options: RowOptions,
        *,
        topic: str,
        key: Key | None = None,
    ) -> None:
        """Prepare the columns.

        Args:
            table: The table.
            columns: The columns of the file.
            options: The keys and types of tables.
            topic: The topic of the messages: the path of the file.
            key: The key of the table; by default that of the options.

        Raises:
            DecodeError: A column of the key is missing, or a declared type contradicts the file.
        """
        declared = DeclaredTables(options.schemas, options.binary).find(table)
        declared_columns = {} if declared is None else declared.schema.by_name
        if key is None and (key_columns := option_for_table(options.keys, table)) is not None:
            key = Key(tuple(key_columns), KeyOrigin.CONFIG)
        if key is None and declared is not None:
            key = declared.key
        self._names = tuple(column.name for column in columns)
        for name in () if key is None else key.columns:
            if name not in self._names:
                raise malformed(
                    f"the file has no column {name!r}, which is in the key of the table"
                )
        self._converts: list[tuple[int, Convert]] = []
        typed_columns: list[Column] = []
        for index, column in enumerate(columns):
            typed_column = declared_columns.get(column.name)
            if typed_column is None or typed_column.type == column.type:
                typed_columns.append(column)
                continue
            if not _is_readable(column.type, typed_column.type):
                raise malformed(
                    f"column {column.name!r} has the type {column.type} in the file, and "
                    f"{typed_column.type} in rows.schemas: remove it there, or cast it"
                )
            typed_columns.append(msgspec.structs.replace(column, type=typed_column.type))
            self._converts.append((index, _text_reader(typed_column, options)))
        schema = TableSchema(tuple(typed_columns))
        self._key_indexes = () if key is None else tuple(map(self._names.index, key.columns))
        self._may_lack_columns = options.no_sup_value is not None
        self._topic = topic
        self._native = native_of(DataChange(Op.READ, table, key, None, {}, schema))
        self._native.schema = msgspec.Raw(_encode(self._native.schema))  # type: ignore[assignment]

    def message(self, row: Row, number: int, change: RowChange) -> Message:
        """Return the message of a row.

        Args:
            row: The values of the columns of the file.
            number: The number of the row in its file, from 0.
            change: The operation and its coordinates.
        """
        if self._converts:
            row = self._converted(row)
        native: Any = self._native
        native.op, native.position = change.op, change.position
        native.source = None if change.source == NO_SOURCE else change.source
        native.source_time_ns, native.process_time_ns = change.source_time, change.process_time
        native.transaction, native.details = change.transaction, dict(change.details) or None
        is_deleted = change.op == Op.DELETE
        is_partial = self._may_lack_columns and ABSENT in row
        native.before_holds = _holds(is_partial=is_partial and is_deleted)
        native.after_holds = _holds(is_partial=is_partial and not is_deleted)
        image = msgspec.Raw(_encode(self._image(row, is_deleted=is_deleted)))
        native.before, native.after = (image, None) if is_deleted else (None, image)
        return Message(_encode(native), None, (), self._topic, 0, number)

    def _converted(self, row: Row) -> Row:
        """Return a row with its texts as values of the declared types."""
        values = list(row)
        for index, convert in self._converts:
            value = values[index]
            if value is not None and value is not ABSENT:
                try:
                    values[index] = convert(value)
                except DecodeError:
                    values[index] = {UNREADABLE: value}
        return tuple(values)

    def _image(self, row: Row, *, is_deleted: bool) -> Mapping[str, Any]:
        """Return the image of a row; of a deleted row only its key, if all others are NULL.

        Sources that log the key of a deleted row only, such as PostgreSQL, have no other values.
        """
        pairs = zip(self._names, row, strict=True)
        image = {name: value for name, value in pairs if value is not ABSENT}
        indexes = self._key_indexes
        if is_deleted and indexes and len(indexes) < len(row):
            has_others = any(
                value is not None and value is not ABSENT
                for index, value in enumerate(row)
                if index not in indexes
            )
            if not has_others:
                return {self._names[index]: row[index] for index in indexes}
        return image


def _holds(*, is_partial: bool) -> Completeness:
    return Completeness.CHANGED if is_partial else Completeness.UNKNOWN


def declared_columns(table: TableId, options: RowOptions) -> tuple[str, ...] | None:
    """Return the declared columns of a table in their order; ``None`` if there are none."""
    declared = DeclaredTables(options.schemas, options.binary).find(table)
    return None if declared is None else tuple(column.name for column in declared.schema.columns)


def _is_readable(kind: LogicalType, declared: LogicalType) -> bool:
    """Return whether values of a type in a file can be read as values of a declared type.

    Some producers declare local times as points in time: their texts differ by the ``Z`` only.
    """
    is_local = isinstance(kind, InstantType) and isinstance(declared, Timestamp)
    return isinstance(kind, String) or is_local


def _text_reader(column: Column, options: RowOptions) -> Convert:
    read = reader(column.type, binary=options.binary)
    form = to_json(column.type)
    if form is None:
        return read
    write = form
    return lambda text: write(read(text))
