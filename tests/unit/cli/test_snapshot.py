# SPDX-License-Identifier: Apache-2.0
"""``changelane snapshot status``."""

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from changelane.capture.manifest import Segment
from changelane.capture.requested_tables import Requested
from changelane.capture.snapshot.plan import (
    CompleteChunk,
    SnapshotChunk,
    SnapshotPlan,
    SnapshotProgress,
    SnapshotTable,
)
from changelane.capture.snapshot.table_requests import (
    TableRequest,
    create_request,
    record_error,
)
from changelane.capture.storage import LocalFolder
from changelane.cli import main
from changelane.pipeline.config import load
from changelane.pipeline.database_source import DatabaseSource

EMPTY = '{\n  "first_load": null,\n  "tables": []\n}\n'


def planned(name: str) -> SnapshotTable:
    return SnapshotTable(
        schema="shop", name=name, columns=("id",), key=(), row_bytes=1, version="1"
    )


def pipeline_file(folder: Path, *, to_topics: bool = False, **options: str) -> str:
    source = {
        "type": "mariadb",
        "host": "h",
        "user": "u",
        "database": "shop",
        "tables": ["shop.*"],
        "segments": str(folder / "log"),
        "snapshot": "spark",
    }
    sink = {"type": "delta", "path": str(folder / "lake")}
    if to_topics:
        sink = {"type": "kafka", "bootstrap_servers": "b:9092", "format": "canal-json"}
        sink |= {"topic": "shop", "checkpoint": str(folder / "sent")}
    file = folder / "shop.yaml"
    pipeline = {"name": "shop", "source": source, "sink": sink, "options": options}
    file.write_bytes(msgspec.json.encode(pipeline))
    return str(file)


