# SPDX-License-Identifier: Apache-2.0
"""What encode writes, decode reads; what cannot be written is refused with a reason."""

import json

import pytest

from changelane import formats, get_codec
from changelane.errors import DecodeError, EncodeError
from changelane.event import (
    DataChange,
    HalfUpdate,
    Key,
    Op,
    SchemaChange,
    Source,
    Transaction,
    TransactionMarker,
    Truncate,
    Watermark,
)
from changelane.message import Message
from changelane.position import ScnPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.compare import decode_all
from changelane.types import UNAVAILABLE, Integer, String, Year

TABLE = TableId("shop", None, "t")
KEY = Key(("id",))
SCHEMA = TableSchema((Column("id", Integer(64)), Column("a", String())))
ROW = {"id": 1, "a": "x"}
# rows of MongoDB are documents, whose columns tests/unit/formats/mongodb reads
DOCUMENTS = {"debezium-mongodb-json", "mongodb-change-stream-json"}
OTHERS = sorted(set(formats.names()) - {"native-json"} - DOCUMENTS)
AFTER_9999_NS = 253_402_300_800 * 10**9
MYSQL = Source("mysql")


def change(op=Op.CREATE, before=None, after=ROW, **more):
    more = {"schema": SCHEMA, "source": MYSQL} | more
    return DataChange(op, TABLE, KEY, before, after, **more)


def written(name, event):
    """Events that a format reads of what it wrote, and the fields of its losses."""
    codec = get_codec(name)
    encoded = codec.encode(event, on_loss="ignore")
    return decode_all(codec, encoded.messages), {field for field, _ in encoded.losses}


@pytest.mark.parametrize("status", ["", "prepare", "BEGIN", "\x00"])
@pytest.mark.parametrize("name", formats.names())
def test_a_transaction_type_that_a_format_does_not_know_is_a_loss(name, status):
    event = TransactionMarker(status, Transaction("571"))
    events, losses = written(name, event)
    assert events == [event] or "event:transaction" in losses


def test_a_schema_names_no_column_twice():
    columns = (Column("id", Integer(64)), Column("a", String()), Column("a", Integer(8)))
    with pytest.raises(ValueError, match="two columns have the name 'a'"):
        TableSchema(columns)
    listed = [{"name": column.name, "type": str(column.type)} for column in columns]
    line = {"op": "c", "table": {"name": "t"}, "after": ROW, "schema": listed}
    with pytest.raises(DecodeError) as caught:
        get_codec("native-json").decode(Message(json.dumps(line).encode()))
    assert (caught.value.code, caught.value.path) == ("wrong_schema", "$.schema")


def test_table_changes_name_no_column_twice():
    column = {"name": "a", "jdbcType": 4, "typeName": "INT", "position": 1}
    table = {"columns": [column, column], "primaryKeyColumnNames": []}
    told = {
        "source": {"connector": "mysql", "name": "s"},
        "databaseName": "shop",
        "ddl": "CREATE TABLE t (a INT)",
        "tableChanges": [{"type": "CREATE", "id": '"shop"."t"', "table": table}],
    }
    with pytest.raises(DecodeError) as caught:
        get_codec("debezium-json").decode(Message(json.dumps(told).encode()))
    assert caught.value.code == "wrong_schema"


@pytest.mark.parametrize(
    "event",
    [
        change(after=None),
        change(after={}),
        change(Op.READ, after=None),
        change(Op.UPDATE, before=ROW, after=None),
        change(after={"a": UNAVAILABLE}),
        HalfUpdate(change(after=None), None, "7"),
        HalfUpdate(change(Op.UPDATE), {"id": 2}),
    ],
    ids=["none", "empty", "read", "update", "unavailable", "half", "half of an update"],
)
@pytest.mark.parametrize("name", OTHERS)
def test_a_change_without_its_row_is_refused_or_its_own_reader_takes_it(name, event):
    try:
        events, losses = written(name, event)
    except EncodeError:
        return
    # a format without halves, reads or unavailable values says so
    assert losses & {"event:half", "operation:r", "unavailable", "pair"} or events


