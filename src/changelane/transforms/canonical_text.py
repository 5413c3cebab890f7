# SPDX-License-Identifier: Apache-2.0
"""The canonical text of a value, which masks hash and truncate.

Formats write one value in several ways: 1, 1.0 and 1.00; ``10:00:00.5`` and ``10:00:00.500``; an
instant in any zone. The canonical text is the same for all of them.
"""

import datetime as dt
import decimal
import math
import re
import struct
from typing import Final

import msgspec

from changelane.types import (
    Array,
    Float,
    InstantType,
    LogicalType,
    Map,
    Record,
    Time,
    Timestamp,
    TimeTz,
    Uuid,
    Value,
    parse_instant,
)
from changelane.types.values import MAX_DECIMAL_DIGITS, parse_timestamp, value_text

_FRACTION: Final = re.compile(r"(:[0-9]{2})(\.(?:[0-9]*[1-9])?)0*+(?=$|Z|[+-])", re.ASCII)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def canonical_text(kind: LogicalType, value: Value) -> str:
    """Return the canonical text of a value that is neither NULL nor unavailable.

    >>> from changelane.types import Decimal, Integer
    >>> canonical_text(Integer(), 1), canonical_text(Decimal(10, 2), decimal.Decimal("1.00"))
    ('1', '1')
    """
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case decimal.Decimal():
            return _number(value)
        case float():
            return _float(kind, value)
        case dt.datetime():
            return _moment(value)
        case dt.date():
            return value.isoformat()
        case dt.timedelta():
            return str(value // _MICROSECOND)
        case str():
            return _text(kind, value)
        case list() | tuple() | dict():
            return msgspec.json.encode(_nested(kind, value)).decode()
        case bytes():
            return value.hex()
        case _:
            return value_text(kind, value)


def _number(value: decimal.Decimal) -> str:
    if not value.is_finite():
        return "NaN" if value.is_nan() else "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent_part = value.as_tuple()
    exponent = int(exponent_part)
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return "0"
    stripped = text.rstrip("0")
    exponent += len(text) - len(stripped)
    mark = "-" if sign else ""
    if exponent >= 0 and exponent + len(stripped) <= MAX_DECIMAL_DIGITS:
        return mark + stripped + "0" * exponent
    if -MAX_DECIMAL_DIGITS <= exponent < 0:
        integer_part, part = stripped[:exponent], stripped[exponent:].rjust(-exponent, "0")
        return f"{mark}{integer_part or '0'}.{part}"
    return f"{mark}{stripped}e{exponent}"


def _float(kind: LogicalType, value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    text = repr(value)
    if isinstance(kind, Float) and kind.bits == 32:
        # JSON has 0.1, Avro has its 32-bit value
        single = _single(value)
        shorter = (f"{value:.{digits}g}" for digits in range(6, 10))
        text = next(
            (candidate for candidate in shorter if _single(float(candidate)) == single), text
        )
    return _number(decimal.Decimal(text))


def _single(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return b""


def _moment(value: dt.datetime) -> str:
    if value.tzinfo is None:
        return _without_trailing_zeros(value.isoformat())
    try:
        value = value.astimezone(dt.UTC)
    except OverflowError:
        return _without_trailing_zeros(value.isoformat())
    return _without_trailing_zeros(value.isoformat()).replace("+00:00", "Z")


def _without_trailing_zeros(text: str) -> str:
    return _FRACTION.sub(lambda match: match[1] + match[2].rstrip("."), text, count=1)


def _text(kind: LogicalType, value: str) -> str:
    match kind:
        case Uuid():
            return value.lower()
        case Time() | TimeTz():
            return _without_trailing_zeros(value)
        case Timestamp():
            parsed = parse_timestamp(text := _without_trailing_zeros(value))
            return text if isinstance(parsed, str) else _moment(parsed)
        case InstantType():
            moment = parse_instant(text := _without_trailing_zeros(value))
            return text if isinstance(moment, str) else _moment(moment)
        case _:
            return value


def _nested(kind: LogicalType, value: Value) -> object:
    if value is None:
        return None
    match kind, value:
        case Array(), list():
            return [_nested(kind.element, element) for element in value]
        case Map(), list():
            return [[_nested(kind.key, key), _nested(kind.value, item)] for key, item in value]
        case Record(), dict():
            kinds = dict(kind.fields)
            return [[n, _nested(kinds.get(n, kind), value[n])] for n in sorted(value)]
        case _, dict():
            return [[str(n), _nested(kind, value[n])] for n in sorted(value)]
        case _, list() | tuple():
            return [_nested(kind, element) for element in value]
        case _:
            return canonical_text(kind, value)
