# SPDX-License-Identifier: Apache-2.0
"""The snapshot of a PostgreSQL database.

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
import time
import uuid
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.manifest import EngineOffset
from changelane.capture.postgres.connection import connect
from changelane.capture.postgres.publication import Publication, read_publication
from changelane.capture.postgres.replication import create_exporting_slot, slot_state
from changelane.capture.postgres.snapshot_tables import (
    begin_in_snapshot,
    chunks_of,
    export_snapshot,
    snapshot_tables,
)
from changelane.capture.postgres.tables import read_relations, read_tables, selection_of
from changelane.capture.slot_guard import SlotGuard
from changelane.capture.snapshot.first_load import CHUNK_BYTES, are_equal, settings_digest
from changelane.capture.snapshot.plan import (
    CompleteChunk,
    SnapshotChunk,
    SnapshotPlan,
    SnapshotTable,
    shares_of,
)
from changelane.pipeline.postgres_source import PostgresSource

if TYPE_CHECKING:
    from changelane.capture.postgres.connection import Connection


class PostgresSnapshot:
    """The snapshot of a database; see :class:`.first_load.DatabaseSnapshot`.

    Args:
        source: The database.
        options: The options of its connector, with the captured tables.
        work: The folder of the capture's files on this machine.
    """

    def __init__(self, source: PostgresSource, options: ConnectorOptions, *, work: Path) -> None:
        self._source = source
        self._options = options
        self._work = work

    def can_continue(self, snapshot_plan: SnapshotPlan, complete: AbstractSet[int]) -> bool:
        """Whether the chunks that are not complete can be read in a later snapshot."""
        if snapshot_plan.settings != self._settings():
            return False
        with contextlib.closing(connect(self._options.postgres_connection)) as connection:
            state = slot_state(connection, self._options.slot)
            tables = self._tables(connection)
        if not are_equal(snapshot_plan.tables, tables):
            return False
        if state is None or state.is_lost:
            return False
        return state.confirmed_flush_lsn == snapshot_plan.offset["lsn"] and all(
            snapshot_plan.tables[chunk.table].is_continuable
            for chunk in snapshot_plan.chunks
            if chunk.number not in complete
        )

    @contextlib.contextmanager
    def later_snapshot(self) -> Iterator[str]:
        """Yield the name of a snapshot of the present state, which lives until the end."""
        with contextlib.closing(connect(self._options.postgres_connection)) as connection:
            yield export_snapshot(connection)

    @contextlib.contextmanager
    def new_snapshot(self, follows: int) -> Iterator[tuple[SnapshotPlan, str]]:
        """Yield a new plan and the name of its snapshot, which lives until the end."""
        options = self._options
        with contextlib.closing(connect(options.postgres_connection)) as connection:
            tables = self._tables(connection)
        SlotGuard(options, self._work).prepare(None)
        replication = connect(options.postgres_connection, is_replication=True)
        with contextlib.closing(replication):
            exported = create_exporting_slot(replication, options.slot)
            with contextlib.closing(connect(options.postgres_connection)) as connection:
                begin_in_snapshot(connection, exported.snapshot)
                chunks = chunks_of(
                    connection,
                    tables,
                    max_rows=self._source.snapshot_chunk_rows,
                    max_bytes=CHUNK_BYTES,
                )
            plan = SnapshotPlan(
                id=uuid.uuid4().hex,
                settings=self._settings(),
                follows=follows,
                offset={"lsn": exported.consistent_lsn},
                created_ms=int(time.time() * 1000),
                tables=tables,
                chunks=chunks,
            )
            yield plan, exported.snapshot

    def rounds(
        self, snapshot_plan: SnapshotPlan, chunks: Sequence[SnapshotChunk]
    ) -> list[list[list[SnapshotChunk]]]:
        """Return one round: all readers see one snapshot."""
        del snapshot_plan
        return [shares_of(chunks, self._source.snapshot_readers)] if chunks else []

    def end(
        self, snapshot_plan: SnapshotPlan, chunks: Sequence[CompleteChunk], epoch: int
    ) -> EngineOffset:
        """Return the consistent point of the slot."""
        del chunks, epoch
        return snapshot_plan.offset

    def _tables(self, connection: "Connection") -> tuple[SnapshotTable, ...]:
        publication = read_publication(connection, self._source.publication_name)
        relations = read_relations(connection)
        selection = selection_of(relations, self._source.tables)
        captured_tables = read_tables(connection, relations, selection.tables)
        return snapshot_tables(connection, captured_tables, publication or Publication(name=""))

    def _settings(self) -> str:
        return settings_digest(self._options, self._source.publication_name)
