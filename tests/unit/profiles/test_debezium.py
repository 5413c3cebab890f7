# SPDX-License-Identifier: Apache-2.0
"""Where Debezium's messages go, compared with what its connectors wrote to 2 partitions each."""

import json
from pathlib import Path

import pytest

from changelane import EncodeError, Message, get_codec, profiles
from changelane.conversion.join_update_halves import JoinHalves
from changelane.conversion.stateful import run
from changelane.event import (
    DataChange,
    Key,
    Op,
    SchemaChange,
    Source,
    Tombstone,
    Transaction,
    TransactionMarker,
    Watermark,
)
from changelane.formats.debezium_envelope.source_block import topic_of
from changelane.position import MySqlPosition
from changelane.profiles.partitioners import kafka_partition
from changelane.schema import TableId
from changelane.testing import golden

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
FILES = sorted((GOLDEN / "debezium-json" / "captured").glob("*.jsonl"))
FLAT = sorted((GOLDEN / "debezium-flat-json" / "captured").glob("*.jsonl"))
FLAT_OPTIONS = {"delete_tombstone_handling_mode": "rewrite-with-tombstone"}
TABLE = TableId("shop", None, "orders")
KEY = Key(("id",))
SHOP = Source(product="mysql", connector="debezium", server="shop")
AT = MySqlPosition("binlog.000003", 4711)


def test_each_char_of_java_that_a_topic_cannot_have_is_an_underscore():
    assert topic_of(Source(server="s"), TableId(None, "a b", "\u00fc\U0001f600")) == "s.a_b.___"


def test_a_key_has_the_bytes_of_the_converter():
    """Captured rows have an emoji as two escapes in upper case; Kafka hashes the bytes of a key."""
    event = DataChange(Op.CREATE, TABLE, KEY, after={"id": "\U0001f600\x1f\\u001f"}, source=SHOP)
    profile = profiles.load("debezium", {})
    encode = lambda part: profile.codec("debezium-json").encode(part, on_loss="ignore")  # noqa: E731
    (message,) = profile.encode(event, encode, lambda _: 7).messages
    assert message.key == b'{"id":"\\uD83D\\uDE00\\u001F\\\\u001f"}'
    assert message.partition == kafka_partition(message.key, 7)
    assert profile.codec("debezium-json").decode(message)[0].after == event.after


def messages(path):
    for line in path.read_text("utf-8").splitlines():
        record = json.loads(line)
        yield Message(
            None if record["value"] is None else record["value"].encode(),
            None if record["key"] is None else record["key"].encode(),
            tuple((name, value.encode()) for name, value in record["headers"]),
            record["topic"],
            record["partition"],
            record["offset"],
            record["timestamp"],
        )


def header(message, name):
    found = dict(message.headers).get(f"__debezium.context.{name}")
    return None if found is None else found.decode()


def profile_of(path, **options):
    """The profile as the connector of a file was set up."""
    told = [message for message in messages(path) if header(message, "runId")]
    return profiles.load(
        "debezium",
        {
            "run_id": "a-run",
            "topic_prefix": header(told[0], "connectorLogicalName"),
        }
        | options,
    )


def place(message):
    """What a profile decides; Kafka itself chooses where a message without key goes."""
    # a capture holds several runs of a connector
    headers = tuple(pair for pair in message.headers if not pair[0].endswith(".runId"))
    if message.value is None:
        # a tombstone names no table, and so nothing tells the connector's product
        headers = tuple(pair for pair in headers if not pair[0].endswith(".connectorName"))
    partition = None if message.key is None else message.partition
    return message.topic, message.key, partition, headers


def encoded(profile, codec, event, count=2):
    def encode(event):
        return codec.encode(event, on_loss="ignore")

    return profile.encode(event, encode, lambda _: count).messages


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_captured_message_gets_its_own_place_again(path):
    profile, codec = profile_of(path), get_codec("debezium-json")
    for message in messages(path):
        found = [
            place(one) for event in codec.decode(message) for one in encoded(profile, codec, event)
        ]
        assert found == [place(message)], message.where


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_joined_change_of_the_key_becomes_the_three_messages_again(path):
    profile, codec = profile_of(path), get_codec("debezium-json")
    events = run(JoinHalves(), (e for m in messages(path) for e in codec.decode(m)))
    moved = [e for e in events if isinstance(e, DataChange) and e.op is Op.UPDATE and e.before]
    found = [encoded(profile, codec, event) for event in moved]
    found = [place(one) for three in found if len(three) == 3 for one in three]
    halves = {"__debezium.newkey", "__debezium.oldkey"}
    captured = [m for m in messages(path) if halves & {name for name, _ in m.headers}]
    assert captured
    assert sorted(found, key=str) == sorted((place(m) for m in captured), key=str)


def change(op=Op.CREATE, **parts):
    defaults = {"key": KEY, "after": {"id": 1004}, "position": AT, "source": Source("mysql")}
    return DataChange(op, TABLE, **(defaults | parts))


