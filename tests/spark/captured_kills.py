# SPDX-License-Identifier: Apache-2.0
"""Continuous runs of captured databases, whose processes are killed with -9 at random times.

Killed are the capture engine, Spark's JVM, all processes of the run, and the database itself, while
two clients change the tables of :mod:`random_changes`. ``scripts/soak.py`` repeats this for any
number of seeds.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, Final

import capture_lines
import lake_tables
import line_workloads as workloads
import mariadb_server
import postgres_server
import psycopg
import pymysql
import random_changes
import test_capture
import test_capture_mariadb
from child_processes import descendants
from mariadb_server import MariadbServer
from postgres_server import PostgresServer
from pyspark.sql import DataFrame, SparkSession
from spark_settings import CHEAP

from changelane.capture.postgres.ddl_trigger import INSTALLATION
from changelane.schema import TableId
from changelane.spark.lake import lake as open_lake
from changelane.spark.state import quarantine

PRODUCTS: Final = ("postgres", "mariadb")
SURVIVED: Final = ("engine", "database")
"""What a run survives that is killed."""
DEADLY: Final = ("jvm", "run")
"""What ends a run: Spark's JVM, or all of its processes."""
START_S: Final = 180
"""The longest time until a run applies its first batch, seconds."""
EARLY_S: Final = 20
LARGE_ROWS: Final = 100_000
PAUSE_S: Final = 1.0
"""The longest pause of a client: the last run applies all that the kills have left."""
_LOST: Final = (psycopg.OperationalError, pymysql.OperationalError, pymysql.InterfaceError)
_VIOLATED: Final = (psycopg.IntegrityError, pymysql.IntegrityError)

Shop = test_capture.Shop | test_capture_mariadb.Shop


def installed_products() -> list[str]:
    """Return the databases that are installed."""
    find = (postgres_server.programs_folder, mariadb_server.server_program)
    products = []
    for product, program in zip(PRODUCTS, find, strict=True):
        with contextlib.suppress(
            postgres_server.NotInstalledError, mariadb_server.NotInstalledError
        ):
            program()
            products.append(product)
    return products


@contextlib.contextmanager
def shop_of(
    product: str,
    table_format: str,
    folder: Path,
    tables: Sequence[str] = ("*",),
    settings: Mapping[str, str] = CHEAP,
) -> Iterator[Shop]:
    """Start a server of its own with tables, because the kills end it.

    Args:
        product: One of :data:`PRODUCTS`.
        table_format: The format of the tables of the lake.
        folder: The folder of the lake and of the capture log.
        tables: The captured ones.
        settings: Spark's settings; the usual ones are slow with large transactions.
    """
    server: PostgresServer | MariadbServer
    shop: Shop
    if product == "postgres":
        with PostgresServer() as server, server.new_database("kills") as database:
            shop = test_capture.Shop(server, database, folder, table_format)
            statements = (*workloads.POSTGRES_CREATE, *workloads.POSTGRES_FIRST, INSTALLATION)
            _create(shop, *statements, "ALTER TABLE events REPLICA IDENTITY FULL")
            captured = [f"public.{table}" for table in tables]
            _configure(shop, settings, ddl="event_trigger", tables=captured)
            yield shop
    else:
        with MariadbServer() as server, server.new_database("kills") as database:
            shop = test_capture_mariadb.Shop(server, database, folder, table_format)
            _create(shop, *workloads.MARIADB_CREATE, *workloads.MARIADB_FIRST)
            _configure(shop, settings, tables=[f"{database}.{table}" for table in tables])
            yield shop


def _create(shop: Shop, *statements: str) -> None:
    with shop.server.connect(shop.database) as connection, connection.cursor() as cursor:
        for statement in (random_changes.EVENTS, *statements):
            cursor.execute(statement)


def _configure(shop: Shop, settings: Mapping[str, str], **source: Any) -> None:
    config = json.loads(shop.file.read_bytes())
    config["source"] |= source
    config["options"] = {"tables_without_key": "append", "spark_options": dict(settings)}
    shop.file.write_text(json.dumps(config))


