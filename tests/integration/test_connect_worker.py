# SPDX-License-Identifier: Apache-2.0
"""A connector in a real Kafka Connect, which changelane registers, and its topics."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jpype", reason="jpype1 is not installed: changelane[capture]")

from click.testing import CliRunner
from confluent_kafka import Consumer
from connect_worker import ConnectWorker
from postgres_server import PostgresServer

from changelane.capture.connector_figures import connector_lines, read_connector_figures
from changelane.capture.products import captured_server_of
from changelane.cli import main
from changelane.cli.capture import connect_capture_of
from changelane.errors import ConfigError
from changelane.pipeline.config import load
from changelane.pipeline.database_source import DatabaseSource

WAIT_S = 60


def messages(source: DatabaseSource, count: int) -> list[tuple[str, Any]]:
    """Return the first operations of the topics that a pipeline reads, with their rows."""
    consumer = Consumer(
        {
            "bootstrap.servers": source.bootstrap_servers,
            "group.id": source.server_name,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([f"^({source.topic_pattern})$"])
    operations: list[tuple[str, Any]] = []
    deadline_s = time.monotonic() + WAIT_S
    while len(operations) < count and time.monotonic() < deadline_s:
        message = consumer.poll(0.2)
        if message is not None and not message.error() and message.value() is not None:
            payload = json.loads(message.value())["payload"]
            operations.append((payload["op"], payload["after"]))
    consumer.close()
    return operations


@pytest.mark.long
def test_a_real_connector_is_registered_and_its_failure_is_a_line(
    postgres_server: PostgresServer, broker: str, tmp_path: Path
) -> None:
    with (
        postgres_server.new_database("shop") as database,
        ConnectWorker(broker, "postgres", tmp_path) as worker,
    ):

        def execute(statement: str) -> None:
            with postgres_server.connect(database) as connection:
                connection.execute(statement)

        execute("CREATE TABLE orders (id int PRIMARY KEY, price numeric(9, 2))")
        execute("INSERT INTO orders VALUES (1, 9.99), (2, 0)")
        source_fields = {
            "type": "postgres",
            "host": postgres_server.host,
            "port": postgres_server.port,
            "database": database,
            "user": postgres_server.user,
            "password": "${PASSWORD_OF_TEST}",
            "tables": ["public.*"],
            "connect_url": worker.url,
            "connect_secrets_file": str(worker.secrets_file),
            "bootstrap_servers": broker,
        }
        file = tmp_path / "shop.yaml"
        sink = {"type": "delta", "path": str(tmp_path / "lake")}
        file.write_text(json.dumps({"name": "shop", "source": source_fields, "sink": sink}))
        source = load(file, {"PASSWORD_OF_TEST": postgres_server.password}).source
        assert isinstance(source, DatabaseSource)
        notes: list[str] = []
        key = f"{database}-postgres.database.password"
        capture = connect_capture_of(source, notes.append)

        with pytest.raises(ConfigError, match=r"database\.hostname: .*password authentication"):
            capture.start()  # the workers have no password yet
        worker.add_secrets({key: postgres_server.password})
        capture.start()
        assert any(f"the workers read from {worker.secrets_file}: {key}" in note for note in notes)
        capture.wait_until_now()
        execute("UPDATE orders SET price = 1 WHERE id = 1")
        execute("DELETE FROM orders WHERE id = 2")
        capture.wait_until_now()
        operations = [(op, after and after["id"]) for op, after in messages(source, 4)]
        assert operations == [("r", 1), ("r", 2), ("u", 1), ("d", None)]

        def lines() -> list[str]:
            figures = read_connector_figures(source, captured_server_of(source))
            return connector_lines(figures, label=source.label)

        assert "running, task 0 running at 127.0.0.1" in lines()[0]
        assert f"slot changelane_{database}" in lines()[1]
        again = connect_capture_of(source, notes.append)
        assert again.problem() == ""
        password = {"PASSWORD_OF_TEST": postgres_server.password}
        result = CliRunner().invoke(main, ["capture", str(file)], env=password)
        assert result.exit_code == 0
        assert "task 0 running" in result.output
        assert "registered" not in result.output

        execute(f"DROP PUBLICATION changelane_{database}")
        execute("INSERT INTO orders VALUES (3, 3)")
        deadline_s = time.monotonic() + WAIT_S
        while "task 0 failed" not in lines()[0]:
            assert time.monotonic() < deadline_s, lines()
            time.sleep(0.2)
        assert "Exception" in lines()[0]
        assert "\n" not in lines()[0]
        assert postgres_server.password not in str([*notes, *lines()])
        assert "task 0 failed" in (again.problem() or "")
