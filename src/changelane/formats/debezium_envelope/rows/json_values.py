# SPDX-License-Identifier: Apache-2.0
"""Values <-> JSON: a pair of functions for each form in which Debezium writes values.

A reader raises ``ValueError``, ``TypeError``, ``KeyError`` or ``ArithmeticError`` for JSON of
another form. A writer raises
:class:`~changelane.formats.debezium_envelope.rows.epoch_times.Inexact` for a value without a form.
"""

import base64
import binascii
import datetime as dt
import decimal
import math
import re
import struct
from collections.abc import Callable
from typing import Any, Final

from changelane.formats.debezium_envelope.rows.epoch_times import Inexact, millis_timestamp
from changelane.types import Geometry, Instant
from changelane.types.values import (
    EXACT,
    MAX_DECIMAL_DIGITS,
    float_form,
    parse_timestamp,
    plain,
    scaled,
    unscaled,
    untyped_text,
)

Convert = Callable[[Any], Any]

_FLOATS: Final = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
    "+Infinity": math.inf,
}
_TIMESTAMP: Final = re.compile(
    r"[+-]?\d{1,9}-\d\d?-\d\d?([T ]\d\d?:\d\d(:\d\d([.,]\d{1,9})?)?)?"
    r"( ?(Z|UTC|[+-]\d\d(:?\d\d){0,2}))?( BC)?|[+-]?infinity",
    re.ASCII | re.IGNORECASE,
)
_NO_DAY: Final = re.compile(r"[+-]?\d{1,9}-(?:00-\d\d|\d\d-00)", re.ASCII)
_MILLIS: Final = re.compile(r"-?\d{1,18}", re.ASCII)
_MAX_NUMBER_BYTES: Final = MAX_DECIMAL_DIGITS * 4
YEAR_0: Final = 1900
"""Debezium's number for year 0 in its stream: the binary log counts years from 1900. A YEAR of
MySQL or MariaDB is 0, or 1901 to 2155."""


def same(value: Any) -> Any:
    """Return the value, which is its own form."""
    return value


def ranged(encode: Callable[[Any], int], bits: int) -> Callable[[Any], int]:
    """Return a writer of counts that rejects a count beyond its integer."""
    bound = 1 << (bits - 1)

    def write(value: Any) -> int:
        count = encode(value)
        if not -bound <= count < bound:
            raise Inexact("beyond what its column's integer holds; written as null")
        return count

    return write


def cut_fraction(text: str, digits: int | None) -> str:
    """Return a time without its last zeros, but with *digits* fraction digits at least.

    >>> cut_fraction("10:00:00.500000", 3), cut_fraction("10:00:00.000000", None)
    ('10:00:00.500', '10:00:00')
    """
    clock, _, fraction = text.partition(".")
    fraction_digits = max(digits or 0, len(fraction.rstrip("0")))
    return f"{clock}.{fraction[:fraction_digits]}" if fraction_digits else clock


def within(number: int, low: int, high: int) -> int:
    """Return the number.

    Raises:
        ValueError: The number is not between *low* and *high*.
    """
    if not low <= number <= high:
        raise ValueError
    return number


_U64: Final = 1 << 64
_INT64: Final = 1 << 63


def unsigned_in(number: int) -> int:
    """Return the unsigned number of 64 bits that a signed one has (``long`` wraps)."""
    return number + _U64 if number < 0 else number


def unsigned_out(number: int) -> int:
    """Return the signed number of 64 bits with the bits of an unsigned one.

    Raises:
        ValueError: The number is not of 64 bits.
    """
    within(number, 0, _U64 - 1)
    return number - _U64 if number >= _INT64 else number


_NUMBER: Final = re.compile(
    r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d{1,5}))?|[+-]?Infinity|NaN", re.ASCII
)


def number_in(text: str) -> decimal.Decimal:
    """Return the number of a text of unknown precision and scale (CDL's Decimal)."""
    match = _NUMBER.fullmatch(text)
    if match is None or abs(int(match[1] or 0)) > MAX_DECIMAL_DIGITS:
        msg = "not a number"
        raise ValueError(msg)
    return decimal.Decimal(text)


def number_out(value: decimal.Decimal | int) -> str:
    """Return a number as text, without an exponent where the text is short."""
    return str(value) if isinstance(value, int) else plain(value)


def float_in(value: float | str) -> float:
    """Return a float. NaN and infinity are text in JSON."""
    return _FLOATS[value] if type(value) is str else value  # type: ignore[return-value]


def bytes_in(text: str) -> bytes:
    """Return the bytes of Base64 text."""
    return binascii.a2b_base64(text, strict_mode=True) if text else b""


