# SPDX-License-Identifier: Apache-2.0
"""Relations: the columns of a table, as a relation message lists them, and its rows."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from changelane.errors import DecodeError
from changelane.event import Key, KeyOrigin
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.postgres_text import logical_type, reader
from changelane.formats.contract.postgres_type_numbers import type_text_of
from changelane.formats.pgoutput.binary import binary_text
from changelane.formats.pgoutput.wire import (
    IDENTITY_FULL,
    BinaryCell,
    Cells,
    RelationColumn,
    RelationMessage,
)
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableId, TableSchema, option_for_table
from changelane.types import UNAVAILABLE, Array, LogicalType, String, Text

_MOST_CACHED: Final = 4096
CATALOG: Final = "pg_catalog"
_USUAL_NAMESPACE: Final = "public"
"""The namespace that the name of a type does not show."""


class TypeName(NamedTuple):
    """A type of a type message.

    Attributes:
        text: The name.
        kind: The logical type.
    """

    text: str
    kind: LogicalType

    @classmethod
    def of(cls, namespace: str, name: str) -> "TypeName":
        """Return the type of a namespace and a name.

        A domain is sent as its base type, which is built in. Another type may have such a name.
        """
        if namespace in {"", CATALOG}:
            text = f"{name[1:]}[]" if name.startswith("_") else name
            return cls(text, logical_type(text))
        text = name if namespace == _USUAL_NAMESPACE else f"{namespace}.{name}"
        kind = logical_type(text)
        is_known = isinstance(kind, Array | String) and (kind == String() or name.endswith("[]"))
        return cls(text, kind if is_known else Text(text))


class Relation:
    """A table with the readers of its rows.

    Attributes:
        message: The relation message.
        table: The name of the table.
        schema: All its columns.
        key: The key; ``None`` if it is unknown.
    """

    __slots__ = ("_key_columns", "_names", "_readers", "key", "message", "schema", "table")

    def __init__(
        self,
        message: RelationMessage,
        type_names: Mapping[int, TypeName],
        keys: Mapping[str, list[str]],
    ) -> None:
        """Compile the readers.

        Args:
            message: The relation message.
            type_names: The names of types that are not built in, by their numbers.
            keys: Table -> columns of its key, which the database does not send.

        Raises:
            DecodeError: Two columns have one name.
        """
        self.message = message
        self.table = TableId(schema=message.namespace or CATALOG, name=message.name)
        self._names = tuple(column.name for column in message.columns)
        try:
            self.schema = TableSchema(
                tuple(_column(column, type_names) for column in message.columns)
            )
        except ValueError:
            reason = "two columns of a relation have one name"
            raise DecodeError(reason, code=ReasonCode.WRONG_SCHEMA) from None
        self._readers = tuple(reader(column.type) for column in self.schema.columns)
        self._key_columns = tuple(column.name for column in message.columns if column.is_key)
        self.key = self._key(keys)

    def _key(self, keys: Mapping[str, list[str]]) -> Key | None:
        """Return the configured key, or the replica identity.

        REPLICA IDENTITY FULL marks all columns, and does not tell the primary key.
        """
        configured = option_for_table(keys, self.table)
        if configured is not None:
            return Key(tuple(configured), KeyOrigin.CONFIG)
        is_full = self.message.identity == IDENTITY_FULL
        if not self._key_columns or (is_full and len(self._key_columns) == len(self._names)):
            return None
        return Key(self._key_columns, KeyOrigin.PAYLOAD)

    def image(self, cells: Cells) -> dict[str, Any]:
        """Return the image of a row.

        Raises:
            DecodeError: The row has another number of columns, or a value is not of its type.
        """
        names = self._names
        if len(cells) != len(names):
            reason = "the row and its relation have different numbers of columns"
            raise DecodeError(reason, code=ReasonCode.WRONG_LENGTH)
        image: dict[str, Any] = {}
        try:
            for name, cell, read in zip(names, cells, self._readers, strict=True):
                if cell is None:
                    image[name] = None
                elif isinstance(cell, bytes):
                    if cell.__class__ is BinaryCell:
                        column = self.schema.columns[len(image)]
                        text = binary_text(column.type, column.source_type, cell)
                    else:
                        text = cell.decode()
                    image[name] = text if read is None else read(text)
                else:
                    image[name] = UNAVAILABLE
        except UnicodeDecodeError:
            path = f"$.columns[{len(image)}]"
            reason = "a text is not UTF-8"
            raise DecodeError(reason, code=ReasonCode.INVALID_UTF8, path=path) from None
        except DecodeError as error:
            path = f"$.columns[{len(image)}]"
            raise DecodeError(error.reason, code=error.code, path=path) from None
        return image

    def key_image(self, cells: Cells) -> dict[str, Any]:
        """Return the image of an old key: other columns of the row mean nothing."""
        image = self.image(cells)
        if not self._key_columns:
            reason = "an old key of a relation without key columns"
            raise DecodeError(reason, code=ReasonCode.UNEXPECTED_IMAGE)
        return {name: image[name] for name in self._key_columns}


def _column(described: RelationColumn, type_names: Mapping[int, TypeName]) -> Column:
    text = type_text_of(described.type_oid, described.type_modifier)
    if text is not None:
        return Column(described.name, logical_type(text), text)
    named = type_names.get(described.type_oid)
    if named is None:
        text = f"oid:{described.type_oid}"
        return Column(described.name, Text(text), text)
    return Column(described.name, named.kind, named.text)


class Catalog:
    """The relations and types that messages have described.

    Attributes:
        relations: Relations by their numbers.
        type_names: The names of types that are not built in, by their numbers.
    """

    __slots__ = ("relations", "type_names")

    def __init__(self) -> None:
        self.relations: dict[int, Relation] = {}
        self.type_names: dict[int, TypeName] = {}

    def update(self, other: "Catalog") -> None:
        """Take over the changes of a committed transaction."""
        self.relations.update(other.relations)
        self.type_names.update(other.type_names)


class Relations:
    """Relations by their messages; equal messages give one object, because rows are compiled once.

    Args:
        keys: Table -> columns of its key, which the database does not send.
    """

    def __init__(self, keys: Mapping[str, list[str]]) -> None:
        self._keys = keys
        self._cache: BoundedCache[tuple[object, ...], Relation] = BoundedCache(_MOST_CACHED)

    def __call__(self, message: RelationMessage, type_names: Mapping[int, TypeName]) -> Relation:
        """Return the relation of a message and the names of types that are not built in."""
        identity = (message, *(type_names.get(column.type_oid) for column in message.columns))
        relation = self._cache.get(identity)
        if relation is None:
            relation = Relation(message, type_names, self._keys)
            self._cache.add(identity, relation)
        return relation
