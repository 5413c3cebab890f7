# SPDX-License-Identifier: Apache-2.0
"""Debezium's messages about MongoDB: rows, patches, keys, positions, refusals, and writing."""

import json

import pytest

from changelane import DecodeError, EncodeError, Message, get_codec
from changelane.event import Completeness, DataChange, Key, KeyOrigin, Op, Tombstone, Watermark
from changelane.position import SequencePosition
from changelane.schema import TableId

CODEC = get_codec("debezium-mongodb-json")
COLUMNS = get_codec("debezium-mongodb-json", documents="columns")
KEY = b'{"id":"1"}'
TEXT = '{"_id":{"$numberInt":"1"},"a":"x"}'


def message(op="c", after='{"_id":1,"a":"x"}', before=None, key=KEY, description=None, **source):
    source = {"connector": "mongodb", "db": "shop", "collection": "t", "ts_ms": 7000} | source
    wire = {"before": before, "after": after, "source": source, "op": op}
    return Message(json.dumps(wire | {"updateDescription": description}).encode(), key)


def decode(wire, codec=CODEC):
    (event,) = codec.decode(wire)
    return event


def patch(updated="{}", removed=None, arrays=None):
    description = {"updatedFields": updated, "removedFields": removed, "truncatedArrays": arrays}
    return message("u", None, description=description)


def refused(wire, codec=CODEC):
    with pytest.raises(DecodeError) as caught:
        codec.decode(wire)
    return caught.value.code, caught.value.path


def test_doubles_that_are_not_finite_have_no_quotes():
    event = decode(message(after='{"_id": 1,"a": NaN,"b": [-Infinity],"c": "NaN"}'), COLUMNS)
    assert event.after == {
        "_id": "1",
        "a": "NaN",
        "b": '[{"$numberDouble":"-Infinity"}]',
        "c": "NaN",
    }
    assert refused(message(after='{"_id": NaN,,}')) == ("malformed_json", "$.after")


def test_heartbeats_and_borders_of_transactions_are_no_changes():
    heartbeat = {"ts_ms": 5}
    wrapped = {"schema": {"type": "struct", "name": "x.Heartbeat"}, "payload": heartbeat}
    for wire in (heartbeat, wrapped):
        event = decode(Message(json.dumps(wire).encode(), b'{"serverName":"shop"}'))
        assert (type(event), event.process_time_ns) == (Watermark, 5_000_000)
        assert event.source.server == "shop"
    border = {"status": "END", "id": "7", "event_count": 2, "data_collections": [], "ts_ms": 5}
    event = decode(Message(json.dumps(border).encode()))
    assert (event.status, event.transaction.id, event.transaction.size) == ("commit", "7", 2)
    assert refused(Message(b'{"a":1}')) == ("unknown_kind", "$")


def test_an_empty_value_is_a_tombstone():
    assert decode(Message(b"", KEY)) == decode(Message(None, KEY))


def test_a_snapshot_mark_may_be_a_boolean():
    assert decode(message("r", snapshot=True)).source.snapshot == "true"
    assert decode(message(snapshot=False)).source.snapshot is None


def test_a_row_is_a_document_or_has_its_fields():
    event = decode(message())
    assert (event.op, event.key) == (Op.CREATE, Key(("_id",), KeyOrigin.MESSAGE))
    assert event.after == {"_id": "1", "document": TEXT}
    assert event.table == TableId("shop", None, "t")
    event = decode(message(), COLUMNS)
    assert (event.after, event.schema) == ({"_id": "1", "a": "x"}, None)
    assert event.after_holds is Completeness.FULL


def test_a_delete_has_its_document_or_the_id_of_the_key():
    assert decode(message("d", None, TEXT)).before == {"_id": "1", "document": TEXT}
    event = decode(message("d", None), COLUMNS)
    assert (event.before, event.before_holds) == ({"_id": "1"}, Completeness.KEY)
    assert refused(message("d", None, key=None)) == ("missing_field", "$key")
    assert refused(message("d", None, key=b'{"id":1}')) == ("missing_field", "$key.id")
    assert refused(message("d", None, key=b'{"id":"1,2"}'))[1] == "$key.id"


