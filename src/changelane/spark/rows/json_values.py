# SPDX-License-Identifier: Apache-2.0
"""The Spark types of logical types, and values as JSON text that Spark reads exactly.

``from_json`` changes values that do not fit without an error: it rounds decimals, wraps small
integers, overflows floats and cuts nanoseconds. Every value is therefore checked here against the
Spark type of its column. A value that does not fit is an error of its event.
"""

import base64
import datetime as dt
import decimal
import math
import re
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from changelane import types as t
from changelane.apply import key_bytes, key_values
from changelane.errors import DecodeError
from changelane.event import Image
from changelane.reason_codes import ReasonCode
from changelane.schema import TableSchema
from changelane.spark.rows.calendar_texts import (
    DATE_TEXT,
    INSTANT_TEXT,
    TIMESTAMP_TEXT,
    is_in_calendar,
)
from changelane.spark.rows.decimal_texts import MAX_PRECISION, digits_of
from changelane.types import UNAVAILABLE, Geometry, LogicalType, Unavailable, Value
from changelane.types.values import plain, to_json, value_text

Convert = Callable[[Any], Any]

_MAX_MICROSECOND_DIGITS: Final = 6
_MAX_FLOAT32: Final = 3.4028235677973362e38
"""The greatest number that is rounded to a float of 32 bits; its shortest text is 3.4028235E38."""

_TEXT: Final = "STRING"
_SPARK: Final[dict[type[LogicalType], str]] = {
    t.Boolean: "BOOLEAN",
    t.String: _TEXT,
    t.Bytes: "BINARY",
    t.Bits: _TEXT,
    t.Date: "DATE",
    t.Time: _TEXT,
    t.TimeTz: _TEXT,
    t.Year: "INT",
    t.Enum: _TEXT,
    t.Set: _TEXT,
    t.Json: _TEXT,
    t.Uuid: _TEXT,
    t.Xml: _TEXT,
    t.Text: _TEXT,
    t.GeometryType: "STRUCT<wkb: BINARY, srid: INT>",
    t.Map: _TEXT,
    t.Record: _TEXT,
    t.Unknown: _TEXT,
}
_INTEGERS: Final = {
    (8, False): "TINYINT",
    (16, False): "SMALLINT",
    (32, False): "INT",
    (64, False): "BIGINT",
    (8, True): "SMALLINT",
    (16, True): "INT",
    (32, True): "BIGINT",
    (64, True): "DECIMAL(20,0)",
}


def spark_type(kind: LogicalType) -> str:
    """Return the Spark type of a logical type, as DDL.

    Types that Spark lacks become text: times (TIME may exceed 24 hours), nanoseconds, decimals
    with more than 38 digits or with a variable scale. Unsigned 64-bit integers become
    ``DECIMAL(20,0)``.
    """
    match kind:
        case t.Integer():
            return _INTEGERS[kind.bits, kind.unsigned]
        case t.Decimal(precision, scale):
            if scale is None or scale < 0:
                return _TEXT
            digits = MAX_PRECISION if precision is None else max(precision, scale)
            return f"DECIMAL({digits},{scale})" if digits <= MAX_PRECISION else _TEXT
        case t.Float():
            return "FLOAT" if kind.bits == 32 else "DOUBLE"
        case t.Timestamp(precision):
            return _TEXT if (precision or 0) > _MAX_MICROSECOND_DIGITS else "TIMESTAMP_NTZ"
        case t.InstantType(precision):
            return _TEXT if (precision or 0) > _MAX_MICROSECOND_DIGITS else "TIMESTAMP"
        case t.Interval():
            return "BIGINT" if kind.unit else _TEXT
        case t.Array():
            return f"ARRAY<{spark_type(kind.element)}>"
        case _:
            return _SPARK[type(kind)]


def _out_of_range(kind: LogicalType) -> DecodeError:
    target = spark_type(kind)
    return DecodeError(
        f"a value of {kind} does not fit {target}", code=ReasonCode.VALUE_OUT_OF_RANGE
    )


def _as_text(kind: LogicalType) -> Convert:
    numbers = frozenset({int, decimal.Decimal} if to_json(kind) is None else ())

    def inner(value: Value) -> str:
        if value.__class__ in numbers:
            return str(value)
        return value if isinstance(value, str) else value_text(kind, value)

    return inner


def _unsigned_64(kind: t.Integer) -> Convert:
    _, largest = kind.range()

    def inner(value: Value) -> str:
        if type(value) is not int or not 0 <= value <= largest:
            raise _out_of_range(kind)
        return str(value)

    return inner


