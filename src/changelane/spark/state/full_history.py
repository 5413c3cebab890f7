# SPDX-License-Identifier: Apache-2.0
"""The companion of a table that tracks some columns only: it keeps all versions of the rows."""

from collections.abc import Mapping

from changelane.spark.lake.interface import TABLES, Lake
from changelane.spark.lake.modes import HISTORY, STATE_TYPES


def companion_of(name: str) -> str:
    """Return the place of a table's companion in the lake."""
    return f"_changelane/versions.{name.removeprefix(TABLES + '/')}"


def follow(lake: Lake, name: str, columns: Mapping[str, str]) -> str | None:
    """Give the companion of a table its columns; return why it cannot have them.

    Args:
        lake: The tables.
        name: The table.
        columns: The columns of its source, name -> Spark type.
    """
    beside = companion_of(name)
    if not lake.exists(beside):
        lake.create(beside, {**columns, **STATE_TYPES[HISTORY]}, {"companion": name})
        return None
    held = {c: kind for c, kind in lake.columns(beside).items() if c not in STATE_TYPES[HISTORY]}
    if held.keys() - columns.keys():
        return (
            "a column was renamed or dropped, and a table that tracks some columns cannot follow: "
            "move it away and load it anew"
        )
    if added := {c: kind for c, kind in columns.items() if c not in held}:
        lake.add_columns(beside, added)
    if widened := {c: kind for c, kind in columns.items() if held.get(c, kind) != kind}:
        lake.widen_columns(beside, widened)
    return None
