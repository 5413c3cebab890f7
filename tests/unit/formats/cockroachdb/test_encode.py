# SPDX-License-Identifier: Apache-2.0
"""Events to messages of CockroachDB's changefeeds: envelope, keys, times, topics, losses."""

import decimal

import msgspec
import pytest
from hypothesis import given, settings

from changelane import EncodeError, get_codec
from changelane.event import Completeness, DataChange, Key, Op, Source, Watermark
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.compare import differences
from changelane.testing.event_strategies import events
from changelane.types import Bytes, Decimal, Integer, Json

TIME = 1701102311425045162
SOURCE = Source(product="cockroachdb", connector="cockroachdb")
EVENT = DataChange(
    Op.UPDATE,
    TableId(name="t"),
    Key(("id",)),
    {"id": 1, "a": None},
    {"id": 1, "a": "x"},
    position=SequencePosition(TIME * 10**10 + 3),
    source=SOURCE,
    source_time_ns=TIME,
    before_holds=Completeness.FULL,
    after_holds=Completeness.FULL,
)
SCHEMAS = {"schemas": {"t": {"id": "int64 key", "a": "string"}}}


def change(**fields):
    return msgspec.structs.replace(EVENT, **fields)


def encode(event, **options):
    encoded = get_codec("cockroachdb-json", **options).encode(event, on_loss="ignore")
    return encoded.messages, dict(encoded.losses)


def lost(event, **options):
    return sorted(encode(event, **options)[1])


def test_an_update_has_both_rows_its_key_and_its_time():
    encoded = get_codec("cockroachdb-json", **SCHEMAS).encode(EVENT, on_loss="raise")
    (message,) = encoded.messages
    assert (message.topic, message.key) == ("t", b"[1]")
    assert message.value == (
        b'{"after":{"id":1,"a":"x"},"before":{"id":1,"a":null},"key":[1],'
        b'"updated":"1701102311425045162.0000000003"}'
    )


@settings(deadline=None, max_examples=30, derandomize=True)
@given(events(get_codec("cockroachdb-json").carries))
def test_events_of_the_source_come_back_without_losses(event):
    codec = get_codec("cockroachdb-json")
    changes = {}
    if isinstance(event.position, SequencePosition):  # random numbers are no times of the clock
        changes["position"] = SequencePosition(event.position.value + 10**28)
        changes["source_time_ns"] = changes["position"].value // 10**10
    else:
        changes["source_time_ns"] = None
    if isinstance(event, DataChange):
        changes |= {"key": None, "details": {}, "table": TableId("db", "public", "t")}
    else:
        changes["details"] = {}
    event = msgspec.structs.replace(event, **changes)
    encoded = codec.encode(event, on_loss="ignore")
    read = [again for message in encoded.messages for again in codec.decode(message)]
    if isinstance(event, DataChange) or encoded.messages:
        assert not encoded.losses
        assert [differences(again, event, codec.carries) for again in read] == [()]


def test_an_insert_and_an_update_without_its_old_row_differ():
    (insert,), _ = encode(change(op=Op.CREATE, before=None))
    assert msgspec.json.decode(insert.value)["before"] is None
    (update,), _ = encode(change(before=None))
    assert "before" not in msgspec.json.decode(update.value)


def test_a_delete_of_a_declared_table_may_have_only_its_key():
    delete = change(op=Op.DELETE, before={"id": 1}, after=None, before_holds=Completeness.KEY)
    (message,), losses = encode(delete, **SCHEMAS)
    assert msgspec.json.decode(message.value) | {"updated": ""} == {
        "after": None,
        "key": [1],
        "updated": "",
    }
    assert not losses
    (message,), _ = encode(delete)
    assert msgspec.json.decode(message.value)["before"] == {"id": 1}


def test_only_times_of_the_clock_are_written():
    assert lost(change(position=SequencePosition(7)), **SCHEMAS) == ["position", "source_time"]
    assert lost(change(source_time_ns=7), **SCHEMAS) == ["source_time"]
    scanned = change(source_time_ns=5, details={"mvcc_timestamp": "5.0000000000"})
    (message,), losses = encode(scanned, **SCHEMAS)
    assert msgspec.json.decode(message.value)["mvcc_timestamp"] == "5.0000000000"
    assert not losses
    unordered = msgspec.structs.replace(scanned, position=None, source_time_ns=None)
    assert lost(unordered, **SCHEMAS) == ["details.mvcc_timestamp"]


def test_key_columns_that_readers_do_not_know_are_a_loss():
    assert lost(EVENT) == ["key"]
    assert lost(change(key=Key(("a",)), before=None), **SCHEMAS) == ["key"]
    with pytest.raises(EncodeError, match="the row lacks a key column"):
        encode(change(after={"a": "x"}, before=None), **SCHEMAS)


def test_the_topic_is_the_name_of_the_table():
    table = TableId("movr", "public", "users")
    assert encode(change(table=table))[0][0].topic == "movr.public.users"
    assert lost(change(table=TableId("movr", None, "users"))) == ["key", "table.database"]
    (message,), losses = encode(change(table=TableId(name="a b")))
    assert (message.topic, list(losses)) == ("a_u0020_b", ["key"])
    (read,) = get_codec("cockroachdb-json").decode(message)
    assert read.table == TableId(name="a b")
    assert lost(change(table=TableId(name="a" * 300))) == ["key", "table.name"]


def test_a_key_change_is_a_delete_and_an_insert():
    messages, losses = encode(change(before={"id": 2, "a": None}), **SCHEMAS)
    rows = [msgspec.json.decode(message.value) for message in messages]
    assert [(row["after"], row["key"]) for row in rows] == [
        (None, [2]),
        ({"id": 1, "a": "x"}, [1]),
    ]
    assert "key_change" in losses


def test_values_have_their_json_forms():
    columns = (Column("id", Integer(64)), Column("b", Bytes()), Column("j", Json()))
    schema = TableSchema((*columns, Column("p", Decimal(10, 2))))
    row = {"id": 1, "b": b"\x00\xff", "j": '{"a": 1.10}', "p": decimal.Decimal("1.50")}
    (message,), _ = encode(change(before=None, after=row, schema=schema))
    assert b'"b":"\\\\x00ff","j":{"a":1.10},"p":1.50' in message.value


def test_a_row_that_is_not_whole_is_a_loss():
    assert lost(change(after_holds=Completeness.CHANGED), **SCHEMAS) == ["absent"]


def test_only_a_resolved_time_is_a_message():
    watermark = Watermark("resolved", EVENT.position, SOURCE, TIME)
    (message,), losses = encode(watermark)
    assert message.value == b'{"resolved":"1701102311425045162.0000000003"}'
    assert not losses
    assert encode(Watermark("heartbeat"))[0] == ()
    assert encode(msgspec.structs.replace(watermark, position=SequencePosition(7)))[0] == ()
