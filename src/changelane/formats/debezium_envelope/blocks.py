# SPDX-License-Identifier: Apache-2.0
"""Encodes blocks and their schemas: source, transaction, and messages that are no row changes."""

import decimal
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from changelane.event import DataChange, Op, Source, Transaction
from changelane.formats.contract.format import Report
from changelane.formats.debezium_envelope.rows.connect_schema import UNSET, Schema, struct
from changelane.formats.debezium_envelope.source_block import VITESS
from changelane.position import (
    LsnPosition,
    MySqlPosition,
    OffsetPosition,
    Position,
    PostgresPosition,
    ScnPosition,
    SequencePosition,
    TimePosition,
)
from changelane.schema import TableId

_INT64_MAX: Final = (1 << 63) - 1
_U64: Final = 1 << 64

_COMMON: Final = (
    "version! connector! name! ts_ms:int64! snapshot db! sequence ts_us:int64 ts_ns:int64"
)
_BINLOG: Final = "table server_id:int64! gtid file! pos:int64! row:int32! thread:int64 query"
_FIELDS: Final[Mapping[str | None, str]] = {
    "mysql": _BINLOG,
    "mariadb": _BINLOG,
    "postgresql": ("schema! table! txId:int64 lsn:int64 xmin:int64 origin origin_lsn:int64"),
    "oracle": (
        "schema! table! txId scn commit_scn lcr_position rs_id ssn:int64 redo_thread:int32"
        " user_name redo_sql row_id"
    ),
    "sqlserver": "schema! table! change_lsn commit_lsn event_serial_no:int64",
    "db2": "schema! table! change_lsn commit_lsn",
}
"""Product -> its fields in order: name, ``:type`` unless a string, ``!`` if required."""

_SNAPSHOTS: Final = (
    "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
)
_SNAPSHOT: Final = Schema(
    "string",
    optional=True,
    name="io.debezium.data.Enum",
    version=1,
    parameters={"allowed": _SNAPSHOTS},
    default="false",
    field="snapshot",
)


def fields_in(text: str) -> dict[str, Schema]:
    """Return the fields of a list in the notation of :data:`_FIELDS`."""
    fields: dict[str, Schema] = {}
    for word in text.split():
        name, _, kind = word.rstrip("!").partition(":")
        fields[name] = Schema(kind or "string", optional=not word.endswith("!"), field=name)
    return fields


def _listed(product: str | None) -> dict[str, Schema]:
    return {**fields_in(_COMMON), "snapshot": _SNAPSHOT, **fields_in(_FIELDS.get(product, ""))}


_BLOCKS: Final = {product: _listed(product) for product in (*_FIELDS, None)}
_ALL: Final = {name: field for block in _BLOCKS.values() for name, field in block.items()}
FIELD_NAMES: Final = tuple(_ALL)
"""The names of all source fields of all products."""

FIELD_TYPES: Final[Mapping[str | None, Mapping[str, str]]] = {
    product: {name: field.type for name, field in block.items() if field.name is UNSET}
    for product, block in _BLOCKS.items()
}
"""Product -> its fields without a semantic name, with their types."""
_TIME_NAMES: Final = ("ts_ms", "ts_us", "ts_ns")


def fields_of(product: str | None) -> Mapping[str, Schema]:
    """Return the fields of a source block, by name."""
    return {**_ALL, **_BLOCKS.get(product, _BLOCKS[None])}


