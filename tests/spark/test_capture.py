# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL into tables, while the capture process is killed: the tables are its rows."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import lake_tables
import msgspec
import psycopg
import pytest
from postgres_server import PostgresServer
from pyspark.sql import SparkSession

from changelane.capture.segment_store import CaptureLog
from changelane.capture.storage import LocalFolder
from changelane.cli.capture import started_capture
from changelane.pipeline.config import Pipeline, load
from changelane.schema import TableId
from changelane.spark.run.tables import run

ROLE: Final = """
CREATE TABLE public.orders (
  id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v int, price numeric(12, 2), note text);
ALTER TABLE public.orders REPLICA IDENTITY FULL;
CREATE TABLE public.documents (id bigint PRIMARY KEY, title text, body text);
ALTER TABLE public.documents ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE public.events (kind text, at timestamptz, amount double precision);
ALTER TABLE public.events REPLICA IDENTITY FULL;
"""
KEYS: Final = {"orders": ("id",), "documents": ("id",), "events": ()}
COLUMNS: Final = {
    "orders": ("id", "v", "price", "note"),
    "documents": ("id", "title", "body"),
    "events": ("kind", "at", "amount"),
}


class Shop:
    """A database, and the pipeline that captures it."""

    tables = ("orders", "documents", "events")

    def __init__(
        self, server: PostgresServer, database: str, folder: Path, table_format: str = "delta"
    ) -> None:
        self.server = server
        self.database = database
        self.folder = folder
        self.file = folder / "shop.yaml"
        self.lake = str(folder / table_format)
        self.environment = {**os.environ, "PGPASSWORD_OF_TEST": server.password}
        config = {
            "name": "shop",
            "source": {
                "type": "postgres",
                "host": server.host,
                "port": server.port,
                "database": database,
                "user": server.user,
                "password": "${PGPASSWORD_OF_TEST}",
                "tables": ["public.*"],
                "segments": str(folder / "capture"),
                "publish_interval": "1 second",
                "memory": "256m",
            },
            "sink": {"type": table_format, "path": self.lake},
            "options": {"tables_without_key": "append"},
        }
        self.file.write_bytes(msgspec.json.encode(config))

    @property
    def pipeline(self) -> Pipeline:
        return load(self.file, self.environment)

    def connect(self) -> "psycopg.Connection[Any]":
        return self.server.connect(self.database)

    def capture(self, *options: str) -> "subprocess.Popen[bytes]":
        """Start ``changelane capture``."""
        command = [sys.executable, "-m", "changelane", "capture", str(self.file), *options]
        return subprocess.Popen(command, env=self.environment, stderr=subprocess.PIPE)

    def capture_until_now(self) -> list[dict[str, Any]]:
        process = self.capture("--until-now")
        _, errors = process.communicate(timeout=180)
        assert process.returncode == 0, errors.decode()
        lines = errors.decode().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def source_rows(self, table: str) -> Counter[tuple[Any, ...]]:
        columns = ", ".join(COLUMNS[table])
        with self.connect() as connection:
            return Counter(connection.execute(f"SELECT {columns} FROM public.{table}").fetchall())

    def table_rows(self, spark: SparkSession, table: str) -> Counter[tuple[Any, ...]]:
        name = TableId(self.database, "public", table)
        frame = lake_tables.table_of(spark, self.lake, name).select(*COLUMNS[table])
        rows = [tuple(row) for row in frame.collect()]
        if table == "events":  # Spark returns instants in the zone of the machine
            rows = [(kind, at.astimezone(), amount) for kind, at, amount in rows]
        return Counter(rows)


@pytest.fixture
def shop(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Shop]:
    with postgres_server.new_database("shop") as database:
        made = Shop(postgres_server, database, tmp_path)
        with made.connect() as connection:
            connection.execute(ROLE)
        yield made
        with postgres_server.connect() as connection:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                "WHERE database = %s",
                [database],
            )


def fill(connection: "psycopg.Connection[Any]") -> None:
    connection.execute(
        "INSERT INTO orders SELECT n, 0, n * 1.25, 'n' || n FROM generate_series(1, 200) n"
    )
    connection.execute(
        "INSERT INTO documents SELECT n, 't' || n, repeat(md5(n::text), 200) "
        "FROM generate_series(1, 30) n"
    )
    connection.execute(
        "INSERT INTO events SELECT 'e' || n % 7, '2024-02-29 12:00:00.123456+02', n / 3.0 "
        "FROM generate_series(1, 50) n"
    )
    connection.commit()


