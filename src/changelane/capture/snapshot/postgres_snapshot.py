# SPDX-License-Identifier: Apache-2.0
"""The first load of a PostgreSQL database by several readers at once.

The slot is created together with an exported snapshot, which sees exactly what was committed before
the slot's consistent point. All readers import it, so that their rows are the state at one
position, and the log continues from there. The session that exported it stays open until the last
chunk is read.

If the snapshot is lost, because the process that exported it was killed, the slot still has all
changes after its consistent point. The chunks that are not complete are then read in a later
snapshot: their rows may already contain changes that the log repeats, and rows of a snapshot are
older than every change of the log (``docs/merge-rule.md``), so that tables with a key are the same
in the end. That does not hold for two kinds of tables. Rows without a key would be twice in the
tables. And if a row got another key meanwhile, the log does not repeat its values that are stored
out of line (TOAST), which only the row of the former key has, unless the replica identity is full.
So the snapshot begins anew, with another slot, if a table of these kinds is not complete. It also
begins anew if a table was altered, truncated or rewritten: an older snapshot finds it empty then.
Nothing is visible before the end.
"""

import contextlib
import hashlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.engine import CaptureError
from changelane.capture.manifest import EngineOffset
from changelane.capture.postgres.connection import connect, database_errors
from changelane.capture.postgres.publication import Publication, read_publication
from changelane.capture.postgres.replication import create_exporting_slot, slot_state
from changelane.capture.postgres.snapshot_tables import (
    begin_in_snapshot,
    chunks_of,
    snapshot_tables,
)
from changelane.capture.postgres.tables import read_relations, read_tables, selection_of
from changelane.capture.publisher import manifest_detail
from changelane.capture.segment_store import SegmentWriter
from changelane.capture.slot_guard import SlotGuard
from changelane.capture.snapshot.plan import (
    SnapshotPlan,
    SnapshotProgress,
    SnapshotTable,
    shares_of,
)
from changelane.capture.snapshot.reader_config import ReaderConfig, ReaderEnd
from changelane.capture.storage import Folder
from changelane.errors import UnreachableError
from changelane.pipeline.postgres_source import PostgresSource
from changelane.pipeline.secret_options import is_secret_name

if TYPE_CHECKING:
    from changelane.capture.postgres.connection import Connection

ReadChunks = Callable[[Sequence[ReaderConfig]], Sequence[ReaderEnd]]
"""Runs readers, some of them at once, and returns how they ended."""

_PAUSES_S: Final = (1.0, 5.0, 15.0)
"""The pauses before the snapshot continues or begins anew, seconds."""
_CHUNK_BYTES: Final = 64 << 20
"""The approximate size of the rows of a chunk."""
_FORM: Final = 1
"""The form of the chunks; another one begins the snapshot anew."""


class _RepeatError(CaptureError):
    """The snapshot must continue or begin anew."""


