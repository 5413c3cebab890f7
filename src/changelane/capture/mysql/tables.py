# SPDX-License-Identifier: Apache-2.0
"""The tables of a MySQL or MariaDB server: those that patterns select, and findings about them.

A pattern is ``database.table`` (:mod:`changelane.capture.table_pattern`) with backticks as quotes.
Whether case matters depends on the server's ``lower_case_table_names``.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

import msgspec

from changelane.capture.finding import Finding, about_tables
from changelane.capture.mysql.connection import (
    Connection,
    database_errors,
    read_if_allowed,
    read_rows,
)
from changelane.capture.mysql.sql_text import qualified, shown_name
from changelane.capture.table_pattern import TablePattern, nearest_name, pattern_of
from changelane.schema import TableId

QUOTE: Final = "`"
_SYSTEM: Final = ("information_schema", "mysql", "performance_schema", "sys")
_TRANSACTIONAL: Final = frozenset({"InnoDB", "ROCKSDB", "RocksDB", "TokuDB", "ndbcluster"})
_REMOTE: Final = frozenset(
    {"FEDERATED", "CONNECT", "SPIDER", "S3", "BLACKHOLE", "PERFORMANCE_SCHEMA"}
)
"""Engines whose rows change elsewhere, or nowhere."""


class MysqlTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table, or what may be mistaken for one.

    Attributes:
        kind: The type as the server names it: ``BASE TABLE``, ``VIEW``, ``SEQUENCE``,
            ``SYSTEM VERSIONED``.
        engine: The storage engine; empty for a view.
        has_key: It has a primary key or a unique index without NULL.
        is_partitioned: It has partitions, which statements can empty.
    """

    database: str
    name: str
    kind: str = "BASE TABLE"
    engine: str = "InnoDB"
    has_key: bool = True
    is_partitioned: bool = False

    @property
    def shown(self) -> str:
        """The name for people: a pattern that matches only this table."""
        return shown_name(self.database, self.name)

    @property
    def sql(self) -> str:
        """The quoted name."""
        return qualified(self.database, self.name)

    @property
    def is_transactional(self) -> bool:
        """Whether its storage engine has transactions."""
        return self.engine in _TRANSACTIONAL

    @property
    def is_capturable(self) -> bool:
        """Whether its changes are in the log."""
        is_table = self.kind in {"BASE TABLE", "SYSTEM VERSIONED"}
        return is_table and self.engine not in _REMOTE


class Selection(msgspec.Struct, frozen=True):
    """The result of patterns.

    Attributes:
        tables: The tables that can be captured, by database and name.
        rejected: Relations with an exact name that cannot be captured.
        unmatched: The patterns without a match, each with the nearest name or an empty text.
    """

    tables: tuple[MysqlTable, ...] = ()
    rejected: tuple[MysqlTable, ...] = ()
    unmatched: tuple[tuple[str, str], ...] = ()


def parse_patterns(include: Iterable[str], *, ignores_case: bool = False) -> list[TablePattern]:
    """Parse patterns.

    Raises:
        ConfigError: A pattern is not ``database.table``.
    """
    return [
        pattern_of(text, quote=QUOTE, schema_word="database", ignores_case=ignores_case)
        for text in include
    ]


def selection_of(relations: Sequence[MysqlTable], patterns: Iterable[TablePattern]) -> Selection:
    """Return the tables that patterns select."""
    selected: dict[str, MysqlTable] = {}
    rejected: dict[str, MysqlTable] = {}
    unmatched = []
    for pattern in patterns:
        matches = {
            table.sql: table for table in relations if pattern.matches(table.database, table.name)
        }
        capturable = {name: table for name, table in matches.items() if table.is_capturable}
        selected |= capturable
        if pattern.is_exact:
            rejected |= {name: matches[name] for name in matches.keys() - capturable.keys()}
        if not capturable and not (pattern.is_exact and matches):
            names = (table.shown for table in relations if table.is_capturable)
            unmatched.append((pattern.text, nearest_name(pattern.text, names, quote=QUOTE)))
    return Selection(_sorted(selected), _sorted(rejected), tuple(unmatched))


def _sorted(by_name: dict[str, MysqlTable]) -> tuple[MysqlTable, ...]:
    return tuple(sorted(by_name.values(), key=lambda table: (table.database, table.name)))


