# SPDX-License-Identifier: Apache-2.0
"""A topic of a real broker as the input of ``inspect`` and ``convert``."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient
from kafka_topics import Topics

from changelane import Message
from changelane.cli import main
from changelane.conversion.topic_input import open_topic
from changelane.pipeline import workload
from changelane.pipeline.config import load
from changelane.pipeline.workload import is_small


@pytest.fixture
def topics(broker: str) -> Topics:
    return Topics(broker)


def event(number: int) -> bytes:
    told = {"op": "c", "table": {"name": "t"}, "key": ["id"], "after": {"id": number}}
    return json.dumps(told | {"position": {"domain": "sequence", "value": number}}).encode()


def ask(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def test_a_topic_is_an_input_as_a_file_of_records_is(topics: Topics, tmp_path: Path) -> None:
    name = topics.create(topics.name("in"), 3)
    headers = (("origin", b"eu"), ("origin", b"\xff"), ("empty", None))
    sent = [Message(event(n), b'{"id":%d}' % n, headers, None, n % 2) for n in range(30)]
    sent[7] = Message(b"{broken", b"k", (), None, 1)
    sent[8] = Message(None, b'{"id":8}', (), None, 0)
    before = time.time() * 1000
    topics.send(name, sent)
    place = f"kafka://{topics.servers}/{name}"

    # what comes after the start is not read, nor what was aborted
    with open_topic(place, {}, {}) as opened:
        topics.send_in_transactions(
            name, [([Message(event(98))], False), ([Message(event(99))], True)]
        )
        lines = list(opened)
        assert (opened.size, opened.total, opened.position()) == (30, 30, 30)
    read = [one for line in lines if isinstance(one := line.content, Message)]
    assert [line.number for line in lines] == list(range(1, 31))
    in_order = sorted(enumerate(sent), key=lambda one: (one[1].partition, one[0]))
    expected = [(m.value, m.key, m.headers, name, m.partition) for _, m in in_order]
    assert [(m.value, m.key, m.headers, m.topic, m.partition) for m in read] == expected
    assert [m.offset for m in read] == [*range(15), *range(15)]
    assert all(before - 60_000 < (m.timestamp_ms or 0) < before + 60_000 for m in read)
    with open_topic(place, {"kafka.client.id": "x"}, {}) as opened:
        values = [m.value for line in opened if isinstance(m := line.content, Message)]
        assert len(values) == 31
        assert values[15] == event(99)
    with open_topic(f"{place}?partition=2", {}, {}) as opened:
        assert (opened.size, list(opened)) == (0, [])

    # the last ones of each partition
    with open_topic(f"{place}?max=4&from=latest&partition=1", {}, {}) as opened:
        offsets = [m.offset for line in opened if isinstance(m := line.content, Message)]
        assert offsets == [11, 12, 13, 14]

    out = tmp_path / "out"
    formats = ("-f", "native-json", "-t", "canal-json", "--output", "json")
    done = ask("convert", *formats, place, str(out))
    summary = json.loads(done.stderr)
    assert (summary["messages"], summary["written"]) == (31, 29)
    assert summary["failures"] == {"malformed_json": 1}
    assert len(summary["warnings"]) == 1
    records = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert {record["topic"] for record in records} == {name}
    assert all(record["timestamp"] for record in records)

    shown = ask("inspect", f"{place}?max=6", "--output", "json")
    assert "looks like native-json" in shown.stderr
    assert "6 of " in shown.stderr
    assert [json.loads(line)["after"]["id"] for line in shown.stdout.splitlines()] == [
        *(0, 2, 4),
        *(1, 3, 5),
    ]
    assert "message 1" in ask("inspect", f"{place}?max=1").stdout

    began = time.monotonic()
    wrong = ask("inspect", place[:-1])
    assert time.monotonic() - began < 5
    assert (wrong.exit_code, f"did you mean '{name}'" in wrong.stderr) == (2, True)
    assert name[:-1] not in topics.names()
    wrong = ask("inspect", f"{place}?partition=3")
    assert "has the partitions 0 to 2" in wrong.stderr
    # the client is kept: the answer to a client that is freed meanwhile never arrives
    admin = AdminClient({"bootstrap.servers": topics.servers})
    groups = admin.list_consumer_groups(request_timeout=60).result(timeout=90)
    assert "changelane" not in {group.group_id for group in groups.valid}


def test_a_run_of_few_messages_is_small(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topics.create(topics.name("in"), 2)
    topics.send(name, [Message(event(n), None, (), None, n % 2) for n in range(9)])
    file = tmp_path / "pipeline.yaml"
    source = f"type: kafka, bootstrap_servers: '{topics.servers}', topics: {name}"
    sink = "sink: {type: delta, path: lake}"
    file.write_text(f"name: p\nsource: {{{source}, format: native-json}}\n{sink}\n")
    assert is_small(load(str(file)))
    monkeypatch.setattr(workload, "MAX_MESSAGES", 8)
    assert not is_small(load(str(file)))
    file.write_text(file.read_text().replace(name, topics.name("missing")))
    assert not is_small(load(str(file)))
