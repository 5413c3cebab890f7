"""``changelane check``: it tells what a run would do and what is wrong, and writes nothing."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import lake_tables
import pytest
from click.testing import CliRunner, Result
from kafka_topics import Topics, spread
from pyspark.sql import SparkSession
from spark_settings import lakes
from test_keeping import ALL

from changelane import Message
from changelane.cli import main
from changelane.event import ChangeEvent
from changelane.pipeline.config import load
from changelane.pipeline.config_checks import Finding
from changelane.spark.run.tables import run

FIELDS = [{"name": "id", "type": "int64"}]


@pytest.fixture
def topics(broker: str) -> Topics:
    return Topics(broker)


def check(file: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["check", str(file), *more])


def told(file: Path, code: int) -> dict[str, list[Finding]]:
    """Return what is found, by what it is about."""
    done = check(file, "--output", "json")
    assert done.exit_code == code, done.output
    answer = json.loads(done.stdout)
    assert answer["exit_code"] == code
    found: dict[str, list[Finding]] = {}
    for one in answer["findings"]:
        found.setdefault(one["about"], []).append(Finding(**one))
    return found


def states(found: dict[str, list[Finding]]) -> set[str]:
    return {one.state for some in found.values() for one in some}


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    """Return all files and folders with their sizes and times."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
    }


def values(events: Iterable[ChangeEvent]) -> list[bytes]:
    return [m.value for event in events for m in lake_tables.CODEC.encode(event).messages]


def written(folder: Path, source: dict[str, Any], sink: dict[str, Any], **more: Any) -> Path:
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps({"name": "shop", "source": source, "sink": sink} | more))
    return file


def change(table: str, number: int, **more: Any) -> bytes:
    event = {"op": "c", "table": {"database": "shop", "name": table}, "key": ["id"]}
    event |= {"after": {"id": number}, "schema": FIELDS}
    event |= {"position": {"domain": "sequence", "value": number}} | more
    return json.dumps(event).encode()


def lines(folder: Path, told_: Sequence[bytes], name: str = "input/a.jsonl") -> None:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"".join(one + b"\n" for one in told_))


def files(**more: Any) -> dict[str, Any]:
    return {"type": "files", "path": "input", "format": "native-json"} | more