class PostgresSnapshot:
    """The snapshot of a database into an empty capture log.

    Args:
        source: The database.
        options: The options of its connector, with the captured tables.
        folder: The storage of the capture log.
        work: The folder of the capture's files on this machine.
        jars: The folder of the engine's jars.
        read_chunks: Runs the readers.
        notify: Shows a note to the user.
    """

    def __init__(
        self,
        source: PostgresSource,
        options: ConnectorOptions,
        *,
        folder: Folder,
        work: Path,
        jars: Path,
        read_chunks: ReadChunks,
        notify: Callable[[str], None],
    ) -> None:
        self._source = source
        self._options = options
        self._folder = folder
        self._work = work
        self._jars = jars
        self._read_chunks = read_chunks
        self._notify = notify
        self._progress = SnapshotProgress(folder)

    def run(self) -> None:
        """Read all rows, and publish them in one manifest.

        Raises:
            SlotError: The slot belongs to another reader.
            CaptureError: A row cannot be read, or the tables change too often.
            ConfigError: The server rejects a statement.
            UnreachableError: The server does not answer.
        """
        self._work.mkdir(parents=True, exist_ok=True)
        for pause_s in (*_PAUSES_S, None):
            # each attempt has an epoch, so that the next publication deletes what is abandoned
            writer = SegmentWriter(self._folder, self._work / "spool")
            try:
                self._publish(writer, self._read(writer))
            except (_RepeatError, UnreachableError) as error:
                if pause_s is None:
                    raise
                self._notify(f"{error}; the snapshot is tried again")
                time.sleep(pause_s)
            else:
                return
            finally:
                writer.close()

    def _publish(self, writer: SegmentWriter, snapshot_plan: SnapshotPlan) -> None:
        for chunk in self._progress.complete_chunks(snapshot_plan):
            for segment in chunk.segments:
                writer.append_segment(segment)
        offset: EngineOffset = {"lsn": snapshot_plan.lsn}
        writer.publish(offset, detail=manifest_detail(self._options, offset))
        self._progress.delete(snapshot_plan)

    def _read(self, writer: SegmentWriter) -> SnapshotPlan:
        """Read the rows of all chunks that are not complete; return the plan."""
        follows = 0 if writer.newest is None else writer.newest.sequence
        with contextlib.closing(connect(self._options.postgres_connection)) as connection:
            publication = read_publication(connection, self._source.publication_name)
            tables = self._tables(connection, publication or Publication(name=""))
            plan = self._progress.plan()
            can_continue = (
                plan is not None
                and plan.follows == follows
                and self._can_continue(connection, plan, tables)
            )
        if plan is not None and can_continue:
            with self._later_snapshot() as snapshot:
                self._read_incomplete(plan, snapshot, writer.epoch)
            return plan
        if plan is not None:
            self._notify("the snapshot that was not completed begins anew")
            self._progress.delete(plan)
        with self._new_snapshot(tables, follows) as (plan, snapshot):
            self._read_incomplete(plan, snapshot, writer.epoch)
        return plan

    def _tables(
        self, connection: "Connection", publication: Publication
    ) -> tuple[SnapshotTable, ...]:
        relations = read_relations(connection)
        selection = selection_of(relations, self._source.tables)
        captured_tables = read_tables(connection, relations, selection.tables)
        return snapshot_tables(connection, captured_tables, publication)

    def _can_continue(
        self,
        connection: "Connection",
        snapshot_plan: SnapshotPlan,
        planned_tables: Sequence[SnapshotTable],
    ) -> bool:
        """Whether the chunks that are not complete can be read in a later snapshot."""
        if snapshot_plan.settings != _settings_of(self._options, self._source):
            return False
        if [_without_size(table) for table in snapshot_plan.tables] != [
            *map(_without_size, planned_tables)
        ]:
            return False
        state = slot_state(connection, self._options.slot)
        if state is None or state.is_lost or state.confirmed_flush_lsn != snapshot_plan.lsn:
            return False
        complete = self._progress.complete_numbers(snapshot_plan)
        return all(
            snapshot_plan.tables[chunk.table].is_continuable
            for chunk in snapshot_plan.chunks
            if chunk.number not in complete
        )

    @contextlib.contextmanager
    def _later_snapshot(self) -> Iterator[str]:
        """Yield the name of a snapshot of the present state, which lives until the end."""
        with contextlib.closing(connect(self._options.postgres_connection)) as connection:
            with database_errors("the export of a snapshot"):
                connection.execute("SET idle_in_transaction_session_timeout = 0")
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                row = connection.execute("SELECT pg_export_snapshot()").fetchone()
            yield row[0] if row else ""

    @contextlib.contextmanager
    def _new_snapshot(
        self, planned_tables: tuple[SnapshotTable, ...], follows: int
    ) -> Iterator[tuple[SnapshotPlan, str]]:
        """Yield a new plan and the name of its snapshot, which lives until the end."""
        options = self._options
        SlotGuard(options, self._work).prepare(None)
        replication = connect(options.postgres_connection, is_replication=True)
        with contextlib.closing(replication):
            exported = create_exporting_slot(replication, options.slot)
            with contextlib.closing(connect(options.postgres_connection)) as connection:
                begin_in_snapshot(connection, exported.snapshot)
                chunks = chunks_of(
                    connection,
                    planned_tables,
                    max_rows=self._source.snapshot_chunk_rows,
                    max_bytes=_CHUNK_BYTES,
                )
            plan = SnapshotPlan(
                id=uuid.uuid4().hex,
                settings=_settings_of(options, self._source),
                follows=follows,
                lsn=exported.consistent_lsn,
                created_ms=int(time.time() * 1000),
                tables=planned_tables,
                chunks=chunks,
            )
            self._progress.start(plan)
            yield plan, exported.snapshot

    def _read_incomplete(self, snapshot_plan: SnapshotPlan, snapshot: str, epoch: int) -> None:
        """Run readers until all chunks are complete.

        Raises:
            _RepeatError: The snapshot must continue or begin anew.
            CaptureError: A reader failed for good.
        """
        complete = self._progress.complete_numbers(snapshot_plan)
        incomplete = [chunk for chunk in snapshot_plan.chunks if chunk.number not in complete]
        if complete:
            self._notify(
                f"{len(complete)} of {len(snapshot_plan.chunks)} chunks of the snapshot are here"
            )
        configs = [
            ReaderConfig(
                connector=self._options,
                plan=msgspec.structs.replace(snapshot_plan, chunks=()),
                chunks=tuple(share),
                snapshot=snapshot,
                epoch=epoch,
                log=self._folder.label,
                work=str(self._work / f"reader-{number}"),
                jars=str(self._jars),
                heap=self._source.memory,
            )
            for number, share in enumerate(shares_of(incomplete, self._source.snapshot_readers))
        ]
        ends = self._read_chunks(configs) if configs else ()
        failed = [end for end in ends if end.reason]
        for end in failed:
            if not end.is_retriable and not end.is_changed:
                raise CaptureError(end.reason)
        if failed:
            raise _RepeatError(failed[0].reason)
        if len(self._progress.complete_numbers(snapshot_plan)) < len(snapshot_plan.chunks):
            raise CaptureError("the readers of the snapshot did not complete all chunks")


def _settings_of(options: ConnectorOptions, source: PostgresSource) -> str:
    """Return a digest of the options that the content of a chunk depends on."""
    properties = {
        name: value for name, value in options.properties.items() if not is_secret_name(name)
    }
    settings = [_FORM, options.name, options.database, source.publication_name, properties]
    return hashlib.sha256(msgspec.json.encode(settings, order="sorted")).hexdigest()


def _without_size(planned_table: SnapshotTable) -> SnapshotTable:
    return msgspec.structs.replace(planned_table, row_bytes=0)
