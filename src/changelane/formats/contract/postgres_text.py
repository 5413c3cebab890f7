# SPDX-License-Identifier: Apache-2.0
"""Values in PostgreSQL's text form, as its output functions write them, and back.

The settings are those that producers set: ``DateStyle`` ISO, ``IntervalStyle`` postgres,
``bytea_output`` hex (https://www.postgresql.org/docs/current/runtime-config-client.html). A text of
another style is an error, and never a guess, except for timestamps without a zone of ``DateStyle``
Postgres, which are not ambiguous. Logical types and their text forms:
:mod:`changelane.types`.
"""

import datetime as dt
import decimal
import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Literal

from changelane.errors import DecodeError
from changelane.formats.contract.postgres_arrays import array_text, parse_array
from changelane.formats.contract.postgres_intervals import interval_text, iso_interval
from changelane.reason_codes import ReasonCode
from changelane.sql_types import postgresql
from changelane.types import (
    Array,
    Bits,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Float,
    GeometryType,
    Instant,
    InstantType,
    Integer,
    Interval,
    Json,
    LogicalType,
    String,
    Text,
    Time,
    Timestamp,
    TimeTz,
    Uuid,
    Value,
    Xml,
)
from changelane.types.values import plain

Read = Callable[[str], Value]
"""The text of a value that is not NULL to the value."""

DateOrder = Literal["ymd", "mdy", "dmy"]

Write = Callable[[Any], str]
"""A value that is not NULL to its text; any exception = the type does not have the value."""

TYPES: Final[frozenset[type[LogicalType]]] = frozenset(
    (
        *(Array, Bits, Boolean, Bytes, Date, Decimal, Float, InstantType, Integer, Interval, Json),
        *(String, Text, Time, Timestamp, TimeTz, Uuid, Xml),
    )
)
"""The logical types that PostgreSQL has."""

_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")
_NUMBER: Final = re.compile(r"-?[0-9]++(?:\.[0-9]++)?(?:e[+-]?[0-9]{1,4})?|NaN|-?Infinity")
_TIME: Final = re.compile(r"(?:[01][0-9]|2[0-4]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]{1,6})?")
_OFFSET: Final = re.compile(r"([+-][0-9]{2})(:[0-9]{2})?(:[0-9]{2})?")
_DAY: Final = re.compile(r"([0-9]{4,7})(-[0-9]{2}-[0-9]{2})")
_DAY_FIRST: Final = re.compile(r"([0-9]{2})-([0-9]{2})-([0-9]{4,7})( BC)?")
_BC: Final = " BC"
_MONTHS: Final = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_MONTH: Final = "|".join(_MONTHS)
# DateStyle Postgres has the name of the month: only its dates and zones are ambiguous
_NAMED_MONTH: Final = re.compile(
    rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?:({_MONTH}) ([0-9]{{2}})|([0-9]{{2}}) ({_MONTH})) "
    r"([0-9:.]{8,15}) ([0-9]{4,7})( BC)?"
)
_ZEROS: Final = re.compile(r"\.0+(?=[Z+-])|(?<=\.)([0-9]*[1-9])0+(?=[Z+-])")
_INFINITE: Final = frozenset({"infinity", "-infinity"})
_ISO_DAY: Final = re.compile(r"([+-]?)([0-9]{4,9})(-[0-9]{2}-[0-9]{2})")
_BITS: Final = re.compile("[01]*+")
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HEX: Final = r"\x"
_ANY_BITS: Final = {"bit": Bits(), "bit[]": Array(Bits())}
_LARGEST: Final = 131_072
"""Digits of a ``numeric`` before the point; 16383 after it."""
_SMALLEST: Final = 16_383


@lru_cache(maxsize=4096)
def logical_type(type_text: str) -> LogicalType:
    """Return the logical type of a type text.

    Spatial values keep PostgreSQL's text, because no document states its binary form. The length
    of ``bit`` is unknown: ``format_type`` writes ``bit(1)`` otherwise.

    >>> logical_type("numeric(10,2)"), logical_type("point")
    (Decimal(precision=10, scale=2), Text(name='point'))
    """
    return _ANY_BITS.get(type_text) or _without_geometry(postgresql.parse(type_text))


