# SPDX-License-Identifier: Apache-2.0
"""Values of the lake from their canonical texts: the inverse of the texts. Pure.

A canonical text belongs to a pair of types, and both sides have the same text of equal values. So
the value follows from the text and the type of the lake, and is exact.
"""

import datetime as dt
import decimal
import struct
from collections.abc import Callable, Mapping
from typing import Final

from changelane.spark.verify.canonical_text import DECIMAL, scale_of, values_of
from changelane.types import (
    Array,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Float,
    Instant,
    InstantType,
    Integer,
    LogicalType,
    String,
    Timestamp,
    Value,
)

_ARRAY: Final = "array<"
_EPOCH: Final = dt.datetime(1970, 1, 1)
_DIGITS: Final = 6


class NoValueError(ValueError):
    """The lake has no value for a text, such as that of a zero date."""


def _bits(unsigned: str, number: str) -> Callable[[str], Value]:
    def read(text: str) -> Value:
        (value,) = struct.unpack(number, struct.pack(unsigned, int(text)))
        return float(value)

    return read


def _boolean(text: str) -> Value:
    return {"true": True, "false": False}[text]


def _date(text: str) -> Value:
    return _EPOCH.date() + dt.timedelta(days=int(text))


def _timestamp(text: str) -> Value:
    return _EPOCH + dt.timedelta(microseconds=int(text))


def _instant(text: str) -> Value:
    moment = _EPOCH.replace(tzinfo=dt.UTC) + dt.timedelta(microseconds=int(text))
    return Instant.of(moment, _DIGITS)


_TYPES: Final[Mapping[str, tuple[LogicalType, Callable[[str], Value]]]] = {
    "tinyint": (Integer(8), int),
    "smallint": (Integer(16), int),
    "int": (Integer(32), int),
    "bigint": (Integer(64), int),
    "float": (Float(32), _bits(">i", ">f")),
    "double": (Float(64), _bits(">q", ">d")),
    "boolean": (Boolean(), _boolean),
    "string": (String(), str),
    "binary": (Bytes(), bytes.fromhex),
    "date": (Date(), _date),
    "timestamp_ntz": (Timestamp(_DIGITS), _timestamp),
    "timestamp": (InstantType(_DIGITS), _instant),
}
"""Spark's type -> the logical type of the same values, and the value of a text."""


def logical_type(lake: str) -> LogicalType:
    """Return the logical type of a type of Spark that columns are compared with."""
    if lake.startswith(_ARRAY):
        return Array(logical_type(_element_of(lake)))
    if lake.startswith(DECIMAL):
        precision, scale = lake.removeprefix(DECIMAL).removesuffix(")").split(",")
        return Decimal(int(precision), int(scale))
    return _TYPES[lake][0]


def lake_value(text: str | None, lake: str) -> Value:
    """Return the value of a canonical text.

    Args:
        text: The text; ``None`` = NULL.
        lake: Spark's type of the column.

    Raises:
        NoValueError: The lake has no value of this text, or Python none of this value.
    """
    if text is None:
        return None
    try:
        if lake.startswith(_ARRAY):
            return _array(text, lake)
        if lake.startswith(DECIMAL):
            return decimal.Decimal(text).quantize(
                decimal.Decimal((0, (1,), -scale_of(lake))), context=_EXACT
            )
        return _TYPES[lake][1](text)
    except (ValueError, OverflowError, KeyError, struct.error, decimal.DecimalException):
        raise NoValueError("the lake has no such value") from None


_EXACT: Final = decimal.Context(prec=76, traps=[decimal.Inexact, decimal.InvalidOperation])


def _array(text: str, lake: str) -> Value:
    """Return an array: its text has the numbers of elements and dimensions before the elements."""
    count, dimensions, fields = text.split("/", 2)
    values = values_of(fields)
    if dimensions != "1" or len(values) != int(count):
        raise NoValueError("the lake has arrays of one dimension only")
    return [lake_value(value, _element_of(lake)) for value in values]


def _element_of(lake: str) -> str:
    return lake.removeprefix(_ARRAY).removesuffix(">")
