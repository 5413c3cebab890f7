# SPDX-License-Identifier: Apache-2.0
"""Numbers of columns without types are equal in lanes and on the event path."""

import decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from changelane.formats.contract.column_values import read_fraction, whole_unless_fraction

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
