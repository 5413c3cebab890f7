# SPDX-License-Identifier: Apache-2.0
"""The placeholder of unavailable values, in the JSON of a row."""

from typing import Any

import pytest

from changelane.formats.debezium_envelope.rows.placeholders import Placeholder

TEXT = "__debezium_unavailable_value"
PLACEHOLDER = Placeholder(TEXT)


@pytest.mark.parametrize("form", PLACEHOLDER.forms.values(), ids=str)
def test_each_form_is_found_beside_other_values(form: Any) -> None:
    for other in (None, 1, "a", ["a"], {"scale": 2, "value": "AA=="}):
        assert PLACEHOLDER.may_be_in({"id": other, "note": form})


@pytest.mark.parametrize(
    "value",
    [
        None, 1, 1.5, True, "a", TEXT[1:],
        [], ["a"], [None, 1], [TEXT, TEXT], {}, {"scale": 2, "value": "AA=="}, {TEXT: "a"},
    ],
    ids=str,
)  # fmt: skip
def test_other_values_are_no_form(value: Any) -> None:
    """A decimal without precision is an object, and may not keep a row from its lane."""
    assert not PLACEHOLDER.may_be_in({"id": 1, "note": value, "more": ["a"]})
