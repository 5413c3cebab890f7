# SPDX-License-Identifier: Apache-2.0
"""The wire format of Protocol Buffers (https://protobuf.dev/programming-guides/encoding/).

A message is a dict of its fields, by name; a field that is missing in the bytes is missing in the
dict. Unknown fields are ignored, as in Protocol Buffers.
"""

import struct
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
    FLOAT = "float"
    DOUBLE = "double"


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
            tag = number << 3 | _WIRE_TYPES.get(kind, _VARINT)
            self.by_tag[tag] = Field(name, kind, is_repeated, _varint(tag))
        self.fields = tuple(self.by_tag[tag] for tag in sorted(self.by_tag))


_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_WIRE_TYPES: Final = {
    Kind.TEXT: _LENGTH,
    Kind.BYTES: _LENGTH,
    Kind.FLOAT: _FIXED32,
    Kind.DOUBLE: _FIXED64,
}
"""The wire types of kinds that are no numbers of variable length."""
_FIXED: Final = {Kind.FLOAT: struct.Struct("<f"), Kind.DOUBLE: struct.Struct("<d")}
_MOST_VARINT_BYTES: Final = 10
_FIXED_TYPES: Final = frozenset({_FIXED64, _FIXED32})
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
            kind = field.kind
            fixed = _FIXED.get(kind) if tag & 7 in _FIXED_TYPES else None
            if fixed is not None:
                (fields[field.name],) = fixed.unpack_from(data, at)
                at += fixed.size
                continue
            number = data[at]
            at += 1
            if number > 127:
                number, at = _read_varint(data, at - 1, path)
            value: Any = number
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
    except (IndexError, struct.error):
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
            elif kind in _FIXED:
                parts += (tag, _FIXED[kind].pack(item))
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
