# SPDX-License-Identifier: Apache-2.0
"""The JSON form of values holds what its type can hold, and nothing else."""

import datetime as dt
import decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from changelane.errors import DecodeError
from changelane.types import Integer
from changelane.types.values import from_json, iso_text, written_form


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


@pytest.mark.parametrize(
    ("form", "value", "written"),
    [
        ("hex", b"\x00\xff", "00FF"),
        ("nanoseconds", dt.date(2024, 5, 24), "2024-05-24T00:00:00.000000000"),
        (
            "nanoseconds",
            dt.datetime(2024, 5, 24, 15, 58, 48, 5),
            "2024-05-24T15:58:48.000005000",
        ),
        ("nanoseconds", "infinity", "infinity"),
        ("number", decimal.Decimal(-5), -5),
        ("number", decimal.Decimal("5.0"), decimal.Decimal("5.0")),
        ("number", decimal.Decimal("1E+999999"), decimal.Decimal("1E+999999")),
        ("number", 0.1, decimal.Decimal("0.1")),
        ("number", float("-inf"), "-Infinity"),
        ("number", decimal.Decimal("NaN"), "NaN"),
        (None, 7, "7"),
    ],
)
def test_a_form_writes_values_of_types_that_a_format_lacks(form, value, written):
    _, write = written_form(Integer(), form)
    assert (type(write(value)), write(value)) == (type(written), written)


@given(st.one_of(st.dates(), st.datetimes()))
@example(dt.datetime(1, 1, 1))
@example(dt.datetime(9999, 12, 31, 23, 59, 59, 999999))
@example(dt.datetime(2024, 1, 1, 0, 0, 0, 120000))
def test_iso_text_is_that_of_isoformat(value: dt.date) -> None:
    assert iso_text(value) == value.isoformat()
