# SPDX-License-Identifier: Apache-2.0
"""Every form in which Debezium's modes write a value, of tables that the user declares."""

import datetime as dt
import decimal
import json

import pytest

from changelane import DecodeError, Message, get_codec
from changelane.event import DataChange, Key, Op, Source
from changelane.schema import Column, TableId, TableSchema
from changelane.types import Bytes, Geometry, Integer, parse_instant

D = decimal.Decimal
POINT = bytes.fromhex("0101000000000000000000f03f0000000000000040")
WKB = "AQEAAAAAAAAAAADwPwAAAAAAAABA"


def read(kind, value, *, connector="postgresql", **options):
    codec = get_codec("debezium-json", schemas={"t": {"id": "int64 key", "a": kind}}, **options)
    source = {"version": "3.0.0.Final", "connector": connector, "name": "x", "db": "d"}
    source |= {"schema": "s", "table": "t"}
    row = {"id": 1, "a": value}
    for op, images in (("c", {"after": row}), ("u", {"before": row, "after": row})):
        message = json.dumps({"op": op, "source": source} | images).encode()
        (event,) = codec.decode(Message(message))
        assert event.key.columns == ("id",)
        assert str(event.schema.by_name["a"].type) == kind
    return event.after["a"]


# (type, JSON, value, options), each as a connector writes it in one of its modes
DAY = dt.date(2022, 1, 8)
MOMENT = dt.datetime(2023, 11, 14, 22, 13, 20, 123456)
MODES = [
    # decimal.handling.mode: precise, double, string
    ("decimal(10,2)", "MDk=", D("123.45"), {}),
    ("decimal(10,2)", 123.45, D("123.45"), {}),
    ("decimal(10,2)", 123, D("123.00"), {}),
    ("decimal(10,2)", "123.45", D("123.45"), {}),
    ("decimal(10,2)", "-0.10", D("-0.10"), {}),
    ("decimal(10,2)", "1234", D("1234"), {"decimal_format": "string"}),
    ("decimal(10,2)", "1234", D("1234.00"), {"decimal_format": "numeric"}),
    ("decimal(10,2)", 123.45, D("123.45"), {"decimal_format": "string"}),
    ("decimal(10,2)", {"scale": 2, "value": "MDk="}, D("123.45"), {}),
    ("decimal", {"scale": 2, "value": "MDk="}, D("123.45"), {}),
    ("decimal", "123.45", D("123.45"), {}),
    ("decimal", 123.45, D("123.45"), {}),
    ("decimal", 7, D(7), {}),
    (
        "decimal(38,0)",
        "99999999999999999999",
        D("99999999999999999999"),
        {"decimal_format": "string"},
    ),
    # numbers where text is declared, and text where numbers are
    ("string", 5, "5", {}),
    ("string", 5.25, "5.25", {}),
    ("string", True, "true", {}),
    ("text('inet')", 5, "5", {}),
    ("enum('a','b')", 1, "1", {}),
    ("int32", "5", 5, {}),
    ("int64", "-5", -5, {}),
    ("int16", 5.0, 5, {}),
    ("year", "2020", 2020, {}),
    ("float64", "5.5", 5.5, {}),
    ("float32", 5, 5.0, {}),
    ("boolean", 1, True, {}),
    ("boolean", "false", False, {}),
    # time.precision.mode: adaptive ones, connect, isostring, microseconds, nanoseconds
    ("date", 19000, DAY, {}),
    ("date", "2022-01-08Z", DAY, {}),
    ("date", "2022-01-08", DAY, {}),
    ("date", 19000, DAY, {"time_precision_mode": "connect"}),
    ("date", "2022-01-08Z", DAY, {"time_precision_mode": "isostring"}),
    ("timestamp(6)", 1_700_000_000_123_456, MOMENT, {}),
    ("timestamp(3)", 1_700_000_000_123, MOMENT.replace(microsecond=123_000), {}),
    ("timestamp(6)", "2023-11-14T22:13:20.123456Z", MOMENT, {}),
    ("timestamp(6)", "2023-11-14T22:13:20.123456Z", MOMENT, {"time_precision_mode": "isostring"}),
    (
        "timestamp(6)",
        1_700_000_000_123,
        MOMENT.replace(microsecond=123_000),
        {"time_precision_mode": "connect"},
    ),
    ("timestamp(3)", 1_700_000_000_123_456, MOMENT, {"time_precision_mode": "microseconds"}),
    ("timestamp(6)", 1_700_000_000_123_456_000, MOMENT, {"time_precision_mode": "nanoseconds"}),
    ("time(6)", 3_600_000_000, "01:00:00.000000", {}),
    ("time(3)", 3_600_000, "01:00:00.000", {}),
    (
        "time(3)",
        3_600_000_000,
        "01:00:00.000",
        {"time_precision_mode": "adaptive_time_microseconds"},
    ),
    ("time(6)", 3_600_000_000_000, "01:00:00.000000", {"time_precision_mode": "nanoseconds"}),
    ("time(6)", 3_600_000, "01:00:00.000", {"time_precision_mode": "connect"}),
    ("time(6)", "01:00:00.000000Z", "01:00:00.000000", {"time_precision_mode": "isostring"}),
    ("timetz", "10:00:00+08:00", "10:00:00+08:00", {}),
    # interval.handling.mode: numeric, string
    ("interval(us)", 3_600_000_000, dt.timedelta(hours=1), {}),
    ("interval(us)", "P0Y0M1DT1H0M0.5S", dt.timedelta(days=1, hours=1, microseconds=500_000), {}),
    ("interval", "P1Y2M3DT4H5M6.78S", "P1Y2M3DT4H5M6.78S", {}),
    ("interval", 3_661_500_000, "P0Y0M0DT1H1M1.5S", {}),
    # binary.handling.mode: bytes, base64, base64-url-safe, hex
    ("bytes", "AP/+", b"\x00\xff\xfe", {}),
    ("bytes", "AP_-", b"\x00\xff\xfe", {}),
    ("bytes", "AP_-", b"\x00\xff\xfe", {"binary_handling_mode": "base64-url-safe"}),
    ("bytes", "AP/+", b"\x00\xff\xfe", {"binary_handling_mode": "base64"}),
    ("bytes", "00fffe", b"\x00\xff\xfe", {"binary_handling_mode": "hex"}),
    # hstore.handling.mode: map, json
    ("map<string,string>", {"a": "1", "b": None}, [("a", "1"), ("b", None)], {}),
    ("map<string,string>", '{"a":"1","b":null}', [("a", "1"), ("b", None)], {}),
    ("json", '{"a":1}', '{"a":1}', {}),
    ("json", {"a": [1, 2.50]}, '{"a":[1,2.5]}', {}),
    # bigint.unsigned.handling.mode: long wraps, precise
    ("uint64", 5, 5, {"connector": "mysql"}),
    ("uint64", -1, 2**64 - 1, {"connector": "mysql"}),
    ("uint64", "AP//////////", 2**64 - 1, {"connector": "mysql"}),
    (
        "uint64",
        "18446744073709551615",
        2**64 - 1,
        {"connector": "mysql", "decimal_format": "string"},
    ),
    # what has one form
    ("bits(8)", "AQ==", "00000001", {}),
    ("bits(1)", True, "1", {}),
    ("geometry(point)", {"x": 1.0, "y": 2.0, "wkb": WKB, "srid": 4326}, Geometry(POINT, 4326), {}),
    ("geometry(geometry)", {"wkb": WKB, "srid": None}, Geometry(POINT), {}),
    ("array<int32>", [1, "2", None], [1, 2, None], {}),
    ("array<string>", [1, "2"], ["1", "2"], {}),
    ("array<decimal(5,2)>", ["1.25", 2], [D("1.25"), D("2.00")], {}),
]


