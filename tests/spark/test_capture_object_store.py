# SPDX-License-Identifier: Apache-2.0
"""A database into tables by ``changelane run``, whose capture log is in an object store."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import lake_tables
import msgspec
import pytest
from postgres_server import PostgresServer
from pyspark.sql import SparkSession
from s3_server import BUCKET, s3_server

from changelane.capture.segment_store import CaptureLog
from changelane.capture.storage import folder_of
from changelane.schema import TableId


def test_a_run_that_is_killed_continues_from_the_object_store(
    spark: SparkSession,
    postgres_server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, lake, file = f"s3://{BUCKET}/shop", str(tmp_path / "iceberg"), tmp_path / "shop.yaml"
    with postgres_server.new_database("shop") as database, s3_server() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PGPASSWORD_OF_TEST", postgres_server.password)
        source: dict[str, Any] = {
            "type": "postgres",
            "host": postgres_server.host,
            "port": postgres_server.port,
            "database": database,
            "user": postgres_server.user,
            "password": "${PGPASSWORD_OF_TEST}",
            "tables": ["public.*"],
            "segments": address,
            "publish_interval": "1 second",
            "memory": "256m",
        }
        sink = {"type": "iceberg", "path": lake}
        options = {"tables_without_key": "append"}
        config = {"name": "shop", "source": source, "sink": sink, "options": options}
        file.write_bytes(msgspec.json.encode(config))
        refused = command(file)
        _, errors = refused.communicate(timeout=120)
        assert refused.returncode == 2
        assert "set source.engine_folder to a folder of this machine" in errors.decode()

        source["engine_folder"] = "engine"
        file.write_bytes(msgspec.json.encode(config))
        log = CaptureLog(folder_of(address))
        with postgres_server.connect(database) as connection:
            connection.autocommit = True
            connection.execute("CREATE TABLE events (id int)")  # a repeated row would be seen
            connection.execute("ALTER TABLE events REPLICA IDENTITY FULL")
            connection.execute("INSERT INTO events SELECT generate_series(1, 100)")
            killed = command(file)
            deadline = time.monotonic() + 120
            while log.newest() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            assert log.newest() is not None
            os.killpg(killed.pid, signal.SIGKILL)
            killed.communicate()
            connection.execute("INSERT INTO events SELECT generate_series(101, 150)")
            process = command(file)
            _, errors = process.communicate(timeout=180)
            assert process.returncode == 0, errors.decode()
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                "WHERE database = current_database()"
            )
        newest = log.newest()
        assert newest is not None
        assert newest.next_offset == 150
        frame = lake_tables.table_of(spark, lake, TableId(database, "public", "events"))
        assert sorted(row["id"] for row in frame.collect()) == [*range(1, 151)]
        assert not (tmp_path / "s3:").exists()
        for path in (tmp_path / "engine").rglob("*"):
            assert path.is_dir() or b"a-secret" not in path.read_bytes()


def command(file: Path, *options: str) -> "subprocess.Popen[bytes]":
    """Start ``changelane run`` in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "changelane", "run", str(file), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
