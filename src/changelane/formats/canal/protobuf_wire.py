# SPDX-License-Identifier: Apache-2.0
"""The wire format of Protocol Buffers, for the messages of Canal.

Rules: https://protobuf.dev/programming-guides/encoding/, and the files ``CanalProtocol.proto`` and
``EntryProtocol.proto`` of Canal. A message is a dict of its fields, by name; a field that is
missing in the bytes is missing in the dict. Unknown fields are ignored, as in Protocol Buffers.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from changelane.errors import DecodeError, EncodeError
from changelane.reason_codes import ReasonCode

Fields = dict[str, Any]
"""The fields of a message; repeated ones are lists."""


class Kind(Enum):
    """The type of a field."""

    INTEGER = "integer"
    """``int32``, ``int64`` or an enum."""
    BOOLEAN = "boolean"
    TEXT = "text"
    BYTES = "bytes"
    """Bytes, or the bytes of a message."""


class Field(NamedTuple):
    """A field of a message."""

    name: str
    kind: Kind
    is_repeated: bool
    tag: bytes


class Table:
    """The fields of a type of message.

    Attributes:
        fields: The fields in the order of their numbers.
        by_tag: The fields by their tags: number and wire type.
        numbers: The numbers of the fields.
    """

    def __init__(self, *declared: tuple[int, str, Kind, bool]) -> None:
        self.by_tag: dict[int, Field] = {}
        self.numbers = frozenset(number for number, *_ in declared)
        for number, name, kind, is_repeated in declared:
            tag = number << 3 | (_LENGTH if kind in {Kind.TEXT, Kind.BYTES} else _VARINT)
            self.by_tag[tag] = Field(name, kind, is_repeated, _varint(tag))
        self.fields = tuple(self.by_tag[tag] for tag in sorted(self.by_tag))


_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MOST_VARINT_BYTES: Final = 10
_U64: Final = 1 << 64
_SIGN: Final = 1 << 63
_MALFORMED: Final = ReasonCode.MALFORMED


def loads(data: bytes, table: Table, path: str) -> Fields:
    """Return the fields of a message.

    Raises:
        DecodeError: The bytes are no such message.
    """
    fields: Fields = {}
    at, size, by_tag = 0, len(data), table.by_tag
    try:
        while at < size:
            tag = data[at]
            at += 1
            if tag > 127:
                tag, at = _read_varint(data, at - 1, path)
            field = by_tag.get(tag)
            if field is None:
                at = _after_unknown(data, at, tag, table, path)
                continue
            number = data[at]
            at += 1
            if number > 127:
                number, at = _read_varint(data, at - 1, path)
            value: Any = number
            kind = field.kind
            if kind is _TEXT or kind is _BYTES:
                stop = at + number
                if stop > size:
                    raise _ends_too_early(path)
                value = data[at:stop]
                at = stop
                if kind is _TEXT:
                    value = value.decode()
            elif kind is _BOOLEAN:
                value = number != 0
            elif number >= _SIGN:
                value = number - _U64
            if field.is_repeated:
                fields.setdefault(field.name, []).append(value)
            else:
                fields[field.name] = value
    except IndexError:
        raise _ends_too_early(path) from None
    except UnicodeDecodeError:
        reason = "a text is not UTF-8"
        raise DecodeError(reason, code=ReasonCode.INVALID_UTF8, path=path) from None
    return fields


# module names, because a look-up in the enum class is as slow as reading a number
_TEXT, _BYTES, _BOOLEAN = Kind.TEXT, Kind.BYTES, Kind.BOOLEAN


def _ends_too_early(path: str) -> DecodeError:
    reason = "the message ends inside of a field"
    return DecodeError(reason, code=ReasonCode.INCOMPLETE_MESSAGE, path=path)


def _read_varint(data: bytes, at: int, path: str) -> tuple[int, int]:
    """Return a number of up to 64 bits, and the place behind it."""
    number = shift = 0
    for index in range(_MOST_VARINT_BYTES):
        byte = data[at + index]
        number |= (byte & 127) << shift
        if byte < 128:
            if number >= _U64:
                break
            return number, at + index + 1
        shift += 7
    raise DecodeError("a number has more than 64 bits", code=_MALFORMED, path=path)


def _after_unknown(data: bytes, at: int, tag: int, table: Table, path: str) -> int:
    """Return the place behind a field that the table does not have."""
    number, wire_type = tag >> 3, tag & 7
    if number in table.numbers or number == 0:
        raise DecodeError("a field has another type", code=_MALFORMED, path=path)
    match wire_type:
        case 0:
            return _read_varint(data, at, path)[1]
        case 1:
            at += 8
        case 2:
            length, at = _read_varint(data, at, path)
            at += length
        case 5:
            at += 4
        case _:
            raise DecodeError("an unknown kind of field", code=_MALFORMED, path=path)
    if at > len(data):
        raise _ends_too_early(path)
    return at


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def dumps(fields: Mapping[str, Any], table: Table) -> bytes:
    """Return the bytes of a message, with its fields in the order of their numbers.

    A field that is missing or ``None`` is not written.

    Raises:
        EncodeError: A text has a lone surrogate, or a number has more than 64 bits.
    """
    parts: list[bytes] = []
    for name, kind, is_repeated, tag in table.fields:
        value = fields.get(name)
        if value is None:
            continue
        for item in value if is_repeated else (value,):
            if kind is _TEXT or kind is _BYTES:
                data = _utf8(item) if kind is _TEXT else item
                parts += (tag, _varint(len(data)), data)
            elif -_SIGN <= item < _U64:
                parts += (tag, _varint(item % _U64))
            else:
                raise EncodeError("a number has more than 64 bits")
    return b"".join(parts)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        msg = "a text has a lone surrogate, which UTF-8 cannot encode"
        raise EncodeError(msg) from None


_ONE, _MANY = False, True

PACKET: Final = Table(
    (1, "magic_number", Kind.INTEGER, _ONE),
    (2, "version", Kind.INTEGER, _ONE),
    (3, "type", Kind.INTEGER, _ONE),
    (4, "compression", Kind.INTEGER, _ONE),
    (5, "body", Kind.BYTES, _ONE),
)
MESSAGES: Final = Table(
    (1, "batch_id", Kind.INTEGER, _ONE),
    (2, "messages", Kind.BYTES, _MANY),
)
ENTRY: Final = Table(
    (1, "header", Kind.BYTES, _ONE),
    (2, "entryType", Kind.INTEGER, _ONE),
    (3, "storeValue", Kind.BYTES, _ONE),
)
HEADER: Final = Table(
    (1, "version", Kind.INTEGER, _ONE),
    (2, "logfileName", Kind.TEXT, _ONE),
    (3, "logfileOffset", Kind.INTEGER, _ONE),
    (4, "serverId", Kind.INTEGER, _ONE),
    (5, "serverenCode", Kind.TEXT, _ONE),
    (6, "executeTime", Kind.INTEGER, _ONE),
    (7, "sourceType", Kind.INTEGER, _ONE),
    (8, "schemaName", Kind.TEXT, _ONE),
    (9, "tableName", Kind.TEXT, _ONE),
    (10, "eventLength", Kind.INTEGER, _ONE),
    (11, "eventType", Kind.INTEGER, _ONE),
    (12, "props", Kind.BYTES, _MANY),
    (13, "gtid", Kind.TEXT, _ONE),
)
PAIR: Final = Table((1, "key", Kind.TEXT, _ONE), (2, "value", Kind.TEXT, _ONE))
ROW_CHANGE: Final = Table(
    (1, "tableId", Kind.INTEGER, _ONE),
    (2, "eventType", Kind.INTEGER, _ONE),
    (10, "isDdl", Kind.BOOLEAN, _ONE),
    (11, "sql", Kind.TEXT, _ONE),
    (12, "rowDatas", Kind.BYTES, _MANY),
    (13, "props", Kind.BYTES, _MANY),
    (14, "ddlSchemaName", Kind.TEXT, _ONE),
)
ROW_DATA: Final = Table(
    (1, "beforeColumns", Kind.BYTES, _MANY),
    (2, "afterColumns", Kind.BYTES, _MANY),
    (3, "props", Kind.BYTES, _MANY),
)
COLUMN: Final = Table(
    (1, "index", Kind.INTEGER, _ONE),
    (2, "sqlType", Kind.INTEGER, _ONE),
    (3, "name", Kind.TEXT, _ONE),
    (4, "isKey", Kind.BOOLEAN, _ONE),
    (5, "updated", Kind.BOOLEAN, _ONE),
    (6, "isNull", Kind.BOOLEAN, _ONE),
    (7, "props", Kind.BYTES, _MANY),
    (8, "value", Kind.TEXT, _ONE),
    (9, "length", Kind.INTEGER, _ONE),
    (10, "mysqlType", Kind.TEXT, _ONE),
)
TRANSACTION: Final = Table(
    (1, "executeTime", Kind.INTEGER, _ONE),
    (2, "transactionId", Kind.TEXT, _ONE),
    (3, "props", Kind.BYTES, _MANY),
    (4, "threadId", Kind.INTEGER, _ONE),
)
"""``TransactionBegin``; ``TransactionEnd`` has no ``threadId``."""