def work(
    shop: Shop,
    choose: random.Random,
    stop: threading.Event,
    *,
    first: int = 1000,
    pause_s: float = 0.02,
) -> None:
    """Change the database until the end: swaps, moved keys, TOAST, COPY, large transactions.

    New keys begin at *first*; *pause_s* is the longest pause between two transactions.
    """
    with shop.connect() as connection:
        connection.autocommit = False
        number = first
        while not stop.is_set():
            number += 100
            match choose.randrange(8):
                case 0:
                    connection.execute(
                        "UPDATE orders SET id = CASE id WHEN %(a)s THEN %(b)s ELSE %(a)s END "
                        "WHERE id IN (%(a)s, %(b)s)",
                        {"a": choose.randrange(1, 100), "b": choose.randrange(101, 200)},
                    )
                case 1:
                    connection.execute(
                        "UPDATE documents SET title = title || '.' WHERE id %% 3 = %s",
                        [choose.randrange(3)],
                    )
                case 2:
                    with connection.cursor().copy("COPY orders FROM STDIN") as copy:
                        for row in range(number, number + 50):
                            copy.write_row((row, 1, "2.50", None))
                case 3:
                    connection.execute(
                        "DELETE FROM orders WHERE id > 1000 AND id %% 5 = %s",
                        [choose.randrange(5)],
                    )
                case 4:
                    connection.execute("UPDATE orders SET v = v + 1, price = price + 0.01")
                case 5:
                    connection.execute(
                        "UPDATE documents SET id = id + 1000 WHERE id = %s",
                        [choose.randrange(1, 31)],
                    )
                case 6:
                    connection.execute("INSERT INTO events VALUES ('x', now(), %s)", [number])
                case _:
                    connection.execute("INSERT INTO orders VALUES (%s, 0, 0, '')", [number + 99])
                    connection.execute("SAVEPOINT a")
                    connection.execute("UPDATE orders SET note = 'gone'")
                    connection.execute("ROLLBACK TO SAVEPOINT a")
            connection.commit()
            time.sleep(choose.random() * pause_s)


def engine_pid(process: "subprocess.Popen[bytes]") -> int | None:
    children = Path(f"/proc/{process.pid}/task")
    pids = [pid for task in children.iterdir() for pid in (task / "children").read_text().split()]
    return int(pids[0]) if pids else None


@pytest.mark.long
def test_tables_are_the_rows_of_a_database_whose_capture_is_killed(
    spark: SparkSession, shop: Shop
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    choose = random.Random(seed)
    with shop.connect() as connection:
        fill(connection)
    reports = shop.capture_until_now()
    assert reports[-1]["records"] == 280
    run(spark, shop.pipeline)
    assert shop.table_rows(spark, "documents") == shop.source_rows("documents")

    stop = threading.Event()
    pool = ThreadPoolExecutor(1)
    worker = pool.submit(work, shop, random.Random(seed), stop)
    try:
        for is_engine in (True, False):
            process = shop.capture()
            log = CaptureLog(LocalFolder(shop.folder / "capture"))
            before = len(log.sequences())
            deadline = time.monotonic() + 90
            while len(log.sequences()) <= before and time.monotonic() < deadline:
                time.sleep(0.1)
            time.sleep(choose.random() * 3)
            pid = engine_pid(process)
            assert pid is not None
            os.kill(pid if is_engine else process.pid, signal.SIGKILL)
            if is_engine:  # the capture starts another one, and stops in good order
                time.sleep(3)
                process.terminate()
            process.communicate(timeout=120)
    finally:
        stop.set()
        worker.result()
        pool.shutdown()
    shop.capture_until_now()
    report = run(spark, shop.pipeline)
    assert not report.quarantined
    for table in ("orders", "documents", "events"):
        assert shop.table_rows(spark, table) == shop.source_rows(table), f"{table}, seed {seed}"
    with shop.connect() as connection:
        slot = connection.execute(
            "SELECT confirmed_flush_lsn - '0/0', restart_lsn IS NOT NULL FROM pg_replication_slots "
            "WHERE database = current_database()"
        ).fetchone()
    newest = log.newest()
    assert slot is not None
    assert newest is not None
    assert int(slot[0]) <= int(newest.engine_offset["lsn"] or 0), "the slot is ahead of the log"
    for path in shop.folder.rglob("*"):
        if path.is_file():
            assert shop.server.password.encode() not in path.read_bytes(), path


def test_a_run_captures_first_and_a_lost_slot_stops_it(spark: SparkSession, shop: Shop) -> None:
    del spark
    with shop.connect() as connection:
        fill(connection)
    with started_capture(shop.pipeline, print, is_until_now=True) as capture:
        capture.wait_until_now()
        with shop.connect() as connection:
            connection.execute("DELETE FROM events")
            connection.commit()
        capture.wait_until_now()
    log = CaptureLog(LocalFolder(shop.folder / "capture"))
    newest = log.newest()
    assert newest is not None
    assert newest.next_offset == 380  # a delete and its tombstone
    with shop.connect() as connection:
        connection.autocommit = True
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE database = current_database()"
        )
    process = shop.capture("--until-now")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2, errors.decode()
    assert "--new-snapshot" in errors.decode()
    process = shop.capture("--until-now", "--new-snapshot")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()
    newest = log.newest()
    assert newest is not None
    assert newest.next_offset == 380 + 230
