# SPDX-License-Identifier: Apache-2.0
"""Unknown values of columns that were added to a table without a DDL statement.

The rule is that of :mod:`changelane.apply.added_columns`.

Such a column is unknown in older rows, which are not rewritten. A property of the table stores the
order at which the column was added. :func:`column_exceptions` derives from it the exceptions that
older rows would have.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F

from changelane.apply.added_columns import Addition, Cause, ColumnHistory
from changelane.position import order_text
from changelane.spark.runtime.conditions import any_of
from changelane.spark.runtime.sql import COLUMNS, EMPTY_ORDER, NO_EXCEPTIONS, ORDER

SOURCE_COLUMNS: Final = "source_columns"
"""The table property with the :class:`~changelane.apply.added_columns.ColumnHistory`."""
MAX_NAMED: Final = 5
_ANY_ORDER: Final = bytes([1])
REPAIR_ADVICE: Final = (
    "read the table again, with a snapshot of the type `blocking` by Debezium's signal "
    "`execute-snapshot`, or into another folder: docs/limits.md"
)
_CAUSES: Final[Mapping[Cause, str]] = {
    Cause.COMPUTED: "its default may be an expression",
    Cause.DEFAULT: "its default is not written into versions of rows",
    Cause.NOT_NULL: "it is NOT NULL, and the events declare no default",
    Cause.UNDECLARED: "the events declare neither defaults nor NOT NULL",
}


def source_columns(properties: Mapping[str, str]) -> ColumnHistory:
    """Return the history of the source's columns from a table's properties."""
    text = properties.get(SOURCE_COLUMNS)
    return msgspec.json.decode(text, type=ColumnHistory) if text else ColumnHistory()


def additions_of(properties: Mapping[str, str]) -> tuple[Addition, ...]:
    """Return the columns that were added to a table without a statement."""
    return source_columns(properties).added


def property_of(columns: ColumnHistory) -> dict[str, str]:
    """Return the table property for the history of the source's columns."""
    return {SOURCE_COLUMNS: msgspec.json.encode(columns).decode()}


def renamed_history(columns: ColumnHistory, names: Mapping[str, str | None]) -> ColumnHistory:
    """Return the history after a rename of columns: old name -> new name, ``None`` = dropped."""
    lower = {old.lower(): new for old, new in names.items()}
    added = []
    for addition in columns.added:
        name = lower.get(addition.column.lower(), addition.column)
        if name is not None:
            added.append(msgspec.structs.replace(addition, column=name))
    return msgspec.structs.replace(columns, added=tuple(added))


def column_exceptions(added: Sequence[Addition]) -> Column:
    """Return the exceptions of a row, with an empty order for each unknown column."""
    unknown = [addition for addition in added if addition.is_unknown]
    listed = F.col(COLUMNS)
    if not unknown:
        return listed
    names = _unlisted_names(unknown)
    with_them = F.map_concat(
        F.coalesce(listed, F.expr(NO_EXCEPTIONS)), orders_of(names, F.expr(EMPTY_ORDER))
    )
    return F.when(F.size(names) > 0, with_them).otherwise(listed)


def version_exceptions(added: Sequence[Addition], columns: Sequence[str]) -> Column:
    """Return the exceptions of a version, which lists either no column or all that it had.

    Args:
        added: The additions of its table.
        columns: The columns of the table outside its key.
    """
    unknown = [addition for addition in added if addition.is_unknown]
    if not unknown:
        return F.col(COLUMNS)
    every = F.array(*(F.lit(name) for name in columns))
    own = orders_of(every, F.lit(bytearray(_ANY_ORDER)))
    is_older = is_before_any(F.col(ORDER), unknown)
    listed = F.when(F.col(COLUMNS).isNull() & is_older, own).otherwise(F.col(COLUMNS))
    names = _unlisted_names(unknown)
    others = F.map_filter(listed, lambda column, _: ~F.array_contains(names, column))
    with_them = F.map_concat(others, orders_of(names, F.expr(EMPTY_ORDER)))
    return F.when(listed.isNotNull() & (F.size(names) > 0), with_them).otherwise(listed)


