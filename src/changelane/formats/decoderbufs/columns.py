# SPDX-License-Identifier: Apache-2.0
"""The values of PostgreSQL's types in the messages of postgres-decoderbufs.

Source: ``set_datum_value`` in ``decoderbufs.c``. The plugin writes an interval as microseconds,
with months of 30.4375 days, and a time with a zone as that of UTC.
"""

import datetime as dt
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.formats.contract import protobuf
from changelane.formats.contract.postgres_text import TYPES as POSTGRES_TYPES
from changelane.formats.contract.postgres_text import logical_type, reader, writer
from changelane.formats.debezium_envelope.rows.epoch_times import (
    date_of,
    days_of,
    micros_timestamp,
    time_text,
    time_ticks,
    timestamp_ticks,
)
from changelane.formats.decoderbufs.wire import DATA, POINT
from changelane.reason_codes import ReasonCode
from changelane.types import (
    Array,
    Boolean,
    Bytes,
    Date,
    Float,
    Instant,
    InstantType,
    Integer,
    Interval,
    LogicalType,
    String,
    Text,
    Time,
    Timestamp,
    TimeTz,
    Value,
)

Datum = tuple[str, Any]
"""The name of a field of a datum, and its value."""

TYPES: Final = POSTGRES_TYPES - {Interval, TimeTz}
MONEY: Final = "money"
_INTERVAL: Final = Interval("us")
_INFINITY: Final = (1 << 63) - 1
_MINUS_INFINITY: Final = -(1 << 63)
_DAY_US: Final = 86_400_000_000
_DAY_TEXTS: Final = {(1 << 31) - 1: "infinity", -(1 << 31): "-infinity"}
_FLOAT: Final = struct.Struct("<f")
(_LARGEST_REAL,) = _FLOAT.unpack(bytes.fromhex("ffff7f7f"))
_INT32, _INT64, _REAL, _DOUBLE, _BOOL, _STRING, _BYTES, _POINT = DATA
_NOT_OF_TYPE: Final = (ValueError, TypeError, OverflowError, KeyError, AttributeError)


def kind_of(type_text: str | None) -> LogicalType:
    """Return the type of a column by its text; without one it is text."""
    if type_text is None:
        return String()
    if type_text == MONEY:  # the number of cents, whose number of digits the server's locale has
        return Integer(64)
    kind = logical_type(type_text)
    return _INTERVAL if isinstance(kind, Interval) else kind


def read(kind: LogicalType, datum: Datum) -> Value:
    """Return the value of a datum.

    Raises:
        DecodeError: The datum is not of the type. The error has no path.
    """
    name, data = datum
    if name == _BYTES and not isinstance(kind, Bytes):
        name, data = _STRING, _text(data)
    convert = _READERS.get((type(kind), name))
    if convert is not None:
        try:
            return convert(kind, data)
        except _NOT_OF_TYPE:
            raise _wrong(kind) from None
    if name != _STRING or isinstance(kind, _NEVER_TEXT):
        raise _wrong(kind)
    read_text = reader(kind)
    return data if read_text is None else read_text(data)


_NEVER_TEXT: Final = (Boolean, Bytes, Date, Float, Integer, Interval, InstantType, Time, TimeTz)


def _wrong(kind: LogicalType) -> DecodeError:
    return DecodeError(f"not a value of {kind}", code=ReasonCode.WRONG_TYPE)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise DecodeError("the text is not UTF-8", code=ReasonCode.INVALID_UTF8) from None


def _integer(kind: Any, number: int) -> int:
    low, high = kind.range()
    if not low <= number <= high:
        raise DecodeError(f"out of the range of {kind}", code=ReasonCode.VALUE_OUT_OF_RANGE)
    return number


def _real(_kind: Any, number: float) -> float:
    """Return a 32-bit float with the fewest digits that distinguish it, as PostgreSQL prints it."""
    if not math.isfinite(number):
        return number
    for digits in range(6, 9):
        short = float(f"{number:.{digits}g}")
        if abs(short) <= _LARGEST_REAL and _FLOAT.pack(short) == _FLOAT.pack(number):
            return short
    short = float(f"{number:.9g}")
    return short if abs(short) <= _LARGEST_REAL else number


def _date(_kind: Any, days: int) -> Value:
    return _DAY_TEXTS.get(days) or date_of(days)


def _infinite(ticks: int) -> str | None:
    return {_INFINITY: "infinity", _MINUS_INFINITY: "-infinity"}.get(ticks)


def _timestamp(_kind: Any, ticks: int) -> Value:
    return _infinite(ticks) or micros_timestamp(ticks)


