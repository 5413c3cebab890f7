# SPDX-License-Identifier: Apache-2.0
"""The parts of a ``DateTime`` <-> dates, times, timestamps and intervals.

A ``DateTime`` has seven parts, which may be null. The set of other parts gives the type. ``millis``
are never milliseconds: they are microseconds for MySQL and PostgreSQL, else nanoseconds. The
functions of this module take and return nanoseconds.
"""

import datetime as dt
import re
import zoneinfo
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from changelane.types import (
    Date,
    Instant,
    InstantType,
    Interval,
    LogicalType,
    Time,
    Timestamp,
    TimeTz,
    Value,
    Year,
)

Parts = tuple[int | None, int | None, int | None, int | None, int | None, int | None, int | None]
"""Year, month, day, hour, minute, second, nanoseconds."""

NS_PER_SECOND: Final = 1_000_000_000
_NS_PER_DAY: Final = 86_400 * NS_PER_SECOND
_EPOCH: Final = dt.datetime(1970, 1, 1)
_UTC_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_CYCLE_SECONDS: Final = 146_097 * 86_400
"""400 years of the Gregorian calendar."""

TypeAndValue = tuple[LogicalType, Value]
"""A value with the type of its parts."""

YEAR: Final = Year()
DATE: Final = Date()
TIME: Final = Time()
TIMESTAMP: Final = Timestamp()
TIMESTAMP_NS: Final = Timestamp(9)
INSTANT: Final = InstantType()
INSTANT_NS: Final = InstantType(9)
TIME_TZ: Final = TimeTz()
MONTHS: Final = Interval()
SPAN: Final = Interval("us")
SPAN_NS: Final = Interval("ns")


def value_of(parts: Parts) -> TypeAndValue:
    """Return the value of the parts of a ``DateTime``.

    Raises:
        ValueError: The parts are no year, date, time, timestamp or interval.
    """
    year, month, day, hour, minute, second, ns = parts
    has_time = hour is not None and minute is not None and second is not None
    match (year is not None, month is not None, day is not None, has_time):
        case (True, True, True, True):
            return _timestamp(parts)
        case (True, True, True, False) if hour is None and minute is second is ns is None:
            return DATE, _date(year or 0, month or 0, day or 0)
        case (False, False, False, True):
            return TIME, _time(hour or 0, minute or 0, second or 0, ns or 0)
        case (True, False, False, False) if hour is None and minute is second is ns is None:
            return YEAR, year
        case (True, True, False, False) if hour is None and minute is second is ns is None:
            return MONTHS, _months(year or 0, month or 0)
        case (False, False, True, True):
            return _span(day or 0, hour or 0, minute or 0, second or 0, ns or 0)
        case _:
            raise ValueError


def fraction(ns: int) -> str:
    """Return nanoseconds as a fraction with its point and without trailing zeros."""
    return f".{ns:09d}".rstrip("0") if ns else ""


def _check(*bounds: tuple[int, int, int]) -> None:
    if not all(low <= value <= high for value, low, high in bounds):
        raise ValueError


def _year(year: int) -> str:
    if 0 <= year <= 9999:
        return f"{year:04d}"
    return f"+{year}" if year > 0 else f"-{-year:04d}"


def _date(year: int, month: int, day: int) -> dt.date | str:
    try:
        return dt.date(year, month, day)
    except ValueError:
        _check((month, 0, 12), (day, 0, 31))
        return f"{_year(year)}-{month:02d}-{day:02d}"


