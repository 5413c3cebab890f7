# SPDX-License-Identifier: Apache-2.0
"""The short way of writing an image writes what the general one writes, or leaves it to that."""

import datetime as dt
import decimal
import math
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from changelane import get_codec
from changelane.errors import DecodeError
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableSchema
from changelane.testing.conformance import EFFORT
from changelane.testing.event_strategies import data_changes
from changelane.types import UNAVAILABLE, LogicalType, parse_type

fidelity = pytest.importorskip("changelane.spark.rows.json_values", exc_type=ImportError)

MOST = get_codec("native-json").carries
KINDS = [
    parse_type(text)
    for text in (
        "boolean int8 int32 int64 uint32 uint64 year decimal(5,2) decimal(38,6) decimal(9,7)"
        " decimal(*,2) decimal(3,-2) decimal float32 float64 bytes string json uuid enum('a','b')"
        " set('a','b') bits(4) date time(6) timetz timestamp(3) timestamp(6) timestamp(9)"
        " instant(6) interval(us) interval(ns) interval geometry(point)"
        " array<date> array<float64> unknown"
    ).split()
]
number = st.decimals(allow_nan=True) | st.decimals("-1000", "1000", places=2)
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.just(UNAVAILABLE),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.integers(-200, 200),
    number,
    st.sampled_from(
        [decimal.Decimal(text) for text in ("0.00", "-0.00", "1E+2", "999.99", "1000")]
    ),
    st.floats(),
    st.sampled_from([math.nan, math.inf, -0.0, 3.5e38, 5e-324]),
    st.text(max_size=3),
    st.sampled_from(["infinity", "\ud800", "2024-02-30", "-0044-03-15", "10:00:00"]),
    st.binary(max_size=3),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.just(dt.UTC)),
    st.timedeltas(),
    st.lists(st.dates() | st.none() | st.floats(), max_size=2),
)


def outcome(write: Any, image: Any) -> Any:
    """Return what was written, or the error without its traceback."""
    try:
        return write(image)
    except DecodeError as error:
        return error.code, error.reason, error.path
    except (AttributeError, TypeError, ValueError) as error:  # no reader makes such a value
        return type(error)


def both(kinds: dict[str, LogicalType], image: Any) -> tuple[Any, Any]:
    schema = TableSchema(tuple(Column(name, kind) for name, kind in kinds.items()))
    short, general = fidelity.RowWriter(schema), fidelity.RowWriter(schema)
    general._usual = None
    return outcome(short.write, image), outcome(general.write, image)


@settings(max_examples=500 * EFFORT, phases=[Phase.explicit, Phase.generate])
@given(st.sampled_from(KINDS), VALUES)
@example(parse_type("timestamp(6)"), dt.datetime(1, 1, 1))
@example(parse_type("date"), dt.datetime(2024, 1, 1))
@example(parse_type("float64"), 1 << 1100)
def test_any_value_of_any_type_is_written_alike_both_ways(kind: LogicalType, value: Any) -> None:
    one, other = both({"a": kind}, {"a": value})
    assert one == other


@given(data_changes(MOST))
def test_images_are_written_alike_both_ways(event: Any) -> None:
    if event.schema is None:
        return
    kinds = {column.name: column.type for column in event.schema.columns}
    for image in (event.before, event.after):
        if image is not None:
            one, other = both(kinds, image)
            assert one == other


@pytest.mark.parametrize("image", [{}, {"a": 1}, {"a": 1, "b": 2, "c": 3}, {"b": 2, "a": 1}])
def test_columns_that_lack_or_are_too_many_are_told_alike_both_ways(image: Any) -> None:
    one, other = both({"a": parse_type("int32"), "b": parse_type("int32")}, image)
    assert one == other


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("int32", 5),
        ("decimal(9,2)", decimal.Decimal("-0.05")),
        ("date", dt.date(2024, 2, 29)),
        ("timestamp(6)", dt.datetime(2024, 2, 29, 1, 2, 3)),
        ("float64", 0.1),
        ("float32", -3.4028235e38),
        ("bytes", b"\x00\xff"),
        ("string", 'a"b'),
        ("boolean", None),
    ],
)
def test_a_usual_value_takes_the_short_way(text: str, value: Any) -> None:
    writer = fidelity.RowWriter(TableSchema((Column("a", parse_type(text)),)))
    assert writer._write_usual({"a": value}, writer._usual) is not None


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [("bits(10)", "101", "0000000101"), ("bits(10)", "", "0000000000"), ("bits", "101", "101")],
)
def test_bits_have_the_zeros_of_their_length(text: str, value: str, expected: str) -> None:
    one, other = both({"a": parse_type(text)}, {"a": value})
    assert one == other
    assert f'"a":"{expected}"' in str(one)


def test_a_number_beyond_the_greatest_float_is_out_of_range() -> None:
    one, other = both({"a": parse_type("float32")}, {"a": 3.4028236e38})
    assert one == other
    assert one[0] == ReasonCode.VALUE_OUT_OF_RANGE
