"""From topic to topic through a real broker: nothing lost, in order, killed at any moment."""

import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from kafka_topics import Topics
from pyspark.sql import SparkSession

from changelane import Message, convert, get_codec
from changelane.cli import main
from changelane.cli.convert import Conversion
from changelane.codec import OnLoss
from changelane.conversion.message_files import LineFormat, Lines, line_of
from changelane.conversion.partition import EVENT_ID
from changelane.conversion.summary import Summary
from changelane.pipeline.error_budget import Budget
from changelane.spark.lake import lake as open_lake
from changelane.testing.conformance import EFFORT

README: Final = Path(__file__).resolve().parents[2] / "README.md"
PARTITIONS: Final = 3
TABLE: Final = {"database": "shop", "name": "orders"}
SCHEMA: Final = [{"name": "id", "type": "int64"}, {"name": "v", "type": "string"}]
KILLS: Final = 2


@pytest.fixture
def topics(broker: str) -> Topics:
    return Topics(broker)


def change(number: int, partition: int, **more: Any) -> Message:
    """Return an insert of its own number, with a key and a header."""
    event = {"op": "c", "table": TABLE, "key": ["id"], "schema": SCHEMA}
    event |= {"after": {"id": number, "v": f"v{number}"}} | more
    key = json.dumps({"id": number}).encode()
    headers = (("origin", b"eu"), ("empty", None))
    return Message(json.dumps(event).encode(), key, headers, None, partition)


def written(folder: Path, topics: Topics, source: str, target: str, **sink: Any) -> Path:
    file = folder / "pipeline.yaml"
    told = {
        "name": "forward",
        "source": {
            "type": "kafka",
            "bootstrap_servers": topics.servers,
            "topics": source,
            "format": "native-json",
            "max_offsets_per_trigger": 600,
        },
        "sink": {
            "type": "kafka",
            "bootstrap_servers": topics.servers,
            "topic": target,
            "format": "debezium-json",
            "on_loss": "warn",
            "checkpoint": "state",
        }
        | sink,
    }
    file.write_text(json.dumps(told))
    return file


def run(file: Path, *arguments: str) -> Any:
    done = CliRunner().invoke(main, ["run", str(file), *arguments])
    assert done.exit_code == 0, done.output
    return done


