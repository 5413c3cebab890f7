# SPDX-License-Identifier: Apache-2.0
"""A continuous verification goes on after failures, and without tables."""

import itertools
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.errors import AnalysisException

from changelane.errors import ConfigError
from changelane.spark.verify import continuous
from changelane.spark.verify.continuous import ContinuousVerification
from changelane.spark.verify.report import TableReport
from changelane.spark.verify.table_verification import VerifyOptions


@pytest.fixture
def verification(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], Any]:
    for name in ("check_capture_log", "captured_source", "lake_of", "separate_session"):
        monkeypatch.setattr(continuous, name, MagicMock())

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


def test_a_verification_without_tables_can_be_stopped(
    verification: Callable[[list[str]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ContinuousVerification, "_table_names", lambda _: [])
    notes: list[str] = []
    assert next(verification(notes).steps()) is None
    assert notes == ["the source has no table that is captured"]