def run_status(folder: Path, *arguments: str) -> str:
    result = CliRunner().invoke(main, ["snapshot", "status", pipeline_file(folder), *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_status_counts_the_chunks_and_rows_of_each_table(tmp_path: Path) -> None:
    assert run_status(tmp_path) == "no snapshot by readers runs, and none was interrupted\n"
    assert run_status(tmp_path, "--output", "json") == EMPTY
    plan = SnapshotPlan(
        id="first",
        settings="",
        follows=0,
        offset={},
        created_ms=1,
        tables=(planned("orders"), planned("[empty]")),
        chunks=(SnapshotChunk(0, 0), SnapshotChunk(1, 0), SnapshotChunk(2, 1)),
    )
    progress = SnapshotProgress(LocalFolder(tmp_path / "log"))
    progress.start(plan)
    segments = (Segment("a", 0, 1000, 9, "00"), Segment("b", 0, 234, 9, "00"))
    progress.complete(plan, CompleteChunk(1, segments))
    progress.complete(plan, CompleteChunk(2, ()))
    lines = run_status(tmp_path).splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["shop.orders", "2", "1", "1,234"],
        ["shop.[empty]", "1", "1", "0"],
    ]
    assert lines[3] == "2 of 3 chunks of the snapshot are complete, with 1,234 rows"
    figures = msgspec.json.decode(run_status(tmp_path, "--output", "json"))["first_load"]
    assert (figures["chunk_count"], figures["complete_count"], figures["row_count"]) == (3, 2, 1234)
    assert figures["tables"][1] == {
        "table": "shop.[empty]",
        "chunk_count": 1,
        "complete_count": 1,
        "row_count": 0,
    }


def test_status_shows_snapshots_of_tables(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "log")
    added = TableRequest(kind="add", table="shop.`[b]`", history=0, created_ms=1)
    redone = TableRequest(kind="redo", table="shop.a", history=0, created_ms=2, lower=("5",))
    create_request(folder, added)
    create_request(folder, redone)
    plan = SnapshotPlan(
        id="second",
        settings="",
        follows=0,
        offset={},
        created_ms=1,
        tables=(planned("a"),),
        chunks=(SnapshotChunk(0, 0), SnapshotChunk(1, 0)),
    )
    progress = SnapshotProgress(folder, redone.plan_name)
    progress.start(plan)
    progress.complete(plan, CompleteChunk(1, (Segment("a", 0, 1000, 9, "00"),)))
    assert run_status(tmp_path).splitlines() == [
        "add shop.`[b]`: waits for a capture, or for transactions that write to the table",
        "redo shop.a: 1 of 2 chunks of the snapshot are complete, with 1,000 rows",
    ]
    record_error(folder, added, "the table does not exist any more")
    assert "add shop.`[b]`: failed: the table does not exist" in run_status(tmp_path)
    tables = msgspec.json.decode(run_status(tmp_path, "--output", "json"))["tables"]
    assert [(t["table"], t["lower"], t["figures"] is None) for t in tables] == [
        ("shop.`[b]`", [], True),
        ("shop.a", ["5"], False),
    ]


def test_cancelled_requests_are_shown_until_another_one_replaces_them(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "log")
    for kind, name in (("add", "shop.a"), ("redo", "shop.b"), ("redo", "shop.c")):
        create_request(folder, TableRequest(kind=kind, table=name, history=0, created_ms=1))
    cancel = ["snapshot", "cancel", pipeline_file(tmp_path)]
    for _ in range(2):
        cancelled = CliRunner().invoke(main, [*cancel, "a", "shop.b", "d"])
        assert (cancelled.exit_code, cancelled.output.splitlines()) == (
            0,
            ["cancelled: add shop.a", "cancelled: redo shop.b", "no snapshot of d is requested"],
        )
    assert run_status(tmp_path).splitlines() == [
        (
            "add shop.a: cancelled: rows from before the capture are missing until "
            "`snapshot redo` reads them"
        ),
        "redo shop.b: cancelled",
        "redo shop.c: waits for a capture, or for transactions that write to the table",
    ]
    tables = msgspec.json.decode(run_status(tmp_path, "--output", "json"))["tables"]
    assert [table["state"] for table in tables] == ["cancelled", "cancelled", "requested"]


def test_redo_waits_for_its_end_and_shows_why_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = LocalFolder(tmp_path / "log")
    calls: list[tuple[object, ...]] = []

    def request_tables(_: object, names: list[str], **options: object) -> Requested:
        calls.append((names, options["kind"], options["lower"], options["upper"]))
        request = TableRequest(kind="redo", table="shop.a", history=0, created_ms=1)
        if len(calls) == 1:
            create_request(folder, request)
            record_error(folder, request, "it has no key")
        return Requested((request,))

    monkeypatch.setattr("changelane.capture.requested_tables.request_tables", request_tables)
    ranges = ["--from", "a", "--from", "5", "--to", "b"]
    command = ["snapshot", "redo", pipeline_file(tmp_path), "a", *ranges, "--wait"]
    failed = CliRunner().invoke(main, command)
    assert failed.exit_code == 1
    assert "the rows of shop.a are not read: it has no key" in failed.stderr
    complete = CliRunner().invoke(main, command)
    assert complete.stdout == "requested: the rows of shop.a\nthe capture log has the rows\n"
    assert calls[0] == (["a"], "redo", ("a", "5"), ("b",))
    history = ["snapshot", "redo", pipeline_file(tmp_path, mode="history"), "a"]
    assert "redo needs tables of the mode upsert" in CliRunner().invoke(main, history).stderr


@pytest.mark.parametrize("kind", ["add", "redo"])
def test_tables_of_a_pipeline_into_topics_are_not_read_beside_newer_messages(
    tmp_path: Path, kind: str
) -> None:
    file = pipeline_file(tmp_path, to_topics=True)
    refused = CliRunner().invoke(main, ["snapshot", kind, file, "a"])
    assert "the rows would follow newer changes" in refused.stderr
    assert LocalFolder(tmp_path / "log").names("snapshot/tables") == []
    source, lake_source = load(file).source, load(pipeline_file(tmp_path)).source
    assert isinstance(source, DatabaseSource)
    assert isinstance(lake_source, DatabaseSource)
    assert (source.new_tables, lake_source.new_tables) == ("stop", "snapshot")
