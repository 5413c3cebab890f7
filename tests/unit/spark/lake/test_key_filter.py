"""The conditions that the keys of a batch imply."""

import datetime as dt
import decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane.apply import key_bytes
from changelane.spark.lake import key_filter as module
from changelane.spark.lake.key_filter import MAX_KEYS, MAX_PRUNED, key_filter

D = decimal.Decimal


def condition(columns: dict[str, str], *keys: tuple[Any, ...]) -> str | None:
    texts = [key_bytes(dict(zip(columns, key, strict=True))).decode() for key in keys]
    result = key_filter(texts, columns, tuple(columns))
    return None if result is None else result.sql("t")


@pytest.mark.parametrize(
    ("kind", "value", "literal"),
    [
        ("bigint", 7, "7L"),
        ("int", -7, "-7"),
        ("smallint", 7, "7S"),
        ("tinyint", 7, "7Y"),
        ("BIGINT", 2**63 - 1, "9223372036854775807L"),
        ("string", "a'b\\", "'a\\'b\\\\'"),
        ("date", dt.date(2020, 1, 2), "DATE '2020-01-02'"),
        ("decimal(20,0)", 2**64 - 1, "CAST('18446744073709551615' AS decimal(20,0))"),
        ("decimal(5,2)", D("1.50"), "CAST('1.5' AS decimal(5,2))"),
        ("decimal(5,2)", D("1E+2"), "CAST('100' AS decimal(5,2))"),
    ],
)
def test_values_become_literals(kind: str, value: Any, literal: str) -> None:
    assert condition({"a`b": kind}, (value,)) == f"t.`a``b` IN ({literal})"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bigint", 2**63),
        ("bigint", -(2**63)),  # its literal is the negation of a number that does not exist
        ("int", 2**31),
        ("int", D("1.5")),
        ("bigint", "7"),
        ("bigint", True),
        ("string", 7),
        ("string", "a\u0000"),
        ("string", "a\nb"),
        ("string", "\ud800"),
        ("date", dt.datetime(2020, 1, 2)),
        ("decimal(5,2)", D("1.234")),
        ("decimal(5,2)", D(1000)),
        ("decimal(5,2)", D("1E+999999999")),
        ("decimal(5,2)", D("1E-999999999")),
        ("decimal(5,2)", D("NaN")),
        ("decimal(5,2)", D("Infinity")),
        ("double", 0.0),
        ("float", 1.5),
        ("binary", b"a"),
        ("boolean", True),
        ("timestamp", dt.datetime(2020, 1, 2, tzinfo=dt.UTC)),
    ],
)
def test_other_values_have_no_condition(kind: str, value: Any) -> None:
    assert condition({"a": kind}, (value,)) is None
    # nor has a column with one such value, whatever the others are
    assert condition({"a": kind, "b": "int"}, (value, 1), (None, 1)) == "t.`b` IN (1)"


def test_nan_beside_numbers_has_no_condition() -> None:
    """NaN has no place in the order of numbers."""
    assert condition({"a": "decimal(5,2)"}, (D(1),), (D("NaN"),), (D(2),)) is None


def test_whole_numbers_beside_decimals_have_a_range() -> None:
    """A column of whole numbers became one of decimals, and the batch has events of both."""
    keys = [(value,) for value in range(MAX_PRUNED)] + [(D("300.5"),)]
    text = condition({"a": "decimal(5,2)"}, *keys)
    assert text is not None
    assert text.startswith(
        "(t.`a` >= CAST('0' AS decimal(5,2)) AND t.`a` <= CAST('300.5' AS decimal(5,2)) AND "
    )


def test_null_is_a_value_of_a_key() -> None:
    columns = {"a": "int", "b": "string"}
    assert condition(columns, (1, "x"), (None, "x")) == (
        "(t.`a` IN (1) OR t.`a` IS NULL) AND t.`b` IN ('x')"
    )
    assert condition(columns, (None, None)) == "t.`a` IS NULL AND t.`b` IS NULL"


def test_many_values_have_a_range() -> None:
    values = range(10, 10 + MAX_PRUNED)
    listed = f"t.`a` IN ({', '.join(map(str, values))})"
    assert condition({"a": "int"}, *((value,) for value in values)) == listed
    text = condition({"a": "int"}, *((value,) for value in range(10, 11 + MAX_PRUNED)))
    assert text is not None
    assert text.startswith("(t.`a` >= 0 AND t.`a` <= 256 AND t.`a` IN (10, ")


@given(st.lists(st.integers(-128, 127) | st.integers(-(2**62), 2**62), min_size=1))
def test_a_range_includes_all_values(values: list[int]) -> None:
    lower, upper = module._bounds(sorted(values))
    assert lower <= min(values) <= max(values) <= upper
    assert upper - lower <= 4 * max(max(values) - min(values), 1)


def test_a_range_at_the_end_of_a_type_is_exact() -> None:
    """The rounded bound would not be a number of the type."""
    least, largest = -127, 127
    text = condition({"a": "tinyint"}, *((value,) for value in range(least, largest + 1)))
    assert text is not None
    assert text.startswith(f"(t.`a` >= {least}Y AND t.`a` <= {largest}Y AND ")


def test_unknown_and_many_keys_have_no_condition() -> None:
    columns = {"a": "int"}
    assert key_filter(None, columns, ["a"]) is None
    assert key_filter([], columns, ["a"]) is None
    assert key_filter(["[1]"], {}, []) is None
    assert condition(columns, *((n,) for n in range(MAX_KEYS))) is not None
    assert condition(columns, *((n,) for n in range(MAX_KEYS + 1))) is None
    assert condition({"a": "string"}, *((f"{n:01000}",) for n in range(1001))) is None


def test_keys_of_another_key_have_no_condition() -> None:
    """The table has a key of two columns; an event of an older schema has one."""
    assert key_filter(["[1]", "[1,2]"], {"a": "int", "b": "int"}, ["a", "b"]) is None
