# SPDX-License-Identifier: Apache-2.0
"""Values in PostgreSQL's binary form, as its send functions write them, to their text form.

pgoutput sends them with the option ``binary``. The text is what the output function writes, so that
both options give the same values. Source: the send functions in ``src/backend/utils/adt`` of
https://github.com/postgres/postgres. Integers are big-endian.
"""

import math
import struct
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.formats.contract.postgres_arrays import array_text
from changelane.formats.contract.postgres_intervals import interval_text
from changelane.reason_codes import ReasonCode
from changelane.types import (
    Array,
    Bits,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Float,
    InstantType,
    Integer,
    Interval,
    Json,
    LogicalType,
    String,
    Time,
    Timestamp,
    TimeTz,
    Uuid,
    Xml,
)

_JSONB_OID: Final = 3802
_JSONB_VERSION: Final = b"\x01"
_DAY_US: Final = 86_400_000_000
_FIRST_DAY: Final = 2_451_545
"""The Julian day number of 2000-01-01, from which dates and times count."""
_LAST: Final = (1 << 63) - 1
_LAST_DAY: Final = (1 << 31) - 1
_DATE: Final = struct.Struct(">i")
_TIME: Final = struct.Struct(">q")
_TIME_TZ: Final = struct.Struct(">qi")
_INTERVAL: Final = struct.Struct(">qii")
_BITS: Final = struct.Struct(">i")
_NUMERIC: Final = struct.Struct(">HhHH")
_ARRAY: Final = struct.Struct(">iii")
_DIMENSION: Final = struct.Struct(">ii")
_LENGTH: Final = struct.Struct(">i")
_FLOATS: Final = {32: struct.Struct(">f"), 64: struct.Struct(">d")}
_SPECIAL_NUMERIC: Final = {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}
_NEGATIVE: Final = 0x4000
_MOST_DIMENSIONS: Final = 6
_READ_ERRORS: Final = (struct.error, ValueError, IndexError, OverflowError)


def binary_text(kind: LogicalType, source_type: str | None, data: bytes) -> str:
    """Return the text of a value.

    Args:
        kind: The type of the column.
        source_type: Its text; ``jsonb`` has another form than ``json``.
        data: The value.

    Raises:
        DecodeError: The form of the type is not known, or the bytes are not of this form.
    """
    try:
        return _text(kind, (source_type or "").startswith("jsonb"), data)
    except UnicodeDecodeError:
        raise DecodeError("a text is not UTF-8", code=ReasonCode.INVALID_UTF8) from None
    except _READ_ERRORS:
        reason = f"not a value of {kind} in PostgreSQL's binary form"
        raise DecodeError(reason, code=ReasonCode.WRONG_TYPE) from None


def _text(kind: LogicalType, is_jsonb: bool, data: bytes) -> str:  # noqa: FBT001
    match kind:
        case Boolean():
            return {b"\0": "f", b"\1": "t"}.get(data) or _wrong()
        case Integer(bits, unsigned):
            _check(len(data) * 8 == bits)
            return str(int.from_bytes(data, "big", signed=not unsigned))
        case Float(bits):
            return _float_text(bits, data)
        case Decimal():
            return _numeric_text(data)
        case Json() if is_jsonb:
            _check(data[:1] == _JSONB_VERSION)
            return data[1:].decode()
        case String() if data == b"\0":  # of the type "char", without a character
            return ""
        case String() | Json() | Xml():
            return data.decode()
        case Bytes():
            return rf"\x{data.hex()}"
        case Uuid():
            return str(uuid.UUID(bytes=data))
        case Bits():
            return _bits_text(data)
        case Array(element):
            return _array_text(element, data)
    read = _TIMES.get(type(kind))
    if read is None:
        raise DecodeError(
            f"binary values of {kind} are not read: start replication without the option binary",
            code=ReasonCode.UNKNOWN_TYPE,
        )
    return read(data)


def _wrong() -> str:
    raise ValueError


def _check(condition: bool) -> None:  # noqa: FBT001
    if not condition:
        raise ValueError


def _float_text(bits: int, data: bytes) -> str:
    layout = _FLOATS[bits]
    (value,) = layout.unpack(data)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if bits == 64:
        return repr(value)
    # the shortest digits of a float4, as extra_float_digits 1 gives them
    texts = (f"{value:.{digits}g}" for digits in range(1, 10))
    return next(text for text in texts if _is_float4(text, data))


def _is_float4(text: str, data: bytes) -> bool:
    try:
        return _FLOATS[32].pack(float(text)) == data
    except OverflowError:  # fewer digits may round up beyond the largest number
        return False


