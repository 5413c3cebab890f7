# SPDX-License-Identifier: Apache-2.0
"""Every sentence, table row and sample of the vendors' documents is quoted, with its test.

The tables are ``docs/coverage/<document>.md`` and ``<document>-<part>.md``: quotations are
verbatim, and ``…`` marks omitted words. The documents are in the folder CHANGELANE_SEEDS, else
``../shared/seeds``; without them only the names of the tests are checked.
"""

import ast
import os
import re
from functools import cache
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).resolve().parent.parent
TABLES = sorted((ROOT / "docs" / "coverage").glob("[0-9]*.md"))
SEEDS = Path(os.environ.get("CHANGELANE_SEEDS") or ROOT.parent / "shared" / "seeds")
DOCUMENTS = sorted({path.stem[:3] for path in TABLES})
NODE = re.compile(r"tests/[\w/.]+\.py::\w+")
FARTHEST = {True: 6000, False: 250}
"""Characters that a ``…`` may stand for: in a sample (it has quotes or braces), and in prose."""


class Statement(msgspec.Struct, frozen=True):
    """A row of a table: what is quoted, in pieces, and what tests it."""

    table: str
    quoted: str
    pieces: tuple[str, ...]
    test: str


def words(text: str) -> str:
    """A text with every white space as one blank, and none at its ends."""
    return " ".join(text.replace("\u200b", "").replace("\\|", "|").split())


@cache
def statements(table: Path) -> tuple[Statement, ...]:
    found = []
    for line in table.read_text("utf-8").splitlines():
        if not line.startswith("| ") or line.startswith("| seed statement"):
            continue
        quoted, _, test = line.strip().removeprefix("|").removesuffix("|").rpartition(" | ")
        pieces = tuple(piece for piece in map(words, quoted.split("…")) if piece)
        found.append(Statement(table.name, words(quoted), pieces, test.strip()))
    return tuple(found)


@cache
def functions(path: Path) -> frozenset[str]:
    """The test functions that a file defines, at its top or in its classes."""
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@cache
def document(number: str) -> str:
    paths = sorted(SEEDS.glob(f"{number}_*.txt"))
    if not paths:
        pytest.skip("no vendors' documents: set CHANGELANE_SEEDS to their folder")
    return paths[0].read_text("utf-8")


def spans(text: str, pieces: tuple[str, ...]) -> list[tuple[int, int]]:
    """Where the pieces stand in a text, one after the other, with what is left out between."""
    found = []
    farthest = FARTHEST[any(mark in piece for piece in pieces for mark in '"{')]
    at = text.find(pieces[0])
    while at >= 0:
        end = at + len(pieces[0])
        for piece in pieces[1:]:
            start = text.find(piece, end, end + farthest + len(piece))
            if start < 0:
                break
            end = start + len(piece)
        else:
            found.append((at, end))
        at = text.find(pieces[0], at + 1)
    return found


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_every_statement_names_tests_that_exist_or_a_reason(table):
    assert statements(table)
    for statement in statements(table):
        nodes = NODE.findall(statement.test)
        if not nodes:
            assert re.match(r"\u2013 \S", statement.test), statement
        for node in nodes:
            path, name = node.split("::")
            assert (ROOT / path).is_file(), node
            assert name.startswith("test_"), node
            assert name in functions(ROOT / path), node


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_every_quotation_is_in_its_document(table):
    text = words(document(table.stem[:3]))
    missing = [one.quoted for one in statements(table) if not spans(text, one.pieces)]
    assert not missing


def _parts(text: str) -> list[str]:
    """The sentences, table rows and lines of samples of a document."""
    return [
        words(sentence)
        for line in text.splitlines()
        for sentence in re.split(r"(?<=[.!?:;])\s+(?=[A-Z\"'(])", line)
        if re.search(r"[^\W\d]", sentence)
    ]


@pytest.mark.parametrize("number", DOCUMENTS)
def test_nothing_of_a_document_is_left_unquoted(number):
    original = document(number)
    text = words(original)
    is_quoted = bytearray(len(text))
    for table in TABLES:
        if table.stem.startswith(number):
            for statement in statements(table):
                for start, end in spans(text, statement.pieces):
                    is_quoted[start:end] = b"\x01" * (end - start)
    at, left = 0, []
    for part in _parts(original):
        at = text.index(part, at)
        said = [index for index in range(at, at + len(part)) if text[index].isalnum()]
        if not all(is_quoted[index] for index in said):
            left.append(part)
        at += len(part)
    assert not left, "\n".join(left)


def test_every_table_is_in_the_index():
    index = (ROOT / "docs" / "coverage.md").read_text("utf-8")
    linked = re.findall(r"\(coverage/([^)]+)\)", index)
    assert sorted(linked) == [table.name for table in TABLES]


def test_a_gap_is_bounded_and_its_pieces_are_in_order():
    text = "a b" + " x" * 300 + ' c "d"' + " y" * 300 + ' "e"'
    assert spans(text, ("a", "b")) == [(0, 3)]
    assert not spans(text, ("b", "a"))
    assert not spans(text, ("a", "c"))
    assert spans(text, ('c "d"', '"e"')) == [(text.index("c"), len(text))]
