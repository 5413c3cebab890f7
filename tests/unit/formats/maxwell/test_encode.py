# SPDX-License-Identifier: Apache-2.0
"""Messages for Maxwell's readers: what they would read differently is a loss."""

import decimal
import json

import pytest

from changelane import Message, get_codec
from changelane.errors import EncodeError, UnsupportedError
from changelane.event import (
    Completeness,
    Control,
    DataChange,
    Key,
    KeyOrigin,
    Op,
    SchemaChange,
    Source,
)
from changelane.event import Transaction as Tx
from changelane.position import MySqlPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.types import Instant, InstantType, Integer, parse_instant

CODEC = get_codec("maxwell-json")
TABLE = TableId("test", None, "t")
FULL = Completeness.FULL
MAXWELL = Source("mysql", "maxwell")


def change(op=Op.CREATE, before=None, after=None, **fields):
    fields = {"key": Key(("id",)), "source": MAXWELL} | fields
    return DataChange(op, fields.pop("table", TABLE), before=before, after=after, **fields)


def written(event, codec=CODEC):
    encoded = codec.encode(event, on_loss="ignore")
    messages = [(json.loads(m.value), m.key and m.key.decode()) for m in encoded.messages]
    return messages, {field for field, _ in encoded.losses}


def test_the_fields_have_maxwells_order():
    event = change(
        Op.UPDATE,
        {"id": 1, "a": "y"},
        {"id": 1, "a": "x"},
        position=MySqlPosition("m.1", 4, gtid="g"),
        transaction=Tx("7", 3, last=False),
        source_time_ns=5_000_000_000,
        process_time_ns=6_500_000_000,
        key=Key(("id",), KeyOrigin.PAYLOAD),
        before_holds=FULL,
        details={"thread_id": 2, "query": "q", "shard": None, "primary_key": [1]},
    )
    (message,) = CODEC.encode(event).messages
    assert message.value.decode() == (
        '{"database":"test","table":"t","query":"q","type":"update","ts":5,"xid":7,"xoffset":2,'
        '"position":"m.1:4","gtid":"g","thread_id":2,"push_ts":6.5,"shard":null,"primary_key":[1],'
        '"primary_key_columns":["id"],"data":{"id":1,"a":"x"},"old":{"a":"y"}}'
    )
    assert CODEC.decode(message)[0].details == event.details


@pytest.mark.parametrize(
    ("key_format", "key"),
    [
        ("hash", '{"database":"test","table":"t","pk.id":1,"pk.part2":"hello"}'),
        ("array", '["test","t",[{"id":1},{"part2":"hello"}]]'),
    ],
)
def test_the_message_key_is_that_of_the_key_format(key_format, key):
    codec = get_codec("maxwell-json", key_format=key_format)
    event = change(after={"ID": 1, "Part2": "hello"}, key=Key(("ID", "Part2")))
    (message,) = codec.encode(event).messages
    assert message.key.decode() == key
    assert "primary_key_columns" not in json.loads(message.value)
    assert codec.decode(message)[0].key == event.key


def test_key_columns_that_the_message_key_cannot_name_are_in_the_value():
    for event in (
        change(after={"id": 1, "ID": 2}),
        change(after={"a": 1}),
        change(after={"id": 1}, key=Key(("id",), KeyOrigin.PAYLOAD)),
    ):
        [(value, _)], _ = written(event)
        assert value["primary_key_columns"] == ["id"]
    codec = get_codec("maxwell-json", primary_key_columns="true")
    assert "primary_key_columns" in written(change(after={"id": 1}), codec)[0][0][0]


def test_rows_without_a_key_have_an_id_that_follows_from_the_message():
    events = [change(after={"id": number}, key=None) for number in (1, 1, 2)]
    keys = [written(event)[0][0][1] for event in events]
    assert keys[0] == keys[1] != keys[2]
    assert json.loads(keys[0]).keys() == {"database", "table", "_uuid"}


@pytest.mark.parametrize(
    ("before", "after", "old", "losses"),
    [
        ({"id": 1, "a": 1}, {"id": 1, "a": 2}, {"a": 1}, set()),
        ({"id": 1, "a": None}, {"id": 1, "a": 2}, {"a": None}, set()),
        ({"id": 1, "a": 1}, {"id": 1, "a": True}, {"a": 1}, set()),
        (
            {"id": 1, "a": decimal.Decimal("1.0")},
            {"id": 1, "a": decimal.Decimal("1.00")},
            {"a": 1.0},
            set(),
        ),
        ({"id": 1, "a": 1}, {"id": 1, "a": 1}, None, set()),
        ({"id": 1, "a": 1}, {"id": 2, "a": 1}, {"id": 1}, set()),
        (None, {"id": 1, "a": 1}, None, {"absent", "before"}),
        ({"id": 1}, {"id": 1, "a": 1}, None, {"before"}),
    ],
)
def test_old_has_the_columns_whose_values_differ(before, after, old, losses):
    event = change(Op.UPDATE, before, after, before_holds=FULL)
    [(value, _)], reported = written(event)
    assert (value.get("old"), reported, value["data"]) == (old, losses, after)