def _instant(_kind: Any, ticks: int) -> Value:
    local = _infinite(ticks) or micros_timestamp(ticks)
    if isinstance(local, dt.datetime):
        return Instant.of(local.replace(tzinfo=dt.UTC), 6)
    return local if local.endswith("infinity") else f"{local}Z"


def _time(_kind: Any, ticks: int) -> Value:
    if not 0 <= ticks <= _DAY_US:
        raise ValueError
    return _short(ticks)


def _short(ticks: int) -> str:
    """Return a time without the zeros at the end of its fraction."""
    text = time_text(ticks, 6)
    return text.rstrip("0") if ticks % 1_000_000 else text[:8]


def _time_in_utc(_kind: Any, ticks: float) -> Value:
    whole = int(ticks)
    if whole != ticks:
        raise ValueError
    return f"{_short(whole % _DAY_US)}+00"


def _span(_kind: Any, microseconds: float) -> Value:
    whole = int(microseconds)
    if whole != microseconds:
        raise ValueError
    return whole


def _point(_kind: Any, data: bytes) -> Value:
    fields = protobuf.loads(data, POINT, "$")
    return f"({_number(fields['x'])},{_number(fields['y'])})"


def _number(value: float) -> str:
    """Return a double as PostgreSQL prints it.

    >>> _number(1.0), _number(0.5)
    ('1', '0.5')
    """
    text = repr(value)
    return text.removesuffix(".0") if math.isfinite(value) else text


_READERS: Final[Mapping[tuple[type[LogicalType], str], Callable[[Any, Any], Value]]] = {
    (Boolean, _BOOL): lambda _kind, value: value,
    (Integer, _INT32): _integer,
    (Integer, _INT64): _integer,
    (Float, _REAL): _real,
    (Float, _DOUBLE): lambda _kind, value: value,
    (Date, _INT32): _date,
    (Time, _INT64): _time,
    (TimeTz, _DOUBLE): _time_in_utc,
    (Timestamp, _INT64): _timestamp,
    (InstantType, _INT64): _instant,
    (Interval, _DOUBLE): _span,
    (Bytes, _BYTES): lambda _kind, value: value,
    (Text, _POINT): _point,
}
"""Type and field -> the value; texts are read as PostgreSQL writes them."""


# -- writing -------------------------------------------------------------------------------------


def column_writer(kind: LogicalType) -> Callable[[Any], Datum] | None:
    """Return the function from a value to its datum; ``None`` = PostgreSQL has no such type."""
    match kind:
        case Boolean():
            return lambda value: (_BOOL, bool(value))
        case Integer():
            name = _INT64 if kind.bits << kind.unsigned > 32 else _INT32
            return lambda value: (name, _integer(kind, value))
        case Float():
            return lambda value: (_REAL if kind.bits == 32 else _DOUBLE, float(value))
        case Date():
            return lambda value: (_INT32, _days(value))
        case Time():
            return lambda value: (_INT64, time_ticks(value, 6))
        case Timestamp():
            return lambda value: (_INT64, _ticks(value))
        case InstantType():
            return lambda value: (_INT64, _instant_ticks(value))
        case Bytes():
            return lambda value: (_BYTES, value)
        case Text("point"):
            return _written_point
        case Interval() | TimeTz() | Text("money"):
            return None
    write = writer(kind)
    if write is None:
        return None
    name = _BYTES if isinstance(kind, Array | Text) else _STRING
    if name == _BYTES:
        return lambda value: (_BYTES, write(value).encode())
    return lambda value: (_STRING, write(value))


def column_reader(kind: LogicalType) -> Callable[[Datum], Value]:
    """Return the function from a datum to its value."""
    return lambda datum: read(kind, datum)


def _days(value: Any) -> int:
    days = {text: number for number, text in _DAY_TEXTS.items()}.get(value)
    return days_of(value) if days is None else days


def _ticks(value: Any) -> int:
    match value:
        case "infinity":
            return _INFINITY
        case "-infinity":
            return _MINUS_INFINITY
        case _:
            ticks = timestamp_ticks(value, 6)
            if not _MINUS_INFINITY < ticks < _INFINITY:
                raise ValueError
            return ticks


def _instant_ticks(value: Any) -> int:
    if isinstance(value, dt.datetime):
        return _ticks(value.astimezone(dt.UTC))
    return _ticks(value.removesuffix("Z"))


def _written_point(value: str) -> Datum:
    x, _, y = value.removeprefix("(").removesuffix(")").partition(",")
    return _POINT, protobuf.dumps({"x": float(x), "y": float(y)}, POINT)


TEXT_NUMBER: Final = 25
"""The number of the type ``text``."""
