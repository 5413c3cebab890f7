# SPDX-License-Identifier: Apache-2.0
"""A captured PostgreSQL database as a source of verified tables."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from changelane.capture.engine_offset import lsn_of
from changelane.capture.manifest import EngineOffset
from changelane.capture.postgres.captured_postgres import login_of
from changelane.capture.postgres.connection import connect, database_errors
from changelane.capture.postgres.publication import (
    Publication,
    read_publication,
    unpublished_columns,
)
from changelane.capture.postgres.replication import emit_marker
from changelane.capture.postgres.snapshot_tables import table_versions
from changelane.capture.postgres.sql_text import lsn_text
from changelane.capture.postgres.tables import (
    CapturedTable,
    Relation,
    read_relations,
    read_tables,
    selection_of,
)
from changelane.errors import ChangelaneError, ConfigError
from changelane.event import OWN_VERSION, Source
from changelane.pipeline.postgres_source import PostgresSource
from changelane.position import PostgresPosition
from changelane.schema import TableId
from changelane.spark.verify.postgres_rows import PostgresTable, captured_rows, source_columns
from changelane.spark.verify.postgres_types import PostgresType
from changelane.spark.verify.source_database import (
    CONNECTOR,
    Snapshot,
    VerifiedTable,
)
from changelane.spark.verify.table_plan import Bound, TablePlan

if TYPE_CHECKING:
    from psycopg import Connection

_ENCODING: Final = "UTF8"
_MARKER: Final = "verify"
_WRITE_LOCKS: Final = """
SELECT l.relation, l.virtualtransaction
FROM pg_locks l JOIN pg_database d ON d.oid = l.database
WHERE d.datname = current_database() AND l.locktype = 'relation' AND l.granted AND l.mode IN
  ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""
"""The locks with which rows are changed; the key of a lock is the same until the end."""
_MAX_LSN: Final = (1 << 64) - 1
_MAX_ROW: Final = (1 << 32) - 1


