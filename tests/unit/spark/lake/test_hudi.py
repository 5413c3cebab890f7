"""Columns in Hudi tables have names that Avro takes, and get their own back."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane.spark.lake.hudi import logical, physical

_ONE = st.sampled_from([*"_x0123456789ABCDEFabcdef hoodie.`\"'é名😀²\x00"])
# several characters that look like an escape, or like the begin of one
_SEVERAL = st.sampled_from(["_x0020", "_x005f", "_x1F600", "_x0041_", "_hoodie_"])
LIKELY = st.lists(_ONE | _SEVERAL, max_size=20).map("".join)


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("id", "id"),
        ("名前", "名前"),
        ("order no.", "order_x0020_no_x002E_"),
        ("1st", "_x0031_st"),
        ("a`; DROP TABLE b", "a_x0060__x003B__x0020_DROP_x0020_TABLE_x0020_b"),
        ("_x0041_", "_x005F_x0041_"),
        ("_x0041.", "_x005F_x0041_x002E_"),
        ("_x0041_x", "_x005F_x0041_x"),
        ("_hoodie_is_deleted", "_x005F_hoodie_is_deleted"),
        ("_Hoodie_Commit_Time", "_x005F_Hoodie_Commit_Time"),
        ("😀", "_x1F600_"),
    ],
)
def test_a_column_has_a_name_that_hudi_takes(name: str, there: str) -> None:
    assert physical(name) == there
    assert logical(there) == name


@given(st.one_of(LIKELY, st.text(max_size=20)))
def test_every_name_comes_back(name: str) -> None:
    there = physical(name)
    assert logical(there) == name
    assert re.fullmatch(r"(?!\d)\w*", there)
    assert not there.lower().startswith("_hoodie_")


@given(LIKELY, LIKELY)
def test_names_that_differ_by_more_than_case_stay_apart(one: str, other: str) -> None:
    if one.lower() != other.lower():
        assert physical(one).lower() != physical(other).lower()
