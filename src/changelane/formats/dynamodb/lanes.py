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
from msgspec import UNSET, UnsetType

from changelane.event import DataChange, Op
from changelane.formats.contract.column_values import Read
from changelane.formats.contract.lane import (
    LaneColumn,
    NotPlainError,
    PlainChange,
    ReadChange,
    literal,
    values_getter,
)
from changelane.formats.contract.probed_lanes import ProbedLanes
from changelane.formats.dynamodb.attributes import FEW_DIGITS, SETS, number
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
        read_images = self._image_reader(row, has_whole_before=False)
        position_of = self._reader.position_of

        def read(value: bytes, _key: bytes | None) -> PlainChange | None:
            record, op, before, after, _ = read_images(value)
            time_ns = time_of(record.dynamodb, "")
            position = position_of(record, time_ns, "")
            return op, before, after, position, None, None, time_ns, None, False

        return read

    def event_reader(self, row: Any, *, has_positions: bool) -> ReadChange:
        """Return the reader of events (:class:`EventLane`)."""
        del has_positions  # a record has the whole position
        read_images = self._image_reader(row, has_whole_before=True)
        position_of = self._reader.position_of

        def read(value: bytes, _key: bytes | None) -> PlainChange | None:
            record, op, before, after, sets = read_images(value)
            time_ns = time_of(record.dynamodb, "")
            has_details = bool(details_of(Loaded(record, {}, {}), sets))
            position = position_of(record, time_ns, "")
            return op, before, after, position, None, None, time_ns, None, has_details

        return read

    def _image_reader(self, row: Any, *, has_whole_before: bool) -> Callable[[bytes], Any]:
        """Return the reader of records: record, operation, images and the types of their sets.

        It raises an exception if a record is not plain.

        Args:
            row: The class of the images.
            has_whole_before: The old item of an update has all attributes.
        """
        decode, images, read_item = self._decoder(), self._reader.images, self._item_reader()
        key_names, key_columns, is_declared = self._key_names, self._key_columns, not self.is_named
        names = tuple(column.column.name for column in self.columns)
        name_set, column_count = frozenset(names), len(names)
        values_of = values_getter(names, self.columns, is_named=True)

        def image_of(image: dict[str, Any] | None, *, may_lack_columns: bool = False) -> Any:
            if image is None:
                return None
            for name in key_columns:
                if image.get(name) is None:
                    raise NotPlainError
            if not is_declared:
                if tuple(image) != names and not (may_lack_columns and image.keys() < name_set):
                    raise NotPlainError
                return image
            if len(image) == column_count:
                return row(*values_of(image))
            if not image.keys() <= name_set:
                raise NotPlainError
            return row(*map(image.get, names))

        def read(value: bytes) -> Any:
            record = decode(value)
            op, stream = OPERATIONS[record.eventName], record.dynamodb
            if (None if stream.Keys is None else tuple(stream.Keys)) != key_names:
                raise NotPlainError
            if is_declared and op is Op.DELETE and not stream.OldImage:
                raise NotPlainError
            sets: tuple[dict[str, str], dict[str, str]] = ({}, {})
            before, after = images(op, stream, "", sets, read_item)
            may_lack_columns = op is Op.UPDATE and not has_whole_before
            old = image_of(before, may_lack_columns=may_lack_columns)
            return record, op._value_, old, image_of(after), sets

        return read

    def _item_reader(self) -> ReadItem:
        """Return the reader of items, whose attributes are objects; see :meth:`_decoder`."""
        kinds, read_attribute = self._kinds, self._reader.read_attribute
        values_of, unset = msgspec.structs.astuple, UNSET
        has_others, unset_count = len(kinds) > len(_USUAL_KINDS), len(kinds) - 1

        def read_item(
            attributes: dict[str, Any], _path: str, sets: dict[str, str]
        ) -> dict[str, Value]:
            image: dict[str, Value] = {}
            for name, attribute in attributes.items():
                text, digits = attribute.S, attribute.N
                if has_others:
                    values = values_of(attribute)
                    if values.count(unset) != unset_count:
                        raise NotPlainError
                    if text is unset and digits is unset:
                        ((kind, value),) = (
                            (kind, value)
                            for kind, value in zip(kinds, values, strict=True)
                            if value is not unset
                        )
                        if kind in SETS:
                            sets[name] = kind
                        image[name] = read_attribute({kind: value})
                        continue
                if digits is unset:
                    if text is unset:
                        raise NotPlainError
                    image[name] = text
                elif text is not unset:
                    raise NotPlainError
                elif digits.isdecimal() and digits.isascii() and len(digits) <= FEW_DIGITS:
                    image[name] = int(digits)
                else:
                    image[name] = number(digits)
            return image

        return read_item

    def _decoder(self) -> Callable[[bytes], Any]:
        """Return the decoder of a record; an error = the record is not plain."""
        kinds: dict[str, tuple[Any, ...]] = {
            field.name: (field.type, field.default)
            for field in msgspec.structs.fields(Record)
            if field.default is not msgspec.NODEFAULT
        }
        place = {name: getattr(self._record, name) for name in ("tableName", "eventSourceARN")}
        kinds |= {name: literal(value) for name, value in place.items()}
        usual = dict.fromkeys(_USUAL_KINDS, (str | UnsetType, UNSET))
        attribute = _class_of(dict.fromkeys(self._kinds, (Any, UNSET)) | usual)
        stream_kinds: dict[str, tuple[Any, ...]] = {
            field.name: (field.type, field.default)
            for field in msgspec.structs.fields(StreamRecord)
        }
        item: Any = dict[str, attribute]  # type: ignore[valid-type]
        items = dict.fromkeys(_ITEMS, (item | None, None))
        kinds |= {
            "eventName": (Literal[tuple(OPERATIONS)],),
            "dynamodb": (_class_of(stream_kinds | items),),
            "userIdentity": (None, None),
        }
        return msgspec.json.Decoder(_class_of(kinds), float_hook=decimal.Decimal).decode


def _class_of(kinds: dict[str, tuple[Any, ...]]) -> Any:
    fields: list[Any] = [(name, *kind) for name, kind in kinds.items()]
    return msgspec.defstruct(
        "PlainPart", fields, kw_only=True, forbid_unknown_fields=True, gc=False
    )


def _declared_column(column: Column, read: Read) -> LaneColumn:
    """Return a column of a declared table, whose values the event path converts to JSON first."""
    kind = column.type

    def read_value(value: Value) -> Value:
        return read(json_value(value, kind))

    return LaneColumn(column, Any, read_value, str if isinstance(kind, String) else None)
