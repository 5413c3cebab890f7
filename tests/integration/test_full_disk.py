# SPDX-License-Identifier: Apache-2.0
"""A capture whose files cannot grow any more ends with a sentence, and the next one loses nothing.

The limit of a file's size stands for a full disk: both fail in the middle of a write.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jpype", reason="jpype1 is not installed: changelane[capture]")

from mariadb_server import MariadbServer
from postgres_server import PostgresServer

from changelane.capture.segment_store import CaptureLog
from changelane.capture.storage import LocalFolder
from changelane.codec import get_codec
from changelane.conversion.message_files import read_record
from changelane.event import DataChange
from changelane.spark.sources.segments import record_lines

NO_LIMIT = resource.RLIM_INFINITY


class Capture:
    """The pipeline of a database that is captured."""

    def __init__(self, folder: Path, server: Any, **source: Any) -> None:
        self.log = LocalFolder(folder / "log")
        self.history = folder / "log" / "engine" / "schema-history.dat"
        self._file = folder / "pipeline.yaml"
        self._environment = {**os.environ, "PASSWORD_OF_TEST": server.password}
        source |= {
            "host": server.host,
            "port": server.port,
            "user": server.user,
            "password": "${PASSWORD_OF_TEST}",
            "segments": str(folder / "log"),
            "memory": "256m",
        }
        sink = {"type": "delta", "path": str(folder / "lake")}
        self._file.write_text(json.dumps({"name": "shop", "source": source, "sink": sink}))

    def run(self, limit: int = NO_LIMIT) -> tuple[int, str]:
        """Capture everything up to now; return the exit code and the errors.

        Args:
            limit: The largest size of a file, bytes.
        """
        done = subprocess.run(
            [sys.executable, "-m", "changelane", "capture", str(self._file), "--until-now"],
            env=self._environment,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=180,
            preexec_fn=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, NO_LIMIT)),
        )
        return done.returncode, done.stderr

    def rows(self) -> list[tuple[str, Mapping[str, Any] | None]]:
        """The changes of the log: operation and new row."""
        codec = get_codec("debezium-json")
        return [
            (event.op.value, event.after)
            for manifest in CaptureLog(self.log).manifests_after(0)
            for segment in manifest.segments
            for line in record_lines(self.log, segment)
            for event in codec.decode(read_record(line))
            if isinstance(event, DataChange)
        ]


def test_postgresql_is_captured_after_a_disk_was_full(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with (
        postgres_server.new_database("disk") as database,
        postgres_server.connect(database) as connection,
    ):
        connection.execute("CREATE TABLE items (id int PRIMARY KEY, n int, note text)")
        connection.execute("ALTER TABLE items REPLICA IDENTITY FULL")
        capture = Capture(
            tmp_path, postgres_server, type="postgres", database=database, tables=["public.*"]
        )
        connection.execute(
            "INSERT INTO items SELECT i, i, md5(i::text) FROM generate_series(1, 9000) i"
        )
        visible: list[str] = []
        for op, statement in (("r", "UPDATE items SET n = n + 1"), ("u", "SELECT 1")):
            code, errors = capture.run(limit=150_000)
            assert code == 1, errors
            assert "File too large" in errors
            assert [op for op, _ in capture.rows()] == visible, "a part of them is visible"
            code, errors = capture.run()
            assert code == 0, errors
            visible += [op] * 9000
            assert [op for op, _ in capture.rows()] == visible
            connection.execute(statement)


def test_statements_of_mariadb_are_known_after_a_disk_was_full(
    mariadb_server: MariadbServer, tmp_path: Path
) -> None:
    with mariadb_server.new_database("disk") as database:
        run = partial(mariadb_server.run, database=database)
        run("CREATE TABLE items (id int PRIMARY KEY, n int)", "INSERT INTO items VALUES (1, 1)")
        capture = Capture(
            tmp_path,
            mariadb_server,
            type="mariadb",
            database=database,
            tables=[f"{database}.*"],
        )
        assert capture.run()[0] == 0
        run("ALTER TABLE items RENAME COLUMN n TO m", "UPDATE items SET m = 2")
        # a part of the record fits
        code, errors = capture.run(limit=capture.history.stat().st_size + 100)
        assert code == 1, errors
        assert not capture.history.read_bytes().endswith(b"\n")
        code, errors = capture.run()
        assert code == 0, errors
        assert capture.rows() == [("r", {"id": 1, "n": 1}), ("u", {"id": 1, "m": 2})]