def names_where(conditions: Iterable[tuple[str, Column]]) -> Column:
    """Return the names whose conditions hold, each once.

    The expression grows with the number of names. Where each name wraps the expression of those
    before it, which it needs twice, it doubles with each: a table with twenty added columns would
    take hours to plan.

    Args:
        conditions: Names, and their conditions.
    """
    chosen = [F.when(condition, F.lit(name)) for name, condition in conditions]
    names = F.array_distinct(F.array_compact(F.array(*chosen))) if chosen else F.array()
    return names.cast("array<string>")


def lacks_column(
    order: Column, schema_id: Column, addition: Addition, having: Collection[str]
) -> Column:
    """Return whether a full event is older than an added column and does not contain it.

    Args:
        order: The order of the event.
        schema_id: The schema of the event.
        addition: The column.
        having: The schemas with the column.
    """
    names = schema_id.isin(*having) if having else F.lit(False)
    return F.coalesce((order < F.lit(bytearray(addition.order))) & ~names, F.lit(False))


def is_before_addition(order: Column, addition: Addition) -> Column:
    """Return whether the base order of a row is older than an added column.

    If the row moved to another key, the last bytes of the base order are those of its newest event.
    """
    own = F.substring(order, -len(addition.order), len(addition.order))
    return F.coalesce(own, F.expr(EMPTY_ORDER)) < F.lit(bytearray(addition.order))


def is_before_any(order: Column, added: Iterable[Addition]) -> Column:
    """Return whether the base order of a row is older than one of some added columns."""
    return any_of([is_before_addition(order, addition) for addition in added])


def _lists_column(columns: Column, name: str) -> Column:
    return F.coalesce(F.map_contains_key(columns, name), F.lit(False))


def _unlisted_names(unknown: Sequence[Addition]) -> Column:
    """Return the columns that are unknown in a row, and of which it lists no order."""
    return names_where(
        (
            addition.column,
            is_before_addition(F.col(ORDER), addition)
            & ~_lists_column(F.col(COLUMNS), addition.column),
        )
        for addition in unknown
    )


def orders_of(name_array: Column, order: Column) -> Column:
    """Return the exceptions of a row in which some columns have one order."""
    return F.map_from_arrays(name_array, F.transform(name_array, lambda _: order))


def is_unknown(addition: Addition) -> Column:
    """Return whether an added column is unknown in a row."""
    order = F.try_element_at(column_exceptions([addition]), F.lit(addition.column))
    return F.coalesce(F.length(order) == 0, F.lit(False))


def note_of(added: Sequence[Addition], counts: Mapping[str, int] | None = None) -> str:
    """Return a note about columns that are unknown in older rows; empty = there are none.

    Args:
        added: The columns.
        counts: The number of rows in which each is unknown; ``None`` = not counted.
    """
    unknown = [
        addition
        for addition in added
        if addition.is_unknown and (counts is None or counts.get(addition.column))
    ]
    descriptions = [
        f"{addition.column!r} ({'' if counts is None else f'{counts[addition.column]:,} rows; '}"
        f"{reason_of(addition)})"
        for addition in unknown[:MAX_NAMED]
    ]
    if (unnamed_count := len(unknown) - MAX_NAMED) > 0:
        descriptions.append(f"{unnamed_count} more")
    if not descriptions:
        return ""
    return f"unknown in older rows: {', '.join(descriptions)}: {REPAIR_ADVICE}"


def reason_of(addition: Addition) -> str:
    """Return why a column is unknown in older rows."""
    if addition.cause is Cause.SERVERS:  # its order is above all positions
        return "the servers or tables that feed the table add it at times of their own"
    cause = _CAUSES.get(addition.cause)
    if cause is None:
        dropped_names = ", ".join(map(repr, addition.dropped[:MAX_NAMED]))
        cause = f"{dropped_names} disappeared at the same position, and may have been renamed"
    return f"new at {order_text(addition.order)}; {cause}"
