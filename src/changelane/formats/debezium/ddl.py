# SPDX-License-Identifier: Apache-2.0
"""Schema changes: Debezium's description of tables <-> columns (B 1.9, B-15)."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.errors import ConfigError, DecodeError
from changelane.event import ChangeEvent, Key, KeyOrigin, SchemaChange
from changelane.formats.debezium.sources import Place
from changelane.formats.debezium.wire import TableChange, TableColumn
from changelane.schema import Column, TableId, TableSchema
from changelane.types import (
    Bits,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Enum,
    Float,
    GeometryType,
    InstantType,
    Integer,
    Json,
    LogicalType,
    Set,
    String,
    Text,
    Time,
    Timestamp,
    TimeTz,
    Uuid,
    Xml,
    Year,
    parse_type,
)

LOGICAL_TYPE: Final = "changelane.type"
"""A column's key for a type that its JDBC type does not tell."""

ACTION: Final = "changelane.action"
"""A change's key for an action that Debezium has no word for."""

_ACTIONS: Final = {"CREATE": "create", "ALTER": "alter", "DROP": "drop"}
_PART: Final = re.compile(r'"((?:[^"]|"")*)"|([^".,]+)')

_BY_NAME: Final[Mapping[str, LogicalType]] = {
    "JSON": Json(),
    "JSONB": Json(),
    "UUID": Uuid(),
    "XML": Xml(),
    "YEAR": Year(),
    "POINT": GeometryType("point"),
    "GEOMETRY": GeometryType("geometry"),
    "GEOGRAPHY": GeometryType("geography"),
}
JDBC: Final[Mapping[int, LogicalType]] = {
    -7: Bits(),
    -6: Integer(16),
    -5: Integer(64),
    -4: Bytes(),
    -3: Bytes(),
    -2: Bytes(),
    -1: String(),
    -9: String(),
    -15: String(),
    -16: String(),
    1: String(),
    4: Integer(32),
    5: Integer(16),
    6: Float(64),
    7: Float(32),
    8: Float(64),
    12: String(),
    16: Boolean(),
    91: Date(),
    92: Time(),
    93: Timestamp(),
    2004: Bytes(),
    2005: String(),
    2011: String(),
    2013: TimeTz(),
    2014: InstantType(),
}
"""JDBC type -> logical type."""


def events(
    place: Place,
    statement: str | None,
    changes: list[Any],
    origin: Mapping[str, Any],
    details: dict[str, object],
) -> tuple[ChangeEvent, ...]:
    """Return one event for each table; the first has the statement and all that was said.

    Raises:
        DecodeError: A change is not of its type.
    """
    if not changes:
        return (SchemaChange(place.table, "other", statement, details=details, **origin),)
    result: list[ChangeEvent] = []
    for index, raw in enumerate(changes):
        try:
            change = msgspec.convert(raw, TableChange)
        except msgspec.ValidationError:
            path = f"$.tableChanges[{index}]"
            raise DecodeError("not a change of a table", code="wrong_type", path=path) from None
        schema, key = _described(change, raw)
        result.append(
            SchemaChange(
                table_of(change.id, place.table),
                _action(change, raw),
                statement if index == 0 else None,
                schema,
                key,
                details=details if index == 0 else {"part": index},
                **origin,
            )
        )
    return tuple(result)


def _action(change: TableChange, raw: Mapping[str, Any]) -> str:
    stated = raw.get(ACTION)
    return stated if isinstance(stated, str) else _ACTIONS.get(change.type.upper(), "other")


def table_of(text: str, usual: TableId) -> TableId:
    """Return the table of a quoted name; of ``old,new`` the new one."""
    parts: list[str] = []
    for match in _PART.finditer(text):
        if match.start() and text[match.start() - 1] == ",":
            parts = []
        quoted, bare = match.groups()
        parts.append(bare if quoted is None else quoted.replace('""', '"'))
    match parts:
        case [database, schema, name]:
            return TableId(database, schema, name)
        case [first, name] if usual.schema is not None:
            return TableId(usual.database, first, name)
        case [first, name]:
            return TableId(first, None, name)
        case [name]:
            return TableId(usual.database, usual.schema, name)
    return usual


