# SPDX-License-Identifier: Apache-2.0
"""Positions in PostgreSQL's log, and the times of its commits.

The position of a change is the LSN of the commit and the number of the change in its transaction:
transactions have the order of their commits, and several changes may have one LSN of their own.
"""

import datetime as dt
import re
from functools import lru_cache
from typing import Final

from changelane.position import SequencePosition

_LSN: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,6}))?([+-]\d\d(?::\d\d)?(?::\d\d)?)", re.ASCII
)
_LSNS: Final = 1 << 64
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SECOND: Final = dt.timedelta(seconds=1)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def parse_lsn(text: str) -> int:
    """Return the number of an LSN.

    >>> parse_lsn("16/B374D848")
    97500059720

    Raises:
        ValueError: The text is no LSN.
    """
    match = _LSN.fullmatch(text)
    if match is None:
        raise ValueError
    return int(match[1], 16) << 32 | int(match[2], 16)


def lsn_text(number: int) -> str:
    """Return the text of an LSN.

    >>> lsn_text(97500059720)
    '16/B374D848'
    """
    return f"{number >> 32:X}/{number & 0xFFFF_FFFF:X}"


def lsn_of(position: object) -> int | None:
    """Return the LSN of a position; ``None`` if the position has none."""
    if isinstance(position, SequencePosition) and 0 <= position.value < _LSNS:
        return position.value
    return None


@lru_cache(maxsize=1024)  # messages of one second share it
def _second(text: str) -> int:
    """Return the nanoseconds of ``YYYY-MM-DD HH:MM:SS`` in UTC."""
    return (dt.datetime.fromisoformat(text + "+00:00") - _EPOCH) // _SECOND * 1_000_000_000


def parse_time(text: str) -> int:
    """Return the nanoseconds since 1970-01-01 UTC of a ``timestamptz`` in text form.

    Raises:
        ValueError: The text is no time.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError
    if match[3] == "+00":
        return _second(match[1]) + int((match[2] or "").ljust(6, "0")) * 1000
    micros = int((match[2] or "").ljust(6, "0"))
    time = dt.datetime.fromisoformat(match[1] + match[3].ljust(6, "x").replace("xxx", ":00"))
    return ((time - _EPOCH) // _MICROSECOND + micros) * 1000


@lru_cache(maxsize=1024)
def time_text(value_ns: int) -> str:
    """Return the text of a time in UTC, as PostgreSQL writes it.

    >>> time_text(1_500_000_000_000_000)
    '1970-01-18 08:40:00+00'

    Raises:
        OverflowError: The time is outside the years 1 to 9999.
    """
    time = _EPOCH + value_ns // 1000 * _MICROSECOND
    text = time.replace(tzinfo=None).isoformat(" ")
    return f"{text.rstrip('0') if '.' in text else text}+00"
