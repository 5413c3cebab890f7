# SPDX-License-Identifier: Apache-2.0
"""The values of images: branches of a union, read straight into typed values.

What a column holds is told twice: by its number, and by the branch of each value. The number gives
the type of the column; a value of another kind tells its type along with itself.
"""

import datetime as dt
import decimal
import re
import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec

from changelane.formats.dts import charsets, datetimes
from changelane.formats.dts.avro import read_bytes, read_long, read_text
from changelane.formats.dts.type_numbers import MYSQL, Family, source_type
from changelane.schema import Column
from changelane.types import (
    Bits,
    Boolean,
    Bytes,
    Decimal,
    Enum,
    Float,
    Geometry,
    GeometryType,
    InstantType,
    Integer,
    Interval,
    Json,
    LogicalType,
    Set,
    String,
    Text,
    Timestamp,
    Uuid,
    Value,
    Xml,
    Year,
)

ABSENT: Final = object()
"""What ``NONE`` reads as: the column is not in the image."""

NOT_A_VALUE: Final = (ArithmeticError, ValueError, IndexError, LookupError, struct.error)
"""What reading a value raises when it is none of its branch, or is cut off."""

Read = Callable[[bytes, int], tuple[Any, int]]
"""From the data and the place after the branch to the value and where it ends."""


class Typed(msgspec.Struct, frozen=True):
    """A value whose type is not the one that its column's number tells."""

    value: Value
    column: Column


class Setting(msgspec.Struct, frozen=True):
    """What one column's readers have to know.

    Attributes:
        number: The column's ``dataTypeNumber``; ``None`` when the record has no fields.
        in_microseconds: The unit of ``millis`` in a ``DateTime``; else nanoseconds.
    """

    name: str
    number: int | None
    family: Family
    in_microseconds: bool

    @property
    def column(self) -> Column:
        """The column as its number tells it; without a number that is known it is text."""
        if self.number is None:
            return Column(self.name, String())
        family_type = self.family.numbers.get(self.number)
        kind = String() if family_type is None else family_type.kind
        return Column(self.name, kind, source_type(self.family, self.number))

    def typed(self, value: Value, kind: LogicalType, charset: str | None = None) -> Typed:
        """Return a value that says its column's type, and its character set."""
        is_bytes = isinstance(kind, Bytes)
        text = None
        if self.number is not None:
            text = source_type(self.family, self.number, is_bytes=is_bytes)
            if charset is not None:
                text = f"{text} character set {charset}"
        return Typed(value, Column(self.name, kind, text))


def readers(setting: Setting) -> tuple[Read, ...]:
    """Return the reader for each byte that can stand before a value: twice its branch."""
    kind = setting.column.type
    readers = (
        _read_null,
        _integer(setting, kind),
        _character(setting, kind),
        _decimal(setting, kind),
        _float(setting, kind),
        _timestamp(setting, kind),
        _date_time(setting, kind),
        _zoned(setting, kind),
        _binary_geometry(setting, kind),
        _text_geometry(setting, kind),
        _binary_object(setting, kind),
        _text_object(setting, kind),
        _read_empty,
    )
    return tuple(read for reader in readers for read in (reader, _refuse))


def _refuse(_data: bytes, _at: int) -> tuple[Any, int]:
    raise ValueError


def _read_null(_data: bytes, at: int) -> tuple[Any, int]:
    return None, at


def _read_empty(data: bytes, at: int) -> tuple[Any, int]:
    symbol = data[at]
    if symbol == 0:
        return None, at + 1
    if symbol == 2:
        return ABSENT, at + 1
    raise ValueError


# -- numbers -----------------------------------------------------------------------------------

_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]{1,9})?")
_NON_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_NO_NUMBER: Final = "~"
"""A special value of ``dts-deliver-sdk`` that is kept as it is."""
_MOST_DIGITS: Final = 4000


def _whole(text: bytes) -> int:
    digits = text[1:] if text[:1] in (b"-", b"+") else text
    if not digits.isdigit() or len(digits) > _MOST_DIGITS:
        raise ValueError
    return int(text)


def _skip(data: bytes, at: int) -> int:
    """Return where the number at *at* ends."""
    return at + 1 if data[at] < 128 else read_long(data, at)[1]


def _integer(setting: Setting, kind: LogicalType) -> Read:
    match kind:
        case Bits():
            return _convert_integer(_bits_of)
        case Boolean():
            return _convert_integer({0: False, 1: True}.__getitem__)
        case Decimal():
            return _convert_integer(decimal.Decimal)
        case Year():
            return _convert_integer(lambda number: number)
        case _:
            pass
    low, high = kind.range() if isinstance(kind, Integer) else (1, 0)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        at = at + 1 if data[at] < 128 else _skip(data, at)
        text, at = read_bytes(data, at)
        number = int(text) if text.isdigit() and len(text) < 99 else _whole(text)
        if low <= number <= high:
            return number, at
        return _wider(setting, number), at

    return read