def _decimal(kind: t.Decimal) -> Convert:
    digits = digits_of(kind)
    step = decimal.Decimal((0, (1,), -(kind.scale or 0)))
    exact = decimal.Context(prec=digits, traps=[decimal.Inexact, decimal.InvalidOperation])

    def inner(value: Value) -> str:
        if not isinstance(value, decimal.Decimal):
            raise DecodeError(f"not a value of {kind}", code=ReasonCode.WRONG_TYPE)
        if not value.is_finite():
            raise _out_of_range(kind)
        try:
            return format(exact.quantize(value, step), "f")
        except (decimal.Inexact, decimal.InvalidOperation):
            raise _out_of_range(kind) from None

    return inner


def _float(kind: t.Float) -> Convert:
    encode = to_json(kind)
    narrow = kind.bits == 32

    def inner(value: Value) -> Value:
        if type(value) is not float and type(value) is not int:
            raise DecodeError(f"not a value of {kind}", code=ReasonCode.WRONG_TYPE)
        if narrow and abs(value) > _MAX_FLOAT32 and math.isfinite(value):
            raise _out_of_range(kind)
        try:
            return encode(float(value)) if encode else value
        except OverflowError:
            raise _out_of_range(kind) from None

    return inner


def _temporal(kind: LogicalType, python_type: type, pattern: re.Pattern[str]) -> Convert:
    encode = to_json(kind)

    def inner(value: Value) -> Value:
        if isinstance(value, str):
            if not pattern.fullmatch(value) or not is_in_calendar(value):
                raise _out_of_range(kind)
            return value
        if not isinstance(value, python_type):
            raise DecodeError(f"not a value of {kind}", code=ReasonCode.WRONG_TYPE)
        return encode(value) if encode else value

    return inner


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _array(kind: t.Array) -> Convert:
    _, convert = _column(kind.element)
    element = _nullable(convert) if convert else None

    def inner(value: Value) -> Value:
        if not isinstance(value, list):
            raise DecodeError(f"not a value of {kind}", code=ReasonCode.WRONG_TYPE)
        return [element(item) for item in value] if element else value

    return inner


@lru_cache(maxsize=4096)
def _column(kind: LogicalType) -> tuple[Any, Convert | None]:
    """Return the type that msgspec checks after the conversion, and the conversion."""
    target = spark_type(kind)
    match kind:
        case t.Boolean():
            return bool, None
        case t.Integer(64, True):
            return str, _unsigned_64(kind)
        case t.Integer():
            least, largest = kind.range()
            return Annotated[int, msgspec.Meta(ge=least, le=largest)], None
        case t.Year():
            return Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)], None
        case t.Float():
            return float | int | str, _float(kind)
        case t.Bytes():
            return str, to_json(kind)
        case t.GeometryType():
            return dict[str, Any], to_json(kind)
        case t.Array():
            element, _ = _column(kind.element)
            return list[element | None], _array(kind)  # type: ignore[valid-type]
        case t.Decimal() if target != _TEXT:
            return str, _decimal(kind)
        case t.Date():
            return str, _temporal(kind, dt.date, DATE_TEXT)
        case t.Timestamp() if target != _TEXT:
            return str, _temporal(kind, dt.datetime, TIMESTAMP_TEXT)
        case t.InstantType() if target != _TEXT:
            return str, _temporal(kind, dt.datetime, INSTANT_TEXT)
        case t.Interval() if target != _TEXT:
            least, largest = t.Integer(64).range()
            return Annotated[int, msgspec.Meta(ge=least, le=largest)], to_json(kind)
        case t.Bits(length) if length is not None:
            # Debezium's connector for PostgreSQL leaves zero bytes out
            return str, lambda value: value.zfill(length) if isinstance(value, str) else value
        case t.String() | t.Enum() | t.Set() | t.Json() | t.Uuid() | t.Xml() | t.Text():
            return str, None
        case _:
            return str, _as_text(kind)


