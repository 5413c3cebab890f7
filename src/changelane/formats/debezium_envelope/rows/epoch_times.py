# SPDX-License-Identifier: Apache-2.0
"""Counts of days and of parts of a second <-> dates, local timestamps and times, exact both ways.

A day beyond Python's calendar becomes text in the proleptic Gregorian calendar with astronomical
years (``-0043-03-15`` is 44 BC, ``+294276-12-31``). The infinities of PostgreSQL become
``infinity`` and ``-infinity``. Every text converts back to its number.
"""

import datetime as dt
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from changelane.errors import EncodeError
from changelane.types.far_dates import date_text

_EPOCH_ORDINAL: Final = 719_163
_EPOCH: Final = dt.datetime(1970, 1, 1)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_DAY_SECONDS: Final = 86_400

INFINITY: Final = "infinity"
MINUS_INFINITY: Final = "-infinity"

# An infinite DATE of PostgreSQL in the stream of Debezium: int32 max and min (days since 2000)
# converted to 1970 with an overflow. No date of any database has these numbers.
_INFINITE_DAYS: Final[Mapping[int, str]] = {
    -2_147_472_692: INFINITY,
    -2_147_472_691: MINUS_INFINITY,
}
# The same for TIMESTAMP, by fraction digits.
_INFINITE_TICKS: Final[Mapping[int, Mapping[int, str]]] = {
    3: {9_223_372_036_825_200: INFINITY, -9_223_372_036_832_400: MINUS_INFINITY},
    6: {9_223_372_036_825_200_000: INFINITY, -9_223_372_036_832_400_000: MINUS_INFINITY},
    9: {(1 << 63) - 1: INFINITY, -(1 << 63): MINUS_INFINITY},
}
_DAYS_OF: Final = {text: days for days, text in _INFINITE_DAYS.items()}
_TICKS_OF: Final = {
    digits: {text: ticks for ticks, text in infinite.items()}
    for digits, infinite in _INFINITE_TICKS.items()
}

_DATE: Final = re.compile(r"([+-]?)(\d{4,9})-(\d\d)-(\d\d)", re.ASCII)
_CLOCK: Final = re.compile(r"(-?)(\d{2,19}):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?", re.ASCII)
_MONTH_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Inexact(EncodeError):  # noqa: N818 - a reason, reported as a loss
    """A value without an exact number. The message is the reason of the loss."""


def _days_from_civil(year: int, month: int, day: int) -> int:
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146_097 + day_of_era - 719_468


def _date_days(text: str) -> int:
    match = _DATE.fullmatch(text)
    if match is None:
        raise Inexact("not a date of the calendar; written as null")
    sign, digits, month_text, day_text = match.groups()
    year = -int(digits) if sign == "-" else int(digits)
    month, day = int(month_text), int(day_text)
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _MONTH_DAYS[month - 1] + (leap and month == 2):
        raise Inexact("not a date of the calendar; written as null")
    return _days_from_civil(year, month, day)


@lru_cache(maxsize=8192)  # a column has few days, each in many rows
def date_of(days: int) -> dt.date | str:
    """Return the date of a count of days since 1970-01-01, as text beyond Python's calendar.

    >>> date_of(19782), date_of(-735160)
    (datetime.date(2024, 2, 29), '-0043-03-15')
    """
    try:
        return dt.date.fromordinal(days + _EPOCH_ORDINAL)
    except (ValueError, OverflowError):
        return _INFINITE_DAYS.get(days) or date_text(days)


def days_of(value: dt.date | str) -> int:
    """Return the count of days of a date or its text."""
    if isinstance(value, dt.date):
        return value.toordinal() - _EPOCH_ORDINAL
    if value in _DAYS_OF:
        return _DAYS_OF[value]
    return _date_days(value)


def micros_timestamp(ticks: int) -> dt.datetime | str:
    """Return the local timestamp of a count of microseconds since 1970."""
    try:
        return _EPOCH + dt.timedelta(0, 0, ticks)
    except OverflowError:
        return _timestamp_text(ticks, 6)


def millis_timestamp(ticks: int) -> dt.datetime | str:
    """Return the local timestamp of a count of milliseconds since 1970."""
    try:
        return _EPOCH + dt.timedelta(0, 0, ticks * 1000)
    except OverflowError:
        return _timestamp_text(ticks, 3)


def nanos_timestamp(ticks: int) -> dt.datetime | str:
    """Return the local timestamp of a count of nanoseconds since 1970.

    A timestamp with digits below the microsecond is text.
    """
    micros, nanos = divmod(ticks, 1000)
    if nanos or ticks in _INFINITE_TICKS[9]:
        return _timestamp_text(ticks, 9)
    return _EPOCH + dt.timedelta(0, 0, micros)


def _timestamp_text(ticks: int, digits: int) -> str:
    infinite = _INFINITE_TICKS[digits].get(ticks)
    if infinite:
        return infinite
    seconds, fraction = divmod(ticks, 10**digits)
    days, second = divmod(seconds, _DAY_SECONDS)
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    tail = f".{fraction:0{digits}d}" if fraction else ""
    return f"{date_text(days)}T{clock}{tail}"


def timestamp_ticks(value: dt.datetime | str, digits: int) -> int:
    """Return a local timestamp, or its text, as a count of units of *digits* fraction digits."""
    if isinstance(value, dt.datetime):
        span = value.replace(tzinfo=None) - _EPOCH
        micros = (span.days * _DAY_SECONDS + span.seconds) * 1_000_000 + span.microseconds
        return _rescaled(micros, 6, digits)
    if value in _TICKS_OF[digits]:
        return _TICKS_OF[digits][value]
    date, _, clock = value.replace(" ", "T", 1).partition("T")
    match = _CLOCK.fullmatch(clock)
    if match is None or match.group(1) or len(match.group(2)) > 2:
        raise Inexact("not a timestamp of the calendar; written as null")
    seconds = int(match.group(2)) * 3600 + int(match.group(3)) * 60 + int(match.group(4))
    fraction = match.group(5) or ""
    ticks = (_date_days(date) * _DAY_SECONDS + seconds) * 10 ** len(fraction)
    return _rescaled(ticks + int(fraction or 0), len(fraction), digits)


def _rescaled(ticks: int, digits: int, new_digits: int) -> int:
    if new_digits >= digits:
        return ticks * 10 ** (new_digits - digits)  # type: ignore[no-any-return]
    result, remainder = divmod(ticks, 10 ** (digits - new_digits))
    if remainder:
        raise Inexact("more fraction digits than its column has; written as null")
    return result  # type: ignore[no-any-return]


def time_text(ticks: int, digits: int) -> str:
    """Return a time, or a negative or long TIME of MySQL, with all its fraction digits.

    >>> time_text(-3020398999999, 6)
    '-838:59:58.999999'
    """
    seconds, fraction = divmod(abs(ticks), 10**digits)
    sign = "-" if ticks < 0 else ""
    clock = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{clock}.{fraction:0{digits}d}"


def time_ticks(text: str, digits: int) -> int:
    """Return the text of a time as a count of units of *digits* fraction digits."""
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise Inexact("not a time; written as null")
    sign, hours, minutes, seconds, fraction = match.groups()
    fraction = fraction or ""
    total_seconds = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    ticks = _rescaled(
        total_seconds * 10 ** len(fraction) + int(fraction or 0), len(fraction), digits
    )
    return -ticks if sign else ticks
