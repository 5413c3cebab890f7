# SPDX-License-Identifier: Apache-2.0
"""The forms of types that a format lacks."""

import datetime as dt
import decimal

import pytest

from changelane.errors import ConfigError
from changelane.types import Bits, Instant, InstantType, Integer, Json, Set, Timestamp
from changelane.types.forms import written_form

MOMENT = dt.datetime(2024, 5, 24, 15, 58, 48, 120000)
NOON_UTC = Instant.of(dt.datetime(2024, 5, 24, 12, tzinfo=dt.UTC), 3)


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


@pytest.mark.parametrize(
    ("kind", "form", "value", "written"),
    [
        (Bits(4), "bit_number", "0101", 5),
        (Bits(64), "bit_number", "1" * 64, 2**64 - 1),
        (Bits(), "bit_number", "00101", "00101"),
        (Set(), "labels", "b,c", ["b", "c"]),
        (Set(), "labels", "", []),
        (Timestamp(), "sql", MOMENT, "2024-05-24 15:58:48.12"),
        (Timestamp(6), "sql", MOMENT, "2024-05-24 15:58:48.120000"),
        (Timestamp(0), "sql", MOMENT, "2024-05-24 15:58:48.12"),
        (Timestamp(0), "sql", MOMENT.replace(microsecond=0), "2024-05-24 15:58:48"),
        (Timestamp(9), "sql", "2024-02-29T23:59:58.123456789", "2024-02-29 23:59:58.123456789"),
        (Timestamp(0), "sql", "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
        (Timestamp(0), "sql", "infinity", "infinity"),
        (InstantType(), "sql", NOON_UTC, "2024-05-24 12:00:00.000"),
        (InstantType(0), "sql@+08:00", NOON_UTC, "2024-05-24 20:00:00"),
        (InstantType(0), "sql", "2024-02-29T23:59:58+05:30", "2024-02-29T23:59:58+05:30"),
    ],
)
def test_a_form_depends_on_the_type(kind, form, value, written):
    _, write = written_form(kind, form)
    assert (type(write(value)), write(value)) == (type(written), written)


def test_the_second_pass_of_a_repeated_hour_is_written_with_its_offset():
    _, write = written_form(InstantType(0), "sql@Europe/Berlin")
    first = dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC)
    second = first + dt.timedelta(hours=1)
    assert write(first) == "2024-10-27 02:30:00"
    assert write(second) == "2024-10-27T01:30:00.000000Z"
    with pytest.raises(ConfigError):
        written_form(InstantType(0), "sql@Nowhere/Land")


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ('{"a":[1,null,18446744073709551615]}', {"a": [1, None, 2**64 - 1]}),
        ('{"a": 1.0}', {"a": decimal.Decimal("1.0")}),
        ("5", 5),
        ('"x"', "x"),
    ],
)
def test_json_text_is_written_as_a_document(text, document):
    _, write = written_form(Json(), "document")
    assert repr(write(text)) == repr(document)


@pytest.mark.parametrize(
    "text",
    [
        "null",  # would be read as NULL
        '{"a":1,"a":2}',
        "[" * 201 + "]" * 201,
        "[" * 100_000,
        "NaN",
        '"\\ud800"',
        "no JSON",
        "",
    ],
)
def test_text_that_no_document_can_replace_stays_text(text):
    _, write = written_form(Json(), "document")
    assert write(text) == text
