# SPDX-License-Identifier: Apache-2.0
"""Change events to SharePlex messages."""

import datetime as dt
import decimal
from typing import Any, Final

import msgspec

from changelane.ddl import action_of
from changelane.errors import EncodeError
from changelane.event import (
    ChangeEvent,
    DataChange,
    Image,
    Op,
    SchemaChange,
    Transaction,
    Truncate,
    key_of,
)
from changelane.formats.contract import json
from changelane.formats.contract.details import add_further
from changelane.formats.contract.format import Report
from changelane.formats.contract.iso_times import writer
from changelane.formats.shareplex.decode import SOURCE, table_of
from changelane.formats.shareplex.operations import Operation, operation_of
from changelane.formats.shareplex.wire import META, SCNS, Row, WrittenChange
from changelane.position import ScnPosition
from changelane.schema import TableId
from changelane.types import Value

Written = DataChange | SchemaChange | Truncate

_OPERATIONS: Final[dict[Op, Operation]] = {
    Op.CREATE: Operation.INSERT,
    Op.UPDATE: Operation.UPDATE,
    Op.DELETE: Operation.DELETE,
}

_ABSENT: Final = object()

_ROWS: Final = frozenset({"data", "key"})
"""Details of a truncate or a schema change that are written beside ``meta``."""


class WriteOptions(msgspec.Struct, frozen=True):
    """The options of a writer.

    Attributes:
        text_only: Values are text or null.
        whole_key: ``key`` is the full before image, not only its key columns.
        nulls: NULL columns of inserted and deleted rows are written.
        digits: Fraction digits of times: 0 or 9.
        zulu: Times are in UTC and end in ``Z``.
        zone: The zone of times without ``Z``.
    """

    text_only: bool
    whole_key: bool
    nulls: bool
    digits: int
    zulu: bool
    zone: dt.tzinfo


class Writer:
    """Encodes events that are reduced to SharePlex's capabilities."""

    def __init__(self, options: WriteOptions) -> None:
        self._text_only = options.text_only
        self._whole_key = options.whole_key
        self._nulls = options.nulls
        self._time = writer(options.zone, digits=options.digits, zulu=options.zulu)

    def __call__(self, event: ChangeEvent, report: Report) -> bytes:
        """Return the message's value."""
        data: Row | None
        match event:
            case DataChange():
                data, key = self._images(event, report)
                meta = self._meta(event, _OPERATIONS[event.op], event.details, report)
            case Truncate():
                data, key = _beside(event.details)
                data = _with_statement(data, event.ddl, report)
                details = {n: v for n, v in event.details.items() if n not in _ROWS}
                meta = self._meta(event, Operation.TRUNCATE, details, report)
            case SchemaChange():
                meta, data, key = self._ddl(event, report)
            case _:
                raise EncodeError(f"SharePlex has no message for {type(event).__name__}")
        return json.dumps(WrittenChange(meta, data, key))

    # -- rows ----------------------------------------------------------------------------------

    def _images(self, event: DataChange, report: Report) -> tuple[Row, Row | None]:
        """Return ``data`` and ``key``."""
        image = event.before if event.op is Op.DELETE else event.after
        if image is None:
            raise EncodeError("the change has no row image")
        if not self._text_only and any(map(_reads_as_integer, image.values())):
            report(("value:decimal", "a whole number is read as an integer"))
        if event.op is Op.UPDATE:
            return self._updated(event, image, report)
        if event.key is not None:
            report(("key", "only an update names its key columns"))
        if self._nulls or None not in image.values():
            return dict(image), None
        report(("null", "a NULL column of an inserted or deleted row is omitted"))
        return {name: value for name, value in image.items() if value is not None}, None

    def _updated(self, event: DataChange, after: Image, report: Report) -> tuple[Row, Row | None]:
        before = event.before
        old = before if self._whole_key else self._identification(event, after, report)
        if before is None:
            return dict(after), None if old is None else dict(old)
        if not before.keys() <= after.keys():
            report(("after", "a missing column is read as unchanged"))
        data: Row = {}
        for name, value in after.items():
            old_value = before.get(name, _ABSENT)
            if old_value is not value and not _is_same(old_value, value):
                data[name] = value
        if old is not None and not after.keys() <= data.keys() | old.keys():
            report(("after", "only the key and the changed columns are written"))
        return data, dict(old or {})

    def _identification(self, event: DataChange, after: Image, report: Report) -> Image | None:
        """Return the key columns of the before image, which identify the row at the target."""
        before = event.before
        if event.key is None:
            if before is not None:
                report(("key", "unknown; all columns of the before image are written as the key"))
            return before
        key = key_of(event, after if before is None else before)
        if key is None:
            raise EncodeError("the before image does not have the key columns")
        if before is None:
            report(("before", "unknown; the key of the after image is written"))
        elif len(before) > len(key):
            report(("before", "only the key columns are written"))
        return key

    # -- other events --------------------------------------------------------------------------

    def _ddl(
        self, event: SchemaChange, report: Report
    ) -> tuple[dict[str, Any], Row | None, Row | None]:
        if event.schema is not None:
            report(("schema", "a schema change lists no columns"))
        if event.key is not None:
            report(("schema.key", "a schema change lists no key columns"))
        details = {n: v for n, v in event.details.items() if n not in _ROWS | {"op"}}
        data, key = _beside(event.details)
        op = event.details.get("op")
        is_drop = isinstance(op, str) and operation_of(op) is Operation.DROP_COLUMN
        if is_drop and event.ddl is None and event.action == "alter":
            return self._meta(event, op, details, report), data, key  # type: ignore[arg-type]
        if op is not None:
            report(("details.op", "not the operation of a schema change"))
        if event.action != action_of(event.ddl, SOURCE.product):
            report(("action", "readers take it from the statement"))
        data = _with_statement(data, event.ddl, report)
        return self._meta(event, Operation.DDL, details, report), data, key

    def _meta(self, event: Written, op: str, details: Any, report: Report) -> dict[str, Any]:
        """Return the part ``meta``, in the order of the documented sample."""
        position = event.position
        transaction = getattr(event, "transaction", None)
        scn, seq = _scn(position, report), _seq(position, transaction, report)
        size = None if transaction is None else transaction.size
        other_details = dict(details)
        seq = _value_or_detail(other_details, "seq", seq)
        size = _value_or_detail(other_details, "size", size)
        trans = (
            transaction.id
            if transaction is not None
            else _value_or_detail(other_details, "trans", None, str)
        )
        if size is not None and (seq or 1) > size:
            report(("transaction.size", "less than the order in the transaction; not written"))
            size = None
        is_last = None if seq is None or size is None else seq == size
        if transaction is not None and transaction.last not in {None, is_last}:
            report(("transaction.last", "readers take it from seq and size"))
        documented_fields = {
            "time": self._written_time(event.source_time_ns, "source_time", report),
            "userid": _value_or_detail(other_details, "userid", None, (int, str)),
            "op": str(op),
            "scn": scn,
            "rowid": _value_or_detail(other_details, "rowid", None, str),
            "trans": trans,
            "seq": seq,
            "size": size,
            "table": _name(event.table, report),
            "idx": None if seq is None or size is None else f"{seq}/{size}",
            "posttime": self._written_time(event.process_time_ns, "process_time", report),
        }
        for name in ("host", "queue", "source"):
            documented_fields[name] = _value_or_detail(other_details, name, None, str)
        meta = {name: value for name, value in documented_fields.items() if value is not None}
        add_further(meta, other_details, META, report)
        return meta

    def _written_time(self, value_ns: int | None, field: str, report: Report) -> str | None:
        if value_ns is None:
            return None
        try:
            return self._time(value_ns)
        except OverflowError:
            report((field, "outside the years 1 to 9999"))
            return None


