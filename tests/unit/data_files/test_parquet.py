# SPDX-License-Identifier: Apache-2.0
"""Rows of Parquet files: exact types and values, and files that are damaged or hostile."""

import datetime as dt
import io
import math
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_file_rows import changes, column, opened, types

from changelane.data_files import parquet
from changelane.errors import DecodeError
from changelane.pipeline.row_options import RowOptions

ORDERS = RowOptions(table="shop.public.orders", keys={"orders": ["id"]})
UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")
MILLION = 1_000_000


def written(table: pa.Table, **options: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream, **options)
    return stream.getvalue()


def far(days: int, unit: str = "us") -> pa.Array:
    return pa.array([days * 86_400 * MILLION], pa.timestamp(unit))


VALUES: list[tuple[str, pa.Array, str, Any]] = [
    ("boolean", pa.array([True]), "boolean", True),
    ("int8", pa.array([-128], pa.int8()), "int8", -128),
    ("int64", pa.array([-(2**63)], pa.int64()), "int64", -(2**63)),
    ("uint64", pa.array([2**64 - 1], pa.uint64()), "uint64", 2**64 - 1),
    ("uint8", pa.array([255], pa.uint8()), "uint8", 255),
    (
        "decimal",
        pa.array([Decimal("-1.20")], pa.decimal128(38, 2)),
        "decimal(38,2)",
        Decimal("-1.20"),
    ),
    (
        "decimal256",
        pa.array([Decimal("9" * 60 + ".1")], pa.decimal256(76, 1)),
        "decimal(76,1)",
        Decimal("9" * 60 + ".1"),
    ),
    ("float32", pa.array([0.1], pa.float32()), "float32", 0.1),
    ("float64", pa.array([math.inf]), "float64", math.inf),
    ("text", pa.array(["ü\0\n\"'"]), "string", "ü\0\n\"'"),
    ("empty text", pa.array([""]), "string", ""),
    ("dictionary", pa.array(["x"]).dictionary_encode(), "string", "x"),
    ("binary", pa.array([b"\x00\xff"]), "bytes", b"\x00\xff"),
    ("fixed", pa.array([b"ab"], pa.binary(2)), "bytes", b"ab"),
    ("date", pa.array([dt.date(2024, 2, 29)]), "date", dt.date(2024, 2, 29)),
    ("date BC", pa.array([-735_160], pa.date32()), "date", "-0043-03-15"),
    ("time", pa.array([dt.time(23, 59, 59, 999_999)]), "time(6)", "23:59:59.999999"),
    (
        "local",
        pa.array([1_500], pa.timestamp("ms")),
        "timestamp(3)",
        dt.datetime(1970, 1, 1, 0, 0, 1, 500_000),
    ),
    ("local far", far(2_932_897), "timestamp(6)", "+10000-01-01T00:00:00.000000"),
    (
        "instant",
        pa.array([-1], pa.timestamp("us", "UTC")),
        "instant(6)",
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
    ),
    (
        "other zone",
        pa.array([0], pa.timestamp("us", "Asia/Tokyo")),
        "instant(6)",
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    ),
    (
        "nanoseconds",
        pa.array([1], pa.timestamp("ns")),
        "timestamp(9)",
        "1970-01-01T00:00:00.000000001",
    ),
    (
        "no nanoseconds",
        pa.array([1000], pa.timestamp("ns")),
        "timestamp(9)",
        dt.datetime(1970, 1, 1, 0, 0, 0, 1),
    ),
    ("duration", pa.array([dt.timedelta(days=-1)]), "interval(us)", dt.timedelta(days=-1)),
    ("list", pa.array([[1, None]], pa.list_(pa.int32())), "array<int32>", [1, None]),
    ("large list", pa.array([["a"]], pa.large_list(pa.string())), "array<string>", ["a"]),
    ("fixed list", pa.array([[1, 2]], pa.list_(pa.int8(), 2)), "array<int8>", [1, 2]),
    (
        "map",
        pa.array([[("k", Decimal("1.0")), ("j", None)]], pa.map_(pa.string(), pa.decimal128(3, 1))),
        "map<string,decimal(3,1)>",
        [("k", Decimal("1.0")), ("j", None)],
    ),
    (
        "struct",
        pa.array(
            [{"a": None, "b": [b"x"]}],
            pa.struct([("a", pa.date32()), ("b", pa.list_(pa.binary()))]),
        ),
        "record<'a' date,'b' array<bytes>>",
        {"a": None, "b": [b"x"]},
    ),
    ("uuid", pa.array([UUID.bytes], pa.uuid()), "uuid", str(UUID)),
    ("json", pa.array(['{"a": 1}'], pa.json_()), "json", '{"a": 1}'),
    ("null", pa.nulls(1), "unknown", None),
]


