# SPDX-License-Identifier: Apache-2.0
"""The tables of a snapshot, their chunks, and the queries that read them.

Bounds of chunks are computed by the database, in its own order: of collations, of unsigned and
composite keys, of types that this process does not know. They are texts only, which the database
wrote and casts back into the type of the key column.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from changelane.capture.postgres.connection import database_errors
from changelane.capture.postgres.publication import Publication
from changelane.capture.postgres.sql_text import TEXT_SETTINGS, identifier, literal, qualified
from changelane.capture.postgres.tables import TREE, CapturedTable
from changelane.capture.snapshot.plan import KeyColumn, SnapshotChunk, SnapshotTable, divided

if TYPE_CHECKING:
    from changelane.capture.postgres.connection import Connection

_SETTINGS: Final = TEXT_SETTINGS | {
    "datestyle": "ISO, YMD",
    "timezone": "UTC",
    "statement_timeout": "0",
}
_SET: Final = "; ".join(f"SET {name} = {literal(value)}" for name, value in _SETTINGS.items())
"""With these settings the texts of values do not depend on the login."""
# The files and the columns of a table and of its partitions: a statement that rewrites or truncates
# a table gives it another file, and an older snapshot finds it empty then.
_VERSIONS: Final = """
SELECT t.root, md5(string_agg(concat_ws(' ', t.oid, pg_relation_filenode(t.oid), (
    SELECT string_agg(
      concat_ws(' ', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull),
      ',' ORDER BY a.attnum
    ) FROM pg_attribute a WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
  )), ';' ORDER BY t.oid))
FROM tree t GROUP BY t.root
"""
# A statement that rewrites a table changes its file and an entry of the catalog. TRUNCATE, VACUUM
# FULL and CLUSTER change the file only.
_FILES: Final = """
SELECT t.oid, pg_relation_filenode(t.oid), concat_ws(' ', to_jsonb(c) ->> 'relam',
  c.relpersistence, (SELECT md5(string_agg(a.xmin::text, ',' ORDER BY a.attnum))
    FROM pg_attribute a WHERE a.attrelid = t.oid AND a.attnum > 0))
FROM tree t JOIN pg_class c ON c.oid = t.oid
"""
# An update of a key does not repeat a value that is stored out of line if the old row is not in
# the log. Only the row of the former key has the value then, which a later snapshot lacks.
_OUT_OF_LINE: Final = """
SELECT DISTINCT t.root FROM tree t JOIN pg_class c ON c.oid = t.oid
WHERE c.relreplident <> 'f' AND c.reltoastrelid <> 0 AND pg_relation_size(c.reltoastrelid) > 0
"""
# the size, the number of rows as the planner estimates it, and whether it is unknown
_SIZES: Final = """
SELECT t.root, sum(pg_table_size(t.oid))::bigint,
  sum(CASE WHEN c.reltuples > 0 AND c.relpages > 0
    THEN c.reltuples * (pg_relation_size(t.oid)::float8 / c.relpages) / s.block_size
    ELSE 0 END)::bigint,
  bool_or(pg_relation_size(t.oid) > 0 AND NOT (c.reltuples > 0 AND c.relpages > 0))
FROM tree t JOIN pg_class c ON c.oid = t.oid
  CROSS JOIN (SELECT current_setting('block_size')::int AS block_size) s
