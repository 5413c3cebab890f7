# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``plain-json`` and ``changelog-json`` (:mod:`changelane.formats.contract.lane`).

A plain message has the key columns of the lane, from its message key or the option ``schemas``,
and a row with the values of its message key. With declared columns, the row of a delete has all of
them, and another row lacks only columns that are NULL. The first half of an update is not plain.
"""

import decimal
from collections.abc import Callable, Hashable
from typing import Any, Final

import msgspec

from changelane.event import DataChange, KeyOrigin, Op
from changelane.formats.contract import json
from changelane.formats.contract.lane import NotPlainError, PlainChange, ReadChange
from changelane.formats.contract.probed_lanes import ProbedLanes
from changelane.formats.contract.untyped_lanes import EventForm, UntypedLane
from changelane.formats.plain.changelog_wire import BEFORE, KINDS, Change
from changelane.formats.plain.tables import WRAPPED, Keys, Tables, with_key
from changelane.message import Message

_DELETED: Final = Op.DELETE
_UPDATE: Final = Op.UPDATE.value
_NO_KEY: Final = (None, dict[str, Any]())

_names: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _ProbedChange(msgspec.Struct, gc=False):
    data: dict[str, msgspec.Raw]


_change: Final = msgspec.json.Decoder(_ProbedChange).decode


def upsert_lanes(plain_tables: Tables, key_reader: Keys) -> ProbedLanes:
    """Return the lanes of a codec of ``plain-json``."""

    def open_lane(message: Message, change: DataChange) -> UntypedLane:
        _, declared = plain_tables.of(message.topic)
        if declared is not None and declared.schema.names >= WRAPPED:
            raise NotPlainError  # a row with these columns only is none
        return UntypedLane(
            change, declared, lambda event_form: _upsert_reader(key_reader, change, event_form)
        )

    return ProbedLanes(_names_of, open_lane)


def _names_of(value: bytes) -> Hashable | None:
    """Return the columns of a row; ``None`` if it may be a row with a schema block."""
    names = tuple(_names(value))
    return None if WRAPPED.issubset(names) else names


def _upsert_reader(key_reader: Keys, opened: DataChange, event_form: EventForm) -> ReadChange:
    names = event_form.names
    decode = _decoder(event_form.row if names is not None else event_form.omitting_row())
    has_key = _key_check(key_reader, opened, event_form)
    has_own_key = _integer_key_check(opened, event_form)
    read_key = key_reader.read

    def read(value: bytes, message_key: bytes | None) -> PlainChange | None:
        row = decode(value)
        if names is not None:
            if tuple(row) != names or not has_own_key(row, message_key):
                key, key_row = read_key(message_key) or _NO_KEY
                row = with_key(row, key_row)
                if key != opened.key or tuple(row) != names:
                    return None
        elif not has_own_key(row, message_key) and not has_key(row, message_key):
            return None
        return _UPDATE, None, row, None, None, None, None, None, False

    return read


def changelog_lanes(plain_tables: Tables, key_reader: Keys) -> ProbedLanes:
    """Return the lanes of a codec of ``changelog-json``."""

    def open_lane(message: Message, change: DataChange) -> UntypedLane:
        _, declared = plain_tables.of(message.topic)
        return UntypedLane(
            change, declared, lambda event_form: _changelog_reader(key_reader, change, event_form)
        )

    return ProbedLanes(lambda value: tuple(_change(value).data), open_lane)


def _changelog_reader(key_reader: Keys, opened: DataChange, event_form: EventForm) -> ReadChange:
    names = event_form.names
    decode_whole = _decoder(_change_class(event_form.row))
    decode = (
        decode_whole if names is not None else _decoder(_change_class(event_form.omitting_row()))
    )
    has_key = _key_check(key_reader, opened, event_form)
    has_own_key = _integer_key_check(opened, event_form)

    def read(value: bytes, message_key: bytes | None) -> PlainChange | None:
        change = decode(value)
        op, row = KINDS[change.op], change.data
        if change.op == BEFORE:
            return None
        if names is not None:
            if tuple(row) != names:
                return None
        elif op is _DELETED:
            row = decode_whole(value).data
        if not has_own_key(row, message_key) and not has_key(row, message_key):
            return None
        before, after = (row, None) if op is _DELETED else (None, row)
        return op._value_, before, after, None, None, None, None, None, False

    return read


def _key_check(
    key_reader: Keys, opened: DataChange, event_form: EventForm
) -> Callable[[Any, bytes | None], bool]:
    """Return the check whether a row and its message key have the key of the lane.

    The values of the key are not NULL, because a column that the row omits has none.
    """
    key, read_key = opened.key, key_reader.read
    values_of = event_form.values_of(() if key is None else key.columns)
    if key is None or key.origin is not KeyOrigin.MESSAGE:
        return lambda row, data: read_key(data) is None and None not in values_of(row)

    def has_key(row: Any, data: bytes | None) -> bool:
        message_key, key_row = read_key(data) or _NO_KEY
        values = values_of(row)
        return message_key == key and None not in values and tuple(key_row.values()) == values

    return has_key


def _integer_key_check(
    opened: DataChange, event_form: EventForm
) -> Callable[[Any, bytes | None], bool]:
    """Return a fast check for a key of one whole number; ``False`` = unknown.

    The message key must have the bytes of the row's value as Flink writes them.
    """
    key = opened.key
    if key is None or key.origin is not KeyOrigin.MESSAGE or len(key.columns) != 1:
        return lambda _row, _data: False
    value_of = event_form.value_of(key.columns[0])
    start = json.dumps(dict.fromkeys(key.columns, 0))[:-2].replace(b"%", b"%%")
    pattern = start + b"%d}"

    def has_own_key(row: Any, data: bytes | None) -> bool:
        value = value_of(row)
        return value.__class__ is int and data == pattern % value

    return has_own_key


def _change_class(row: Any) -> Any:
    return msgspec.defstruct(
        "PlainChange", [("data", row)], bases=(Change,), kw_only=True, forbid_unknown_fields=True
    )


def _decoder(kind: Any) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(kind, float_hook=decimal.Decimal).decode
