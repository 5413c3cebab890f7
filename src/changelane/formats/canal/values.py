# SPDX-License-Identifier: Apache-2.0
"""Conversion between Canal's value texts and typed values, for each logical type.

Canal writes every value as text: whole numbers in decimal (unsigned ones corrected), BIT as an
unsigned number, FLOAT and DOUBLE as Java prints them, ENUM as an ordinal from 1, SET as a bit mask,
bytes as ISO-8859-1, shapes as bytes of a little-endian SRID and well-known binary.
"""

import datetime as dt
import decimal
import math
import re
import struct
from collections.abc import Callable
from typing import Any, Final

from changelane.formats.contract import json
from changelane.formats.contract.losses import Loss
from changelane.sql_types.mysql import MySqlType
from changelane.types import (
    Bits,
    Bytes,
    Date,
    Decimal,
    Enum,
    Float,
    Geometry,
    GeometryType,
    Instant,
    InstantType,
    Integer,
    Json,
    LogicalType,
    Set,
    Time,
    Timestamp,
    Value,
    Year,
    parse_instant,
)
from changelane.types.values import iso_text, parse_date, parse_timestamp, plain

Read = Callable[[str], Value]
"""Text to value; raises one of :data:`NOT_A_VALUE` if the text is not of the type."""

Write = Callable[[Any], str]
"""Value to text; raises one of :data:`NOT_A_VALUE` if the value is not of the type."""

NOT_A_VALUE: Final = (
    ValueError,
    ArithmeticError,
    TypeError,
    LookupError,
    AttributeError,
    struct.error,
)


class ForeignValue(Exception):  # noqa: N818 - no error: the text is written, with a loss
    """A value that MySQL does not have; its text is written.

    Attributes:
        text: The text to write.
        loss: The loss to report.
    """

    def __init__(self, text: str, field: str, reason: str) -> None:
        super().__init__(reason)
        self.text = text
        self.loss: Loss = (f"value:{field}", reason)


_NO_SUCH: Final = "MySQL has no such value; written as its text"
# "MySQL retrieves and displays TIME values in 'hh:mm:ss' format (or 'hhh:mm:ss' format for large
# hours values). TIME values may range from '-838:59:59' to '838:59:59'."
# https://dev.mysql.com/doc/refman/8.0/en/time.html
_MYSQL_TIME: Final = re.compile(
    r"-?(?:[0-9]{2}|[0-7][0-9]{2}|8[0-2][0-9]|83[0-8]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
)
_MYSQL_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MYSQL_TIMESTAMP: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
)

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,4000}")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]{1,10})?")
_TIME: Final = re.compile(r"-?[0-9]{2,3}:[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?")
# Dates outside of Python's calendar: zero dates, invalid days, far years, BC, infinity.
_DATE_TEXT: Final = re.compile(r"[+-]?infinity|[+-]?[0-9]{1,9}-[0-9]{2}-[0-9]{2}(?: BC)?")
_TIMESTAMP_TEXT: Final = re.compile(
    r"[+-]?infinity|[+-]?[0-9]{1,9}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(?:\.[0-9]{1,12})?(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?(?: BC)?"
)


def reader(mysql_type: MySqlType, *, labels: bool, zone: dt.tzinfo) -> Read | None:
    """Return the function from text to value; ``None`` if the text is the value.

    Args:
        mysql_type: The column's type.
        labels: An ENUM or SET text that is both a label and a number is a label.
        zone: The time zone of TIMESTAMP texts.
    """
    kind = mysql_type.kind
    match kind:
        case Integer():
            return _read_integer(*kind.range())
        case Decimal():
            return _read_decimal
        case Float():
            return read_float
        case Bytes():
            width = mysql_type.width
            return _read_bytes if width is None else _read_padded(width)
        case Bits():
            return _read_bits(kind.length)
        case Date():
            return _read_date
        case Time():
            return _read_time
        case Timestamp():
            return _read_timestamp
        case InstantType():
            return _read_instant_utc if zone is dt.UTC else _read_instant(zone)
        case Year():
            return _read_integer(0, 9999)
        case Enum() if kind.members is not None:
            return _read_enum(kind.members, labels=labels)
        case Set() if kind.members is not None:
            return _read_set(kind.members, labels=labels)
        case GeometryType():
            return read_geometry
        case _:
            return None


