# SPDX-License-Identifier: Apache-2.0
"""Attribute values of DynamoDB: ``{"S": "text"}``, ``{"N": "1.5"}``, ``{"M": {...}}`` ...

The types are those of the API reference, ``AttributeValue``. A nested value is read in its plain
form, without the names of its types: ``{"M": {"a": {"N": "1"}}}`` is ``{"a": 1}``.
"""

import base64
import binascii
import decimal
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.formats.contract.format import Report
from changelane.formats.dynamodb.wire import Row
from changelane.reason_codes import ReasonCode
from changelane.types import Value
from changelane.types.values import number_form, plain

SETS: Final = frozenset({"SS", "NS", "BS"})
"""The types of sets."""
_NESTED: Final = SETS | {"M", "L"}

MOST_DIGITS: Final = 38
"""The most significant digits of a number."""
LEAST_MAGNITUDE: Final = -130
MOST_MAGNITUDE: Final = 125
"""The least and the greatest decimal exponent of the first digit of a number that is not zero."""

_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?")

FEW_DIGITS: Final = 18
"""The digits of a whole number whose range needs no check."""
_HAS_FEW_DIGITS: Final = re.compile(r"-?[0-9]{1,18}\.[0-9]{1,18}").fullmatch


def read(attribute: Row) -> Value:
    """Return the value of an attribute; a nested value in its plain form.

    Bytes are ``bytes``, inside of a nested value Base64 text. Sets are sorted lists.

    Raises:
        DecodeError: The attribute has none or two types, or its value is not of its type. The
            error has no path.
    """
    if len(attribute) != 1:
        raise DecodeError("not a value with one type", code=ReasonCode.WRONG_TYPE)
    ((kind, value),) = attribute.items()
    reader = _READERS.get(kind)
    if reader is None:
        raise DecodeError("an unknown attribute type", code=ReasonCode.UNKNOWN_TYPE)
    return reader(value)


def read_typed(attribute: Row) -> Value:
    """Return the value of an attribute; a nested value with the names of its types."""
    value = read(attribute)
    return attribute if attribute.keys() <= _NESTED else value


def _wrong() -> DecodeError:
    return DecodeError("not a value of its attribute type", code=ReasonCode.WRONG_TYPE)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _wrong()
    return value


def _number(value: Any) -> int | decimal.Decimal:
    """Return a number; test data in public use has JSON numbers instead of their texts."""
    is_text = type(value) is str and _NUMBER.fullmatch(value) is not None
    if not (is_text or type(value) is int or type(value) is decimal.Decimal):
        raise _wrong()
    number = decimal.Decimal(value)
    if not fits(number):
        raise DecodeError(
            "a number out of the range of DynamoDB", code=ReasonCode.VALUE_OUT_OF_RANGE
        )
    return int(number) if number.as_tuple().exponent == 0 else number


def number(value: Any) -> int | decimal.Decimal:
    """Return the value of an attribute of the type ``N``.

    Raises:
        DecodeError: It is not a number, or out of range.
    """
    if value.__class__ is not str:
        return _number(value)
    if len(value) <= FEW_DIGITS and value.isascii() and value.isdecimal():
        return int(value)
    return fraction(value)


def fraction(text: str) -> int | decimal.Decimal:
    """Return the value of an attribute of the type ``N`` that has other characters than digits.

    Raises:
        DecodeError: It is not a number, or out of range.
    """
    # one with few digits needs no check of its range
    return decimal.Decimal(text) if _HAS_FEW_DIGITS(text) else _number(text)


def _bytes(value: Any) -> bytes:
    text = _text(value)
    try:
        return binascii.a2b_base64(text, strict_mode=True) if text else b""
    except (binascii.Error, ValueError):
        raise _wrong() from None


def _base64(value: Any) -> str:
    _bytes(value)
    return str(value)


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise _wrong()
    return value


def _null(value: Any) -> None:
    if value is not True:
        raise _wrong()


def _map(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise _wrong()
    return {name: _inner(attribute) for name, attribute in value.items()}


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise _wrong()
    return [_inner(attribute) for attribute in value]


def _inner(attribute: Any) -> Any:
    if type(attribute) is not dict:
        raise _wrong()
    value = read(attribute)
    return attribute["B"] if type(value) is bytes else value


def _set(element: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def inner(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _wrong()
        return sorted(map(element, value))

    return inner


_READERS: Final[dict[str, Callable[[Any], Value]]] = {
    "S": _text,
    "N": number,
    "B": _bytes,
    "BOOL": _boolean,
    "NULL": _null,
    "M": _map,
    "L": _list,
    "SS": _set(_text),
    "NS": _set(_number),
    "BS": _set(_base64),
}


def fits(number: decimal.Decimal) -> bool:
    """Return whether DynamoDB has a number: its range, and 38 significant digits.

    >>> fits(decimal.Decimal("9.9E125")), fits(decimal.Decimal("1E126"))
    (True, False)
    """
    if not number.is_finite():
        return False
    if not number:
        return -MOST_DIGITS <= number.adjusted() <= MOST_DIGITS
    digits = "".join(map(str, number.as_tuple().digits)).strip("0")
    is_in_range = LEAST_MAGNITUDE <= number.adjusted() <= MOST_MAGNITUDE
    return is_in_range and len(digits) <= MOST_DIGITS


def write(value: Value, report: Report, set_type: str | None = None) -> Row:
    """Return a value as an attribute.

    Args:
        value: A JSON value, or bytes.
        report: Called if a number is written as text.
        set_type: The type of set that the value was read from, if it was one.
    """
    if set_type is not None and isinstance(value, list) and _is_set(set_type, value):
        return {set_type: [_plain_number(item) if set_type == "NS" else item for item in value]}
    return _attribute(value, report)


def is_attribute(value: object) -> bool:
    """Return whether a value is an attribute with a nested value and the names of its types."""
    if not isinstance(value, dict) or not value.keys() <= _NESTED:
        return False
    try:
        read(value)
    except DecodeError:
        return False
    return True


def _is_set(set_type: str, values: list[Any]) -> bool:
    """Return whether a list is a set of a type, in the order in which sets are read."""
    try:
        return bool(values) and values == _READERS[set_type](values)
    except DecodeError:
        return False


def _attribute(value: Value, report: Report) -> Row:
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case int() | float() | decimal.Decimal():
            return _number_attribute(value, report)
        case bytes():
            return {"B": base64.b64encode(value).decode("ascii")}
        case Mapping():
            return {"M": {name: _attribute(item, report) for name, item in value.items()}}
        case list() | tuple():
            return {"L": [_attribute(item, report) for item in value]}
        case _:
            return {"S": str(value)}


def _number_attribute(value: float | decimal.Decimal, report: Report) -> Row:
    number: Any = value if isinstance(value, int) else number_form(value)
    if isinstance(number, str):
        return {"S": number}  # NaN and infinity
    if not fits(decimal.Decimal(number)):
        kind = "integer" if isinstance(number, int) else "decimal"
        report((f"value:{kind}", "a number out of the range of DynamoDB is written as text"))
        return {"S": _plain_number(number)}
    return {"N": _plain_number(number)}


def _plain_number(value: int | decimal.Decimal) -> str:
    """Return the text of a number, which is read as an equal number of the same class."""
    if isinstance(value, int):
        return str(decimal.Decimal(value))  # Python limits the digits of an integer as text
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)  # noqa: S101 - finite, so it is a number
    return str(value) if exponent > 0 or math.fabs(exponent) > MOST_DIGITS else plain(value)