def test_values_that_delta_does_not_take_for_a_property_are_told_and_not_quoted(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert spark.sparkContext.appName
    lines(tmp_path, [change("orders", 1)])
    options = {
        "properties": {"delta.appendOnly": "true", "mine": "hunter2"},
        "tables": {"orders": {"properties": {"delta.logRetentionDuration": "hunter2"}}},
    }
    file = written(tmp_path, files(), {"type": "delta", "path": "lake"}, options=options)
    found = told(file, 2)
    (one,) = found["options.tables.orders.properties"]
    assert (one.state, one.text) == (
        "problem",
        "Delta rejects the value of delta.logRetentionDuration",
    )
    assert "options.properties" not in found


def test_files_into_tables_are_told_line_by_line_and_nothing_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert spark.sparkContext.appName
    good = [change("orders", n) for n in range(98)]
    other = change("log", 1, key=None)
    lines(tmp_path, [*good, b"{broken", other, change("late", 1)])
    lines(
        tmp_path,
        [change("orders", 1, position={"domain": "mysql", "file": "b.1", "pos": 4})],
        "input/b.jsonl",
    )
    file = written(tmp_path, files(), {"type": "delta", "path": "lake"})
    before = everything(tmp_path)
    done = check(file)
    assert done.exit_code == 0, done.output
    lines_ = done.stdout.splitlines()
    for expected in (
        "ok       configuration: pipeline shop: native-json of files of ",
        "ok       source: 2 files in ",
        "ok       checkpoint: a run would create ",
        "ok       sink: 0 delta tables are in ",
        "warning  messages of a.jsonl: 99 of 100 first messages read as native-json; 1 would be",
        "ok       messages of b.jsonl: all 1 first messages read as native-json",
        "ok       table shop.orders: 99 events, key (id), 1 columns, mode upsert; a run would",
        "warning  table shop.log: 1 events have no key and would be quarantined as `no_key`: set ",
        "warning  table shop.orders: its order is by positions in MySQL's binary log, and its ",
        "ok       order: the order of events is by numbers of a sequence, positions in MySQL's ",
    ):
        assert any(line.startswith(expected) for line in lines_), (expected, done.stdout)
    assert len(lines_) == 11, done.stdout
    assert "quarantined: 1 malformed_json (" in done.stdout
    assert everything(tmp_path) == before

    # what a run then does; a table that is there is seen, and so is the checkpoint
    run(spark, load(file))
    before = everything(tmp_path)
    found = told(file, 0)
    assert found["table shop.orders"][0].text.endswith("the table exists")
    assert found["checkpoint"][0].text.startswith("a run continues at the offsets of ")
    assert everything(tmp_path) == before

    file = written(tmp_path, files(), {"type": "delta", "path": "lake", "location": "raw/{table}"})
    assert told(file, 2)["checkpoint"][0].text.startswith("sink.location changed since the last")
    file = written(tmp_path, files(), {"type": "delta", "path": "lake"})

    raw = json.loads(file.read_text()) | {"options": {"mode": "append"}}
    file.write_text(json.dumps(raw))
    mode = told(file, 2)["table shop.orders"][0]
    assert (mode.state, mode.text) == (
        "problem",
        "it has the mode upsert, and the pipeline has append",
    )


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_topics_into_tables_are_told_and_nothing_is_written(
    spark: SparkSession, topics: Topics, lake: str
) -> None:
    topic, other = topics.create(topics.name("shop"), 2), topics.create(topics.name("canal"))
    folder = Path(lake).parent
    source = {"type": "kafka", "bootstrap_servers": topics.servers, "format": "native-json"}
    sink = {"type": Path(lake).name, "path": lake}
    options = {"tables_without_key": "append", "maintenance": "off"}
    file = written(folder, source | {"topics": [topic, other]}, sink, options=options)
    topics.send(topic, [*spread(values(ALL[0]), 2), Message(b"{broken"), Message(None)])
    canal = {"data": [{"id": "1"}], "database": "d", "table": "t", "type": "INSERT", "es": 1}
    canal |= {"isDdl": False, "old": None, "pkNames": ["id"], "ts": 1, "id": 1, "sql": ""}
    canal |= {"sqlType": {"id": 4}, "mysqlType": {"id": "int"}}
    topics.send(other, [Message(json.dumps(canal).encode())] * 3)
    before, names = everything(folder), topics.names()

    found = told(file, 2)
    count = len(values(ALL[0])) + 2
    assert found["source"][0].text == f"the broker at {topics.servers} answers"
    assert found[f"topic {topic}"][0].text == f"2 partitions; {count} messages would be read"
    assert found["checkpoint"][0].text.endswith(" and begin at earliest")
    (judged,) = found[f"messages of {topic}"]
    assert judged.state == "warning"
    assert judged.text.startswith(f"{count - 1} of {count} first messages read as native-json; 1 ")
    (misfit,) = found[f"messages of {other}"]
    assert (misfit.state, misfit.fix) == (
        "problem",
        "they look like canal-json: set source.format",
    )
    assert everything(folder) == before
    assert topics.names() == names

    outside = source | {"topics": topic, "starting_offsets": {topic: {0: 1 << 40}}}
    (far,) = told(written(folder, outside, sink, options=options), 2)["source.starting_offsets"]
    assert far.text.endswith(f", and not {1 << 40}")

    # a run's offsets are where a check goes on; nothing new is read from what was before
    file = written(folder, source | {"topics": topic}, sink, options=options)
    run(spark, load(file))
    topics.send(topic, spread(values(ALL[1])[:1], 2))
    before = everything(folder)
    found = told(file, 0)
    assert found["checkpoint"][0].text.startswith("a run continues at the offsets of ")
    assert found[f"topic {topic}"][0].text == "2 partitions; 1 messages would be read"
    assert found[f"messages of {topic}"][0].text == "all 1 first messages read as native-json"
    topics.delete_before(topic, {0: len([m for m in topics.read(topic) if m.partition == 0])})
    gone = told(file, 2)["source"][-1]
    assert "gone from the broker" in gone.text
    assert "--allow-data-loss" in gone.text
    assert everything(folder) == before
    assert topics.names() == names


def test_topic_to_topic_is_told_with_targets_losses_and_profile(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    assert spark.sparkContext.appName
    incoming, out = topics.create(topics.name("in")), topics.create(topics.name("out"), 3)
    server = {"type": "kafka", "bootstrap_servers": topics.servers}
    source = server | {"topics": incoming, "format": "native-json"}
    sink = server | {"topic": out, "format": "debezium-json", "checkpoint": "state"}
    topics.send(incoming, [Message(change("orders", n)) for n in range(5)])
    file = written(tmp_path, source, sink | {"on_loss": "warn"})
    before, names, ends = everything(tmp_path), topics.names(), topics.read(out)
    found = told(file, 0)
    assert found["sink"][0].text.endswith(f"; topic {out} has 3 partitions")
    assert "orphan_half" in found["sink"][1].text
    assert found["sink"][2].text == f"they would be 5 debezium-json messages in {out} (5)"
    assert "debezium-json would lose metadata" in found["sink"][3].text
    assert "debezium-json does not carry position" in found["sink"][4].text

    # the other topic has no place, and no key; nothing of it is made
    file = written(tmp_path, source, sink | {"topic": "cdc.{table}", "on_loss": "warn"})
    (none,) = told(file, 2)[f"messages of {incoming}"]
    assert "5 no_topic (there is no topic cdc.orders: create it)" in none.text
    assert "the format is right" in none.fix
    file = written(tmp_path, source, sink | {"topic": "nowhere.at.all"})
    assert "there is no topic nowhere.at.all" in told(file, 2)["sink"][-1].text

    profile = {name: value for name, value in sink.items() if name != "topic"}
    file = written(tmp_path, source, profile | {"profile": "debezium", "format": "canal-json"})
    (wrong,) = told(file, 2)["configuration"]
    assert wrong.text.startswith("sink.profile: profile debezium writes debezium-json")
    file.unlink()
    before.pop("pipeline.yaml")
    assert everything(tmp_path) == before
    assert (topics.names(), topics.read(out)) == (names, ends)


def test_what_does_not_answer_ends_with_1_what_is_wrong_with_2_and_no_secret_is_shown(
    spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark.sparkContext.appName
    monkeypatch.setattr("changelane.spark.check.kafka.TIMEOUT_MS", 1500)
    monkeypatch.setenv("SECRET", "hunter2")
    sink = {"type": "delta", "path": "lake"}
    source = {
        "type": "kafka",
        "bootstrap_servers": "127.0.0.1:1",
        "format": "native-json",
        "topics": "t",
    }
    (nobody,) = told(written(tmp_path, source, sink), 1)["source"]
    assert nobody.is_unreachable
    assert nobody.text.startswith("the broker at 127.0.0.1:1 does not answer (")
    unknown = source | {"bootstrap_servers": "no-such-host.invalid:9092"}
    assert told(written(tmp_path, unknown, sink), 1)["source"][0].is_unreachable

    # a password where the broker asks for none: the connection fails, and the password stays here
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" '
    security = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": login + 'password="${SECRET}";',
    }
    secured = source | {"bootstrap_servers": topics.servers, "spark_options": security}
    done = check(written(tmp_path, secured, sink))
    assert done.exit_code in {1, 2}, done.output
    assert "problem  source: the broker at" in done.stdout
    assert "hunter2" not in done.output

    missing = source | {"bootstrap_servers": topics.servers, "topics": "nowhere"}
    (none,) = told(written(tmp_path, missing, sink), 2)["source.topics"]
    assert none.text == f"there is no topic nowhere at {topics.servers}"
    assert "nowhere" not in topics.names()
    assert told(written(tmp_path, files(path="gone"), sink), 2)["source"][0].state == "problem"
    (tmp_path / "flat").write_text("")
    lines(tmp_path, [])
    flat = told(written(tmp_path, files(), sink | {"path": "flat/lake"}), 2)
    assert flat["configuration"][0].text.endswith("flat is a file, not a folder")
    marks = {"checkpoint": "flat/marks"}
    flat = told(written(tmp_path, files(glob="*.none"), sink, options=marks), 2)
    assert flat["source"][0].state == "warning"
    assert flat["checkpoint"][0].text.endswith("flat is not a folder")


def test_a_check_of_its_own_process_leaves_no_trace_where_it_is_started(tmp_path: Path) -> None:
    lines(tmp_path, [change("orders", 1)])
    file = written(tmp_path, files(), {"type": "iceberg", "path": "lake"})
    before = everything(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "changelane", "check", str(file), "--master", "local[1]"],
        cwd=tmp_path,
        env=os.environ | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "table shop.orders: 1 events" in done.stdout
    assert everything(tmp_path) == before
