# SPDX-License-Identifier: Apache-2.0
"""JSON values of messages without types, read as values of declared column types.

A producer may write a number as a number or as text. Every reader returns the exact value, or
raises an error: it never rounds, and never interprets a text of another type.
"""

import binascii
import datetime as dt
import decimal
import math
import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from changelane.errors import DecodeError
from changelane.formats.contract import json
from changelane.formats.contract.lane import LaneColumn
from changelane.reason_codes import ReasonCode
from changelane.schema import Column
from changelane.types import (
    Bits,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Enum,
    Float,
    Instant,
    InstantType,
    Integer,
    Json,
    LogicalType,
    Set,
    String,
    Text,
    Time,
    Timestamp,
    TimeTz,
    Unknown,
    Uuid,
    Value,
    Xml,
    Year,
    parse_instant,
)
from changelane.types.values import parse_date, parse_timestamp

Read = Callable[[Any], Value]
"""A non-null JSON value to the value; raises :class:`DecodeError` without a path."""

Binary = Literal["hex", "base64"]
"""The text form of bytes; hexadecimal text may begin with ``0x`` or, as in PostgreSQL, ``\\x``."""

READABLE: Final = (
    *(Bits, Boolean, Bytes, Date, Decimal, Enum, Float, InstantType, Integer, Json, Set, String),
    *(Text, Time, Timestamp, TimeTz, Unknown, Uuid, Xml, Year),
)
"""The types that :func:`reader` reads."""

_WHOLE_DIGITS: Final = 40
"""The most digits of a whole number in exponent form: more than any integer type has."""
_FEW_DIGITS: Final = 19
"""Digits of a number without a check for other notations: less than those of 64 bits."""
_MOST_YEAR: Final = 9999
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]{1,9})?")
_NON_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_HEX: Final = re.compile(r"(?:0[xX]|\\x)?((?:[0-9A-Fa-f]{2})*+)")
_BITS: Final = re.compile(r"[01]*+")
_TIME: Final = re.compile(r"-?[0-9]{2,3}:[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?")
_OFFSET: Final = re.compile(r"(?:Z|([+-][0-9]{2})(?::?([0-9]{2}))?)")
# Dates outside of Python's calendar: zero dates, invalid days, far years, BC, infinity.
_DATE: Final = re.compile(r"[+-]?infinity|[+-]?[0-9]{1,9}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP: Final = re.compile(
    r"[+-]?infinity|[+-]?[0-9]{1,9}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,12})?"
)
_TRUTH: Final = {"true": True, "false": False, "1": True, "0": False, 1: True, 0: False}


def reader(kind: LogicalType, *, binary: Binary = "hex") -> Read:
    """Return the function from a JSON value to a value of a type.

    Raises:
        ValueError: Values of the type have no documented text (:data:`READABLE`).
    """
    match kind:
        case Unknown():
            return whole_unless_fraction
        case Boolean():
            return _read_boolean
        case Integer():
            return _read_integer(kind, *kind.range())
        case Year():
            return _read_integer(kind, 0, _MOST_YEAR)
        case Decimal():
            return _read_decimal
        case Float():
            return _read_float
        case Bytes():
            return _read_base64 if binary == "base64" else _read_hex
        case Bits():
            return _matching(kind, _BITS)
        case Date():
            return _read_date
        case Time():
            return _matching(kind, _TIME)
        case TimeTz():
            return _read_time_with_offset
        case Timestamp():
            return _read_timestamp
        case InstantType():
            return _read_instant
        case Json():
            return _read_json
        case String() | Uuid() | Xml() | Enum() | Set() | Text():
            return _matching(kind, None)
        case _:
            raise ValueError


def lane_column(column: Column, read: Read) -> LaneColumn:
    """Return how a lane reads the values of a column.

    The type of the JSON has the usual forms of a value. A message with another form is not plain.

    Args:
        column: The column.
        read: Its reader (:func:`reader`).
    """
    match column.type:
        case String() | Uuid() | Xml() | Enum() | Set() | Text():
            return LaneColumn(column, str)
        case Bytes() | Bits() | Date() | Time() | TimeTz() | Timestamp() | InstantType():
            return LaneColumn(column, str, read)
        case Boolean():
            return LaneColumn(column, bool | str | int, read, bool)
        case Integer(64, True):
            return LaneColumn(column, int | str, read)
        case Integer() | Year():
            low, high = (0, _MOST_YEAR) if isinstance(column.type, Year) else column.type.range()
            return LaneColumn(column, Annotated[int, Meta(ge=low, le=high)] | str, read, int)
        case Decimal():
            return LaneColumn(column, Any, read, decimal.Decimal)
        case Json():
            return LaneColumn(column, Any, read, str)
        case _:
            return LaneColumn(column, Any, read)


_MOST_DIGITS: Final = 100

read_fraction: Final = decimal.Context(
    prec=_MOST_DIGITS,
    Emax=_MOST_DIGITS - 2,
    clamp=1,
    traps=[decimal.Clamped, decimal.Rounded, decimal.InvalidOperation],
).create_decimal
"""Reads a JSON number with a fraction or an exponent in a lane of columns without types.

It raises an exception for a number that :func:`whole_unless_fraction` may make an integer, and for
one of more than 100 digits: with ``clamp``, the greatest exponent of the context is ``Emax - prec +
1``, which is -1. A function in Python takes as long as the rest of such a number.
"""