def test_a_patch_is_a_partial_update_of_columns_only():
    event = decode(patch('{"a":2,"b":{"c":1}}', ["d"]), COLUMNS)
    row = {"_id": "1", "a": 2, "b": '{"c":{"$numberInt":"1"}}', "d": None}
    assert (event.after, event.after_holds) == (row, Completeness.CHANGED)
    assert refused(patch('{"a":2}')) == ("incomplete_row", "$.updateDescription")
    assert refused(message("u", None)) == ("incomplete_row", "$.after")
    for wire in (patch('{"b.c":1}'), patch(removed=["b.c"]), patch(arrays=[{"field": "a"}])):
        assert refused(wire, COLUMNS)[0] == "incomplete_row"


def test_a_document_that_was_looked_up_is_marked():
    description = {"updatedFields": "{}", "removedFields": None, "truncatedArrays": None}
    event = decode(message("u", description=description))
    assert event.details["lookup"] is True
    assert "lookup" not in decode(message("u")).details


def test_the_place_in_the_oplog_is_the_position():
    event = decode(message(ts_ms=7000, ord=3, wallTime=7123))
    assert event.position == SequencePosition((7 << 32) | 3)
    assert event.source_time_ns == 7123 * 10**6
    assert decode(message()).position is None
    assert decode(message("r", snapshot="true", ord=1)).source.snapshot == "true"


def test_a_tombstone_has_the_id_of_the_key():
    assert CODEC.decode(Message(None, KEY)) == (Tombstone(TableId(), {"_id": "1"}),)
    assert CODEC.decode(Message(None)) == (Tombstone(TableId()),)


@pytest.mark.parametrize(
    ("wire", "refusal"),
    [
        (message("x"), ("unknown_operation", "$.op")),
        (message(after=None), ("missing_image", "$.after")),
        (message(before=TEXT), ("unexpected_image", "$.before")),
        (message("d", TEXT), ("unexpected_image", "$.after")),
        (message(after="{}"), ("missing_field", "$.after")),
        (message(after="{"), ("incomplete_message", "$.after")),
        (message(after='{"_id":{"$oid":"x"}}'), ("wrong_type", "$.after")),
        (message(collection=None), ("missing_field", "$.source.collection")),
        (message(ord=-1), ("wrong_type", "$.source.ord")),
        (message(wallTime="x"), ("wrong_type", "$.source.wallTime")),
    ],
)
def test_a_wrong_message_is_refused_with_its_path(wire, refusal):
    assert refused(wire) == refusal


# -- writing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wire",
    [
        message(after=TEXT, ord=3, lsid="x"),
        message("u", TEXT, TEXT, wallTime=7123),
        message("r", TEXT, snapshot="true"),
        message("d", None, TEXT),
        message("d", None, key=b'{"id":"\\"abc\\""}'),
    ],
)
def test_a_document_comes_back_without_loss_of_data(wire):
    event = decode(wire)
    written, *tombstones = CODEC.encode(event).messages
    assert decode(written) == event
    assert tombstones == (
        [Message(None, written.key, topic="shop.t")] if event.op is Op.DELETE else []
    )


def test_another_row_becomes_a_document_which_is_a_loss_of_each_column():
    row = {"id": 5, "n": None}
    event = DataChange(Op.CREATE, TableId("shop", None, "t"), Key(("id",)), None, row)
    encoded = CODEC.encode(event, on_loss="ignore")
    after = decode(encoded.messages[0]).after
    assert after["_id"] == "5"
    assert json.loads(after["document"])["id"] == {"$numberInt": "5"}
    assert {loss for loss in encoded.losses if loss[0] == "column"} == {
        ("column", f"{name!r} is a field of the document") for name in row
    }
    with pytest.raises(EncodeError):
        CODEC.encode(event)
