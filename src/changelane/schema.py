# SPDX-License-Identifier: Apache-2.0
"""Table names, columns and table schemas."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from changelane.types import LogicalType

T = TypeVar("T")


class TableId(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """The name of a table at its source; a part that the source does not have is ``None``."""

    database: str | None = None
    schema: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        return ".".join(part for part in (self.database, self.schema, self.name) if part)


class Column(msgspec.Struct, frozen=True):
    """One column: its logical type and its declaration.

    Attributes:
        source_type: The source's own type text, such as ``bigint(20) unsigned``.
        nullable: ``None`` if the message does not contain it.
        default: The column's default as a typed value; ``UNSET`` if no default is known.
        generated: The source computes the value.
    """

    name: str
    type: LogicalType
    source_type: str | None = None
    nullable: bool | None = None
    generated: bool = False
    default: object = msgspec.UNSET


class TableSchema(msgspec.Struct, frozen=True, dict=True):
    """The columns of a table in their order, as one message lists them.

    Raises:
        ValueError: Two columns have one name.
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        """Raise if two columns have one name: an image could not separate them."""
        if len(self.names) < len(self.columns):
            counts = Counter(column.name for column in self.columns)
            raise ValueError(f"two columns have the name {counts.most_common(1)[0][0]!r}")

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """Columns by name."""
        return {column.name: column for column in self.columns}

    @cached_property
    def names(self) -> frozenset[str]:
        """The column names."""
        return frozenset(column.name for column in self.columns)

    @cached_property
    def id(self) -> str:
        """The identity of the schema: sixteen hex digits (8 bytes of SHA-256)."""
        text = "\x00".join(
            f"{c.name}\x01{c.type}\x01{c.source_type}\x01{c.nullable}\x01{c.generated}\x01{c.default!r}"
            for c in self.columns
        )
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def __hash__(self) -> int:
        return hash(self.id)

    def __eq__(self, other: object) -> Any:
        if self is other:
            return True
        if not isinstance(other, TableSchema):
            return NotImplemented
        return self.id == other.id


def option_for_table(tables: Mapping[str, T], table: TableId) -> T | None:
    """Return the option for a table; an option names the table in full or by its last parts.

    >>> option_for_table({"shop.orders": 1, "orders": 2}, TableId("db", "shop", "orders"))
    1
    """
    if not tables:
        return None
    parts = [part for part in (table.database, table.schema, table.name) if part]
    for first in range(len(parts)):
        option = tables.get(".".join(parts[first:]))
        if option is not None:
            return option
    return None
