# SPDX-License-Identifier: Apache-2.0
"""TiCDC's extension ``_tidb``: commit time stamps, watermarks, rows that are elsewhere.

https://docs.pingcap.com/tidb/stable/ticdc-canal-json, ``enable-tidb-extension = true``. A time
stamp of TiDB (TSO) is milliseconds since 1970, shifted by 18 bits, and a counter: one sequence for
all tables.
"""

from collections.abc import Mapping
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.position import SequencePosition
from changelane.reason_codes import ReasonCode

WATERMARK: Final = "TIDB_WATERMARK"
"""The type of a message that promises: everything up to its time was sent."""

_TIMES: Final = frozenset({"commitTs", "watermarkTs"})
_MOST: Final = (1 << 64) - 1
_LOGICAL_BITS: Final = 18


def position(extension: Mapping[str, Any], name: str) -> SequencePosition | None:
    """Return the time stamp of a name as a position.

    Raises:
        DecodeError: It is no unsigned number of 64 bits.
    """
    value = extension.get(name)
    if value is None:
        return None
    if value.__class__ is not int or not 0 <= value <= _MOST:
        raise DecodeError(
            "not a time stamp of TiDB", code=ReasonCode.WRONG_TYPE, path=f"$._tidb.{name}"
        )
    return SequencePosition(value)


def milliseconds(time_stamp: int) -> int:
    """Return the clock time of a time stamp.

    >>> milliseconds(429918007904436226)
    1640007049196
    """
    return time_stamp >> _LOGICAL_BITS


def check_row(extension: Mapping[str, Any]) -> None:
    """Refuse a row that was too large for its message: taking it for the row would lose columns.

    Raises:
        DecodeError: Only the key is here, or the message is a pointer to one in a store.
    """
    if extension.get("onlyHandleKey"):
        raise DecodeError(
            "only the key of the row was sent",
            code=ReasonCode.INCOMPLETE_ROW,
            path="$._tidb.onlyHandleKey",
        )
    if extension.get("claimCheckLocation"):
        path = "$._tidb.claimCheckLocation"
        raise DecodeError("the row lies in a store", code=ReasonCode.INCOMPLETE_ROW, path=path)


def other_fields_of(extension: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the extension says beyond its times."""
    return {name: value for name, value in extension.items() if name not in _TIMES and value}


def written(time_stamp: int | None, name: str, other_fields: object) -> dict[str, Any]:
    """Return the extension of a message."""
    extension: dict[str, Any] = {} if time_stamp is None else {name: time_stamp}
    return extension | other_fields if isinstance(other_fields, dict) else extension
