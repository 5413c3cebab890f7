"""Values arrive in Delta as they are, on every way there; what does not fit is quarantined.

One table has a column for each case. Its rows are inserted whole (the row form of the MERGE), then
their keys change without a column being told (the rule itself, by text), then one column of each
is updated (the column form).
"""

import datetime as dt
import decimal
import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import lake_tables
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.event import DataChange, Key, Op
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark import decode
from changelane.spark.apply.applier import Applier
from changelane.spark.lake.interface import Marker
from changelane.types import UNAVAILABLE, Geometry, Integer, String, parse_instant, parse_type

TABLE: Final = TableId("shop", None, "values")
BIG: Final = "é😀\x7f" * 5_000_000  # 35 MB


class Case(NamedTuple):
    """Values of a type, the Spark type of the column, and the text of the values there."""

    kind: str
    spark: str
    texts: dict[Any, str | None]
    shown: str = "cast({} AS STRING)"


def D(text: str) -> decimal.Decimal:  # noqa: N802 - short, as it is in the table below
    return decimal.Decimal(text)


def same(*values: Any) -> dict[Any, str | None]:
    return {value: str(value) for value in values}


CASES: Final = [
    Case("boolean", "boolean", {True: "true", False: "false"}),
    Case("int8", "tinyint", same(-128, 127)),
    Case("int16", "smallint", same(-32768, 32767)),
    Case("int32", "int", same(-(2**31), 2**31 - 1)),
    Case("int64", "bigint", same(-(2**63), 2**63 - 1, 0)),
    Case("uint8", "smallint", same(0, 255)),
    Case("uint16", "int", same(0, 65535)),
    Case("uint32", "bigint", same(0, 2**32 - 1)),
    Case("uint64", "decimal(20,0)", same(0, 2**64 - 1)),
    Case("decimal(10,2)", "decimal(10,2)", {D("12345678.90"): "12345678.90", D("-1"): "-1.00"}),
    Case("decimal(38,38)", "decimal(38,38)", {D("0." + "9" * 38): "0." + "9" * 38}),
    Case("decimal(38,0)", "decimal(38,0)", {D("9" * 38): "9" * 38, D("1E+3"): "1000"}),
    Case("decimal(39,0)", "string", {D("9" * 39): "9" * 39}),
    Case("decimal(5,-2)", "string", {D("1.23E+4"): "1.23E+4"}),
    Case("decimal", "string", {D("1.50"): "1.50", D("NaN"): "NaN", D("Infinity"): "Infinity"}),
    Case(
        "float64",
        "double",
        {
            0.1: "0.1",
            1.7976931348623157e308: "1.7976931348623157E308",
            float("inf"): "Infinity",
            float("nan"): "NaN",
            -2.5e-5: "-2.5E-5",
        },
    ),
    Case("float32", "float", {0.1: "0.1", float("-inf"): "-Infinity", 3.4e38: "3.4E38"}),
    Case(
        "string",
        "string",
        {
            "": "",
            "null": "null",
            "a\0b": "a\0b",
            "é😀": "é😀",
            '"\\\n\r\t': '"\\\n\r\t',
            " x ": " x ",
        },
    ),
    Case("bytes", "binary", {b"": "", b"\x00\xff": "00FF"}, "hex({})"),
    Case("bits(9)", "string", same("000000101")),
    Case(
        "date",
        "date",
        {
            dt.date(1, 1, 1): "0001-01-01",
            dt.date(9999, 12, 31): "9999-12-31",
            dt.date(1582, 10, 10): "1582-10-10",
            "-0043-03-15": "-0043-03-15",
            "0000-12-31": "0000-12-31",
            "+12345-02-28": "+12345-02-28",
        },
    ),
    Case(
        "timestamp(6)",
        "timestamp_ntz",
        {
            dt.datetime(2024, 1, 31, 10, 0, 0, 123456): "2024-01-31 10:00:00.123456",
            dt.datetime(1, 1, 1): "0001-01-01 00:00:00",
            dt.datetime(9999, 12, 31, 23, 59, 59, 999999): "9999-12-31 23:59:59.999999",
            dt.datetime(2024, 3, 31, 2, 30): "2024-03-31 02:30:00",
            "-0043-03-15T12:00:00.5": "-0043-03-15 12:00:00.5",
            "+294246-12-31T23:59:59.999999": "+294246-12-31 23:59:59.999999",
        },
    ),
    Case("timestamp(9)", "string", same("2024-01-31T10:00:00.123456789")),
    Case(
        "instant(6)",
        "timestamp",
        {
            parse_instant("2024-01-31T10:00:00.5Z"): "2024-01-31 10:00:00.5",
            parse_instant("2024-01-31T10:00:00.000001+02:30"): "2024-01-31 07:30:00.000001",
            parse_instant("0001-01-01T00:00:00+14:00"): "0000-12-31 10:00:00",
            parse_instant("9999-12-31T23:59:59.999999-12:00"): "+10000-01-01 11:59:59.999999",
            "-0043-03-15T12:00:00Z": "-0043-03-15 12:00:00",
            "+294246-12-31T23:59:59Z": "+294246-12-31 23:59:59",
        },
    ),
    Case("instant(9)", "string", same("2024-01-31T10:00:00.123456789Z")),
    Case("time", "string", same("-838:59:59", "25:00:00", "10:00:00.000001")),
    Case("timetz", "string", same("10:00:00+02:00")),
    Case("year", "int", same(0, 1901, 2155)),
    Case("interval(us)", "bigint", {dt.timedelta(days=-1, microseconds=1): "-86399999999"}),
    Case("interval(ns)", "bigint", same(2**63 - 1)),
    Case("interval", "string", same("P1Y2M3DT4H5M6.7S")),
    Case("json", "string", same('{"a": [1, 1.0, "\\u00e9"], "a": null}', "null")),
    Case("uuid", "string", same("00000000-0000-0000-0000-000000000001")),
    Case("xml", "string", same("<a>&amp;</a>")),
    Case("enum('a','b')", "string", same("a", "")),
    Case("set('a','b')", "string", same("a,b")),
    Case("text('ltree')", "string", same("a.b.c")),
    Case(
        "geometry(point)",
        "struct<wkb:binary,srid:int>",
        {
            Geometry(b"\x01\x02", 4326): "0102,4326",
            Geometry(b"\x01", None): "01,none",
            Geometry(None, None): "none,none",
        },
        "concat(coalesce(hex({}.wkb), 'none'), ',', coalesce(cast({}.srid AS STRING), 'none'))",
    ),
    Case("unknown", "string", {"text": "text", 7: "7", D("1.10"): "1.10"}),
]

