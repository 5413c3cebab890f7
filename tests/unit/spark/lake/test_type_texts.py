"""Tables and events spell types in different ways, and some formats widen parts of types."""

import pytest

from changelane.spark.lake.type_texts import fits

COLUMN = "struct<a:int,b:array<decimal(10,2)>,Cd:struct<x:string>>"


@pytest.mark.parametrize(
    ("kind", "column_type", "is_fit"),
    [
        ("ARRAY<SMALLINT>", "array<int>", True),
        ("ARRAY<INT>", "array<smallint>", False),
        ("ARRAY<ARRAY<TINYINT>>", "array<array<int>>", True),
        ("ARRAY<INT>", "int", False),
        ("INT", "array<int>", False),
        ("ARRAY<DECIMAL(10,2)>", "array<decimal(12,3)>", True),
        ("STRUCT<wkb: BINARY, srid: INT>", "struct<wkb:binary,srid:int>", True),
        (
            "STRUCT<`a`: SMALLINT, `b`: ARRAY<DECIMAL(10,2)>, `Cd`: STRUCT<`x`: STRING>>",
            COLUMN,
            True,
        ),
        ("STRUCT<`a`: INT, `b`: ARRAY<DECIMAL(10,3)>, `Cd`: STRUCT<`x`: STRING>>", COLUMN, False),
        ("STRUCT<`a`: INT, `b`: ARRAY<DECIMAL(10,2)>, `cd`: STRUCT<`x`: STRING>>", COLUMN, False),
        ("STRUCT<`a`: INT>", "struct<a:int,b:int>", False),
        ("MAP<STRING, TINYINT>", "map<string,int>", True),
        ("TINYINT", "bigint", True),
        ("DOUBLE", "float", False),
    ],
)
def test_a_type_fits_if_each_part_fits(kind: str, column_type: str, is_fit: bool) -> None:
    assert fits(kind, column_type) is is_fit
