# SPDX-License-Identifier: Apache-2.0
"""The texts of documents by their shapes are those of documents that are read value by value."""

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane import DecodeError
from changelane.formats.mongodb import document_texts
from changelane.formats.mongodb.document_texts import DocumentTexts
from changelane.formats.mongodb.documents import key_and_text
from changelane.formats.mongodb.extended_json import document, loads

STYLES = ((",", ":"), (",", ": "), (", ", ": "))
RAW = "raw:"
"""The start of texts that stand for JSON in the text of a document."""
TEXTS = st.text(max_size=5) | st.sampled_from(
    ["", "\\", '"', "\u2028", "\x7f", "\n\t\b\f\r", "\x01", "/", "é", "😀", "[{", "}]", "null"]
)
RAW_VALUES = st.sampled_from(
    [
        "-0",
        "-0.0",
        "0.0",
        "1e5",
        "1E400",
        "01",
        "1.",
        "NaN",
        '"a\\/b"',
        '"\\u00e9"',
        '"\\ud800"',
        " 1",
    ]
).map(lambda text: RAW + text)
DIGITS = st.integers(-(2**65), 2**65).map(str) | st.sampled_from(
    ["0", "-0", "007", "+1", "1.0", "", "1" * 35, "0" * 40, "1.", ".5", "1e400", "NaN", "x", "1_0"]
)
LONGS = st.integers(-(2**63), 2**63 - 1)
KINDS: dict[str, tuple[st.SearchStrategy[Any], Any]] = {
    "null": (st.none(), lambda value: value),
    "boolean": (st.booleans(), lambda value: value),
    "text": (TEXTS, lambda value: value),
    "whole": (st.integers(-(10**6), 10**6) | LONGS, lambda value: value),
    "fraction": (st.floats(allow_nan=False, allow_infinity=False), lambda value: value),
    "oid": (
        st.integers(0, 16**24 - 1).map(lambda number: f"{number:024x}"),
        lambda value: {"$oid": value},
    ),
    "int": (
        st.integers(-(2**31), 2**31 - 1).map(str),
        lambda value: {"$numberInt": value},
    ),
    "long": (LONGS.map(str), lambda value: {"$numberLong": value}),
    "double": (
        st.floats(allow_nan=False, allow_infinity=False).map(repr),
        lambda value: {"$numberDouble": value},
    ),
    "decimal": (
        st.decimals(-(10**12), 10**12, places=3).map(str),
        lambda value: {"$numberDecimal": value},
    ),
    "date": (LONGS, lambda value: {"$date": value}),
    "long date": (LONGS.map(str), lambda value: {"$date": {"$numberLong": value}}),
    "texts": (TEXTS, lambda value: [value, "x"]),
    "array": (LONGS, lambda value: [[value], {"a": [value, "]"]}]),
    "binary": (
        st.just("AAE="),
        lambda value: {"$binary": {"base64": value, "subType": "00"}},
    ),
    "object": (LONGS, lambda value: {"x": value, "y": {"z": value}}),
}
"""The usual contents of values, and the values around them."""
UNUSUAL = DIGITS | RAW_VALUES | TEXTS | st.sampled_from([None, True, [], {}, 2**63, -(2**63) - 1])


def raw(found: re.Match[str]) -> str:
    """The JSON for which a text stands."""
    content = json.loads(f'"{found[1]}"')
    return str(content)


def definition(text: str) -> tuple[str, str] | tuple[type, str, object]:
    """The texts of a document that is read value by value, or its error."""
    try:
        return key_and_text(document(loads(text)))
    except DecodeError as error:
        return DecodeError, error.reason, error.code


def read(texts: DocumentTexts, text: str) -> tuple[str, str] | tuple[type, str, object]:
    try:
        return texts.read(text)
    except DecodeError as error:
        return DecodeError, error.reason, error.code


