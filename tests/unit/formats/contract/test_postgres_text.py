# SPDX-License-Identifier: Apache-2.0
"""Values in PostgreSQL's text form: what its output functions write, and nothing else."""

import datetime as dt
import decimal
import math

import pytest

from changelane import DecodeError
from changelane.formats.contract.postgres_arrays import parse_array
from changelane.formats.contract.postgres_intervals import interval_text, iso_interval
from changelane.formats.contract.postgres_log import lsn_text, parse_lsn, parse_time, time_text
from changelane.formats.contract.postgres_text import logical_type, reader, type_text, writer
from changelane.types import Array, Date, Decimal, Instant, Integer, Text

UTC = dt.UTC
VALUES = [
    ("boolean", "t", True),
    ("smallint", "-32768", -32768),
    ("oid", "4294967295", 4294967295),
    ("numeric", "-0.00", decimal.Decimal("-0.00")),
    ("numeric(10,2)", "Infinity", decimal.Decimal("Infinity")),
    ("double precision", "1e-310", 1e-310),
    ("real", "-Infinity", -math.inf),
    ("bytea", r"\x00ff", b"\x00\xff"),
    ("bytea", r"\x", b""),
    ("date", "2024-02-29", dt.date(2024, 2, 29)),
    ("date", "0044-03-15 BC", "-0043-03-15"),
    ("date", "0001-01-01 BC", "0000-01-01"),
    ("date", "12345-01-01", "+12345-01-01"),
    ("date", "-infinity", "-infinity"),
    ("time without time zone", "24:00:00", "24:00:00"),
    ("time with time zone", "12:34:56.5+02", "12:34:56.5+02:00"),
    ("time with time zone", "12:34:56-09:30", "12:34:56-09:30"),
    ("time with time zone", "12:34:56+00", "12:34:56Z"),
    (
        "timestamp without time zone",
        "2024-01-02 03:04:05.1",
        dt.datetime(2024, 1, 2, 3, 4, 5, 100000),
    ),
    ("timestamp without time zone", "0044-03-15 01:02:03 BC", "-0043-03-15T01:02:03"),
    ("timestamp without time zone", "294276-12-31 23:59:59", "+294276-12-31T23:59:59"),
    (
        "timestamp with time zone",
        "2024-01-02 03:04:05+00",
        Instant(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
    ),
    ("timestamp with time zone", "1883-11-18 12:03:57-04:56:02", "1883-11-18T12:03:57-04:56:02"),
    ("timestamp with time zone", "0044-03-15 01:02:03+00 BC", "-0043-03-15T01:02:03Z"),
    ("interval", "-1 years -2 mons +3 days -04:05:06.7", "P-1Y-2M3DT-4H-5M-6.7S"),
    ("interval", "00:00:00", "P0D"),
    ("interval", "1 mon", "P1M"),
    ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("bit varying(7)", "", ""),
    ("integer[]", "{{1,NULL},{3,4}}", [[1, None], [3, 4]]),
    ("text[]", r'{"a b",NULL,"q\"x\\","","NULL",x}', ["a b", None, 'q"x\\', "", "NULL", "x"]),
    ("bytea[]", r'{"\\x00ff"}', [b"\x00\xff"]),
    ("boolean[]", "{t,f}", [True, False]),
    ("date[]", "{}", []),
]


@pytest.mark.parametrize(("name", "text", "value"), VALUES)
def test_a_text_is_read_and_written_again(name, text, value):
    kind = logical_type(name)
    found = reader(kind)(text)
    assert type(found) is type(value)
    assert found == value
    assert writer(kind)(found) == text


def is_rejected(read, text):
    try:
        read(text)
    except ValueError:
        return True
    return False


def test_nan_is_read():
    assert math.isnan(reader(logical_type("real"))("NaN"))
    assert reader(logical_type("numeric"))("NaN").is_nan()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("boolean", "true"),
        ("integer", "2147483648"),
        ("integer", "1_0"),
        ("integer", " 1"),
        ("integer", "\u0661"),
        ("numeric", "1,5"),
        ("numeric", "sNaN"),
        ("double precision", "1e999"),
        ("double precision", "inf"),
        ("bytea", r"\000"),
        ("bytea", r"\x0"),
        ("bytea", r"\x00 ff"),
        ("date", "02-04-2013"),
        ("date", "2024-02-30"),
        ("date", "2024-02-29 01:02:03"),
        ("time without time zone", "25:00:00"),
        ("time with time zone", "12:34:56"),
        ("timestamp without time zone", "2024-01-02 03:04:05+00"),
        ("timestamp without time zone", "2024-01-02"),
        ("timestamp with time zone", "2024-01-02 03:04:05"),
        ("timestamp with time zone", "2024-01-02 03:04:05 CET"),
        ("interval", "@ 1 year"),
        ("interval", "P1Y"),
        ("interval", ""),
        ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"),
        ("bit(3)", "102"),
        ("integer[]", "{1,x}"),
    ],
)
def test_another_text_is_an_error(name, text):
    with pytest.raises(DecodeError):
        reader(logical_type(name))(text)


