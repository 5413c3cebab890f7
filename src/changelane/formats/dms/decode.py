# SPDX-License-Identifier: Apache-2.0
"""Messages of AWS DMS to change events."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from changelane.errors import DecodeError
from changelane.event import (
    NO_DETAILS,
    ChangeEvent,
    Completeness,
    DataChange,
    Image,
    Key,
    KeyOrigin,
    Op,
    SchemaChange,
    Source,
    Transaction,
    Truncate,
)
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.declared_tables import DeclaredTable, DeclaredTables
from changelane.formats.contract.iso_times import time_reader
from changelane.formats.dms.before_images import Split
from changelane.formats.dms.table_definitions import schema_of
from changelane.formats.dms.wire import KnownMetadata, Loaded, Row, TableDefinition
from changelane.position import SequencePosition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId, option_for_table

SOURCE: Final = Source(connector="dms")
LOAD: Final = "load"
"""The operation of a row of the full load."""

OPERATIONS: Final = {
    LOAD: Op.READ,
    "insert": Op.CREATE,
    "update": Op.UPDATE,
    "delete": Op.DELETE,
}
ACTIONS: Final = {
    "create-table": "create",
    "drop-table": "drop",
    "rename-table": "rename",
    "change-columns": "alter",
    "add-column": "alter",
    "drop-column": "alter",
    "rename-column": "alter",
    "column-type-change": "alter",
}
"""Operation of a control record -> action of the schema change."""
TRUNCATE: Final = "truncate-table"

_LOADED: Final = msgspec.structs.replace(SOURCE, snapshot=LOAD)
_MAX_TABLES: Final = 4096
_IDS: Final = 1 << 64
_ROWS: Final = 1 << 32
_MOST: Final = (1 << 63) - 1
TIMES: Final = time_reader(dt.UTC)
"""The reader of the times in ``metadata``."""

# module names, because a look-up in the enum class is as slow as reading a number
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE
_READ: Final = Op.READ
_FULL: Final = Completeness.FULL
_UNKNOWN: Final = Completeness.UNKNOWN

Order = Literal["auto", "transaction", "offset"]


class ReadOptions(msgspec.Struct, frozen=True):
    """The options of a reader.

    Attributes:
        owner: The part of a table's name in ``schema-name``.
        keys: Table -> columns of its key.
        omits_nulls: A column that is missing in a row is NULL.
        order: The order of the changes of a key.
        before_field: The key of the before image in a message.
    """

    owner: Literal["schema", "database"]
    keys: dict[str, list[str]]
    omits_nulls: bool
    order: Order
    before_field: str


class Reader:
    """Decodes messages.

    Args:
        options: The options.
        load: The function from bytes to a message.
        split: The function that separates a row from its before image.
        declared: The tables with declared columns.

    Attributes:
        options: The options.
        split: The function that separates a row from its before image.
        declared: The tables with declared columns.
    """

    def __init__(
        self,
        options: ReadOptions,
        load: Callable[[bytes], Loaded],
        split: Split,
        declared: DeclaredTables,
    ) -> None:
        self.options = options
        self._load = load
        self.split = split
        self.declared = declared
        self._tables: BoundedCache[tuple[str | None, str | None], TableId]
        self._tables = BoundedCache(_MAX_TABLES)
        self._keys: BoundedCache[TableId, Key | None] = BoundedCache(_MAX_TABLES)

    def __call__(self, value: bytes) -> ChangeEvent:
        """Return the event of a message's value."""
        loaded = self._load(value)
        match loaded[0].metadata.record_type:
            case "data":
                return self._change(loaded)
            case "control":
                return self._control(loaded)
            case _:
                raise DecodeError(
                    "neither a data record nor a control record",
                    code=ReasonCode.UNKNOWN_KIND,
                    path="$.metadata.record-type",
                )

    # -- rows ----------------------------------------------------------------------------------

    def _change(self, loaded: Loaded) -> DataChange:
        record, _, other_fields = loaded
        metadata, data = record.metadata, record.data
        op = OPERATIONS.get(metadata.operation)
        if op is None:
            raise _unknown_operation()
        if data is None and op is _DELETE and record.before:
            data = {}  # the before image is the row
        if data is None:
            raise DecodeError("no columns", code=ReasonCode.MISSING_FIELD, path="$.data")
        if record.control is not None:
            raise DecodeError(
                "a data record has no such field",
                code=ReasonCode.UNEXPECTED_FIELD,
                path="$.control",
            )
        data, before = self.split(op, record, data)
        if other_fields:
            _check_fields(other_fields, data)
        table = self._table(metadata)
        declared = self.declared.find(table)
        if declared is None:
            key, schema = self._key(table), None
        else:
            key = declared.key or self._key(table)
            has_object = record.before is not None
            path = f"$.{self.options.before_field}" if has_object else "$.data"
            before = None if before is None else declared.typed(before, path)
            data = self._typed(op, declared, data)
            schema = declared.schema_with((*data, *(before or ())))
        if key is not None and not data.keys() >= set(key.columns):
            raise DecodeError(
                "a key column is missing", code=ReasonCode.MISSING_FIELD, path="$.data"
            )
        details = details_of(loaded)
        process_time, source_time = _times_of(metadata)
        transaction, position = self.coordinates(op, metadata, source_time, details)
        images: tuple[Image | None, Image | None] = (before, data)
        before_holds, after_holds = _UNKNOWN, _UNKNOWN
        if op is _DELETE:
            deleted, before_holds = deleted_row(data, key)
            images = (deleted, None)
        elif schema is None and self.is_whole(op):
            after_holds = _FULL
        return DataChange(
            op,
            table,
            key,
            *images,
            schema,
            position,
            transaction,
            self.source(op),
            source_time,
            process_time,
            before_holds,
            after_holds,
            details or NO_DETAILS,
        )

    def source(self, op: Op) -> Source:
        """Return the source of a change with an operation."""
        return _LOADED if op is _READ and self.options.order == "transaction" else SOURCE

    def is_whole(self, op: Op) -> bool:
        """Whether the after image of an operation has all columns that are not NULL."""
        return op is not _UPDATE or self.options.omits_nulls

    def coordinates(
        self, op: Op, metadata: KnownMetadata, time_ns: int | None, details: dict[str, Any]
    ) -> tuple[Transaction | None, SequencePosition | None]:
        """Return the place of a change in its transaction, and its position.

        Numbers that the event has no field for are added to *details*.

        Raises:
            DecodeError: The change has no position, and the option ``order`` requires it.
        """
        transaction, position = self._coordinates(metadata, time_ns, details)
        if position is None and self.options.order == "transaction" and op is not _READ:
            raise DecodeError(
                "no position: set IncludeTransactionDetails, or the option order to offset",
                code=ReasonCode.MISSING_FIELD,
                path="$.metadata.transaction-record-id",
            )
        return transaction, position

    def _typed(self, op: Op, declared: DeclaredTable, data: Row) -> Row:
        """Return the row of a declared table, with NULL for columns that DMS omits."""
        data = declared.typed(data, "$.data")
        if op is _DELETE or not self.is_whole(op):
            return data
        for name in declared.schema.names - data.keys():
            if op is not _UPDATE or name not in declared.lobs:
                data[name] = None
        return data

    def _key(self, table: TableId) -> Key | None:
        if not self.options.keys:
            return None
        if table not in self._keys:
            columns = option_for_table(self.options.keys, table)
            return self._keys.add(
                table, None if columns is None else Key(tuple(columns), KeyOrigin.CONFIG)
            )
        return self._keys[table]

    # -- control records -----------------------------------------------------------------------

    def _control(self, loaded: Loaded) -> SchemaChange | Truncate:
        record = loaded[0]
        metadata = record.metadata
        action = ACTIONS.get(metadata.operation)
        if action is None and metadata.operation != TRUNCATE:
            raise _unknown_operation()
        before_field = self.options.before_field
        for field, part in (("data", record.data), (before_field, record.before)):
            if part is not None:
                raise DecodeError(
                    "a control record has no row",
                    code=ReasonCode.UNEXPECTED_FIELD,
                    path=f"$.{field}",
                )
        details = details_of(loaded)
        control_fields = dict(record.control or {})
        table_def = control_fields.pop("table-def", None)
        definition = None if table_def is None else _definition(table_def)
        if control_fields:
            details["control"] = control_fields
        time, source_time = _times_of(metadata)
        transaction, position = self._coordinates(metadata, source_time, details)
        table = self._table(metadata)
        if action is None:
            return Truncate(table, None, position, transaction, SOURCE, source_time, time, details)
        if transaction is not None:
            details |= {"transaction-id": transaction.id}
            if transaction.order is not None:
                details["transaction-record-id"] = transaction.order
        details["operation"] = metadata.operation
        schema = key = None
        if definition is not None:
            schema = schema_of(definition)
            if definition.primary_key:
                key = Key(tuple(definition.primary_key), KeyOrigin.PAYLOAD)
        return SchemaChange(
            table, action, None, schema, key, position, SOURCE, source_time, time, details
        )

    # -- metadata ------------------------------------------------------------------------------

    def _table(self, metadata: KnownMetadata) -> TableId:
        names = metadata.schema_name, metadata.table_name
        table = self._tables.get(names)  # shared, because reducers cache by identity
        if table is None:
            owner, name = names[0] or None, names[1] or None
            is_schema = self.options.owner == "schema"
            table = TableId(None if is_schema else owner, owner if is_schema else None, name)
            self._tables.add(names, table)
        return table

    def _coordinates(
        self, metadata: KnownMetadata, time_ns: int | None, details: dict[str, Any]
    ) -> tuple[Transaction | None, SequencePosition | None]:
        """Return the place in the transaction, and the position.

        Numbers that the event has no field for are added to *details*.
        """
        transaction_id, record_id = metadata.transaction_id, metadata.transaction_record_id
        is_order = type(record_id) is int and 1 <= record_id <= _MOST
        if record_id is not None and (transaction_id is None or not is_order):
            details["transaction-record-id"] = record_id
        if transaction_id is None:
            return None, None
        order: Any = record_id if is_order else None
        transaction = Transaction(str(transaction_id), order)
        if self.options.order == "offset":
            return transaction, None
        return transaction, position_of(time_ns, transaction_id, record_id)


