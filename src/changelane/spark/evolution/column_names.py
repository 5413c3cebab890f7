# SPDX-License-Identifier: Apache-2.0
"""Gives the columns of events the names of their table's columns."""

import msgspec

from changelane.apply.column_mapping import ColumnBackfill, ColumnMapping
from changelane.apply.schema_history import Backfill
from changelane.errors import DecodeError
from changelane.schema import Column, TableSchema
from changelane.spark.rows.json_values import RowWriter, spark_type
from changelane.spark.rows.schema import RowColumn, RowSchema


def named_columns(schema: RowSchema, column_mapping: ColumnMapping, order: bytes) -> RowSchema:
    """Return a schema with the names of the table's columns, without dropped columns.

    Args:
        schema: The schema of the events.
        column_mapping: The columns of the table over the log.
        order: An order in the interval of the events.
    """
    event_columns = column_mapping.event_columns((column.name for column in schema.columns), order)
    columns: list[RowColumn] = []
    names: dict[str, str] = {}
    for column in schema.columns:
        target = event_columns.columns[column.name]
        if target is None:
            continue
        if target == column.name.lower():
            named_column = column
        else:
            new_name = column_mapping.spelling_of(target)
            named_column = msgspec.structs.replace(
                column, name=new_name, source_name=column.image_name
            )
        names[column.name] = named_column.name
        columns.append(named_column)
    lower_names = {name.lower() for name in names.values()}
    for backfill in event_columns.backfills:
        fixed = fixed_column(backfill)
        if fixed is not None and backfill.column not in lower_names:
            columns.append(fixed)
    key = schema.key and tuple(names.get(part, part) for part in schema.key)
    return msgspec.structs.replace(schema, columns=tuple(columns), key=key)


def fixed_column(backfill: ColumnBackfill) -> RowColumn | None:
    """Return the column of a backfill with its value; ``None`` if the value is unknown."""
    added = backfill.added
    if added.fill is not Backfill.VALUE:
        return None
    writer = RowWriter(TableSchema((Column("v", added.kind),)))
    try:
        text, _ = writer.write({"v": added.value})
    except DecodeError:
        return None
    spark = spark_type(added.kind)
    return RowColumn(backfill.column, str(added.kind), spark, fixed=(bytes(text).decode(), spark))