def written(event, count=12, **options):
    profile = profiles.load("debezium", {"topic_prefix": "cdc"} | options)
    return encoded(profile, get_codec("debezium-json"), event, count)


def test_an_event_of_another_producer_gets_the_prefix_and_murmur2_of_its_key():
    (message,) = written(change())
    assert (message.topic, message.key, message.partition) == (
        "cdc.shop.orders",
        b'{"id":1004}',
        9,
    )
    assert json.loads(message.value)["source"]["name"] == "cdc"


def test_a_delete_is_followed_by_a_tombstone_in_its_partition():
    delete, tombstone = written(change(Op.DELETE, before={"id": 1004}, after=None))
    assert tombstone.value is None
    assert (tombstone.topic, tombstone.key, tombstone.partition) == (
        delete.topic,
        delete.key,
        delete.partition,
    )


def test_a_change_of_the_key_is_a_delete_a_tombstone_and_a_create_with_headers():
    event = change(Op.UPDATE, before={"id": 1}, after={"id": 2})
    first, tombstone, last = written(event)
    assert first.headers == tombstone.headers == (("__debezium.newkey", b'{"id":2}'),)
    assert last.headers == (("__debezium.oldkey", b'{"id":1}'),)
    assert (first.key, tombstone.key, last.key) == (b'{"id":1}', b'{"id":1}', b'{"id":2}')
    assert first.partition == tombstone.partition != last.partition


def test_a_table_without_key_leaves_the_partition_to_kafka():
    (message,) = written(change(key=None))
    assert (message.key, message.partition) == (None, None)


def test_an_unknown_number_of_partitions_leaves_it_to_kafka_which_chooses_the_same():
    (message,) = written(change(), count=None)
    assert (message.key, message.partition) == (b'{"id":1004}', None)


def test_heartbeats_schema_changes_and_transactions_have_topics_of_their_own():
    (beat,) = written(Watermark())
    assert (beat.topic, beat.key, beat.partition) == (
        "__debezium-heartbeat.cdc",
        b'{"serverName":"cdc"}',
        0,
    )
    ddl = SchemaChange(TABLE, "alter", "alter table orders add x int", source=Source("mysql"))
    (told,) = written(ddl)
    assert (told.topic, told.key, told.partition) == ("cdc", b'{"databaseName":"shop"}', 0)
    (begin,) = written(TransactionMarker("begin", Transaction("7")), count=1)
    assert (begin.topic, begin.key, begin.partition) == ("cdc.transaction", b'{"id":"7"}', 0)


def test_an_event_without_server_needs_the_prefix():
    profile = profiles.load("debezium", {})
    with pytest.raises(EncodeError, match="set the option topic_prefix"):
        encoded(profile, get_codec("debezium-json"), change())


def test_a_tombstone_of_another_producers_topic_is_dropped():
    read = Tombstone(TableId(), {"id": 1}, details={"topic": "tpch_region"})
    assert written(read) == ()
    own = Tombstone(TableId(), {"id": 1}, details={"topic": "cdc.shop.orders"})
    assert [message.topic for message in written(own)] == ["cdc.shop.orders"]
    named = Tombstone(TABLE, {"id": 1})
    assert [message.topic for message in written(named)] == ["cdc.shop.orders"]


def test_the_prefix_does_not_rename_a_server_that_is_known():
    (message,) = written(change(source=Source("mysql", server="dbz")))
    assert message.topic == "dbz.shop.orders"


@pytest.mark.parametrize("path", FLAT, ids=lambda path: path.stem)
def test_flattened_rows_keep_keys_and_partitions(path):
    profile = profile_of(path)
    codec = profile.codec("debezium-flat-json", FLAT_OPTIONS)
    rows = 0
    for message in messages(path):
        found = [
            (one.topic, one.key, one.partition)
            for event in codec.decode(message)
            for one in encoded(profile, codec, event)
            if one.value is not None
        ]
        if found and message.key is not None and message.value is not None:
            rows += 1
            assert found == [(message.topic, message.key, message.partition)], message.where
    assert rows > 50


MONGODB = sorted((GOLDEN / "debezium-mongodb-json" / "debezium-2.7").glob("*/event.jsonl"))


@pytest.mark.parametrize("path", [path.parent for path in MONGODB], ids=lambda path: path.name)
def test_a_document_has_the_topic_and_the_key_of_the_connector(path):
    case = golden.read_case(path)
    if case.options or path.name == "with_schema":  # rows of columns, and keys with a schema
        return
    profile = profiles.load("debezium", {"topic_prefix": "other"})
    codec = get_codec("debezium-mongodb-json")
    (message,) = case.messages
    first, *tombstones = encoded(profile, codec, case.events[0])
    assert (first.topic, first.key) == ("shop.shop.orders", message.key)
    assert first.partition == kafka_partition(message.key, 2)
    is_delete = path.name.startswith("delete")
    assert [(t.value, t.key, t.partition) for t in tombstones] == [
        (None, first.key, first.partition)
    ] * is_delete
