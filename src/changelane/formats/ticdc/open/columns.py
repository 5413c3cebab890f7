# SPDX-License-Identifier: Apache-2.0
"""The column types and flags of TiCDC's open protocol, and the values of each type.

Sources: "TiCDC Open Protocol", Column type code and Bit flags of columns
(https://docs.pingcap.com/tidb/stable/ticdc-open-protocol), and ``writeColumnFieldValue`` in
``pkg/sink/codec/open/codec.go`` of https://github.com/pingcap/ticdc.
"""

import binascii
import datetime as dt
import re
from collections.abc import Mapping
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.formats.contract.column_values import Read
from changelane.formats.ticdc.values import value_reader, wrong_value
from changelane.reason_codes import ReasonCode
from changelane.types import (
    UNKNOWN,
    Bits,
    Bytes,
    Date,
    Decimal,
    Float,
    InstantType,
    Integer,
    Json,
    LogicalType,
    String,
    Time,
    Timestamp,
    Year,
)

BINARY: Final = 1
"""The character set of the column is ``binary``, as that of all columns without characters."""
HANDLE_KEY: Final = 2
"""The column identifies the row: it is in the primary key or in a unique key without NULL."""
GENERATED: Final = 4
NULLABLE: Final = 64
UNSIGNED: Final = 128

NULL_TYPE: Final = 6

_INTEGERS: Final[dict[int, tuple[str, int]]] = {
    1: ("tinyint", 8),
    2: ("smallint", 16),
    3: ("int", 32),
    8: ("bigint", 64),
    9: ("mediumint", 32),
}
_SIMPLE: Final[dict[int, tuple[str, LogicalType]]] = {
    4: ("float", Float(32)),
    5: ("double", Float(64)),
    7: ("timestamp", InstantType()),
    10: ("date", Date()),
    11: ("time", Time()),
    12: ("datetime", Timestamp()),
    13: ("year", Year()),
    14: ("date", Date()),
    16: ("bit", Bits()),
    225: ("vector", String()),
    245: ("json", Json()),
    246: ("decimal", Decimal()),
    # the messages have neither the members of the column nor the labels of the value
    247: ("enum", Integer(16, unsigned=True)),
    248: ("set", Integer(64, unsigned=True)),
}
TEXTS: Final[dict[int, tuple[str, str]]] = {
    15: ("varchar", "varbinary"),
    253: ("varchar", "varbinary"),
    254: ("char", "binary"),
}
"""Types whose values are text -> the name with characters and with bytes."""
_BASE64: Final[dict[int, tuple[str, str]]] = {
    249: ("tinytext", "tinyblob"),
    250: ("mediumtext", "mediumblob"),
    251: ("longtext", "longblob"),
    252: ("text", "blob"),
}
"""Types whose values are Base64 -> the name with characters and with bytes."""

CODES: Final[Mapping[str, int]] = {
    **{name: code for code, (name, _) in _INTEGERS.items()},
    **{name: code for code, (name, _) in reversed(_SIMPLE.items())},
    **{name: code for code, names in (TEXTS | _BASE64).items() for name in names if code != 253},
}
"""MySQL's name of a type -> its code."""

BLANK_WHEN_EMPTY: Final = frozenset({7, 10, 11, 12, 14, 225, 245, 246, 247, 248})
"""Types of which ``p`` has null instead of a zero value (:func:`is_blank`)."""
TEXT_TYPES: Final = frozenset({*TEXTS, *_BASE64})
"""Types of which ``p`` has null instead of an empty value (:func:`is_blank`)."""