def url_safe_in(text: str) -> bytes:
    """Return the bytes of URL-safe Base64, with or without padding."""
    text = text.replace("-", "+").replace("_", "/")
    return bytes_in(text + "=" * (-len(text) % 4))


def url_safe_out(value: bytes) -> str:
    """Return bytes as URL-safe Base64 text."""
    return base64.urlsafe_b64encode(value).decode("ascii")


def bytes_out(value: bytes) -> str:
    """Return bytes as Base64 text."""
    return base64.b64encode(value).decode("ascii")


def _whole(text: str) -> int:
    if len(text) > _MAX_NUMBER_BYTES:
        raise ValueError
    return int.from_bytes(binascii.a2b_base64(text, strict_mode=True), "big", signed=True)


def _whole_out(number: int) -> str:
    # as many bytes as Java's BigInteger.toByteArray
    size = (number + (number < 0)).bit_length() // 8 + 1
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode("ascii")


def _at_scale(value: object, scale: int) -> decimal.Decimal:
    if isinstance(value, bool) or not isinstance(value, int | decimal.Decimal):
        raise TypeError
    unscaled_value = unscaled(decimal.Decimal(value), scale)
    if unscaled_value is None:
        raise ValueError
    return scaled(unscaled_value, scale)


def unscaled_in(text: object) -> int:
    """Return the unscaled value of a decimal in Base64."""
    if type(text) is not str or len(text) > _MAX_NUMBER_BYTES:
        raise ValueError
    return int.from_bytes(binascii.a2b_base64(text, strict_mode=True), "big", signed=True)


def decimal_in(scale: int) -> Convert:
    """Return the reader of decimals in both forms: Base64 of the unscaled value, or a number."""
    # local names, because the reader runs for every decimal of every row
    unscaled_of, scaled_by, exponent = unscaled_in, EXACT.scaleb, decimal.Decimal(-scale)

    def decode(value: object) -> decimal.Decimal:
        if type(value) is str:
            return scaled_by(unscaled_of(value), exponent)
        return _at_scale(value, scale)

    return decode


def _unscaled(value: decimal.Decimal, scale: int) -> int:
    unscaled_value = unscaled(value, scale)
    if unscaled_value is None:
        raise Inexact("a number that does not fit the scale of its column; written as null")
    return unscaled_value


def decimal_out(scale: int) -> Convert:
    """Return the writer of decimals as Base64 of the unscaled value."""
    return lambda value: _whole_out(_unscaled(value, scale))


def numeric_in(scale: int) -> Convert:
    """Return the reader of decimals as JSON numbers, or as their text."""

    def decode(value: object) -> decimal.Decimal:
        return _at_scale(number_in(value) if isinstance(value, str) else value, scale)

    return decode


def numeric_out(scale: int) -> Convert:
    """Return the writer of decimals as JSON numbers."""
    return lambda value: scaled(_unscaled(value, scale), scale)


def variable_in(value: dict[str, Any]) -> decimal.Decimal:
    """Return a decimal that has its scale beside it."""
    scale = value["scale"]
    if abs(scale) > MAX_DECIMAL_DIGITS:
        raise ValueError
    return scaled(_whole(value["value"]), scale)


def variable_out(value: decimal.Decimal) -> dict[str, object]:
    """Return a decimal with its scale."""
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or abs(exponent) > MAX_DECIMAL_DIGITS:
        raise Inexact("NaN, infinity or a scale beyond all databases; written as null")
    return {"scale": -exponent, "value": _whole_out(_unscaled(value, -exponent))}


def bits_in(length: int | None) -> Convert:
    """Return the reader of little-endian bits."""

    def decode(text: str) -> str:
        data = bytes_in(text)
        width = 8 * len(data)
        number = int.from_bytes(data, "little")
        if length is not None and width - 8 < length < width and not number >> length:
            width = length
        return f"{number:0{width}b}" if width else ""

    return decode


