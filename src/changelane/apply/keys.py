# SPDX-License-Identifier: Apache-2.0
"""The canonical bytes of key values: equal if and only if two keys identify the same row.

The bytes are a compact JSON array in UTF-8, in the order of the key columns. Values of different
types are never equal, because every type that JSON lacks is an object with one tag:

=========================  ========================================================================
value                      text
=========================  ========================================================================
``None``, ``bool``         ``null``, ``true``, ``false``
``int``                    ``17``
``str``                    ``"text"`` (text with a lone surrogate, invalid in UTF-8, is ASCII)
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
from changelane.reason_codes import ReasonCode
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
    except OverflowError:  # within a day of the limits of Python's calendar
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
        NoKeyError: The class of the value is not that of a column value.
    """
    write = _TEXTS.get(type(value))
    if write is None:
        write = next((_TEXTS[kind] for kind in type(value).__mro__ if kind in _TEXTS), None)
    if write is None:
        raise NoKeyError(f"a value of type {type(value).__name__} has no canonical text")
    return write(value)


class NoKeyError(ApplyError):
    """The key of an event is unknown, so the row is unknown, too."""

    code = ReasonCode.NO_KEY


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
    """Return the values of canonical key bytes: the inverse of :func:`key_bytes`.

    >>> key_values(b'[7,{"d":"1.5"}]')
    (7, Decimal('1.5'))
    """
    try:
        parts = _DECODER.decode(key)
    except msgspec.DecodeError:
        parts = json.loads(key)  # lone surrogates
    return tuple(map(_value, parts))


def _moment_of(moment: str | int) -> dt.datetime | tuple[str, int]:
    if isinstance(moment, int):
        # Outside of Python's calendar in UTC: use a zone in which the time is representable.
        shift = dt.timezone(dt.timedelta(hours=14 if moment < 0 else -12))
        return (_EPOCH.astimezone(shift) + moment * _MICROSECOND).replace(tzinfo=shift)
    return dt.datetime.fromisoformat(moment)


_VALUES: Final[Mapping[str, Callable[[Any], Value]]] = {
    "d": decimal.Decimal,
    "f": float,
    "b": base64.b64decode,
    "t": _moment_of,
    "local": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "us": lambda count: count * _MICROSECOND,
    "tuple": lambda items: tuple(map(_value, items)),
    "record": lambda fields: {name: _value(item) for name, item in fields},
    "wkb": lambda geometry: Geometry(
        geometry[0] and base64.b64decode(geometry[0]["b"]), geometry[1]
    ),
}


def _value(value: Value) -> Value:
    if isinstance(value, list):
        return list(map(_value, value))
    if isinstance(value, dict):
        ((tag, inner),) = value.items()
        return _VALUES[tag](inner)
    return value
