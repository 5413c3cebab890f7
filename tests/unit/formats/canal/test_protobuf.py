"""Canal's binary messages: the golden messages are written by Canal's own classes."""

import datetime as dt
from pathlib import Path

import msgspec
import pytest

from changelane import Message, get_codec
from changelane.errors import DecodeError
from changelane.event import (
    Control,
    DataChange,
    Key,
    Op,
    TransactionMarker,
    Watermark,
    lists_sent_columns_only,
)
from changelane.formats.canal.protobuf_wire import (
    COLUMN,
    ENTRY,
    HEADER,
    MESSAGES,
    PACKET,
    PAIR,
    ROW_CHANGE,
    ROW_DATA,
)
from changelane.formats.contract.protobuf import dumps, loads
from changelane.position import MySqlPosition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId
from changelane.testing import golden

FOLDER = Path(__file__).resolve().parents[3] / "golden" / "canal-protobuf" / "canal-1.1.7"
CODEC = get_codec("canal-protobuf")
UPDATE = golden.read_case(FOLDER / "update")


def packet(change=None, *, kind=2, header=None, columns=None, **fields):
    """A packet with one entry."""
    if columns is not None:
        datas = [dumps(column, COLUMN) for column in columns]
        row = dumps({"afterColumns": datas}, ROW_DATA)
        change = {"eventType": 1, "rowDatas": [row]} | (change or {})
    store_value = dumps(change or {}, ROW_CHANGE)
    head = {"schemaName": "s", "tableName": "t"} | (header or {})
    entry = {"header": dumps(head, HEADER), "entryType": kind, "storeValue": store_value}
    body = dumps({"messages": [dumps(entry, ENTRY)]}, MESSAGES)
    return dumps({"version": 1, "type": 7, "body": body} | fields, PACKET)


def read(value):
    return CODEC.decode(Message(value))


ID = {"name": "id", "value": "1", "mysqlType": "int", "isKey": True}


def test_an_update_has_both_images_its_key_and_its_position():
    (event,) = CODEC.decode(UPDATE.messages[0])
    assert event.key.columns == ("id",)
    assert (event.before["note"], event.after["note"]) == ("ann", "bob")
    assert event.after["price"] is None
    assert event.after["at"] == dt.datetime(2024, 11, 21, 10, 20, 15, 183000)
    assert event.after["raw"] == b"\x00\xff"
    assert event.position == MySqlPosition("mysql-bin.000003", 700, 0, "aaaa-1:1-5")


def test_an_event_is_written_with_the_content_of_canal():
    written = CODEC.encode(UPDATE.events[0]).messages[0].value
    assert contents(written) == contents(UPDATE.messages[0].value)


def contents(value):
    """The fields of a packet with one row, without zeros, which newer versions omit."""

    def nonzero(data, table):
        return {n: each for n, each in loads(data, table, "$").items() if each not in (0, [])}

    found = nonzero(value, PACKET)
    (entry,) = loads(found.pop("body"), MESSAGES, "$")["messages"]
    entry = nonzero(entry, ENTRY)
    header = nonzero(entry.pop("header"), HEADER)
    props = [nonzero(data, PAIR) for data in header.pop("props", [])]
    change = nonzero(entry.pop("storeValue"), ROW_CHANGE)
    (row,) = change.pop("rowDatas")
    columns = {n: [nonzero(c, COLUMN) for c in cs] for n, cs in nonzero(row, ROW_DATA).items()}
    return found, entry, header, props, change, columns


def test_rows_of_one_message_differ_by_their_number():
    first, second = CODEC.decode(golden.read_case(FOLDER / "insert_of_two_rows").messages[0])
    assert (first.position.row, second.position.row) == (0, 1)
    assert second.after["note"] == ""
    encoded = CODEC.encode(second)
    assert [field for field, _ in encoded.losses] == ["position"]
    assert CODEC.decode(encoded.messages[0])[0].position is None


def test_a_null_column_may_have_an_empty_text():
    (event,) = read(packet(columns=[ID, {"name": "n", "isNull": True, "value": ""}]))
    assert event.after == {"id": 1, "n": None}
    (event,) = read(packet(columns=[ID, {"name": "n"}]))
    assert event.after["n"] == ""