def type_of(code: int, flags: int) -> tuple[str, LogicalType] | None:
    """Return MySQL's name and the logical type of a column; ``None`` if the type is unknown.

    >>> type_of(8, UNSIGNED), type_of(252, BINARY)
    (('bigint unsigned', Integer(bits=64, unsigned=True)), ('blob', Bytes()))
    """
    if (integer := _INTEGERS.get(code)) is not None:
        name, bits = integer
        unsigned = bool(flags & UNSIGNED)
        return f"{name} unsigned" if unsigned else name, Integer(bits, unsigned)
    if (simple := _SIMPLE.get(code)) is not None:
        name, kind = simple
        is_unsigned = flags & UNSIGNED and isinstance(kind, Decimal | Float)
        return f"{name} unsigned" if is_unsigned else name, kind
    names = TEXTS.get(code) or _BASE64.get(code)
    if names is not None:
        return (names[1], Bytes()) if flags & BINARY else (names[0], String())
    return ("null", UNKNOWN) if code == NULL_TYPE else None


def column_reader(code: int, flags: int, kind: LogicalType, zone: dt.tzinfo) -> Read:
    """Return the function from the JSON value of a column to its value."""
    is_bytes = bool(flags & BINARY)
    if code in _BASE64:
        return _read_base64 if is_bytes else _read_base64_text
    if code in TEXTS and is_bytes:
        return _read_quoted
    if code == NULL_TYPE:
        return _read_null
    return value_reader(kind, zone)


def _read_null(_value: Any) -> object:
    raise wrong_value("null")


def _read_base64(value: Any) -> bytes:
    if type(value) is not str:
        raise wrong_value("bytes")
    try:
        return binascii.a2b_base64(value, strict_mode=True) if value else b""
    except (binascii.Error, ValueError):
        raise DecodeError("not Base64", code=ReasonCode.WRONG_TYPE) from None


def _read_base64_text(value: Any) -> str:
    try:
        return _read_base64(value).decode()
    except UnicodeDecodeError:
        raise DecodeError("the text is not UTF-8", code=ReasonCode.INVALID_UTF8) from None


# -- the quoted form of bytes: strconv.Quote of Go, without the quotes ---------------------------

_ESCAPE: Final = re.compile(
    r'\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([abfnrtv\\"\']))|(\\)'
)
_ESCAPED: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_ESCAPES: Final = {ord(text): f"\\{name}" for name, text in _ESCAPED.items()} | {
    ord("\\"): "\\\\",
    ord('"'): '\\"',
}


def _read_quoted(value: Any) -> bytes:
    if type(value) is not str:
        raise wrong_value("bytes")
    if "\\" not in value:
        return _utf8(value)
    parts: list[bytes] = []
    end = 0
    for match in _ESCAPE.finditer(value):
        parts.append(_utf8(value[end : match.start()]))
        end = match.end()
        byte, short, long, name, lone = match.groups()
        if lone is not None:
            raise DecodeError("a backslash without an escape", code=ReasonCode.WRONG_TYPE)
        if byte is not None:
            parts.append(bytes.fromhex(byte))
        elif name is not None:
            parts.append(_ESCAPED.get(name, name).encode())
        else:
            parts.append(_character(int(short or long, 16)))
    parts.append(_utf8(value[end:]))
    return b"".join(parts)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise DecodeError("the text is not UTF-8", code=ReasonCode.INVALID_UTF8) from None


def _character(number: int) -> bytes:
    try:
        return chr(number).encode()
    except (ValueError, OverflowError):
        raise DecodeError("no such character", code=ReasonCode.WRONG_TYPE) from None


def quoted(value: bytes) -> str:
    r"""Return bytes as TiCDC writes those of VARBINARY and BINARY.

    >>> quoted(b"\x89PNG\r\n\x00")
    '\\x89PNG\\r\\n\\x00'
    """
    # surrogateescape maps each byte that is not UTF-8 to a surrogate of its own
    return "".join(_quoted_character(text) for text in value.decode("utf-8", "surrogateescape"))


def _quoted_character(text: str) -> str:
    number = ord(text)
    if (escape := _ESCAPES.get(number)) is not None:
        return escape
    if 0xDC80 <= number <= 0xDCFF:
        return f"\\x{number - 0xDC00:02x}"
    if number < 0x20 or number == 0x7F:
        return f"\\x{number:02x}"
    if text.isprintable():
        return text
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
