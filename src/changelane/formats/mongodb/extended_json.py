# SPDX-License-Identifier: Apache-2.0
"""MongoDB Extended JSON: versions 1 and 2, canonical and relaxed, into canonical version 2.

The forms are those of MongoDB's specification
(https://github.com/mongodb/specifications/blob/master/source/extended-json/extended-json.md) and of
its version 1. A number without a type is an int32, an int64 or a double, as in the relaxed form.
"""

import binascii
import datetime as dt
import decimal
import json as standard_json
import math
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.formats.contract import json
from changelane.formats.contract.iso_times import reader
from changelane.reason_codes import ReasonCode
from changelane.types.far_dates import date_text

Document = dict[str, Any]
"""A document, or a value in it, as JSON."""

ID: Final = "_id"
"""The name of the field that identifies a document."""

_I32: Final = 1 << 31
_I64: Final = 1 << 63
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_OID: Final = re.compile(r"[0-9a-fA-F]{24}")
_SUBTYPE: Final = re.compile(r"[0-9a-fA-F]{1,2}")
_DOUBLE: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,4})?")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?")
_NON_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_DIGITS: Final = 34
_BARE_DOUBLE: Final = re.compile(r"\b(?:NaN|Infinity)\b")
_WITH_BARE_DOUBLES: Final = standard_json.JSONDecoder(
    parse_float=decimal.Decimal, parse_constant=lambda name: {"$numberDouble": name}
)
_TIME: Final = reader(dt.UTC)
_EPOCH: Final = dt.datetime(1970, 1, 1)
_FIRST_MS: Final = -62_135_596_800_000
_AFTER_LAST_MS: Final = 253_402_300_800_000
_DAY_MS: Final = 86_400_000


def parse(text: str) -> Document:
    """Return the canonical form of a document in Extended JSON.

    Raises:
        DecodeError: The text is no document. The error has no path.
    """
    return document(loads(text))


def document(value: Any) -> Document:
    """Return the canonical form of a document.

    Raises:
        DecodeError: The value is no document. The error has no path.
    """
    result = canonical(value)
    if not isinstance(value, dict) or _is_wrapper(value):
        raise _wrong("a document")
    return result  # type: ignore[no-any-return]  # of a document


def loads(text: str) -> Any:
    """Return the JSON of a text in Extended JSON.

    The mode ``STRICT`` of MongoDB's driver for Java, which Debezium uses, writes a double that is
    not finite without quotes: ``NaN``, ``Infinity``.

    Raises:
        DecodeError: The text is no JSON. The error has no path.
    """
    try:
        return json.loads(text.encode("utf-8", "surrogatepass"), object)
    except DecodeError as invalid:
        error = DecodeError(invalid.reason, code=invalid.code)
    if error.code is not ReasonCode.MALFORMED_JSON or not _BARE_DOUBLE.search(text):
        raise error
    try:
        return _WITH_BARE_DOUBLES.decode(text)
    except (ValueError, RecursionError, ArithmeticError):
        raise error from None


def canonical(value: Any) -> Any:
    """Return a value in canonical form.

    >>> canonical({"a": 1, "b": {"$date": 0}})
    {'a': {'$numberInt': '1'}, 'b': {'$date': {'$numberLong': '0'}}}

    Raises:
        DecodeError: A value is not of the type that it names. The error has no path.
    """
    match value:
        case None | bool() | str():
            return value
        case int():
            return _whole(value)
        case decimal.Decimal():
            return {"$numberDouble": double_text(value)}
        case list():
            return [canonical(item) for item in value]
        case dict():
            convert = _FORMS.get(frozenset(value)) if _may_wrap(value) else None
            if convert is not None:
                return convert(value)
            return {name: canonical(item) for name, item in value.items()}
        case _:
            raise _wrong("a value of Extended JSON")


def _may_wrap(value: Document) -> bool:
    return 0 < len(value) <= 2 and all(name.startswith("$") for name in value)


