# SPDX-License-Identifier: Apache-2.0
"""Change events to messages of AWS DMS."""

import datetime as dt
import decimal
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from changelane.errors import EncodeError
from changelane.event import ChangeEvent, DataChange, Image, Key, Op, Transaction
from changelane.formats.contract import json
from changelane.formats.contract.column_values import whole_unless_fraction
from changelane.formats.contract.details import add_further
from changelane.formats.contract.format import Report
from changelane.formats.contract.iso_times import writer
from changelane.formats.dms.before_images import Place, columns_split
from changelane.formats.dms.decode import OPERATIONS, SOURCE, has_key_only, position_of
from changelane.formats.dms.wire import METADATA, RESERVED, Row
from changelane.message import Message
from changelane.schema import TableId, option_for_table

_OPERATIONS: Final = {op: name for name, op in OPERATIONS.items()}
_TIME: Final = writer(dt.UTC, digits=6, zulu=True)
_DETAILS: Final[dict[str, type | tuple[type, ...]]] = {
    "partition-key-type": str,
    "partition-key-value": (int, str),
    "prev-transaction-id": (int, str),
    "prev-transaction-record-id": (int, str),
    "stream-position": str,
}
"""Details with a key of their own in ``metadata`` -> their types."""

PartitionKey = Literal["schema-table", "primary-key"]


class WriteOptions(msgspec.Struct, frozen=True):
    """The options of a writer.

    Attributes:
        owner: The part of a table's name in ``schema-name``.
        keys: Table -> columns of its key.
        writes_nulls: NULL columns are written.
        place: The place of before images.
        before_field: The key of the before image in a message.
        partition_key: The content of the message key.
        includes_table: A primary key in the message key follows the name of the table.
    """

    owner: Literal["schema", "database"]
    keys: dict[str, tuple[str, ...]]
    writes_nulls: bool
    place: Place
    before_field: str
    partition_key: PartitionKey
    includes_table: bool


