# SPDX-License-Identifier: Apache-2.0
"""Experimental databases: accepted only by a user who asks for them, and without what needs SQL."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from changelane.cli import main
from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline, parse
from changelane.pipeline.experimental_source import ExperimentalSource
from changelane.pipeline.replayed import replayed
from changelane.pipeline.secret_options import check_secrets
from changelane.pipeline.segments_source import SegmentsSource


def pipeline(source_type: str = "sqlserver", **options: Any) -> Pipeline:
    source = {
        "type": source_type,
        "experimental": True,
        "host": "db.example",
        "database": "Shop",
        "user": "changelane",
        "tables": ["dbo.orders"],
        "segments": "capture",
    }
    fields = {name: value for name, value in (source | options).items() if value is not None}
    sink = {"type": "iceberg", "path": "lake"}
    return parse({"name": "shop", "source": fields, "sink": sink})


@pytest.mark.parametrize("experimental", [None, False])
@pytest.mark.parametrize(
    ("source_type", "product"), [("sqlserver", "SQL Server"), ("oracle", "Oracle")]
)
def test_it_is_refused_until_the_user_accepts_that_it_is_untested(
    source_type: str, product: str, experimental: bool | None
) -> None:
    pattern = f"{product} needs experimental: true, .* are untested .* `type: kafka`"
    with pytest.raises(ConfigError, match=pattern) as raised:
        pipeline(source_type, experimental=experimental)
    assert "\n" not in str(raised.value)
    accepted = pipeline(source_type).source
    assert isinstance(accepted, ExperimentalSource)
    assert accepted.is_capture_log
    assert accepted.label.startswith(f"{product} database Shop at db.example:")


def test_opengauss_is_refused_because_transactions_would_be_mixed_up() -> None:
    with pytest.raises(ConfigError, match=r"openGauss.* misreads its transaction .*`type: kafka`"):
        pipeline("opengauss")


@pytest.mark.parametrize(
    ("source_type", "options", "reason"),
    [
        ("sqlserver", {"snapshot": "spark"}, "snapshot: spark is not for SQL Server: use engine"),
        ("oracle", {"snapshot": "spark"}, "snapshot: spark is not for Oracle: use engine"),
        ("oracle", {"snapshot_readers": 2}, "snapshot_readers is for readers, which Oracle does"),
        ("oracle", {"new_tables": "snapshot"}, "new_tables is for readers"),
        ("sqlserver", {"tables": ["dbo.*"]}, r"schema.table (dbo.*): name each table"),
        ("sqlserver", {"tables": ['dbo."a"']}, 'schema.table (dbo."a"): name each table'),
        ("sqlserver", {"tables": ["Shop.dbo.a"]}, "schema.table (Shop.dbo.a): name each"),
        ("sqlserver", {"tables": ["orders"]}, "not written as schema.table"),
        ("sqlserver", {"database": "a,b"}, "database is not one database"),
        ("sqlserver", {"sslmode": "verify-ca"}, "verify-ca is not for SQL Server"),
        ("sqlserver", {"sslcert": "c.pem", "sslkey": "k.pem"}, "sslcert is not for SQL Server"),
        ("oracle", {"sslmode": "require"}, "TLS (tcps) is not available"),
        (
            "oracle",
            {"segments": None, "connect_url": "http://c:8083", "bootstrap_servers": "k:9092"},
            "connect_url is not for Oracle: register what `changelane capture config` prints",
        ),
    ],
)
def test_what_needs_a_connection_of_changelane_is_refused(
    source_type: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)):
        pipeline(source_type, **options)


def test_topics_are_those_of_debezium() -> None:
    server, oracle = pipeline().source, pipeline("oracle", tables=["SHOP.A", "HR.B"]).source
    assert isinstance(server, ExperimentalSource)
    assert isinstance(oracle, ExperimentalSource)
    assert re.fullmatch(server.topic_pattern, "Shop.Shop.dbo.orders")
    assert re.fullmatch(oracle.topic_pattern, "Shop.SHOP.A")
    assert re.fullmatch(oracle.topic_pattern, "Shop")
    assert not re.fullmatch(oracle.topic_pattern, "Shop.transaction")


@pytest.mark.parametrize("source_type", ["sqlserver", "oracle"])
def test_the_password_comes_from_the_environment(source_type: str) -> None:
    with pytest.raises(ConfigError, match="_PASSWORD") as raised:
        check_secrets({"type": source_type, "password": "plain-s3cret"}, "source")
    assert "s3cret" not in str(raised.value)


def test_its_capture_log_can_be_replayed_for_verify() -> None:
    """Other databases are compared themselves."""
    delta = {"type": "delta", "path": "lake"}
    source = msgspec.to_builtins(pipeline().source)
    shop = parse({"name": "shop", "source": source, "sink": delta})
    source = replayed(shop, "/tmp/replayed").source
    assert isinstance(source, SegmentsSource)
    assert (source.path, source.format) == (shop.source.segments, "debezium-json")


NOT_CONNECTED = "because changelane does not connect to it itself"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "FILE"], "set `trigger: continuous` under options"),
        (["capture", "--until-now", "FILE"], "a capture that ends by itself is not available"),
        (["snapshot", "add", "FILE", "dbo.orders"], "snapshot add is not available"),
        (["snapshot", "redo", "FILE", "dbo.orders"], "snapshot redo is not available"),
    ],
)
@pytest.mark.parametrize("source_type", ["sqlserver", "oracle"])
def test_each_command_that_needs_the_server_says_so_in_one_sentence(
    source_type: str,
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "s3cret")
    file = tmp_path / "shop.yaml"
    source = msgspec.to_builtins(pipeline(source_type).source)
    source |= {"password": "${DB_PASSWORD}", "segments": str(tmp_path / "log")}
    sink = {"type": "delta", "path": str(tmp_path / "lake")}
    file.write_bytes(msgspec.json.encode({"name": "shop", "source": source, "sink": sink}))
    result = CliRunner().invoke(main, [str(file) if word == "FILE" else word for word in words])
    assert result.exit_code == 2
    assert sentence in result.output
    assert NOT_CONNECTED in result.output
    assert result.output.count("\n") == 1
    assert "s3cret" not in result.output
    assert not (tmp_path / "log").exists()
