# SPDX-License-Identifier: Apache-2.0
"""Topics as inputs of commands, as far as no broker is needed: addresses, options, shares."""

import base64
import json
import sys
import time

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from changelane.cli import main
from changelane.conversion.topic_input import (
    TopicAddress,
    address_of,
    client_settings,
    open_topic,
    shares_of,
)
from changelane.errors import ConfigError, UnknownNameError


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("kafka://h:9092/shop.orders", TopicAddress("h:9092", "shop.orders")),
        ("KAFKA://h/t", TopicAddress("h:9092", "t")),
        ("kafka://a:1,b,[::1]:3/t?max=100", TopicAddress("a:1,b:9092,[::1]:3", "t", 100)),
        ("kafka://h/t?from=latest&max=5&partition=2", TopicAddress("h:9092", "t", 5, True, 2)),
        ("kafka://h/t?from=earliest", TopicAddress("h:9092", "t")),
    ],
)
def test_an_address_has_brokers_a_topic_and_how_much_of_it(url, address):
    assert address_of(url) == address


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("kafka://h:9092", "the URL of a topic has the form kafka://host:9092/topic"),
        ("kafka:///t", "the URL of a topic has the form"),
        ("kafka://h/a/b", "the URL of a topic has the form"),
        ("kafka://h/t?max=0", "max in the URL of a topic must be a whole number, at least 1"),
        ("kafka://h/t?max=many", "at least 1"),
        ("kafka://h/t?max=1&max=2", "max twice"),
        ("kafka://h/t?from=middle", "must be earliest or latest"),
        ("kafka://h/t?mx=3", "unknown parameter of a topic's URL 'mx'; did you mean 'max'?"),
    ],
)
def test_a_wrong_address_is_explained(url, why):
    with pytest.raises(ConfigError) as error:
        address_of(url)
    assert why in str(error.value)


@pytest.mark.parametrize(
    "url", ["kafka://me:hush@h:9092/t", "kafka://h/t?sasl.password=hush", "kafka://hush@h/t"]
)
@pytest.mark.parametrize("command", ["inspect", "convert"])
def test_credentials_in_the_url_are_refused_with_the_place_where_they_go(command, url):
    formats = [] if command == "inspect" else ["-f", "debezium-json", "-t", "canal-json"]
    result = CliRunner().invoke(main, [command, *formats, url])
    assert result.exit_code == 2
    assert "--kafka-option 'kafka.sasl.password=${PASSWORD}'" in result.stderr
    assert "hush" not in result.output


def test_options_are_those_of_a_pipeline():
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="a \\ b;";'
    )
    given = {
        "kafka.security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": jaas,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/etc/ca",
    }
    assert client_settings(given) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": "a \\ b;",
        "ssl.ca.location": "/etc/ca",
    }


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"kafka.bootstrap.servers": "h:1"}, "bootstrap.servers cannot be set: the URL"),
        ({"enable.auto.commit": "true"}, "nothing is committed"),
        ({"sasl.jaas.config": "hush required;"}, "has no username and password for PLAIN or SCRAM"),
        ({"ssl.truststore.location": "/x.jks"}, "must be a PEM file"),
    ],
)
def test_rejected_options_name_the_remedy(options, why):
    with pytest.raises(ConfigError) as error:
        client_settings(options)
    assert why in str(error.value)
    assert "hush" not in str(error.value)


OFFSETS = {0: (0, 1000), 1: (10, 15), 2: (7, 7), 3: (100, 200)}


@pytest.mark.parametrize(
    ("most", "shares"),
    [
        (None, {0: 1000, 1: 5, 3: 100}),
        (5000, {0: 1000, 1: 5, 3: 100}),
        (100, {0: 47, 1: 5, 3: 48}),
        (7, {0: 2, 1: 3, 3: 2}),
        (2, {1: 1, 3: 1}),
        (1, {1: 1}),
    ],
)
def test_each_partition_gives_as_much_as_it_has(most, shares):
    first = shares_of(OFFSETS, most)
    assert {one.number: one.max_messages for one in first} == shares
    assert sum(shares.values()) == min(most or 1105, 1105)
    assert all(one.start == OFFSETS[one.number][0] for one in first)
    for one in shares_of(OFFSETS, most, is_latest=True):
        assert (one.start, one.end) == (one.end - one.max_messages, OFFSETS[one.number][1])


def test_a_missing_broker_is_reported_soon(tmp_path):
    began = time.monotonic()
    formats = ["-f", "debezium-json", "-t", "canal-json"]
    result = ask("convert", *formats, "kafka://127.0.0.1:1/shop?max=3", str(tmp_path / "out"))
    assert time.monotonic() - began < 5.5
    assert result.exit_code == 1
    assert "the broker at 127.0.0.1:1 does not answer" in result.stderr
    assert "Connection refused" in result.stderr
    assert not list(tmp_path.iterdir())


# -- with the broker inside librdkafka, which keeps what it gets in memory ------------------------


@pytest.fixture(scope="module")
def place():
    """The address of a topic with 30 messages in two of its partitions."""
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    for n in range(30):
        headers = [("origin", b"eu"), ("origin", b"\xff"), ("empty", None)] if n == 0 else []
        value = {"op": "c", "table": {"name": "t"}, "key": ["id"], "after": {"id": n}}
        text = None if n == 8 else json.dumps(value).encode()
        times = {"timestamp": 1_795_248_615_183, "headers": headers}
        producer.produce("shop.orders", text, b"k%d" % n, n % 2, **times)
    assert producer.flush(10) == 0
    return f"kafka://{broker.host}:{broker.port}/shop.orders", producer


def read(url):
    with open_topic(url, {}, {}) as opened:
        return opened.size, [line.content for line in opened]


