"""Spans of time and limits of maintenance in a pipeline's file."""

import pytest

from changelane.errors import ConfigError
from changelane.formats.contract.options import seconds
from changelane.pipeline.config import Pipeline, parse
from changelane.pipeline.options import Maintenance
from changelane.spark.run.trigger import AdaptiveTrigger


def pipeline(**options: object) -> Pipeline:
    return parse(
        {
            "name": "shop",
            "source": {"type": "files", "path": "in", "format": "native-json"},
            "sink": {"type": "delta", "path": "lake"},
            "options": options,
        }
    )


@pytest.mark.parametrize(
    ("span", "count"),
    [
        ("1 second", 1),
        ("90 seconds", 90),
        (" 2 hours ", 7200),
        ("2weeks", 1_209_600),
        ("2s", 2),
        ("2 s", 2),
        ("2 Sec", 2),
        ("3000ms", 3),
        ("5m", 300),
        ("5 min", 300),
        ("12h", 43_200),
        ("7 d", 604_800),
        ("1w", 604_800),
    ],
)
def test_a_span_of_time_is_a_number_and_a_unit(span: str, count: int) -> None:
    assert seconds(span) == count


WRONG = [
    "",
    "30",
    "days",
    "-1 day",
    "1.5 days",
    "1 month",
    "\u0661 day",
    "1 day 2 hours",
    "2 \u017f",
]


@pytest.mark.parametrize("span", WRONG)
def test_other_texts_are_no_span_of_time(span: str) -> None:
    more = [{"interval": span}, {"max_interval": span}]
    for options in (
        {"tombstone_retention": span},
        {"maintenance": {"snapshot_retention": span}},
        *more,
    ):
        with pytest.raises(ConfigError, match=r"ms, s, min, h, d or w.*30 days"):
            pipeline(trigger="continuous", **options)


def test_intervals_may_be_parts_of_a_second_and_nothing_else() -> None:
    assert pipeline(interval="500ms").options.interval_ms == 500
    assert pipeline(interval="250 milliseconds").options.interval_ms == 250
    quick = pipeline(trigger="continuous", interval="500ms", max_interval="2s").options
    assert AdaptiveTrigger.of(quick) == AdaptiveTrigger(0.5, 2, 100_000)
    for options in (
        {"tombstone_retention": "1500ms"},
        {"maintenance": {"snapshot_retention": "1500ms"}},
    ):
        with pytest.raises(ConfigError, match="must be whole seconds"):
            pipeline(**options)
    # Spark would read more of it
    with pytest.raises(ConfigError, match="interval: a span of time"):
        pipeline(interval="1 second 500 milliseconds")


@pytest.mark.parametrize("span", ["0 days", "0 seconds"])
def test_deletes_are_not_forgotten_at_once(span: str) -> None:
    with pytest.raises(ConfigError, match=r"tombstone_retention must be longer than 0.*remove it"):
        pipeline(tombstone_retention=span)


def test_maintenance_is_on_unless_it_is_switched_off() -> None:
    assert pipeline().options.maintenance_limits == Maintenance()
    assert pipeline(maintenance="auto").options.maintenance_limits == Maintenance()
    assert pipeline(maintenance="off").options.maintenance_limits is None
    assert pipeline(maintenance=False).options.maintenance_limits is None  # as YAML reads off
    assert pipeline(maintenance=True).options.maintenance_limits == Maintenance()
    assert pipeline(
        maintenance={"snapshot_retention": "1 day"}
    ).options.maintenance_limits == Maintenance(snapshot_retention="1 day")
    assert pipeline().options.tombstone_retention is None


@pytest.mark.parametrize("name", ["every_commits", "small_files", "small_file_mb"])
def test_limits_of_maintenance_are_positive(name: str) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        pipeline(maintenance={name: 0})


def test_tables_of_any_size_may_be_merge_on_read() -> None:
    limits = pipeline(maintenance={"merge_on_read_mb": 0}).options.maintenance_limits
    assert limits is not None
    assert limits.merge_on_read_mb == 0
    with pytest.raises(ConfigError, match="must not be negative"):
        pipeline(maintenance={"merge_on_read_mb": -1})


def test_an_unknown_limit_of_maintenance_is_refused() -> None:
    with pytest.raises(ConfigError, match="kep"):
        pipeline(maintenance={"kep": "7 days"})
