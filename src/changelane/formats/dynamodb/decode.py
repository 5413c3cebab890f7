# SPDX-License-Identifier: Apache-2.0
"""Change records of DynamoDB to change events."""

import base64
import datetime as dt
import decimal
import hashlib
import re
from collections.abc import Callable
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.event import (
    NO_DETAILS,
    ChangeEvent,
    Completeness,
    DataChange,
    Key,
    KeyOrigin,
    Op,
    Source,
)
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.declared_tables import DeclaredTable, DeclaredTables
from changelane.formats.contract.iso_times import reader
from changelane.formats.dynamodb.attributes import SETS as SET_TYPES
from changelane.formats.dynamodb.attributes import number, read, read_typed
from changelane.formats.dynamodb.options import Options
from changelane.formats.dynamodb.wire import Attributes, Loaded, Record, Row, StreamRecord, load
from changelane.position import Position, SequencePosition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId, option_for_table
from changelane.types import Json, String, Value

EVENT_SOURCE: Final = "aws:dynamodb"
SOURCE: Final = Source(product="dynamodb", connector="dynamodb-streams")
OPERATIONS: Final = {"INSERT": Op.CREATE, "MODIFY": Op.UPDATE, "REMOVE": Op.DELETE}
MILLISECOND: Final = "MILLISECOND"
MICROSECOND: Final = "MICROSECOND"
SETS: Final = "sets"
"""The detail with the types of sets: image -> attribute -> type."""
IMAGES: Final = ("NewImage", "OldImage")

_TTL: Final = {"type": "Service", "principalid": "dynamodb.amazonaws.com"}
"""The user of a delete by the time to live, with names in lower case.

AWS Lambda has the names ``type`` and ``principalId``, the API ``Type`` and ``PrincipalId``.
"""
_TABLE: Final = re.compile(r"arn:[^:]*:dynamodb:[^:]*:[^:]*:table/([^/]+)(?:/.*)?", re.DOTALL)
_SEQUENCE: Final = re.compile(r"[0-9]{1,40}")
_LEAST_DIGITS: Final = 21
_MOST_DIGITS: Final = 40
_ROWS: Final = 1000
_MAX_TABLES: Final = 4096
_TIME: Final = reader(dt.UTC)
_NS_BY_PRECISION: Final = {MILLISECOND: 1_000_000, MICROSECOND: 1_000}
_MOST: Final = 10**20
_TIMES: Final = ((10**11, 1_000_000_000), (10**14, 1_000_000), (10**17, 1_000))
"""The first number that is too large for seconds, milliseconds or microseconds; its unit in ns."""

# module names, because a look-up in the enum class is as slow as reading a number
_CREATE: Final = Op.CREATE
_DELETE: Final = Op.DELETE
_FULL: Final = Completeness.FULL
_KEY: Final = Completeness.KEY
_UNKNOWN: Final = Completeness.UNKNOWN


ReadItem = Callable[[Any, str, str, dict[str, str]], dict[str, Value]]
"""Returns the image of an item of a record at a place, by its field, and adds its sets' types."""


