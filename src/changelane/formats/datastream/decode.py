# SPDX-License-Identifier: Apache-2.0
"""Events of Datastream to change events."""

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.event import (
    Completeness,
    DataChange,
    Key,
    KeyOrigin,
    Op,
    Source,
    Transaction,
)
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.declared_tables import DeclaredTables
from changelane.formats.contract.iso_times import reader
from changelane.formats.datastream.positions import position_of
from changelane.formats.datastream.wire import Event, Loaded, Row, SourceMetadata, load
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId, option_for_table

CONNECTOR: Final = "datastream"
OPERATIONS: Final = {
    "INSERT": Op.CREATE,
    "UPDATE": Op.UPDATE,
    "DELETE": Op.DELETE,
    "UPDATE-DELETE": Op.DELETE,
    "UPDATE-INSERT": Op.CREATE,
}
CHANGE_TYPES: Final = {
    Op.CREATE: "INSERT",
    Op.READ: "INSERT",
    Op.UPDATE: "UPDATE",
    Op.DELETE: "DELETE",
}
"""The usual ``change_type`` of each operation."""

PRODUCTS: Final = {
    "mysql": "mysql",
    "oracle": "oracle",
    "postgres": "postgresql",
    "postgresql": "postgresql",
    "sqlserver": "sqlserver",
    "salesforce": "salesforce",
    "mongodb": "mongodb",
}
"""The first part of ``read_method`` -> the product; a method without it is ``cdc``."""

_MAX_TABLES: Final = 4096
_TIME: Final = reader(dt.UTC)
_MS_BELOW: Final = 10**14
_US_BELOW: Final = 10**17

# module names, because a look-up in the enum class is as slow as reading a number
_DELETE: Final = Op.DELETE
_READ: Final = Op.READ
_FULL: Final = Completeness.FULL
_UNKNOWN: Final = Completeness.UNKNOWN


class Reader:
    """Decodes messages.

    Attributes:
        declared: The tables with declared columns.
    """

    def __init__(self, keys: Mapping[str, list[str]], declared: DeclaredTables) -> None:
        self._key_options = keys
        self.declared = declared
        self._tables: BoundedCache[tuple[str | None, ...], TableId] = BoundedCache(_MAX_TABLES)
        self._sources: BoundedCache[tuple[str, str | None, bool], Source] = BoundedCache(
            _MAX_TABLES
        )
        self._keys: BoundedCache[tuple[TableId, tuple[str, ...]], Key | None] = BoundedCache(
            _MAX_TABLES
        )

    def __call__(self, value: bytes) -> DataChange:
        """Return the event of a message's value."""
        loaded = load(value)
        event = loaded.event
        metadata = event.source_metadata
        op = operation(event)
        row = event.payload
        if row is None:
            raise DecodeError("no columns", code=ReasonCode.MISSING_IMAGE, path="$.payload")
        table = self._table(metadata)
        declared = self.declared.find(table)
        key = self._key(table, tuple(metadata.primary_keys or ()))
        if key is not None and any(row.get(name) is None for name in key.columns):
            raise DecodeError(
                "a key column is missing", code=ReasonCode.MISSING_FIELD, path="$.payload"
            )
        schema, holds = None, _UNKNOWN
        is_key_only = op is _DELETE and key is not None and len(row) == len(key.columns)
        if declared is not None:
            row = declared.typed(row, "$.payload")
            if op is not _DELETE:
                for name in declared.schema.names - row.keys():
                    row[name] = None
            schema = declared.schema_with(row)
        elif is_key_only:
            holds = Completeness.KEY
        elif op is not _DELETE:
            holds = _FULL
        is_backfill = op is _READ
        return DataChange(
            op,
            table,
            key,
            row if op is _DELETE else None,
            None if op is _DELETE else row,
            schema,
            position_of(metadata, None if is_backfill else event.sort_keys),
            transaction_of(metadata),
            self._source(event, is_snapshot=is_backfill),
            time_of(event.source_timestamp, "source_timestamp"),
            time_of(event.read_timestamp, "read_timestamp"),
            holds if op is _DELETE else _UNKNOWN,
            _UNKNOWN if op is _DELETE else holds,
            _details(loaded, op),
        )

    def _table(self, metadata: SourceMetadata) -> TableId:
        name = metadata.table or metadata.collection or metadata.object_name
        names = (metadata.database or None, metadata.schema or None, name or None)
        table = self._tables.get(names)  # shared, because reducers cache by identity
        return self._tables.add(names, TableId(*names)) if table is None else table

    def _source(self, event: Event, *, is_snapshot: bool) -> Source:
        parts = (event.read_method, event.stream_name, is_snapshot)
        source = self._sources.get(parts)
        if source is None:
            snapshot = event.read_method if is_snapshot else None
            product = product_of(event.read_method)
            source = Source(product, CONNECTOR, event.stream_name, None, snapshot)
            self._sources.add(parts, source)
        return source

    def _key(self, table: TableId, names: tuple[str, ...]) -> Key | None:
        parts = (table, names)
        if parts not in self._keys:
            key = Key(names, KeyOrigin.PAYLOAD) if names else None
            declared = self.declared.find(table)
            if key is None and declared is not None:
                key = declared.key
            if key is None and (columns := option_for_table(self._key_options, table)):
                key = Key(tuple(columns), KeyOrigin.CONFIG)
            return self._keys.add(parts, key)
        return self._keys[parts]


