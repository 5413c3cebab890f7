# SPDX-License-Identifier: Apache-2.0
"""Records of Spanner's change streams to change events."""

import datetime as dt
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import (
    NO_DETAILS,
    ChangeEvent,
    Completeness,
    Control,
    DataChange,
    Key,
    KeyOrigin,
    Op,
    Source,
    Transaction,
)
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.column_values import Read
from changelane.formats.contract.iso_times import reader
from changelane.formats.spanner.types import logical_type, type_text, value_reader
from changelane.formats.spanner.wire import (
    ColumnType,
    DataChangeRecord,
    Loaded,
    Mod,
    Row,
    columns_of,
    load,
)
from changelane.position import SequencePosition
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNKNOWN, Value

SOURCE: Final = Source(product="spanner", connector="spanner-change-streams")
OPERATIONS: Final = {"INSERT": Op.CREATE, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}
OLD_AND_NEW_VALUES: Final = "OLD_AND_NEW_VALUES"
NEW_VALUES: Final = "NEW_VALUES"
NEW_ROW: Final = "NEW_ROW"
NEW_ROW_AND_OLD_VALUES: Final = "NEW_ROW_AND_OLD_VALUES"
DETAILS: Final = (
    "value_capture_type",
    "record_sequence",
    "is_last_record_in_transaction_in_partition",
    "number_of_records_in_transaction",
    "number_of_partitions_in_transaction",
    "transaction_tag",
    "is_system_transaction",
)
"""The keys of a record that are details of its events."""

WHOLE_ROWS: Final = frozenset({NEW_ROW, NEW_ROW_AND_OLD_VALUES})
_CAPTURE_TYPES: Final = frozenset({OLD_AND_NEW_VALUES, NEW_VALUES, NEW_ROW, NEW_ROW_AND_OLD_VALUES})
WITH_OLD_ROWS: Final = frozenset({OLD_AND_NEW_VALUES, NEW_ROW_AND_OLD_VALUES})
_MAX_TABLES: Final = 4096
_MAX_COLUMNS: Final = 10_000
_TIME: Final = reader(dt.UTC)
_U32: Final = 1 << 32
_U63: Final = 1 << 63

# module names, because a look-up in the enum class is as slow as reading a number
_CREATE: Final = Op.CREATE
_UPDATE: Final = Op.UPDATE
_FULL: Final = Completeness.FULL
_KEY: Final = Completeness.KEY
_CHANGED: Final = Completeness.CHANGED
_UNKNOWN: Final = Completeness.UNKNOWN


class Columns(msgspec.Struct, frozen=True):
    """The columns of a record: schema, key, and the functions that read values."""

    schema: TableSchema
    key: Key | None
    readers: dict[str, Read]


class Reader:
    """Decodes messages."""

    def __init__(self) -> None:
        self._tables: BoundedCache[str, TableId] = BoundedCache(_MAX_TABLES)
        self._columns: BoundedCache[bytes, Columns] = BoundedCache(_MAX_TABLES)

    def __call__(self, value: bytes) -> tuple[ChangeEvent, ...]:
        """Return the events of a message's value: one for each mod, and for each other record."""
        events: list[ChangeEvent] = []
        for loaded in load(value):
            if loaded.record is None:
                text = json.dumps(loaded.fields).decode()
                events.append(Control(loaded.kind, text, source=SOURCE))
            else:
                events.extend(self._changes(loaded.record, loaded))
        return tuple(events)

    def _changes(self, change_record: DataChangeRecord, loaded: Loaded) -> Iterable[DataChange]:
        path = loaded.path
        op = OPERATIONS.get(change_record.mod_type)
        if op is None:
            raise _wrong("an unknown operation", ReasonCode.UNKNOWN_OPERATION, f"{path}.mod_type")
        if change_record.value_capture_type not in _CAPTURE_TYPES:
            raise _wrong(
                "an unknown type of capture",
                ReasonCode.UNKNOWN_KIND,
                f"{path}.value_capture_type",
            )
        time_ns = commit_time(change_record, path)
        sequence = sequence_of(change_record, path)
        details: dict[str, Any] = dict(loaded.fields)
        for name in DETAILS:
            if (field := getattr(change_record, name)) is not None:
                details[name] = field
        transaction = (
            None
            if change_record.server_transaction_id is None
            else Transaction(change_record.server_transaction_id)
        )
        table = self._table(change_record.table_name)
        columns = self.columns_of(change_record, path)
        for index, mod in enumerate(change_record.mods):
            position = None
            if time_ns is not None and time_ns >= 0 and sequence is not None:
                position = position_of(time_ns, sequence, index)
            images = _images(
                op, change_record.value_capture_type, mod, columns, f"{path}.mods[{index}]"
            )
            before, after, before_holds, after_holds = images
            yield DataChange(
                op,
                table,
                columns.key,
                before,
                after,
                _schema_with(columns.schema, (*(before or ()), *(after or ()))),
                position,
                transaction,
                SOURCE,
                time_ns,
                None,
                before_holds,
                after_holds,
                details or NO_DETAILS,
            )

    def _table(self, name: str) -> TableId:
        table = self._tables.get(name)  # shared, because reducers cache by identity
        return self._tables.add(name, table_of(name)) if table is None else table

    def columns_of(self, change_record: DataChangeRecord, path: str) -> Columns:
        """Return the columns of a record.

        Raises:
            DecodeError: They are not columns.
        """
        raw = change_record.column_types
        identity = bytes(raw) if isinstance(raw, msgspec.Raw) else msgspec.json.encode(raw)
        columns = self._columns.get(identity)
        if columns is None:
            columns = self._columns.add(identity, _columns(columns_of(change_record, path), path))
        return columns


