# SPDX-License-Identifier: Apache-2.0
"""All formats: one line each, imported when first used.

Third parties add theirs with an entry point of the group ``changelane.formats`` whose object is a
module like the ones here: ``Options`` (a frozen msgspec Struct, keyword-only, with defaults) and
``make(options) -> Format``.
"""

import importlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final, Protocol, get_origin

import msgspec

from changelane.errors import ConfigError, UnknownNameError
from changelane.format import Format

FORMATS: Final[dict[str, str]] = {
    "native-json": "changelane.formats.native",
    "canal-json": "changelane.formats.canal",
    "datahub-blob": "changelane.formats.datahub.blob",
    "datahub-tuple": "changelane.formats.datahub.tuple",
    "cdl-json": "changelane.formats.debezium.cdl_json",
    "cdl-debezium-json": "changelane.formats.debezium.cdl_debezium",
    "arcion-json": "changelane.formats.debezium.arcion",
    "lindorm-json": "changelane.formats.debezium.lindorm",
    "debezium-json": "changelane.formats.debezium",
    "debezium-flat-json": "changelane.formats.debezium.flat_json",
    "shareplex-json": "changelane.formats.shareplex",
    "dts-avro": "changelane.formats.dts",
}
"""Public name -> module. What stands first is believed first when a message looks like several."""


class FormatModule(Protocol):
    """What the module of a format exports."""

    @property
    def Options(self) -> type[msgspec.Struct]:  # noqa: N802 - the class, by its name
        """The options of the format."""
        ...

    def make(self, options: Any) -> Format:
        """Return the format with its options."""
        ...


@cache
def names() -> tuple[str, ...]:
    """Return the public names of all formats, ours and third parties'."""
    theirs = {entry.name for entry in entry_points(group="changelane.formats")}
    return tuple(sorted(FORMATS.keys() | theirs))


@cache
def module(name: str) -> FormatModule:
    """Return the module of a format.

    Raises:
        UnknownNameError: No format has that name.
    """
    if name in FORMATS:
        return importlib.import_module(FORMATS[name])
    for entry in entry_points(group="changelane.formats", name=name):
        return entry.load()  # type: ignore[no-any-return]
    raise UnknownNameError("format", name, names())


def load(name: str, options: Mapping[str, Any]) -> Format:
    """Return a format with its options.

    Option values may be text, as they come from a command line or a configuration file: an option
    of several values, such as the key columns of tables, is JSON there.

    Raises:
        UnknownNameError: No format or option has that name.
        ConfigError: A value does not fit its option.
    """
    found = module(name)
    known = found.Options.__struct_fields__
    for option in options:
        if option not in known:
            raise UnknownNameError(f"option of {name}", option, known)
    try:
        typed = msgspec.convert(_parsed(name, options, found.Options), found.Options, strict=False)
    except msgspec.ValidationError as error:
        msg = f"{name}: {error}"
        raise ConfigError(msg) from None
    return found.make(typed)


def _parsed(name: str, options: Mapping[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return options with those read from JSON text whose type is an object or a list."""
    types = {field.name: get_origin(field.type) for field in msgspec.structs.fields(kind)}
    parsed: dict[str, Any] = {}
    for option, value in options.items():
        is_text = isinstance(value, str) and types[option] in {dict, list, tuple, frozenset}
        try:
            parsed[option] = msgspec.json.decode(value) if is_text else value
        except msgspec.MsgspecError:
            msg = f"{name}: option {option}: not JSON"
            raise ConfigError(msg) from None
    return parsed
