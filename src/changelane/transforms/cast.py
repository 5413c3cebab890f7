# SPDX-License-Identifier: Apache-2.0
"""``cast``: changes the types of columns. A value that the new type cannot represent is an error.

Exception: a number becomes the nearest ``float32`` or ``float64``.
"""

import datetime as dt
import decimal
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Final

import msgspec

from changelane.errors import ConfigError, TransformError
from changelane.reason_codes import ReasonCode
from changelane.schema import Column
from changelane.transforms.transform import ColumnTransform, Convert, MovedColumn
from changelane.types import (
    UNKNOWN,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Enum,
    Float,
    InstantType,
    Integer,
    Json,
    LogicalType,
    String,
    Text,
    Timestamp,
    Uuid,
    Value,
    parse_instant,
    parse_type,
)
from changelane.types.values import parse_date, parse_timestamp, scaled, unscaled, value_text


class Cast(ColumnTransform, frozen=True, kw_only=True, tag="cast", tag_field="type"):
    """Changes the types of columns. The new type of a key column must keep values distinct.

    Attributes:
        columns: Column -> new type, as in ``native-json``: ``int64``,
            ``decimal(10,2)``, ``float64``, ``string``, ``boolean``, ``bytes``, ``date``,
            ``timestamp(6)``, ``instant(6)``, ``json`` or ``uuid``.
    """

    columns: dict[str, str]

    def __post_init__(self) -> None:
        """Reject unknown types, and types that are no target of a cast."""
        if not self.columns:
            raise ValueError("cast needs columns, each with a type")
        for name, text in self.columns.items():
            try:
                kind = parse_type(text)
            except ConfigError as error:
                raise ValueError(f"cast of {name!r}: {error}") from None
            if type(kind) not in _CASTS:
                type_names = (
                    "int8 .. uint64, decimal(p,s), float32, float64, string, boolean, bytes, "
                )
                type_names += "date, timestamp, instant, json, uuid"
                raise ValueError(
                    f"cast of {name!r}: {kind} is not supported; supported are {type_names}"
                )

    def names(self, columns: Iterable[str]) -> bool:
        return any(name in self.columns for name in columns)

    @property
    def named_columns(self) -> Iterable[str]:
        return self.columns

    def move(self, name: str, column: Column | None) -> MovedColumn | None:
        text = self.columns.get(name)
        if text is None:
            return MovedColumn(name, column)
        kind, old = parse_type(text), UNKNOWN if column is None else column.type
        if old == kind:
            return MovedColumn(name, column)
        convert = conversion(old, kind)
        new_column = None
        if column is not None:
            default: object = msgspec.UNSET
            if column.default is not msgspec.UNSET:
                default = _default(convert, column.default)
            new_column = Column(name, kind, None, column.nullable, default=default)
        return MovedColumn(name, new_column, convert, kind, keeps_key=_is_injective(old, kind))


def _default(convert: Convert, value: Value) -> object:
    try:
        return None if value is None else convert(value)
    except TransformError:
        return msgspec.UNSET


def conversion(old: LogicalType, new: LogicalType) -> Convert:
    """Return the function that converts values of one type to another.

    The function raises :class:`~changelane.errors.TransformError` if the new type cannot represent
    a value.
    """
    return partial(_CASTS[type(new)], old, new)


def _is_injective(old: LogicalType, new: LogicalType) -> bool:
    """Whether a cast keeps different values different and equal values equal."""
    match old, new:
        case Integer(), Integer():
            low, high = new.range()
            return low <= old.range()[0] and old.range()[1] <= high
        case Integer(), Decimal():
            if new.scale is None or new.precision is None:
                return True
            return bool(10 ** (new.precision - new.scale) > max(map(abs, old.range())))
        case ((Integer() | String() | Uuid() | Enum() | Text() | Date()), String()):
            return True
        case _:
            return False


def _cast_error(new: LogicalType) -> TransformError:
    return TransformError(f"a value cannot be cast to {new}", code=ReasonCode.CAST)


_NUMBER: Final = re.compile(
    r"[+-]?(?:[0-9]{1,1000}(?:\.[0-9]{0,1000})?|\.[0-9]{1,1000})(?:[eE][+-]?[0-9]{1,4})?"
)
_SPECIAL: Final = frozenset({"NaN", "Infinity", "-Infinity"})


