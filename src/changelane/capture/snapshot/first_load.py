# SPDX-License-Identifier: Apache-2.0
"""The first load of a database by several readers at once.

The rows are read in chunks, each in a transaction at a known position of the log, and the log
continues at a position that is not after any of them. Chunks that are complete survive the end of
any process. Nothing is visible before the end: one manifest publishes all chunks.

Each product has a module of its own, which describes its positions.
"""

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final, Protocol

import msgspec

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.engine import CaptureError
from changelane.capture.manifest import EngineOffset
from changelane.capture.publisher import manifest_detail
from changelane.capture.segment_store import SegmentWriter
from changelane.capture.snapshot.figures import read_snapshot_figures
from changelane.capture.snapshot.plan import (
    CompleteChunk,
    SnapshotChunk,
    SnapshotPlan,
    SnapshotProgress,
    SnapshotTable,
)
from changelane.capture.snapshot.reader_config import ReaderConfig, ReaderEnd
from changelane.capture.storage import Folder
from changelane.errors import UnreachableError
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.secret_options import is_secret_name

ReadChunks = Callable[[Sequence[ReaderConfig]], Sequence[ReaderEnd]]
"""Runs readers, some of them at once, and returns how they ended."""

CHUNK_BYTES: Final = 64 << 20
"""The approximate size of the rows of a chunk."""
_PAUSES_S: Final = (1.0, 5.0, 15.0)
"""The pauses before the snapshot continues or begins anew, seconds."""
_NOTE_S: Final = 10.0
"""The interval of the notes on the progress, seconds."""
_FORM: Final = 1
"""The form of the chunks; another one begins the snapshot anew."""


class DatabaseSnapshot(Protocol):
    """The snapshot of a product's database.

    Each method raises ``UnreachableError`` if the server does not answer, and ``ConfigError`` if it
    rejects a statement.
    """

    def can_continue(self, snapshot_plan: SnapshotPlan, complete: AbstractSet[int]) -> bool:
        """Whether the chunks that are not complete can be read in later transactions.

        Args:
            snapshot_plan: A plan of this database, maybe with other options.
            complete: The numbers of the complete chunks.
        """
        ...

    def later_snapshot(self) -> contextlib.AbstractContextManager[str]:
        """Yield the name of a snapshot of the present state, which lives until the end."""
        ...

    def new_snapshot(
        self, follows: int
    ) -> contextlib.AbstractContextManager[tuple[SnapshotPlan, str]]:
        """Yield a new plan and the name of its snapshot, which lives until the end.

        Args:
            follows: The number of the newest manifest; 0 = there is none.
        """
        ...

    def rounds(
        self, snapshot_plan: SnapshotPlan, chunks: Sequence[SnapshotChunk]
    ) -> list[list[list[SnapshotChunk]]]:
        """Return the shares of readers that run at once, one round after the other.

        Args:
            snapshot_plan: The plan.
            chunks: Its chunks that are not complete.
        """
        ...

    def end(
        self, snapshot_plan: SnapshotPlan, chunks: Sequence[CompleteChunk], epoch: int
    ) -> EngineOffset:
        """Prepare the engine's files; return the position at which the log continues.

        Args:
            snapshot_plan: The plan.
            chunks: All of its chunks.
            epoch: The epoch of the writer that publishes them.
        """
        ...


class _RepeatError(CaptureError):
    """The snapshot must continue or begin anew."""


class FirstLoad:
    """Reads all rows of a database into a capture log.

    Args:
        database: The snapshot of the database.
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
        database: DatabaseSnapshot,
        source: DatabaseSource,
        options: ConnectorOptions,
        *,
        folder: Folder,
        work: Path,
        jars: Path,
        read_chunks: ReadChunks,
        notify: Callable[[str], None],
    ) -> None:
        self._database = database
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
        chunks = list(self._progress.complete_chunks(snapshot_plan))
        for chunk in chunks:
            for segment in chunk.segments:
                writer.append_segment(segment)
        offset = self._database.end(snapshot_plan, chunks, writer.epoch)
        writer.publish(offset, detail=manifest_detail(self._options, offset))
        self._progress.delete(snapshot_plan)

    def _read(self, writer: SegmentWriter) -> SnapshotPlan:
        """Read the rows of all chunks that are not complete; return the plan."""
        follows = 0 if writer.newest is None else writer.newest.sequence
        plan = self._progress.plan()
        if (
            plan is not None
            and plan.follows == follows
            and self._database.can_continue(plan, self._progress.complete_numbers(plan))
        ):
            with self._database.later_snapshot() as snapshot:
                self._read_incomplete(plan, snapshot, writer.epoch)
            return plan
        if plan is not None:
            self._notify("the snapshot that was not completed begins anew")
            self._progress.delete(plan)
        with self._database.new_snapshot(follows) as (plan, snapshot):
            self._progress.start(plan)
            self._read_incomplete(plan, snapshot, writer.epoch)
        return plan

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
        for shares in self._database.rounds(snapshot_plan, incomplete):
            self._run_readers(
                ReaderConfig(
                    connector=self._options,
                    plan=msgspec.structs.replace(snapshot_plan, chunks=()),
                    chunks=tuple(share),
                    snapshot=snapshot,
                    segment_owner=epoch,
                    log=self._folder.label,
                    work=str(self._work / f"reader-{number}"),
                    jars=str(self._jars),
                    heap=self._source.memory,
                )
                for number, share in enumerate(shares)
            )
        if len(self._progress.complete_numbers(snapshot_plan)) < len(snapshot_plan.chunks):
            raise CaptureError("the readers of the snapshot did not complete all chunks")

    def _run_readers(self, configs: Iterable[ReaderConfig]) -> None:
        """Run some readers at once."""
        with self._progress_notes():
            failed = [end for end in self._read_chunks(tuple(configs)) if end.reason]
        for end in failed:
            if not end.is_retriable and not end.is_changed:
                raise CaptureError(end.reason)
        if failed:
            raise _RepeatError(failed[0].reason)

    @contextlib.contextmanager
    def _progress_notes(self) -> Iterator[None]:
        """Show now and then how far the snapshot is."""
        has_ended = threading.Event()

        def show() -> None:
            shown = ""
            while not has_ended.wait(_NOTE_S):
                with contextlib.suppress(OSError):  # the storage may answer later
                    figures = read_snapshot_figures(self._folder)
                    if figures is not None and figures.line != shown:
                        shown = figures.line
                        self._notify(shown)

        thread = threading.Thread(target=show, name="snapshot-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            has_ended.set()
            thread.join()


def settings_digest(options: ConnectorOptions, *others: str) -> str:
    """Return a digest of the options that the content of a chunk depends on.

    Args:
        options: The options of the connector.
        others: Further settings.
    """
    properties = {
        name: value for name, value in options.properties.items() if not is_secret_name(name)
    }
    settings = [_FORM, options.name, options.database, *others, properties]
    return hashlib.sha256(msgspec.json.encode(settings, order="sorted")).hexdigest()


def are_equal(planned_tables: Iterable[SnapshotTable], others: Iterable[SnapshotTable]) -> bool:
    """Whether tables are the same, whatever the sizes of their rows are."""
    return [*map(_without_size, planned_tables)] == [*map(_without_size, others)]


def _without_size(planned_table: SnapshotTable) -> SnapshotTable:
    return msgspec.structs.replace(planned_table, row_bytes=0)
