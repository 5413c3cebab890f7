# SPDX-License-Identifier: Apache-2.0
"""Conversion of options from configuration files and command lines into typed options."""

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar, get_origin

import msgspec

from changelane.errors import ConfigError, UnknownNameError
from changelane.schema import TableId
from changelane.validation import former_name_hint, parse_as

T = TypeVar("T", bound=msgspec.Struct)

SECRET_OPTIONS: Final = frozenset({"registry_auth"})
"""The options of formats that are secrets: from the environment, and never printed."""

_SPAN: Final = re.compile(r"\s*([0-9]{1,9})\s*([A-Za-z]+)\s*", re.ASCII)
_UNITS: Final[dict[str, int]] = {
    name: milliseconds
    for names, milliseconds in (
        ("ms millisecond milliseconds", 1),
        ("s sec second seconds", 1_000),
        ("m min minute minutes", 60_000),
        ("h hour hours", 3_600_000),
        ("d day days", 86_400_000),
        ("w week weeks", 604_800_000),
    )
    for name in names.split()
}
SPANS: Final = (
    "a span of time is a whole number and a unit: ms, s, min, h, d or w, or milliseconds, seconds, "
    "minutes, hours, days or weeks, such as `30 days` or `12h`"
)


def typed(owner: str, raw_options: Mapping[str, Any], kind: type[T]) -> T:
    """Return options as an instance of *kind*.

    Values may be text from a command line or a configuration file. An option with several values,
    such as the key columns of tables, is JSON text then.

    Args:
        owner: The name of the format or profile, for error messages.

    Raises:
        UnknownNameError: An option does not exist; the error suggests the nearest name.
        ConfigError: A value does not fit its option.
    """
    names = kind.__struct_fields__
    for option in raw_options:
        if option not in names:
            hint = former_name_hint(option, names)
            raise UnknownNameError(f"option of {owner}", option, names, hint)
    parsed = _parsed(owner, raw_options, kind)
    try:
        return parse_as(parsed, kind, written=raw_options, strict=False)
    except UnknownNameError:
        raise
    except ConfigError as error:
        msg = f"{owner}: {error}"
        raise ConfigError(msg) from None


def _parsed(
    owner: str, raw_options: Mapping[str, Any], kind: type[msgspec.Struct]
) -> dict[str, Any]:
    """Return the options, with JSON text parsed for options that are objects or lists."""
    types = {field.name: get_origin(field.type) for field in msgspec.structs.fields(kind)}
    parsed: dict[str, Any] = {}
    for option, value in raw_options.items():
        is_text = isinstance(value, str) and types[option] in {dict, list, tuple, frozenset}
        try:
            parsed[option] = msgspec.json.decode(value) if is_text else value
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            msg = f"{owner}: option {option}: the value is not JSON"
            raise ConfigError(msg) from None
    return parsed


def milliseconds(span: str) -> int:
    """Return the milliseconds of a span of time in an option.

    >>> milliseconds("500ms"), milliseconds("2 s"), milliseconds("1 hour")
    (500, 2000, 3600000)

    Raises:
        ValueError: The text is no span of time; the error lists the units.
    """
    match = _SPAN.fullmatch(span)
    unit = None if match is None else _UNITS.get(match.group(2).lower())
    if match is None or unit is None:
        raise ValueError(SPANS)
    return int(match.group(1)) * unit


def seconds(span: str) -> int:
    """Return the seconds of a span of time without fractions of a second.

    >>> seconds("30 days")
    2592000

    Raises:
        ValueError: The text is no span of time, or has a fraction of a second.
    """
    whole_seconds, milliseconds_left = divmod(milliseconds(span), 1000)
    if milliseconds_left:
        raise ValueError("the span of time must be whole seconds, or a greater unit")
    return whole_seconds


def table_option(text: str, *, owner: str = "") -> TableId:
    """Return the table of an option: ``name``, ``database.name`` or ``database.schema.name``.

    Args:
        text: The name; empty = no table.
        owner: What the option belongs to, for the error.

    Raises:
        ConfigError: The name has more than three parts.
    """
    match text.split(".") if text else []:
        case []:
            return TableId()
        case [name]:
            return TableId(None, None, name)
        case [database, name]:
            return TableId(database, None, name)
        case [database, schema, name]:
            return TableId(database, schema, name)
        case _:
            whose = f"{owner}: " if owner else ""
            raise ConfigError(f"{whose}option table: a name has at most three parts")


def changed_options(options: msgspec.Struct) -> list[str]:
    """Return the names of the options that differ from their defaults."""
    defaults = type(options)()
    names = options.__struct_fields__
    return [name for name in names if getattr(options, name) != getattr(defaults, name)]