def _is_wrapper(value: Document) -> bool:
    return _may_wrap(value) and frozenset(value) in _FORMS


def _wrong(noun: str) -> DecodeError:
    return DecodeError(f"not {noun}", code=ReasonCode.WRONG_TYPE)


def _whole(value: int) -> Document:
    return {whole_type(value): str(value)}


def whole_type(value: int) -> str:
    """Return the type of a whole number without a type: ``$numberInt`` or ``$numberLong``.

    Raises:
        DecodeError: It has more than 64 bits. The error has no path.
    """
    if -_I32 <= value < _I32:
        return "$numberInt"
    if -_I64 <= value < _I64:
        return "$numberLong"
    raise DecodeError("a number of more than 64 bits", code=ReasonCode.VALUE_OUT_OF_RANGE)


def double_text(value: decimal.Decimal | str) -> str:
    """Return the canonical text of a double.

    Raises:
        DecodeError: It is outside of the type. The error has no path.
    """
    number = float(value)
    if math.isinf(number):
        raise DecodeError("a number outside of double", code=ReasonCode.VALUE_OUT_OF_RANGE)
    return repr(number)


def _text(value: Any, noun: str) -> str:
    if type(value) is not str:
        raise _wrong(noun)
    return value


def _oid(value: Document) -> Document:
    text = _text(value["$oid"], "an ObjectId")
    if not _OID.fullmatch(text):
        raise _wrong("an ObjectId")
    return {"$oid": text.lower()}


def _integer(name: str, limit: int) -> Callable[[Document], Document]:
    def convert(value: Document) -> Document:
        text = _text(value[name], "a whole number")
        if not _INTEGER.fullmatch(text) or not -limit <= int(text) < limit:
            raise _wrong("a whole number of its type")
        return {name: str(int(text))}

    return convert


def _double(value: Document) -> Document:
    number = value["$numberDouble"]
    if type(number) is int or type(number) is decimal.Decimal:
        return {"$numberDouble": double_text(decimal.Decimal(number))}
    text = _text(number, "a double")
    if text in _NON_FINITE:
        return {"$numberDouble": text}
    if not _DOUBLE.fullmatch(text):
        raise _wrong("a double")
    return {"$numberDouble": double_text(text)}


def _decimal(value: Document) -> Document:
    text = _text(value["$numberDecimal"], "a decimal")
    if text not in _NON_FINITE and not _DECIMAL.fullmatch(text):
        raise _wrong("a decimal")
    if sum(char.isdigit() for char in text.lower().partition("e")[0].lstrip("+-0.")) > _DIGITS:
        raise DecodeError("a decimal of more than 34 digits", code=ReasonCode.VALUE_OUT_OF_RANGE)
    return {"$numberDecimal": text}


