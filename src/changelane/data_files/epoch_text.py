# SPDX-License-Identifier: Apache-2.0
"""Counts of days, and of parts of a second, as ISO 8601 text."""

import datetime as dt
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from changelane.types.far_dates import date_text

_EPOCH_ORDINAL: Final = 719_163
_DAY_SECONDS: Final = 86_400


@lru_cache(maxsize=8192)  # a column has few days, each in many rows
def day_text(days: int) -> str:
    """Return the date of a count of days since 1970-01-01.

    >>> day_text(19782), day_text(-735160)
    ('2024-02-29', '-0043-03-15')
    """
    try:
        return dt.date.fromordinal(days + _EPOCH_ORDINAL).isoformat()
    except (ValueError, OverflowError):
        return date_text(days)


def time_text(ticks: int, digits: int) -> str:
    """Return the time of day, or a signed span, of a count of units of *digits* fraction digits.

    >>> time_text(45_296_500_000, 6), time_text(0, 0), time_text(-3_600_000, 3)
    ('12:34:56.500000', '00:00:00', '-01:00:00.000')
    """
    seconds, fraction = divmod(abs(ticks), 10**digits)
    sign = "-" if ticks < 0 else ""
    clock = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{clock}.{fraction:0{digits}d}" if digits else clock


def timestamp_writer(digits: int, *, is_instant: bool) -> Callable[[int], str]:
    """Return the function from a count since 1970 to a timestamp.

    Args:
        digits: The fraction digits of the unit: 0, 3, 6 or 9. Of nanoseconds, three zeros at the
            end are omitted, so that a microsecond is no nanosecond.
        is_instant: The count is of UTC: the text ends with ``Z``.
    """
    unit, end = 10**digits, "Z" if is_instant else ""

    def write(ticks: int) -> str:
        seconds, fraction = divmod(ticks, unit)
        days, second = divmod(seconds, _DAY_SECONDS)
        text = f"{day_text(days)}T{time_text(second, 0)}"
        if not digits:
            return text + end
        fraction_text = f"{fraction:0{digits}d}"
        if digits == 9 and fraction_text.endswith("000"):
            fraction_text = fraction_text[:6]
        return f"{text}.{fraction_text}{end}"

    return write
