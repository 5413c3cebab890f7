# SPDX-License-Identifier: Apache-2.0
"""The tables of a MySQL or MariaDB database for snapshots of single tables.

Each chunk is read in a transaction with a consistent snapshot, whose exact position in the binary
log is known, as in a first load (:mod:`.binlog_snapshot`).
"""

import contextlib

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.manifest import EngineOffset
from changelane.capture.mysql.captured_mysql import login_of
from changelane.capture.mysql.connection import Connection, connect
from changelane.capture.mysql.snapshot_tables import chunks_of, in_key_range, snapshot_tables
from changelane.capture.mysql.tables import list_tables
from changelane.capture.snapshot.first_load import CHUNK_BYTES, settings_digest
from changelane.capture.snapshot.plan import SnapshotChunk, SnapshotTable
from changelane.pipeline.mysql_source import MysqlSource
from changelane.schema import TableId


class BinlogTables:
    """The tables of a database; see :class:`.table_database.TableDatabase`.

    Args:
        source: The database.
        options: The options of its connector.
    """

    def __init__(self, source: MysqlSource, options: ConnectorOptions) -> None:
        self._source = source
        self._options = options

    def table(
        self, name: str, lower: tuple[str, ...] = (), upper: tuple[str, ...] = ()
    ) -> SnapshotTable | None:
        """Return a table with the rows of a range of keys; ``None`` = it is not captured."""
        with self._connect() as connection:
            captured = list_tables(connection, self._source.tables)
            selected = [table for table in list_tables(connection, [name]) if table in captured]
            if not selected:
                return None
            (table,) = snapshot_tables(connection, self._source.database, selected[:1])
        return in_key_range(table, lower, upper) if lower or upper else table

    def exists(self, name: str) -> bool:
        """Return whether the source has a table, captured or not."""
        with self._connect() as connection:
            return bool(list_tables(connection, [name]))

    def table_id(self, planned_table: SnapshotTable) -> TableId:
        """Return the name of a table in the options of the engine's connector."""
        return TableId(planned_table.schema, None, planned_table.name)

    def settings(self) -> str:
        """Return a digest of the options that the content of a chunk depends on."""
        return settings_digest(self._options)

    def settle(self, planned_table: SnapshotTable) -> None:
        """Do nothing: the log has all tables, and Debezium their definitions."""

    def open_snapshot(
        self, planned_table: SnapshotTable
    ) -> contextlib.AbstractContextManager[tuple[str, EngineOffset]]:
        """Yield nothing: each reader begins transactions of its own."""
        del planned_table
        return contextlib.nullcontext(("", {}))

    def chunks(self, planned_table: SnapshotTable, snapshot: str) -> tuple[SnapshotChunk, ...]:
        """Divide a table into chunks."""
        del snapshot
        with self._connect() as connection:
            return chunks_of(
                connection,
                [planned_table],
                max_rows=self._source.snapshot_chunk_rows,
                max_bytes=CHUNK_BYTES,
            )

    def _connect(self) -> "contextlib.closing[Connection]":
        return contextlib.closing(connect(login_of(self._source)))
