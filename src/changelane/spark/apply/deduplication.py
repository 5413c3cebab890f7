# SPDX-License-Identifier: Apache-2.0
"""Removes repeated events where rows are only added: change logs and tables without a key.

A producer that was killed repeats events in messages of other offsets, and a run may read messages
again. An event is identified by its order, its content and its ordinal
(:mod:`changelane.apply.deduplication`), or by its message if it has no ordinal. Events that differ
in their message only may be rows of one COPY, or one row that was sent twice: they are added, and
counted as possible duplicates.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.apply.deduplication import ONLY_CHANGE
from changelane.position import OffsetPosition
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.modes import EVENT, ORDINAL
from changelane.spark.rows.batch_stats import event_schema_id
from changelane.spark.runtime.computed import computed_once
from changelane.spark.runtime.sql import ORDER

_COPY: Final = "_changelane_copy"
_PLACE: Final = ("topic", "partition", "offset", "row_index")
_CONTENT: Final = ("kind", "op", "key", "other_key", "before", "after")


class NewRows(NamedTuple):
    """The events of a batch without repeated ones.

    Attributes:
        rows: Event rows, with :data:`EVENT` and :data:`ORDINAL`.
        repeats: The number of repeated events, of earlier batches or of this one.
        possible_duplicates: The number of *rows* that differ from others in their message only,
            and have no ordinal.
    """

    rows: DataFrame
    repeats: int = 0
    possible_duplicates: int = 0


def newest(table: DataFrame) -> str:
    """Return the latest order of a table's rows, in hexadecimal digits."""
    (row,) = table.agg(F.max(ORDER).alias("newest")).collect()
    return bytes(row["newest"] or b"").hex()


def is_known_by_order(plan: TablePlan) -> bool:
    """Return whether a repeated event has the order of the first one."""
    # events with positions of another kind are quarantined
    return plan.kind[1:] != bytes([OffsetPosition.code])


@contextmanager
def without_repeats(
    rows: DataFrame, plan: TablePlan, table: DataFrame, high: str
) -> Iterator[NewRows]:
    """Give event rows without repeated ones.

    A batch that is newer than the table and has no equal events costs one aggregation of hashes.
    Of the table, only rows with orders between those of the batch are read.

    Args:
        rows: Event rows of one table.
        plan: The plan of the table.
        table: The table.
        high: The latest order of the table's rows, in hexadecimal digits.
    """
    identified = rows.withColumn(EVENT, F.xxhash64(*_CONTENT, event_schema_id()))
    identified = identified.withColumn(ORDINAL, F.coalesce("ordinal", _of_message(*_PLACE)))
    if not is_known_by_order(plan):
        yield NewRows(identified)
        return
    lowest, greatest = _order_range(rows, plan)
    is_newer = lowest.hex() > high
    if not lowest or (is_newer and not _has_equal(identified)):
        yield NewRows(identified)
        return
    new_rows = _each_once(identified)
    stored = None
    if not is_newer:
        place = F.col(ORDER).between(F.lit(bytearray(lowest)), F.lit(bytearray(greatest)))
        stored = table.where(place).select(
            F.col(ORDER).alias("stored_order"),
            F.col(EVENT).alias("stored_event"),
            _stored_ordinal(table).alias("stored_ordinal"),
        )
        is_same = (F.col(ORDINAL) == ONLY_CHANGE) | (F.col(ORDINAL) == F.col("stored_ordinal"))
        new_rows = new_rows.join(stored, _is_equal() & is_same, "left_anti")
    with computed_once(new_rows) as counted_rows:
        count, possible = _counted(counted_rows, stored)
        yield NewRows(counted_rows, identified.count() - count, possible)


def _order_range(rows: DataFrame, plan: TablePlan) -> tuple[bytes, bytes]:
    """Return the oldest and the newest order of event rows."""
    if not plan.table_batch.truncates:
        return plan.table_batch.order_range(plan.kind)
    (row,) = rows.agg(F.min("order").alias("oldest"), F.max("order").alias("newest")).collect()
    return bytes(row["oldest"] or b""), bytes(row["newest"] or b"")


def _has_equal(rows: DataFrame) -> bool:
    """Return whether a batch may have events that differ in their messages only."""
    sizes = rows.groupBy(F.xxhash64("order", EVENT).alias("hash")).agg(F.count("*").alias("size"))
    (row,) = sizes.agg(F.max("size").alias("most")).collect()
    return (row["most"] or 0) > 1


def _each_once(rows: DataFrame) -> DataFrame:
    # events without an ordinal are never equal
    copy = F.when(F.col(ORDINAL).isNull(), F.monotonically_increasing_id())
    distinct_rows = rows.withColumn(_COPY, copy).dropDuplicates(["order", EVENT, ORDINAL, _COPY])
    return distinct_rows.drop(_COPY)


def _counted(new_rows: DataFrame, rows: DataFrame | None) -> tuple[int, int]:
    """Return the number of rows to add, and the number of possible duplicates among them."""
    has_number = F.coalesce(F.col(ORDINAL) >= ONLY_CHANGE, F.lit(False))
    groups = new_rows.groupBy("order", EVENT).agg(
        F.count_if(has_number).alias("numbered"), F.count_if(~has_number).alias("others")
    )
    is_met = is_met_by_other = F.lit(False)
    if rows is not None:
        is_other = ~F.coalesce(F.col("stored_ordinal") >= ONLY_CHANGE, F.lit(False))
        stored_events = rows.groupBy("stored_order", "stored_event").agg(
            F.max(is_other).alias("stored_other")
        )
        groups = groups.join(stored_events, _is_equal(), "left")
        is_met = F.col("stored_other").isNotNull()
        is_met_by_other = F.coalesce("stored_other", F.lit(False))
    is_first = ~is_met & (F.col("numbered") == 0) & (F.col("others") > 0)
    possible = (
        F.col("others")
        - is_first.cast("int")
        + F.when(is_met_by_other, F.col("numbered")).otherwise(0)
    )
    (row,) = groups.agg(
        F.sum(F.col("numbered") + F.col("others")).alias("count"), F.sum(possible).alias("possible")
    ).collect()
    return row["count"] or 0, row["possible"] or 0


def _is_equal() -> Column:
    return (F.col("order") == F.col("stored_order")) & (F.col(EVENT) == F.col("stored_event"))


def _of_message(*place: str) -> Column:
    """Return a number that replaces a missing ordinal: a hash of the message's coordinates.

    It is below all ordinals, and NULL for a message without coordinates.
    """
    topic, partition, offset, index = map(F.col, place)
    hashed = F.xxhash64(topic, partition, offset, index)
    return F.when(offset.isNotNull(), F.lit(-1) - F.shiftrightunsigned(hashed, 1))


def _stored_ordinal(table: DataFrame) -> Column:
    """Return the ordinal of a table's rows, for rows of older versions as :func:`_of_message`."""
    place = tuple(f"_changelane_{name}" for name in ("topic", "partition", "offset", "index"))
    if not set(place) <= set(table.columns):
        return F.col(ORDINAL)
    return F.coalesce(ORDINAL, _of_message(*place))
