# SPDX-License-Identifier: Apache-2.0
"""The plan of a snapshot: its progress on storage, and the queries of its chunks."""

from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from changelane.capture.connectors import ConnectorOptions, Product
from changelane.capture.manifest import CapturedRecord, EngineOffset, Segment
from changelane.capture.mysql.snapshot_tables import chunks_of as mysql_chunks_of
from changelane.capture.postgres.snapshot_tables import chunk_query
from changelane.capture.schema_history import SchemaHistory
from changelane.capture.segment_store import CaptureLog, SegmentWriter
from changelane.capture.snapshot.binlog_snapshot import BinlogSnapshot
from changelane.capture.snapshot.plan import (
    CompleteChunk,
    KeyColumn,
    SnapshotChunk,
    SnapshotPlan,
    SnapshotProgress,
    SnapshotTable,
    shares_of,
)
from changelane.capture.snapshot.reader_config import (
    ReaderConfig,
    ReaderEnd,
    decode_reader_config,
    encode_reader_config,
)
from changelane.capture.snapshot.reader_process import SnapshotReader
from changelane.capture.snapshot.reader_start import run_reader
from changelane.capture.storage import LocalFolder
from changelane.errors import ConfigError, UnreachableError
from changelane.pipeline.mysql_source import MariadbSource

TABLE = SnapshotTable(
    schema="public",
    name='Order "items"',
    oid=7,
    is_partitioned=False,
    columns=("id", "note"),
    key=(KeyColumn("id", "integer"), KeyColumn("Note", "character varying(20)")),
    row_filter="",
    row_bytes=50,
    version="1",
)
PLAN = SnapshotPlan(
    id="first",
    settings="",
    follows=0,
    offset={"lsn": 1},
    created_ms=1,
    tables=(TABLE,),
    chunks=(SnapshotChunk(0, 0, None, ("1", "a")), SnapshotChunk(1, 0, ("1", "a"), None)),
)


def segment(name: str, record_count: int) -> Segment:
    return Segment(name, 0, record_count, 10, "00")


def test_bounds_are_compared_by_the_database_as_rows() -> None:
    chunk = SnapshotChunk(1, 0, ("1", "it's"), ("2", "b\\"))
    table = msgspec.structs.replace(TABLE, row_filter="(v > 1)")
    assert chunk_query(table, chunk) == (
        'SELECT "id", "note" FROM ONLY "public"."Order ""items""" WHERE ((v > 1)) '
        "AND (\"id\", \"Note\") > ('1'::integer, 'it''s'::character varying(20)) "
        "AND (\"id\", \"Note\") <= ('2'::integer, E'b\\\\'::character varying(20))"
    )
    partitioned = msgspec.structs.replace(TABLE, is_partitioned=True)
    query = chunk_query(partitioned, SnapshotChunk(0, 0))
    assert query == 'SELECT "id", "note" FROM "public"."Order ""items"""'


def test_progress_belongs_to_a_plan(tmp_path: Path) -> None:
    progress = SnapshotProgress(LocalFolder(tmp_path))
    assert progress.plan() is None
    progress.start(PLAN)
    assert SnapshotProgress(LocalFolder(tmp_path)).plan() == PLAN
    chunks = [CompleteChunk(1, (segment("b", 2),)), CompleteChunk(0, ())]
    for chunk in chunks:
        progress.complete(PLAN, chunk)
    assert list(progress.complete_chunks(PLAN)) == chunks[::-1]
    later = msgspec.structs.replace(PLAN, id="second")
    progress.start(later)
    assert not list(progress.complete_chunks(later))
    progress.delete(PLAN)
    assert progress.plan() is None
    assert not list(progress.complete_chunks(PLAN))
    (tmp_path / "snapshot" / "plan.json").write_bytes(b"{")
    assert progress.plan() is None


def test_every_reader_gets_a_share() -> None:
    chunks = [SnapshotChunk(number, 0) for number in range(5)]
    shares = shares_of(chunks, 2)
    assert [[chunk.number for chunk in share] for share in shares] == [[0, 2, 4], [1, 3]]
    assert shares_of(chunks[:1], 4) == [chunks[:1]]


