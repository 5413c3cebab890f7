# SPDX-License-Identifier: Apache-2.0
"""A real MariaDB into tables, while the capture process is killed: the tables are its rows."""

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
import pytest
from mariadb_server import MariadbServer
from pyspark.sql import SparkSession
from snapshot_processes import (
    complete_numbers,
    kill,
    reader_pids,
    wait_for_chunks,
    wait_for_readers,
)

from changelane.capture.segment_store import CaptureLog
from changelane.capture.storage import LocalFolder
from changelane.cli.capture import started_capture
from changelane.pipeline.config import Pipeline, load
from changelane.schema import TableId
from changelane.spark.run.tables import run

TABLES: Final = (
    (
        "CREATE TABLE orders (id int PRIMARY KEY, v bigint unsigned, price decimal(12,2), "
        "note varchar(20) CHARACTER SET utf8mb4, at datetime(6))"
    ),
    "CREATE TABLE pairs (a int, b varchar(10), n double, PRIMARY KEY (a, b))",
)
COLUMNS: Final = {"orders": ("id", "v", "price", "note", "at"), "pairs": ("a", "b", "n")}


class Shop:
    """A database, and the pipeline that captures it."""

    tables = ("orders", "pairs")

    def __init__(
        self, server: MariadbServer, database: str, folder: Path, table_format: str = "iceberg"
    ) -> None:
        self.server = server
        self.database = database
        self.folder = folder
        self.lake = str(folder / table_format)
        self.environment = {**os.environ, "MYSQL_PASSWORD_OF_TEST": server.password}
        self.file = folder / "shop.yaml"
        config = {
            "name": "shop",
            "source": {
                "type": "mariadb",
                "host": server.host,
                "port": server.port,
                "database": database,
                "user": server.user,
                "password": "${MYSQL_PASSWORD_OF_TEST}",
                "tables": [f"{database}.*"],
                "segments": str(folder / "capture"),
                "publish_interval": "1 second",
                "memory": "256m",
            },
            "sink": {"type": table_format, "path": self.lake},
        }
        self.file.write_bytes(msgspec.json.encode(config))

    @property
    def pipeline(self) -> Pipeline:
        return load(self.file, self.environment)

    def capture_until_now(self) -> "subprocess.Popen[bytes]":
        """Start ``changelane capture``."""
        command = [sys.executable, "-m", "changelane", "capture", str(self.file), "--until-now"]
        return subprocess.Popen(command, env=self.environment, stderr=subprocess.PIPE)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.run(*statements, database=self.database)

    def source_rows(self, table: str, columns: tuple[str, ...]) -> Counter[tuple[Any, ...]]:
        return Counter(self.run(f"SELECT {', '.join(columns)} FROM {table}"))

    def table_rows(
        self, spark: SparkSession, table: str, columns: tuple[str, ...]
    ) -> Counter[tuple[Any, ...]]:
        name = TableId(self.database, None, table)
        frame = lake_tables.table_of(spark, self.lake, name).select(*columns)
        return Counter(tuple(row) for row in frame.collect())


@pytest.fixture
def shop(mariadb_server: MariadbServer, tmp_path: Path) -> Iterator[Shop]:
    with mariadb_server.new_database("shop") as database:
        made = Shop(mariadb_server, database, tmp_path)
        fill(made)
        yield made


def fill(shop: Shop) -> None:
    shop.run(*TABLES)
    shop.run(
        "INSERT INTO orders SELECT seq, 18446744073709551615, seq * 1.25, 'é', "
        "'2024-02-29 12:00:00.123456' FROM seq_1_to_200"
    )


def work(
    shop: Shop,
    choose: random.Random,
    stop: threading.Event,
    *,
    first: int = 1000,
    pause_s: float = 0.02,
) -> None:
    """Change the database until the end: moved keys, bulk statements, rollbacks, DDL.

    New keys begin at *first*; *pause_s* is the longest pause between two transactions.
    """
    number = first
    with shop.server.connect(shop.database) as connection, connection.cursor() as cursor:
        while not stop.is_set():
            number += 100
            if number == 3000:
                cursor.execute("ALTER TABLE orders ADD COLUMN extra int DEFAULT 7")
            cursor.execute("BEGIN")
            match choose.randrange(6):
                case 0:
                    cursor.execute(
                        "INSERT INTO orders (id, v, price) SELECT seq, 0, 2.5 "
                        f"FROM seq_{number}_to_{number + 60}"
                    )
                case 1:
                    cursor.execute("UPDATE orders SET v = id, price = price + 0.01")
                case 2:
                    cursor.execute(
                        "DELETE FROM orders WHERE id > 1000 AND id MOD 5 = %s",
                        [choose.randrange(5)],
                    )
                case 3:
                    key = choose.randrange(1, 200)
                    cursor.execute(
                        "UPDATE orders SET id = id + 100000 WHERE id = %s "
                        "AND NOT EXISTS (SELECT 1 FROM (SELECT id FROM orders) o WHERE o.id = %s)",
                        [key, key + 100000],
                    )
                case 4:
                    cursor.execute(
                        "REPLACE INTO pairs VALUES (%s, %s, %s)",
                        [choose.randrange(9), choose.choice(["a", "B", "ä"]), number / 3],
                    )
                case _:
                    cursor.execute("UPDATE orders SET note = 'rolled back'")
                    connection.rollback()
            connection.commit()
            time.sleep(choose.random() * pause_s)


