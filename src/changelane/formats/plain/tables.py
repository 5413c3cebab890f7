# SPDX-License-Identifier: Apache-2.0
"""The tables of plain rows: their names and columns come from options, or from the topic."""

import decimal
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import Key
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.capabilities import JSON_TYPES
from changelane.formats.contract.declared_tables import DeclaredTable, DeclaredTables
from changelane.formats.contract.format import Report
from changelane.formats.contract.options import table_option
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId, TableSchema
from changelane.types import (
    Decimal,
    Float,
    InstantType,
    LogicalType,
    Timestamp,
    Year,
)

TYPES: Final = JSON_TYPES | {Year}
"""Types whose values are JSON values: text, whole numbers, true and false."""
FORMS: Final[frozenset[tuple[type[LogicalType], str]]] = frozenset(
    {(Decimal, "number"), (Float, "number"), (Timestamp, "sql"), (InstantType, "sql_utc")}
)
"""The forms of Flink's format ``json`` with the default ``timestamp-format.standard``, ``SQL``."""

WRAPPED: Final = frozenset({"schema", "payload"})
"""The names in a key or a row of Kafka Connect with its schema."""

_MAX_TABLES: Final = 4096

Row = dict[str, Any]


class Tables:
    """The tables of one codec.

    Attributes:
        parts: The parts of a table's name that the option or the topic has.
    """

    def __init__(self, table: str, schemas: Mapping[str, Mapping[str, str]]) -> None:
        """Parse the options.

        Raises:
            ConfigError: The name has more than three parts, or a text is no type.
        """
        self._configured = table_option(table) if table else None
        self._declared = DeclaredTables(schemas, "base64")
        self._topics: BoundedCache[str | None, TableId] = BoundedCache(_MAX_TABLES)
        configured = self._configured or TableId()
        parts = ("database", "schema")
        self.parts = {"name", *(part for part in parts if getattr(configured, part) is not None)}

    def of(self, topic: str | None) -> tuple[TableId, DeclaredTable | None]:
        """Return the table of a topic, and its declaration; ``None`` if there is none."""
        table = self._configured
        if table is None:
            cached = self._topics.get(topic)  # shared, because reducers cache by identity
            table = cached or self._topics.add(topic, TableId(name=topic))
        return table, self._declared.find(table)

    def topic_of(self, table: TableId, report: Report) -> str | None:
        """Return the topic that names a table; report the parts that readers do not get."""
        configured = self._configured
        if configured is None:
            if table.name == "":
                report(("table.name", "an empty name is read as none"))
            return table.name or None
        for part in sorted(self.parts):
            if getattr(table, part) != getattr(configured, part):
                report((f"table.{part}", "readers take it from the option table"))
        return None


def typed(
    declared: DeclaredTable | None, row: Row, path: str, *, is_whole: bool
) -> tuple[Row, TableSchema | None, Key | None]:
    """Return a row with the declared types, its schema, and the declared key.

    Args:
        declared: The declaration; ``None`` = values keep their JSON types.
        row: The JSON values.
        path: The path of the row in errors.
        is_whole: A missing column is NULL.

    Raises:
        DecodeError: A value is not of its type.
    """
    if declared is None:
        return row, None, None
    image = declared.typed(row, path)
    if is_whole:
        for name in declared.schema.names - image.keys():
            image[name] = None
    return image, declared.schema_with(image), declared.key


_decode_row: Final = msgspec.json.Decoder(Row, float_hook=decimal.Decimal).decode


def load_row(data: bytes) -> Row:
    """Return a JSON object; numbers with a fraction are decimals.

    Raises:
        DecodeError: The bytes are no JSON object.
    """
    try:
        return _decode_row(data)
    except (ValueError, RecursionError, decimal.DecimalException):
        row: Row = json.loads(data, Row)  # raises the error of the format
        return row


def with_key(row: Row, key: Row) -> Row:
    """Return a row with the columns of its key, which a value may omit.

    Raises:
        DecodeError: A column has two values.
    """
    for name, value in key.items():
        if name in row and row[name] != value:
            reason = "a key column differs from the message key"
            raise DecodeError(reason, code=ReasonCode.WRONG_IMAGE, path=f"$.{name}")
    return row if key.keys() <= row.keys() else {**key, **row}


class Keys:
    """Reads message keys that are objects of key columns."""

    def __init__(self) -> None:
        self._keys: BoundedCache[tuple[str, ...], Key] = BoundedCache(_MAX_TABLES)

    def read(self, data: bytes | None) -> tuple[Key, Row] | None:
        """Return the key columns and their JSON values; ``None`` if a key is no such object.

        The key may be inside of ``payload``, beside its schema.
        """
        if not data:
            return None
        try:
            row = load_row(data)
        except DecodeError:
            return None
        if len(row) == 2 and row.keys() == WRAPPED:  # Kafka Connect with key.converter.schemas
            row = row["payload"]
        if not row or not isinstance(row, dict):
            return None
        names = tuple(row)
        key = self._keys.get(names)  # shared, because rows are compiled by identity
        return self._keys.add(names, Key(names)) if key is None else key, row
