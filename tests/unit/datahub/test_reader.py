# SPDX-License-Identifier: Apache-2.0
"""Reading topics of DataHub: where shards end, what is read behind what, and what is lost."""

import json
from collections.abc import Sequence

import pytest
from datahub_fake import READ, FakeTopic, Time

from changelane.datahub.reader import (
    LostError,
    Stretch,
    chains,
    check,
    closed_shards_key,
    ends,
    messages,
    starts,
    stretches,
)
from changelane.datahub.service import ReadRecord, ServiceError, Shard
from changelane.datahub.shard_writer import WriteError
from changelane.errors import ConfigError
from changelane.pipeline.config import parse

T = READ
SCHEMA = json.dumps({"fields": [{"name": n, "type": "STRING"} for n in ("id", "note", "new")]})


@pytest.mark.parametrize("latest_is_last", [True, False])
def test_a_shard_ends_after_its_last_record_whatever_latest_is(latest_is_last):
    service = FakeTopic(latest_is_last=latest_is_last)
    service.shard("0", "a", "b", "c")
    service.shard("1")
    assert ends(service, T, {}) == {T: {0: 3, 1: 0}, closed_shards_key(T): {}}
    assert starts(service, T, "earliest") == {T: {0: 0, 1: 0}}
    assert starts(service, T, "latest")[T] == {0: 3, 1: 0}
    service.expire("0", 2)
    assert starts(service, T, "earliest") == {T: {0: 2, 1: 0}}


def test_shards_are_followed_into_those_they_become():
    service = FakeTopic()
    service.shard("0", "a", "b", state="CLOSED")
    service.shard("1", "c", parents="0")
    service.shard("2", state="OPENING", parents="0")
    known = ends(service, T, {T: {0: 1}})
    assert known == {T: {0: 2, 1: 1}, closed_shards_key(T): {0: 2}}
    service.state["1"] = "CLOSING", ("0",)
    service.shard("2", "d", parents="0")
    assert ends(service, T, known) == {T: {0: 2, 1: 1, 2: 1}, closed_shards_key(T): {0: 2}}
    del service.state["0"]  # the service forgets it, and it was read to its end
    assert ends(service, T, known)[T] == {0: 2, 1: 1, 2: 1}
    with pytest.raises(LostError, match="shard 0 of topic orders is gone"):
        ends(service, T, {T: {0: 1, 1: 1}, closed_shards_key(T): {0: 2}})
    with pytest.raises(LostError, match="shard 0 of topic orders is gone"):
        ends(service, T, {T: {0: 2}})


def test_parents_are_read_before_what_they_became_and_others_beside():
    shards = [
        Shard("0", 0, 9, "CLOSED"),
        Shard("1", 0, 9, "ACTIVE"),
        Shard("2", 0, 9, "CLOSED", ("0",)),
        Shard("3", 0, 9, "CLOSED", ("0",)),
        Shard("4", 0, 9, "ACTIVE", ("2", "3")),
    ]
    found = stretches(
        T, {T: {0: 5}}, {T: {0: 5, 1: 1, 2: 2, 3: 3, 4: 4}, closed_shards_key(T): {0: 5}}
    )
    told = [[one.shard for one in chain] for chain in chains(found, shards)]
    assert sorted(told) == [[1], [2, 3, 4]]
    assert found[0] == Stretch(1, 0, 1)
    everything = stretches(T, {}, {T: {4: 1, 3: 1, 2: 1, 0: 1}})
    assert [[one.shard for one in chain] for chain in chains(everything, shards)] == [[0, 2, 3, 4]]


def test_a_stretch_is_read_once_in_its_order_through_answers_of_any_size():
    service = FakeTopic(max_read=2)
    service.shard("7", *"abcdefg")
    service.read_errors = [ServiceError("LimitExceeded"), ServiceError("InternalServerError", 500)]
    found = list(messages(service, Time().patience(5.0), T, Stretch(7, 1, 6), None))
    assert [one.value for one in found] == [b"b", b"c", b"d", b"e", b"f"]
    assert (found[0].topic, found[0].partition, found[0].offset) == (T, 7, 1)


