# SPDX-License-Identifier: Apache-2.0
"""Messages of Qlik Replicate to change events."""

import datetime as dt
from collections.abc import Collection
from typing import Any, Final

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
)
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.declared_tables import DeclaredTable, DeclaredTables
from changelane.formats.contract.iso_times import reader
from changelane.formats.contract.replicate_types import logical_type, type_text
from changelane.formats.qlik.wire import (
    DataMessage,
    Headers,
    Loaded,
    MetadataMessage,
    Row,
    load,
)
from changelane.position import SequencePosition
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableId, TableSchema

CONNECTOR: Final = "qlik"
REFRESH: Final = "REFRESH"
"""The operation of a row of the full load."""
SOURCE: Final = Source(connector=CONNECTOR)
REFRESHED: Final = Source(connector=CONNECTOR, snapshot=REFRESH)

OPERATIONS: Final = {
    REFRESH: Op.READ,
    "INSERT": Op.CREATE,
    "UPDATE": Op.UPDATE,
    "DELETE": Op.DELETE,
}
SEQUENCE_DIGITS: Final = 35
"""Digits of ``changeSequence``: ``YYYYMMDDHHmmSShh``, then a number of 19 digits."""

_MAX_TABLES: Final = 4096
_MOST_DIGITS: Final = 38  # a position has 127 bits
_MOST: Final = (1 << 63) - 1
_TIME: Final = reader(dt.UTC)

# module names, because a look-up in the enum class is as slow as reading a number
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE
_READ: Final = Op.READ
_FULL: Final = Completeness.FULL
_UNKNOWN: Final = Completeness.UNKNOWN


class ReadOptions(msgspec.Struct, frozen=True):
    """The options of a reader.

    Attributes:
        has_topic: The topic of a message is the name of its table.
        column: The column with the name of the table; empty = none.
        tables: ``messageSchemaId`` -> name of the table.
    """

    has_topic: bool
    column: str
    tables: dict[str, str]


class Reader:
    """Decodes messages.

    Attributes:
        options: The options.
        declared: The tables with declared columns.
    """

    def __init__(self, options: ReadOptions, declared: DeclaredTables) -> None:
        self.options = options
        self.declared = declared
        self._tables: BoundedCache[str, TableId] = BoundedCache(_MAX_TABLES)

    def __call__(self, value: bytes, topic: str | None) -> ChangeEvent:
        """Return the event of a message's value.

        Args:
            value: The value.
            topic: The topic of the message, if it is known.
        """
        loaded = load(value)
        if isinstance(loaded.message, MetadataMessage):
            return _structure(loaded.message, loaded)
        return self._change(loaded.message, loaded, topic)

    # -- rows ----------------------------------------------------------------------------------

    def _change(self, message: DataMessage, loaded: Loaded, topic: str | None) -> DataChange:
        headers = message.headers
        op = OPERATIONS.get(headers.operation)
        if op is None:
            raise DecodeError(
                "an unknown operation",
                code=ReasonCode.UNKNOWN_OPERATION,
                path=f"{loaded.path}.headers.operation",
            )
        row, before = images_of(op, message, loaded.path)
        table = self._table(message, loaded, topic, row)
        mask = mask_of(headers.columnMask, loaded.path)
        is_complete = is_complete_row(mask, row)
        if self.options.column:
            row = _without(row, self.options.column)
            before = None if before is None else _without(before, self.options.column)
        declared = self.declared.find(table)
        key = schema = None
        before_holds = after_holds = _UNKNOWN
        if declared is not None:
            key = declared.key
            row = _typed(declared, row, mask, f"{loaded.path}.data", is_whole=op is not _DELETE)
            if before is not None:
                path = f"{loaded.path}.beforeData"
                before = _typed(declared, before, mask, path, is_whole=True)
            schema = declared.schema_with((*row, *(before or ())))
            if key is not None and any(row.get(name) is None for name in key.columns):
                raise DecodeError(
                    "a key column is missing",
                    code=ReasonCode.MISSING_FIELD,
                    path=f"{loaded.path}.data",
                )
        elif is_complete:
            after_holds = _UNKNOWN if op is _DELETE else _FULL
            is_whole = before is not None or (op is _DELETE and mask is not None)
            before_holds = _FULL if is_whole else _UNKNOWN
        elif op is not _UPDATE and op is not _DELETE:
            after_holds = _FULL
        images: tuple[Image | None, Image | None] = (before, row)
        if op is _DELETE:
            images = (row, None)
        details = details_of(loaded, headers)
        return DataChange(
            op,
            table,
            key,
            *images,
            schema,
            position_of(headers, details, loaded.path),
            transaction_of(headers, details),
            source_of(op),
            time_of(headers.timestamp, loaded.path),
            None,
            before_holds,
            after_holds,
            details or NO_DETAILS,
        )

    def _table(self, message: DataMessage, loaded: Loaded, topic: str | None, row: Row) -> TableId:
        """Return the table of a row: from the message, the schema id, a column or the topic."""
        if message.table:
            return TableId(schema=message.schema or None, name=message.table)
        options = self.options
        name = options.tables.get(loaded.envelope.get("messageSchemaId", ""))
        if name is None and options.column:
            name = row.get(options.column)
            if not isinstance(name, str) or not name:
                raise DecodeError(
                    "no text in the column with the name of the table (option table_from)",
                    code=ReasonCode.MISSING_FIELD,
                    path=f"{loaded.path}.data.{options.column}",
                )
        if name is None and options.has_topic:
            name = topic
        table = self._tables.get(name or "")  # shared, because reducers cache by identity
        if table is None:
            table = self._tables.add(name or "", table_of(name))
        return table