def _is_same(value: Value, two: Value) -> bool:
    """Return whether two values have the same written form: 1, True and 1.0 do not."""
    kind = value.__class__
    if kind is not two.__class__:
        return False
    return value == two if kind is str or kind is int else repr(value) == repr(two)


def _reads_as_integer(value: Value) -> bool:
    return isinstance(value, decimal.Decimal) and value.as_tuple().exponent == 0


def _beside(details: Any) -> tuple[Row | None, Row | None]:
    """Return ``data`` and ``key`` of an operation that is no row change, from its details."""
    data, key = (details.get(name) for name in ("data", "key"))
    return (data if isinstance(data, dict) else None, key if isinstance(key, dict) else None)


def _with_statement(data: Row | None, sql: str | None, report: Report) -> Row | None:
    """Return ``data`` with a statement in it."""
    if sql is not None:
        return {**(data or {}), "sql": sql}
    if data is not None and "sql" in data:
        report(("details.data", "would be read as a statement"))
        return None
    return data


def _value_or_detail(
    details: Row, name: str, value: Any, kind: type | tuple[type, ...] = int
) -> Any:
    """Return *value*; if it is ``None``, remove the detail *name* and return its value."""
    detail = details.get(name)
    if value is None and isinstance(detail, kind) and not isinstance(detail, bool):
        del details[name]
        return detail
    return value


_COUNTS: Final = 1 << 63


def _scn(position: Any, report: Report) -> str | None:
    """Return the SCN of the commit, which the documentation calls ``scn``."""
    if position is None:
        return None
    if not isinstance(position, ScnPosition):
        raise EncodeError(f"SharePlex cannot express a {type(position).__name__}")
    if position.commit_scn is not None:
        report(("position.scn", "only the SCN of the commit is written"))
    if position.rs_id is not None or position.ssn:
        report(("position.rs_id", "not written"))
    scn = position.scn if position.commit_scn is None else position.commit_scn
    if not 0 <= scn < SCNS:
        report(("position.scn", "out of the range of SCNs; not written"))
        return None
    return str(scn)


def _seq(position: Any, transaction: Transaction | None, report: Report) -> int | None:
    """Return the number in the transaction, which orders the operations of one SCN."""
    order = None if transaction is None else transaction.order
    number = position.tx_seq if isinstance(position, ScnPosition) else None
    if number is not None and not 0 <= number < _COUNTS:
        report(("position.tx_seq", "out of range; not written"))
        number = None
    if number is None:
        return order
    if order is not None:
        if number != order:
            report(("position.tx_seq", "the order in the transaction is written instead"))
        return order
    if number and transaction is not None:
        report(("transaction.order", "the number in the position is written instead"))
    return number or None


def _name(table: TableId, report: Report) -> str | None:
    if table.schema is None and table.name is None:
        return None
    text = table.name or "" if table.schema is None else f"{table.schema}.{table.name or ''}"
    if table_of(text) != TableId(schema=table.schema, name=table.name):
        report(("table.name", "readers cannot separate owner and name"))
    return text
