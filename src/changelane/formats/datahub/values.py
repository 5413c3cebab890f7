# SPDX-License-Identifier: Apache-2.0
"""Conversion of single values between JSON and logical types, for both DataHub formats.

Numbers may be JSON numbers or text: DataHub's own client sends every value of a TUPLE row as text,
and StreamX wrote a DECIMAL column of MySQL as ``"1.100000"`` with the type DOUBLE.
"""

import binascii
import datetime as dt
import decimal
import math
import re
from collections.abc import Callable
from typing import Any, Final

from changelane.types import Instant, Value
from changelane.types.far_dates import date_text

Read = Callable[[Any], Value]
"""JSON value, not null, to value; raises one of :data:`NOT_A_VALUE`."""

Write = Callable[[Any], Value]
"""Value, not NULL, to JSON value; raises one of :data:`NOT_A_VALUE`."""

NOT_A_VALUE: Final = (ValueError, ArithmeticError, TypeError)

EPOCH: Final = Instant(1970, 1, 1, tzinfo=dt.UTC)

_DAY_SECONDS: Final = 86_400
_MOST_SECONDS: Final = 10**12
"""The end of the year 33658, in seconds; milliseconds have up to 15 digits then."""
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,4000}", re.ASCII)
_DECIMAL: Final = re.compile(
    r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]{1,10})?", re.ASCII
)


def read_text(value: object) -> str:
    """Return a text as it is."""
    if type(value) is not str:
        raise TypeError
    return value


def read_boolean(value: object) -> bool:
    """Return a boolean, or the boolean of the text ``true`` or ``false``."""
    if type(value) is bool:
        return value
    return {"true": True, "false": False}[read_text(value).lower()]


def _whole(value: object) -> int:
    if type(value) is int:
        return value
    text = read_text(value)
    if _WHOLE.fullmatch(text) is None:
        raise ValueError
    return int(text)


def read_integer(bits: int) -> Read:
    """Return the function that reads signed whole numbers of this size."""
    end = 1 << (bits - 1)

    def read(value: object) -> int:
        number = value if type(value) is int else _whole(value)
        if not -end <= number < end:
            raise ValueError
        return number

    return read


def read_decimal(value: object) -> decimal.Decimal:
    """Return a number with all its digits."""
    if type(value) is decimal.Decimal:
        return value
    if type(value) is int:
        return decimal.Decimal(value)
    text = read_text(value)
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError
    return decimal.Decimal(text)


def is_float(value: decimal.Decimal) -> bool:
    """Return whether a binary float of 64 bits prints as this number."""
    number = float(value)
    return math.isfinite(number) and decimal.Decimal(repr(number)) == value


def read_float(value: object) -> float:
    """Return a number as a binary float; a number that a float would round is rejected."""
    exact = read_decimal(value)
    number = float(exact)
    if not math.isfinite(number):
        raise ValueError
    # 0.1 is written as 0.1; DataHub's client writes 1.0000000000000001e-01
    if exact not in (decimal.Decimal(repr(number)), decimal.Decimal(f"{number:.16e}")):
        raise ValueError
    return number


def read_bytes(value: object) -> bytes:
    """Return the bytes of standard Base64, as ``java.util.Base64`` writes it, padded or not."""
    text = read_text(value)
    if not text:
        return b""
    return binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)


def read_instant(ticks_per_second: int) -> Read:
    """Return the function that reads points in time, as a count of ticks since 1970.

    Points in time outside of Python's calendar are text: a database has such years, and the zone of
    the task may move its first or last day there.
    """
    size = 1_000_000 // ticks_per_second
    digits = len(str(ticks_per_second)) - 1

    def read(value: object) -> Instant | str:
        count = _whole(value)
        try:
            instant = EPOCH + dt.timedelta(microseconds=count * size)
        except OverflowError:
            if abs(count) >= _MOST_SECONDS * ticks_per_second:
                raise  # a count in another unit
            days, ticks = divmod(count, _DAY_SECONDS * ticks_per_second)
            time = EPOCH + dt.timedelta(microseconds=ticks * size)
            return f"{date_text(days)}T{time:%H:%M:%S.%f}"[: digits - 6 or None] + "Z"
        instant.digits = digits
        return instant

    return read


def ticks_of(value: object, ticks_per_second: int) -> tuple[int, bool]:
    """Return an aware datetime as a count of ticks since 1970, and whether the count is exact."""
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        raise TypeError
    micros = (value - EPOCH) // dt.timedelta(microseconds=1)
    ticks, remainder = divmod(micros, 1_000_000 // ticks_per_second)
    return ticks, not remainder


def write_number(value: object) -> Value:
    """Return the JSON form of a number: a float as it prints, a decimal with all its digits."""
    match value:
        case bool():
            raise TypeError
        case int():
            return value
        case float() if math.isfinite(value):
            return value
        case decimal.Decimal() if value.is_finite():
            # as text, because readers with binary floats would round the number
            return value if is_float(value) else str(value)
        case _:
            raise TypeError
