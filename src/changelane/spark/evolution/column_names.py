# SPDX-License-Identifier: Apache-2.0
"""The columns of events by the names that their table has for them."""

import msgspec

from changelane.apply.column_mapping import Filling, Shape
from changelane.apply.schema_history import Fill
from changelane.errors import DecodeError
from changelane.schema import Column, TableSchema
from changelane.spark.rows.json_values import RowWriter, spark_type
from changelane.spark.rows.schema import RowColumn, RowSchema


def named_columns(schema: RowSchema, shape: Shape, sample: bytes) -> RowSchema:
    """Return a schema by the table's names; columns that are gone are left out."""
    reading = shape.reading((column.name for column in schema.columns), sample)
    columns: list[RowColumn] = []
    names: dict[str, str] = {}
    for column in schema.columns:
        target = reading.columns[column.name]
        if target is None:
            continue
        if target == column.name.lower():
            named = column
        else:
            new_name = shape.spelled(target)
            named = msgspec.structs.replace(column, name=new_name, told=column.name)
        names[column.name] = named.name
        columns.append(named)
    there = {name.lower() for name in names.values()}
    for filling in reading.fillings:
        fixed = fixed_column(filling)
        if fixed is not None and filling.column not in there:
            columns.append(fixed)
    key = schema.key and tuple(names.get(part, part) for part in schema.key)
    return msgspec.structs.replace(schema, columns=tuple(columns), key=key)


def fixed_column(filling: Filling) -> RowColumn | None:
    """Return the column of a filling with its value; ``None`` when no value is known."""
    added = filling.added
    if added.fill is not Fill.VALUE:
        return None
    writer = RowWriter(TableSchema((Column("v", added.kind),)))
    try:
        text, _ = writer.write({"v": added.value})
    except DecodeError:
        return None
    spark = spark_type(added.kind)
    return RowColumn(filling.column, str(added.kind), spark, fixed=(bytes(text).decode(), spark))