def test_a_topic_is_read_up_to_what_was_there_at_the_start(place):
    url, producer = place
    with open_topic(url, {"kafka.client.id": "x"}, {}) as opened:
        producer.produce("shop.orders", b"late", None, 3)
        producer.flush(10)
        lines = list(opened)
        assert (opened.size, opened.total, opened.position()) == (30, 30, 30)
    assert [line.number for line in lines] == list(range(1, 31))
    found = [line.content for line in lines]
    assert [(m.partition, m.offset) for m in found] == [(p, n) for p in (0, 1) for n in range(15)]
    assert [m.key for m in found[:3]] == [b"k0", b"k2", b"k4"]
    assert found[0].headers == (("origin", b"eu"), ("origin", b"\xff"), ("empty", None))
    assert (found[4].key, found[4].value, found[4].headers) == (b"k8", None, ())
    assert {m.timestamp_ms for m in found} == {1_795_248_615_183}
    assert {m.topic for m in found} == {"shop.orders"}


@pytest.mark.parametrize(
    ("query", "places"),
    [
        ("max=4&from=latest&partition=1", [(1, 11), (1, 12), (1, 13), (1, 14)]),
        ("max=3&partition=0", [(0, 0), (0, 1), (0, 2)]),
        ("partition=2", []),
    ],
)
def test_a_part_of_a_topic_is_read(place, query, places):
    size, found = read(f"{place[0]}?{query}")
    assert [(m.partition, m.offset) for m in found] == places
    assert size == len(places)


def test_a_missing_topic_or_partition_is_reported(place):
    url = place[0]
    began = time.monotonic()
    with pytest.raises(UnknownNameError, match=r"did you mean 'shop\.orders'"):
        read(url[:-1])
    with pytest.raises(UnknownNameError, match="none of its 1 topics has a similar name"):
        read(url.replace("shop.orders", "zzz"))
    with pytest.raises(ConfigError, match="has the partitions 0 to 3"):
        read(f"{url}?partition=9")
    assert time.monotonic() - began < 5
    assert set(place[1].list_topics(timeout=10).topics) == {"shop.orders"}


def test_inspect_and_convert_take_a_topic(place, tmp_path):
    url = f"{place[0]}?partition=0&max=5"
    shown = ask("inspect", url, "--output", "json")
    assert "looks like native-json" in shown.stderr
    assert "5 of 15 messages (max)" in shown.stderr
    assert [json.loads(line)["after"]["id"] for line in shown.stdout.splitlines()] == [0, 2, 4, 6]
    assert shown.exit_code == 0
    text = ask("inspect", url, "--limit", "2", "-f", "native-json").stdout
    assert [line for line in text.splitlines() if line.startswith("message")] == [
        "message 1  shop.orders-0@0",
        "message 2  shop.orders-0@1",
    ]
    formats = ["-f", "native-json", "-t", "debezium-json", "--output", "json", "--accept", "data"]
    done = ask("convert", *formats, "--accept", "metadata", url, str(tmp_path / "out"))
    summary = json.loads(done.stderr)
    assert (summary["messages"], done.exit_code) == (5, 0)
    records = [json.loads(line) for line in (tmp_path / "out").read_text("utf-8").splitlines()]
    assert [json.loads(one["key"]) for one in records[:2]] == [{"id": 0}, {"id": 2}]
    assert {one["timestamp"] for one in records} == {1_795_248_615_183}


def ask(*arguments, **more):
    return CliRunner().invoke(main, list(arguments), **more)


def test_a_wrong_option_is_named_and_its_secret_is_not():
    result = ask("inspect", "kafka://h:1/t", "--kafka-option", "sasl.pasword=hush")
    assert result.exit_code == 2
    assert 'No such configuration property: "sasl.pasword"' in result.stderr
    variable = ["--kafka-option", "kafka.security.protocol=${PROTOCOL}"]
    result = ask("inspect", "kafka://h:1/t", *variable, env={"PROTOCOL": "hush"})
    assert result.exit_code == 2
    assert "${PROTOCOL}" in result.stderr
    assert "hush" not in result.output
    result = ask("inspect", "kafka://h:1/t", *variable)
    assert "the environment variable PROTOCOL is not set" in result.stderr


def test_options_of_a_client_and_forms_go_with_a_topic_only():
    option = ["--kafka-option", "client.id=x"]
    formats = ["-f", "native-json", "-t", "native-json"]
    for command in (["inspect", *option], ["convert", *formats, *option]):
        result = ask(*command, input="")
        assert (result.exit_code, "needs a topic as IN" in result.stderr) == (2, True)
    result = ask("convert", *formats, "--input-line-format", "value", "kafka://h/t")
    assert (result.exit_code, "are records" in result.stderr) == (2, True)
    for output in (["-", "kafka://h/t"], ["--failures", "kafka://h/t"]):
        result = ask("convert", *formats, *output, input="")
        assert (result.exit_code, "use a pipeline to write to topics" in result.stderr) == (2, True)


def test_without_the_library_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    result = ask("inspect", "kafka://h:1/t")
    assert result.exit_code == 2
    assert "pip install 'changelane[kafka]'" in result.stderr


def test_the_nearest_parameter_is_named():
    with pytest.raises(UnknownNameError, match="did you mean 'partition'"):
        address_of("kafka://h/t?partitions=1")


def test_messages_of_a_schema_registry_are_recognised():
    value = base64.b64encode(b"\0\0\0\0\x07\x02\x0aHello").decode()
    lines = [{"topic": "t", "value_base64": value}, {"topic": "t", "value": None}]
    result = ask("inspect", input="\n".join(map(json.dumps, lines)))
    assert result.exit_code == 1
    assert "look like those of a schema registry" in result.stderr
    assert "serde=avro-registry" in result.stderr