@pytest.mark.parametrize(("kind", "told", "value", "options"), MODES, ids=str)
def test_a_declared_column_is_read_in_each_mode(kind, told, value, options):
    found = read(kind, told, **options)
    assert (found, type(found)) == (value, type(value))
    assert read(kind, None, **options) is None


def test_instants_keep_their_digits():
    text = "2023-11-14T22:13:20.120Z"
    assert read("instant(3)", text) == parse_instant(text)


@pytest.mark.parametrize(
    ("kind", "told", "options"),
    [
        ("decimal(10,2)", "123.456", {}),  # nothing is rounded
        ("decimal(10,2)", "12,3", {}),
        ("decimal(10,2)", "1e999999999", {}),
        ("decimal(10,2)", "MDk=", {"decimal_format": "string"}),
        ("decimal(10,2)", True, {}),
        ("string", ["x"], {}),
        ("string", {"a": 1}, {}),
        ("int32", "5.5", {}),
        ("int32", "2147483648", {}),
        ("int64", "9" * 5000, {}),
        ("uint64", 2**64, {"connector": "mysql"}),
        ("uint64", "//8=", {"connector": "mysql"}),
        ("boolean", 2, {}),
        ("date", "soon", {}),
        ("timestamp(6)", "2023-11-14", {}),
        ("instant(6)", 1_700_000_000_000, {}),
        ("time(6)", "1 o'clock", {}),
        ("interval(us)", "P1Y", {}),  # a year is no count
        ("bytes", "00fff", {}),
        ("bytes", "xyz", {"binary_handling_mode": "hex"}),
        ("map<string,string>", "[1]", {}),
        ("array<int32>", ["x"], {}),
    ],
    ids=str,
)
def test_what_no_mode_writes_is_refused_with_its_place(kind, told, options):
    with pytest.raises(DecodeError) as caught:
        read(kind, told, **options)
    assert caught.value.code == "wrong_type"
    assert caught.value.path.startswith("$.after.a")


