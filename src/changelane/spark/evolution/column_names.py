# SPDX-License-Identifier: Apache-2.0
"""The columns of events by the names that their table has for them."""

import msgspec

from changelane.apply.column_mapping import ColumnBackfill, ColumnMapping
from changelane.apply.schema_history import Backfill
from changelane.errors import DecodeError
from changelane.schema import Column, TableSchema
from changelane.spark.rows.json_values import RowWriter, spark_type
from changelane.spark.rows.schema import RowColumn, RowSchema


def named_columns(schema: RowSchema, shape: ColumnMapping, sample: bytes) -> RowSchema:
    """Return a schema by the table's names; columns that are gone are left out."""
    event_columns = shape.event_columns((column.name for column in schema.columns), sample)
    columns: list[RowColumn] = []
    names: dict[str, str] = {}
    for column in schema.columns:
        target = event_columns.columns[column.name]
        if target is None:
            continue
        if target == column.name.lower():
            named_column = column
        else:
            new_name = shape.spelling_of(target)
            named_column = msgspec.structs.replace(column, name=new_name, source_name=column.name)
        names[column.name] = named_column.name
        columns.append(named_column)
    lower_names = {name.lower() for name in names.values()}
    for filling in event_columns.backfills:
        fixed = fixed_column(filling)
        if fixed is not None and filling.column not in lower_names:
            columns.append(fixed)
    key = schema.key and tuple(names.get(part, part) for part in schema.key)
    return msgspec.structs.replace(schema, columns=tuple(columns), key=key)


def fixed_column(filling: ColumnBackfill) -> RowColumn | None:
    """Return the column of a filling with its value; ``None`` when no value is known."""
    added = filling.added
    if added.fill is not Backfill.VALUE:
        return None
    writer = RowWriter(TableSchema((Column("v", added.kind),)))
    try:
        text, _ = writer.write({"v": added.value})
    except DecodeError:
        return None
    spark = spark_type(added.kind)
    return RowColumn(filling.column, str(added.kind), spark, fixed=(bytes(text).decode(), spark))
