# SPDX-License-Identifier: Apache-2.0
"""The plan of a verified table: its columns on both sides, its key, and what is not compared. Pure.

Each side has one class with the SQL of keys, rows and chunks; the texts that they make are equal.
"""

import decimal
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from changelane.spark.runtime.sql import quoted, sql_literal
from changelane.spark.verify.canonical_text import (
    CanonicalText,
    KeyText,
    RangeTexts,
    field_of,
    values_of,
)
from changelane.spark.verify.comparison import Chunk, Key

Bound = tuple[str, ...]
"""The values of the range columns of the last key of a chunk, as the source writes them."""
MAX_CHUNKS = 256
"""Chunks of larger tables have more rows: the SQL contains the end of each chunk."""


class ComparedColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column that exists on both sides.

    Attributes:
        name: Its name at the source.
        lake_name: Its name in the lake.
        lake_type: Spark's type of it in the lake.
        text: Its canonical text.
        key_text: Returns the canonical text of a value of a tombstone's key; ``None`` = the column
            cannot identify rows.
        key_cast: The SQL of a value whose rows an index of the source finds, with ``{}`` in place
            of its canonical text; ``None`` = there is none.
    """

    name: str
    lake_name: str
    lake_type: str
    text: CanonicalText
    key_text: KeyText | None = None
    key_cast: str | None = None


class RangeColumn(NamedTuple):
    """A column of the key that splits a table into chunks, and what orders it."""

    column: ComparedColumn
    texts: RangeTexts


class TablePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is compared.

    Attributes:
        key_columns: The columns of the key, in its order.
        columns: All compared columns, those of the key included.
        ranges: The first columns of the key whose values both sides order equally; empty = the
            table is one chunk.
        unproven_columns: Columns that are not compared, and the reasons.
        has_all_columns: The values of all columns are known that a repaired row needs.
        other_columns: Columns of the log that the table of the lake does not take. Repaired rows
            have them, because other pipelines may read the log.
    """

    key_columns: tuple[ComparedColumn, ...]
    columns: tuple[ComparedColumn, ...]
    ranges: tuple[RangeColumn, ...]
    unproven_columns: dict[str, str]
    has_all_columns: bool = True
    other_columns: tuple[ComparedColumn, ...] = ()

    @property
    def of_whole_rows(self) -> "TablePlan":
        """The same plan with all columns of the log."""
        return msgspec.structs.replace(self, columns=self.columns + self.other_columns)


class LakeSql:
    """The SQL of Spark for the rows of a table.

    Args:
        columns_plan: The plan of the table.
        is_source: The table is the source of a comparison of two lakes.
    """

    def __init__(self, columns_plan: TablePlan, *, is_source: bool = False) -> None:
        self._columns_plan = columns_plan
        self._is_source = is_source
        fields = {
            c.name: field_of(self._column(c), c.text.source if is_source else c.text.lake, "STRING")
            for c in columns_plan.columns
        }
        self.fields = list(fields.values())
        self.key = " || ".join(fields[column.name] for column in columns_plan.key_columns)
        self.row = " || ".join(self.fields)
        self.range_values = [self._column(r.column) for r in columns_plan.ranges]
        self.range = self._struct(self.range_values)

    def _column(self, compared_column: ComparedColumn) -> str:
        name = compared_column.name if self._is_source else compared_column.lake_name
        return quoted(name)

    def is_up_to(self, bound: Bound) -> str:
        """Return the condition that a key is not above a bound."""
        return f"{self.range} <= {self._struct(map(sql_literal, bound))}"

    def _struct(self, values: Iterable[str]) -> str:
        """Return a struct of values in the types in which they are compared."""
        pairs = zip(values, self._columns_plan.ranges, strict=True)
        fields = (f"'{n}', CAST({value} AS {r.texts.lake})" for n, (value, r) in enumerate(pairs))
        return f"named_struct({', '.join(fields)})"


class RangeSql(Protocol):
    """The SQL of one side for the ranges of keys."""

    def is_up_to(self, bound: Bound) -> str:
        """Return the condition that a key is not above a bound."""
        ...


def chunk_number(sql: RangeSql, bounds: Sequence[Bound], first: int = 0) -> str:
    """Return the SQL of the number of a key's chunk: chunk *n* ends with bound *n*.

    The conditions are a balanced tree: a row evaluates few of them.

    Args:
        sql: The side.
        bounds: The ends of all chunks but the last one.
        first: The number of the first chunk.
    """
    if not bounds:
        return str(first)
    middle = len(bounds) // 2
    left = chunk_number(sql, bounds[:middle], first)
    right = chunk_number(sql, bounds[middle + 1 :], first + middle + 1)
    return f"CASE WHEN {sql.is_up_to(bounds[middle])} THEN {left} ELSE {right} END"


def chunk_of(key: Key, columns_plan: TablePlan, bounds: Sequence[Bound]) -> Chunk:
    """Return the number of a key's chunk, as :func:`chunk_number` computes it.

    Args:
        key: The fields of the key.
        columns_plan: The plan of the table.
        bounds: The ends of all chunks but the last one.
    """

    def ordered(texts: Iterable[str | None]) -> list[tuple[bool, Any]]:
        # NULL is the least value, as in Spark
        return [
            (text is not None, _comparable(text, r.texts.lake))
            for text, r in zip(texts, columns_plan.ranges, strict=False)
        ]

    return bisect_left(bounds, ordered(values_of(key)), key=ordered)


def _comparable(text: str | None, lake: str) -> bytes | decimal.Decimal | None:
    """Return a text as a value that Python orders as both sides order those of a range."""
    if text is None:
        return None
    return text.encode() if lake == "string" else decimal.Decimal(text)


def chunk_ends(bounds: Sequence[Bound]) -> tuple[Bound, ...]:
    """Return at most as many of some bounds as a statement can contain."""
    step = -(-len(bounds) // MAX_CHUNKS) or 1
    return tuple(bounds[step - 1 :: step])


def chunk_range(bounds: Sequence[Bound], chunk: int) -> tuple[Bound | None, Bound | None]:
    """Return the bound below the keys of a chunk, and the last one of its keys."""
    return (
        bounds[chunk - 1] if chunk else None,
        bounds[chunk] if chunk < len(bounds) else None,
    )
