# SPDX-License-Identifier: Apache-2.0
"""``apply_changes`` on the rows of any DataFrame, ordered by any column."""

import datetime as dt
import decimal
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import lake_tables
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t
from spark_settings import lakes

from changelane.apply import key_bytes
from changelane.errors import ConfigError, UnknownNameError
from changelane.position import SequencePosition, encode_order
from changelane.schema import TableId
from changelane.spark import apply_changes
from changelane.spark.rows.from_dataframe import TargetOptions, sequenced_events
from changelane.spark.rows.sequence_by import sequence_order

D: Final = decimal.Decimal
UTC: Final = dt.UTC
NUMBERS: Final = (-(2**63), -(2**31), -256, -255, -1, 0, 1, 255, 256, 2**31, 2**63 - 1)
WIDE: Final = tuple(
    D(f"{n}e-10") for n in (-(10**38) + 1, -(10**19), -1, 0, 1, 9, 10, 10**37, 10**38 - 1)
)
TEXTS: Final = ("", "\0", "\0\0", "\0a", "\1", "a", "a\0", "a\0b", "a\1", "aa", "é", "￿", "😀")
MOMENTS: Final = (
    dt.datetime(1, 1, 1, 0, 0, 0, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(1970, 1, 1),
    dt.datetime(2024, 2, 29, 12, 30, 0, 500_000),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
)
SORTED: Final[dict[str, tuple[str, tuple[Any, ...]]]] = {
    "bigint": ("bigint", NUMBERS),
    "smallint": ("smallint", (-(2**15), -1, 0, 1, 2**15 - 1)),
    "decimal": ("decimal(10,2)", tuple(D(n).scaleb(-2) for n in (-(10**10) + 1, -1, 0, 1, 101))),
    "wide": ("decimal(38,10)", WIDE),
    "date": ("date", (dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31))),
    "timestamp": ("timestamp", tuple(one.replace(tzinfo=UTC) for one in MOMENTS)),
    "ntz": ("timestamp_ntz", MOMENTS),
    "string": ("string", TEXTS),
    "struct": (
        "struct<a: string, b: decimal(20,1), c: int>",
        tuple(itertools.product(("", "a", "a\0"), (D("-0.1"), D("0.0")), (-1, 2))),
    ),
}


def orders(spark: SparkSession) -> dict[str, list[tuple[int, bytes, str]]]:
    """Return the orders of all values, of all types in one job."""
    frames = []
    kinds = {}
    for name, (ddl, values) in SORTED.items():
        rows = spark.createDataFrame(
            [(n, value) for n, value in enumerate(values)], f"n int, v {ddl}"
        )
        told = sequence_order(F.col("v"), rows.schema["v"].dataType)
        kinds[name] = told.kind
        frames.append(rows.select(F.lit(name).alias("type"), "n", told.order.alias("o")))
    every = frames[0]
    for more in frames[1:]:
        every = every.unionByName(more)
    found: dict[str, list[tuple[int, bytes, str]]] = {}
    for one in every.collect():
        found.setdefault(one["type"], []).append((one["n"], bytes(one["o"]), kinds[one["type"]]))
    return found


def test_orders_compare_as_the_values_do(spark: SparkSession) -> None:
    found = orders(spark)
    for name, told in found.items():
        by_order = [n for n, order, _ in sorted(told, key=lambda one: one[1])]
        assert by_order == list(range(len(SORTED[name][1]))), name
        assert len({order for _, order, _ in told}) == len(told), name
    # whole numbers, days and times are the sequence of events
    for name in ("bigint", "smallint", "date", "timestamp", "ntz"):
        for n, order, _ in found[name]:
            value = SORTED[name][1][n]
            assert order == encode_order(SequencePosition.of(value))[:-1], (name, value)
    assert {name: told[0][2] for name, told in found.items()} == {
        "bigint": "integer",
        "smallint": "integer",
        "decimal": "decimal of scale 2",
        "wide": "decimal of scale 10",
        "date": "date",
        "timestamp": "timestamp",
        "ntz": "timestamp_ntz",
        "string": "string",
        "struct": "struct of string, long decimal of scale 1, integer",
    }


