# SPDX-License-Identifier: Apache-2.0
"""``filter`` on event rows.

The filter is evaluated over the after image:

- true, and the image is full: the event passes.
- true, and the image is partial: the event passes if the before image passes, too. Otherwise the
  table may lack the row, and would get a part of it. The event is quarantined.
- false or NULL: the event becomes the departure of its key, and of its old key, at its own
  position. A row that does not pass any more leaves the table, and older events that come late do
  not bring it back. If the table never had the key, the delete only adds a tombstone. The delete
  that is the first half of a key change passes, and moves the row to its new key, even if it comes
  later. So a row that does not pass departs from a new key at the phase of upserts.
- the image lacks a column that the filter reads, or the filter fails: the event is quarantined.

Deletes and truncates pass.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType

from changelane.reason_codes import ReasonCode
from changelane.spark.rows.expressions.expression_rows import (
    AFTER,
    BEFORE,
    ORIGINAL,
    BatchSchemas,
    PreparedTransform,
    SchemaGroup,
    event_struct,
    knows_columns,
    outcome,
    parsed_image,
    rejected_struct,
    schema_groups,
    type_of,
    unpacked_events,
    with_rejected,
)
from changelane.spark.rows.key_operations import departure_order
from changelane.spark.rows.schema import FIELDS

UNKNOWN: Final = ReasonCode.FILTER_UNKNOWN
FAILED: Final = ReasonCode.FILTER_FAILED
_NOW: Final = "_changelane_now"
_THEN: Final = "_changelane_then"
_NAMES: Final = tuple(name for name, _, _ in FIELDS)


def filtered_events(
    events: DataFrame, schemas: BatchSchemas, filter: PreparedTransform
) -> DataFrame:
    """Return the event rows that pass a filter; others become deletes or are rejected.

    Args:
        events: The event rows of a batch, with before images.
        schemas: Its schemas.
        filter: The filter, with its expression.
    """
    groups, lacking = schema_groups(schemas, filter.transform, filter.reads)
    for group in groups:
        events = _filter_group(events, filter, group)
    for rows, name in lacking:
        why = f"{filter.where} reads the column {name!r}, which the event does not have"
        events = with_rejected(events, rows, UNKNOWN, why)
    return events


def _filter_group(events: DataFrame, filter: PreparedTransform, group: SchemaGroup) -> DataFrame:
    (expression,) = filter.expressions.values()
    kind = type_of(events, expression, group)
    if not isinstance(kind, BooleanType):
        why = kind if isinstance(kind, str) else _not_boolean_reason(filter, kind)
        return with_rejected(events, group.rows, FAILED, why)
    names = tuple(group.columns.values())
    read = events.select(
        "*", parsed_image("after", group).alias(AFTER), parsed_image("before", group).alias(BEFORE)
    )
    outcomes = read.select(
        *_NAMES,
        ORIGINAL,
        outcome(expression, AFTER).alias(_NOW),
        outcome(expression, BEFORE).alias(_THEN),
    )
    now, then = F.col(_NOW), F.col(_THEN)
    passes = F.coalesce(now["v"], F.lit(False))
    was_there = knows_columns("before", names) & F.coalesce(then["v"], F.lit(False))
    nothing = F.lit(None)
    delete_columns = {
        "op": F.lit("d"),
        "order": departure_order(),
        "other_key": nothing,
        "whole": F.lit(False),
    }
    delete_columns |= {"after": nothing, "after_missing": nothing}
    is_key_change = F.col("other_key").isNotNull()
    leaving_columns = delete_columns | {
        "order": F.when(is_key_change, F.col("order")).otherwise(departure_order()),
        "before": F.col("after"),
        "before_missing": F.col("after_missing"),
    }
    leaves = event_struct(**leaving_columns)
    departure_event = event_struct(**delete_columns, key=F.col("other_key"))
    column_names = ", ".join(map(repr, names))
    filtered_rows = (
        F.when(~group.rows | (F.col("op") == "d") | F.col("key").isNull(), F.array(event_struct()))
        .when(
            ~knows_columns("after", names),
            F.array(rejected_struct(UNKNOWN, _unknown_reason(filter, column_names))),
        )
        .when(now.isNull(), F.array(rejected_struct(FAILED, _failed_reason(filter))))
        .when(passes & (F.col("whole") | was_there), F.array(event_struct()))
        .when(passes, F.array(rejected_struct(UNKNOWN, _entering_reason(filter))))
        # the second half of a key change lacks the row of the old key, which the first half has
        .when(is_key_change & F.col("before").isNotNull(), F.array(leaves, departure_event))
        .otherwise(F.array(leaves))
    )
    return unpacked_events(outcomes, F.explode(filtered_rows))


def _not_boolean_reason(filter: PreparedTransform, kind: DataType) -> str:
    return f"{filter.where} is no condition: its type is {kind.simpleString()}, not boolean"


def _unknown_reason(filter: PreparedTransform, names: str) -> str:
    return f"{filter.where} reads {names}, and the event lacks some of these columns"


def _failed_reason(filter: PreparedTransform) -> str:
    return f"{filter.where} fails for this row"


def _entering_reason(filter: PreparedTransform) -> str:
    return (
        f"the row passes {filter.where}, but the event is partial and the row before may not have "
        "passed: the table may lack the other columns"
    )
