# SPDX-License-Identifier: Apache-2.0
"""The batches of a folder: how they are cut, in which order, and what happens when one fails."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from local_store import LocalStore

from changelane.pipeline.files_source import FilesSource
from changelane.pipeline.options import Options
from changelane.spark.sources.batch_stream import BatchStream, interval_s
from changelane.spark.sources.file_listing import Listing, Root
from changelane.spark.sources.file_reader import ReadingError
from changelane.spark.sources.files import FilesInput
from changelane.spark.state.file_log import File, FileLog, Files

SPARK: Any = SimpleNamespace(
    sparkContext=SimpleNamespace(setJobGroup=lambda *_, **__: None, cancelJobGroup=lambda _: None)
)


def source(store: Path, there: list[File], monkeypatch: pytest.MonkeyPatch, **more: Any) -> Any:
    """Return the source of a folder with such files, whose ledger lies in a local folder."""
    told = FilesSource(path="/in", format="native-json", **more)
    said: list[str] = []
    one = FilesInput(SPARK, told, SPARK, said.append)
    one.root, one._file_log = Root("/in", is_local=True, pattern=".*"), FileLog(LocalStore(store))
    monkeypatch.setattr(
        "changelane.spark.sources.files.list_folder", lambda *_: Listing(list(there), [], {})
    )
    return SimpleNamespace(input=one, said=said)


def ran(one: FilesInput, apply: Any, options: Options | None = None) -> None:
    query = BatchStream(SPARK, one, "test", options or Options(), apply).start()
    assert query.awaitTermination(10)


def named(*names: str, size: int = 10) -> list[File]:
    return [File(f"/in/{name}", size, time_ms) for time_ms, name in enumerate(names)]


def test_batches_take_the_oldest_files_first_and_no_more_than_they_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [*reversed(named("a", "b", "c", "d", "e")), File("/in/f", 25, 9), File("/in/g", 1, 9)]
    taken: list[tuple[int, str]] = []

    def apply(files: Files, number: int) -> None:
        taken.append((number, "".join(one.path[-1] for one in files)))

    ran(source(tmp_path / "a", there, monkeypatch, max_files_per_batch=3).input, apply)
    assert taken == [(0, "abc"), (1, "def"), (2, "g")]
    taken.clear()
    spark = {"maxBytesPerTrigger": "20", "latestFirst": "true"}
    ran(source(tmp_path / "b", there, monkeypatch, spark_options=spark).input, apply)
    assert taken == [(0, "g"), (1, "f"), (2, "ed"), (3, "cb"), (4, "a")]


def test_a_batch_that_failed_comes_again_first_with_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = named("a", "b")
    taken: list[tuple[int, int]] = []

    def apply(files: Files, number: int) -> None:
        taken.append((number, len(files)))
        if len(taken) == 1:
            raise ValueError("killed")

    with pytest.raises(ValueError, match="killed"):
        ran(source(tmp_path, there, monkeypatch).input, apply)
    ran(source(tmp_path, [*there, *named("c")], monkeypatch).input, apply)
    assert taken == [(0, 2), (0, 2), (1, 1)]


def test_an_error_of_a_task_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(*_: object) -> None:
        raise ValueError(
            "Job aborted: Traceback\nchangelane.spark.sources.file_reader.ReadingError: "
            "cannot read /in/a: it hangs\n\tat x"
        )

    with pytest.raises(ReadingError, match=r"^cannot read /in/a: it hangs$"):
        ran(source(tmp_path, named("a"), monkeypatch).input, apply)


def test_a_file_that_hadoop_cannot_open_for_good_is_set_aside_and_the_batch_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = source(tmp_path, named("a"), monkeypatch).input
    monkeypatch.setattr(one, "reject_unreadable", lambda _: len(taken) == 1)
    taken: list[int] = []

    def apply(_: Files, number: int) -> None:
        taken.append(number)
        if len(taken) == 1:
            raise ValueError("a job failed")

    ran(one, apply)
    assert taken == [0, 0]


def test_what_changed_is_said_once_and_many_in_few_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = named(*"abcdefgh")
    one = source(tmp_path, there, monkeypatch)
    ran(one.input, lambda *_: None)
    there[:] = named(*"abcdefgh", size=11)
    for _ in range(2):
        ran(one.input, lambda *_: None)
    assert len(one.said) == 6
    assert "(from 10 to 11 bytes)" in one.said[0]
    assert "3 more files" in one.said[5]
    assert one.input.changed == [f"/in/{name}" for name in "abcdefgh"]


def test_a_continuous_run_looks_again_until_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = named("a")
    taken: list[int] = []

    enough = threading.Event()

    def apply(_: Files, number: int) -> None:
        taken.append(number)
        there.append(File(f"/in/{number}", 1, 1))
        if number == 3:
            enough.set()

    one = source(tmp_path, there, monkeypatch).input
    options = Options(trigger="continuous", interval="1 millisecond")
    query = BatchStream(SPARK, one, "test", options, apply).start()
    assert enough.wait(10)
    assert not query.awaitTermination(0)
    query.stop()
    assert query.awaitTermination(0)
    assert interval_s("500 milliseconds") == 0.5
    assert interval_s("1 second 1 millisecond") == 1.001
    assert interval_s("2 minutes") == 120
    assert taken[:4] == [0, 1, 2, 3]


def test_files_that_were_applied_are_cleaned_up_but_for_what_could_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = source(tmp_path, named("a"), monkeypatch, spark_options={"cleanSource": "delete"}).input
    deleted: list[str] = []
    status = SimpleNamespace(getLen=lambda: 10, getModificationTime=lambda: 0)
    system = SimpleNamespace(
        delete=lambda path, _: deleted.append(path), getFileStatus=lambda _: status
    )
    monkeypatch.setattr("changelane.spark.sources.files.file_system", lambda _, p: (system, p))
    one._spark = SimpleNamespace(_jvm=None)
    one.is_fully_read = False
    one.clean(tuple(named("a")))
    assert deleted == []
    one.is_fully_read = True
    one.clean(tuple(named("a")))
    assert deleted == ["/in/a"]
