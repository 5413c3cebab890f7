# SPDX-License-Identifier: Apache-2.0
"""The documentation is true: examples run, tables are what they show."""

import contextlib
import io
import re
from pathlib import Path

import msgspec

from changelane import Message, get_codec
from changelane.cli.formats import markdown_table
from changelane.formats.native import NativeColumn, NativeEvent
from changelane.types import LogicalType

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\s*```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
TABLE = re.compile(r"<!-- formats -->\n(.*?)\n<!-- /formats -->", re.DOTALL)


def examples(path: Path) -> list[tuple[str, str | None]]:
    """Python blocks, each with the text block after it: what it prints."""
    return [(code, shown or None) for code, shown in EXAMPLE.findall(path.read_text("utf-8"))]


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