def _columns(column_types: list[ColumnType], path: str) -> Columns:
    ordered = sorted(column_types, key=lambda column: column.ordinal_position)
    if len({column.name for column in ordered}) < len(ordered):
        raise _wrong("two columns of one name", ReasonCode.WRONG_SCHEMA, f"{path}.column_types")
    if len(ordered) > _MAX_COLUMNS:
        raise _wrong("too many columns", ReasonCode.TOO_MANY_COLUMNS, f"{path}.column_types")
    columns = tuple(
        Column(column.name, logical_type(column.type), type_text(column.type)) for column in ordered
    )
    key = tuple(column.name for column in ordered if column.is_primary_key)
    return Columns(
        TableSchema(columns),
        Key(key, KeyOrigin.PAYLOAD) if key else None,
        {column.name: value_reader(column.type) for column in columns},
    )


def _schema_with(schema: TableSchema, names: tuple[str, ...]) -> TableSchema:
    """Return the schema with further columns of unknown type, if names are not listed."""
    others = tuple(dict.fromkeys(name for name in names if name not in schema.names))
    if not others:
        return schema
    return TableSchema((*schema.columns, *(Column(name, UNKNOWN) for name in others)))


def _images(
    op: Op, capture: str, mod: Mod, columns: Columns, path: str
) -> tuple[dict[str, Value] | None, dict[str, Value] | None, Completeness, Completeness]:
    """Return the before and the after image of a mod, and the part of the row in each.

    An empty object means that values were not captured, not an empty row.
    """
    keys = _values(mod.keys, columns, f"{path}.keys")
    if columns.key is not None and not keys.keys() >= set(columns.key.columns):
        raise _wrong("a key column is missing", ReasonCode.MISSING_FIELD, f"{path}.keys")
    new = _values(mod.new_values or {}, columns, f"{path}.new_values")
    old = _values(mod.old_values or {}, columns, f"{path}.old_values")
    for name, values in (("new_values", new), ("old_values", old)):
        if any(column in values and values[column] != key for column, key in keys.items()):
            raise _wrong("a key column with two values", ReasonCode.WRONG_IMAGE, f"{path}.{name}")
    if op is _CREATE:
        if old:
            raise _wrong(
                "a new row has no old values", ReasonCode.UNEXPECTED_IMAGE, f"{path}.old_values"
            )
        return None, keys | new, _UNKNOWN, _UNKNOWN
    if op is _UPDATE:
        is_whole = capture in WHOLE_ROWS
        after_holds = _UNKNOWN if is_whole else _CHANGED
        if not old:
            return None, keys | new, _UNKNOWN, after_holds
        before = keys | new | old if is_whole else keys | old
        return before, keys | new, _UNKNOWN if is_whole else _CHANGED, after_holds
    if new:
        raise _wrong(
            "a deleted row has no new values", ReasonCode.UNEXPECTED_IMAGE, f"{path}.new_values"
        )
    return keys | old, None, _UNKNOWN if capture in WITH_OLD_ROWS else _KEY, _UNKNOWN


def _values(image: Row, columns: Columns, path: str) -> dict[str, Value]:
    readers = columns.readers
    values: dict[str, Value] = {}
    for name, value in image.items():
        read = readers.get(name)
        if value is None or read is None:
            values[name] = value
            continue
        try:
            values[name] = read(value)
        except DecodeError as error:
            raise DecodeError(error.reason, code=error.code, path=f"{path}.{name}") from None
    return values


def table_of(name: str) -> TableId:
    """Return the table of ``table`` or ``schema.table``.

    >>> table_of("sales.Orders")
    TableId(database=None, schema='sales', name='Orders')
    """
    schema, point, table = name.rpartition(".")
    return TableId(schema=schema if point else None, name=table)


def position_of(time_ns: int, sequence: int, index: int) -> SequencePosition:
    """Return the position of a mod: the time of the commit, the record, the place in the record.

    Transactions with one commit time change different rows.
    """
    return SequencePosition((time_ns << 32) | sequence, index)


def commit_time(change_record: DataChangeRecord, path: str) -> int | None:
    """Return the time of a record's commit in nanoseconds.

    Raises:
        DecodeError: The text is not a time.
    """
    if change_record.commit_timestamp is None:
        return None
    try:
        return _TIME(change_record.commit_timestamp)
    except ValueError:
        raise _wrong("not a time", ReasonCode.WRONG_TYPE, f"{path}.commit_timestamp") from None


def sequence_of(change_record: DataChangeRecord, path: str) -> int | None:
    """Return the number of a record in its transaction.

    Raises:
        DecodeError: The text is not a number.
    """
    text = change_record.record_sequence
    if text is None:
        return None
    if is_sequence(text):
        return int(text)
    raise _wrong("not a sequence number", ReasonCode.WRONG_TYPE, f"{path}.record_sequence")


def is_sequence(text: str) -> bool:
    """Return whether a text is a number of a record in its transaction."""
    return len(text) <= 20 and text.isascii() and text.isdecimal() and int(text) < _U32


def _wrong(reason: str, code: ReasonCode, path: str) -> DecodeError:
    return DecodeError(reason, code=code, path=path)
