# SPDX-License-Identifier: Apache-2.0
"""Dates and times as text that Spark reads exactly, also beyond Python's calendar."""

import datetime as dt
import re
from typing import Final

DATE_TEXT: Final = re.compile(r"(?:-\d{4,6}|\d{4}|\+\d{5,6})-\d\d-\d\d", re.ASCII)
TIMESTAMP_TEXT: Final = re.compile(
    r"(?:-\d{4,6}|\d{4}|\+\d{5,6})-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?", re.ASCII
)
INSTANT_TEXT: Final = re.compile(TIMESTAMP_TEXT.pattern + r"(?:Z|[+-]\d\d:\d\d)", re.ASCII)


_PARTS: Final = re.compile(
    r"(.\d+)-(\d\d)-(\d\d)"
    r"(?:T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:Z|([+-])(\d\d):(\d\d))?)?",
    re.ASCII,
)
_DAYS_OF_400_YEARS: Final = 146_097
_UNIX_EPOCH: Final = dt.date(1970, 1, 1).toordinal()
_MAX_MICROSECONDS: Final = (1 << 63) - 1


def is_in_calendar(text: str) -> bool:
    """Return whether Spark can read a date or time as text that Python may have no object for.

    Spark reads an invalid date as NULL, and stores microseconds since 1970 in 64 bits.
    """
    match = _PARTS.fullmatch(text)
    if match is None:
        return False
    year, month, day, hour, minute, second = (int(part or 0) for part in match.group(*range(1, 7)))
    cycles, of_cycle = divmod(year, 400)
    zone = 60 * int(match[9] or 0) + int(match[10] or 0)
    try:
        ordinal = dt.date(2000 + of_cycle, month, day).toordinal()
        dt.time(hour, minute, second)
        dt.timezone(dt.timedelta(minutes=zone))
    except ValueError:
        return False
    days = ordinal - _UNIX_EPOCH + (cycles - 5) * _DAYS_OF_400_YEARS
    seconds = 86_400 * days + 3600 * hour + 60 * minute + second
    seconds += 60 * (zone if match[8] == "-" else -zone)
    microseconds = seconds * 1_000_000 + int((match[7] or "").ljust(6, "0"))
    return match[4] is None or abs(microseconds) <= _MAX_MICROSECONDS
