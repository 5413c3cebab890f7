# SPDX-License-Identifier: Apache-2.0
"""Requests for single tables: one at a time, and what a capture does with them."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from planned_table import OPTIONS, TABLE, store_segment

from changelane.capture import publisher as publisher_module
from changelane.capture.manifest import Segment
from changelane.capture.postgres.tables import Relation
from changelane.capture.publication import PublicationLimits, PublicationPlanner
from changelane.capture.publisher import LogPublisher
from changelane.capture.repairs import Repair, add_repair, repair_names
from changelane.capture.segment_store import CaptureLog, SegmentWriter, segment_name
from changelane.capture.snapshot import postgres_table
from changelane.capture.snapshot.plan import (
    CompleteChunk,
    SnapshotChunk,
    SnapshotPlan,
    SnapshotProgress,
    SnapshotTable,
)
from changelane.capture.snapshot.table_database import TableDatabase
from changelane.capture.snapshot.table_requests import (
    TableRequest,
    cancel_request,
    create_request,
    delete_request,
    is_abandoned,
    read_request,
    read_requests,
    record_error,
    state_of,
)
from changelane.capture.snapshot.table_snapshots import TableSnapshots
from changelane.capture.storage import LocalFolder
from changelane.errors import ConfigError
from changelane.pipeline.postgres_source import PostgresSource


def request_of(table: str, history: int = 0) -> TableRequest:
    return TableRequest(kind="redo", table=table, history=history, created_ms=1)


def test_a_table_has_one_request_until_it_is_complete_or_failed(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    first = request_of('public."A/../\'b"')
    create_request(folder, first)
    create_request(folder, request_of("public.a"))
    with pytest.raises(ConfigError, match="is not complete yet"):
        create_request(folder, request_of(first.table))
    assert read_request(folder, first.table) == first
    record_error(folder, first, "no")
    second = request_of(first.table)
    create_request(folder, second)
    assert second in read_requests(folder)
    assert len(read_requests(folder)) == 2


def test_the_end_of_a_request_does_not_change_the_one_that_replaced_it(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    first, second = request_of("public.a"), request_of("public.a")
    create_request(folder, first)
    record_error(folder, first, "no")
    create_request(folder, second)  # while the first one is tried again
    record_error(folder, first, "no")
    delete_request(folder, first)
    assert read_requests(folder) == [second]
    delete_request(folder, second)
    assert read_requests(folder) == []


def test_a_cancelled_request_can_be_replaced_and_cancels_no_other_one(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    first, second = request_of("public.a"), request_of("public.a")
    create_request(folder, first)
    assert (state_of(folder, first), is_abandoned(folder, first)) == ("requested", False)
    record_error(folder, first, "no")
    for _ in range(2):
        cancel_request(folder, first)
        (present,) = read_requests(folder)
        assert (state_of(folder, present), is_abandoned(folder, first)) == ("cancelled", True)
    record_error(folder, first, "another reason")  # by a capture that ends at this moment
    assert state_of(folder, first) == "cancelled"
    create_request(folder, second)
    assert (state_of(folder, second), is_abandoned(folder, second)) == ("requested", False)
    assert is_abandoned(folder, first)
    cancel_request(folder, first)  # by a command that read the request before
    assert not is_abandoned(folder, second)
    delete_request(folder, second)
    assert folder.names("snapshot/tables") == []


class OneTable(TableDatabase):
    """A table whose rows are here already."""

    def table(self, name: str, *_: object) -> SnapshotTable:
        assert name == TABLE.label
        return TABLE


def snapshots_of(folder: LocalFolder, work: Path) -> TableSnapshots:
    return TableSnapshots(
        OneTable(),
        PostgresSource(host="h", user="u", database="d", tables=["public.*"], segments="x"),
        OPTIONS,
        folder=folder,
        work=work,
        jars=work,
        notify=lambda _: None,
        include=lambda _: True,
        stop=threading.Event(),
    )


def complete_segment(folder: LocalFolder, request: TableRequest, spool: Path) -> Segment:
    """The segment of the only chunk of a request, which is complete but not published."""
    name = segment_name(f"{request.id}-1-1", 1)
    segment = store_segment(folder, spool, name, "1")
    plan = SnapshotPlan(
        id=f"{request.id}-1",
        settings="",
        follows=1,
        offset={},
        created_ms=1,
        tables=(TABLE,),
        chunks=(SnapshotChunk(0, 0),),
        complete_at=1,
    )
    progress = SnapshotProgress(folder, request.plan_name)
    progress.start(plan)
    progress.complete(plan, CompleteChunk(0, (segment,)))
    return segment


def wait_for(condition: Callable[[], bool], publisher: LogPublisher | None = None) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        if publisher is not None:
            publisher.tick()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def publisher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogPublisher]:
    monkeypatch.setattr(publisher_module, "_REPAIRS_S", 0)
    folder = LocalFolder(tmp_path / "log")
    writer = SegmentWriter(folder, tmp_path / "spool")
    writer.publish({"lsn": 1})
    planner = PublicationPlanner({"lsn": 1}, limits=PublicationLimits(), now_s=0)
    yield LogPublisher(writer, planner, OPTIONS, lambda _: None, folder)
    writer.close()


def test_a_capture_ends_a_request_whose_rows_it_published_when_it_started(
    tmp_path: Path, publisher: LogPublisher
) -> None:
    """The former capture ended after it had written the repair."""
    folder = LocalFolder(tmp_path / "log")
    request = request_of("public.a")
    create_request(folder, request)
    segment = complete_segment(folder, request, tmp_path)
    repair = Repair(0, segments=(segment,), follows=1)
    add_repair(folder, repair, f"{request.id}-1.json")
    publisher.tick()
    assert repair_names(folder) == []
    snapshots = snapshots_of(folder, tmp_path)
    snapshots.start()
    wait_for(lambda: read_requests(folder) == [], publisher)
    snapshots.stop()
    manifests = [*CaptureLog(folder).manifests_after(0)]
    assert [segment.name for m in manifests for segment in m.segments] == [segment.name]
    assert folder.names("segments") == [segment.name]


def test_a_request_whose_segments_are_lost_fails_and_the_next_one_can_replace_it(
    tmp_path: Path, publisher: LogPublisher
) -> None:
    folder = LocalFolder(tmp_path / "log")
    request = request_of("public.a")
    create_request(folder, request)
    segment = complete_segment(folder, request, tmp_path)
    snapshots = snapshots_of(folder, tmp_path)
    snapshots.start()
    wait_for(lambda: bool(repair_names(folder)))
    folder.delete(f"segments/{segment.name}")
    wait_for(lambda: any(present.error for present in read_requests(folder)), publisher)
    snapshots.stop()
    assert "lost chunks" in snapshots.failure
    create_request(folder, request_of("public.a"))
    assert not snapshots.failure


def test_requests_of_another_history_and_of_other_tables_are_not_executed(
    tmp_path: Path,
) -> None:
    folder = LocalFolder(tmp_path / "log")
    writer = SegmentWriter(folder, tmp_path / "spool")
    writer.publish({"lsn": 1})
    writer.begin_history()
    writer.publish({"lsn": 2})
    writer.close()
    create_request(folder, request_of("public.a"))
    create_request(folder, request_of("public.b", history=1))
    create_request(folder, request_of("public.c", history=1))
    notes: list[str] = []
    stop = threading.Event()
    have_ended = threading.Event()

    def note(text: str) -> None:
        notes.append(text)
        if len(notes) == 2:
            have_ended.set()

    class OtherTables(TableDatabase):
        """Tables that no pattern matches, one of which was dropped."""

        def exists(self, name: str) -> bool:
            return name == "public.b"

    snapshots = TableSnapshots(
        OtherTables(),
        PostgresSource(host="h", user="u", database="d", tables=["public.*"], segments="x"),
        OPTIONS,
        folder=folder,
        work=tmp_path,
        jars=tmp_path,
        notify=note,
        include=lambda _: False,
        stop=stop,
    )
    assert snapshots.has_work
    snapshots.start()
    assert have_ended.wait(10)
    wait_for(lambda: not snapshots.has_work)
    wait_for(lambda: any(request.error for request in read_requests(folder)))
    snapshots.stop()
    assert not snapshots.failure, "other tables are captured all the same"
    assert [(request.table, request.error) for request in read_requests(folder)] == [
        ("public.b", ""),
        ("public.c", "the table was dropped or renamed at the source"),
    ]
    assert notes == [
        "the snapshot of public.b waits: no pattern of tables matches it here",
        "the rows of public.c are not read: the table was dropped or renamed at the source",
    ]


def test_a_table_that_is_dropped_while_it_is_looked_up_does_not_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Connection:
        def close(self) -> None:
            pass

    relation = Relation(oid=1, schema="public", name="a", kind="table")
    for name, result in (
        ("connect", Connection()),
        ("read_relations", [relation]),
        ("read_tables", []),
        ("read_publication", None),
        ("snapshot_tables", ()),
    ):
        monkeypatch.setattr(postgres_table, name, lambda *_, result=result: result)
    source = PostgresSource(host="h", user="u", database="d", tables=["public.*"], segments="x")
    assert postgres_table.PostgresTables(source, OPTIONS).table("public.a") is None
