# SPDX-License-Identifier: Apache-2.0
"""The page of a verification: complete, and safe with hostile names and keys."""

import html
from html.parser import HTMLParser

from changelane.spark.verify.html_page import MAX_ROWS, html_page
from changelane.spark.verify.report import (
    ChunkReport,
    KeyDifference,
    TableReport,
    VerificationReport,
)

HOSTILE = "</td><script>alert(1)</script>\"'&amp;\u202e\x00\ud800 %s {}"


class Page(HTMLParser):
    """The elements of a page, their texts, and whether each one is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def report() -> VerificationReport:
    table = TableReport(
        table="shop.orders",
        outcome="different",
        row_count=30,
        position="0/1",
        chunks=(
            ChunkReport(number=0, last_key={"id": "10"}, row_count=10),
            ChunkReport(number=1, last_key={"id": "20"}, row_count=10, difference_count=2),
            ChunkReport(number=2, row_count=10, is_unsearched=True),
        ),
        compared_columns=("id", "v"),
        differences=(
            KeyDifference({"id": "12"}, "columns", ("v",)),
            KeyDifference({"id": "13"}, "missing"),
        ),
    )
    tables = (table, TableReport(table="shop.logs", outcome="not verified", reason="no key"))
    return VerificationReport(pipeline="shop", tables=tables)


def test_a_page_has_the_chunks_in_their_order_with_a_mark_for_each_result() -> None:
    text = html_page(report())
    page = Page(text)
    assert page.open == []
    assert page.tags.count("rect") == 3
    kinds = [value for name, value in page.attributes if name == "class" and value != "mark"]
    in_picture = [kind for kind in kinds if kind in {"equal", "different", "unsearched"}]
    assert in_picture[3:] == ["equal", "different", "unsearched"], "after the legend"
    assert page.tags.count("path") == 2, "colour is not the only sign"
    for part in (
        "chunk 1, up to id=20: 10 rows, 2 differences",
        "chunk 2, up to the last key: 10 rows, differs, not searched",
        "1 columns, 1 missing",
        "no key",
    ):
        assert part in page.text


def test_a_page_escapes_hostile_names_and_keys() -> None:
    table = TableReport(
        table=HOSTILE,
        outcome="different",
        reason=HOSTILE,
        position=HOSTILE,
        chunks=(ChunkReport(number=0, last_key={HOSTILE: HOSTILE}, difference_count=1),),
        compared_columns=(HOSTILE,),
        unproven_columns={HOSTILE: HOSTILE},
        unproven_keys=({HOSTILE: HOSTILE},),
        differences=(KeyDifference({HOSTILE: HOSTILE}, HOSTILE, (HOSTILE,)),),
    )
    text = html_page(VerificationReport(pipeline=HOSTILE, tables=(table,)))
    page = Page(text)
    assert page.open == []
    assert "script" not in page.tags
    text.encode()  # a lone surrogate would fail
    assert not {"\u202e", "\x00"} & set(text)
    assert html.escape("</td><script>") in text
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "src"]
    assert ("http-equiv", "Content-Security-Policy") in page.attributes


def test_a_page_lists_the_first_differences_only() -> None:
    differences = tuple(KeyDifference({"id": str(n)}, "extra") for n in range(MAX_ROWS + 7))
    table = TableReport(table="t", outcome="different", differences=differences)
    text = html_page(VerificationReport(pipeline="shop", tables=(table,)))
    assert "and 7 more differences" in text
    assert text.count("<td>extra</td>") == MAX_ROWS
