# SPDX-License-Identifier: Apache-2.0
"""Events that come again, where rows are only added: in change logs and in tables without a key.

A producer that was killed sends again what it does not know to have sent, in messages of other
offsets, and a run may read messages again. An event is known by its order, its content and its
ordinal (:mod:`changelane.apply.deduplication`); where it has no ordinal, by its message instead.
What is equal but for the message may be rows of one COPY, or one row that was sent twice: it is
taken, and counted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.apply.deduplication import ONLY_CHANGE
from changelane.position import OffsetPosition
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.modes import EVENT, ORDINAL
from changelane.spark.rows.batch_stats import event_schema_id
from changelane.spark.runtime.sql import ORDER

_COPY: Final = "_changelane_copy"
_PLACE: Final = ("topic", "partition", "offset", "row_index")
_CONTENT: Final = ("kind", "op", "key", "other_key", "before", "after")


class Taken(NamedTuple):
    """What a table takes of a batch.

    Attributes:
        rows: Event rows, with :data:`EVENT` and :data:`ORDINAL`.
        repeats: How many others the table holds already, or the batch told twice.
        possible_duplicates: How many of the rows may be such: they equal others but for their
            messages, and nothing tells their numbers in the transaction.
    """

    rows: DataFrame
    repeats: int = 0
    possible_duplicates: int = 0


def newest(table: DataFrame) -> str:
    """Return the newest order that a table holds, as hexadecimal digits."""
    (row,) = table.agg(F.max(ORDER).alias("newest")).collect()
    return bytes(row["newest"] or b"").hex()


def is_known_by_order(plan: TablePlan) -> bool:
    """Say whether an event that comes again has the order that it had."""
    # those of other kinds are quarantined
    return plan.kind[1:] != bytes([OffsetPosition.code])


@contextmanager
def without_repeats(
    rows: DataFrame, plan: TablePlan, table: DataFrame, high: str
) -> Iterator[Taken]:
    """Give what a table takes of event rows: those that came again are left out.

    A batch that stands behind all that the table took, and holds nothing twice, costs one look at
    hashes of its rows. Of the table only what has an order between those of the batch is read.

    Args:
        rows: Event rows of one table.
        plan: How the table's events are applied.
        table: The table.
        high: The newest order that the table holds, as hexadecimal digits.
    """
    identified = rows.withColumn(EVENT, F.xxhash64(*_CONTENT, event_schema_id()))
    identified = identified.withColumn(ORDINAL, F.coalesce("ordinal", _of_message(*_PLACE)))
    if not is_known_by_order(plan):
        yield Taken(identified)
        return
    lowest, greatest = _reach(rows, plan)
    is_newer = lowest.hex() > high
    if not lowest or (is_newer and not _has_equal(identified)):
        yield Taken(identified)
        return
    fresh = _each_once(identified)
    stored = None
    if not is_newer:
        place = F.col(ORDER).between(F.lit(bytearray(lowest)), F.lit(bytearray(greatest)))
        stored = table.where(place).select(
            F.col(ORDER).alias("held_order"),
            F.col(EVENT).alias("held_event"),
            _held_ordinal(table).alias("held_ordinal"),
        )
        is_same = (F.col(ORDINAL) == ONLY_CHANGE) | (F.col(ORDINAL) == F.col("held_ordinal"))
        fresh = fresh.join(stored, _is_equal() & is_same, "left_anti")
    fresh = fresh.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        count, possible = _counted(fresh, stored)
        yield Taken(fresh, identified.count() - count, possible)
    finally:
        fresh.unpersist()


def _reach(rows: DataFrame, plan: TablePlan) -> tuple[bytes, bytes]:
    """Return the oldest and the newest order of event rows."""
    if not plan.work.truncates:
        return plan.work.order_range(plan.kind)
    (row,) = rows.agg(F.min("order").alias("oldest"), F.max("order").alias("newest")).collect()
    return bytes(row["oldest"] or b""), bytes(row["newest"] or b"")


def _has_equal(rows: DataFrame) -> bool:
    """Say whether a batch may hold events that are equal but for their messages."""
    sizes = rows.groupBy(F.xxhash64("order", EVENT).alias("hash")).agg(F.count("*").alias("size"))
    (row,) = sizes.agg(F.max("size").alias("most")).collect()
    return (row["most"] or 0) > 1


def _each_once(rows: DataFrame) -> DataFrame:
    # what nothing tells from others is not taken for one of them
    copy = F.when(F.col(ORDINAL).isNull(), F.monotonically_increasing_id())
    distinct_rows = rows.withColumn(_COPY, copy).dropDuplicates(["order", EVENT, ORDINAL, _COPY])
    return distinct_rows.drop(_COPY)


def _counted(fresh: DataFrame, rows: DataFrame | None) -> tuple[int, int]:
    """Return how many rows a table takes, and how many of them are possible duplicates."""
    has_number = F.coalesce(F.col(ORDINAL) >= ONLY_CHANGE, F.lit(False))
    groups = fresh.groupBy("order", EVENT).agg(
        F.count_if(has_number).alias("numbered"), F.count_if(~has_number).alias("others")
    )
    is_met = is_met_by_other = F.lit(False)
    if rows is not None:
        is_other = ~F.coalesce(F.col("held_ordinal") >= ONLY_CHANGE, F.lit(False))
        stored_events = rows.groupBy("held_order", "held_event").agg(
            F.max(is_other).alias("held_other")
        )
        groups = groups.join(stored_events, _is_equal(), "left")
        is_met = F.col("held_other").isNotNull()
        is_met_by_other = F.coalesce("held_other", F.lit(False))
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
    return (F.col("order") == F.col("held_order")) & (F.col(EVENT) == F.col("held_event"))


def _of_message(*place: str) -> Column:
    """Return what stands for the ordinal of an event that only its message tells from others.

    It is below all ordinals, and NULL where nothing tells where the message stood.
    """
    topic, partition, offset, index = map(F.col, place)
    hashed = F.xxhash64(topic, partition, offset, index)
    return F.when(offset.isNotNull(), F.lit(-1) - F.shiftrightunsigned(hashed, 1))


def _held_ordinal(table: DataFrame) -> Column:
    """Return the ordinal of a table's rows; of rows of older versions, what stands for it."""
    place = tuple(f"_changelane_{name}" for name in ("topic", "partition", "offset", "index"))
    if not set(place) <= set(table.columns):
        return F.col(ORDINAL)
    return F.coalesce(ORDINAL, _of_message(*place))
