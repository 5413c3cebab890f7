# SPDX-License-Identifier: Apache-2.0
"""Where messages of CDL, Lindorm and Arcion go."""

import json

import pytest

from changelane import ConfigError, EncodeError, get_codec, profiles
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
from changelane.message import Message
from changelane.profiles.partitioners import kafka_partition
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNAVAILABLE, parse_type

TABLE = TableId("tpch", "public", "region")
SCHEMA = TableSchema(
    (Column("id", parse_type("int32"), nullable=False), Column("name", parse_type("string")))
)
MOVED = {"before": {"id": 1, "name": "a"}, "after": {"id": 2, "name": "a"}}
COUNT = 5


def change(op=Op.CREATE, key=("id",), table=TABLE, **parts):
    images = {"after": {"id": 1, "name": "a"}} | parts
    source = images.pop("source", Source("postgresql"))
    return DataChange(
        op, table, key=Key(key) if key else None, schema=SCHEMA, source=source, **images
    )


def encoded(name, format_name, event, **options):
    profile = profiles.load(name, options)
    codec = profile.codec(format_name)
    return profile.encode(event, lambda e: codec.encode(e, on_loss="ignore"), lambda _: COUNT)


def sent(name, format_name, event, **options):
    return encoded(name, format_name, event, **options).messages


MAPPED = [("cdl", "cdl-json"), ("cdl", "cdl-debezium-json"), ("lindorm", "lindorm-json")]


@pytest.mark.parametrize(("name", "format_name"), MAPPED)
def test_topics_are_the_users_and_partitions_those_of_the_key(name, format_name):
    (message,) = sent(name, format_name, change(), topics='{"public.region": "regions"}')
    assert message.topic == "regions"
    assert message.key is not None
    assert json.loads(message.key).get("payload", json.loads(message.key)) == {"id": 1}
    assert message.partition == kafka_partition(message.key, COUNT)
    (other,) = sent(name, format_name, change(), topic="all.{schema}.{table}")
    assert other.topic == "all.public.region"


@pytest.mark.parametrize(("name", "format_name"), MAPPED)
def test_a_table_without_topic_is_refused(name, format_name):
    with pytest.raises(EncodeError, match=f"see profile {name}"):
        sent(name, format_name, change(), topics='{"other": "others"}')
    with pytest.raises(ConfigError, match=f"profile {name}: set the option topics"):
        profiles.load(name, {})


@pytest.mark.parametrize(("name", "format_name"), MAPPED)
def test_a_change_of_the_key_is_a_delete_and_an_insert_each_by_its_own_key(name, format_name):
    gone, come = sent(name, format_name, change(Op.UPDATE, **MOVED), topic="t")
    (old,) = sent(name, format_name, change(Op.DELETE, before={"id": 1}, after=None), topic="t")
    assert (gone.key, gone.partition) == (old.key, old.partition)
    assert come.key != gone.key
    codec = get_codec(format_name)
    kinds = [event.op for message in (gone, come) for event in codec.decode(message)]
    assert kinds == [Op.DELETE, Op.CREATE]


def test_a_key_column_that_the_row_after_leaves_out_did_not_change():
    images = {"before": {"id": 1, "name": "a"}, "after": {"name": "b"}}
    event = change(Op.UPDATE, key=("id", "name"), **images)
    _, come = sent("lindorm", "lindorm-json", event, topic="t")
    assert json.loads(come.key) == {"id": 1, "name": "b"}


@pytest.mark.parametrize(("name", "format_name"), MAPPED)
def test_a_table_without_key_is_refused_unless_the_user_accepts_it(name, format_name):
    with pytest.raises(EncodeError, match=r"tpch.public.region has no key.*null_keys=true"):
        sent(name, format_name, change(key=None), topic="t")
    (message,) = sent(name, format_name, change(key=None), topic="t", null_keys="true")
    assert (message.key, message.partition) == (None, None)


@pytest.mark.parametrize(("name", "format_name"), MAPPED)
@pytest.mark.parametrize(
    "event",
    [
        SchemaChange(TABLE, "alter", "alter table region add x int"),
        Watermark(),
        TransactionMarker("begin", Transaction("7")),
        Tombstone(TABLE, {"id": 1}),
    ],
    ids=lambda event: event.__struct_config__.tag,
)
def test_what_the_producer_has_no_message_for_is_dropped_and_counted(name, format_name, event):
    found = encoded(name, format_name, event, topic="t")
    assert found.messages == ()
    assert found.losses == ((f"event:{event.__struct_config__.tag}", f"{name} does not write it"),)