def product_of(read_method: str) -> str | None:
    """Return the product of a method of reading.

    >>> product_of("mysql-cdc-binlog"), product_of("oracle_dump"), product_of("cdc")
    ('mysql', 'oracle', None)
    """
    return PRODUCTS.get(read_method.replace("_", "-").partition("-")[0])


def is_backfill(read_method: str) -> bool:
    """Return whether a method reads the rows that existed before the stream."""
    return "backfill" in read_method or read_method.endswith("dump")


def operation(event: Event) -> Op:
    """Return the operation of an event.

    Raises:
        DecodeError: The type of the change is unknown.
    """
    metadata = event.source_metadata
    if metadata.is_deleted:
        return _DELETE
    if is_backfill(event.read_method):
        return _READ
    op = OPERATIONS.get(metadata.change_type or "")
    if op is None:
        raise DecodeError(
            "an unknown type of change",
            code=ReasonCode.UNKNOWN_OPERATION,
            path="$.source_metadata.change_type",
        )
    return op


def transaction_of(metadata: SourceMetadata) -> Transaction | None:
    """Return the transaction of an event."""
    return None if metadata.tx_id in {None, ""} else Transaction(str(metadata.tx_id))


def time_of(value: int | str | None, field: str) -> int | None:
    """Return a time in nanoseconds: ISO text, by default in UTC, or milliseconds or microseconds.

    Raises:
        DecodeError: The value is not a time.
    """
    if value is None or value == "":
        return None
    if isinstance(value, int):
        if -_US_BELOW < value < _US_BELOW:
            return value * (1_000_000 if -_MS_BELOW < value < _MS_BELOW else 1_000)
    else:
        try:
            return _TIME(value.replace(" ", "T", 1))
        except ValueError:
            pass
    raise DecodeError("not a time", code=ReasonCode.WRONG_TYPE, path=f"$.{field}")


def _details(loaded: Loaded, op: Op) -> Row:
    event = loaded.event
    metadata = event.source_metadata
    details: dict[str, Any] = dict(loaded.fields)
    details["read_method"] = event.read_method
    if loaded.metadata:
        details["source_metadata"] = loaded.metadata
    if event.uuid is not None:
        details["uuid"] = event.uuid
    if event.object is not None:
        details["object"] = event.object
    if event.schema_key is not None:
        details["schema_key"] = event.schema_key
    if event.sort_keys is not None:
        details["sort_keys"] = event.sort_keys
    if metadata.row_id is not None:
        details["row_id"] = metadata.row_id
    if metadata.change_type is not None and metadata.change_type != CHANGE_TYPES[op]:
        details["change_type"] = metadata.change_type
    return details
