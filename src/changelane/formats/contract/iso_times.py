# SPDX-License-Identifier: Apache-2.0
"""ISO 8601 times of envelopes: conversion between text and nanoseconds since 1970-01-01 UTC."""

import datetime as dt
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

_TEXT: Final = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_LONGEST_SHARED: Final = len("YYYY-MM-DDTHH:MM:SS.mmmZ")
_SIZES: Final = [0, *(int(10 ** (9 - digits)) for digits in range(1, 10))]
"""The nanoseconds of the last digit of a fraction, by the number of its digits."""
_SECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.ASCII)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SECOND: Final = dt.timedelta(seconds=1)
_NS: Final = 1_000_000_000


@lru_cache(maxsize=1024)
def _utc_seconds(text: str) -> int:
    """Return the nanoseconds of ``YYYY-MM-DDTHH:MM:SS`` in UTC."""
    if _SECONDS.fullmatch(text) is None:
        raise ValueError
    return (dt.datetime.fromisoformat(text + "+00:00") - _EPOCH) // _SECOND * _NS


def reader(zone: dt.tzinfo) -> Callable[[str], int]:
    """Return the function from text to nanoseconds; *zone* is the zone of texts without one.

    The function raises ``ValueError`` if the text is not a time.
    """

    @lru_cache(maxsize=1024)  # the operations of a transaction share their times
    def read_any(text: str) -> int:
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError
        local = dt.datetime.fromisoformat(match[1] + (match[3] or ""))
        if local.tzinfo is None:
            local = local.replace(tzinfo=zone)
        return (local - _EPOCH) // _SECOND * _NS + int((match[2] or "").ljust(9, "0"))

    def read(text: str) -> int:
        if len(text) > _LONGEST_SHARED and text[19] == ".":
            # messages of one second share the first part, but not the fraction
            is_utc = text[-1] == "Z"
            digits = text[20:-1] if is_utc else text[20:]
            if len(digits) < len(_SIZES) and digits.isascii() and digits.isdigit():
                seconds_of = _utc_seconds if is_utc else read_any
                return seconds_of(text[:19]) + int(digits) * _SIZES[len(digits)]
        return read_any(text)

    return read


def writer(zone: dt.tzinfo, *, digits: int, zulu: bool) -> Callable[[int], str]:
    """Return the function from nanoseconds to text.

    Args:
        zone: The zone of written times, unless *zulu* is set.
        digits: Fraction digits, from 0 to 9; further digits are cut.
        zulu: Write UTC, with ``Z``.

    The function raises ``OverflowError`` outside the years 1 to 9999.
    """

    @lru_cache(maxsize=1024)
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
