# SPDX-License-Identifier: Apache-2.0
"""Snapshots of single tables and ranges of keys, while the log goes on.

A thread of the capture executes the requests of :mod:`.table_requests`. Readers read the rows of a
table in chunks, each in a transaction at a known position of the log, into segments that nothing
shows. Then the capture process publishes all of them in one manifest (:mod:`..repairs`). The rows
are ``r`` events at the positions of their transactions: newer than each change before, and older
than each later one, whenever they arrive.

The plan and the complete chunks are in the folder of the log, so that the next capture continues a
snapshot that was interrupted. A request can be cancelled until all of its chunks are complete:
then its segments are deleted. Later, the capture process may be publishing them.

Each product has a module of its own, which describes its positions.
"""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.engine import STOP_S, CaptureError
from changelane.capture.manifest import EngineOffset, Segment
from changelane.capture.partition_changes import record_partitions
from changelane.capture.repairs import Repair, add_repair, repair_names, segments_after
from changelane.capture.segment_store import CaptureLog, ExpiredManifestError
from changelane.capture.snapshot.first_load import are_equal
from changelane.capture.snapshot.plan import (
    CompleteChunk,
    SnapshotChunk,
    SnapshotPlan,
    SnapshotProgress,
    SnapshotTable,
    shares_of,
)
from changelane.capture.snapshot.reader_config import ReaderConfig, ReaderEnd
from changelane.capture.snapshot.reader_start import LocalReaders
from changelane.capture.snapshot.table_database import TableDatabase, check_key
from changelane.capture.snapshot.table_requests import (
    TableRequest,
    delete_request,
    is_abandoned,
    read_request,
    read_requests,
    record_error,
    state_of,
)
from changelane.capture.storage import Folder
from changelane.errors import ChangelaneError, UnreachableError
from changelane.pipeline.database_source import DatabaseSource

_LOOK_S: Final = 2.0
"""The interval of looks for requests, each of which lists a folder, seconds."""
_PUBLICATION_POLL_S: Final = 0.2
_DROPPED: Final = "the table was dropped or renamed at the source"
_MAX_ATTEMPTS: Final = 4
"""The number of attempts to read a table whose readers fail or whose definition changes."""


class StoppedError(Exception):
    """The capture ends."""


class CancelledError(Exception):
    """The rows of a request are not wanted any more."""


class _DroppedTableError(Exception):
    """The table of a request does not exist any more."""


class _RepeatError(ChangelaneError):
    """The snapshot must continue or begin anew."""


