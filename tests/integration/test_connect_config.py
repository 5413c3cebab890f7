# SPDX-License-Identifier: Apache-2.0
"""The printed connector, which Debezium's own validation accepts beside a real server."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

pytest.importorskip("jpype", reason="jpype1 is not installed: changelane[capture]")

from connector_validation import validation_errors
from mariadb_server import MariadbServer
from postgres_server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Mapping


def printed(
    folder: Path, source: "Mapping[str, Any]", *options: str
) -> "subprocess.CompletedProcess[str]":
    """Run ``changelane capture config`` with a pipeline."""
    file = folder / "shop.yaml"
    sink = {"type": "delta", "path": str(folder / "lake")}
    content = {
        "name": "shop",
        "source": {**source, "password": "${PASSWORD_OF_TEST}", "segments": str(folder / "log")},
        "sink": sink,
    }
    file.write_bytes(msgspec.json.encode(content))
    environment = {**os.environ, "PASSWORD_OF_TEST": PostgresServer.password}
    if source["type"] == "mariadb":
        environment["PASSWORD_OF_TEST"] = MariadbServer.password
    return subprocess.run(
        [sys.executable, "-m", "changelane", "capture", "config", str(file), *options],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_printed_connector_of_postgresql_is_valid(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with postgres_server.new_database("shop") as database:
        with postgres_server.connect(database) as connection:
            connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        source = {
            "type": "postgres",
            "host": postgres_server.host,
            "port": postgres_server.port,
            "database": database,
            "user": postgres_server.user,
            "tables": ["public.*"],
        }
        process = printed(tmp_path, source)
        notes = process.stderr
        connector = json.loads(process.stdout)
        assert postgres_server.password not in process.stdout + notes
        assert f"topic_pattern: {database}[.]public[.].*" in notes
        assert "database.password" in notes
        assert connector["name"] == f"{database}-postgres"
        config = connector["config"]
        assert config["table.include.list"] == r"(?-i:public\.orders)"
        assert not validation_errors("postgres", config, postgres_server.password)
        wrong = {**config, "decimal.handling.mode": "exact"}
        assert validation_errors("postgres", wrong, postgres_server.password)
        with postgres_server.connect(database) as connection:
            slots = connection.execute(
                "SELECT FROM pg_replication_slots WHERE database = current_database()"
            ).fetchall()
        assert not slots, "the print created a slot"
    assert not (tmp_path / "log").exists()


def test_printed_connector_of_mariadb_is_valid(
    mariadb_server: MariadbServer, tmp_path: Path
) -> None:
    with mariadb_server.new_database("shop") as database:
        with mariadb_server.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        source = {
            "type": "mariadb",
            "host": mariadb_server.host,
            "port": mariadb_server.port,
            "database": database,
            "user": mariadb_server.user,
            "tables": [f"{database}.*"],
        }
        process = printed(tmp_path, source)
        notes = process.stderr
        assert mariadb_server.password not in process.stdout + notes
        assert f"topic_pattern: {database}|{database}[.]{database}[.].*" in notes
        config = json.loads(process.stdout)["config"]
        assert config["schema.history.internal.kafka.topic"] == f"schema-history.{database}"
        assert not validation_errors("mariadb", config, mariadb_server.password)
        assert printed(tmp_path, source, "--until-now").returncode == 2