@st.composite
def collections(draw: st.DrawFn) -> list[str]:
    """The texts of documents of few shapes, some of them damaged."""
    names = draw(st.lists(TEXTS, min_size=0, max_size=4, unique=True))
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5))
    style, is_ascii = draw(st.sampled_from(STYLES)), draw(st.booleans())
    texts: list[str] = []
    for _ in range(draw(st.integers(6, 12))):
        values = []
        for kind in kinds:
            usual, around = KINDS[kind]
            values.append(around(draw(usual if draw(st.integers(0, 5)) else UNUSUAL)))
        fields = dict(zip(names, values[1:], strict=False))
        row = {"_id": values[0], **fields, "sub": {"x": values[-1]}}
        text = json.dumps(row, separators=style, ensure_ascii=is_ascii)
        text = re.sub(f'"{RAW}(.*?[^\\\\])"(?=[,}}\\]])', raw, text)
        if not draw(st.integers(0, 5)):
            place = draw(st.integers(0, len(text)))
            new = draw(
                st.sampled_from(["", " ", '"', "\\", "0", "-", ".", "}", "]", ",", "\n", "1"])
            )
            text = text[:place] + new + text[place + draw(st.integers(0, 1)) :]
        texts.append(text)
    return texts


@given(collections())
def test_a_shape_reads_what_its_definition_reads(collection: list[str]) -> None:
    texts = DocumentTexts()
    for text in (*collection, *collection):
        assert read(texts, text) == definition(text), text


@pytest.fixture(scope="module", autouse=True)
def _early_shapes() -> Any:
    """Make shapes of the first document."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document_texts, "_MISSES_BEFORE_SHAPE", 1)
        yield


EXAMPLES: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "text": "x",
    "whole": 5,
    "fraction": 1.5,
    "oid": "67ab25755c0d5ac87eb8c632",
    "decimal": "1.50",
    "double": "1.5",
    "int": "5",
    "long": "5",
    "date": 5,
    "long date": "5",
    "texts": "x",
    "array": 5,
    "binary": "AAE=",
    "object": 5,
}
CONTENTS = [
    *(
        "0",
        "-0",
        "00",
        "01",
        "-1",
        "+1",
        "1.",
        ".5",
        "1.50",
        "-0.0",
        "1e5",
        "1E+05",
        "1e400",
        "1e-400",
    ),
    *(
        str(number + more)
        for number in (10**9, 2**31, 2**63, 2**64, 10**18, 10**19)
        for more in (-1, 0)
    ),
    *(str(-number - more) for number in (10**9, 2**31, 2**63, 10**19) for more in (-1, 0, 1)),
    *("1" * 34, "1" * 35, "0" * 40, "1" * 17 + "." + "1" * 17, "1" * 17 + "." + "1" * 18),
    *("NaN", "Infinity", "-Infinity", "null", "true", "false", "True", "x", "", " 5", "5 ", "1_0"),
    *(
        "a\\/b",
        "\\u00e9",
        "\\ud800",
        "\\n",
        "\\x",
        "\\\\",
        '\\"',
        "\t",
        "\x00",
        "\x7f",
        "é",
        "5,6",
        "]",
        "}",
        "{",
    ),
    *("67AB25755C0D5AC87EB8C632", "67ab25755c0d5ac87eb8c63", "67ab25755c0d5ac87eb8c6322", "AAE"),
    *("[]", "{}", "[1]", '{"$oid":1}', "[[[[[[[1]]]]]]]", "1970-01-01T00:00:00Z", "\u0665"),
]
"""Texts in the place of a value's content, with and without quotes."""


@pytest.mark.parametrize("kind", EXAMPLES)
def test_other_contents_in_the_text_of_a_known_shape(kind: str) -> None:
    _, around = KINDS[kind]
    for comma, colon in STYLES:
        usual = json.dumps({"_id": 1, "v": around(EXAMPLES[kind])}, separators=(comma, colon))
        pattern = json.dumps({"_id": 1, "v": around("@")}, separators=(comma, colon))
        known = DocumentTexts()
        known.read(usual)
        assert known._shapes, usual
        for content in CONTENTS:
            for text in (pattern.replace("@", content), pattern.replace('"@"', content)):
                texts = DocumentTexts()
                texts._shapes = known._shapes
                assert read(texts, text) == definition(text), text


