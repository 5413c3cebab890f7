# SPDX-License-Identifier: Apache-2.0
"""A continuous verification goes on after failures, and without tables."""

import itertools
from collections.abc import Callable
from typing import Any, ClassVar
from unittest.mock import MagicMock

import pytest
from pyspark.errors import AnalysisException

from changelane.errors import ConfigError
from changelane.spark.verify import continuous
from changelane.spark.verify.continuous import ContinuousVerification
from changelane.spark.verify.progress_store import StoredRound
from changelane.spark.verify.report import TableReport
from changelane.spark.verify.table_verification import VerifyOptions


class MemoryStore:
    """The stored progress, which all verifications of a test share."""

    rounds: ClassVar[dict[str, StoredRound]] = {}

    def __init__(self, *_: Any) -> None:
        pass

    def read(self, table: str) -> StoredRound | None:
        return self.rounds.get(table)

    def write(self, table: str, stored: StoredRound) -> None:
        self.rounds[table] = stored


@pytest.fixture
def verification(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], Any]:
    for name in ("check_capture_log", "captured_source", "lake_of", "separate_session"):
        monkeypatch.setattr(continuous, name, MagicMock())
    monkeypatch.setattr(continuous, "ProgressStore", MemoryStore)
    monkeypatch.setattr(MemoryStore, "rounds", {})

    def verification_of(notes: list[str]) -> Any:
        session: Any = None
        return ContinuousVerification(
            MagicMock(), (), spark=session, options=VerifyOptions(), notify=notes.append
        )

    return verification_of


def test_a_failure_of_spark_is_shown_and_the_next_table_follows(
    verification: Callable[[list[str]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise AnalysisException("[PATH_NOT_FOUND] Path does not exist: 'a secret'.")

    monkeypatch.setattr(ContinuousVerification, "_table_names", lambda _: ["a", "b"])
    monkeypatch.setattr(ContinuousVerification, "_chunk_report", fail)
    notes: list[str] = []
    assert list(itertools.islice(verification(notes).steps(), 3)) == [None] * 3
    assert [note.partition("]")[0] for note in notes] == [
        f"{name}: [PATH_NOT_FOUND" for name in "aba"
    ]
    assert "secret" not in "".join(notes)


def test_the_next_chunk_follows_one_that_failed(
    verification: Callable[[list[str]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(_: Any, name: str, chunk: int, __: Any) -> tuple[TableReport, Any]:
        if chunk == 1:
            raise ConfigError("a row is too long")
        return TableReport(table=name, outcome="equal"), (("10",), ("20",))

    monkeypatch.setattr(ContinuousVerification, "_table_names", lambda _: ["a"])
    monkeypatch.setattr(ContinuousVerification, "_chunk_report", report)
    notes: list[str] = []
    steps = itertools.islice(verification(notes).steps(), 4)
    assert [step and step.chunk for step in steps] == [0, None, 2, 0]
    assert notes == ["a: a row is too long"]


def test_a_table_that_was_dropped_has_no_figures(
    verification: Callable[[list[str]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter((["a", "b"], ["b"], ["b"]))
    monkeypatch.setattr(ContinuousVerification, "_table_names", lambda _: next(names))
    monkeypatch.setattr(
        ContinuousVerification,
        "_chunk_report",
        lambda _, name, *__: (TableReport(table=name, outcome="equal"), ()),
    )
    made = verification([])
    steps = made.steps()
    assert [next(steps).report.table for _ in range(2)] == ["a", "b"]
    assert made.progress.keys() == {"a", "b"}
    assert next(steps).report.table == "b"
    assert made.progress.keys() == {"b"}


def test_a_restart_continues_an_interrupted_round_with_its_chunks(
    verification: Callable[[list[str]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = {"a": iter([(("10",), ("20",)), (("5",),)]), "b": iter([()] * 9)}
    calls: list[tuple[str, int, Any]] = []

    def report(_: Any, name: str, chunk: int, bounds: Any) -> tuple[TableReport, Any]:
        calls.append((name, chunk, bounds))
        return TableReport(table=name, outcome="equal"), bounds or next(ends[name])

    monkeypatch.setattr(ContinuousVerification, "_table_names", lambda _: ["b", "a"])
    monkeypatch.setattr(ContinuousVerification, "_chunk_report", report)
    first = list(itertools.islice(verification([]).steps(), 3))
    assert [(step.report.table, step.chunk) for step in first] == [("b", 0), ("a", 0), ("a", 1)]
    calls.clear()
    restarted = verification([])
    steps = list(itertools.islice(restarted.steps(), 3))
    assert calls == [("a", 2, (("10",), ("20",))), ("b", 0, None), ("b", 0, None)]
    assert steps[0].proven_share == 1
    assert steps[0].oldest_time_s is not None
    assert first[1].oldest_time_s is None
    assert restarted.progress.keys() == {"a", "b"}


def test_a_lake_that_stores_no_progress_is_shown(
    verification: Callable[[list[str]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise AnalysisException("[PATH_NOT_FOUND] Path does not exist: 'a secret'.")

    monkeypatch.setattr(MemoryStore, "read", fail)
    monkeypatch.setattr(MemoryStore, "write", fail)
    monkeypatch.setattr(ContinuousVerification, "_table_names", lambda _: ["a"])
    monkeypatch.setattr(
        ContinuousVerification,
        "_chunk_report",
        lambda *_: (TableReport(table="a", outcome="equal"), ()),
    )
    notes: list[str] = []
    assert next(verification(notes).steps()).proven_share == 1
    assert [note.split(": [")[0] for note in notes] == [
        "a: the stored progress cannot be read",
        "a: the progress is not stored",
    ]
    assert "secret" not in "".join(notes)


def test_a_verification_without_tables_can_be_stopped(
    verification: Callable[[list[str]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ContinuousVerification, "_table_names", lambda _: [])
    notes: list[str] = []
    assert next(verification(notes).steps()) is None
    assert notes == ["the source has no table that is captured"]