def test_records_that_go_between_two_answers_are_missed_and_numbers_never_given_are_not():
    service = FakeTopic(max_read=2)
    service.shard("0", *"abcdef")
    del service.records["0"][3]
    found = messages(service, Time().patience(5.0), T, Stretch(0, 0, 6), None)
    assert [next(found).value for _ in range(4)] == [b"a", b"b", b"c", b"e"]
    assert [one.value for one in found] == [b"f"]
    found = messages(service, Time().patience(5.0), T, Stretch(0, 0, 6), None)
    assert [next(found).value for _ in range(2)] == [b"a", b"b"]
    ask = service.read

    def read(topic: str, shard: str, sequence: int, limit: int) -> Sequence[ReadRecord]:
        told = ask(topic, shard, sequence, limit)
        service.expire("0", 5)  # as they are read
        return [one for one in told if one.sequence >= 5] or ask(topic, shard, 5, limit)

    service.read = read
    with pytest.raises(LostError, match="3 records of shard 0 of topic orders that were not read"):
        next(found)


def test_rows_are_objects_of_the_topics_fields_and_a_later_field_has_no_value():
    service = FakeTopic()
    service.shard("0")
    service.records["0"] = {0: ReadRecord(0, ("1", None), (("who", "me"),))}
    (found,) = messages(service, Time().patience(5.0), T, Stretch(0, 0, 1), SCHEMA)
    assert (found.value, found.headers) == (b'{"id":"1","note":null}', (("who", b"me"),))


@pytest.mark.parametrize("latest_is_last", [True, False])
def test_a_topic_that_was_created_again_does_not_hide_its_first_records(latest_is_last):
    service = FakeTopic(latest_is_last=latest_is_last)
    service.shard("0", "a", "b")
    service.shard("1")
    service.shard("2", "a", state="CLOSED")
    position = {T: {0: 5, 1: 3, 2: 1}, closed_shards_key(T): {2: 1}}
    with pytest.raises(LostError, match="shard 0 of topic orders ends at 2, before the offset 5"):
        check(service, T, position)
    check(service, T, position | {T: {0: 2, 1: 3, 2: 1}})


def test_what_is_gone_is_never_left_out():
    service = FakeTopic()
    service.shard("0", *"abcdef")
    service.expire("0", 3)
    with pytest.raises(LostError, match="2 records of shard 0 of topic orders that were not read"):
        check(service, T, {T: {0: 1}})
    check(service, T, {T: {0: 3}})
    with pytest.raises(LostError, match="2 records"):
        list(messages(service, Time().patience(5.0), T, Stretch(0, 1, 6), None))
    # records that are not there are waited for, and then it fails
    with pytest.raises(WriteError, match="reading shard 0 of topic orders: no progress"):
        list(messages(service, Time().patience(5.0), T, Stretch(0, 3, 8), None))
    service.read_errors = [ServiceError("NoPermission", 403)]
    with pytest.raises(ServiceError, match="NoPermission"):
        list(messages(service, Time().patience(5.0), T, Stretch(0, 3, 6), None))


SOURCE = {
    "type": "datahub",
    "endpoint": "https://dh-cn-hangzhou.aliyuncs.com",
    "project": "shop",
    "topic": "orders",
    "format": "datahub-tuple",
    "access_id": "i",
    "access_key": "k",
}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"topic": "a.b"}, "not a valid topic name"),
        ({"project": "x"}, "not a valid project name"),
        ({"endpoint": "dh"}, "endpoint must be an address"),
        ({"access_key": ""}, "is empty"),
        ({"format": "canal-json"}, "source"),
        ({"format_options": {"topic_schema": "{}"}}, "the service provides it"),
        ({"topics": ["a"]}, "did you mean 'topic'"),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(more, reason):
    lake = {"type": "delta", "path": "lake"}
    assert "k'" not in repr(parse({"name": "p", "source": SOURCE, "sink": lake}).source)
    with pytest.raises(ConfigError, match=reason):
        parse({"name": "p", "source": SOURCE | more, "sink": lake})


def test_a_datahub_source_goes_into_tables_of_spark_4():
    for sink in (
        {"type": "hudi", "path": "lake"},
        {
            "type": "kafka",
            "bootstrap_servers": "b:1",
            "topic": "t",
            "format": "canal-json",
            "checkpoint": "s",
        },
    ):
        with pytest.raises(ConfigError, match=r"Spark 3\.5|kafka source"):
            parse({"name": "p", "source": SOURCE, "sink": sink})
