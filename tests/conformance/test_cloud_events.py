"""Debezium's messages in CloudEvents pass the checks of formats, in both modes."""

from pathlib import Path

import pytest

from changelane import get_codec
from changelane.testing import EVENT_CHECKS, SUITE_CHECKS, golden
from changelane.testing.conformance import check_detection, check_malformed

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
SUITE = [
    event for name in golden.native_names(GOLDEN) for event in golden.native_events(GOLDEN, name)
]
# of the checks, only those with messages of our own have headers
IN_BINARY = [check for check in EVENT_CHECKS if check is not check_detection]


@pytest.mark.parametrize("check", [*EVENT_CHECKS, check_malformed])
def test_structured(check):
    check(get_codec("debezium-json", cloud_events="structured"))


@pytest.mark.parametrize("check", IN_BINARY)
def test_binary(check):
    check(get_codec("debezium-json", cloud_events="binary"))


@pytest.mark.parametrize("mode", ["structured", "binary"])
@pytest.mark.parametrize("check", SUITE_CHECKS)
def test_on_the_suite(mode, check):
    check(get_codec("debezium-json", cloud_events=mode), SUITE[::3])
