# SPDX-License-Identifier: Apache-2.0
"""The capture of a real PostgreSQL by Debezium's engine in a child process."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psycopg
import pytest
import zstandard

pytest.importorskip("jpype", reason="jpype1 is not installed: changelane[capture]")

from child_processes import descendants, is_running
from postgres_server import PostgresServer
from waiting import wait_until

from changelane import Message, get_codec
from changelane.capture.connectors import ConnectorOptions
from changelane.capture.engine import CaptureEngine, CaptureError
from changelane.capture.engine_config import EngineConfig, Published, encode_config
from changelane.capture.engine_offset import lsn_of
from changelane.capture.publication import PublicationLimits
from changelane.capture.segment_store import CaptureLog, SegmentWriter
from changelane.capture.storage import LocalFolder
from changelane.event import DataChange, Truncate
from changelane.position import encode_order
from changelane.schema import TableId

START_S = 120  # a JVM on a busy machine
WAIT_S = 60
PASSWORD = "pass-word'of the \\ capture"
DEBEZIUM = get_codec("debezium-json")
TABLE = "Order items.2024"
"""A name that needs quotes everywhere."""


@pytest.fixture(scope="session")
def jars() -> Path:
    from changelane.spark.runtime.jars import fetch_debezium

    return fetch_debezium("postgres")


class Record(NamedTuple):
    op: str
    after: dict[str, Any] | None
    transaction: int | None
    order: int | None
    order_bytes: bytes = b""


class Source:
    """A database of the server with one table, its publication, its role, and its captures."""

    def __init__(self, server: PostgresServer, database: str, jars: Path, folder: Path) -> None:
        self.server = server
        self.database = database
        self.folder = folder
        self.jars = jars
        self.slot = database
        self.connection = server.connect(database)
        self.execute(f"CREATE TABLE {quoted(TABLE)} (id int PRIMARY KEY, note text DEFAULT 'x')")
        self.execute("CREATE TABLE other (id int PRIMARY KEY)")
        with contextlib.suppress(psycopg.errors.DuplicateObject):
            self.execute("CREATE ROLE capture LOGIN REPLICATION")
        literal = psycopg.sql.Literal(PASSWORD).as_string()
        self.execute(f"ALTER ROLE capture PASSWORD {literal}")
        self.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO capture")
        self.execute("CREATE PUBLICATION changes FOR ALL TABLES")

    def execute(self, statement: str) -> Any:
        return self.connection.execute(statement)

    def insert(self, first: int, last: int) -> None:
        self.execute(
            f"INSERT INTO {quoted(TABLE)} SELECT i, NULL FROM generate_series({first}, {last}) i"
        )

    def config(self, **changes: Any) -> EngineConfig:
        limits = PublicationLimits(max_age_s=0.2, idle_s=0.5, open_bytes=200_000)
        connector = ConnectorOptions(
            product="postgres",
            name="shop",
            host=self.server.host,
            port=self.server.port,
            database=self.database,
            user="capture",
            password=changes.pop("password", PASSWORD),
            tables=(TableId(schema="public", name=TABLE),),
            slot=self.slot,
            publication="changes",
            heartbeat_s=0.5,
            **self.tls(),
        )
        return EngineConfig(
            connector=connector,
            log=str(self.folder / "log"),
            work=str(self.folder / "work"),
            jars=str(self.jars),
            **{"limits": limits, **changes},
        )

    def tls(self) -> dict[str, str]:
        if self.server.certificate is None:
            return {"sslmode": "disable"}
        return {"sslmode": "verify-full", "sslrootcert": str(self.server.certificate.root)}

    def capture(self, **changes: Any) -> CaptureEngine:
        return CaptureEngine(self.config(**changes))

    def lsn(self) -> int:
        row = self.execute("SELECT (pg_current_wal_lsn() - '0/0')::bigint").fetchone()
        return int(row[0])

    def slot_lsn(self) -> int:
        row = self.execute(
            "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots "
            f"WHERE slot_name = '{self.slot}'"
        ).fetchone()
        return int(row[0])

    def wait_captured(self, engine: CaptureEngine) -> Published:
        """Wait until the log has everything that is committed now."""
        self.execute("SELECT pg_logical_emit_message(true, 'changelane', 'a marker')")
        lsn = self.lsn()
        published = engine.wait_published(reaches(lsn), WAIT_S)
        assert not self.is_slot_ahead()
        return published

    def is_slot_ahead(self) -> bool:
        """Whether the slot is ahead of the newest manifest."""
        slot = self.slot_lsn()  # read first: both only grow
        newest = CaptureLog(LocalFolder(self.folder / "log")).newest()
        return newest is None or slot > (lsn_of(newest.engine_offset) or 0)

    def records(self) -> list[Record]:
        """The records of the log, whose offsets have no gap."""
        log = LocalFolder(self.folder / "log")
        records, offset = [], 0
        for manifest in CaptureLog(log).manifests_after(0):
            assert manifest.first_offset == offset
            for segment in manifest.segments:
                content = log.read(f"segments/{segment.name}")
                for line in zstandard.ZstdDecompressor().stream_reader(content).read().splitlines():
                    message = json.loads(line)
                    assert message["offset"] == offset
                    offset += 1
                    records.append(record_of(message))
            assert manifest.next_offset == offset
        return records


def record_of(message: dict[str, Any]) -> Record:
    if message["value"] is None:
        return Record("tombstone", None, None, None)
    payload = json.loads(message["value"])["payload"]
    assert payload["source"]["table"] == TABLE
    transaction = payload["transaction"] or {}
    (event,) = DEBEZIUM.decode(Message(message["value"].encode()))
    assert isinstance(event, DataChange | Truncate)
    assert event.position is not None
    return Record(
        payload["op"],
        payload["after"],
        payload["source"]["txId"],
        transaction.get("total_order"),
        encode_order(event.position, captured=True),
    )


def reaches(lsn: int) -> Callable[[Published], bool]:
    return lambda published: (lsn_of(published.engine_offset) or 0) >= lsn


def quoted(name: str) -> str:
    return psycopg.sql.Identifier(name).as_string()


def ids(records: list[Record]) -> list[int]:
    return [record.after["id"] for record in records if record.after is not None]


def files_with(folder: Path, text: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]


@pytest.fixture
def source(postgres_server: PostgresServer, jars: Path, tmp_path: Path) -> Iterator[Source]:
    with postgres_server.new_database("capture") as database:
        source = Source(postgres_server, database, jars, tmp_path)
        yield source
        source.connection.close()


def test_snapshot_and_stream_are_captured_and_a_restart_continues(source: Source) -> None:
    source.insert(1, 100)
    with source.capture() as engine:
        first = engine.wait_published(1, START_S)
        assert first.record_count == 100
        assert [(record.op, record.after) for record in source.records()] == [
            ("r", {"id": number, "note": None}) for number in range(1, 101)
        ]

        with source.connection.cursor().copy(f"COPY {quoted(TABLE)} (id) FROM STDIN") as copy:
            copy.write("".join(f"{number}\n" for number in range(101, 2101)))
        source.execute("INSERT INTO other VALUES (1)")
        source.execute(f"UPDATE {quoted(TABLE)} SET note = 'new' WHERE id = 1")
        source.execute(f"DELETE FROM {quoted(TABLE)} WHERE id = 2")
        source.wait_captured(engine)

        # an open transaction blocks nobody, and comes when it ends
        with source.server.connect(source.database, autocommit=False) as slow:
            slow.execute(f"INSERT INTO {quoted(TABLE)} VALUES (3000, 'slow')")
            source.insert(3001, 3001)
            source.wait_captured(engine)
            assert ids(source.records())[-1] == 3001
        source.execute(f"TRUNCATE {quoted(TABLE)}")
        source.wait_captured(engine)
        pid = engine.pid
        status = engine.stop()
    assert status.state == "stopped"
    assert pid is not None
    assert not is_running(pid)
    before = source.records()
    assert [record.op for record in before[2100:]] == ["u", "d", "tombstone", "c", "c", "t"]
    assert ids(before)[:2100] == list(range(1, 2101))
    assert [record.order for record in before[100:2100]] == list(range(1, 2001))

    source.insert(4000, 4010)
    with source.capture() as engine:
        assert engine.wait_published(reaches(source.lsn()), START_S).next_offset == len(before) + 11
        assert engine.status.restart_count == 0
        assert ids(source.records()[len(before) :]) == list(range(4000, 4011))
        # nothing happens any more: heartbeats move the slot, and the log has no more records
        idle_lsn = source.lsn()
        wait_until(lambda: source.slot_lsn() > idle_lsn, WAIT_S)
        assert not source.is_slot_ahead()
        assert len(source.records()) == len(before) + 11

        # a second writer takes over; the first one notices it and ends
        SegmentWriter(LocalFolder(source.folder / "log"), source.folder / "other spool").close()
        with pytest.raises(CaptureError, match="another capture process writes the capture log"):
            engine.wait_published(lambda _: False, WAIT_S)
    assert files_with(source.folder, b"word'of") == []


@pytest.mark.parametrize("change", ["ALTER COLUMN id TYPE bigint", "DROP COLUMN note"])
def test_a_table_that_is_altered_at_the_beginning_of_a_snapshot_is_complete(
    source: Source, change: str
) -> None:
    """A snapshot finds a table empty that was rewritten after it, and the log has no such rows."""
    source.insert(1, 10)
    source.execute("CREATE TABLE first AS SELECT i AS id FROM generate_series(1, 40000) i")
    source.execute("GRANT SELECT ON first TO capture")
    tables = (TableId(schema="public", name="first"), TableId(schema="public", name=TABLE))
    config = source.config()
    connector = msgspec.structs.replace(config.connector, tables=tables)
    slot = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{source.slot}'"
    with CaptureEngine(msgspec.structs.replace(config, connector=connector)) as engine:
        wait_until(lambda: source.execute(slot).fetchone(), START_S)
        source.execute(f"ALTER TABLE {quoted(TABLE)} {change}")
        assert engine.wait_published(1, START_S).record_count == 40_010
        assert engine.status.restart_count == 1


def test_killed_process_loses_nothing_and_repeats_whole_transactions_only(source: Source) -> None:
    source.insert(1, 9_000)
    with source.capture() as engine:
        # a snapshot that did not end starts again, with another slot
        kill_while_it_writes(engine, source)
        assert engine.wait_published(1, START_S).record_count == 9_000
        source.insert(10_000, 10_000)
        source.insert(10_001, 20_000)
        kill_while_it_writes(engine, source)
        source.insert(40_000, 40_000)
        engine.wait_published(reaches(source.lsn()), START_S)
        assert engine.status.restart_count == 2
    records = source.records()
    assert ids(records[:9_000]) == list(range(1, 9_001))
    transactions: list[tuple[int | None, list[int]]] = []
    for record in records[9_000:]:
        assert record.op == "c"
        assert record.after is not None
        if record.order == 1:
            transactions.append((record.transaction, []))
        transactions[-1][1].append(record.after["id"])
        assert record.transaction == transactions[-1][0]
    expected = [[10_000], [*range(10_001, 20_001)], [40_000]]
    unique = dict(transactions)
    assert list(unique.values()) == expected
    assert all(rows == unique[number] for number, rows in transactions)


def test_orders_are_those_of_a_capture_that_was_never_interrupted(
    jars: Path, tmp_path: Path
) -> None:
    """The first transaction after a restart has no last commit, unless its offset has one."""
    with PostgresServer() as server, server.new_database("capture") as database:
        source = Source(server, database, jars, tmp_path / "killed")
        control = Source.__new__(Source)
        control.__dict__ |= source.__dict__ | {"folder": tmp_path / "control", "slot": "control"}
        for slot in (source.slot, control.slot):
            source.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
        with source.capture(snapshot="none") as engine:
            source.insert(1, 1)
            engine.wait_published(reaches(source.lsn()), START_S)
            source.insert(10_001, 20_000)  # rows of one INSERT ... SELECT
            kill_while_it_writes(engine, source)
            source.insert(20_001, 20_001)
            engine.wait_published(reaches(source.lsn()), START_S)
        source.insert(20_002, 20_002)
        with source.capture(snapshot="none") as engine:
            engine.wait_published(reaches(source.lsn()), START_S)
            with source.connection.cursor().copy(f"COPY {quoted(TABLE)} FROM STDIN") as copy:
                copy.write("".join(f"{number}\tx\n" for number in range(30_001, 30_101)))
            source.connection.close()
            server.kill()
            server.start()
            source.connection = control.connection = server.connect(database)
            source.insert(40_000, 40_000)
            engine.wait_published(reaches(source.lsn()), START_S)
        with control.capture(snapshot="none") as engine:
            engine.wait_published(reaches(source.lsn()), START_S)
        orders, expected = (
            {row: record.order_bytes for record in one.records() for row in ids([record])}
            for one in (source, control)
        )
        source.connection.close()
    assert len(orders) == 10_000 + 3 + 100 + 1
    assert orders == expected
    assert list(orders.values()) == sorted(orders.values())
    copied = [orders[number] for number in range(30_001, 30_101)]
    assert len(set(copied)) < len(copied), "rows of one COPY share a record of the log"


def kill_while_it_writes(engine: CaptureEngine, source: Source) -> None:
    """``kill -9`` the process when a part of a transaction or snapshot is in a segment."""
    spool = source.folder / "work" / "spool"
    wait_until(lambda: any(size_of(file) > 20_000 for file in spool.glob("*")), START_S)
    pid = engine.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: engine.pid not in {pid, None}, START_S)


def size_of(file: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return file.stat().st_size
    return 0


def test_restarted_server_is_captured_again(jars: Path, tmp_path: Path) -> None:
    server = PostgresServer(tls="required")
    with server, server.new_database("capture") as database:
        source = Source(server, database, jars, tmp_path)
        try:
            _restart_during_capture(source)
        finally:
            source.connection.close()


def _restart_during_capture(source: Source) -> None:
    source.insert(1, 3)
    with source.capture() as engine:
        engine.wait_published(1, START_S)
        source.insert(4, 4)
        source.connection.close()
        source.server.kill()
        wait_until(lambda: engine.status.state == "waiting", START_S)
        assert "does not answer" in engine.status.reason
        source.server.start()
        source.connection = source.server.connect(source.database)
        source.insert(5, 5)
        engine.wait_published(reaches(source.lsn()), START_S)
        assert engine.status.restart_count >= 1
        assert ids(source.records()) == [1, 2, 3, 4, 5]


def test_capture_without_snapshot_begins_at_the_slot(source: Source) -> None:
    source.insert(1, 3)
    source.execute(f"SELECT pg_create_logical_replication_slot('{source.slot}', 'pgoutput')")
    source.insert(4, 5)
    with source.capture(snapshot="none") as engine:
        engine.wait_published(reaches(source.lsn()), START_S)
    source.insert(6, 6)
    with source.capture(snapshot="none") as engine:
        engine.wait_published(reaches(source.lsn()), START_S)
    assert [(record.op, *ids([record])) for record in source.records()] == [
        *(("c", 4), ("c", 5), ("c", 6))
    ]


def test_process_ends_in_good_order_when_its_parent_is_killed(source: Source) -> None:
    source.insert(1, 3)
    program = (
        "import sys, time\n"
        "from changelane.capture.engine import CaptureEngine\n"
        "from changelane.capture.engine_config import decode_config\n"
        "engine = CaptureEngine(decode_config(sys.stdin.buffer.readline()))\n"
        "engine.start()\n"
        "engine.wait_published(1, 120)\n"
        "print('published', flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    # records wait for a publication that only the end of the process makes
    limits = PublicationLimits(max_age_s=600, idle_s=600)
    with parent, parent.stdin, parent.stdout:
        parent.stdin.write(encode_config(source.config(limits=limits)))
        parent.stdin.flush()
        assert parent.stdout.readline() == b"published\n"
        (child,) = [pid for pid in descendants(parent.pid) if is_running(pid)]
        source.insert(4, 4)
        lsn = source.lsn()
        time.sleep(2)  # until the engine has read it, which nothing reports
        parent.kill()
        wait_until(lambda: not is_running(child), WAIT_S)
    assert ids(source.records()) == [1, 2, 3, 4]
    newest = CaptureLog(LocalFolder(source.folder / "log")).newest()
    assert newest is not None
    assert (lsn_of(newest.engine_offset) or 0) >= lsn
    assert not source.is_slot_ahead()


def test_slot_that_does_not_fit_the_log_is_an_error(source: Source) -> None:
    def reason(**changes: Any) -> str:
        with source.capture(**changes) as engine, pytest.raises(CaptureError) as error:
            engine.wait_published(100, START_S)
        assert engine.status.state == "failed"
        return str(error.value)

    assert "rejects the user capture or the password" in reason(password="wrong")
    source.execute(f"SELECT pg_create_logical_replication_slot('{source.slot}', 'pgoutput')")
    assert "the slot belongs to another reader or to a deleted log" in reason()
    offset = {"lsn": 16, "lsn_commit": 16}
    writer = SegmentWriter(LocalFolder(source.folder / "log"), source.folder / "spool")
    writer.publish(offset)
    writer.close()
    assert "ahead of the capture log at 0/10" in reason()
    source.execute(f"SELECT pg_drop_replication_slot('{source.slot}')")
    assert "does not exist any more, so the changes after 0/10 are lost" in reason()
    assert files_with(source.folder, b"word'of") == []


def test_a_transaction_that_was_open_at_the_restart_is_complete(source: Source) -> None:
    """A record of the open transaction begins where the last captured transaction ended.

    The position of a commit is the end of its record, which is the position of the next record.
    Debezium takes such a record for the last one that it has captured.
    """
    config = source.config()
    connector = msgspec.structs.replace(config.connector, heartbeat_s=600)
    config = msgspec.structs.replace(config, connector=connector)
    with source.server.connect(source.database) as other, CaptureEngine(config) as engine:
        engine.wait_published(1, START_S)
        other.autocommit = False
        other.execute(f"INSERT INTO {quoted(TABLE)} VALUES (1), (2)")
        source.insert(100, 100)
        lsn = source.lsn()
        other.execute(f"INSERT INTO {quoted(TABLE)} VALUES (3), (4)")
        engine.wait_published(reaches(lsn), WAIT_S)
        pid = engine.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        other.execute(f"INSERT INTO {quoted(TABLE)} VALUES (5)")
        other.commit()
        wait_until(lambda: engine.pid not in {pid, None}, START_S)
        source.insert(101, 101)
        source.wait_captured(engine)
    assert ids(source.records()) == [100, 1, 2, 3, 4, 5, 101]
