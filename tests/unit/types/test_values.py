# SPDX-License-Identifier: Apache-2.0
"""The JSON form of values holds what its type can hold, and nothing else."""

import datetime as dt

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from changelane.errors import DecodeError
from changelane.types import Integer
from changelane.types.values import from_json, iso_text


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_an_integer_outside_its_type_is_refused(bits, unsigned):
    kind = Integer(bits, unsigned)
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    assert [from_json(kind)(value) for value in (low, high)] == [low, high]
    for value in (low - 1, high + 1):
        with pytest.raises(DecodeError) as error:
            from_json(kind)(value)
        assert error.value.code == "value_out_of_range"
    with pytest.raises(DecodeError) as error:
        from_json(kind)(True)
    assert error.value.code == "wrong_type"


@given(st.one_of(st.dates(), st.datetimes()))
@example(dt.datetime(1, 1, 1))
@example(dt.datetime(9999, 12, 31, 23, 59, 59, 999999))
@example(dt.datetime(2024, 1, 1, 0, 0, 0, 120000))
def test_iso_text_is_that_of_isoformat(value: dt.date) -> None:
    assert iso_text(value) == value.isoformat()