WHERE c.relkind = 'r' GROUP BY t.root
"""
# Without a search path, names of operators are those of the system's schema. For a type of an
# extension, such as citext, ORDER BY uses its own order, but < and > that of a type to which it is
# cast. Ranges of bounds in one order would overlap in another one.
_KEY_TYPES: Final = """
WITH RECURSIVE base (number, name, type, oid) AS (
  SELECT a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.atttypid FROM pg_attribute a
  WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
  SELECT b.number, b.name, b.type, t.typbasetype
  FROM base b JOIN pg_type t ON t.oid = b.oid WHERE t.typtype = 'd'
)
SELECT b.name, b.type, t.typtype = 'e' OR t.typnamespace = 'pg_catalog'::regnamespace
FROM base b JOIN pg_type t ON t.oid = b.oid WHERE t.typtype <> 'd' ORDER BY b.number
"""


def table_versions(connection: "Connection", oids: Sequence[int]) -> dict[int, str]:
    """Return the versions of tables as they are now, by oid; a dropped table has none.

    Args:
        connection: A connection with autocommit: a transaction may see former versions.
        oids: The tables.
    """
    with database_errors("the check of the tables"):
        return dict(connection.execute(TREE + _VERSIONS, [list(oids)]).fetchall())


def table_files(connection: "Connection", names: Iterable[str]) -> dict[int, tuple[int, str]]:
    """Return the files of tables and their partitions, and their state in the catalog, by oid.

    A table that was rewritten meanwhile has another file and another state.

    Args:
        connection: A connection with autocommit.
        names: The quoted names of the tables.
    """
    roots = "SELECT array_remove(array_agg(to_regclass(name)::oid), NULL) FROM unnest(%s::text[])"
    with database_errors("the check of the tables"):
        row = connection.execute(f"{roots} AS names (name)", [list(names)]).fetchone()
        rows = connection.execute(TREE + _FILES, [row[0] if row else []]).fetchall()
    return {oid: (file, state) for oid, file, state in rows if file is not None}


def snapshot_tables(
    connection: "Connection", tables: Sequence[CapturedTable], publication: Publication
) -> tuple[SnapshotTable, ...]:
    """Return the tables of a snapshot, with the columns and the rows that the log has, too.

    Args:
        connection: A connection with autocommit.
        tables: The captured tables.
        publication: The publication of the capture.
    """
    oids = [table.relation.oid for table in tables]
    versions = table_versions(connection, oids)
    with database_errors("the check of the tables"):
        sizes = {row[0]: row[1:] for row in connection.execute(TREE + _SIZES, [oids])}
        out_of_line = {row[0] for row in connection.execute(TREE + _OUT_OF_LINE, [oids])}
        columns = {
            oid: [KeyColumn(*row) for row in connection.execute(_KEY_TYPES, [oid])] for oid in oids
        }
    planned_tables = (
        (
            _snapshot_table(
                table,
                publication,
                versions[oid],
                columns[oid],
                has_out_of_line=oid in out_of_line,
            ),
            sizes.get(oid),
        )
        for oid, table in zip(oids, tables, strict=True)
        if oid in versions
    )
    return tuple(
        planned_table if size is None else _with_row_bytes(connection, planned_table, *size)
        for planned_table, size in planned_tables
    )


def _with_row_bytes(
    connection: "Connection",
    planned_table: SnapshotTable,
    size_bytes: int,
    row_count: int,
    is_unknown: bool,  # noqa: FBT001 - a row of the query
) -> SnapshotTable:
    """Return a table with the average size of its rows; the rows are counted if need be."""
    if is_unknown:
        with database_errors(f"the size of {planned_table.label}"):
            connection.execute("SET statement_timeout = 0")
            query = f"SELECT count(*) FROM {_source(planned_table)}"  # noqa: S608 - a quoted name
            row = connection.execute(query.encode()).fetchone()
        row_count = row[0] if row else 0
    return msgspec.structs.replace(planned_table, row_bytes=size_bytes // max(row_count, 1))


def _snapshot_table(
    captured: CapturedTable,
    publication: Publication,
    version: str,
    key_columns: Sequence[KeyColumn],
    *,
    has_out_of_line: bool,
) -> SnapshotTable:
    relation = captured.relation
    columns = [*captured.columns, *(captured.generated if publication.has_generated else ())]
    published = publication.tables.get((relation.schema, relation.name))
    row_filter = ""
    if published is not None:
        row_filter = published.row_filter
        if published.columns is not None:
            columns = [column for column in columns if column in published.columns]
    index = captured.primary_key or captured.identity_index
    by_name = {column.name: column for column in key_columns}
    return SnapshotTable(
        schema=relation.schema,
        name=relation.name,
        oid=relation.oid,
        is_partitioned=relation.kind == "partitioned table",
        columns=tuple(name for name in by_name if name in columns),
        key=() if index is None else tuple(by_name[name] for name in index.names),
        row_filter=row_filter,
        row_bytes=0,
        version=version,
        is_continuable=index is not None and not has_out_of_line,
    )


def in_key_range(
    planned_table: SnapshotTable, lower: Sequence[str], upper: Sequence[str]
) -> SnapshotTable:
    r"""Return a table with the rows of a range of keys only.

    Args:
        planned_table: The table.
        lower: The first values of the smallest key, as texts; empty = no bound.
        upper: The first values of the greatest key, which is part of the range.

    >>> planned_table = SnapshotTable(schema="public", name="t", columns=("a", "b"),
    ...     key=(KeyColumn("a", "integer"), KeyColumn("b", "text")), row_bytes=1, version="")
    >>> print(in_key_range(planned_table, ["5"], ["7", "it's"]).key_range)
    ("a") >= ('5'::integer) AND ("a", "b") <= ('7'::integer, 'it''s'::text)
    """
    conditions = [
        _comparison(planned_table.key, operator, bound)
        for operator, bound in ((">=", lower), ("<=", upper))
        if bound
    ]
    return msgspec.structs.replace(planned_table, key_range=" AND ".join(conditions))


def check_key_range(connection: "Connection", planned_table: SnapshotTable) -> None:
    """Check that the server accepts the bounds of a range of keys.

    Raises:
        ConfigError: A text is no value of its column.
    """
    with database_errors(f"the range of keys of {planned_table.label}"):
        connection.execute(f"EXPLAIN {chunk_query(planned_table, SnapshotChunk(0, 0))}".encode())


_WRITERS: Final = """
SELECT DISTINCT l.virtualtransaction FROM pg_locks l JOIN tree t ON t.oid = l.relation
WHERE l.locktype = 'relation' AND l.granted
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.mode IN (
    'RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'
  )
