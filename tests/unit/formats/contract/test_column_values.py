# SPDX-License-Identifier: Apache-2.0
"""Numbers of columns without types are equal in lanes and on the event path; texts of instants."""

import datetime as dt
import decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from changelane.formats.contract.column_values import (
    read_fraction,
    reader,
    whole_unless_fraction,
)
from changelane.types import InstantType

NUMBERS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,120})(\.[0-9]{1,60}|(\.[0-9]{1,9})?[eE][+-]?[0-9]{1,4})", fullmatch=True
)


@given(NUMBERS)
@example("1.2345E18")
@example("12.5e1")
@example("1.25e1")
@example("0E5")
@example("0.0E1")
@example("1E-2000000")
def test_a_number_is_not_plain_or_that_of_the_event_path(text: str) -> None:
    number = whole_unless_fraction(decimal.Decimal(text))
    try:
        plain_number = read_fraction(text)
    except decimal.DecimalException:
        return
    assert (type(plain_number), str(plain_number)) == (type(number), str(number))


@pytest.mark.parametrize("text", ["1.5", "-0.0", "12.50", "1E-7", "0.000000000000000000000001"])
def test_usual_numbers_are_plain(text: str) -> None:
    assert str(read_fraction(text)) == str(decimal.Decimal(text))


@pytest.mark.parametrize("offset", ["Z", "+00", "-00", "+02", "+0200", "+02:00", "-0330"])
@pytest.mark.parametrize("fraction", ["", ".5", ".123456"])
def test_an_instant_may_have_the_offset_of_postgresql(offset: str, fraction: str) -> None:
    text = f"2024-02-29 12:00:00{fraction}{offset}"
    value = reader(InstantType(6))(text)
    assert isinstance(value, dt.datetime)
    assert value == dt.datetime.fromisoformat(text)


def test_an_offset_beyond_python_keeps_its_text() -> None:
    read = reader(InstantType(6))
    assert read("2024-02-29T12:00:00+99") == "2024-02-29T12:00:00+99:00"
    assert read("10000-01-01 00:00:00.5-03") == "10000-01-01T00:00:00.5-03:00"