_TABLES: Final = """
SELECT t.table_schema, t.table_name, t.table_type, coalesce(t.engine, ''), EXISTS (
  SELECT 1 FROM information_schema.statistics s
  WHERE s.table_schema = t.table_schema AND s.table_name = t.table_name AND s.non_unique = 0
  GROUP BY s.index_name HAVING max(coalesce(s.nullable, '') = 'YES') = 0),
  t.create_options LIKE '%%partitioned%%'
FROM information_schema.tables t
WHERE t.table_schema NOT IN (%s, %s, %s, %s) AND t.table_type <> 'SYSTEM VIEW'
"""


def read_all_tables(connection: Connection) -> list[MysqlTable]:
    """Read the names of all tables and views that the user has a privilege on."""
    with database_errors("the list of tables"):
        rows = read_rows(connection, _TABLES, *_SYSTEM)
    return [
        MysqlTable(
            database=database,
            name=name,
            kind=kind,
            engine=engine,
            has_key=bool(has_key),
            is_partitioned=bool(is_partitioned),
        )
        for database, name, kind, engine, has_key, is_partitioned in rows
    ]


def ignores_case(connection: Connection) -> bool:
    """Whether the server compares names of tables without case."""
    with database_errors("the settings of the server"):
        ((setting,),) = read_rows(connection, "SELECT @@lower_case_table_names")
    return int(setting) != 0


def list_tables(connection: Connection, include: Iterable[str]) -> list[TableId]:
    """Return the tables that patterns select and that can be captured, by database and name.

    Args:
        connection: A connection to the server.
        include: Patterns; see the module.

    Raises:
        ConfigError: A pattern is not ``database.table``, or the server rejects the statement.
    """
    patterns = parse_patterns(include, ignores_case=ignores_case(connection))
    selection = selection_of(read_all_tables(connection), patterns)
    return [TableId(table.database, None, table.name) for table in selection.tables]


def tables_with_rows(connection: Connection, include: Iterable[str]) -> list[str]:
    """Return those of the tables that patterns select which have rows.

    Raises:
        ConfigError: The user lacks a privilege.
    """
    patterns = parse_patterns(include, ignores_case=ignores_case(connection))
    with database_errors("the check of the tables"):
        return [
            table.shown
            for table in selection_of(read_all_tables(connection), patterns).tables
            if read_rows(connection, f"SELECT 1 FROM {table.sql} LIMIT 1")  # noqa: S608 - a quoted name
        ]


def unreadable_tables(connection: Connection, selected: Iterable[MysqlTable]) -> list[MysqlTable]:
    """Return the tables whose rows or columns the user may not read."""
    with database_errors("the check of the tables"):
        return [
            table
            for table in selected
            if read_if_allowed(connection, f"SELECT * FROM {table.sql} LIMIT 0") is None  # noqa: S608 - a quoted name
        ]


_CASCADE: Final = re.compile(
    r"^  CONSTRAINT .* ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL)", re.MULTILINE
)


def cascading_tables(connection: Connection, selected: Iterable[MysqlTable]) -> list[MysqlTable]:
    """Return the tables whose rows a foreign key deletes or changes with those of another table.

    The catalog shows foreign keys only to users with more privileges than SELECT.
    """
    with database_errors("the check of the tables"):
        return [
            table
            for table in selected
            if (rows := read_if_allowed(connection, f"SHOW CREATE TABLE {table.sql}"))
            and _CASCADE.search(str(rows[0][1]))
        ]


_UNKNOWN_TYPES: Final = """
SELECT DISTINCT c.table_schema, c.table_name
FROM information_schema.columns c JOIN information_schema.tables t
  ON t.table_schema = c.table_schema AND t.table_name = c.table_name
WHERE c.table_schema = %s AND t.table_type <> 'VIEW'
  AND (c.data_type IN ('inet4', 'inet6', 'xmltype') OR c.column_type LIKE '%%compressed%%')
"""


def unknown_type_tables(connection: Connection, databases: Iterable[str]) -> list[MysqlTable]:
    """Return the tables of databases with a type of column that Debezium's parser rejects.

    It parses the statements of all tables in the captured databases. (Debezium 3.5 with MariaDB's
    types; its issues have no list.)
    """
    with database_errors("the check of the columns"):
        rows = [
            row
            for database in sorted(databases)
            for row in read_rows(connection, _UNKNOWN_TYPES, database)
        ]
    return [MysqlTable(database=database, name=name) for database, name in rows]


