# SPDX-License-Identifier: Apache-2.0
"""Events of Datastream: operations, keys, positions, times, refusals, and what is written."""

import json

import pytest

from changelane import DecodeError, EncodeError, Message, get_codec
from changelane.event import Completeness, DataChange, Key, KeyOrigin, Op, Source, Tombstone
from changelane.position import (
    LsnPosition,
    MySqlPosition,
    PostgresPosition,
    ScnPosition,
    SequencePosition,
)
from changelane.schema import TableId

ROW = {"id": 1, "name": "a"}
CODEC = get_codec("datastream-json")


def event(method="mysql-cdc-binlog", row=ROW, fields=None, **metadata):
    metadata = {"database": "shop", "table": "t", "change_type": "INSERT"} | metadata
    wire = {"read_method": method, "source_metadata": metadata, "payload": row}
    return wire | (fields or {})


def decode(wire, **options):
    (change,) = get_codec("datastream-json", **options).decode(Message(json.dumps(wire).encode()))
    return change


def refused(wire):
    with pytest.raises(DecodeError) as caught:
        decode(wire)
    return caught.value.code, caught.value.path


@pytest.mark.parametrize(
    ("method", "metadata", "op"),
    [
        ("cdc", {"change_type": "INSERT"}, Op.CREATE),
        ("cdc", {"change_type": "UPDATE"}, Op.UPDATE),
        ("cdc", {"change_type": "DELETE"}, Op.DELETE),
        ("cdc", {"change_type": "UPDATE-DELETE"}, Op.DELETE),
        ("cdc", {"change_type": "UPDATE-INSERT"}, Op.CREATE),
        ("cdc", {"change_type": "INSERT", "is_deleted": True}, Op.DELETE),
        ("mysql-backfill-incremental", {"change_type": None}, Op.READ),
        ("mysql-fulldump", {}, Op.READ),
        ("backfill", {"is_deleted": True}, Op.DELETE),
    ],
)
def test_method_and_metadata_give_the_operation(method, metadata, op):
    change = decode(event(method, **metadata))
    assert change.op is op
    assert (change.before, change.after) == ((ROW, None) if op is Op.DELETE else (None, ROW))
    assert change.source.snapshot == (method if op is Op.READ else None)


@pytest.mark.parametrize("method", ["oracle-backfill", "oracle_dump"])
def test_the_method_begins_with_the_product(method):
    change = decode(event(method))
    assert (change.op, change.source.product) == (Op.READ, "oracle")


def test_the_key_is_in_the_event_else_in_the_options():
    assert decode(event(primary_keys=["id"])).key == Key(("id",), KeyOrigin.PAYLOAD)
    assert decode(event()).key is None
    assert decode(event(), keys={"t": ["name"]}).key == Key(("name",), KeyOrigin.CONFIG)
    declared = decode(event(), schemas={"shop.t": {"id": "int64 key", "other": "string"}})
    assert (declared.key.columns, declared.after["other"]) == (("id",), None)


@pytest.mark.parametrize(
    ("product", "field"), [("mongodb", "collection"), ("salesforce", "object_name")]
)
def test_the_table_is_the_collection_or_the_object_of_its_source(product, field):
    change = decode(event(f"{product}-change-stream", table=None, **{field: "users"}))
    assert (change.table, change.details.get("source_metadata")) == (
        TableId("shop", None, "users"),
        None,
    )
    (message,) = CODEC.encode(change).messages
    assert json.loads(message.value)["source_metadata"][field] == "users"


def test_a_delete_may_have_its_key_only():
    wire = event(row={"id": 1}, is_deleted=True, primary_keys=["id"])
    assert decode(wire).before_holds is Completeness.KEY
    assert decode(event(is_deleted=True, primary_keys=["id"])).before_holds is Completeness.UNKNOWN


@pytest.mark.parametrize(
    ("metadata", "fields", "position"),
    [
        ({"log_file": "b.000025", "log_position": 7}, {}, MySqlPosition("b.000025", 7)),
        ({"log_file": "b.000025", "log_position": "7"}, {}, MySqlPosition("b.000025", 7)),
        ({"log_file": "", "scn": 5, "ssn": "2"}, {}, ScnPosition(5, None, None, 2)),
        ({"scn": "5", "rs_id": " 0x1.2.3 "}, {}, ScnPosition(5, None, " 0x1.2.3 ")),
        ({"lsn": "1/F"}, {}, PostgresPosition((1 << 32) + 15)),
        ({"lsn": 9}, {}, PostgresPosition(9)),
        ({"lsn": "0x25:d98:a2"}, {}, LsnPosition("25:d98:a2")),
        ({}, {"sort_keys": [2, 3, 4]}, SequencePosition((2 << 63) | 3, 4)),
        ({}, {"sort_keys": [2, "x"]}, None),
        ({}, {}, None),
    ],
)
def test_the_coordinates_of_the_source_are_the_position(metadata, fields, position):
    assert decode(event(fields=fields, **metadata)).position == position


