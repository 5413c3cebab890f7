# SPDX-License-Identifier: Apache-2.0
"""The capture log: what readers see of writers that publish, crash and fence each other."""

import errno
import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from changelane.capture.manifest import CapturedRecord, decode_manifest
from changelane.capture.segment_store import (
    CaptureFencedError,
    CaptureLog,
    SegmentWriter,
)
from changelane.capture.storage import LocalFolder
from changelane.conversion.message_files import read_record
from changelane.errors import ChangelaneError, ConfigError

WRITERS: list[SegmentWriter] = []


@pytest.fixture(autouse=True)
def _close_writers() -> Iterator[None]:
    yield
    while WRITERS:
        WRITERS.pop().close()


def writer_of(tmp_path: Path, *, segment_bytes: int = 1000) -> SegmentWriter:
    folder = LocalFolder(tmp_path / "log")
    writer = SegmentWriter(folder, tmp_path / "spool", segment_bytes=segment_bytes)
    WRITERS.append(writer)
    return writer


def log_of(tmp_path: Path) -> CaptureLog:
    return CaptureLog(LocalFolder(tmp_path / "log"))


def record(number: int) -> CapturedRecord:
    return CapturedRecord(
        "shop.orders", f'{{"id":{number}}}', f'{{"text":"é\\u0000\n{number}"}}', 7, (("a", "b"),)
    )


def lines_of(tmp_path: Path) -> list[bytes]:
    log = log_of(tmp_path)
    lines: list[bytes] = []
    for manifest in log.manifests_after(0):
        for segment in manifest.segments:
            content = log.folder.read(f"segments/{segment.name}")
            assert hashlib.sha256(content).hexdigest() == segment.sha256
            assert len(content) == segment.size_bytes
            raw = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(content)).read()
            of_segment = raw.splitlines()
            assert len(of_segment) == segment.record_count
            assert segment.first_offset == len(lines)
            lines += of_segment
    return lines


