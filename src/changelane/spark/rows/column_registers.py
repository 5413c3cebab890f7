# SPDX-License-Identifier: Apache-2.0
"""Rows whose columns have orders of their own (docs/merge-rule.md, Registers).

The latest events per key (:mod:`changelane.spark.rows.latest_per_key`) are joined with the stored
rows of their keys, and each column takes its newest value. The expressions are SQL, because PySpark
calls the JVM for each function and each of its arguments: 57,000 times for 300 columns.

The columns of the intermediate frames, beside those of the latest events:

===============  ===============================================================================
column           content
===============  ===============================================================================
``k0`` ..        key columns of the batch's row
``t0`` ..        columns of the stored row, with ``t_order`` and ``t_columns``
``p0`` ..        newest value of each column: ``o``, ``v``
===============  ===============================================================================
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.spark.rows.added_columns import column_exceptions
from changelane.spark.rows.latest_per_key import order_without_conflict, with_newest_row
from changelane.spark.rows.target import Target, implied_order
from changelane.spark.runtime.sql import (
    COLUMNS,
    DELETED,
    EMPTY_ORDER,
    LIVE,
    NO_EXCEPTIONS,
    ORDER,
    UPSERTED,
    quoted,
    sql_literal,
)

_STORED: Final = "_changelane_stored"
_COVERED: Final = "_changelane_covered"
_ORDERS: Final = "_changelane_orders"
_HAS_CONFLICT: Final = "_changelane_is_conflict"


def with_stored_rows(key_rows: DataFrame, table: DataFrame, target: Target) -> DataFrame:
    """Return the latest rows per column joined with the stored rows of their keys.

    Args:
        key_rows: The rows of :func:`~changelane.spark.rows.latest_per_key.latest_per_column`.
        table: The stored rows.
        target: The table.
    """
    keys = [
        f"coalesce(`row`.{quoted(name)}, try_element_at(parts, 1).r.{quoted(name)}) AS k{index}"
        for index, name in enumerate(target.keys)
    ]
    typed = with_newest_row(key_rows, target).selectExpr(
        "d", "u", "b", "w.o AS w", "`row`", "parts", "is_conflict", *keys
    )
    at = {name: index for index, name in enumerate(target.columns)}
    same_keys = [f"k{index} <=> t{at[name]}" for index, name in enumerate(target.keys)]
    stored_rows = table.select(*_stored_columns(target))
    return typed.join(stored_rows, F.expr(" AND ".join(("true", *same_keys))), "left")


def _stored_columns(target: Target) -> list[Column]:
    columns = [F.expr(f"{quoted(name)} AS t{index}") for index, name in enumerate(target.columns)]
    listed = column_exceptions(target.additions).alias("t_columns")
    return [*columns, F.col(ORDER).alias("t_order"), listed]


def merge_source(rows: DataFrame, target: Target) -> DataFrame:
    """Return final rows by their registers (docs/merge-rule.md, Registers).

    Each column takes the value of the newest event above ``d`` that carries the column. The base
    order is ``b`` or the base order of the stored row: the one that more columns have, and of
    equals the newer one. Other orders are exceptions; an empty order is an unknown value. If no
    event covers the row, the base is empty and every column is an exception. A statement that
    reads a row with a conflict fails (:data:`~changelane.spark.rows.latest_per_key.CONFLICT`).

    Args:
        rows: The rows of :func:`with_stored_rows` or :func:`truncated_rows`.
        target: The table.
    """
    columns = list(target.columns)
    key_at = {name: index for index, name in enumerate(target.keys)}
    newest_exception = f"coalesce(array_max(map_values(t_map)), {EMPTY_ORDER})"
    stored_upsert = f"greatest(coalesce(t_order, {EMPTY_ORDER}), {newest_exception})"
    # a deleted row keeps the values that a departure would clear
    lives = f"greatest(coalesce(u, {EMPTY_ORDER}), {stored_upsert}) > d"
    cleared = f"CASE WHEN {lives} THEN d ELSE {EMPTY_ORDER} END" if target.keeps_deleted else "d"
    picked = (
        rows.withColumn("t_map", F.expr(f"coalesce(t_columns, {NO_EXCEPTIONS})"))
        .withColumn("cleared", F.expr(cleared))
        .selectExpr(
            "d",
            "u",
            "is_conflict",
            *(f"k{index}" for index in range(len(target.keys))),
            f"{stored_upsert} AS t_u",
            f"{_order_above_cleared('b')} AS {_COVERED}",
            f"{_order_above_cleared('t_order')} AS {_STORED}",
            *(f"{_newest_value(name, index)} AS p{index}" for index, name in enumerate(columns)),
        )
    )
    values = [f"k{key_at[name]}" if name in key_at else f"p{i}.v" for i, name in enumerate(columns)]
    orders = ", ".join(f"coalesce(p{index}.o, {EMPTY_ORDER})" for index in range(len(columns)))
    placed = picked.selectExpr(
        *(f"{value} AS {quoted(name)}" for value, name in zip(values, columns, strict=True)),
        _COVERED,
        _STORED,
        f"array({orders}) AS {_ORDERS}",
        f"coalesce(u, {EMPTY_ORDER}) AS {UPSERTED}",
        f"greatest(coalesce(u, {EMPTY_ORDER}), t_u) > d AS {LIVE}",
        f"is_conflict AS {_HAS_CONFLICT}",
    )
    based = placed.withColumn(ORDER, F.expr(_BASE_ORDER))
    return based.withColumn(COLUMNS, _exceptions(target)).select(
        *map(quoted, columns),
        order_without_conflict(_HAS_CONFLICT, ORDER).alias(ORDER),
        COLUMNS,
        LIVE,
    )


def _order_above_cleared(order: str) -> str:
    """Return an order, or the empty one if it is not above that of the newest departure."""
    return f"CASE WHEN {order} > cleared THEN {order} ELSE {EMPTY_ORDER} END"


def _newest_value(name: str, index: int) -> str:
    """Return the newest value of a column: the order ``o`` and the value ``v``."""
    listed, field = sql_literal(name), quoted(name)
    is_carried = f"part.o > cleared AND array_contains(part.has, {listed})"
    value = f"part -> struct(part.o AS o, part.r.{field} AS v)"
    newest_part = f"array_max(transform(filter(parts, part -> {is_carried}), {value}))"
    stored_order = f"coalesce(try_element_at(t_map, {listed}), t_order)"
    candidates = (
        # most rows have no partial event, and arrays would take most of the time
        f"CASE WHEN size(parts) > 0 THEN {newest_part} END",
        f"CASE WHEN w > cleared THEN struct(w AS o, `row`.{field} AS v) END",
        f"CASE WHEN {stored_order} > cleared THEN struct({stored_order} AS o, t{index} AS v) END",
    )
    return f"greatest({', '.join(candidates)})"


def _has_one_order(order: str) -> str:
    """Return whether all columns of a row have an order: then nothing needs to be counted."""
    return f"(array_min({_ORDERS}) = {order} AND array_max({_ORDERS}) = {order})"


def _count(order: str) -> str:
    """Return the number of columns with an order."""
    return f"size(filter({_ORDERS}, each -> each = {order}))"


_NEWER: Final = f"greatest({_COVERED}, {_STORED})"
_OLDER: Final = f"least({_COVERED}, {_STORED})"
_BASE_ORDER: Final = (
    f"CASE WHEN NOT {_has_one_order(_NEWER)} AND {_OLDER} <> {EMPTY_ORDER} "
    f"AND {_count(_OLDER)} > {_count(_NEWER)} THEN {_OLDER} ELSE {_NEWER} END"
)


def _exceptions(target: Target) -> Column:
    """Return the orders of the columns with another order than the row's; NULL = there are none."""
    names = ", ".join(map(sql_literal, target.columns))
    orders = F.expr(f"map_from_arrays(array({names}), {_ORDERS})")
    # without a base order every column is an exception, unless no event carried any
    without_base = F.expr(f"{ORDER} = {EMPTY_ORDER} AND array_max({_ORDERS}) > {EMPTY_ORDER}")
    exceptions = F.map_filter(
        orders, lambda name, order: (order != implied_order(name, target)) | without_base
    )
    listed = F.when(F.size(exceptions) > 0, exceptions)
    if any(addition.is_unknown for addition in target.additions):
        return listed
    return F.when(F.expr(f"NOT {_has_one_order(ORDER)} OR {ORDER} = {EMPTY_ORDER}"), listed)


def truncated_rows(table: DataFrame, target: Target, order: bytes) -> DataFrame:
    """Return the rows of a table that a truncate changes, as input of :func:`merge_source`."""
    floor = F.lit(bytearray(order))
    if target.keeps_deleted:
        table = table.where(~F.col(DELETED))
    ages = F.map_values(F.expr(f"coalesce({COLUMNS}, {NO_EXCEPTIONS})"))
    touched = table.where((F.col(ORDER) <= floor) | F.exists(ages, lambda age: age <= floor))
    row = ", ".join(f"{quoted(name)}: {kind}" for name, kind in target.columns.items())
    none = f"array<struct<o: binary, has: array<string>, r: struct<{row}>>>"
    return touched.select(
        floor.alias("d"),
        *(F.lit(None).cast("binary").alias(name) for name in ("u", "b", "w")),
        F.struct(*(F.col(quoted(name)).alias(name) for name in target.columns)).alias("row"),
        F.array().cast(none).alias("parts"),
        F.lit(False).alias("is_conflict"),
        *(F.col(quoted(name)).alias(f"k{index}") for index, name in enumerate(target.keys)),
        *_stored_columns(target),
    )