def source_of(op: Op) -> Source:
    """Return the source of a change with an operation."""
    return REFRESHED if op is _READ else SOURCE


def table_of(name: str | None) -> TableId:
    """Return the table of ``SCHEMA.TABLE``; the table's name has no dot.

    >>> table_of("HR.EMPLOYEES")
    TableId(database=None, schema='HR', name='EMPLOYEES')
    """
    if not name:
        return TableId()
    schema, _, table = name.rpartition(".")
    return TableId(schema=schema or None, name=table or None)


def images_of(op: Op, message: DataMessage, path: str) -> tuple[Row, Row | None]:
    """Return the row, and the before image of an update.

    The row of a delete is ``data``; some versions have it in ``beforeData``. An empty object is no
    image.

    Raises:
        DecodeError: The message has no row, or an image that the operation does not have.
    """
    data, before = message.data or None, message.beforeData or None
    if op is _UPDATE:
        if data is None:
            raise DecodeError("no columns", code=ReasonCode.MISSING_FIELD, path=f"{path}.data")
        return data, before
    if before is not None and (op is not _DELETE or (data is not None and data != before)):
        raise DecodeError(
            "only an update has two images",
            code=ReasonCode.UNEXPECTED_IMAGE,
            path=f"{path}.beforeData",
        )
    row = before if data is None else data
    if row is None:
        raise DecodeError("no columns", code=ReasonCode.MISSING_FIELD, path=f"{path}.data")
    return row, None


def mask_of(text: str | None, path: str) -> int | None:
    """Return a mask: bit *i* is the column with the ordinal *i* + 1.

    "A string of hexadecimal digits, representing a bitmask of data columns in little-endian order."

    Raises:
        DecodeError: The text has other characters.
    """
    if not text:
        return None
    digits = text if len(text) % 2 == 0 else f"0{text}"
    if not digits.isascii() or not digits.isalnum():
        raise _not_a_mask(path)
    try:
        return int.from_bytes(bytes.fromhex(digits), "little")
    except ValueError:
        raise _not_a_mask(path) from None


def is_complete_row(mask: int | None, row: Collection[str]) -> bool:
    """Whether a message has all columns of a row that has no declared columns."""
    return mask is None or mask.bit_count() >= len(row)


def _not_a_mask(path: str) -> DecodeError:
    return DecodeError(
        "not hexadecimal digits", code=ReasonCode.WRONG_TYPE, path=f"{path}.headers.columnMask"
    )


