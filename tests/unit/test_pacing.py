# SPDX-License-Identifier: Apache-2.0
"""How long a continuous run waits, and that its report does not grow with it."""

from types import SimpleNamespace
from typing import Any

import pytest

from changelane.config import Options
from changelane.spark.events.survey import BatchReport, TableReport
from changelane.spark.streams import pacing
from changelane.spark.streams.pacing import Pace, drive
from changelane.spark.streams.pipeline import RunReport
from changelane.spark.streams.stream import KEPT

PACE = Pace(10, 120, 1000)


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
    assert Pace.of(Options(trigger="continuous")) is None
    told = Options(trigger="continuous", max_interval="2 minutes", merge_events=1000)
    assert Pace.of(told) == PACE
    with pytest.raises(ValueError, match="continuous"):
        Options(max_interval="2 minutes")
    with pytest.raises(ValueError, match="at least interval"):
        Options(trigger="continuous", max_interval="2 seconds")


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
        told.append(round(wait_s))
        clock[0] += wait_s

    def start() -> _Query:
        if told.count("start") == 3:
            raise KeyboardInterrupt
        told.append("start")
        return _Query()

    monkeypatch.setattr(pacing.time, "sleep", sleep)
    monkeypatch.setattr(pacing.time, "monotonic", lambda: clock[0])
    events = iter([0, 10, 10, 10, 10, 1010, 1010])
    with pytest.raises(KeyboardInterrupt):
        drive(
            SimpleNamespace(start=start),  # type: ignore[arg-type]
            Pace(2, 7, 1000),
            lambda: next(events),
            lambda: told.append("tick"),
        )
    longest = ["start", "tick", 5, "tick", 2, "tick"]
    assert told == [*longest, *longest, "start", "tick", 5, "tick", 2, "tick"]


def test_a_report_of_a_long_run_keeps_its_sums() -> None:
    report = RunReport("long")
    for number in range(3 * KEPT):
        tables = [TableReport(f"t{number % 2}", "", 2, note=str(number))]
        report.add(BatchReport(number, events=2, quarantined={"a": 1}, tables=tables))
    assert len(report.batches) == KEPT
    assert report.events == 6 * KEPT
    assert report.quarantined == {"a": 3 * KEPT}
    first = report.batches[0]
    assert first.batch == 2 * KEPT
    assert sum(table.events for table in first.tables) == first.events
    assert {table.table for table in first.tables} == {"t0", "t1"}