def _without_geometry(kind: LogicalType) -> LogicalType:
    match kind:
        case GeometryType():
            return Text(kind.kind)
        case Array():
            return Array(_without_geometry(kind.element))
        case _:
            return kind


def wrong(kind: LogicalType) -> DecodeError:
    """Return the error of a text that is no value of a type."""
    reason = f"not a value of {kind} in PostgreSQL's text form"
    return DecodeError(reason, code=ReasonCode.WRONG_TYPE)


# -- reading -------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def reader(kind: LogicalType, date_order: DateOrder = "ymd") -> Read | None:
    """Return the function from text to a value, which raises ``DecodeError``; ``None`` = the text.

    The function accepts only what an output function writes.

    Args:
        kind: The type.
        date_order: The order of the numbers in a date: ``ymd`` is ``DateStyle`` ISO.
    """
    match kind:
        case Boolean():
            return _read_boolean
        case Integer():
            return _integer_reader(kind, *kind.range())
        case Decimal():
            return _decimal_reader(kind)
        case Float():
            return _float_reader(kind)
        case Bytes():
            return _read_bytes
        case Bits():
            return _matching(kind, _BITS)
        case Date():
            return _read_date if date_order == "ymd" else _date_reader(date_order)
        case Time():
            return _matching(kind, _TIME)
        case TimeTz():
            return _read_time_with_offset
        case Timestamp():
            return _read_timestamp
        case InstantType():
            return _read_instant
        case Interval():
            return _read_interval
        case Uuid():
            return _matching(kind, _UUID)
        case Array():
            return _array_reader(kind, date_order)
        case _:
            return None


def _read_boolean(text: str) -> bool:
    if text == "t":
        return True
    if text == "f":
        return False
    raise wrong(Boolean())


def _integer_reader(kind: LogicalType, low: int, high: int) -> Read:
    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise wrong(kind) from None
        if not low <= number <= high:
            raise DecodeError(f"out of the range of {kind}", code=ReasonCode.VALUE_OUT_OF_RANGE)
        if not _INTEGER.fullmatch(text):  # int() accepts spaces, underscores and other digits
            raise wrong(kind)
        return number

    return read


def _decimal_reader(kind: LogicalType) -> Read:
    def read(text: str) -> decimal.Decimal:
        if not _NUMBER.fullmatch(text):
            raise wrong(kind)
        return decimal.Decimal(text)

    return read


def _float_reader(kind: LogicalType) -> Read:
    def read(text: str) -> float:
        if not _NUMBER.fullmatch(text):
            raise wrong(kind)
        number = float(text)
        if math.isinf(number) and not text.endswith("Infinity"):
            raise DecodeError(f"out of the range of {kind}", code=ReasonCode.VALUE_OUT_OF_RANGE)
        return number

    return read


def _read_bytes(text: str) -> bytes:
    try:
        if text.startswith(_HEX) and " " not in text:
            return bytes.fromhex(text[2:])
    except ValueError:
        pass
    raise DecodeError("not hexadecimal bytes: set bytea_output to hex", code=ReasonCode.WRONG_TYPE)


def _matching(kind: LogicalType, pattern: re.Pattern[str]) -> Read:
    def read(text: str) -> str:
        if not pattern.fullmatch(text):
            raise wrong(kind)
        return text

    return read


def _astronomical(text: str, kind: LogicalType) -> tuple[str, str, bool]:
    """Return the day with its astronomical year, the text after it, and whether Python has it."""
    is_bc = text.endswith(_BC)
    if is_bc:
        text = text[: -len(_BC)]
    match = _DAY.match(text)
    if match is None:
        raise wrong(kind)
    year, rest = int(match[1]), text[match.end() :]
    if is_bc:
        year = 1 - year
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}{match[2]}", rest, 1 <= year <= 9999