"""
_POLL_S: Final = 0.1


def wait_for_writers(
    connection: "Connection", oid: int, check: Callable[[], None] = lambda: None
) -> None:
    """Wait for the end of all transactions that have written to a table by now.

    A transaction keeps its lock until other sessions see its rows, which is after its commit is in
    the log.

    Args:
        connection: A connection with autocommit.
        oid: The table.
        check: Called again and again; it raises to stop the wait.
    """

    def writers() -> set[str]:
        with database_errors("the wait for transactions"):
            return {row[0] for row in connection.execute(TREE + _WRITERS, [[oid]])}

    remaining = writers()
    while remaining:
        check()
        time.sleep(_POLL_S)
        remaining &= writers()


# -- in the snapshot


def export_snapshot(connection: "Connection") -> str:
    """Return the name of a snapshot of the present state, which lives until the connection ends."""
    with database_errors("the export of a snapshot"):
        connection.execute("SET idle_in_transaction_session_timeout = 0")
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        row = connection.execute("SELECT pg_export_snapshot()").fetchone()
    return row[0] if row else ""


def begin_in_snapshot(connection: "Connection", snapshot: str) -> None:
    """Begin a transaction that sees an exported snapshot.

    Raises:
        ConfigError: The snapshot is lost, because the session that exported it has ended.
    """
    with database_errors("the import of the snapshot"):
        connection.execute(_SET)
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(f"SET TRANSACTION SNAPSHOT {literal(snapshot)}")


def chunks_of(
    connection: "Connection",
    planned_tables: Sequence[SnapshotTable],
    *,
    max_rows: int,
    max_bytes: int,
) -> tuple[SnapshotChunk, ...]:
    """Divide tables into chunks of about equal numbers of rows, whatever their keys are.

    Args:
        connection: A connection in the snapshot.
        planned_tables: The tables of the plan.
        max_rows: The number of rows of a chunk.
        max_bytes: The approximate size of its rows, which may reduce their number.
    """
    upper_bounds = partial(_upper_bounds, connection)
    return divided(planned_tables, upper_bounds, max_rows=max_rows, max_bytes=max_bytes)


def _upper_bounds(
    connection: "Connection", planned_table: SnapshotTable, row_count: int
) -> Iterator[tuple[str, ...]]:
    """Yield the key of every n-th row, in the order of the key."""
    if not all(column.is_divisible for column in planned_table.key) or not planned_table.key:
        return
    names = [identifier(column.name) for column in planned_table.key]
    keys = ", ".join(f"{name} AS k{index}" for index, name in enumerate(names))
    texts = ", ".join(f"k{index}::text" for index in range(len(names)))
    numbered = (
        f"SELECT {keys}, row_number() OVER (ORDER BY {', '.join(names)}) AS n "  # noqa: S608 - quoted names
        f"FROM {_source(planned_table)}{_where([planned_table.key_range])}"
    )
    every = f"WHERE n % {row_count} = 0 ORDER BY n"
    statement = f"SELECT {texts} FROM ({numbered}) AS keys {every}"  # noqa: S608 - quoted names
    with database_errors(f"the division of {planned_table.label} into chunks"):
        yield from connection.execute(statement.encode()).fetchall()


def chunk_query(planned_table: SnapshotTable, chunk: SnapshotChunk) -> str:
    r"""Return the query for the rows of a chunk.

    >>> planned_table = SnapshotTable(schema="public", name="t", oid=1, is_partitioned=False,
    ...     columns=("a", "b"), key=(KeyColumn("a", "integer"),), row_filter="", row_bytes=1,
    ...     version="")
    >>> chunk_query(planned_table, SnapshotChunk(1, 0, ("5",), None))
    'SELECT "a", "b" FROM ONLY "public"."t" WHERE ("a") > (\'5\'::integer)'
    """
    conditions = [f"({planned_table.row_filter})"] if planned_table.row_filter else []
    conditions.append(planned_table.key_range)
    for operator, bound in ((">", chunk.lower), ("<=", chunk.upper)):
        if bound is not None:
            conditions.append(_comparison(planned_table.key, operator, bound))
    columns = ", ".join(map(identifier, planned_table.columns))
    return f"SELECT {columns} FROM {_source(planned_table)}{_where(conditions)}"  # noqa: S608 - quoted


def _source(planned_table: SnapshotTable) -> str:
    """Return the rows of a table; those of tables that inherit from it are captured as theirs."""
    name = qualified(planned_table.schema, planned_table.name)
    return name if planned_table.is_partitioned else f"ONLY {name}"


def _comparison(key: Sequence[KeyColumn], operator: str, bound: Sequence[str]) -> str:
    """Return the comparison of a key with its first values."""
    names = ", ".join(identifier(column.name) for column in key[: len(bound)])
    values = ", ".join(
        f"{literal(text)}::{column.type}" for text, column in zip(bound, key, strict=False)
    )
    return f"({names}) {operator} ({values})"


def _where(conditions: Iterable[str]) -> str:
    text = " AND ".join(filter(None, conditions))
    return f" WHERE {text}" if text else ""
