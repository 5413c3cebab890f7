# SPDX-License-Identifier: Apache-2.0
"""The branches of numbers, in both directions: ``Integer``, ``Decimal`` and ``Float``."""

import decimal
import math
import re
import struct
from collections.abc import Callable
from typing import Any, Final

from changelane import types as t
from changelane.formats.contract.avro_binary import (
    long_of,
    read_bytes,
    read_long,
    read_text,
    text_of,
)
from changelane.formats.contract.format import Report
from changelane.formats.dts.avro import branch_of
from changelane.formats.dts.values import ColumnForm, Read, TypedValue, Write, expect
from changelane.types.values import plain

_INTEGER: Final = branch_of("Integer")
_DECIMAL: Final = branch_of("Decimal")
_FLOAT: Final = branch_of("Float")


def _skip(data: bytes, at: int) -> int:
    """Return the end of the number at *at*."""
    return at + 1 if data[at] < 128 else read_long(data, at)[1]


# -- Integer ---------------------------------------------------------------------------------------

_MOST_DIGITS: Final = 4000


def _whole(text: bytes) -> int:
    digits = text[1:] if text[:1] in (b"-", b"+") else text
    if not digits.isdigit() or len(digits) > _MOST_DIGITS:
        raise ValueError
    return int(text)


def integer_reader(form: ColumnForm) -> Read:
    """Return the reader of ``Integer`` in a column."""
    kind = form.type
    match kind:
        case t.Bits():
            return _converted(_bits_of)
        case t.Boolean():
            return _converted({0: False, 1: True}.__getitem__)
        case t.Decimal():
            return _converted(decimal.Decimal)
        case t.Year():
            return _converted(int)
        case _:
            low, high = kind.range() if isinstance(kind, t.Integer) else (1, 0)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        at = at + 1 if data[at] < 128 else _skip(data, at)
        text, at = read_bytes(data, at)
        number = int(text) if text.isdigit() and len(text) < 99 else _whole(text)
        if low <= number <= high:
            return number, at
        return _wider(form, number), at

    return read


def _wider(form: ColumnForm, number: int) -> TypedValue:
    for kind in (t.Integer(64), t.Integer(64, unsigned=True)):
        low, high = kind.range()
        if low <= number <= high:
            return form.typed(number, kind)
    return form.typed(decimal.Decimal(number), t.Decimal())


def _converted(convert: Callable[[int], t.Value]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        text, at = read_bytes(data, _skip(data, at))
        return convert(_whole(text)), at

    return read


def _bits_of(number: int) -> str:
    if number < 0:
        raise ValueError
    return f"{number:b}"


def integer_writer(form: ColumnForm) -> Write:
    """Return the writer of an integer column."""
    entry = None if form.number is None else form.family.numbers.get(form.number)
    bits = form.type.bits if isinstance(form.type, t.Integer) else 64
    head = _INTEGER + long_of(bits // 8 if entry is None else entry.width)

    def write(value: int, _report: Report) -> bytes:
        if value.__class__ is not int:
            raise TypeError
        text = b"%d" % value
        return head + long_of(len(text)) + text

    return write


def bits_writer(_form: ColumnForm) -> Write:
    """Return the writer of bits as a number."""

    def write(value: str, report: Report) -> bytes:
        number = int(value, 2)
        if value != f"{number:b}":
            report(("value:bits", "leading zeros of bits without a length"))
        return _INTEGER + long_of((len(value) + 7) // 8) + text_of(str(number))

    return write


# -- Decimal ---------------------------------------------------------------------------------------

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]{1,9})?")
_NON_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_NO_NUMBER: Final = "~"
"""A special value of ``dts-deliver-sdk`` of unknown meaning; it stays text."""


def decimal_reader(form: ColumnForm) -> Read:
    """Return the reader of ``Decimal`` in a column."""
    is_decimal = isinstance(form.type, t.Decimal)
    matches = _NUMBER.fullmatch

    def read(data: bytes, at: int) -> tuple[Any, int]:
        text, at = read_text(data, at)
        at = _skip(data, at)
        at = _skip(data, at)
        if text == _NO_NUMBER:
            return form.typed(text, t.String()), at
        if not matches(text) and text not in _NON_FINITE:
            raise ValueError
        number = decimal.Decimal(text)
        return (number if is_decimal else form.typed(number, t.Decimal())), at

    return read


def _written_decimal(value: decimal.Decimal, report: Report) -> bytes:
    if value.__class__ is not decimal.Decimal:
        raise TypeError
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        if value.is_snan() or (value.is_nan() and str(value) != "NaN"):
            report(("value:decimal", "a NaN with a sign, a payload or a signal"))
        text = "NaN" if value.is_nan() else "Infinity" if value > 0 else "-Infinity"
        return _DECIMAL + text_of(text) + b"\x00\x00"
    text = str(value)
    if "E" in text:
        text = plain(value)
    # the number of digits of the unscaled value, as Java counts them: 0.0100 has 3
    precision = len(digits) if exponent <= 0 or "E" in text else len(digits) + exponent
    scale = -exponent if exponent <= 0 or "E" in text else 0
    return _DECIMAL + text_of(text) + long_of(precision) + long_of(scale)


def decimal_writer(_form: ColumnForm) -> Write:
    """Return the writer of a decimal column."""
    return _written_decimal


def oracle_integer_writer(_form: ColumnForm) -> Write:
    """Return the writer of an integer column of Oracle, whose integers are NUMBERs."""

    def write(value: int, report: Report) -> bytes:
        expect(value, int)
        report(("type:integer", "a NUMBER of Oracle comes back as a decimal"))
        return _written_decimal(decimal.Decimal(value), report)

    return write


# -- Float -----------------------------------------------------------------------------------------

_DOUBLE: Final = struct.Struct("<d")
_unpack, _pack = _DOUBLE.unpack_from, _DOUBLE.pack
_PRECISION_AND_SCALE: Final = long_of(8) + long_of(15)


def float_reader(form: ColumnForm) -> Read:
    """Return the reader of ``Float`` in a column."""
    is_float = isinstance(form.type, t.Float)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        (number,) = _unpack(data, at)
        at = _skip(data, at + 8)
        at = _skip(data, at)
        return (number if is_float else form.typed(number, t.Float(64))), at

    return read


def float_writer(_form: ColumnForm) -> Write:
    """Return the writer of a column of floats."""

    def write(value: float, _report: Report) -> bytes:
        if value.__class__ is not float:
            value = float(value)
            if math.isinf(value):
                raise OverflowError
        return _FLOAT + _pack(value) + _PRECISION_AND_SCALE

    return write