@pytest.mark.parametrize(
    "text",
    ["", "{", "}", "{1", "1}", "{1}}", "{{1}", "{1}x", "{1,}", "{,1}", "{1}{2}", "[1:2]", '{"a}'],
)
def test_a_malformed_array_is_no_array(text):
    assert parse_array(text, None) is None


def test_the_bounds_of_an_array_are_skipped():
    assert parse_array("[0:1][5:6]={{1,2},{3,4}}", int) == [[1, 2], [3, 4]]


def test_the_names_of_months_are_read_and_numbers_need_their_order():
    read = reader(logical_type("timestamp without time zone"))
    assert read("Sun Apr 26 16:23:59.5 2020") == dt.datetime(2020, 4, 26, 16, 23, 59, 500000)
    assert read("Sun 26 Apr 16:23:59 2020") == dt.datetime(2020, 4, 26, 16, 23, 59)
    assert reader(Date(), "mdy")("02-04-2013") == dt.date(2013, 2, 4)
    assert reader(Date(), "dmy")("02-04-2013") == dt.date(2013, 4, 2)
    assert reader(Array(Date()), "dmy")("{02-04-2013,infinity}") == [
        dt.date(2013, 4, 2),
        "infinity",
    ]
    with pytest.raises(DecodeError):
        reader(Date(), "mdy")("26-04-2013")


def test_types_have_a_text_of_postgresql():
    assert type_text(Integer(8, unsigned=True)) == "smallint"
    assert type_text(Integer(32, unsigned=True)) == "bigint"
    assert type_text(Integer(64, unsigned=True)) is None
    assert type_text(Decimal(10, 2)) == "numeric(10,2)"
    assert type_text(Array(Decimal())) == "numeric[]"
    assert type_text(Text("mood")) == "mood"
    assert type_text(Text("integer")) is None
    assert logical_type("point[]") == Array(Text("point"))


def test_intervals_keep_their_parts():
    assert interval_text("P14MT90M") == "1 year 2 mons 01:30:00"
    assert interval_text("PT-0.5S") == "-00:00:00.5"
    assert interval_text("P-1DT2H") == "-1 days +02:00:00"
    assert iso_interval("1 day") == "P1D"
    for text in ("P", "PT", "P1W", "1 day"):
        assert is_rejected(interval_text, text)


def test_lsns_and_times_come_back():
    assert lsn_text(parse_lsn("16/B374D848")) == "16/B374D848"
    for text in ("", "1", "1/", "100000000/0", "-1/0"):
        assert is_rejected(parse_lsn, text)
    assert time_text(parse_time("2018-03-27 11:58:28.988414-03")) == "2018-03-27 14:58:28.988414+00"
    assert parse_time("2018-03-27 11:58:28+00") == parse_time("2018-03-27 17:28:28+05:30")
    for text in ("", "2018-03-27 11:58:28", "2018-13-27 11:58:28+00", "2018-03-27T11:58:28+00"):
        assert is_rejected(parse_time, text)
