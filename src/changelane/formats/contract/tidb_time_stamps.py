# SPDX-License-Identifier: Apache-2.0
"""The time stamps of TiDB (TSO), which several formats of TiCDC have.

https://docs.pingcap.com/tidb/stable/tso: the milliseconds since 1970 are in the upper bits, and a
counter is in the lower 18 bits. All tables share one sequence, and all changes of a transaction
have its commit time stamp.
"""

from typing import Any, Final

from changelane.errors import DecodeError
from changelane.formats.contract.format import Report
from changelane.position import Position, SequencePosition
from changelane.reason_codes import ReasonCode

_MAX: Final = (1 << 64) - 1
_LOGICAL_BITS: Final = 18
_MILLISECOND: Final = 1_000_000


def position_of(value: Any, path: str) -> SequencePosition | None:
    """Return the position of a time stamp; ``None`` if the message has none.

    Args:
        value: The JSON value of the field.
        path: The path of the field, for errors.

    Raises:
        DecodeError: The value is no unsigned number of 64 bits.
    """
    if value is None:
        return None
    if value.__class__ is not int or not 0 <= value <= _MAX:
        raise DecodeError("not a time stamp of TiDB", code=ReasonCode.WRONG_TYPE, path=path)
    return SequencePosition(value)


def milliseconds(time_stamp: int) -> int:
    """Return the clock time of a time stamp.

    >>> milliseconds(429918007904436226)
    1640007049196
    """
    return time_stamp >> _LOGICAL_BITS


def time_ns(time_stamp: int | None) -> int | None:
    """Return the clock time of a time stamp in nanoseconds since 1970-01-01 UTC."""
    return None if time_stamp is None else milliseconds(time_stamp) * _MILLISECOND


def value_of(position: Position | None, report: Report) -> int | None:
    """Return the time stamp of a position; ``None`` if it is not one of TiDB, which is reported."""
    if not isinstance(position, SequencePosition):
        return None
    if position.row == 0 and 0 <= position.value <= _MAX:
        return position.value
    report(("position", "not a time stamp of TiDB"))
    return None


def time_stamp_of(
    position: Position | None, source_time_ns: int | None, report: Report
) -> int | None:
    """Return the time stamp to write for a position; ``None`` if it is not one of TiDB.

    Reports a source time that is not that of the time stamp, because messages have no other.
    """
    time_stamp = value_of(position, report)
    if time_ns(time_stamp) != source_time_ns:
        report(("source_time", "readers take it from the position"))
    return time_stamp
