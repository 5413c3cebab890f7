# SPDX-License-Identifier: Apache-2.0
"""The lag of the log of real servers, and a server that stops to answer."""

import socket
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mariadb_server import MariadbServer
from postgres_server import PostgresServer

from changelane.capture.database_capture import capture_figures
from changelane.capture.manifest import EngineOffset
from changelane.capture.mysql import current_position
from changelane.capture.mysql.connection import MysqlConnection, connect
from changelane.capture.products import captured_server_of
from changelane.errors import ConfigError
from changelane.pipeline.mysql_source import MariadbSource
from changelane.pipeline.postgres_source import PostgresSource


def postgres_source(server: PostgresServer, database: str, folder: Path) -> PostgresSource:
    return PostgresSource(
        **server.login_of(database),
        tables=["public.*"],
        segments=str(folder / "log"),
        slot=f"{database}_lag",
    )


def test_lag_of_a_slot_grows_with_the_log_and_shrinks_with_its_position(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with postgres_server.new_database("lag") as database:
        source = postgres_source(postgres_server, database, tmp_path)
        server = captured_server_of(source)
        missing = server.log_lag(None)
        assert (missing.lag_bytes, missing.problem) == (None, "the slot does not exist")
        with postgres_server.connect(database) as connection:
            slot = source.slot_name
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
            before = server.log_lag(None)
            connection.execute(
                "CREATE TABLE t AS SELECT repeat('x', 1000) FROM generate_series(1, 1000)"
            )
            after = server.log_lag(None)
            assert before.lag_bytes is not None
            assert after.lag_bytes is not None
            assert after.lag_bytes > before.lag_bytes + 900_000
            assert after.retained_bytes is not None
            assert after.retained_bytes >= after.lag_bytes
            assert (after.slot, after.problem, after.headroom_bytes) == (slot, "", None)
            connection.execute(
                "SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [slot]
            )
            captured = server.log_lag(None)
            assert captured.lag_bytes is not None
            assert captured.lag_bytes < 100_000
            connection.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1GB'")
            connection.execute("SELECT pg_reload_conf()")
            try:
                limited = _wait_for_headroom(server)
                assert 0 < limited <= (1 << 30) + (64 << 20)
            finally:
                connection.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
                connection.execute("SELECT pg_reload_conf()")
                connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])


def _wait_for_headroom(server: Any) -> int:
    """Return the headroom; the server reads its settings again after a moment."""
    for _ in range(100):
        headroom: int | None = server.log_lag(None).headroom_bytes
        if headroom is not None:
            return headroom
    pytest.fail("the limit has no effect")


def test_lag_of_a_binary_log_is_the_bytes_after_the_captured_position(
    mariadb_server: MariadbServer, tmp_path: Path
) -> None:
    login = MysqlConnection(**mariadb_server.login)
    with mariadb_server.new_database("lag") as database:
        source = MariadbSource(
            **mariadb_server.login,
            database=database,
            tables=[f"{database}.*"],
            segments=str(tmp_path / "log"),
        )
        server = captured_server_of(source)
        assert server.log_lag(None).lag_bytes is None
        with closing(connect(login)) as connection, connection.cursor() as cursor:
            position = current_position(connection)
            offset: EngineOffset = {"file": position.file, "pos": position.offset}
            cursor.execute("SET @@global.binlog_expire_logs_seconds = 36000")
            hour_ago = {**offset, "ts_sec": int(time.time()) - 3600}
            assert server.log_lag(hour_ago).headroom_s == 36000, "the file is not complete"
            cursor.execute(f"CREATE TABLE {database}.t (v text)")
            cursor.execute(f"INSERT INTO {database}.t VALUES (repeat('x', 50000))")
            connection.commit()
            lag = server.log_lag(offset)
            assert lag.lag_bytes is not None
            assert lag.lag_bytes > 50_000
            cursor.execute("FLUSH BINARY LOGS")
            rotated = server.log_lag(offset)
            assert rotated.lag_bytes is not None
            assert rotated.lag_bytes > lag.lag_bytes, "the lag counts the next file, too"
            headroom_s = server.log_lag(hour_ago).headroom_s
            cursor.execute("SET @@global.binlog_expire_logs_seconds = 0")
            assert headroom_s is not None
            assert 9 * 3600 - 60 < headroom_s < 9 * 3600 + 60
            assert rotated.headroom_s is None
            for _ in range(100):  # the server writes a checkpoint into a new file a moment later
                end = current_position(connection)
                if server.log_lag({"file": end.file, "pos": end.offset}).lag_bytes == 0:
                    break
            else:
                raise AssertionError("the end of the log has a lag")
            purged = server.log_lag({"file": "binlog.000000", "pos": 4})
            assert purged.problem == "the server does not have binlog.000000"


def test_figures_without_a_server_name_the_problem_and_no_secret(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # nobody listens here
        port = free.getsockname()[1]
        source = PostgresSource(
            host="127.0.0.1",
            port=port,
            database="shop",
            user="me",
            password="hidden word",
            tables=["public.*"],
            segments=str(tmp_path / "log"),
        )
        figures = capture_figures(source, consumer="shop")
    assert str(port) in figures.problem
    assert figures.server is None
    wrong = postgres_source(postgres_server, "no_such_database", tmp_path)
    problem = capture_figures(wrong, consumer="shop").problem
    assert "no_such_database" in problem
    assert postgres_server.password not in problem
    assert not (tmp_path / "log").exists()
    with pytest.raises(ConfigError):
        captured_server_of(wrong).log_lag(None)
