# SPDX-License-Identifier: Apache-2.0
"""The options of captured databases: each wrong value is an error that names it."""

from typing import Any

import pytest

from changelane.errors import ConfigError
from changelane.pipeline.config import parse
from changelane.pipeline.secret_options import check_secrets


def parse_source(**options: Any) -> None:
    source = {
        "type": "postgres",
        "host": "db.example",
        "database": "shop",
        "user": "changelane",
        "tables": ["public.*"],
        "segments": "capture",
    }
    sink = {"type": "iceberg", "path": "lake"}
    parse({"name": "shop", "source": source | options, "sink": sink})


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
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_option(
    options: dict[str, Any], reason: str
) -> None:
    parse_source(publish_interval="200ms")
    with pytest.raises(ConfigError, match=reason):
        parse_source(**options)


@pytest.mark.parametrize("experimental", [{}, {"experimental": True}])
@pytest.mark.parametrize("source_type", ["oracle", "sqlserver", "opengauss"])
def test_a_database_that_no_test_can_run_is_refused_with_the_way_out(
    source_type: str, experimental: dict[str, bool]
) -> None:
    with pytest.raises(ConfigError, match=r"no test can run such a server: .* `type: kafka`"):
        parse_source(type=source_type, **experimental)


def test_a_secret_property_of_debezium_comes_from_the_environment() -> None:
    name = "database.ssl.truststore.password"
    with pytest.raises(ConfigError) as raised:
        check_secrets({"type": "mariadb", "debezium": {name: "plain-s3cret"}}, "source")
    assert "${DATABASE_SSL_TRUSTSTORE_PASSWORD}" in str(raised.value)
    assert "s3cret" not in str(raised.value)
    properties = {name: "${TRUSTSTORE_PASSWORD}", "column.exclude.list": "shop.t.c"}
    check_secrets({"type": "mariadb", "debezium": properties}, "source")
