# SPDX-License-Identifier: Apache-2.0
"""The configuration of a connector for Kafka Connect, from the options of a capture.

The connector has the properties of the embedded engine, except those of the engine's own process,
and writes the same messages (``debezium-json``). It contains no secret: Kafka's
``FileConfigProvider`` reads them on the worker
(https://kafka.apache.org/documentation/#connect_configproviders).
"""

import re
from typing import Final

import msgspec

from changelane.capture.connectors import (
    ConnectorOptions,
    connector_properties,
    key_store_properties,
)
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.secret_options import is_secret_name

_ENGINE_ONLY: Final = frozenset(
    {
        # the connector has a name of its own
        "name",
        # Kafka Connect commits offsets, and starts a failed task again, by its own rules
        *("offset.flush.interval.ms", "errors.max.retries"),
        # converters of the engine have other names
        *("converter.schemas.enable", "converter.replace.null.with.default"),
        # the schema history is a file of the engine; Kafka Connect has a topic for it
        "schema.history.internal",
    }
)
_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_CONVERTERS: Final = {
    "key.converter": _JSON,
    "key.converter.schemas.enable": "true",
    "value.converter": _JSON,
    "value.converter.schemas.enable": "true",
    "value.converter.replace.null.with.default": "false",
    "header.converter": _JSON,
}
_TOPICS: Final = {
    # the broker's own defaults; without them, Kafka Connect relies on topics that create themselves
    "topic.creation.default.replication.factor": "-1",
    "topic.creation.default.partitions": "-1",
}
_PLACEHOLDER: Final = re.compile(r"\$\{file:[^:}]*:([^}]*)\}")


class Connector(msgspec.Struct, frozen=True):
    """A connector, in the form of ``POST /connectors`` of Kafka Connect.

    Attributes:
        name: The name of the connector.
        config: Its properties.
    """

    name: str
    config: dict[str, str]


def connector_of(options: ConnectorOptions, *, has_snapshot: bool, secrets_file: str) -> Connector:
    """Return the connector that captures a database in Kafka Connect.

    Args:
        options: The captured database.
        has_snapshot: Whether the connector reads all rows before the changes.
        secrets_file: The file of the secrets on the workers, which the placeholders name.

    Raises:
        ConfigError: A property of the user contradicts one of ours.
    """
    name = connector_name(options.name, options.product)
    properties = {
        key: value
        for key, value in connector_properties(options).items()
        if key not in _ENGINE_ONLY
    }
    secrets = {key for key, value in properties.items() if _is_secret(options, key, value)}
    secrets |= _key_stores(options)
    placeholders = {key: f"${{file:{secrets_file}:{name}.{key}}}" for key in secrets}
    config = {
        **_TOPICS,
        **properties,
        **_CONVERTERS,
        **_history(options, secrets_file),
        **placeholders,
        "tasks.max": "1",
        "snapshot.mode": "initial" if has_snapshot else "no_data",
    }
    return Connector(name, config)


def connector_name(server_name: str, product: str) -> str:
    """Return the name of the connector of a database."""
    return f"{server_name}-{product}"


def secret_keys(connector: Connector) -> list[str]:
    """Return the keys that the file of the secrets needs."""
    matches = map(_PLACEHOLDER.fullmatch, connector.config.values())
    return sorted(match[1] for match in matches if match)


def _is_secret(options: ConnectorOptions, key: str, value: str) -> bool:
    is_of_user = key in options.properties
    return is_secret_name(key) or (is_of_user and any(text in value for text in options.secrets))


def _history(options: ConnectorOptions, secrets_file: str) -> dict[str, str]:
    """Return the properties of the topic with the schemas, which PostgreSQL does not need."""
    if options.product == "postgres":
        return {}
    prefix = "schema.history.internal.kafka"
    return {
        f"{prefix}.bootstrap.servers": f"${{file:{secrets_file}:bootstrap.servers}}",
        f"{prefix}.topic": f"schema-history.{options.name}",
    }


def _key_stores(options: ConnectorOptions) -> set[str]:
    """Return the properties of the key stores that all but PostgreSQL need on the workers."""
    if options.product == "postgres":
        return set()
    stores = {"truststore": options.sslrootcert, "keystore": options.sslcert}
    return {
        name
        for store, file in stores.items()
        if file
        for name in key_store_properties(options.product, store)
    }


def kafka_source_text(source: DatabaseSource) -> str:
    """Return the source of a pipeline that reads the topics of the connector, as YAML."""
    fields = {
        "type": "kafka",
        "bootstrap_servers": source.bootstrap_servers or "${KAFKA_BOOTSTRAP_SERVERS}",
        "topic_pattern": source.topic_pattern,
        "format": source.format,
    }
    lines = [f"  {name}: {value}" for name, value in fields.items()]
    return "\n".join(["source:", *lines, ""])
