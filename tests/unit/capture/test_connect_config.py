# SPDX-License-Identifier: Apache-2.0
"""The connector for Kafka Connect that captures as the embedded engine does."""

import re
from typing import Any

import msgspec
import pytest

from changelane.capture.connect_config import (
    connector_of,
    kafka_source_text,
    secret_keys,
    topic_pattern,
)
from changelane.capture.connectors import ConnectorOptions, connector_properties
from changelane.pipeline.kafka_source import KafkaSource
from changelane.schema import TableId

PASSWORD = "the password"


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
        "column.exclude.list": "shop.orders.note",
    }
    connector = connector_of(options("mariadb", properties=properties), has_snapshot=True)
    assert PASSWORD not in str(connector)
    assert "another secret" not in str(connector)
    assert connector.config["column.exclude.list"] == "shop.orders.note"
    assert secret_keys(connector) == [
        "bootstrap.servers",
        "shop-mariadb.database.password",
        "shop-mariadb.database.ssl.truststore.password",
        "shop-mariadb.driver.options",
    ]


def test_values_that_equal_a_password_stay_if_they_are_no_secrets() -> None:
    config = connector_of(options(password="shop"), has_snapshot=True).config
    assert config["topic.prefix"] == config["database.dbname"] == "shop"
    assert config["database.password"].startswith("${file:")


@pytest.mark.parametrize(
    ("captured", "topics", "other_topics"),
    [
        (
            options(name="a.b", tables=(TableId(schema="public", name="orders"),)),
            ["a.b.public.orders", "a.b.public.Order_items"],
            ["a.b.transaction", "a.b.message", "axb.public.orders", "a.b.sales.orders"],
        ),
        (
            options(tables=tuple(TableId(schema=name, name="t") for name in ("a b", "ü", "c"))),
            ["shop.a_b.t", "shop._.t", "shop.c.t"],
            ["shop.c", "shop.message", "__debezium-heartbeat.shop"],
        ),
        (options(), ["shop.public.orders", "shop.sales.orders"], ["shop.transaction"]),
        (
            options("mariadb", name="s", database="my.shop"),
            ["s", "s.my.shop.orders"],
            ["s.transaction", "s.myxshop.orders", "schema-history.s"],
        ),
    ],
)
def test_topic_pattern_has_the_topics_that_a_pipeline_needs(
    captured: ConnectorOptions, topics: list[str], other_topics: list[str]
) -> None:
    pattern = re.compile(topic_pattern(captured))
    assert all(pattern.fullmatch(topic) for topic in topics)
    assert not any(pattern.fullmatch(topic) for topic in other_topics)


@pytest.mark.parametrize("product", ["postgres", "mysql", "mariadb"])
def test_source_text_is_a_kafka_source(product: str) -> None:
    captured = options(product, name="a.b")
    parts = msgspec.yaml.decode(kafka_source_text(captured))
    source = msgspec.convert(parts["source"], KafkaSource)
    assert source.topic_pattern == topic_pattern(captured)
    assert source.format == "debezium-json"
