# SPDX-License-Identifier: Apache-2.0
"""The rows of a PostgreSQL table in one snapshot, and the columns that it has."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from changelane.capture.postgres.connection import database_errors
from changelane.capture.postgres.sql_text import identifier
from changelane.capture.postgres.tables import Relation
from changelane.spark.verify.canonical_text import SourceType, values_of
from changelane.spark.verify.comparison import Chunk, Key, RowFields, Sums
from changelane.spark.verify.table_plan import Bound, SourceSql, TablePlan, chunk_number

if TYPE_CHECKING:
    from psycopg import Connection

# another schema may have a type of a known name; citext is the only known type of an extension
_TYPE_NAME: Final = (
    "CASE WHEN {t}.typnamespace = 'pg_catalog'::regnamespace OR {t}.typname = 'citext' "
    "THEN {t}.typname::text ELSE {t}.typnamespace::regnamespace::text || '.' || {t}.typname END"
)
# the chain of domains ends in the type that stores the values; the innermost modifier counts
_COLUMNS: Final = """
WITH RECURSIVE base (attnum, attname, typid, typmod) AS (
  SELECT a.attnum, a.attname::text, a.atttypid, a.atttypmod FROM pg_attribute a
  WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
  SELECT b.attnum, b.attname, t.typbasetype, CASE WHEN b.typmod >= 0 THEN b.typmod ELSE t.typtypmod
    END
  FROM base b JOIN pg_type t ON t.oid = b.typid WHERE t.typtype = 'd'
)
SELECT b.attname, {name_of_t}, b.typmod, t.typtype = 'e', {name_of_e}, e.typtype = 'e'
FROM base b JOIN pg_type t ON t.oid = b.typid
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
WHERE t.typtype <> 'd' ORDER BY b.attnum
"""
MAX_CHUNKS: Final = 256
"""Chunks of larger tables have more rows: the SQL contains the end of each chunk."""
_UUID: Final = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_INDEX_CASTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("int2", "int4", "int8"), "{}::bigint"),
    **dict.fromkeys(("text", "varchar"), "{}"),
    "numeric": "{}::numeric",
    # a key of the lake may be no UUID
    "uuid": f"CASE WHEN {{}} ~ '{_UUID}' THEN {{}}::uuid END",
}
"""Types of key columns whose index finds rows by the canonical text of the column."""


def source_columns(connection: "Connection[Any]", oid: int) -> dict[str, SourceType]:
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
    return {
        name: SourceType(
            type_name,
            modifier,
            is_enum,
            None if element is None else SourceType(element, modifier, is_element_enum),
        )
        for name, type_name, modifier, is_enum, element, is_element_enum in rows
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


class SourceTable(msgspec.Struct, frozen=True):
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
        sql = SourceSql(self.columns_plan)
        if not self.columns_plan.ranges:
            return ()
        names = ", ".join(f"b{index}" for index in range(len(sql.range_texts)))
        query = (
            f"SELECT {names} FROM (SELECT {', '.join(sql.range_texts)}, "
            f"row_number() OVER (ORDER BY {sql.range}) FROM {self._table}) AS s ({names}, n) "
            "WHERE n %% %s = 0 ORDER BY n"
        )
        bounds = list(map(tuple, self._rows(query, [chunk_rows])))
        step = -(-len(bounds) // MAX_CHUNKS) or 1
        return tuple(bounds[step - 1 :: step])

    def sums(self, left_out: frozenset[Key]) -> dict[Chunk, Sums]:
        sql = SourceSql(self.columns_plan)
        # OFFSET 0 keeps the server from evaluating a hash twice
        query = (
            "SELECT chunk, count(*) FILTER (WHERE is_compared), "
            "coalesce(sum(('x' || left(hash, 16))::bit(64)::bigint) FILTER (WHERE is_compared), 0),"
            "coalesce(sum(('x' || right(hash, 16))::bit(64)::bigint) FILTER (WHERE is_compared), 0)"
            ", count(*) FILTER (WHERE NOT is_compared) "
            f"FROM (SELECT {chunk_number(sql, self.bounds)} AS chunk, "
            f"md5(convert_to({sql.row}, 'UTF8')) AS hash, l.key IS NULL AS is_compared "
            f"FROM {self._table} LEFT JOIN unnest(%s::text[]) AS l (key) ON l.key = {sql.key} "
            "OFFSET 0) AS r GROUP BY chunk"
        )
        return {
            chunk: Sums.of(count, int(first), int(second), left_out_count)
            for chunk, count, first, second, left_out_count in self._rows(query, [list(left_out)])
        }

    def hashes(self, chunk: Chunk, left_out: frozenset[Key]) -> dict[Key, list[str]]:
        sql = SourceSql(self.columns_plan)
        after = self.bounds[chunk - 1] if chunk else None
        end = self.bounds[chunk] if chunk < len(self.bounds) else None
        query = (
            f"SELECT {sql.key}, md5(convert_to({sql.row}, 'UTF8')) FROM {self._table} "
            f"WHERE {sql.is_between(after, end)}"
        )
        hashes: dict[Key, list[str]] = {}
        for key, row_hash in self._rows(query, []):
            if key not in left_out:
                hashes.setdefault(key, []).append(row_hash)
        return hashes

    def fields(self, row_keys: frozenset[Key]) -> dict[Key, RowFields]:
        sql = SourceSql(self.columns_plan)
        names = [f"k{index}" for index in range(len(self.columns_plan.key_columns))]
        conditions = [f"k.key = {sql.key}"]
        for name, column in zip(names, self.columns_plan.key_columns, strict=True):
            if cast := _INDEX_CASTS.get(column.source_type.name):
                column_sql = f"t.{identifier(column.name)}".replace("%", "%%")
                conditions.append(f"{column_sql} = {cast.replace('{}', f'k.{name}')}")
        hashes = ", ".join(f"md5(convert_to({field}, 'UTF8'))" for field in sql.fields)
        arrays = ", ".join(["%s::text[]"] * (1 + len(names)))
        query = (
            f"SELECT k.key, ARRAY[{hashes}] FROM unnest({arrays}) AS k (key, {', '.join(names)}) "
            f"JOIN {self._table} ON {' AND '.join(conditions)}"
        )
        ordered = sorted(row_keys)
        values = [list(column) for column in zip(*map(values_of, ordered), strict=True)]
        rows: dict[Key, RowFields] = {}
        if ordered:
            for key, row_fields in self._rows(query, [ordered, *values]):
                rows.setdefault(key, []).append(tuple(row_fields))
        return rows

    def _rows(self, query: str, parameters: list[Any]) -> Iterable[tuple[Any, ...]]:
        with database_errors(f"the comparison of {self.relation.shown}"):
            return list(self.connection.execute(query, parameters))