@pytest.mark.parametrize("kind", [t.DoubleType(), t.BinaryType(), t.ArrayType(t.LongType())])
@pytest.mark.usefixtures("spark")
def test_a_sequence_without_an_order_is_refused(kind: t.DataType) -> None:
    with pytest.raises(ConfigError, match=r"which cannot order rows.*cast"):
        sequence_order(F.col("v"), kind)


KEYS: Final = (
    "i int, l bigint, d decimal(20,4), s string, day date, at timestamp, z timestamp_ntz, "
    "b binary, flag boolean"
)
KEY_ROWS: Final = [
    (
        1,
        -(2**63),
        D("1.5000"),
        'a"\\\x01\x1f\n\x7fé😀',
        dt.date(1, 1, 1),
        MOMENTS[1].replace(tzinfo=UTC),
        MOMENTS[3],
        b"\x00\xff",
        True,
    ),
    (
        0,
        0,
        D("-0.0010"),
        "",
        dt.date(9999, 12, 31),
        MOMENTS[2].replace(tzinfo=UTC),
        MOMENTS[2],
        b"",
        False,
    ),
    (
        None,
        10,
        D("100.0000"),
        "\\u000B\x0b",
        None,
        MOMENTS[0].replace(tzinfo=UTC),
        MOMENTS[4],
        b"x" * 80,
        None,
    ),
]


def test_keys_and_rows_are_told_as_events_tell_them(spark: SparkSession) -> None:
    """The canonical key is that of Python's; values come back as they were."""
    rows = spark.createDataFrame(KEY_ROWS, KEYS).withColumn("seq", F.lit(1))
    names = [name for name in rows.columns if name != "seq"]
    told = sequenced_events(rows, TargetOptions(TableId(name="t"), names, "seq"))
    assert told.kind == "integer"
    found = {row["key"] for row in told.events.where("kind = 'data'").select("key").collect()}
    expected = {key_bytes(dict(zip(names, row, strict=True))).decode() for row in KEY_ROWS}
    assert found == expected


ROW: Final = (
    "id int, f double, g float, d decimal(38,18), b binary, at timestamp, z timestamp_ntz, "
    "nested array<struct<a: string, n: array<decimal(5,2)>>>, t tinyint, `odd name` string"
)
ROWS: Final = [
    (
        1,
        0.1,
        1.5,
        D("99999999999999999999.999999999999999999"),
        b"\0\1",
        MOMENTS[0].replace(tzinfo=UTC),
        MOMENTS[4],
        [('x"', [D("1.10"), None])],
        -128,
        "a\nb",
    ),
    (
        2,
        float("inf"),
        float("-inf"),
        D("-0.000000000000000001"),
        b"",
        None,
        MOMENTS[0],
        [],
        127,
        "",
    ),
    (
        3,
        -0.0,
        3.4028234663852886e38,
        None,
        None,
        MOMENTS[3].replace(tzinfo=UTC),
        None,
        None,
        None,
        None,
    ),
    (4, 5e-324, 1e-45, D(0), b"\xff", MOMENTS[2].replace(tzinfo=UTC), MOMENTS[2], [None], 0, "\\"),
]


