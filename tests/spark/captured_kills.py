# SPDX-License-Identifier: Apache-2.0
"""Continuous runs of captured databases, whose processes are killed with -9 at random times.

Killed are the capture engine, Spark's JVM, all processes of the run, and the database itself, while
a workload changes it. ``scripts/soak.py`` repeats this for any length of time.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, Final

import psycopg
import pymysql
import test_capture
import test_capture_mariadb
from child_processes import descendants
from mariadb_server import MariadbServer
from postgres_server import PostgresServer
from pyspark.sql import SparkSession
from spark_settings import CHEAP

KINDS: Final = ("engine", "jvm", "run", "database")
"""What a kill ends."""
LONGEST_S: Final = 15
START_S: Final = 90
"""The longest time until a run applies its first batch, seconds."""
_LOST: Final = (psycopg.OperationalError, pymysql.OperationalError, pymysql.InterfaceError)
_KEYS_PER_CONNECTION: Final = 10_000_000
PAUSE_S: Final = 0.6
"""The longest pause of the workload: the last run applies all that the kills have left."""

Shop = test_capture.Shop | test_capture_mariadb.Shop


@contextlib.contextmanager
def shop_of(product: str, table_format: str, folder: Path) -> Iterator[Shop]:
    """Start a server of its own with a shop, because the kills end it."""
    if product == "postgres":
        with PostgresServer() as server, server.new_database("soak") as database:
            shop = test_capture.Shop(server, database, folder, table_format)
            with shop.connect() as connection:
                connection.execute(test_capture.ROLE)
                test_capture.fill(connection)
            yield shop
    else:
        with MariadbServer() as server, server.new_database("soak") as database:
            made = test_capture_mariadb.Shop(server, database, folder, table_format)
            test_capture_mariadb.fill(made)
            yield made


def change_forever(shop: Shop, chance: Random, stop: threading.Event) -> None:
    """Change the database until the end; connect again after it was killed."""
    work: Callable[..., None] = (
        test_capture.work if isinstance(shop, test_capture.Shop) else test_capture_mariadb.work
    )
    first = 1000
    while not stop.is_set():
        with contextlib.suppress(*_LOST):
            work(shop, chance, stop, first=first, pause_s=PAUSE_S)
        first += _KEYS_PER_CONNECTION
        stop.wait(0.2)


class KilledRuns:
    """The runs of a shop's pipeline.

    Args:
        shop: The shop.
        chance: For the moments of the kills.
    """

    def __init__(self, shop: Shop, chance: Random) -> None:
        self._shop = shop
        self._chance = chance
        config = json.loads(shop.file.read_bytes())
        options = config.get("options", {}) | {"spark_options": CHEAP}
        self._continuous = shop.folder / "continuous.yaml"
        continuous = options | {"trigger": "continuous", "interval": "1 second"}
        self._continuous.write_text(json.dumps(config | {"options": continuous}))
        self._last = shop.folder / "last.yaml"
        self._last.write_text(json.dumps(config | {"options": options}))

    def kill(self, kind: str) -> None:
        """Start a run, kill something at a random time, and end the run.

        Raises:
            RuntimeError: The run ended by itself.
        """
        with tempfile.TemporaryFile() as errors:
            run = self._start(self._continuous, errors)
            try:
                self._wait_for_batch(run, errors)
                time.sleep(self._chance.uniform(0, LONGEST_S))
                self._kill(run, kind)
                if kind in {"engine", "database"}:  # the run continues by itself
                    time.sleep(self._chance.uniform(0, LONGEST_S))
                    if run.poll() is not None:
                        raise RuntimeError(f"the run ended after {kind}: {_text(errors)}")
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(run.pid, signal.SIGKILL)
                run.wait()

    def _kill(self, run: "subprocess.Popen[bytes]", kind: str) -> None:
        match kind:
            case "database":
                self._shop.server.kill()
                time.sleep(self._chance.uniform(0, 3))
                self._shop.server.start()
            case "run":
                os.killpg(run.pid, signal.SIGKILL)
            case _:
                is_engine = kind == "engine"
                pids = [pid for pid in descendants(run.pid) if _is_engine(pid) is is_engine]
                for pid in pids[-1:]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def finish(self) -> None:
        """Apply everything that is committed by now.

        Raises:
            RuntimeError: The run failed.
        """
        with tempfile.TemporaryFile() as errors:
            if self._start(self._last, errors).wait():
                raise RuntimeError(_text(errors))

    def _start(self, file: Path, errors: Any) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-m", "changelane", "run", str(file), "--master", "local[2]"],
            env=self._shop.environment,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )

    def _wait_for_batch(self, run: "subprocess.Popen[bytes]", errors: Any) -> None:
        deadline = time.monotonic() + self._chance.uniform(1, START_S)
        while time.monotonic() < deadline and b'"batch"' not in _bytes(errors):
            if run.poll() is not None:
                raise RuntimeError(f"the run ended at its start: {_text(errors)}")
            time.sleep(0.2)


def _is_engine(pid: int) -> bool | None:
    """Whether a process is the capture engine; ``None`` if it is neither that nor a JVM."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    if b"engine_process" in line:
        return True
    return False if b"SparkSubmit" in line else None


def _bytes(errors: Any) -> bytes:
    return os.pread(errors.fileno(), 1 << 20, 0)


def _text(errors: Any) -> str:
    return _bytes(errors).decode(errors="replace")[-3000:]


def killed_rounds(
    shop: Shop,
    chance: Random,
    kills: int,
    show: Callable[[str], None] = lambda _: None,
    is_over: Callable[[], bool] = lambda: False,
) -> Counter[str]:
    """Kill runs of a shop, apply the rest, and return the number of kills of each kind.

    Args:
        shop: The shop.
        chance: For the moments of the kills.
        kills: Their number.
        show: Shows what is killed.
        is_over: Returns whether the time of the kills is over.

    Raises:
        RuntimeError: A run failed without being killed.
    """
    runs = KilledRuns(shop, chance)
    stop = threading.Event()
    counts: Counter[str] = Counter()
    with ThreadPoolExecutor(1) as pool:
        worker = pool.submit(change_forever, shop, Random(chance.random()), stop)
        try:
            for _ in range(kills):
                if is_over():
                    break
                kind = chance.choice(KINDS)
                show(f"kill: {kind}")
                runs.kill(kind)
                counts[kind] += 1
        finally:
            stop.set()
        worker.result()
    show("the rest of the changes")
    runs.finish()
    return counts


def differences(spark: SparkSession, shop: Shop) -> list[str]:
    """Return the tables of a shop that differ from those of its database."""
    if isinstance(shop, test_capture.Shop):
        return [
            table
            for table in shop.tables
            if shop.table_rows(spark, table) != shop.source_rows(table)
        ]
    columns = dict(test_capture_mariadb.COLUMNS)
    if shop.run("SHOW COLUMNS FROM orders LIKE 'extra'"):
        columns["orders"] = (*columns["orders"], "extra")
    return [
        table
        for table, of_table in columns.items()
        if shop.table_rows(spark, table, of_table) != shop.source_rows(table, of_table)
    ]