def test_an_unchanged_column_of_the_before_image_is_written_because_old_alone_means_null():
    event = change(Op.UPDATE, {"id": 1, "a": 1, "b": 2}, {"id": 1, "a": 3}, before_holds=FULL)
    [(value, _)], losses = written(event)
    assert (value["data"], value["old"]) == ({"id": 1, "a": 3, "b": 2}, {"a": 1})
    assert losses == {"absent"}


def test_a_row_needs_a_database_and_a_table():
    for table in (TableId(None, None, "t"), TableId("d", None, None)):
        with pytest.raises(EncodeError, match="route"):
            CODEC.encode(change(after={"id": 1}, table=table), on_loss="ignore")


@pytest.mark.parametrize(
    ("transaction", "fields", "losses"),
    [
        (Tx("7", 1, last=False), {"xid": 7, "xoffset": 0}, set()),
        (Tx("7", last=True), {"xid": 7, "commit": True}, set()),
        (Tx("7", 2, last=True), {"xid": 7, "commit": True}, {"transaction.order"}),
        (Tx("7"), {"xid": 7}, {"transaction.last"}),
        (Tx("a-1"), {}, {"transaction.id"}),
        (Tx("07"), {}, {"transaction.id"}),
        (Tx("9223372036854775808"), {}, {"transaction.id"}),
    ],
)
def test_the_transaction_is_written_as_far_as_maxwell_has_it(transaction, fields, losses):
    [(value, _)], reported = written(change(after={"id": 1}, transaction=transaction))
    own = {name: value[name] for name in ("xid", "xoffset", "commit") if name in value}
    assert (own, reported) == (fields, losses)


def test_times_that_readers_would_take_in_another_unit_are_not_written():
    late = 10**11 * 10**9
    [(value, _)], losses = written(change(after={"id": 1}, source_time_ns=late))
    assert ("ts" in value, losses) == (False, {"source_time"})
    event = SchemaChange(TABLE, "drop", "drop table t", source=MAXWELL, source_time_ns=10**18)
    assert written(event)[0][0][0]["ts"] == 10**12
    early = SchemaChange(TABLE, "drop", "drop table t", source=MAXWELL, source_time_ns=10**9)
    [(value, _)], losses = written(early)
    assert ("ts" in value, losses) == (False, {"source_time"})


def test_details_that_would_be_read_as_other_fields_are_a_loss():
    details = {"type": "x", "serverId": 5, "data": {}, "thread_id": "5", "server_id": True}
    [(value, _)], losses = written(change(after={"id": 1}, details=details))
    assert value.keys() == {"database", "table", "type", "data"}
    assert losses == {f"details.{name}" for name in details}


def test_instants_are_written_in_the_zone_of_the_option():
    schema = TableSchema((Column("id", Integer()), Column("t", InstantType(0))))
    moment = parse_instant("2024-05-24T12:00:00Z")
    assert isinstance(moment, Instant)
    event = change(after={"id": 1, "t": moment}, schema=schema)
    for zone, text in (("UTC", "2024-05-24 12:00:00"), ("+08:00", "2024-05-24 20:00:00")):
        codec = get_codec("maxwell-json", time_zone=zone)
        assert written(event, codec)[0][0][0]["data"]["t"] == text


# -- other events ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        {"database": "d", "table": "t", "type": "bootstrap-start", "ts": 5, "data": {}},
        {"database": "d", "table": "t", "type": "insert", "reason": "too big", "data": {"id": 1}},
        {"type": "table-drop", "database": "d", "table": "t", "ts": 10**12, "sql": "drop table t"},
        {
            "type": "table-alter",
            "database": "d",
            "table": "t",
            "old": {"columns": []},
            "def": {"columns": [{"type": "int", "name": "id", "signed": True}]},
            "ts": 10**12,
            "sql": "rename table t to u",
            "schema_id": 5,
            "attribute": [1],
        },
        {"type": "database-create", "database": "d", "charset": "utf8", "ts": 10**12, "sql": "x"},
    ],
)
def test_messages_that_are_no_rows_are_written_again(message):
    (event,) = CODEC.decode(Message(json.dumps(message).encode()))
    encoded = CODEC.encode(event, on_loss="ignore")
    assert [json.loads(one.value) for one in encoded.messages] == [message]
    assert {field for field, _ in encoded.losses} <= {"schema"}


@pytest.mark.parametrize(
    "event",
    [
        SchemaChange(TABLE, "alter", "alter table t add c int", source=MAXWELL),
        SchemaChange(TableId(), "drop", "drop table t", source=MAXWELL),
        SchemaChange(TABLE, "create_index", "create index i on t (c)", source=MAXWELL),
    ],
)
def test_a_statement_that_needs_an_unknown_definition_is_not_written(event):
    assert written(event) == ([], {"event:schema"})
    with pytest.raises(UnsupportedError, match="event:schema"):
        CODEC.encode(event)


def test_the_control_events_of_other_producers_are_not_written():
    assert written(Control("other", "text", source=MAXWELL)) == ([], {"event:control"})