class PostgresDatabase:
    """A PostgreSQL database; :func:`open_postgres` connects to it.

    Args:
        source: The captured database.
        snapshots: The connection that reads snapshots.
        markers: The connection that writes markers into the log while a snapshot is open.
        publication: The publication of the capture.
    """

    def __init__(
        self,
        source: PostgresSource,
        snapshots: "Connection[Any]",
        markers: "Connection[Any]",
        publication: Publication,
    ) -> None:
        self._source = source
        self._snapshots = snapshots
        self._markers = markers
        self._publication = publication

    @property
    def event_source(self) -> Source:
        """The source of events that changelane makes of the rows."""
        return Source("postgresql", CONNECTOR, self._source.server_name, OWN_VERSION)

    def tables(self) -> list[VerifiedTable]:
        """Return the captured tables."""
        relations = read_relations(self._snapshots)
        selected = selection_of(relations, self._source.tables).tables
        return list(map(self._table, read_tables(self._snapshots, relations, selected)))

    def _table(self, captured_table: CapturedTable) -> VerifiedTable:
        relation, key = captured_table.relation, captured_table.primary_key
        hidden = "row-level security hides rows from the user"
        published = self._publication.tables.get((relation.schema, relation.name))
        columns = {*captured_table.columns, *captured_table.generated, *captured_table.virtual}
        listed = published.columns if published and published.columns else columns
        return VerifiedTable(
            id=TableId(self._source.database, relation.schema, relation.name),
            relation=relation,
            primary_key=() if key is None else tuple(key.names),
            unpublished=frozenset(columns - {*listed})
            | {*unpublished_columns(captured_table, self._publication)},
            refusal=hidden if captured_table.has_row_security else "",
        )

    def column_types(self, table: VerifiedTable) -> dict[str, PostgresType]:
        """Return the types of a table's columns as they are now, by name."""
        return source_columns(self._markers, table.relation.oid)

    def has_rows(self, table: VerifiedTable) -> bool:
        """Whether a table has rows that are captured."""
        rows = captured_rows(table.relation, self._row_filter_of(table.relation))
        with database_errors(f"the count of {table.id}"):
            query = f"SELECT EXISTS (SELECT FROM {rows} AS t)"
            (has_rows,) = self._snapshots.execute(query.encode()).fetchone() or (False,)
        return bool(has_rows)

    @contextlib.contextmanager
    def open_snapshot(self, table: VerifiedTable) -> Iterator[Snapshot]:
        """Open a snapshot that has all changes up to a marker in the log.

        A commit becomes visible after its record is in the log: in an instant, or after a
        synchronous standby has it. So a transaction may have committed below the marker and be
        missing in the snapshot. It has its locks until it is visible, so that it is among the
        writers of the moment between the marker and the snapshot.

        The order of a change begins with the end of the last commit before its transaction. Of the
        transactions after the marker, this is the commit of the marker or a later one: above the
        position of the marker itself.
        """
        import psycopg

        oid = table.relation.oid
        version = table_versions(self._markers, [oid])
        low_lsn = emit_marker(self._snapshots, _MARKER).lsn
        with database_errors("the snapshot"):
            locks = self._snapshots.execute(_WRITE_LOCKS).fetchall()
            self._snapshots.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._snapshots.execute("SELECT 1")
        try:
            # every change in the snapshot precedes this marker
            high_lsn = emit_marker(self._markers, _MARKER).lsn

            def is_passed(offset: EngineOffset) -> bool:
                lsn = lsn_of(offset)
                return lsn is not None and lsn >= high_lsn

            def is_intact() -> bool:
                with database_errors(f"the lock of {table.id}"):
                    query = f"SELECT FROM {captured_rows(table.relation, '')} LIMIT 0"
                    try:
                        self._snapshots.execute(query.encode())
                    except psycopg.errors.UndefinedTable:  # dropped or renamed
                        return False
                return table_versions(self._markers, [oid]) == version

            yield Snapshot(
                position_text=lsn_text(low_lsn),
                newest=PostgresPosition(_MAX_LSN, low_lsn, _MAX_ROW),
                repair_position=lambda number: PostgresPosition(low_lsn + number, low_lsn),
                is_passed=is_passed,
                is_intact=is_intact,
                writers=lambda: self._writers(table, locks),
            )
        finally:
            with contextlib.suppress(ChangelaneError), database_errors("the end of the snapshot"):
                self._snapshots.execute("ROLLBACK")

    def _writers(self, table: VerifiedTable, locks: Iterable[tuple[int, str]]) -> frozenset[str]:
        """Return the transactions with a lock of a table or of one of its partitions."""
        with database_errors(f"the partitions of {table.id}"):
            partitions = self._snapshots.execute(
                "SELECT relid::oid FROM pg_partition_tree(%s::oid)", [table.relation.oid]
            ).fetchall()
        oids = {table.relation.oid, *(oid for (oid,) in partitions)}
        return frozenset(writer for oid, writer in locks if oid in oids)

    def is_any_open(self, writers: frozenset[str]) -> bool:
        """Whether one of the transactions has not ended; it becomes visible before that."""
        with database_errors("the transactions of other sessions"):
            row = self._markers.execute(
                "SELECT EXISTS (SELECT FROM pg_locks WHERE virtualtransaction = ANY(%s))",
                [sorted(writers)],
            ).fetchone()
        return bool(row and row[0])

    def rows(
        self, table: VerifiedTable, columns_plan: TablePlan, bounds: tuple[Bound, ...] = ()
    ) -> PostgresTable:
        """Return the rows of a table in the open snapshot."""
        return PostgresTable(
            self._snapshots,
            table.relation,
            columns_plan,
            self._row_filter_of(table.relation),
            bounds,
        )

    def _row_filter_of(self, relation: Relation) -> str:
        """Return the condition of the publication on the rows of a table; empty = none."""
        published = self._publication.tables.get((relation.schema, relation.name))
        return "" if published is None else published.row_filter


@contextlib.contextmanager
def open_postgres(source: PostgresSource) -> Iterator[PostgresDatabase]:
    """Connect to the database of a source.

    Raises:
        ConfigError: The server rejects the login, or the database has another encoding than UTF-8.
        UnreachableError: The server does not answer.
    """
    login = login_of(source)
    with connect(login) as snapshots, connect(login) as markers:
        with database_errors("the settings of the connection"):
            snapshots.execute(
                "SELECT set_config('statement_timeout', '0', false), "
                "set_config('idle_in_transaction_session_timeout', '0', false), "
                "set_config('TimeZone', 'UTC', false)"
            )
        if snapshots.info.parameter_status("server_encoding") != _ENCODING:
            raise ConfigError(f"verify needs a database with the encoding {_ENCODING}")
        publication = read_publication(snapshots, source.publication_name)
        yield PostgresDatabase(source, snapshots, markers, publication or Publication(name=""))
