# SPDX-License-Identifier: Apache-2.0
"""SharePlex messages to change events."""

import datetime as dt
import re
from typing import Any, Final, Literal

import msgspec

from changelane.ddl import action_of
from changelane.errors import DecodeError
from changelane.event import (
    NO_DETAILS,
    ChangeEvent,
    Completeness,
    Control,
    DataChange,
    HalfUpdate,
    Image,
    Key,
    KeyOrigin,
    Op,
    SchemaChange,
    Source,
    Transaction,
    Truncate,
)
from changelane.formats.contract.iso_times import time_reader
from changelane.formats.shareplex.operations import Operation, operation_of
from changelane.formats.shareplex.wire import SCNS, AnyMeta, Change, KnownMeta, Row, load
from changelane.position import ScnPosition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId

SOURCE: Final = Source(product="oracle", connector="shareplex")

_IDX: Final = re.compile(r"([1-9]\d{0,17})/([1-9]\d{0,17})", re.ASCII)
_MOST_TABLES: Final = 4096
_SCN_DIGITS: Final = 40  # one more than the greatest SCN has

# module names, because a look-up in the enum class is as slow as reading a number
_CREATE: Final = Op.CREATE
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE
_INSERTED: Final = Operation.INSERT
_UPDATED: Final = Operation.UPDATE
_DELETED: Final = Operation.DELETE
_FULL: Final = Completeness.FULL
_UNKNOWN: Final = Completeness.UNKNOWN

Meta = KnownMeta | AnyMeta
Images = tuple[Image | None, Image | None]
KeyImage = Literal["auto", "full", "key"]

# before and after image of an update: a full row overlaid with the changed columns is a full row
_COMPLETENESS: Final[dict[KeyImage, tuple[Completeness, Completeness]]] = {
    "auto": (_UNKNOWN, _UNKNOWN),
    "full": (_FULL, _FULL),
    "key": (Completeness.KEY, Completeness.CHANGED),
}


# an inserted row has all columns: an omitted one is NULL
_INSERTED_ROW: Final = (_UNKNOWN, _FULL)


class ReadOptions(msgspec.Struct, frozen=True):
    """The options of a reader.

    Attributes:
        text_only: Values must be text or null.
        key_image: The content of ``key``: ``full``, ``key`` or ``auto`` for unknown.
        zone: The zone of times without one.
        is_strict: Undocumented operations are rejected.
    """

    text_only: bool
    key_image: KeyImage
    zone: dt.tzinfo
    is_strict: bool = False


