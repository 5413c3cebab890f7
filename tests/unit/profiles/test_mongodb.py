# SPDX-License-Identifier: Apache-2.0
"""Where MongoDB's Kafka connector sends the events of change streams."""

import json

import pytest

from changelane import EncodeError, Message, profiles
from changelane.event import DataChange, Key, Op
from changelane.profiles.partitioners import kafka_partition
from changelane.schema import TableId

TOKEN = {
    "_data": "825EC2CDBE000000012B022C0100296E5A1004",
    "_typeBits": {"$binary": "QA==", "$type": "00"},
}
EVENT = {
    "_id": TOKEN,
    "operationType": "insert",
    "ns": {"db": "shop", "coll": "orders"},
    "documentKey": {"_id": {"$oid": "5ec39a7dfec359fd2d00e1cc"}},
    "fullDocument": {"_id": {"$oid": "5ec39a7dfec359fd2d00e1cc"}},
}


def sent(event=None, **options):
    profile = profiles.load("mongodb", options)
    codec = profile.codec("mongodb-change-stream-json")
    if event is None:
        (event,) = codec.decode(Message(json.dumps(EVENT).encode()))
    return profile.encode(event, lambda e: codec.encode(e, on_loss="ignore"), lambda _: 5).messages


def test_the_key_is_that_of_the_document_or_the_resume_token():
    (message,) = sent()
    assert message.key == b'{"_id": {"$oid": "5ec39a7dfec359fd2d00e1cc"}}'
    assert message.partition == kafka_partition(message.key, 5)
    (message,) = sent(document_key_as_key=False)
    assert message.key == json.dumps({"_id": TOKEN}).encode()
    row = {"_id": "1", "document": '{"_id":{"$numberInt":"1"}}'}
    event = DataChange(Op.CREATE, TableId("shop", None, "t"), Key(("_id",)), None, row)
    assert sent(event)[0].key == b'{"_id": 1}'
    with pytest.raises(EncodeError, match="no resume token"):
        sent(event, document_key_as_key=False)


@pytest.mark.parametrize(
    ("options", "topic"),
    [
        ({}, "shop.orders"),
        ({"topic_prefix": "p", "topic_suffix": "s"}, "p.shop.orders.s"),
        ({"topic_namespace_map": {"shop.orders": "o", "shop": "x"}}, "o"),
        ({"topic_namespace_map": {"shop": "x", "*": "all"}}, "x.orders"),
        ({"topic_namespace_map": {"other": "x", "*": "all"}, "topic_prefix": "p"}, "p.all"),
    ],
)
def test_the_topic_is_the_namespace_or_its_name_in_the_map(options, topic):
    (message,) = sent(**options)
    assert message.topic == topic
