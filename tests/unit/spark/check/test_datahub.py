"""What `changelane check` finds of DataHub's topics, and that it changes nothing there."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from datahub_fake import READ, FakeService, FakeTopic, Time, even_shards

from changelane.datahub.reader import closed_shards_key
from changelane.datahub.service import ReadRecord, ServiceError, Topic
from changelane.pipeline.config import parse
from changelane.spark.check.datahub import check_sink, check_source

SECRET = "secret-of-the-key"
ACCESS = {
    "type": "datahub",
    "endpoint": "https://dh.example.com",
    "project": "shop",
    "topic": READ,
    "access_id": SECRET,
    "access_key": SECRET,
}


def source(**told: Any) -> Any:
    sink = {"type": "delta", "path": "d"}
    section = {**ACCESS, "format": "datahub-blob", **told}
    return parse({"name": "p", "source": section, "sink": sink}).source


def sink(**told: Any) -> Any:
    kafka = {
        "type": "kafka",
        "bootstrap_servers": "b:9092",
        "topics": ["t"],
        "format": "debezium-json",
    }
    section = {**ACCESS, "format": "datahub-blob", "checkpoint": "c", **told}
    return parse({"name": "p", "source": kafka, "sink": section}).sink


def drained(found: Iterator[Any]) -> tuple[list[str], Any]:
    """The findings as text, and what is returned behind them."""
    texts = []
    while True:
        try:
            texts.append(str(next(found)))
        except StopIteration as end:
            return texts, end.value


def looked(service: FakeTopic, position: Any = None, **told: Any) -> tuple[list[str], Any]:
    texts, found = drained(check_source(source(**told), service, Time().patience(10.0), position))
    assert SECRET not in str(texts)
    return texts, found


def test_a_topic_tells_how_much_would_be_read_and_its_first_records():
    service = FakeTopic()
    service.shard("0", "a", "b")
    service.shard("1", *map(str, range(200)))
    texts, (first, learnt) = looked(service)
    assert texts == ["ok       topic orders: 2 shards; 202 records would be read"]
    # a share for each shard
    assert [one.value for one in first[READ][:2]] == [b"a", b"b"]
    assert len(first[READ]) == 2 + 50
    assert learnt == {}


def test_where_nothing_new_is_the_last_records_are_looked_at():
    service = FakeTopic()
    service.shard("0", "a", "b")
    texts, (first, _) = looked(service, {READ: {0: 2}, closed_shards_key(READ): {}})
    assert texts == ["ok       topic orders: 1 shards; 0 records would be read"]
    assert [one.value for one in first[READ]] == [b"a", b"b"]


def test_records_that_were_read_may_be_gone_and_their_shards_too():
    service = FakeTopic()
    service.shard("1", "a", "b")
    # shard 0 was split, read to its end and forgotten by the service
    position = {READ: {0: 7, 1: 2}, closed_shards_key(READ): {0: 7}}
    texts, (first, _) = looked(service, position)
    assert texts == ["ok       topic orders: 2 shards; 0 records would be read"]
    assert [one.value for one in first[READ]] == [b"a", b"b"]
    service.records["1"].clear()
    texts, (first, _) = looked(service, position)
    assert texts == ["ok       topic orders: 2 shards; 0 records would be read"]
    assert first == {READ: []}


def test_the_topic_tells_the_schema_of_its_tuples():
    service = FakeTopic()
    schema = json.dumps({"fields": [{"name": "id", "type": "BIGINT"}]})
    service.kind = Topic("TUPLE", schema)
    service.shard("0")
    service.records["0"][0] = ReadRecord(0, ("7",))
    _, (first, learnt) = looked(service, format="datahub-tuple")
    assert learnt == {"topic_schema": schema}
    assert first[READ][0].value == b'{"id":"7"}'


def test_a_topic_that_cannot_be_read_is_a_problem_with_its_fix():
    service = FakeTopic()
    service.shard("0", "a", "b", "c")
    texts, found = looked(service, topic="other")
    assert texts == ["problem  source: project shop has no topic other"]
    assert found is None
    texts, _ = looked(service, format="datahub-tuple")
    assert texts == [
        "problem  source.topic: orders is a BLOB topic: set source.format: datahub-blob"
    ]
    service.expire("0", 2)
    texts, _ = looked(service, {READ: {0: 1}, closed_shards_key(READ): {}})
    assert texts == [
        (
            "problem  source: 1 records of shard 0 of topic orders that were not read yet are gone"
            ": a run stops with this error, and its fix"
        )
    ]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            ServiceError("NoPermission", 403),
            (
                "DataHub answers NoPermission (status 403): check the access keys of the source, "
                "and their permissions"
            ),
        ),
        (
            ServiceError("Unreachable"),
            (
                "topic orders: no progress for 13 seconds: DataHub answers Unreachable: check the "
                "endpoint of the source, and the network"
            ),
        ),
    ],
)
def test_a_service_that_refuses_or_is_silent_is_told_apart(error, text):
    service = FakeTopic()
    service.shard("0", "a")
    service.read_errors = [error] * 20
    texts, found = looked(service)
    assert texts == [f"problem  source: {text}"]
    assert found is None


def test_a_topic_that_is_written_is_looked_at_and_never_made():
    service = FakeService(even_shards(2))

    def told(**more: Any) -> list[str]:
        return drained(check_sink(sink(**more), service, Time().patience(10.0)))[0]

    assert told() == [
        "problem  sink.topic: project shop has no topic orders: create it, or set sink.create"
    ]
    assert told(create={"shards": 2}) == ["ok       sink: a run would create the BLOB topic orders"]
    assert service.created == []
    service.topics[READ] = Topic("BLOB")
    assert told() == ["ok       sink: the BLOB topic orders exists"]
    assert told(format="datahub-tuple") == [
        (
            "problem  sink.topic: topic orders is a BLOB topic, and datahub-tuple needs TUPLE: "
            "change sink.topic or sink.format"
        )
    ]
    assert told(format="datahub-tuple", topic="{table}") == [
        "warning  sink.topic: the topics of tables are checked during a run"
    ]