def json_text(value: Value, kind: LogicalType) -> str | None:
    """Return Canal's text of a JSON value.

    Raises:
        ValueError: Canal has no text of the same value.
    """
    match value:
        case None | str():
            return value
        case _ if isinstance(kind, Json):
            return json.dumps(value).decode()
        case bool() if isinstance(kind, (Integer, Bits)):
            return "1" if value else "0"
        case int() if not isinstance(value, bool) and not isinstance(kind, (Bytes, GeometryType)):
            return str(value)
        case decimal.Decimal() if isinstance(kind, (Decimal, Float)):
            return str(value)
        case _:
            raise ValueError


def _read_integer(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text)
        # int() also accepts blanks, underscores and digits of other alphabets
        if not low <= number <= high or (str(number) != text and not _WHOLE.fullmatch(text)):
            raise ValueError
        return number

    return read


def _read_decimal(text: str) -> decimal.Decimal:
    number = decimal.Decimal(text)
    # Decimal() also accepts blanks, underscores, digits of other alphabets, NaN and infinity
    if (str(number) != text and not _DECIMAL.fullmatch(text)) or not number.is_finite():
        raise ValueError
    return number


_NON_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def read_float(text: str) -> float:
    """Return the number of a text that Java printed."""
    if not _DECIMAL.fullmatch(text):
        return _NON_FINITE[text]
    number = float(text)
    if math.isinf(number):
        raise OverflowError
    return number


def _read_bytes(text: str) -> bytes:
    return text.encode("latin-1")


def _read_padded(width: int) -> Read:
    def read(text: str) -> bytes:
        # at most MySQL's limit, so that a width in the type text cannot exhaust the memory
        return text.encode("latin-1").ljust(min(width, 255), b"\x00")

    return read


def _read_bits(length: int | None) -> Read:
    read_number = _read_integer(0, (1 << min(length or 4096, 4096)) - 1)

    def read(text: str) -> str:
        return f"{read_number(text):0{min(length or 1, 4096)}b}"

    return read


def _read_date(text: str) -> dt.date | str:
    value = parse_date(text)
    if value.__class__ is str and not _DATE_TEXT.fullmatch(text):
        raise ValueError
    return value


def _read_time(text: str) -> str:
    if not _TIME.fullmatch(text):
        raise ValueError
    return text


def _read_timestamp(text: str) -> dt.datetime | str:
    value = parse_timestamp(text)
    if value.__class__ is str and not _TIMESTAMP_TEXT.fullmatch(text):
        raise ValueError
    return value


def _read_instant_utc(text: str) -> Instant | str:
    if len(text) == 19 or (19 < len(text) <= 26 and text[19] == "."):
        try:
            value = Instant.fromisoformat(text + "+00:00")
        except ValueError:
            pass
        else:
            value.digits = max(len(text) - 20, 0)
            return value
    return _read_other_instant(text)


def _read_instant(zone: dt.tzinfo) -> Read:
    def read(text: str) -> Instant | str:
        local = parse_timestamp(text)
        if isinstance(local, str):
            return _read_other_instant(text)
        try:
            value = local.replace(tzinfo=zone).astimezone(dt.UTC)
        except OverflowError:
            return text
        return Instant.of(value, max(len(text) - 20, 0))

    return read


def _read_other_instant(text: str) -> Instant | str:
    if not _TIMESTAMP_TEXT.fullmatch(text):
        raise ValueError
    return parse_instant(text)