def details_of(loaded: Loaded) -> dict[str, Any]:
    """Return the fields of a message that have no place in its event."""
    record, metadata_fields, other_fields = loaded
    metadata = record.metadata
    details: dict[str, Any] = dict(metadata_fields)
    if other_fields:
        details["envelope"] = other_fields
    if metadata.partition_key_type is not None:
        details["partition-key-type"] = metadata.partition_key_type
    if metadata.partition_key_value is not None:
        details["partition-key-value"] = metadata.partition_key_value
    if metadata.prev_transaction_id is not None:
        details["prev-transaction-id"] = metadata.prev_transaction_id
    if metadata.prev_transaction_record_id is not None:
        details["prev-transaction-record-id"] = metadata.prev_transaction_record_id
    if metadata.stream_position is not None:
        details["stream-position"] = metadata.stream_position
    return details


def position_of(
    time_ns: int | None, transaction_id: object, record_id: object
) -> SequencePosition | None:
    """Return the position of a change in the changes of a task; ``None`` if a part is unknown.

    Transactions have the order of their commits; those of one microsecond, the order of their ids.

    >>> position_of(2_000, 7, 3)
    SequencePosition(value=36893488147419103239, row=3)

    Args:
        time_ns: The time of the commit, in nanoseconds since 1970-01-01 UTC.
        transaction_id: The id of the transaction, if it is a number.
        record_id: The number of the change in its transaction.
    """
    if time_ns is None or type(transaction_id) is not int or type(record_id) is not int:
        return None
    if not (0 <= transaction_id < _IDS and 0 <= record_id < _ROWS):
        return None
    return SequencePosition((time_ns // 1000 << 64) | transaction_id, record_id)


def _unknown_operation() -> DecodeError:
    return DecodeError(
        "an unknown operation", code=ReasonCode.UNKNOWN_OPERATION, path="$.metadata.operation"
    )


def _times_of(metadata: KnownMetadata) -> tuple[int | None, int | None]:
    """Return the times of the message and of the commit.

    Raises:
        DecodeError: A text is not a time.
    """
    timestamp, commit = metadata.timestamp, metadata.commit_timestamp
    field = "timestamp"
    try:
        process_time = None if timestamp is None else TIMES.read(timestamp)
        field = "commit-timestamp"
        return process_time, None if commit is None else TIMES.read(commit)
    except ValueError:
        path = f"$.metadata.{field}"
        raise DecodeError("not a time", code=ReasonCode.WRONG_TYPE, path=path) from None


def deleted_row(data: Row, key: Key | None) -> tuple[Image, Completeness]:
    """Return the before image of a delete, and the part of the row that it contains.

    PostgreSQL logs the key only, and with ``IncludeNullAndEmpty`` DMS adds NULL for all other
    columns: such an image is the key.
    """
    if key is None:
        return data, _UNKNOWN
    names = key.columns
    if len(data) == len(names):
        return data, Completeness.KEY
    if not has_key_only(data, names):
        return data, _UNKNOWN
    return {name: value for name, value in data.items() if name in names}, Completeness.KEY


def has_key_only(data: Row, key: Sequence[str]) -> bool:
    """Whether a row has columns besides the key, and all of them are NULL."""
    others = [value for name, value in data.items() if name not in key]
    return bool(others) and all(value is None for value in others)


def _check_fields(fields: Mapping[str, Any], data: Row) -> None:
    """Raise if an undocumented field is a before image, whose name the user chooses."""
    for name, field in fields.items():
        if isinstance(field, dict) and field and data.keys() >= field.keys():
            raise DecodeError(
                "an object with columns of the row: if it is the before image, set before_field",
                code=ReasonCode.UNEXPECTED_FIELD,
                path=f"$.{name}",
            )


def _definition(value: object) -> TableDefinition:
    """Return the definition of a table in a control record."""
    try:
        return msgspec.convert(value, TableDefinition)
    except msgspec.ValidationError as invalid:
        error = json.translate(invalid)
    if not isinstance(error, DecodeError):
        raise error
    path = error.path.replace("$", "$.control.table-def", 1)
    raise DecodeError(error.reason, code=error.code, path=path)
