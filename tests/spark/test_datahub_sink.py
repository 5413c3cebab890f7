"""From a Kafka broker into a DataHub in memory, through Spark and the vendor's own client."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from datahub_server import ID, KEY, Failed, Server, TopicState, serving
from kafka_topics import Topics
from pyspark.sql import SparkSession

from changelane import Message
from changelane.cli import main
from changelane.spark.lake import lake as open_lake

pytestmark = pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")

PARTITIONS: Final = 3
SCHEMA: Final = [{"name": "id", "type": "int64"}, {"name": "v", "type": "string"}]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("DATAHUB_ID", ID)
    monkeypatch.setenv("DATAHUB_KEY", KEY)
    with serving() as found:
        yield found


@pytest.fixture
def topics(broker: str) -> Topics:
    return Topics(broker)


def blobs(shards: int) -> TopicState:
    return TopicState({"ShardCount": shards, "RecordType": "BLOB", "Lifecycle": 1, "Comment": ""})


def change(number: int, table: str = "orders", **more: Any) -> Message:
    """Return a change of the row `number % 20`; changes of a row lie in one partition."""
    key = number % 20
    event = {"op": "c", "table": {"database": "shop", "name": table}, "key": ["id"]}
    event |= {"schema": SCHEMA, "after": {"id": key, "v": str(number)}} | more
    return Message(json.dumps(event).encode(), b"k", (), None, key % PARTITIONS)


def written(folder: Path, topics: Topics, server: Server, source: str, **sink: Any) -> Path:
    file = folder / "pipeline.yaml"
    told = {
        "name": "to-datahub",
        "source": {
            "type": "kafka",
            "bootstrap_servers": topics.servers,
            "topics": source,
            "format": "native-json",
            "max_offsets_per_trigger": 500,
        },
        "sink": {
            "type": "datahub",
            "endpoint": server.endpoint,
            "project": "shop",
            "access_id": "${DATAHUB_ID}",
            "access_key": "${DATAHUB_KEY}",
            "on_loss": "warn",
            "batch_records": 25,
            "checkpoint": "state",
        }
        | sink,
    }
    file.write_text(json.dumps(told))
    return file


def run(file: Path, *arguments: str, code: int = 0) -> Any:
    done = CliRunner().invoke(main, ["run", str(file), *arguments])
    assert done.exit_code == code, done.output
    assert KEY not in done.output
    return done


def quarantine(command: str, *arguments: Any, code: int = 0) -> Any:
    done = CliRunner().invoke(main, ["quarantine", command, *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


def test_tables_become_topics_of_rows_in_the_order_of_their_keys(
    spark: SparkSession, topics: Topics, server: Server, tmp_path: Path
) -> None:
    source = topics.create(topics.name("in"), PARTITIONS)
    unfit = change(7, schema=[*SCHEMA, {"name": "w", "type": "string"}])
    messages = [
        *(change(n) for n in range(900)),
        *(change(n, "notes") for n in range(60)),
        Message(b"{broken", b"k", (), None, 0),
        unfit,
    ]
    topics.send(source, messages)
    chance = random.Random(7)
    puts = 0

    def faults(name: str, shard: str | None, count: int) -> dict[int, str]:
        nonlocal puts
        puts += 1
        assert count <= 25
        if puts == 12:
            assert shard is not None
            server.split(name, shard)
        if chance.random() < 0.2:
            raise Failed("LimitExceeded")
        return {}

    server.faults = faults
    create = {"shards": 2, "days": 1}
    file = written(
        tmp_path, topics, server, source, topic="t_{table}", format="datahub-tuple", create=create
    )
    report = json.loads(run(file, "--output", "json").stdout)
    batches = report["batches"]
    assert len(batches) > 1
    assert sum(batch["messages"] for batch in batches) == len(messages)
    quarantined: dict[str, int] = defaultdict(int)
    for batch in batches:
        for reason, count in batch["quarantined"].items():
            quarantined[reason] += count
    assert quarantined == {"malformed_json": 1, "topic_schema": 1}
    for name, count in (("orders", 900), ("notes", 60)):
        rows = [one.values for one in server.topics[f"t_{name}"].records]
        assert {row[3] for row in rows} == {name.encode()}
        found = defaultdict(list)
        for row in rows:
            found[int(row[6] or b"")].append(int(row[7] or b""))
        assert found == {key: list(range(key, count, 20)) for key in range(20)}
    assert sum(batch["written"] for batch in batches) == 960

    aside = open_lake(spark, str(tmp_path / "state"), "delta").read("_changelane/quarantine")
    kept = {row["code"]: bytes(row["raw_value"]) for row in aside.collect()}
    assert kept == {"malformed_json": b"{broken", "topic_schema": unfit.value}
    before = {name: len(topic.records) for name, topic in server.topics.items()}
    assert run(file).stdout == "nothing new to send\n"
    assert {name: len(topic.records) for name, topic in server.topics.items()} == before

    # what is mended is sent, and what still does not fit is quarantined again
    shown = quarantine("show", file, "--output", "json").stdout.splitlines()
    entries = {one["code"]: one for one in map(json.loads, shown)}
    mended = entries["malformed_json"] | {"value": (change(900).value or b"").decode()}
    given = tmp_path / "mended.jsonl"
    given.write_text("\n".join(map(json.dumps, (mended, entries["topic_schema"]))))
    told = json.loads(
        quarantine("replay", file, "--repaired", given, "--output", "json", code=1).stdout
    )
    assert [(one["written"], one["quarantined"]) for one in told] == [(1, {"topic_schema": 1})]
    assert len(server.topics["t_orders"].records) == before["t_orders"] + 1
    assert server.topics["t_orders"].records[-1].values[6:] == (b"0", b"900")

    # a run that is to stop sets nothing aside
    topics.send(source, [Message(b"{again", b"k", (), None, 0)])
    stopping = json.loads(file.read_text()) | {"options": {"on_error": "stop"}}
    file.write_text(json.dumps(stopping))
    assert "1 cannot be read or applied (malformed_json 1)" in run(file, code=1).stderr
    assert len(quarantine("show", file, "--output", "json").stdout.splitlines()) == 1


def killed(file: Path, server: Server, after: int) -> None:
    """Run a pipeline and kill it once the server has so many records more."""
    topic = server.topics["all"]
    before = len(topic.records)
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "changelane", "run", str(file), "--master", "local[2]"],
            stdout=told,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        until = time.monotonic() + 200
        while len(topic.records) < before + after and time.monotonic() < until:
            if process.poll() is not None:
                told.seek(0)
                raise AssertionError(told.read().decode()[-3000:])
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_nothing_is_lost_and_nothing_overtakes_when_a_run_is_killed(
    spark: SparkSession, topics: Topics, server: Server, tmp_path: Path
) -> None:
    assert spark.sparkContext.appName
    source = topics.create(topics.name("in"), PARTITIONS)
    count = 3000
    topics.send(source, [change(n) for n in range(count)])
    server.topics["all"] = blobs(3)
    file = written(tmp_path, topics, server, source, topic="all", format="datahub-blob")

    def slowly(*_: object) -> dict[int, str]:
        time.sleep(0.02)
        return {}

    server.faults = slowly
    killed(file, server, 700)
    server.faults = lambda *_: {}
    run(file)
    found: dict[int, list[int]] = defaultdict(list)
    for one in server.topics["all"].records:
        row = json.loads(one.values[0] or b"")["payload"]["after"]["dataColumn"]
        found[row["id"]].append(int(row["v"]))
    assert sum(map(len, found.values())) > count, "the run was killed before its batch was noted"
    for key, numbers in found.items():
        expected = list(range(key, count, 20))
        assert list(dict.fromkeys(numbers)) == expected
        assert list(dict.fromkeys(reversed(numbers)))[::-1] == expected


def test_a_pipeline_that_cannot_begin_says_why(
    spark: SparkSession, topics: Topics, server: Server, tmp_path: Path
) -> None:
    assert spark.sparkContext.appName
    source = topics.create(topics.name("in"), 1)
    server.topics["all"] = blobs(1)
    for sink, words in (
        ({"topic": "none", "format": "datahub-blob"}, "has no topic none: create it, or"),
        ({"topic": "all", "format": "datahub-tuple"}, "topic all is a BLOB topic"),
    ):
        file = written(tmp_path, topics, server, source, **sink)
        assert words in run(file, code=2).output
    server.faults = lambda *_: (_ for _ in ()).throw(Failed("NoPermission", 403))
    topics.send(source, [change(0)])
    file = written(tmp_path, topics, server, source, topic="all", format="datahub-blob")
    output = run(file, code=1).output
    assert "DataHub answers NoPermission" in output
    assert KEY not in output
