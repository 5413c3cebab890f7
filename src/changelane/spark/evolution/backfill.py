# SPDX-License-Identifier: Apache-2.0
"""Fills a new column of a table in the rows that are older than the column.

The source gave its older rows a value when the column was added. If the value is known, the rows
get it; otherwise the column is marked as unknown in them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from changelane.apply.column_mapping import ColumnBackfill
from changelane.spark.lake.interface import Lake, retry_conflicts
from changelane.spark.lake.type_texts import fits
from changelane.spark.rows.schema import RowColumn
from changelane.spark.runtime.sql import COLUMNS, ORDER, quoted, sql_literal

BACKFILLED: Final = "filled"
"""The property with the ids of the backfills that the table has."""


def backfill_id(backfill: ColumnBackfill) -> str:
    """Return the id of a backfill of a table."""
    return hashlib.sha256(backfill.order + backfill.column.encode()).hexdigest()[:12]


def backfill_columns(
    lake: Lake,
    name: str,
    properties: dict[str, str],
    backfills: Sequence[tuple[ColumnBackfill, RowColumn | None]],
) -> dict[str, str]:
    """Fill the columns that the table has and that are not filled yet; return its properties."""
    done = set(properties.get(BACKFILLED, "").split(","))
    remaining = [backfill for backfill in backfills if backfill_id(backfill[0]) not in done]
    if remaining:
        columns = {column.lower() for column in lake.columns(name)}
        for backfill, value in remaining:
            if backfill.column in columns:
                properties = backfill_column(lake, name, backfill, value, properties)
    return properties


def backfill_column(
    lake: Lake,
    name: str,
    backfill: ColumnBackfill,
    value: RowColumn | None,
    properties: Mapping[str, str],
) -> dict[str, str]:
    """Fill one column in the rows that are older than it; return the table's properties.

    Args:
        lake: The tables.
        name: The table.
        backfill: The column, and the order at which it was added.
        value: Its value; ``None`` if the source computed a value that the log does not contain.
        properties: The properties of the table.
    """
    columns = lake.columns(name)
    column, kind = next(
        (column, kind) for column, kind in columns.items() if column.lower() == backfill.column
    )
    column_order = f"coalesce(try_element_at({COLUMNS}, {sql_literal(column)}), {ORDER})"
    added_at = f"unhex('{backfill.order.hex()}')"
    if value is not None and value.fixed is not None and fits(value.fixed[1], kind):
        typed = f"from_json({sql_literal(value.fixed[0])}, {sql_literal('v ' + value.fixed[1])}).v"
        sets = {column: f"CAST({typed} AS {kind})"}
        is_older = f"{column_order} < {added_at} AND length({column_order}) > 0"
        condition = f"{quoted(column)} IS NULL AND {is_older}"
        retry_conflicts(lambda: lake.update(lake.spark, name, sets, condition))
    else:
        if "exceptions" not in properties:
            lake.set_properties(name, {"exceptions": "true"})
            properties = {**properties, "exceptions": "true"}
        none = "cast(map() AS map<string,binary>)"
        other_orders = f"map_filter({COLUMNS}, (k, v) -> k != {sql_literal(column)})"
        unknown = f"map({sql_literal(column)}, unhex(''))"
        unset = {COLUMNS: f"map_concat(coalesce({other_orders}, {none}), {unknown})"}
        condition = f"{quoted(column)} IS NULL AND {column_order} < {added_at}"
        retry_conflicts(lambda: lake.update(lake.spark, name, unset, condition))
    done = filter(None, (properties.get(BACKFILLED), backfill_id(backfill)))
    new_properties = {BACKFILLED: ",".join(done)}
    lake.set_properties(name, new_properties)
    return {**properties, **new_properties}
