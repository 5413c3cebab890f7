# SPDX-License-Identifier: Apache-2.0
"""Rows of TiCDC's Avro protocol to change events."""

from collections.abc import Mapping
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.event import (
    NO_DETAILS,
    Completeness,
    DataChange,
    Image,
    Key,
    Op,
)
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.tidb_time_stamps import position_of, time_ns
from changelane.formats.debezium_envelope.rows import connect_schema
from changelane.formats.debezium_envelope.rows.connect_schema import Schema, unwrap
from changelane.formats.ticdc import SOURCE
from changelane.formats.ticdc.avro.columns import column_of
from changelane.formats.ticdc.avro.options import Options
from changelane.formats.ticdc.simple.tables import checksum_of
from changelane.message import Message
from changelane.position import SequencePosition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId, TableSchema
from changelane.types import Decimal, Enum, LogicalType, Set, Value
from changelane.types.scalars import parse_zone
from changelane.types.values import plain

OP: Final = "_tidb_op"
COMMIT_TS: Final = "_tidb_commit_ts"
PHYSICAL_TIME: Final = "_tidb_commit_physical_time"
CHECKSUM: Final = "_tidb_row_level_checksum"
CORRUPTED: Final = "_tidb_corrupted"
BEFORE: Final = "_ticdc_before"
EXTENSION: Final = frozenset(
    {OP, COMMIT_TS, PHYSICAL_TIME, CHECKSUM, CORRUPTED, "_tidb_checksum_version", BEFORE}
)
"""The fields that are no columns."""
OPERATIONS: Final = {"c": Op.CREATE, "u": Op.UPDATE, "d": Op.DELETE}

_MAX_PLANS: Final = 1024
_NULL: Final = b"null"
_MILLISECOND: Final = 1_000_000
AFTER_LAST_MS: Final = 253_402_300_800_000

Row = dict[str, Any]


class RowPlan:
    """How the rows, or the keys, of one schema block are read.

    Attributes:
        table: The table, by the name of the schema.
        schema: The columns.
        key: The columns as those of a key.
        before: The plan of the before image; ``None`` if the schema has none.
        readers: The functions from the JSON of columns to their values.
    """

    def __init__(self, schema: Schema, options: Options) -> None:
        """Compile a schema.

        Raises:
            DecodeError: It is not one of TiCDC.
        """
        if schema.type != "struct":
            raise DecodeError("not the schema of a row", code=ReasonCode.WRONG_SCHEMA)
        zone = parse_zone(options.time_zone)
        fields = [field for field in schema.members if field.member not in EXTENSION]
        columns = [column_of(field, zone) for field in fields]
        if not columns:
            raise DecodeError("the schema has no columns", code=ReasonCode.WRONG_SCHEMA)
        parts = schema.label.split(".")
        self.table = TableId(parts[-2] if len(parts) > 1 else None, None, parts[-1])
        try:
            self.schema = TableSchema(tuple(column for column, _ in columns))
        except ValueError as error:
            raise DecodeError(str(error), code=ReasonCode.WRONG_SCHEMA) from None
        self.key = Key(tuple(column.name for column, _ in columns))
        self.readers = {column.name: read for column, read in columns}
        befores = [field for field in schema.members if field.member == BEFORE]
        self.before = RowPlan(befores[0], options) if befores else None

    def image(self, row: Row, path: str) -> dict[str, Value]:
        """Return a row with typed values.

        Raises:
            DecodeError: A column is missing, or a value is not of its type.
        """
        image: dict[str, Value] = {}
        for name, read in self.readers.items():
            if name not in row:
                reason = "the row lacks a column of its schema"
                raise DecodeError(reason, code=ReasonCode.MISSING_FIELD, path=path)
            value = row[name]
            try:
                image[name] = value if value is None else read(value)
            except DecodeError as error:
                raise DecodeError(error.reason, code=error.code, path=f"{path}.{name}") from None
        return image

    def checksum(self, row: Row, image: Image) -> int:
        """Return the checksum of a row; the columns of its schema are in the order of their ids."""
        return checksum_of(
            (
                column.type,
                _written(column.type, row[column.name], image[column.name]),
                image[column.name],
            )
            for column in self.schema.columns
        )


def _written(kind: LogicalType, written: Any, value: Any) -> Any:
    """Return the form of a value of which the checksum is: the number of a member, or of several.

    Args:
        kind: The type of the column.
        written: The JSON value.
        value: The value.
    """
    match kind:
        case Decimal() if value is not None:
            return plain(value)
        case Enum() if value is not None:
            members = kind.members or ()
            return members.index(value) + 1 if value in members else 0
        case Set() if value is not None:
            chosen = value.split(",")
            members = kind.members or ()
            return sum(1 << bit for bit, member in enumerate(members) if member in chosen)
        case _:
            return written


