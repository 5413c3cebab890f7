# SPDX-License-Identifier: Apache-2.0
"""The snapshot of a MySQL or MariaDB database.

A chunk is read in a transaction with a consistent snapshot, whose exact position in the binary log
is known. The rows are events at this position: newer than every change of the log before it, and
older than every later one. The log continues at a position that is not after any of them, so it
repeats changes which the rows have already. As each event has its position, the tables are the same
in the end.

Rows without a key would be twice in the tables. So one reader reads all tables without a key first,
in one transaction, and the log continues at the position of this transaction. Such a table is not
divided, and if not all of them are complete, the snapshot begins anew.

The log has the statements that define the tables only after its beginning. So Debezium's engine
first records the definitions of all tables, at a position before all rows; it locks the tables for
this moment. The definitions must be the same at the position where the log continues.
"""

import contextlib
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.engine import CaptureEngine
from changelane.capture.engine_config import EngineConfig
from changelane.capture.manifest import EngineOffset
from changelane.capture.mysql.connection import Connection, connect
from changelane.capture.mysql.position import (
    gtid_position,
    log_files,
    server_identity,
)
from changelane.capture.mysql.snapshot_tables import chunks_of, database_version, snapshot_tables
from changelane.capture.mysql.tables import list_tables
from changelane.capture.schema_history import SchemaHistory
from changelane.capture.segment_store import CaptureLog
from changelane.capture.snapshot.first_load import CHUNK_BYTES, are_equal, settings_digest
from changelane.capture.snapshot.plan import (
    CompleteChunk,
    SnapshotChunk,
    SnapshotPlan,
    SnapshotTable,
    shares_of,
)
from changelane.pipeline.mysql_source import MysqlSource

_SCHEMAS: Final = "schemas"
"""The folder of the engine's files while it records the definitions of the tables."""
_SCHEMAS_S: Final = 600.0
"""The time that this may take, seconds."""


class BinlogSnapshot:
    """The snapshot of a database; see :class:`.first_load.DatabaseSnapshot`.

    Args:
        source: The database.
        options: The options of its connector, with the captured tables.
        work: The folder of the capture's files on this machine.
        jars: The folder of the engine's jars.
        log: The capture log.
    """

    def __init__(
        self,
        source: MysqlSource,
        options: ConnectorOptions,
        *,
        work: Path,
        jars: Path,
        log: CaptureLog,
    ) -> None:
        self._source = source
        self._options = options
        self._work = work
        self._jars = jars
        self._log = log

    def can_continue(self, snapshot_plan: SnapshotPlan, complete: AbstractSet[int]) -> bool:
        """Whether the chunks that are not complete can be read in later transactions."""
        # the file of another machine, or of an earlier capture, has other schemas
        history = SchemaHistory(self._work).digest()
        if not history or history != snapshot_plan.history:
            return False
        with contextlib.closing(connect(self._options.mysql_connection)) as connection:
            if snapshot_plan.settings != self._settings(connection):
                return False
            tables = self._tables(connection)
            log_mark = self._log_mark(connection, snapshot_plan.offset)
        return (
            log_mark is not None
            and log_mark == snapshot_plan.log_mark
            and are_equal(snapshot_plan.tables, tables)
            and all(
                snapshot_plan.tables[chunk.table].is_continuable
                for chunk in snapshot_plan.chunks
                if chunk.number not in complete
            )
        )

    def later_snapshot(self) -> contextlib.AbstractContextManager[str]:
        """Yield nothing: each reader begins a transaction of its own."""
        return contextlib.nullcontext("")

    @contextlib.contextmanager
    def new_snapshot(self, follows: int) -> Iterator[tuple[SnapshotPlan, str]]:
        """Yield a new plan, after the engine has recorded the definitions of the tables."""
        options = self._options
        with contextlib.closing(connect(options.mysql_connection)) as connection:
            settings = self._settings(connection)
            tables = self._tables(connection)
            is_exact = not all(table.is_continuable for table in tables)
            schemas = database_version(connection, options.database) if is_exact else ""
        offset = self._record_schemas()
        with contextlib.closing(connect(options.mysql_connection)) as connection:
            log_mark = self._log_mark(connection, offset)
            chunks = chunks_of(
                connection,
                tables,
                max_rows=self._source.snapshot_chunk_rows,
                max_bytes=CHUNK_BYTES,
            )
        plan = SnapshotPlan(
            id=uuid.uuid4().hex,
            settings=settings,
            follows=follows,
            offset=offset,
            created_ms=int(time.time() * 1000),
            tables=tables,
            schemas=schemas,
            history=SchemaHistory(self._work).digest(),
            log_mark=log_mark,
            chunks=chunks,
        )
        yield plan, ""

    def rounds(
        self, snapshot_plan: SnapshotPlan, chunks: Sequence[SnapshotChunk]
    ) -> list[list[list[SnapshotChunk]]]:
        """Return a round of one reader for the tables without a key, and that of all others."""
        tables = snapshot_plan.tables
        exact = [chunk for chunk in chunks if not tables[chunk.table].is_continuable]
        others = [chunk for chunk in chunks if tables[chunk.table].is_continuable]
        rounds = [[exact], shares_of(others, self._source.snapshot_readers)]
        return [shares for shares in rounds if shares and shares[0]]

    def end(
        self, snapshot_plan: SnapshotPlan, chunks: Sequence[CompleteChunk], epoch: int
    ) -> EngineOffset:
        """Return the position of the tables without a key; without any, that of the plan."""
        SchemaHistory(self._work).prepare(self._log.identity() or "", None, epoch)
        tables = {chunk.number: chunk.table for chunk in snapshot_plan.chunks}
        for chunk in chunks:
            if not snapshot_plan.tables[tables[chunk.number]].is_continuable:
                return chunk.offset
        return snapshot_plan.offset

    def _record_schemas(self) -> EngineOffset:
        """Let the engine record the definitions of all tables; return its position."""
        work = self._work / _SCHEMAS
        shutil.rmtree(work, ignore_errors=True)
        config = EngineConfig(
            connector=self._options,
            log=str(work / "log"),
            work=str(work),
            jars=str(self._jars),
            heap=self._source.memory,
            snapshot="none",
        )
        with CaptureEngine(config) as engine:
            offset = engine.wait_published(1, _SCHEMAS_S).engine_offset
        SchemaHistory(work).file.replace(SchemaHistory(self._work).file)
        shutil.rmtree(work, ignore_errors=True)
        return offset

    def _tables(self, connection: Connection) -> tuple[SnapshotTable, ...]:
        """Return the captured tables that still exist; the engine does not read later ones."""
        tables = [
            table
            for table in list_tables(connection, self._source.tables)
            if table in self._options.tables
        ]
        return snapshot_tables(connection, self._options.database, tables)

    def _settings(self, connection: Connection) -> str:
        identity = server_identity(connection)
        return settings_digest(
            self._options,
            *(self._options.host, str(self._options.effective_port)),
            *(identity.server_uuid, str(identity.server_id)),
        )

    def _log_mark(self, connection: Connection, offset: EngineOffset) -> str | None:
        """Return what identifies the log at a position; ``None`` = the server lost this part.

        A log that was reset has other GTIDs there.
        """
        file, position = str(offset["file"]), int(offset["pos"] or 0)
        sizes = {log_file.name: log_file.size for log_file in log_files(connection)}
        if position > sizes.get(file, -1):
            return None
        is_mariadb = self._options.product == "mariadb"
        return gtid_position(connection, file, position) or "" if is_mariadb else ""
