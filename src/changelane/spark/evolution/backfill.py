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
from changelane.spark.runtime.sql import (
    COLUMNS,
    EMPTY_ORDER,
    NO_EXCEPTIONS,
    ORDER,
    quoted,
    sql_literal,
)

BACKFILLED: Final = "filled"
"""The property with the ids of the backfills that the table has."""

ValuedBackfill = tuple[ColumnBackfill, RowColumn | None]
"""A backfill and its value; ``None`` if the source computed a value that the log does not contain.
"""


def backfill_id(backfill: ColumnBackfill) -> str:
    """Return the id of a backfill of a table."""
    return hashlib.sha256(backfill.order + backfill.column.encode()).hexdigest()[:12]


def backfill_columns(
    lake: Lake, name: str, properties: dict[str, str], backfills: Sequence[ValuedBackfill]
) -> dict[str, str]:
    """Fill the columns that the table has and that are not filled yet; return its properties.

    One statement fills all of them, because each rewrites the older rows of the table.
    """
    done = set(properties.get(BACKFILLED, "").split(","))
    remaining = [backfill for backfill in backfills if backfill_id(backfill[0]) not in done]
    if not remaining:
        return properties
    columns = {column.lower(): (column, kind) for column, kind in lake.columns(name).items()}
    remaining = [backfill for backfill in remaining if backfill[0].column in columns]
    while remaining:
        # a column that was added twice is filled in the order of its additions
        by_column: dict[str, ValuedBackfill] = {}
        remaining = [
            backfill
            for backfill in remaining
            if by_column.setdefault(backfill[0].column, backfill) is not backfill
        ]
        properties = _backfill(lake, name, properties, list(by_column.values()), columns)
    return properties


def _backfill(
    lake: Lake,
    name: str,
    properties: dict[str, str],
    backfills: Sequence[ValuedBackfill],
    columns: Mapping[str, tuple[str, str]],
) -> dict[str, str]:
    """Fill different columns in the rows that are older than them; return the properties."""
    sets: dict[str, str] = {}
    conditions: list[str] = []
    unknown_names: list[str] = []
    for backfill, value in backfills:
        column, kind = columns[backfill.column]
        column_order = f"coalesce(try_element_at({COLUMNS}, {sql_literal(column)}), {ORDER})"
        is_older = f"{quoted(column)} IS NULL AND {column_order} < unhex('{backfill.order.hex()}')"
        if value is not None and value.fixed is not None and fits(value.fixed[1], kind):
            text, json_kind = map(sql_literal, (value.fixed[0], f"v {value.fixed[1]}"))
            typed = f"CAST(from_json({text}, {json_kind}).v AS {kind})"
            is_older += f" AND length({column_order}) > 0"
            sets[column] = f"CASE WHEN {is_older} THEN {typed} ELSE {quoted(column)} END"
        else:
            unknown_names.append(f"CASE WHEN {is_older} THEN {sql_literal(column)} END")
        conditions.append(f"({is_older})")
    if unknown_names:
        if "exceptions" not in properties:
            lake.set_properties(name, {"exceptions": "true"})
            properties = {**properties, "exceptions": "true"}
        sets[COLUMNS] = _exceptions_with(f"array_compact(array({', '.join(unknown_names)}))")
    condition = " OR ".join(conditions)
    retry_conflicts(lambda: lake.update(lake.spark, name, sets, condition))
    done = filter(None, (properties.get(BACKFILLED), *(backfill_id(one) for one, _ in backfills)))
    new_properties = {BACKFILLED: ",".join(done)}
    lake.set_properties(name, new_properties)
    return {**properties, **new_properties}


def _exceptions_with(name_array: str) -> str:
    """Return the exceptions of a row with an empty order for each of some columns, as SQL."""
    # the names depend on columns, which a variable of a lambda with their name would hide
    key, value = "_changelane_key", "_changelane_value"
    others = f"map_filter({COLUMNS}, ({key}, {value}) -> NOT array_contains({name_array}, {key}))"
    unknown = f"map_from_arrays({name_array}, transform({name_array}, n -> {EMPTY_ORDER}))"
    with_them = f"map_concat(coalesce({others}, {NO_EXCEPTIONS}), {unknown})"
    return f"CASE WHEN size({name_array}) > 0 THEN {with_them} ELSE {COLUMNS} END"
