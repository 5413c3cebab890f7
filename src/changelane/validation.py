# SPDX-License-Identifier: Apache-2.0
"""Typed parsing of configuration, with errors that name the path and the allowed values.

The paths of msgspec's errors omit keys. So a rejected value is checked part by part until the
invalid part is found. An error quotes a value only as written in the file, with ``${NAME}`` for
secrets.
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

FORMER_KEYS: Final = {
    "apply": "merge",
    "archive": "executor_archive",
    "cluster": "cluster_by",
    "commits": "every_commits",
    "contents": "line_format",
    "hold_keys": "block_keys_on_error",
    "keep": "snapshot_retention",
    "keyless": "tables_without_key",
    "max_quarantined": "max_errors",
    "notices": "non_row_events",
    "pattern": "topic_pattern",
    "purge_after": "tombstone_retention",
    "servers": "bootstrap_servers",
    "small_mb": "small_file_mb",
    "sources": "source_servers",
    "spark": "spark_options",
    "starting": "starting_offsets",
}
"""Former name of an option -> its present name."""
FORMER_VALUES: Final = {
    "clear": "truncate",
    "direct": "per_batch",
    "land": "include",
    "log": "deferred",
    "many": "multiple",
    "oldest": "earliest",
    "one": "single",
    "records": "record",
    "values": "value",
}
"""Former value of an option -> its present value."""

_PATH_SUFFIX: Final = re.compile(r" - at (`key` in )?`\$[^`]*`$")
_MAX_QUOTED: Final = 60
_MISSING: Final = re.compile(r"Object missing required field `([^`]+)`$")
_EXPECTED: Final = re.compile(r"Expected `([a-z |]+)`, got `([a-z]+)`$")
_LIMIT: Final = re.compile(r"Expected `(?:int|float)` (>=|<=) (\S+)$")
_TYPE_WORDS: Final = {
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
"""Types that YAML infers for unquoted text."""


class _Part(NamedTuple):
    """A part of a configuration value.

    Attributes:
        path: The path to the part.
        value: The value of the part.
        kind: The expected type.
        written: The part as written in the file; ``None`` if unknown.
    """

    path: str
    value: Any
    kind: Any
    written: Any = None


def parse_as(value: Any, kind: type[T], *, written: Any = None, strict: bool = True) -> T:
    """Convert a value to a type.

    Args:
        value: The value as YAML reads it.
        kind: A class of msgspec, or any type that msgspec converts to.
        written: The value as written in the file, before variables are replaced.
        strict: Reject text where a number or a boolean is expected.

    Raises:
        ConfigError: The value does not match; the error names the path and the allowed values.
        UnknownNameError: A key is unknown; the error suggests the nearest one.
    """
    root = _Part("", value, kind, written)
    _check_keys(root)
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise ConfigError(_mismatch_text(root, error, strict=strict)) from None


def check_keys(raw: Mapping[str, Any], known_keys: Iterable[str], where: str) -> None:
    """Reject unknown keys.

    Raises:
        UnknownNameError: A key is unknown; the error suggests the nearest one.
    """
    names = set(known_keys)
    for key in raw:
        if key not in names:
            raise UnknownNameError(f"key in {where}", str(key), names, former_name_hint(key, names))


def former_name_hint(name: object, known_names: Iterable[str]) -> str:
    """Return a hint with the present name of a renamed option; empty if it was not renamed.

    >>> former_name_hint("servers", ["bootstrap_servers"])
    'it is now called bootstrap_servers'
    """
    present_name = FORMER_KEYS.get(str(name), "")
    return f"it is now called {present_name}" if present_name in known_names else ""


def _check_keys(part: _Part) -> None:
    """Reject unknown keys and unknown tags at any depth."""
    kinds = _structs(part)
    if kinds and isinstance(part.value, Mapping):
        known_keys = {name for kind in kinds for name in kind.__struct_encode_fields__}
        tags = {str(kind.__struct_config__.tag) for kind in kinds if kind.__struct_config__.tag}
        if tags:
            known_keys.add(_tag_field(kinds))
        check_keys(part.value, known_keys, part.path or "pipeline")
    for inner in _parts(part):
        _check_keys(inner)


def _structs(part: _Part) -> list[type[msgspec.Struct]]:
    """Return the possible classes of a mapping; one class if the tag selects it."""
    structs = [struct for struct in _alternatives(part.kind) if _is_struct(struct)]
    if len(structs) < 2 or not isinstance(part.value, Mapping):
        return structs
    tag_value = part.value.get(_tag_field(structs))
    if tag_value is None:
        return structs
    tagged = [struct for struct in structs if struct.__struct_config__.tag == tag_value]
    if not tagged:
        tag = _tag_field(structs)
        tags = [str(struct.__struct_config__.tag) for struct in structs]
        where = _Part(
            _child_path(part.path, tag), tag_value, str, _child_written(part.written, tag)
        )
        raise ConfigError(f"{where.path}: {_choice_text(where, tags)}")
    return tagged


def _tag_field(kinds: Iterable[type[msgspec.Struct]]) -> str:
    return next(str(struct.__struct_config__.tag_field) for struct in kinds)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _alternatives(kind: Any) -> list[Any]:
    """Return the members of a union, or the type itself, without annotations."""
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    if get_origin(kind) in {Union, types.UnionType}:
        return [
            alternative for argument in get_args(kind) for alternative in _alternatives(argument)
        ]
    return [kind]


def _parts(part: _Part) -> Iterator[_Part]:
    """Yield the parts of a mapping or list, each with its expected type."""
    value = part.value
    if isinstance(value, Mapping):
        for kind in _structs(part):
            for field in msgspec.structs.fields(kind):
                if field.encode_name in value:
                    yield _part(part, field.encode_name, field.type)
        for alternative in _alternatives(part.kind):
            if get_origin(alternative) is dict:
                for key in value:
                    yield _part(part, key, get_args(alternative)[1])
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for alternative in _alternatives(part.kind):
            if get_origin(alternative) in {list, tuple}:
                for number in range(len(value)):
                    yield _part(part, number, get_args(alternative)[0])


def _part(part: _Part, key: Any, kind: Any) -> _Part:
    return _Part(
        _child_path(part.path, key), part.value[key], kind, _child_written(part.written, key)
    )


def _child_path(path: str, key: Any) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else str(key)


def _child_written(written: Any, key: Any) -> Any:
    try:
        return written[key]
    except (TypeError, KeyError, IndexError):
        return None


def _mismatch_text(part: _Part, error: msgspec.ValidationError, *, strict: bool) -> str:
    """Return the path to the innermost invalid part, and the reason."""
    for inner in _parts(part):
        try:
            msgspec.convert(inner.value, inner.kind, strict=strict)
        except msgspec.ValidationError as why:
            return _mismatch_text(inner, why, strict=strict)
    return (
        f"{part.path}: {_mismatch_reason(part, error)}"
        if part.path
        else _mismatch_reason(part, error)
    )


def _mismatch_reason(part: _Part, error: msgspec.ValidationError) -> str:
    allowed = [
        str(word)
        for alternative in _alternatives(part.kind)
        for word in _allowed_words(alternative)
    ]
    if allowed and not isinstance(part.value, Mapping):
        return _choice_text(part, allowed)
    text = str(error)
    path_match = _PATH_SUFFIX.search(text)
    reason = text[: path_match.start()] if path_match else text
    if reason.startswith("Invalid"):
        # msgspec quotes an invalid value, which may be a secret
        reason = reason.partition(" '")[0].partition(" `")[0]
    if (missing := _MISSING.match(reason)) is not None:
        reason = f"{missing[1]} is missing"
    if (expected := _EXPECTED.match(reason)) is not None:
        reason = _expected_text(*expected.groups())
    if (limit := _LIMIT.match(reason)) is not None:
        reason = f"must be at {'least' if limit[1] == '>=' else 'most'} {limit[2]}"
    if path_match and path_match.group(1):
        reason = f"one of its keys: {reason}"
    kinds = _structs(part) if isinstance(part.value, Mapping) else []
    if len(kinds) > 1:  # without a tag that selects one of them
        tags = ", ".join(str(kind.__struct_config__.tag) for kind in kinds)
        reason = f"{reason}; expected one of {tags}"
    return reason


def _allowed_words(kind: Any) -> Sequence[Any]:
    """Return the allowed words of an enum or literal type; empty for any other type."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [member.value for member in kind]
    return get_args(kind) if get_origin(kind) is Literal else ()


def _expected_text(expected: str, got: str) -> str:
    """Return the expected type and the given type in the words of YAML."""
    expected_words = " or ".join(_TYPE_WORDS.get(word, word) for word in expected.split(" | "))
    hint = ": put it in quotes" if expected == "str" and got in _UNQUOTED else ""
    return f"expected {expected_words}, got {_TYPE_WORDS.get(got, got)}{hint}"


def _choice_text(part: _Part, allowed: Sequence[str]) -> str:
    # the suggestion is near the written text: the value of a variable may be a secret
    quoted_value = part.value if part.written is None else part.written
    nearest = difflib.get_close_matches(str(quoted_value), allowed, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    if (present_value := FORMER_VALUES.get(str(quoted_value))) in allowed:
        hint = f"; it is now called {present_value!r}"
    is_quotable = isinstance(part.written, str) and len(part.written) <= _MAX_QUOTED
    quoted = repr(part.written) if is_quotable else "its value"
    return f"{quoted} is not one of {', '.join(allowed)}{hint}"