# values that cannot be keys of a dict
LISTS: Final = [
    ("array<int32>", "array<int>", [[1, None, -(2**31)], []], ["[1,null,-2147483648]", "[]"]),
    (
        "array<array<string>>",
        "array<array<string>>",
        [[["a", None], None, [""]]],
        ['[["a",null],null,[""]]'],
    ),
    ("array<decimal(5,2)>", "array<decimal(5,2)>", [[D("1.5"), None]], ["[1.50,null]"]),
    ("array<uint64>", "array<decimal(20,0)>", [[2**64 - 1]], [f"[{2**64 - 1}]"]),
    ("array<bytes>", "array<binary>", [[b"\xff", None]], ['["/w==",null]']),
    ("array<date>", "array<date>", [[dt.date(2024, 1, 31), None]], ['["2024-01-31",null]']),
    ("array<time>", "array<string>", [["25:00:00", None]], ['["25:00:00",null]']),
    (
        "array<timestamp(6)>",
        "array<timestamp_ntz>",
        [[dt.datetime(2024, 1, 31, 1, 2, 3, 4)]],
        ['["2024-01-31 01:02:03.000004"]'],
    ),
    (
        "array<instant(6)>",
        "array<timestamp>",
        [[parse_instant("2024-01-31T01:02:03.000004+01:00"), "-0043-03-15T12:00:00Z", None]],
        ['["2024-01-31 00:02:03.000004","-0043-03-15 12:00:00",null]'],
    ),
    (
        "array<float64>",
        "array<double>",
        [[0.1, float("nan"), float("-inf")]],
        ['[0.1,"NaN","-Infinity"]'],
    ),
    ("map<string,int32>", "string", [[("a", 1), ("b", None)]], ['[["a",1],["b",null]]']),
    (
        "record<a int32,'b' string>".replace("a int32", "'a' int32"),
        "string",
        [{"a": 1, "b": "x"}],
        ['{"a":1,"b":"x"}'],
    ),
]


SHOWN: Final = {
    "string": "{}",
    "array<timestamp_ntz>": "to_json(cast({} AS ARRAY<STRING>))",
    "array<timestamp>": "to_json(cast({} AS ARRAY<STRING>))",
}


class Slot(NamedTuple):
    """A column of the table, its values by row and the texts that they must have."""

    name: str
    kind: str
    spark: str
    values: list[Any]
    texts: list[str | None]
    shown: str