def test_images_of_a_minimal_log_are_partial():
    before = dumps({"beforeColumns": [dumps(ID, COLUMN)]}, ROW_DATA)
    after = dumps({"afterColumns": [dumps({"name": "n", "value": "x"}, COLUMN)]}, ROW_DATA)
    (event,) = read(packet({"eventType": 2, "rowDatas": [before + after]}))
    assert (event.before, event.after) == ({"id": 1}, {"n": "x"})
    assert event.schema.names == {"id", "n"}
    assert lists_sent_columns_only(event)
    encoded = CODEC.encode(msgspec.structs.replace(event, before=None), on_loss="warn")
    assert "absent" in dict(encoded.losses)


def update_of(before, after, codec=CODEC):
    images = {"beforeColumns": before, "afterColumns": after}
    row = {name: [dumps(c, COLUMN) for c in columns] for name, columns in images.items()}
    change = {"eventType": 2, "rowDatas": [dumps(row, ROW_DATA)]}
    (event,) = codec.decode(Message(packet(change)))
    return event


def test_an_update_may_lack_unchanged_columns():
    name, note = ({"index": place, "name": str(place), "value": "x"} for place in (1, 2))
    minimal = get_codec("canal-protobuf", row_image="minimal")
    assert not lists_sent_columns_only(update_of([ID, name], [ID, name]))
    for event in (
        update_of([ID, note], [ID, note]),  # the numbers have a gap
        update_of([ID], [ID]),  # a table with other columns, or with its key only
        update_of([ID, name], [ID, name], minimal),
    ):
        assert lists_sent_columns_only(event)


def test_other_entries():
    begin, row, commit = CODEC.decode(golden.read_case(FOLDER / "transaction").messages[0])
    assert isinstance(begin, TransactionMarker)
    assert begin.details["threadId"] == 9
    assert isinstance(row, DataChange)
    assert (commit.status, commit.transaction.id) == ("commit", "4711")
    (heartbeat,) = read(packet(kind=4))
    assert isinstance(heartbeat, Watermark)
    pair = dumps({"key": "curtGtid", "value": "a:1"}, PAIR)
    entry = dumps({"entryType": 5, "storeValue": pair}, ENTRY)
    body = dumps({"messages": [entry, entry]}, MESSAGES)
    first, _ = read(dumps({"type": 7, "body": body}, PACKET))
    assert (first.type, first.text) == ("GTIDLOG", "a:1")
    for event in (begin, commit, heartbeat, first):
        assert CODEC.decode(CODEC.encode(event).messages[0]) == (event,)


def test_a_statement_in_the_log_is_a_control_event():
    (event,) = read(packet({"eventType": 1, "sql": "INSERT INTO t VALUES (1)"}))
    assert event == Control(
        "INSERT", "INSERT INTO t VALUES (1)", TableId("s", None, "t"), source=event.source
    )
    assert CODEC.decode(CODEC.encode(event).messages[0]) == (event,)


def test_the_default_database_of_a_statement_is_not_that_of_its_table():
    change = {"eventType": 6, "isDdl": True, "sql": "DROP TABLE s.t", "ddlSchemaName": "other"}
    (event,) = read(packet(change))
    assert (event.table, event.action) == (TableId("s", None, "t"), "drop")
    assert event.details == {"ddlSchemaName": "other"}
    assert CODEC.decode(CODEC.encode(event).messages[0]) == (event,)


def test_hidden_columns_are_dropped():
    columns = [ID, {"name": "_drds_implicit_id_", "value": "7", "mysqlType": "bigint"}]
    assert read(packet(columns=columns))[0].after == {"id": 1}
    keyed = {**columns[1], "isKey": True}
    (event,) = read(packet(columns=[{**ID, "isKey": False}, keyed]))
    assert event.key.columns == ("_drds_implicit_id_",)


