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

from changelane.capture.connectors import ConnectorOptions, connector_properties
from changelane.pipeline.secret_options import is_secret_name

SECRETS_FILE: Final = "/etc/connect/secrets.properties"
"""The file of the secrets on the workers, which the placeholders name."""

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
_NO_TOPIC_CHARACTER: Final = re.compile(r"[^A-Za-z0-9._-]")


class Connector(msgspec.Struct, frozen=True):
    """A connector, in the form of ``POST /connectors`` of Kafka Connect.

    Attributes:
        name: The name of the connector.
        config: Its properties.
    """

    name: str
    config: dict[str, str]


def connector_of(options: ConnectorOptions, *, has_snapshot: bool) -> Connector:
    """Return the connector that captures a database in Kafka Connect.

    Args:
        options: The captured database.
        has_snapshot: Whether the connector reads all rows before the changes.

    Raises:
        ConfigError: A property of the user contradicts one of ours.
    """
    name = f"{options.name}-{options.product}"
    properties = {
        key: value
        for key, value in connector_properties(options).items()
        if key not in _ENGINE_ONLY
    }
    config = {
        **properties,
        **_CONVERTERS,
        **_history(options),
        **_key_stores(options, name),
        "tasks.max": "1",
        "snapshot.mode": "initial" if has_snapshot else "no_data",
    }
    for key, value in config.items():
        is_of_user = key in options.properties
        if is_secret_name(key) or (is_of_user and any(text in value for text in options.secrets)):
            config[key] = f"${{file:{SECRETS_FILE}:{name}.{key}}}"
    return Connector(name, config)


def secret_keys(connector: Connector) -> list[str]:
    """Return the keys that the file of the secrets needs."""
    start = f"${{file:{SECRETS_FILE}:"
    values = connector.config.values()
    return sorted(value[len(start) : -1] for value in values if value.startswith(start))


def _history(options: ConnectorOptions) -> dict[str, str]:
    """Return the properties of the topic with the schemas of MySQL and MariaDB."""
    if options.product == "postgres":
        return {}
    prefix = "schema.history.internal.kafka"
    return {
        f"{prefix}.bootstrap.servers": f"${{file:{SECRETS_FILE}:bootstrap.servers}}",
        f"{prefix}.topic": f"schema-history.{options.name}",
    }


def _key_stores(options: ConnectorOptions, name: str) -> dict[str, str]:
    """Return the properties of the key stores that MySQL and MariaDB need on the workers."""
    if options.product == "postgres":
        return {}
    stores = {"truststore": options.sslrootcert, "keystore": options.sslcert}
    keys = [
        f"database.ssl.{store}{part}"
        for store, file in stores.items()
        if file
        for part in ("", ".password")
    ]
    return {key: f"${{file:{SECRETS_FILE}:{name}.{key}}}" for key in keys}


def kafka_source_text(options: ConnectorOptions) -> str:
    """Return the source of a pipeline that reads the topics of the connector, as YAML."""
    source = {
        "type": "kafka",
        "bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}",
        "topic_pattern": topic_pattern(options),
        "format": "debezium-json",
    }
    lines = [f"  {name}: {value}" for name, value in source.items()]
    return "\n".join(["source:", *lines, ""])


def topic_pattern(options: ConnectorOptions) -> str:
    """Return the Java regular expression of the topics that a pipeline needs.

    The topics of the tables, and for MySQL and MariaDB the topic of the statements, which has the
    server's name. Topics of transactions, heartbeats and messages are not needed.
    """
    server = _literal(options.name)
    if options.product != "postgres":
        return f"{server}|{server}[.]{_literal(options.database)}[.].*"
    schemas = sorted({_literal(table.schema or "") for table in options.tables})
    match schemas:
        case []:
            return f"{server}[.].*[.].*"
        case [schema]:
            return f"{server}[.]{schema}[.].*"
        case _:
            return f"{server}[.]({'|'.join(schemas)})[.].*"


def _literal(name: str) -> str:
    """Return the pattern of a name in a topic, where Debezium replaces other characters."""
    return _NO_TOPIC_CHARACTER.sub("_", name).replace(".", "[.]")
