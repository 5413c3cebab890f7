# SPDX-License-Identifier: Apache-2.0
"""``changelane formats``: what each format carries, and what pairs lose."""

import json

import pytest
from click.testing import CliRunner

from changelane import formats
from changelane.cli import main
from changelane.codec import get_codec
from changelane.conversion.loss_report import probes
from changelane.event import DataChange


def show(*arguments):
    return CliRunner().invoke(main, ["formats", *arguments], catch_exceptions=False)


def test_a_named_format_is_printed_alone():
    result = show("native-json")
    assert result.exit_code == 0
    assert result.stdout.startswith("native-json\n  operations     c r u d\n")
    assert "canal" not in result.stdout


def test_a_format_loses_nothing_to_native_json():
    result = show("--losses", "native-json", "native-json")
    assert result.stdout == "A conversion from native-json to native-json has no losses.\n"
    result = show("--losses", "native-json", "native-json", "--output", "json")
    assert json.loads(result.stdout) == []


def test_the_losses_of_a_pair_are_those_of_a_run():
    result = show("--losses", "native-json", "canal-json")
    for loss in (
        "position ",
        "type:uuid ",
        "event:transaction ",
        "schema.nullable ",
        "transaction.id ",
        "source.server ",
        "unavailable ",
        "before ",
    ):
        assert f"\n{loss}" in f"\n{result.stdout}", loss
    assert "type:int64" not in result.stdout


@pytest.mark.parametrize("name", ["canal-json", "native-json"])
def test_a_format_loses_nothing_to_itself(name):
    lost = json.loads(show("--losses", name, name, "--output", "json").stdout)
    # Foreign details and controls are probes, too, and no family takes those of another.
    assert {loss["field"] for loss in lost} <= {"details.extra", "event:control"}


def test_the_declarations_are_there_for_programs():
    found = json.loads(show("--output", "json").stdout)
    assert found.keys() == formats.FORMATS.keys()
    assert found["native-json"]["operations"] == ["c", "d", "r", "u"]
    assert "decimal" in found["native-json"]["types"]


def test_the_table_for_markdown_has_a_row_a_format():
    lines = show("--markdown").stdout.splitlines()
    assert len(lines) == 2 + len(formats.FORMATS)
    assert len({line.count("|") for line in lines}) == 1


def test_wrong_names_are_wrong_use():
    assert show("nativ-json").exit_code == 2
    assert "did you mean 'native-json'" in show("--losses", "nativ-json", "native-json").stderr


def test_probes_use_everything_that_a_declaration_names():
    carries = get_codec("native-json").carries
    made = list(probes(carries))
    kinds = {probe.__struct_config__.tag for probe in made}
    assert kinds == carries.kinds | {"data"}
    rows = [probe for probe in made if isinstance(probe, DataChange)]
    types = {type(c.type) for row in rows if row.schema for c in row.schema.columns}
    assert types == carries.types
    positions = {row.position.__struct_config__.tag for row in rows if row.position}
    assert positions == carries.positions


def test_commands_are_listed_without_being_imported():
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for command in ("convert", "inspect", "formats"):
        assert command in result.stdout


def test_the_version_is_printed():
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("changelane ")
