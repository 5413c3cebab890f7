# SPDX-License-Identifier: Apache-2.0
"""The tables of a PostgreSQL database: those that patterns select, and their state.

Patterns are those of :mod:`changelane.capture.table_pattern`, in exact case.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from changelane.capture.postgres.connection import database_errors
from changelane.capture.postgres.sql_text import qualified, shown_name
from changelane.capture.table_pattern import nearest_name, pattern_of
from changelane.schema import TableId

if TYPE_CHECKING:
    from changelane.capture.postgres.connection import Connection

Kind = Literal[
    "table", "partitioned table", "view", "materialized view", "foreign table", "temporary table"
]
_KINDS: Final[dict[str, Kind]] = {
    "r": "table",
    "p": "partitioned table",
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
}
"""By ``pg_class.relkind``."""


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """A table, or what may be mistaken for one.

    Attributes:
        oid: Its id in the catalog.
        is_unlogged: Its changes are not in the log.
        is_partition: It is a partition of another table.
    """

    oid: int
    schema: str
    name: str
    kind: Kind
    is_unlogged: bool = False
    is_partition: bool = False

    @property
    def shown(self) -> str:
        """The name for people: a pattern that matches only this table."""
        return shown_name(self.schema, self.name)

    @property
    def sql(self) -> str:
        """The quoted name."""
        return qualified(self.schema, self.name)

    @property
    def is_publishable(self) -> bool:
        """Whether a publication accepts it."""
        return self.kind in {"table", "partitioned table"} and not self.is_unlogged


class Selection(msgspec.Struct, frozen=True):
    """The result of patterns.

    Attributes:
        tables: The tables that can be captured, by schema and name.
        rejected: Relations with an exact name that cannot be captured.
        unlogged: Unlogged tables that a wildcard matches.
        unmatched: The patterns without a match, each with the nearest name or an empty text.
    """

    tables: tuple[Relation, ...] = ()
    rejected: tuple[Relation, ...] = ()
    unlogged: tuple[Relation, ...] = ()
    unmatched: tuple[tuple[str, str], ...] = ()


def selection_of(relations: Collection[Relation], include: Iterable[str]) -> Selection:
    """Return the relations that patterns select.

    A wildcard selects neither views nor partitions: the changes of partitions are those of their
    table. An exact name selects a partition, too.

    Raises:
        ConfigError: A pattern is not ``schema.table``.
    """
    tables: dict[int, Relation] = {}
    rejected: dict[int, Relation] = {}
    unlogged: dict[int, Relation] = {}
    unmatched = []
    for pattern in map(pattern_of, include):
        matches = [
            relation
            for relation in relations
            if pattern.matches(relation.schema, relation.name)
            and (pattern.is_exact or not relation.is_partition)
        ]
        others = {match.oid: match for match in matches if not match.is_publishable}
        tables |= {match.oid: match for match in matches if match.is_publishable}
        if pattern.is_exact:
            rejected |= others
        else:
            others = {oid: match for oid, match in others.items() if match.is_unlogged}
            unlogged |= others
        if not others and not any(match.is_publishable for match in matches):
            names = (relation.shown for relation in relations if relation.is_publishable)
            unmatched.append((pattern.text, nearest_name(pattern.text, names)))
    return Selection(
        _sorted(tables.values()),
        _sorted(rejected.values()),
        _sorted(match for oid, match in unlogged.items() if oid not in rejected),
        tuple(unmatched),
    )


def _sorted(relations: Iterable[Relation]) -> tuple[Relation, ...]:
    return tuple(sorted(relations, key=lambda relation: (relation.schema, relation.name)))


_DATE_COLUMNS: Final = """
WITH RECURSIVE dates (oid) AS (
  SELECT oid FROM pg_type
  WHERE oid IN ('date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype)
  UNION SELECT t.oid FROM pg_type t JOIN dates d ON d.oid IN (t.typbasetype, t.typelem))
SELECT a.attrelid, a.attname FROM pg_attribute a JOIN dates d ON d.oid = a.atttypid
WHERE a.attrelid = ANY(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


def date_columns(connection: "Connection", relations: Iterable[Relation]) -> dict[str, list[str]]:
    """Return the columns with dates, arrays and domains of them included, of each table."""
    shown = {relation.oid: relation.shown for relation in relations}
    with database_errors("the check of the columns"):
        rows = connection.execute(_DATE_COLUMNS, [list(shown)]).fetchall()
    columns: dict[str, list[str]] = {}
    for oid, name in rows:
        columns.setdefault(shown[oid], []).append(name)
    return columns


class Columns(msgspec.Struct, frozen=True):
    """Columns of one index.

    Attributes:
        index: The name of the index.
        names: The columns.
        is_immediate: The index checks rows at once; a deferrable index identifies no row.
        is_identity_candidate: ``REPLICA IDENTITY USING INDEX`` accepts it.
    """

    index: str
    names: tuple[str, ...]
    is_immediate: bool = True
    is_identity_candidate: bool = True


class CapturedTable(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one table, as far as its capture depends on it.

    Attributes:
        relation: Its name and kind.
        replica_identity: ``d`` (default), ``n`` (nothing), ``f`` (full) or ``i`` (index).
        primary_key: The primary key, if there is one.
        identity_index: The index of ``REPLICA IDENTITY USING INDEX``, if it still exists.
        candidate: A unique index that can become the replica identity, if there is one.
        columns: The names of its columns, without generated ones.
        generated: The stored generated columns.
        virtual: The virtual generated columns (from version 18).
        has_toast: Large values are stored apart, and the log has them only when they change.
        has_usage, has_select: The privileges of the user.
        has_row_security: Row-level security hides rows from the user.
        is_owned: The user owns the table.
        children: The tables that inherit from it, without partitions.
        partitions: The partitions that store its rows, or foreign tables that do.
    """

    relation: Relation
    replica_identity: str = "d"
    primary_key: Columns | None = None
    identity_index: Columns | None = None
    candidate: Columns | None = None
    columns: tuple[str, ...] = ()
    generated: tuple[str, ...] = ()
    virtual: tuple[str, ...] = ()
    has_toast: bool = False
    has_usage: bool = True
    has_select: bool = True
    has_row_security: bool = False
    is_owned: bool = True
    children: tuple[Relation, ...] = ()
    partitions: "tuple[CapturedTable, ...]" = ()


_RELATIONS: Final = """
SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, c.relispartition
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_toast'
"""
# a toast table exists only if rows can be too long for a page
_TABLES: Final = """
SELECT c.oid, c.relreplident::text, c.reltoastrelid <> 0,
  has_schema_privilege(c.relnamespace, 'USAGE'),
  has_schema_privilege(c.relnamespace, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'),
  row_security_active(c.oid), pg_has_role(c.relowner, 'USAGE')
FROM pg_class c WHERE c.oid = ANY(%s::oid[])
"""
_COLUMNS: Final = """
SELECT a.attrelid, a.attname, {generated}
FROM pg_attribute a
WHERE a.attrelid = ANY(%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""
# columns that an index only includes are no part of its key
_INDEXES: Final = """
SELECT i.indrelid, c.relname, i.indisprimary, i.indisreplident, i.indimmediate,
  i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indisvalid
    AND coalesce(k.is_not_null, false),
  coalesce(k.names, '{}')
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
CROSS JOIN LATERAL (
  SELECT array_agg(a.attname::text ORDER BY n.position) AS names, bool_and(a.attnotnull)
    AS is_not_null
  FROM generate_series(0, i.indnkeyatts - 1) AS n (position)
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n.position]
) k
WHERE i.indrelid = ANY(%s::oid[]) AND i.indisunique
ORDER BY i.indrelid, cardinality(k.names), c.relname
"""
_GENERATED_VERSION: Final = 120000
"""The first version with generated columns."""
TREE: Final = """
WITH RECURSIVE tree (root, oid) AS (
  SELECT root, root FROM unnest(%s::oid[]) AS roots (root)
  UNION
  SELECT tree.root, i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid
)"""
"""The beginning of a query about tables with their partitions and inheriting tables."""
_DESCENDANTS: Final = """
SELECT root, oid FROM tree WHERE root <> oid
"""


def list_tables(connection: "Connection", include: Iterable[str]) -> list[TableId]:
    """Return the tables that patterns select and that can be captured, by schema and name.

    Args:
        connection: A connection to the database.
        include: Patterns; see the module.

    Raises:
        ConfigError: A pattern is not ``schema.table``, or the server rejects the statement.
    """
    selection = selection_of(read_relations(connection), include)
    database = connection.info.dbname
    return [TableId(database, table.schema, table.name) for table in selection.tables]


def tables_with_rows(connection: "Connection", include: Collection[str]) -> list[str]:
    """Return those of the tables that patterns select which have rows.

    Raises:
        ConfigError: The user lacks a privilege.
    """

    def has_rows(table: Relation) -> bool:
        statement = f"SELECT FROM {table.sql} LIMIT 1"
        return connection.execute(statement.encode()).fetchone() is not None

    with database_errors("the check of the tables"):
        selected = selection_of(read_relations(connection), include).tables
        return [table.shown for table in selected if has_rows(table)]


def read_relations(connection: "Connection") -> list[Relation]:
    """Read the names of all tables and views outside of the system's schemas."""
    with database_errors("the list of tables"):
        rows = connection.execute(_RELATIONS).fetchall()
    return [
        Relation(
            oid=oid,
            schema=schema,
            name=name,
            kind="temporary table" if persistence == "t" else _KINDS[kind],
            is_unlogged=persistence == "u",
            is_partition=is_partition,
        )
        for oid, schema, name, kind, persistence, is_partition in rows
    ]


def read_descendants(connection: "Connection", roots: Iterable[int]) -> list[tuple[int, int]]:
    """Return the partitions and inheriting tables of tables, of all levels: root and descendant."""
    return connection.execute(TREE + _DESCENDANTS, [list(roots)]).fetchall()


def read_tables(
    connection: "Connection", relations: Iterable[Relation], selected: Sequence[Relation]
) -> list[CapturedTable]:
    """Read the state of selected tables.

    Args:
        connection: A connection of the user that captures.
        relations: All relations of the database.
        selected: The tables.
    """
    by_oid = {relation.oid: relation for relation in relations}
    roots = [relation.oid for relation in selected]
    with database_errors("the check of the tables"):
        descendants: dict[int, list[int]] = {oid: [] for oid in roots}
        for root, oid in read_descendants(connection, roots):
            if oid in by_oid:
                descendants[root].append(oid)
        leaves = {oid for below in descendants.values() for oid in below}
        oids = [*dict.fromkeys([*roots, *leaves])]
        states = {row[0]: row[1:] for row in connection.execute(_TABLES, [oids])}
        columns = _grouped(connection.execute(_columns_query(connection), [oids]).fetchall())
        indexes = _grouped(connection.execute(_INDEXES, [oids]).fetchall())
    tables = {
        oid: _table_of(by_oid[oid], states[oid], columns.get(oid, []), indexes.get(oid, []))
        for oid in oids
        if oid in states
    }
    return [
        _with_descendants(tables[oid], [tables[below] for below in descendants[oid]])
        for oid in roots
        if oid in tables  # dropped since the list was read
    ]


def _columns_query(connection: "Connection") -> bytes:
    has_generated = connection.info.server_version >= _GENERATED_VERSION
    return _COLUMNS.format(generated="a.attgenerated::text" if has_generated else "''").encode()


def _grouped(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    """Return rows without their first value, by their first value."""
    groups: dict[int, list[tuple[Any, ...]]] = {}
    for first, *others in rows:
        groups.setdefault(first, []).append(tuple(others))
    return groups


def _table_of(
    relation: Relation,
    state: tuple[Any, ...],
    columns: Sequence[tuple[str, str]] | Sequence[tuple[Any, ...]],
    indexes: Sequence[tuple[Any, ...]],
) -> CapturedTable:
    primary_key = identity_index = candidate = None
    for name, is_primary, is_identity, is_immediate, is_candidate, names in indexes:
        index = Columns(name, tuple(names), is_immediate, is_candidate)
        primary_key = index if is_primary else primary_key
        identity_index = index if is_identity else identity_index
        if is_candidate and not is_primary and candidate is None:
            candidate = index
    identity, has_toast, has_usage, has_select, has_row_security, is_owned = state
    by_kind: dict[str, list[str]] = {"": [], "s": [], "v": []}
    for name, generated in columns:
        by_kind.setdefault(generated, []).append(name)
    return CapturedTable(
        relation=relation,
        replica_identity=identity,
        primary_key=primary_key,
        identity_index=identity_index,
        candidate=candidate,
        columns=tuple(by_kind[""]),
        generated=tuple(by_kind["s"]),
        virtual=tuple(by_kind["v"]),
        has_toast=has_toast,
        has_usage=has_usage,
        has_select=has_select,
        has_row_security=has_row_security,
        is_owned=is_owned,
    )


def _with_descendants(
    captured_table: CapturedTable, descendants: Sequence[CapturedTable]
) -> CapturedTable:
    if captured_table.relation.kind == "partitioned table":
        partitions = tuple(
            sorted(
                (below for below in descendants if below.relation.kind != "partitioned table"),
                key=lambda partition: (partition.relation.schema, partition.relation.name),
            )
        )
        return msgspec.structs.replace(captured_table, partitions=partitions)
    children = _sorted(below.relation for below in descendants)
    return msgspec.structs.replace(captured_table, children=children)