def test_records_become_visible_with_their_manifest_and_read_back(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    for number in range(50):
        writer.append(record(number))
    assert log_of(tmp_path).newest() is None
    manifest = writer.publish({"lsn": 17, "last": None}, detail={"rows": 50})
    assert (manifest.record_count, manifest.next_offset) == (50, 50)
    assert len(manifest.segments) > 2, "segments are of limited size"
    assert writer.pending_count == writer.pending_bytes == 0
    newest = log_of(tmp_path).newest()
    assert newest == manifest
    assert newest.engine_offset == {"lsn": 17, "last": None}
    messages = [read_record(line) for line in lines_of(tmp_path)]
    assert [message.offset for message in messages] == list(range(50))
    first = messages[3]
    assert (first.topic, first.partition, first.timestamp_ms) == ("shop.orders", 0, 7)
    assert first.key == b'{"id":3}'
    assert first.value == '{"text":"é\\u0000\n3"}'.encode()
    assert first.headers == (("a", b"b"),)


def test_a_tombstone_and_a_record_without_key_read_back(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    writer.append(CapturedRecord("t", '{"id":1}', None))
    writer.append(CapturedRecord("t", None, "{}"))
    writer.publish({})
    messages = [read_record(line) for line in lines_of(tmp_path)]
    assert [(m.key, m.value) for m in messages] == [(b'{"id":1}', None), (None, b"{}")]


def test_a_new_writer_continues_after_the_newest_manifest(tmp_path: Path) -> None:
    first = writer_of(tmp_path)
    first.append(record(0))
    first.publish({"lsn": 1})
    first.append(record(99))  # never published
    second = writer_of(tmp_path)
    assert second.newest is not None
    assert second.newest.engine_offset == {"lsn": 1}
    second.append(record(1))
    assert second.publish({"lsn": 2}).sequence == 2
    assert [read_record(line).key for line in lines_of(tmp_path)] == [b'{"id":0}', b'{"id":1}']


class RepeatingFolder(LocalFolder):
    """An object store whose client repeats a request, because its answer was lost."""

    def create(self, name: str, content: bytes) -> None:
        super().create(name, content)
        if name.startswith("manifests/"):
            super().create(name, content)


def test_a_writer_that_finds_its_own_manifest_goes_on(tmp_path: Path) -> None:
    writer = SegmentWriter(RepeatingFolder(tmp_path / "log"), tmp_path / "spool")
    WRITERS.append(writer)
    for number in range(2):
        writer.append(record(number))
        writer.publish({"lsn": number})
    assert len(lines_of(tmp_path)) == 2


def test_a_fenced_writer_publishes_nothing(tmp_path: Path) -> None:
    former = writer_of(tmp_path)
    former.append(record(0))
    current = writer_of(tmp_path / "other")  # another log is not concerned
    current.append(record(5))
    current.publish({})
    writer_of(tmp_path)
    with pytest.raises(CaptureFencedError, match="another capture process"):
        former.publish({})
    assert log_of(tmp_path).newest() is None


def test_of_two_writers_that_publish_at_once_one_fails(tmp_path: Path, monkeypatch) -> None:
    former = writer_of(tmp_path)
    former.append(record(0))
    current = writer_of(tmp_path)
    current.append(record(1))
    current.publish({"lsn": 1})
    # the former writer compared the epochs before the current one began
    monkeypatch.setattr("changelane.capture.segment_store._numbers", lambda *_: [former.epoch])
    with pytest.raises(CaptureFencedError):
        former.publish({"lsn": 0})
    monkeypatch.undo()
    assert [read_record(line).key for line in lines_of(tmp_path)] == [b'{"id":1}']


def test_segments_that_no_writer_published_are_deleted_after_a_publication(tmp_path: Path) -> None:
    crashed = writer_of(tmp_path, segment_bytes=10)
    crashed.append(record(0))
    segments = tmp_path / "log" / "segments"
    assert len(list(segments.iterdir())) == 1
    writer = writer_of(tmp_path)
    assert len(list(segments.iterdir())) == 1, "the crashed writer may still publish it"
    writer.append(record(1))
    writer.publish({})
    assert len(list(segments.iterdir())) == 1
    assert len(lines_of(tmp_path)) == 1


def test_discarded_records_leave_no_file_and_no_offset(tmp_path: Path) -> None:
    writer = writer_of(tmp_path, segment_bytes=200)
    for number in range(5):
        writer.append(record(number))
    writer.discard()
    assert writer.pending_count == 0
    assert writer.pending_since_s is None
    assert not list((tmp_path / "log" / "segments").iterdir())
    assert not list((tmp_path / "spool").iterdir())
    writer.append(record(7))
    manifest = writer.publish({})
    assert manifest.first_offset == 0
    assert [read_record(line).offset for line in lines_of(tmp_path)] == [0]


def test_a_manifest_is_found_by_an_offset(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    assert log.manifest_at(0) is None
    assert log.identity() is None
    writer = writer_of(tmp_path)
    for count in (3, 0, 2):
        for number in range(count):
            writer.append(record(number))
        writer.publish({})
    found = [manifest.sequence if (manifest := log.manifest_at(n)) else 0 for n in range(6)]
    assert found == [1, 1, 1, 3, 3, 3]
    assert log.identity() is not None
    identity = log.identity()
    writer_of(tmp_path)
    assert log.identity() == identity


def test_a_publication_without_records_moves_the_offset_of_the_engine(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    manifest = writer.publish({"lsn": 5})
    assert (manifest.segments, manifest.record_count, manifest.next_offset) == ((), 0, 0)


def test_retention_deletes_what_all_consumers_have(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    for number in range(4):
        writer.append(record(number))
        writer.publish({})
    log = log_of(tmp_path)
    assert log.delete_expired(retention_s=0) == 0, "without a consumer everything stays"
    log.set_consumed("a", 3)
    log.set_consumed("b", 2)
    assert log.delete_expired(retention_s=3600) == 0
    assert log.delete_expired(retention_s=-1) == 2
    assert log.sequences() == [3, 4]
    assert len(list((tmp_path / "log" / "segments").iterdir())) == 2
    log.set_consumed("a", 4)
    log.set_consumed("b", 4)
    assert log.delete_expired(retention_s=-1) == 1
    assert log.sequences() == [4], "the capture continues from the newest"
    with pytest.raises(ChangelaneError, match="no manifest 1 any more: its retention deleted it"):
        log.manifest(1)
    assert [manifest.sequence for manifest in log.manifests_after(3)] == [4]


def test_the_start_of_a_history_is_found_until_the_retention_deletes_it(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    assert log.history_start() is None
    writer = writer_of(tmp_path)
    writer.publish({"lsn": 1})
    start = log.history_start()
    assert start is not None
    assert start.sequence == 1
    for _ in range(2):
        writer.begin_history()
    for _ in range(3):
        writer.publish({"lsn": 2})
    assert [log.manifest(number).history for number in log.sequences()] == [0, 1, 2, 2, 2, 2]
    assert writer_of(tmp_path).publish({"lsn": 3}).history == 2
    start = log.history_start()
    assert start is not None
    assert (start.sequence, start.engine_offset) == (3, {})
    log.set_consumed("a", 4)
    log.delete_expired(retention_s=-1)
    start = log.history_start()
    assert start is not None
    assert (start.sequence, start.engine_offset) == (5, {"lsn": 2})


def test_a_manifest_that_expires_at_this_moment_disturbs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_of(tmp_path)
    for number in range(3):
        writer.append(record(number))
        writer.publish({})
    log = log_of(tmp_path)
    log.set_consumed("a", 2)
    monkeypatch.setattr(CaptureLog, "sequences", lambda _: [1, 2, 3])
    log.delete_expired(retention_s=-1)
    for found in (log.oldest(), log.history_start(), log.manifest_at(9)):
        assert found is not None
        assert found.sequence == 3
    assert writer_of(tmp_path).publish({}).sequence == 4


def test_a_full_disk_keeps_no_part_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_of(tmp_path)
    writer.append(record(0))

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="no space left"):
            writer.publish({"lsn": 1})
    writer = writer_of(tmp_path)
    writer.append(record(0))
    with monkeypatch.context() as patch:
        patch.setattr("changelane.capture.segment_file._HashedFile.write", fail)
        writer.close()
    assert not list((tmp_path / "spool").iterdir())
    assert not list((tmp_path / "log").rglob(".*"))
    writer = writer_of(tmp_path)
    writer.append(record(0))
    assert writer.publish({"lsn": 1}).first_offset == 0


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a" * 300, "x\0"])
def test_a_name_that_is_no_file_name_is_no_consumer(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a consumer"):
        log_of(tmp_path).set_consumed(name, 1)


def test_a_damaged_or_newer_manifest_is_an_error() -> None:
    with pytest.raises(ChangelaneError, match="is damaged"):
        decode_manifest(b'{"version":1,"epo', "manifests/1.json")
    with pytest.raises(ChangelaneError, match="newer changelane"):
        decode_manifest(b'{"version":2}', "manifests/1.json")


@given(
    st.lists(
        st.sampled_from(["append", "publish", "crash", "discard"]), min_size=1, max_size=30
    ).map(tuple)
)
def test_readers_see_exactly_what_was_published(tmp_path_factory, steps: tuple[str, ...]) -> None:
    tmp_path = tmp_path_factory.mktemp("log")
    writer = writer_of(tmp_path, segment_bytes=150)
    pending: list[str] = []
    published: list[str] = []
    for number, step in enumerate(steps):
        if step == "append":
            writer.append(record(number))
            pending.append(record(number).key or "")
        elif step == "publish":
            writer.publish({"n": number})
            published += pending
            pending = []
        else:
            if step == "crash":
                writer = writer_of(tmp_path, segment_bytes=150)
            else:
                writer.discard()
            pending = []
    lines = lines_of(tmp_path)
    assert [msgspec.json.decode(line)["key"] for line in lines] == published
