# SPDX-License-Identifier: Apache-2.0
"""Split the events of one table and batch into those that it applies and those that it rejects.

The functions here only decide; :mod:`changelane.spark.evolution.prepare` alters the table.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import functions as F

from changelane.position import domain_text
from changelane.reason_codes import ReasonCode
from changelane.spark.evolution.compatibility import OTHER_SERVER, is_of_table
from changelane.spark.evolution.evolution_state import EvolutionHalt
from changelane.spark.evolution.table_properties import server_of
from changelane.spark.lake.modes import TableMode
from changelane.spark.rows.batch_stats import TableBatch
from changelane.spark.rows.schema import table_id_of
from changelane.spark.state.quarantine import RejectedRows, TableRejectedError
from changelane.spark.state.tombstones import TableTombstones

SHARED: Final = (
    "with `source_servers: multiple` rows do not record their server, so that a TRUNCATE or a DDL "
    "statement of one server cannot be applied"
)
BEFORE_SHARED: Final = (
    "the row is older than a truncate from before `source_servers: multiple`, and the truncate may "
    "be of another server: load the servers into a new folder"
)
TRUNCATED_ELSEWHERE: Final = (
    "the events have no positions, and offsets of several partitions or files cannot be compared "
    "with a truncate of one: use one partition, a format with positions, or raise `epoch`"
)
OTHER_SOURCE: Final = (
    "a table has the rows of one source table; the transform `route` combines several on purpose"
)


def check_owner(properties: Mapping[str, str], table_id: str) -> None:
    """Check that changelane created the table, for the same source table.

    Raises:
        TableRejectedError: The reason names the owner.
    """
    if "schema" not in properties:
        raise TableRejectedError(
            ReasonCode.FOREIGN_TABLE,
            "changelane did not create the table that exists under this name",
        )
    owner = properties.get("table", table_id)
    if owner != table_id:
        reason = f"the folder contains the table of {table_id_of(owner)}: {OTHER_SOURCE}"
        raise TableRejectedError(ReasonCode.FOREIGN_TABLE, reason)


def check_sequence(sequence: str | None, properties: Mapping[str, str]) -> None:
    """Check that the table is ordered by the type of sequence that a call uses.

    Raises:
        TableRejectedError: Orders of two types cannot be compared.
    """
    table_sequence = properties.get("sequence", sequence or "")
    if sequence is not None and table_sequence != sequence:
        raise TableRejectedError(ReasonCode.UNORDERED, _other_sequence(sequence, table_sequence))


def _other_sequence(sequence: str | None, table_sequence: str | None) -> str:
    return (
        f"sequence_by is of type {sequence}, and the rows of the table are ordered by "
        f"{table_sequence}, which does not compare: cast sequence_by to {table_sequence}, or load "
        "the table again"
    )


def check_mode(mode: TableMode, stored_mode: TableMode) -> None:
    """Check that the table has the mode of the pipeline.

    Raises:
        TableRejectedError: A table cannot change its mode.
    """
    if mode != stored_mode:
        raise TableRejectedError(ReasonCode.MODE_CONFLICT, _mode_conflict(mode, stored_mode))


def _mode_conflict(mode: TableMode, stored_mode: TableMode) -> str:
    difference = f"the mode {mode.name}, and the table was created in the mode {stored_mode.name}"
    if mode.keeps_deleted != stored_mode.keeps_deleted and mode.name == stored_mode.name:
        kinds = ["soft" if each_mode.keeps_deleted else "hard" for each_mode in (mode, stored_mode)]
        difference = f"deletes: {kinds[0]}, and the table was created with deletes: {kinds[1]}"
    elif mode.name == stored_mode.name:
        difference = "other tracked columns than those of the table"
    return (
        f"the pipeline has {difference}: a table keeps its mode; use that mode, or move the table "
        "away and load it again"
    )


def position_kind(
    table_batch: TableBatch, properties: Mapping[str, str], tombstones: TableTombstones
) -> bytes:
    """Return the kind of positions that the table compares.

    Raises:
        TableRejectedError: No event has it.
    """
    kind = min(table_batch.domains)
    if "order" in properties:
        kind = bytes.fromhex(properties["order"])[:2]
    elif tombstones.truncated:
        kind = tombstones.truncated[:2]
    if kind not in table_batch.domains:
        raise TableRejectedError(ReasonCode.UNORDERED, _mixed(table_batch, kind))
    return kind


def _mixed(table_batch: TableBatch, kind: bytes) -> str:
    other_kinds = " and ".join(
        sorted(domain_text(domain) for domain in table_batch.domains if domain != kind)
    )
    return (
        f"the events have {other_kinds}, and the rows of the table are ordered by "
        f"{domain_text(kind)}, which does not compare: load the events into a new folder"
    )


def other_kinds(table_batch: TableBatch, kind: bytes, size: int) -> RejectedRows:
    """Return rows with another kind of positions, such as PostgreSQL's incremental snapshots."""
    is_row = (F.col("table_id") == table_batch.table_id) & F.col("kind").isin("data", "truncate")
    rows = is_row & (F.substring("order", 1, 2) != F.lit(bytearray(kind)))
    return RejectedRows(rows, ReasonCode.UNORDERED, _mixed(table_batch, kind), size)


