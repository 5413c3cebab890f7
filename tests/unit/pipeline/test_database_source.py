# SPDX-License-Identifier: Apache-2.0
"""The options of captured databases: each wrong value is an error that names it."""

from typing import Any

import pytest

from changelane.errors import ConfigError
from changelane.pipeline.config import Source, parse
from changelane.pipeline.secret_options import check_secrets


def parse_source(**options: Any) -> Source:
    source = {
        "type": "postgres",
        "host": "db.example",
        "database": "shop",
        "user": "changelane",
        "tables": ["public.*"],
        "segments": "capture",
    }
    sink = {"type": "iceberg", "path": "lake"}
    fields = {name: value for name, value in (source | options).items() if value is not None}
    return parse({"name": "shop", "source": fields, "sink": sink}).source


CONNECT = {
    "segments": None,
    "connect_url": "http://connect:8083",
    "bootstrap_servers": "kafka:9092",
}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"memory": "lots"}, "memory is not a number with k, m or g"),
        ({"publish_interval": "soon"}, "publish_interval: a span of time is"),
        ({"retention": "for ever"}, "retention: a span of time is"),
        ({"heartbeat_interval": "1 ms"}, "heartbeat_interval: "),
        ({"heartbeat_interval": "0 s"}, "heartbeat_interval is 0"),
        ({"host": ""}, "host is not one host name"),
        ({"host": "a,b"}, "host is not one host name"),
        ({"user": ""}, "user is empty"),
        ({"topic_prefix": "a b"}, "topic_prefix has other characters"),
        ({"tables": ["orders"]}, "1 of the tables are not written as schema.table"),
        (
            {
                "snapshot": "spark",
                "debezium": {"snapshot.select.statement.overrides": "public.orders"},
            },
            "snapshot.select.statement.overrides, which needs snapshot: engine, not spark",
        ),
        ({"segments": None}, "segments is missing: set it to .* or set connect_url"),
        ({"bootstrap_servers": "kafka:9092"}, "bootstrap_servers needs connect_url"),
        ({"spark_options": {"a": "b"}}, "spark_options needs connect_url"),
        (CONNECT | {"segments": "log"}, "segments is for a capture log, and connect_url is set"),
        (CONNECT | {"memory": "1g", "retention": "1 d"}, "retention, memory is for a capture log"),
        (CONNECT | {"snapshot": "spark"}, "with connect_url, use engine or none"),
        (CONNECT | {"bootstrap_servers": None}, "connect_url needs bootstrap_servers"),
        (CONNECT | {"connect_url": "connect:8083"}, "no address such as http://connect:8083"),
        (CONNECT | {"connect_url": "http://me:s3cret@connect"}, "set connect_auth to"),
        (CONNECT | {"connect_url": "http://connect:70000"}, "no address such as"),
        (CONNECT | {"connect_auth": "Bearer a\n"}, "connect_auth is not user:password"),
        (CONNECT | {"connect_auth": "me"}, "connect_auth is not user:password"),
        (CONNECT | {"connect_secrets_file": "a}b"}, "connect_secrets_file is no path"),
        (CONNECT | {"spark_options": {"subscribe": "a"}}, "use source.topics"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_option(
    options: dict[str, Any], reason: str
) -> None:
    parse_source(publish_interval="200ms")
    parse_source(**CONNECT, connect_auth="me:a:b")
    with pytest.raises(ConfigError, match=reason):
        parse_source(**options)


@pytest.mark.parametrize(("options", "is_log"), [({}, True), (CONNECT, False)])
def test_topics_of_kafka_connect_have_the_orders_of_topics(
    options: dict[str, Any], is_log: bool
) -> None:
    assert parse_source(**options).is_capture_log is is_log


def test_a_secret_property_of_debezium_comes_from_the_environment() -> None:
    name = "database.ssl.truststore.password"
    with pytest.raises(ConfigError) as raised:
        check_secrets({"type": "mariadb", "debezium": {name: "plain-s3cret"}}, "source")
    assert "${DATABASE_SSL_TRUSTSTORE_PASSWORD}" in str(raised.value)
    assert "s3cret" not in str(raised.value)
    properties = {name: "${TRUSTSTORE_PASSWORD}", "column.exclude.list": "shop.t.c"}
    check_secrets({"type": "mariadb", "debezium": properties}, "source")


def test_the_login_of_kafka_connect_comes_from_the_environment() -> None:
    with pytest.raises(ConfigError) as raised:
        check_secrets({"type": "postgres", "connect_auth": "me:plain-s3cret"}, "source")
    assert "connect_auth: ${CONNECT_AUTH}" in str(raised.value)
    assert "s3cret" not in str(raised.value)
