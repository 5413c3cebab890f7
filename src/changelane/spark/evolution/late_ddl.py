# SPDX-License-Identifier: Apache-2.0
"""Statements that came after events which are newer: what they cannot do any more.

Where statements have a topic of their own, or are told late, tables hold what was told behind
them: under the new names, which are then taken for the old ones.
"""

from collections.abc import Iterable
from typing import Final

from changelane.apply.column_mapping import ColumnChanges
from changelane.apply.schema_history import SchemaChangeEntry, TableRenamed
from changelane.apply.table_mapping import LakeTable, TableMapping
from changelane.schema import TableId
from changelane.spark.evolution.alter import ConflictError, Turning, moved_columns, turning
from changelane.spark.evolution.prepare import is_newer
from changelane.spark.lake.interface import Lake, name_of
from changelane.spark.lake.lookup import has_newer_value
from changelane.spark.rows.schema import table_id_text
from changelane.spark.state.change_log import has_newer_events
from changelane.spark.state.tombstones import has_newer_tombstone

RENAMED_LATE: Final = (
    "the table was renamed before events that tables of these names took already, and is not "
    "renamed now: load both anew, with statements and events in one batch"
)


def turned(lake: Lake, name: str, step: ColumnChanges, cleared: bytes) -> Turning:
    """Return what a turn does to a table.

    A table of its name that went may have left a column where another is to come: of that only
    rows have values that go.

    Args:
        lake: The tables.
        name: The table.
        step: The turn.
        cleared: Rows up to here are of the table that went; empty = there was none.

    Raises:
        ConflictError: The column is the table's own: events came before the statement.
    """
    dropped_columns: list[str] = []
    while True:
        try:
            return turning(step, lake.columns(name), dropped_columns)
        except ConflictError as error:
            if not cleared or has_newer_value(lake.read(name), [error.column], cleared):
                raise
            dropped_columns.append(error.column)


def moves_newer(lake: Lake, name: str, turning: Turning, order: bytes) -> bool:
    """Say whether a turn moves a value that was told behind it: of the column that came then.

    Args:
        lake: The tables.
        name: The table.
        turning: The turn.
        order: Its place in the log.
    """
    columns = moved_columns(turning)
    return bool(columns) and has_newer_value(lake.read(name), columns, order)


def renames_newer(lake: Lake, tables: TableMapping, turns: Iterable[SchemaChangeEntry]) -> bool:
    """Say whether statements rename tables of which events are there, or wait, from behind them.

    Args:
        lake: The tables.
        tables: What the names meant until now.
        turns: What the statements do.
    """
    return any(
        _has_newer(lake, name, tables.lake_table(name, turn.order), turn.order)
        for turn in turns
        if isinstance(turn, TableRenamed)
        for name in (turn.table, turn.new_table)
    )


def _has_newer(lake: Lake, table: TableId, place: LakeTable, order: bytes) -> bool:
    if has_newer_events(lake, table_id_text(table), order):
        return True
    table_id = table_id_text(*place)
    name = name_of(table_id)
    properties = lake.properties(name) if lake.exists(name) else {}
    if "schema" in properties and is_newer(lake, name, properties, order):
        return True
    return has_newer_tombstone(lake, table_id, order)
