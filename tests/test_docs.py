# SPDX-License-Identifier: Apache-2.0
"""The documentation is true: examples run, tables are what they show."""

import contextlib
import io
import re
from pathlib import Path

import msgspec
import pytest
from pipeline_page import anchor

from changelane import Message, get_codec
from changelane.cli.formats import markdown_table
from changelane.event import DataChange, Key, Op
from changelane.formats.native import NativeColumn, NativeEvent
from changelane.position import SequencePosition, order_text
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.reference.history import HistoryTables
from changelane.types import UNAVAILABLE, Integer, LogicalType, String

ORDERS = TableId("shop", None, "orders")
ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\s*```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "demo/**/*.md", "benchmarks/*.md")
    for page in ROOT.glob(pattern)
)
TABLE = re.compile(r"<!-- formats -->\n(.*?)\n<!-- /formats -->", re.DOTALL)


def examples(path: Path) -> list[tuple[str, str | None]]:
    """Python blocks, each with the text block after it: what it prints."""
    return [(code, shown or None) for code, shown in EXAMPLE.findall(path.read_text("utf-8"))]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them; equal ones are numbered."""
    found: dict[str, int] = {}
    anchored = set()
    for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE):
        name = anchor(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading))
        count = found.get(name, 0)
        anchored.add(f"{name}-{count}" if count else name)
        found[name] = count + 1
    return anchored


CITATION = re.compile(r"\bdocs/([\w/-]+\.md)(?:, ([A-Z][a-zA-Z ]+))?")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def test_pages_and_headings_that_the_code_cites_are_there():
    missing = []
    for file in [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        text = re.sub(r"\n *(# )?", " ", file.read_text("utf-8"))
        for name, words in CITATION.findall(text):
            page = ROOT / "docs" / name
            headings = HEADING.findall(page.read_text("utf-8")) if page.is_file() else []
            if not page.is_file() or (words and not any(words.startswith(h) for h in headings)):
                missing.append((file.name, name, words))
    assert missing == []


def test_the_tests_that_the_merge_rule_names_are_there():
    names = re.findall(r"`(test_\w+)`", (ROOT / "docs" / "merge-rule.md").read_text("utf-8"))
    tests = "".join(file.read_text("utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    assert len(names) > 10
    assert [name for name in names if f"def {name}(" not in tests] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page):
    broken = []
    for link in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        if "://" in link:
            continue
        name, _, place = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        is_page = target.suffix == ".md" and target.is_file()
        if not target.exists() or (place and (not is_page or place not in anchors(target))):
            broken.append(link)
    assert not broken, f"{page.relative_to(ROOT)}: {broken}"


def test_every_page_of_the_documentation_can_be_reached_from_the_readme():
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        links = LINK.findall(FENCE.sub("", page.read_text("utf-8")))
        names = [link.partition("#")[0] for link in links]
        targets = [(page.parent / name).resolve() for name in names if name]
        waiting += [target for target in targets if target.suffix == ".md" and target.is_file()]
        waiting += [other for target in targets if target.is_dir() for other in target.glob("*.md")]
    unreached = {page for page in ROOT.glob("docs/**/*.md") if page not in seen}
    assert not unreached, sorted(str(page.relative_to(ROOT)) for page in unreached)


def test_the_python_of_the_readme_prints_what_it_says():
    names: dict = {}
    for code, shown in examples(ROOT / "README.md"):
        if "spark" in code:
            continue  # tests/spark runs these
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "README.md", "exec"), names)
        if shown is not None:
            assert printed.getvalue().strip() == shown.strip()


def test_the_python_of_the_transforms_page_runs():
    found = examples(ROOT / "docs" / "transforms.md")
    assert found
    for code, _ in found:
        exec(compile(code, "transforms.md", "exec"), {})


def test_the_table_of_formats_in_the_readme_is_generated():
    table = TABLE.search((ROOT / "README.md").read_text("utf-8"))
    assert table, "the README has no table between <!-- formats --> and <!-- /formats -->"
    assert table[1] == markdown_table(), "paste the output of: changelane formats --markdown"


def test_the_page_of_the_native_form_names_every_field_and_type():
    text = (ROOT / "docs" / "native.md").read_text("utf-8")
    for struct in (NativeEvent, NativeColumn):
        for field in struct.__struct_fields__:
            assert f"`{field}`" in text
    for kind in LogicalType.__subclasses__():
        name = str(kind.__name__).lower().removesuffix("type")
        assert name in text.lower() or kind.__name__ in {"Float", "Integer"}, name


def test_the_sample_of_the_native_form_is_an_event():
    text = (ROOT / "docs" / "native.md").read_text("utf-8")
    sample = text.partition("```json\n")[2].partition("```")[0]
    (event,) = get_codec("native-json").decode(Message(sample.encode()))
    assert event.schema is not None
    assert msgspec.json.decode(sample)["op"] == event.op


def test_the_worked_example_of_the_modes_is_what_the_rule_gives():
    text = (ROOT / "docs" / "modes.md").read_text("utf-8")
    shown = text.partition("<!-- worked example -->\n")[2].partition("<!-- /")[0].splitlines()[2:]
    schema = TableSchema(
        (Column("id", Integer()), Column("state", String()), Column("total", Integer()))
    )
    tables = HistoryTables()
    lines = []
    for op, at, state, total, words in (
        ("c", 10, "new", 5, "insert@10 (new, 5)"),
        ("u", 30, "paid", UNAVAILABLE, "update@30 (paid, not sent)"),
        ("u", 20, UNAVAILABLE, 7, "update@20 (not sent, 7), late"),
        ("d", 25, None, None, "delete@25, late"),
    ):
        row = {"id": 1, "state": state, "total": total}
        before, after = (row, None) if op == "d" else (None, row)
        position = SequencePosition(at)
        event = DataChange(Op(op), ORDERS, Key(("id",)), before, after, schema, position)
        tables.apply([event])
        for number, one in enumerate(tables.versions(ORDERS)[b"[1]"]):
            told = ["unknown" if c in one.unknown else one.row[c] for c in ("state", "total")]
            places = (one.order, one.end_order)
            told += [order_text(order).split()[-1] if order else "" for order in places]
            cells = ["" if number else words, *map(str, told)]
            lines.append("| " + " | ".join(cells) + " |")
    assert [line.split() for line in lines] == [line.split() for line in shown]
