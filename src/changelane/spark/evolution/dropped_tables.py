# SPDX-License-Identifier: Apache-2.0
"""Dropped tables: which rows of a lake table belong to a dropped table of the same name."""

from collections.abc import Mapping, Sequence
from typing import Final

from changelane.apply.table_mapping import TableEnd
from changelane.spark.evolution.evolution_state import EvolutionState
from changelane.spark.evolution.table_properties import newest_position
from changelane.spark.lake.interface import Lake, name_of
from changelane.spark.lake.lookup import has_newer
from changelane.spark.rows.batch_stats import TableBatch
from changelane.spark.state.tombstones import TableTombstones, has_newer_tombstone

CLEARED: Final = "cleared"
"""The property with the order up to which rows of a dropped table of the name are deleted."""


def has_newer_rows(lake: Lake, name: str, properties: Mapping[str, str], dropped_at: bytes) -> bool:
    """Return whether a table has applied an event that is newer than a DROP TABLE of its name."""
    return dropped_at <= newest_position(properties) or has_newer(lake.read(name), dropped_at)


def is_created_again(lake: Lake, table_id: str, dropped_at: bytes) -> bool:
    """Return whether the lake has rows or tombstones that are newer than a DROP TABLE."""
    name = name_of(table_id)
    properties = lake.properties(name) if lake.exists(name) else {}
    if "schema" not in properties:
        return False
    if dropped_at.hex() <= properties.get(CLEARED, ""):
        return True
    if has_newer_rows(lake, name, properties, dropped_at):
        return True
    return has_newer_tombstone(lake, table_id, dropped_at)


def cleared_order(
    lake: Lake,
    table_id: str,
    ends: Sequence[TableEnd],
    newest: bytes,
    truncated: bytes,
    *,
    is_truncated_at_once: bool,
) -> bytes:
    """Return the order up to which rows belong to a dropped table; empty = none.

    Args:
        lake: The tables.
        table_id: The table.
        ends: The DROP TABLE statements of the name, in the order of the log.
        newest: The newest order of its events in the batch; empty = none.
        truncated: The newest truncate of the table before the batch.
        is_truncated_at_once: Whether rows are deleted before the name has new ones
            (``dropped_tables: truncate``).
    """
    for end in reversed(ends):
        has_newer_event = end.is_replaced or end.order < newest or end.order <= truncated
        # newer rows belong to a new table of the name, even without its CREATE TABLE statement
        if is_truncated_at_once or has_newer_event or is_created_again(lake, table_id, end.order):
            return end.order
    return b""


def rows_to_clear(
    table_batch: TableBatch,
    evolution_state: EvolutionState,
    table_tombstones: TableTombstones,
    properties: Mapping[str, str],
) -> bytes:
    """Return the order up to which this batch deletes rows of a dropped table; empty = none."""
    cleared = evolution_state.cleared
    if cleared[:2] not in table_batch.domains:
        return b""
    has_older_events = table_tombstones.truncated < cleared and any(
        order < cleared for order in table_batch.oldest.values()
    )
    has_older_rows = bool(properties) and properties.get(CLEARED, "") < cleared.hex()
    return cleared if has_older_events or has_older_rows else b""
