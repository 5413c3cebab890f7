# SPDX-License-Identifier: Apache-2.0
"""DDL statements that arrive after newer events: which of them a table can still execute.

If statements have a topic of their own, tables may contain newer values under the names that such
a statement introduces. Renaming or dropping a column would move these values to the wrong column.
"""

from collections.abc import Iterable
from typing import Final

from changelane.apply.column_mapping import ColumnChanges
from changelane.apply.schema_history import SchemaChangeEntry, TableRenamed
from changelane.apply.table_mapping import LakeTable, TableMapping
from changelane.schema import TableId
from changelane.spark.evolution.alter import ConflictError, TableAlteration, alteration_of
from changelane.spark.evolution.dropped_tables import has_newer_rows
from changelane.spark.lake.interface import Lake, name_of
from changelane.spark.lake.lookup import has_newer_value
from changelane.spark.rows.schema import table_id_text
from changelane.spark.state.change_log import has_newer_events
from changelane.spark.state.tombstones import has_newer_tombstone

RENAMED_LATE: Final = (
    "tables of these names have applied events that are newer than the RENAME TABLE statement, so "
    "it is not executed: load both tables again, with statements and events in one batch"
)


def executable_alteration(
    lake: Lake, name: str, schema_change: ColumnChanges, cleared: bytes
) -> TableAlteration:
    """Return the alteration of a table for one schema change.

    A dropped table of the same name may have left a column with a new name; the column is dropped
    if only rows of that table have values in it.

    Args:
        lake: The tables.
        name: The table.
        schema_change: The schema change.
        cleared: Rows up to this order belong to the dropped table; empty = there was none.

    Raises:
        ConflictError: The table has a column with a new name: events came before the statement.
    """
    also_dropped: list[str] = []
    while True:
        try:
            return alteration_of(schema_change, lake.columns(name), also_dropped)
        except ConflictError as error:
            if not cleared or has_newer_value(lake.read(name), [error.column], cleared):
                raise
            also_dropped.append(error.column)


def alters_newer_values(lake: Lake, name: str, alteration: TableAlteration, order: bytes) -> bool:
    """Return whether an altered column has values that are newer than the schema change.

    Args:
        lake: The tables.
        name: The table.
        alteration: The alteration.
        order: The order of the schema change.
    """
    columns = tuple(alteration.final_names)
    return bool(columns) and has_newer_value(lake.read(name), columns, order)


def renames_newer(lake: Lake, tables: TableMapping, entries: Iterable[SchemaChangeEntry]) -> bool:
    """Return whether schema changes rename tables with newer events, applied or pending.

    Args:
        lake: The tables.
        tables: The schema history without these schema changes.
        entries: The schema changes.
    """
    return any(
        _has_newer(lake, name, tables.lake_table(name, entry.order), entry.order)
        for entry in entries
        if isinstance(entry, TableRenamed)
        for name in (entry.table, entry.new_table)
    )


def _has_newer(lake: Lake, table: TableId, lake_table: LakeTable, order: bytes) -> bool:
    if has_newer_events(lake, table_id_text(table), order):
        return True
    table_id = table_id_text(*lake_table)
    name = name_of(table_id)
    properties = lake.properties(name) if lake.exists(name) else {}
    if "schema" in properties and has_newer_rows(lake, name, properties, order):
        return True
    return has_newer_tombstone(lake, table_id, order)
