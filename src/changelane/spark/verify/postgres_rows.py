# SPDX-License-Identifier: Apache-2.0
"""The rows of a PostgreSQL table in one snapshot, and the columns that it has."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from changelane.capture.postgres.connection import database_errors
from changelane.capture.postgres.sql_text import identifier, literal
from changelane.capture.postgres.tables import Relation
from changelane.spark.verify.canonical_text import field_of, values_of
from changelane.spark.verify.comparison import Chunk, Key, RowFields, RowTexts, Sums
from changelane.spark.verify.postgres_types import PostgresType
from changelane.spark.verify.table_plan import (
    Bound,
    ComparedColumn,
    TablePlan,
    chunk_ends,
    chunk_number,
    chunk_range,
)

if TYPE_CHECKING:
    from psycopg import Connection

_TRIM_SCALE_VERSION: Final = 130000
"""The first version of PostgreSQL with ``trim_scale``."""
# another schema may have a type of a known name; citext is the only known type of an extension
_TYPE_NAME: Final = (
    "CASE WHEN {t}.typnamespace = 'pg_catalog'::regnamespace OR {t}.typname = 'citext' "
    "THEN {t}.typname::text ELSE {t}.typnamespace::regnamespace::text || '.' || {t}.typname END"
)
# the chain of domains ends in the type that stores the values; the innermost modifier counts
_COLUMNS: Final = """
WITH RECURSIVE base (attnum, attname, typid, typmod, is_nullable) AS (
  SELECT a.attnum, a.attname::text, a.atttypid, a.atttypmod, NOT a.attnotnull FROM pg_attribute a
  WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
  SELECT b.attnum, b.attname, t.typbasetype, CASE WHEN b.typmod >= 0 THEN b.typmod ELSE t.typtypmod
    END, b.is_nullable
  FROM base b JOIN pg_type t ON t.oid = b.typid WHERE t.typtype = 'd'
)
SELECT b.attname, {name_of_t}, b.typmod, t.typtype = 'e', b.is_nullable, {name_of_e},
  e.typtype = 'e'
