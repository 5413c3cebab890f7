# SPDX-License-Identifier: Apache-2.0
"""Records of Spanner: images by type of capture, both spellings, positions, refusals, writing."""

import json

import pytest

from changelane import DecodeError, Message, get_codec
from changelane.event import (
    Completeness,
    Control,
    DataChange,
    Key,
    Op,
    Tombstone,
    is_complete,
    lists_sent_columns_only,
)
from changelane.schema import Column, TableId, TableSchema
from changelane.types import Array, Date, Decimal, Integer, String, Timestamp

CODEC = get_codec("spanner-json")
COLUMNS = {"id": "INT64", "a": "STRING", "b": "STRING"}


def columns(**types):
    return [
        {
            "name": name,
            "type": {"code": code},
            "is_primary_key": name == "id",
            "ordinal_position": n,
        }
        for n, (name, code) in enumerate(types.items(), 1)
    ]


def record(mod_type="UPDATE", capture="OLD_AND_NEW_VALUES", new=None, old=None, **fields):
    mod = {"keys": {"id": "1"}, "new_values": new or {}, "old_values": old or {}}
    wire = {"table_name": "t", "column_types": columns(**COLUMNS), "mods": [mod]}
    return wire | {"mod_type": mod_type, "value_capture_type": capture} | fields


def decode_all(wire):
    return CODEC.decode(Message(json.dumps(wire).encode()))


def decode(wire):
    (event,) = decode_all(wire)
    return event


def refused(wire):
    with pytest.raises(DecodeError) as caught:
        decode_all(wire)
    return caught.value.code, caught.value.path


NEW, OLD = {"a": "x", "b": "y"}, {"a": "w"}
ROW, CHANGED = {"id": 1, "a": "x", "b": "y"}, {"id": 1, "a": "w"}


@pytest.mark.parametrize(
    ("wire", "before", "after", "is_whole"),
    [
        (record("INSERT", new=NEW), None, ROW, True),
        (record(new={"a": "x"}, old=OLD), CHANGED, {"id": 1, "a": "x"}, False),
        (record(new=NEW, old=OLD), CHANGED, ROW, False),
        (record(capture="NEW_VALUES", new={"a": "x"}), None, {"id": 1, "a": "x"}, False),
        (record(capture="NEW_ROW", new=NEW), None, ROW, True),
        (record(capture="NEW_ROW_AND_OLD_VALUES", new=NEW, old=OLD), ROW | CHANGED, ROW, True),
        (record("DELETE", old=NEW), ROW, None, True),
        (record("DELETE", "NEW_ROW"), {"id": 1}, None, False),
    ],
)
def test_the_type_of_capture_gives_the_images(wire, before, after, is_whole):
    event = decode(wire)
    assert (event.before, event.after, event.key.columns) == (before, after, ("id",))
    image, holds = (after, event.after_holds) if after else (before, event.before_holds)
    assert is_complete(image, event.schema, holds) is is_whole
    assert lists_sent_columns_only(event) is (event.op is Op.UPDATE and not is_whole)


def test_each_mod_is_an_event_with_a_position_of_its_own():
    mods = [{"keys": {"id": str(n)}, "new_values": {}, "old_values": {}} for n in range(3)]
    time = {"commit_timestamp": "2022-09-27T12:30:00.000000001Z", "record_sequence": "00000007"}
    events = decode_all(record("DELETE", mods=mods, **time))
    orders = [event.position.key() for event in events]
    assert [event.before["id"] for event in events] == [0, 1, 2]
    assert orders == sorted(set(orders))
    assert decode_all(record("DELETE", mods=[])) == ()
    later = {"commit_timestamp": "2022-09-27T12:30:00.000000002Z", "record_sequence": "0"}
    assert decode(record("DELETE", **later)).position.key() > orders[-1]
    assert decode(record("DELETE", record_sequence="1")).position is None


def test_both_spellings_give_the_same_event():
    text = {"commit_timestamp": "1970-01-01T00:00:01.000000005Z", "server_transaction_id": "x"}
    beam = {
        "tableName": "t",
        "commitTimestamp": {"seconds": 1, "nanos": 5},
        "serverTransactionId": "x",
        "rowType": [
            {"name": name, "type": {"code": json.dumps({"code": code})}}
            | {"isPrimaryKey": name == "id", "ordinalPosition": place}
            for place, (name, code) in enumerate(COLUMNS.items(), 1)
        ],
        "mods": [{"keysJson": '{"id":"1"}', "newValuesJson": '{"a":"x"}', "oldValuesJson": ""}],
        "modType": "UPDATE",
        "valueCaptureType": "NEW_VALUES",
    }
    assert decode(beam) == decode(record(capture="NEW_VALUES", new={"a": "x"}, **text))


def test_json_values_may_be_texts():
    wire = record(new={"a": "x"})
    texts = json.loads(json.dumps(wire))
    texts["mods"] = [{name: json.dumps(part) for name, part in wire["mods"][0].items()}]
    for column in texts["column_types"]:
        column["type"] = json.dumps(column["type"])
    assert decode(texts) == decode(wire)


def test_new_values_may_contain_the_key():
    assert decode(record(new={"id": "1", "a": "x"})).after == {"id": 1, "a": "x"}


def test_other_records_are_control_events():
    heartbeat = {"heartbeat_record": {"timestamp": "2022-09-27T12:35:00Z"}}
    (event,) = decode_all(heartbeat)
    assert isinstance(event, Control)
    assert (event.type, json.loads(event.text)) == (
        "heartbeat_record",
        heartbeat["heartbeat_record"],
    )
    rows = [{"data_change_record": [record("DELETE")], "heartbeat_record": []}, heartbeat]
    assert [type(event) for event in decode_all(rows)] == [DataChange, Control]
    assert decode_all([]) == ()
    of_the_api = {"heartbeatRecord": heartbeat["heartbeat_record"], "dataChangeRecord": None}
    assert decode_all(of_the_api) == (event,)


