"""``changelane dev broker``: the broker of these tests, for people who try things out."""

import os
import signal
import socket
import subprocess
import sys

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient


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
    assert b"try things out" in told
    host, _, port = servers.rpartition(":")
    with socket.socket() as probe:
        assert probe.connect_ex((host, int(port))) != 0
