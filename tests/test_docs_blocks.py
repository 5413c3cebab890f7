# SPDX-License-Identifier: Apache-2.0
"""What the documentation tells people to write is accepted: YAML as a pipeline, commands by click.

Connector files, SQL and the README's blocks have tests of their own, which run them.
"""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from changelane.cli import main
from changelane.pipeline.config import load

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "demo/**/*.md", "benchmarks/*.md")
    for page in ROOT.glob(pattern)
)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)
INLINE = re.compile(r"`(changelane [^`]+)`")
LINE = re.compile(r"(?:\$ )?(?:[\w./-]*/)?changelane( .*)?")
VARIABLE = re.compile(r"\$\{(\w+)\}")
SHELLS = {"", "sh", "console", "bash"}
FILES = {"type": "files", "path": "input", "format": "debezium-json"}
TOPIC = {"type": "kafka", "bootstrap_servers": "here:1", "topics": "in", "format": "debezium-json"}
TO_TOPIC = {
    "type": "kafka",
    "bootstrap_servers": "here:1",
    "topic": "out",
    "format": "canal-json",
    "checkpoint": "state",
}
TABLES = {"type": "delta", "path": "lake"}


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    yield from FENCED.findall(page.read_text("utf-8"))


def parts(kind: str) -> list[Any]:
    return [
        pytest.param(text, id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        for number, (found, text) in enumerate(blocks(page))
        if found == kind
    ]


@pytest.mark.parametrize("text", parts("yaml"))
def test_a_yaml_block_is_a_pipeline_or_a_part_of_one(text: str, tmp_path: Path) -> None:
    told = msgspec.yaml.decode(text.encode())
    sink = told.get("sink", {})
    if "type" not in sink:  # what a sink of topics takes, too
        told["sink"] = (TO_TOPIC | sink) if sink else TABLES
    is_to_topics = told["sink"]["type"] in {"kafka", "datahub"}
    told = {"name": "page", "source": TOPIC if is_to_topics else FILES} | told
    file = tmp_path / "pipeline.yaml"
    file.write_bytes(msgspec.yaml.encode(told))
    load(file, dict.fromkeys(VARIABLE.findall(text), "a secret of 24 characters"))


@pytest.mark.parametrize("text", parts("python"))
def test_a_python_block_compiles_and_imports_what_exists(text: str) -> None:
    tree = ast.parse(text)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), "page", "exec"), {})


@pytest.mark.parametrize("text", parts("json"))
def test_a_json_block_is_json(text: str) -> None:
    json.loads(text)


def lines_of(text: str) -> Iterator[str]:
    """Command lines of a block, continued ones as one."""
    for line in text.replace("\\\n", " ").splitlines():
        if LINE.fullmatch(line.strip()):
            yield line.strip()


def commands() -> list[Any]:
    """Each command line of each page: in blocks, and in the text."""
    found: dict[tuple[str, str], None] = {}
    for page in PAGES:
        text = page.read_text("utf-8")
        prose = FENCED.sub("", text)
        shell = [part for kind, part in blocks(page) if kind in SHELLS]
        for part in (*shell, *INDENTED.findall(prose)):
            for line in lines_of(part):
                found[str(page.relative_to(ROOT)), line] = None
        for line in INLINE.findall(prose):
            found[str(page.relative_to(ROOT)), line] = None
    return [pytest.param(line, id=f"{page}: {line}") for page, line in found]


def command_of(words: list[str]) -> tuple[click.Command, click.Context, list[str]]:
    """Return the command that some words call, with the words behind its name."""
    command: click.Command = main
    context = click.Context(main, info_name="changelane")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        inner = command.get_command(context, words[0])
        assert inner is not None, f"there is no command {words[0]!r}"
        context = click.Context(inner, info_name=words[0], parent=context)
        command, words = inner, words[1:]
    return command, context, words


@pytest.mark.parametrize("line", commands())
def test_a_command_line_has_a_command_and_options_that_exist(line: str) -> None:
    words = shlex.split(line.removeprefix("$ ").replace("...", "WORD"), comments=True)[1:]
    # `quarantine list | show | replay` names three commands
    for alternative in _alternatives(words):
        command, context, rest = command_of(alternative)
        parser = command.make_parser(context)
        rest = [word for word in rest if word != "&"]
        try:
            parser.parse_args(rest)
        except click.BadOptionUsage:  # in a sentence an option may stand without its value
            parser.parse_args([*rest, "WORD"])


def _alternatives(words: list[str]) -> list[list[str]]:
    """Return ``[a, b], [a, c]`` of ``a b | c``."""
    first, *others = [list(group) for group in _split(words)]
    return [first, *([*first[:-1], *other] for other in others)]


def _split(words: list[str]) -> Iterator[list[str]]:
    group: list[str] = []
    for word in words:
        if word == "|":
            yield group
            group = []
        else:
            group.append(word)
    yield group


def test_pages_have_what_these_tests_look_for() -> None:
    assert len(parts("yaml")) > 20
    assert len(commands()) > 40