def test_segments_of_others_get_the_next_offsets(tmp_path: Path) -> None:
    writer = SegmentWriter(LocalFolder(tmp_path / "log"), tmp_path / "spool")
    writer.append(CapturedRecord("t", None, "{}"))
    writer.append_segment(segment("a", 3))
    writer.append_segment(segment("b", 2))
    writer.append(CapturedRecord("t", None, "{}"))
    manifest = writer.publish({"lsn": 1})
    assert [s.first_offset for s in manifest.segments] == [0, 1, 4, 6]
    assert (manifest.record_count, manifest.next_offset) == (7, 7)


def test_published_segments_of_earlier_epochs_are_never_deleted(tmp_path: Path) -> None:
    def writer_of_next_epoch() -> SegmentWriter:
        return SegmentWriter(LocalFolder(tmp_path / "log"), tmp_path / "spool")

    folder = tmp_path / "log" / "segments"
    folder.mkdir(parents=True)
    names = ["00000001-000001000001", "00000002-000000000001", "00000001-000000000002"]
    published = [f"{name}.jsonl.zst" for name in names]
    for name in (*published, "00000001-000000000009.jsonl.zst"):  # the last one was abandoned
        (folder / name).touch()
    for _ in range(2):
        writer_of_next_epoch().close()  # epochs whose readers wrote the segments
    snapshot = writer_of_next_epoch()
    for name in published:
        snapshot.append_segment(segment(name, 1))
    snapshot.publish({"lsn": 1})
    assert sorted(path.name for path in folder.iterdir()) == sorted(published)
    for number in range(2):
        later = writer_of_next_epoch()
        later.append(CapturedRecord("t", None, "{}"))
        later.publish({"lsn": 2 + number})
    assert {path.name for path in folder.iterdir()} > set(published)


def test_a_readers_configuration_hides_its_secret() -> None:
    config = ReaderConfig(
        connector=ConnectorOptions(
            product="postgres", name="shop", host="h", database="d", user="u", password="hidden"
        ),
        plan=PLAN,
        chunks=PLAN.chunks,
        snapshot="00000003-1",
        segment_owner=1,
        log="log",
        work="work",
        jars="jars",
        heap="64m",
    )
    line = encode_reader_config(config)
    assert decode_reader_config(line) == config
    assert "hidden" not in repr(config)
    with pytest.raises(ConfigError) as caught:
        decode_reader_config(line.replace(b'"segment_owner":1', b'"segment_owner":[]'))
    assert "hidden" not in str(caught.value)


def snapshot_reader(
    folder: Path, product: Product, plan: SnapshotPlan, chunks: tuple[SnapshotChunk, ...]
) -> SnapshotReader:
    config = ReaderConfig(
        connector=ConnectorOptions(product=product, name="shop", host=".", database="d", user="u"),
        plan=plan,
        chunks=chunks,
        snapshot="00000003-1",
        segment_owner=1,
        log=str(folder),
        work=str(folder / "work"),
        jars=str(folder / "jars"),
        heap="64m",
    )
    return SnapshotReader(config)


def test_a_repeated_task_reads_no_complete_chunk_again(tmp_path: Path) -> None:
    reader = snapshot_reader(tmp_path, "postgres", PLAN, PLAN.chunks[:1])
    with pytest.raises(ConfigError, match="has no jars"):
        reader.run()
    SnapshotProgress(LocalFolder(tmp_path)).complete(PLAN, CompleteChunk(0, ()))
    assert reader.run() == ReaderEnd()


def test_a_repeated_task_does_not_read_tables_without_a_key_in_two_transactions(
    tmp_path: Path,
) -> None:
    keyless = msgspec.structs.replace(TABLE, key=(), is_continuable=False)
    plan = msgspec.structs.replace(PLAN, tables=(keyless, keyless))
    chunks = (SnapshotChunk(0, 0), SnapshotChunk(1, 1))
    reader = snapshot_reader(tmp_path, "mariadb", plan, chunks)
    with pytest.raises(ConfigError, match="has no jars"):
        reader.run()
    SnapshotProgress(LocalFolder(tmp_path)).complete(plan, CompleteChunk(0, ()))
    assert reader.run().is_retriable
    with pytest.raises(ConfigError, match="has no jars"):  # they share one snapshot
        snapshot_reader(tmp_path, "postgres", plan, chunks).run()


