# SPDX-License-Identifier: Apache-2.0
"""A database through a real Kafka Connect into tables: each equals that of the database."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import line_workloads as workloads
from capture_lines import Captured, differences
from click.testing import CliRunner
from connect_worker import ConnectWorker
from mariadb_server import MariadbServer
from postgres_server import PostgresServer
from pyspark.sql import SparkSession

from changelane.capture.postgres.ddl_trigger import INSTALLATION
from changelane.cli import main


class Line(NamedTuple):
    """A pipeline whose database is captured by a worker."""

    file: Path
    server: Any

    def run_command(self, *arguments: str) -> str:
        command, *options = arguments
        environment = {"PASSWORD_OF_TEST": self.server.password}
        result = CliRunner().invoke(main, [command, str(self.file), *options], env=environment)
        assert result.exit_code == 0, result.output
        return result.stdout


def line_of(
    worker: ConnectWorker, server: Any, database: str, folder: Path, broker: str, **source: Any
) -> Line:
    """Write a pipeline, and the secrets of its connector."""
    fields = {
        "host": server.host,
        "port": server.port,
        "database": database,
        "user": server.user,
        "password": "${PASSWORD_OF_TEST}",
        "connect_url": worker.url,
        "connect_secrets_file": str(worker.secrets_file),
        "bootstrap_servers": broker,
        **source,
    }
    sink = {"type": "delta", "path": str(folder / "lake")}
    options = {"tables_without_key": "append"}
    file = folder / "shop.yaml"
    file.write_text(
        json.dumps({"name": "shop", "source": fields, "sink": sink, "options": options})
    )
    key = f"{database}-{source['type']}.database.password"
    worker.add_secrets({key: server.password, "bootstrap.servers": broker})
    return Line(file, server)


def test_postgresql_is_the_same_in_the_lake(
    spark: SparkSession, postgres_server: PostgresServer, broker: str, tmp_path: Path
) -> None:
    with (
        postgres_server.new_database("line") as database,
        postgres_server.connect(database) as connection,
        ConnectWorker(broker, "postgres", tmp_path) as worker,
    ):
        connection.execute(INSTALLATION)
        _execute(connection.execute, workloads.POSTGRES_CREATE, workloads.POSTGRES_FIRST)
        options = {"type": "postgres", "tables": ["public.*"], "ddl": "event_trigger"}
        line = line_of(worker, postgres_server, database, tmp_path, broker, **options)
        assert "a run would register it" in line.run_command("check")
        assert "quarantined" not in line.run_command("run")
        _execute(connection.execute, workloads.POSTGRES_CHANGES)
        assert "quarantined" not in line.run_command("run")
        tables = workloads.postgres_rows(postgres_server, database)
        columns = workloads.columns_of(workloads.POSTGRES_KINDS)
        source = Captured(tmp_path, database, "public", tables, columns, 52)
        assert differences(spark, tmp_path / "lake", source) == {}
        assert "it runs in Kafka Connect" in line.run_command("check")
        status = json.loads(line.run_command("status", "--output", "json"))
        assert status["connector"]["tasks"][0]["state"] == "RUNNING"
        assert status["connector"]["server"]["slot"] == f"changelane_{database}"


def test_mariadb_is_the_same_in_the_lake(
    spark: SparkSession, mariadb_server: MariadbServer, broker: str, tmp_path: Path
) -> None:
    with (
        mariadb_server.new_database("line") as database,
        mariadb_server.connect(database) as connection,
        connection.cursor() as cursor,
        ConnectWorker(broker, "mariadb", tmp_path) as worker,
    ):
        cursor.execute("SET SESSION sql_mode = ''")
        _execute(cursor.execute, workloads.MARIADB_CREATE, workloads.MARIADB_FIRST)
        options = {"type": "mariadb", "tables": [f"{database}.*"]}
        line = line_of(worker, mariadb_server, database, tmp_path, broker, **options)
        assert "quarantined" not in line.run_command("run")
        _execute(cursor.execute, workloads.MARIADB_CHANGES)
        assert "quarantined" not in line.run_command("run")
        tables = workloads.mariadb_rows(mariadb_server, database)
        columns = workloads.columns_of(workloads.MARIADB_KINDS)
        source = Captured(tmp_path, database, None, tables, columns, 53)
        assert differences(spark, tmp_path / "lake", source) == {}


def _execute(execute: Callable[[str], object], *groups: Any) -> None:
    for statements in groups:
        for statement in statements:
            execute(statement)
