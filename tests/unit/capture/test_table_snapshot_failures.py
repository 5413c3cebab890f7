# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a table that are interrupted between any two writes, or by a changed table."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace
from planned_table import OPTIONS, TABLE, store_segment

from changelane.capture import publisher as publisher_module
from changelane.capture.manifest import EngineOffset
from changelane.capture.publication import PublicationLimits, PublicationPlanner
from changelane.capture.publisher import LogPublisher
from changelane.capture.repairs import repair_names
from changelane.capture.segment_store import CaptureLog, SegmentWriter, segment_name
from changelane.capture.snapshot import table_snapshots as snapshots_module
from changelane.capture.snapshot.plan import (
    CompleteChunk,
    SnapshotChunk,
    SnapshotProgress,
    SnapshotTable,
)
from changelane.capture.snapshot.reader_config import ReaderConfig, ReaderEnd
from changelane.capture.snapshot.table_requests import (
    TableRequest,
    cancel_request,
    create_request,
    read_requests,
    record_error,
    state_of,
    widen_request,
)
from changelane.capture.snapshot.table_snapshots import TableSnapshots
from changelane.capture.storage import LocalFolder
from changelane.pipeline.postgres_source import PostgresSource
from changelane.schema import TableId

CHUNKS = (SnapshotChunk(0, 0, None, ("5",)), SnapshotChunk(1, 0, ("5",), None))


class MortalFolder(LocalFolder):
    """The storage of a capture that is killed after some writes."""

    def __init__(self, path: Path, write_count: int) -> None:
        super().__init__(path)
        self._lock = threading.Lock()
        self._remaining_count = write_count

    def check(self) -> None:
        with self._lock:
            self._remaining_count -= 1
            if self._remaining_count < 0:
                raise OSError("killed")

    @property
    def is_dead(self) -> bool:
        return self._remaining_count < 0

    def create(self, name: str, content: bytes) -> None:
        self.check()
        super().create(name, content)

    def replace(self, name: str, content: bytes) -> None:
        self.check()
        super().replace(name, content)

    def put(self, source: Path, name: str) -> None:
        self.check()
        super().put(source, name)

    def delete(self, name: str) -> None:
        self.check()
        super().delete(name)


class Tables:
    """A database with one table."""

    def __init__(self, oid: int = 1) -> None:
        self.version = 1
        self.oid = oid
        self.ranges: list[tuple[object, ...]] = []

    def table(self, name: str, *key_range: object) -> SnapshotTable:
        assert name == TABLE.label
        self.ranges.append(key_range)
        return replace(TABLE, version=str(self.version), oid=self.oid)

    def exists(self, _: str) -> bool:
        return True

    def table_id(self, _: SnapshotTable) -> TableId:
        return TableId("d", "public", "a")

    def settings(self) -> str:
        return ""

    def settle(self, _: SnapshotTable) -> None:
        pass

    @contextmanager
    def open_snapshot(self, _: SnapshotTable) -> Iterator[tuple[str, EngineOffset]]:
        yield "snapshot", {"lsn": 5}

    def chunks(self, *_: object) -> tuple[SnapshotChunk, ...]:
        return CHUNKS


class Readers:
    """Readers that write one row for each chunk, one chunk each."""

    def __init__(self, folder: LocalFolder, spool: Path) -> None:
        self._folder = folder
        self._spool = spool

    def read_chunks(self, configs: Sequence[ReaderConfig]) -> list[ReaderEnd]:
        return [self.read(config, chunk) for config in configs for chunk in config.chunks]

    def read(self, config: ReaderConfig, chunk: SnapshotChunk) -> ReaderEnd:
        name = segment_name(config.segment_owner, chunk.number)
        segment = store_segment(self._folder, self._spool, name, str(chunk.number))
        progress = SnapshotProgress(self._folder)
        progress.complete(config.plan, CompleteChunk(chunk.number, (segment,)))
        return ReaderEnd()

    def stop(self) -> None:
        pass

    def kill(self) -> None:
        pass


class ReadersOfChangedTable(Readers):
    """Readers that complete one chunk before the table is created again."""

    def __init__(self, folder: LocalFolder, spool: Path, tables: Tables) -> None:
        super().__init__(folder, spool)
        self._tables = tables

    def read(self, config: ReaderConfig, chunk: SnapshotChunk) -> ReaderEnd:
        if chunk.number == 1 and self._tables.version == 1:
            self._tables.version = 2
            return ReaderEnd('relation "public.a" does not exist')
        return super().read(config, chunk)


