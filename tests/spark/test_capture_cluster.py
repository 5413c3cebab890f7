# SPDX-License-Identifier: Apache-2.0
"""A database that the driver captures for a run on a cluster: one owner, and readers on workers."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import spark_cluster
from postgres_server import PostgresServer
from pyspark.sql import SparkSession
from spark_cluster import Cluster
from spark_settings import CHEAP
from waiting import wait_until

from changelane.spark.runtime import archive

TABLES: Final = """
CREATE TABLE public.orders (id bigint PRIMARY KEY, total numeric(12, 2), note text);
INSERT INTO public.orders SELECT i, i / 4.0, repeat('n', i % 50) FROM generate_series(1, 3000) i;
"""
CHANGES: Final = """
UPDATE public.orders SET total = -total WHERE id % 3 = 0;
UPDATE public.orders SET id = -id WHERE id % 100 = 1;
DELETE FROM public.orders WHERE id % 7 = 0;
INSERT INTO public.orders VALUES (5000, NULL, NULL);
"""
ROWS: Final = "SELECT id, total, note FROM {} ORDER BY id"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, machine_locale: None) -> Iterator[Cluster]:
    del machine_locale
    with spark_cluster.cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of the executors."""
    path = tmp_path_factory.mktemp("packed") / "changelane.zip"
    archive.write(path, extras=["changelane[capture]"])
    return path


class Shop:
    """A captured database, and runs of its pipeline on a cluster."""

    def __init__(
        self, server: PostgresServer, database: str, cluster: Cluster, packed: Path, folder: Path
    ) -> None:
        self.server = server
        self.database = database
        self.folder = folder
        self._cluster = cluster
        self._packed = packed
        self._environment = os.environ | {"PGPASSWORD_OF_TEST": server.password}

    def start(self, name: str, **options: Any) -> "subprocess.Popen[str]":
        """Start a run, whose messages are in the file of its name."""
        content = pipeline(self.server, self.database, self._cluster, self._packed, self.folder)
        content["source"]["engine_folder"] = str(self.folder / f"engine-{name}")
        content["options"]["spark_options"] |= {"spark.cores.max": "1"}
        content["options"] |= options
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(content))
        words = ["run", str(file), "--master", self._cluster.master]
        with self.messages(name).open("wb") as messages:
            return subprocess.Popen(
                [sys.executable, "-m", "changelane", *words],
                env=self._environment,
                stdout=subprocess.DEVNULL,
                stderr=messages,
                start_new_session=True,
                text=True,
            )

    def messages(self, name: str) -> Path:
        return self.folder / f"{name}.txt"

    def run(self, name: str) -> None:
        """Apply everything that is committed by now."""
        code = self.start(name).wait(timeout=400)
        assert code == 0, self.messages(name).read_text()[-3000:]

    def execute(self, statements: str) -> None:
        with self.server.connect(self.database) as connection:
            connection.execute(statements)

    def check(self, spark: SparkSession) -> None:
        """Compare the table with the database."""
        with self.server.connect(self.database) as connection:
            expected = connection.execute(ROWS.format("public.orders")).fetchall()
        table = f"delta.`{self.folder}/lake/tables/{self.database}.public.orders`"
        assert [tuple(row) for row in spark.sql(ROWS.format(table)).collect()] == expected


@pytest.fixture
def shop(
    postgres_server: PostgresServer, cluster: Cluster, packed: Path, tmp_path: Path
) -> Iterator[Shop]:
    with postgres_server.new_database("shop") as database:
        yield Shop(postgres_server, database, cluster, packed, tmp_path)
        with postgres_server.connect() as connection:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                "WHERE database = %s",
                [database],
            )


def test_a_capture_beside_a_cluster(spark: SparkSession, shop: Shop) -> None:
    """The workers read the first load with engines of their own; the driver captures changes."""
    shop.execute(TABLES)
    shop.run("first")
    shop.check(spark)
    shop.execute(CHANGES)
    shop.run("second")
    shop.check(spark)


def test_a_run_that_another_one_replaced_is_fenced(spark: SparkSession, shop: Shop) -> None:
    """A machine that hangs comes back when another one has its work."""
    shop.execute(TABLES)
    hanging = shop.start("hanging", trigger="continuous", interval="1 second")
    try:
        messages = shop.messages("hanging")
        wait_until(lambda: '"batch"' in messages.read_text(), 200, [messages])
        os.killpg(hanging.pid, signal.SIGSTOP)
        shop.execute(CHANGES)
        with shop.server.connect() as connection:  # the server finds that the client is gone
            connection.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
                "WHERE database = %s AND active_pid IS NOT NULL",
                [shop.database],
            )
        shop.run("other")
        shop.check(spark)
        shop.execute("DELETE FROM orders WHERE id % 2 = 0")
        os.killpg(hanging.pid, signal.SIGCONT)
        # it ends at what it did next: a batch, or the files of the last one
        assert hanging.wait(timeout=200) == 1, messages.read_text()[-3000:]
        assert messages.read_text().count("\nError: ") == 1
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(hanging.pid, signal.SIGKILL)
        hanging.wait()
    shop.run("last")
    shop.check(spark)


def pipeline(
    server: PostgresServer, database: str, cluster: Cluster, packed: Path, folder: Path
) -> dict[str, Any]:
    return {
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
            "snapshot": "spark",
            "snapshot_readers": 2,
        },
        "sink": {"type": "delta", "path": str(folder / "lake")},
        "options": {
            "executor_archive": str(packed),
            "maintenance": "off",
            "spark_options": CHEAP
            | {
                "spark.pyspark.python": cluster.python,
                "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            },
        },
    }
