# SPDX-License-Identifier: Apache-2.0
"""Splits the DDL statements of a batch into those that tables execute and those that are rejected.

The functions here only decide; :mod:`changelane.spark.evolution.alter` alters the tables.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F

from changelane.apply.schema_history import (
    Backfill,
    SchemaChangeEntry,
    SchemaDropped,
    TableAltered,
    TableDropped,
    TableRenamed,
)
from changelane.apply.table_mapping import TableMapping
from changelane.ddl import dialect_of, parse
from changelane.reason_codes import ReasonCode
from changelane.spark.evolution.compatibility import OTHER_SERVER
from changelane.spark.evolution.late_ddl import RENAMED_LATE, renames_newer
from changelane.spark.evolution.table_properties import server_of
from changelane.spark.evolution.table_rejections import SHARED
from changelane.spark.lake.interface import Lake, name_of
from changelane.spark.rows.batch_stats import StatementRow, TableBatch, epoch_partition_of
from changelane.spark.rows.schema import SCHEMA_ACTIONS, lake_table_of, table_id_of, table_id_text
from changelane.spark.state.ddl_log import DdlLog
from changelane.spark.state.quarantine import RejectedRows
from changelane.transforms.chain import server_of_feed

UNREAD: Final = "changelane cannot parse this statement"
UNORDERED: Final = (
    "the position of the statement cannot be compared with the positions of the table's events"
)


class SplitStatements(NamedTuple):
    """The statements of a batch: accepted ones, and the rows of rejected ones."""

    accepted: list[StatementRow]
    rejected: list[RejectedRows]


def split_statements(
    statements: Iterable[StatementRow],
    table_batches: Mapping[str, TableBatch],
    *,
    servers: Mapping[StatementRow, str],
    lake: Lake,
    log: DdlLog,
    source_servers: str,
) -> SplitStatements:
    """Split statements into accepted and rejected ones.

    Args:
        statements: The statements of a batch.
        table_batches: The batch's events of each table, by ``table_id``.
        servers: The server of each statement; empty = unknown.
        lake: The tables.
        log: The accepted statements of earlier batches, and of this one before a crash: these are
            accepted again.
        source_servers: ``single`` or ``multiple``.
    """
    split = SplitStatements([], [])
    for statement in statements:
        if (unread_reason := _unread_reason(statement)) is not None:
            split.rejected.append(_rejected(statement, ReasonCode.UNREAD_DDL, unread_reason))
        if statement in log.statements:
            split.accepted.append(statement)
            continue
        entries = log.entries_of(statement)
        if not entries:
            continue
        if source_servers == "multiple":
            if not all(_changes_nothing(entry, lake) for entry in entries):
                split.rejected.append(_rejected(statement, ReasonCode.SOURCE_CONFLICT, SHARED))
        elif _is_of_other_server(
            statement,
            servers[statement],
            entries,
            table_batches,
            lake=lake,
            tables=log.table_mapping,
        ):
            split.rejected.append(_rejected(statement, ReasonCode.SOURCE_CONFLICT, OTHER_SERVER))
        elif not _is_comparable(statement, table_batches, lake):
            split.rejected.append(_rejected(statement, ReasonCode.UNORDERED, UNORDERED))
        elif renames_newer(lake, log.table_mapping, entries):
            split.rejected.append(_rejected(statement, ReasonCode.LATE_STATEMENT, RENAMED_LATE))
        else:
            split.accepted.append(statement)
    return split


def _unread_reason(statement: StatementRow) -> str | None:
    dialect = dialect_of(statement.ddl_text.product)
    if dialect is None:
        return None
    parsed = parse(statement.ddl_text.ddl, dialect, table_id_of(statement.table_id))
    unread = [s for s in parsed if s.action in SCHEMA_ACTIONS and not s.changes]
    return f"{UNREAD}: {unread[0].reason}" if unread else None


def _rejected(statement: StatementRow, code: ReasonCode, reason: str) -> RejectedRows:
    is_of_table: Column = (F.col("kind") == "ddl") & (F.col("table_id") == statement.table_id)
    text = msgspec.json.encode(statement.ddl_text).decode()
    is_at_order = F.col("order") == F.lit(bytearray(statement.order))
    return RejectedRows(is_of_table & is_at_order & (F.col("after") == text), code, reason, 1)


def _changes_nothing(entry: SchemaChangeEntry, lake: Lake) -> bool:
    """Return whether an entry creates a table, adds NULL columns, or drops a table not there."""
    if isinstance(entry, TableDropped):
        return not lake.exists(name_of(table_id_text(entry.table)))
    if not isinstance(entry, TableAltered) or entry.key is not None:
        return False
    if entry.renamed or entry.dropped:
        return False
    return all(added.fill is Backfill.NULL for added in entry.added)


def _is_of_other_server(
    statement: StatementRow,
    server: str,
    entries: Iterable[SchemaChangeEntry],
    table_batches: Mapping[str, TableBatch],
    *,
    lake: Lake,
    tables: TableMapping,
) -> bool:
    """Return whether a statement would change a table with the rows of another server.

    Positions of two servers do not compare, so that the statement could delete any of the rows.

    Args:
        statement: The statement.
        server: Its server; empty = unknown.
        entries: Its schema changes.
        table_batches: The batch's events of each table, by ``table_id``.
        lake: The tables.
        tables: The schema history without the statement.
    """
    own_table_id = table_id_text(
        *tables.lake_table(table_id_of(statement.table_id), statement.order)
    )
    for table_id in _changed_tables(entries, lake, tables) if server else ():
        name = name_of(table_id)
        table_server = lake.properties(name).get("server") if lake.exists(name) else None
        if table_server is None and table_id in table_batches:
            table_server = server_of(table_batches[table_id])
        if table_server is None or table_server == server:
            continue
        # with a route, the id of a source also has its table
        if table_id == own_table_id or server_of_feed(table_server) != server_of_feed(server):
            return True
    return False


def _changed_tables(
    entries: Iterable[SchemaChangeEntry], lake: Lake, tables: TableMapping
) -> Iterator[str]:
    """Return the ids of the lake tables that schema changes may change."""
    for entry in entries:
        if isinstance(entry, SchemaDropped):
            for name in lake.tables():
                # a killed creation leaves a folder without a table
                table_id = lake.properties(name).get("table") if lake.exists(name) else None
                if table_id is None:
                    continue
                lake_table = lake_table_of(table_id)
                if tables.is_dropped_by(entry, lake_table):
                    yield table_id
            continue
        names = [entry.table]
        if isinstance(entry, TableRenamed):
            names.append(entry.new_table)
        for table in names:
            yield table_id_text(*tables.lake_table(table, entry.order))


def _is_comparable(
    statement: StatementRow, table_batches: Mapping[str, TableBatch], lake: Lake
) -> bool:
    """Return whether the order of a statement compares with the orders of its table's events."""
    domains: set[bytes] = set()
    partitions: set[bytes] = set()
    if (table_batch := table_batches.get(statement.table_id)) is not None:
        domains |= set(table_batch.domains)
        partitions |= table_batch.epoch_partitions
    name = name_of(statement.table_id)
    if lake.exists(name):
        properties = lake.properties(name)
        domains |= {bytes.fromhex(properties.get("order", ""))[:2]} - {b""}
        partition_digits = properties.get("place", "").replace(":", "")
        if partition_digits.endswith("many"):
            return False
        partitions |= {bytes.fromhex(partition_digits)} - {b""}
    own = epoch_partition_of(statement.order)
    own_epochs = {partition[:4] for partition in own}
    same_epoch = {partition for partition in partitions if partition[:4] in own_epochs}
    return (not domains or statement.order[:2] in domains) and same_epoch <= own
