# SPDX-License-Identifier: Apache-2.0
"""The capture of a real MariaDB by Debezium's engine, with what differs from PostgreSQL.

Statements have no transaction, a truncate has one that never ends, and heartbeats come with other
events only: none of them may keep the log waiting.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

pytest.importorskip("jpype", reason="jpype1 is not installed: changelane[capture]")

from mariadb_server import MariadbServer
from snapshot_records import read_in_processes
from tls_certificates import create_server_certificate

from changelane.capture.connectors import ConnectorOptions, effective_server_id
from changelane.capture.database_capture import DatabaseCapture
from changelane.capture.engine import CaptureEngine, CaptureStatus
from changelane.capture.engine_config import EngineConfig
from changelane.capture.mysql import MysqlConnection, check_server
from changelane.capture.publication import PublicationLimits
from changelane.capture.segment_store import CaptureLog
from changelane.capture.snapshot.table_requests import TableRequest, create_request
from changelane.capture.storage import LocalFolder
from changelane.codec import get_codec
from changelane.conversion.message_files import read_record
from changelane.errors import ConfigError
from changelane.event import ChangeEvent, DataChange, SchemaChange, Tombstone, Truncate
from changelane.pipeline.mysql_source import MariadbSource
from changelane.schema import TableId

WAIT_S = 120


@pytest.fixture
def server(mariadb_server: MariadbServer) -> Iterator[MariadbServer]:
    """A server of its own, because the test restarts it."""
    del mariadb_server  # which skips where MariaDB is not installed
    with MariadbServer() as server:
        server.run(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.items (id INT PRIMARY KEY, n BIGINT UNSIGNED DEFAULT 7)",
            "INSERT INTO shop.items VALUES (1, NULL), (2, 18446744073709551615)",
            "CREATE USER capture IDENTIFIED BY 'pass word'",
            "GRANT SELECT, RELOAD, SHOW DATABASES, LOCK TABLES, REPLICATION SLAVE, BINLOG MONITOR, "
            "SLAVE MONITOR ON *.* TO capture",
        )
        yield server


def connection(server: MariadbServer) -> dict[str, Any]:
    return {
        "host": server.host,
        "port": server.port,
        "database": "shop",
        "user": "capture",
        "password": "pass word",
        "sslmode": "disable",
    }


def config(server: MariadbServer, folder: Path) -> EngineConfig:
    from changelane.spark.runtime.jars import fetch_debezium

    return EngineConfig(
        connector=ConnectorOptions(
            product="mariadb",
            name="shop",
            **connection(server),
            tables=(TableId(database="shop", name="items"),),
            heartbeat_s=0.5,
        ),
        log=str(folder / "log"),
        work=str(folder / "work"),
        jars=str(fetch_debezium("mariadb")),
        limits=PublicationLimits(max_age_s=0.2, quiet_s=1),
    )


def source_of(server: MariadbServer, folder: Path, **options: Any) -> MariadbSource:
    return MariadbSource(**connection(server), segments=str(folder / "log"), **options)


def events(folder: Path) -> list[str]:
    """The events of the log after the statements of the snapshot, as short texts.

    A restart repeats a statement if nothing follows it: its offset is that of its beginning.
    """
    log, codec = LocalFolder(folder / "log"), get_codec("debezium-json")
    texts = []
    for manifest in CaptureLog(log).manifests_after(0):
        for segment in manifest.segments:
            content = log.read(f"segments/{segment.name}")
            for line in zstandard.ZstdDecompressor().stream_reader(content).read().splitlines():
                texts += [text_of(event) for event in codec.decode(read_record(line))]
    texts = texts[texts.index("r 1 None") :]
    return [
        text
        for text, before in zip(texts, [None, *texts], strict=False)
        if text != before or not text.startswith(("truncate", "ALTER"))
    ]


def text_of(event: ChangeEvent) -> str:
    match event:
        case DataChange(op=op):
            row = event.after or event.before or {}
            return f"{op.value} " + " ".join(str(row[name]) for name in list(row)[:2])
        case SchemaChange():
            return event.ddl or ""
        case Truncate():
            return "truncate"
        case Tombstone():
            return "tombstone"
        case _:
            return type(event).__name__


def wait_for_events(engine: CaptureEngine, folder: Path, expected: list[str]) -> None:
    deadline = time.monotonic() + WAIT_S
    while events(folder) != expected:
        assert engine.status.state != "failed", engine.status.reason
        assert time.monotonic() < deadline, events(folder)
        time.sleep(0.1)


def test_statements_kills_and_restarts_of_mariadb_are_captured(
    server: MariadbServer, tmp_path: Path
) -> None:
    expected = ["r 1 None", "r 2 18446744073709551615"]
    with CaptureEngine(config(server, tmp_path)) as engine:
        engine.wait_published(1, WAIT_S)
        assert events(tmp_path) == expected

        server.run("UPDATE shop.items SET n = 5 WHERE id = 2", "TRUNCATE TABLE shop.items")
        expected += ["u 2 5", "truncate"]
        wait_for_events(engine, tmp_path, expected)

        pid = engine.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        statement = "ALTER TABLE shop.items ADD COLUMN more INT"
        server.run("INSERT INTO shop.items VALUES (3, 3)", "DELETE FROM shop.items", statement)
        expected += ["c 3 3", "d 3 3", "tombstone", statement]
        wait_for_events(engine, tmp_path, expected)
        assert engine.status.restart_count == 1

        server.restart()
        server.run("INSERT INTO shop.items VALUES (4, 4, 4)")
        expected += ["c 4 4"]
        wait_for_events(engine, tmp_path, expected)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"pass word" in path.read_bytes()]


def test_until_now_ends_when_the_last_statement_has_no_change(
    server: MariadbServer, tmp_path: Path
) -> None:
    from changelane.spark.runtime.jars import fetch_debezium

    def wait_until_now(capture: DatabaseCapture) -> None:
        deadline = time.monotonic() + WAIT_S

        def check() -> None:
            assert time.monotonic() < deadline, capture.status

        capture.wait_until_now(check)

    source = source_of(
        server,
        tmp_path,
        tables=["shop.items", "shop.old"],
        heartbeat_interval="1 second",
        publish_interval="200ms",
    )
    old = "INSERT INTO shop.old VALUES (1, '0050-02-03')"
    server.run("CREATE TABLE shop.old (n INT, d DATE)", old)
    with DatabaseCapture(source, fetch_debezium("mariadb")) as capture:
        capture.start(is_until_now=True)
        wait_until_now(capture)
        server.run("INSERT INTO shop.items VALUES (5, 5)", old)
        for statement in (
            "ALTER TABLE shop.items ADD COLUMN more INT",  # a record
            "ANALYZE TABLE shop.items",  # none
            "CREATE USER nobody",
        ):
            server.run(statement)
            wait_until_now(capture)
        assert events(tmp_path)[2:5] == ["r 1 0050-02-03", "c 5 5", "c 1 0050-02-03"]
    server.run("CREATE USER somebody")
    with DatabaseCapture(source, fetch_debezium("mariadb")) as capture:
        capture.start(is_until_now=True)
        assert capture.status.state == "running"
        time.sleep(3)  # the position of a restart is that of the beginning of the file
        wait_until_now(capture)


def test_until_now_needs_no_engine_if_nothing_was_committed(
    server: MariadbServer, tmp_path: Path
) -> None:
    from changelane.spark.runtime.jars import fetch_debezium

    source = source_of(server, tmp_path, tables=["shop.items"])
    log = CaptureLog(LocalFolder(tmp_path / "log"))

    def captured(*statements: str) -> tuple[bool, CaptureStatus, list[str]]:
        """Run statements meanwhile; return whether an engine ran, the status, and the events."""
        with DatabaseCapture(source, fetch_debezium("mariadb")) as capture:
            capture.start(is_until_now=True)
            is_running = capture.status.state == "running"
            capture.wait_until_now()
            for statement in statements:
                server.run(statement)
                capture.wait_until_now()
            status = capture.status
        return is_running, status, events(tmp_path)

    # after its start an engine may report the beginning of the file; after a change, its end
    is_running, _, rows = captured(
        "INSERT INTO shop.items VALUES (9, 9)", "DELETE FROM shop.items WHERE id = 9"
    )
    assert is_running
    newest = log.newest()
    assert newest is not None
    is_running, status, same_rows = captured()
    assert (is_running, same_rows) == (False, rows)
    assert status.state == "stopped"
    assert status.published is not None
    assert status.published.sequence == newest.sequence
    assert log.newest() == newest

    server.run("INSERT INTO shop.items VALUES (3, 3)")
    is_running, _, more_rows = captured()
    assert (is_running, more_rows) == (True, [*rows, "c 3 3"])
    assert captured()[0] is False
    with DatabaseCapture(source, fetch_debezium("mariadb")) as capture:
        capture.start(is_until_now=True)
        server.run("INSERT INTO shop.items VALUES (4, 4)")
        capture.wait_until_now()
    assert events(tmp_path) == [*more_rows, "c 4 4"]
    folder = LocalFolder(tmp_path / "log")
    create_request(
        folder, TableRequest(kind="redo", table="shop.items", history=newest.history, created_ms=0)
    )
    is_running, _, all_rows = captured()
    read_again = ["r 1 None", "r 2 18446744073709551615", "r 3 3", "r 4 4"]
    assert (is_running, all_rows[len(more_rows) + 1 :]) == (True, read_again)


@pytest.mark.long
def test_a_second_capture_with_the_same_server_id_ends_the_first_one_with_a_sentence(
    server: MariadbServer, tmp_path: Path
) -> None:
    login = MysqlConnection(
        host=server.host, port=server.port, user="capture", password="pass word"
    )

    def defects() -> dict[str, str]:
        findings = check_server(login, tables=["shop.*"], server_ids=[4000])
        return {finding.defect: finding.text() for finding in findings}

    first, second = (config(server, tmp_path / name) for name in ("first", "second"))
    assert "GRANT PROCESS ON *.* TO `capture`@`%`" in defects()["process_privilege"]
    server.run("GRANT PROCESS ON *.* TO capture")
    assert not {"log_readers", "process_privilege"} & defects().keys()
    with CaptureEngine(first) as former:
        former.wait_published(1, WAIT_S)
        deadline = time.monotonic() + WAIT_S
        while "log_readers" not in (found := defects()):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert "does not show their server ids: capture@127.0.0.1" in found["log_readers"]
        with CaptureEngine(second) as later:
            number = 10
            while former.status.state == "running":
                assert time.monotonic() < deadline, later.status
                server.run(f"INSERT INTO shop.items VALUES ({number}, 0)")
                number += 1
                time.sleep(0.05)
            assert former.status.state == "failed"
            server_id = effective_server_id(None, "shop")
            assert former.status.reason == (
                f"another reader of the log has the server id {server_id} of this capture, so that "
                "the server ended this one: set another server_id, or stop the other capture"
            )
            assert later.status.state in {"starting", "running"}


@pytest.mark.long
def test_certificates_of_files_reach_the_driver_the_binlog_reader_and_readers_of_snapshots(
    mariadb_server: MariadbServer, tmp_path: Path
) -> None:
    del mariadb_server  # which skips where MariaDB is not installed
    with MariadbServer(tls="required") as server:
        assert server.certificate is not None
        server.run(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.items (id INT PRIMARY KEY, n BIGINT)",
            "INSERT INTO shop.items VALUES (1, NULL)",
            "CREATE USER capture IDENTIFIED BY 'pass word' REQUIRE X509",
            "GRANT SELECT, RELOAD, SHOW DATABASES, LOCK TABLES, REPLICATION SLAVE, "
            "BINLOG MONITOR, SLAVE MONITOR ON *.* TO capture",
        )
        source = MariadbSource(
            host=server.host,
            port=server.port,
            database="shop",
            user="capture",
            password="pass word",
            tables=["shop.*"],
            segments=str(tmp_path / "log"),
            memory="256m",
            sslmode="verify-full",
            sslrootcert=str(server.certificate.root),
            sslcert=str(server.certificate.certificate),
            sslkey=str(server.certificate.key),
            snapshot="spark",
            snapshot_readers=1,
        )
        from changelane.spark.runtime.jars import fetch_debezium

        jars = fetch_debezium("mariadb")
        with DatabaseCapture(source, jars, read_chunks=read_in_processes) as capture:
            capture.start(is_until_now=True)
            capture.wait_until_now()
            server.run("UPDATE shop.items SET n = 2")
            capture.wait_until_now()
        assert events(tmp_path)[-2:] == ["r 1 None", "u 1 2"]
        other = tmp_path / "other"
        other.mkdir()
        stranger = create_server_certificate(other)
        changed = msgspec.structs.replace(source, sslrootcert=str(stranger.root))
        with (
            DatabaseCapture(changed, jars) as capture,
            pytest.raises(ConfigError, match=r"the TLS connection to .* fails"),
        ):
            capture.start(is_until_now=True)
