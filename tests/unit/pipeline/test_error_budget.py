"""How much a pipeline may quarantined, and what it says when it did more."""

import pytest

from changelane.errors import BudgetError, ConfigError
from changelane.pipeline.config import parse
from changelane.pipeline.error_budget import MIN_EVENTS, Budget, over_budget_text
from changelane.spark.rows.batch_stats import BatchReport
from changelane.spark.run.query import check_budget
from changelane.spark.run.tables import RunReport

LEAST_PIPELINE = {
    "name": "x",
    "source": {"type": "files", "path": "/in", "format": "debezium-json"},
    "sink": {"type": "delta", "path": "/lake"},
}


def test_a_count_holds_at_any_time_and_a_share_once_there_is_enough() -> None:
    count, share = Budget.parse("2", "x"), Budget.parse("1%", "x")
    assert (count.allows_so_far(2, 2), count.allows_so_far(3, 10**9)) == (True, False)
    assert share.allows_so_far(1, 1), "one of one tells nothing yet"
    assert not share.allows(1, 1), "at the end it does"
    assert share.allows_so_far(MIN_EVENTS // 100, MIN_EVENTS)
    assert not share.allows_so_far(MIN_EVENTS // 100 + 1, MIN_EVENTS)


def test_exceeding_errors_are_listed_by_reason_most_frequent_first() -> None:
    found = {"no_key": 2, "malformed_json": 30}
    assert over_budget_text(None, found, 32, is_ended=True) is None
    assert over_budget_text(Budget.parse("40", "x"), found, 50, is_ended=True) is None
    told = over_budget_text(Budget.parse("0.5%", "x"), found, 6000, is_ended=False)
    assert (
        told == "32 quarantined (malformed_json 30, no_key 2) of 6,000, more than the 0.5% allowed"
    )


def test_the_budget_of_a_pipeline_is_a_number_or_a_share() -> None:
    def budget(**options: object) -> Budget | None:
        return parse(LEAST_PIPELINE | {"options": options}).options.budget

    assert budget() is None
    assert budget(max_errors=3) == Budget("3", count=3)
    share = budget(max_errors="2.5%")
    assert share is not None
    assert share.percent is not None
    assert share.allows(25, 1000)
    for wrong, words in (
        ({"max_errors": "many"}, "a number such as 12 or a share such as 0.5%"),
        ({"max_errors": -1}, "at least 0"),
        ({"max_errors": 0, "on_error": "stop"}, "remove max_errors"),
        ({"on_error": "ignore"}, "on_error"),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            budget(**wrong)
        assert "many" not in str(caught.value)


def test_a_run_stops_before_the_batch_behind_the_one_that_was_beyond_its_budget() -> None:
    options = parse(LEAST_PIPELINE | {"options": {"max_errors": "2%"}}).options
    report = RunReport("x")
    for batch in range(200):  # the report tells the oldest as one
        check_budget(options, report)
        report.add(BatchReport(batch, events=9, other=1, quarantined={"no_key": batch // 100}))
        if batch == 119:
            break
    assert report.total == 1200
    report.add(BatchReport(120, unread=10, quarantined={"malformed_json": 10}))
    told = r"^30 quarantined \(no_key 20, malformed_json 10\) of 1,210, more than the 2% allowed"
    with pytest.raises(BudgetError, match=told):
        check_budget(options, report)