class TableSnapshots:
    """Executes the requests of a capture log, until its end.

    Args:
        database: The database.
        source: Its options.
        options: The options of its connector.
        folder: The storage of the capture log.
        work: The folder of the capture's files on this machine.
        jars: The folder of the engine's jars.
        notify: Shows a note to the user.
        include: Lets the engine capture a table from now on; returns whether it may.
        stop: Set when the capture ends.
    """

    def __init__(
        self,
        database: TableDatabase,
        source: DatabaseSource,
        options: ConnectorOptions,
        *,
        folder: Folder,
        work: Path,
        jars: Path,
        notify: Callable[[str], None],
        include: Callable[[str], bool],
        stop: threading.Event,
    ) -> None:
        self._database = database
        self._source = source
        self._options = options
        self._folder = folder
        self._log = CaptureLog(folder)
        self._work = work
        self._jars = jars
        self._notify = notify
        self._include = include
        self._stop = stop
        self._readers = LocalReaders()
        self._thread: threading.Thread | None = None
        self._noted: set[str] = set()
        # requests that this capture cannot execute, by id: another capture may
        self._failed: dict[str, str] = {}
        self._unmatched: set[str] = set()
        self._discarded: set[str] = set()
        self._running: TableRequest | None = None
        self._next_look_s = 0.0

    @property
    def has_work(self) -> bool:
        """Whether requests are not complete, except those that this capture cannot execute."""
        ignored = self._failed.keys() | self._unmatched | self._discarded
        return any(
            request.id not in ignored and state_of(self._folder, request) != "cancelled"
            for request in read_requests(self._folder)
        )

    @property
    def failure(self) -> str:
        """Why a requested table cannot be read; empty = nothing is known to prevent it."""
        reasons = (
            self._failed[request.id]
            for request in read_requests(self._folder)
            if request.id in self._failed and state_of(self._folder, request) != "cancelled"
        )
        return next(reasons, "")

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="table-snapshots", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the readers and the thread; chunks that are complete stay."""
        self._stop.set()
        self._readers.stop()
        if self._thread is not None:
            self._thread.join(STOP_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(OSError):  # the storage may answer later
                for request in read_requests(self._folder):
                    if request.id in self._discarded:
                        continue
                    is_cancelled = state_of(self._folder, request) == "cancelled"
                    if is_cancelled or request.id not in self._failed:
                        self._running = request
                        self._execute(request, is_cancelled=is_cancelled)
                        self._running = None
            self._stop.wait(_LOOK_S)

    def _execute(self, request: TableRequest, *, is_cancelled: bool) -> None:
        """Execute a request, or record why that is impossible."""
        try:
            if is_cancelled and not self._is_being_published(request):
                self._discard(request)
            else:
                self._read_wanted(request)
        except StoppedError:
            return
        except (UnreachableError, ExpiredManifestError) as error:
            self._note(f"the snapshot of {request.table} waits: {error}")
        except OSError:
            raise
        except ChangelaneError as error:
            self._fail(request, str(error))
        except Exception as error:  # noqa: BLE001 - the thread must go on; the text may have values
            self._fail(request, type(error).__name__)

    def _read_wanted(self, request: TableRequest) -> None:
        """Read and publish the rows of a request, unless it is cancelled meanwhile."""
        try:
            self._read_and_publish(request)
        except CancelledError:
            self._discard(request)
            self._notify(f"the snapshot of {request.table} is cancelled")
        except _DroppedTableError:
            self._end_without_table(request)

    def _is_being_published(self, request: TableRequest) -> bool:
        """Whether all chunks of a request are complete, so that it is too late to cancel it."""
        plan = self._progress_of(request).plan()
        return plan is not None and plan.id.startswith(request.id) and plan.complete_at is not None

    def _discard(self, request: TableRequest) -> None:
        """Delete what was read for a request that is cancelled, or that another one replaced."""
        self._delete_plan(request)
        self._discarded.add(request.id)

    def _end_without_table(self, request: TableRequest) -> None:
        """Record that a table does not exist any more; other tables are captured all the same."""
        self._unmatched.add(request.id)
        self._delete_plan(request)
        self._note(f"the rows of {request.table} are not read: {_DROPPED}")
        if request.error != _DROPPED:
            record_error(self._folder, request, _DROPPED)

    def _progress_of(self, request: TableRequest) -> SnapshotProgress:
        return SnapshotProgress(self._folder, request.plan_name)

    def _delete_plan(self, request: TableRequest) -> None:
        progress = self._progress_of(request)
        plan = progress.plan()
        if plan is not None:
            self._delete(plan, progress)

    def _fail(self, request: TableRequest, reason: str) -> None:
        if state_of(self._folder, request) == "cancelled":
            self._discarded.add(request.id)
        elif not self._stop.is_set():
            self._failed[request.id] = f"the rows of {request.table} are not read: {reason}"
            self._notify(self._failed[request.id])
            record_error(self._folder, request, reason)

    def _read_and_publish(self, request: TableRequest) -> None:
        newest = self._log.newest()
        if newest is None or not newest.engine_offset:
            return  # the first load is not complete
        progress = self._progress_of(request)
        if request.history != newest.history:
            self._end(request)  # the snapshot of all tables had its rows
            return
        if not self._include(request.table):
            if not self._database.exists(request.table):
                raise _DroppedTableError
            self._unmatched.add(request.id)
            self._note(
                f"the snapshot of {request.table} waits: no pattern of tables matches it here"
            )
            return
        self._unmatched.discard(request.id)
        self._notify(f"the rows of {request.table} are read")
        plan = self._read(request, progress)
        if plan.complete_at is None:
            self._look()
        row_count = self._publish(request, plan, progress)
        if not (request.lower or request.upper):
            record_partitions(self._folder, request.table, request.partitions)
        self._end(request)
        self._notify(f"{row_count:,} rows of {request.table} were read")

    def _note(self, text: str) -> None:
        """Show a note once."""
        if text not in self._noted:
            self._noted.add(text)
            self._notify(text)

    # -- the rows

    def _read(self, request: TableRequest, progress: SnapshotProgress) -> SnapshotPlan:
        """Read all chunks that are not complete; return the plan.

        Raises:
            ChangelaneError: The table cannot be read, or changes too often.
        """
        for attempt in range(_MAX_ATTEMPTS):
            # a table that was created again is none of the publication any more
            if attempt > 0 and not self._include(request.table):
                raise _DroppedTableError
            try:
                return self._read_once(request, progress)
            except _RepeatError as error:
                self.check()
                if attempt + 1 == _MAX_ATTEMPTS:
                    raise
                self._notify(f"{error}; the snapshot of {request.table} is tried again")
        raise AssertionError

    def _read_once(self, request: TableRequest, progress: SnapshotProgress) -> SnapshotPlan:
        # a table that is new to the engine is read as a whole
        request = read_request(self._folder, request.table) or request
        table = self._database.table(request.table, request.lower, request.upper)
        if table is None:
            raise _DroppedTableError
        check_key(table)
        plan = progress.plan()
        if plan is not None and not (
            plan.id.startswith(request.id) and self._can_continue(plan, table, progress)
        ):
            self._delete(plan, progress)
            plan = None
        complete = set() if plan is None else progress.complete_numbers(plan)
        if plan is None and request.kind == "add":
            self._database.settle(table)
        if plan is not None and len(complete) == len(plan.chunks):
            return plan
        with self._database.open_snapshot(table) as (snapshot, offset):
            if plan is None:
                plan = self._new_plan(request, table, snapshot, offset)
                progress.start(plan)
            else:
                self._notify(f"{len(complete)} of {len(plan.chunks)} chunks are here")
                plan = msgspec.structs.replace(plan, offset=offset)
            chunks = [chunk for chunk in plan.chunks if chunk.number not in complete]
            failed = [end for end in self._run_readers(plan, chunks, snapshot) if end.reason]
        for end in failed:
            if not (end.is_retriable or end.is_changed or self._is_changed(request, table)):
                raise CaptureError(end.reason)
        if failed:
            raise _RepeatError(failed[0].reason)
        return plan

    def _is_changed(self, request: TableRequest, table: SnapshotTable) -> bool:
        """Whether a table is another one now, which may be the reason of a failure."""
        present = self._database.table(request.table, request.lower, request.upper)
        return present is None or not are_equal([table], [present])

    def _can_continue(
        self, snapshot_plan: SnapshotPlan, table: SnapshotTable, progress: SnapshotProgress
    ) -> bool:
        """Whether the other chunks can be read in later transactions, if there are any.

        If rows have values that the log does not repeat, a row that got a key of another chunk
        meanwhile would lack them.
        """
        (former,) = snapshot_plan.tables
        if (former.oid, former.key_range) != (table.oid, table.key_range):
            return False
        chunks = tuple(progress.complete_chunks(snapshot_plan))
        if not {s.name for s in _segments_of(chunks)} <= set(self._folder.names("segments")):
            return False
        return len(chunks) == len(snapshot_plan.chunks) or (
            table.is_continuable
            and snapshot_plan.settings == self._database.settings()
            and are_equal(snapshot_plan.tables, [table])
        )

    def _new_plan(
        self, request: TableRequest, table: SnapshotTable, snapshot: str, offset: EngineOffset
    ) -> SnapshotPlan:
        return SnapshotPlan(
            # a plan of an earlier request may have another range
            id=f"{request.id}-{uuid.uuid4().hex[:8]}",
            settings=self._database.settings(),
            follows=self._newest_sequence(),
            offset=offset,
            created_ms=int(time.time() * 1000),
            tables=(table,),
            chunks=self._database.chunks(table, snapshot),
        )

    def _run_readers(
        self, snapshot_plan: SnapshotPlan, chunks: list[SnapshotChunk], snapshot: str
    ) -> list[ReaderEnd]:
        """Read chunks with some readers at once; return how the readers ended."""
        (table,) = snapshot_plan.tables
        table_ids = (self._database.table_id(table),)
        connector = msgspec.structs.replace(self._options, tables=table_ids)
        # another attempt to read a chunk must not change segments of this one
        owner = f"{snapshot_plan.id}-{uuid.uuid4().hex[:8]}"
        configs = [
            ReaderConfig(
                connector=connector,
                plan=msgspec.structs.replace(snapshot_plan, chunks=()),
                chunks=tuple(share),
                snapshot=snapshot,
                segment_owner=owner,
                log=self._folder.label,
                work=str(self._work / f"table-reader-{number}"),
                jars=str(self._jars),
                heap=self._source.memory,
            )
            for number, share in enumerate(shares_of(chunks, self._source.snapshot_readers))
        ]
        with self._readers_ended_by_cancellation():
            ends = self._readers.read_chunks(configs)
        self._look()
        return ends

    @contextlib.contextmanager
    def _readers_ended_by_cancellation(self) -> Iterator[None]:
        """End the readers if their request is cancelled meanwhile."""
        have_ended = threading.Event()

        def look() -> None:
            while not have_ended.wait(_LOOK_S):
                try:
                    with contextlib.suppress(OSError):  # the storage may answer later
                        self._look()
                except (CancelledError, StoppedError):
                    self._readers.kill()

        thread = threading.Thread(target=look, name="snapshot-cancellation", daemon=True)
        thread.start()
        try:
            yield
        finally:
            have_ended.set()
            thread.join()

    # -- the publication

    def _publish(
        self, request: TableRequest, snapshot_plan: SnapshotPlan, progress: SnapshotProgress
    ) -> int:
        """Let the capture process publish all chunks; return the number of rows.

        Raises:
            CaptureError: Chunks are lost, because another process deleted them.
        """
        chunks = tuple(progress.complete_chunks(snapshot_plan))
        segments = _segments_of(chunks)
        if snapshot_plan.complete_at is None:
            # whatever happens later, they are published after this manifest, if at all
            sequence = self._newest_sequence()
            snapshot_plan = msgspec.structs.replace(snapshot_plan, complete_at=sequence)
            progress.start(snapshot_plan)
        follows = snapshot_plan.complete_at or 0
        if segments:
            repair = Repair(request.history, segments=segments, follows=follows)
            name = add_repair(self._folder, repair, _repair_of(snapshot_plan))
            self._wait_for_repair(name)
        published = segments_after(self._log, follows)
        is_complete = len(chunks) == len(snapshot_plan.chunks)
        if not (is_complete and {segment.name for segment in segments} <= published):
            raise CaptureError("the capture log lost chunks of its snapshot")
        return sum(segment.record_count for segment in segments)

    def _wait_for_repair(self, name: str) -> None:
        """Wait until the capture process has published a repair, or cannot do that."""
        while name in repair_names(self._folder):
            self._check_stop()
            self._stop.wait(_PUBLICATION_POLL_S)

    def _end(self, request: TableRequest) -> None:
        """Delete a request, its plan, and the segments that no manifest has."""
        self._delete_plan(request)
        delete_request(self._folder, request)

    def _delete(self, snapshot_plan: SnapshotPlan, progress: SnapshotProgress) -> None:
        is_incomplete = snapshot_plan.complete_at is None
        if not is_incomplete:  # it may be publishing the segments at this moment
            self._wait_for_repair(_repair_of(snapshot_plan))
        published = (
            set() if is_incomplete else segments_after(self._log, snapshot_plan.complete_at or 0)
        )
        for name in self._folder.names("segments"):
            if name.startswith(f"{snapshot_plan.id}-") and name not in published:
                self._folder.delete(f"segments/{name}")
        progress.delete(snapshot_plan)

    def _newest_sequence(self) -> int:
        newest = self._log.newest()
        return 0 if newest is None else newest.sequence

    # -- the end of the capture, or of a request

    def check(self) -> None:
        """Check that the capture goes on, and now and then that the running request is wanted.

        Raises:
            StoppedError: The capture ends.
            CancelledError: The request is cancelled, or another one replaced it.
        """
        self._check_stop()
        if time.monotonic() >= self._next_look_s:
            self._look()

    def _look(self) -> None:
        """Check the same at once."""
        self._check_stop()
        self._next_look_s = time.monotonic() + _LOOK_S
        if self._running is not None and is_abandoned(self._folder, self._running):
            raise CancelledError

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise StoppedError


def _repair_of(snapshot_plan: SnapshotPlan) -> str:
    """Return the name of the repair that publishes a snapshot."""
    return f"{snapshot_plan.id}.json"


def _segments_of(chunks: Iterable[CompleteChunk]) -> tuple[Segment, ...]:
    return tuple(segment for chunk in chunks for segment in chunk.segments)
