# SPDX-License-Identifier: Apache-2.0
"""The bytes of pgoutput's messages.

Source: https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html. Integers
are big-endian; a text ends at a zero byte. In the segments of a streamed transaction, the messages
of rows, relations and types begin with a transaction id.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from changelane.errors import DecodeError
from changelane.reason_codes import ReasonCode

BEGIN: Final = 0x42  # B
COMMIT: Final = 0x43  # C
ORIGIN: Final = 0x4F  # O
RELATION: Final = 0x52  # R
TYPE: Final = 0x59  # Y
INSERT: Final = 0x49  # I
UPDATE: Final = 0x55  # U
DELETE: Final = 0x44  # D
TRUNCATE: Final = 0x54  # T
MESSAGE: Final = 0x4D  # M
STREAM_START: Final = 0x53  # S
STREAM_STOP: Final = 0x45  # E
STREAM_COMMIT: Final = 0x63  # c
STREAM_ABORT: Final = 0x41  # A
BEGIN_PREPARE: Final = 0x62  # b
PREPARE: Final = 0x50  # P
COMMIT_PREPARED: Final = 0x4B  # K
ROLLBACK_PREPARED: Final = 0x72  # r
STREAM_PREPARE: Final = 0x70  # p
XLOG_DATA: Final = 0x77  # w
KEEPALIVE: Final = 0x6B  # k

OLD: Final = 0x4F
"""``O``: the whole old row."""
KEY: Final = 0x4B
"""``K``: the key of the old row."""
NEW: Final = 0x4E
"""``N``: the new row."""
NULL: Final = 0x6E
"""``n``"""
UNCHANGED: Final = 0x75
"""``u``: an unchanged TOAST column."""
TEXT: Final = 0x74
"""``t``"""
BINARY: Final = 0x62
"""``b``"""
_SIZED: Final = frozenset({TEXT, BINARY})
"""Kinds of values with a length before the value."""

KEY_FLAG: Final = 1
IDENTITY_FULL: Final = "f"
IDENTITIES: Final = frozenset("dnfi")

UINT16: Final = struct.Struct(">H")
INT32: Final = struct.Struct(">i")
UINT32: Final = struct.Struct(">I")
BEGIN_BODY: Final = struct.Struct(">QqI")
COMMIT_BODY: Final = struct.Struct(">BQQq")
STREAM_START_BODY: Final = struct.Struct(">IB")
STREAM_COMMIT_BODY: Final = struct.Struct(">IBQQq")
STREAM_ABORT_BODY: Final = struct.Struct(">II")
PARALLEL_ABORT_BODY: Final = struct.Struct(">Qq")
PREPARE_BODY: Final = struct.Struct(">QQqI")
ROLLBACK_BODY: Final = struct.Struct(">QQqqI")
MESSAGE_BODY: Final = struct.Struct(">BQ")
COLUMN_BODY: Final = struct.Struct(">Ii")
XLOG_HEADER: Final = struct.Struct(">QQq")
KEEPALIVE_BODY: Final = struct.Struct(">QqB")


class BinaryCell(bytes):
    """A value in binary form."""


Cells = list[bytes | int | None]
"""The values of a row: bytes of a text or :class:`BinaryCell`, ``None`` = NULL, :data:`UNCHANGED`.
"""


class RelationColumn(NamedTuple):
    """A column of a relation message."""

    is_key: bool
    name: str
    type_oid: int
    type_modifier: int


class RelationMessage(NamedTuple):
    """A relation message."""

    oid: int
    namespace: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class Cursor:
    """Reads the fields of messages.

    Attributes:
        data: The messages, one after the other.
        at: The next byte.
    """

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        """Return the next byte."""
        try:
            value = self.data[self.at]
        except IndexError:
            raise truncated() from None
        self.at += 1
        return value

    def fields(self, layout: struct.Struct) -> tuple[int, ...]:
        """Return the next integers."""
        try:
            values = layout.unpack_from(self.data, self.at)
        except struct.error:
            raise truncated() from None
        self.at += layout.size
        return values

    def integer(self, layout: struct.Struct) -> int:
        """Return the next integer."""
        return self.fields(layout)[0]

    def take(self, length: int) -> bytes:
        """Return the next bytes."""
        end = self.at + length
        if length < 0 or end > len(self.data):
            raise truncated()
        value = self.data[self.at : end]
        self.at = end
        return value

    def text(self) -> str:
        """Return the text up to the next zero byte."""
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise truncated()
        value = self.data[self.at : end]
        self.at = end + 1
        return decoded(value)

    def cells(self) -> Cells:
        """Return the values of a row."""
        data = self.data
        count = self.integer(UINT16)
        at, end = self.at, len(data)
        cells: Cells = []
        unpack = UINT32.unpack_from
        try:
            for _ in range(count):
                kind = data[at]
                at += 1
                if kind in _SIZED:
                    (length,) = unpack(data, at)
                    at += 4
                    stop = at + length
                    if stop > end:
                        raise truncated()
                    cell = data[at:stop]
                    cells.append(cell if kind == TEXT else BinaryCell(cell))
                    at = stop
                elif kind == NULL:
                    cells.append(None)
                elif kind == UNCHANGED:
                    cells.append(UNCHANGED)
                else:
                    raise unknown("kind of value", at - 1)
        except (IndexError, struct.error):
            raise truncated() from None
        self.at = at
        return cells

    def relation(self) -> RelationMessage:
        """Return the body of a relation message."""
        start = self.at
        oid = self.integer(UINT32)
        namespace, name = self.text(), self.text()
        identity = chr(self.byte())
        if identity not in IDENTITIES:
            raise unknown("replica identity", self.at - 1)
        columns: list[RelationColumn] = []
        for _ in range(self.integer(UINT16)):
            flags = self.byte()
            column_name = self.text()
            type_oid, modifier = self.fields(COLUMN_BODY)
            columns.append(RelationColumn(bool(flags & KEY_FLAG), column_name, type_oid, modifier))
        if not name:
            code = ReasonCode.MISSING_FIELD
            raise DecodeError("a relation without a name", code=code, path=f"$[{start}]")
        return RelationMessage(oid, namespace, name, identity, tuple(columns))


def decoded(value: bytes) -> str:
    """Return bytes as text.

    Raises:
        DecodeError: They are not UTF-8.
    """
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise DecodeError("a text is not UTF-8", code=ReasonCode.INVALID_UTF8) from None


def truncated() -> DecodeError:
    """Return the error of a message that ends too early."""
    return DecodeError("the message ends too early", code=ReasonCode.INCOMPLETE_MESSAGE)


def unknown(noun: str, at: int) -> DecodeError:
    """Return the error of a byte without a meaning."""
    return DecodeError(f"an unknown {noun}", code=ReasonCode.UNKNOWN_KIND, path=f"$[{at}]")


# -- writing -------------------------------------------------------------------------------------


def text_bytes(text: str) -> bytes:
    """Return a text with its zero byte.

    Raises:
        ValueError: The text has a zero byte, or half of a surrogate pair.
    """
    data = text.encode()
    if b"\0" in data:
        raise ValueError
    return data + b"\0"


def relation_bytes(relation: RelationMessage) -> bytes:
    """Return a relation message."""
    parts = [
        bytes([RELATION]),
        UINT32.pack(relation.oid),
        text_bytes(relation.namespace),
        text_bytes(relation.name),
        relation.identity.encode(),
        UINT16.pack(len(relation.columns)),
    ]
    for column in relation.columns:
        parts.append(bytes([KEY_FLAG if column.is_key else 0]))
        parts.append(text_bytes(column.name))
        parts.append(COLUMN_BODY.pack(column.type_oid, column.type_modifier))
    return b"".join(parts)


def row_bytes(kind: int, cells: Sequence[bytes | int | None]) -> bytes:
    """Return the values of a row with the mark of its kind."""
    parts = [bytes([kind]), UINT16.pack(len(cells))]
    for cell in cells:
        if cell is None:
            parts.append(bytes([NULL]))
        elif isinstance(cell, int):
            parts.append(bytes([cell]))
        else:
            parts.append(bytes([TEXT]) + UINT32.pack(len(cell)) + cell)
    return b"".join(parts)