def capture(
    folder: LocalFolder,
    work: Path,
    readers: Readers,
    monkeypatch: pytest.MonkeyPatch,
    *,
    tables: Tables | None = None,
    include: Callable[[str], bool] = lambda _: True,
    is_ended: Callable[[LocalFolder], bool] = lambda folder: not read_requests(folder),
) -> None:
    """Capture until all requests are complete, or until the storage ends it."""
    monkeypatch.setattr(snapshots_module, "LocalReaders", lambda: readers)
    with suppress(OSError):
        writer = SegmentWriter(folder, work / "spool")
        planner = PublicationPlanner({"lsn": 1}, limits=PublicationLimits(), now_s=0)
        publisher = LogPublisher(writer, planner, OPTIONS, lambda _: None, folder)
        publisher.tick()
        snapshots = TableSnapshots(
            tables or Tables(),
            PostgresSource(host="h", user="u", database="d", tables=["public.*"], segments="x"),
            OPTIONS,
            folder=folder,
            work=work,
            jars=work,
            notify=lambda _: None,
            include=include,
            stop=threading.Event(),
        )
        snapshots.start()
        deadline = time.monotonic() + 10
        try:
            while not is_ended(folder) and not (
                isinstance(folder, MortalFolder) and folder.is_dead
            ):
                publisher.tick()
                assert not snapshots.failure
                assert time.monotonic() < deadline, "the request is stuck"
                time.sleep(0.002)
        finally:
            snapshots.stop()
            writer.close()


@pytest.fixture(autouse=True)
def _short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "_REPAIRS_S", 0)
    monkeypatch.setattr(snapshots_module, "_LOOK_S", 0.01)
    monkeypatch.setattr(snapshots_module, "_PUBLICATION_POLL_S", 0.01)


def requested_log(path: Path, work: Path) -> LocalFolder:
    """A capture log whose first load is complete, with a request."""
    work.mkdir()
    folder = LocalFolder(path)
    writer = SegmentWriter(folder, work / "spool")
    writer.publish({"lsn": 1})
    writer.close()
    create_request(folder, TableRequest(kind="redo", table="public.a", history=0, created_ms=1))
    return folder


def test_all_chunks_of_a_table_that_is_created_again_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = requested_log(tmp_path / "log", tmp_path / "work")
    tables = Tables()
    included: list[int] = []

    def include(_: str) -> bool:
        included.append(tables.version)
        return True

    readers = ReadersOfChangedTable(folder, tmp_path, tables)
    capture(folder, tmp_path / "work", readers, monkeypatch, tables=tables, include=include)
    assert read_requests(folder) == []
    assert included == [1, 2], "the publication lacks the new table"
    (_, published) = CaptureLog(folder).manifests_after(0)
    assert published.record_count == len(CHUNKS)
    assert {segment.name for segment in published.segments} == set(folder.names("segments"))


def test_the_request_of_a_range_reads_all_rows_of_a_table_that_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table counts as captured from then on: nothing would read the other rows."""
    folder = requested_log(tmp_path / "log", tmp_path / "work")
    (request,) = read_requests(folder)
    record_error(folder, request, "this attempt failed")
    create_request(folder, replace(request, id="range", lower=("5",)))
    tables = Tables()

    def include(name: str) -> bool:
        widen_request(folder, name)
        (widened,) = read_requests(folder)
        record_error(folder, replace(widened, kind="redo", lower=("5",)), "")  # by another attempt
        return True

    capture(
        folder,
        tmp_path / "work",
        Readers(folder, tmp_path),
        monkeypatch,
        tables=tables,
        include=include,
    )
    assert set(tables.ranges) == {((), ())}


def test_complete_chunks_of_a_former_table_are_not_those_of_a_table_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With them, the request would be complete, and no row of the present table read."""
    work = tmp_path / "work"
    folder = requested_log(tmp_path / "log", work)
    mortal = MortalFolder(tmp_path / "log", 1 << 30)

    class LastReaders(Readers):
        def read_chunks(self, configs: Sequence[ReaderConfig]) -> list[ReaderEnd]:
            ends = super().read_chunks(configs)
            mortal._remaining_count = 0  # before it is recorded that all chunks are complete
            return ends

    capture(mortal, work, LastReaders(folder, work), monkeypatch, tables=Tables(1))
    (request,) = read_requests(folder)
    progress = SnapshotProgress(folder, request.plan_name)
    plan = progress.plan()
    assert plan is not None
    assert progress.complete_numbers(plan) == {0, 1}
    former_names = set(folder.names("segments"))
    capture(folder, work, Readers(folder, work), monkeypatch, tables=Tables(2))
    assert read_requests(folder) == []
    published = CaptureLog(folder).newest()
    assert published is not None
    assert published.record_count == len(CHUNKS)
    assert former_names.isdisjoint(segment.name for segment in published.segments)


