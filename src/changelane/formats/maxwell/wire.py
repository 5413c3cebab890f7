# SPDX-License-Identifier: Apache-2.0
"""The wire classes of Maxwell's messages, with the producer's own names and order."""

import decimal
from typing import Any, Final

import msgspec

from changelane.formats.contract import json
from changelane.formats.maxwell.message_types import ACTIONS

Row = dict[str, Any]
"""Columns and values: JSON of any kind, numbers with a fraction as ``Decimal``."""


class RowMap(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A message about rows, with the fields that Maxwell writes itself (``RowMap.toJSON``).

    ``encrypted`` replaces the data, or the whole message. ``reason`` is in dead letters only.
    """

    database: str | None = None
    table: str | None = None
    type: str | None = None
    ts: int | None = None
    xid: int | None = None
    xoffset: int | None = None
    commit: bool | None = None
    position: str | None = None
    gtid: str | None = None
    server_id: int | None = None
    thread_id: int | None = None
    schema_id: int | None = None
    push_ts: Any = None
    query: str | None = None
    comment: str | None = None
    primary_key: list[Any] | None = None
    primary_key_columns: list[str] | None = None
    data: Row | None = None
    old: Row | None = None
    encrypted: Any = None
    reason: str | None = None


class ColumnDefinition(msgspec.Struct, rename="kebab"):
    """A column in the definition of a table (``ColumnDefSerializer``)."""

    type: str
    name: str
    charset: str | None = None
    signed: bool | None = None
    nullable: bool | None = None
    enum_values: list[str] | None = None
    column_length: int | None = None


class TableDefinition(msgspec.Struct, rename="kebab"):
    """``def`` of a message about a table: the table after the statement."""

    columns: list[ColumnDefinition]
    primary_key: list[str] | None = None


class DdlMap(msgspec.Struct, rename={"definition": "def"}):
    """A message about a statement (``DDLMap.toJSON``); its ``ts`` is in milliseconds."""

    type: str
    database: str | None = None
    table: str | None = None
    old: Row | None = None
    definition: Row | None = None
    charset: str | None = None
    ts: int | None = None
    sql: str | None = None
    position: str | None = None
    gtid: str | None = None
    schema_id: int | None = None


decode: Final = msgspec.json.Decoder(RowMap, float_hook=decimal.Decimal).decode
"""Reads a message about rows without other fields; raises the errors of msgspec."""

_READ_ERRORS: Final = (ValueError, RecursionError, decimal.DecimalException)

FIELDS: Final = frozenset(RowMap.__struct_fields__)
DDL_FIELDS: Final = frozenset(DdlMap.__struct_encode_fields__)

CAMEL_CASE: Final[dict[str, str]] = {
    "serverId": "server_id",
    "threadId": "thread_id",
    "schemaId": "schema_id",
    "pushTs": "push_ts",
    "primaryKey": "primary_key",
    "primaryKeyColumns": "primary_key_columns",
}
"""The names with ``output_naming_strategy = underscore_to_camelcase``."""


def load(value: bytes) -> tuple[RowMap | DdlMap, Row]:
    """Return the wire class of a message, and its other fields: attributes that filters added.

    Raises:
        DecodeError: The value is not a message of Maxwell.
    """
    try:
        message = decode(value)
        if message.type not in ACTIONS:
            return message, {}
    except _READ_ERRORS:
        pass  # the slow path reads the message, or raises the error
    fields: Row = json.loads(value, Row)
    kind = fields.get("type")
    if isinstance(kind, str) and kind in ACTIONS:
        own = {name: fields.pop(name) for name in [*fields] if name in DDL_FIELDS}
        return json.convert(own, DdlMap), fields
    for name, own_name in CAMEL_CASE.items():
        if name in fields and own_name not in fields:
            fields[own_name] = fields.pop(name)
    own = {name: fields.pop(name) for name in [*fields] if name in FIELDS}
    return json.convert(own, RowMap), fields
