# SPDX-License-Identifier: Apache-2.0
"""The JSON form of values holds what its type can hold, and nothing else."""

import pytest

from changelane.errors import DecodeError
from changelane.types import Integer
from changelane.values import from_json


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