def _timestamp(parts: Parts) -> TypeAndValue:
    year, month, day, hour, minute, second, ns = (part or 0 for part in parts)
    if not ns % 1000:
        try:
            return TIMESTAMP, dt.datetime(year, month, day, hour, minute, second, ns // 1000)
        except ValueError:
            pass
    date = _date(year, month, day)
    _check((hour, 0, 23), (minute, 0, 59), (second, 0, 59), (ns, 0, NS_PER_SECOND - 1))
    # a zero date in the form of MySQL, another one in that of ISO 8601
    mark = " " if not month or not day else "T"
    text = f"{date}{mark}{hour:02d}:{minute:02d}:{second:02d}{fraction(ns)}"
    return (TIMESTAMP_NS if ns % 1000 else TIMESTAMP), text


def _time(hour: int, minute: int, second: int, ns: int) -> str:
    sign = ""
    if min(hour, minute, second, ns) < 0:
        # "-838:59:59" has all its parts negative
        sign, hour, minute, second, ns = "-", -hour, -minute, -second, -ns
    _check((hour, 0, 99_999), (minute, 0, 59), (second, 0, 59), (ns, 0, NS_PER_SECOND - 1))
    return f"{sign}{hour:02d}:{minute:02d}:{second:02d}{fraction(ns)}"


def _months(years: int, months: int) -> str:
    if years * months < 0 or abs(months) > 11:
        raise ValueError
    return f"P{years}Y{months}M"


def _span(day: int, hour: int, minute: int, second: int, ns: int) -> TypeAndValue:
    clock = (day, hour, minute, second, ns)
    if min(clock) < 0 < max(clock):
        raise ValueError
    _check((hour, -23, 23), (minute, -59, 59), (second, -59, 59), (abs(ns), 0, NS_PER_SECOND - 1))
    total = ((day * 24 + hour) * 60 + minute) * 60 + second
    if ns % 1000:
        return SPAN_NS, total * NS_PER_SECOND + ns
    try:
        return SPAN, dt.timedelta(0, total, ns // 1000)
    except OverflowError:
        raise ValueError from None


# -- points in time ----------------------------------------------------------------------------


def instant_of(seconds: int, ns: int) -> TypeAndValue:
    """Return the point in time at a count of seconds and nanoseconds since 1970-01-01 UTC.

    Raises:
        ValueError: The nanoseconds are a second or more.
    """
    _check((ns, 0, NS_PER_SECOND - 1))
    if not ns % 1000:
        try:
            value = _UTC_EPOCH + dt.timedelta(0, seconds, ns // 1000)
        except OverflowError:
            pass
        else:
            return INSTANT, Instant.of(value, len(fraction(ns)[1:]))
    # moved by whole cycles of the calendar into the years of Python
    cycles, seconds_left = divmod(seconds, _CYCLE_SECONDS)
    local = _EPOCH + dt.timedelta(seconds=seconds_left)
    text = f"{_year(local.year + 400 * cycles)}{local.isoformat()[4:]}{fraction(ns)}Z"
    return (INSTANT_NS if ns % 1000 else INSTANT), text


_OFFSET: Final = re.compile(r"(?:GMT|UTC)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?")


@lru_cache(maxsize=1024)
def _zone(text: str) -> dt.tzinfo:
    """Return the zone of a text such as ``+08``, ``GMT+8:00``, ``UTC`` or ``Asia/Shanghai``."""
    if text in {"UTC", "GMT", "Z"}:
        return dt.UTC
    match = _OFFSET.fullmatch(text)
    if match is not None:
        span = dt.timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
        return dt.timezone(-span if match[1] == "-" else span)
    try:
        return zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, OSError):
        raise ValueError from None


def zoned(parts: Parts, zone: str) -> TypeAndValue:
    """Return the point in time, or the time of day with an offset, of a wall clock in a zone.

    A wall clock that occurs twice in the zone, or never, is text with the name of the zone.

    Raises:
        ValueError: The parts are no time or timestamp, or the zone is unknown.
    """
    kind, wall = value_of(parts)
    time_zone = _zone(zone)
    if kind is TIME:
        offset = time_zone.utcoffset(None)
        if offset is None:
            raise ValueError
        return TIME_TZ, f"{wall}{_offset(offset)}"
    if isinstance(wall, dt.datetime):
        offset = _offset_at(wall, time_zone)
        if offset is None:
            return INSTANT, f"{wall.isoformat()} {zone}"
        digits = len(fraction(wall.microsecond * 1000)[1:])
        return INSTANT, Instant.of(wall.replace(tzinfo=dt.timezone(offset)), digits)
    if kind in (TIMESTAMP, TIMESTAMP_NS):
        offset = time_zone.utcoffset(None)
        if offset is None and kind is TIMESTAMP_NS:
            offset = _offset_of_parts(parts, time_zone)
        suffix = f" {zone}" if offset is None else _offset(offset)
        return (INSTANT_NS if kind is TIMESTAMP_NS else INSTANT), f"{wall}{suffix}"
    raise ValueError


def _offset_at(wall: dt.datetime, zone: dt.tzinfo) -> dt.timedelta | None:
    """Return the offset of a wall clock; ``None`` if it occurs twice in the zone, or never."""
    aware = wall.replace(tzinfo=zone)
    offset = aware.utcoffset()
    is_certain = offset is not None and offset == aware.replace(fold=1).utcoffset()
    return offset if is_certain and offset is not None and not offset.microseconds else None


def _offset_of_parts(parts: Parts, zone: dt.tzinfo) -> dt.timedelta | None:
    """Return the offset of a wall clock with nanoseconds, if it is one of whole minutes."""
    year, month, day, hour, minute, second, _ = (part or 0 for part in parts)
    try:
        offset = _offset_at(dt.datetime(year, month, day, hour, minute, second), zone)
    except ValueError:  # not in Python's calendar
        return None
    return None if offset is None or offset % dt.timedelta(minutes=1) else offset


def _offset(offset: dt.timedelta) -> str:
    minutes = offset // dt.timedelta(minutes=1)
    sign, minutes = ("-", -minutes) if minutes < 0 else ("+", minutes)
    return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" if minutes else "Z"


# -- values to parts ---------------------------------------------------------------------------

_DATE_TEXT: Final = re.compile(r"([+-]?[0-9]{4,9})-([0-9]{2})-([0-9]{2})")
_TIME_TEXT: Final = re.compile(r"(-?)([0-9]{2,5}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?")
_ZONE_TEXT: Final = re.compile(r"(.*?)(?:(Z)|([+-][0-9]{2}:[0-9]{2})| ([A-Za-z_/+-]+))")
_MONTHS_TEXT: Final = re.compile(r"P(-?[0-9]{1,9})Y(-?[0-9]{1,2})M")


def date_parts(value: dt.date | str) -> Parts:
    """Return the parts of a date.

    Raises:
        ValueError: The text, such as ``infinity``, is no date.
    """
    if isinstance(value, str):
        match = _DATE_TEXT.fullmatch(value)
        if match is None:
            raise ValueError
        return int(match[1]), int(match[2]), int(match[3]), None, None, None, None
    return value.year, value.month, value.day, None, None, None, None


def time_parts(text: str) -> Parts:
    """Return the parts of a time of day, or of a negative or long TIME of MySQL.

    Raises:
        ValueError: The text is no time.
    """
    match = _TIME_TEXT.fullmatch(text)
    if match is None:
        raise ValueError
    sign = -1 if match[1] else 1
    ns = int((match[5] or "").ljust(9, "0"))
    return (
        None,
        None,
        None,
        sign * int(match[2]),
        sign * int(match[3]),
        sign * int(match[4]),
        sign * ns,
    )


def timestamp_parts(value: dt.datetime | str) -> Parts:
    """Return the parts of a local timestamp.

    Raises:
        ValueError: The text is no timestamp.
    """
    if isinstance(value, str):
        date, mark, time = value.partition("T" if "T" in value else " ")
        if not mark:
            raise ValueError
        return (*date_parts(date)[:3], *time_parts(time)[3:])
    return (
        value.year,
        value.month,
        value.day,
        value.hour,
        value.minute,
        value.second,
        value.microsecond * 1000,
    )


def zoned_parts(value: dt.datetime | str) -> tuple[Parts, str]:
    """Return the wall clock of a point in time, and its zone as ``+HH:MM`` or a name.

    Raises:
        ValueError: The text, such as ``infinity``, is no point in time.
    """
    if isinstance(value, str):
        match = _ZONE_TEXT.fullmatch(value)
        if match is None:
            raise ValueError
        return timestamp_parts(match[1]), "+00:00" if match[2] else match[3] or match[4]
    offset = value.utcoffset()
    if offset is None:
        raise ValueError
    if offset % dt.timedelta(minutes=1):
        value, offset = value.astimezone(dt.UTC), dt.timedelta(0)
    return timestamp_parts(value), _offset(offset).replace("Z", "+00:00")


def zoned_time_parts(text: str) -> tuple[Parts, str]:
    """Return the parts of a time of day with an offset, and the offset.

    Raises:
        ValueError: The text is no time with an offset.
    """
    match = _ZONE_TEXT.fullmatch(text)
    if match is None or match[4]:
        raise ValueError
    return time_parts(match[1]), match[3] or "+00:00"


def epoch_parts(value: dt.datetime | str) -> tuple[int, int]:
    """Return a point in time as seconds since 1970-01-01 UTC, and nanoseconds of a second.

    Raises:
        ValueError: The text is no point in time.
    """
    if not isinstance(value, str):
        seconds, micros = divmod((value - _UTC_EPOCH) // _MICROSECOND, 1_000_000)
        return seconds, micros * 1000
    (year, month, day, hour, minute, second, ns), zone = zoned_parts(value)
    offset = _zone(zone).utcoffset(None)
    if offset is None:
        raise ValueError
    cycles, years_left = divmod((year or 0) - 2000, 400)
    wall = dt.datetime(2000 + years_left, month or 0, day or 0, hour or 0, minute or 0, second or 0)
    seconds = (wall - _EPOCH - offset) // dt.timedelta(seconds=1)
    return seconds + cycles * _CYCLE_SECONDS, ns or 0


def _year_parts(value: int) -> Parts:
    if value.__class__ is not int:
        raise TypeError
    return value, None, None, None, None, None, None


def interval_parts(value: dt.timedelta | int | str) -> Parts:
    """Return the parts of an interval: text of years and months, or a count of nanoseconds.

    Raises:
        ValueError: The text has other parts than years and months.
    """
    if isinstance(value, str):
        match = _MONTHS_TEXT.fullmatch(value)
        if match is None:
            raise ValueError
        return int(match[1]), int(match[2]), None, None, None, None, None
    ns = value if isinstance(value, int) else value // _MICROSECOND * 1000
    sign, ns = (-1, -ns) if ns < 0 else (1, ns)
    days, ns_left = divmod(ns, _NS_PER_DAY)
    seconds, ns_left = divmod(ns_left, NS_PER_SECOND)
    clock = (days, seconds // 3600, seconds // 60 % 60, seconds % 60, ns_left)
    return (None, None, *(sign * part for part in clock))  # type: ignore[return-value]


PARTS_OF: Final[Mapping[type[LogicalType], Callable[[Any], Parts]]] = {
    Year: _year_parts,
    Date: date_parts,
    Time: time_parts,
    Timestamp: timestamp_parts,
    Interval: interval_parts,
}
"""Class of a type without a zone -> the parts of a value; :func:`value_of` is the inverse."""

ZONED_PARTS_OF: Final[Mapping[type[LogicalType], Callable[[Any], tuple[Parts, str]]]] = {
    TimeTz: zoned_time_parts,
    InstantType: zoned_parts,
}
"""Class of a type with a zone -> parts and zone of a value; :func:`zoned` is the inverse."""
