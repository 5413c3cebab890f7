# SPDX-License-Identifier: Apache-2.0
"""Spanner's column types and the JSON values of each (REST reference: ``Type``, ``TypeCode``)."""

import datetime as dt
from collections.abc import Callable
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.formats.contract.column_values import Read, reader
from changelane.formats.contract.format import Report
from changelane.reason_codes import ReasonCode
from changelane.types import (
    UNKNOWN,
    Array,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Float,
    InstantType,
    Integer,
    Json,
    LogicalType,
    String,
    Uuid,
    Value,
)
from changelane.types.values import to_json, value_text

Type = dict[str, Any]
"""A type as JSON: ``{"code": "ARRAY", "array_element_type": {"code": "INT64"}}``."""

_NUMERIC: Final = Decimal(38, 9)
_PG_NUMERIC: Final = "PG_NUMERIC"
_TYPES: Final[dict[str, LogicalType]] = {
    "BOOL": Boolean(),
    "INT64": Integer(64),
    "INT": Integer(64),  # in the example of Spanner's documentation
    "FLOAT64": Float(64),
    "FLOAT32": Float(32),
    "TIMESTAMP": InstantType(9),
    "DATE": Date(),
    "STRING": String(),
    "BYTES": Bytes(),
    "NUMERIC": _NUMERIC,
    "JSON": Json(),
    "UUID": Uuid(),
}
_ANNOTATED: Final[dict[str, LogicalType]] = {_PG_NUMERIC: Decimal()}
_MOST_NESTED: Final = 8


def logical_type(wire: Type) -> LogicalType:
    """Return the logical type of a type; :data:`UNKNOWN` for one without a known code."""
    return _logical_type(wire, 0)


def _logical_type(wire: Type, depth: int) -> LogicalType:
    code = wire.get("code")
    annotation = wire.get("type_annotation", wire.get("typeAnnotation"))
    if isinstance(annotation, str) and annotation in _ANNOTATED:
        return _ANNOTATED[annotation]
    if code == "ARRAY":
        element = wire.get("array_element_type", wire.get("arrayElementType"))
        if isinstance(element, dict) and depth < _MOST_NESTED:
            return Array(_logical_type(element, depth + 1))
        return UNKNOWN
    return _TYPES.get(code, UNKNOWN) if isinstance(code, str) else UNKNOWN


def type_text(wire: Type) -> str:
    """Return the text of a type.

    >>> type_text({"code": "ARRAY", "array_element_type": {"code": "INT64"}})
    'ARRAY<INT64>'
    """
    element = wire.get("array_element_type", wire.get("arrayElementType"))
    if isinstance(element, dict):
        return f"{wire.get('code')}<{type_text(element)}>"
    annotation = wire.get("type_annotation", wire.get("typeAnnotation"))
    code = str(wire.get("code"))
    return code if annotation is None else f"{code} {annotation}"


def value_reader(kind: LogicalType) -> Read:
    """Return the function from a JSON value that is not null to a value of a type."""
    if not isinstance(kind, Array):
        return reader(kind, binary="base64")
    element = value_reader(kind.element)

    def read(value: Any) -> Value:
        if not isinstance(value, list):
            raise DecodeError(f"not a value of {kind}", code=ReasonCode.WRONG_TYPE)
        return [None if item is None else element(item) for item in value]

    return read


# -- writing -------------------------------------------------------------------------------------


def wire_type(kind: LogicalType) -> Type | None:
    """Return the type of a logical type; ``None`` if Spanner has none."""
    match kind:
        case Boolean():
            return {"code": "BOOL"}
        case Integer():
            return {"code": "NUMERIC" if kind.unsigned and kind.bits == 64 else "INT64"}
        case Float():
            return {"code": f"FLOAT{kind.bits}"}
        case Decimal(precision, scale):
            is_known = precision is not None and scale is not None
            if is_known and 0 <= (scale or 0) <= 9 and (precision or 0) - (scale or 0) <= 29:
                return {"code": "NUMERIC"}
            return {"code": "NUMERIC", "type_annotation": _PG_NUMERIC}
        case InstantType():
            return {"code": "TIMESTAMP"}
        case Array():
            element = wire_type(kind.element)
            return None if element is None else {"code": "ARRAY", "array_element_type": element}
        case Date() | String() | Bytes() | Json() | Uuid():
            return {"code": type(kind).__name__.upper()}
        case _:
            return None


def value_writer(kind: LogicalType) -> Callable[[Value, Report], Any]:
    """Return the function from a value that is not NULL to its JSON value."""
    match kind:
        case Integer():
            return lambda value, _: str(value)
        case Boolean():
            return lambda value, _: value
        case Date():
            return _write_date
        case InstantType():
            return _write_instant
        case Array() if wire_type(kind) is not None:
            element = value_writer(kind.element)
            return lambda values, report: _write_array(values, element, report)
        case _ if wire_type(kind) is None:
            return lambda value, _: value_text(kind, value)
        case _:
            convert = to_json(kind)
            return lambda value, _: value if convert is None else convert(value)


def _write_array(values: Any, element: Callable[[Value, Report], Any], report: Report) -> list[Any]:
    return [None if value is None else element(value, report) for value in values]


def _write_date(value: Value, report: Report) -> str | None:
    if isinstance(value, dt.date):
        return value.isoformat()
    report(("value:date", "outside the years 1 to 9999; written as null"))
    return None


def _write_instant(value: Value, report: Report) -> str | None:
    """Return a time in UTC with ``Z`` and up to nine digits of its fraction."""
    if isinstance(value, dt.datetime):
        try:
            utc = value.astimezone(dt.UTC).replace(tzinfo=None)
        except OverflowError:
            utc = None
        if utc is not None:
            return utc.isoformat() + "Z"
    elif isinstance(value, str) and _is_time(value):
        return value
    report(("value:instant", "not a time of Spanner; written as null"))
    return None


def _is_time(text: str) -> bool:
    head, point, fraction = text.removesuffix("Z").partition(".")
    try:
        dt.datetime.strptime(head, "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return False
    digits_fit = fraction.isascii() and fraction.isdecimal() and len(fraction) <= 9
    return text.endswith("Z") and len(head) == 19 and (not point or digits_fit)
