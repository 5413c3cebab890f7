# SPDX-License-Identifier: Apache-2.0
"""The columns of a table's source, where no statement tells what becomes of them."""

from collections.abc import Collection, Mapping

import msgspec

from changelane.apply.added_columns import Addition, ColumnHistory
from changelane.apply.column_mapping import ColumnBackfill
from changelane.apply.schema_history import ColumnAdded
from changelane.spark.evolution.compatibility import Policy
from changelane.spark.evolution.evolution_state import Followed
from changelane.spark.evolution.table_properties import MANY, place_text
from changelane.spark.lake.commit_totals import Tally
from changelane.spark.lake.interface import Lake
from changelane.spark.lake.modes import APPEND, HISTORY
from changelane.spark.rows.added_columns import SOURCE_COLUMNS, property_of, source_columns
from changelane.spark.rows.batch_stats import TableBatch
from changelane.spark.rows.schema import RowColumn, RowSchema, table_id_of
from changelane.spark.rows.schema_columns import schema_columns_of
from changelane.types import UNKNOWN


def new_columns(
    lake: Lake,
    name: str,
    work: TableBatch,
    properties: Mapping[str, str],
    *,
    kind: bytes,
    followed: Followed,
    policy: Policy,
    table_columns: Collection[str],
) -> dict[str, str]:
    """Return the property that remembers a table's columns after a batch; nothing = it stays.

    A table of events keeps each as it came: of one from before a column, nothing is unknown.

    Args:
        lake: The tables.
        name: The table.
        work: The events that it takes.
        properties: Its properties; none = it is new.
        kind: The kind of positions that it compares (2 bytes).
        followed: Its statements: where there are some, they tell of new columns.
        policy: What the user chose. A table that stays as it is gets no columns.
        table_columns: The columns that it has.
    """
    mode = policy.modes.of(table_id_of(work.table_id))
    if mode.name == APPEND or policy.evolution.schema_changes != "evolve":
        return {}
    before = source_columns(properties)
    if followed.shape is not None:
        turns = followed.shape.entries
        names = {column.name for turn in turns for column in turn.added}
        names |= {new for turn in turns for _, new in turn.renamed}
        after = before.without(name.lower() for name in names)
    else:
        if properties and SOURCE_COLUMNS not in properties:
            before = _of_schema(properties, table_columns)
        listings = [
            schema_columns_of(work.schemas[schema_id], *reach)
            for (schema_id, domain), reach in work.rows.items()
            if domain == kind and schema_id in work.schemas
        ]
        if before.has_new(listings):
            high = Tally.of(lake.last_commit(name)).high or ""
            before = before.reaching(bytes.fromhex(high))
        after = before.after(listings, _crossing(work, properties, before))
        if mode.name == HISTORY:
            plain = (msgspec.structs.replace(addition, value=None) for addition in after.added)
            after = msgspec.structs.replace(after, added=tuple(plain))
    is_same = _columns(after) == _columns(source_columns(properties))
    return {} if is_same else property_of(after)


def _columns(columns: ColumnHistory) -> tuple[object, ...]:
    """Return what of a table's columns is worth a commit: not how far their schema reaches."""
    return (
        None if columns.newest is None else columns.newest.columns,
        columns.known_columns,
        columns.added,
    )


def _crossing(work: TableBatch, properties: Mapping[str, str], before: ColumnHistory) -> bytes:
    """Return the newest order so far, where orders are offsets of several partitions."""
    if not work.epoch_partitions or not place_text(
        work.epoch_partitions, properties.get("place")
    ).endswith(MANY):
        return b""
    return max(b"" if before.newest is None else before.newest.end, *work.newest.values())


def _of_schema(properties: Mapping[str, str], table_columns: Collection[str]) -> ColumnHistory:
    """Return the columns of a table of an earlier version of changelane."""
    schema = msgspec.json.decode(properties["schema"], type=RowSchema)
    order = bytes.fromhex(properties.get("schema_order", ""))
    listing = msgspec.structs.replace(schema_columns_of(schema, order, order), is_complete=True)
    return ColumnHistory(
        listing if order else None, tuple(sorted(column.lower() for column in table_columns))
    )


def fillings(added: Collection[Addition]) -> tuple[tuple[ColumnBackfill, RowColumn], ...]:
    """Return the columns whose older rows have the default that the schema declares."""
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