def test_a_row_has_the_types_and_values_of_the_file() -> None:
    names = [name for name, *_ in VALUES]
    # the row between two of NULLs: the offsets of nested columns do not begin at 0
    table = pa.table(
        {
            name: pa.concat_arrays([pa.nulls(1, a.type), a, pa.nulls(1, a.type)])
            for name, a, *_ in VALUES
        }
    )
    rows = changes(written(table), "x.parquet", RowOptions(table="t"))
    assert types(rows[0]) == {name: kind for name, _, kind, _ in VALUES}
    expected = {name: value for name, _, _, value in VALUES}
    assert [row.after for row in rows] == [dict.fromkeys(names), expected, dict.fromkeys(names)]


def test_an_enum_of_other_writers_is_text() -> None:
    text = pa.string()
    kinds = {
        "id": pa.int64(),
        "e": text,
        "list": pa.list_(text),
        "large": pa.large_list(text),
        "fixed": pa.list_(text, 1),
        "map": pa.map_(text, text),
        "struct": pa.struct([("n", pa.int32()), ("e", text)]),
        "uuid": pa.uuid(),
        "data": pa.binary(),
        "last": text,
    }
    row = {
        "id": 1,
        "e": "RED",
        "list": ["a", None],
        "large": ["b"],
        "fixed": ["c"],
        "map": [("k", "v")],
        "struct": {"n": 1, "e": "x"},
        "uuid": UUID.bytes,
        "data": b"\xff",
        "last": "",
    }
    nulls: dict[str, Any] = dict.fromkeys(row)
    table = pa.Table.from_pylist([row, nulls], schema=pa.schema(list(kinds.items())))
    data = written(table, store_schema=False)
    # STRING and ENUM in the schema of the footer, whose fields 6 and 10 have the same lengths
    string, enum = b"\x25\x00\x4c\x1c\0\0", b"\x25\x08\x4c\x4c\0\0"
    rows = changes(data.replace(string, enum), "x.parquet", RowOptions(table="t"))
    assert [row.after for row in rows] == [{**row, "uuid": str(UUID)}, nulls]
    assert types(rows[0]) == types(changes(data, "x.parquet", RowOptions(table="t"))[0])
    damaged = data.replace(string, enum).replace(b"RED", b"R\xffD")
    with pytest.raises(DecodeError):
        changes(damaged, "x.parquet", RowOptions(table="t"))


def test_a_row_is_a_snapshot_read_of_the_table_without_a_position() -> None:
    data = written(pa.table({"id": [1, 2, 3]}), row_group_size=2)
    rows = changes(data, "x.parquet", ORDERS)
    assert [str(row.table) for row in rows] == ["shop.public.orders"] * 3
    assert {(row.op.value, row.position) for row in rows} == {("r", None)}
    assert rows[0].key is not None
    assert rows[0].key.columns == ("id",)
    assert column(rows, "id") == [1, 2, 3]


