# SPDX-License-Identifier: Apache-2.0
"""The columns of a schema as ``schema`` rows have them: types of Spark, and declared defaults."""

import msgspec

from changelane.apply.added_columns import (
    ColumnTraits,
    DefaultKind,
    SchemaColumns,
    columns_of_schema,
    default_of,
)
from changelane.errors import DecodeError
from changelane.schema import Column, TableSchema
from changelane.spark.rows.json_values import RowWriter, spark_type
from changelane.spark.rows.schema import RowColumn, RowSchema


def row_columns(schema: TableSchema) -> tuple[RowColumn, ...]:
    """Return the columns of a schema; an undeclared one has the default ``None``."""
    return tuple(map(_row_column, schema.columns))


def _row_column(column: Column) -> RowColumn:
    default, value = default_of(column), None
    if default is DefaultKind.LITERAL:
        writer = RowWriter(TableSchema((Column("v", column.type),)))
        try:
            value = bytes(writer.write({"v": column.default})[0]).decode()
        except DecodeError:
            default = DefaultKind.COMPUTED  # older rows have it, and nobody can say what it is
    return RowColumn(
        column.name,
        str(column.type),
        spark_type(column.type),
        column.source_type,
        column.nullable,
        column.generated,
        default=default,
        value=value,
    )


def schema_columns_of(schema: RowSchema, oldest: bytes, newest: bytes) -> SchemaColumns:
    """Return the columns that the events of a schema list, by the names of their table.

    Args:
        schema: The schema.
        oldest: The oldest event with it that tells a row.
        newest: The newest one.
    """
    traits = (
        ColumnTraits(
            column.name,
            column.nullable,
            column.default,
            None if column.value is None else (column.value, column.spark),
        )
        for column in schema.columns
        if column.fixed is None
    )
    return columns_of_schema(oldest, traits, is_complete=schema.lists_columns, last=newest)


def plain_column(column: RowColumn) -> RowColumn:
    """Return a column as a table remembers it in its schema: its default stands elsewhere."""
    return msgspec.structs.replace(column, told=None, default=None, value=None)
