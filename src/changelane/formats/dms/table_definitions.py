# SPDX-License-Identifier: Apache-2.0
"""The definitions of tables in control records: columns, types and keys.

The types are "Data types for AWS Database Migration Service" of the user guide
(https://docs.aws.amazon.com/dms/latest/userguide/CHAP_Reference.DataTypes.html), named by their
bytes (INT4). Captured messages of Kinesis name them by their bits (INT32). ``INT8`` and ``UINT8``
are read as the wider of both.
"""

from typing import Final

from changelane.errors import DecodeError
from changelane.formats.dms.wire import ColumnDefinition, TableDefinition
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableSchema
from changelane.types import (
    Boolean,
    Bytes,
    Date,
    Decimal,
    Float,
    Integer,
    LogicalType,
    String,
    Time,
    Timestamp,
)

TYPES: Final[dict[str, LogicalType]] = {
    "STRING": String(),
    "WSTRING": String(),
    "CLOB": String(),
    "NCLOB": String(),
    "BLOB": Bytes(),
    "BYTE": Bytes(),
    "BYTES": Bytes(),
    "BOOLEAN": Boolean(),
    "DATE": Date(),
    "TIME": Time(),
    "DATETIME": Timestamp(),
    "TIMESTAMP": Timestamp(),
    "REAL4": Float(32),
    "REAL8": Float(64),
    "INT1": Integer(8),
    "INT2": Integer(16),
    "INT4": Integer(32),
    "INT8": Integer(64),
    "INT16": Integer(16),
    "INT32": Integer(32),
    "INT64": Integer(64),
    "UINT1": Integer(8, unsigned=True),
    "UINT2": Integer(16, unsigned=True),
    "UINT4": Integer(32, unsigned=True),
    "UINT8": Integer(64, unsigned=True),
    "UINT16": Integer(16, unsigned=True),
    "UINT32": Integer(32, unsigned=True),
    "UINT64": Integer(64, unsigned=True),
}
"""Type name -> logical type, except ``NUMERIC``, which has parameters."""
_MAX: Final = "-MAX"
"""The end of the name of a type without a length."""


def schema_of(definition: TableDefinition) -> TableSchema:
    """Return the columns of a definition.

    Raises:
        DecodeError: A type is unknown.
    """
    columns = [_column(name, part) for name, part in definition.columns.items()]
    return TableSchema(tuple(columns))


def _column(name: str, part: ColumnDefinition) -> Column:
    return Column(name, _kind(name, part), _source_type(part), part.nullable)


def _kind(name: str, part: ColumnDefinition) -> LogicalType:
    type_name = part.type.upper().removesuffix(_MAX)
    if type_name == "NUMERIC":
        if part.precision is None and part.scale is None:
            return Decimal()
        return Decimal(part.precision, part.scale or 0)
    kind = TYPES.get(type_name)
    if kind is None:
        raise DecodeError(
            "an unknown column type",
            code=ReasonCode.UNKNOWN_TYPE,
            path=f"$.control.table-def.columns.{name}.type",
        )
    return kind


def _source_type(part: ColumnDefinition) -> str:
    """Return the type as text, such as ``STRING(128)`` or ``NUMERIC(10,2)``."""
    sizes = (part.length,) if part.precision is None else (part.precision, part.scale)
    shown = ",".join(str(size) for size in sizes if size is not None)
    return f"{part.type}({shown})" if shown else part.type
