# SPDX-License-Identifier: Apache-2.0
"""Real databases into Kafka in each producer's format, and from there into tables.

The capture is embedded; a second pipeline decodes what the first one sent. Texts of the tables are
compared with those of the database, each made by SQL of its own engine. What a format cannot carry
is in the report of the delivery, and only that may differ.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pytest
from capture_lines import Captured, differences, mariadb, postgres
from kafka_topics import Topics
from line_workloads import KEYS
from pyspark.sql import SparkSession

from changelane.formats.contract.losses import loss_of
from changelane.pipeline.config import Pipeline, load
from changelane.pipeline.kafka_source import KafkaSource
from changelane.spark.run.tables import run
from changelane.spark.sinks.delivery import run_to_topics

__all__ = ["mariadb", "postgres"]


class Line(NamedTuple):
    """A format with its profile.

    Attributes:
        lost: Column or row -> the loss of the delivery's report that explains its difference.
        transforms: The transforms of the second pipeline.
        first_load: A field and its value in the messages of the first load, and in no others.
        first_load_share: 0 if the producer never writes this value.
    """

    format: str
    profile: str
    lost: Mapping[str, str] = MappingProxyType({})
    transforms: tuple[dict[str, Any], ...] = ()
    first_load: tuple[str, str] | None = None
    first_load_share: int = 1


NO_TRUNCATE: Final = {"emptied.*": "event:truncate"}
MARIADB_LINES: Final = (
    Line("debezium-json", "debezium", first_load=("op", "r")),
    # DTS has one number for TEXT and BLOB, so that NULL has no type
    Line(
        "dts-avro",
        "dts",
        {"kinds.bits": "value:bits"},
        ({"type": "cast", "tables": ["*.kinds"], "columns": {"raw": "bytes", "image": "bytes"}},),
    ),
    Line("shareplex-json", "dts", NO_TRUNCATE),
    Line("canal-json", "canal", first_load=("type", "INIT")),
    Line("cdl-json", "cdl", NO_TRUNCATE),
    Line("lindorm-json", "lindorm", NO_TRUNCATE, first_load=("op", "r"), first_load_share=0),
    Line(
        "datahub-blob",
        "datahub",
        dict.fromkeys(("kinds.moment", "kinds.instant"), "value:instant"),
        first_load=("sequenceId", "-1"),
    ),
    Line("arcion-json", "arcion", NO_TRUNCATE, first_load=("op", "r")),
)
POSTGRES_LINES: Final = (
    Line("debezium-json", "debezium", first_load=("op", "r")),
    Line("canal-json", "canal", {"kinds.ratio": "value:float", "kinds.body": "unavailable"}),
    Line("cdl-json", "cdl", NO_TRUNCATE | {"kinds.body": "key_change"}),
    Line("cdl-debezium-json", "cdl", NO_TRUNCATE | {"kinds.body": "key_change"}),
    Line(
        "arcion-json",
        "arcion",
        NO_TRUNCATE | {"kinds.body": "unavailable"},
        first_load=("op", "r"),
    ),
)


def pipelines(topics: Topics, source: Captured, line: Line, folder: Path) -> tuple[Path, Path]:
    """Write the pipeline into topics and the one into tables; create the topics."""
    options: dict[str, Any] = {}
    match line.profile:
        case "debezium":
            names = [f"dbz.{source.schema or source.database}.{table}" for table in source.tables]
            names.append("dbz")
        case "arcion":
            parts = [part for part in (source.database, source.schema) if part]
            names = ["_".join((*parts, table)) for table in source.tables]
        case "datahub":
            options = {"project": "line", "topic": topics.name("blob").replace(".", "_")}
            names = [".".join(options.values())]
        case profile:
            name = re.sub(r"[^a-z0-9]", "_", topics.name(line.format))
            options = {"topic": name}
            if profile == "dts":
                options["policy"] = "partition_0"
            names = [name]
    # a moved key and a truncate have no order across partitions without positions
    partitions = 2 if line.profile in {"cdl", "lindorm"} else 1
    for name in {*names} - topics.names():
        topics.create(name, partitions)
    told = {"type": "kafka", "bootstrap_servers": topics.servers, "format": line.format}
    sink = {**told, "profile": line.profile, "profile_options": options, "on_loss": "warn"}
    sending = {
        "name": "send",
        "source": {"type": "segments", "path": str(source.log)},
        "sink": {**sink, "checkpoint": "sent"},
    }
    keys = {table: list(source.columns[table][:count]) for table, count in KEYS.items()}
    reading = {
        "name": "read",
        "source": {**told, "topics": names},
        "transforms": list(line.transforms),
        "sink": {"type": "delta", "path": "lake"},
        "options": {"keys": keys} if line.format == "shareplex-json" else {},
    }
    files = folder / "send.yaml", folder / "read.yaml"
    for file, content in zip(files, (sending, reading), strict=True):
        file.write_text(json.dumps(content))
    return files


def check(spark: SparkSession, broker: str, source: Captured, line: Line, folder: Path) -> None:
    """Send a capture log in a format, write the messages into tables, and compare these."""
    send, read = pipelines(Topics(broker), source, line, folder)
    sent = run_to_topics(spark, load(send))
    assert not sent.quarantined
    check_first_load(Topics(broker), load(read), source, line)
    report = run(spark, load(read))
    assert not report.quarantined
    found = differences(spark, folder / "lake", source)
    assert found.keys() == line.lost.keys(), found
    losses = {loss_of(loss)[0] for batch in sent.batches for loss in batch.losses}
    assert {*line.lost.values()} <= losses
    if "emptied.*" in found:
        assert found["emptied.*"] == {"1"}, "the row before the truncate"


def check_first_load(topics: Topics, reading: Pipeline, source: Captured, line: Line) -> None:
    """Count the messages of the first load by the value that its producer writes."""
    if line.first_load is None:
        return
    assert isinstance(reading.source, KafkaSource)
    field, value = line.first_load
    count = 0
    for name in reading.source.topics:
        for message in topics.read(name):
            content = json.loads(message.value or b"{}")
            count += content.get("payload", content).get(field) == value
    assert count == source.first_rows * line.first_load_share


@pytest.mark.parametrize("line", MARIADB_LINES, ids=lambda line: line.format)
def test_mariadb_passes_through_each_format(
    spark: SparkSession, broker: str, mariadb: Captured, line: Line, tmp_path: Path
) -> None:
    check(spark, broker, mariadb, line, tmp_path)


@pytest.mark.parametrize("line", POSTGRES_LINES, ids=lambda line: line.format)
def test_postgresql_passes_through_each_format(
    spark: SparkSession, broker: str, postgres: Captured, line: Line, tmp_path: Path
) -> None:
    check(spark, broker, postgres, line, tmp_path)