@pytest.mark.parametrize("name", OTHERS)
def test_an_insert_without_image_is_refused(name):
    with pytest.raises(EncodeError, match="has no after image"):
        get_codec(name).encode(change(after=None, source=Source("postgresql")), on_loss="ignore")


@pytest.mark.parametrize("name", OTHERS)
def test_images_that_an_operation_does_not_have_come_back_or_are_a_loss(name):
    source, old = Source("postgresql"), {"id": 9, "a": "old"}
    (event, *_), losses = written(name, change(before=old, source=source))
    assert event.op is Op.CREATE or {"operation:c", "operation:upsert"} & set(losses)
    assert "before" in losses or event.before["a"] == "old"
    (event, *_), losses = written(name, change(Op.DELETE, before=ROW, after=old, source=source))
    assert event.op is Op.DELETE
    assert "after" in losses or event.after["a"] == "old"


@pytest.mark.parametrize("time_ns", [AFTER_9999_NS, -62_135_596_800 * 10**9 - 1, 10**25, -(10**25)])
@pytest.mark.parametrize("name", OTHERS)
def test_times_outside_the_calendar_are_a_loss(name, time_ns):
    source = Source("postgresql")
    event = change(source=source, source_time_ns=time_ns, process_time_ns=time_ns)
    (found,), losses = written(name, event)
    assert found.source_time_ns is None or name == "datahub-blob"
    assert found.after["a"] == "x"
    assert "source_time" in losses
    for other in (Watermark(source_time_ns=time_ns), Truncate(TABLE, source_time_ns=time_ns)):
        written(name, other)


def test_the_last_moment_of_9999_is_written():
    time_ns = AFTER_9999_NS - 10**9
    for name in ("canal-json", "debezium-json", "cdl-json", "arcion-json"):
        (found,), losses = written(name, change(source_time_ns=time_ns, source=MYSQL))
        assert found.source_time_ns == time_ns
        assert "source_time" not in losses


@pytest.mark.parametrize(
    "block",
    [
        {"thread": "x"},
        {"thread": [1]},
        {"file": 7},
        {"pos": {}},
        {"query": 5, "db": 8},
        {"ts_us": "soon"},
        {"lsn": 2**70},
        "no block",
        7,
    ],
    ids=str,
)
@pytest.mark.parametrize("name", OTHERS)
def test_a_source_block_of_other_types_is_a_loss(name, block):
    event = change(details={"source": block}, source=Source("postgresql"))
    (found,), _ = written(name, event)
    assert found.after["a"] == "x"


def test_a_thread_that_is_no_number_is_a_loss():
    event = change(details={"source": {"thread": "x"}}, source=Source("mysql", "debezium"))
    assert "details" in written("debezium-json", event)[1]
    event = change(details={"source": {"thread": "x"}}, source=Source("mysql", "arcion"))
    assert "details" in written("arcion-json", event)[1]


@pytest.mark.parametrize(
    "name",
    "transaction envelope times fields columns placeholders fillers key header op name topic "
    "schemas value properties unique LOB_COLUMNS tags message_type".split(),
)
def test_details_may_be_anything(name):
    for value in (5, "x", [1], {"a": {"b": 1}}, True, None, "\x00"):
        event = change(details={name: value}, source=Source("postgresql"))
        for target in OTHERS:
            (found,), _ = written(target, event)
            assert found.after["a"] == "x"


def test_the_usual_details_of_a_source_block_are_kept():
    block = {"txId": 800, "thread": 7, "query": "UPDATE t"}
    event = change(details={"source": block}, source=Source("mysql", "debezium"))
    (found,), losses = written("debezium-json", event)
    assert found.details["source"].items() >= block.items()
    assert "details" not in losses


