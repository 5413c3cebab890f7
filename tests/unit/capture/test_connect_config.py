# SPDX-License-Identifier: Apache-2.0
"""The connector for Kafka Connect that captures as the embedded engine does."""

import re
from functools import partial
from typing import Any

import msgspec
import pytest

from changelane.capture.connect_config import connector_of as connector_in
from changelane.capture.connect_config import kafka_source_text, secret_keys
from changelane.capture.connectors import ConnectorOptions, connector_properties
from changelane.errors import ConfigError
from changelane.pipeline.kafka_source import KafkaSource
from changelane.pipeline.mysql_source import MariadbSource
from changelane.pipeline.postgres_source import PostgresSource

PASSWORD = "the password"
connector_of = partial(connector_in, secrets_file="/etc/connect/secrets.properties")


def options(product: Any = "postgres", **changes: Any) -> ConnectorOptions:
    fields = {"name": "shop", "host": "db", "database": "shop", "user": "me", "password": PASSWORD}
    return ConnectorOptions(product=product, **{**fields, **changes})


@pytest.mark.parametrize("product", ["postgres", "mysql", "mariadb"])
def test_connector_captures_as_the_engine_does(product: str) -> None:
    config = connector_of(options(product), has_snapshot=True).config
    engine = connector_properties(options(product))
    missing = engine.keys() - config.keys()
    changed = {name for name in engine.keys() & config.keys() if engine[name] != config[name]}
    assert missing == {
        *("name", "offset.flush.interval.ms", "errors.max.retries"),
        *("converter.schemas.enable", "converter.replace.null.with.default"),
    } | ({"schema.history.internal"} if product != "postgres" else set())
    assert changed == {"database.password"}
    assert config["snapshot.mode"] == "initial"
    assert connector_of(options(product), has_snapshot=False).config["snapshot.mode"] == "no_data"


def test_workers_need_key_stores_for_certificates() -> None:
    files = {"sslrootcert": "root.pem", "sslcert": "client.pem", "sslkey": "client.key"}
    connector = connector_of(options("mariadb", **files), has_snapshot=True)
    stores = [f"database.ssl.{store}" for store in ("keystore", "truststore")]
    names = [f"shop-mariadb.{store}{end}" for store in stores for end in ("", ".password")]
    assert set(names) <= {*secret_keys(connector)}
    assert "client.key" not in str(connector)
    assert connector_of(options(**files), has_snapshot=True).config["database.sslkey"]


def test_secrets_are_placeholders() -> None:
    properties = {
        "database.ssl.truststore.password": "another secret",
        "driver.options": f"x={PASSWORD}",
        "producer.override.sasl.jaas.config": 'Login required password="a third secret";',
        "column.exclude.list": "shop.orders.note",
    }
    connector = connector_of(options("mariadb", properties=properties), has_snapshot=True)
    assert PASSWORD not in str(connector)
    assert "another secret" not in str(connector)
    assert "a third secret" not in str(connector)
    assert connector.config["column.exclude.list"] == "shop.orders.note"
    assert secret_keys(connector) == [
        "bootstrap.servers",
        "shop-mariadb.database.password",
        "shop-mariadb.database.ssl.truststore.password",
        "shop-mariadb.driver.options",
        "shop-mariadb.producer.override.sasl.jaas.config",
    ]


def test_values_that_equal_a_password_stay_if_they_are_no_secrets() -> None:
    config = connector_of(options(password="shop"), has_snapshot=True).config
    assert config["topic.prefix"] == config["database.dbname"] == "shop"
    assert config["database.password"].startswith("${file:")


def source(**changes: Any) -> PostgresSource | MariadbSource:
    fields = {"host": "db", "user": "me", "database": "shop", "segments": "log"} | changes
    is_postgres = not fields["tables"][0].startswith(fields["database"])
    return PostgresSource(**fields) if is_postgres else MariadbSource(**fields)


@pytest.mark.parametrize(
    ("captured", "topics", "other_topics"),
    [
        (
            source(topic_prefix="a.b", tables=["public.orders"]),
            ["a.b.public.orders", "a.b.public.Order_items"],
            ["a.b.transaction", "a.b.message", "axb.public.orders", "a.b.sales.orders"],
        ),
        (
            source(tables=["a b.t", '"ü".t', "c.*", '"d.""e".t', "pub?ic.t"]),
            ["shop.a_b.t", "shop._.t", "shop.c.t", "shop.d._e.t", "shop.public.t"],
            ["shop.c", "shop.message", "__debezium-heartbeat.shop", "shop.pubic.t"],
        ),
        (
            source(tables=["*.*"], ddl="event_trigger"),
            ["shop.public.orders", "shop.sales.orders", "shop.message"],
            ["shop.transaction", "eu.shop.message"],
        ),
        (
            source(topic_prefix="s", database="my_shop", tables=["my_shop.*"]),
            ["s", "s.my_shop.orders"],
            ["s.transaction", "s.myxshop.orders", "schema-history.s"],
        ),
    ],
)
def test_topic_pattern_has_the_topics_that_a_pipeline_needs(
    captured: PostgresSource | MariadbSource, topics: list[str], other_topics: list[str]
) -> None:
    pattern = re.compile(captured.topic_pattern)
    assert all(pattern.fullmatch(topic) for topic in topics)
    assert not any(pattern.fullmatch(topic) for topic in other_topics)


@pytest.mark.parametrize("tables", [["public.*"], ["shop.*"]])
def test_source_text_is_a_kafka_source(tables: list[str]) -> None:
    captured = source(topic_prefix="a.b", tables=tables)
    parts = msgspec.yaml.decode(kafka_source_text(captured))
    source_of_text = msgspec.convert(parts["source"], KafkaSource)
    assert source_of_text.topic_pattern == captured.topic_pattern
    assert source_of_text.format == "debezium-json"


def test_topics_have_the_defaults_of_the_broker_unless_the_user_sets_others() -> None:
    partitions = "topic.creation.default.partitions"
    assert connector_of(options(), has_snapshot=True).config[partitions] == "-1"
    chosen = options(properties={partitions: "6"})
    assert connector_of(chosen, has_snapshot=True).config[partitions] == "6"


def test_the_schema_history_can_be_in_a_secured_kafka() -> None:
    prefix = "schema.history.internal.producer"
    login = {f"{prefix}.security.protocol": "SASL_SSL", f"{prefix}.sasl.jaas.config": "secret"}
    connector = connector_of(options("mysql", properties=login), has_snapshot=True)
    assert connector.config[f"{prefix}.security.protocol"] == "SASL_SSL"
    assert f"shop-mysql.{prefix}.sasl.jaas.config" in secret_keys(connector)
    other = {"schema.history.internal.skip.unparseable": "true"}
    with pytest.raises(ConfigError, match="would change what the capture log contains"):
        connector_of(options("mysql", properties=other), has_snapshot=True)


def test_secrets_are_in_the_file_that_the_user_names() -> None:
    connector = connector_in(options(), has_snapshot=True, secrets_file="/run/secrets.properties")
    assert secret_keys(connector) == ["shop-postgres.database.password"]
    placeholder = "${file:/run/secrets.properties:shop-postgres.database.password}"
    assert connector.config["database.password"] == placeholder
