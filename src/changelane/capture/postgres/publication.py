# SPDX-License-Identifier: Apache-2.0
"""Publications: the tables and operations that ``pgoutput`` writes for a reader."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from changelane.capture.postgres.connection import database_errors
from changelane.capture.postgres.sql_text import check_publication_name, identifier, literal
from changelane.capture.postgres.tables import (
    CapturedTable,
    Relation,
    read_relations,
    selection_of,
)
from changelane.errors import ConfigError

if TYPE_CHECKING:
    from changelane.capture.postgres.connection import Connection

VIA_ROOT_VERSION: Final = 130000
"""The first version whose publications accept partitioned tables."""
GENERATED_VERSION: Final = 180000
"""The first version that publishes stored generated columns."""
_PUBLISH: Final = "insert, update, delete, truncate"


class PublishedTable(msgspec.Struct, frozen=True):
    """A table of a publication.

    Attributes:
        columns: The published columns; ``None`` for all (before version 15).
        row_filter: The condition on its rows; empty if there is none.
    """

    columns: tuple[str, ...] | None = None
    row_filter: str = ""


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a publication.

    Attributes:
        is_for_all_tables: It has all tables, those of the future included.
        operations: The operations that it publishes.
        is_via_root: Changes of partitions are published as those of their table.
        has_generated: Stored generated columns are published.
        tables: The tables that it publishes, by schema and name.
        members: The tables that it lists, by schema and name. A partitioned table is a member, but
            is not published under its name unless ``is_via_root``.
    """

    name: str
    is_for_all_tables: bool = False
    operations: frozenset[str] = frozenset(("insert", "update", "delete", "truncate"))
    is_via_root: bool = False
    has_generated: bool = False
    tables: Mapping[tuple[str, str], PublishedTable] = msgspec.field(default_factory=dict)
    members: frozenset[tuple[str, str]] = frozenset()


# columns of later versions are read through to_jsonb
_PUBLICATION: Final = """
SELECT puballtables, pubinsert, pubupdate, pubdelete, pubtruncate,
  coalesce((to_jsonb(p) ->> 'pubviaroot')::boolean, false),
  coalesce(to_jsonb(p) ->> 'pubgencols', 'n') = 's'
FROM pg_publication p WHERE pubname = %s
"""
_PUBLISHED: Final = """
SELECT t.schemaname, t.tablename,
  ARRAY(SELECT jsonb_array_elements_text(nullif(j -> 'attnames', 'null'))),
  coalesce(j ->> 'rowfilter', '')
FROM pg_publication_tables t CROSS JOIN LATERAL to_jsonb(t) AS j
WHERE t.pubname = %s
"""
_MEMBERS: Final = """
SELECT n.nspname, c.relname
FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = %s
"""


def read_publication(connection: "Connection", name: str) -> Publication | None:
    """Return the state of a publication; ``None`` if there is none of this name."""
    with database_errors(f"the state of publication {name}"):
        row = connection.execute(_PUBLICATION, [name]).fetchone()
        if row is None:
            return None
        published = connection.execute(_PUBLISHED, [name]).fetchall()
        members = connection.execute(_MEMBERS, [name]).fetchall()
    operations = ("insert", "update", "delete", "truncate")
    return Publication(
        name=name,
        is_for_all_tables=row[0],
        operations=frozenset(
            operation for operation, is_on in zip(operations, row[1:5], strict=True) if is_on
        ),
        is_via_root=row[5],
        has_generated=row[6],
        tables={
            (schema, table): PublishedTable(tuple(columns) or None, row_filter)
            for schema, table, columns, row_filter in published
        },
        members=frozenset((schema, table) for schema, table in members),
    )


def creation_statement(name: str, tables: Sequence[Relation], version: int) -> str:
    """Return the statement that creates a publication of tables with all operations.

    Args:
        name: The name.
        tables: The tables; none of them is unlogged or a view.
        version: The server's version, such as 150018.
    """
    options = f"publish = {literal(_PUBLISH)}"
    if version >= VIA_ROOT_VERSION:
        options += ", publish_via_partition_root = true"
    names = ", ".join(_member_sql(table) for table in tables)
    return f"CREATE PUBLICATION {identifier(name)} FOR TABLE {names} WITH ({options})"


def addition_statement(name: str, tables: Iterable[Relation]) -> str:
    """Return the statement that adds tables to a publication."""
    names = ", ".join(_member_sql(table) for table in tables)
    return f"ALTER PUBLICATION {identifier(name)} ADD TABLE {names}"