def killed_captures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[int, LocalFolder, Path]]:
    """Yield captures that ended at one of their writes: its number, the log and its work folder."""
    for write_count in count():
        path, work = tmp_path / f"log-{write_count}", tmp_path / f"work-{write_count}"
        folder = requested_log(path, work)
        mortal = MortalFolder(path, write_count)
        capture(mortal, work, Readers(mortal, work), monkeypatch)
        if not mortal.is_dead:
            return
        yield write_count, folder, work


def test_a_killed_capture_loses_and_doubles_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for write_count, folder, work in killed_captures(tmp_path, monkeypatch):
        capture(folder, work, Readers(folder, work), monkeypatch)
        assert read_requests(folder) == [], write_count
        manifests = [*CaptureLog(folder).manifests_after(0)]
        published = [segment for manifest in manifests for segment in manifest.segments]
        assert sum(segment.record_count for segment in published) % len(CHUNKS) == 0
        # a kill just before the end of the request may read the rows again
        assert len(published) in {len(CHUNKS), 2 * len(CHUNKS)}, write_count
        assert {segment.name for segment in published} == set(folder.names("segments"))
        assert (repair_names(folder), folder.names("snapshot/tables")) == ([], [])
    assert write_count > 10


class CancelledReaders(Readers):
    """Readers that complete one chunk, and wait in the other one until they are killed."""

    def __init__(self, folder: LocalFolder, spool: Path) -> None:
        super().__init__(folder, spool)
        self._log = folder
        self._is_killed = threading.Event()

    def read(self, config: ReaderConfig, chunk: SnapshotChunk) -> ReaderEnd:
        if chunk.number == 0:
            return super().read(config, chunk)
        (request,) = read_requests(self._log)
        cancel_request(self._log, request)
        if not self._is_killed.wait(5):
            return super().read(config, chunk)
        return ReaderEnd("a reader of the snapshot was killed", is_retriable=True)

    def kill(self) -> None:
        self._is_killed.set()


def has_ended(folder: LocalFolder) -> bool:
    """Whether the only request is complete, or is cancelled and nothing is left of it."""
    return not read_requests(folder) or (
        state_of(folder, read_requests(folder)[0]) == "cancelled"
        and folder.names("segments") == []
        and not any(name.endswith(".plan") for name in folder.names("snapshot/tables"))
    )


def test_a_cancelled_request_is_not_read_and_a_killed_capture_leaves_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All chunks are published in the end, or none."""
    ends = set()
    for write_count in count():
        path, work = tmp_path / f"log-{write_count}", tmp_path / f"work-{write_count}"
        folder = requested_log(path, work)
        mortal = MortalFolder(path, write_count)
        capture(mortal, work, CancelledReaders(mortal, work), monkeypatch, is_ended=has_ended)
        if mortal.is_dead:
            for request in read_requests(folder):
                cancel_request(folder, request)
            capture(folder, work, Readers(folder, work), monkeypatch, is_ended=has_ended)
        requests = read_requests(folder)
        published = sum(m.record_count for m in CaptureLog(folder).manifests_after(0))
        assert published == (0 if requests else len(CHUNKS)), write_count
        assert [state_of(folder, request) for request in requests] in ([], ["cancelled"])
        assert (repair_names(folder), folder.names("segments")) == ([], []), write_count
        assert not any(name.endswith(".plan") for name in folder.names("snapshot/tables"))
        ends.add(bool(requests))
        if not mortal.is_dead:
            break
    assert ends == {True}
    assert write_count > 5


def test_a_request_that_is_cancelled_after_its_last_chunk_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The capture process may be publishing the segments: they must not be deleted."""
    for write_count, folder, work in killed_captures(tmp_path, monkeypatch):
        requests = read_requests(folder)
        for request in requests:
            cancel_request(folder, request)
        # another request replaces it before the next capture
        for request in requests:
            create_request(folder, replace(request, id="second"))
        capture(folder, work, Readers(folder, work), monkeypatch)
        segments = [s for m in CaptureLog(folder).manifests_after(0) for s in m.segments]
        assert {segment.name for segment in segments} == set(folder.names("segments")), write_count
        assert len(segments) in {len(CHUNKS), 2 * len(CHUNKS)}
    assert write_count > 10
