# SPDX-License-Identifier: Apache-2.0
"""Split the events of one table and batch into those that it applies and those that it rejects.

The functions here only decide; :mod:`changelane.spark.evolution.prepare` alters the table.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import functions as F

from changelane.reason_codes import ReasonCode
from changelane.spark.evolution.compatibility import OTHER_SERVER, is_of_table
from changelane.spark.evolution.evolution_state import Halted
from changelane.spark.evolution.table_properties import server_of
from changelane.spark.lake.modes import TableMode
from changelane.spark.rows.batch_stats import TableBatch
from changelane.spark.rows.schema import table_id_of
from changelane.spark.state.quarantine import RejectedRows, TableRejectedError
from changelane.spark.state.tombstones import TableTombstones

MIXED: Final = "positions of different kinds never mix in one table"
SHARED: Final = (
    "with `source_servers: multiple` rows do not record their server, so that a TRUNCATE or a DDL "
    "statement of one server cannot be applied"
)
BEFORE_SHARED: Final = (
    "a truncate stands behind the row, from before `source_servers: multiple`, and nothing tells "
    "whether it was of the row's server: land the servers in a new folder"
)
OTHER_SOURCE: Final = (
    "a table takes rows of one source table; a transform `route` brings several into one on purpose"
)


def check_owner(properties: Mapping[str, str], table_id: str) -> None:
    """Refuse a table of somebody else, and the table of another source table.

    Raises:
        TableRejectedError: It names the owner.
    """
    if "schema" not in properties:
        raise TableRejectedError(
            ReasonCode.FOREIGN_TABLE, "a table lies there that changelane did not make"
        )
    owner = properties.get("table", table_id)
    if owner != table_id:
        reason = f"the folder holds the table of {table_id_of(owner)}: {OTHER_SOURCE}"
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
        f"sequence_by is {sequence}, and the rows of the table are ordered by {table_sequence}: "
        "orders of two kinds do not compare; cast it to that kind, or load the table anew"
    )


def mode_conflict_text(mode: TableMode, stored_mode: TableMode) -> str:
    """Return the reason why a table cannot change its mode."""
    difference = f"the mode {mode.name}, and the table was made in the mode {stored_mode.name}"
    if mode.keeps_deleted != stored_mode.keeps_deleted and mode.name == stored_mode.name:
        kinds = ["soft" if each_mode.keeps_deleted else "hard" for each_mode in (mode, stored_mode)]
        difference = f"deletes: {kinds[0]}, and the table was made with deletes: {kinds[1]}"
    elif mode.name == stored_mode.name:
        difference = "other columns whose changes make versions than the table was made for"
    return (
        f"the pipeline asks for {difference}: a table keeps its mode; ask for that one, or move "
        "the table away and load it anew"
    )


def position_kind(
    work: TableBatch, properties: Mapping[str, str], tombstones: TableTombstones
) -> bytes:
    """Return the kind of positions that the table compares.

    Raises:
        TableRejectedError: No event has it.
    """
    kind = min(work.domains)
    if "order" in properties:
        kind = bytes.fromhex(properties["order"])[:2]
    elif tombstones.truncated:
        kind = tombstones.truncated[:2]
    if kind not in work.domains:
        raise TableRejectedError(ReasonCode.UNORDERED, MIXED)
    return kind


def other_kinds(work: TableBatch, kind: bytes, size: int) -> RejectedRows:
    """Return rows with another kind of positions, such as PostgreSQL's incremental snapshots."""
    is_row = (F.col("table_id") == work.table_id) & F.col("kind").isin("data", "truncate")
    rows = is_row & (F.substring("order", 1, 2) != F.lit(bytearray(kind)))
    return RejectedRows(rows, ReasonCode.UNORDERED, MIXED, size)


def before_halt(
    work: TableBatch, halted: Halted | None, refused: Sequence[RejectedRows]
) -> tuple[TableBatch, list[RejectedRows]]:
    """Return the work that a table takes which does not go on, and all that it does not take."""
    if halted is None:
        return work.with_schemas(work.schemas), [*refused]
    late = [name for name in work.schemas if work.oldest[name] > halted.order]
    accepted = work.with_schemas(name for name in work.schemas if name not in late)
    if not late:
        return accepted, [*refused]
    rows = is_of_table(work, "data") & F.col("schema_id").isin(*late)
    count = sum(work.counts.get(name, 0) for name in late)
    return accepted, [*refused, RejectedRows(rows, halted.code, halted.reason, count)]


def split_by_server(
    work: TableBatch,
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
    reason, truncates = SHARED, work.truncate_groups
    if source_servers == "single":
        reason, own = OTHER_SERVER, properties.get("server") or server_of(work)
        truncates = [truncate for truncate in truncates if own and truncate.server not in {"", own}]
    accepted, refused = work, []
    if truncates:
        accepted = work.without_truncates(truncates)
        if not accepted.schemas and not accepted.truncates:
            raise TableRejectedError(ReasonCode.SOURCE_CONFLICT, reason)
        servers = {truncate.server for truncate in truncates}
        rows = is_of_table(work, "truncate") & F.col("schema_id").isin(*servers)
        count = sum(truncate.size for truncate in truncates)
        refused.append(RejectedRows(rows, ReasonCode.SOURCE_CONFLICT, reason, count))
    truncated = table_tombstones.truncated
    if source_servers == "multiple" and truncated and work.min_order <= truncated:
        older = is_of_table(work, "data") & (F.col("order") <= F.lit(bytearray(truncated)))
        refused.append(RejectedRows(older, ReasonCode.SOURCE_CONFLICT, BEFORE_SHARED, None))
    return accepted, refused
