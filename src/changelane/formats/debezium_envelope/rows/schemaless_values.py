# SPDX-License-Identifier: Apache-2.0
"""Values of declared columns in any mode of Debezium, for messages without a schema block.

A connector may write decimals as text (``decimal.handling.mode``), times as ISO text
(``time.precision.mode``), bytes as URL-safe Base64 (``binary.handling.mode``), intervals as ISO
text (``interval.handling.mode``), hstore as JSON text (``hstore.handling.mode``) and unsigned
numbers that wrapped (``bigint.unsigned.handling.mode=long``). JSON in the form of the options is
read by them. Other JSON is read by its own form if that leaves no doubt. A number in a column of
text is text.
"""

import datetime as dt
import decimal
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.formats.contract import json
from changelane.formats.debezium_envelope.rows import json_values
from changelane.formats.debezium_envelope.rows.epoch_times import Inexact
from changelane.formats.debezium_envelope.rows.semantic_types import Wire
from changelane.types import (
    Array,
    Bits,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Enum,
    Float,
    Integer,
    Interval,
    Json,
    LogicalType,
    Map,
    Set,
    String,
    Text,
    Time,
    Timestamp,
    Uuid,
    Value,
    Xml,
    Year,
)
from changelane.types.values import parse_date, parse_timestamp, plain

_WRONG: Final = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
    *(DecodeError, msgspec.ValidationError),
)
_MAX_EXPONENT: Final = 20
"""The decimal exponent of the greatest integer, which has 64 bits."""
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,30}", re.ASCII)
_CLOCK: Final = re.compile(r"-?[0-9]{2,5}:[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?", re.ASCII)
_SPAN: Final = re.compile(
    r"P(?:0Y)?(?:0M)?(?:(-?[0-9]{1,9})D)?"
    r"(?:T(?:(-?[0-9]{1,9})H)?(?:(-?[0-9]{1,9})M)?(?:(-?[0-9]{1,9}(?:\.[0-9]{1,6})?)S)?)?",
    re.ASCII,
)
_BOOLEANS: Final = {"true": True, "false": False, "t": True, "f": False, "1": True, "0": False}


def usual_row(row: Mapping[str, Any], wires: Mapping[str, Wire]) -> dict[str, Any]:
    """Return the JSON of a row with each value in the form of its column.

    A value of no known form is returned as it is, and the reader rejects it.
    """
    return {
        name: value if value is None or name not in wires else _usual(value, wires[name])
        for name, value in row.items()
    }


def _usual(value: Any, wire: Wire) -> Any:
    try:
        typed = msgspec.convert(value, wire.json)
        if wire.decode is not None:
            wire.decode(typed)
    except _WRONG:
        pass
    else:
        return value
    try:
        plain = _value(wire.type, value)
        return plain if wire.encode is None else wire.encode(plain)
    except (*_WRONG, Inexact):
        return value


def _value(kind: LogicalType, raw: Any) -> Value:
    """Return a value by the form of its JSON.

    Raises:
        ValueError: The form is in doubt. Python's other errors for values are raised, too.
    """
    if raw is None:
        return None
    if isinstance(kind, Array) and isinstance(raw, list):
        return [_value(kind.element, element) for element in raw]
    if isinstance(kind, Map):
        pairs = json.loads(raw.encode(), object) if isinstance(raw, str) else raw
        if not isinstance(pairs, dict):
            raise TypeError
        return [(_value(kind.key, key), _value(kind.value, item)) for key, item in pairs.items()]
    return _READERS[type(kind)](kind, raw)


def _text(kind: LogicalType, raw: Any) -> str:
    match raw:
        case str():
            return raw
        case bool():
            return "true" if raw else "false"
        case int():
            return str(raw)
        case decimal.Decimal():
            return plain(raw)
        case dict() | list() if isinstance(kind, Json):
            return json.dumps(raw).decode()
        case _:
            raise ValueError