def _read_date(text: str) -> dt.date | str:
    if text in _INFINITE:
        return text
    try:
        if len(text) == 10:
            return dt.date.fromisoformat(text)
    except ValueError:
        pass
    day, rest, is_usual = _astronomical(text, Date())
    if rest or is_usual:
        raise wrong(Date())
    return day


def _date_reader(date_order: DateOrder) -> Read:
    """Return the reader of dates of ``DateStyle`` Postgres, such as ``02-04-2013``."""

    def read(text: str) -> dt.date | str:
        match = _DAY_FIRST.fullmatch(text)
        if match is None:
            return _read_date(text)
        first, second, year, era = match.groups()
        month, day = (first, second) if date_order == "mdy" else (second, first)
        return _read_date(f"{year}-{month}-{day}{era or ''}")

    return read


def _read_timestamp(text: str) -> dt.datetime | str:
    if text in _INFINITE:
        return text
    try:
        if 19 <= len(text) <= 26 and text[10] == " ":
            value = dt.datetime.fromisoformat(text)
            if value.tzinfo is None:
                return value
    except ValueError:
        pass
    if match := _NAMED_MONTH.fullmatch(text):
        return _read_timestamp(_with_month_number(match))
    day, rest, _ = _astronomical(text, Timestamp())
    if rest[:1] != " " or not _TIME.fullmatch(rest, 1):
        raise wrong(Timestamp())
    return f"{day}T{rest[1:]}"


def _with_month_number(match: re.Match[str]) -> str:
    """Return a timestamp of ``DateStyle`` Postgres in that of ISO."""
    month, day = match[1] or match[4], match[2] or match[3]
    number = 1 + _MONTHS.index(month)
    return f"{match[6]}-{number:02}-{day} {match[5]}{match[7] or ''}"


def _read_instant(text: str) -> Instant | str:
    if text in _INFINITE:
        return text
    day, rest, is_usual = _astronomical(text, InstantType())
    time = _TIME.match(rest, 1)
    if rest[:1] != " " or time is None:
        raise wrong(InstantType())
    offset = _iso_offset(rest[time.end() :], InstantType())
    iso = f"{day}T{time[0]}{offset}"
    if is_usual and len(offset) <= 6:  # local mean times have seconds in their offset
        try:
            instant = Instant.fromisoformat(iso)
        except ValueError:
            return iso
        instant.digits = max(0, len(time[0]) - 9)
        return instant
    return iso


def _iso_offset(text: str, kind: LogicalType) -> str:
    """Return the offset ``+02`` as ``+02:00``, and ``+00`` as ``Z``."""
    match = _OFFSET.fullmatch(text)
    if match is None:
        raise wrong(kind)
    if text == "+00":
        return "Z"
    return text if match[2] else f"{text}:00"


def _read_time_with_offset(text: str) -> str:
    time = _TIME.match(text)
    if time is None:
        raise wrong(TimeTz())
    return time[0] + _iso_offset(text[time.end() :], TimeTz())


def _read_interval(text: str) -> str:
    iso = iso_interval(text)
    if iso is None:
        raise DecodeError(
            "not an interval: set IntervalStyle to postgres", code=ReasonCode.WRONG_TYPE
        )
    return iso


def _array_reader(kind: Array, date_order: DateOrder) -> Read:
    read = reader(kind.element, date_order)

    def read_array(text: str) -> list[Any]:
        items = parse_array(text, read)
        if items is None:
            raise wrong(kind)
        return items

    return read_array


# -- writing -------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def writer(kind: LogicalType) -> Write | None:
    """Return the function from a value to its text; ``None`` = PostgreSQL has no such type."""
    match kind:
        case Boolean():
            return lambda value: "t" if value else "f"
        case Integer() | String() | Json() | Uuid() | Xml() | Text() | Bits() | Time():
            return str
        case Decimal():
            return _decimal_text
        case Float():
            return _float_text
        case Bytes():
            return lambda value: _HEX + value.hex()
        case Date():
            return _day_text
        case TimeTz():
            return _short_offset
        case Timestamp():
            return _timestamp_text
        case InstantType():
            return _instant_text
        case Interval():
            return interval_text
        case Array():
            element = writer(kind.element)
            return None if element is None else lambda value: array_text(value, element)
        case _:
            return None