class Writer:
    """Encodes events that are reduced to DMS's capabilities."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def __call__(self, event: ChangeEvent, report: Report) -> Message:
        """Return the message of an event."""
        if not isinstance(event, DataChange):
            raise EncodeError(f"AWS DMS has no message for {type(event).__name__}")
        columns = option_for_table(self._options.keys, event.table)
        if event.key is not None and event.key.columns != columns:
            report(("key", "readers take it from the options keys and schemas"))
        if event.source.snapshot is not None:
            report(("source.snapshot", "readers take it from the operation"))
        row = event.before if event.op is Op.DELETE else event.after
        if row is None:
            raise EncodeError("the change has no row image")
        data, before = self._images(event, row, report)
        if columns is not None and not data.keys() >= set(columns):
            raise EncodeError("the row lacks a key column of the options keys and schemas")
        if event.op is Op.DELETE and columns is not None and has_key_only(data, columns):
            report(("null", "a deleted row with NULL besides its key is read as the key"))
        metadata = self._metadata(event, report)
        key = self._message_key(event.table, row, metadata)
        return Message(json.dumps(self._message(event, data, before, metadata, report)), key)

    # -- rows ----------------------------------------------------------------------------------

    def _images(self, event: DataChange, row: Image, report: Report) -> tuple[Row, Row | None]:
        """Return ``data`` and the before image beside it."""
        options = self._options
        data = self._row(row, report)
        before = event.before if event.op is Op.UPDATE else None
        if before is not None and not before:
            report(("before", "an image without columns is not written"))
            before = None
        old = None if before is None else self._row(before, report)
        has_object = old is not None and options.place.has_object
        if old is not None and not has_object:
            data = self._with_twins(data, old, report)
            old = None
        read_images = columns_split(options.place, data, has_object=has_object)
        if has_object or before is None:
            if read_images[0] != data:
                report(("column", "a column is read as one of the before image"))
        elif read_images != (self._row(row, _ignore), self._row(before, _ignore)):
            report(("column", "a column is read as one of the before image"))
        if old == {}:
            report(("before", "an image with NULL only is not written"))
        return data, old

    def _with_twins(self, data: Row, before: Row, report: Report) -> Row:
        """Return the columns of a row with those of its before image."""
        naming = self._options.place.naming
        if naming is None:
            report(("before", "the option before is none"))
            return data
        return data | {naming.name_of(name): value for name, value in before.items()}

    def _row(self, image: Image, report: Report) -> Row:
        values = image.values()
        if decimal.Decimal in map(type, values) and any(
            whole_unless_fraction(value) is not value for value in values
        ):
            report(("value:decimal", "a whole number is read as an integer"))
        if self._options.writes_nulls or None not in values:
            return dict(image)
        report(("null", "a NULL column is omitted; set the option nulls to written"))
        return {name: value for name, value in image.items() if value is not None}

    # -- metadata ------------------------------------------------------------------------------

    def _metadata(self, event: DataChange, report: Report) -> Row:
        """Return ``metadata``, with its keys in the order of captured messages."""
        details = dict(event.details)
        known = {
            name: details.pop(name)
            for name, kind in _DETAILS.items()
            if isinstance(details.get(name), kind) and not isinstance(details[name], bool)
        }
        coordinates = self._coordinates(event, details, report)
        metadata = {
            "timestamp": _time(event.process_time_ns, "process_time", report),
            "record-type": "data",
            "operation": _OPERATIONS[event.op],
            "partition-key-type": known.get("partition-key-type", self._options.partition_key),
            "partition-key-value": known.get("partition-key-value"),
            **self._names(event.table, report),
            "transaction-id": coordinates.get("transaction-id"),
            "transaction-record-id": coordinates.get("transaction-record-id"),
            "prev-transaction-id": known.get("prev-transaction-id"),
            "prev-transaction-record-id": known.get("prev-transaction-record-id"),
            "commit-timestamp": coordinates.get("commit-timestamp"),
            "stream-position": known.get("stream-position"),
        }
        metadata = {name: value for name, value in metadata.items() if value is not None}
        add_further(metadata, details, METADATA, report, skipped={"envelope"})
        return metadata

    def _coordinates(self, event: DataChange, details: Row, report: Report) -> Row:
        """Return the place in the transaction and the time of the commit.

        Readers derive the position from them. So the number in the transaction is omitted if the
        event has no position.
        """
        transaction = event.transaction
        record_id: Any = None if transaction is None else transaction.order
        if record_id is None:
            record_id = _record_id(details, has_transaction=transaction is not None)
        transaction_id = None if transaction is None else _transaction_id(transaction)
        time_ns = event.source_time_ns
        position = position_of(time_ns, transaction_id, record_id)
        if position is not None and event.position is None:
            report(("transaction.order", "readers would derive a position from it"))
            record_id = None
        elif position != event.position:
            report(("position", "not the commit time and the ids of the transaction"))
        return {
            "transaction-id": transaction_id,
            "transaction-record-id": record_id,
            "commit-timestamp": _time(time_ns, "source_time", report),
        }

    def _names(self, table: TableId, report: Report) -> Row:
        owner = table.schema if self._options.owner == "schema" else table.database
        for part, text in ((self._options.owner, owner), ("name", table.name)):
            if text == "":
                report((f"table.{part}", "an empty name is read as none"))
        return {"schema-name": owner, "table-name": table.name}

    # -- the message ---------------------------------------------------------------------------

    def _message_key(self, table: TableId, row: Image, metadata: Row) -> bytes | None:
        """Return the partition key: the table's name, or the values of the primary key.

        "``SchemaName.TableName``: a combination of the schema and table name", or "the primary key
        of the table in the source database".
        """
        value = metadata.get("partition-key-value")
        if value is not None:
            return _bytes(str(value))
        names = [str(metadata[name]) for name in ("schema-name", "table-name") if name in metadata]
        if metadata["partition-key-type"] != "primary-key":
            return _bytes(".".join(names)) if names else None
        columns = option_for_table(self._options.keys, table)
        if columns is None or any(row.get(name) is None for name in columns):
            return None
        texts = [_key_text(row[name]) for name in columns]
        return _bytes(".".join([*names, *texts] if self._options.includes_table else texts))

    def _message(
        self,
        event: DataChange,
        data: Row,
        before: Row | None,
        metadata: Row,
        report: Report,
    ) -> Row:
        before_field = self._options.before_field
        message: Row = {"data": data}
        if before is not None:
            message[before_field] = before
        message["metadata"] = metadata
        envelope = event.details.get("envelope")
        if envelope is None:
            return message
        if not isinstance(envelope, Mapping) or not RESERVED.isdisjoint(envelope):
            report(("details.envelope", "no further fields of a message"))
            return message
        return {**message, **envelope}


def _ignore(_loss: tuple[str, str]) -> None:
    """Report nothing."""


def _record_id(details: Row, *, has_transaction: bool) -> Any:
    """Return the number in the transaction that has no field in the event."""
    number = details.get("transaction-record-id")
    if not isinstance(number, int | str) or isinstance(number, bool):
        return None
    is_order = has_transaction and type(number) is int and 1 <= number < 1 << 63
    return None if is_order else details.pop("transaction-record-id")


def _transaction_id(transaction: Transaction) -> int | str:
    """Return the id as DMS writes it: a number, if the text is that of a number."""
    text = transaction.id
    if text.isascii() and text.isdigit() and len(text) <= 20 and str(int(text)) == text:
        return int(text)
    return text


def _key_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value).decode()


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EncodeError("a name has a lone surrogate, which UTF-8 cannot encode") from None


def _time(value_ns: int | None, field: str, report: Report) -> str | None:
    if value_ns is None:
        return None
    try:
        return _TIME(value_ns)
    except OverflowError:
        report((field, "outside the years 1 to 9999"))
        return None


__all__ = ["SOURCE", "Key", "PartitionKey", "WriteOptions", "Writer"]