@pytest.mark.parametrize(
    ("wire", "refusal"),
    [
        (record("MERGE"), ("unknown_operation", "$.mod_type")),
        (record(capture="ALL"), ("unknown_kind", "$.value_capture_type")),
        (record(record_sequence="-1"), ("wrong_type", "$.record_sequence")),
        (record(commit_timestamp="now"), ("wrong_type", "$.commit_timestamp")),
        (record(new={"a": 1}), ("wrong_type", "$.mods[0].new_values.a")),
        (record(new={"id": "2"}), ("wrong_image", "$.mods[0].new_values")),
        (record("INSERT", new=NEW, old=OLD), ("unexpected_image", "$.mods[0].old_values")),
        (record("DELETE", new=NEW), ("unexpected_image", "$.mods[0].new_values")),
        (record(mods=[{"keys": {}}]), ("missing_field", "$.mods[0].keys")),
        (record(column_types=columns(**COLUMNS) * 2), ("wrong_schema", "$.column_types")),
        (record(tableName="t"), ("unexpected_field", "$")),
        ({"data_change_record": [], "row": {}}, ("unknown_kind", "$.data_change_record")),
        ({"data_change_record": {"mods": 1}}, ("wrong_type", "$.data_change_record.mods")),
    ],
)
def test_a_wrong_record_is_refused_with_its_path(wire, refusal):
    assert refused(wire) == refusal


@pytest.mark.parametrize("depth", [201, 900, 20_000])
def test_a_value_beyond_the_limit_of_levels_is_refused(depth):
    text = json.dumps(record(new={"other": 0})).replace(
        ": 0}", f": {'[' * depth}{']' * depth}}}", 1
    )
    with pytest.raises(DecodeError) as caught:
        CODEC.decode(Message(text.encode()))
    assert caught.value.code == "too_deep"


def test_a_message_without_value_is_a_tombstone():
    assert CODEC.decode(Message(None)) == (Tombstone(TableId()),)


# -- writing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wire",
    [
        record("INSERT", "NEW_ROW_AND_OLD_VALUES", new=NEW),
        record(new={"a": "x"}, old=OLD),
        record(capture="NEW_VALUES", new={"a": "x"}, other=[1], is_system_transaction=False),
        record(capture="NEW_ROW", new=NEW, record_sequence="00000003"),
        record(capture="NEW_ROW_AND_OLD_VALUES", new=NEW, old=OLD, server_transaction_id="7"),
        record("DELETE", "NEW_ROW"),
    ],
)
def test_a_record_comes_back(wire):
    encoded = CODEC.encode(decode(wire))
    assert [json.loads(message.value) for message in encoded.messages] == [wire]
    assert not encoded.losses


def written(*column_list, op=Op.CREATE, row=None, **fields):
    schema = TableSchema((Column("id", Integer()), *column_list))
    event = DataChange(op, TableId(name="t"), Key(("id",)), None, row, schema, **fields)
    encoded = CODEC.encode(event, on_loss="ignore")
    return json.loads(encoded.messages[0].value), dict(encoded.losses)


def test_types_that_spanner_lacks_are_text_or_wider():
    big = Column("u", Integer(64, unsigned=True))
    wire, losses = written(big, row={"id": 1, "u": 2**64 - 1})
    assert wire["column_types"][1]["type"] == {"code": "NUMERIC"}
    assert "type:uint64" in losses
    wide = Column("d", Decimal(65, 30))
    wire, _ = written(wide, row={"id": 1, "d": None})
    assert wire["column_types"][1]["type"]["type_annotation"] == "PG_NUMERIC"
    times = Column("a", Array(Timestamp()))
    wire, losses = written(times, row={"id": 1, "a": []})
    assert (wire["column_types"][1]["type"], wire["mods"][0]["new_values"]) == (
        {"code": "STRING"},
        {"a": "[]"},
    )
    assert "type:array" in losses
    wire, losses = written(Column("d", Date()), row={"id": 1, "d": "infinity"})
    assert wire["mods"][0]["new_values"] == {"d": None}
    assert "value:date" in losses


def test_columns_without_types_have_those_of_their_values():
    row = {"id": 1, "a": "x", "b": True, "c": None, "d": {"e": 1}}
    holds = Completeness.FULL
    event = DataChange(Op.CREATE, TableId(name="t"), Key(("id",)), after=row, after_holds=holds)
    (message,) = CODEC.encode(event, on_loss="ignore").messages
    wire = json.loads(message.value)
    codes = {column["name"]: column["type"]["code"] for column in wire["column_types"]}
    assert codes == {"id": "INT64", "a": "STRING", "b": "BOOL", "c": "STRING", "d": "JSON"}


def test_a_whole_row_with_some_old_values_is_a_loss():
    schema = TableSchema(tuple(Column(name, String()) for name in ("id", "a", "b")))
    row = {"id": "1", "a": "x", "b": "y"}
    before = {"id": "1", "a": "w"}
    event = DataChange(Op.UPDATE, TableId(name="t"), Key(("id",)), before, row, schema)
    encoded = CODEC.encode(event, on_loss="ignore")
    assert json.loads(encoded.messages[0].value)["value_capture_type"] == "OLD_AND_NEW_VALUES"
    assert "after" in dict(encoded.losses)
