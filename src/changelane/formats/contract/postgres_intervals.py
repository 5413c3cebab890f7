# SPDX-License-Identifier: Apache-2.0
"""Intervals: PostgreSQL's text with ``IntervalStyle`` postgres, and ISO 8601.

Source: https://www.postgresql.org/docs/current/datatype-datetime.html, "Interval Output". Months,
days and the time of an interval are separate numbers, each with its own sign.
"""

import math
import re
from typing import Final

_TEXT: Final = re.compile(
    r"(?:([+-]?[0-9]{1,10}) years?)?(?: ?([+-]?[0-9]{1,10}) mons?)?(?: ?([+-]?[0-9]{1,10}) days?)?"
    r"(?: ?([+-]?)([0-9]{2,10}):([0-5][0-9]):([0-5][0-9](?:\.[0-9]{1,6})?))?"
)
_ISO: Final = re.compile(
    r"P(?:([+-]?[0-9]{1,10})Y)?(?:([+-]?[0-9]{1,10})M)?(?:([+-]?[0-9]{1,10})D)?"
    r"(?:T(?:([+-]?[0-9]{1,10})H)?(?:([+-]?[0-9]{1,10})M)?"
    r"(?:([+-]?)([0-9]{1,10})(?:\.([0-9]{1,6}))?S)?)?"
)
_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE


def iso_interval(text: str) -> str | None:
    """Return an interval in ISO 8601; ``None`` if the text is no interval.

    >>> iso_interval("1 year 2 mons 3 days 04:05:06.7")
    'P1Y2M3DT4H5M6.7S'
    >>> iso_interval("-1 days +02:03:00")
    'P-1DT2H3M'
    """
    match = _TEXT.fullmatch(text)
    if match is None or not text:
        return None
    years, months, days, sign, hours, minutes, seconds = match.groups()
    date = "".join(
        f"{int(number)}{unit}"
        for number, unit in ((years, "Y"), (months, "M"), (days, "D"))
        if number is not None and int(number)
    )
    time = ""
    if hours is not None:
        minus = "-" if sign == "-" else ""
        whole, point, fraction = seconds.partition(".")
        time = "".join(
            f"{minus}{int(n)}{unit}" for n, unit in ((hours, "H"), (minutes, "M")) if int(n)
        )
        if int(whole) or fraction.strip("0"):
            time += f"{minus}{int(whole)}{point}{fraction}S"
    if not date and not time:
        return "P0D"
    return f"P{date}T{time}" if time else f"P{date}"


def interval_text(iso: str) -> str:
    """Return the text of an interval in ISO 8601.

    >>> interval_text("P1Y2M3DT4H5M6.7S")
    '1 year 2 mons 3 days 04:05:06.7'

    Raises:
        ValueError: PostgreSQL has no such interval.
    """
    match = _ISO.fullmatch(iso)
    if match is None or len(iso) < 2 or iso.endswith("T"):
        raise ValueError
    years, months, days, hours, minutes, sign, seconds, fraction = match.groups()
    rest = int(seconds or 0) * _SECOND + int((fraction or "").ljust(6, "0"))
    time = int(hours or 0) * _HOUR + int(minutes or 0) * _MINUTE
    time += -rest if sign == "-" else rest
    return _text(int(years or 0) * 12 + int(months or 0), int(days or 0), time, fraction)


def _text(months: int, days: int, microseconds: int, fraction: str | None) -> str:
    """Return the text of an interval.

    Args:
        months: The months.
        days: The days.
        microseconds: The time.
        fraction: The digits of the fraction, if they are known.
    """
    years, months = int(months / 12), int(math.fmod(months, 12))  # both have one sign
    parts: list[str] = []
    is_after_minus = False
    for number, unit in ((years, "year"), (months, "mon"), (days, "day")):
        if number:
            plus = "+" if is_after_minus and number > 0 else ""
            parts.append(f"{plus}{number} {unit}{'' if number == 1 else 's'}")
            is_after_minus = number < 0
    if microseconds or not parts:
        hours, rest = divmod(abs(microseconds), _HOUR)
        minutes, rest = divmod(rest, _MINUTE)
        seconds, rest = divmod(rest, _SECOND)
        digits = f"{rest:06}"
        digits = digits[: len(fraction)] if fraction else digits.rstrip("0")
        sign = "-" if microseconds < 0 else "+" if is_after_minus else ""
        point = f".{digits}" if digits else ""
        parts.append(f"{sign}{hours:02}:{minutes:02}:{seconds:02}{point}")
    return " ".join(parts)
