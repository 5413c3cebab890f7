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
from typing import Any, Final, Protocol

import msgspec

from changelane.errors import UnknownNameError
from changelane.format import Format
from changelane.options import typed

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

    Raises:
        UnknownNameError: No format or option has that name.
        ConfigError: A value does not fit its option.
    """
    found = module(name)
    return found.make(typed(name, options, found.Options))
