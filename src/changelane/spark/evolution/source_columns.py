# SPDX-License-Identifier: Apache-2.0
"""The columns of a table's source over time, as its events show them without DDL statements."""

from collections.abc import Collection, Mapping

import msgspec

from changelane.apply.added_columns import Addition, Cause, ColumnHistory
from changelane.apply.column_mapping import ColumnBackfill, ColumnMapping
from changelane.apply.schema_history import Backfill, ColumnAdded
from changelane.spark.evolution.compatibility import Policy
from changelane.spark.evolution.evolution_state import EvolutionState
from changelane.spark.evolution.table_properties import MANY, place_text
from changelane.spark.lake.commit_totals import CommitTotals
from changelane.spark.lake.interface import Lake
from changelane.spark.lake.modes import APPEND, HISTORY
from changelane.spark.rows.added_columns import SOURCE_COLUMNS, property_of, source_columns
from changelane.spark.rows.batch_stats import TableBatch
from changelane.spark.rows.schema import RowColumn, RowSchema, table_id_of
from changelane.spark.rows.schema_columns import schema_columns_of
from changelane.types import UNKNOWN


def source_columns_property(
    lake: Lake,
    name: str,
    table_batch: TableBatch,
    properties: Mapping[str, str],
    *,
    kind: bytes,
    evolution_state: EvolutionState,
    policy: Policy,
    table_columns: Collection[str],
    spellings: Mapping[str, str],
) -> dict[str, str]:
    """Return the property with a table's source columns after a batch; empty = unchanged.

    A table of mode ``append`` has no such property: its rows are events, which lack nothing.

    Args:
        lake: The tables.
        name: The table.
        table_batch: The events that the table applies.
        properties: The properties of the table; empty = it is new.
        kind: The kind of positions that the table compares (2 bytes).
        evolution_state: The executed statements; if there are any, they add the columns.
        policy: The user's choices; only with ``evolve`` a table gets columns.
        table_columns: The columns of the table.
        spellings: The spelling of its columns after the batch, by their names in lower case.
    """
    mode = policy.modes.of(table_id_of(table_batch.table_id))
    if mode.name == APPEND or policy.evolution.schema_changes != "evolve":
        return {}
    before = source_columns(properties)
    if evolution_state.column_mapping is not None:
        entries = evolution_state.column_mapping.entries
        names = {column.name for entry in entries for column in entry.added}
        names |= {new for entry in entries for _, new in entry.renamed}
        after = before.without(name.lower() for name in names)
        if mode.name == HISTORY:
            stated = _additions_of_statements(evolution_state.column_mapping)
            after = msgspec.structs.replace(after, added=(*after.added, *stated))
    else:
        if properties and SOURCE_COLUMNS not in properties:
            before = _of_schema(properties, table_columns)
        listings = [
            schema_columns_of(table_batch.schemas[schema_id], *order_range)
            for (schema_id, domain), order_range in table_batch.rows.items()
            if domain == kind and schema_id in table_batch.schemas
        ]
        if before.has_new(listings):
            high = CommitTotals.of(lake.last_commit(name)).high or ""
            before = before.reaching(bytes.fromhex(high))
        after = before.after(listings, _newest_of_partitions(table_batch, properties, before))
        is_merged = any(schema.is_merged for schema in table_batch.schemas.values())
        if is_merged or policy.source_servers == "multiple":
            after = _of_several_sources(before, after)
        elif mode.name == HISTORY:
            plain = (msgspec.structs.replace(addition, value=None) for addition in after.added)
            after = msgspec.structs.replace(after, added=tuple(plain))
    # the table spells a new column as the newest event does, and the history as the oldest one
    added = (
        msgspec.structs.replace(
            addition, column=spellings.get(addition.column.lower(), addition.column)
        )
        for addition in after.added
    )
    after = msgspec.structs.replace(after, added=tuple(added))
    is_same = _columns(after) == _columns(source_columns(properties))
    return {} if is_same else property_of(after)


def _additions_of_statements(mapping: ColumnMapping) -> tuple[Addition, ...]:
    """Return the columns that statements added with a value, which versions of rows do not get."""
    return tuple(
        Addition(
            mapping.spelling_of(backfill.column),
            backfill.order,
            Cause.DEFAULT if backfill.added.fill is Backfill.VALUE else Cause.COMPUTED,
        )
        for backfill in mapping.backfills
    )


def _of_several_sources(before: ColumnHistory, columns: ColumnHistory) -> ColumnHistory:
    """Return a history in which only rows of events with an added column have a value in it.

    Each server, or each of several merged tables, adds the column at a time of its own, perhaps
    with another default. Neither a row nor its position shows which.
    """
    added = tuple(
        msgspec.structs.replace(
            addition,
            order=addition.order[:2] + b"\xff" * (len(addition.order) - 2),
            cause=Cause.SERVERS,
            value=None,
        )
        for addition in columns.added[len(before.added) :]
    )
    return msgspec.structs.replace(columns, added=(*before.added, *added))


def _columns(columns: ColumnHistory) -> tuple[object, ...]:
    """Return the parts of a history whose change is worth a commit: not the orders it covers."""
    return (
        None if columns.newest is None else columns.newest.columns,
        columns.known_columns,
        columns.added,
    )


def _newest_of_partitions(
    table_batch: TableBatch, properties: Mapping[str, str], before: ColumnHistory
) -> bytes:
    """Return the newest order so far if orders are offsets of several partitions, else empty."""
    if not table_batch.epoch_partitions or not place_text(
        table_batch.epoch_partitions, properties.get("place")
    ).endswith(MANY):
        return b""
    return max(b"" if before.newest is None else before.newest.end, *table_batch.newest.values())


def _of_schema(properties: Mapping[str, str], table_columns: Collection[str]) -> ColumnHistory:
    """Return the columns of a table of an earlier version of changelane."""
    schema = msgspec.json.decode(properties["schema"], type=RowSchema)
    order = bytes.fromhex(properties.get("schema_order", ""))
    listing = msgspec.structs.replace(schema_columns_of(schema, order, order), is_complete=True)
    return ColumnHistory(
        listing if order else None, tuple(sorted(column.lower() for column in table_columns))
    )


def declared_backfills(added: Collection[Addition]) -> tuple[tuple[ColumnBackfill, RowColumn], ...]:
    """Return the backfills of columns with a default that their schema declares."""
    return tuple(
        (
            ColumnBackfill(
                addition.column.lower(), ColumnAdded(addition.column, UNKNOWN), addition.order
            ),
            RowColumn(addition.column, "", addition.value[1], fixed=addition.value),
        )
        for addition in added
        if addition.value is not None
    )
