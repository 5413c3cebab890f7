# SPDX-License-Identifier: Apache-2.0
"""The mode ``append``: each event is a row of the table, with its operation and position.

The marker applies a batch exactly once, as in every mode. Where positions order the events, a
repeated event is found, too (:mod:`changelane.spark.apply.deduplication`).
"""

from collections.abc import Collection, Mapping
from functools import partial

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.pipeline.lake_sinks import OWN_PREFIX
from changelane.spark.evolution.table_plan import TablePlan
from changelane.spark.lake.modes import EVENT, ORDINAL
from changelane.spark.rows import latest_per_key
from changelane.spark.rows.added_columns import names_where, orders_of
from changelane.spark.rows.latest_per_key import empty_order
from changelane.spark.rows.target import Target
from changelane.spark.runtime.sql import COLUMNS, DELETED, ORDER, quoted


def changes(rows: DataFrame, plan: TablePlan) -> DataFrame:
    """Return events as rows of the table, with its columns.

    Args:
        rows: ``data`` and ``truncate`` rows of one table, with :data:`EVENT` and :data:`ORDINAL`.
        plan: The plan of the table.
    """
    leaves = F.col("op") == "d"
    state = {
        "_changelane_op": F.col("op"),
        "_changelane_time": F.col("source_time"),
        ORDER: F.col("order"),
        COLUMNS: _unknown(plan),
        "_changelane_before": F.when(~leaves, _before_image(plan)),
        "_changelane_transaction": F.col("transaction"),
        "_changelane_topic": F.col("topic"),
        "_changelane_partition": F.col("partition"),
        "_changelane_offset": F.col("offset"),
        "_changelane_index": F.col("row_index"),
        EVENT: F.col(EVENT),
        ORDINAL: F.col(ORDINAL),
    }
    columns = plan.target.columns
    if not plan.table_batch.schemas:
        nulls = (F.lit(None).cast(kind).alias(name) for name, kind in columns.items())
        return rows.select(*nulls, *(value.alias(name) for name, value in state.items()))
    text = F.when(leaves, F.col("before")).otherwise(F.col("after"))
    typed = latest_per_key.typed_rows(rows, text, F.col("schema_id"), plan.target, state)
    return typed.select(*(F.col(quoted(name)) for name in (*columns, *state)))


def _before_image(plan: TablePlan) -> Column:
    """Return the before image of an update, without values that a compute replaced."""
    computed = {
        column.image_name: column.name
        for schema in plan.table_batch.schemas.values()
        for column in schema.columns
        if column.image_name.startswith(OWN_PREFIX)
    }
    if not computed:
        return F.col("before")
    visible_image = F.udf(partial(computed_image, computed), "string", useArrow=False)
    return visible_image("before", "before_missing")


def computed_image(
    computed: Mapping[str, str], image: str | None, missing: Collection[str] | None
) -> str | None:
    """Return an image with computed values in place of those that they replace.

    Args:
        computed: The names of computed values in images, and the columns that they replace.
        image: The image as JSON.
        missing: The names of unknown values of the image.
    """
    if image is None:
        return None
    replaced = {column.lower() for column in computed.values()}
    members = msgspec.json.decode(image, type=dict[str, msgspec.Raw])
    visible = {
        computed.get(name, name): value
        for name, value in members.items()
        if name.lower() not in replaced
        and (name in computed or not name.startswith(OWN_PREFIX))
        and name not in (missing or ())
    }
    return msgspec.json.encode(visible).decode()


def inserted(rows: DataFrame, truncated: bytes) -> DataFrame:
    """Return the events that add rows to a table without a key: inserts and snapshot rows.

    Events that are not newer than the latest truncate are left out.
    """
    newer = F.col("order") > F.lit(bytearray(truncated))
    return rows.where(F.col("op").isin("c", "r") & newer)


def appended(rows: DataFrame, plan: TablePlan) -> DataFrame:
    """Return :func:`inserted` events as rows of the table."""
    listed = _listed(plan.target)
    state = {ORDER: F.col("order"), COLUMNS: listed, EVENT: F.col(EVENT), ORDINAL: F.col(ORDINAL)}
    if plan.target.keeps_deleted:
        state[DELETED] = F.lit(False)
    return latest_per_key.typed_rows(rows, F.col("after"), F.col("schema_id"), plan.target, state)


def _listed(target: Target) -> Column:
    """Return the orders of columns that an event has although they were added after it."""
    names = names_where(
        (
            added.column,
            F.col("schema_id").isin(*having) & (F.col("order") < F.lit(bytearray(added.order))),
        )
        for added in target.additions
        if added.is_unknown and (having := target.schemas_with(added.column))
    )
    return F.when(F.size(names) > 0, orders_of(names, F.col("order")))


def _unknown(plan: TablePlan) -> Column:
    """Return the columns that an event lacks, with an empty order: unknown."""
    none = F.lit(None).cast("map<string,binary>")
    if not plan.table_batch.schemas:
        return none
    leaves = F.col("op") == "d"
    missing = F.when(leaves, F.col("before_missing")).otherwise(F.col("after_missing"))
    carried = latest_per_key.carried_columns(F.col("schema_id"), missing, plan.target)
    lacking = F.array_except(F.array(*(F.lit(name) for name in plan.target.columns)), carried)
    every = (leaves & missing.isNull()) | F.col("whole") | (F.col("kind") == "truncate")
    nothing_known = orders_of(lacking, empty_order())
    return F.when(
        ~F.coalesce(every, F.lit(False)) & (F.size(lacking) > 0), nothing_known
    ).otherwise(none)
