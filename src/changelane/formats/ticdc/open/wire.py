# SPDX-License-Identifier: Apache-2.0
"""The frames of TiCDC's open protocol, and the JSON in them, with the producer's own names.

A message is a batch of events. Its key is the version, then for each event the length and the JSON
of a key; its value is for each event the length and the JSON of a value. Numbers have eight bytes,
big-endian.
"""

import decimal
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.reason_codes import ReasonCode

VERSION: Final = (1).to_bytes(8, "big")

ROW: Final = 1
STATEMENT: Final = 2
RESOLVED: Final = 3

_NUMBER: Final = 8


class EventKey(msgspec.Struct, omit_defaults=True):
    """The key of an event: commit time stamp, names, kind of event, marks of large rows."""

    ts: int | None = None
    scm: str | None = None
    tbl: str | None = None
    rid: int | None = None
    ptn: int | None = None
    t: int = 0
    ohk: bool | None = None
    ccl: str | None = None


class Column(msgspec.Struct):
    """A column of a row: type, value, flags, whether it is in the handle key."""

    t: int
    v: Any
    f: int | None = None
    h: bool | None = None


class Row(msgspec.Struct):
    """The value of a row event: the row, the row before an update, the deleted row."""

    u: dict[str, Column] | None = None
    p: dict[str, Column] | None = None
    d: dict[str, Column] | None = None


class Statement(msgspec.Struct):
    """The value of a DDL event."""

    q: str | None = None
    t: int | None = None


decode_key: Final = msgspec.json.Decoder(EventKey, float_hook=decimal.Decimal).decode
decode_row: Final = msgspec.json.Decoder(Row, float_hook=decimal.Decimal).decode
READ_ERRORS: Final = (ValueError, RecursionError, decimal.DecimalException)
"""The errors of both decoders."""


def frames(data: bytes, start: int, path: str) -> list[bytes]:
    """Return the parts of a key or value.

    Args:
        data: The key or value.
        start: The index of the first length.
        path: The path of the key or value, for errors.

    Raises:
        DecodeError: A length exceeds the rest of the data.
    """
    end = len(data)
    parts: list[bytes] = []
    while start < end:
        body = start + _NUMBER
        start = body + int.from_bytes(data[start:body], "big")
        if body > end or start > end:
            code = ReasonCode.INCOMPLETE_MESSAGE
            raise DecodeError("a length exceeds the message", code=code, path=path)
        parts.append(data[body:start])
    return parts


def framed(part: bytes) -> bytes:
    """Return a part after its length."""
    return len(part).to_bytes(_NUMBER, "big") + part