def table_text(table: TableId) -> str:
    """Return the quoted name of a table."""
    parts = (table.database, table.schema, table.name)
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts if part is not None)


def _described(change: TableChange, raw: Any) -> tuple[TableSchema | None, Key | None]:
    table = change.table
    if table is None:
        return None, None
    columns = tuple(
        _column(column, told)
        for column, told in zip(table.columns, raw["table"].get("columns", ()), strict=True)
    )
    names = table.primaryKeyColumnNames
    return TableSchema(columns), Key(tuple(names), KeyOrigin.PAYLOAD) if names else None


def _column(column: TableColumn, raw: Mapping[str, Any]) -> Column:
    kind = None
    stated = raw.get(LOGICAL_TYPE)
    if isinstance(stated, str):
        try:
            kind = parse_type(stated)
        except ConfigError:
            kind = None
    name = column.typeExpression or column.typeName or ""
    length = "" if column.length is None else str(column.length)
    scale = "" if column.scale is None else f",{column.scale}"
    source_type = f"{name}({length}{scale})" if length and "(" not in name else name
    generated = bool(column.generated) and raw.get("autoIncremented") is not True
    return Column(
        column.name,
        kind or logical_type(raw.get("jdbcType"), column),
        source_type or None,
        column.optional,
        generated,
    )


def logical_type(jdbc: object, column: TableColumn) -> LogicalType:
    """Return the logical type of a described column."""
    name = (column.typeName or "").upper()
    members = column.enumValues
    if members is not None and name in ("ENUM", "SET"):
        plain = tuple(member.strip("'").replace("''", "'") for member in members)
        return Enum(plain) if name == "ENUM" else Set(plain)
    if name in _BY_NAME:
        return _BY_NAME[name]
    if jdbc in (2, 3):
        scale = 0 if column.scale is None else column.scale
        return Decimal(None, None) if column.length is None else Decimal(column.length, scale)
    kind = JDBC.get(jdbc) if isinstance(jdbc, int) else None
    return kind or Text(name.lower())


_JDBC_OF: Final = {kind: code for code, kind in JDBC.items() if code not in (-16, -15, -9, -4, -3)}
_UNWRITTEN: Final = 1111
"""JDBC's OTHER."""


def described(event: SchemaChange) -> list[dict[str, Any]]:
    """Return the description of a change that does not come from Debezium."""
    if event.action == "other" and event.schema is None:
        return []
    actions = {"create": "CREATE", "drop": "DROP"}
    change: dict[str, Any] = {
        "type": actions.get(event.action, "ALTER"),
        "id": table_text(event.table),
        "table": None,
    }
    if event.action not in ("create", "drop", "alter"):
        change[ACTION] = event.action
    if event.schema is not None:
        columns = event.schema.columns
        change["table"] = {
            "defaultCharsetName": None,
            "primaryKeyColumnNames": list(event.key.columns) if event.key else [],
            "columns": [_told(column, index + 1) for index, column in enumerate(columns)],
            "comment": None,
        }
    return [change]


def _told(column: Column, position: int) -> dict[str, Any]:
    kind = column.type
    length = scale = None
    if isinstance(kind, Decimal):
        length, scale = kind.precision, kind.scale
    code = 3 if isinstance(kind, Decimal) else _JDBC_OF.get(kind, _UNWRITTEN)
    name = column.source_type or str(kind)
    told: dict[str, Any] = {
        "name": column.name,
        "jdbcType": code,
        "nativeType": None,
        "typeName": name,
        "typeExpression": name,
        "charsetName": None,
        "length": length,
        "scale": scale,
        "position": position,
        "optional": column.nullable,
        "autoIncremented": False,
        "generated": column.generated,
        "comment": None,
        "defaultValueExpression": None,
        "enumValues": None,
        LOGICAL_TYPE: str(kind),
    }
    return told
