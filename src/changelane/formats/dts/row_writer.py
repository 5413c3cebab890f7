# SPDX-License-Identifier: Apache-2.0
"""Typed values to branches of a union, the way DTS writes each type of each kind of source."""

import datetime as dt
import decimal
import math
import struct
from collections.abc import Callable
from typing import Any, Final

from changelane.formats.contract.losses import Loss
from changelane.formats.dts import charsets, datetimes
from changelane.formats.dts.avro import bytes_of, long_of, text_of
from changelane.formats.dts.type_numbers import MYSQL, ORACLE, POSTGRESQL, Family, stated_charset
from changelane.schema import Column
from changelane.types import (
    Bits,
    Boolean,
    Bytes,
    Date,
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
    Time,
    Timestamp,
    TimeTz,
    Uuid,
    Value,
    Xml,
    Year,
)
from changelane.types.values import plain, value_text

NOT_A_VALUE: Final = (
    ValueError,
    ArithmeticError,
    TypeError,
    LookupError,
    AttributeError,
    struct.error,
)
"""What writing raises for a value that is not of its column's type."""

Report = Callable[[Loss], None]
Write = Callable[[Any, Report], bytes]
"""From a value that is not NULL to its branch and content."""

NULL: Final = b"\x00"
NONE: Final = b"\x18\x02"
"""``EmptyObject`` NONE: no value is known."""

INTEGER: Final = b"\x02"
CHARACTER: Final = b"\x04"
DECIMAL: Final = b"\x06"
FLOAT: Final = b"\x08"
TIMESTAMP: Final = b"\x0a"
DATE_TIME: Final = b"\x0c"
ZONED: Final = b"\x0e"
BINARY_GEOMETRY: Final = b"\x10"
TEXT_GEOMETRY: Final = b"\x12"
BINARY_OBJECT: Final = b"\x14"
TEXT_OBJECT: Final = b"\x16"

TYPES: Final[frozenset[type[LogicalType]]] = frozenset(
    {
        Bits,
        Boolean,
        Bytes,
        Date,
        Decimal,
        Enum,
        Float,
        GeometryType,
        InstantType,
        Integer,
        Interval,
        Json,
        Set,
        String,
        Text,
        Time,
        Timestamp,
        TimeTz,
        Uuid,
        Xml,
        Year,
    }
)
"""The logical types that have a branch of their own."""

_LABELS: Final[dict[type[LogicalType], str]] = {
    Enum: "ENUM",
    Set: "SET",
    Json: "JSON",
    Xml: "XML",
    Uuid: "UUID",
    Bits: "BIT",
}
_BLOB_NUMBERS: Final = frozenset({249, 250, 251, 252})


