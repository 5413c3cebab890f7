# SPDX-License-Identifier: Apache-2.0
"""The ledger of files: what comes next, what comes again, and what is forgotten."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from local_store import LocalStore

from changelane.errors import ChangelaneError
from changelane.spark.state import file_log
from changelane.spark.state.fencing import FencedError
from changelane.spark.state.file_log import (
    RETENTION_MS,
    File,
    FileLog,
    SparkFileLog,
    parse_spark_log,
)

DAY_MS = 24 * 3600 * 1000


def files(names: Iterable[str], size: int = 1, time_ms: int = 0) -> list[File]:
    return [File(name, size, time_ms) for name in names]


def unread(ledger: FileLog, there: list[File], now_ms: int = 0) -> list[str]:
    return [one.path for one in ledger.compare(there, now_ms).unread]


def test_a_file_is_read_once_however_old_it_is(tmp_path: Path) -> None:
    ledger = FileLog(LocalStore(tmp_path))
    new = files(["/in/new"], time_ms=100 * DAY_MS)
    assert unread(ledger, new) == ["/in/new"]
    assert ledger.start_batch(new, 0) == 0
    ledger.complete_batch()
    # `cp -p`, `rsync -t` and `tar x` keep the time: Spark's maxFileAge would leave it out
    late = [*new, *files(["/in/late"], time_ms=1)]
    assert unread(ledger, late) == ["/in/late"]
    assert ledger.start_batch(files(["/in/late"], time_ms=1), 0) == 1
    ledger.complete_batch()
    again = FileLog(LocalStore(tmp_path))
    assert again.pending is None
    assert unread(again, late) == []


@pytest.mark.parametrize("lost", ["000000000001.json", "upto-000000000003.json"])
def test_files_of_a_batch_that_the_log_lost_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    monkeypatch.setattr(file_log, "COMPACT_EVERY", 4 if lost.startswith("upto") else 100)
    ledger = FileLog(LocalStore(tmp_path))
    for number in range(6):
        ledger.start_batch(files([f"/in/{number}"]), 0)
        ledger.complete_batch()
    (tmp_path / lost).unlink()
    first = "000000000000" if lost.startswith("upto") else "000000000001"
    with pytest.raises(ChangelaneError, match=rf"files/{first}\.json is gone"):
        FileLog(LocalStore(tmp_path))


def test_a_batch_that_died_comes_again_with_the_same_files_and_sizes(tmp_path: Path) -> None:
    ledger = FileLog(LocalStore(tmp_path))
    ledger.start_batch(files(["/in/a"]), 0)
    ledger.complete_batch()
    told = files(["/in/b", "/in/c"], size=7, time_ms=3)
    number = ledger.start_batch(told, 0)
    again = FileLog(LocalStore(tmp_path))
    assert again.pending == (number, tuple(told))
    # what was appended or arrived meanwhile is no part of it
    there = [*files(["/in/a", "/in/b", "/in/c"], size=9), *files(["/in/d"])]
    assert unread(again, there) == ["/in/d"]
    again.complete_batch()
    assert FileLog(LocalStore(tmp_path)).pending is None


def test_of_two_runs_only_one_notes_a_batch(tmp_path: Path) -> None:
    older, newer = FileLog(LocalStore(tmp_path)), FileLog(LocalStore(tmp_path))
    newer.start_batch(files(["/in/a"]), 0)
    with pytest.raises(FencedError, match="another run"):
        older.start_batch(files(["/in/b"]), 0)
    assert FileLog(LocalStore(tmp_path)).pending == (0, tuple(files(["/in/a"])))
    # one that brings the batch of the other to its end, too
    third = FileLog(LocalStore(tmp_path))
    newer.complete_batch()
    third.complete_batch()
    assert FileLog(LocalStore(tmp_path)).pending is None


def test_lines_appended_to_a_file_that_was_read_are_told(tmp_path: Path) -> None:
    ledger = FileLog(LocalStore(tmp_path))
    ledger.start_batch(files(["/in/a", "/in/b"], size=10, time_ms=1), 0)
    ledger.complete_batch()
    longer = File("/in/a", 15, 2)
    touched = File("/in/b", 10, 2)
    found = ledger.compare([longer, touched], 0)
    assert found.unread == []
    assert found.changed == [(File("/in/a", 10, 1), longer)]


def test_what_is_remembered_has_the_size_of_the_folder_and_not_of_its_past(
    tmp_path: Path,
) -> None:
    ledger, folder = FileLog(LocalStore(tmp_path)), LocalStore(tmp_path)
    most = 0
    for day in range(100):  # each day brings 1,000 files, and takes those of yesterday away
        now_ms = day * DAY_MS
        there = files(f"/in/{day}/{number}" for number in range(1000))
        ledger.start_batch(ledger.compare(there, now_ms).unread, now_ms)
        ledger.complete_batch()
        most = max(most, len(ledger))
    assert most <= 9 * 1000  # of 100,000: those that are there, and those of the last 7 days
    assert len(ledger) == most
    # and on disk, once batches are joined
    for number in range(file_log.COMPACT_EVERY + 1):
        ledger.start_batch(files([f"/in/99/{1000 + number}"]), 99 * DAY_MS)
        ledger.complete_batch()
    (joined,) = [name for name in folder.names() if name.startswith("upto-")]
    assert len(json.loads(folder.read(joined))["files"]) <= most + file_log.COMPACT_EVERY
    assert len(folder.names()) <= 2 * file_log.COMPACT_EVERY + 1


def test_a_folder_that_is_empty_for_a_while_is_not_read_again(tmp_path: Path) -> None:
    ledger = FileLog(LocalStore(tmp_path))
    there = files(["/in/a", "/in/b"])
    ledger.start_batch(there, 0)
    ledger.complete_batch()
    assert unread(ledger, [], now_ms=1) == []  # unmounted
    assert unread(ledger, there, now_ms=RETENTION_MS) == []
    # its time begins anew when it goes again
    assert unread(ledger, [], now_ms=RETENTION_MS + 1) == []
    assert unread(ledger, there, now_ms=2 * RETENTION_MS) == []
    # what is under a folder that cannot be listed is not gone
    assert ledger.compare([], 2 * RETENTION_MS + 1, unlisted=["/in"]).unread == []
    assert ledger.compare([], 9 * RETENTION_MS, unlisted=["/in"]).unread == []
    assert unread(ledger, there, now_ms=9 * RETENTION_MS) == []
    # and what is gone for long is forgotten
    assert unread(ledger, there[:1], now_ms=10 * RETENTION_MS) == []
    assert unread(ledger, there[:1], now_ms=12 * RETENTION_MS) == []
    assert len(ledger) == 1
    assert unread(ledger, there, now_ms=12 * RETENTION_MS) == ["/in/b"]


def test_since_when_a_file_is_gone_outlives_a_run(tmp_path: Path) -> None:
    ledger = FileLog(LocalStore(tmp_path))
    ledger.start_batch(files(["/in/a", "/in/b"]), 0)
    ledger.complete_batch()
    assert unread(ledger, files(["/in/b", "/in/c"]), now_ms=5) == ["/in/c"]
    ledger.start_batch(files(["/in/c"]), 5)
    ledger.complete_batch()
    again = FileLog(LocalStore(tmp_path))
    assert unread(again, files(["/in/b", "/in/c"]), now_ms=RETENTION_MS + 6) == []
    assert "/in/a" not in again
    assert "/in/b" in again


@pytest.mark.parametrize("step", range(4))
def test_a_ledger_that_died_while_it_joined_is_whole(tmp_path: Path, step: int) -> None:
    store = LocalStore(tmp_path)
    ledger = FileLog(store)
    for number in range(file_log.COMPACT_EVERY):
        ledger.start_batch(files([f"/in/{number}"]), 0)
        ledger.complete_batch()
    deletes: list[str] = []
    delete = store.delete

    def dying(name: str) -> None:
        if len(deletes) == step:
            raise KeyboardInterrupt
        deletes.append(name)
        delete(name)

    store.delete = dying  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        ledger.start_batch(files(["/in/last"]), 0)
    again = FileLog(LocalStore(tmp_path))
    assert (len(again), again.pending) == (file_log.COMPACT_EVERY, None)
    assert again.start_batch(files(["/in/last"]), 0) == file_log.COMPACT_EVERY
    assert len([name for name in LocalStore(tmp_path).names() if name.endswith("json")]) == 2


# -- checkpoints of Spark's own source


SOURCES = [
    (
        'v1\n{"path":"file:///in/a%20%C3%A9.jsonl","timestamp":11,"batchId":0}\n'
        '{"path":"file:///in/b.jsonl","timestamp":12,"batchId":0}\n'
        '{"path":"file:/in/c.jsonl","timestamp":13,"batchId":1}'
    ),
    'v1\n{"path":"s3a://in/d%25.jsonl","timestamp":14,"batchId":2}',
    'v1\n{"path":"file:///in/e.jsonl","timestamp":15,"batchId":3}',
]


def offset(number: int) -> str:
    return f'v1\n{{"batchWatermarkMs":0,"conf":{{}}}}\n{{"logOffset":{number}}}'


def test_what_sparks_source_read_is_read() -> None:
    # a batch that was planned and not done, and a file that was listed and not planned
    told = parse_spark_log(SOURCES, {0: offset(0), 1: offset(1), 2: offset(2)}, {0, 1})
    assert told.last_batch == 1
    assert told.files == {"/in/a é.jsonl": 11, "/in/b.jsonl": 12, "/in/c.jsonl": 13}
    assert told.pending == {"s3a://in/d%.jsonl": 14}
    assert parse_spark_log(SOURCES, {0: offset(1)}, {0}).pending is None
    first = parse_spark_log(SOURCES, {0: offset(0)}, set())
    assert (first.last_batch, first.files) == (-1, {})
    assert first.pending == {"/in/a é.jsonl": 11, "/in/b.jsonl": 12}


def test_a_checkpoint_of_sparks_source_goes_on(tmp_path: Path) -> None:
    older = SparkFileLog(6, {"/in/a": 11, "/in/b": 12}, {"/in/c": 13})
    ledger = FileLog(LocalStore(tmp_path), older)
    assert ledger.pending == (7, (File("/in/c", None, 13),))
    ledger.complete_batch()
    again = FileLog(LocalStore(tmp_path), older)
    there = [File("/in/a", 5, 11), File("/in/b", 5, 99), File("/in/c", 5, 13), File("/in/d", 5, 1)]
    found = again.compare(there, 0)
    assert [one.path for one in found.unread] == ["/in/d"]
    # nobody noted sizes: one that is newer now was written after it was read
    assert [now.path for _, now in found.changed] == ["/in/b"]
    assert again.start_batch(found.unread, 0) == 8


def test_a_first_batch_of_sparks_source_that_died_comes_again(tmp_path: Path) -> None:
    ledger = FileLog(LocalStore(tmp_path), SparkFileLog(-1, {}, {"/in/c": 13}))
    assert ledger.pending == (0, (File("/in/c", None, 13),))
