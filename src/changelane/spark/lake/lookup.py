# SPDX-License-Identifier: Apache-2.0
"""Lookups in a table: the existing rows of some keys, and rows with newer or unknown values."""

import re
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.apply import key_values
from changelane.apply.added_columns import Addition
from changelane.spark.rows.added_columns import column_exceptions
from changelane.spark.rows.json_values import key_text
from changelane.spark.rows.target import Target
from changelane.spark.runtime.conditions import any_of
from changelane.spark.runtime.sql import COLUMNS, NO_EXCEPTIONS, ORDER, quoted


def existing_rows(
    table: DataFrame, keys: DataFrame, target: Target, *, are_few: bool = True
) -> DataFrame:
    """Return the existing rows of some keys.

    Args:
        table: The table.
        keys: Canonical keys in a column ``key``.
        target: The table's columns and key.
        are_few: Whether the keys are few enough to be broadcast.

    Returns:
        ``key``, ``row`` (a struct of the table's columns), ``order`` (the base order) and
        ``orders`` (the exceptions).
    """
    # the struct separates the table's columns from changelane's
    row = F.struct(*(F.col(quoted(name)).alias(name) for name in target.columns))
    rows = table.select(
        row.alias("row"),
        F.col(ORDER).alias("order"),
        column_exceptions(target.additions).alias("orders"),
    )
    same = F.lit(True)
    for index, name in enumerate(target.keys):
        same = same & F.col(f"k{index}").eqNullSafe(F.col("row")[name])
    typed_keys = _typed_keys(keys, target)
    matches = rows.join(F.broadcast(typed_keys) if are_few else typed_keys, same)
    return matches.select("key", "row", "order", "orders")


def has_newer(table: DataFrame, order: bytes) -> bool:
    """Return whether a row or a column of a table is newer than an order."""
    floor = F.lit(bytearray(order))
    ages = F.map_values(F.coalesce(COLUMNS, F.expr(NO_EXCEPTIONS)))
    newer = (F.col(ORDER) > floor) | F.exists(ages, lambda age: age > floor)
    return not table.where(newer).isEmpty()


def has_newer_value(table: DataFrame, columns: Iterable[str], order: bytes) -> bool:
    """Return whether some columns have a value that is newer than an order."""
    floor = F.lit(bytearray(order))
    is_newer = []
    for name in columns:
        age = F.coalesce(F.try_element_at(F.col(COLUMNS), F.lit(name)), F.col(ORDER))
        is_newer.append(F.col(quoted(name)).isNotNull() & (age > floor))
    return not table.where(any_of(is_newer)).isEmpty()


def is_incomplete(columns: Iterable[str], added: Sequence[Addition] = ()) -> Column:
    """Return whether a row has a column with an unknown value.

    Args:
        columns: The columns of the table.
        added: Those that were added without a statement.
    """
    lacks = F.exists(F.map_values(column_exceptions(added)), lambda order: F.length(order) == 0)
    # a row without a base order lists every column that the table had at its last write
    names = F.array(*map(F.lit, columns))
    later = (F.length(ORDER) == 0) & (F.size(F.array_except(names, F.map_keys(COLUMNS))) > 0)
    return F.coalesce(lacks | later, F.lit(False))


def _typed_keys(keys: DataFrame, target: Target) -> DataFrame:
    """Return ``key`` and ``k0`` ..: the values of its columns, in the table's types."""
    texts = keys.select("key").mapInArrow(_key_texts, "key STRING, texts ARRAY<STRING>")
    fits = F.size("texts") == len(target.keys)
    return texts.where(fits).select(
        "key",
        *(
            value_of_text(F.col("texts")[index], target.columns[name]).alias(f"k{index}")
            for index, name in enumerate(target.keys)
        ),
    )


def _key_texts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        keys = batch.column(0).to_pylist()
        texts = [[key_text(value) for value in key_values(key.encode())] for key in keys]
        yield pa.RecordBatch.from_arrays(
            [pa.array(keys, pa.string()), pa.array(texts, pa.list_(pa.string()))], ["key", "texts"]
        )


def json_type(kind: str) -> str:
    """Return the type in which nested values become JSON: Spark's JSON form of times is lossy."""
    if "struct" in kind or "binary" in kind:
        return kind
    return re.sub(r"[^<>]+(?=>)", "string", kind)


def value_of_text(text: Column, kind: str) -> Column:
    """Return the value of a text that a column was written as."""
    if kind == "binary":
        return F.unbase64(text)
    if kind.startswith(("array", "struct")):
        return F.from_json(text, f"v {json_type(kind)}")["v"].cast(kind)
    return text.cast(kind)
