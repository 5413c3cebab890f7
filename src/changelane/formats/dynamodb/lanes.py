# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``dynamodb-json`` (:mod:`changelane.formats.contract.lane`).

A plain message is one record with documented keys only and no user. It has the table and the names
of the key of the lane. The items of a declared table have declared attributes; other items have the
attributes of the lane in its order, or some of them before an update. A delete has its old item, or
without declaration its key.
Attributes are texts, numbers in texts, or have a type of the item that opens the lane.
"""

import decimal
from collections.abc import Callable, Hashable
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET

from changelane.event import DataChange, Op
from changelane.formats.contract.column_values import Read
from changelane.formats.contract.lane import (
    LaneColumn,
    NotPlainError,
    PlainChange,
    ReadChange,
    kinds_of,
    literal,
    plain_class,
    values_getter,
)
from changelane.formats.contract.probed_lanes import ProbedLanes
from changelane.formats.dynamodb.attributes import FEW_DIGITS, SETS, fraction
from changelane.formats.dynamodb.decode import (
    OPERATIONS,
    Reader,
    ReadItem,
    details_of,
    json_value,
    time_of,
)
from changelane.formats.dynamodb.wire import Loaded, Record, StreamRecord
from changelane.message import Message
from changelane.schema import Column
from changelane.types import UNKNOWN, String, Value

_Names = dict[str, msgspec.Raw]
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE
_ITEMS: Final = ("Keys", "NewImage", "OldImage")
_USUAL_KINDS: Final = ("S", "N")
"""The types of attributes of which most items have most."""


class _ProbeStream(msgspec.Struct, gc=False):
    Keys: _Names | None = None
    NewImage: _Names | None = None
    OldImage: _Names | None = None


class _Probe(msgspec.Struct, gc=False):
    """The part of a record that identifies its lane."""

    dynamodb: _ProbeStream
    tableName: str | None = None  # noqa: N815 - the producer's name
    eventSourceARN: str | None = None  # noqa: N815 - the producer's name


_probe: Final = msgspec.json.Decoder(_Probe).decode
_decode: Final = msgspec.json.Decoder(Record, float_hook=decimal.Decimal).decode


def lanes_of(reader: Reader) -> ProbedLanes:
    """Return the lanes of a codec."""

    def open_lane(message: Message, change: DataChange) -> DynamoDbLane:
        return DynamoDbLane(reader, message.value or b"", change)

    return ProbedLanes(_identity_of, open_lane)


def _identity_of(value: bytes) -> Hashable:
    """Return the table of a record, the names of its key and of its attributes."""
    probe = _probe(value)
    stream = probe.dynamodb
    item = stream.NewImage or stream.OldImage or stream.Keys or {}
    return probe.tableName, probe.eventSourceARN, tuple(stream.Keys or ()), tuple(item)


class DynamoDbLane:
    """Reads the plain records of one table; see :class:`~changelane.formats.contract.lane.Lane`.

    Raises:
        NotPlainError: The record is not plain.
        MsgspecError: The record is not plain.
    """

    deleted_columns: tuple[str, ...] | None = None

    def __init__(self, reader: Reader, value: bytes, change: DataChange) -> None:
        self._reader = reader
        self._record = record = _decode(value)
        items = [getattr(record.dynamodb, name) or {} for name in _ITEMS]
        attributes = (attribute for item in items for attribute in item.values())
        self._kinds = tuple(dict.fromkeys((*_USUAL_KINDS, *(k for a in attributes for k in a))))
        self._key_names = None if record.dynamodb.Keys is None else tuple(record.dynamodb.Keys)
        self._key_columns = () if change.key is None else change.key.columns
        declared = reader.declared.find(change.table)
        self.is_named = declared is None
        if declared is None:
            item = change.before if change.op is Op.DELETE else change.after
            self.columns = tuple(LaneColumn(Column(name, UNKNOWN), Any) for name in item or ())
        elif declared.schema == change.schema:
            self.columns = tuple(
                _declared_column(column, declared.readers[column.name])
                for column in declared.schema.columns
            )
        else:
            raise NotPlainError  # an item with further attributes
        if not self.columns:
            raise NotPlainError

    def reader(self, row: Any) -> ReadChange:
        """Return the reader of records."""
        return self._read_change(row, has_details=False)

    def event_reader(self, row: Any, *, has_positions: bool) -> ReadChange:
        """Return the reader of events (:class:`EventLane`)."""
        del has_positions  # a record has the whole position
        return self._read_change(row, has_details=True)

    def _read_change(self, row: Any, *, has_details: bool) -> ReadChange:
        """Return the reader of records.

        Args:
            row: The class of the images.
            has_details: The records become events: they state whether they have details, and the
                old item of an update has all attributes.
        """
        decode, images, read_item = self._decoder(), self._reader.images, self._item_reader()
        position_of = self._reader.position_of
        key_names, key_columns, is_declared = self._key_names, self._key_columns, not self.is_named
        names = tuple(column.column.name for column in self.columns)
        name_set, column_count = frozenset(names), len(names)
        values_of = values_getter(names, self.columns, is_named=True)
        no_names: frozenset[str] = frozenset()
        has_sets = not SETS.isdisjoint(self._kinds)
        no_sets: tuple[dict[str, str], dict[str, str]] = ({}, {})

        def image_of(image: dict[str, Any], part_of: frozenset[str]) -> Any:
            """Return an image with all columns, or without types with a part of these names."""
            for name in key_columns:
                if image[name] is None:
                    raise NotPlainError
            if not is_declared:
                if tuple(image) != names and not image.keys() < part_of:
                    raise NotPlainError
                return image
            if len(image) == column_count:
                return row(*values_of(image))
            if not image.keys() <= name_set:
                raise NotPlainError
            return row(*map(image.get, names))

        def read(value: bytes, _key: bytes | None) -> PlainChange | None:
            record = decode(value)
            op, stream = OPERATIONS[record.eventName], record.dynamodb
            if (None if stream.Keys is None else tuple(stream.Keys)) != key_names:
                return None
            if is_declared and op is _DELETE and not stream.OldImage:
                return None
            sets = ({}, {}) if has_sets else no_sets
            before, after = images(op, stream, "", sets, read_item)
            if before is not None:
                has_part = op is _UPDATE and not has_details
                before = image_of(before, name_set if has_part else no_names)
            if after is not None:
                after = image_of(after, no_names)
            time_ns = time_of(stream, "")
            return (
                op._value_,
                before,
                after,
                position_of(record, time_ns, ""),
                None,
                None,
                time_ns,
                None,
                has_details and bool(details_of(Loaded(record, {}, {}), sets)),
            )

        return read

    def _item_reader(self) -> ReadItem:
        """Return the reader of items, whose attributes are objects; see :meth:`_decoder`."""
        kinds, read_attribute = self._kinds, self._reader.read_attribute
        values_of, unset = msgspec.structs.astuple, UNSET
        other_count = len(kinds) - len(_USUAL_KINDS)

        def other_value(values: tuple[Any, ...], name: str, sets: dict[str, str]) -> Value:
            """Return the value of an attribute with one of the types that few items have."""
            ((kind, value),) = (
                (kind, value)
                for kind, value in zip(kinds, values, strict=True)
                if value is not unset and value is not None
            )
            if kind in SETS:
                sets[name] = kind
            return read_attribute({kind: value})

        def read_item(
            attributes: dict[str, Any], _path: str, _field: str, sets: dict[str, str]
        ) -> dict[str, Value]:
            image: dict[str, Value] = {}
            for name, attribute in attributes.items():
                text, digits = attribute.S, attribute.N
                if other_count:
                    values = values_of(attribute)
                    type_count = other_count - values.count(unset)
                    if type_count:
                        if type_count > 1 or text is not None or digits is not None:
                            raise NotPlainError
                        image[name] = other_value(values, name, sets)
                        continue
                if digits is None:
                    if text is None:
                        raise NotPlainError
                    image[name] = text
                elif text is not None:
                    raise NotPlainError
                elif digits.isdecimal() and digits.isascii() and len(digits) <= FEW_DIGITS:
                    image[name] = int(digits)
                else:
                    image[name] = fraction(digits)
            return image

        return read_item

    def _decoder(self) -> Callable[[bytes], Any]:
        """Return the decoder of a record; an error = the record is not plain."""
        kinds = kinds_of(Record)
        place = {name: getattr(self._record, name) for name in ("tableName", "eventSourceARN")}
        kinds |= {name: literal(value) for name, value in place.items()}
        usual = dict.fromkeys(_USUAL_KINDS, (str, None))  # null is no value of an attribute
        attribute = plain_class(dict.fromkeys(self._kinds, (Any, UNSET)) | usual)
        item: Any = dict[str, attribute]  # type: ignore[valid-type]
        items = dict.fromkeys(_ITEMS, (item | None, None))
        kinds |= {
            "eventName": (Literal[tuple(OPERATIONS)],),
            "dynamodb": (plain_class(kinds_of(StreamRecord) | items),),
            "userIdentity": (None, None),
        }
        return msgspec.json.Decoder(plain_class(kinds), float_hook=decimal.Decimal).decode


def _declared_column(column: Column, read: Read) -> LaneColumn:
    """Return a column of a declared table, whose values the event path converts to JSON first."""
    kind = column.type

    def read_value(value: Value) -> Value:
        return read(json_value(value, kind))

    return LaneColumn(column, Any, read_value, str if isinstance(kind, String) else None)