class Reader:
    """Decodes messages.

    Attributes:
        declared: The declared tables.
        read_attribute: Returns the value of an attribute.
    """

    def __init__(self, options: Options, declared: DeclaredTables) -> None:
        self.read_attribute: Callable[[Row], Value] = (
            read if options.nested == "plain" else read_typed
        )
        self._key_options = options.keys
        self.declared = declared
        self._has_positions = options.order == "source"
        self._drops_expired = options.ttl_deletes == "drop"
        self._tables: BoundedCache[str, TableId] = BoundedCache(_MAX_TABLES)
        self._keys: BoundedCache[tuple[TableId, tuple[str, ...]], Key] = BoundedCache(_MAX_TABLES)

    def __call__(self, value: bytes) -> tuple[ChangeEvent, ...]:
        """Return the events of a message's value: one for each record that is not dropped."""
        return tuple(
            self._change(loaded)
            for loaded in load(value)
            if not (self._drops_expired and is_expired(loaded.record))
        )

    def _change(self, loaded: Loaded) -> DataChange:
        record, path = loaded.record, loaded.path
        op = OPERATIONS.get(record.eventName)
        if op is None:
            raise DecodeError(
                "an unknown operation",
                code=ReasonCode.UNKNOWN_OPERATION,
                path=f"{path}.eventName",
            )
        stream = record.dynamodb
        sets: tuple[dict[str, str], dict[str, str]] = ({}, {})
        before, after = self.images(op, stream, path, sets)
        table = self._table(record)
        key = self._key(table, stream, path)
        before_holds = _UNKNOWN if before is None else _FULL
        if op is _DELETE and not stream.OldImage:
            before_holds = _KEY
        if key is not None:
            for name in key.columns:
                if (after is not None and after.get(name) is None) or (
                    before is not None and before.get(name) is None
                ):
                    raise DecodeError(
                        "a key attribute is missing in an image",
                        code=ReasonCode.MISSING_FIELD,
                        path=f"{path}.dynamodb.Keys",
                    )
        declared = self.declared.find(table)
        schema = None
        if declared is not None:
            if before is not None:
                before = _typed(declared, before, path, is_whole=before_holds is _FULL)
            if after is not None:
                after = _typed(declared, after, path, is_whole=True)
            schema = declared.schema_with((*(before or ()), *(after or ())))
            before_holds = _UNKNOWN
        time_ns = time_of(stream, path)
        return DataChange(
            op,
            table,
            key,
            before,
            after,
            schema,
            self.position_of(record, time_ns, path),
            None,
            SOURCE,
            time_ns,
            None,
            before_holds,
            _UNKNOWN if after is None or schema is not None else _FULL,
            details_of(loaded, sets) or NO_DETAILS,
        )

    def images(
        self,
        op: Op,
        stream: StreamRecord,
        path: str,
        sets: tuple[dict[str, str], dict[str, str]],
        read_item: ReadItem | None = None,
    ) -> tuple[dict[str, Value] | None, dict[str, Value] | None]:
        """Return the old and the new item; that of a delete without an old image is its key.

        An empty object is no image: each item has its key.

        Args:
            op: The operation.
            stream: The items.
            path: The place of the record.
            sets: Takes the types of the sets in the new and the old item.
            read_item: Returns the image of an item, if its attributes have another form.

        Raises:
            DecodeError: An image is missing or unexpected, or a value is not of its type.
        """
        read_item = read_item or self._image
        new, old = stream.NewImage or None, stream.OldImage or None
        if op is _DELETE:
            if new is not None:
                raise DecodeError(
                    "a deleted item has no new image",
                    code=ReasonCode.UNEXPECTED_IMAGE,
                    path=f"{path}.dynamodb.NewImage",
                )
            if old is not None:
                return read_item(old, path, "OldImage", sets[1]), None
            if stream.Keys is None:
                raise DecodeError(
                    "neither key nor old image",
                    code=ReasonCode.MISSING_IMAGE,
                    path=f"{path}.dynamodb.Keys",
                )
            return read_item(stream.Keys, path, "Keys", sets[1]), None
        if new is None:
            raise DecodeError(
                "no new image: set the view type of the stream to NEW_AND_OLD_IMAGES or NEW_IMAGE",
                code=ReasonCode.MISSING_IMAGE,
                path=f"{path}.dynamodb.NewImage",
            )
        if old is None:
            return None, read_item(new, path, "NewImage", sets[0])
        if op is _CREATE:
            raise DecodeError(
                "a new item has no old image",
                code=ReasonCode.UNEXPECTED_IMAGE,
                path=f"{path}.dynamodb.OldImage",
            )
        before = read_item(old, path, "OldImage", sets[1])
        return before, read_item(new, path, "NewImage", sets[0])

    def _image(
        self, attributes: Attributes, path: str, field: str, sets: dict[str, str]
    ) -> dict[str, Value]:
        """Return an image, and add the types of its sets to *sets*."""
        image: dict[str, Value] = {}
        for name, attribute in attributes.items():
            kind = value = None
            if len(attribute) == 1:
                ((kind, value),) = attribute.items()
                if kind == "S" and value.__class__ is str:
                    image[name] = value
                    continue
                if kind in SET_TYPES:
                    sets[name] = kind
            try:
                image[name] = number(value) if kind == "N" else self.read_attribute(attribute)
            except DecodeError as error:
                place = f"{path}.dynamodb.{field}.{name}"
                raise DecodeError(error.reason, code=error.code, path=place) from None
        return image

    def _table(self, record: Record) -> TableId:
        """Return the table of a record: by its name, or by the ARN of its stream."""
        name = record.tableName
        text = name if name is not None else record.eventSourceARN or ""
        table = self._tables.get(text)  # shared, because reducers cache by identity
        if table is None:
            if name is None and (match := _TABLE.fullmatch(text)):
                name = match[1]
            table = self._tables.add(text, TableId(name=name))
        return table

    def position_of(
        self, record: Record, time_ns: int | None, path: str
    ) -> SequencePosition | None:
        """Return the position: the sequence number of the stream, or the time and the id.

        Raises:
            DecodeError: The sequence number is not one.
        """
        if not self._has_positions:
            return None
        text = record.dynamodb.SequenceNumber
        if text is None:
            return time_position(time_ns, record.eventID)
        if not _SEQUENCE.fullmatch(text):
            raise DecodeError(
                "not a sequence number of up to 40 digits",
                code=ReasonCode.WRONG_TYPE,
                path=f"{path}.dynamodb.SequenceNumber",
            )
        return position_of(int(text))

    def _key(self, table: TableId, stream: StreamRecord, path: str) -> Key | None:
        """Return the key: in the order of the options, else in that of the names."""
        if stream.Keys is None:
            return None
        names = tuple(stream.Keys)
        key = self._keys.get((table, names))
        if key is not None:
            return key
        declared = self.declared.find(table)
        if declared is not None and declared.key is not None:
            columns: tuple[str, ...] = declared.key.columns
        else:
            columns = tuple(option_for_table(self._key_options, table) or sorted(names))
        if not names or set(columns) != set(names):
            raise DecodeError(
                "the key attributes are not those of the options",
                code=ReasonCode.MISSING_FIELD,
                path=f"{path}.dynamodb.Keys",
            )
        return self._keys.add((table, names), Key(columns, KeyOrigin.PAYLOAD))