def _read_enum(members: tuple[str, ...], *, labels: bool) -> Read:
    ordinals = {str(ordinal): label for ordinal, label in enumerate(("", *members))}
    declared = {label: label for label in ("", *members)}
    labels_by_text = ordinals | declared if labels else declared | ordinals
    return labels_by_text.__getitem__


def _read_set(members: tuple[str, ...], *, labels: bool) -> Read:
    declared = frozenset(members)
    read_number = _read_integer(0, (1 << len(members)) - 1)

    def is_labels(text: str) -> bool:
        return not text or declared.issuperset(text.split(","))

    def read(text: str) -> str:
        if (labels or not text.isdigit()) and is_labels(text):
            return text
        try:
            mask = read_number(text)
        except ValueError:
            if is_labels(text):
                return text
            raise
        return ",".join(label for bit, label in enumerate(members) if mask >> bit & 1)

    return read


def read_geometry(text: str) -> Geometry:
    """Return the shape of ISO-8859-1 text: a little-endian SRID, then well-known binary."""
    data = text.encode("latin-1")
    # MySQL writes 0 for a shape without a spatial reference
    return Geometry(data[4:] or None, struct.unpack_from("<I", data)[0] or None)


# -- writing -----------------------------------------------------------------------------------


def writer(mysql_type: MySqlType, *, labels: bool, zone: dt.tzinfo) -> Write | None:
    """Return the function from value to text; ``None`` if the value is the text.

    Args:
        mysql_type: The column's type.
        labels: ENUM and SET values stay labels.
        zone: The time zone of TIMESTAMP texts.
    """
    kind = mysql_type.kind
    match kind:
        case Integer(64, True):  # MySQL has no wider type for a greater number
            return _write_unsigned
        case Integer():
            return write_integer
        case Decimal():
            return _write_decimal
        case Float():
            return write_float
        case Bytes():
            return _write_bytes if mysql_type.width is None else _write_padded
        case Bits():
            return _write_bits
        case Date():
            return _write_date
        case Time():
            return _write_time
        case Timestamp():
            return _write_timestamp(kind.precision)
        case InstantType():
            return _write_instant(kind.precision, zone)
        case Year():
            return _write_year
        case Enum() if kind.members is not None and not labels:
            return _write_enum(kind.members)
        case Set() if kind.members is not None and not labels:
            return _write_set(kind.members)
        case GeometryType():
            return write_geometry
        case _:
            return None


def _write_unsigned(value: int) -> str:
    if not 0 <= value < 1 << 64:
        raise ValueError
    return write_integer(value)


def write_integer(value: int) -> str:
    """Return the text of a whole number."""
    if value.__class__ is not int:
        raise TypeError
    return str(value)


def _write_decimal(value: decimal.Decimal) -> str:
    if value.__class__ is not decimal.Decimal:
        raise TypeError
    text = str(value)
    return plain(value) if "E" in text else text


def write_float(value: float) -> str:
    """Return a number as Java prints it: the shortest text, with an exponent outside 0.001 to 10^7.

    >>> write_float(1e7), write_float(9999999.0), write_float(1e-4), write_float(-0.0)
    ('1.0E7', '9999999.0', '1.0E-4', '-0.0')
    """
    value = float(value)
    text = repr(value)
    if 1e-3 <= abs(value) < 1e7 or value == 0:
        return text
    if not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124
    sign, digits, exponent = decimal.Decimal(text).normalize().as_tuple()
    first, *other_digits = map(str, digits)
    power = int(exponent) + len(other_digits)
    return f"{'-' if sign else ''}{first}.{''.join(other_digits) or '0'}E{power}"


def _write_bytes(value: bytes) -> str:
    return value.decode("latin-1")


def _write_padded(value: bytes) -> str:
    # the binary log has no trailing zero bytes of BINARY(n) either
    return value.rstrip(b"\x00").decode("latin-1")


def _write_bits(value: str) -> str:
    return str(int(value or "0", 2))  # Debezium writes no byte for zero bits of PostgreSQL


