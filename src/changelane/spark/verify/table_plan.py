# SPDX-License-Identifier: Apache-2.0
"""The plan of a verified table: its columns on both sides, its key, and what is not compared. Pure.

Each side has one class with the SQL of keys, rows and chunks; the texts that they make are equal.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from changelane.capture.postgres.sql_text import identifier, literal
from changelane.spark.runtime.sql import quoted, sql_literal
from changelane.spark.verify.canonical_text import CanonicalText, SourceType, field_of

Bound = tuple[str, ...]
"""The values of the range columns of the last key of a chunk, as PostgreSQL writes them."""


class ComparedColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column that exists on both sides.

    Attributes:
        name: Its name at the source.
        lake_name: Its name in the lake.
        source_type: Its type at the source.
        lake_type: Spark's type of it in the lake.
        text: Its canonical text.
    """

    name: str
    lake_name: str
    source_type: SourceType
    lake_type: str
    text: CanonicalText


class RangeColumn(NamedTuple):
    """A column of the key that splits a table into chunks.

    Attributes:
        column: The column.
        source: The SQL that orders it in PostgreSQL, with ``{}`` in place of the column.
        lake: The type in which Spark compares it.
    """

    column: ComparedColumn
    source: str
    lake: str


class TablePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is compared.

    Attributes:
        key_columns: The columns of the key, in its order.
        columns: All compared columns, those of the key included.
        ranges: The first columns of the key whose values both sides order equally; empty = the
            table is one chunk.
        unproven_columns: Columns that are not compared, and the reasons.
    """

    key_columns: tuple[ComparedColumn, ...]
    columns: tuple[ComparedColumn, ...]
    ranges: tuple[RangeColumn, ...]
    unproven_columns: dict[str, str]


class SourceSql:
    """The SQL of PostgreSQL for the rows of a table with the alias ``t``.

    Percent signs are doubled: psycopg takes them for parameters.

    Args:
        columns_plan: The plan of the table.
    """

    def __init__(self, columns_plan: TablePlan) -> None:
        self._columns_plan = columns_plan
        fields = {
            c.name: field_of(self._column(c), c.text.source, "text") for c in columns_plan.columns
        }
        self.fields = [_escaped(field) for field in fields.values()]
        # columns may have different collations, or one for which different texts are equal
        key = " || ".join(fields[column.name] for column in columns_plan.key_columns)
        self.key = _escaped(f'({key}) COLLATE "C"')
        self.row = " || ".join(self.fields)
        self.range = ", ".join(
            _escaped(r.source.replace("{}", self._column(r.column))) for r in columns_plan.ranges
        )
        self.range_texts = [
            _escaped(f"{self._column(r.column)}::text") for r in columns_plan.ranges
        ]

    @staticmethod
    def _column(compared_column: ComparedColumn) -> str:
        return f"t.{identifier(compared_column.name)}"

    def is_up_to(self, bound: Bound) -> str:
        """Return the condition that a key is not above a bound."""
        return self._compared("<=", bound)

    def is_between(self, after: Bound | None, end: Bound | None) -> str:
        """Return the condition that a key is above a bound, and not above another one."""
        conditions = [] if after is None else [self._compared(">", after)]
        conditions += [] if end is None else [self._compared("<=", end)]
        return " AND ".join(conditions) or "TRUE"

    def _compared(self, operator: str, bound: Bound) -> str:
        # a literal without a type takes that of its column, so that the index of the key applies
        literals = ", ".join(_escaped(literal(text)) for text in bound)
        return f"ROW({self.range}) {operator} ROW({literals})"


class LakeSql:
    """The SQL of Spark for the rows of a table.

    Args:
        columns_plan: The plan of the table.
    """

    def __init__(self, columns_plan: TablePlan) -> None:
        self._columns_plan = columns_plan
        fields = {
            c.name: field_of(quoted(c.lake_name), c.text.lake, "STRING")
            for c in columns_plan.columns
        }
        self.fields = list(fields.values())
        self.key = " || ".join(fields[column.name] for column in columns_plan.key_columns)
        self.row = " || ".join(self.fields)

    def is_up_to(self, bound: Bound) -> str:
        """Return the condition that a key is not above a bound."""
        values = [quoted(r.column.lake_name) for r in self._columns_plan.ranges]
        return f"{self._struct(values)} <= {self._struct(map(sql_literal, bound))}"

    def _struct(self, values: Iterable[str]) -> str:
        """Return a struct of values in the types in which they are compared."""
        pairs = zip(values, self._columns_plan.ranges, strict=True)
        fields = (f"'{n}', CAST({value} AS {r.lake})" for n, (value, r) in enumerate(pairs))
        return f"named_struct({', '.join(fields)})"


def chunk_number(sql: SourceSql | LakeSql, bounds: Sequence[Bound], first: int = 0) -> str:
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


def _escaped(sql: str) -> str:
    return sql.replace("%", "%%")