FROM base b JOIN pg_type t ON t.oid = b.typid
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
WHERE t.typtype <> 'd' ORDER BY b.attnum
"""


def source_columns(connection: "Connection[Any]", oid: int) -> dict[str, PostgresType]:
    """Return the types of a table's columns, by name.

    Args:
        connection: A connection to the database.
        oid: The id of the table.
    """
    with database_errors("the columns of the table"):
        query = _COLUMNS.format(
            name_of_t=_TYPE_NAME.format(t="t"), name_of_e=_TYPE_NAME.format(t="e")
        )
        rows = connection.execute(query.encode(), [oid]).fetchall()
    has_trim_scale = connection.info.server_version >= _TRIM_SCALE_VERSION

    def type_of(name: str, modifier: int, is_enum: bool) -> PostgresType:  # noqa: FBT001 - a row's
        return PostgresType(name, modifier, is_enum, has_trim_scale=has_trim_scale)

    return {
        name: msgspec.structs.replace(
            type_of(type_name, modifier, is_enum),
            is_nullable=is_nullable,
            element=None if element is None else type_of(element, modifier, is_element_enum),
        )
        for name, type_name, modifier, is_enum, is_nullable, element, is_element_enum in rows
    }


def captured_rows(relation: Relation, row_filter: str) -> str:
    """Return the rows of a table that the log has, as an item of ``FROM`` without an alias.

    Args:
        relation: The table.
        row_filter: The condition of the publication on its rows; empty = none.
    """
    # the log has the changes of a child under the name of the child
    only = "ONLY " if relation.kind == "table" else ""
    rows = f"{only}{relation.sql}"
    return f"(SELECT * FROM {rows} WHERE {row_filter})" if row_filter else rows


class _RowSql:
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
            _escaped(r.texts.source.replace("{}", self._column(r.column)))
            for r in columns_plan.ranges
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
        literals = ", ".join(_escaped(literal(text)) for text in bound)
        return f"ROW({self.range}) {operator} ROW({literals})"


def _escaped(sql: str) -> str:
    return sql.replace("%", "%%")


class PostgresTable(msgspec.Struct, frozen=True):
    """A table in a snapshot.

    Attributes:
        connection: A connection in a transaction with the isolation level ``REPEATABLE READ``.
        relation: The table.
        columns_plan: What is compared.
        row_filter: The condition of the publication on its rows; empty = none.
        bounds: The ends of all chunks but the last one.
    """

    connection: Any
    relation: Relation
    columns_plan: TablePlan
    row_filter: str = ""
    bounds: tuple[Bound, ...] = ()

    @property
    def _table(self) -> str:
        rows = captured_rows(self.relation, self.row_filter)
        return f"{rows.replace('%', '%%')} AS t"

    def chunk_bounds(self, chunk_rows: int) -> tuple[Bound, ...]:
        """Return the keys that split the table into chunks of a number of rows."""
        sql = _RowSql(self.columns_plan)
        if not self.columns_plan.ranges:
            return ()
        names = ", ".join(f"b{index}" for index in range(len(sql.range_texts)))
        query = (
            f"SELECT {names} FROM (SELECT {', '.join(sql.range_texts)}, "
            f"row_number() OVER (ORDER BY {sql.range}) FROM {self._table}) AS s ({names}, n) "
            "WHERE n %% %s = 0 ORDER BY n"
        )
        bounds = list(map(tuple, self._rows(query, [chunk_rows])))
        return chunk_ends(bounds)

    def sums(self, left_out: frozenset[Key], chunk: Chunk | None = None) -> dict[Chunk, Sums]:
        sql = _RowSql(self.columns_plan)
        condition = ""
        if chunk is not None:
            condition = f" WHERE {sql.is_between(*chunk_range(self.bounds, chunk))}"
        # OFFSET 0 keeps the server from evaluating a hash twice
        query = (
            "SELECT chunk, count(*) FILTER (WHERE is_compared), "
            "coalesce(sum(('x' || left(hash, 16))::bit(64)::bigint) FILTER (WHERE is_compared), 0),"
            "coalesce(sum(('x' || right(hash, 16))::bit(64)::bigint) FILTER (WHERE is_compared), 0)"
            ", count(*) FILTER (WHERE NOT is_compared) "
            f"FROM (SELECT {chunk_number(sql, self.bounds)} AS chunk, "
            f"md5(convert_to({sql.row}, 'UTF8')) AS hash, l.key IS NULL AS is_compared "
            f"FROM {self._table} LEFT JOIN unnest(%s::text[]) AS l (key) ON l.key = {sql.key} "
            f"{condition} OFFSET 0) AS r GROUP BY chunk"
        )
        return {
            number: Sums.of(count, int(first), int(second), left_out_count)
            for number, count, first, second, left_out_count in self._rows(query, [list(left_out)])
        }

    def hashes(self, chunk: Chunk, left_out: frozenset[Key]) -> dict[Key, list[str]]:
        sql = _RowSql(self.columns_plan)
        query = (
            f"SELECT {sql.key}, md5(convert_to({sql.row}, 'UTF8')) FROM {self._table} "
            f"WHERE {sql.is_between(*chunk_range(self.bounds, chunk))}"
        )
        hashes: dict[Key, list[str]] = {}
        for key, row_hash in self._rows(query, []):
            if key not in left_out:
                hashes.setdefault(key, []).append(row_hash)
        return hashes

    def fields(self, row_keys: frozenset[Key]) -> dict[Key, RowFields]:
        fields = _RowSql(self.columns_plan).fields
        hashes = ", ".join(f"md5(convert_to({field}, 'UTF8'))" for field in fields)
        rows: dict[Key, RowFields] = {}
        for key, row_fields in self._key_rows(row_keys, f"ARRAY[{hashes}]"):
            rows.setdefault(key, []).append(tuple(row_fields))
        return rows

    def texts(self, row_keys: frozenset[Key]) -> dict[Key, list[RowTexts]]:
        """Return the canonical texts of the rows of some keys."""
        rows: dict[Key, list[RowTexts]] = {}
        for key, row in self._key_rows(row_keys, _RowSql(self.columns_plan).row):
            rows.setdefault(key, []).append(values_of(row))
        return rows

    def _key_rows(self, row_keys: frozenset[Key], row_sql: str) -> Iterable[tuple[Any, ...]]:
        """Return the key and another value, in SQL, of the rows of keys."""
        if not row_keys:
            return ()
        sql = _RowSql(self.columns_plan)
        names = [f"k{index}" for index in range(len(self.columns_plan.key_columns))]
        ordered = sorted(row_keys)
        values = [list(texts) for texts in zip(*map(values_of, ordered), strict=True)]
        conditions = [f"k.key = {sql.key}"]
        for name, key_column, texts in zip(
            names, self.columns_plan.key_columns, values, strict=True
        ):
            # NULL equals nothing: its rows are found by the fields of the key, without an index
            if (cast := key_column.key_cast) and None not in texts:
                column_sql = f"t.{identifier(key_column.name)}".replace("%", "%%")
                conditions.append(f"{column_sql} = {cast.replace('{}', f'k.{name}')}")
        arrays = ", ".join(["%s::text[]"] * (1 + len(names)))
        query = (
            f"SELECT k.key, {row_sql} FROM unnest({arrays}) AS k (key, {', '.join(names)}) "
            f"JOIN {self._table} ON {' AND '.join(conditions)}"
        )
        return self._rows(query, [ordered, *values])

    def _rows(self, query: str, parameters: list[Any]) -> Iterable[tuple[Any, ...]]:
        with database_errors(f"the comparison of {self.relation.shown}"):
            return list(self.connection.execute(query, parameters))