def writer(column: Column, number: int, family: Family, *, in_microseconds: bool) -> Write:
    """Return the function from a value of a column to its branch and content.

    Args:
        column: The column.
        number: Its ``dataTypeNumber``.
        family: The numbers of its kind of source.
        in_microseconds: The unit of ``millis`` in a ``DateTime``; else nanoseconds.
    """
    kind = column.type
    match kind:
        case Integer() if family is ORACLE:
            return _oracle_integer
        case Integer():
            family_type = family.numbers.get(number)
            return _integer(family_type.width if family_type is not None else kind.bits // 8)
        case Bits() if family is MYSQL:
            return _bits
        case Boolean():
            return _boolean
        case Decimal():
            return _decimal
        case Float():
            return _float
        case String() | Xml() if not isinstance(kind, Xml) or family is ORACLE:
            return _character(stated_charset(column) or charsets.DEFAULT)
        case Bytes():
            is_binary = family is MYSQL and number in {15, 253, 254}
            return _binary_character if is_binary else _binary_object
        case GeometryType():
            return _geometry
        case Interval() if family is POSTGRESQL:
            return _interval_text if kind.unit else _labelled("INTERVAL")
        case _ if isinstance(kind, (Date, Time, Timestamp, TimeTz, InstantType, Year, Interval)):
            return _temporal(kind, family, in_microseconds=in_microseconds)
        case Text():
            return _text(kind.name, family, number)
        case _:
            return _labelled(_LABELS[type(kind)])


def _expect(value: Value, kind: type) -> None:
    if value.__class__ is not kind:
        raise TypeError


# -- numbers -----------------------------------------------------------------------------------


def _integer(width: int) -> Write:
    head = INTEGER + long_of(width)

    def write(value: int, _report: Report) -> bytes:
        if value.__class__ is not int:
            raise TypeError
        text = b"%d" % value
        return head + long_of(len(text)) + text

    return write


def _oracle_integer(value: int, report: Report) -> bytes:
    _expect(value, int)
    report(("type:integer", "a NUMBER of Oracle comes back as a decimal"))
    return _decimal(decimal.Decimal(value), report)


def _bits(value: str, report: Report) -> bytes:
    number = int(value, 2)
    if value != f"{number:b}":
        report(("value:bits", "leading zeros of bits without a length"))
    return INTEGER + long_of((len(value) + 7) // 8) + text_of(str(number))


def _boolean(value: bool, _report: Report) -> bytes:  # noqa: FBT001
    _expect(value, bool)
    return TEXT_OBJECT + text_of("BOOL") + text_of("t" if value else "f")


def _decimal(value: decimal.Decimal, report: Report) -> bytes:
    if value.__class__ is not decimal.Decimal:
        raise TypeError
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        if value.is_snan() or (value.is_nan() and str(value) != "NaN"):
            report(("value:decimal", "a NaN with a sign, a payload or a signal"))
        text = "NaN" if value.is_nan() else "Infinity" if value > 0 else "-Infinity"
        return DECIMAL + text_of(text) + b"\x00\x00"
    text = str(value)
    if "E" in text:
        text = plain(value)
    # the number of digits of the unscaled value, as Java counts them: 0.0100 has 3
    precision = len(digits) if exponent <= 0 or "E" in text else len(digits) + exponent
    scale = -exponent if exponent <= 0 or "E" in text else 0
    return DECIMAL + text_of(text) + long_of(precision) + long_of(scale)


_DOUBLE: Final = struct.Struct("<d").pack
_PRECISION_AND_SCALE: Final = long_of(8) + long_of(15)


def _float(value: float, _report: Report) -> bytes:
    if value.__class__ is not float:
        value = float(value)
        if math.isinf(value):
            raise OverflowError
    return FLOAT + _DOUBLE(value) + _PRECISION_AND_SCALE


# -- text and bytes ----------------------------------------------------------------------------


def _character(charset: str) -> Write:
    default = CHARACTER + text_of(charsets.DEFAULT)
    stated = CHARACTER + text_of(charset)
    is_utf8 = charset.lower() in charsets.UTF8

    def write(value: str, _report: Report) -> bytes:
        data = value.encode() if is_utf8 else charsets.encode(value, charset)
        if data is None:
            return default + bytes_of(value.encode())
        size = len(data)
        return stated + long_of(size) + data

    return write


_BINARY_HEAD: Final = CHARACTER + text_of(charsets.BINARY)
_BLOB_HEAD: Final = BINARY_OBJECT + text_of("BLOB")


def _binary_character(value: bytes, _report: Report) -> bytes:
    _expect(value, bytes)
    return _BINARY_HEAD + bytes_of(value)


def _binary_object(value: bytes, _report: Report) -> bytes:
    _expect(value, bytes)
    return _BLOB_HEAD + bytes_of(value)


def _labelled(label: str) -> Write:
    head = TEXT_OBJECT + text_of(label)
    return lambda value, _report: head + text_of(value)


_SHAPES: Final = frozenset({"point", "lseg", "path", "box", "polygon", "line", "circle"})


def _text(name: str, family: Family, number: int) -> Write:
    if name == "wkt" or (family is POSTGRESQL and number in family.numbers and name in _SHAPES):
        head = TEXT_GEOMETRY + text_of(name.upper())
        return lambda value, _report: head + text_of(value)
    return _labelled(name.upper())


_GEOMETRY_HEAD: Final = BINARY_GEOMETRY + text_of("WKB")


def _geometry(value: Geometry, report: Report) -> bytes:
    if value.srid is not None:
        report(("value:geometry", "its spatial reference is not written"))
    if value.wkb == b"":
        report(("value:geometry", "a shape of no bytes comes back as one without them"))
    return _GEOMETRY_HEAD + bytes_of(value.wkb or b"")


# -- times -------------------------------------------------------------------------------------


def _interval_text(value: Value, report: Report) -> bytes:
    report(("type:interval", "PostgreSQL's intervals are text"))
    text = value_text(String(), value)
    if isinstance(value, dt.timedelta):
        text = f"PT{decimal.Decimal(value // dt.timedelta(microseconds=1)).scaleb(-6):f}S"
    return TEXT_OBJECT + text_of("INTERVAL") + text_of(text)


def _part(number: int | None) -> bytes:
    return b"\x00" if number is None else b"\x02" + long_of(number)


def _parts(parts: datetimes.Parts, *, in_microseconds: bool) -> bytes:
    *front, ns = parts
    if ns is not None and in_microseconds:
        ns = ns // 1000 if ns >= 0 else -(-ns // 1000)
    return b"".join(map(_part, front)) + _part(ns)


def _cut(
    parts: datetimes.Parts, report: Report, name: str, *, in_microseconds: bool
) -> datetimes.Parts:
    """Return parts whose fraction fits the unit, and report what did not."""
    ns = parts[6]
    if not in_microseconds or not ns or not ns % 1000:
        return parts
    report((f"value:{name}", "cut to microseconds"))
    return (*parts[:6], ns - ns % 1000 if ns > 0 else ns + -ns % 1000)


def _temporal(kind: LogicalType, family: Family, *, in_microseconds: bool) -> Write:
    """Return the writer of a type of dates and times, which reports what it cannot write."""
    name = str(kind).partition("(")[0]
    as_epoch = isinstance(kind, InstantType) and family not in (POSTGRESQL, ORACLE)
    read = _READS[type(kind)]

    def write(value: Any, report: Report) -> bytes:
        if as_epoch:
            seconds, ns = datetimes.epoch_parts(value)
            if ns % 1000:
                report((f"value:{name}", "cut to microseconds"))
            shown = datetimes.instant_of(seconds, ns)
            content = TIMESTAMP + long_of(seconds) + long_of(ns // 1000)
        else:
            parts, zone = read(value)
            parts = _cut(parts, report, name, in_microseconds=in_microseconds)
            content = _parts(parts, in_microseconds=in_microseconds)
            if zone is None:
                content, shown = DATE_TIME + content, datetimes.value_of(parts)
            else:
                content, shown = ZONED + content + text_of(zone), datetimes.zoned(parts, zone)
        if not _is_same(shown[1], value):
            report((f"value:{name}", "printed otherwise"))
        return content

    def guarded(value: Any, report: Report) -> bytes:
        try:
            return write(value, report)
        except (ValueError, OverflowError):
            if isinstance(value, str) and isinstance(kind, Interval):
                return TEXT_OBJECT + text_of("INTERVAL") + text_of(value)
            if not isinstance(value, str):
                raise
            if as_epoch and (zero := _zero_date(value, in_microseconds=in_microseconds)):
                return zero
            report((f"value:{name}", "no calendar date or time; written as null"))
            return NULL

    return guarded


def _zero_date(text: str, *, in_microseconds: bool) -> bytes:
    """Return a zero TIMESTAMP of MySQL, which is no point in time; nothing for other texts."""
    try:
        parts = datetimes.timestamp_parts(text)
    except ValueError:
        return b""
    if datetimes.value_of(parts)[1] != text:
        return b""
    return DATE_TIME + _parts(parts, in_microseconds=in_microseconds)


def _is_same(shown: Value, value: Value) -> bool:
    """Say whether what will be read is what is written; zeros at the end of a fraction are none."""
    if isinstance(shown, str) and isinstance(value, str):
        return _bare(shown) == _bare(value)
    return shown == value and type(shown) in (type(value), *type(value).__bases__, *_KIN)


_KIN: Final = (dt.datetime,)


def _bare(text: str) -> str:
    front, dot, fraction = text.partition(".")
    digits = fraction[: len(fraction) - len(fraction.lstrip("0123456789"))]
    return (
        f"{front}{dot if digits.rstrip('0') else ''}{digits.rstrip('0')}{fraction[len(digits) :]}"
    )


def _year(value: int) -> datetimes.Parts:
    _expect(value, int)
    return (value, None, None, None, None, None, None)


def _span(value: Any) -> datetimes.Parts:
    return datetimes.months_parts(value) if isinstance(value, str) else datetimes.span_parts(value)


def _local(
    read: Callable[[Any], datetimes.Parts],
) -> Callable[[Any], tuple[datetimes.Parts, str | None]]:
    return lambda value: (read(value), None)


_READS: Final[dict[type[LogicalType], Callable[[Any], tuple[datetimes.Parts, str | None]]]] = {
    Date: _local(datetimes.date_parts),
    Time: _local(datetimes.time_parts),
    Timestamp: _local(datetimes.timestamp_parts),
    Year: _local(_year),
    Interval: _local(_span),
    TimeTz: datetimes.zoned_time_parts,
    InstantType: datetimes.zoned_parts,
}
