"""Replays into topics through a real broker: in order, and with ``block_keys_on_error`` so by
key."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kafka_topics import Topics
from pyspark.sql import SparkSession

from changelane import Message
from changelane.cli import main
from changelane.conversion.partition import EVENT_ID
from changelane.spark.lake import lake as open_lake
from changelane.spark.sinks.report import DeliveriesReport
from changelane.spark.state import quarantine, replays
from changelane.spark.state.replays import Replays


@pytest.fixture
def topics(broker: str) -> Topics:
    return Topics(broker)


def change(key: int, version: int, *, good: bool = True) -> Message:
    """Return a version of the row of a key, as Debezium tells it."""
    source = {"version": "2.7.0.Final", "connector": "mysql", "name": "s", "ts_ms": version}
    source |= {"db": "shop", "table": "orders", "file": "b.000001", "pos": version, "row": 0}
    told = {"before": None, "after": {"id": key, "v": version}, "source": source}
    body = json.dumps({"schema": None, "payload": told | {"op": "c", "ts_ms": version}})
    value = body if good else "{broken" + body
    name = json.dumps({"schema": None, "payload": {"id": key}}).encode()
    return Message(value.encode(), name, (), None, key % 2)


def call(*arguments: Any, code: int = 0) -> Result:
    done = CliRunner().invoke(main, [str(one) for one in arguments])
    assert done.exit_code == code, done.output + repr(done.exception)
    return done


def written(folder: Path, topics: Topics, target: str, source: str, **options: Any) -> Path:
    servers = topics.servers
    file = folder / "pipeline.yaml"
    sink = {
        "type": "kafka",
        "bootstrap_servers": servers,
        "topic": target,
        "format": "debezium-json",
    }
    sink |= {
        "on_loss": "warn",
        "checkpoint": "state",
        "event_id": True,
        "block_keys_on_error": True,
    }
    told = {
        "name": "forward",
        "source": {
            "type": "kafka",
            "bootstrap_servers": servers,
            "topics": source,
            "format": "debezium-json",
        },
        "sink": sink,
    }
    if options:
        sink["block_keys_on_error"] = False
        told["options"] = options
    file.write_text(json.dumps(told))
    return file


def versions(topics: Topics, target: str) -> dict[int, list[int]]:
    """Return the versions that a topic holds of each key, in order, each message once by its id."""
    found: dict[int, list[int]] = {}
    seen = set()
    for one in topics.read(target):
        headers = dict(one.headers)
        if headers[EVENT_ID] in seen:
            continue
        seen.add(headers[EVENT_ID])
        payload = json.loads(one.value or b"")
        after = payload.get("payload", payload)["after"]
        found.setdefault(after["id"], []).append(after["v"])
    return found


def waiting(spark: SparkSession, folder: Path) -> dict[str, int]:
    """Return how much waits for which reason."""
    lake = open_lake(spark, str(folder / "state"), "delta")
    if not lake.exists(quarantine.NAME):  # nothing was rejected so far
        return {}
    found = replays.pending_entries(lake, "forward")
    return dict(Counter(row["code"] for row in found.select("code").collect()))


def killed(*_: object) -> None:
    raise RuntimeError("killed")


def test_later_messages_of_a_key_wait_until_what_was_set_aside_is_replayed(
    spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = topics.create(topics.name("in"), 2)
    target = topics.create(topics.name("out"), 2)
    first = [change(1, 1), change(2, 1), change(1, 2, good=False), change(1, 3), change(3, 1)]
    topics.send(source, first)

    # `stop` sends what stands before, and nothing behind
    stopping = written(tmp_path, topics, target, source, on_error="stop")
    told = call("run", stopping, code=1).stderr
    assert "1 cannot be read or applied (malformed_json 1)" in told
    assert f"malformed_json in {source}-1@1" in told
    assert versions(topics, target) == {1: [1], 2: [1]}
    assert waiting(spark, tmp_path) == {}
    assert not (tmp_path / "state" / quarantine.NAME).exists()  # made with the first entry

    # a batch that dies behind what it quarantined comes again, and does not wait for itself
    file = written(tmp_path, topics, target, source)
    with monkeypatch.context() as patched:
        patched.setattr(DeliveriesReport, "add", killed)
        call("run", file, code=1)
    assert waiting(spark, tmp_path) == {"malformed_json": 1, "held": 1}
    topics.send(source, [change(1, 4), change(3, 2), change(2, 2)])
    call("run", file)
    assert versions(topics, target) == {1: [1], 2: [1, 2], 3: [1, 2]}
    assert waiting(spark, tmp_path) == {"malformed_json": 1, "held": 2}

    # what fails again holds the others again, whatever of the key is asked for
    call("quarantine", "replay", file, "--code", "held", code=1)
    assert waiting(spark, tmp_path) == {"malformed_json": 1, "held": 2}
    assert versions(topics, target)[1] == [1]

    shown = call("quarantine", "show", file, "--output", "json", "--code", "malformed_json")
    (broken,) = [json.loads(line) for line in shown.stdout.splitlines()]
    broken["value"] = broken["value"].removeprefix("{broken")
    given = tmp_path / "mended.jsonl"
    given.write_text(json.dumps(broken | {"key": "other"}))
    told = call("quarantine", "replay", file, "--repaired", given, code=2).stderr
    assert "leave its key unchanged" in told
    given.write_text(json.dumps(broken))
    with monkeypatch.context() as patched:
        patched.setattr(Replays, "record_done", killed)
        call("quarantine", "replay", file, "--repaired", given, code=1)
    topics.send(source, [change(1, 5)])
    call("run", file)  # it waits behind a replay that has not come to its end
    assert waiting(spark, tmp_path) == {"malformed_json": 1, "held": 3}
    told = call("quarantine", "replay", file).stdout
    assert "replay 2 completed: 3 entries" in told
    assert "replay 3 done: 1 entries, 1 events, 1 messages sent" in told
    assert waiting(spark, tmp_path) == {}
    assert versions(topics, target) == {1: [1, 2, 3, 4, 5], 2: [1, 2], 3: [1, 2]}