def _typed(
    declared: DeclaredTable, image: Row, mask: int | None, path: str, *, is_whole: bool
) -> Row:
    """Return an image of a declared table without the columns that the message does not have.

    The message shows NULL for a column that is not in the mask. A column that a whole image without
    a mask lacks is NULL.
    """
    typed = declared.typed(image, path)
    for index, column in enumerate(declared.schema.columns):
        name = column.name
        is_masked = mask is not None and not mask >> index & 1
        if is_masked and typed.get(name) is None:
            typed.pop(name, None)
        elif is_whole and name not in typed:
            typed[name] = None
    return typed


def _without(image: Row, column: str) -> Row:
    return {name: value for name, value in image.items() if name != column}


# -- headers -------------------------------------------------------------------------------------


def position_of(headers: Headers, details: dict[str, Any], path: str) -> SequencePosition | None:
    """Return the position; a sequence of another length is added to *details*.

    Raises:
        DecodeError: The sequence is no number.
    """
    text = headers.changeSequence
    if not text:
        return None
    if len(text) > _MOST_DIGITS or not text.isascii() or not text.isdigit():
        raise DecodeError(
            "not a whole number",
            code=ReasonCode.WRONG_TYPE,
            path=f"{path}.headers.changeSequence",
        )
    if len(text) != SEQUENCE_DIGITS:
        details["changeSequence"] = text
    return SequencePosition(int(text))


def transaction_of(headers: Headers, details: dict[str, Any]) -> Transaction | None:
    """Return the place in the transaction; a number without a field is added to *details*."""
    identity, order = headers.transactionId, headers.transactionEventCounter
    last = headers.transactionLastEvent
    is_order = order is not None and 1 <= order <= _MOST
    if order is not None and not (identity and is_order):
        details["transactionEventCounter"] = order
    if not identity:
        if last is not None:
            details["transactionLastEvent"] = last
        return None
    return Transaction(identity, order if is_order else None, last=last)


def time_of(text: str | None, path: str) -> int | None:
    """Return "the original change UTC timestamp", which has no zone.

    Raises:
        DecodeError: The text is not a time.
    """
    if not text:
        return None
    try:
        return _TIME(text)
    except ValueError:
        path = f"{path}.headers.timestamp"
        raise DecodeError("not a time", code=ReasonCode.WRONG_TYPE, path=path) from None


def details_of(loaded: Loaded, headers: Headers) -> dict[str, Any]:
    """Return the fields of a message that have no place in its event."""
    details: dict[str, Any] = dict(loaded.header_fields)
    if loaded.envelope:
        details["envelope"] = dict(loaded.envelope)
    if loaded.fields:
        details["message"] = loaded.fields
    if headers.streamPosition:
        details["streamPosition"] = headers.streamPosition
    if headers.changeMask:
        details["changeMask"] = headers.changeMask
    if headers.columnMask:
        details["columnMask"] = headers.columnMask
    if headers.externalSchemaId is not None:
        details["externalSchemaId"] = headers.externalSchemaId
    return details


# -- metadata messages ---------------------------------------------------------------------------


def _structure(message: MetadataMessage, loaded: Loaded) -> SchemaChange:
    """Return the event of a metadata message, which describes a table and its key."""
    parts = message.tableStructure.tableColumns
    columns: list[Column] = []
    for name in sorted(parts, key=lambda name: parts[name].ordinal):
        part = parts[name]
        kind = logical_type(part.type, part.precision, part.scale)
        if kind is None:
            raise DecodeError(
                "an unknown column type",
                code=ReasonCode.UNKNOWN_TYPE,
                path=f"{loaded.path}.tableStructure.tableColumns.{name}.type",
            )
        source_type = type_text(part.type, part.length, part.precision, part.scale)
        columns.append(Column(name, kind, source_type))
    places = {part.primaryKeyPosition: name for name, part in parts.items()}
    keys = tuple(places[place] for place in sorted(places) if place > 0)
    details = {name: field for name, field in loaded.fields.items() if name != "tableStructure"}
    if loaded.envelope:
        details["envelope"] = dict(loaded.envelope)
    lineage = message.lineage
    return SchemaChange(
        TableId(schema=lineage.schema or None, name=lineage.table or None),
        "alter",
        None,
        TableSchema(tuple(columns)),
        Key(keys, KeyOrigin.PAYLOAD) if keys else None,
        None,
        SOURCE,
        details=details,
    )