class Clients:
    """Two clients that change the tables until the end; they connect again after a kill.

    Args:
        shop: The shop.
        chance: Draws the changes.
        large_rows: The number of rows of large transactions.
        altering_share: The share of the transactions of one client that alter a table.
    """

    def __init__(self, shop: Shop, chance: Random, large_rows: int, altering_share: float) -> None:
        self._shop = shop
        self._large_rows = large_rows
        self._altering_share = altering_share
        self._product = product_of(shop)
        self._seeds = [chance.random(), chance.random()]
        self._stop = threading.Event()
        self.committed: Counter[str] = Counter()

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Change the tables for the time of a ``with`` block."""
        with ThreadPoolExecutor(len(self._seeds)) as pool:
            clients = [
                pool.submit(self._change_forever, Random(seed), number)
                for number, seed in enumerate(self._seeds)
            ]
            try:
                yield
            finally:
                self._stop.set()
            for client in clients:
                client.result()

    def _change_forever(self, choose: Random, client: int) -> None:
        number = client
        shop = self._shop
        while not self._stop.is_set():
            with (
                contextlib.suppress(*_LOST),
                shop.server.connect(shop.database) as connection,
                connection.cursor() as cursor,
            ):
                # unlike ALTER TABLE, TRUNCATE is not atomic in MariaDB: a kill may prevent its
                # entry in the log
                cursor.execute("TRUNCATE TABLE emptied")
                while not self._stop.wait(choose.random() * PAUSE_S):
                    self._execute(cursor, choose, number)
                    number += len(self._seeds)
            self._stop.wait(0.2)

    def _execute(self, cursor: Any, choose: Random, number: int) -> None:
        """Execute a transaction; only the first client alters a table."""
        altered: dict[str, str] = {}
        if number % len(self._seeds) == 0:
            cursor.execute(self._product.altered)
            altered = dict(cursor.fetchall())
        end = choose.choices(["COMMIT", "ROLLBACK"], [9, 1])[0]
        statements = random_changes.transaction(
            self._product,
            choose,
            number,
            altered,
            large_rows=self._large_rows,
            altering_share=self._altering_share,
        )
        try:
            for statement in ("BEGIN", *statements, end):
                cursor.execute(statement)
            self.committed[end] += 1
        except _VIOLATED:
            cursor.execute("ROLLBACK")


class KilledRuns:
    """The runs of a shop's pipeline.

    Args:
        shop: The shop.
        chance: For the moments of the kills.
        longest_s: The longest time between two kills, seconds.
        early_share: The share of the runs whose kills begin at any time of their start.
    """

    def __init__(self, shop: Shop, chance: Random, *, longest_s: float, early_share: float) -> None:
        self._shop = shop
        self._chance = chance
        self._longest_s = longest_s
        self._early_share = early_share
        config = json.loads(shop.file.read_bytes())
        config["options"] |= {"trigger": "continuous", "interval": "1 second"}
        self._continuous = shop.folder / "continuous.yaml"
        self._continuous.write_text(json.dumps(config))

    def kill(self, kinds: Sequence[str]) -> None:
        """Start a run, kill something at random times, and end the run.

        Args:
            kinds: What is killed; all but the last are of :data:`SURVIVED`.

        Raises:
            RuntimeError: The run ended by itself.
        """
        with tempfile.TemporaryFile() as errors:
            run = self._start(self._continuous, errors)
            try:
                self._wait_for_batch(run, errors)
                for kind in kinds:
                    time.sleep(self._chance.uniform(0, self._longest_s))
                    if run.poll() is not None:
                        raise RuntimeError(f"the run ended by itself: {_text(errors)}")
                    self._kill(run, kind)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(run.pid, signal.SIGKILL)
                run.wait()

    def _kill(self, run: "subprocess.Popen[bytes]", kind: str) -> None:
        match kind:
            case "database":
                self._shop.server.kill()
                time.sleep(self._chance.uniform(0, 2))
                self._shop.server.start()
            case "run":
                os.killpg(run.pid, signal.SIGKILL)
            case _:
                is_engine = kind == "engine"
                pids = [pid for pid in descendants(run.pid) if _is_engine(pid) is is_engine]
                for pid in pids[-1:]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                if kind == "jvm":  # the engine and Python continue for a moment
                    time.sleep(self._chance.uniform(0, 2))

    def finish(self) -> None:
        """Apply everything that is committed by now.

        Raises:
            RuntimeError: The run failed.
        """
        with tempfile.TemporaryFile() as errors:
            if self._start(self._shop.file, errors).wait():
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
        is_early = self._chance.random() < self._early_share
        longest_s = self._chance.uniform(1, EARLY_S) if is_early else START_S
        deadline = time.monotonic() + longest_s
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


def drawn_kills(chance: Random, count: int) -> list[list[str]]:
    """Return what is killed in each of some runs: at most three times, the last time the run."""
    runs: list[list[str]] = []
    while (left := count - sum(map(len, runs))) > 0:
        survived = chance.choices(SURVIVED, k=min(chance.randrange(3), left - 1))
        runs.append([*survived, chance.choice(DEADLY)])
    return runs


def killed_rounds(
    shop: Shop,
    chance: Random,
    runs: Sequence[Sequence[str]],
    *,
    longest_s: float,
    early_share: float = 0.5,
    large_rows: int = LARGE_ROWS,
    altering_share: float = random_changes.ALTERING_SHARE,
    show: Callable[[str], None] = lambda _: None,
    is_over: Callable[[], bool] = lambda: False,
) -> int:
    """Kill runs of a shop while its tables change, apply the rest, and return the number of kills.

    Args:
        shop: The shop.
        chance: For the moments of the kills, and the changes.
        runs: What is killed in each run, as of :func:`drawn_kills`.
        longest_s, early_share: As for :class:`KilledRuns`.
        large_rows, altering_share: As for :class:`Clients`.
        show: Shows what is killed.
        is_over: Returns whether the time of the kills is over.

    Raises:
        RuntimeError: A run failed without being killed.
    """
    killed_runs = KilledRuns(shop, chance, longest_s=longest_s, early_share=early_share)
    clients = Clients(shop, chance, large_rows, altering_share)
    kill_count = 0
    with clients.changing():
        for kinds in runs:
            if is_over():
                break
            show(f"kill: {', '.join(kinds)}")
            killed_runs.kill(kinds)
            kill_count += len(kinds)
    show(f"the rest of {clients.committed['COMMIT']} transactions")
    killed_runs.finish()
    return kill_count


def product_of(shop: Shop) -> random_changes.Product:
    """Return the SQL of a shop's database."""
    if isinstance(shop, test_capture.Shop):
        return random_changes.POSTGRES
    return random_changes.MARIADB