@pytest.mark.parametrize(
    ("script", "end"),
    [
        (
            "read line; exit 3",
            ReaderEnd("the JVM of a snapshot reader ran out of memory: increase the option memory"),
        ),
        ("exit 1", ReaderEnd("a reader of the snapshot was killed", is_retriable=True)),
    ],
)
def test_a_reader_without_a_last_line_ends_with_a_reason(
    script: str, end: ReaderEnd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(program))
    assert run_reader(b"x" * (1 << 20) + b"\n") == end


class _Session:
    """A session of MySQL, whose rows of one column are given."""

    def __init__(self, *values: str) -> None:
        self.statements: list[str] = []
        self._values = iter(values)

    def cursor(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, query: str, args: object = None) -> int:
        del args
        self.statements.append(query)
        return 0

    def fetchall(self) -> list[tuple[str, ...]]:
        return [(value,) for value in [next(self._values, None)] if value is not None]


def test_zero_dates_are_bounds_whatever_the_mode_of_the_server_is() -> None:
    table = msgspec.structs.replace(TABLE, schema="shop", name="t", key=(KeyColumn("d", "date"),))
    session: Any = _Session("", "0000-00-00")
    chunks = mysql_chunks_of(session, [table], max_rows=1, max_bytes=1)
    assert [chunk.upper for chunk in chunks] == [("'0000-00-00'",), None]
    assert session.statements[0] == "SET SESSION sql_mode = ''"
    assert "`d` > '0000-00-00'" in session.statements[-1]


def binlog_snapshot(folder: Path) -> BinlogSnapshot:
    source = MariadbSource(
        host="127.0.0.1",
        port=1,
        user="u",
        database="shop",
        tables=["shop.*"],
        segments=str(folder / "log"),
        snapshot="spark",
        snapshot_readers=2,
    )
    options = ConnectorOptions(
        product="mariadb", name="shop", host="127.0.0.1", port=1, database="shop", user="u"
    )
    log = CaptureLog(LocalFolder(folder / "log"))
    return BinlogSnapshot(source, options, work=folder, jars=folder, log=log)


def test_a_snapshot_continues_only_with_the_schemas_that_were_recorded_for_it(
    tmp_path: Path,
) -> None:
    history = SchemaHistory(tmp_path)
    snapshot = binlog_snapshot(tmp_path)
    assert not snapshot.can_continue(PLAN, set())
    history.file.write_bytes(b"{}\n")
    plan = msgspec.structs.replace(PLAN, history=history.digest())
    with pytest.raises(UnreachableError):  # the next check asks the server
        snapshot.can_continue(plan, set())
    history.file.write_bytes(b"{}\n{}\n")  # another capture's
    assert not snapshot.can_continue(plan, set())


def test_tables_without_a_key_are_read_first_and_the_log_continues_at_their_position(
    tmp_path: Path,
) -> None:
    keyless = msgspec.structs.replace(TABLE, name="events", key=(), is_continuable=False)
    chunks = (SnapshotChunk(0, 1), SnapshotChunk(1, 2), *(SnapshotChunk(n, 0) for n in (2, 3, 4)))
    plan = msgspec.structs.replace(
        PLAN, tables=(TABLE, keyless, keyless), chunks=chunks, offset={"file": "b.1", "pos": 4}
    )
    snapshot = binlog_snapshot(tmp_path)
    numbers = [
        [[chunk.number for chunk in share] for share in shares]
        for shares in snapshot.rounds(plan, chunks)
    ]
    assert numbers == [[[0, 1]], [[2, 4], [3]]]
    assert snapshot.rounds(plan, chunks[2:3]) == [[[chunks[2]]]]
    assert snapshot.rounds(plan, ()) == []
    exact: EngineOffset = {"file": "b.2", "pos": 9, "gtids": "0-1-7"}
    later: EngineOffset = {"file": "b.3", "pos": 1}
    complete = [CompleteChunk(n, (), exact if n < 2 else later) for n in range(5)]
    assert snapshot.end(plan, complete, 1) == exact
    keyed = msgspec.structs.replace(plan, chunks=chunks[2:])
    assert snapshot.end(keyed, complete[2:], 1) == plan.offset
