"""Former names of commands and options are rejected with the present name."""

import pytest
from click.testing import CliRunner

from changelane.cli import COMMANDS, FORMER_COMMANDS, FORMER_OPTIONS, main
from changelane.errors import ConfigError, UnknownNameError
from changelane.pipeline.config import parse
from changelane.validation import FORMER_KEYS, FORMER_VALUES

FILES = {"type": "files", "path": "in", "format": "native-json"}
KAFKA = {"type": "kafka", "bootstrap_servers": "b:1", "topics": "a", "format": "native-json"}
DELTA = {"type": "delta", "path": "lake"}


@pytest.mark.parametrize("name", FORMER_COMMANDS)
def test_a_former_command_names_the_present_one(name: str) -> None:
    result = CliRunner().invoke(main, [name, "p.yaml"])
    assert result.exit_code == 2
    assert f"{name!r} is now called {FORMER_COMMANDS[name]!r}" in result.output
    assert FORMER_COMMANDS[name] in COMMANDS
    assert name not in COMMANDS


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("convert", "--input-as"),
        ("convert", "--output-as"),
        ("convert", "--most-held"),
        ("convert", "--orphan-halves"),
        ("convert", "--max-failures"),
        ("run", "--resume-from-tables"),
        ("run", "--skip-lost"),
    ],
)
def test_a_former_option_names_the_present_one(command: str, option: str) -> None:
    result = CliRunner().invoke(main, [command, option, "1"])
    assert result.exit_code == 2
    assert f"{option} is now called {FORMER_OPTIONS[option]}" in result.output
    help_text = CliRunner().invoke(main, [command, "--help"]).output
    assert FORMER_OPTIONS[option] in help_text
    assert option not in help_text


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("source", "servers", "b:1"),
        ("source", "pattern", "a"),
        ("source", "spark", {}),
        ("files", "contents", "values"),
        ("options", "keyless", "append"),
        ("options", "sources", "many"),
        ("options", "apply", "log"),
        ("options", "max_quarantined", 1),
        ("options", "purge_after", "1 day"),
        ("options", "archive", "a.zip"),
        ("options", "spark", {}),
        ("maintenance", "commits", 1),
        ("maintenance", "keep", "1 day"),
        ("maintenance", "small_mb", 1),
        ("maintenance", "cluster", {}),
    ],
)
def test_a_former_key_names_the_present_one(section: str, key: str, value: object) -> None:
    pipeline: dict[str, object] = {"name": "x", "source": FILES, "sink": DELTA}
    if section == "source":
        pipeline["source"] = KAFKA | {key: value}
    elif section == "files":
        pipeline["source"] = FILES | {key: value}
    elif section == "options":
        pipeline["options"] = {key: value}
    else:
        pipeline["options"] = {"maintenance": {key: value}}
    with pytest.raises(UnknownNameError, match=f"it is now called {FORMER_KEYS[key]}"):
        parse(pipeline)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("merge", "log"),
        ("merge", "direct"),
        ("source_servers", "one"),
        ("source_servers", "many"),
        ("dropped_tables", "clear"),
        ("shadow_tables", "land"),
    ],
)
def test_a_former_value_names_the_present_one(key: str, value: str) -> None:
    pipeline = {"name": "x", "source": FILES, "sink": DELTA, "options": {key: value}}
    with pytest.raises(ConfigError, match=f"it is now called '{FORMER_VALUES[value]}'"):
        parse(pipeline)


def test_a_profiles_former_option_names_the_present_one() -> None:
    profile = ["--profile", "dts", "--profile-option", "notices=drop"]
    command = ["convert", "-f", "native-json", "-t", "canal-json", *profile, "-"]
    result = CliRunner().invoke(main, command, input="")
    assert "it is now called non_row_events" in result.output
