# SPDX-License-Identifier: Apache-2.0
"""The registry of formats: public names and their modules, imported at first use.

A third-party package adds a format with an entry point of the group ``changelane.formats``. Its
object is a module with ``Options`` (a frozen msgspec Struct, keyword-only, with defaults) and
``make(options) -> Format``, like the modules here.
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
    "canal-protobuf": "changelane.formats.canal.protobuf",
    "datahub-blob": "changelane.formats.datahub.blob",
    "datahub-tuple": "changelane.formats.datahub.tuple",
    "cdl-json": "changelane.formats.cdl.json",
    "cdl-debezium-json": "changelane.formats.cdl.debezium",
    "arcion-json": "changelane.formats.arcion",
    "lindorm-json": "changelane.formats.lindorm",
    "cockroachdb-json": "changelane.formats.cockroachdb",
    "debezium-mongodb-json": "changelane.formats.mongodb.debezium",
    "mongodb-change-stream-json": "changelane.formats.mongodb.change_stream",
    "debezium-json": "changelane.formats.debezium",
    "debezium-flat-json": "changelane.formats.debezium_flat",
    "shareplex-json": "changelane.formats.shareplex",
    "dts-avro": "changelane.formats.dts",
    "maxwell-json": "changelane.formats.maxwell",
    "ogg-json": "changelane.formats.ogg",
    "aws-dms-json": "changelane.formats.dms",
    "qlik-json": "changelane.formats.qlik",
    "ticdc-open-json": "changelane.formats.ticdc.open",
    "ticdc-simple-json": "changelane.formats.ticdc.simple",
    "ticdc-avro": "changelane.formats.ticdc.avro",
    "wal2json": "changelane.formats.wal2json",
    "pgoutput": "changelane.formats.pgoutput",
    "decoderbufs": "changelane.formats.decoderbufs",
    "changelog-json": "changelane.formats.plain.changelog",
    "plain-json": "changelane.formats.plain.upsert",
    "dynamodb-json": "changelane.formats.dynamodb",
    "datastream-json": "changelane.formats.datastream",
    "spanner-json": "changelane.formats.spanner",
}
"""Public name -> module. If a message looks like several formats, the first of them is taken."""


REGISTRY: Final = (
    "Debezium's Avro with a schema registry is read by debezium-json, and by debezium-flat-json "
    "behind ExtractNewRecordState, with the options serde=avro-registry and registry=<address or "
    "folder> (docs/debezium.md); with these options plain rows in Avro are read by plain-json, "
    "those of TiCDC by ticdc-avro, and CockroachDB's by cockroachdb-json. "
    "Protobuf is not read: let the connector write Avro, or JSON with "
    "org.apache.kafka.connect.json.JsonConverter and `schemas.enable` true, so that messages carry "
    "the types (dts-avro is the Avro of Alibaba Cloud DTS)"
)
"""The advice for messages that need a schema registry."""

_HINTS: Final[dict[str, str]] = {
    "avro protobuf jsonschema confluent apicurio registry": REGISTRY,
    "cloudevents": "debezium-json reads Debezium's CloudEvents, and writes them with cloud_events",
    "mongodb mongo bson": (
        "Debezium's messages about MongoDB are debezium-mongodb-json, the events of its change "
        "streams and of its Kafka connector mongodb-change-stream-json"
    ),
    "ticdc tidb": (
        "TiCDC's open protocol is ticdc-open-json, its simple protocol is ticdc-simple-json, its "
        "Avro protocol is ticdc-avro, its "
        "Canal JSON is canal-json with the dialect ticdc, and its Debezium JSON is debezium-json"
    ),
    "cockroach crdb changefeed": "CockroachDB's JSON changefeeds are cockroachdb-json",
    "drs inlong ckafka tencent flink": (
        "canal-json reads its Canal JSON, in a dialect of its own (docs/formats/canal-json.md), "
        "and debezium-json its Debezium JSON"
    ),
    "upsert plain": (
        "plain-json reads rows whose key is the message key, null for a delete; with the option "
        "serde=avro-registry in Avro"
    ),
    "streamx": "DataHub's StreamX messages are datahub-blob",
    "attunity qlik": "the JSON messages of Qlik (Attunity) Replicate are qlik-json",
    "spanner": "the records of Spanner's change streams are spanner-json",
    "datastream google gcp": "the JSON events of Google Cloud Datastream are datastream-json",
    "dynamo": "the change records of DynamoDB are dynamodb-json",
    "aws dms": "the JSON messages of AWS DMS are aws-dms-json",
}
"""Advice for unknown names, by words in the name; the first match is used."""

_FAMILIES: Final[dict[str, str]] = {
    "datahub": "use datahub-tuple (rows) or datahub-blob (StreamX's messages)",
    "dts": "use dts-avro, or canal-json or shareplex-json if the task writes these",
    "cdl": "use cdl-json, or cdl-debezium-json for message_version 2.0",
    "debezium": "use debezium-json, or debezium-flat-json behind ExtractNewRecordState",
    "goldengate": "use ogg-json",
    "wal2json-json": "use wal2json",
    "json": (
        "several formats are JSON: `changelane inspect` detects the format of a file, "
        "`changelane formats` lists all"
    ),
}
"""The formats of a producer, by its name."""


class FormatModule(Protocol):
    """The names that a format's module exports."""

    @property
    def Options(self) -> type[msgspec.Struct]:  # noqa: N802 - it is a class
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
    """Return the advice for a name that is no format here, or an empty text."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    if (normalized := "-".join(words)) in names():
        return f"did you mean {normalized!r}?"
    hints = (
        hint for hint_words, hint in _HINTS.items() if not set(words).isdisjoint(hint_words.split())
    )
    return next(hints, _FAMILIES.get(normalized, ""))


def load(name: str, options: Mapping[str, Any]) -> Format:
    """Return a format with its options.

    Raises:
        UnknownNameError: No format or option has that name.
        ConfigError: A value does not fit its option.
    """
    format_module = module(name)
    return format_module.make(typed(name, options, format_module.Options))