def replacement_statement(name: str, relation: Relation) -> str:
    """Return statements that remove the column list and the row filter of a table.

    One transaction, so that no change of the table is missing.
    """
    publication, member = identifier(name), _member_sql(relation)
    return (
        f"BEGIN; ALTER PUBLICATION {publication} DROP TABLE {member}; "
        f"ALTER PUBLICATION {publication} ADD TABLE {member}; COMMIT"
    )


def operations_statement(name: str) -> str:
    """Return the statement that publishes all operations."""
    return f"ALTER PUBLICATION {identifier(name)} SET (publish = {literal(_PUBLISH)})"


def via_root_statement(name: str) -> str:
    """Return the statement that publishes changes of partitions as those of their table."""
    return f"ALTER PUBLICATION {identifier(name)} SET (publish_via_partition_root = true)"


def generated_statement(name: str) -> str:
    """Return the statement that publishes stored generated columns (from version 18)."""
    return f"ALTER PUBLICATION {identifier(name)} SET (publish_generated_columns = stored)"


def _member_sql(relation: Relation) -> str:
    # ONLY: tables that inherit from it are selected by their own names
    return relation.sql if relation.kind == "partitioned table" else f"ONLY {relation.sql}"


def unpublished_columns(
    captured_table: CapturedTable, publication: Publication | None
) -> tuple[str, ...]:
    """Return the generated columns of a table that the log does not have."""
    is_published = publication is not None and publication.has_generated
    return captured_table.virtual + (() if is_published else captured_table.generated)


def missing_tables(publication: Publication, tables: Iterable[Relation]) -> list[Relation]:
    """Return the tables that a publication does not have."""
    return [
        table
        for table in tables
        if not publication.is_for_all_tables
        and (table.schema, table.name) not in publication.members
        and (table.schema, table.name) not in publication.tables
    ]


def plan_publication(
    publication: Publication | None, name: str, tables: Sequence[Relation], version: int
) -> list[str]:
    """Return the statements after which a publication has all tables and operations.

    An existing publication keeps its other tables, its row filters and its column lists.
    """
    if publication is None:
        return [creation_statement(name, tables, version)]
    statements = []
    if missing := missing_tables(publication, tables):
        statements.append(addition_statement(name, missing))
    if len(publication.operations) < len(_PUBLISH.split(",")):
        statements.append(operations_statement(name))
    has_partitions = any(table.kind == "partitioned table" for table in tables)
    if has_partitions and not publication.is_via_root and version >= VIA_ROOT_VERSION:
        statements.append(via_root_statement(name))
    return statements


def create_publication(connection: "Connection", name: str, include: Iterable[str]) -> list[str]:
    """Create a publication of the tables that patterns select, or complete the one of this name.

    A publication must exist before the slot: ``pgoutput`` fails at changes from before it.

    Args:
        connection: A connection of a user that owns the tables and may create objects in the
            database.
        name: The name of the publication.
        include: Patterns of table names.

    Returns:
        The executed statements; an empty list if nothing was missing.

    Raises:
        ConfigError: No table matches, or the user lacks a privilege; the error has the statements.
        UnreachableError: The connection is lost.
    """
    import psycopg

    check_publication_name(name)
    tables = selection_of(read_relations(connection), include).tables
    if not tables:
        raise ConfigError("no table that can be captured matches the names")
    version = connection.info.server_version
    statements = plan_publication(read_publication(connection, name), name, tables, version)
    try:
        with database_errors(f"the creation of publication {name}"):
            try:
                _execute(connection, statements)
            except (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
                # another session was faster
                publication = read_publication(connection, name)
                statements = plan_publication(publication, name, tables, version)
                _execute(connection, statements)
    except ConfigError as error:
        raise type(error)(f"{error}; as the owner of the tables: {'; '.join(statements)}") from None
    return statements


def refresh_publication(connection: "Connection", name: str) -> None:
    """Let the server's senders read a publication anew, if the user owns it; it stays the same."""
    publication = read_publication(connection, name)
    if publication is None:
        return
    operations = ", ".join(sorted(publication.operations))
    statement = f"ALTER PUBLICATION {identifier(name)} SET (publish = {literal(operations)})"
    with suppress(ConfigError), database_errors(f"the refresh of publication {name}"):
        connection.execute(statement.encode())


def _execute(connection: "Connection", sql_statements: Iterable[str]) -> None:
    with connection.transaction():
        for statement in sql_statements:
            connection.execute(statement.encode())