def _wider(setting: Setting, number: int) -> Typed:
    for kind in (Integer(64), Integer(64, unsigned=True)):
        low, high = kind.range()
        if low <= number <= high:
            return setting.typed(number, kind)
    return setting.typed(decimal.Decimal(number), Decimal())


def _convert_integer(convert: Callable[[int], Value]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        text, at = read_bytes(data, _skip(data, at))
        return convert(_whole(text)), at

    return read


def _bits_of(number: int) -> str:
    if number < 0:
        raise ValueError
    return f"{number:b}"


def _decimal(setting: Setting, kind: LogicalType) -> Read:
    is_decimal = isinstance(kind, Decimal)
    matches = _DECIMAL.fullmatch

    def read(data: bytes, at: int) -> tuple[Any, int]:
        text, at = read_text(data, at)
        at = _skip(data, at)
        at = _skip(data, at)
        if text == _NO_NUMBER:
            return setting.typed(text, String()), at
        if not matches(text) and text not in _NON_FINITE:
            raise ValueError
        number = decimal.Decimal(text)
        return (number if is_decimal else setting.typed(number, Decimal())), at

    return read


_DOUBLE: Final = struct.Struct("<d").unpack_from


def _float(setting: Setting, kind: LogicalType) -> Read:
    is_float = isinstance(kind, Float)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        (number,) = _DOUBLE(data, at)
        at = _skip(data, at + 8)
        at = _skip(data, at)
        return (number if is_float else setting.typed(number, Float(64))), at

    return read


# -- text and bytes ----------------------------------------------------------------------------

_TEXTS: Final = (String, Text, Json, Xml, Enum, Set, Uuid)


def _character(setting: Setting, kind: LogicalType) -> Read:
    is_text = isinstance(kind, _TEXTS)
    is_bytes = isinstance(kind, Bytes)
    plain = {charsets.DEFAULT.encode()}
    if setting.family is not MYSQL:
        plain |= {name.encode() for name in charsets.UTF8}

    def read(data: bytes, at: int) -> tuple[Any, int]:
        charset, at = read_bytes(data, at)
        content, at = read_bytes(data, at)
        if is_text and charset in plain:
            return content.decode(), at
        return other(charset.decode(), content), at

    def other(charset: str, content: bytes) -> Value:
        decode = charsets.decoder(charset)
        if decode is None:
            # "Empty or unknown charset": the bytes are what is known
            if is_bytes:
                return content
            return setting.typed(content, Bytes())
        text = decode(content)
        charset_name = None if charset.encode() in plain else charset
        return setting.typed(text, kind if is_text else String(), charset_name)

    return read


def _binary_object(setting: Setting, kind: LogicalType) -> Read:
    is_bytes = isinstance(kind, Bytes)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        label, at = read_text(data, at)
        content, at = read_bytes(data, at)
        match label.upper():
            case "BIT" | "BITS" | "VARBIT":
                bits = "".join(f"{byte:08b}" for byte in content)
                return (bits if isinstance(kind, Bits) else setting.typed(bits, Bits())), at
            case "JSON" | "JSONB":
                text = content.decode()
                return (text if isinstance(kind, Json) else setting.typed(text, Json())), at
            case _ if is_bytes:
                return content, at
            case _:
                return setting.typed(content, Bytes()), at

    return read


_LABELS: Final[dict[str, LogicalType]] = {
    "ENUM": Enum(),
    "SET": Set(),
    "JSON": Json(),
    "JSONB": Json(),
    "TEXT": String(),
    "STRING": String(),
    "XML": Xml(),
    "UUID": Uuid(),
    "BOOL": Boolean(),
    "BOOLEAN": Boolean(),
    "BIT": Bits(),
    "VARBIT": Bits(),
    "INTERVAL": Text("interval"),
}
_BOOLEANS: Final = {"t": True, "true": True, "1": True, "f": False, "false": False, "0": False}
_BITS: Final = re.compile("[01]*")
_ISO_SPAN: Final = re.compile(r"P(?=[-+.\dT])(?:[-+]?[\d.]+[YMWD])*(?:T(?:[-+]?[\d.]+[HMS])+)?")


def _text_object(setting: Setting, kind: LogicalType) -> Read:
    stated = setting.number is not None and setting.number in setting.family.numbers

    def read(data: bytes, at: int) -> tuple[Any, int]:
        label, at = read_text(data, at)
        text, at = read_text(data, at)
        text_type = _LABELS.get(label.upper()) or Text(label.lower())
        if (
            isinstance(text_type, Text)
            and text_type.name == "interval"
            and _ISO_SPAN.fullmatch(text)
        ):
            text_type = Interval()
        if type(text_type) is type(kind) or (
            stated and isinstance(kind, _TEXTS) and _is_text(text_type)
        ):
            return _labelled(text, kind), at
        return setting.typed(_labelled(text, text_type), text_type), at

    return read


def _is_text(kind: LogicalType) -> bool:
    return isinstance(kind, String | Text)


def _labelled(text: str, kind: LogicalType) -> Value:
    if isinstance(kind, Boolean):
        return _BOOLEANS[text.lower()]
    if isinstance(kind, Bits) and not _BITS.fullmatch(text):
        raise ValueError
    return text


# -- times -------------------------------------------------------------------------------------


def _timestamp(setting: Setting, kind: LogicalType) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        seconds, at = read_long(data, at)
        fraction, at = read_long(data, at)
        return _fitting(setting, kind, datetimes.instant_of(seconds, _nanoseconds(fraction))), at

    return read


def _nanoseconds(micros: int) -> int:
    """Return a fraction that is microseconds; what is too many of them is nanoseconds already."""
    return micros * 1000 if -1_000_000 < micros < 1_000_000 else micros


def _fitting(setting: Setting, kind: LogicalType, shown: datetimes.Shown) -> Value:
    """Return a value as it is when it is of its column's type, else with its own."""
    shown_type, value = shown
    if shown_type == kind:
        return value
    if (
        isinstance(kind, InstantType)
        and isinstance(shown_type, Timestamp)
        and isinstance(value, str)
    ):
        return value  # a zero date has no zone
    return setting.typed(value, shown_type)


def _parts(data: bytes, at: int, *, in_microseconds: bool) -> tuple[datetimes.Parts, int]:
    parts: list[int | None] = []
    for _ in range(7):
        branch = data[at]
        at += 1
        if branch == 2:
            number = data[at]
            if number < 128:
                parts.append((number >> 1) ^ -(number & 1))
                at += 1
            else:
                number, at = read_long(data, at)
                parts.append(number)
        elif branch == 0:
            parts.append(None)
        else:
            raise ValueError
    if in_microseconds and parts[6]:
        parts[6] = _nanoseconds(parts[6])
    return tuple(parts), at  # type: ignore[return-value]


# the usual form: a year of two bytes, all other parts of one byte, no fraction
_USUAL: Final = re.compile(
    rb"\x02[\x80-\xff][\x00-\x7f](?:\x02[\x00-\x7f]){5}\x02\x00", re.DOTALL
).match
_USUAL_BYTES: Final = 15


def _usual(data: bytes, at: int) -> dt.datetime | None:
    """Return a timestamp of the usual form, without reading it part by part."""
    low, high, month, day = data[at + 1], data[at + 2], data[at + 4], data[at + 6]
    hour, minute, second = data[at + 8], data[at + 10], data[at + 12]
    if (low | month | day | hour | minute | second) & 1:
        return None  # a negative part
    try:
        return dt.datetime(
            (low & 127 | high << 7) >> 1, month >> 1, day >> 1, hour >> 1, minute >> 1, second >> 1
        )
    except ValueError:
        return None


def _date_time(setting: Setting, kind: LogicalType) -> Read:
    in_microseconds = setting.in_microseconds

    is_timestamp = isinstance(kind, Timestamp)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        if is_timestamp and _USUAL(data, at):
            value = _usual(data, at)
            if value is not None:
                return value, at + _USUAL_BYTES
        parts, at = _parts(data, at, in_microseconds=in_microseconds)
        return _fitting(setting, kind, datetimes.value_of(parts)), at

    return read


def _zoned(setting: Setting, kind: LogicalType) -> Read:
    in_microseconds = setting.in_microseconds

    def read(data: bytes, at: int) -> tuple[Any, int]:
        parts, at = _parts(data, at, in_microseconds=in_microseconds)
        zone, at = read_text(data, at)
        return _fitting(setting, kind, datetimes.zoned(parts, zone)), at

    return read


# -- shapes ------------------------------------------------------------------------------------


def _binary_geometry(setting: Setting, kind: LogicalType) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        _, at = read_bytes(data, at)
        content, at = read_bytes(data, at)
        shape = _geometry(content)
        return (shape if isinstance(kind, GeometryType) else setting.typed(shape, _SHAPE)), at

    return read


_SHAPE: Final = GeometryType()
_POINT_BYTES: Final = 21
_GEOMETRY_TYPES: Final = 17


def _is_wkb(data: bytes) -> bool:
    """Say whether bytes begin like well-known binary: a byte order, then a type of geometry."""
    if len(data) < 5 or data[0] > 1:
        return False
    kind = int.from_bytes(data[1:5], "little" if data[0] else "big")
    # PostGIS flags in the highest bits, dimensions in the thousands
    return 0 < (kind & 0x1FFFFFFF) % 1000 <= _GEOMETRY_TYPES and (kind & 0x1FFFFFFF) < 4000


def _geometry(data: bytes) -> Geometry:
    """Return a shape; the reference that MySQL puts before it is taken off.

    Reference 0 and the byte order after it look like the head of a big-endian point, which has 21
    bytes.
    """
    is_plain = _is_wkb(data) and not (data[:5] == b"\0\0\0\0\1" and len(data) != _POINT_BYTES)
    if not is_plain and _is_wkb(data[4:]):
        return Geometry(data[4:], int.from_bytes(data[:4], "little") or None)
    return Geometry(data or None)


def _text_geometry(setting: Setting, kind: LogicalType) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        label, at = read_text(data, at)
        text, at = read_text(data, at)
        return (text if isinstance(kind, Text) else setting.typed(text, Text(label.lower()))), at

    return read