def key_text(value: Value) -> str | None:
    """Return a key's value as text that Spark casts to the type of its column."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case decimal.Decimal():
            return plain(value)
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case dt.timedelta():
            return str(value // dt.timedelta(microseconds=1))
        case dt.datetime():
            return dt.datetime.isoformat(value)
        case dt.date():
            return value.isoformat()
        case list():
            return JSON.encode({"v": _nested(value)}).decode()
        case Geometry():
            _, shape = _column(t.GeometryType())
            return JSON.encode({"v": shape(value) if shape else None}).decode()
        case _:
            return str(value)


def _nested(value: Value) -> Value:
    return list(map(_nested, value)) if isinstance(value, list) else key_text(value)


def key_as_text(kind: LogicalType, value: Value) -> Value:
    """Return the canonical text of a key's value in a column that Spark stores as text."""
    match value:
        case str() if isinstance(kind, t.Bits):
            return value.zfill(kind.length or 0)  # as in the row
        case None | str() | Unavailable():
            return value
        case int():
            return value_text(kind, value)
        case decimal.Decimal() | dt.datetime():
            (same,) = key_values(key_bytes({"key": value}))
            return key_text(same)
        case _:
            return value_text(kind, value)


def _decimal_fits(kind: t.Decimal) -> Callable[[Any], bool] | None:
    """Return the check whether msgspec writes a decimal as :func:`_decimal` does.

    A decimal passes that has the column's scale and no more digits. Up to six fraction digits
    Python prints no exponent. ``None`` = no decimal of the column passes.
    """
    if kind.scale is None or not 0 <= kind.scale <= 6:
        return None
    digits = digits_of(kind)
    step = decimal.Decimal((0, (1,), -kind.scale))
    same_scale, bound = step.same_quantum, decimal.Decimal((0, (1,), digits - kind.scale))
    least = -bound

    return lambda value: same_scale(value) and least < value < bound


_MAX_FLOAT64: Final = sys.float_info.max


class UsualForm(NamedTuple):
    """How the usual values of a type are written: values that need no slow path.

    Attributes:
        checked: The type that msgspec checks after the conversion.
        python_class: The class of the values, which msgspec writes itself; ``None`` = any class.
        fits: The further check of a value of the class.
        convert: The conversion of a value of any class.
        unconverted: The class of values that *convert* returns unchanged and msgspec writes, if
            any.
    """

    checked: Any
    python_class: type | None = None
    fits: Callable[[Any], bool] | None = None
    convert: Convert | None = None
    unconverted: type | None = None


@lru_cache(maxsize=4096)
def usual_form(kind: LogicalType) -> UsualForm:
    """Return the usual form of a type, in which :func:`_column` and msgspec write the same.

    Values of another class than that of the form take the slow path, for example a date as text
    that Python has no object for.
    """
    target = spark_type(kind)
    match kind:
        case t.Float():
            largest = _MAX_FLOAT32 if kind.bits == 32 else _MAX_FLOAT64
            return UsualForm(Annotated[float, msgspec.Meta(ge=-largest, le=largest)], float)
        case t.Bytes():
            return UsualForm(bytes, bytes)
        case t.Bits(length) if length is not None:
            return UsualForm(str, str, lambda value: len(value) >= length)
        case t.Decimal() if target != _TEXT and (fits := _decimal_fits(kind)):
            return UsualForm(decimal.Decimal, decimal.Decimal, fits)
        case t.Date():
            return UsualForm(dt.date, dt.date)
        case t.Timestamp() if target != _TEXT:
            return UsualForm(Annotated[dt.datetime, msgspec.Meta(tz=False)], dt.datetime)
        case _:
            checked, convert = _column(kind)
            unconverted = str if target == _TEXT and convert is not None else None
            return UsualForm(checked, convert=convert, unconverted=unconverted)


JSON: Final = msgspec.json.Encoder()
_NEEDS_ESCAPE: Final = re.compile(r'["\\\x00-\x1f]')


_NONE_TYPE: Final = type(None)
_MAX_CLASSES: Final = 1024


def _tuple_of(names: tuple[str, ...]) -> Callable[[Image], tuple[Any, ...]]:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda image: tuple(image[name] for name in names)


