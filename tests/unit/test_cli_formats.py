# SPDX-License-Identifier: Apache-2.0
"""``changelane formats``: what each format carries, and what pairs lose."""

import json

import pytest
from click.testing import CliRunner

from changelane import formats
from changelane.cli import main
from changelane.cli.losses import probes
from changelane.codec import get_codec


def show(*arguments):
    return CliRunner().invoke(main, ["formats", *arguments], catch_exceptions=False)


def test_a_named_format_is_told_alone():
    result = show("native-json")
    assert result.exit_code == 0
    assert result.stdout.startswith("native-json\n  operations     c r u d\n")
    assert "canal" not in result.stdout


def test_a_format_loses_nothing_to_native_json():
    result = show("--losses", "native-json", "native-json")
    assert result.stdout == "native-json carries everything that native-json can say.\n"
    result = show("--losses", "native-json", "native-json", "--output", "json")
    assert json.loads(result.stdout) == []


def test_wrong_names_are_wrong_use():
    assert show("nativ-json").exit_code == 2
    assert "did you mean 'native-json'" in show("--losses", "nativ-json", "native-json").stderr


@pytest.mark.parametrize("name", formats.FORMATS)
def test_probes_lose_nothing_in_their_own_format(name):
    codec = get_codec("native-json")
    assert list(probes(codec.carries))
    for probe in probes(codec.carries):
        assert codec.encode(probe).losses == (), name


def test_commands_are_listed_without_being_imported():
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for command in ("convert", "inspect", "formats"):
        assert command in result.stdout


def test_the_version_is_told():
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("changelane ")