def rows_of(spark: SparkSession, lake: str, table: str, *columns: str) -> list[tuple[Any, ...]]:
    found = lake_tables.table_of(spark, lake, TableId(name=table))
    return sorted(tuple(row) for row in found.select(*columns).collect())


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_decimals_of_two_lengths_in_a_struct_do_not_compare(spark: SparkSession, lake: str) -> None:
    for digits, value, aside in ((10, "1.00", {}), (20, "2.00", {"unordered": 1})):
        rows = spark.createDataFrame(
            [(1, D(value), 1, value)], f"id int, seq decimal({digits},2), n int, told string"
        )
        report = apply_changes(
            rows,
            lake,
            target="t",
            table_format=Path(lake).name,
            keys=["id"],
            sequence_by="struct(seq, n)",
        )
        assert report.quarantined == aside
    assert rows_of(spark, lake, "t", "told") == [("1.00",)]


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_any_rows_are_applied_by_their_sequence(spark: SparkSession, lake: str) -> None:
    """Values of all types come back; deletes, truncates, ties and NULLs do what they say."""

    def apply(rows: DataFrame, target: str, **more: Any) -> Any:
        more = {"keys": ["id"], "sequence_by": "seq", **more}
        return apply_changes(rows, lake, target=target, table_format=Path(lake).name, **more)

    values = spark.createDataFrame(ROWS, ROW).withColumn("seq", F.lit(1))
    apply(values, "values", except_column_list=["SEQ"])
    found = lake_tables.table_of(spark, lake, TableId(name="values"))
    names = [f"`{name}`" for name in values.columns if name != "seq"]
    assert found.columns[: len(names)] == values.drop("seq").columns
    lost = values.select(*names).exceptAll(found.select(*names))
    assert lost.count() == 0
    assert found.count() == len(ROWS)

    orders = "id int, state string, total decimal(5,2), op string, seq string"
    first = [
        (1, "new", D("1.00"), "U", "a"),
        (1, "paid", D("1.00"), "U", "b"),
        (2, "new", None, "U", "a"),
        (3, "x", None, "U", "c"),
        (3, "y", None, "U", "c"),  # a tie
        (4, "lost", None, "U", None),
        (5, "old", None, "U", "a"),
    ]
    second = [(1, "late", None, "U", "a1"), (2, None, None, "D", "b"), (5, None, None, "T", "aa")]
    how = {
        "apply_as_deletes": F.col("op") == "D",
        "apply_as_truncates": "op = 'T'",
        "column_list": ["id", "state", "total"],
    }
    one, two = (spark.createDataFrame(told, orders) for told in (first, second))
    for scd_type, target in ((1, "orders"), (2, "past")):
        report = apply(one, target, stored_as_scd_type=scd_type, **how)
        assert report.quarantined == {"unordered": 1}
        assert report.conflicts == 1
        assert apply(two, target, stored_as_scd_type=scd_type, **how).conflicts == 0
    assert rows_of(spark, lake, "orders", "id", "state", "total") == [
        (1, "paid", D("1.00")),
        (3, "y", None),
    ]
    states = rows_of(spark, lake, "past", "id", "state", "_is_current")
    assert states == [
        (1, "late", False),
        (1, "new", False),
        (1, "paid", True),
        (2, "new", False),
        (3, "y", True),
        (5, "old", False),
    ]
    aside = lake_tables.table_of(spark, lake, "_changelane/quarantine").where("code = 'unordered'")
    (row, _) = aside.select("reason", F.col("raw_value").cast("string").alias("row")).collect()
    assert "sequence_by is NULL" in row["reason"]
    assert '"state":"lost"' in row["row"]
    # nulls say nothing; a sequence of another kind is refused
    part = spark.createDataFrame([(1, None, D("2.00"), "U", "z")], orders)
    apply(part, "orders", ignore_null_updates=True, **how)
    assert rows_of(spark, lake, "orders", "id", "state", "total")[0] == (1, "paid", D("2.00"))
    report = apply(part.withColumn("seq", F.lit(9)), "orders", **how)
    assert report.quarantined == {"unordered": 1}
    assert (
        "sequence_by is of type integer, and the rows of the table are ordered by string"
        in "".join(table.note for table in report.tables)
    )


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_rows_that_come_again_are_not_appended_again(spark: SparkSession, lake: str) -> None:
    rows = spark.createDataFrame([(1, "a", 1), (2, "a", 1), (1, "b", 1)], "id int, v string, n int")
    how = {"keys": ["id"], "sequence_by": "n", "mode": "append", "table_format": Path(lake).name}
    without_nulls = rows.withColumn("id", F.coalesce("id", F.lit(0)))
    for repeats, changes in ((0, rows), (3, without_nulls), (0, rows.withColumn("n", F.lit(2)))):
        report = apply_changes(changes, lake, target="t", **how)
        assert [table.repeats for table in report.tables] == [repeats]
    assert len(rows_of(spark, lake, "t", "id", "v", "n")) == 6


