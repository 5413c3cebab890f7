# SPDX-License-Identifier: Apache-2.0
"""DTS records to change events."""

from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import (
    ChangeEvent,
    Control,
    DataChange,
    Details,
    Image,
    Op,
    SchemaChange,
    Source,
    Transaction,
    TransactionMarker,
    Truncate,
    Watermark,
)
from changelane.formats.contract.avro_binary import NOT_A_DATUM, read_long, read_text
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.dts import ddl
from changelane.formats.dts.avro import SOURCE_TYPES, truncated
from changelane.formats.dts.object_names import KEY_TAG, NO_POSITION, read_binlog, read_object_name
from changelane.formats.dts.record import Head, read_fields, read_head
from changelane.formats.dts.row_reader import TablePlan, read_image
from changelane.position import Position
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableId, TableSchema
from changelane.types import Value
from changelane.types.values import to_json

CONNECTOR: Final = "dts"

PRODUCTS: Final[dict[str, str | None]] = {
    name: None if name == "OTHER" else name.lower() for name in SOURCE_TYPES
}
"""``sourceType`` -> product; an ``OTHER`` source has none."""

SECONDS_UP_TO: Final = 10_000_000_000
"""The greatest time in seconds. A greater one is in milliseconds."""

READ_TAG: Final = "readerThroughoutTime"
"""The tag with the time at which DTS read the change, milliseconds."""
GTID_TAG: Final = "GTID"

NO_TRANSACTION: Final = "0"
"""The id of every transaction of a MySQL source."""

ROW_OPERATIONS: Final[dict[str, Op]] = {
    "INSERT": Op.CREATE,
    "UPDATE": Op.UPDATE,
    "DELETE": Op.DELETE,
    "INIT": Op.READ,
}
READ_OPERATION: Final = "INIT"
TRANSACTION_OPERATIONS: Final = {"BEGIN": "begin", "COMMIT": "commit", "ROLLBACK": "rollback"}
"""``operation`` -> the status of a transaction's marker."""

MONGODB_COLUMNS: Final = ("_value", "_id")
"""The columns of a document. Its records have no fields."""

_MAX_PLANS: Final = 1024
_MOST_CACHED_BYTES: Final = 1 << 16
SNAPSHOT: Final = "true"
_SOURCES: Final = {name: Source(product, CONNECTOR) for name, product in PRODUCTS.items()}
_SNAPSHOTS: Final = {
    name: Source(product, CONNECTOR, snapshot=SNAPSHOT) for name, product in PRODUCTS.items()
}
"""The sources of the rows of a full load, which are older than the changes of the stream."""
_READ: Final = Op.READ
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE


class ReadOptions(msgspec.Struct, frozen=True):
    """The options of a reader: the name of binary log files, and strictness at a record's end."""

    binlog_prefix: str = "mysql-bin"
    is_strict: bool = False


class Body(msgspec.Struct):
    """The fields after the tags. An image is a row, text (the statement of a DDL), or none.

    Attributes:
        columns: The columns whose values have another type than their number.
    """

    plan: TablePlan | None
    before: Image | str | None
    after: Image | str | None
    columns: dict[str, Column]
    bornTimestamp: int | None  # noqa: N815
    trailing: int


