# SPDX-License-Identifier: Apache-2.0
"""The demo quarantines the messages that were broken by hand, and no others."""

from pathlib import Path

import pytest

from changelane import DecodeError, Message, get_codec
from changelane.conversion.message_files import Lines, open_input

DEMO = Path(__file__).resolve().parents[3] / "demo"


@pytest.fixture
def demo(monkeypatch):
    monkeypatch.syspath_prepend(str(DEMO))
    return pytest.importorskip("run")


def unreadable_lines(file: str, source_format: str) -> list[int]:
    codec, numbers = get_codec(source_format), []
    with open_input(str(DEMO / "input" / file)) as stream:
        for line in Lines(stream.stream):
            assert isinstance(line.content, Message)
            try:
                codec.decode(line.content)
            except DecodeError:
                numbers.append(line.number)
    return numbers


@pytest.mark.parametrize(
    ("name", "file", "source_format"),
    [
        ("shop", "shop-postgres.debezium.jsonl", "debezium-json"),
        ("sales", "shop-mysql.canal.jsonl", "canal-json"),
    ],
)
def test_every_quarantined_message_of_the_demo_is_broken_on_purpose(
    demo, name, file, source_format
):
    broken = unreadable_lines(file, source_format)
    assert len(broken) == demo.BROKEN_ON_PURPOSE.get(name, 0)
    note = demo.quarantine_note(name, len(broken))
    assert note.endswith("(broken on purpose)") == bool(broken)
    assert f"but {len(broken)} broken on purpose" in demo.quarantine_note(name, len(broken) + 1)


def test_the_page_of_the_demo_and_its_output_name_the_same_line():
    (number,) = unreadable_lines("shop-postgres.debezium.jsonl", "debezium-json")
    assert f"(line {number} of its input)" in (DEMO / "run.py").read_text("utf-8")
    assert f"Line {number} is a second copy" in (DEMO / "ORIGIN.md").read_text("utf-8")
