"""``changelane dev broker``: the broker of these tests, for people who try things out."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from changelane.cli import dev, main


def test_dev_broker_starts_a_broker_that_takes_messages_and_ends_with_ctrl_c() -> None:
    command = [sys.executable, "-m", "changelane", "dev", "broker", "--partitions", "3"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        servers = run.stdout.readline().decode().strip()
        producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        left = []
        producer.produce("shop", b"value", on_delivery=lambda error, _: left.append(error))
        assert producer.flush(30) == 0
        assert left == [None]
        told = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=30)
        assert len(told.topics["shop"].partitions) == 3
    finally:
        os.kill(run.pid, signal.SIGINT)
    _, told = run.communicate(timeout=60)
    assert run.returncode == 0
    assert b"for experiments" in told
    host, _, port = servers.rpartition(":")
    with socket.socket() as probe:
        assert probe.connect_ex((host, int(port))) != 0


def test_dev_makes_topics_and_fills_them_from_a_file_of_records(
    broker: str, tmp_path, monkeypatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parent.parent / "spark")
    from kafka_topics import Topics

    name = f"dev-{os.getpid()}"
    records = tmp_path / "records.jsonl"
    headers = [["origin", "eu"]]
    records.write_text(
        "".join(
            json.dumps({"topic": name, "key": f"k{n}", "value": f"v{n}", "headers": headers}) + "\n"
            for n in range(3)
        )
        + json.dumps({"topic": name, "key": "k1", "value": None})
        + "\n"
    )
    values = tmp_path / "values.jsonl"
    values.write_text('{"a":1}\n{"a":2}\n')

    def run(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, ["dev", *arguments, "--bootstrap-servers", broker])
        assert done.exit_code == code, done.output
        return done.output

    assert run("topic", name, "--partitions", "2") == f"{name} created\n"
    assert run("topic", name) == f"{name} exists\n"
    assert run("send", str(records)) == f"{name}: 4 messages sent\n"
    assert "has no topic: set --topic" in run("send", str(values), code=2)
    assert run("send", str(values), "--topic", f"{name}-v") == f"{name}-v: 2 messages sent\n"

    topics = Topics(broker)
    messages = topics.read(name)
    assert {(m.key, m.value) for m in messages} == {
        *((b"k%d" % n, b"v%d" % n) for n in range(3)),
        (b"k1", None),
    }
    assert dict(messages[0].headers) == {"origin": b"eu"}
    # a key has one partition, and its messages keep their order
    assert [m.value for m in messages if m.key == b"k1"] == [b"v1", None]
    assert len({m.partition for m in messages if m.key == b"k1"}) == 1
    assert [m.value for m in topics.read(f"{name}-v")] == [b'{"a":1}', b'{"a":2}']


def test_dev_says_that_no_broker_answers(monkeypatch) -> None:
    monkeypatch.setattr(dev, "_WAIT_S", 0.5)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    done = CliRunner().invoke(main, ["dev", "topic", "a", "--bootstrap-servers", address])
    assert done.exit_code == 1
    assert done.output.startswith(f"Error: {address} does not answer: ")
