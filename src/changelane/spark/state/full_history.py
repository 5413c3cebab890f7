# SPDX-License-Identifier: Apache-2.0
"""The full history of a table that tracks some columns only: all versions of the rows."""

from collections.abc import Mapping

from changelane.spark.lake.interface import FULL_HISTORIES, TABLES, Lake
from changelane.spark.lake.modes import HISTORY, STATE_TYPES


def full_history_of(name: str) -> str:
    """Return the path of a table's full history in the lake."""
    return FULL_HISTORIES + name.removeprefix(f"{TABLES}/")


def prepare_full_history(lake: Lake, name: str, columns: Mapping[str, str]) -> str | None:
    """Create or alter the full history of a table; return the reason if that is impossible.

    Args:
        lake: The tables.
        name: The table.
        columns: The columns of its source, name -> Spark type.
    """
    full_history = full_history_of(name)
    if not lake.exists(full_history):
        lake.create(full_history, {**columns, **STATE_TYPES[HISTORY]}, {"companion": name})
        return None
    stored_columns = {
        c: kind for c, kind in lake.columns(full_history).items() if c not in STATE_TYPES[HISTORY]
    }
    if stored_columns.keys() - columns.keys():
        return (
            "a column was renamed or dropped, which a table that tracks some columns does not "
            "support: move the table away and load it again"
        )
    if added_columns := {c: kind for c, kind in columns.items() if c not in stored_columns}:
        lake.add_columns(full_history, added_columns)
    if widened_columns := {
        c: kind for c, kind in columns.items() if stored_columns.get(c, kind) != kind
    }:
        lake.widen_columns(full_history, widened_columns)
    return None
