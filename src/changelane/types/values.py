# SPDX-License-Identifier: Apache-2.0
"""The JSON form of typed values, used by ``native-json``, the quarantine and Spark's rows.

Whole numbers are numbers; decimals are text as Python prints them (with their scale, ``1E+3`` for a
negative scale); floats are numbers, or the text ``"NaN"``, ``"Infinity"``, ``"-Infinity"``;
bytes are padded Base64; dates are ``YYYY-MM-DD``; local timestamps ``YYYY-MM-DDTHH:MM:SS[.f]``
without a zone, instants with a zone; intervals are counts in their unit. A value that Python
cannot represent is the producer's text. Every form converts back to an equal value of its type.
"""

import base64
import binascii
import datetime as dt
import decimal
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.reason_codes import ReasonCode
from changelane.types import (
    Array,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Float,
    Geometry,
    GeometryType,
    Instant,
    InstantType,
    Integer,
    Interval,
    LogicalType,
    Map,
    Record,
    String,
    Timestamp,
    Unknown,
    Value,
    Year,
    parse_instant,
)

Convert = Callable[[Any], Any]

_MICROSECOND: Final = dt.timedelta(microseconds=1)
_JSON: Final = msgspec.json.Encoder(decimal_format="number")
EXACT: Final = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
"""Arithmetic that never rounds."""


MAX_DECIMAL_DIGITS: Final = 10_000
"""Maximum number of digits that are written out; "1e999999999" would exhaust the memory."""
_PLAIN: Final = frozenset({type(None), bool, int, str})
_TEXT: Final = String()


def scaled(unscaled: int, scale: int) -> decimal.Decimal:
    """Return ``unscaled * 10 ** -scale`` exactly, with that scale."""
    return EXACT.scaleb(decimal.Decimal(unscaled), -scale)


def unscaled(value: decimal.Decimal, scale: int) -> int | None:
    """Return ``value * 10 ** scale`` as an integer; ``None`` if that is not exact."""
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or exponent + scale > MAX_DECIMAL_DIGITS:
        return None
    moved = EXACT.scaleb(value, scale)
    if exponent + scale < 0 and moved != moved.to_integral_value(context=EXACT):
        return None
    return int(moved)


def plain(value: decimal.Decimal) -> str:
    """Return a decimal without an exponent if that is short, else as Python prints it.

    >>> plain(decimal.Decimal("1E+3"))
    '1000'
    """
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and -MAX_DECIMAL_DIGITS < exponent < MAX_DECIMAL_DIGITS:
        return format(value, "f")
    return str(value)


def plain_float(value: float) -> str:
    """Return a float without an exponent, and without a fraction if it is whole, as Go prints it.

    >>> plain_float(1e21), plain_float(-2.0), plain_float(1.5e-7)
    ('1000000000000000000000', '-2', '0.00000015')
    """
    return plain(decimal.Decimal(repr(value)).normalize())


def _same(value: Value) -> Value:
    return value