def bits_out(text: str) -> str:
    """Return bits as little-endian bytes."""
    try:
        number = int(text or "0", 2)
    except ValueError:
        raise Inexact("not a string of bits; written as null") from None
    return bytes_out(number.to_bytes((len(text) + 7) // 8, "little"))


def bit_in(value: bool) -> str:  # noqa: FBT001 - the value of a column
    """Return a boolean as one bit."""
    return "1" if value else "0"


def bit_out(text: str) -> bool:
    """Return one bit as a boolean.

    Raises:
        Inexact: The text is not one bit.
    """
    if text not in {"", "0", "1"}:
        raise Inexact("not one bit; written as null")
    return text == "1"


def instant_out(value: dt.datetime | str) -> str:
    """Return an instant with the digits and the offset of its producer.

    Raises:
        Inexact: It is a zero date of MySQL, for which the connector has NULL, too.
    """
    if isinstance(value, Instant):
        return value.text()
    if not isinstance(value, str):
        return Instant.of(value, 6).text()
    if _NO_DAY.match(value):
        raise Inexact("not a date of the calendar; written as null")
    return value


def iso_in(parse: Callable[[str], Any], write: Convert) -> Convert:
    """Return the reader of ISO text. Text that *write* would change stays text."""

    def decode(text: str) -> Any:
        value = parse(text.removesuffix("Z"))
        return value if write(value) == text else text

    return decode


def lenient_timestamp_in(text: str) -> dt.datetime | str:
    """Return the local timestamp of a text; no document fixes the form.

    It is ISO 8601 with a ``T`` or a space, or a count of milliseconds since 1970. A timestamp with
    an offset, with more digits than Python has, or of no day of the calendar, stays text.

    >>> lenient_timestamp_in("2024-02-04 11:59:56"), lenient_timestamp_in("1707047996013")
    (datetime.datetime(2024, 2, 4, 11, 59, 56), datetime.datetime(2024, 2, 4, 11, 59, 56, 13000))
    """
    if _MILLIS.fullmatch(text):
        return millis_timestamp(int(text))
    if _TIMESTAMP.fullmatch(text) is None:
        msg = "not a timestamp"
        raise ValueError(msg)
    return parse_timestamp(text)


def text_timestamp_out(value: dt.datetime | str) -> str:
    """Return a local timestamp as ISO text."""
    if not isinstance(value, str):
        return value.isoformat()
    if _TIMESTAMP.fullmatch(value) is None:
        raise Inexact("not a timestamp; written as null")
    return value


def iso_timestamp_out(value: dt.datetime | str) -> str:
    """Return a local timestamp as ISO text with a Z."""
    if isinstance(value, str):
        return value
    # Java prints as many groups of three digits as it needs
    spec = "milliseconds" if value.microsecond and value.microsecond % 1000 == 0 else "auto"
    return value.isoformat(timespec=spec) + "Z"


def iso_date_out(value: dt.date | str) -> str:
    """Return a date as ISO text with a Z."""
    return value if isinstance(value, str) else value.isoformat() + "Z"


def iso_time_in(text: str) -> str:
    """Return a time without the Z."""
    return text.removesuffix("Z")


def iso_time_out(text: str) -> str:
    """Return a time with the Z."""
    return text if text.endswith("Z") else text + "Z"


def micros_in(ticks: int) -> dt.timedelta:
    """Return the interval of a count of microseconds."""
    return dt.timedelta(0, 0, ticks)


def untyped_out(value: Any) -> str:
    """Return a value of unknown type as text."""
    return value if isinstance(value, str) else untyped_text(value)


def nanos_out(value: int | str) -> int:
    """Return an interval as a count of nanoseconds."""
    if isinstance(value, str):
        raise Inexact("text, and no count of nanoseconds; written as null")
    return value


def micros_out(value: dt.timedelta) -> int:
    """Return an interval as a count of microseconds."""
    return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds


_WITH_SRID: Final = 0x2000_0000


def geometry_in(value: dict[str, Any]) -> Geometry:
    """Return a geometry. A point without well-known binary has it made of its coordinates."""
    wkb = value.get("wkb")
    if wkb is None and "x" in value:
        return Geometry(struct.pack("<BIdd", 1, 1, value["x"], value["y"]), value.get("srid"))
    return Geometry(None if wkb is None else bytes_in(wkb), value.get("srid"))


_INT32: Final = 1 << 31


def geometry_out(value: Geometry) -> dict[str, object]:
    """Return a geometry as well-known binary."""
    if value.srid is not None and not -_INT32 <= value.srid < _INT32:
        raise Inexact("a spatial reference beyond 32 bits; written as null")
    return {"wkb": None if value.wkb is None else bytes_out(value.wkb), "srid": value.srid}


def point_out(value: Geometry) -> dict[str, object]:
    """Return a point with its coordinates."""
    wkb = value.wkb or b""
    try:
        order = "<" if wkb[0] == 1 else ">"
        (kind,) = struct.unpack_from(order + "I", wkb, 1)
        x, y = struct.unpack_from(order + "dd", wkb, 9 if kind & _WITH_SRID else 5)
    except (IndexError, struct.error):
        raise Inexact("not a point; written as null") from None
    if kind & 0xFF != 1:
        raise Inexact("not a point; written as null")
    return {"x": float_form(x), "y": float_form(y), **geometry_out(value)}
