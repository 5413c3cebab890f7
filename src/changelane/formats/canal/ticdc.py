# SPDX-License-Identifier: Apache-2.0
"""TiCDC's extension ``_tidb``: commit time stamps, watermarks, rows stored outside of Kafka.

https://docs.pingcap.com/tidb/stable/ticdc-canal-json, ``enable-tidb-extension = true``.
"""

from collections.abc import Mapping
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.formats.contract.tidb_time_stamps import position_of
from changelane.position import SequencePosition
from changelane.reason_codes import ReasonCode

WATERMARK: Final = "TIDB_WATERMARK"
"""The type of a watermark message: all events up to its time were sent."""

_TIMES: Final = frozenset({"commitTs", "watermarkTs"})


def position(extension: Mapping[str, Any], name: str) -> SequencePosition | None:
    """Return the time stamp in the field *name* as a position.

    Raises:
        DecodeError: The time stamp is no unsigned number of 64 bits.
    """
    return position_of(extension.get(name), f"$._tidb.{name}")


def check_row(extension: Mapping[str, Any]) -> None:
    """Check that a message contains its row: TiCDC may store a large row elsewhere.

    Raises:
        DecodeError: The message has only the key of the row, or a link to the row in a store.
    """
    if extension.get("onlyHandleKey"):
        raise DecodeError(
            "the message has only the key of the row",
            code=ReasonCode.INCOMPLETE_ROW,
            path="$._tidb.onlyHandleKey",
        )
    if extension.get("claimCheckLocation"):
        path = "$._tidb.claimCheckLocation"
        reason = "the message has only a link to the row"
        raise DecodeError(reason, code=ReasonCode.INCOMPLETE_ROW, path=path)


def other_fields_of(extension: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the extension without its time stamps."""
    return {name: value for name, value in extension.items() if name not in _TIMES and value}


def extension_of(time_stamp: int | None, name: str, other_fields: object) -> dict[str, Any]:
    """Return the extension of a message, with its time stamp in the field *name*."""
    extension: dict[str, Any] = {} if time_stamp is None else {name: time_stamp}
    return extension | other_fields if isinstance(other_fields, dict) else extension