def _decimal_text(value: decimal.Decimal) -> str:
    if value.is_nan():
        return "NaN"
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and not (
        exponent >= -_SMALLEST and value.adjusted() < _LARGEST and exponent < _LARGEST
    ):
        raise ValueError
    return plain(value)


def _float_text(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _day_text(value: dt.date | str) -> str:
    return _era_text(value if isinstance(value, str) else value.isoformat(), "")


def _timestamp_text(value: dt.datetime | str) -> str:
    if isinstance(value, str):
        return _era_text(*_split(value))
    text = value.isoformat(" ")
    return text.rstrip("0") if value.microsecond else text


def _instant_text(value: Instant | str) -> str:
    text = value if isinstance(value, str) else _ZEROS.sub(r"\1", value.text())
    day, time = _split(text)
    return _era_text(day, _short_offset(time))


def _split(text: str) -> tuple[str, str]:
    day, mark, time = text.partition("T")
    return day, f" {time}" if mark else ""


def _era_text(day: str, rest: str) -> str:
    """Return a day with an astronomical year, and the text after it, as PostgreSQL writes them."""
    match = _ISO_DAY.fullmatch(day)
    if match is None:
        return day + rest
    year = int(match[1] + match[2])
    if year > 0:
        return f"{year:04}{match[3]}{rest}"
    return f"{1 - year:04}{match[3]}{rest}{_BC}"


def _short_offset(text: str) -> str:
    if text.endswith("Z"):
        return f"{text[:-1]}+00"
    is_whole = text.endswith(":00") and text[-6:-5] in {"+", "-"} and text[-6:-3] != "+00"
    return text[:-3] if is_whole else text


def type_text(kind: LogicalType) -> str | None:
    """Return PostgreSQL's type for a logical type, as ``format_type`` writes it.

    ``None`` = PostgreSQL has no such type.
    """
    match kind:
        case Integer(bits, unsigned=True) if bits == 64:
            return None
        case Integer(bits, unsigned):
            return _INTEGERS[bits << unsigned]
        case Decimal():
            return _decimal_type(kind)
        case Float(bits):
            return "real" if bits == 32 else "double precision"
        case Bits(length):
            return "bit varying" if length is None else f"bit({length})"
        case Time(precision):
            return f"time{_digits(precision)} without time zone"
        case TimeTz(precision):
            return f"time{_digits(precision)} with time zone"
        case Timestamp(precision):
            return f"timestamp{_digits(precision)} without time zone"
        case InstantType(precision):
            return f"timestamp{_digits(precision)} with time zone"
        case Interval(unit):
            return None if unit else "interval"  # a count in a unit is another value
        case Text(name):
            return name if logical_type(name) == kind else None
        case Array(element):
            text = None if isinstance(element, Array) else type_text(element)
            return None if text is None else f"{text}[]"
        case _:
            return _SIMPLE.get(type(kind))


_INTEGERS: Final = {8: "smallint", 16: "smallint", 32: "integer", 64: "bigint"}
_SIMPLE: Final[dict[type[LogicalType], str]] = {
    Boolean: "boolean",
    Bytes: "bytea",
    Date: "date",
    Json: "json",
    String: "text",
    Uuid: "uuid",
    Xml: "xml",
}


def _digits(precision: int | None) -> str:
    return "" if precision is None or not 0 <= precision <= 6 else f"({precision})"


def _decimal_type(kind: Decimal) -> str:
    if kind.precision is None or not 1 <= kind.precision <= 1000:
        return "numeric"
    scale = kind.scale or 0
    return f"numeric({kind.precision},{scale})" if -1000 <= scale <= 1000 else "numeric"
