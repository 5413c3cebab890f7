# SPDX-License-Identifier: Apache-2.0
"""Rows of a batch that its tables refuse, as the quarantine takes them."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from changelane.apply import TOO_LATE
from changelane.reason_codes import ReasonCode
from changelane.spark.apply.classify.key_changes import Moved
from changelane.spark.apply.classify.partition_conflicts import CROSSED, REASON
from changelane.spark.apply.classify.too_late import LATE
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.layout import layout_of
from changelane.spark.lake.modes import APPEND
from changelane.spark.rows.batch_stats import BatchReport, TableBatch, TableReport
from changelane.spark.rows.schema import table_id_of
from changelane.spark.rows.target import OPTIONS
from changelane.spark.runtime.sql import quoted
from changelane.spark.state.quarantine import RejectedRows, TableRejectedError


def late_refused(refused: Sequence[RejectedRows]) -> RejectedRows:
    """Return the marked rows that are not refused for another reason."""
    return RejectedRows(_not_refused(F.col(LATE), refused), TOO_LATE, TOO_LATE.cause, None)


def crossed_refused(refused: Sequence[RejectedRows]) -> RejectedRows:
    """Return the marked rows of keys whose offsets cannot be compared, as :func:`late_refused`."""
    return RejectedRows(_not_refused(F.col(CROSSED), refused), ReasonCode.UNORDERED, REASON, None)


def _not_refused(rows: Column, refused: Sequence[RejectedRows]) -> Column:
    return reduce(
        lambda condition, rejection: condition & ~F.coalesce(rejection.rows, F.lit(False)),
        refused,
        rows,
    )


def moves_refused(plan: TablePlan, moved: Mapping[str, Moved]) -> list[RejectedRows]:
    """Return the steps of a table's moved keys that the rule refused."""
    if plan.work.table_id not in moved:
        return []
    lost_columns: dict[str, set[str]] = {}
    states = moved[plan.work.table_id].states.where("code IS NOT NULL")
    for row in states.select("code", "order", "key").collect():
        lost_columns.setdefault(row["code"], set()).add(f"{row['order'][:-1].hex()}{row['key']}")
    is_of_table = (F.col("table_id") == plan.work.table_id) & (F.col("kind") == "data")
    place = F.lower(F.hex(F.expr("substring(`order`, 1, length(`order`) - 1)")))
    refused = []
    for code, places in lost_columns.items():
        reason_code = ReasonCode(code)
        keyed = (F.concat(place, name).isin(*places) for name in ("key", "other_key"))
        is_lost = F.coalesce(next(keyed), F.lit(False)) | F.coalesce(next(keyed), F.lit(False))
        refused.append(
            RejectedRows(is_of_table & is_lost, reason_code, reason_code.cause, len(places))
        )
    return refused


def table_refused(
    work: TableBatch, misfit: TableRejectedError, report: BatchReport
) -> RejectedRows:
    """Return all rows of a table, which takes none of them."""
    note = f"{misfit.code}: {misfit.reason}"
    report.tables.append(TableReport(str(table_id_of(work.table_id)), "", work.count, note))
    is_of_table: Column = F.col("table_id") == work.table_id
    rows = is_of_table & F.col("kind").isin("data", "truncate")
    return RejectedRows(rows, misfit.code, misfit.reason, work.count)


def changes_refused(work: TableBatch) -> RejectedRows:
    """Return the rows that a table without a key does not take."""
    is_of_table = (F.col("table_id") == work.table_id) & (F.col("kind") == "data")
    reason = "a table without a key is only appended to: name its key columns under `keys`"
    return RejectedRows(is_of_table & F.col("op").isin("u", "d"), ReasonCode.NO_KEY, reason, None)


def partitions_refused(plan: TablePlan, lost: Sequence[str]) -> list[RejectedRows]:
    """Return the rows that have a text in a partition which the table would not give back.

    Args:
        plan: How the table takes its events.
        lost: The texts.
    """
    parts = {name.lower() for name in layout_of(plan.properties).partition_by}
    if not parts or not lost:
        return []
    is_of_table = (F.col("table_id") == plan.work.table_id) & (F.col("kind") == "data")
    is_lost = F.lit(False)
    for schema_id, schema in plan.target.schemas.items():
        column_names = [c.source_name or c.name for c in schema.columns if c.name.lower() in parts]
        if not column_names:
            continue
        kind = ", ".join(f"{quoted(name)} STRING" for name in column_names)
        # a delete that no row has can do no harm, but a log of events has it
        for image in ("before", "after") if plan.mode == APPEND else ("after",):
            row = F.from_json(image, kind, OPTIONS)
            meant = reduce(or_, (row[name].isin(*lost) for name in column_names))
            is_here = (F.col("schema_id") == schema_id) & meant
            is_lost = is_lost | F.coalesce(is_here, F.lit(False))
    quoted_columns = " and ".join(map(repr, lost))
    reason = f"tables of this format take {quoted_columns} in a partition for NULL"
    return [RejectedRows(is_of_table & is_lost, ReasonCode.LOST_PARTITION, reason, None)]
