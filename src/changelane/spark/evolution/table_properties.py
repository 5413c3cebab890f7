# SPDX-License-Identifier: Apache-2.0
"""What a table's properties say once it took a batch: its newest schema, and its places."""

from collections.abc import Mapping
from typing import Final

import msgspec

from changelane.spark.evolution.evolution_state import Followed
from changelane.spark.rows.batch_stats import TableBatch, epoch_partition_of
from changelane.spark.rows.schema import RowSchema
from changelane.spark.rows.schema_columns import plain_column
from changelane.spark.state.tombstones import TableTombstones

MANY: Final = "many"


def newest_position(properties: Mapping[str, str]) -> bytes:
    """Return an order up to which a table has taken events, at least.

    It is told with its schema, and once after each statement about the table: where nothing
    changes, the events that the table has taken since are newer.
    """
    return bytes.fromhex(properties.get("schema_order", ""))


def server_of(work: TableBatch) -> str | None:
    """Return the server of a batch's newest events that tell one."""
    servers = (work.schemas[name].server for name in work.newest_first)
    return next(filter(None, servers), None)


def batch_properties(
    work: TableBatch,
    kind: bytes,
    properties: Mapping[str, str],
    table_tombstones: TableTombstones,
    followed: Followed,
) -> dict[str, str]:
    """Return the properties of a table that takes a batch: its newest schema, and its places.

    As long as nothing changes they stay, for telling them is a commit of its own.
    """
    new_properties = {"order": kind.hex(), "table": work.table_id}
    newest, schema = max(work.newest.values(), default=b""), _plain(work.active_schema)
    is_other = properties.get("schema") != schema or newest_position(properties) < followed.newest
    if is_other and newest > newest_position(properties):
        new_properties["schema"] = schema
        new_properties["schema_order"] = newest.hex()
    server = server_of(work)
    if server is not None and "server" not in properties:
        new_properties["server"] = server
    if work.epoch_partitions:
        new_properties["place"] = place_text(
            work.epoch_partitions | epoch_partition_of(table_tombstones.truncated),
            properties.get("place"),
        )
    return new_properties


def _plain(schema: RowSchema) -> str:
    """Return a schema as the table has it, whatever events call its columns."""
    columns = tuple(plain_column(column) for column in schema.columns if column.fixed is None)
    plain = msgspec.structs.replace(schema, columns=columns, is_partial=False, lists_columns=False)
    return msgspec.json.encode(plain).decode()


def place_text(places: set[bytes], places_text: str | None) -> str:
    """Return the newest epoch of offsets and its partition, or that there are several.

    A new epoch begins anew: everything before it is older (docs/merge-rule.md, Orders).
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
