# SPDX-License-Identifier: Apache-2.0
"""Folders of tables: two tables never share one, whatever their names are."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

sql = pytest.importorskip("changelane.spark.runtime.sql", exc_type=ImportError)

LONGEST = 200
NAMES = st.none() | st.text(
    st.sampled_from("ab~h.0gpAB_%/\\ \x00é\ud800") | st.characters(), max_size=8
)
PARTS = st.tuples(NAMES, NAMES, NAMES)


@given(PARTS, PARTS, st.sampled_from(["", "2", "10"]))
def test_two_tables_have_two_folders(first, second, generation):
    folders = [sql.folder_name(*name, generation=generation) for name in (first, second)]
    assert (folders[0] == folders[1]) == (first == second)


def test_the_hash_of_a_long_name_is_no_escape_of_another_name():
    found = {}
    for number in range(2000):
        long = f"{number:04d}" + "x" * LONGEST
        folder = sql.folder_name(long)
        assert len(folder) <= LONGEST
        mark = folder.index("~h")
        # the same text, read as the folder of a short name: `~` begins two digits, or `p` or `g`
        assert not re.fullmatch(r"(?:[A-Za-z0-9_.-]|~[0-9A-F]{2}|~(?=[.]|$))*", folder[mark:])
        found[folder] = long
    assert len(found) == 2000


def test_two_long_names_that_begin_alike_have_two_folders():
    assert sql.folder_name("x" * 300 + "a") != sql.folder_name("x" * 300 + "b")
