# SPDX-License-Identifier: Apache-2.0
"""A database that the driver captures for a run on a cluster: one owner, and readers on workers."""

import json
import os
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


def test_a_capture_beside_a_cluster(
    spark: SparkSession,
    cluster: Cluster,
    postgres_server: PostgresServer,
    tmp_path: Path,
) -> None:
    """The workers read the first load with engines of their own; the driver captures changes."""
    packed = tmp_path / "changelane.zip"
    archive.write(packed, extras=["changelane[capture]"])
    with postgres_server.new_database("shop") as database:
        file = tmp_path / "shop.yaml"
        file.write_text(json.dumps(pipeline(postgres_server, database, cluster, packed)))
        environment = os.environ | {"PGPASSWORD_OF_TEST": postgres_server.password}
        command = [sys.executable, "-m", "changelane", "run", str(file), "--master", cluster.master]
        try:
            with postgres_server.connect(database) as connection:
                connection.execute(TABLES)
            for statements in ("", CHANGES):
                with postgres_server.connect(database) as connection:
                    connection.execute(statements)
                    expected = connection.execute(ROWS.format("public.orders")).fetchall()
                done = subprocess.run(
                    command,
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=400,
                )
                assert done.returncode == 0, done.stderr[-3000:]
                table = f"delta.`{tmp_path}/lake/tables/{database}.public.orders`"
                rows = spark.sql(ROWS.format(table)).collect()
                assert [tuple(row) for row in rows] == expected
        finally:
            with postgres_server.connect() as connection:
                connection.execute(
                    "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                    "WHERE database = %s",
                    [database],
                )


def pipeline(
    server: PostgresServer, database: str, cluster: Cluster, packed: Path
) -> dict[str, Any]:
    folder = packed.parent
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