def float_columns(connection: Connection, selected: Iterable[MysqlTable]) -> dict[str, list[str]]:
    """Return the columns of the type FLOAT of each table."""
    statement = (
        "SELECT column_name FROM information_schema.columns WHERE table_schema = %s "
        "AND table_name = %s AND data_type = 'float' ORDER BY ordinal_position"
    )
    with database_errors("the check of the columns"):
        rows = {
            table.shown: read_rows(connection, statement, table.database, table.name)
            for table in selected
        }
    return {name: [column for (column,) in columns] for name, columns in rows.items() if columns}


# -- findings


def selection_findings(selection: Selection) -> Iterator[Finding]:
    """Yield findings about patterns without tables and relations that cannot be captured."""
    for text, nearest in selection.unmatched:
        yield Finding(
            severity="error",
            defect="no_table",
            about=f"table {text}",
            problem="no table that the user may see has this name",
            consequence="nothing is captured",
            advice=(
                f"did you mean {nearest}?"
                if nearest
                else "create it, grant SELECT on it, or remove the name"
            ),
        )
    for table in selection.rejected:
        is_table = table.kind == "BASE TABLE"
        kind = f"of engine {table.engine}" if is_table else f"a {table.kind.lower()}"
        yield Finding(
            severity="error",
            defect="no_base_table",
            about=f"table {table.shown}",
            problem=f"it is {kind}",
            consequence="its changes are not in the log",
            advice="remove the name",
        )


def unknown_type_findings(affected: Sequence[MysqlTable]) -> Iterator[Finding]:
    """Yield the finding about tables with types of columns that Debezium does not know."""
    if affected:
        yield _finding(
            "error",
            "unknown_type",
            affected,
            problem="a column has the type inet4, inet6 or xmltype, or is compressed",
            consequence="Debezium cannot parse the statements of the database",
            advice="change the type, or move the table to another database",
        )


def cascade_findings(affected: Sequence[MysqlTable]) -> Iterator[Finding]:
    """Yield the finding about tables that foreign keys change."""
    if affected:
        yield _finding(
            "warning",
            "cascades",
            affected,
            problem="foreign keys delete or change its rows (CASCADE, SET NULL)",
            consequence="the storage engine does so without the log: the lake keeps these rows",
            advice="delete and change the rows with statements, and let the keys RESTRICT",
        )


def table_findings(
    selected: Sequence[MysqlTable], unreadable: Sequence[MysqlTable], user_account: str
) -> Iterator[Finding]:
    """Yield findings about the tables that are captured.

    Args:
        selected: The tables.
        unreadable: Those that the user may not read.
        user_account: The quoted account of the user.
    """
    if unreadable:
        yield _finding(
            "error",
            "select_privilege",
            unreadable,
            problem="the user lacks SELECT",
            consequence="a snapshot cannot read it",
            sql_statements=(
                f"GRANT SELECT ON {table.sql} TO {user_account}" for table in unreadable
            ),
        )
    if versioned := [table for table in selected if table.kind == "SYSTEM VERSIONED"]:
        yield _finding(
            "error",
            "system_versioned",
            versioned,
            problem="the table is system-versioned",
            consequence="the log has its deletes as updates and its history as inserts: rows stay",
            advice="exclude it, or drop its system versioning if its history has no value",
        )
    if keyless := [table for table in selected if not table.has_key]:
        yield _finding(
            "warning",
            "no_key",
            keyless,
            problem="there is neither a primary key nor a unique index without NULL",
            consequence="equal rows cannot be distinguished",
            advice="add a primary key, or name key columns under options.keys",
        )
    if partitioned := [table for table in selected if table.is_partitioned]:
        yield _finding(
            "warning",
            "partitions",
            partitioned,
            problem="TRUNCATE, DROP and EXCHANGE of a partition log no rows",
            consequence="the lake keeps the rows of the partition",
            advice="DELETE the rows first, or take a new snapshot afterwards",
        )
    if plain := [table for table in selected if not table.is_transactional]:
        yield _finding(
            "warning",
            "engine",
            plain,
            problem=f"the storage engine {plain[0].engine} has no transactions",
            consequence="a snapshot may read unfinished statements, and a crash loses changes",
            sql_statements=(f"ALTER TABLE {table.sql} ENGINE = InnoDB" for table in plain),
        )


def _finding(
    severity: Literal["error", "warning"],
    defect: str,
    affected: Sequence[MysqlTable],
    *,
    problem: str,
    consequence: str,
    sql_statements: Iterable[str] = (),
    advice: str = "",
) -> Finding:
    return Finding(
        severity=severity,
        defect=defect,
        about=about_tables([table.shown for table in affected]),
        problem=problem,
        consequence=consequence,
        statements=tuple(sql_statements),
        advice=advice,
    )