def split_at_halt(
    table_batch: TableBatch, halted: EvolutionHalt | None
) -> tuple[TableBatch, list[RejectedRows]]:
    """Split events into those before a halt of schema evolution and those after it."""
    if halted is None:
        return table_batch.with_schemas(table_batch.schemas), []
    late = [name for name in table_batch.schemas if table_batch.oldest[name] > halted.order]
    accepted = table_batch.with_schemas(name for name in table_batch.schemas if name not in late)
    if not late:
        return accepted, []
    rows = is_of_table(table_batch, "data") & F.col("schema_id").isin(*late)
    count = sum(table_batch.counts.get(name, 0) for name in late)
    return accepted, [RejectedRows(rows, halted.code, halted.reason, count)]


def uncomparable_truncates(table_batch: TableBatch) -> RejectedRows:
    """Return the truncates of a table whose events come from several partitions."""
    rows = is_of_table(table_batch, "truncate")
    return RejectedRows(rows, ReasonCode.UNORDERED, TRUNCATED_ELSEWHERE, table_batch.truncates)


def split_by_server(
    table_batch: TableBatch,
    table_tombstones: TableTombstones,
    source_servers: str,
    properties: Mapping[str, str],
) -> tuple[TableBatch, list[RejectedRows]]:
    """Split a batch's truncates into those the table applies and those it rejects.

    Rows do not record their server, so a table of several servers rejects every truncate, and the
    rows below a truncate from the time of its single server.

    Raises:
        TableRejectedError: Nothing is left to apply.
    """
    reason, truncates = SHARED, table_batch.truncate_groups
    if source_servers == "single":
        reason, own = OTHER_SERVER, properties.get("server") or server_of(table_batch)
        truncates = [truncate for truncate in truncates if own and truncate.server not in {"", own}]
    accepted, rejected = table_batch, []
    if truncates:
        accepted = table_batch.without_truncates(truncates)
        if not accepted.schemas and not accepted.truncates:
            raise TableRejectedError(ReasonCode.SOURCE_CONFLICT, reason)
        servers = {truncate.server for truncate in truncates}
        rows = is_of_table(table_batch, "truncate") & F.col("schema_id").isin(*servers)
        count = sum(truncate.size for truncate in truncates)
        rejected.append(RejectedRows(rows, ReasonCode.SOURCE_CONFLICT, reason, count))
    truncated = table_tombstones.truncated
    if source_servers == "multiple" and truncated and table_batch.min_order <= truncated:
        older = is_of_table(table_batch, "data") & (F.col("order") <= F.lit(bytearray(truncated)))
        rejected.append(RejectedRows(older, ReasonCode.SOURCE_CONFLICT, BEFORE_SHARED, None))
    return accepted, rejected
