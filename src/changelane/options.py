# SPDX-License-Identifier: Apache-2.0
"""Options as users write them, made into the typed options of what they belong to."""

from collections.abc import Mapping
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