def time_position(time_ns: int | None, event_id: str | None) -> SequencePosition | None:
    """Return the position of a record of Kinesis, which has no sequence number.

    The id makes positions of one time different; it does not order them.
    """
    if time_ns is None or not event_id:
        return None
    digest = hashlib.blake2b(event_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return SequencePosition((time_ns // 1000 << 64) | int.from_bytes(digest, "big"))


def position_of(sequence_number: int) -> SequencePosition:
    """Return the position of a sequence number, which may have more bits than a position's value.

    >>> position_of(300000000000000499659)
    SequencePosition(value=300000000000000499, row=659)
    """
    return SequencePosition(*divmod(sequence_number, _ROWS))


def sequence_number(position: Position | None) -> str | None:
    """Return the sequence number of a position; ``None`` if it is none of DynamoDB.

    >>> sequence_number(SequencePosition(300000000000000499, 659))
    '300000000000000499659'
    """
    if not isinstance(position, SequencePosition) or not 0 <= position.row < _ROWS:
        return None
    text = str(position.value * _ROWS + position.row)
    is_one = text.isdecimal() and _LEAST_DIGITS <= len(text) <= _MOST_DIGITS
    return text if is_one else None


def is_expired(record: Record) -> bool:
    """Return whether a record is the delete of an item whose time to live is over."""
    if record.eventName != "REMOVE" or record.userIdentity is None:
        return False
    user = {name.lower(): value for name, value in record.userIdentity.items()}
    return all(user.get(name) == value for name, value in _TTL.items())


def _typed(declared: DeclaredTable, image: Row, path: str, *, is_whole: bool) -> Row:
    """Return the image of a declared table: values of its types, NULL for missing attributes.

    Raises:
        DecodeError: A value is not of its type.
    """
    by_name = declared.schema.by_name
    values: dict[str, Any] = {}
    for name, value in image.items():
        column = by_name.get(name)
        values[name] = value if column is None else json_value(value, column.type)
    typed: Row = declared.typed(values, f"{path}.dynamodb")
    if is_whole:
        for name in declared.schema.names - typed.keys():
            typed[name] = None
    return typed


def json_value(value: Value, kind: object) -> Value:
    """Return a value as JSON of a declared type: a nested value, or one of a text type, is text.

    Raises:
        EncodeError: A nested value has no JSON form.
    """
    if type(value) is bytes:
        return base64.b64encode(value).decode("ascii")
    is_text = isinstance(kind, String | Json)
    if isinstance(value, dict | list) or (
        is_text and isinstance(value, bool | int | decimal.Decimal)
    ):
        return json.dumps(value).decode()
    return value


def time_of(stream: StreamRecord, path: str) -> int | None:
    """Return the time of a change: seconds, milliseconds or microseconds, or ISO text.

    Raises:
        DecodeError: It is not a time, or out of range.
    """
    value = stream.ApproximateCreationDateTime
    if value is None:
        return None
    size = _NS_BY_PRECISION.get(stream.ApproximateCreationDateTimePrecision or "")
    if size is not None and type(value) is int and -_MOST < value < _MOST:
        return value * size
    path = f"{path}.dynamodb.ApproximateCreationDateTime"
    if isinstance(value, str):
        try:
            return _TIME(value)
        except ValueError:
            raise DecodeError("not a time", code=ReasonCode.WRONG_TYPE, path=path) from None
    if type(value) is not int and type(value) is not decimal.Decimal:
        raise DecodeError("not a time", code=ReasonCode.WRONG_TYPE, path=path)
    if size is None:
        size = next((unit for limit, unit in _TIMES if -limit < value < limit), None)
    if size is None or not -_MOST < value < _MOST:
        raise DecodeError("out of range", code=ReasonCode.VALUE_OUT_OF_RANGE, path=path)
    return int(value * size)


def details_of(loaded: Loaded, sets: tuple[dict[str, str], dict[str, str]]) -> dict[str, Any]:
    """Return the details of an event."""
    record, stream = loaded.record, loaded.record.dynamodb
    details: dict[str, Any] = dict(loaded.fields)
    if loaded.stream_fields:
        details["dynamodb"] = loaded.stream_fields
    if record.awsRegion is not None:
        details["awsRegion"] = record.awsRegion
    if record.eventID is not None:
        details["eventID"] = record.eventID
    if record.eventVersion is not None:
        details["eventVersion"] = record.eventVersion
    if record.eventSourceARN is not None:
        details["eventSourceARN"] = record.eventSourceARN
    if record.userIdentity is not None:
        details["userIdentity"] = record.userIdentity
    if record.eventSource != EVENT_SOURCE and record.eventSource is not None:
        details["eventSource"] = record.eventSource
    if stream.SizeBytes is not None:
        details["SizeBytes"] = stream.SizeBytes
    if stream.StreamViewType is not None:
        details["StreamViewType"] = stream.StreamViewType
    if sets[0] or sets[1]:
        details[SETS] = {name: types for name, types in zip(IMAGES, sets, strict=True) if types}
    return details
