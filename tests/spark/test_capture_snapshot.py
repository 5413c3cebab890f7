# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL into tables, by several readers at once: the tables are its rows."""

import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from child_processes import is_running
from pyspark.sql import SparkSession
from snapshot_processes import (
    complete_numbers,
    kill,
    progress_of,
    reader_pids,
    wait_for_chunks,
    wait_for_readers,
)
from test_capture import COLUMNS, Shop, fill, shop

from changelane.capture.segment_store import CaptureLog
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
    assert progress_of(shop.folder).plan() is None


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
            wait_for_chunks(shop.folder, process, choose.randrange(5, 30))
            plan = progress_of(shop.folder).plan()
            kill(process)
            count = len(complete_numbers(shop.folder))
            process = shop.capture("--until-now")
            wait_for_chunks(shop.folder, process, count + choose.randrange(5, 30))
            killed = choose.choice(reader_pids(process))
            os.kill(killed, signal.SIGKILL)
            # the other reader ends, and the command continues with the chunks of the killed one
            wait_for_readers(process, {killed})
            count = len(complete_numbers(shop.folder))
            wait_for_chunks(shop.folder, process, count + choose.randrange(1, 10))
            kill(process)
            assert log.newest() is None, "nothing is visible before the end"
        finally:
            stop.set()
        worker.result()
    shop.capture_until_now()
    assert plan is not None
    assert log.manifest(1).engine_offset == plan.offset, "the snapshot began anew"
    assert not run(spark, shop.pipeline).quarantined
    for table in ("stock", *TABLES):
        assert shop.table_rows(spark, table) == shop.source_rows(table), f"{table}, seed {seed}"
    for path in shop.folder.rglob("*"):
        if path.is_file():
            assert shop.server.password.encode() not in path.read_bytes(), path


def test_the_readers_of_an_interrupted_capture_end_at_once(busy_shop: Shop) -> None:
    process = busy_shop.capture("--until-now")
    wait_for_chunks(busy_shop.folder, process, 3)
    readers = reader_pids(process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1, errors.decode()
    assert readers
    assert not any(map(is_running, readers))
    assert CaptureLog(LocalFolder(busy_shop.folder / "capture")).newest() is None
    assert b"Traceback" not in errors