def whole_unless_fraction(value: Value) -> Value:
    """Return a JSON value, with a whole number in exponent form as an integer.

    Some producers write long integers in exponent form, such as ``1.2345E18``.

    >>> whole_unless_fraction(decimal.Decimal("1.2345E18")), whole_unless_fraction("1E2")
    (1234500000000000000, '1E2')
    """
    if type(value) is not decimal.Decimal:
        return value
    exponent = value.as_tuple().exponent
    is_whole = isinstance(exponent, int) and exponent >= 0 and value.adjusted() < _WHOLE_DIGITS
    return int(value) if is_whole else value


def _error(kind: LogicalType, reason: str = "") -> DecodeError:
    return DecodeError(f"not a value of {kind}{reason}", code=ReasonCode.WRONG_TYPE)


def _number(kind: LogicalType, value: Any) -> decimal.Decimal:
    """Return a JSON number, or a text of one, as an exact number."""
    if type(value) is int or type(value) is decimal.Decimal:
        return decimal.Decimal(value)
    if type(value) is str and _NUMBER.fullmatch(value):
        return decimal.Decimal(value)
    raise _error(kind)


def _read_boolean(value: Any) -> bool:
    if type(value) is bool:
        return value
    truth = (
        _TRUTH.get(value.lower() if type(value) is str else value) if _is_scalar(value) else None
    )
    if truth is None:
        raise _error(Boolean())
    return truth


def _is_scalar(value: Any) -> bool:
    return type(value) in {str, int}


def _read_integer(kind: LogicalType, low: int, high: int) -> Read:
    def read(value: Any) -> int:
        number = value
        if type(value) is str and len(value) < _FEW_DIGITS and _is_digits(value):
            number = int(value)
        elif type(value) is not int:
            exact = _number(kind, value)
            if exact.adjusted() >= _WHOLE_DIGITS or exact != exact.to_integral_value():
                raise _error(kind)
            number = int(exact)
        if low <= number <= high:
            return number  # type: ignore[no-any-return]
        raise DecodeError(f"out of the range of {kind}", code=ReasonCode.VALUE_OUT_OF_RANGE)

    return read


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _read_decimal(value: Any) -> decimal.Decimal:
    if type(value) is str and value in _NON_FINITE:
        return decimal.Decimal(value)
    return _number(Decimal(), value)


def _read_float(value: Any) -> float:
    if type(value) is str and value in _NON_FINITE:
        return float(value)
    number = float(_number(Float(), value))
    if math.isinf(number):
        raise DecodeError(f"out of the range of {Float()}", code=ReasonCode.VALUE_OUT_OF_RANGE)
    return number


def _text(kind: LogicalType, value: Any) -> str:
    if type(value) is not str:
        raise _error(kind)
    return value


def _matching(kind: LogicalType, pattern: "re.Pattern[str] | None") -> Read:
    def read(value: Any) -> str:
        text = _text(kind, value)
        if pattern is not None and not pattern.fullmatch(text):
            raise _error(kind)
        return text

    return read


def _read_json(value: Any) -> str:
    """Return JSON as text; some producers write it nested."""
    return value if type(value) is str else json.dumps(value).decode()


def _read_hex(value: Any) -> bytes:
    match = _HEX.fullmatch(_text(Bytes(), value))
    if match is None:
        raise _error(Bytes(), " (the option binary is hex)")
    return bytes.fromhex(match[1])


def _read_base64(value: Any) -> bytes:
    text = _text(Bytes(), value)
    try:
        return binascii.a2b_base64(text, strict_mode=True) if text else b""
    except (binascii.Error, ValueError):
        raise _error(Bytes(), " (the option binary is base64)") from None


def _read_date(value: Any) -> dt.date | str:
    text = _text(Date(), value)
    date = parse_date(text)
    if date.__class__ is str and not _DATE.fullmatch(text):
        raise _error(Date())
    return date


def _read_time_with_offset(value: Any) -> str:
    text = _text(TimeTz(), value)
    time = _TIME.match(text)
    if time is None or not _OFFSET.fullmatch(text, time.end()):
        raise _error(TimeTz())
    return text


def _read_timestamp(value: Any) -> dt.datetime | str:
    """Return a local time; some producers add ``Z`` to local times, too."""
    text = _text(Timestamp(), value).removesuffix("Z").replace(" ", "T", 1)
    timestamp = parse_timestamp(text)
    if timestamp.__class__ is str and not _TIMESTAMP.fullmatch(text):
        raise _error(Timestamp())
    return timestamp


def _read_instant(value: Any) -> Instant | str:
    text = _text(InstantType(), value).replace(" ", "T", 1)
    if text in {"infinity", "-infinity"}:
        return text
    time = _TIMESTAMP.match(text)
    offset = None if time is None else _OFFSET.fullmatch(text, time.end())
    if offset is None:
        raise _error(InstantType(), ": a time without a zone is local, declare it as timestamp")
    if offset[1] is not None:  # PostgreSQL writes +02
        text = f"{text[: offset.start()]}{offset[1]}:{offset[2] or '00'}"
    return parse_instant(text)
