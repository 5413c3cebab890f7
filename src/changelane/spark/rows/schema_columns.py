# SPDX-License-Identifier: Apache-2.0
"""The columns of a schema in ``schema`` rows: Spark types and declared defaults."""

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
            default = DefaultKind.COMPUTED  # older rows have the default, with an unknown value
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
    """Return the columns of a schema, by the names of the table.

    Args:
        schema: The schema.
        oldest: The order of the oldest upsert with the schema.
        newest: The order of the newest upsert with the schema.
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
    """Return a column for the schema in a table's properties, which stores no default."""
    return msgspec.structs.replace(column, source_name=None, default=None, value=None)
