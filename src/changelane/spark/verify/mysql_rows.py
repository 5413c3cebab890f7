# SPDX-License-Identifier: Apache-2.0
"""The rows of a MySQL or MariaDB table in one snapshot, and the columns that it has."""

import itertools
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from changelane.capture.mysql.connection import Connection, database_errors, read_rows
from changelane.capture.mysql.sql_text import identifier
from changelane.capture.mysql.tables import MysqlTable
from changelane.errors import ConfigError
from changelane.spark.verify.canonical_text import values_of
from changelane.spark.verify.comparison import Chunk, Key, RowFields, RowTexts, Sums
from changelane.spark.verify.mysql_types import MysqlType
from changelane.spark.verify.table_plan import (
    Bound,
    ComparedColumn,
    TablePlan,
    chunk_ends,
    chunk_number,
    chunk_range,
)

_COLUMNS: Final = """
SELECT column_name, data_type, column_type, coalesce(numeric_precision, 0),
  coalesce(numeric_scale, 0), coalesce(character_set_name, ''), coalesce(collation_name, ''),
  is_nullable
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s
ORDER BY ordinal_position
"""
_KEY: Final = """
SELECT column_name FROM information_schema.statistics
WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index
"""
_KEYS_PER_STATEMENT: Final = 500


def source_columns(connection: Connection, table: MysqlTable) -> dict[str, MysqlType]:
    """Return the types of a table's columns, by name."""
    with database_errors("the columns of the table"):
        rows = read_rows(connection, _COLUMNS, table.database, table.name)
    return {
        str(name): MysqlType(
            str(kind).lower(),
            "unsigned" in str(text).lower(),
            int(precision),
            int(scale),
            str(charset),
            str(collation),
            is_nullable == "YES",
        )
        for name, kind, text, precision, scale, charset, collation, is_nullable in rows
    }


def primary_key(connection: Connection, table: MysqlTable) -> tuple[str, ...]:
    """Return the columns of a table's primary key, in order; empty = it has none."""
    with database_errors("the key of the table"):
        rows = read_rows(connection, _KEY, table.database, table.name)
    return tuple(str(name) for (name,) in rows)


class _RowSql:
    """The SQL for the rows of a table with the alias ``t``.

    Args:
        columns_plan: The plan of the table.
    """

    def __init__(self, columns_plan: TablePlan) -> None:
        self._columns_plan = columns_plan
        fields = {c.name: _field_of(_column(c), c.text.source) for c in columns_plan.columns}
        self.fields = list(fields.values())
        self.key = f"CONCAT({', '.join(fields[c.name] for c in columns_plan.key_columns)})"
        self.row = f"CONCAT({', '.join(self.fields)})"
        self.hash = f"MD5({self.row})"
        self.range = [r.texts.source.replace("{}", _column(r.column)) for r in columns_plan.ranges]
        self.range_texts = [
            r.column.text.source.replace("{}", _column(r.column)) for r in columns_plan.ranges
        ]

    def is_up_to(self, bound: Bound) -> str:
        """Return the condition that a key is not above a bound."""
        return self._compared("<=", bound)

    def is_between(self, after: Bound | None, end: Bound | None) -> str:
        """Return the condition that a key is above a bound, and not above another one.

        An index applies to the condition on the first column only.
        """
        conditions = []
        if after is not None:
            conditions += [
                f"{self.range[0]} >= {self._values(after)[0]}",
                self._compared(">", after),
            ]
        if end is not None:
            conditions += [f"{self.range[0]} <= {self._values(end)[0]}", self._compared("<=", end)]
        return " AND ".join(conditions) or "TRUE"

    def _compared(self, operator: str, bound: Bound) -> str:
        return f"({', '.join(self.range)}) {operator} ({', '.join(self._values(bound))})"

    def _values(self, bound: Bound) -> list[str]:
        pairs = zip(bound, self._columns_plan.ranges, strict=True)
        return [r.texts.bound.replace("{}", _literal(text)) for text, r in pairs]

    def has_key(self, key: Key) -> str:
        """Return a condition that all rows of a key fulfil; other rows may fulfil it, too."""
        pairs = zip(values_of(key), self._columns_plan.key_columns, strict=True)
        conditions = []
        for text, column in pairs:
            if text is None:
                conditions.append(f"{_column(column)} IS NULL")
            elif column.key_cast is not None:
                value = column.key_cast.replace("{}", _literal(text))
                conditions.append(f"{_column(column)} = {value}")
        return f"({' AND '.join(conditions) or 'TRUE'})"


