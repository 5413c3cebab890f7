# SPDX-License-Identifier: Apache-2.0
"""ISO 8601 times of envelopes: conversion between text and nanoseconds since 1970-01-01 UTC."""

import datetime as dt
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

_TEXT: Final = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_LONGEST_SHARED: Final = len("YYYY-MM-DDTHH:MM:SS.mmmZ")
_MOST_DIGITS: Final = 9
_SIZES: Final = [0, *(int(10 ** (9 - digits)) for digits in range(1, 10))]
"""The nanoseconds of the last digit of a fraction, by the number of its digits."""
_SECONDS: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.", re.ASCII)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SECOND: Final = dt.timedelta(seconds=1)
_NS: Final = 1_000_000_000
_MOST_SHARED: Final = 1024


class _Seconds(dict[str, int]):
    """The nanoseconds of texts ``YYYY-MM-DDTHH:MM:SS.`` in a zone, which many messages share.

    Another text raises ``ValueError``.
    """

    def __init__(self, zone: dt.tzinfo) -> None:
        super().__init__()
        self._zone = zone

    def __missing__(self, text: str) -> int:
        match = _SECONDS.fullmatch(text)
        if match is None:
            raise ValueError
        time = _nanoseconds(dt.datetime.fromisoformat(match[1]).replace(tzinfo=self._zone))
        if len(self) >= _MOST_SHARED:
            self.clear()
        self[text] = time
        return time


def _nanoseconds(moment: dt.datetime) -> int:
    """Return the nanoseconds of a moment in whole seconds."""
    return (moment - _EPOCH) // _SECOND * _NS


class TimeReader(NamedTuple):
    """Functions of texts, which raise ``ValueError`` if a text is not a time.

    Attributes:
        read: Returns the nanoseconds of a time.
        read_first: Returns the nanoseconds of the first of two times, which may be ``None``. It
            takes less time than to read both.
    """

    read: Callable[[str], int]
    read_first: Callable[[str | None, str | None], int | None]


def reader(zone: dt.tzinfo) -> Callable[[str], int]:
    """Return the function from text to nanoseconds; see :func:`time_reader`."""
    return time_reader(zone).read


def time_reader(zone: dt.tzinfo) -> TimeReader:
    """Return the functions of times; *zone* is the zone of texts without one."""
    local_seconds, utc_seconds = _Seconds(zone), _Seconds(dt.UTC)

    @lru_cache(maxsize=_MOST_SHARED)  # the operations of a transaction share their times
    def read_any(text: str) -> int:
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError
        local = dt.datetime.fromisoformat(match[1] + (match[3] or ""))
        if local.tzinfo is None:
            local = local.replace(tzinfo=zone)
        return _nanoseconds(local) + int((match[2] or "").ljust(9, "0"))

    def read(text: str) -> int:
        if len(text) > _LONGEST_SHARED:
            # messages of one second share the first part, but not the fraction
            if text[-1] == "Z":
                seconds, digits = utc_seconds, text[20:-1]
            else:
                seconds, digits = local_seconds, text[20:]
            if digits.isdigit() and text.isascii() and (size := len(digits)) <= _MOST_DIGITS:
                return seconds[text[:20]] + int(digits) * _SIZES[size]
        return read_any(text)

    def read_first(text: str | None, other: str | None) -> int | None:
        # a producer writes both times in one form
        if text and other and _LONGEST_SHARED < len(text) == len(other):
            if text[-1] == other[-1] == "Z":
                seconds, digits, other_digits = utc_seconds, text[20:-1], other[20:-1]
            else:
                seconds, digits, other_digits = local_seconds, text[20:], other[20:]
            is_fraction = digits.isdigit() and text.isascii() and len(digits) <= _MOST_DIGITS
            if is_fraction and other_digits.isdigit() and other.isascii() and other[:20] in seconds:
                return seconds[text[:20]] + int(digits) * _SIZES[len(digits)]
        if other is not None:
            read(other)
        return None if text is None else read(text)

    return TimeReader(read, read_first)


def writer(zone: dt.tzinfo, *, digits: int, zulu: bool) -> Callable[[int], str]:
    """Return the function from nanoseconds to text.

    Args:
        zone: The zone of written times, unless *zulu* is set.
        digits: Fraction digits, from 0 to 9; further digits are cut.
        zulu: Write UTC, with ``Z``.

    The function raises ``OverflowError`` outside the years 1 to 9999.
    """

    @lru_cache(maxsize=_MOST_SHARED)
    def write(value_ns: int) -> str:
        seconds, nanos = divmod(value_ns, _NS)
        moment = _EPOCH + seconds * _SECOND
        local = moment if zulu else moment.astimezone(zone)
        text = local.replace(tzinfo=None).isoformat("T", "seconds")
        if digits:
            text += f".{nanos:09d}"[: digits + 1]
        if zulu:
            return text + "Z"
        # the second pass of a repeated hour is written with its offset
        return text if local.fold == 0 else text + local.isoformat()[19:]

    return write
