# SPDX-License-Identifier: Apache-2.0
"""``op_ts`` and ``current_ts``: conversion between text and nanoseconds since 1970-01-01 UTC."""

import datetime as dt
import re
from functools import lru_cache
from typing import Final

_TEXT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SECOND: Final = dt.timedelta(seconds=1)
_NS: Final = 1_000_000_000


@lru_cache(maxsize=4096)  # the operations of a transaction share their times
def time_of(text: str, zone: dt.tzinfo | None) -> int | None:
    """Return a time in nanoseconds; ``None`` if its zone is unknown.

    Args:
        text: A local time, or a time with an offset.
        zone: The zone of local times; ``None`` = unknown.

    Raises:
        ValueError: The zone is known, and the text is not a time.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        if zone is None:
            return None
        raise ValueError
    if match[4] is None and zone is None:
        return None
    local = dt.datetime.fromisoformat(f"{match[1]}T{match[2]}{match[4] or ''}")
    if local.tzinfo is None:
        local = local.replace(tzinfo=zone)
    return (local - _EPOCH) // _SECOND * _NS + int((match[3] or "").ljust(9, "0"))


@lru_cache(maxsize=4096)
def text_of(time_ns: int, zone: dt.tzinfo, separator: str) -> str:
    """Return a time as text with six digits of the fraction.

    Raises:
        OverflowError: The time is outside the years 1 to 9999 in the zone.
    """
    seconds, nanoseconds = divmod(time_ns, _NS)
    local = (_EPOCH + seconds * _SECOND).astimezone(zone)
    clock = local.replace(tzinfo=None).isoformat(separator, "seconds")
    text = f"{clock}.{nanoseconds // 1000:06}"
    # the second pass of a repeated hour is written with its offset
    return text if local.fold == 0 else text + local.isoformat()[-6:]
