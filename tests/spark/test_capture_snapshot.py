# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL into tables, by readers in tasks of Spark: the tables are its rows."""

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from child_processes import descendants, is_running
from pyspark.sql import SparkSession
from test_capture import COLUMNS, Shop, fill, shop

from changelane.capture.segment_store import CaptureLog
from changelane.capture.snapshot.plan import SnapshotProgress
from changelane.capture.storage import LocalFolder
from changelane.cli.capture import started_capture
from changelane.spark.run.tables import run

__all__ = ["shop"]  # the fixture

TABLES = ("orders", "documents", "events")


def read_by_spark(shop: Shop, **options: Any) -> None:
    """Change the pipeline: its first load is read by two readers."""
    config = msgspec.json.decode(shop.file.read_bytes())
    config["source"] |= {"snapshot": "spark", "snapshot_readers": 2} | options
    shop.file.write_bytes(msgspec.json.encode(config))


def progress_of(shop: Shop) -> SnapshotProgress:
    return SnapshotProgress(LocalFolder(shop.folder / "capture"))


def complete_numbers(shop: Shop) -> set[int]:
    """The complete chunks of the snapshot that runs."""
    progress = progress_of(shop)
    plan = progress.plan()
    return set() if plan is None else progress.complete_numbers(plan)


def test_rows_before_and_after_the_slot_are_equal_in_the_tables(
    spark: SparkSession, shop: Shop
) -> None:
    read_by_spark(shop, snapshot_chunk_rows=60)
    with shop.connect() as connection:
        fill(connection)
    with started_capture(shop.pipeline, print, is_until_now=True) as capture:
        with shop.connect() as connection:
            connection.execute("INSERT INTO orders SELECT id + 1000, v, price, note FROM orders")
            connection.execute("UPDATE documents SET title = title || '.' WHERE id < 5")
            connection.execute("DELETE FROM orders WHERE id = 7")
            connection.commit()
        capture.wait_until_now()
    assert not run(spark, shop.pipeline).quarantined
    for table in TABLES:
        assert shop.table_rows(spark, table) == shop.source_rows(table), table
    assert progress_of(shop).plan() is None


STOCK_COUNT = 40_000


@pytest.fixture
def busy_shop(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A shop with a larger table."""
    monkeypatch.setitem(COLUMNS, "stock", ("id", "note"))
    read_by_spark(shop, snapshot_chunk_rows=100)
    with shop.connect() as connection:
        fill(connection)
        connection.execute("CREATE TABLE stock (id int PRIMARY KEY, note text)")
        connection.execute(
            "INSERT INTO stock SELECT n, repeat('x', 100) FROM generate_series(1, %s) n",
            [STOCK_COUNT],
        )
    return shop


def change_rows(shop: Shop, choose: random.Random, stop: threading.Event) -> None:
    """Change rows of all tables until the end: values, keys, swapped keys, large values."""
    move = (
        f"UPDATE stock SET id = id + {STOCK_COUNT} WHERE id BETWEEN %(a)s AND %(b)s "
        f"AND NOT EXISTS (SELECT FROM stock o WHERE o.id = stock.id + {STOCK_COUNT})"
    )
    swap = (
        "UPDATE orders SET id = CASE id WHEN %(c)s THEN %(d)s ELSE %(c)s END "
        "WHERE id IN (%(c)s, %(d)s)"
    )
    with shop.connect() as connection:
        while not stop.is_set():
            first = choose.randrange(1, STOCK_COUNT)
            places = {
                "a": first,
                "b": first + choose.randrange(5),
                "c": choose.randrange(1, 100),
                "d": choose.randrange(101, 200),
                "e": choose.randrange(1, 31),
            }
            for statement in (
                "UPDATE stock SET note = note || '.' WHERE id BETWEEN %(a)s AND %(b)s",
                "DELETE FROM stock WHERE id BETWEEN %(a)s + 10 AND %(b)s + 10",
                "INSERT INTO stock VALUES (%(a)s + 10, 'new') ON CONFLICT DO NOTHING",
                move.replace("(a)s", "(a)s + 20").replace("(b)s", "(b)s + 20"),
                swap,
                "UPDATE documents SET title = title || '.' WHERE id = %(e)s",
                "UPDATE documents SET id = id + 1000 WHERE id = %(e)s",
                "INSERT INTO events VALUES ('x', now(), %(a)s)",
            ):
                if choose.random() < 0.4:
                    connection.execute(statement, places)
            time.sleep(choose.random() / 10)


def wait_for_chunks(shop: Shop, process: "subprocess.Popen[bytes]", count: int) -> None:
    """Wait for a number of chunks, those of the tables that cannot continue among them."""
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        numbers = complete_numbers(shop)
        if numbers >= {0, 1} and len(numbers) >= count:
            return
        assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""
        time.sleep(0.02)
    raise AssertionError(f"there were no {count} complete chunks")


def wait_for_readers(process: "subprocess.Popen[bytes]", former: set[int]) -> None:
    """Wait until all former readers have ended, and others run."""
    deadline = time.monotonic() + 180
    former |= set(reader_pids(process))
    while time.monotonic() < deadline:
        if set(reader_pids(process)) - former:
            return
        time.sleep(0.02)
    raise AssertionError("no readers followed the former ones")


def reader_pids(process: "subprocess.Popen[bytes]") -> list[int]:
    pids = []
    for pid in descendants(process.pid):
        with contextlib.suppress(OSError):  # it has ended
            if b".reader_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                pids.append(pid)
    return pids


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a capture; its readers end with it."""
    readers = reader_pids(process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)
    deadline = time.monotonic() + 60
    while any(map(is_running, readers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(is_running, readers))


@pytest.mark.long
def test_tables_are_the_rows_of_a_database_whose_snapshot_is_killed(
    spark: SparkSession, busy_shop: Shop
) -> None:
    shop = busy_shop
    seed = random.SystemRandom().randrange(1 << 32)
    choose = random.Random(seed)
    stop = threading.Event()
    log = CaptureLog(LocalFolder(shop.folder / "capture"))
    with ThreadPoolExecutor(1) as pool:
        worker = pool.submit(change_rows, shop, random.Random(seed), stop)
        try:
            process = shop.capture("--until-now")
            wait_for_chunks(shop, process, choose.randrange(5, 30))
            plan = progress_of(shop).plan()
            kill(process)
            count = len(complete_numbers(shop))
            process = shop.capture("--until-now")
            wait_for_chunks(shop, process, count + choose.randrange(5, 30))
            killed = choose.choice(reader_pids(process))
            os.kill(killed, signal.SIGKILL)
            # the other reader ends, and the command continues with the chunks of the killed one
            wait_for_readers(process, {killed})
            count = len(complete_numbers(shop))
            wait_for_chunks(shop, process, count + choose.randrange(1, 10))
            kill(process)
            assert log.newest() is None, "nothing is visible before the end"
        finally:
            stop.set()
        worker.result()
    shop.capture_until_now()
    assert plan is not None
    assert log.manifest(1).engine_offset == {"lsn": plan.lsn}, "the snapshot began anew"
    assert not run(spark, shop.pipeline).quarantined
    for table in ("stock", *TABLES):
        assert shop.table_rows(spark, table) == shop.source_rows(table), f"{table}, seed {seed}"
    for path in shop.folder.rglob("*"):
        if path.is_file():
            assert shop.server.password.encode() not in path.read_bytes(), path
