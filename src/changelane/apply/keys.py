# SPDX-License-Identifier: Apache-2.0
"""The canonical bytes of key values: equal exactly when the keys are the same row's.

Compact JSON array text in UTF-8, in the order of the key columns. Kinds never collide, because
everything that JSON has no word for is an object with one tag:

=========================  ========================================================================
value                      text
=========================  ========================================================================
``None``, ``bool``         ``null``, ``true``, ``false``
``int``                    ``17``
``str``                    ``"text"`` (a lone surrogate, which UTF-8 has not, makes it ASCII text)
``decimal.Decimal``        ``{"d":"1.5"}``: without exponent, sign of zero or trailing zeros
``float``                  ``{"f":"1.5"}``: Python's repr; ``-0.0`` is ``0.0``
``bytes``                  ``{"b":"AAE="}``
``datetime.date``          ``{"date":"2024-01-31"}``
aware ``datetime``         ``{"t":"2024-01-31T10:00:00+00:00"}``: in UTC
naive ``datetime``         ``{"local":"2024-01-31T10:00:00"}``
``datetime.timedelta``     ``{"us":1500000}``
``list``, ``tuple``        ``[..]``, ``{"tuple":[..]}``
``dict``                   ``{"record":[["name",value],..]}``: sorted by name
``Geometry``               ``{"wkb":[bytes,srid]}``
=========================  ========================================================================
"""

import base64
import datetime as dt
import decimal
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from changelane.errors import ApplyError
from changelane.types.scalars import Geometry, Value
from changelane.types.values import MAX_DECIMAL_DIGITS

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder()


def _text(value: str) -> str:
    try:
        return _ENCODER.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value)


def _decimal_text(value: decimal.Decimal) -> str:
    if not value.is_finite():
        return "NaN" if value.is_nan() else ("Infinity" if value > 0 else "-Infinity")
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # noqa: S101 - finite, so it is a number
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return "0"
    short = text.rstrip("0")
    exponent += len(text) - len(short)
    minus = "-" if sign else ""
    if abs(exponent) > MAX_DECIMAL_DIGITS:
        return f"{minus}{short}E{exponent}"
    if exponent >= 0:
        return f"{minus}{short}{'0' * exponent}"
    short = short.rjust(1 - exponent, "0")
    return f"{minus}{short[:exponent]}.{short[exponent:]}"


def _moment(value: dt.datetime) -> str:
    if value.tzinfo is None:
        return f'{{"local":"{dt.datetime.isoformat(value)}"}}'
    try:
        utc = value.astimezone(dt.UTC)
    except OverflowError:  # within a day of the calendar's ends
        return f'{{"t":{(value - _EPOCH) // _MICROSECOND}}}'
    return f'{{"t":"{utc.isoformat()}"}}'


def _base64(value: bytes) -> str:
    return f'{{"b":"{base64.b64encode(value).decode()}"}}'


def _list(values: "list[Value] | tuple[Value, ...]") -> str:
    return f"[{','.join(map(canonical, values))}]"


def _record(value: Mapping[str, Value]) -> str:
    pairs = ",".join(f"[{_text(name)},{canonical(value[name])}]" for name in sorted(value))
    return f'{{"record":[{pairs}]}}'


_TEXTS: Final[Mapping[type, Callable[[Any], str]]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: str,
    str: _text,
    decimal.Decimal: lambda value: f'{{"d":"{_decimal_text(value)}"}}',
    float: lambda value: f'{{"f":"{value + 0.0!r}"}}',
    bytes: _base64,
    dt.datetime: _moment,
    dt.date: lambda value: f'{{"date":"{value.isoformat()}"}}',
    dt.timedelta: lambda value: f'{{"us":{value // _MICROSECOND}}}',
    list: _list,
    tuple: lambda value: f'{{"tuple":{_list(value)}}}',
    dict: _record,
    Geometry: lambda value: f'{{"wkb":{_list([value.wkb, value.srid])}}}',
}


def canonical(value: Value) -> str:
    """Return the canonical JSON text of one value.

    >>> canonical(decimal.Decimal("1.00")), canonical(1), canonical("1")
    ('{"d":"1"}', '1', '"1"')

    Raises:
        ApplyError: The value is of no kind that a column holds (code ``no_key``).
    """
    write = _TEXTS.get(type(value))
    if write is None:
        write = next((_TEXTS[kind] for kind in type(value).__mro__ if kind in _TEXTS), None)
    if write is None:
        raise NoKeyError(f"a value of type {type(value).__name__} has no canonical text")
    return write(value)


class NoKeyError(ApplyError):
    """The key of an event is not known, so nothing says which row is meant."""

    code = "no_key"


def key_bytes(values: Mapping[str, Value]) -> bytes:
    """Return the canonical bytes of key values, in the mapping's order.

    >>> key_bytes({"id": 7, "region": "eu"})
    b'[7,"eu"]'
    """
    if len(values) == 1:
        (value,) = values.values()
        if type(value) is int:
            return b"[%d]" % value
        return f"[{canonical(value)}]".encode()
    return f"[{','.join(map(canonical, values.values()))}]".encode()


def key_values(key: bytes) -> tuple[Value, ...]:
    """Return the values that canonical key bytes stand for: the inverse of :func:`key_bytes`.

    >>> key_values(b'[7,{"d":"1.5"}]')
    (7, Decimal('1.5'))
    """
    try:
        told = _DECODER.decode(key)
    except msgspec.DecodeError:
        told = json.loads(key)  # lone surrogates
    return tuple(map(_value, told))


def _moment_of(told: str | int) -> dt.datetime | tuple[str, int]:
    if isinstance(told, int):
        # Beyond the calendar in UTC: any zone in which it is within will do.
        shift = dt.timezone(dt.timedelta(hours=14 if told < 0 else -12))
        return (_EPOCH.astimezone(shift) + told * _MICROSECOND).replace(tzinfo=shift)
    return dt.datetime.fromisoformat(told)


_VALUES: Final[Mapping[str, Callable[[Any], Value]]] = {
    "d": decimal.Decimal,
    "f": float,
    "b": base64.b64decode,
    "t": _moment_of,
    "local": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "us": lambda told: told * _MICROSECOND,
    "tuple": lambda told: tuple(map(_value, told)),
    "record": lambda told: {name: _value(item) for name, item in told},
    "wkb": lambda told: Geometry(told[0] and base64.b64decode(told[0]["b"]), told[1]),
}


def _value(told: Value) -> Value:
    if isinstance(told, list):
        return list(map(_value, told))
    if isinstance(told, dict):
        ((tag, inner),) = told.items()
        return _VALUES[tag](inner)
    return told
