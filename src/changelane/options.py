# SPDX-License-Identifier: Apache-2.0
"""Options as users write them, made into the typed options of what they belong to."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_origin

import msgspec

from changelane.errors import ConfigError, UnknownNameError

T = TypeVar("T", bound=msgspec.Struct)


def typed(owner: str, given: Mapping[str, Any], kind: type[T]) -> T:
    """Return options as *kind*.

    Values may be text, as they come from a command line or a configuration file: an option of
    several values, such as the key columns of tables, is JSON there.

    Args:
        owner: Whose options they are, for messages: the name of a format or of a profile.

    Raises:
        UnknownNameError: There is no such option; the nearest one is named.
        ConfigError: A value does not fit its option.
    """
    known = kind.__struct_fields__
    for option in given:
        if option not in known:
            raise UnknownNameError(f"option of {owner}", option, known)
    try:
        return msgspec.convert(_parsed(owner, given, kind), kind, strict=False)
    except msgspec.ValidationError as error:
        msg = f"{owner}: {error}"
        raise ConfigError(msg) from None


def _parsed(owner: str, given: Mapping[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return options with those read from JSON text whose type is an object or a list."""
    types = {field.name: get_origin(field.type) for field in msgspec.structs.fields(kind)}
    parsed: dict[str, Any] = {}
    for option, value in given.items():
        is_text = isinstance(value, str) and types[option] in {dict, list, tuple, frozenset}
        try:
            parsed[option] = msgspec.json.decode(value) if is_text else value
        except msgspec.MsgspecError:
            msg = f"{owner}: option {option}: not JSON"
            raise ConfigError(msg) from None
    return parsed


def check_keys(raw: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Refuse unknown keys.

    Raises:
        UnknownNameError: It names the nearest known key.
    """
    names = set(known)
    for key in raw:
        if key not in names:
            raise UnknownNameError(f"key in {where}", str(key), names)


def check_kind(raw: object, kinds: Iterable[type[msgspec.Struct]], where: str) -> None:
    """Refuse unknown keys of a section that comes in kinds, which its ``type`` tells.

    Raises:
        UnknownNameError: It names the nearest key that the kind knows.
        ConfigError: There is no such kind.
    """
    if not isinstance(raw, Mapping):
        return
    named = {str(kind.__struct_config__.tag): kind for kind in kinds}
    name = raw.get("type")
    if isinstance(name, str) and name not in named:
        near = difflib.get_close_matches(name, named, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(named)}"
        # the type itself is not quoted: it may come from a secret
        raise ConfigError(f"the pipeline does not fit: unknown type of {where}; {hint}")
    meant = [named[name]] if isinstance(name, str) else named.values()
    check_keys(raw, {"type", *(field for kind in meant for field in kind.__struct_fields__)}, where)


def given(options: msgspec.Struct) -> list[str]:
    """Return the names of the options that are not as they are without a word."""
    usual = type(options)()
    names = options.__struct_fields__
    return [name for name in names if getattr(options, name) != getattr(usual, name)]