@pytest.mark.parametrize(
    ("wire", "refusal"),
    [
        (event(change_type="MERGE"), ("unknown_operation", "$.source_metadata.change_type")),
        (event(change_type=None), ("unknown_operation", "$.source_metadata.change_type")),
        (event(row=None), ("missing_image", "$.payload")),
        (event(row={"name": "a"}, primary_keys=["id"]), ("missing_field", "$.payload")),
        (event(lsn="x"), ("wrong_type", "$.source_metadata.lsn")),
        (event(scn=-1), ("wrong_type", "$.source_metadata.scn")),
        (event(scn=1, rs_id="x"), ("wrong_type", "$.source_metadata.rs_id")),
        (event(log_file="b", log_position=1), ("wrong_type", "$.source_metadata.log_file")),
        (event(fields={"read_timestamp": "now"}), ("wrong_type", "$.read_timestamp")),
        (event(fields={"payload": []}), ("wrong_type", "$.payload")),
    ],
)
def test_a_wrong_event_is_refused_with_its_path(wire, refusal):
    assert refused(wire) == refusal


@pytest.mark.parametrize(
    "time", ["2021-12-25 05:42:04.408", "2021-12-25T05:42:04.408Z", 1640410924408, 1640410924408000]
)
def test_times_are_text_in_utc_or_numbers(time):
    change = decode(event(fields={"source_timestamp": time}))
    assert change.source_time_ns == 1640410924408 * 10**6


def test_a_message_without_value_is_a_tombstone():
    assert CODEC.decode(Message(None)) == (Tombstone(TableId()),)


# -- writing -------------------------------------------------------------------------------------


def rewritten(wire):
    (message,) = CODEC.encode(decode(wire), on_loss="ignore").messages
    return json.loads(message.value)


@pytest.mark.parametrize(
    "wire",
    [
        event(change_type="UPDATE-DELETE", is_deleted=True, primary_keys=["id"], row_id="A", x=1),
        event("oracle-supplementation", scn=5, ssn=0, rs_id="", tx_id="7", is_deleted=False),
        event("mysql-backfill-fulldump", is_deleted=False, fields={"uuid": "u", "y": [1]}),
        event("postgres-cdc-wal", lsn="1A/5C6F2B0", is_deleted=False, fields={"sort_keys": [1]}),
    ],
)
def test_an_event_comes_back_with_its_method_and_further_fields(wire):
    wire["object"] = "shop_t"
    assert rewritten(wire) == wire


def change_of(op=Op.CREATE, key=("id",), **fields):
    row = {"id": 1}
    images = (row, None) if op is Op.DELETE else (None, row)
    source = Source("mysql", "debezium", "shop", snapshot="true" if op is Op.READ else None)
    return DataChange(op, TableId("shop", None, "t"), Key(key), *images, source=source, **fields)


def test_events_of_other_producers_have_the_documented_method():
    (message,) = CODEC.encode(change_of(), on_loss="ignore").messages
    wire = json.loads(message.value)
    assert (wire["read_method"], wire["object"]) == ("mysql-cdc-binlog", "shop_t")
    encoded = CODEC.encode(change_of(Op.READ), on_loss="ignore")
    assert json.loads(encoded.messages[0].value)["read_method"] == "mysql-backfill-fulldump"
    assert "source.snapshot" in dict(encoded.losses)


def test_parts_of_a_position_are_losses():
    encoded = CODEC.encode(
        change_of(position=MySqlPosition("b.000001", 4, 2, "g")), on_loss="ignore"
    )
    assert {"position", "position.row"} <= dict(encoded.losses).keys()
    encoded = CODEC.encode(change_of(position=MySqlPosition("b", 4)), on_loss="ignore")
    assert "position" in dict(encoded.losses)


def test_a_row_without_its_key_is_not_written():
    with pytest.raises(EncodeError, match="key column"):
        CODEC.encode(change_of(key=("other",)), on_loss="ignore")