WRONG: Final[list[tuple[dict[str, Any], type[Exception], str]]] = [
    (
        {"target": "t"},
        ConfigError,
        "target: rows that are not event rows also need keys, sequence_by",
    ),
    ({"apply_as_deletes": "a"}, ConfigError, "need target, keys, sequence_by"),
    ({"stored_as_scd_type": 3}, ConfigError, "1 or 2"),
    ({"stored_as_scd_type": 2, "mode": "append"}, ConfigError, "is the mode history"),
    ({"mode": "overwrite"}, UnknownNameError, "overwrite"),
    ({"track_history_column_list": ["a"]}, ConfigError, "need stored_as_scd_type=2"),
]
PLAIN: Final = {"target": "t", "keys": ["id"], "sequence_by": "seq"}
WRONG_ROWS: Final[list[tuple[dict[str, Any], type[Exception], str]]] = [
    ({"keys": ["idd"]}, UnknownNameError, "did you mean 'id'"),
    ({"keys": []}, ConfigError, "names no column"),
    ({"column_list": ["id"], "except_column_list": ["m"]}, ConfigError, "give one"),
    ({"column_list": ["m"]}, UnknownNameError, "column in keys 'id'"),
    ({}, ConfigError, "'m' has the type map<string,int>.*to_json"),
    ({"column_list": ["id", "odd"]}, ConfigError, "has a field 'a b': a field's name"),
    ({"keys": ["f"], "except_column_list": ["m", "odd"]}, ConfigError, "cannot be a key: cast it"),
    # the target would have one version of each row
    (
        {
            "stored_as_scd_type": 2,
            "track_history_column_list": ["f"],
            "except_column_list": ["m", "odd", "f"],
        },
        ConfigError,
        "no column 'f' to track",
    ),
    (
        {
            "stored_as_scd_type": 2,
            "track_history_column_list": ["x"],
            "except_column_list": ["m", "odd"],
        },
        ConfigError,
        "no column 'x' to track",
    ),
]


def test_wrong_arguments_are_refused_with_what_is_right(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.createDataFrame(
        [], "id int, seq int, f float, m map<string,int>, odd struct<`a b`: int>"
    )
    told = [*WRONG, *(({**PLAIN, **more}, kind, words) for more, kind, words in WRONG_ROWS)]
    check: Callable[..., Any] = apply_changes
    for more, kind, words in told:
        with pytest.raises(kind, match=words):
            check(rows, str(tmp_path / "delta"), **more)
    stream = spark.readStream.format("rate").load().selectExpr("value AS id", "value AS seq")
    with pytest.raises(ConfigError, match="in foreachBatch"):
        apply_changes(stream, str(tmp_path / "delta"), **PLAIN)


@pytest.mark.skipif(not hasattr(F, "collate"), reason="Spark 3.5 has no collations")
def test_texts_that_compare_by_a_collation_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Tables and orders compare bytes: "B" came before "a", and "A" was another key than "a"."""
    rows = spark.createDataFrame([("a", "B", 1)], "id string, seq string, n int")
    for name, words in (("seq", "sequence_by has the type .* cast"), ("id", "CAST.`id` AS STRING")):
        collated = rows.withColumn(name, F.collate(name, "UTF8_LCASE"))
        with pytest.raises(ConfigError, match=words):
            apply_changes(collated.select("*", F.lit(1).alias("x")), str(tmp_path), **PLAIN)


def test_conflicts_are_rows_of_one_sequence_with_another_effect(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = "id int, seq int, a string, b array<int>, is_deleted boolean"
    changes = [
        (1, 1, "x", None, False),
        (1, 1, None, [1], False),  # with ignore_null_updates no column has two values
        (2, 1, "x", None, False),
        (2, 1, "x", None, True),  # the row wins
        (3, 1, "x", None, True),
        (3, 1, "y", None, True),  # the same effect
        (4, 1, "x", None, False),
        (4, 1, "y", [1], False),
        (5, 1, "x", None, True),
        (5, 1, "y", None, False),
    ]
    rows = spark.createDataFrame(changes, schema)
    how = {**PLAIN, "apply_as_deletes": "is_deleted", "except_column_list": ["is_deleted"]}
    for number, (ignores_nulls, count) in enumerate(((False, 4), (True, 3))):
        folder = str(tmp_path / str(number) / "delta")
        report = apply_changes(rows, folder, ignore_null_updates=ignores_nulls, **how)
        assert report.conflicts == count
