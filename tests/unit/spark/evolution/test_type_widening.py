"""What the documentation says of types is what the table formats do."""

import itertools
import re
from pathlib import Path
from typing import Any, Final, cast

import pytest

from changelane.spark.lake.delta import Delta
from changelane.spark.lake.hudi import Hudi
from changelane.spark.lake.iceberg import Iceberg

PAGE: Final = Path(__file__).resolve().parents[4] / "docs" / "schema-changes.md"
LAKES: Final[dict[str, Any]] = {"Delta": Delta, "Iceberg": Iceberg, "Hudi": Hudi}
KINDS: Final = (
    *("tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "string", "binary"),
    *("date", "timestamp", "timestamp_ntz", "decimal(10,2)", "decimal(20,2)", "decimal(20,4)"),
)


def rows() -> list[tuple[list[str], list[str], list[str]]]:
    text = PAGE.read_text("utf-8").partition("<!-- widenings -->")[2].partition("<!--")[0]
    cells = [line.strip("|").split("|") for line in text.strip().splitlines()]
    assert [name.strip() for name in cells[0][2:]] == list(LAKES)
    found = []
    for one, other, *answers in cells[2:]:
        kinds = (re.findall(r"`([^`]*)`", cell) for cell in (one, other))
        found.append((*kinds, [answer.strip() for answer in answers]))
    return cast("list[tuple[list[str], list[str], list[str]]]", found)


def widens(lake: str, one: str, other: str) -> bool:
    """Tables spell types in small letters, and events in capital ones."""
    return bool(LAKES[lake].widens(None, one, other.upper()))


@pytest.mark.parametrize("lake", LAKES)
def test_the_table_of_types_says_what_each_format_widens(lake: str) -> None:
    told = {}
    for ones, others, answers in rows():
        answer = dict(zip(LAKES, answers, strict=True))[lake]
        assert answer in {"yes", "no"}
        told |= {(one, other): answer == "yes" for one in ones for other in others}
    assert told == {pair: widens(lake, *pair) for pair in told}
    # and no change of these types is left out that some format makes
    for pair in itertools.permutations(KINDS, 2):
        if any(widens(name, *pair) for name in LAKES):
            assert pair in told, pair
