# SPDX-License-Identifier: Apache-2.0
"""Schema changes: conversion between Debezium's table descriptions and schemas."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.ddl import action_of
from changelane.ddl import table_of as table_of_text
from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Key, KeyOrigin, SchemaChange, Truncate
from changelane.formats.contract.format import Report
from changelane.formats.debezium_envelope.rows.columns import is_other, type_name
from changelane.formats.debezium_envelope.rows.wire import TableChange, TableColumn
from changelane.formats.debezium_envelope.source_block import TableOrigin
from changelane.reason_codes import ReasonCode
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
)

_ACTIONS: Final = {"CREATE": "create", "ALTER": "alter", "DROP": "drop"}
_KINDS_OF_CHANGE: Final = {action: kind for kind, action in _ACTIONS.items()}
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
    table_origin: TableOrigin,
    statement: str | None,
    changes: list[Any],
    origin: Mapping[str, Any],
    details: dict[str, object],
) -> tuple[ChangeEvent, ...]:
    """Return one event for each table; the first has the statement and the details.

    If the statement determines an action (:func:`changelane.ddl.action_of`), the event has it.

    Raises:
        DecodeError: A table change does not have Debezium's form.
    """
    product = origin["source"].product
    if not changes:
        action = action_of(statement, product)
        table = table_of_text(statement, product, table_origin.table)
        if action == "truncate":  # the only statement that is used without table changes
            return (Truncate(table, statement, details=details, **origin),)
        return (SchemaChange(table, action, statement, details=details, **origin),)
    result: list[ChangeEvent] = []
    for index, raw in enumerate(changes):
        try:
            change = msgspec.convert(raw, TableChange)
        except msgspec.ValidationError:
            path = f"$.tableChanges[{index}]"
            raise DecodeError(
                "not a change of a table", code=ReasonCode.WRONG_TYPE, path=path
            ) from None
        schema, key = _schema_and_key(change, raw)
        result.append(
            SchemaChange(
                table_of(change.id, table_origin.table),
                action_of(statement, product, _ACTIONS.get(change.type.upper(), "other")),
                statement if index == 0 else None,
                schema,
                key,
                details=details if index == 0 else {"part": index},
                **origin,
            )
        )
    return tuple(result)


def table_of(text: str, default: TableId) -> TableId:
    """Return the table of a quoted name (of ``old,new`` the new one), completed by *default*."""
    parts: list[str] = []
    for match in _PART.finditer(text):
        if match.start() and text[match.start() - 1] == ",":
            parts = []
        quoted, bare = match.groups()
        parts.append(bare if quoted is None else quoted.replace('""', '"'))
    match parts:
        case [database, schema, name]:
            return TableId(database, schema, name)
        case [first, name] if default.schema is not None:
            return TableId(default.database, first, name)
        case [first, name]:
            return TableId(first, None, name)
        case [name]:
            return TableId(default.database, default.schema, name)
    return default


def table_text(table: TableId) -> str:
    """Return the quoted name of a table."""
    parts = (table.database, table.schema, table.name)
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts if part is not None)


def _schema_and_key(change: TableChange, raw: Any) -> tuple[TableSchema | None, Key | None]:
    table = change.table
    if table is None:
        return None, None
    columns = tuple(
        _column(column, description)
        for column, description in zip(table.columns, raw["table"].get("columns", ()), strict=True)
    )
    names = table.primaryKeyColumnNames
    try:
        schema = TableSchema(columns)
    except ValueError as error:
        raise DecodeError(str(error), code=ReasonCode.WRONG_SCHEMA, path="$.tableChanges") from None
    return schema, Key(tuple(names), KeyOrigin.PAYLOAD) if names else None


def _column(column: TableColumn, raw: Mapping[str, Any]) -> Column:
    name = column.typeExpression or column.typeName or ""
    length = "" if column.length is None else str(column.length)
    scale = "" if column.scale is None else f",{column.scale}"
    source_type = f"{name}({length}{scale})" if length and "(" not in name else name
    generated = bool(column.generated) and raw.get("autoIncremented") is not True
    return Column(
        column.name,
        logical_type(raw.get("jdbcType"), column),
        source_type or None,
        column.optional,
        generated,
    )


def logical_type(jdbc: object, column: TableColumn) -> LogicalType:
    """Return the logical type of a table_changes column."""
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


_KINDS: Final[Mapping[type[LogicalType], tuple[int, str]]] = {
    Bits: (-7, "BIT"),
    Boolean: (16, "BOOLEAN"),
    Bytes: (-3, "VARBINARY"),
    Date: (91, "DATE"),
    Decimal: (3, "DECIMAL"),
    Enum: (1, "ENUM"),
    GeometryType: (1111, "GEOMETRY"),
    InstantType: (2014, "TIMESTAMP WITH TIME ZONE"),
    Json: (1111, "JSON"),
    Set: (1, "SET"),
    String: (12, "VARCHAR"),
    Time: (92, "TIME"),
    TimeTz: (2013, "TIME WITH TIME ZONE"),
    Timestamp: (93, "TIMESTAMP"),
    Uuid: (1111, "UUID"),
    Xml: (2009, "XML"),
    Year: (1111, "YEAR"),
}
"""Logical type -> JDBC type, and its SQL name for columns without a source type."""

_NUMBERS: Final[Mapping[LogicalType, tuple[int, str]]] = {
    Integer(8): (-6, "TINYINT"),
    Integer(16): (5, "SMALLINT"),
    Integer(32): (4, "INTEGER"),
    Integer(64): (-5, "BIGINT"),
    Integer(8, unsigned=True): (5, "TINYINT UNSIGNED"),
    Integer(16, unsigned=True): (4, "SMALLINT UNSIGNED"),
    Integer(32, unsigned=True): (-5, "INT UNSIGNED"),
    Integer(64, unsigned=True): (3, "BIGINT UNSIGNED"),
    Float(32): (7, "REAL"),
    Float(64): (8, "DOUBLE"),
}


def table_changes(event: SchemaChange, report: Report) -> list[dict[str, Any]]:
    """Return the table changes of an event that does not come from Debezium."""
    is_in_statement = action_of(event.ddl, event.source.product) == event.action
    has_no_table = event.action not in _KINDS_OF_CHANGE and event.schema is None
    if has_no_table and (is_in_statement or event.action == "other"):
        return []
    kind = _KINDS_OF_CHANGE.get(event.action, "ALTER")
    if not is_in_statement and _ACTIONS[kind] != event.action:
        report(("action", f"{event.action} is written as {kind}"))
    change: dict[str, Any] = {"type": kind, "id": table_text(event.table), "table": None}
    if event.schema is not None:
        columns = event.schema.columns
        change["table"] = {
            "defaultCharsetName": None,
            "primaryKeyColumnNames": list(event.key.columns) if event.key else [],
            "columns": [
                _column_description(column, index, report)
                for index, column in enumerate(columns, 1)
            ],
            "comment": None,
        }
    elif event.key is not None:
        report(("schema.key", "not written without the columns"))
    return [change]


def _column_description(column: Column, position: int, report: Report) -> dict[str, Any]:
    kind = column.type
    length = scale = members = None
    if isinstance(kind, Decimal):
        length, scale = kind.precision, kind.scale
    elif isinstance(kind, Enum | Set) and kind.members is not None:
        members = ["'" + member.replace("'", "''") + "'" for member in kind.members]
    code, name = _NUMBERS.get(kind) or _KINDS.get(type(kind)) or (1111, str(kind).upper())
    text = column.source_type or name
    description: dict[str, Any] = {
        "name": column.name,
        "jdbcType": code,
        "nativeType": None,
        "typeName": name if members is not None else text,
        "typeExpression": text,
        "charsetName": None,
        "length": length,
        "scale": scale,
        "position": position,
        "optional": column.nullable,
        "autoIncremented": False,
        "generated": column.generated,
        "comment": None,
        "defaultValueExpression": None,
        "enumValues": members,
    }
    back = _column(msgspec.convert(description, TableColumn), description)
    if is_other(kind, back.type):
        report((f"type:{type_name(kind)}", f"table_changes as {type_name(back.type)}"))
    if column.source_type not in {None, back.source_type}:
        report(("schema.source_type", "not written"))
    if column.default is not msgspec.UNSET:
        report(("schema.default", "not written"))
    return description
