# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL that was restored with its slot: its log must have the captured position."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from child_processes import as_user
from postgres_server import PostgresServer

from changelane.capture.captured_server import CapturedServer
from changelane.capture.database_findings import database_findings
from changelane.capture.log_guard import LogError, check_log
from changelane.capture.log_origin import read_origin, write_origin
from changelane.capture.manifest import EngineOffset
from changelane.capture.postgres import current_lsn
from changelane.capture.products import captured_server_of
from changelane.capture.segment_store import CaptureLog, SegmentWriter
from changelane.capture.storage import LocalFolder
from changelane.pipeline.postgres_source import PostgresSource


@pytest.fixture
def server(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server of its own, which the test restores."""
    del postgres_server  # which skips where PostgreSQL is not installed
    with PostgresServer() as server:
        yield server


def copy_data(server: PostgresServer, source: str, target: str) -> None:
    shutil.rmtree(server.folder / target, ignore_errors=True)
    subprocess.run(
        [*as_user("postgres"), "cp", "-a", server.folder / source, server.folder / target],
        cwd=server.folder,
        check=True,
    )


def start_recovered(server: PostgresServer) -> None:
    """Start the server as after a restore: it recovers, and begins a timeline."""
    with (server.folder / "data" / "postgresql.conf").open("a") as file:
        file.write("restore_command = 'false'\n")
    (server.folder / "data" / "recovery.signal").touch()
    server.start()
    with server.connect() as connection:
        while connection.execute("SELECT pg_is_in_recovery()").fetchone() != (False,):
            pass


def capture_up_to_now(server: PostgresServer, source: PostgresSource) -> CapturedServer:
    """Record a capture of everything up to now, and move the slot there."""
    captured = captured_server_of(source)
    with server.connect() as connection:
        connection.execute("INSERT INTO orders VALUES (default)")
        lsn = current_lsn(connection)
    folder = LocalFolder(source.segments)
    writer = SegmentWriter(folder, Path(source.segments) / "spool")
    writer.publish({"lsn_commit": lsn})
    writer.close()
    write_origin(folder, captured.origin())
    return captured


def newest_offset(source: PostgresSource) -> EngineOffset:
    newest = CaptureLog(LocalFolder(source.segments)).newest()
    assert newest is not None
    return newest.engine_offset


def errors_of(source: PostgresSource) -> list[str]:
    findings = database_findings(source)
    return [finding.text() for finding in findings if finding.severity == "error"]


def test_a_restored_server_continues_only_before_its_switch_point(
    server: PostgresServer, tmp_path: Path
) -> None:
    with server.connect() as connection:
        connection.execute(
            "CREATE TABLE orders (id serial PRIMARY KEY);"
            "CREATE PUBLICATION all_tables FOR ALL TABLES;"
            "CREATE ROLE reader LOGIN REPLICATION PASSWORD 'p';"
            "GRANT SELECT ON orders TO reader"
        )
        connection.execute("SELECT pg_create_logical_replication_slot('shop', 'pgoutput')")
    source = PostgresSource(
        host=server.host,
        port=server.port,
        database=server.database,
        user="reader",
        password="p",
        tables=["public.*"],
        segments=str(tmp_path / "log"),
        slot="shop",
        publication="all_tables",
    )
    folder = LocalFolder(source.segments)
    captured = capture_up_to_now(server, source)
    options = captured.connector_options(heartbeat_s=1)
    server.stop()
    copy_data(server, "data", "backup")
    start_recovered(server)
    assert errors_of(source) == [], "the position precedes the switch point"
    check_log(options, folder, newest_offset(source))
    recorded = read_origin(folder)
    assert recorded is not None
    assert recorded.timeline == 2, "the running capture follows the promotion"
    write_origin(folder, msgspec.structs.replace(recorded, timeline=0))
    assert errors_of(source) == [], "a log of an earlier version has no timeline"

    server.stop()
    copy_data(server, "backup", "data")
    server.start()
    capture_up_to_now(server, source)
    server.stop()
    copy_data(server, "backup", "data")
    start_recovered(server)
    with server.connect() as connection:
        connection.execute("INSERT INTO orders SELECT FROM generate_series(1, 20000)")
    (error,) = errors_of(source)
    assert "timeline 2 of the server left the captured one, 1 at 0/" in error
    assert "changes would be lost: `changelane capture" in error
    with pytest.raises(LogError, match="left the captured one"):
        check_log(options, folder, newest_offset(source))