@pytest.mark.parametrize("style", STYLES)
def test_documents_of_known_shapes_are_matched(style: tuple[str, str]) -> None:
    row = {
        "_id": {"$oid": "67ab25755c0d5ac87eb8c632"},
        "text": 'é "\\\n',
        "none": None,
        "ok": True,
        "whole": 5,
        "fraction": 1.50,
        "long": 2**31,
        "int": {"$numberInt": "1"},
        "number": {"$numberLong": "-2"},
        "double": {"$numberDouble": "1E3"},
        "decimal": {"$numberDecimal": "1.50"},
        "date": {"$date": 5},
        "long_date": {"$date": {"$numberLong": "5"}},
        "texts": ["a", "b"],
        "array": [1, {"a": [2]}],
        "sub": {"a.b": 1, "c": {"d": "x"}},
        "binary": {"$binary": {"base64": "AAE=", "subType": "00"}},
        "empty": {},
        "$": 1,
    }
    del row["$"]
    for value in (row, row | {"_id": 5}, row | {"_id": "a"}, row | {"_id": {"a": 1, "b": "x"}}):
        text = json.dumps(value, separators=style, ensure_ascii=False)
        texts = DocumentTexts()
        texts.read(text)
        matched = [shape(text) for shape in texts._shapes]
        assert matched == [definition(text)]
        other = json.dumps(value | {"whole": 2**40, "none": "x"}, separators=style)
        assert [shape(other) for shape in texts._shapes] == [None]


def test_kinds_of_values_are_joined() -> None:
    texts = DocumentTexts()
    rows = [{"_id": 1, "a": value, "b": value} for value in (None, "x", 1, 1.5, {"$date": 1})]
    for row in rows * 4:
        texts.read(json.dumps(row))
    shape = texts._shapes[0]
    for row in rows:
        assert shape(json.dumps(row)) == definition(json.dumps(row))


def test_shapes_of_one_signature_are_made_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts, made = DocumentTexts(), list[Any]()
    builder = document_texts._ShapeBuilder

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return builder(*arguments)

    monkeypatch.setattr(document_texts, "_ShapeBuilder", counted)
    for style in ((", ", ":"), (",", "  :")):  # of no known style
        for _ in range(100):
            texts.read(json.dumps({"_id": 1, "a": 1}, separators=style))
    assert made == []
    texts = DocumentTexts()
    for _ in range(100):
        texts.read(json.dumps({"_id": None, "a": 1}))  # no part of the document's text
    assert len(made) == 7


def test_shapes_are_bounded() -> None:
    texts = DocumentTexts()
    for number in range(40):
        text = json.dumps({"_id": 1, f"f{number}": 1})
        assert texts.read(text) == definition(text)
    assert len(texts._shapes) == document_texts._MAX_SHAPES
    wide = json.dumps({"_id": 1, **{f"f{number}": 1 for number in range(300)}})
    assert [texts.read(wide) for _ in range(3)] == [definition(wide)] * 3


@pytest.mark.parametrize("values", [({"$oid": "67ab25755c0d5ac87eb8c632"}, {}), (["x"], [1])])
def test_the_time_of_a_mismatch_is_not_exponential_in_the_fields(values: tuple[Any, Any]) -> None:
    texts = DocumentTexts()
    for value in (*values, values[0]):
        row = {"_id": 1, **{f"field_{index}": value for index in range(28)}, "last": "x"}
        texts.read(json.dumps(row, separators=STYLES[0]))
    text = json.dumps(row | {"last": 5}, separators=STYLES[0])
    start_s = time.perf_counter()
    assert read(texts, text) == definition(text)
    assert time.perf_counter() - start_s < 5  # it would be a minute
