# SPDX-License-Identifier: Apache-2.0
"""Where a value from a file is not what a type says: the path to it, and what is allowed there.

msgspec leaves keys out of its paths, and names what it got and not what it wants. So a value that
it refused is taken apart until the part is found that is wrong. No value is quoted but as it stands
in the file, where secrets are called ``${NAME}``.
"""

import difflib
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from changelane.errors import ConfigError, UnknownNameError

T = TypeVar("T")

_AT: Final = re.compile(r" - at (`key` in )?`\$[^`]*`$")
_LONGEST: Final = 60
_MISSING: Final = re.compile(r"Object missing required field `([^`]+)`$")
_EXPECTED: Final = re.compile(r"Expected `([a-z |]+)`, got `([a-z]+)`$")
_WORDS: Final = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
    "date": "a day",
    "datetime": "a time",
}
_UNQUOTED: Final = {"int", "float", "bool", "null", "date", "datetime"}
"""What YAML makes of a text that stands there without quotes."""


class _Part(NamedTuple):
    """A part of a value.

    Attributes:
        path: Where it is.
        value: The part.
        kind: The type that it should be of.
        written: The same part as the file has it; ``None`` = nobody knows.
    """

    path: str
    value: Any
    kind: Any
    written: Any = None


def fitted(value: Any, kind: type[T], *, written: Any = None, strict: bool = True) -> T:
    """Return a value as a type.

    Args:
        value: The value, as YAML tells it.
        kind: A class of msgspec, or any type that it reads.
        written: The value as the file has it, before variables were filled in.
        strict: Numbers are no text.

    Raises:
        ConfigError: It names the path to what does not fit, and what is allowed there.
        UnknownNameError: A key is unknown; the nearest one is named.
    """
    whole = _Part("", value, kind, written)
    _check_keys(whole)
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise ConfigError(_misfit(whole, error, strict=strict)) from None


def check_keys(raw: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Refuse unknown keys.

    Raises:
        UnknownNameError: It names the nearest known key.
    """
    names = set(known)
    for key in raw:
        if key not in names:
            raise UnknownNameError(f"key in {where}", str(key), names)


def _check_keys(part: _Part) -> None:
    """Refuse unknown keys, and kinds that there are not, wherever they stand."""
    kinds = _structs(part)
    if kinds and isinstance(part.value, Mapping):
        known = {name for kind in kinds for name in kind.__struct_encode_fields__}
        tags = {str(kind.__struct_config__.tag) for kind in kinds if kind.__struct_config__.tag}
        if tags:
            known.add(_tag_field(kinds))
        check_keys(part.value, known, part.path or "pipeline")
    for inner in _parts(part):
        _check_keys(inner)


def _structs(part: _Part) -> list[type[msgspec.Struct]]:
    """Return the classes that a mapping may become; one, where its tag tells which."""
    found = [one for one in _alternatives(part.kind) if _is_struct(one)]
    if len(found) < 2 or not isinstance(part.value, Mapping):
        return found
    told = part.value.get(_tag_field(found))
    if told is None:
        return found
    named = [one for one in found if one.__struct_config__.tag == told]
    if not named:
        tag = _tag_field(found)
        tags = [str(one.__struct_config__.tag) for one in found]
        where = _Part(_joined(part.path, tag), told, str, _inner(part.written, tag))
        raise ConfigError(f"{where.path}: {_none_of(where, tags)}")
    return named


def _tag_field(kinds: Iterable[type[msgspec.Struct]]) -> str:
    return next(str(one.__struct_config__.tag_field) for one in kinds)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _alternatives(kind: Any) -> list[Any]:
    """Return the types of a union, or the type itself, without what is annotated to them."""
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    if get_origin(kind) in {Union, types.UnionType}:
        return [found for one in get_args(kind) for found in _alternatives(one)]
    return [kind]


def _parts(part: _Part) -> Iterator[_Part]:
    """Yield the parts of a mapping or list, each with the type that it should be of."""
    value = part.value
    if isinstance(value, Mapping):
        for kind in _structs(part):
            for field in msgspec.structs.fields(kind):
                if field.encode_name in value:
                    yield _part(part, field.encode_name, field.type)
        for one in _alternatives(part.kind):
            if get_origin(one) is dict:
                for key in value:
                    yield _part(part, key, get_args(one)[1])
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for one in _alternatives(part.kind):
            if get_origin(one) in {list, tuple}:
                for number in range(len(value)):
                    yield _part(part, number, get_args(one)[0])


def _part(part: _Part, key: Any, kind: Any) -> _Part:
    return _Part(_joined(part.path, key), part.value[key], kind, _inner(part.written, key))


def _joined(path: str, key: Any) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else str(key)


def _inner(written: Any, key: Any) -> Any:
    try:
        return written[key]
    except (TypeError, KeyError, IndexError):
        return None


def _misfit(part: _Part, error: msgspec.ValidationError, *, strict: bool) -> str:
    """Return the path to the innermost part that does not fit, and why."""
    for inner in _parts(part):
        try:
            msgspec.convert(inner.value, inner.kind, strict=strict)
        except msgspec.ValidationError as why:
            return _misfit(inner, why, strict=strict)
    return f"{part.path}: {_reason(part, error)}" if part.path else _reason(part, error)


def _reason(part: _Part, error: msgspec.ValidationError) -> str:
    allowed = [str(word) for one in _alternatives(part.kind) for word in _words(one)]
    if allowed and not isinstance(part.value, Mapping):
        return _none_of(part, allowed)
    text = str(error)
    found = _AT.search(text)
    reason = text[: found.start()] if found else text
    if reason.startswith("Invalid"):
        # an invalid value would be quoted, and it may come from a secret
        reason = reason.partition(" '")[0].partition(" `")[0]
    if (missing := _MISSING.match(reason)) is not None:
        reason = f"{missing[1]} is missing"
    if (expected := _EXPECTED.match(reason)) is not None:
        reason = _expected(*expected.groups())
    if found and found.group(1):
        reason = f"one of its keys: {reason}"
    kinds = _structs(part) if isinstance(part.value, Mapping) else []
    if len(kinds) > 1:  # its tag would have told which of them
        tags = ", ".join(str(kind.__struct_config__.tag) for kind in kinds)
        reason = f"{reason}, which is one of {tags}"
    return reason


def _words(kind: Any) -> Sequence[Any]:
    """Return the words that a type allows; empty = it is no list of words."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [one.value for one in kind]
    return get_args(kind) if get_origin(kind) is Literal else ()


def _expected(wanted: str, got: str) -> str:
    """Return what was wanted in the words of YAML."""
    told = " or ".join(_WORDS.get(one, one) for one in wanted.split(" | "))
    hint = ": put it in quotes" if wanted == "str" and got in _UNQUOTED else ""
    return f"{told} is needed, and not {_WORDS.get(got, got)}{hint}"


def _none_of(part: _Part, allowed: Sequence[str]) -> str:
    # what comes from a variable is near to nothing that is known here
    meant = part.value if part.written is None else part.written
    near = difflib.get_close_matches(str(meant), allowed, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    is_told = isinstance(part.written, str) and len(part.written) <= _LONGEST
    told = repr(part.written) if is_told else "its value"
    return f"{told} is none of {', '.join(allowed)}{hint}"
