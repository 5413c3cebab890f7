# SPDX-License-Identifier: Apache-2.0
"""Rows of CSV files: quotes, NULL, types, and files whose fields may be shifted."""

import datetime as dt
import gzip
from decimal import Decimal
from typing import Any

import pytest
from data_file_rows import NATIVE, changes, messages, opened, types

from changelane.conversion import compression
from changelane.errors import DecodeError
from changelane.pipeline.row_options import RowOptions

T = RowOptions(table="t")


def rows(data: bytes, path: str = "x.csv", **options: Any) -> list[Any]:
    return [change.after for change in changes(data, path, RowOptions(table="t", **options))]


def test_a_quoted_field_is_text_and_an_empty_one_is_null() -> None:
    data = b'a,b\r\n"x, ""y""\r\nz",1\r\n,""\n"","b "\n'
    assert rows(data) == [
        {"a": 'x, "y"\r\nz', "b": "1"},
        {"a": None, "b": ""},
        {"a": "", "b": "b "},
    ]


def test_the_text_of_null_and_the_delimiter_are_options() -> None:
    assert rows(b'a;b\nNULL;"NULL"\n;x', null_value="NULL", delimiter=";") == [
        {"a": None, "b": "NULL"},
        {"a": "", "b": "x"},
    ]
    assert rows(b'a\tb\n"x\ty\n', delimiter="\t", quoting="none") == [{"a": '"x', "b": "y"}]


def test_declared_columns_have_their_types() -> None:
    declared = {"id": "int64 key", "price": "decimal(10,2)", "at": "timestamp(6)", "ok": "boolean"}
    options = RowOptions(table="shop.t", schemas={"t": declared | {"raw": "bytes"}})
    data = b"id,price,at,ok,raw,more\n1,1.50,2024-02-29 12:00:00,true,00ff,x\n"
    (change,) = changes(data, "x.csv", options)
    assert types(change) | {"raw": "bytes"} == {
        **{name: text.removesuffix(" key") for name, text in declared.items()},
        "raw": "bytes",
        "more": "string",
    }
    assert change.after == {
        "id": 1,
        "price": Decimal("1.50"),
        "at": dt.datetime(2024, 2, 29, 12),
        "ok": True,
        "raw": b"\x00\xff",
        "more": "x",
    }
    assert change.key is not None
    assert change.key.columns == ("id",)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int64", "1.5"),
        ("int8", "200"),
        ("date", "29.02.2024"),
        ("boolean", "perhaps"),
        ("bytes", "xyz"),
        ("instant(6)", "2024-02-29 12:00:00"),
        ("time(6)", "noon"),
    ],
)
def test_a_text_that_is_not_of_its_type_rejects_its_row_again_and_again(
    kind: str, text: str
) -> None:
    options = RowOptions(table="t", schemas={"t": {"a": kind}})
    good, bad = messages(f"a\n\n{text}\n".encode(), "x.csv", options)
    assert NATIVE.decode(good)
    with pytest.raises(DecodeError) as error:
        NATIVE.decode(bad)
    assert error.value.path == "$.after.a"
    assert text not in str(error.value)
    assert text.encode() in (bad.value or b"")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"a,b\n1\n", "record 2 of the CSV file has 1 fields and not 2"),
        (b"a,b\n1,2,3\n", "has 3 fields"),
        (b'a,b\n"1,2\n3,4\n', "record 2 .* a quote without its pair"),
        (b'a,b\nx"1",2\n', "a quote at a wrong place"),
        (b'a,b\n"1"x,2\n', "a quote at a wrong place"),
        (b"a,b\n\xff,2\n", "record 2 .* not UTF-8"),
        (b"a,a\n1,2\n", "one name"),
        (b"a,\n1,2\n", "without a name"),
        (b"a,b\r1,2\r3,4\r", "end with CR"),  # no row would be read
    ],
)
def test_a_file_whose_fields_may_be_shifted_is_rejected(data: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        opened(data, "x.csv", T).check()


def test_blank_lines_and_empty_files_have_no_rows() -> None:
    assert rows(b"a,b\n\n1,2\n\n") == [{"a": "1", "b": "2"}]
    assert rows(b"a\n\nx\n") == [{"a": None}, {"a": "x"}]  # a line of one column is a row
    assert rows(b"") == rows(b"a,b\n") == []


def test_a_byte_order_mark_is_no_part_of_a_name() -> None:
    assert rows(b"\xef\xbb\xbfa,b\n1,2") == [{"a": "1", "b": "2"}]


def test_a_compressed_file_is_read_and_a_bomb_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "FREE_EXPANSION", 100_000)
    monkeypatch.setattr(compression, "MAX_EXPANSION", 100)
    assert rows(gzip.compress(b"a,b\n1,2\n"), "x.csv.gz") == [{"a": "1", "b": "2"}]
    bomb = gzip.compress(b"a\n" + b"x\n" * 200_000)
    with pytest.raises(DecodeError) as error:
        opened(bomb, "x.csv.gz", T).check()
    assert error.value.code == "expansion"
    with pytest.raises(DecodeError) as error:
        opened(gzip.compress(b"a\n1\n")[:-4], "x.csv.gz", T).check()
    assert error.value.code == "corrupt_compression"


def test_a_file_without_header_needs_declared_columns() -> None:
    with pytest.raises(DecodeError, match="no header"):
        opened(b"1,2\n", "x.csv", RowOptions(table="t", header=False))
    options = RowOptions(table="t", header=False, schemas={"t": {"a": "int64", "b": "string"}})
    assert changes(b"1,2\n", "x.csv", options)[0].after == {"a": 1, "b": "2"}


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": ""},
        {"delimiter": '"'},
        {"table": "a.b.c.d"},
        {"table": "a..b"},
        {"table": "t", "layout": "dms"},
        {"timestamp_column": "at"},
        {"schemas": {"t": {"a": "nonsense"}}},
    ],
)
def test_contradictory_options_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match=r"rows\."):
        RowOptions(**options)
