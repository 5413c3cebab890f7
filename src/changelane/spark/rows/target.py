# SPDX-License-Identifier: Apache-2.0
"""The columns of a table, and their values in full events from before they were added."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from changelane.apply.added_columns import Addition
from changelane.spark.rows.added_columns import is_before_addition, lacks_column, names_where
from changelane.spark.rows.schema import RowSchema
from changelane.spark.runtime.conditions import any_of
from changelane.spark.runtime.sql import EMPTY_ORDER, ORDER

CORRUPT: Final = "_changelane_corrupt"
OPTIONS: Final = {
    "columnNameOfCorruptRecord": CORRUPT,
    "mode": "PERMISSIVE",
    "maxStringLen": str(1 << 30),
    "maxNumLen": "100000",
}


class Target(NamedTuple):
    """A table as the target of a batch.

    Attributes:
        columns: The user columns, name -> Spark type.
        keys: The key columns.
        schemas: The schemas of the events, by id.
        keeps_deleted: Whether deleted rows stay with their last values and a mark.
        additions: The columns that were added without a statement: unknown in older rows.
        alterations: The renames and drops of columns that the table has executed, in their order:
            the id of each, and the new names by the old ones in lower case (``None`` = dropped).
        backfills: The columns that statements added with a value, or with one that is unknown.
        has_exact_images: Whether an image has no column that its schema lacks. An image that is
            older than a statement still has the columns that the statement dropped.
    """

    columns: Mapping[str, str]
    keys: Sequence[str]
    schemas: Mapping[str, RowSchema]
    keeps_deleted: bool = False
    additions: Sequence[Addition] = ()
    alterations: Sequence[tuple[str, Mapping[str, str | None]]] = ()
    backfills: Sequence[Addition] = ()
    has_exact_images: bool = False

    def schemas_with(self, column: str) -> list[str]:
        """Return the ids of the schemas with a column."""
        return [
            schema_id
            for schema_id, schema in self.schemas.items()
            if any(event_column.name.lower() == column.lower() for event_column in schema.columns)
        ]


def literal(default: tuple[str, str]) -> Column:
    """Return the literal of a value as JSON and its type (``RowColumn.fixed``)."""
    text, kind = default
    return F.from_json(F.lit(text), f"v {kind}", OPTIONS)["v"]


def with_defaults(row: Column, order: Column, schema_id: Column, target: Target) -> Column:
    """Return the row of a full event with the defaults of columns that were added after it.

    Args:
        row: The row, a struct of the target's columns.
        order: The order of the event.
        schema_id: The schema of the event.
        target: The table.
    """
    defaults = [
        (addition, literal(addition.value).cast(target.columns[addition.column]))
        for addition in target.additions
        if addition.value is not None and addition.column in target.columns
    ]
    if not defaults:
        return row

    def filled(event_row: Column) -> Column:
        values = {name: event_row[name] for name in target.columns}
        for addition, default in defaults:
            name = addition.column
            is_older = lacks_column(order, schema_id, addition, target.schemas_with(name))
            values[name] = F.when(is_older, default).otherwise(values[name])
        full_row = F.struct(*(value.alias(name) for name, value in values.items()))
        return F.when(event_row.isNotNull(), full_row)

    # as in parsed_row, a lambda's variable: each field would have the whole expression otherwise
    return F.element_at(F.transform(F.array(row), filled), 1)


def unknown_columns(order: Column, schema_id: Column, target: Target) -> Column:
    """Return the names of the columns that are unknown in a full event, because it is older."""
    return names_where(
        (
            addition.column,
            lacks_column(order, schema_id, addition, target.schemas_with(addition.column)),
        )
        for addition in target.additions
        if addition.is_unknown
    )


def implied_order(name: Column, target: Target) -> Column:
    """Return the order of a column without an exception in its row.

    The same rule as :func:`changelane.apply.added_columns.unlisted_order`.
    """
    added = [addition for addition in target.additions if addition.is_unknown]
    if not added:
        return F.col(ORDER)
    unknown = [
        (name == F.lit(addition.column)) & is_before_addition(F.col(ORDER), addition)
        for addition in added
    ]
    return F.when(any_of(unknown), F.expr(EMPTY_ORDER)).otherwise(F.col(ORDER))