def _numeric_text(data: bytes) -> str:
    count, weight, sign, scale = _NUMERIC.unpack_from(data)
    if sign in _SPECIAL_NUMERIC:
        return _SPECIAL_NUMERIC[sign]
    _check(sign in {0, _NEGATIVE} and len(data) == _NUMERIC.size + 2 * count)
    groups = struct.unpack_from(f">{count}H", data, _NUMERIC.size)
    _check(all(group < 10_000 for group in groups))
    # `weight` is the exponent of the first group of four digits
    digits = "".join(f"{group:04}" for group in groups)
    point = 4 * (weight + 1)
    whole = digits[: max(point, 0)].ljust(max(point, 0), "0").lstrip("0") or "0"
    fraction = ("0" * max(-point, 0) + digits[max(point, 0) :]).ljust(scale, "0")[:scale]
    minus = "-" if sign == _NEGATIVE else ""
    return f"{minus}{whole}.{fraction}" if scale else f"{minus}{whole}"


def _bits_text(data: bytes) -> str:
    (length,) = _BITS.unpack_from(data)
    bits = data[_BITS.size :]
    _check(length >= 0 and len(bits) == (length + 7) // 8)
    return "".join(f"{byte:08b}" for byte in bits)[:length]


# -- dates and times -----------------------------------------------------------------------------


def _day_text(days: int) -> tuple[str, str]:
    """Return the date of a number of days since 2000-01-01, and its era.

    The algorithm is that of ``j2date``.
    """
    julian = days + _FIRST_DAY + 32_044
    quad, extra = divmod(julian, 146_097)
    extra = extra * 4 + 3
    julian += 60 + quad * 3 + extra // 146_097
    quad, rest = divmod(julian, 1461)
    year = rest * 4 // 1461
    day_of_year = (rest + 305) % 365 if year else (rest + 306) % 366
    day_of_year += 123
    year += quad * 4
    quad = day_of_year * 2141 // 65_536
    day = day_of_year - 7834 * quad // 256
    month = (quad + 10) % 12 + 1
    year -= 4800
    era = " BC" if year <= 0 else ""
    return f"{year if year > 0 else 1 - year:04}-{month:02}-{day:02}", era


def _clock_text(microseconds: int) -> str:
    seconds, fraction = divmod(microseconds, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def _date_text(data: bytes) -> str:
    (days,) = _DATE.unpack(data)
    if days == _LAST_DAY or days == -_LAST_DAY - 1:
        return "infinity" if days > 0 else "-infinity"
    return "".join(_day_text(days))


def _timestamp_text(data: bytes, zone: str = "") -> str:
    (time,) = _TIME.unpack(data)
    if time == _LAST or time == -_LAST - 1:
        return "infinity" if time > 0 else "-infinity"
    days, microseconds = divmod(time, _DAY_US)
    day, era = _day_text(days)
    return f"{day} {_clock_text(microseconds)}{zone}{era}"


def _time_text(data: bytes) -> str:
    (time,) = _TIME.unpack(data)
    return _clock_text(time)


def _time_tz_text(data: bytes) -> str:
    time, west = _TIME_TZ.unpack(data)
    sign, offset = "-" if west > 0 else "+", abs(west)
    text = f"{_clock_text(time)}{sign}{offset // 3600:02}"
    if offset % 3600:
        text += f":{offset // 60 % 60:02}"
    return f"{text}:{offset % 60:02}" if offset % 60 else text


def _interval_text(data: bytes) -> str:
    time, days, months = _INTERVAL.unpack(data)
    sign = "-" if time < 0 else ""
    seconds, fraction = divmod(abs(time), 1_000_000)
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    point = f".{fraction:06}".rstrip("0") if fraction else ""
    clock = f"{sign}{hours}H{sign}{minutes}M{sign}{seconds}{point}S"
    return interval_text(f"P{months}M{days}DT{clock}")


_TIMES: Final[dict[type[LogicalType], Callable[[bytes], str]]] = {
    Date: _date_text,
    Time: _time_text,
    TimeTz: _time_tz_text,
    Timestamp: _timestamp_text,
    InstantType: lambda data: _timestamp_text(data, "+00"),
    Interval: _interval_text,
}


# -- arrays --------------------------------------------------------------------------------------


def _array_text(element: LogicalType, data: bytes) -> str:
    dimension_count, _, oid = _ARRAY.unpack_from(data)
    _check(0 <= dimension_count <= _MOST_DIMENSIONS)
    at = _ARRAY.size
    lengths: list[int] = []
    for _ in range(dimension_count):
        length, _lower_bound = _DIMENSION.unpack_from(data, at)
        _check(0 < length <= len(data))
        lengths.append(length)
        at += _DIMENSION.size
    if not lengths:
        return "{}"
    items = _items(element, oid == _JSONB_OID, data, at)
    text = array_text(_nested(lengths, items), str)
    _check(next(items, items) is items)
    return text


def _items(
    element: LogicalType,
    is_jsonb: bool,  # noqa: FBT001
    data: bytes,
    at: int,
) -> Iterator[Any]:
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if length < 0:
            yield None
            continue
        _check(at + length <= len(data))
        yield _text(element, is_jsonb, data[at : at + length])
        at += length


def _nested(lengths: list[int], items: Iterator[Any]) -> list[Any]:
    length, *inner = lengths
    if inner:
        return [_nested(inner, items) for _ in range(length)]
    values = [value for _, value in zip(range(length), items, strict=False)]
    _check(len(values) == length)
    return values