def differences(
    spark: SparkSession, shop: Shop, captured: Sequence[str] | None = None
) -> list[str]:
    """Return how the tables of a lake differ from those of the database; entries of quarantine.

    Args:
        spark: The session.
        shop: The shop.
        captured: The tables to compare beside ``events``; by default all.
    """
    schema = "public" if isinstance(shop, test_capture.Shop) else None

    def read(table: str) -> DataFrame:
        return lake_tables.table_of(spark, shop.lake, TableId(shop.database, schema, table))

    with shop.server.connect(shop.database) as connection, connection.cursor() as cursor:
        cursor.execute(product_of(shop).altered)
        altered = {"altered": tuple(name for name, _ in cursor.fetchall())}
        cursor.execute("SELECT n FROM events")
        events = Counter(cursor.fetchall())
    if isinstance(shop, test_capture.Shop):
        columns = workloads.columns_of(workloads.POSTGRES_KINDS) | altered
        tables = workloads.postgres_rows(shop.server, shop.database, columns)
    else:
        columns = workloads.columns_of(workloads.MARIADB_KINDS) | altered
        tables = workloads.mariadb_rows(shop.server, shop.database, columns)
    if captured is not None:
        tables = {name: rows for name, rows in tables.items() if name in captured}
    found = [
        f"{column}: {len(keys)} rows, such as {sorted(keys)[:5]}"
        for column, keys in capture_lines.differences_of(read, tables, columns).items()
    ]
    in_lake = Counter(tuple(row) for row in read("events").select("n").collect())
    if in_lake != events:
        lost, repeated = (events - in_lake).total(), (in_lake - events).total()
        found.append(f"events: {lost} rows lost, {repeated} repeated")
    tables_of_lake = open_lake(spark, shop.lake, Path(shop.lake).name)
    if tables_of_lake.exists(quarantine.NAME):
        reasons = tables_of_lake.read(quarantine.NAME).groupBy("table_id", "code", "reason").count()
        found += [f"quarantined: {tuple(row)}" for row in reasons.collect()]
    return found