@pytest.mark.parametrize(
    ("value", "code", "path"),
    [
        (b"", ReasonCode.UNKNOWN_KIND, "$.type"),
        (packet(type=3), ReasonCode.UNKNOWN_KIND, "$.type"),
        (packet(version=2), ReasonCode.UNKNOWN_VERSION, "$.version"),
        (packet(compression=3), ReasonCode.UNKNOWN_KIND, "$.compression"),
        (packet(kind=9), ReasonCode.UNKNOWN_KIND, "$.messages[0].entryType"),
        (
            packet(header={"sourceType": 1}),
            ReasonCode.UNKNOWN_KIND,
            "$.messages[0].header.sourceType",
        ),
        (packet({}), ReasonCode.UNKNOWN_OPERATION, "$.messages[0].storeValue.eventType"),
        (
            packet({"eventType": 99}),
            ReasonCode.UNKNOWN_OPERATION,
            "$.messages[0].storeValue.eventType",
        ),
        (
            packet({"eventType": 1}),
            ReasonCode.MISSING_FIELD,
            "$.messages[0].storeValue.rowDatas",
        ),
        (
            packet({"eventType": 3}, columns=[ID]),
            ReasonCode.UNEXPECTED_IMAGE,
            "$.messages[0].storeValue.rowDatas[0].afterColumns",
        ),
        (
            packet(columns=[]),
            ReasonCode.MISSING_IMAGE,
            "$.messages[0].storeValue.rowDatas[0]",
        ),
        (
            packet(columns=[ID, ID]),
            ReasonCode.WRONG_IMAGE,
            "$.messages[0].storeValue.rowDatas[0].afterColumns",
        ),
        (
            packet(columns=[{**ID, "value": "x"}]),
            ReasonCode.WRONG_TYPE,
            "$.messages[0].storeValue.rowDatas[0].afterColumns.id",
        ),
    ],
)
def test_a_wrong_packet_is_rejected_with_its_path(value, code, path):
    with pytest.raises(DecodeError) as error:
        read(value)
    assert (error.value.code, error.value.path) == (code, path)


# -- the wire format: https://protobuf.dev/programming-guides/encoding/ ---------------------------


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        ("089601", {"index": 150}),
        ("10fbffffffffffffffff01", {"sqlType": -5}),
        ("1a0774657374696e67", {"name": "testing"}),
        ("20012800", {"isKey": True, "updated": False}),
        ("08010802", {"index": 2}),
        ("f80101fd010102030401089a0501", None),
        ("f801017801fa0102ffff0805", {"index": 5}),
        ("f90100000000000000000805", {"index": 5}),
        ("fd01000000000805", {"index": 5}),
    ],
)
def test_the_wire_format(data, fields):
    if fields is None:
        with pytest.raises(DecodeError):
            loads(bytes.fromhex(data), COLUMN, "$")
        return
    assert loads(bytes.fromhex(data), COLUMN, "$") == fields


@pytest.mark.parametrize(
    "data",
    [
        "08",  # a number that ends too early
        "0880",
        "08ffffffffffffffffffff01",  # eleven bytes
        "08ffffffffffffffffff7f",  # 70 bits
        "1a05",  # a text that ends too early
        "1a01ff",  # not UTF-8
        "0d00000000",  # field 1 with another wire type
        "0b",  # a group
        "00",  # field 0
        "fd0100",  # an unknown field that ends too early
    ],
)
def test_malformed_bytes_are_rejected(data):
    with pytest.raises(DecodeError):
        loads(bytes.fromhex(data), COLUMN, "$")


def test_what_is_written_is_read():
    fields = {"index": 1 << 31, "sqlType": -(1 << 63), "name": "ñ" * 200, "isKey": True}
    data = dumps(fields | {"value": None}, COLUMN)
    assert loads(data, COLUMN, "$") == fields
    assert dumps(loads(data, COLUMN, "$"), COLUMN) == data


def test_a_change_of_a_new_table_needs_no_types():
    change = DataChange(Op.CREATE, TableId("s", None, "t"), Key(("id",)), after={"id": "1"})
    encoded = CODEC.encode(change)
    (event,) = CODEC.decode(encoded.messages[0])
    assert (event.after, event.schema) == ({"id": "1"}, None)
