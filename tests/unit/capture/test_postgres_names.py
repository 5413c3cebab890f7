# SPDX-License-Identifier: Apache-2.0
"""Names, patterns and positions of PostgreSQL, for any text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane.capture.postgres.sql_text import (
    check_slot_name,
    identifier,
    literal,
    lsn_of,
    lsn_text,
    shown_name,
)
from changelane.capture.postgres.tables import Kind, Relation, selection_of
from changelane.capture.table_pattern import pattern_of
from changelane.errors import ConfigError

NAMES = st.text(min_size=1).filter(lambda name: "\0" not in name)


@given(schema=NAMES, name=NAMES, other=NAMES)
def test_a_shown_name_is_a_pattern_of_this_table_only(schema: str, name: str, other: str) -> None:
    pattern = pattern_of(shown_name(schema, name))
    assert pattern.is_exact
    assert pattern.matches(schema, name)
    assert pattern.matches(schema, other) == (other == name)
    assert pattern.matches(other, name) == (other == schema)


@given(NAMES)
def test_a_quoted_identifier_has_one_reading(name: str) -> None:
    quoted = identifier(name)
    assert quoted[0] == quoted[-1] == '"'
    assert quoted[1:-1].replace('""', "") == name.replace('"', "")


@given(st.text())
def test_a_literal_ends_where_its_text_ends(text: str) -> None:
    body = literal(text).removeprefix("E")[1:-1]
    assert "'" not in body.replace("''", "")
    assert not body.replace("\\\\", "").endswith("\\")


@given(st.integers(0, (1 << 64) - 1))
def test_positions_keep_their_64_bits(lsn: int) -> None:
    assert lsn_of(lsn_text(lsn)) == lsn


@pytest.mark.parametrize("text", ["", "1", "/1", "1/", "1/0/0", "g/0", "123456789/0", "1/0\n"])
def test_a_text_that_is_no_position_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="two hexadecimal numbers"):
        lsn_of(text)


@pytest.mark.parametrize(
    "text", ["", "orders", ".", "a.", ".a", "a.b.c", 'a."b', '"".a', 'a."b"c', '"a"b.c']
)
def test_a_pattern_without_schema_and_table_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not schema\.table"):
        pattern_of(text)


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("s.*", "a.b", True),
        ("s.*", "new\nline", True),
        ("s.a?", "ab", True),
        ("s.a?", "a", False),
        ("s.a[b]", "a[b]", True),
        ("s.a[b]", "ab", False),
        ("s.a", "A", False),
        ('s."a*"', "ab", False),
        ('"s".a*', "ab", True),
        ("s.a+", "aa", False),
    ],
)
def test_only_asterisk_and_question_mark_are_wildcards(
    pattern: str, name: str, *, is_match: bool
) -> None:
    assert pattern_of(pattern).matches("s", name) is is_match


@pytest.mark.parametrize("name", ["", "A", "a-b", "a" * 64, "ä", "a\n"])
def test_an_invalid_slot_name_is_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match="slot name"):
        check_slot_name(name)


def relation(oid: int, name: str, kind: Kind = "table", **state: bool) -> Relation:
    return Relation(oid=oid, schema="s", name=name, kind=kind, **state)


RELATIONS = [
    relation(1, "b"),
    relation(2, "a"),
    relation(3, "view", "view"),
    relation(4, "fast", is_unlogged=True),
    relation(5, "part", is_partition=True),
]


@pytest.mark.parametrize(
    ("include", "tables", "rejected", "unlogged", "unmatched"),
    [
        (["s.*"], ["a", "b"], [], ["fast"], []),
        (["s.a", "s.*"], ["a", "b"], [], ["fast"], []),
        (["s.*", "s.fast"], ["a", "b"], ["fast"], [], []),
        (["s.view"], [], ["view"], [], []),
        (["s.vie*"], [], [], [], [("s.vie*", "")]),
        (["s.fas*"], [], [], ["fast"], []),
        (["s.part"], ["part"], [], [], []),
        (["s.par*"], [], [], [], [("s.par*", "s.part")]),
        (["s.A"], [], [], [], [("s.A", "s.a")]),
        ([], [], [], [], []),
    ],
)
def test_patterns_select_tables(
    include: list[str],
    tables: list[str],
    rejected: list[str],
    unlogged: list[str],
    unmatched: list[tuple[str, str]],
) -> None:
    selection = selection_of(RELATIONS, include)
    assert [table.name for table in selection.tables] == tables
    assert [table.name for table in selection.rejected] == rejected
    assert [table.name for table in selection.unlogged] == unlogged
    assert list(selection.unmatched) == unmatched
