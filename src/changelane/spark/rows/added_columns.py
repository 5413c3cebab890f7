# SPDX-License-Identifier: Apache-2.0
"""Rows that do not know a column which came without a statement.

The rule is that of :mod:`changelane.apply.added_columns`.

No row is rewritten for it. A table's property says from where on rows know such a column, and
:func:`column_exceptions` returns the exceptions of a row as if each row listed it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F

from changelane.apply.added_columns import Addition, Cause, ColumnHistory
from changelane.position import order_text
from changelane.spark.runtime.sql import COLUMNS, ORDER

SOURCE_COLUMNS: Final = "source_columns"
"""The property that keeps :class:`~changelane.apply.added_columns.ColumnHistory`."""
MAX_NAMED: Final = 5
_EMPTY_MAP: Final = "cast(map() AS map<string,binary>)"
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
    """Return what a table remembers of the columns of its source."""
    text = properties.get(SOURCE_COLUMNS)
    return msgspec.json.decode(text, type=ColumnHistory) if text else ColumnHistory()


def additions_of(properties: Mapping[str, str]) -> tuple[Addition, ...]:
    """Return the columns that came to a table without a statement."""
    return source_columns(properties).added


def property_of(columns: ColumnHistory) -> dict[str, str]:
    """Return the property that keeps what a table remembers of the columns of its source."""
    return {SOURCE_COLUMNS: msgspec.json.encode(columns).decode()}


def renamed_history(columns: ColumnHistory, names: Mapping[str, str | None]) -> ColumnHistory:
    """Return the same for columns with other names: old name -> new name, ``None`` = dropped."""
    lower = {old.lower(): new for old, new in names.items()}
    added = []
    for addition in columns.added:
        name = lower.get(addition.column.lower(), addition.column)
        if name is not None:
            added.append(msgspec.structs.replace(addition, column=name))
    return msgspec.structs.replace(columns, added=tuple(added))


def column_exceptions(added: Sequence[Addition]) -> Column:
    """Return the exceptions of a row, with an empty order for each column that it does not know.

    Args:
        added: The additions of its table.
    """
    listed = F.col(COLUMNS)
    for addition in added:
        if addition.is_unknown:
            is_unknown = is_before_addition(F.col(ORDER), addition) & ~_lists_column(
                listed, addition.column
            )
            other_columns = F.coalesce(listed, F.expr(_EMPTY_MAP))
            with_it = F.map_concat(other_columns, _unknown_exception(addition.column))
            listed = F.when(is_unknown, with_it).otherwise(listed)
    return listed


def version_exceptions(added: Sequence[Addition], columns: Sequence[str]) -> Column:
    """Return the same of a version of a row, which lists either no column or all that it had.

    Args:
        added: The additions of its table.
        columns: The columns of the table that are not of its key.
    """
    unknown = [addition for addition in added if addition.is_unknown]
    if not unknown:
        return F.col(COLUMNS)
    every = F.array(*(F.lit(name) for name in columns))
    own = F.map_from_arrays(every, F.transform(every, lambda _: F.lit(bytearray(_ANY_ORDER))))
    below = F.lit(False)
    for addition in unknown:
        below = below | is_before_addition(F.col(ORDER), addition)
    listed = F.when(F.col(COLUMNS).isNull() & below, own).otherwise(F.col(COLUMNS))
    for addition in unknown:
        is_told = F.coalesce(_lists_column(F.col(COLUMNS), addition.column), F.lit(False))
        is_unknown = listed.isNotNull() & is_before_addition(F.col(ORDER), addition) & ~is_told
        other_columns = _without_column(listed, addition.column)
        with_it = F.map_concat(other_columns, _unknown_exception(addition.column))
        listed = F.when(is_unknown, with_it).otherwise(listed)
    return listed


def lacks_column(
    order: Column, schema_id: Column, addition: Addition, having: Collection[str]
) -> Column:
    """Say whether a whole event is from before a column came, and does not name it.

    Args:
        order: Its order.
        schema_id: Its schema.
        addition: The column.
        having: The schemas that name the column.
    """
    names = schema_id.isin(*having) if having else F.lit(False)
    return F.coalesce((order < F.lit(bytearray(addition.order))) & ~names, F.lit(False))


def is_before_addition(order: Column, addition: Addition) -> Column:
    """Say whether a row with a base order is from before a column came.

    Of a row that moved to another key, the last bytes of the base are those of its newest event.
    """
    own = F.substring(order, -len(addition.order), len(addition.order))
    return F.coalesce(own, F.unhex(F.lit(""))) < F.lit(bytearray(addition.order))


def _lists_column(columns: Column, name: str) -> Column:
    return F.coalesce(F.map_contains_key(columns, F.lit(name)), F.lit(False))


def _without_column(columns: Column, name: str) -> Column:
    return F.map_filter(columns, lambda column, _: column != F.lit(name))


def _unknown_exception(name: str) -> Column:
    return F.create_map(F.lit(name), F.unhex(F.lit("")))


def is_unknown(addition: Addition) -> Column:
    """Say whether a row of the table does not know a column."""
    order = F.try_element_at(column_exceptions([addition]), F.lit(addition.column))
    return F.coalesce(F.length(order) == 0, F.lit(False))


def note_of(added: Sequence[Addition], counts: Mapping[str, int] | None = None) -> str:
    """Return what is to be said of columns that older rows do not know; empty = there are none.

    Args:
        added: The columns.
        counts: How many rows do not know each; ``None`` = nobody counted them.
    """
    unknown = [
        addition
        for addition in added
        if addition.is_unknown and (counts is None or counts.get(addition.column))
    ]
    said = [
        f"{addition.column!r} ({'' if counts is None else f'{counts[addition.column]:,} rows; '}"
        f"{reason_of(addition)})"
        for addition in unknown[:MAX_NAMED]
    ]
    if (unnamed_count := len(unknown) - MAX_NAMED) > 0:
        said.append(f"{unnamed_count} more")
    return f"rows from before do not know {', '.join(said)}: {REPAIR_ADVICE}" if said else ""


def reason_of(addition: Addition) -> str:
    """Return why the rows from before a column do not know it."""
    cause = _CAUSES.get(addition.cause)
    if cause is None:
        dropped_names = ", ".join(map(repr, addition.dropped[:MAX_NAMED]))
        cause = f"{dropped_names} is gone at the same place, and may have been renamed"
    return f"new at {order_text(addition.order)}; {cause}"
