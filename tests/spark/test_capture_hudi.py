# SPDX-License-Identifier: Apache-2.0
"""The job of CDL's sample: PostgreSQL, captured, through Kafka, into the Hudi table ``ct_pg2hudi``.

Collected where Spark is 3.5 (`make test-hudi`), like :mod:`test_hudi`. A pipeline into topics keeps
its state in a Delta table, so the default environment sends the changes.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

import lake_tables
import pytest
from capture_lines import captured
from kafka_topics import Topics
from postgres_server import PostgresServer
from pyspark.sql import SparkSession

from changelane.pipeline.config import load
from changelane.schema import TableId
from changelane.spark.run.tables import run

PYTHON: Final = Path(__file__).parents[2] / ".venv" / "bin" / "python"
"""The default environment, which has PySpark 4."""
SEND: Final = """
import sys
from pathlib import Path
from changelane.pipeline.config import load
from changelane.spark import session
from changelane.spark.sinks.delivery import run_to_topics
spark = session("send", master="local[2]", lakes=("delta", "kafka"))
spark.sparkContext.setLogLevel("OFF")
for file in sys.argv[1:]:
    assert not run_to_topics(spark, load(Path(file))).quarantined
spark.stop()
"""
FORMATS: Final = ("cdl-json", "cdl-debezium-json")
COLUMNS: Final = ("id", "count1", "time1", "decimalNum")
CREATE: Final = (
    (
        "CREATE TABLE ct_pg2hudi (id int PRIMARY KEY, count1 bigint, time1 timestamp, "
        '"decimalNum" numeric(20,4))'
    ),
    "ALTER TABLE ct_pg2hudi REPLICA IDENTITY FULL",
)
FIRST: Final = (
    "INSERT INTO ct_pg2hudi VALUES (1, 1, '2024-02-04 12:00:00.5', 1.5), (2, NULL, NULL, NULL)",
    "INSERT INTO ct_pg2hudi SELECT i, i, now()::timestamp, i / 7.0 FROM generate_series(3, 40) i",
)
CHANGES: Final = (
    "INSERT INTO ct_pg2hudi VALUES (41, 9223372036854775807, '9999-12-31', -0.0001)",
    "UPDATE ct_pg2hudi SET count1 = count1 + 100 WHERE id < 10",
    "BEGIN",
    'UPDATE ct_pg2hudi SET "decimalNum" = NULL, time1 = NULL WHERE id BETWEEN 5 AND 20',
    "DELETE FROM ct_pg2hudi WHERE id IN (7, 8)",
    "INSERT INTO ct_pg2hudi VALUES (8, 8, NULL, 8)",
    "COMMIT",
    "UPDATE ct_pg2hudi SET id = id + 100 WHERE id > 35",
    "DELETE FROM ct_pg2hudi WHERE id = 1",
)


class Sent(NamedTuple):
    """A capture log, the topics with its changes by format, and the rows of the database."""

    log: Path
    topics: dict[str, str]
    database: str
    rows: list[tuple[str | None, ...]]


@pytest.fixture(scope="module")
def sent(
    broker: str, postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Sent:
    folder = tmp_path_factory.mktemp("sent")
    with (
        postgres_server.new_database("cdl") as database,
        postgres_server.connect(database) as connection,
    ):
        statements = CREATE, FIRST, CHANGES, connection.execute
        captured(
            postgres_server, folder, database, statements, type="postgres", tables=["public.*"]
        )
        columns = ", ".join(f'"{column}"::text' for column in COLUMNS)
        rows = connection.execute(f"SELECT {columns} FROM ct_pg2hudi").fetchall()
    client = Topics(broker)
    topics = {name: client.create(client.name("ct_pg2hudi")) for name in FORMATS}
    for name, topic in topics.items():
        sink = kafka(broker, name) | {"profile": "cdl", "profile_options": {"topic": topic}}
        sink |= {"on_loss": "warn", "checkpoint": f"sent-{name}"}
        source = {"type": "segments", "path": str(folder / "log")}
        pipeline = {"name": name, "source": source, "sink": sink}
        (folder / f"{name}.yaml").write_text(json.dumps(pipeline))
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_"))
    }
    files = [folder / f"{name}.yaml" for name in FORMATS]
    subprocess.run(
        [PYTHON, "-c", SEND, *files], env=environment | {"SPARK_LOCAL_IP": "127.0.0.1"}, check=True
    )
    return Sent(folder / "log", topics, database, rows)


def kafka(broker: str, name: str) -> dict[str, Any]:
    return {"type": "kafka", "bootstrap_servers": broker, "format": name}


@pytest.mark.parametrize("name", FORMATS)
def test_a_postgresql_becomes_the_hudi_table_of_the_sample(
    spark: SparkSession, broker: str, sent: Sent, tmp_path: Path, name: str
) -> None:
    topic = sent.topics[name]
    payload = json.loads(Topics(broker).read(topic)[0].value or b"")["payload"]
    assert "ct_pg2hudi" in {payload.get("TABLE_NAME"), payload.get("source", {}).get("table")}
    database = sent.database if name == "cdl-debezium-json" else None
    check_table(spark, sent, kafka(broker, name) | {"topics": [topic]}, database, tmp_path)


def test_a_capture_log_becomes_a_hudi_table(
    spark: SparkSession, sent: Sent, tmp_path: Path
) -> None:
    source = {"type": "segments", "path": str(sent.log)}
    check_table(spark, sent, source, sent.database, tmp_path)


def check_table(
    spark: SparkSession, sent: Sent, source: dict[str, Any], database: str | None, folder: Path
) -> None:
    """Write a source into a Hudi table, and compare it with the one of the database."""
    file = folder / "read.yaml"
    sink = {"type": "hudi", "path": "hudi"}
    file.write_text(json.dumps({"name": "read", "source": source, "sink": sink}))
    assert not run(spark, load(file)).quarantined
    table_id = TableId(database, "public", "ct_pg2hudi")
    table = lake_tables.table_of(spark, str(folder / "hudi"), table_id)
    rows = table.selectExpr(*(f"CAST(`{column}` AS STRING)" for column in COLUMNS)).collect()
    assert sorted(map(normal, rows)) == sorted(map(normal, sent.rows))


def normal(row: tuple[str | None, ...]) -> tuple[str, ...]:
    """Return a row without the zeros that a number or a time may have at its end."""
    return tuple(
        "NULL" if text is None else text.rstrip("0").rstrip(".") if "." in text else text
        for text in row
    )