def test_tables_are_the_rows_of_a_mariadb_whose_capture_is_killed(
    spark: SparkSession, shop: Shop
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    with started_capture(shop.pipeline, str, is_until_now=True) as capture:
        capture.wait_until_now()
    run(spark, shop.pipeline)
    orders = COLUMNS["orders"]
    assert shop.table_rows(spark, "orders", orders) == shop.source_rows("orders", orders)

    stop = threading.Event()
    pool = ThreadPoolExecutor(1)
    worker = pool.submit(work, shop, random.Random(seed), stop)
    try:
        with started_capture(shop.pipeline, str, is_until_now=False) as capture:
            for _ in range(2):
                time.sleep(2 + random.Random(seed).random() * 2)
                assert capture._engine is not None
                pid = capture._engine.pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                deadline = time.monotonic() + 60
                while capture._engine.pid in {None, pid} or capture.status.state != "running":
                    assert time.monotonic() < deadline, capture.status
                    time.sleep(0.1)
    finally:
        stop.set()
        worker.result()
        pool.shutdown()
    with started_capture(shop.pipeline, str, is_until_now=True) as capture:
        capture.wait_until_now()
    report = run(spark, shop.pipeline)
    assert not report.quarantined
    for table, columns in (("orders", (*orders, "extra")), ("pairs", COLUMNS["pairs"])):
        found = shop.table_rows(spark, table, columns)
        assert found == shop.source_rows(table, columns), f"{table}, seed {seed}"
    for path in shop.folder.rglob("*"):
        if path.is_file():
            assert shop.server.password.encode() not in path.read_bytes(), path


def test_tables_are_the_rows_of_a_mariadb_whose_snapshot_is_killed(
    spark: SparkSession, shop: Shop
) -> None:
    config = msgspec.json.decode(shop.file.read_bytes())
    config["source"] |= {"snapshot": "spark", "snapshot_readers": 2, "snapshot_chunk_rows": 100}
    config["options"] = {"tables_without_key": "append"}
    shop.file.write_bytes(msgspec.json.encode(config))
    shop.run(
        "CREATE TABLE events (n int)",
        "INSERT INTO events SELECT seq FROM seq_1_to_100",
        "CREATE TABLE stock (id int PRIMARY KEY, note varchar(200))",
        "INSERT INTO stock SELECT seq, repeat('x', 100) FROM seq_1_to_20000",
        "INSERT INTO pairs VALUES (1, 'é', 0.1)",
    )
    seed = random.SystemRandom().randrange(1 << 32)
    choose = random.Random(seed)
    stop = threading.Event()
    log = CaptureLog(LocalFolder(shop.folder / "capture"))

    def change_rows() -> None:
        changes = random.Random(seed)
        statements = (
            "UPDATE IGNORE stock SET id = id + 10000 WHERE id = {0}",
            "UPDATE stock SET note = concat(note, '.') WHERE id BETWEEN {0} AND {0} + 3",
            "DELETE FROM stock WHERE id = {0}",
            "REPLACE INTO stock VALUES ({0}, 'new')",
            "UPDATE orders SET v = {0} WHERE id = {0} % 200",
        )
        with shop.server.connect(shop.database) as connection, connection.cursor() as cursor:
            for number in range(101, 1_000_000):
                if stop.wait(0.02):
                    return
                cursor.execute("INSERT INTO events VALUES (%s)", [number])
                cursor.execute(changes.choice(statements).format(changes.randrange(1, 20000)))

    with ThreadPoolExecutor(1) as pool:
        worker = pool.submit(change_rows)
        try:
            process = shop.capture_until_now()
            wait_for_chunks(shop.folder, process, choose.randrange(5, 30))
            kill(process)
            count = len(complete_numbers(shop.folder))
            process = shop.capture_until_now()
            wait_for_chunks(shop.folder, process, count + choose.randrange(5, 30))
            killed = choose.choice(reader_pids(process))
            os.kill(killed, signal.SIGKILL)
            # the other reader ends, and the command continues with the chunks of the killed one
            wait_for_readers(process, {killed})
            assert log.newest() is None, "nothing is visible before the end"
        finally:
            stop.set()
        worker.result()
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors.decode()
    epochs = {segment.name.partition("-")[0] for segment in log.manifest(1).segments}
    assert len(epochs) >= 3, "the snapshot began anew"
    assert not run(spark, shop.pipeline).quarantined
    columns = {**COLUMNS, "events": ("n",), "stock": ("id", "note")}
    for table, names in columns.items():
        found = shop.table_rows(spark, table, names)
        assert found == shop.source_rows(table, names), f"{table}, seed {seed}"
