# SPDX-License-Identifier: Apache-2.0
"""A table has the column types that ``docs/lake-types.md`` says."""

import re
from pathlib import Path

from lake_types_page import column_types, hudi_type, iceberg_type
from pyspark.sql import SparkSession

from changelane.spark import apply_changes
from changelane.spark.lake import lake as open_lake

TABLE = "tables/shop.types"


def spelled(kind: str) -> str:
    return kind.lower().replace(" ", "")


def test_a_table_has_the_column_types_that_the_page_shows(spark: SparkSession, lake: str) -> None:
    table_format = Path(lake).name
    tables = open_lake(spark, lake, table_format)
    columns = {f"c{number}": kind for number, kind in enumerate(column_types())}
    tables.create(TABLE, columns, {})
    if table_format == "iceberg":
        util = spark._jvm.org.apache.iceberg.spark.Spark3Util
        schema = util.loadIcebergTable(spark._jsparkSession, tables.sql(TABLE)).schema()
        # it numbers the fields of a struct: struct<3: wkb: optional binary, ...>
        shown = {
            name: re.sub(r"\d+: |optional ", "", str(schema.findField(name).type()))
            for name in columns
        }
        assert shown == {name: iceberg_type(kind) for name, kind in columns.items()}
        return
    written = hudi_type if table_format == "hudi" else str
    shown = {name: spelled(kind) for name, kind in tables.columns(TABLE).items()}
    assert shown == {name: spelled(written(kind)) for name, kind in columns.items()}


def test_properties_are_those_that_were_set(spark: SparkSession, lake: str) -> None:
    """Spark's statements hide values with words such as ``url``, also in names of columns."""
    tables = open_lake(spark, lake, Path(lake).name)
    tables.create(TABLE, {"url": "STRING"}, {"schema": '["url", "password"]', "odd": "'\\=: ü\n"})
    tables.set_properties(TABLE, {"order": "AAACUrLg", "token": "my secret"})
    found = tables.properties(TABLE)
    assert found["schema"] == '["url", "password"]'
    assert found["odd"] == "'\\=: ü\n"
    assert (found["order"], found["token"]) == ("AAACUrLg", "my secret")


def test_nested_columns_take_the_events_of_later_batches(spark: SparkSession, lake: str) -> None:
    """Iceberg and Hudi store an array of smallint as one of int, and tables quote no fields."""
    columns = "small array<smallint>, pair struct<a: smallint, B: array<decimal(5,2)>>"
    for number in (1, 2):
        row = (1, number, [number, None], (number, [None]))
        rows = spark.createDataFrame([row], f"id int, seq int, {columns}")
        table_format = Path(lake).name
        report = apply_changes(
            rows, lake, target="t", table_format=table_format, keys=["id"], sequence_by="seq"
        )
        assert report.quarantined == {}
    found = open_lake(spark, lake, table_format).read("tables/t").select("small", "pair")
    assert found.collect() == [([2, None], (2, [None]))]
