# SPDX-License-Identifier: Apache-2.0
"""Every format has its page, all with the same headings, and the pages are true."""

import re
from pathlib import Path

import pytest

from changelane import Message, formats, get_codec
from changelane.formats.contract.losses import LOSSES, loss_class, loss_name

ROOT = Path(__file__).resolve().parent.parent
HEADINGS = [
    "Product and versions",
    "Sample",
    "Reading",
    "Writing",
    "Options",
    "Types",
    "What is lost",
    "Known gaps",
]
PROOFS = {"captured", "published", "classes", "source", "documents", "own"}


@pytest.mark.parametrize("name", formats.FORMATS)
def test_every_format_has_a_page_with_the_same_headings(name):
    text = (ROOT / "docs" / "formats" / f"{name}.md").read_text("utf-8")
    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS


@pytest.mark.parametrize("name", formats.FORMATS)
def test_every_option_is_on_the_page_of_its_format(name):
    text = (ROOT / "docs" / "formats" / f"{name}.md").read_text("utf-8")
    options = text.partition("## Options\n")[2].partition("\n## ")[0]
    for option in formats.module(name).Options.__struct_fields__:
        assert f"`{option}`" in options


@pytest.mark.parametrize("name", formats.FORMATS)
def test_the_sample_of_every_page_is_read_and_recognised(name):
    text = (ROOT / "docs" / "formats" / f"{name}.md").read_text("utf-8")
    place = text.partition("## Sample\n")[2]
    kind, sample = re.search(r"```(json|hex)\n(.*?)```", place, re.DOTALL).groups()
    value = bytes.fromhex(sample) if kind == "hex" else sample.encode()
    key = None
    if found := re.search(r"\nThe key of the message is `(.*?)`", place):
        key = found[1].encode()
    elif found := re.search(r"```hex key\n(.*?)```", place, re.DOTALL):
        key = bytes.fromhex(found[1])
    message = Message(value, key)
    assert get_codec(name).decode(message)
    assert get_codec(name).detects(message)


def classes_of(cell):
    """The classes of the losses that a cell names: ``source...`` are all of a group."""
    found = set()
    for name in re.findall(r"`([a-z_:.0-9]+)`", cell):
        group, is_all = loss_name(name.rstrip(".:")), name.endswith("...")
        parts = LOSSES[group].parts + LOSSES[group].others if is_all else ()
        found |= {loss_class(f"{group}.{part}") for part in parts} or {loss_class(group)}
    return ", ".join(sorted(found))


@pytest.mark.parametrize("name", formats.FORMATS)
def test_every_table_of_losses_has_the_class_of_each(name):
    text = (ROOT / "docs" / "formats" / f"{name}.md").read_text("utf-8")
    lost = text.partition("## What is lost\n")[2].partition("\n## ")[0]
    rows = [row.split(" | ") for row in re.findall(r"^\| (.*) \|$", lost, re.MULTILINE)]
    assert not rows or rows[0] == ["loss", "class", "what happens"]
    for losses, told, _ in rows[1:]:
        assert told == classes_of(losses), losses
    assert rows or "losses.md#names" in lost or name == "native-json"


def list_rows():
    """The lines of the list of formats: the name of the link, its target, proof, experimental."""
    text = (ROOT / "docs" / "formats" / "README.md").read_text("utf-8")
    row = r"^\| \[([a-z0-9-]+)\]\((.*?)\) \| .* \| .* \| (.*) \| (.*) \|$"
    return re.findall(row, text, re.MULTILINE)


def test_the_list_of_formats_has_one_line_with_a_link_for_each():
    lines = [(name, target) for name, target, _, _ in list_rows()]
    assert sorted(lines) == sorted((name, f"{name}.md") for name in formats.FORMATS)


@pytest.mark.parametrize(("name", "target", "proof", "experimental"), list_rows())
def test_the_list_has_the_proof_of_the_page_and_of_the_goldens(name, target, proof, experimental):
    proofs = set(re.split(r", | and ", re.sub(r" \(.*?\)", "", proof)))
    assert proofs <= PROOFS
    origins = (ROOT / "tests" / "golden" / name).glob("*/ORIGIN")
    is_captured = any("aptured for this project" in file.read_text("utf-8") for file in origins)
    assert ("captured" in proofs) == is_captured
    if proofs <= {"source", "documents"}:
        assert experimental == "the format"
    page = (ROOT / "docs" / "formats" / target).read_text("utf-8")
    assert (experimental != "-") == ("**experimental**" in page)
    is_whole = re.search(r"the\s+format\s+is\s+\*\*experimental\*\*", page, re.IGNORECASE)
    assert (experimental == "the format") == bool(is_whole)
