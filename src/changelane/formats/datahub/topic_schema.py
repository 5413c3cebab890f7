# SPDX-License-Identifier: Apache-2.0
"""Conversion between the schema of a TUPLE topic and a table's schema.

A topic's schema is a JSON text ``{"fields":[{"name":"id","type":"BIGINT","notnull":true}]}``.

"Data Integration adds several metadata columns when you create a topic. The schema for the TUPLE
format contains both metadata columns and business data columns."
https://www.alibabacloud.com/help/en/dataworks/user-guide/message-formats
"""

from typing import Final

import msgspec

from changelane.errors import ConfigError, DecodeError
from changelane.formats.contract import json
from changelane.schema import Column, TableSchema
from changelane.types import (
    Boolean,
    Decimal,
    Float,
    InstantType,
    Integer,
    LogicalType,
    String,
)

SEQUENCE: Final = "_sequence_id_"
OPERATION: Final = "_operation_type_"
TIME: Final = "_excute_time_"  # the producer's own spelling
OTHER_TIME: Final = "_execute_time_"
TABLE: Final = "_source_table_"
BEFORE: Final = "_before_image_"
AFTER: Final = "_after_image_"

METADATA: Final[dict[str, str]] = {
    SEQUENCE: "STRING",
    OPERATION: "STRING",
    TIME: "BIGINT",
    TABLE: "STRING",
    BEFORE: "STRING",
    AFTER: "STRING",
}
"""Metadata columns and their types, in the order of a new topic."""

TYPES: Final[dict[str, LogicalType]] = {
    "TINYINT": Integer(8),
    "SMALLINT": Integer(16),
    "INTEGER": Integer(32),
    "BIGINT": Integer(64),
    "FLOAT": Float(32),
    "DOUBLE": Float(64),
    "BOOLEAN": Boolean(),
    "STRING": String(),
    "TIMESTAMP": InstantType(6),
    "DECIMAL": Decimal(),
}
"""DataHub's column types; a TIMESTAMP counts microseconds."""


class FieldPart(msgspec.Struct, omit_defaults=True):
    """One column of a topic."""

    name: str
    type: str
    notnull: bool = False


class TopicPart(msgspec.Struct):
    """The schema of a topic."""

    fields: list[FieldPart]


def is_metadata(name: str) -> bool:
    """Return whether a column is a metadata column, by its underscores.

    "Fields that start with an underscore [...] are metadata columns." All documented metadata
    columns also end with one; a column such as MongoDB's ``_id`` belongs to the table.
    """
    return len(name) > 2 and name[0] == name[-1] == "_"


def topic_schema(schema: TableSchema, *, all_types: bool = False, time_column: str = TIME) -> str:
    """Return the schema of a topic for a table, as the service expects it.

    Types that DataHub does not have become STRING, unsigned 64-bit numbers DECIMAL.

    Args:
        schema: The table's columns.
        all_types: Use TINYINT, SMALLINT, INTEGER and FLOAT, which older clients do not support.
        time_column: The name of the time column: ``_excute_time_`` or ``_execute_time_``.

    Raises:
        ConfigError: A column has the name of a metadata column.
    """
    fields = [
        FieldPart(time_column if name == TIME else name, kind) for name, kind in METADATA.items()
    ]
    for column in schema.columns:
        if is_metadata(column.name):
            raise ConfigError(f"{column.name!r} is the name of a metadata column")
        fields.append(
            FieldPart(column.name, _type_name(column.type, all_types), column.nullable is False)
        )
    return json.dumps(TopicPart(fields)).decode()


_BY_BITS: Final = {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}


def _type_name(kind: LogicalType, all_types: bool) -> str:  # noqa: FBT001 - an option of the caller
    match kind:
        case Integer(64, True):
            return "DECIMAL"
        case Integer(bits, unsigned):
            signed_bits = min(64, bits * 2 if unsigned else bits)
            return _BY_BITS[signed_bits] if all_types else "BIGINT"
        case Float(32) if all_types:
            return "FLOAT"
        case Float():
            return "DOUBLE"
        case Boolean():
            return "BOOLEAN"
        case InstantType():
            return "TIMESTAMP"
        case Decimal():
            return "DECIMAL"
        case _:
            return "STRING"


def table_schema(text: str) -> TableSchema:
    """Return the business columns of a topic, in their order.

    Raises:
        ConfigError: The text is not a topic's schema, or DataHub does not have a type in it.
    """
    try:
        fields = json.loads(text.encode("utf-8", "surrogatepass"), TopicPart).fields
    except DecodeError as error:
        raise ConfigError(f"not the schema of a topic: {error}") from None
    columns: dict[str, Column] = {}
    for field in fields:
        if is_metadata(field.name):
            continue
        kind = TYPES.get(field.type.upper())
        if kind is None:
            raise ConfigError(f"column {field.name!r} of the topic has an unknown type")
        if field.name in columns:
            raise ConfigError(f"the topic has the column {field.name!r} twice")
        nullable = False if field.notnull else None
        columns[field.name] = Column(field.name, kind, field.type.upper(), nullable)
    return TableSchema(tuple(columns.values()))
