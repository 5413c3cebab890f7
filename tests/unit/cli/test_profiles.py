# SPDX-License-Identifier: Apache-2.0
"""``changelane convert --profile`` and ``changelane profiles``."""

import json

import pytest
from click.testing import CliRunner

from changelane import profiles
from changelane.cli import main

ROW = {
    "op": "c",
    "table": {"database": "test", "name": "t_user"},
    "key": ["id"],
    "after": {"id": "1"},
}


def convert(*arguments, target="canal-json", row=ROW):
    args = ["convert", "-f", "native-json", "-t", target, *arguments]
    return CliRunner().invoke(main, args, input=json.dumps(row), catch_exceptions=False)


def test_convert_writes_records_as_the_producer_places_them():
    rules = ["--profile-option", "topic=example", "--profile-option", "partition_hash=.*\\..*:$pk$"]
    result = convert("--profile", "canal", *rules, "--partitions", "7")
    assert result.exit_code == 0
    record = json.loads(result.stdout)
    assert (record["topic"], record["partition"], record["key"]) == ("example", 4, None)
    assert json.loads(record["value"])["data"] == [{"id": "1"}]


def test_what_has_no_place_is_a_failure_of_its_message():
    rules = ["--profile-option", "topic=example", "--profile-option", "partition_hash=test.t_user"]
    result = convert("--profile", "canal", *rules)
    assert result.exit_code == 1
    assert "the number of partitions of topic example is unknown" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--profile", "cannal"], "unknown profile 'cannal'; did you mean 'canal'?"),
        (["--profile", "canal"], "profile canal: set the option topic"),
        (["--partitions", "3"], "need --profile"),
        (["--profile-option", "topic=x"], "need --profile"),
        (
            ["--profile", "canal", "--profile-option", "topic=x", "--output-line-format", "value"],
            "--profile needs --output-line-format",
        ),
        (["--profile", "debezium"], "profile debezium writes debezium-json"),
    ],
)
def test_wrong_usage_is_reported(arguments, reason):
    result = convert(*arguments)
    assert result.exit_code == 2
    assert reason in result.stderr


def test_profiles_lists_each_with_its_formats_and_options():
    shown = CliRunner().invoke(main, ["profiles"], catch_exceptions=False).stdout
    told = json.loads(
        CliRunner().invoke(main, ["profiles", "--output", "json"], catch_exceptions=False).stdout
    )
    assert list(told) == list(profiles.names())
    for name, profile in told.items():
        assert f"\n{name}: {profile['about']}" in f"\n{shown}"
        assert all(f"  option   {option}=" in shown for option in profile["options"])
        assert profile["formats"]