def _date(value: Document) -> Document:
    """Return a date in milliseconds: from milliseconds, text, or a number with its type."""
    date = value["$date"]
    if isinstance(date, dict) and set(date) == {"$numberLong"}:
        return {"$date": _integer("$numberLong", _I64)(date)}
    if type(date) is int and -_I64 <= date < _I64:
        return {"$date": {"$numberLong": str(date)}}
    try:
        time_ns = _TIME(_text(date, "a date"))
    except ValueError:
        raise _wrong("a date") from None
    if time_ns % 1_000_000:
        raise _wrong("a date in milliseconds")
    return {"$date": {"$numberLong": str(time_ns // 1_000_000)}}


def _binary_form(encoded: Any, subtype: Any) -> Document:
    text, kind = _text(encoded, "binary data"), _text(subtype, "a subtype of binary data")
    try:
        binascii.a2b_base64(text, strict_mode=True) if text else b""
    except (binascii.Error, ValueError):
        raise _wrong("binary data") from None
    if not _SUBTYPE.fullmatch(kind):
        raise _wrong("a subtype of binary data")
    return {"$binary": {"base64": text, "subType": kind.lower().zfill(2)}}


def _binary(value: Document) -> Document:
    parts = value["$binary"]
    if not isinstance(parts, dict) or set(parts) != {"base64", "subType"}:
        raise _wrong("binary data")
    return _binary_form(parts["base64"], parts["subType"])


def _uuid(value: Document) -> Document:
    try:
        data = uuid.UUID(_text(value["$uuid"], "a UUID")).bytes
    except ValueError:
        raise _wrong("a UUID") from None
    return _binary_form(binascii.b2a_base64(data, newline=False).decode(), "04")


def _timestamp(value: Document) -> Document:
    parts = value["$timestamp"]
    if not isinstance(parts, dict) or set(parts) != {"t", "i"}:
        raise _wrong("a timestamp")
    if any(type(part) is not int or not 0 <= part < 1 << 32 for part in parts.values()):
        raise _wrong("a timestamp")
    return {"$timestamp": {"t": parts["t"], "i": parts["i"]}}


def _regex(pattern: Any, options: Any) -> Document:
    texts = {"pattern": _text(pattern, "a pattern"), "options": _text(options, "options")}
    return {"$regularExpression": texts}


def _regular_expression(value: Document) -> Document:
    parts = value["$regularExpression"]
    if not isinstance(parts, dict) or set(parts) != {"pattern", "options"}:
        raise _wrong("a regular expression")
    return _regex(parts["pattern"], parts["options"])


def _pointer(value: Document) -> Document:
    parts = value["$dbPointer"]
    if not isinstance(parts, dict) or set(parts) != {"$ref", "$id"}:
        raise _wrong("a pointer")
    return {"$dbPointer": {"$ref": _text(parts["$ref"], "a name"), "$id": canonical(parts["$id"])}}


def _constant(name: str, *, constant: object) -> Callable[[Document], Document]:
    def convert(value: Document) -> Document:
        if type(value[name]) is not type(constant) or value[name] != constant:
            raise _wrong(f"the constant {name}")
        return {name: constant}

    return convert


def _code(value: Document) -> Document:
    code: Document = {"$code": _text(value["$code"], "code")}
    if "$scope" in value:
        code["$scope"] = canonical(value["$scope"])
    return code


_FORMS: Final[Mapping[frozenset[str], Callable[[Document], Document]]] = {
    frozenset(names): convert
    for names, convert in (
        (("$oid",), _oid),
        (("$numberInt",), _integer("$numberInt", _I32)),
        (("$numberLong",), _integer("$numberLong", _I64)),
        (("$numberDouble",), _double),
        (("$numberDecimal",), _decimal),
        (("$date",), _date),
        (("$binary",), _binary),
        (("$binary", "$type"), lambda value: _binary_form(value["$binary"], value["$type"])),
        (("$uuid",), _uuid),
        (("$timestamp",), _timestamp),
        (("$regularExpression",), _regular_expression),
        (("$regex", "$options"), lambda value: _regex(value["$regex"], value["$options"])),
        (("$code",), _code),
        (("$code", "$scope"), _code),
        (("$symbol",), lambda value: {"$symbol": _text(value["$symbol"], "a symbol")}),
        (("$undefined",), _constant("$undefined", constant=True)),
        (("$minKey",), _constant("$minKey", constant=1)),
        (("$maxKey",), _constant("$maxKey", constant=1)),
        (("$dbPointer",), _pointer),
    )
}


def text_of(value: Any) -> str:
    """Return the compact JSON text of a canonical value."""
    return json.dumps(value).decode()


def strict_text(value: Any, comma: str = ",") -> str:
    """Return the text of a canonical value in the mode ``STRICT`` of MongoDB's driver for Java.

    Debezium writes no space after a comma, unlike the driver.

    >>> strict_text({"$numberInt": "5"}), strict_text({"$oid": "67ab25755c0d5ac87eb8c632"})
    ('5', '{"$oid": "67ab25755c0d5ac87eb8c632"}')
    """
    return standard_json.dumps(_strict(value), separators=(comma, ": "), ensure_ascii=False)


def _strict(value: Any) -> Any:
    match value:
        case {"$numberInt": str(text)} if len(value) == 1:
            return int(text)
        case {"$numberDouble": str(text)} if len(value) == 1:
            return float(text)
        case {"$date": {"$numberLong": str(text)}} if len(value) == 1:
            return {"$date": int(text)}
        case {"$binary": {"base64": str(data), "subType": str(kind)}} if len(value) == 1:
            return {"$binary": data, "$type": kind}
        case dict():
            return {name: _strict(item) for name, item in value.items()}
        case list():
            return [_strict(item) for item in value]
        case _:
            return value


def key_text(value: Any) -> str:
    """Return the text of a canonical ``_id``: equal for equal ids, different for others.

    MongoDB compares numbers of different types by their values.

    >>> key_text({"$numberLong": "5"}), key_text("5"), key_text({"$numberDouble": "5.0"})
    ('5', '"5"', '5')
    """
    if isinstance(value, dict) and len(value) == 1:
        ((name, content),) = value.items()
        if name in {"$numberInt", "$numberLong"}:
            return str(content)
        if name in {"$numberDouble", "$numberDecimal"} and content not in _NON_FINITE:
            # a double has the value of its bits, which a decimal may not have
            exact = decimal.Decimal(float(content) if name == "$numberDouble" else content)
            if exact == exact.to_integral_value() and exact.adjusted() < 40:
                return str(int(exact))
    return text_of(value)


def column_value(value: Any) -> Any:
    """Return a canonical value as the value of a column; a nested one is canonical text."""
    if not isinstance(value, dict):
        return text_of(value) if isinstance(value, list) else value
    if len(value) != 1:
        return text_of(value)
    ((name, content),) = value.items()
    match name:
        case "$oid" | "$symbol":
            return content
        case "$numberInt" | "$numberLong":
            return int(content)
        case "$numberDouble" | "$numberDecimal":
            return content if content in _NON_FINITE else decimal.Decimal(content)
        case "$date":
            return _date_text(int(content["$numberLong"]))
        case "$binary" if content["subType"] == "00":
            return content["base64"]
        case "$binary" if content["subType"] == "04" and len(content["base64"]) == 24:
            return str(uuid.UUID(bytes=binascii.a2b_base64(content["base64"])))
        case "$undefined":
            return None
        case _:
            return text_of(value)


def _date_text(milliseconds: int) -> str:
    """Return a date as text, also outside of Python's calendar."""
    days, time_of_day = 0, milliseconds
    if not _FIRST_MS <= milliseconds < _AFTER_LAST_MS:
        days, time_of_day = divmod(milliseconds, _DAY_MS)
    text = (_EPOCH + dt.timedelta(milliseconds=time_of_day)).isoformat(timespec="milliseconds")
    return f"{date_text(days)}{text[10:]}Z" if days else f"{text}Z"


def value_of(value: Any) -> Any:
    """Return a value of a column without a type in canonical form."""
    match value:
        case None | bool() | str():
            return value
        case int():
            fits = -_I64 <= value < _I64
            return _whole(value) if fits else str(decimal.Decimal(value))
        case float():
            return {"$numberDouble": repr(value)} if math.isfinite(value) else str(value)
        case decimal.Decimal():
            text = str(value)
            fits = value.is_finite() and len(value.as_tuple().digits) <= _DIGITS
            return {"$numberDecimal": text} if fits and _DECIMAL.fullmatch(text) else text
        case Mapping():
            return {str(name): value_of(item) for name, item in value.items()}
        case list() | tuple():
            return [value_of(item) for item in value]
        case _:
            return str(value)