def times_of(time_ns: int | None, stored_times: Mapping[str, Any]) -> dict[str, Any]:
    """Return the three fields of a time."""
    if stored_times and not stored_times.keys().isdisjoint(_TIME_NAMES):
        return {name: stored_times.get(name) for name in _TIME_NAMES}
    if time_ns is None:
        return {"ts_ms": None, "ts_us": None, "ts_ns": None}
    return {"ts_ms": time_ns // 1_000_000, "ts_us": time_ns // 1000, "ts_ns": time_ns}


def _coordinates(position: Position | None) -> dict[str, Any]:
    match position:
        case PostgresPosition(lsn, last):
            signed = lsn - _U64 if lsn > _INT64_MAX else lsn
            before = "null" if last is None else f'"{last}"'
            return {"sequence": f'[{before},"{signed}"]', "lsn": signed}
        case MySqlPosition(file, pos, row, gtid):
            return {"gtid": gtid, "file": file, "pos": pos, "row": row}
        case ScnPosition(scn, commit_scn, rs_id, ssn, tx_seq):
            block = {
                "scn": str(scn),
                "commit_scn": None if commit_scn is None else str(commit_scn),
                "rs_id": rs_id,
            }
            return block | {k: v for k, v in (("ssn", ssn), ("txSeq", tx_seq)) if v}
        case LsnPosition(commit_lsn, change_lsn, serial):
            block = {"change_lsn": change_lsn, "commit_lsn": commit_lsn}
            return block if serial is None else {**block, "event_serial_no": serial}
        case SequencePosition() | OffsetPosition() | TimePosition() | None:
            return {}


def report_position(position: Position | None, report: Report) -> None:
    """Report the parts of a position without a field in Debezium's messages."""
    if isinstance(position, PostgresPosition) and position.row:
        report(("position", "the row inside a PostgreSQL position is not written"))
    if isinstance(position, ScnPosition) and min(position.scn, position.commit_scn or 0) < 0:
        report(("position", "a negative number, which readers interpret as no position"))


NO_SNAPSHOT: Final = frozenset({"", "false"})
"""Values of the field ``snapshot`` for a row outside of a snapshot."""


def report_snapshot(event: DataChange, report: Report) -> None:
    """Report a loss if the field ``snapshot`` changes the operation or the field for a reader."""
    snapshot = event.source.snapshot
    if snapshot is None:
        return
    if snapshot in NO_SNAPSHOT:
        report(("source.snapshot", "read as no snapshot"))
    elif event.op is Op.CREATE:
        report(("operation:c", "read as a snapshot read, because its source has a snapshot"))


def source_block(
    source: Source,
    table: TableId,
    position: Position | None,
    time_ns: int | None,
    other_fields: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a source block in the order of its product; unknown fields are null."""
    constants, constant_block, others = _constant_parts(source, table)
    variable: dict[str, Any] = {**_coordinates(position), **times_of(time_ns, other_fields)}
    if other_fields:
        variable |= {name: value for name, value in other_fields.items() if name not in _TIME_NAMES}
    if source.product == VITESS and "keyspace" in other_fields:
        variable |= {"db": "", "keyspace": table.database}
    block: dict[str, Any] = {**constant_block, **variable}
    if len(block) == len(constant_block):
        block.update(others)
        return block
    source_fields: dict[str, Any] = {**constants, **variable}
    block = {name: source_fields.pop(name, None) for name in constant_block}
    block.update((name, value) for name, value in source_fields.items() if value is not None)
    return block


_Texts = Mapping[str, str | None]


@lru_cache(maxsize=4096)
def _constant_parts(source: Source, table: TableId) -> tuple[_Texts, _Texts, _Texts]:
    """Return the constant fields of a table, the block with them, and those outside of its list."""
    constants = {
        "version": source.version,
        "connector": source.product,
        "name": source.server,
        "snapshot": source.snapshot or "false",
        "db": table.database,
        "schema": table.schema,
        "table": table.name,
    }
    block_fields = _BLOCKS.get(source.product, _BLOCKS[None])
    block = {name: constants.get(name) for name in block_fields}
    others = {
        name: value
        for name, value in constants.items()
        if name not in block_fields and value is not None
    }
    return constants, block, others


def schema_of_value(name: str, value: object) -> Schema:
    """Return a schema for a field outside of its product's list, inferred from its value."""
    match value:
        case bool():
            kind = "boolean"
        case int():
            kind = "int64"
        case float() | decimal.Decimal():
            kind = "double"
        case _:
            kind = "string"
    return Schema(kind, optional=True, field=name)


def field_schemas(
    block_fields: Mapping[str, Schema], block: Mapping[str, Any]
) -> tuple[Schema, ...]:
    """Return the schemas of a block's fields: listed or inferred, optional if the value is null."""
    fields: list[Schema] = []
    for name, value in block.items():
        field = block_fields.get(name)
        if field is None:
            field = schema_of_value(name, value)
        elif value is None and not field.optional:
            field = Schema(field.type, optional=True, field=name)
        fields.append(field)
    return tuple(fields)


def source_schema(product: str | None, block: Mapping[str, Any]) -> Schema:
    """Return the schema of a source block."""
    block_fields = _BLOCKS.get(product, _BLOCKS[None])
    fields = field_schemas(block_fields, block)
    if product is None:
        return struct(fields, field="source")
    return struct(fields, name=f"{_CONNECTOR}{product}.Source", version=1, field="source")


_TRANSACTION: Final = fields_in("id! total_order:int64! data_collection_order:int64!")


def transaction_block(
    transaction: Transaction | None, extra_fields: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the transaction block of an event."""
    if transaction is None:
        return dict(extra_fields) or None
    return {
        "id": transaction.id,
        "total_order": transaction.order,
        "data_collection_order": transaction.table_order,
        **extra_fields,
    }


def transaction_schema(block: Mapping[str, Any] | None) -> Schema:
    """Return the schema of a transaction block."""
    fields = tuple(_TRANSACTION.values()) if block is None else field_schemas(_TRANSACTION, block)
    return struct(fields, optional=True, name="event.block", version=1, field="transaction")


TIMES: Final = tuple(fields_in("ts_ms:int64 ts_us:int64 ts_ns:int64").values())
OP: Final = Schema("string", field="op")

_CONNECTOR: Final = "io.debezium.connector."

HEARTBEAT_KEY: Final = struct(
    tuple(fields_in("serverName!").values()),
    name=f"{_CONNECTOR}common.ServerNameKey",
    version=1,
)
TRANSACTION_KEY: Final = struct(
    tuple(fields_in("id!").values()),
    name=f"{_CONNECTOR}common.TransactionMetadataKey",
    version=1,
)


def message_schema(
    name: str | None, fields: Mapping[str, Any], field_names: str, **parts: Schema
) -> Schema:
    """Return the schema of a message that is no row change.

    Args:
        name: Its name after ``io.debezium.connector.``; ``None`` if the product is unknown.
        fields: The message.
        field_names: Its plain fields, in the notation of the source blocks.
        parts: Schemas of its other fields.
    """
    members = field_schemas({**fields_in(field_names), **parts}, fields)
    return struct(members) if name is None else struct(members, name=_CONNECTOR + name, version=1)


_COLLECTION: Final = struct(
    tuple(fields_in("data_collection! event_count:int64!").values()),
    optional=True,
    name="event.collection",
    version=1,
)
COLLECTIONS: Final = Schema("array", items=_COLLECTION, optional=True, field="data_collections")
_COLUMN: Final = struct(
    (
        *fields_in(
            "name! jdbcType:int32! nativeType:int32 typeName! typeExpression charsetName"
            " length:int32 scale:int32 position:int32! optional:boolean autoIncremented:boolean"
            " generated:boolean comment defaultValueExpression"
        ).values(),
        Schema("array", items=Schema("string"), optional=True, field="enumValues"),
    ),
    name=f"{_CONNECTOR}schema.Column",
    version=1,
)
_TABLE: Final = struct(
    (
        Schema("string", optional=True, field="defaultCharsetName"),
        Schema("array", items=Schema("string"), optional=True, field="primaryKeyColumnNames"),
        Schema("array", items=_COLUMN, field="columns"),
        Schema("string", optional=True, field="comment"),
    ),
    optional=True,
    name=f"{_CONNECTOR}schema.Table",
    version=1,
    field="table",
)
_CHANGE: Final = struct(
    (Schema("string", field="type"), Schema("string", field="id"), _TABLE),
    name=f"{_CONNECTOR}schema.Change",
    version=1,
)
TABLE_CHANGES: Final = Schema("array", items=_CHANGE, field="tableChanges")
MESSAGE: Final = (
    Schema("string", optional=True, field="prefix"),
    Schema("bytes", optional=True, field="content"),
)
