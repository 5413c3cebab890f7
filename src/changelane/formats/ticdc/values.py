# SPDX-License-Identifier: Apache-2.0
"""The values of TiDB's types in messages of TiCDC, as numbers or as their texts."""

import datetime as dt
import re
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.formats.contract.column_values import Read, reader
from changelane.reason_codes import ReasonCode
from changelane.types import (
    Bits,
    Enum,
    Instant,
    InstantType,
    Integer,
    LogicalType,
    Set,
    Timestamp,
    Value,
    parse_instant,
)
from changelane.types.values import parse_timestamp

MOST_BITS: Final = 4096
"""The most bits that are read and written; a column of TiDB has at most 64."""

_read_number: Final = reader(Integer(64, unsigned=True))
_LOCAL: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?")
_BIG_NUMBER: Final = re.compile(r"[0-9]{1,1240}")


def value_reader(kind: LogicalType, zone: dt.tzinfo) -> Read:
    """Return the function from a JSON value to a value of a type.

    Args:
        kind: The type of the column.
        zone: The zone of TIMESTAMP texts.

    Raises:
        ValueError: TiCDC has no values of the type.
    """
    match kind:
        case Bits():
            return _bits_reader(kind)
        case InstantType():
            return instant_reader(zone)
        case Timestamp():
            return _read_timestamp
        case Enum() if kind.members is not None:
            return _enum_reader(kind.members)
        case Set() if kind.members is not None:
            return _set_reader(kind.members)
        case _:
            return reader(kind, binary="base64")


def wrong_value(kind: str) -> DecodeError:
    """Return the error of a value that is not of its type; the caller adds the path."""
    return DecodeError(f"not a value of {kind}", code=ReasonCode.WRONG_TYPE)


def _bits_reader(kind: Bits) -> Read:
    """Return the function from an unsigned number to bits."""
    width = min(kind.length or 1, MOST_BITS)

    def read(value: Any) -> str:
        number = value
        if type(value) is str and _BIG_NUMBER.fullmatch(value):
            number = int(value)
        if type(number) is not int or number < 0 or number.bit_length() > MOST_BITS:
            raise wrong_value("bits")
        if kind.length is not None and number.bit_length() > kind.length:
            raise DecodeError("out of the range of bits", code=ReasonCode.VALUE_OUT_OF_RANGE)
        return f"{number:0{width}b}"

    return read


def instant_reader(zone: dt.tzinfo) -> Read:
    """Return the function from the text of a TIMESTAMP in a zone to an instant.

    A text with an offset is read, too: only so can an hour be written that a zone has twice.
    """
    is_utc = zone is dt.UTC

    def read(value: Any) -> Instant | str:
        if type(value) is not str:
            raise wrong_value("instant")
        if not _LOCAL.fullmatch(value):
            return _other_instant(value)
        local = parse_timestamp(value)
        if isinstance(local, str):
            return value  # a zero date
        digits = max(len(value) - 20, 0)
        if is_utc:
            return Instant.of(local.replace(tzinfo=dt.UTC), digits)
        try:
            return Instant.of(local.replace(tzinfo=zone).astimezone(dt.UTC), digits)
        except OverflowError:
            return value

    return read


def _read_timestamp(value: Any) -> dt.datetime | str:
    if type(value) is not str:
        raise wrong_value("timestamp")
    timestamp = parse_timestamp(value)
    if timestamp.__class__ is str and not _TIMESTAMP.fullmatch(value):
        raise wrong_value("timestamp")
    return timestamp


_TIMESTAMP: Final = re.compile(
    r"[+-]?infinity|[+-]?[0-9]{1,9}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(?:\.[0-9]{1,12})?(?: BC)?"
)
"""Local times outside of Python's calendar, such as zero dates."""
_INSTANT: Final = re.compile(
    r"[+-]?infinity|[+-]?[0-9]{1,9}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(?:\.[0-9]{1,12})?(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?(?: BC)?"
)
"""Instants outside of Python's calendar, or with an offset."""


def _other_instant(text: str) -> Instant | str:
    if not _INSTANT.fullmatch(text):
        raise wrong_value("instant")
    return parse_instant(text)


def _enum_reader(members: tuple[str, ...]) -> Read:
    """Return the function from the index of a member, from 1, to the member; 0 is empty text."""
    labels = ("", *members)

    def read(value: Any) -> Value:
        index: Any = _read_number(value)
        if index >= len(labels):
            raise DecodeError("no such member of the enum", code=ReasonCode.VALUE_OUT_OF_RANGE)
        return labels[index]

    return read


def _set_reader(members: tuple[str, ...]) -> Read:
    """Return the function from a bit mask to the members, separated by commas."""

    def read(value: Any) -> Value:
        if type(value) is int and value < 0:  # the two's complement of a mask of 64 members
            value += 1 << 64
        mask: Any = _read_number(value)
        if mask >> len(members):
            raise DecodeError("no such members of the set", code=ReasonCode.VALUE_OUT_OF_RANGE)
        return ",".join(label for bit, label in enumerate(members) if mask >> bit & 1)

    return read