def test_topics_become_what_convert_makes_of_each_partition_in_its_order(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source = topics.create(topics.name("in"), PARTITIONS)
    target = topics.create(topics.name("out"), PARTITIONS)
    messages = [change(n, n % PARTITIONS) for n in range(900)]
    unsuited = {"name": "v", "type": "string"}
    messages[100:100] = [
        Message(b"{broken", b"k", (), None, 0),
        Message(None, b'{"id":1}', (), None, 1),
        # without a key there is no Debezium key
        change(1000, 2, key=None, schema=[SCHEMA[0], unsuited]),
    ]
    topics.send(source, messages)
    accept = {"accept": ["metadata", "data"], "else": "raise"}
    more = {"partition": "source", "event_id": True, "on_loss": accept}
    file = written(tmp_path, topics, source, target, **more)
    done = run(file, "--output", "json")
    report = json.loads(done.stdout)
    assert len(report["batches"]) > 1
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert [line["messages_out"] for line in lines] == [one["written"] for one in report["batches"]]
    behind = [sum(line["lag"][source].values()) for line in lines]
    taken = [sum(line["messages_in"] for line in lines[:n]) for n in range(1, len(lines) + 1)]
    assert behind == [len(messages) - count for count in taken]
    assert behind[-1] == 0
    assert sum(batch["messages"] for batch in report["batches"]) == len(messages)

    read = topics.read(source)
    expected, refused = [], 0
    for partition in range(PARTITIONS):
        made, failed = converted([one for one in read if one.partition == partition])
        expected += made
        refused += failed
    found = topics.read(target)
    plain = [
        (m.partition, m.key, m.value, tuple(pair for pair in m.headers if pair[0] != EVENT_ID))
        for m in found
    ]
    assert plain == expected
    assert sum(batch["written"] for batch in report["batches"]) == len(found)
    ids = [dict(one.headers)[EVENT_ID] for one in found]
    assert len(set(ids)) == len(ids)
    places = [tuple(map(int, one.decode().rsplit("-", 4)[1:])) for one in ids]
    assert places == sorted(places), "one partition after the other, each in its order"

    # what cannot be converted is quarantined with its bytes, once
    assert sum(sum(b["quarantined"].values()) for b in report["batches"]) == refused >= 1
    aside = open_lake(spark, str(tmp_path / "state"), "delta").read("_changelane/quarantine")
    rows = aside.collect()
    assert len(rows) == refused
    assert {row["code"]: bytes(row["raw_value"]) for row in rows}["malformed_json"] == b"{broken"
    assert run(file).stdout == "nothing new to send\n"


def converted(messages: Sequence[Message]) -> tuple[list[Any], int]:
    """Return what `changelane convert` makes of one partition, and how much of it fails."""
    summary = Summary(
        "native-json", "debezium-json", OnLoss.WARN, Budget.parse("0", "--max-errors")
    )
    conversion = Conversion(get_codec("native-json"), get_codec("debezium-json"), summary)
    text = b"".join(line_of(one, LineFormat.RECORD) or b"" for one in messages)
    output = io.BytesIO()
    for _ in conversion.run(Lines(io.BytesIO(text), LineFormat.RECORD), output):
        pass
    lines = Lines(io.BytesIO(output.getvalue()), LineFormat.RECORD)
    found = [line.content for line in lines]
    partition = messages[0].partition
    told = [(partition, m.key, m.value, m.headers) for m in found if isinstance(m, Message)]
    return told, summary.failures.total()


def killed(file: Path, longest_s: float) -> bool:
    """Run a pipeline and kill it at the latest so long after its first batch began.

    Return whether it came to its end before.
    """
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "changelane", "run", str(file), "--master", "local[2]"],
            stdout=subprocess.DEVNULL,
            stderr=told,
            start_new_session=True,
        )
        began = file.parent / "state/_changelane/batches"
        before = len(list(began.rglob("*.json")))
        until = time.monotonic() + 300
        while process.poll() is None and time.monotonic() < until:
            if len(list(began.rglob("*.json"))) > before:
                break
            time.sleep(0.02)
        try:
            process.wait(longest_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return False
        told.seek(0)
        assert process.returncode == 0, told.read().decode()[-2000:]
    return True


def test_nothing_is_lost_and_nothing_overtakes_when_runs_are_killed(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    assert spark.sparkContext.appName
    for _ in range(EFFORT):
        seed = random.randrange(1 << 32)
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        source = topics.create(topics.name("in"), PARTITIONS)
        target = topics.create(topics.name("out"), PARTITIONS)
        messages = [change(n, chance.randrange(PARTITIONS)) for n in range(6000)]
        topics.send(source, messages)
        file = written(folder, topics, source, target, partition="source", event_id=True)
        ended = [killed(file, chance.uniform(0, 4)) for _ in range(KILLS)]
        assert not all(ended), f"no run was killed in its middle, seed {seed}"
        run(file)
        found = topics.read(target)
        first: dict[bytes, Message] = {}
        for one in found:
            identity = dict(one.headers)[EVENT_ID]
            assert isinstance(identity, bytes)
            held = first.setdefault(identity, one)
            assert held.value == one.value, f"one id, one message; seed {seed}"
        # each once, by its id, and the first of each in the order of its partition
        for partition in range(PARTITIONS):
            told = [json.loads(m.value or b"") for m in messages if m.partition == partition]
            kept = [json.loads(m.value or b"") for m in first.values() if m.partition == partition]
            ids = [one["payload"]["after"]["id"] for one in kept]
            assert ids == [one["after"]["id"] for one in told], f"seed {seed}"


def test_the_pipeline_of_the_readme_turns_one_topic_into_another(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    assert spark.sparkContext.appName
    text = README.read_text("utf-8")
    (example,) = re.findall(
        r"^```yaml\n((?:(?!```).)*sink: .type: kafka.*?)^```", text, re.DOTALL | re.MULTILINE
    )
    assert len(example.splitlines()) <= 10
    source = {"connector": "mysql", "name": "s", "db": "shop", "table": "orders", "ts_ms": 1}
    source |= {"version": "3.0", "snapshot": "false", "file": "b.000001", "pos": 4, "row": 0}
    body = {"op": "c", "source": source, "before": None, "after": {"id": 7}, "ts_ms": 1}
    message = Message(json.dumps(body).encode(), b'{"id":7}')
    names = dict(re.findall(r"(topics?): ([^\s,]+)", example))
    own = {name: topics.create(topics.name("readme")) for name in names.values()}
    topics.send(own[names["topics"]], [message])
    for name, instead in own.items():
        example = re.sub(rf": {re.escape(name)}\b", f": {instead}", example)
    (servers,) = set(re.findall(r"servers: ([^\s,]+)", example))
    file = tmp_path / "forward.yaml"
    file.write_text(example.replace(servers, topics.servers))
    run(file)
    (found,) = topics.read(own[names["topic"]])
    (wanted,) = convert(message, "debezium-json", "canal-json", on_loss="warn").messages
    assert (found.key, found.value) == (wanted.key, wanted.value)


def test_a_topic_that_is_not_there_ends_with_2_and_one_line(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    assert spark.sparkContext.appName
    source = topics.create(topics.name("in"))
    file = written(tmp_path, topics, source, "nowhere.at.all")
    done = CliRunner().invoke(main, ["run", str(file)])
    assert done.exit_code == 2
    assert "there is no topic nowhere.at.all" in done.stderr
    status = CliRunner().invoke(main, ["status", str(file)])
    assert status.exit_code == 2
    assert "has no tables" in status.stderr
