# SPDX-License-Identifier: Apache-2.0
"""The column types in the schemas of enriched messages, and values of JSON columns.

Source: ``pkg/ccl/changefeedccl/kcjsonschema`` of https://github.com/cockroachdb/cockroach.
"""

from collections.abc import Mapping
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.formats.cockroachdb.wire import Field, Row
from changelane.formats.contract import json
from changelane.formats.contract.column_values import Read, reader, whole_unless_fraction
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableSchema
from changelane.types import (
    UNKNOWN,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Float,
    Integer,
    Json,
    LogicalType,
    String,
)

_JSON_NULL: Final = {"__crdb_json_null__": True}
"""JSON's null in a JSON column, with ``encode_json_value_null_as_object``."""
_MOST_DIGITS: Final = 10_000

_TYPES: Final[dict[str, LogicalType]] = {
    "int8": Integer(8),
    "int16": Integer(16),
    "int32": Integer(32),
    "int64": Integer(64),
    "float32": Float(32),
    "float64": Float(64),
    "boolean": Boolean(),
    "string": String(),
    "bytes": Bytes(),
    "json": Json(),
    # values of these are JSON values
    "array": UNKNOWN,
    "struct": UNKNOWN,
    "map": UNKNOWN,
}


def column_of(field: Field) -> Column:
    """Return the column of a field.

    Times stay text: ``timestamp`` is the name of columns with and without a zone.

    Raises:
        DecodeError: The type is unknown. The error has no path.
    """
    kind = _TYPES.get(field.type)
    if kind is None:
        raise DecodeError("an unknown column type", code=ReasonCode.UNKNOWN_TYPE)
    if field.name == "decimal":
        kind = _decimal(field.parameters or {})
    elif field.name == "date":
        kind = Date()
    source_type = field.name or field.type
    return Column(field.field or "", kind, source_type, field.optional)


def _decimal(parameters: Mapping[str, str]) -> Decimal:
    precision, scale = (parameters.get(name, "0") for name in ("precision", "scale"))
    if not (precision.isascii() and precision.isdigit() and scale.isascii() and scale.isdigit()):
        raise DecodeError("not a number of digits", code=ReasonCode.WRONG_SCHEMA)
    digits = int(precision[:9])
    return Decimal(digits, int(scale[:9])) if 0 < digits <= _MOST_DIGITS else Decimal()


def readers_of(schema: TableSchema) -> dict[str, Read]:
    """Return the readers of the columns of a schema."""
    return {column.name: _reader(column.type) for column in schema.columns}


def _reader(kind: LogicalType) -> Read:
    return json_text if isinstance(kind, Json) else reader(kind)


def json_text(value: Any) -> str:
    """Return the text of a value in a JSON column."""
    return "null" if value == _JSON_NULL else json.dumps(value).decode()


def typed(readers: Mapping[str, Read], row: Row, path: str) -> Row:
    """Return a row with values of the types of its columns.

    Raises:
        DecodeError: A value is not of its type.
    """
    image: Row = {}
    name = ""
    try:
        for name, value in row.items():
            read = readers.get(name, whole_unless_fraction)
            image[name] = value if value is None else read(value)
    except DecodeError as error:
        raise DecodeError(error.reason, code=error.code, path=f"{path}.{name}") from None
    return image