class RowWriter:
    """Writes images of one schema as checked JSON text. Compiled once per schema."""

    def __init__(self, schema: TableSchema) -> None:
        fields: list[tuple[str, Any, Any]] = []
        usual: list[tuple[str, Any]] = []
        self._usual_converts: list[tuple[str, Convert]] = []
        self._usual_checks: list[tuple[str, Callable[[Any], bool]]] = []
        classes: dict[str, type] = {}
        rename: dict[str, str] = {}
        self._converts: list[tuple[str, Convert]] = []
        is_plain = True
        for index, column in enumerate(schema.columns):
            checked, convert = _column(column.type)
            fields.append((f"f{index}", checked | None | msgspec.UnsetType, msgspec.UNSET))
            rename[f"f{index}"] = column.name
            is_plain = is_plain and _NEEDS_ESCAPE.search(column.name) is None
            if convert is not None:
                self._converts.append((column.name, convert))
            form = usual_form(column.type)
            if form.python_class is not None:
                classes[column.name] = form.python_class
            if form.fits is not None:
                self._usual_checks.append((column.name, form.fits))
            if form.convert is not None:
                self._usual_converts.append((column.name, form.convert))
            usual.append((f"f{index}", form.checked | None))
        # msgspec does not escape names of fields, so names that need it are replaced by numbers
        self._numbered = None if is_plain else {name: field for field, name in rename.items()}
        self._row = msgspec.defstruct(
            "Row", fields, rename=rename if is_plain else None, forbid_unknown_fields=True
        )
        self._classes = tuple(classes.values())
        self._class_values = _tuple_of(tuple(classes))
        self._usual_classes: set[tuple[type, ...]] = set()
        # the fast path: exactly the schema's columns, each with a value of its usual class
        self._usual = (
            msgspec.defstruct("Usual", usual, rename=rename, forbid_unknown_fields=True, gc=False)
            if is_plain
            else None
        )
        self._names = [column.name for column in schema.columns]
        self._count = len(self._names)

    def write(self, image: Image) -> tuple[bytes, list[str] | None]:
        """Return the row's JSON, and the columns that the image lacks (``None`` = none).

        Raises:
            DecodeError: A value does not fit the Spark type of its column, or no column has that
                name (``value_out_of_range``, ``wrong_type``, ``unknown_column``).
        """
        if self._usual is not None:
            text = self._write_usual(image, self._usual)
            if text is not None:
                return text, None
        row: Any = image
        missing: list[str] | None = None
        if len(image) != self._count or UNAVAILABLE in image.values():
            row = {name: value for name, value in image.items() if value is not UNAVAILABLE}
            missing = [name for name in self._names if name not in row]
        if self._converts:
            row = dict(row)
            for name, convert in self._converts:
                value = row.get(name)
                if value is not None:
                    try:
                        row[name] = convert(value)
                    except DecodeError as error:
                        raise DecodeError(error.reason, code=error.code, path=f"$.{name}") from None
        try:
            if self._numbered is not None:
                return JSON.encode(self._named(row, self._numbered)), missing
            return JSON.encode(msgspec.convert(row, self._row)), missing
        except msgspec.ValidationError as error:
            raise _validation_error(str(error)) from None
        except UnicodeEncodeError:
            reason = "a text contains a lone surrogate"
            raise DecodeError(reason, code=ReasonCode.INVALID_UTF8) from None

    def _write_usual(self, image: Image, usual: Any) -> bytes | None:
        """Return the row's JSON by the fast path; ``None`` = the image needs the slow path."""
        row: Any = image
        try:
            if self._classes:
                classes = tuple(map(type, self._class_values(image)))
                if classes not in self._usual_classes and not self._is_usual(classes):
                    return None
            for name, fits in self._usual_checks:
                value = image[name]
                if value is not None and not fits(value):
                    return None
            if self._usual_converts:
                row = dict(image)
                for name, convert in self._usual_converts:
                    value = row[name]
                    if value is UNAVAILABLE:
                        return None
                    if value is not None:
                        row[name] = convert(value)
            return JSON.encode(msgspec.convert(row, usual))
        except _UNUSUAL:
            return None

    def _is_usual(self, classes: tuple[type, ...]) -> bool:
        """Return whether classes of values are the usual ones or NULL's; cache those that are."""
        if any(
            kind not in (expected, _NONE_TYPE)
            for kind, expected in zip(classes, self._classes, strict=True)
        ):
            return False
        if len(self._usual_classes) < _MAX_CLASSES:
            self._usual_classes.add(classes)
        return True

    def _named(self, row: Image, numbered: Mapping[str, str]) -> dict[str, Any]:
        numbered_row = {numbered.get(name, name): value for name, value in row.items()}
        checked = msgspec.convert(numbered_row, self._row)
        return {name: getattr(checked, numbered[name]) for name in row}


_UNUSUAL: Final = (msgspec.ValidationError, KeyError, DecodeError, UnicodeEncodeError, ValueError)


def _validation_error(text: str) -> DecodeError:
    if "unknown field" in text:
        return DecodeError("the schema does not have the column", code=ReasonCode.UNKNOWN_COLUMN)
    reason, _, path = text.partition(" - at `")
    is_out_of_range = "`int` " in reason and "=" in reason
    code = ReasonCode.VALUE_OUT_OF_RANGE if is_out_of_range else ReasonCode.WRONG_TYPE
    return DecodeError(reason, code=code, path=path.rstrip("`") or "$")