class Reader:
    """Decodes messages.

    Attributes:
        is_ordered: Changes have the order of their commit time stamps.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self.is_ordered = options.order == "commit_ts"
        self._plans: BoundedCache[bytes, RowPlan] = BoundedCache(_MAX_PLANS)

    def __call__(self, message: Message) -> DataChange:
        """Return the event of a message.

        Raises:
            DecodeError: The message is not one of TiCDC, or its checksum is wrong.
        """
        key = None if message.key is None else self._loaded(message.key, "$.key")
        loaded = None if not message.value else self._loaded(message.value, "$")
        if loaded is None:
            if key is None:
                raise DecodeError("neither a row nor a key", code=ReasonCode.NO_KEY)
            plan, row = key
            before = plan.image(row, "$.key.payload")
            # the schema lists the columns of the key only
            return DataChange(
                Op.DELETE,
                plan.table,
                plan.key,
                before,
                None,
                plan.schema,
                source=SOURCE,
                before_holds=Completeness.CHANGED,
            )
        return self._row(*loaded, None if key is None else key[0].key)

    def _loaded(self, data: bytes, path: str) -> tuple[RowPlan, Row] | None:
        """Return the plan and the payload of a value or a key; ``None`` if it is null."""
        block, payload = unwrap(data) or (None, data)
        if block is None:
            if payload.strip() == _NULL:
                return None
            reason = "no schema block: set the option serde to avro-registry, or let the converter"
            reason += " write schemas"
            raise DecodeError(reason, code=ReasonCode.WRONG_SCHEMA, path=path)
        plan = self._plans.get(block)
        if plan is None:
            try:
                plan = RowPlan(connect_schema.parse(block), self._options)
            except DecodeError as error:
                where = f"{path}.schema"
                raise DecodeError(error.reason, code=error.code, path=where) from None
            self._plans.add(block, plan)
        if payload.strip() == _NULL:
            return None
        try:
            return plan, json.loads(payload, Row)
        except DecodeError as error:
            where = error.path.replace("$", f"{path}.payload", 1)
            raise DecodeError(error.reason, code=error.code, path=where) from None

    def plan(self, data: bytes) -> RowPlan | None:
        """Return the plan of a row or a key; ``None`` if it is null.

        Raises:
            DecodeError: The data is not of TiCDC.
        """
        loaded = self._loaded(data, "$")
        return None if loaded is None else loaded[0]

    def _row(self, plan: RowPlan, row: Row, key: Key | None) -> DataChange:
        path = "$.payload"
        op = operation_of(row.get(OP))
        image = plan.image(row, path)
        if self._options.verify_checksums:
            _verify(plan, row, image)
        before = before_row = row.get(BEFORE)
        if plan.before is not None and before_row is not None:
            if type(before_row) is not dict:
                code = ReasonCode.WRONG_TYPE
                raise DecodeError("not a row", code=code, path=f"{path}.{BEFORE}")
            before = plan.before.image(before_row, f"{path}.{BEFORE}")
        time_stamp = position_of(row.get(COMMIT_TS), f"{path}.{COMMIT_TS}")
        details: Mapping[str, object] = NO_DETAILS
        if time_stamp is not None and not self.is_ordered:
            details = {COMMIT_TS: time_stamp.value}
        is_delete = op is Op.DELETE
        is_key = (
            is_delete and before is None and key is not None and key.columns == plan.key.columns
        )
        return DataChange(
            op,
            plan.table,
            key,
            (before or image) if is_delete else before,
            None if is_delete else image,
            plan.schema,
            time_stamp if self.is_ordered else None,
            None,
            SOURCE,
            time_of(row.get(PHYSICAL_TIME), time_stamp),
            None,
            Completeness.CHANGED if is_key else Completeness.UNKNOWN,
            Completeness.UNKNOWN,
            details,
        )


def operation_of(value: Any) -> Op:
    """Return the operation; without the extension a row is an insert or an update."""
    if value is None or value == "":
        return Op.UPDATE
    op = OPERATIONS.get(value) if isinstance(value, str) else None
    if op is None:
        code = ReasonCode.UNKNOWN_OPERATION
        raise DecodeError("an unknown operation", code=code, path=f"$.payload.{OP}")
    return op


def time_of(value: Any, commit: SequencePosition | None) -> int | None:
    """Return the source time in nanoseconds: the physical time, or that of the time stamp.

    Raises:
        DecodeError: The physical time is not one.
    """
    if value is None:
        return time_ns(None if commit is None else commit.value)
    path = f"$.payload.{PHYSICAL_TIME}"
    if type(value) is not int:
        raise DecodeError("not a time", code=ReasonCode.WRONG_TYPE, path=path)
    if not -AFTER_LAST_MS < value < AFTER_LAST_MS:
        raise DecodeError("out of range", code=ReasonCode.VALUE_OUT_OF_RANGE, path=path)
    return value * _MILLISECOND


def _verify(plan: RowPlan, row: Row, image: Image) -> None:
    """Compare a row with its checksum; an empty one is none.

    Raises:
        DecodeError: The checksum differs, or TiCDC itself found that.
    """
    text = row.get(CHECKSUM)
    is_wrong = row.get(CORRUPTED) is True
    if text is not None and text != "" and not is_wrong:
        is_number = isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 20
        is_wrong = not is_number or int(text) != plan.checksum(row, image)
    if is_wrong:
        path = f"$.payload.{CHECKSUM}"
        raise DecodeError("the row is corrupted", code=ReasonCode.CHECKSUM, path=path)
