# SPDX-License-Identifier: Apache-2.0
"""The definitions of tables in control records: columns with their types."""

from changelane.errors import DecodeError
from changelane.formats.contract.replicate_types import logical_type, type_text
from changelane.formats.dms.wire import ColumnDefinition, TableDefinition
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableSchema


def schema_of(definition: TableDefinition) -> TableSchema:
    """Return the columns of a definition.

    Raises:
        DecodeError: A type is unknown.
    """
    columns = [_column(name, part) for name, part in definition.columns.items()]
    return TableSchema(tuple(columns))


def _column(name: str, part: ColumnDefinition) -> Column:
    kind = logical_type(part.type, part.precision, part.scale)
    if kind is None:
        raise DecodeError(
            "an unknown column type",
            code=ReasonCode.UNKNOWN_TYPE,
            path=f"$.control.table-def.columns.{name}.type",
        )
    source_type = type_text(part.type, part.length, part.precision, part.scale)
    return Column(name, kind, source_type, part.nullable)
