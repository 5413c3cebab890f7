# SPDX-License-Identifier: Apache-2.0
"""The forms in which formats write values of types that they lack.

A format declares the form of a type by its name (``Carries.forms``), possibly with a parameter
behind ``@``: ``sql@+08:00``. Without a form a value is written as text.
"""

import datetime as dt
import decimal
import json
import re
from collections.abc import Callable
from typing import Final

import msgspec

from changelane.types import (
    Bits,
    Decimal,
    Instant,
    InstantType,
    Integer,
    LogicalType,
    String,
    Timestamp,
    Value,
)
from changelane.types.scalars import parse_zone
from changelane.types.values import Convert, number_form, plain, value_text

Form = Callable[[LogicalType, str], Convert]
"""Returns the function of a form for a type and the parameter of the form."""

_MOST_NESTED: Final = 200
"""The most levels of a JSON document; a deeper one stays text, because no format reads it."""
_ISO: Final = re.compile(r"\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?", re.ASCII)


def _always(convert: Convert) -> Form:
    return lambda _kind, _parameter: convert


def _hexadecimal(value: Value) -> Value:
    return value.hex().upper() if isinstance(value, bytes) else value


def _bytea(value: Value) -> Value:
    return f"\\x{value.hex()}" if isinstance(value, bytes) else value


def _nanoseconds(value: Value) -> Value:
    match value:
        case dt.datetime():
            return value.isoformat("T", "microseconds") + "000"
        case dt.date():
            return f"{value.isoformat()}T00:00:00.000000000"
        case _:
            return value


def _labels(value: Value) -> Value:
    return (value.split(",") if value else []) if isinstance(value, str) else value


def _bit_number(kind: LogicalType, _parameter: str) -> Convert:
    """Return the function from bits to their number; more than 64 bits, or any number, are text."""
    if isinstance(kind, Bits) and kind.length is not None and kind.length <= 64:
        return lambda bits: int(bits, 2) if bits else bits
    return str


def _decimal_text(value: Value) -> Value:
    """Return a decimal without an exponent, which databases write in none of their texts."""
    return plain(value) if isinstance(value, decimal.Decimal) else value_text(String(), value)


def _digit(value: Value) -> Value:
    return int(value) if isinstance(value, bool) else value


def _digit_text(value: Value) -> Value:
    return str(int(value)) if isinstance(value, bool) else value


def _document(value: Value) -> Value:
    """Return the JSON of a text; the text itself if no format can write the same document.

    That is text that is not JSON, JSON's null, two members of one name, half of a surrogate pair,
    and too many levels.
    """
    try:
        document = _JSON.decode(str(value))
        msgspec.json.encode(document)
    except (UnicodeError, RecursionError, ValueError, decimal.DecimalException):
        return value
    return value if document is None or not _has_levels(document, _MOST_NESTED) else document


def _container(value: Value) -> Value:
    """Return the JSON of a text; the text itself if it is a JSON string, which has its quotes."""
    document = _document(value)
    return value if isinstance(document, str) else document


def _members(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError
    return members


def _constant(_name: str) -> Value:
    raise ValueError  # NaN and Infinity are not JSON


_JSON: Final = json.JSONDecoder(
    object_pairs_hook=_members, parse_float=decimal.Decimal, parse_constant=_constant
)


def _has_levels(value: Value, most: int) -> bool:
    """Return whether a value has at most *most* levels of arrays and objects."""
    match value:
        case dict():
            return most > 0 and all(_has_levels(item, most - 1) for item in value.values())
        case list():
            return most > 0 and all(_has_levels(item, most - 1) for item in value)
        case _:
            return True


def _sql_text(kind: LogicalType, zone_name: str) -> Convert:
    """Return the function from times to ``YYYY-MM-DD HH:MM:SS[.f]``, instants in a zone.

    The fraction has as many digits as the type, or more if the value has more.
    """
    precision = kind.precision if isinstance(kind, Timestamp | InstantType) else None
    zone = parse_zone(zone_name or "UTC")

    def write(value: Value) -> Value:
        if isinstance(value, str):
            return value.replace("T", " ") if _ISO.fullmatch(value) else value
        if not isinstance(value, dt.datetime):
            return value
        least = value.digits if isinstance(value, Instant) and precision is None else precision
        if value.tzinfo is None:
            return _with_fraction(value, least or 0)
        try:
            local = value.astimezone(zone)
        except OverflowError:
            local = None
        if local is None or local.utcoffset() != local.replace(fold=0).utcoffset():
            # a repeated hour of the zone, or a year outside of its range, has its offset
            return Instant.of(value.astimezone(dt.UTC), 6).text()
        return _with_fraction(local.replace(tzinfo=None), least or 0)

    return write


def _sql_text_with_zone(kind: LogicalType, _parameter: str) -> Convert:
    """Return the function from instants to ``YYYY-MM-DD HH:MM:SS[.f]Z``, or with an offset."""

    def write(value: Value) -> Value:
        text = value_text(kind, value)
        return text.replace("T", " ", 1) if _ISO.match(text) else text

    return write


def _with_fraction(value: dt.datetime, least: int) -> str:
    """Return a local time with at least *least* digits of its fraction, and all that it has."""
    text = value.isoformat(" ", "microseconds")
    digits = max(min(least, 6), len(text[20:].rstrip("0")))
    return text[: 20 + digits] if digits else text[:19]


FORMS: Final[dict[str, tuple[str, Form]]] = {
    "hex": ("hexadecimal text", _always(_hexadecimal)),
    "bytea": ("hexadecimal text after a backslash and x", _always(_bytea)),
    "nanoseconds": ("text with nine fraction digits", _always(_nanoseconds)),
    "number": ("a number where JSON has it", _always(number_form)),
    "bit_number": ("a number", _bit_number),
    "tinyint": ("a TINYINT, 1 or 0", _always(_digit)),
    "tinyint_text": ("1 or 0", _always(_digit_text)),
    "labels": ("an array of its labels", _always(_labels)),
    "document": ("a JSON document", _always(_document)),
    "container": ("a JSON document, or as text with quotes", _always(_container)),
    "sql": ("text with a space before the time", _sql_text),
    "sql_utc": ("text with a space before the time, and a zone", _sql_text_with_zone),
}
"""Forms that a format can declare for types that it lacks: name -> description, form."""

_WRITTEN_TYPES: Final[dict[str, tuple[LogicalType, str]]] = {"tinyint": (Integer(8), "tinyint(1)")}


def written_type(form: str | None, source_type: str | None) -> tuple[LogicalType, str | None]:
    """Return the type and the source type of a column in a form; most forms are text."""
    return _WRITTEN_TYPES.get(form or "", (String(), source_type))


def written_form(kind: LogicalType, form: str | None) -> tuple[str, Convert]:
    """Return the description and the function of the form of a type that a format lacks."""
    if not form and isinstance(kind, Decimal):
        return "text", _decimal_text
    if not form:
        return "text", lambda value: value_text(kind, value)
    name, _, parameter = form.partition("@")
    description, convert_of = FORMS[name]
    return description, convert_of(kind, parameter)
