# SPDX-License-Identifier: Apache-2.0
"""Exact JSON: numbers with a fraction are read as ``Decimal`` unless the target type differs."""

import decimal
import re
from functools import cache
from typing import Any, Final, TypeVar, cast

import msgspec

from changelane.errors import DecodeError, EncodeError
from changelane.reason_codes import ReasonCode

T = TypeVar("T")

name: Final = "json"

_PATH: Final = re.compile(r" - at `(\$[^`]*)`$")
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


@cache
def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a type, which raises msgspec's errors."""
    return msgspec.json.Decoder(kind, float_hook=decimal.Decimal)


def loads(data: bytes | memoryview, type: type[T]) -> T:
    """Read *data* as *type* (an importable Struct class, or ``object``).

    Raises:
        DecodeError: ``malformed_json``, ``invalid_utf8``, ``too_deep`` or ``wrong_type``; the
            message never quotes the data.
    """
    try:
        value: T = decoder(cast("Any", type)).decode(data)
    except Exception as error:  # noqa: BLE001 - translated below, and re-raised when not ours
        raise translate(error) from None
    return value


def convert(value: object, type: type[T], path: str = "$") -> T:
    """Return parsed JSON as a wire class.

    Args:
        path: The place of the value in the message, for errors.

    Raises:
        DecodeError: A field is missing, or has another type.
    """
    try:
        return msgspec.convert(value, type)
    except msgspec.ValidationError as error:
        wrong = translate(error)
        if not isinstance(wrong, DecodeError):
            raise
        place = path + wrong.path.removeprefix("$")
        raise DecodeError(wrong.reason, code=wrong.code, path=place) from None


def translate(error: Exception) -> Exception:
    """Return the :class:`DecodeError` for an error of msgspec; other errors are returned."""
    match error:
        case msgspec.ValidationError():
            text = str(error)
            match = _PATH.search(text)
            reason = text[: match.start()] if match else text
            # msgspec quotes an invalid enum value or tag, or the name of a field
            if reason.startswith(("Invalid", "Object contains unknown field")):
                reason = reason.partition(" '")[0].partition(" `")[0]
            return DecodeError(
                reason, code=ReasonCode.WRONG_TYPE, path=match.group(1) if match else "$"
            )
        case msgspec.DecodeError():
            reason = str(error)
            is_truncated = "truncated" in reason
            code = ReasonCode.INCOMPLETE_MESSAGE if is_truncated else ReasonCode.MALFORMED_JSON
            return DecodeError(reason, code=code)
        case UnicodeDecodeError():
            return DecodeError("the text is not UTF-8", code=ReasonCode.INVALID_UTF8)
        case RecursionError():
            return DecodeError("the JSON is nested too deeply to be read", code=ReasonCode.TOO_DEEP)
        case ValueError() | decimal.InvalidOperation():
            return DecodeError("a number cannot be read", code=ReasonCode.WRONG_TYPE)
        case _:
            return error


def dumps(value: Any) -> bytes:
    """Write compact JSON in UTF-8; decimals are numbers.

    Raises:
        EncodeError: A text has a lone surrogate, or a value has no JSON form.
    """
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        msg = "a text has a lone surrogate, which UTF-8 cannot encode"
        raise EncodeError(msg) from None
    except (TypeError, ValueError, OverflowError) as error:
        msg = f"a value of type {type(error).__name__} has no JSON form"
        raise EncodeError(msg) from None


_ESCAPES: Final = re.compile(rb"\\u00[01][0-9a-f]|\\.|[\xf0-\xf4][\x80-\xbf]{3}")


def with_jackson_escapes(data: bytes) -> bytes:
    r"""Return the JSON of :func:`dumps` with the escapes of Jackson, which Kafka Connect uses.

    Its ``UTF8JsonGenerator`` escapes the characters beyond U+FFFF, as surrogates, and writes
    hexadecimal digits in upper case. It matters for message keys: Kafka hashes and compacts bytes.

    >>> with_jackson_escapes(b'"\xf0\x9f\x98\x80\\u001f\\\\u001f"')
    b'"\\uD83D\\uDE00\\u001F\\\\u001f"'
    """
    return data if data.isascii() and b"\\u00" not in data else _ESCAPES.sub(_escaped, data)


def _escaped(match: re.Match[bytes]) -> bytes:
    text = match[0]
    if text.startswith(b"\\"):
        return text if len(text) == 2 else b"\\u" + text[2:].upper()
    units = text.decode().encode("utf-16-be").hex().upper().encode()
    return b"\\u" + units[:4] + b"\\u" + units[4:]