def _text(value: str, field: str, readable: re.Pattern[str], pattern: re.Pattern[str]) -> str:
    """Return a date or time that Python has as text, if MySQL has the value.

    Raises:
        ValueError: The text cannot be read again.
        ForeignValue: The text can be read again, but MySQL does not have the value.
    """
    if pattern.fullmatch(value):
        return value
    if not readable.fullmatch(value):
        raise ValueError
    raise ForeignValue(value, field, _NO_SUCH)


def _write_date(value: dt.date | str) -> str:
    if value.__class__ is dt.date:
        return iso_text(value)
    if isinstance(value, str):
        return _text(value, "date", _DATE_TEXT, _MYSQL_DATE)
    return value.isoformat()


def _write_time(value: str) -> str:
    return _text(value, "time", _TIME, _MYSQL_TIME)


def _digits(value: dt.datetime, precision: int | None, minimum: int) -> int:
    """Return the count of fraction digits: *precision* or *minimum*, or more if the value has."""
    digits = min(minimum if precision is None else precision, 6)
    if value.microsecond % 10 ** (6 - digits):
        return 3 if digits < 3 and not value.microsecond % 1000 else 6
    return digits


def _local(value: dt.datetime, digits: int) -> str:
    # the fast path is for dt.datetime only, not for its subclasses
    text = iso_text(value) if value.__class__ is dt.datetime else value.isoformat()
    clock = text[11:] if value.microsecond else f"{text[11:19]}.000000"
    return f"{text[:10]} {clock[: 9 + digits] if digits else clock[:8]}"


def _write_timestamp(precision: int | None) -> Write:
    def write(value: dt.datetime | str) -> str:
        if isinstance(value, str):
            return _text(value, "timestamp", _TIMESTAMP_TEXT, _MYSQL_TIMESTAMP)
        return _local(value, _digits(value, precision, 0))

    def write_micros(value: dt.datetime | str) -> str:
        if isinstance(value, str):
            return _text(value, "timestamp", _TIMESTAMP_TEXT, _MYSQL_TIMESTAMP)
        return _local(value, 6)

    # with all six digits, none need to be counted
    return write if precision is None or precision < 6 else write_micros


def _write_instant(precision: int | None, zone: dt.tzinfo) -> Write:
    def write(value: dt.datetime | str) -> str:
        if isinstance(value, str):
            return _text(value, "instant", _TIMESTAMP_TEXT, _MYSQL_TIMESTAMP)
        digits = _digits(value, precision, value.digits if isinstance(value, Instant) else 0)
        try:
            local = value.astimezone(zone)
        except OverflowError:
            local = None
        if local is None or local.utcoffset() != local.replace(fold=0).utcoffset():
            # a repeated hour of the zone, or a year outside of its range, is written with an offset
            return Instant.of(value.astimezone(dt.UTC), digits).text()
        return _local(local.replace(tzinfo=None), digits)

    return write


def _write_year(value: int) -> str:
    if not 0 <= value <= 9999:
        raise ValueError
    return f"{value:04d}"


def _write_enum(members: tuple[str, ...]) -> Write:
    ordinals = {label: str(ordinal) for ordinal, label in enumerate(("", *members))}
    return ordinals.__getitem__


def _write_set(members: tuple[str, ...]) -> Write:
    bits = {label: 1 << bit for bit, label in enumerate(members)}

    def write(value: str) -> str:
        if not value:
            return "0"
        positions = [bits[label] for label in value.split(",")]
        mask = 0
        for bit in positions:
            if bit <= mask:  # a repeated member, or members out of their declared order
                reason = "members are written once, and in the order of the column"
                raise ForeignValue(str(sum(set(positions))), "set", reason)
            mask |= bit
        return str(mask)

    return write


def write_geometry(value: Geometry) -> str:
    """Return the bytes of a shape as ISO-8859-1 text."""
    return (struct.pack("<I", value.srid or 0) + (value.wkb or b"")).decode("latin-1")