SLOTS: Final = [
    Slot(
        f"c{number}", case.kind, case.spark, list(case.texts), list(case.texts.values()), case.shown
    )
    for number, case in enumerate(CASES)
] + [
    Slot(f"l{number}", kind, spark, values, texts, SHOWN.get(spark, "to_json({})"))
    for number, (kind, spark, values, texts) in enumerate(LISTS)
]
ROWS: Final = max(len(slot.values) for slot in SLOTS) + 1  # the last one is all NULL
SCHEMA: Final = TableSchema(
    (
        Column("id", Integer()),
        Column("touched", String()),
        *(Column(slot.name, parse_type(slot.kind)) for slot in SLOTS),
    )
)


def change(op: str, at: int, after: Any, before: Any = None) -> DataChange:
    position = SequencePosition(at)
    return DataChange(Op(op), TABLE, Key(("id",)), before, after, SCHEMA, position)


@pytest.fixture(scope="module", params=lake_tables.LAKES)
def tables(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, DataFrame]:
    """The table after each of the three ways."""
    lake = str(tmp_path_factory.mktemp("fidelity") / request.param)
    ids = range(ROWS)
    rows = [
        {s.name: s.values[number] if number < len(s.values) else None for s in SLOTS}
        for number in ids
    ]
    untold = dict.fromkeys([slot.name for slot in SLOTS], UNAVAILABLE)
    inserted = [change("c", 1, {"id": n, "touched": "no", **rows[n]}) for n in ids]
    moved = [
        change("u", 2, {"id": 100 + n, "touched": UNAVAILABLE, **untold}, {"id": n}) for n in ids
    ]
    updated = [change("u", 3, {"id": 100 + n, "touched": "yes", **untold}) for n in ids]
    found = {}
    for number, (name, events) in enumerate(
        [("inserted", inserted), ("moved", moved), ("updated", updated)]
    ):
        report = lake_tables.apply(spark, lake, events, batch=number)
        assert not report.quarantined
        found[name] = lake_tables.table_of(spark, lake, TABLE).localCheckpoint()
        assert found[name].count() == ROWS
    return found


@pytest.fixture(scope="module")
def shown(tables: dict[str, DataFrame]) -> dict[str, list[Any]]:
    every = [F.expr(slot.shown.replace("{}", slot.name)).alias(slot.name) for slot in SLOTS]
    return {
        name: table.orderBy("id").select("touched", *every).collect()
        for name, table in tables.items()
    }


@pytest.mark.parametrize("way", ["inserted", "moved", "updated"])
@pytest.mark.parametrize("slot", SLOTS, ids=[slot.kind for slot in SLOTS])
def test_values_are_what_they_were(
    tables: dict[str, DataFrame],
    shown: dict[str, list[Any]],
    slot: Slot,
    way: str,
    request: pytest.FixtureRequest,
) -> None:
    wanted = slot.spark
    if request.node.callspec.params["tables"] == "iceberg":
        # its specification knows no smaller integer
        wanted = re.sub("tinyint|smallint", "int", wanted)
    assert tables[way].schema[slot.name].dataType.simpleString() == wanted
    found = [row[slot.name] for row in shown[way]]
    if slot.kind == "geometry(point)":
        assert found[: len(slot.texts)] == slot.texts
        nulls = [
            row["found"]
            for row in tables[way]
            .orderBy("id")
            .selectExpr(f"{slot.name} IS NULL AS found")
            .collect()
        ]
        assert nulls == [False] * len(slot.texts) + [True] * (ROWS - len(slot.texts))
    else:
        assert found == slot.texts + [None] * (ROWS - len(slot.texts))


def test_the_column_form_touched_every_row(shown: dict[str, list[Any]]) -> None:
    assert {row["touched"] for row in shown["moved"]} == {"no"}
    assert {row["touched"] for row in shown["updated"]} == {"yes"}


