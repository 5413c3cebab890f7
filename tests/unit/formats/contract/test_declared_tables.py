# SPDX-License-Identifier: Apache-2.0
"""The option `schemas`: declared columns, and JSON values that are read as their types."""

import datetime as dt
import decimal
import math

import pytest

from changelane import ConfigError, DecodeError
from changelane.event import Key, KeyOrigin
from changelane.formats.contract.column_values import reader
from changelane.formats.contract.declared_tables import DeclaredTables
from changelane.schema import Column, TableId
from changelane.types import UNKNOWN, Decimal, Integer, parse_instant, parse_type

D = decimal.Decimal


def read(kind, value, **options):
    return reader(parse_type(kind), **options)(value)


def code(kind, value, **options):
    with pytest.raises(DecodeError) as caught:
        read(kind, value, **options)
    return caught.value.code


@pytest.mark.parametrize(
    ("kind", "value", "want"),
    [
        ("boolean", True, True),
        ("boolean", 0, False),
        ("boolean", "TRUE", True),
        ("boolean", "0", False),
        ("int8", -128, -128),
        ("uint64", 2**64 - 1, 2**64 - 1),
        ("int32", "42", 42),
        ("int64", D("1.2345E18"), 1234500000000000000),
        ("int32", D("5.0"), 5),
        ("year", "2024", 2024),
        ("decimal(10,2)", 7, D(7)),
        ("decimal(10,2)", D("1.50"), D("1.50")),
        ("decimal(10,2)", "1.50", D("1.50")),
        ("float64", 1, 1.0),
        ("float64", D("0.1"), 0.1),
        ("float64", "1e3", 1000.0),
        ("float64", "-Infinity", -math.inf),
        ("string", "", ""),
        ("json", '{"a":1}', '{"a":1}'),
        ("json", {"a": [D("1.50"), None]}, '{"a":[1.50,null]}'),
        ("json", False, "false"),
        ("bytes", "00ff", b"\x00\xff"),
        ("bytes", "0x00FF", b"\x00\xff"),
        ("bytes", "", b""),
        ("bits(4)", "0101", "0101"),
        ("date", "2024-02-29", dt.date(2024, 2, 29)),
        ("date", "0000-00-00", "0000-00-00"),
        ("date", "-infinity", "-infinity"),
        ("time(6)", "838:59:59", "838:59:59"),
        ("timetz(6)", "10:00:00.5+05:30", "10:00:00.5+05:30"),
        ("timestamp(6)", "2024-02-29 01:02:03.5", dt.datetime(2024, 2, 29, 1, 2, 3, 500_000)),
        ("timestamp(6)", "2024-02-29T01:02:03Z", dt.datetime(2024, 2, 29, 1, 2, 3)),
        ("timestamp(9)", "2024-02-29 01:02:03.123456789", "2024-02-29T01:02:03.123456789"),
        ("instant(6)", "2024-02-29 01:02:03Z", parse_instant("2024-02-29T01:02:03Z")),
        ("instant(9)", "2024-02-29T01:02:03.123456789Z", "2024-02-29T01:02:03.123456789Z"),
        ("instant(6)", "infinity", "infinity"),
        ("unknown", D("2E1"), 20),
        ("unknown", D("1E400"), D("1E400")),
        ("unknown", [1], [1]),
    ],
)
def test_a_value_is_read_as_its_type(kind, value, want):
    got = read(kind, value)
    assert (got, type(got)) == (want, type(want))


def test_nan_is_a_number():
    assert math.isnan(read("float64", "NaN"))
    assert read("decimal", "NaN").is_nan()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("boolean", 2),
        ("boolean", "yes"),
        ("boolean", [True]),
        ("int32", "1.5"),
        ("int32", D("1.5")),
        ("int32", True),
        ("int32", "1_0"),
        ("int32", "\u0661"),
        ("int64", D("1E999999999")),
        ("int64", "1e999999999"),
        ("decimal", "1,5"),
        ("decimal", True),
        ("float64", "inf"),
        ("string", 5),
        ("bytes", "0xF"),
        ("bytes", "ff 00"),
        ("bits(4)", "0121"),
        ("date", "29.02.2024"),
        ("date", "2024-02-29T00:00:00"),
        ("time", "25"),
        ("timetz", "10:00:00"),
        ("timestamp", "2024-02-29"),
        ("timestamp", "2024-02-29T01:02:03+05:30"),
        ("instant", "2024-02-29T01:02:03"),
        ("instant", "yesterday"),
    ],
)
def test_a_value_of_another_type_is_refused(kind, value):
    assert code(kind, value) == "wrong_type"


@pytest.mark.parametrize(
    ("kind", "value"), [("int8", 128), ("uint8", -1), ("year", 10_000), ("float64", "1e999")]
)
def test_a_value_out_of_range_is_refused(kind, value):
    assert code(kind, value) == "value_out_of_range"


def test_bytes_may_be_base64():
    assert read("bytes", "AP8=", binary="base64") == b"\x00\xff"
    assert read("bytes", "", binary="base64") == b""
    assert code("bytes", "AP8", binary="base64") == "wrong_type"


def test_a_table_is_declared_in_full_or_by_its_last_parts():
    tables = DeclaredTables({"shop.t": {"a": "int32 key", "b": "string lob"}, "u": {}})
    declared = tables.find(TableId(schema="shop", name="t"))
    assert declared.key == Key(("a",), KeyOrigin.CONFIG)
    assert declared.lobs == {"b"}
    assert declared.schema.columns[0] == Column("a", Integer(32), nullable=False)
    assert tables.find(TableId(name="t")) is None
    assert tables.find(TableId("db", "x", "u")).key is None
    assert tables.keys == {"shop.t": ("a",)}
    assert DeclaredTables({}).find(TableId(name="t")) is None


def test_marks_may_follow_a_type_in_any_order():
    declared = DeclaredTables({"t": {"a": "decimal(10, 2)  lob key "}}).find(TableId(name="t"))
    assert declared.schema.columns[0].type == Decimal(10, 2)
    assert (declared.key.columns, declared.lobs) == (("a",), {"a"})


def test_an_image_is_typed_and_an_error_names_the_column():
    declared = DeclaredTables({"t": {"a": "int8"}}).find(TableId(name="t"))
    assert declared.typed({"a": None, "x": D("1E2")}, "$") == {"a": None, "x": 100}
    with pytest.raises(DecodeError) as caught:
        declared.typed({"a": 1000}, "$.data")
    assert caught.value.path == "$.data.a"
    assert "1000" not in str(caught.value)


def test_other_columns_extend_the_schema_once():
    declared = DeclaredTables({"t": {"a": "int8"}}).find(TableId(name="t"))
    extended = declared.schema_with(["x", "a", "x"])
    assert [column.name for column in extended.columns] == ["a", "x"]
    assert extended.columns[1].type == UNKNOWN
    assert declared.schema_with(["x"]) is extended
    assert declared.schema_with(["a"]) is declared.schema


@pytest.mark.parametrize(
    ("text", "match"),
    [("number", "not a column type"), ("key", "not a column type"), ("interval", "use string")],
)
def test_a_wrong_declaration_is_refused(text, match):
    with pytest.raises(ConfigError, match=rf"^schemas: shop\.t\.a: .*{match}"):
        DeclaredTables({"shop.t": {"a": text}})
