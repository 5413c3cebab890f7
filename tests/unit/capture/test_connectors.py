# SPDX-License-Identifier: Apache-2.0
"""The properties of Debezium's connectors, and the positions of their offsets."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane.capture.connectors import (
    ConnectorOptions,
    connector_properties,
)
from changelane.capture.engine_offset import lsn_of, position_text, source_time_ms
from changelane.errors import ConfigError
from changelane.pipeline.postgres_source import PostgresSource
from changelane.schema import TableId


def options(product: Any = "postgres", **changes: Any) -> ConnectorOptions:
    fields = {"name": "shop", "host": "db", "database": "shop", "user": "me", "password": "hidden"}
    return ConnectorOptions(product=product, **{**fields, **changes})


@pytest.mark.parametrize("product", ["postgres", "mysql", "mariadb"])
def test_offsets_are_given_back_by_us_only(product: str) -> None:
    properties = connector_properties(options(product))
    assert properties["offset.flush.interval.ms"] == "0"
    assert properties["errors.max.retries"] == "0"
    assert properties.get("lsn.flush.mode", "connector") == "connector"


def test_server_ids_are_stable_and_differ() -> None:
    ids = [connector_properties(options("mysql", name=name)) for name in ("a", "b", "a")]
    first, second, again = (int(properties["database.server.id"]) for properties in ids)
    assert first == again != second
    assert 0 < first < 1 << 32
    given_id = connector_properties(options("mariadb", server_id=7))["database.server.id"]
    assert given_id == "7"


def test_login_for_sql_has_the_files_of_certificates() -> None:
    files = {"sslrootcert": "ca.pem", "sslcert": "me.pem", "sslkey": "me.key"}
    login = options("mariadb", sslmode="verify-full", **files).mysql_connection
    assert (login.ssl_ca, login.ssl_cert, login.ssl_key) == ("ca.pem", "me.pem", "me.key")


def test_the_sessions_of_postgres_have_the_settings_that_debezium_reads() -> None:
    """Debezium takes every text of `bytea` for hexadecimal digits."""
    assert connector_properties(options())["driver.options"] == (
        "-c bytea_output=hex -c intervalstyle=postgres -c extra_float_digits=3"
    )
    with pytest.raises(ConfigError, match=r"driver\.options: changelane sets"):
        connector_properties(options(properties={"driver.options": "-c bytea_output=escape"}))


def test_a_snapshot_of_the_engine_has_the_rows_and_columns_of_the_log() -> None:
    """Rows of inheriting tables and generated columns would never change again."""
    plain, other = TableId("shop", "public", "Parent"), TableId("shop", "public", "p,1")
    columns = (("public", "t", "gen"), ("public", "t", "a.b"))
    properties = connector_properties(options(parents=(plain, other), unpublished=columns))
    selects = "snapshot.select.statement.overrides"
    assert properties[selects] == "public.Parent"
    assert properties[f"{selects}.public.Parent"] == 'SELECT * FROM ONLY "public"."Parent"'
    excluded = r"(?-i:public\.t\.gen),(?-i:public\.t\.a\.b)"
    assert properties["column.exclude.list"] == excluded
    own = {"column.exclude.list": "public.t.secret", selects: "public.x"}
    properties = connector_properties(
        options(parents=(plain,), unpublished=columns, properties=own)
    )
    assert properties["column.exclude.list"] == f"public.t.secret,{excluded}"
    assert properties[selects] == "public.x"
    included = options(unpublished=columns, properties={"column.include.list": "public.t.id"})
    assert "column.exclude.list" not in connector_properties(included)


NAMES = st.text(min_size=1, max_size=12).filter(lambda name: '"' not in name and "\0" not in name)


@pytest.mark.parametrize("database", ["-shop", ".shop", "ü b"])
def test_every_name_that_a_pipeline_has_by_default_is_one_of_a_server(database: str) -> None:
    source = PostgresSource(host="db", user="me", database=database, tables=["a.b"], segments="log")
    name = connector_properties(options(name=source.server_name))["topic.prefix"]
    assert re.fullmatch(source.topic_pattern, f"{name}.a.b")


@given(NAMES, NAMES, NAMES)
def test_table_pattern_matches_one_name_only(schema: str, name: str, another: str) -> None:
    table = TableId(schema=schema, name=name)
    pattern = connector_properties(options(tables=(table,)))["table.include.list"]
    assert "," not in pattern
    assert pattern == pattern.strip()
    # Java's \x{h} as Python writes it; the flag for case is on by default in Debezium
    python = re.sub(r"\\x\{([0-9a-f]+)\}", lambda match: rf"\U{int(match[1], 16):08x}", pattern)
    matches = re.compile(python, re.IGNORECASE).fullmatch
    assert matches(f"{schema}.{name}")
    for text in (f"{schema}.{another}", f"{schema}.{name.swapcase()}", f"{schema}{name}"):
        assert bool(matches(text)) == (text == f"{schema}.{name}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"properties": {"slot.name": "x"}}, "slot.name: changelane sets these properties"),
        ({"properties": {"transforms": "x"}}, "would change what the capture log contains"),
        ({"properties": {"unavailable.value.placeholder": "x"}}, "unavailable.value.placeholder: "),
        ({"properties": {"errors.tolerance": "all"}}, "errors.tolerance: these properties"),
        ({"properties": {"message.prefix.include.list": "x"}}, "message.prefix.include.list: "),
        ({"tables": (TableId(name="t"),)}, "needs a schema and a name"),
        ({"tables": (TableId(schema="s", name='"'),)}, "contains a double quote"),
        ({"tables": (TableId(schema="s", name="a''b"),)}, "two single quotes or backticks"),
        ({"tables": (TableId(schema="a``b", name="t"),)}, "two single quotes or backticks"),
        (
            {
                "product": "mysql",
                "sslrootcert": "ca",
                "properties": {"database.ssl.truststore": "store"},
            },
            "sslrootcert and debezium.database.ssl.truststore are both set",
        ),
        ({"product": "mysql", "tables": (TableId(name="t"),)}, "needs a database and a name"),
    ],
)
def test_wrong_option_is_an_error_with_its_fix(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        connector_properties(options(**changes))


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "a b"), ("name", ""), ("slot", "A"), ("slot", "a-b"), ("heartbeat_s", 0)],
)
def test_invalid_value_is_rejected(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"heartbeat_s|slot|server"):
        options(**{field: value})


def test_properties_of_the_user_are_passed_on() -> None:
    properties = {"column.exclude.list": "public.t.secret", "snapshot.fetch.size": "10"}
    assert properties.items() <= connector_properties(options(properties=properties)).items()


def test_secrets_are_in_no_text() -> None:
    secret = options(properties={"database.ssl.truststore.password": "trust", "a": "b"})
    assert secret.secrets == ("hidden", "trust")
    assert "hidden" not in repr(secret)
    assert "hidden" not in repr(secret.postgres_connection)


def test_position_is_the_newest_commit() -> None:
    offset = {"lsn": 5, "lsn_proc": 4, "lsn_commit": (1 << 32) + 255, "ts_usec": 1_500_000}
    assert lsn_of(offset) == (1 << 32) + 255
    assert position_text("postgres", offset) == "1/FF"
    assert source_time_ms(offset) == 1500
    assert lsn_of({"lsn": 5, "lsn_commit": None}) == 5
    assert position_text("postgres", {}) == ""
    assert position_text("mysql", {"file": "binlog.7", "pos": 4, "ts_sec": 2}) == "binlog.7:4"
    assert position_text("mariadb", {}) == ""
    assert source_time_ms({"ts_sec": 2}) == 2000
    assert source_time_ms({}) is None
