# SPDX-License-Identifier: Apache-2.0
"""The tables of two pipelines against each other: of Delta and of Iceberg, one of which lags."""

import decimal
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from click.testing import CliRunner
from kafka_topics import Topics
from pyspark.sql import SparkSession

from changelane.cli import main
from changelane.codec import get_codec
from changelane.event import DataChange, Key, Op
from changelane.message import Message
from changelane.pipeline.config import load
from changelane.position import MySqlPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import name_of
from changelane.spark.rows.schema import table_id_text
from changelane.spark.run.tables import run
from changelane.spark.verify import lake_comparison
from changelane.types import parse_type

TABLE: Final = TableId("shop", None, "orders")
TYPES: Final = {
    "id": "int64", "s": "string", "n": "decimal(10,2)", "i": "int16", "f": "float64",
    "ts": "timestamp(6)", "a": "array<string>",
}  # fmt: skip
SCHEMA: Final = TableSchema(tuple(Column(n, parse_type(kind)) for n, kind in TYPES.items()))


def event(position: int, key: int, op: Op = Op.CREATE, **values: Any) -> bytes:
    row = {
        "s": f"x {key}",
        "n": decimal.Decimal("1.50"),
        "i": 7,
        "f": -0.0,
        "ts": None,
        "a": ["a,b", None, ""],
        **values,
    }
    image = {"id": key, **row}
    change = DataChange(
        op=op,
        table=TABLE,
        key=Key(("id",)),
        before={"id": key} if op is Op.DELETE else None,
        after=None if op is Op.DELETE else image,
        schema=SCHEMA,
        position=MySqlPosition("binlog.000001", position),
    )
    (message,) = get_codec("native-json").encode(change).messages
    assert message.value is not None
    return message.value


def pipeline(folder: Path, kind: str, **options: Any) -> Path:
    file = folder / f"{kind}.yaml"
    config = {
        "name": kind,
        "source": {"type": "files", "path": str(folder / "in" / kind), "format": "native-json"},
        "sink": {"type": kind, "path": str(folder / kind)},
        "options": {"keys": {"orders": ["id"]}, **options},
    }
    file.write_bytes(msgspec.json.encode(config))
    (folder / "in" / kind).mkdir(parents=True, exist_ok=True)
    return file


def test_two_lakes_differ_in_the_planted_rows_only(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_comparison, "_SETTLE_S", 0)
    events = [event(number, number) for number in range(1, 41)]
    removed = [event(100, 3, Op.DELETE)]
    late = [event(200, 50), event(201, 4, Op.UPDATE, s="late"), event(202, 5, Op.DELETE)]
    files = {"delta": [*events, *removed, *late], "iceberg": [*events, *removed]}
    for kind, lines in files.items():
        file = pipeline(tmp_path, kind)
        (tmp_path / "in" / kind / "1.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        run(spark, load(file))
    delta, iceberg = str(tmp_path / "delta.yaml"), str(tmp_path / "iceberg.yaml")
    arguments = ["verify", delta, "--against", iceberg, "--chunk-rows", "10"]
    report_file = tmp_path / "report.json"

    result = CliRunner().invoke(main, [*arguments, "--json", str(report_file)])
    assert result.exit_code == 0, result.output
    (equal,) = msgspec.json.decode(report_file.read_bytes())["tables"]
    assert equal["outcome"] == "not proven"
    assert {row["id"] for row in equal["unproven_keys"]} == {"50", "4", "5"}, "of late events"
    assert len(equal["chunks"]) == 4
    assert equal["unproven_columns"] == {}

    other = lake_of(spark, load(iceberg)).sql(name_of(table_id_text(TABLE)))
    spark.sql(f"UPDATE {other} SET s = 'x 10 ' WHERE id = 10")
    spark.sql(f"UPDATE {other} SET f = 0.0D, a = array('a', 'b', '') WHERE id = 11")
    spark.sql(f"DELETE FROM {other} WHERE id = 12")
    result = CliRunner().invoke(main, [*arguments, "--json", str(report_file)])
    assert result.exit_code == 1, result.output
    (different,) = msgspec.json.decode(report_file.read_bytes())["tables"]
    assert {
        (row["key"]["id"], row["kind"], *row["columns"]) for row in different["differences"]
    } == {("10", "columns", "s"), ("11", "columns", "f", "a"), ("12", "missing")}


def test_a_table_is_compared_with_its_topic(
    spark: SparkSession, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_comparison, "_SETTLE_S", 0)
    topics = Topics(broker)
    topic = topics.create(topics.name("orders"))
    file = pipeline(tmp_path, "delta")
    config = msgspec.json.decode(file.read_bytes())
    source = {"type": "kafka", "bootstrap_servers": broker, "topics": topic}
    config["source"] = {**source, "format": "native-json"}
    file.write_bytes(msgspec.json.encode(config))
    topics.send(topic, [Message(event(number, number)) for number in range(1, 21)])
    topics.send(topic, [Message(event(30, 3, Op.DELETE))])
    run(spark, load(file))
    report_file = tmp_path / "report.json"
    arguments = ["verify", str(file), "--replay", str(tmp_path / "replayed")]
    arguments += ["--json", str(report_file)]

    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    (equal,) = msgspec.json.decode(report_file.read_bytes())["tables"]
    assert (equal["outcome"], equal["row_count"]) == ("equal", 19), equal

    table = lake_of(spark, load(file)).sql(name_of(table_id_text(TABLE)))
    spark.sql(f"DELETE FROM {table} WHERE id = 7")
    spark.sql(f"UPDATE {table} SET s = 'other' WHERE id = 8")
    topics.send(topic, [Message(event(40, 40))])
    run(spark, load(file))
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1, result.output
    assert "replayed 1 events" in result.output, "it continued after the first messages"
    (different,) = msgspec.json.decode(report_file.read_bytes())["tables"]
    assert {
        (row["key"]["id"], row["kind"], *row["columns"]) for row in different["differences"]
    } == {("7", "missing"), ("8", "columns", "s")}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--repair",), "--repair needs a database: leave out --replay"),
        (("--against", "other.yaml"), "use one of --against and --replay"),
    ],
)
def test_a_replay_excludes_other_options(
    tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    file = pipeline(tmp_path, "delta")
    (tmp_path / "other.yaml").write_bytes(file.read_bytes())
    command = ["verify", str(file), "--replay", str(tmp_path / "replayed")]
    others = [str(tmp_path / part) if part.endswith(".yaml") else part for part in arguments]
    result = CliRunner().invoke(main, [*command, *others])
    assert result.exit_code == 2
    assert reason in result.output


def test_a_repair_needs_a_database(tmp_path: Path) -> None:
    file = str(pipeline(tmp_path, "delta"))
    result = CliRunner().invoke(main, ["verify", file, "--against", file, "--repair"])
    assert result.exit_code == 2
    assert "--repair needs a database" in result.output