def test_counts_and_numbers_of_the_log_are_from_1_on():
    event = change(
        position=ScnPosition(-1, tx_seq=-5),
        transaction=Transaction("571", -1, 2**70, 0),
        source=Source("oracle"),
    )
    for name in OTHERS:
        _, losses = (
            written(name, event) if name != "cdl-debezium-json" else (0, {"transaction.order"})
        )
        assert "transaction.order" in losses
    losses = written("shareplex-json", event)[1]
    assert {"position.scn", "position.tx_seq"} <= losses
    order = change(transaction=Transaction("571", 9, None, 3), source=Source("oracle"))
    assert "transaction.size" in written("shareplex-json", order)[1]


@pytest.mark.parametrize("name", OTHERS)
def test_columns_that_the_schema_does_not_know_are_written_or_a_loss(name):
    (found,), losses = written(name, change(after=ROW | {"b": "y"}, source=Source("postgresql")))
    assert "column" in losses or found.after["b"] == "y"


def test_a_year_is_a_number_of_32_bits():
    line = {"op": "c", "table": {"name": "t"}, "after": {"y": 2**31}}
    line["schema"] = [{"name": "y", "type": str(Year())}]
    with pytest.raises(DecodeError) as caught:
        get_codec("native-json").decode(Message(json.dumps(line).encode()))
    assert caught.value.code == "value_out_of_range"


def test_halves_are_a_row_before_or_a_row_after():
    for op, is_read in (("c", True), ("d", True), ("u", False), ("r", False)):
        image = "before" if op == "d" else "after"
        line = {"op": op, "half": True, "pair": "7", "table": {"name": "t"}, image: ROW}
        message = Message(json.dumps(line).encode())
        if is_read:
            assert get_codec("native-json").decode(message)
        else:
            with pytest.raises(DecodeError):
                get_codec("native-json").decode(message)


def test_a_position_that_no_reader_takes_is_a_loss():
    event = change(position=ScnPosition(-1), source=Source("oracle"))
    assert "position" in written("debezium-json", event)[1]
    (found,), losses = written(
        "debezium-json", change(position=ScnPosition(7), source=Source("oracle"))
    )
    assert (found.position, "position" in losses) == (ScnPosition(7), False)


def test_a_row_of_no_table_has_no_record_in_dts():
    with pytest.raises(EncodeError, match="a row of no table"):
        get_codec("dts-avro").encode(
            DataChange(Op.CREATE, TableId("shop", None, ""), after=ROW), on_loss="ignore"
        )


def test_created_tables_name_no_column_twice():
    from changelane.ddl import parse, shape_of

    (found,) = parse("CREATE TABLE t (a INT, a INT)", "mysql")
    assert shape_of(found.changes[0]) is None
    (event,) = get_codec("native-json").decode(
        Message(b'{"op":"schema","type":"create","table":{"name":"t"}}')
    )
    assert isinstance(event, SchemaChange)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("number", [-1, 2**64, 2**70])
def test_a_number_that_no_bigint_unsigned_holds_is_not_written_as_one(name, number):
    schema = TableSchema(
        (
            Column("id", Integer(64)),
            Column("n", Integer(64, unsigned=True), "bigint unsigned"),
        )
    )
    event = change(after={"id": 1, "n": number}, schema=schema, source=MYSQL)
    try:
        (found,), losses = written(name, event)
    except EncodeError:
        return
    assert str(found.after["n"]) == str(number) or "value:uint64" in losses


def test_a_bigint_unsigned_that_came_as_a_negative_number_is_refused():
    field = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1}
    field |= {"parameters": {"scale": "0", "__debezium.source.column.type": "BIGINT UNSIGNED"}}
    row = {"type": "struct", "fields": [field | {"field": "n"}], "field": "after"}
    source = {"type": "struct", "fields": [], "field": "source"}
    message = {
        "schema": {"type": "struct", "fields": [row, source]},
        "payload": {"op": "c", "after": {"n": "/w=="}, "source": {"connector": "MYSQL"}},
    }
    for name in ("arcion-json", "debezium-json"):
        with pytest.raises(DecodeError) as caught:
            get_codec(name).decode(Message(json.dumps(message).encode()))
        assert caught.value.code == "wrong_type"
