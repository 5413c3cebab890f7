# SPDX-License-Identifier: Apache-2.0
"""The tables of a PostgreSQL database for snapshots of single tables.

The rows have the position of a marker, a message that is committed before the snapshot is taken.
The order of a change begins with the last commit before its transaction: that of the marker or a
later one for all transactions that commit after it. Transactions that wrote to the table before
the marker have ended, for all sessions, when the snapshot is taken. So the snapshot has all changes
below the position. It may have some above it, which the log repeats.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.manifest import EngineOffset
from changelane.capture.postgres.captured_postgres import login_of
from changelane.capture.postgres.connection import connect
from changelane.capture.postgres.publication import (
    Publication,
    read_publication,
    refresh_publication,
)
from changelane.capture.postgres.replication import emit_marker
from changelane.capture.postgres.snapshot_tables import (
    begin_in_snapshot,
    check_key_range,
    chunks_of,
    export_snapshot,
    in_key_range,
    snapshot_tables,
    wait_for_writers,
)
from changelane.capture.postgres.tables import read_relations, read_tables, selection_of
from changelane.capture.snapshot.first_load import CHUNK_BYTES, settings_digest
from changelane.capture.snapshot.plan import SnapshotChunk, SnapshotTable
from changelane.pipeline.postgres_source import PostgresSource
from changelane.schema import TableId

if TYPE_CHECKING:
    from changelane.capture.postgres.connection import Connection

_MARKER: Final = "snapshot"


class PostgresTables:
    """The tables of a database; see :class:`.table_database.TableDatabase`.

    Args:
        source: The database.
        options: The options of its connector.
        check: Called during waits; it raises to stop them.
    """

    def __init__(
        self,
        source: PostgresSource,
        options: ConnectorOptions,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._source = source
        self._options = options
        self._check = check

    def table(
        self, name: str, lower: tuple[str, ...] = (), upper: tuple[str, ...] = ()
    ) -> SnapshotTable | None:
        """Return a table with the rows of a range of keys; ``None`` = it is not captured."""
        with self._connect() as connection:
            relations = read_relations(connection)
            captured = {table.oid for table in selection_of(relations, self._source.tables).tables}
            selected = [
                table for table in selection_of(relations, [name]).tables if table.oid in captured
            ]
            if not selected:
                return None
            publication = read_publication(connection, self._source.publication_name)
            tables = snapshot_tables(
                connection,
                read_tables(connection, relations, selected[:1]),
                publication or Publication(name=""),
            )
            if not tables:
                return None  # dropped since the list was read
            (table,) = tables
            if lower or upper:
                table = in_key_range(table, lower, upper)
                check_key_range(connection, table)
            return table

    def exists(self, name: str) -> bool:
        """Return whether the source has a table, captured or not."""
        with self._connect() as connection:
            return any(relation.shown == name for relation in read_relations(connection))

    def table_id(self, planned_table: SnapshotTable) -> TableId:
        """Return the name of a table in the options of the engine's connector."""
        return TableId(self._source.database, planned_table.schema, planned_table.name)

    def settings(self) -> str:
        """Return a digest of the options that the content of a chunk depends on."""
        return settings_digest(self._options, self._source.publication_name)

    def settle(self, planned_table: SnapshotTable) -> None:
        """Wait for transactions from before the publication had the table.

        Earlier releases of each version keep a table out of the changes that they send, once such a
        transaction was sent, until the next statement about the publication.
        """
        with self._connect() as connection:
            wait_for_writers(connection, planned_table.oid, self._check)
            refresh_publication(connection, self._source.publication_name)

    @contextlib.contextmanager
    def open_snapshot(self, planned_table: SnapshotTable) -> Iterator[tuple[str, EngineOffset]]:
        """Yield the name of a snapshot of the present state, and the position of its rows."""
        with self._connect() as connection:
            lsn = emit_marker(connection, _MARKER).lsn
            wait_for_writers(connection, planned_table.oid, self._check)
            yield export_snapshot(connection), {"lsn": lsn, "lsn_commit": lsn}

    def chunks(self, planned_table: SnapshotTable, snapshot: str) -> tuple[SnapshotChunk, ...]:
        """Divide a table into chunks."""
        with self._connect() as connection:
            begin_in_snapshot(connection, snapshot)
            return chunks_of(
                connection,
                [planned_table],
                max_rows=self._source.snapshot_chunk_rows,
                max_bytes=CHUNK_BYTES,
            )

    def _connect(self) -> "contextlib.closing[Connection]":
        return contextlib.closing(connect(login_of(self._source)))