def _number(raw: Any) -> decimal.Decimal:
    match raw:
        case bool():
            raise ValueError
        case int() | decimal.Decimal():
            return decimal.Decimal(raw)
        case str():
            # "PG NaN -> NAN"
            return json_values.number_in("NaN" if raw.upper() == "NAN" else raw)
        case {"scale": int(), "value": str()}:
            return json_values.variable_in(raw)
        case _:
            raise ValueError


def _whole(kind: Integer | Year, raw: Any) -> int:
    if isinstance(raw, str) and not _WHOLE.fullmatch(raw):
        raise ValueError
    parsed = _number(raw)
    if parsed and parsed.adjusted() > _MAX_EXPONENT:
        raise ValueError  # int() of 1e999999999 would take hours
    number = int(parsed)
    if number != parsed:
        raise ValueError
    low, high = kind.range() if isinstance(kind, Integer) else Integer(32).range()
    if kind == Integer(64, unsigned=True) and -(1 << 63) <= number < 0:
        return json_values.unsigned_in(number)  # bigint.unsigned.handling.mode=long
    if not low <= number <= high:
        raise ValueError
    return 0 if number == json_values.YEAR_0 and isinstance(kind, Year) else number


def _float(_: LogicalType, raw: Any) -> float:
    number = float(_number(raw))
    if math.isinf(number) and raw not in {"Infinity", "-Infinity", "+Infinity"}:
        raise OverflowError
    return number


def _boolean(_: LogicalType, raw: Any) -> bool:
    return _BOOLEANS[_text(String(), raw).lower()]


def _bytes(_: LogicalType, raw: str) -> bytes:
    if "-" not in raw and "_" not in raw:
        raise ValueError  # in doubt: the form is that of the option
    return json_values.url_safe_in(raw)


def _date(_: LogicalType, raw: str) -> dt.date:
    day = parse_date(raw.removesuffix("Z"))
    if not isinstance(day, dt.date):
        raise ValueError  # noqa: TRY004 - text that is no day
    return day


def _timestamp(_: LogicalType, raw: str) -> dt.datetime:
    moment = parse_timestamp(raw.removesuffix("Z"))
    if not isinstance(moment, dt.datetime):
        raise ValueError  # noqa: TRY004 - text that is no timestamp
    return moment


def _time(_: LogicalType, raw: str) -> str:
    text = raw.removesuffix("Z")
    if not _CLOCK.fullmatch(text):
        raise ValueError
    return text


def _interval(kind: Interval, raw: Any) -> dt.timedelta | int | str:
    """Return an interval: ISO text without months as a count where that is declared, and back."""
    if isinstance(raw, str):
        match = _SPAN.fullmatch(raw)
        if match is None or kind.unit != "us":
            raise ValueError
        days, hours, minutes, seconds = (decimal.Decimal(part or 0) for part in match.groups())
        total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        return dt.timedelta(microseconds=int(total * 1_000_000))
    if isinstance(raw, bool) or not isinstance(raw, int) or kind.unit:
        raise ValueError
    sign, count = "-" if raw < 0 else "", abs(raw)
    whole_seconds, micros = divmod(count, 1_000_000)
    fraction = f".{micros:06}".rstrip("0") if micros else ""
    clock = (
        f"{sign}{whole_seconds // 3600}H",
        f"{sign}{whole_seconds // 60 % 60}M",
        f"{sign}{whole_seconds % 60}",
    )
    return f"P0Y0M0DT{''.join(clock)}{fraction}S"


def _bits(_: LogicalType, raw: Any) -> str:
    if not isinstance(raw, bool):
        raise ValueError  # noqa: TRY004 - only bits(1) is a boolean, in some modes
    return "1" if raw else "0"


_READERS: Final[Mapping[type[LogicalType], Callable[[Any, Any], Value]]] = {
    **dict.fromkeys((String, Json, Uuid, Xml, Text, Enum, Set), _text),
    **dict.fromkeys((Integer, Year), _whole),
    Decimal: lambda _, raw: _number(raw),
    Float: _float,
    Boolean: _boolean,
    Bytes: _bytes,
    Date: _date,
    Timestamp: _timestamp,
    Time: _time,
    Interval: _interval,
    Bits: _bits,
}
