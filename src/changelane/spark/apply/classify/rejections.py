# SPDX-License-Identifier: Apache-2.0
"""Rows that a table rejects for reasons that need no look at other rows."""

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from changelane.reason_codes import ReasonCode
from changelane.spark.evolution.compatibility import is_of_table
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.layout import layout_of
from changelane.spark.lake.modes import APPEND
from changelane.spark.rows.batch_stats import TableBatch
from changelane.spark.rows.target import OPTIONS
from changelane.spark.runtime.conditions import any_of
from changelane.spark.runtime.sql import quoted
from changelane.spark.state.quarantine import RejectedRows, TableRejectedError


def rejected_table(table_batch: TableBatch, rejection: TableRejectedError) -> RejectedRows:
    """Return all rows of a table that applies none of them."""
    is_of_this_table: Column = F.col("table_id") == table_batch.table_id
    rows = is_of_this_table & F.col("kind").isin("data", "truncate")
    return RejectedRows(rows, rejection.code, rejection.reason, table_batch.count)


def rejected_changes_without_key(table_batch: TableBatch) -> RejectedRows:
    """Return the updates and deletes of a table without a key, which accepts inserts only."""
    reason = "a table without a key is only appended to: name its key columns under `keys`"
    rows = is_of_table(table_batch, "data") & F.col("op").isin("u", "d")
    return RejectedRows(rows, ReasonCode.NO_KEY, reason, None)


def rejected_partitions(plan: TablePlan, lost_partitions: Sequence[str]) -> list[RejectedRows]:
    """Return the rows with a value in a partition column that the table format does not read back.

    A format with such texts stores partition values as texts: bytes as UTF-8, and the years of
    timestamps without their era.

    Args:
        plan: The plan of the table.
        lost_partitions: The texts (:attr:`Lake.lost_partitions`).
    """
    partition_columns = {name.lower() for name in layout_of(plan.properties).partition_by}
    if not partition_columns or not lost_partitions:
        return []
    is_lost = []
    for schema_id, schema in plan.target.schemas.items():
        kinds = {
            c.image_name: c.spark for c in schema.columns if c.name.lower() in partition_columns
        }
        if not kinds:
            continue
        row_type = ", ".join(f"{quoted(name)} {kind}" for name, kind in kinds.items())
        # the before image of a delete is written to a change log only
        for image in ("before", "after") if plan.mode == APPEND else ("after",):
            row = F.from_json(image, row_type, OPTIONS)
            is_lost_value = any_of(
                [_is_lost(row[name], kind, lost_partitions) for name, kind in kinds.items()]
            )
            is_lost.append((F.col("schema_id") == schema_id) & is_lost_value)
    quoted_texts = " and ".join(map(repr, lost_partitions))
    reason = (
        f"tables of this format read {quoted_texts} in a partition column back as NULL, and bytes "
        "that are not UTF-8 and timestamps before the year 1 as other values"
    )
    rows = is_of_table(plan.table_batch, "data") & any_of(is_lost)
    return [RejectedRows(rows, ReasonCode.LOST_PARTITION, reason, None)]


def _is_lost(value: Column, kind: str, lost_partitions: Sequence[str]) -> Column:
    """Return whether a format that stores partition values as texts loses a value; never NULL."""
    match kind:
        case "STRING":
            is_lost = value.isin(*lost_partitions)
        case "BINARY":
            text = value.cast("string")
            is_lost = text.isin(*lost_partitions) | ~F.is_valid_utf8(text)
        case "TIMESTAMP":
            is_lost = value < F.lit("0001-01-01T00:00:00Z").cast("timestamp")
        case _:
            is_lost = F.lit(False)
    return F.coalesce(is_lost, F.lit(False))
