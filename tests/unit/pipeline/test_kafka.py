"""Topics in a pipeline's file: what is refused, and what stays secret."""

from pathlib import Path
from typing import Any

import pytest

from changelane.errors import ConfigError, UnknownNameError
from changelane.pipeline.config import load, parse
from changelane.pipeline.kafka_source import KafkaSource, client_options

LEAST: dict[str, Any] = {"type": "kafka", "bootstrap_servers": "b:9092", "format": "debezium-json"}


def source(**more: Any) -> KafkaSource:
    told = {"name": "x", "source": LEAST | more, "sink": {"type": "delta", "path": "/lake"}}
    found = parse(told).source
    assert isinstance(found, KafkaSource)
    return found


def test_topics_are_named_one_by_one_or_by_a_pattern() -> None:
    assert source(topics="a").names == ("a",)
    assert source(topics=["a", "b"]).names == ("a", "b")
    assert source(topic_pattern="shop[.].*").label == "pattern shop[.].*"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, "topics or topic_pattern"),
        ({"topics": "a", "topic_pattern": "a"}, "topics or topic_pattern"),
        ({"topics": []}, "topics is empty"),
        ({"topics": ["a,b"]}, "not valid topic names"),
        ({"topics": [".."]}, "not valid topic names"),
        ({"topics": "a", "starting_offsets": "newest"}, "starting_offsets"),
        ({"topics": "a", "starting_offsets": {"a": {0: -1}}}, "below 0"),
        ({"topics": "a", "starting_offsets": {"a": {"x": 1}}}, "is not a number"),
        ({"topics": "a", "max_offsets_per_trigger": 0}, "max_offsets_per_trigger"),
        ({"topics": "a", "spark_options": {"failOnDataLoss": "false"}}, "lost messages must fail"),
        (
            {"topics": "a", "spark_options": {"kafka.bootstrap.servers": "c"}},
            "use source.bootstrap_servers",
        ),
        ({"topics": "a", "spark_options": {"subscribePattern": "c"}}, "use source.topic_pattern"),
    ],
)
def test_what_cannot_be_read_is_refused_in_the_file(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source(**more)


def test_starting_offsets_are_given_by_partition() -> None:
    told = source(topics="a", starting_offsets={"a": {0: 17, "1": 4}})
    assert told.starts == {"a": {0: 17, 1: 4}}
    assert source(topics="a").starts == "earliest"


def test_an_unknown_key_names_the_nearest_of_its_kind() -> None:
    with pytest.raises(UnknownNameError, match=r"key in source 'topic'.*'topics'"):
        source(topic="a")
    with pytest.raises(UnknownNameError, match="key in source 'path'"):
        source(topics="a", path="x")


def test_options_of_the_client_pass_untouched_and_are_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "name: x\n"
        "source: {type: kafka, bootstrap_servers: 'b:9092', topics: a, format: debezium-json,\n"
        "  spark_options: {kafka.security.protocol: SASL_SSL, kafka.sasl.jaas.config: '${JAAS}'}}\n"
        "sink: {type: delta, path: lake}\n"
    )
    pipeline = load(file, {"JAAS": 'Module required password="hunter2";'})
    assert isinstance(pipeline.source, KafkaSource)
    assert client_options(pipeline.source.spark_options) == {
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": 'Module required password="hunter2";',
    }
    assert "hunter2" not in repr(pipeline)
    assert pipeline.packages == ("delta", "kafka")
