# SPDX-License-Identifier: Apache-2.0
"""The definition of a table in messages about statements: ``def`` and ``old``."""

from typing import Final

from changelane.errors import DecodeError, EncodeError
from changelane.event import Key, KeyOrigin
from changelane.formats.contract import json
from changelane.formats.maxwell.wire import ColumnDefinition, Row, TableDefinition
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableSchema
from changelane.sql_types import mysql
from changelane.types import Bytes, Enum, LogicalType, Set

# ColumnDef.build: the types without `unsigned`, labels or digits
_TYPES: Final = frozenset(
    "tinytext text mediumtext longtext varchar char tinyblob blob mediumblob longblob binary "
    "varbinary geometry geometrycollection linestring multilinestring multipoint multipolygon "
    "polygon point float double decimal date year bit json".split()
)
_INTEGERS: Final = frozenset("tinyint smallint mediumint int bigint".split())
_TIMES: Final = frozenset("datetime timestamp time".split())
_MOST_DIGITS: Final = 6


def schema_of(definition: Row | None) -> tuple[TableSchema | None, Key | None]:
    """Return the columns and the key of ``def``.

    Raises:
        DecodeError: The definition is not valid, or has a type that Maxwell does not have.
    """
    if definition is None:
        return None, None
    table = json.convert(definition, TableDefinition, "$.def")
    columns = tuple(
        _column(column, f"$.def.columns[{index}]") for index, column in enumerate(table.columns)
    )
    try:
        schema = TableSchema(columns)
    except ValueError as error:
        path = "$.def.columns"
        raise DecodeError(str(error), code=ReasonCode.WRONG_SCHEMA, path=path) from None
    key = Key(tuple(table.primary_key), KeyOrigin.PAYLOAD) if table.primary_key else None
    return schema, key


def _column(definition: ColumnDefinition, path: str) -> Column:
    kind: LogicalType
    name = definition.type
    if name in _INTEGERS:
        text = f"{name} unsigned" if definition.signed is False else name
    elif name in _TIMES:
        digits = definition.column_length or 0
        if not 0 <= digits <= _MOST_DIGITS:
            place = f"{path}.column-length"
            raise DecodeError("out of range", code=ReasonCode.VALUE_OUT_OF_RANGE, path=place)
        text = f"{name}({digits})" if digits else name
    elif name in {"enum", "set"}:
        labels = None if definition.enum_values is None else tuple(definition.enum_values)
        kind = Enum(labels) if name == "enum" else Set(labels)
        try:
            return Column(definition.name, kind, mysql.text_of(kind), definition.nullable)
        except EncodeError as error:
            place = f"{path}.enum-values"
            raise DecodeError(str(error), code=ReasonCode.WRONG_SCHEMA, path=place) from None
    elif name in _TYPES:
        text = name
    else:
        raise DecodeError("an unknown type", code=ReasonCode.UNKNOWN_TYPE, path=f"{path}.type")
    kind = mysql.parse(text).kind
    if definition.charset == "binary":
        kind = Bytes()  # such texts are Base64
    return Column(definition.name, kind, text, definition.nullable)
