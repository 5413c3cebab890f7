# SPDX-License-Identifier: Apache-2.0
"""The properties of a table: its newest schema, its positions, and its own columns."""

from collections.abc import Mapping
from typing import Final

import msgspec

from changelane.spark.evolution.alter import OWN_COLUMNS
from changelane.spark.evolution.evolution_state import EvolutionState
from changelane.spark.lake.modes import DEDUPLICATION_COLUMNS, TableMode
from changelane.spark.rows.batch_stats import TableBatch, epoch_partition_of
from changelane.spark.rows.schema import RowSchema
from changelane.spark.rows.schema_columns import plain_column
from changelane.spark.state.tombstones import TableTombstones

MANY: Final = "many"


def newest_position(properties: Mapping[str, str]) -> bytes:
    """Return an order that is not above the newest event that a table has applied.

    It is recorded with a new schema, and once after each statement about the table; newer events
    without such a change do not raise it.
    """
    return bytes.fromhex(properties.get("schema_order", ""))


def server_of(table_batch: TableBatch) -> str | None:
    """Return the server of the newest events of a batch that name one."""
    servers = (table_batch.schemas[name].server for name in table_batch.newest_first)
    return next(filter(None, servers), None)


def batch_properties(
    table_batch: TableBatch,
    kind: bytes,
    properties: Mapping[str, str],
    table_tombstones: TableTombstones,
    evolution_state: EvolutionState,
) -> dict[str, str]:
    """Return the properties of a table after a batch: its newest schema, and its positions.

    They stay as long as nothing changes, because setting them is a commit of its own.
    """
    new_properties = {"order": kind.hex(), "table": table_batch.table_id}
    newest = max(table_batch.newest.values(), default=b"")
    schema = _plain(table_batch.active_schema)
    has_new_statement = newest_position(properties) < evolution_state.newest
    is_changed = properties.get("schema") != schema or has_new_statement
    if is_changed and newest > newest_position(properties):
        new_properties["schema"] = schema
        new_properties["schema_order"] = newest.hex()
    server = server_of(table_batch)
    if server is not None and "server" not in properties:
        new_properties["server"] = server
    if table_batch.epoch_partitions:
        new_properties["place"] = place_text(
            table_batch.epoch_partitions | epoch_partition_of(table_tombstones.truncated),
            properties.get("place"),
        )
    return new_properties


def _plain(schema: RowSchema) -> str:
    """Return a schema with the names of the table's columns only."""
    columns = tuple(plain_column(column) for column in schema.columns if column.fixed is None)
    plain = msgspec.structs.replace(
        schema, columns=columns, is_partial=False, lists_columns=False, is_merged=False
    )
    return msgspec.json.encode(plain).decode()


def place_text(places: set[bytes], places_text: str | None) -> str:
    """Return the newest epoch of offsets and its partition, or :data:`MANY` for several.

    Everything before a new epoch is older (docs/merge-rule.md, Orders).
    """
    epochs = {place[:4].hex() for place in places}
    tags = {place[4:].hex() for place in places}
    epoch = max(epochs)
    if places_text is not None:
        before, _, tag = places_text.partition(":")
        if before > epoch:
            return f"{before}:{MANY}"
        if before == epoch:
            tags.add(tag)
    return f"{epoch}:{tags.pop() if len(tags) == 1 and len(epochs) == 1 else MANY}"


def columns_of_source(
    table_columns: Mapping[str, str], properties: Mapping[str, str], mode: TableMode
) -> dict[str, str]:
    """Return the columns that are written: not state columns, nor columns that users added."""
    state = {**mode.state_types, **DEDUPLICATION_COLUMNS}
    text = properties.get(OWN_COLUMNS)
    names = None if text is None else set(msgspec.json.decode(text, type=list[str]))
    return {
        column: kind
        for column, kind in table_columns.items()
        if column not in state and (names is None or column.lower() in names)
    }
