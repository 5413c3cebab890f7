# SPDX-License-Identifier: Apache-2.0
"""YAML files that would end or fill the process that reads them: each is one clear sentence."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from changelane.cli import main
from changelane.errors import ConfigError
from changelane.pipeline.config import load
from changelane.pipeline.yaml import read_yaml

NAMES = "abcdefghijkl"


def doubled(first: str, item: str, last: str) -> str:
    """A file in which each line stands for nine times what the one before stands for."""
    lines = [f"a: &a {first}"]
    lines += [
        f"{name}: &{name} " + item.replace("@", ", ".join([f"*{before}"] * 9))
        for before, name in pairwise(NAMES)
    ]
    return "\n".join([*lines, last])


HOSTILE = {
    "deep": ("a: " + "[" * 100_000, "nested more than 64 levels deep in line 1"),
    "deep and closed": ("a: " + "[" * 900 + "]" * 900, "nested more than 64 levels deep in line 1"),
    "deep mappings": ("{a: " * 5000 + "1" + "}" * 5000, "nested more than 64 levels deep"),
    "deep blocks": ("\n".join(" " * n + "a:" for n in range(900)), "levels deep in line 65"),
    "deep by aliases": (
        "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 900)),
        "levels deep with \\*a62 in line 64",
    ),
    "itself": ("a: &a [*a]", "refers to itself in line 1, with \\*a: remove the alias"),
    "itself inside": ("a: 1\nb: &b\n  c: [*b]", "refers to itself in line 3, with \\*b"),
    "bomb of lists": (doubled("[x, x]", "[@]", ""), "more than 100,000 values with its aliases"),
    "bomb of mappings": (
        doubled("{x: 1}", "{<<: [@]}", ""),
        "more than 100,000 values with its aliases replaced",
    ),
    "no day": ("a: 1\nb: 2024-13-45", "in line 2 is not a valid number, date or time"),
    "no time": ("a: 2024-01-01T25:00:00Z", "in line 1 is not a valid number, date or time"),
    "no zone": ("a: 2024-01-01T00:00:00+99:00", "in line 1 is not a valid number, date or time"),
    "no number": ("a: !!int s3cr3t", "in line 1 is not a valid number, date or time"),
    "no fraction": ("a: !!float s3cr3t", "in line 1 is not a valid number, date or time"),
    "long number": ("a: " + "9" * 5000, "in line 1 is not a valid number, date or time"),
    "a list as a key": ("{[1, 2]: 3}", "is not YAML"),
    "two documents": ("a: 1\n---\nb: 2", "is not YAML"),
    "an unknown alias": ("a: *b", "is not YAML"),
    "a tag of a program": ("a: !!python/object:os.system x", "is not YAML"),
    "a control character": ("a: \x00", "is not YAML"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    text, reason = HOSTILE[name]
    path = tmp_path / "pipeline.yaml"
    path.write_text(text, encoding="utf-8")
    for read in (read_yaml, load):
        with pytest.raises(ConfigError, match=reason) as caught:
            read(path)
        assert "s3cr3t" not in str(caught.value)
    line = json.dumps({"op": "c", "table": {"name": "t"}, "after": {"id": 1}})
    arguments = ["convert", "-f", "native-json", "-t", "native-json", "--transform", str(path)]
    result = CliRunner().invoke(main, arguments, input=line)
    assert result.exit_code == 2
    assert "pipeline.yaml" in result.stderr
    assert not result.stdout


@pytest.mark.parametrize("command", ["run", "check", "status"])
def test_a_bad_file_ends_a_command_as_any_other_does(tmp_path: Path, command: str) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(HOSTILE["deep"][0], encoding="utf-8")
    result = CliRunner().invoke(main, [command, str(path)])
    assert result.exit_code == 2
    assert "nested more than 64 levels deep" in result.output


def test_aliases_are_read_where_they_stay_small(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    text = "a: &a {x: 1, y: [1, 2]}\nb: {<<: *a, x: 2}\nc: [*a, *a]\nd: &d 7\ne: *d\n"
    path.write_text(text, encoding="utf-8")
    whole = {"x": 1, "y": [1, 2]}
    assert read_yaml(path) == {
        "a": whole,
        "b": {"x": 2, "y": [1, 2]},
        "c": [whole, whole],
        "d": 7,
        "e": 7,
    }
    path.write_text("a: " + "[" * 63 + "]" * 63, encoding="utf-8")
    assert read_yaml(path)["a"]


@pytest.mark.parametrize("value", ["[" * 250 + "]" * 250, "[" * 100_000, '"\udc80"'])
def test_an_option_that_is_no_json_is_refused(value: str) -> None:
    arguments = ["convert", "-f", "debezium-json", "-t", "native-json"]
    result = CliRunner().invoke(main, [*arguments, "--from-option", f"schemas={value}"], input="")
    assert result.exit_code == 2
    assert "schemas" in result.stderr
