# SPDX-License-Identifier: Apache-2.0
"""How long a continuous run waits, and that its report does not grow with it."""

import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame

from changelane.pipeline.config import parse
from changelane.pipeline.options import Options
from changelane.spark.rows.batch_stats import BatchReport, TableReport
from changelane.spark.run import trigger
from changelane.spark.run.interrupts import STOP_NOTE, InterruptedRunError, Interrupts
from changelane.spark.run.query import (
    MAX_BATCH_REPORTS,
    BatchFunction,
    stream_errors,
    stream_writer_of,
)
from changelane.spark.run.tables import RunReport
from changelane.spark.run.trigger import AdaptiveTrigger, await_end, run_stream

LEAST_PIPELINE = {
    "name": "x",
    "source": {"type": "files", "path": "/in", "format": "debezium-json"},
    "sink": {"type": "delta", "path": "/lake"},
}
PACE = AdaptiveTrigger(10, 120, 1000)


@pytest.mark.parametrize(
    ("events", "past_s", "wait_s"),
    [
        (1000, 30, 30),  # as many as it should be: as long again
        (500, 30, 60),
        (100_000, 30, 10),  # behind
        (1, 30, 120),
        (0, 30, 120),
    ],
)
def test_a_batch_holds_about_what_is_worth_its_commits(
    events: int, past_s: float, wait_s: float
) -> None:
    assert PACE.interval_s(events, past_s) == wait_s


def test_only_a_continuous_run_that_may_wait_has_a_pace() -> None:
    assert AdaptiveTrigger.of(Options(trigger="continuous")) is None
    told = Options(trigger="continuous", max_interval="2 minutes", merge_events=1000)
    assert AdaptiveTrigger.of(told) == PACE
    with pytest.raises(ValueError, match="continuous"):
        Options(max_interval="2 minutes")
    with pytest.raises(ValueError, match="at least interval"):
        Options(trigger="continuous", max_interval="2 seconds")


def test_spark_gets_an_interval_in_its_own_words() -> None:
    asked: list[dict[str, str]] = []
    stream = SimpleNamespace(trigger=lambda **told: asked.append(told))
    named = SimpleNamespace(queryName=lambda _: stream)
    kept = SimpleNamespace(option=lambda *_: named)
    told = SimpleNamespace(writeStream=SimpleNamespace(foreachBatch=lambda _: kept))
    for interval in ("2s", "500ms", "5 min"):
        options = Options(trigger="continuous", interval=interval)
        stream_writer_of(told, SimpleNamespace(name="x", checkpoint="/x", options=options), print)
    assert [one["processingTime"] for one in asked] == [
        "2000 milliseconds",
        "500 milliseconds",
        "300000 milliseconds",
    ]


class _Query:
    """A stream whose batch is there at the second look."""

    def __init__(self) -> None:
        self.looks = 0

    def awaitTermination(self, _: float) -> bool:  # noqa: N802 - Spark's name
        self.looks += 1
        return self.looks == 2


def test_a_stream_is_started_again_at_its_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    clock = [0.0]

    def sleep(wait_s: float) -> None:
        if isinstance(told[-1], float):
            told[-1] += wait_s
        else:
            told.append(float(wait_s))
        clock[0] += wait_s

    def start() -> _Query:
        if told.count("start") == 3:
            raise KeyboardInterrupt
        told.append("start")
        return _Query()

    monkeypatch.setattr(trigger.time, "sleep", sleep)
    monkeypatch.setattr(trigger.time, "monotonic", lambda: clock[0])
    events = iter([0, 10, 10, 10, 10, 1010, 1010])
    with pytest.raises(KeyboardInterrupt):
        run_stream(
            SimpleNamespace(start=start),  # type: ignore[arg-type]
            AdaptiveTrigger(2, 7, 1000),
            lambda: next(events),
            lambda: told.append("tick"),
        )
    longest = ["start", 5.0, "tick", 2.0]
    assert told == [*longest, *longest, *longest]


def test_a_stream_that_works_is_looked_at_often_and_its_tables_sometimes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, told = [0.0], []

    class Query(_Query):
        def awaitTermination(self, wait_s: float) -> bool:  # noqa: N802 - Spark's name
            clock[0] += wait_s
            return False

        def stop(self) -> None:
            told.append("stopped")

    def check() -> None:
        if clock[0] >= 12:
            raise KeyboardInterrupt

    monkeypatch.setattr(trigger.time, "monotonic", lambda: clock[0])
    with pytest.raises(KeyboardInterrupt):
        await_end(Query(), lambda: told.append(clock[0]), check)  # type: ignore[arg-type]
    assert told == [5, 10, "stopped"]
    assert clock == [12]


def test_an_interrupt_is_told_between_two_questions_and_the_second_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        interrupts.check()
        signal.raise_signal(signal.SIGINT)
        assert interrupts.is_requested
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_batch_under_way_comes_to_its_end_and_no_other_one_begins() -> None:
    batches: list[int] = []
    notes: list[str] = []
    interrupts = Interrupts(notes.append)

    def apply(_batch: DataFrame, number: int) -> None:
        signal.raise_signal(signal.SIGINT)
        interrupts.check()  # as the run does while it waits for the batch
        batches.append(number)

    applying = BatchFunction(apply, interrupts)
    with interrupts:
        applying(None, 0)  # type: ignore[arg-type]
        assert (batches, applying.error) == ([0], None)
        assert notes == [STOP_NOTE]
        with pytest.raises(InterruptedRunError):
            applying(None, 1)  # type: ignore[arg-type]
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
    assert batches == [0]
    report = RunReport("interrupted")
    with stream_errors(report, applying, parse(LEAST_PIPELINE)):
        raise RuntimeError("Spark's words about the batch that did not begin")
    assert report.is_interrupted


def test_an_interrupt_is_not_heard_beside_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGINT)

    def work() -> None:
        with Interrupts() as interrupts:
            interrupts.check()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_batch_that_is_interrupted_ends_in_few_words() -> None:
    def fail(_batch: DataFrame, _number: int) -> None:
        raise RuntimeError("x" * 10_000)

    interrupts = Interrupts()
    applying = BatchFunction(fail, interrupts)
    with pytest.raises(RuntimeError):
        applying(None, 0)  # type: ignore[arg-type]
    interrupts.is_urgent = True
    with pytest.raises(InterruptedRunError, match=r"^the run is interrupted$"):
        applying(None, 0)  # type: ignore[arg-type]
    assert isinstance(applying.error, InterruptedRunError)


def test_a_report_of_a_long_run_keeps_its_sums() -> None:
    report = RunReport("long")
    for number in range(3 * MAX_BATCH_REPORTS):
        tables = [TableReport(f"t{number % 2}", "", 2, note=str(number))]
        report.add(BatchReport(number, events=2, quarantined={"a": 1}, tables=tables))
    assert len(report.batches) == MAX_BATCH_REPORTS
    assert report.events == 6 * MAX_BATCH_REPORTS
    assert report.quarantined == {"a": 3 * MAX_BATCH_REPORTS}
    first = report.batches[0]
    assert first.batch == 2 * MAX_BATCH_REPORTS
    assert sum(table.events for table in first.tables) == first.events
    assert {table.table for table in first.tables} == {"t0", "t1"}
