# SPDX-License-Identifier: Apache-2.0
"""All formats: one line each, imported when first used.

Third parties add theirs with an entry point of the group ``changelane.formats`` whose object is a
module like the ones here: ``Options`` (a frozen msgspec Struct, keyword-only, with defaults) and
``make(options) -> Format``.
"""

import importlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

import msgspec

from changelane.errors import UnknownNameError
from changelane.formats.contract.format import Format
from changelane.formats.contract.options import typed

FORMATS: Final[dict[str, str]] = {
    "native-json": "changelane.formats.native",
    "canal-json": "changelane.formats.canal",
    "datahub-blob": "changelane.formats.datahub.blob",
    "datahub-tuple": "changelane.formats.datahub.tuple",
    "cdl-json": "changelane.formats.cdl.json",
    "cdl-debezium-json": "changelane.formats.cdl.debezium",
    "arcion-json": "changelane.formats.arcion",
    "lindorm-json": "changelane.formats.lindorm",
    "debezium-json": "changelane.formats.debezium",
    "debezium-flat-json": "changelane.formats.debezium_flat",
    "shareplex-json": "changelane.formats.shareplex",
    "dts-avro": "changelane.formats.dts",
}
"""Public name -> module. What stands first is believed first when a message looks like several."""


REGISTRY: Final = (
    "Avro, Protobuf and JSON Schema with a schema registry are not read. Let the connector write "
    "JSON: `value.converter` and `key.converter` org.apache.kafka.connect.json.JsonConverter, with "
    "`schemas.enable` true, so that types are told. Then the format is debezium-json, or "
    "debezium-flat-json behind ExtractNewRecordState (dts-avro is the Avro of Alibaba Cloud DTS)"
)
"""What to do with messages that need a schema registry."""

_HINTS: Final[dict[str, str]] = {
    "avro protobuf jsonschema confluent apicurio registry": REGISTRY,
    "maxwell wal2json goldengate ogg cloudevents mongodb bson attunity qlik": (
        "its messages are not read; of the same database changes in the form of Debezium or Canal "
        "are (debezium-json, canal-json)"
    ),
    "ticdc tidb drs inlong ckafka tencent flink": (
        "canal-json reads its Canal JSON, in a dialect of its own (docs/formats/canal-json.md), "
        "and debezium-json its Debezium JSON"
    ),
    "streamx": "DataHub's StreamX messages are datahub-blob",
}
"""What to do instead of names that there are not, by words in them; the first one counts."""

_FAMILIES: Final[dict[str, str]] = {
    "datahub": "it is datahub-tuple (rows) or datahub-blob (StreamX's messages)",
    "dts": "it is dts-avro, or canal-json or shareplex-json where the task writes these",
    "cdl": "it is cdl-json, or cdl-debezium-json for message_version 2.0",
    "debezium": "it is debezium-json, or debezium-flat-json behind ExtractNewRecordState",
    "json": (
        "several formats are JSON: `changelane inspect` recognises which, `changelane formats` "
        "lists them"
    ),
}
"""Which formats there are of a producer, by its name."""


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
    plugin_names = {entry.name for entry in entry_points(group="changelane.formats")}
    return tuple(sorted(FORMATS.keys() | plugin_names))


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
    raise UnknownNameError("format", name, names(), _hint(name))


def _hint(name: str) -> str:
    """Return what to do where a name is not that of a format here, but of one that people know."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    if (usual := "-".join(words)) in names():
        return f"did you mean {usual!r}?"
    hints = (
        hint for hint_words, hint in _HINTS.items() if not set(words).isdisjoint(hint_words.split())
    )
    return next(hints, _FAMILIES.get(usual, ""))


def load(name: str, options: Mapping[str, Any]) -> Format:
    """Return a format with its options.

    Raises:
        UnknownNameError: No format or option has that name.
        ConfigError: A value does not fit its option.
    """
    format_module = module(name)
    return format_module.make(typed(name, options, format_module.Options))
