# SPDX-License-Identifier: Apache-2.0
"""Tables on terminals of any width have every name, value and figure, complete and unchanged."""

import io
import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from click.testing import CliRunner
from rich.console import Console

from changelane.cli import main, status
from changelane.cli.terminal import Column, output_console, print_table

STATUS = pytest.importorskip("changelane.spark.maintenance.status", exc_type=ImportError)

COLUMNS = (Column("table"), Column("rows", is_text=False), Column("position"))
ROWS = [
    ("shop.:100:.[red]orders[/x]", "1,234,567,890", "binary log 3, position 77:100:77"),
    ("表", "1", ""),
]
CELLS = [cell for row in ROWS for cell in row]


def console(width: int) -> Console:
    console = output_console()
    console.file, console.width = io.StringIO(), width
    return console


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [1, 20, 40, 60, 80, 200])
def test_a_table_of_any_width_has_complete_cells(width: int) -> None:
    terminal = console(width)
    print_table(COLUMNS, ROWS, terminal)
    text = printed(terminal)
    assert "1,234,567,890" in text
    # a text may be folded at a space, and loses nothing
    assert not Counter("".join(CELLS).replace(" ", "")) - Counter(text)


def test_an_output_that_is_no_terminal_has_a_line_for_each_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table(COLUMNS, [("a" * 300, "1", "b" * 300)], output_console())
    (_, line) = capsys.readouterr().out.splitlines()
    assert line.split() == ["a" * 300, "1", "b" * 300]


@pytest.mark.parametrize("width", [30, 80, 120, 200])
def test_a_status_never_shows_a_part_of_a_figure(width: int) -> None:
    figures = (1_234_567_890, 12_345, 7_654_321, 4_321)
    table = STATUS.TableStatus(
        "shop.public.orders", "/lake", *figures, "binary log 3, position 77", pending=987_654,
        source_time_ms=1, committed_ms=1, applied=9_876_543_210, out_of_order=22_222,
        conflicts=3_333, repeats=44_444, possible_duplicates=55_555, paused="column [red] :100:",
    )  # fmt: skip
    terminal = console(width)
    status.show([table], terminal)
    words = printed(terminal).split()
    counts = (*figures, 987_654, 9_876_543_210, 22_222, 3_333, 44_444, 55_555)
    assert {f"{count:,}" for count in counts} <= set(words)
    assert {"shop.public.orders", "[red]", ":100:"} <= set(words)


def test_types_of_a_source_are_no_markup_of_the_terminal() -> None:
    column = {"name": "s", "type": "string", "source_type": "enum('[/b]',':100:')"}
    event = {"op": "c", "table": {"name": "t"}, "after": {"s": "[red]"}, "schema": [column]}
    result = CliRunner().invoke(main, ["inspect", "-f", "native-json"], input=json.dumps(event))
    assert result.exit_code == 0, result.output
    assert "enum('[/b]',':100:')" in result.stdout
    assert "[red]" in result.stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_a_character_shows_its_number(encoding: str) -> None:
    event = {"op": "c", "table": {"name": "t\u8868"}, "after": {"s": "\u00e9 \U0001f600"}}
    shown, as_json = (
        subprocess.run(
            [sys.executable, "-m", "changelane", "inspect", "-f", "native-json", "--output", form],
            input=json.dumps(event).encode(),
            env=os.environ | {"PYTHONIOENCODING": encoding},
            capture_output=True,
            check=True,
        ).stdout
        for form in ("text", "json")
    )
    assert rb"t\u8868" in shown
    assert rb"\U0001f600" in shown
    assert json.loads(as_json)["after"] == event["after"]