def _exact_number(value: Value, new: LogicalType) -> decimal.Decimal:
    match value:
        case bool():
            return decimal.Decimal(int(value))
        case int() | decimal.Decimal():
            return decimal.Decimal(value)
        case float():
            return decimal.Decimal(repr(value))
        case str() if _NUMBER.fullmatch(value) or value in _SPECIAL:
            return decimal.Decimal(value)
        case _:
            raise _cast_error(new)


def _integer(_: LogicalType, new: Integer, value: Value) -> int:
    number = _exact_number(value, new)
    integer = unscaled(number, 0) if number.is_finite() else None
    low, high = new.range()
    if integer is None or not low <= integer <= high:
        raise _cast_error(new)
    return integer


def _decimal(_: LogicalType, new: Decimal, value: Value) -> decimal.Decimal:
    number = _exact_number(value, new)
    if new.scale is None:
        return number
    scaled_value = unscaled(number, new.scale) if number.is_finite() else None
    if scaled_value is None or (
        new.precision is not None and abs(scaled_value) >= 10**new.precision
    ):
        raise _cast_error(new)
    return scaled(scaled_value, new.scale)


def _float(_: LogicalType, new: Float, value: Value) -> float:
    number = float(_exact_number(value, new))
    if new.bits == 32 and math.isfinite(number):
        try:
            number = struct.unpack("<f", struct.pack("<f", number))[0]
        except OverflowError:
            raise _cast_error(new) from None
    if math.isinf(number) and not (isinstance(value, float | decimal.Decimal | str)):
        raise _cast_error(new)
    if math.isinf(number) and _exact_number(value, new).is_finite():
        raise _cast_error(new)
    return number


def _string(old: LogicalType, new: LogicalType, value: Value) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise _cast_error(new) from None
    return value if isinstance(value, str) else value_text(old, value)


_BOOLEANS: Final[Mapping[str, bool]] = {"true": True, "false": False, "1": True, "0": False}


def _boolean(_: LogicalType, new: LogicalType, value: Value) -> bool:
    if isinstance(value, bool):
        return value
    boolean = _BOOLEANS.get(str(value).lower()) if isinstance(value, int | str) else None
    if boolean is None:
        raise _cast_error(new)
    return boolean


def _bytes(_: LogicalType, new: LogicalType, value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise _cast_error(new)
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise _cast_error(new) from None


def _date(_: LogicalType, new: LogicalType, value: Value) -> dt.date:
    date = parse_date(value) if isinstance(value, str) else value
    if isinstance(date, dt.datetime) and date.tzinfo is None and date.time() == dt.time():
        return date.date()
    if not isinstance(date, dt.date) or isinstance(date, dt.datetime):
        raise _cast_error(new)
    return date


def _timestamp(_: LogicalType, new: Timestamp, value: Value) -> dt.datetime:
    timestamp = parse_timestamp(value) if isinstance(value, str) else value
    if isinstance(timestamp, dt.date) and not isinstance(timestamp, dt.datetime):
        timestamp = dt.datetime.combine(timestamp, dt.time())
    if not isinstance(timestamp, dt.datetime) or timestamp.tzinfo is not None:
        raise _cast_error(new)
    return _with_precision(timestamp, new.precision, new)


def _instant(_: LogicalType, new: InstantType, value: Value) -> dt.datetime:
    instant = parse_instant(value) if isinstance(value, str) else value
    if not isinstance(instant, dt.datetime) or instant.tzinfo is None:
        raise _cast_error(new)
    return _with_precision(instant, new.precision, new)


def _with_precision(value: dt.datetime, precision: int | None, new: LogicalType) -> dt.datetime:
    if precision is not None and precision < 6 and value.microsecond % 10 ** (6 - precision):
        raise _cast_error(new)
    return value


def _json(old: LogicalType, new: LogicalType, value: Value) -> str:
    text = value if isinstance(value, str) else value_text(old, value)
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise _cast_error(new) from None
    return text


_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _uuid(_: LogicalType, new: LogicalType, value: Value) -> str:
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        raise _cast_error(new)
    return value


_CASTS: Final[Mapping[type[LogicalType], Callable[..., Value]]] = {
    Integer: _integer,
    Decimal: _decimal,
    Float: _float,
    String: _string,
    Boolean: _boolean,
    Bytes: _bytes,
    Date: _date,
    Timestamp: _timestamp,
    InstantType: _instant,
    Json: _json,
    Uuid: _uuid,
}

parse_type = lru_cache(maxsize=256)(
    parse_type
)  # types of the configuration, parsed for each column