class MysqlRows(msgspec.Struct, frozen=True):
    """A table in a snapshot.

    Attributes:
        connection: A connection in a transaction with a consistent snapshot.
        table: The table.
        columns_plan: What is compared.
        bounds: The ends of all chunks but the last one.
    """

    connection: Any
    table: MysqlTable
    columns_plan: TablePlan
    bounds: tuple[Bound, ...] = ()

    def chunk_bounds(self, chunk_rows: int) -> tuple[Bound, ...]:
        """Return the keys that split the table into chunks of a number of rows."""
        if not self.columns_plan.ranges:
            return ()
        sql = _RowSql(self.columns_plan)
        texts = [f"{text} AS b{index}" for index, text in enumerate(sql.range_texts)]
        names = ", ".join(f"b{index}" for index in range(len(texts)))
        bounds = self._rows(
            f"SELECT {names} FROM (SELECT {', '.join(texts)}, "
            f"ROW_NUMBER() OVER (ORDER BY {', '.join(sql.range)}) AS n FROM {self.table.sql} AS t"
            f") AS s WHERE n MOD {chunk_rows} = 0 ORDER BY n"
        )
        return chunk_ends(list(map(tuple, bounds)))

    def sums(self, left_out: frozenset[Key], chunk: Chunk | None = None) -> dict[Chunk, Sums]:
        sql = _RowSql(self.columns_plan)
        ends = (None, None) if chunk is None else chunk_range(self.bounds, chunk)
        chunk_sql = chunk_number(sql, self.bounds)
        halves = ", ".join(
            f"COALESCE(SUM(CAST(CONV({half}(hash, 16), 16, 10) AS DECIMAL(20, 0))), 0)"
            for half in ("LEFT", "RIGHT")
        )
        rows = self._rows(
            f"SELECT chunk, COUNT(*), COUNT(hash), {halves} FROM (SELECT {chunk_sql} AS chunk, "
            f"{sql.hash} AS hash FROM {self.table.sql} AS t WHERE {sql.is_between(*ends)}) "
            "AS r GROUP BY chunk"
        )
        sums = {}
        for number, count, hash_count, first, second in rows:
            self._check_size(is_complete=count == hash_count)
            sums[int(number)] = Sums.of(count, int(first), int(second), 0)
        # the statement would need a list of the keys for each row
        for _, number, row_hash in self._key_rows(left_out, f"{chunk_sql}, {sql.hash}"):
            if chunk is not None and int(number) != chunk:
                continue
            former = sums[int(number)]
            sums[int(number)] = Sums.of(
                former.count - 1,
                former.first - int(row_hash[:16], 16),
                former.second - int(row_hash[16:], 16),
                former.left_out_count + 1,
            )
        return sums

    def hashes(self, chunk: Chunk, left_out: frozenset[Key]) -> dict[Key, list[str]]:
        sql = _RowSql(self.columns_plan)
        condition = sql.is_between(*chunk_range(self.bounds, chunk))
        rows = self._rows(
            f"SELECT {sql.key}, {sql.hash} FROM {self.table.sql} AS t WHERE {condition}"
        )
        hashes: dict[Key, list[str]] = {}
        for key, row_hash in rows:
            if key not in left_out:
                hashes.setdefault(key, []).append(row_hash)
        return hashes

    def fields(self, row_keys: frozenset[Key]) -> dict[Key, RowFields]:
        sql = _RowSql(self.columns_plan)
        columns = ", ".join(f"MD5({field})" for field in sql.fields)
        rows: dict[Key, RowFields] = {}
        for key, *row_fields in self._key_rows(row_keys, columns):
            self._check_size(is_complete=None not in row_fields)
            rows.setdefault(key, []).append(tuple(row_fields))
        return rows

    def texts(self, row_keys: frozenset[Key]) -> dict[Key, list[RowTexts]]:
        """Return the canonical texts of the rows of some keys."""
        rows: dict[Key, list[RowTexts]] = {}
        for key, row in self._key_rows(row_keys, _RowSql(self.columns_plan).row):
            self._check_size(is_complete=row is not None)
            rows.setdefault(key, []).append(values_of(row))
        return rows

    def _key_rows(self, row_keys: frozenset[Key], columns: str) -> Iterator[tuple[Any, ...]]:
        """Yield the key and some columns of the rows of keys."""
        sql = _RowSql(self.columns_plan)
        ordered = iter(sorted(row_keys))
        while keys := list(itertools.islice(ordered, _KEYS_PER_STATEMENT)):
            condition = " OR ".join(map(sql.has_key, keys))
            rows = self._rows(
                f"SELECT {sql.key}, {columns} FROM {self.table.sql} AS t WHERE {condition}"
            )
            # a collation may find rows of other keys, each of which another statement may find
            wanted = set(keys)
            yield from (row for row in rows if row[0] in wanted)

    def _check_size(self, *, is_complete: bool) -> None:
        """Check that the server computed a hash: it has none of a text above its limit."""
        if not is_complete:
            raise ConfigError(
                f"{self.table.shown} has a row whose text exceeds max_allowed_packet of the "
                "server: increase it"
            )

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        with database_errors(f"the comparison of {self.table.shown}"):
            return read_rows(self.connection, query)


def _column(compared_column: ComparedColumn) -> str:
    return f"t.{identifier(compared_column.name)}"


def _literal(text: str) -> str:
    """Return a text as a literal that needs no escapes, whatever ``sql_mode`` is."""
    return f"_utf8mb4 X'{text.encode('utf-8', 'surrogatepass').hex()}'"


def _field_of(value_sql: str, text: str) -> str:
    """Return the SQL of a field: its text with its length in characters, or ``-`` for NULL."""
    text_sql = text.replace("{}", value_sql)
    return f"IF({value_sql} IS NULL, '-', CONCAT(CHAR_LENGTH({text_sql}), ':', {text_sql}))"