def test_columns_that_are_not_declared_stay_what_they_are():
    codec = get_codec("debezium-json", schemas={"t": {"a": "string"}})
    source = {"connector": "mysql", "name": "x", "db": "d", "table": "t"}
    row = {"a": 5, "more": {"b": [1]}}
    message = json.dumps({"op": "c", "source": source, "after": row}).encode()
    (event,) = codec.decode(Message(message))
    assert event.after == {"a": "5", "more": {"b": [1]}}


@pytest.mark.parametrize("mode", ["bytes", "base64", "base64-url-safe", "hex"])
def test_bytes_are_written_in_the_mode_that_reads_them(mode):
    options = {"binary_handling_mode": mode, "schemas_enable": False}
    schema = TableSchema((Column("id", Integer(64)), Column("a", Bytes())))
    row = {"id": 1, "a": b"\x00\xff\xfe"}
    table = TableId("d", "s", "t")
    event = DataChange(
        Op.CREATE, table, Key(("id",)), after=row, schema=schema, source=Source("postgresql")
    )
    encoded = get_codec("debezium-json", **options).encode(event, on_loss="ignore")
    declared = get_codec("debezium-json", schemas={"t": {"id": "int64", "a": "bytes"}}, **options)
    (found,) = declared.decode(encoded.messages[0])
    assert found.after == row


def of_block(field, value):
    """A message whose own schema block tells of a column."""
    row = {"type": "struct", "fields": [field | {"field": "a", "optional": True}]}
    text = {"type": "string", "optional": True}
    names = ("version", "connector", "name", "db", "schema", "table")
    source = {"type": "struct", "fields": [text | {"field": name} for name in names]}
    fields = [row | {"optional": True, "field": "after"}, source | {"field": "source"}]
    payload = {
        "op": "c",
        "after": {"a": value},
        "source": dict(zip(names, ("3", "postgresql", "x", "d", "s", "t"), strict=True)),
    }
    block = {"type": "struct", "fields": [*fields, text | {"field": "op"}]}
    return json.dumps({"schema": block, "payload": payload}).encode()


TIME = "io.debezium.time."
CONNECT = "org.apache.kafka.connect.data."


@pytest.mark.parametrize(
    ("literal", "name", "told", "value"),
    [
        ("string", None, "123.45", "123.45"),
        ("double", None, 123.45, 123.45),
        ("int32", f"{CONNECT}Date", 19000, DAY),
        ("int64", f"{CONNECT}Timestamp", 1_700_000_000_123, MOMENT.replace(microsecond=123_000)),
        ("int32", f"{CONNECT}Time", 3_600_000, "01:00:00.000"),
        ("string", f"{TIME}IsoDate", "2022-01-08Z", DAY),
        ("string", f"{TIME}IsoTime", "01:00:00Z", "01:00:00"),
        ("string", f"{TIME}IsoTimestamp", "2023-11-14T22:13:20.123456Z", MOMENT),
        ("int64", f"{TIME}MicroTime", 3_600_000_000, "01:00:00.000000"),
        ("int64", f"{TIME}NanoTime", 3_600_000_000_000, "01:00:00.000000000"),
        ("int64", f"{TIME}MicroDuration", 3_600_000_000, dt.timedelta(hours=1)),
        ("string", f"{TIME}Interval", "P1Y", "P1Y"),
        ("string", "io.debezium.data.Json", '{"a":"1"}', '{"a":"1"}'),
        ("bytes", None, "AP/+", b"\x00\xff\xfe"),
    ],
    ids=str,
)
def test_a_schema_block_tells_the_mode_itself(literal, name, told, value):
    field = {"type": literal} | ({} if name is None else {"name": name, "version": 1})
    (event,) = get_codec("debezium-json").decode(Message(of_block(field, told)))
    assert event.after["a"] == value
