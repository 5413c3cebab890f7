# SPDX-License-Identifier: Apache-2.0
"""The option ``schemas``: column types and keys of tables whose messages have none.

The option is an object ``{table: {column: text}}``. The text is a logical type, followed by
``key`` for a column of the key and by ``lob`` for a column whose value an update may omit. The
columns are in the order of the table.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from changelane.errors import ConfigError, DecodeError
from changelane.event import Key, KeyOrigin
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.column_values import (
    Binary,
    Read,
    lane_column,
    reader,
    whole_unless_fraction,
)
from changelane.formats.contract.lane import LaneColumn
from changelane.schema import Column, TableId, TableSchema, option_for_table
from changelane.types import UNKNOWN, LogicalType, parse_type

_MAX_TABLES: Final = 10_000
_MAX_SCHEMAS: Final = 1_000
_MARKS: Final = ("key", "lob")


class DeclaredTable:
    """The declared columns of one table.

    Attributes:
        schema: The columns in their order.
        key: The columns of the key; ``None`` if no column is declared as such.
        lobs: The columns that an update may omit although they did not change.
        readers: The functions from the JSON of columns to their values.
    """

    def __init__(self, table: str, columns: Mapping[str, str], binary: Binary) -> None:
        """Parse the declaration of a table.

        Raises:
            ConfigError: A text is no type, or values of the type have no documented text.
        """
        marks = {name: _split(text) for name, text in columns.items()}
        keys = tuple(name for name, (_, words) in marks.items() if "key" in words)
        self.key = Key(keys, KeyOrigin.CONFIG) if keys else None
        self.lobs = frozenset(name for name, (_, words) in marks.items() if "lob" in words)
        self.readers: dict[str, Read] = {}
        typed_columns: list[Column] = []
        for name, (text, _) in marks.items():
            kind, self.readers[name] = _type(table, name, text, binary)
            typed_columns.append(Column(name, kind, nullable=name not in keys))
        self.schema = TableSchema(tuple(typed_columns))
        self._extended: BoundedCache[tuple[str, ...], TableSchema] = BoundedCache(_MAX_SCHEMAS)

    def typed(self, image: Mapping[str, Any], path: str) -> dict[str, Any]:
        """Return an image with values of the declared types; other columns have JSON values.

        Raises:
            DecodeError: A value is not of its type. The error has the path of the column.
        """
        readers = self.readers
        typed_image = dict(image)
        for name, value in image.items():
            if value is None:
                continue
            try:
                typed_image[name] = readers.get(name, whole_unless_fraction)(value)
            except DecodeError as error:
                raise DecodeError(error.reason, code=error.code, path=f"{path}.{name}") from None
        return typed_image

    def lane_columns(self) -> tuple[LaneColumn, ...]:
        """Return the columns of a lane."""
        return tuple(
            lane_column(column, self.readers[column.name]) for column in self.schema.columns
        )

    def schema_with(self, names: Iterable[str]) -> TableSchema:
        """Return the schema with further columns of unknown type, if names are not declared."""
        declared_names = self.schema.names
        others = tuple(dict.fromkeys(name for name in names if name not in declared_names))
        if not others:
            return self.schema
        extended = self._extended.get(others)
        if extended is None:
            columns = (*self.schema.columns, *(Column(name, UNKNOWN) for name in others))
            extended = self._extended.add(others, TableSchema(columns))
        return extended


class DeclaredTables:
    """The tables that the option ``schemas`` declares."""

    def __init__(self, schemas: Mapping[str, Mapping[str, str]], binary: Binary = "hex") -> None:
        """Parse the option.

        Raises:
            ConfigError: A text is no type, or values of the type have no documented text.
        """
        self._tables = {
            table: DeclaredTable(table, columns, binary) for table, columns in schemas.items()
        }
        self._cache: BoundedCache[TableId, DeclaredTable | None] = BoundedCache(_MAX_TABLES)

    @property
    def keys(self) -> dict[str, tuple[str, ...]]:
        """The key columns by the names of the option."""
        return {
            table: declared.key.columns
            for table, declared in self._tables.items()
            if declared.key is not None
        }

    def find(self, table: TableId) -> DeclaredTable | None:
        """Return the declaration of a table; ``None`` if there is none."""
        if not self._tables:
            return None
        if table not in self._cache:
            return self._cache.add(table, option_for_table(self._tables, table))
        return self._cache[table]


def _split(text: str) -> tuple[str, frozenset[str]]:
    """Return the type of a declaration and its marks.

    >>> _split("decimal(10,2) key")[0]
    'decimal(10,2)'
    """
    words: set[str] = set()
    kind = text.strip()
    while (parts := kind.rpartition(" "))[2] in _MARKS:
        words.add(parts[2])
        kind = parts[0].rstrip()
    return kind, frozenset(words)


def _type(table: str, column: str, text: str, binary: Binary) -> tuple[LogicalType, Read]:
    try:
        kind = parse_type(text)
    except ConfigError as error:
        msg = f"schemas: {table}.{column}: {error}"
        raise ConfigError(msg) from None
    try:
        return kind, reader(kind, binary=binary)
    except ValueError:
        msg = f"schemas: {table}.{column}: values of {kind} have no documented text; use string"
        raise ConfigError(msg) from None