class Reader:
    """Decodes messages.

    Attributes:
        text_only: Values must be text or null.
        times: The reader of the times in ``meta``.
    """

    def __init__(self, options: ReadOptions) -> None:
        self.text_only = options.text_only
        self._is_strict = options.is_strict
        self._completeness = _COMPLETENESS[options.key_image]
        self.times = time_reader(options.zone)
        self._tables: dict[str, TableId] = {}

    def __call__(self, value: bytes) -> ChangeEvent:
        """Return the event of a message's value."""
        message, other_fields = load(value, text_only=self.text_only)
        operation = operation_of(message.meta.op)
        if operation is _UPDATED or operation is _INSERTED or operation is _DELETED:
            return self._row(operation, message, other_fields)
        match operation:
            case Operation.BEFORE | Operation.AFTER:
                return self._half(operation, message, other_fields)
            case Operation.TRUNCATE:
                return self._truncate(message, other_fields)
            case Operation.DROP_COLUMN | Operation.DDL:
                return self._ddl(operation, message, other_fields)
            case _:
                return self._control(message, other_fields)

    # -- rows ----------------------------------------------------------------------------------

    def _row(self, operation: Operation, message: Change, row: Row) -> DataChange:
        op, before, after = change_of(operation, message)
        return self._change(op, (before, after), message.meta, row)

    def _half(self, operation: Operation, message: Change, row: Row) -> HalfUpdate:
        if message.data is None and message.key is None:
            raise DecodeError("no columns", code=ReasonCode.MISSING_FIELD, path="$.data")
        # `key` has old values, `data` the values of this half
        image = {**(message.key or {}), **(message.data or {})}
        if operation is Operation.BEFORE:
            half = self._change(_DELETE, (image, None), message.meta, row)
        else:
            half = self._change(_CREATE, (None, image), message.meta, row)
            half = msgspec.structs.replace(half, after_holds=_UNKNOWN)
        return HalfUpdate(half, None, _pair(message.meta, half.transaction))

    def _change(self, op: Op, images: Images, meta: Meta, row: Row) -> DataChange:
        before, after = images
        key: Key | None = None
        before_completeness, after_completeness = self.completeness(op, before)
        if before is not None and before_completeness is Completeness.KEY:
            key = Key(tuple(before), KeyOrigin.PAYLOAD)
        details = details_of(meta, row)
        position, transaction = coordinates_of(meta, details)
        return DataChange(
            op,
            self._table(meta.table),
            key,
            before,
            after,
            None,
            position,
            transaction,
            SOURCE,
            self._time(meta.time, "time"),
            self._time(meta.posttime, "posttime"),
            before_completeness,
            after_completeness,
            details or NO_DETAILS,
        )

    def completeness(self, op: Op, before: Image | None) -> tuple[Completeness, Completeness]:
        """Return the completeness of the before and the after image of a change."""
        if op is _CREATE:
            return _INSERTED_ROW
        return self._completeness if op is _UPDATE and before is not None else _COMPLETENESS["auto"]

    # -- other messages ------------------------------------------------------------------------

    def _control(self, message: Change, row: Row) -> Control:
        """Return the control event of an undocumented operation, if it has no row."""
        meta = message.meta
        if self._is_strict or not meta.op or message.data or message.key:
            raise DecodeError(
                "an unknown operation",
                code=ReasonCode.UNKNOWN_OPERATION,
                path="$.meta.op",
            )
        details = details_of(meta, row)
        position, transaction = coordinates_of(meta, details)
        return Control(
            meta.op,
            None,
            self._table(meta.table),
            position,
            SOURCE,
            self._time(meta.time, "time"),
            self._time(meta.posttime, "posttime"),
            details | _transaction_details(transaction),
        )

    def _truncate(self, message: Change, row: Row) -> Truncate:
        meta, data = message.meta, dict(message.data or {})
        details = details_of(meta, row)
        position, transaction = coordinates_of(meta, details)
        return Truncate(
            self._table(meta.table),
            _statement(data),
            position,
            transaction,
            SOURCE,
            self._time(meta.time, "time"),
            self._time(meta.posttime, "posttime"),
            details | _row_details(data, message.key),
        )

    def _ddl(self, operation: Operation, message: Change, row: Row) -> SchemaChange | Truncate:
        meta, data = message.meta, dict(message.data or {})
        sql: str | None = None
        action = "alter"
        if operation is Operation.DROP_COLUMN:
            row["op"] = meta.op
        else:
            text = data.get("sql")
            action = action_of(text if isinstance(text, str) else None, SOURCE.product)
            if action == "truncate":
                return self._truncate(message, row)
            sql = _statement(data)
        details = details_of(meta, row)
        position, transaction = coordinates_of(meta, details)
        return SchemaChange(
            self._table(meta.table),
            action,
            sql,
            position=position,
            source=SOURCE,
            source_time_ns=self._time(meta.time, "time"),
            process_time_ns=self._time(meta.posttime, "posttime"),
            # a schema change has no field for its transaction
            details={
                **details,
                **_transaction_details(transaction),
                **_row_details(data, message.key),
            },
        )

    def _time(self, text: str | None, field: str) -> int | None:
        """Return a time of ``meta`` in nanoseconds.

        Raises:
            DecodeError: The text is not a time.
        """
        if text is None:
            return None
        try:
            return self.times.read(text)
        except (ValueError, OverflowError):
            path = f"$.meta.{field}"
            raise DecodeError("not a time", code=ReasonCode.WRONG_TYPE, path=path) from None

    def _table(self, text: str | None) -> TableId:
        table = self._tables.get(text or "")  # shared, because reducers cache by identity
        if table is None:
            if len(self._tables) >= _MOST_TABLES:
                self._tables.clear()
            table = self._tables[text or ""] = table_of(text)
        return table


def change_of(operation: Operation, message: Change) -> tuple[Op, Image | None, Image | None]:
    """Return the operation, the before and the after image of a row change.

    Raises:
        DecodeError: The message has no columns, or an image that the operation does not have.
    """
    data, before = message.data, message.key
    if data is None:
        raise DecodeError("no columns", code=ReasonCode.MISSING_FIELD, path="$.data")
    if operation is _UPDATED:
        # "missing in data is unchanged": the after image is `key` overlaid with `data`
        return _UPDATE, before, data if before is None else {**before, **data}
    if before:
        # Quest KB 4376090: `key` exists for updates only, by design
        raise DecodeError(
            "only an update has this field", code=ReasonCode.UNEXPECTED_FIELD, path="$.key"
        )
    return (_CREATE, None, data) if operation is _INSERTED else (_DELETE, data, None)