def float_form(value: float) -> float | str:
    """Return a float as JSON has it: a number, or the text of NaN and the infinities."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


iso_text: Final[Callable[[dt.date], str]] = msgspec.to_builtins
"""Same result as ``isoformat`` of a date or of a naive datetime, several times as fast."""


def _iso(value: dt.date | str) -> str:
    return value if isinstance(value, str) else value.isoformat()


def _instant_to(value: dt.datetime | str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Instant):
        return value.text()
    return Instant.of(value, 6).text()


def _interval_to(value: dt.timedelta | int | str) -> int | str:
    return value // _MICROSECOND if isinstance(value, dt.timedelta) else value


def _bytes_to(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _geometry_to(value: Geometry) -> dict[str, object]:
    return {"wkb": None if value.wkb is None else _bytes_to(value.wkb), "srid": value.srid}


def _nullable(convert: Convert) -> Convert:
    def inner(value: Value) -> Value:
        return None if value is None else convert(value)

    return inner


@lru_cache(maxsize=4096)
def to_json(kind: LogicalType) -> Convert | None:
    """Return the function from a non-null value to its JSON form; ``None`` = unchanged."""
    match kind:
        case Decimal():
            return str
        case Float():
            return float_form
        case Bytes():
            return _bytes_to
        case Date() | Timestamp():
            return _iso
        case InstantType():
            return _instant_to
        case Interval():
            return _interval_to
        case GeometryType():
            return _geometry_to
        case Array():
            element = _nullable(to_json(kind.element) or _same)
            return lambda values: [element(value) for value in values]
        case Map():
            key_form, value_form = (
                _nullable(to_json(kind.key) or _same),
                _nullable(to_json(kind.value) or _same),
            )
            return lambda pairs: [[key_form(key), value_form(value)] for key, value in pairs]
        case Record():
            fields = {name: _nullable(to_json(field) or _same) for name, field in kind.fields}
            return lambda record: {
                name: fields.get(name, _same)(value) for name, value in record.items()
            }
        case _:
            return None


def untyped_form(value: Value) -> Value:
    """Return the JSON form of a value without a column type; the value itself if it is JSON.

    A row without a schema contains JSON values (``unknown``) and the results of casts.
    """
    if type(value) in _PLAIN:
        return value
    match value:
        case decimal.Decimal():
            return value if value.is_finite() else str(value)  # JSON has no such number
        case float():
            return float_form(value)
        case dt.datetime():
            return _instant_to(value) if value.tzinfo is not None else _iso(value)
        case dt.date():
            return _iso(value)
        case dt.timedelta():
            return _interval_to(value)
        case bytes():
            return _bytes_to(value)
        case Geometry():
            return _geometry_to(value)
        case list():
            return _unless_same(value, [untyped_form(item) for item in value])
        case tuple():
            return [untyped_form(item) for item in value]
        case dict():
            forms = {name: untyped_form(item) for name, item in value.items()}
            return value if all(forms[name] is value[name] for name in forms) else forms
        case _:
            return value


def untyped_text(value: Value) -> str:
    """Return the text of a non-null value without a column type."""
    return str(value) if type(value) is int else value_text(_TEXT, untyped_form(value))


def _unless_same(original: list[Value], converted: list[Value]) -> list[Value]:
    return (
        original
        if all(before is after for before, after in zip(original, converted, strict=True))
        else converted
    )


def _wrong(kind: LogicalType) -> DecodeError:
    return DecodeError(f"not a value of {kind}", code=ReasonCode.WRONG_TYPE)


def _checked(kind: LogicalType, python_type: type | tuple[type, ...]) -> Convert:
    accepted = python_type if isinstance(python_type, tuple) else (python_type,)

    def inner(value: Value) -> Value:
        if type(value) not in accepted:
            raise _wrong(kind)
        return value

    return inner


def _integer_from(kind: LogicalType, low: int, high: int) -> Convert:
    def inner(value: Value) -> Value:
        if type(value) is not int:
            raise _wrong(kind)
        if low <= value <= high:
            return value
        raise DecodeError(f"out of the range of {kind}", code=ReasonCode.VALUE_OUT_OF_RANGE)

    return inner


def _texts(kind: LogicalType, parse: Callable[[str], Value]) -> Convert:
    def inner(value: Value) -> Value:
        if not isinstance(value, str):
            raise _wrong(kind)
        return parse(value)

    return inner


def parse_date(text: str) -> dt.date | str:
    """Return ``YYYY-MM-DD`` as a date, or unchanged if Python cannot represent the date."""
    if len(text) == 10 and text[4] == text[7] == "-":
        try:
            return dt.date.fromisoformat(text)
        except ValueError:
            pass
    return text


def parse_timestamp(text: str) -> dt.datetime | str:
    """Return ``YYYY-MM-DDTHH:MM:SS[.f]`` (or with a space) as a naive datetime, else unchanged."""
    if 19 <= len(text) <= 26 and text[4] == text[7] == "-" and text[10] in "T ":
        try:
            value = dt.datetime.fromisoformat(text)
        except ValueError:
            return text
        if value.tzinfo is None:
            return value
    return text


def _decimal_from(text: str) -> decimal.Decimal:
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:
        raise _wrong(Decimal()) from None


_FLOATS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _float_from(value: Value) -> float:
    if isinstance(value, str):
        if value in _FLOATS:
            return _FLOATS[value]
    elif isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise _wrong(Float())


def _bytes_from(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True) if text else b""
    except (binascii.Error, ValueError):
        raise _wrong(Bytes()) from None


def _geometry_from(value: Value) -> Geometry:
    if not isinstance(value, dict):
        raise _wrong(GeometryType())
    wkb, srid = value.get("wkb"), value.get("srid")
    if not isinstance(wkb, str | None) or not isinstance(srid, int | None):
        raise _wrong(GeometryType())
    return Geometry(None if wkb is None else _bytes_from(wkb), srid)


def _interval_from(kind: Interval) -> Convert:
    def inner(value: Value) -> Value:
        if kind.unit and isinstance(value, int):
            try:
                return dt.timedelta(microseconds=value) if kind.unit == "us" else value
            except OverflowError:
                raise _wrong(kind) from None
        if not isinstance(value, str):
            raise _wrong(kind)
        return value

    return inner


@lru_cache(maxsize=4096)
def from_json(kind: LogicalType) -> Convert:
    """Return the function from the JSON form of a non-null value to the value.

    The function raises :class:`~changelane.errors.DecodeError` if the form is not of *kind*.
    """
    match kind:
        case Unknown():
            return _same
        case Boolean():
            return _checked(kind, bool)
        case Integer():
            return _integer_from(kind, *kind.range())
        case Year():
            return _integer_from(kind, *Integer(32).range())
        case Decimal():
            return _texts(kind, _decimal_from)
        case Float():
            return _float_from
        case Bytes():
            return _texts(kind, _bytes_from)
        case Date():
            return _texts(kind, parse_date)
        case Timestamp():
            return _texts(kind, parse_timestamp)
        case InstantType():
            return _texts(kind, parse_instant)
        case Interval():
            return _interval_from(kind)
        case GeometryType():
            return _geometry_from
        case Array():
            element = _nullable(from_json(kind.element))
            return _list_of(kind, lambda values: [element(value) for value in values])
        case Map():
            read_key, read_value = _nullable(from_json(kind.key)), _nullable(from_json(kind.value))
            return _list_of(
                kind, lambda pairs: [(read_key(key), read_value(value)) for key, value in pairs]
            )
        case Record():
            return _record_from(kind)
        case _:
            return _checked(kind, str)


def _list_of(kind: LogicalType, convert: Convert) -> Convert:
    def inner(value: Value) -> Value:
        if not isinstance(value, list):
            raise _wrong(kind)
        try:
            return convert(value)
        except (TypeError, ValueError):
            raise _wrong(kind) from None

    return inner


def _record_from(kind: Record) -> Convert:
    fields = {name: _nullable(from_json(field)) for name, field in kind.fields}

    def inner(value: Value) -> Value:
        if not isinstance(value, dict):
            raise _wrong(kind)
        return {name: fields.get(name, _same)(item) for name, item in value.items()}

    return inner


def value_text(kind: LogicalType, value: Value) -> str:
    """Return the text of a non-null value, for a format that writes its type as text."""
    convert = to_json(kind)
    shown = value if convert is None else convert(value)
    if isinstance(shown, str):
        return shown
    if isinstance(shown, bool):
        return "true" if shown else "false"
    if isinstance(shown, (int, decimal.Decimal)):
        return str(shown)
    if isinstance(shown, bytes):
        return _bytes_to(shown)  # a value without a column type
    return _JSON.encode(shown).decode()


def number_form(value: Value) -> Value:
    """Return a number as untyped JSON represents it: an integer, else a decimal."""
    match value:
        case float():
            return decimal.Decimal(repr(value)) if math.isfinite(value) else float_form(value)
        case decimal.Decimal() if value.as_tuple().exponent == 0:
            return int(value)  # untyped JSON distinguishes integers from other numbers
        case decimal.Decimal() if value.is_finite():
            return value
        case _:
            return str(value)