@pytest.mark.parametrize(
    ("ticks", "text"),
    [
        (0, dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        (253_402_300_799_999_999, dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, dt.UTC)),
        (-62_135_596_800_000_000, dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
    ],
)
def test_int96_is_a_point_in_time_also_beyond_counts_of_nanoseconds(ticks: int, text: Any) -> None:
    table = pa.table({"id": [1], "at": pa.array([ticks], pa.timestamp("us"))})
    data = written(table, use_deprecated_int96_timestamps=True)
    (row,) = changes(data, "x.parquet", RowOptions(table="t"))
    assert types(row)["at"] == "instant(6)"
    assert row.after == {"id": 1, "at": text}


def test_nanoseconds_of_int96_are_not_cut() -> None:
    table = pa.table({"at": pa.array([1_001], pa.timestamp("ns"))})
    (row,) = changes(
        written(table, use_deprecated_int96_timestamps=True), "x.parquet", RowOptions(table="t")
    )
    assert row.after == {"at": "1970-01-01T00:00:00.000001001Z"}


@pytest.mark.parametrize("size", [1, 3, 4, 10])
def test_int96_beside_a_dictionary_of_each_row_group(size: int) -> None:
    ticks = [1_001, None, -1, 5, 7]
    table = pa.table(
        {
            "name": pa.array(list("abcde")).dictionary_encode(),
            "at": pa.array(ticks, pa.timestamp("ns")),
            "later": pa.array(ticks[::-1], pa.timestamp("ns")),
        }
    )
    data = written(table, use_deprecated_int96_timestamps=True, row_group_size=size)
    rows = changes(data, "x.parquet", RowOptions(table="t"))
    assert column(rows, "name") == list("abcde")
    assert column(rows, "at")[:3] == [
        "1970-01-01T00:00:00.000001001Z",
        None,
        "1969-12-31T23:59:59.999999999Z",
    ]
    assert column(rows, "later") == column(rows, "at")[::-1]


def test_a_dictionary_within_a_column_in_several_row_groups() -> None:
    kind = pa.struct([("a", pa.dictionary(pa.int32(), pa.string()))])
    values = [{"a": "x"}, {"a": "y"}, None, {"a": None}]
    data = written(pa.table({"v": pa.array(values, kind)}), row_group_size=1)
    assert column(changes(data, "x.parquet", RowOptions(table="t")), "v") == values


def many_rows() -> bytes:
    table = pa.table({"id": range(5_000), "text": [f"{n}" * 20 for n in range(5_000)]})
    return written(table, row_group_size=1_000)


OLD_DATE = pa.array([dt.date(1582, 10, 14)])
OLD_TIME = pa.array([-2_208_988_800_000_001], pa.timestamp("us", "UTC"))


@pytest.mark.parametrize(
    "values",
    [
        OLD_DATE,
        OLD_TIME,
        pa.ListArray.from_arrays([0, 1], OLD_DATE),
        pa.StructArray.from_arrays([OLD_TIME], ["x"]),
        pa.MapArray.from_arrays([0, 1], pa.array(["x"]), OLD_DATE),
    ],
)
def test_old_days_of_the_legacy_calendar_of_spark_are_refused(values: pa.Array) -> None:
    spark = {"org.apache.spark.sql.parquet.row.metadata": "{}"}
    version_3 = {**spark, "org.apache.spark.version": "3.5.0"}
    table = pa.table({"id": [1], "v": values})
    for metadata in (spark, {**version_3, "org.apache.spark.legacyDateTime": ""}):
        file = opened(written(table.replace_schema_metadata(metadata)), "x.parquet", ORDERS)
        with pytest.raises(DecodeError, match="legacy calendar"):
            file.check()
    for metadata in ({}, version_3):
        opened(written(table.replace_schema_metadata(metadata)), "x.parquet", ORDERS).check()


def test_new_days_of_the_legacy_calendar_are_read() -> None:
    values = [dt.date(1582, 10, 15), None]
    table = pa.table({"id": [1, 2], "v": pa.array(values), "n": pa.array([None] * 2, pa.date32())})
    table = table.replace_schema_metadata({"org.apache.spark.version": "2.4.8"})
    assert column(changes(written(table), "x.parquet", ORDERS), "v") == values


@pytest.mark.parametrize("cut", [0, 4, 100, 20_000, -1])
def test_a_file_that_is_cut_is_malformed(cut: int) -> None:
    with pytest.raises(DecodeError) as error:
        opened(many_rows()[:cut], "x.parquet", ORDERS)
    assert error.value.code == "malformed_file"


def test_a_file_with_damaged_pages_is_malformed_before_a_row_of_it_is_read() -> None:
    data = bytearray(many_rows())
    place = len(data) // 2
    data[place : place + 200] = bytes(byte ^ 0xFF for byte in data[place : place + 200])
    file = opened(bytes(data), "x.parquet", ORDERS)
    with pytest.raises(DecodeError, match="damaged") as error:
        file.check()
    assert error.value.code == "malformed_file"


def test_a_file_whose_last_rows_arrow_leaves_out_is_malformed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Arrow 26 ends without an error at an empty first page of a list of booleans; DuckDB does not
    read = pq.ParquetFile.iter_batches

    def without_the_last(file: Any, *arguments: Any, **options: Any) -> Any:
        return iter(list(read(file, *arguments, **options))[:-1])

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", without_the_last)
    file = opened(many_rows(), "x.parquet", ORDERS)
    with pytest.raises(DecodeError, match=r"Arrow reads .* of the 5000 rows") as error:
        file.check()
    assert error.value.code == "malformed_file"


def test_a_name_that_is_not_utf_8_is_malformed() -> None:
    data = written(pa.table({"marker": [1]}), store_schema=False)
    data = data.replace(b"marker", b"mark\xc3r")
    with pytest.raises(DecodeError) as error:
        opened(data, "x.parquet", RowOptions(table="t"))
    assert error.value.code == "malformed_file"


def test_a_file_that_expands_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(pa.table({"id": pa.array([1] * 3_000_000)}))
    opened(data, "x.parquet", ORDERS)
    monkeypatch.setattr(parquet, "FREE_EXPANSION", 1_000_000)
    monkeypatch.setattr(parquet, "MAX_EXPANSION", 100)
    with pytest.raises(DecodeError) as error:
        opened(data, "x.parquet", ORDERS)
    assert error.value.code == "expansion"


def test_a_batch_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_BLOCK_BYTES", 1_000_000)
    data = written(pa.table({"text": pa.array(["x" * 100_000] * 100)}))  # one value of a dictionary
    file = opened(data, "x.parquet", RowOptions(table="t"))
    with pytest.raises(DecodeError) as error:
        file.check()
    assert error.value.code == "expansion"


def test_an_error_of_the_disk_is_no_damage() -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            del size
            raise OSError(5, "Input/output error")

    data = many_rows()
    with pytest.raises(OSError, match="Input/output error"):
        parquet.ParquetRows(Failing(data), len(data))


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), "one name"),
        (pa.table({"other": [1]}), "no column 'id'"),
        (pa.table({}), "no columns"),
    ],
)
def test_columns_that_make_no_table_are_refused(table: pa.Table, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        list(opened(written(table), "x.parquet", ORDERS).messages())


def test_a_text_that_is_not_utf_8_rejects_the_file() -> None:
    data = written(pa.table({"text": pa.array(["abc-marker-abc"])}), compression="none")
    file = opened(data.replace(b"abc-marker", b"abc-\xffarker"), "x.parquet", RowOptions(table="t"))
    with pytest.raises(DecodeError):
        file.check()