def coordinates_of(
    meta: Meta, details: dict[str, Any]
) -> tuple[ScnPosition | None, Transaction | None]:
    """Return the position of an operation, and its position in the transaction.

    Numbers that the event has no field for are added to *details*.

    Raises:
        DecodeError: A number is out of range, or the numbers contradict each other.
    """
    seq, size = meta.seq, meta.size
    if meta.idx is not None and meta.idx != f"{seq}/{size}":
        seq, size = _with_idx(meta.idx, seq, size)
    if seq is not None and size is not None and seq > size:
        raise DecodeError("greater than the size of its transaction", path="$.meta.seq")
    position = transaction = None
    if meta.scn is not None:
        # all operations of a transaction have one SCN: their numbers order them
        position = ScnPosition(_scn(meta.scn), tx_seq=seq or 0)
    if meta.trans is not None:
        last = None if seq is None or size is None else seq == size
        transaction = Transaction(meta.trans, seq, None, size, last)
    else:
        if seq is not None and position is None:
            details["seq"] = seq
        if size is not None:
            details["size"] = size
    return position, transaction


def details_of(meta: Meta, fields: Row) -> Row:
    """Return the undocumented fields of ``meta``, and those that have no place in an event."""
    details = fields
    if meta.userid is not None:
        details["userid"] = meta.userid
    if meta.rowid is not None:
        details["rowid"] = meta.rowid
    if meta.host is not None:
        details["host"] = meta.host
    if meta.queue is not None:
        details["queue"] = meta.queue
    if meta.source is not None:
        details["source"] = meta.source
    return details


def _transaction_details(transaction: Transaction | None) -> Row:
    """Return a transaction as details, with the names of the message."""
    if transaction is None:
        return {}
    fields = {"trans": transaction.id, "seq": transaction.order, "size": transaction.size}
    return {name: value for name, value in fields.items() if value is not None}


def _with_idx(idx: str, seq: int | None, size: int | None) -> tuple[int, int]:
    """Return number and size, also from *idx*, which repeats them: "in the seq/size format"."""
    match = _IDX.fullmatch(idx)
    if match is None:
        raise DecodeError("not of the form seq/size", code=ReasonCode.WRONG_TYPE, path="$.meta.idx")
    numbers = int(match[1]), int(match[2])
    if seq not in {None, numbers[0]} or size not in {None, numbers[1]}:
        raise DecodeError("differs from seq and size", path="$.meta.idx")
    return numbers


def _scn(value: int | str) -> int:
    if isinstance(value, str):
        if not (len(value) < _SCN_DIGITS and value.isascii() and value.isdigit()):
            raise DecodeError("not a whole number", code=ReasonCode.WRONG_TYPE, path="$.meta.scn")
        value = int(value)
    if not 0 <= value < SCNS:
        raise DecodeError(
            "out of the range of SCNs", code=ReasonCode.VALUE_OUT_OF_RANGE, path="$.meta.scn"
        )
    return value


def _pair(meta: Meta, transaction: Transaction | None) -> str | None:
    """Return the pair of an update's halves; ``None`` if the message has none.

    It is not documented whether both halves have the same number in the transaction. They have the
    same row id in any case; the number is used if there is no row id.
    """
    transaction_id = transaction.id if transaction is not None else meta.scn
    if transaction_id is None:
        return None
    if meta.rowid is not None:
        return f"{transaction_id} rowid {meta.rowid}"
    seq = meta.seq if transaction is None else transaction.order
    return None if seq is None else f"{transaction_id} seq {seq}"


def table_of(text: str | None) -> TableId:
    """Return the table of ``OWNER.TABLE``; it may be missing, as in DTS's example of a delete.

    >>> table_of("CL_BIZ1.MIO_LOG")
    TableId(database=None, schema='CL_BIZ1', name='MIO_LOG')
    """
    if not text:
        return TableId()
    owner, dot, name = text.partition(".")
    return TableId(schema=owner, name=name) if dot else TableId(name=text)


def _statement(data: Row) -> str | None:
    """Remove the statement from ``data`` and return it; ``None`` if there is none."""
    return data.pop("sql") if isinstance(data.get("sql"), str) else None


def _row_details(data: Row | None, key: Row | None) -> Row:
    """Return ``data`` and ``key`` of an operation that is no row change, as details."""
    return {name: row for name, row in (("data", data), ("key", key)) if row}