class Reader:
    """Decodes records. Plans are cached by the bytes of their ``fields``."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._plans: BoundedCache[tuple[str, bool, bytes], TablePlan] = BoundedCache(_MAX_PLANS)
        self._latest: BoundedCache[tuple[str, str | None, bool], TablePlan] = BoundedCache(
            _MAX_PLANS
        )
        self._tables: BoundedCache[str | None, TableId] = BoundedCache(_MAX_PLANS)

    def __call__(self, data: bytes) -> tuple[ChangeEvent, ...]:
        """Return the events of a record.

        Raises:
            DecodeError: The data are not a record of DTS.
        """
        try:
            head, at = read_head(data)
            body = self._body(data, at, head)
        except NOT_A_DATUM:
            raise truncated() from None
        op = ROW_OPERATIONS.get(head.operation)
        if op is not None:
            return (self._row(op, head, body),)
        return self._other(head, body)

    # -- the datum -----------------------------------------------------------------------------

    def _body(self, data: bytes, at: int, head: Head) -> Body:
        plan = self.cached_plan(data, at, head)
        if plan is not None:
            at += len(plan.raw)
        else:
            plan, at = self._plan(data, at, head)
        columns: dict[str, Column] = {}
        before, at = read_image(plan, data, at, columns, "beforeImages")
        after, at = read_image(plan, data, at, columns, "afterImages")
        born: int | None = None
        if at < len(data):
            born, at = read_long(data, at)
        if at > len(data):
            raise truncated()
        if at < len(data) and self._options.is_strict:
            raise DecodeError("bytes after the record", code=ReasonCode.TRAILING_BYTES)
        return Body(plan, before, after, columns, born, len(data) - at)

    def cached_plan(self, data: bytes, at: int, head: Head) -> TablePlan | None:
        """Return the plan of the last record of the same object, if this one has its fields."""
        plan = self._latest.get((head.sourceType, head.objectName, in_microseconds(head)))
        return plan if plan is not None and data.startswith(plan.raw, at) else None

    def _plan(self, data: bytes, at: int, head: Head) -> tuple[TablePlan | None, int]:
        start, source_type = at, head.sourceType
        branch = data[at]
        at += 1
        fields: tuple[tuple[str, int | None], ...]
        if branch == 4:
            fields, at = read_fields(data, at)
        elif branch == 0:
            if source_type != "MongoDB" or 4 not in data[at : at + 2]:
                return None, at
            fields = tuple((name, None) for name in MONGODB_COLUMNS)
        elif branch == 2:
            _, at = read_text(data, at)
            return None, at
        else:
            raise ValueError
        raw = data[start:at]
        has_microseconds = in_microseconds(head)
        identity = source_type, has_microseconds, raw
        plan = self._plans.get(identity)
        if plan is None:
            plan = TablePlan(raw, fields, source_type, in_microseconds=has_microseconds)
            if len(raw) <= _MOST_CACHED_BYTES:
                self._plans.add(identity, plan)
        if len(raw) <= _MOST_CACHED_BYTES:
            self._latest.add((source_type, head.objectName, has_microseconds), plan)
        return plan, at

    # -- rows ----------------------------------------------------------------------------------

    def _row(self, op: Op, head: Head, body: Body) -> DataChange:
        plan, before, after = body.plan, body.before, body.after
        if isinstance(before, str) or isinstance(after, str):
            path = "$.afterImages" if isinstance(after, str) else "$.beforeImages"
            raise DecodeError("text instead of a row", code=ReasonCode.WRONG_TYPE, path=path)
        if plan is None:
            raise DecodeError(
                "a row without its fields", code=ReasonCode.MISSING_FIELD, path="$.fields"
            )
        if op is _DELETE:
            if before is None:
                path = "$.beforeImages"
                raise DecodeError(
                    "a delete without its row", code=ReasonCode.MISSING_FIELD, path=path
                )
            _check_unknown(after, "afterImages")
            after = None
        elif after is None:
            path = "$.afterImages"
            raise DecodeError("a change without its row", code=ReasonCode.MISSING_FIELD, path=path)
        elif op is not _UPDATE:
            _check_unknown(before, "beforeImages")
            before = None
        schema = plan.schema
        if body.columns:
            schema, before, after = plan.covering(body.columns, before, after)
        table = self._table(head.objectName)
        if table.name is None:
            raise DecodeError(
                "a row of no table", code=ReasonCode.MISSING_FIELD, path="$.objectName"
            )
        text = head.tags.get(KEY_TAG)
        position = self.position_of(head)
        return DataChange(
            op,
            table,
            None if text is None else plan.key(text),
            before,
            after,
            schema,
            position,
            transaction_of(head.sourceTxid),
            (_SNAPSHOTS if op is _READ else _SOURCES)[head.sourceType],
            source_time_ns(head.sourceTimestamp),
            read_time_ns(head.tags),
            details=_details(head, body, position),
        )

    def _table(self, name: str | None) -> TableId:
        table = self._tables.get(name)
        if table is None:
            object_name = read_object_name(name)
            if object_name is None:
                raise DecodeError("a name of too many parts", path="$.objectName")
            table = self._tables.add(name, object_name)
        return table

    def position_of(self, head: Head) -> Position | None:
        """Return the position of a record; ``None`` if its form is not published."""
        if head.sourceType != "MySQL":
            return None  # the form of these texts is not published
        prefix = self._options.binlog_prefix
        return read_binlog(head.sourcePosition, prefix, head.tags.get(GTID_TAG))

    # -- everything else -----------------------------------------------------------------------

    def _other(self, head: Head, body: Body) -> tuple[ChangeEvent, ...]:
        operation = head.operation
        if operation == "DDL" or (operation == "COMMAND" and head.sourceType == "MongoDB"):
            return self._ddl(head, body)
        details, fields = self._common(head, body)
        status = TRANSACTION_OPERATIONS.get(operation)
        is_control = status is None and operation != "HEARTBEAT"
        text = body.after if is_control and isinstance(body.after, str) else None
        details.update(_bodies(body, text))
        if not is_control and head.objectName is not None:
            details["objectName"] = head.objectName
        if status is not None:
            transaction = transaction_of(head.sourceTxid) or Transaction("")
            return (TransactionMarker(status, transaction, **fields),)
        if not is_control:
            return (Watermark("heartbeat", **fields),)
        return (Control(operation, text, self._table(head.objectName), **fields),)

    def _ddl(self, head: Head, body: Body) -> tuple[ChangeEvent, ...]:
        for image, field in ((body.after, "afterImages"), (body.before, "beforeImages")):
            if not isinstance(image, str | None):
                reason = "a row instead of a statement"
                raise DecodeError(reason, code=ReasonCode.WRONG_TYPE, path=f"$.{field}")
        text: Any = body.after
        statement = ddl.read(text or "", head.sourceType, self._table(head.objectName))
        details, fields = self._common(head, body)
        if head.operation != "DDL":
            details["operation"] = head.operation
        if body.before is not None:
            details["before"] = body.before
        if statement.action == "truncate":
            transaction = transaction_of(head.sourceTxid)
            return tuple(
                Truncate(table, text, transaction=transaction, **fields)
                for table in statement.tables
            )
        return (SchemaChange(statement.tables[0], statement.action, text, **fields),)

    def _common(self, head: Head, body: Body) -> tuple[dict[str, object], dict[str, Any]]:
        """Return the details of an event that is no row change, and its common fields with them."""
        position = self.position_of(head)
        details = dict(_details(head, body, position))
        return details, {
            "position": position,
            "source": _SOURCES[head.sourceType],
            "source_time_ns": source_time_ns(head.sourceTimestamp),
            "process_time_ns": read_time_ns(head.tags),
            "details": details,
        }


def in_microseconds(head: Head) -> bool:
    """Return whether the unit of ``millis`` in a ``DateTime`` is microseconds."""
    # "<->" marks the reader of PostgreSQL's physical log
    return head.sourceType == "MySQL" or (
        head.sourceType == "PostgreSQL" and "<->" not in head.sourcePosition
    )


def _details(head: Head, body: Body, position: Position | None) -> Details:
    """Return the fields without a place in the event, but for those that a writer derives."""
    details: dict[str, object] = {"id": head.id}
    if head.sourcePosition != NO_POSITION and position is None:
        details["sourcePosition"] = head.sourcePosition
    if head.safeSourcePosition:
        details["safeSourcePosition"] = head.safeSourcePosition
    if head.sourceTxid == NO_TRANSACTION:
        details["sourceTxid"] = NO_TRANSACTION
    if head.sourceVersion:
        details["sourceVersion"] = head.sourceVersion
    if head.processTimestamps is not None:
        details["processTimestamps"] = head.processTimestamps
    if head.tags:
        details["tags"] = head.tags
    if body.bornTimestamp is not None and body.bornTimestamp != head.sourceTimestamp:
        details["bornTimestamp"] = body.bornTimestamp
    if body.trailing:
        details["trailingBytes"] = body.trailing
    return details


def _check_unknown(image: Image | None, field: str) -> None:
    """Reject the values of an image that the operation does not have."""
    if image and any(value is not None for value in image.values()):
        reason = "a row that the operation does not have"
        raise DecodeError(reason, code=ReasonCode.UNEXPECTED_IMAGE, path=f"$.{field}")


def source_time_ns(value: int) -> int | None:
    """Return a source time in nanoseconds; ``None`` for 0.

    PostgreSQL and Redis sources write milliseconds, others seconds. The size of the number decides.
    """
    if value == 0:
        return None
    if not -_MOST_MILLISECONDS < value < _MOST_MILLISECONDS:
        raise DecodeError(
            "out of range", code=ReasonCode.VALUE_OUT_OF_RANGE, path="$.sourceTimestamp"
        )
    return value * (1_000_000 if value > SECONDS_UP_TO else 1_000_000_000)


_MOST_MILLISECONDS: Final = 253_402_300_800_000
"""The year 10000."""


def read_time_ns(tags: dict[str, str]) -> int | None:
    """Return the time at which DTS read the change, in nanoseconds; ``None`` if it is not sent."""
    text = tags.get(READ_TAG)
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 16):
        return None
    return int(text) * 1_000_000


def transaction_of(txid: str) -> Transaction | None:
    """Return the transaction of a ``sourceTxid``."""
    return None if txid in {"", NO_TRANSACTION} else Transaction(txid)


def _bodies(body: Body, text: str | None) -> dict[str, object]:
    """Return the images of a record without a row change as JSON values, without *text*."""
    images: dict[str, object] = {
        name: image
        for name, image in (("before", body.before), ("after", body.after))
        if isinstance(image, str) and image is not text
    }
    if body.plan is None:
        return images
    rows = (None if isinstance(image, str) else image for image in (body.before, body.after))
    schema, *typed_rows = body.plan.covering(body.columns, *rows)
    for name, row in zip(("before", "after"), typed_rows, strict=True):
        if row is not None:
            images[name] = _json_row(row, schema)
    return images


def _json_row(image: Image, schema: TableSchema) -> dict[str, Value]:
    """Return an image as JSON values."""
    row: dict[str, Value] = {}
    for name, value in image.items():
        convert = to_json(schema.by_name[name].type)
        row[name] = value if value is None or convert is None else convert(value)
    return row
