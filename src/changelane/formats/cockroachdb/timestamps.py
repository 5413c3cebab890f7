# SPDX-License-Identifier: Apache-2.0
"""The time stamps of CockroachDB's hybrid logical clock.

A text such as ``1746045115619002000.0000000000`` has nanoseconds since 1970 and a counter of ten
digits. A position is the number of all digits, so that positions of a cluster compare as numbers.
Versions before 23.2 write ``?`` after a time in the future, which rows of global tables have.
"""

import re
from typing import Final

from changelane.errors import DecodeError
from changelane.position import Position, SequencePosition
from changelane.reason_codes import ReasonCode

_TEXT: Final = re.compile(r"([0-9]{1,19})\.([0-9]{10})\??", re.ASCII)
_COUNTS: Final = 10**10
_FIRST: Final = 10**18
"""The first time with 19 digits, in 2001: an earlier time is no time of CockroachDB."""
_AFTER_LAST: Final = 10**19


def position_of(text: str | None, path: str) -> SequencePosition | None:
    """Return the position of a time stamp; ``None`` if there is none.

    Raises:
        DecodeError: The text is not a time stamp.
    """
    if text is None:
        return None
    match = _TEXT.fullmatch(text)
    if match is None:
        code = ReasonCode.WRONG_TYPE
        raise DecodeError("not a time stamp of CockroachDB", code=code, path=path)
    return SequencePosition(int(match[1]) * _COUNTS + int(match[2]))


def time_ns(position: Position | None) -> int | None:
    """Return the clock time of a position in nanoseconds since 1970-01-01 UTC."""
    return position.value // _COUNTS if isinstance(position, SequencePosition) else None


def text_of(position: Position | None) -> str | None:
    """Return the time stamp of a position; ``None`` if it is not one of CockroachDB.

    >>> text_of(SequencePosition(17460451156190020000000000003))
    '1746045115619002000.0000000003'
    """
    if not isinstance(position, SequencePosition) or position.row:
        return None
    nanoseconds, count = divmod(position.value, _COUNTS)
    if not _FIRST <= nanoseconds < _AFTER_LAST:
        return None
    return f"{nanoseconds}.{count:010d}"


def is_time_stamp(text: object) -> bool:
    """Return whether a JSON value is a time stamp."""
    return isinstance(text, str) and _TEXT.fullmatch(text) is not None