BAD: Final = [
    ("int8", 128, "value_out_of_range"),
    ("int32", 2**31, "value_out_of_range"),
    ("int64", 2**63, "value_out_of_range"),
    ("int64", 10**30, "value_out_of_range"),
    ("uint32", -1, "value_out_of_range"),
    ("uint64", 2**64, "value_out_of_range"),
    ("uint64", -1, "value_out_of_range"),
    ("int32", True, "wrong_type"),
    ("int32", 1.5, "wrong_type"),
    ("int32", "1", "wrong_type"),
    ("boolean", 1, "wrong_type"),
    ("string", 1, "wrong_type"),
    ("decimal(5,2)", "1000.00", "value_out_of_range"),
    ("decimal(5,2)", "1.234", "value_out_of_range"),
    ("decimal(5,2)", "NaN", "value_out_of_range"),
    ("decimal(5,2)", "Infinity", "value_out_of_range"),
    ("decimal(38,0)", "1e999999999", "value_out_of_range"),
    ("decimal(38,0)", "1e-999999999", "value_out_of_range"),
    ("decimal(5,2)", "one", "wrong_type"),
    ("float32", 1e39, "value_out_of_range"),
    ("date", "infinity", "value_out_of_range"),
    ("date", "0000-00-00", "value_out_of_range"),
    ("date", "2024-00-10", "value_out_of_range"),
    ("date", "2024-02-30", "value_out_of_range"),
    ("date", "2024-13-01", "value_out_of_range"),
    ("date", "-0043-02-31", "value_out_of_range"),
    ("date", "+9999999-01-01", "value_out_of_range"),
    ("timestamp(6)", "infinity", "value_out_of_range"),
    ("timestamp(6)", "0000-00-00T00:00:00", "value_out_of_range"),
    ("timestamp(6)", "2024-01-01T00:00:00.123456789", "value_out_of_range"),
    ("timestamp(6)", "2024-01-01T24:00:00", "value_out_of_range"),
    ("timestamp(6)", "+294248-01-01T00:00:00", "value_out_of_range"),
    ("instant(6)", "-infinity", "value_out_of_range"),
    ("instant(6)", "2024-01-01T00:00:00", "value_out_of_range"),
    ("instant(6)", "2024-01-01T00:00:00.1234567Z", "value_out_of_range"),
    ("instant(6)", "2024-01-01T25:00:00Z", "value_out_of_range"),
    ("bytes", "?", "wrong_type"),
    ("array<int8>", [1, 1000], "value_out_of_range"),
    ("array<int8>", 7, "wrong_type"),
    ("geometry(point)", "POINT(1 1)", "wrong_type"),
    ("interval(us)", 2**70, "wrong_type"),
]


def line(kind: str, value: str) -> bytes:
    head = (
        '{"op":"c","table":{"name":"bad"},"key":["id"],"position":{"domain":"sequence","value":1},'
    )
    schema = f'"schema":[{{"name":"id","type":"int64"}},{{"name":"v","type":{json.dumps(kind)}}}],'
    return f'{head}{schema}"after":{{"id":1,"v":{value}}}}}'.encode()


RAW: Final = [
    ("float64", "1" + "0" * 400, "wrong_type"),
    ("string", '"\\ud800"', "incomplete_message"),
    ("int64", "1e999999999", "wrong_type"),
    ("float64", "NaN", "malformed_json"),
]


def test_what_does_not_fit_is_set_aside_with_its_code_and_path(
    spark: SparkSession, lake: str
) -> None:
    told = [(line(kind, json.dumps(value)), code) for kind, value, code in BAD]
    told += [(line(kind, value), code) for kind, value, code in RAW]
    codes = dict(told)
    assert len(codes) == len(told)
    messages = spark.createDataFrame([(raw,) for raw, _ in told], "value binary")
    events = decode(messages, "native-json")
    Applier(spark, lake, table_format=Path(lake).name).apply(events, Marker("test", "q", 0))
    aside = lake_tables.table_of(spark, lake, "_changelane/quarantine").collect()
    found = {bytes(row["raw_value"]): row["code"] for row in aside}
    wrong = {raw: (found.get(raw), code) for raw, code in codes.items() if found.get(raw) != code}
    assert not wrong
    for row in aside:
        if row["code"] not in {"malformed_json", "incomplete_message"}:
            assert row["path"] in {"$.v", "$.after.v", "$.v[1]"}, row
        assert row["reason"]
        assert "999999999" not in row["reason"]


def test_a_very_long_text_arrives(spark: SparkSession, lake: str) -> None:
    schema = TableSchema((Column("id", Integer()), Column("v", String())))
    event = DataChange(
        Op.CREATE, TABLE, Key(("id",)), None, {"id": 1, "v": BIG}, schema, SequencePosition(1)
    )
    lake_tables.apply(spark, lake, [event])
    table = lake_tables.table_of(spark, lake, TABLE)
    row = table.selectExpr("length(v) AS size", "v = repeat('é😀\x7f', 5000000) AS same").first()
    assert (row["size"], row["same"]) == (len(BIG), True)