def test_cdls_own_heartbeat_keeps_its_topic_or_gets_the_one_of_the_option():
    value = {
        "DATA_STORE": "POSTGRESQL",
        "SEG_OWNER": "cdc_cdl",
        "TABLE_NAME": "cdc_heartbeat",
        "OPERATION": "UPDATE",
        "TIMESTAMP": 1707047996013,
        "unique": {"cdl_job_id": "j"},
        "data": {"cdl_job_id": "j", "cdl_last_heartbeat": None},
        "message_version": "1.0",
    }
    message = Message(json.dumps(value).encode(), topic="shop-cdc_cdl-cdc_heartbeat")
    (event,) = get_codec("cdl-json").decode(message)
    assert isinstance(event, Watermark)
    (same,) = sent("cdl", "cdl-json", event, topic="t")
    assert (same.topic, same.value) == (message.topic, message.value)
    (other,) = sent("cdl", "cdl-json", event, topic="t", heartbeat_topic="beats")
    assert other.topic == "beats"


# -- Arcion ------------------------------------------------------------------------------------


def arcion(event, **options):
    return sent("arcion", "arcion-json", event, **options)


def test_arcions_topics_join_the_parts_of_the_name():
    assert arcion(change())[0].topic == "tpch_public_region"
    assert arcion(change(), delimiter="dot")[0].topic == "tpch.public.region"
    hostile = change(table=TableId("tpch", None, "bad name"))
    assert arcion(hostile)[0].topic == "tpch_bad_name"
    assert arcion(hostile, topics='{"bad name": "good"}')[0].topic == "good"


def test_rows_of_a_snapshot_can_have_topics_of_their_own():
    read = change(Op.READ, source=Source("mysql", snapshot="true"))
    assert arcion(read)[0].topic == "tpch_public_region"
    assert arcion(read, snapshot_suffix="_snap")[0].topic == "tpch_public_region_snap"
    assert arcion(change(), snapshot_suffix="_snap")[0].topic == "tpch_public_region"


def test_a_delete_is_followed_by_a_tombstone_with_its_key_and_partition():
    delete, tombstone = arcion(change(Op.DELETE, before={"id": 1, "name": "a"}, after=None))
    assert tombstone.value is None
    assert delete.key == tombstone.key
    assert delete.partition == tombstone.partition == kafka_partition(delete.key, COUNT)


def test_a_changed_key_is_a_delete_a_tombstone_and_an_insert_without_headers():
    found = arcion(change(Op.UPDATE, **MOVED))
    assert [message.value is None for message in found] == [False, True, False]
    assert all(message.headers == () for message in found)
    gone, tombstone, come = found
    assert gone.key == tombstone.key != come.key
    assert [json.loads(m.value)["payload"]["op"] for m in (gone, come)] == ["d", "c"]


def test_an_arcion_table_without_key_has_the_null_key_that_is_documented():
    (message,) = arcion(change(key=None))
    assert (message.key, message.partition) == (None, None)


def test_the_shard_key_takes_a_column_modulo_the_partitions():
    shard = {"shard_key": '{"region": "id"}'}
    event = change(after={"id": 12, "name": "a"})
    assert arcion(event, **shard)[0].partition == 12 % COUNT
    delete = change(Op.DELETE, before={"id": 12, "name": "a"}, after=None)
    assert [message.partition for message in arcion(delete, **shard)] == [12 % COUNT] * 2
    for value in (-1, None):
        with pytest.raises(EncodeError, match="not a whole number from zero"):
            arcion(change(after={"id": value, "name": "a"}), **shard)


def test_a_tombstone_that_was_read_is_dropped_because_its_delete_brings_one():
    read = Tombstone(TableId(), {"id": 1}, details={"topic": "tpch_region"})
    assert encoded("arcion", "arcion-json", read).losses == (
        ("event:tombstone", "arcion does not write it"),
    )
    told = {"source": {"version": "5.7.41"}}
    images = {"before": {"id": 1, "name": "a"}, "after": None}
    delete = DataChange(
        Op.DELETE, TABLE, key=Key(("id",)), source=Source("mysql", "arcion"), details=told, **images
    )
    assert [message.value is None for message in arcion(delete)] == [False, True]


@pytest.mark.parametrize(("name", "format_name"), [*MAPPED, ("arcion", "arcion-json")])
def test_an_unavailable_value_of_a_moved_row_comes_from_its_old_row_or_is_a_loss(name, format_name):
    options = {} if name == "arcion" else {"topic": "all"}
    after = {"id": 2, "name": UNAVAILABLE}
    full = change(Op.UPDATE, before={"id": 1, "name": "a"}, after=after)
    assert encoded(name, format_name, full, **options).losses == (
        encoded(name, format_name, change(Op.UPDATE, **MOVED), **options).losses
    )
    messages = [one.value for one in sent(name, format_name, full, **options) if one.value]
    assert b'"a"' in messages[-1]
    key_only = change(Op.UPDATE, before={"id": 1}, after=after)
    losses = dict(encoded(name, format_name, key_only, **options).losses)
    assert losses["key_change"] == (
        "a column whose value the producer did not send is unknown in the new row"
    )


def test_a_column_that_the_new_row_of_a_moved_row_lacks_did_not_change():
    moved = change(Op.UPDATE, before={"id": 1, "name": "a"}, after={"id": 2})
    assert b'"a"' in sent("arcion", "arcion-json", moved)[-1].value
