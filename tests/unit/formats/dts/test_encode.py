# SPDX-License-Identifier: Apache-2.0
"""What events become as records of DTS, beyond their values."""

import json

import msgspec
import pytest
from dts_records import branch, decode, integer, read_by_fastavro, record, row

from changelane import EncodeError, Message, get_codec
from changelane.event import (
    Control,
    DataChange,
    Key,
    Op,
    SchemaChange,
    Source,
    Transaction,
    TransactionMarker,
    Truncate,
    Watermark,
)
from changelane.position import MySqlPosition, ScnPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNAVAILABLE, Integer, String

SCHEMA = TableSchema((Column("id", Integer(64)), Column("note", String())))
ROW = {"id": 1, "note": "a"}
TABLE = TableId("shop", None, "orders")
MYSQL = Source("mysql")


def change(op=Op.CREATE, **told):
    images = {"before": ROW if op in {Op.UPDATE, Op.DELETE} else None}
    images["after"] = None if op is Op.DELETE else ROW
    parts = {"table": TABLE, "schema": SCHEMA, "source": MYSQL, **images}
    return DataChange(op, **(parts | told))


def encode(event, **options):
    """Return the only record of an event, and the fields of its losses."""
    encoded = get_codec("dts-avro", **options).encode(event, on_loss="ignore")
    (message,) = encoded.messages
    return read_by_fastavro(message.value), [field for field, _ in encoded.losses]


@pytest.mark.parametrize(
    ("op", "operation", "images"),
    [
        (Op.CREATE, "INSERT", "after"),
        (Op.UPDATE, "UPDATE", "before after"),
        (Op.DELETE, "DELETE", "before"),
        (Op.READ, "INIT", "after"),
    ],
)
def test_rows_have_the_images_of_their_operation(op, operation, images):
    source = Source("mysql", snapshot="true" if op is Op.READ else None)
    told, losses = encode(change(op, source=source))
    assert (told["operation"], losses) == (operation, [])
    for name in ("before", "after"):
        assert (told[f"{name}Images"] is not None) == (name in images)


def test_a_row_of_an_incremental_snapshot_is_an_insert_of_the_stream():
    told, losses = encode(change(Op.READ, source=Source("mysql", snapshot="incremental")))
    assert told["operation"] == "INSERT"
    assert losses == ["operation:r", "source.snapshot"]


def test_an_event_of_another_producer_has_the_defaults_of_a_record():
    told, _ = encode(change(source_time_ns=1_600_000_000 * 10**9))
    del told["fields"], told["afterImages"]
    assert told == {
        "version": 0,
        "id": 0,
        "sourceTimestamp": 1_600_000_000,
        "sourcePosition": "0@0",
        "safeSourcePosition": "",
        "sourceTxid": "",
        "source": {"sourceType": "MySQL", "version": ""},
        "operation": "INSERT",
        "objectName": "shop.orders",
        "processTimestamps": None,
        "tags": {},
        "beforeImages": None,
        "bornTimestamp": 1_600_000_000,
    }


REFERENCES = """
    dts-2023/insert dts-2023/update dts-2023/delete dts-2023/ddl
    dts-reference/all_types_of_mysql dts-reference/begin dts-reference/commit
    dts-reference/heartbeat
""".split()


@pytest.mark.parametrize("version", REFERENCES)
def test_a_record_of_dts_comes_out_byte_for_byte(version, golden):
    data = (golden / version / "value").read_bytes()
    native = get_codec("native-json")
    (told,) = native.encode(decode(data)).messages
    (event,) = native.decode(Message(told.value))
    assert get_codec("dts-avro").encode(event).messages[0].value == data


def test_the_version_of_a_record_is_written_as_0(golden):
    data = (golden / "dts-2021" / "item_update" / "value").read_bytes()
    (message,) = get_codec("dts-avro").encode(decode(data)).messages
    assert read_by_fastavro(data)["version"] == 170_844_600
    assert read_by_fastavro(message.value) == read_by_fastavro(data) | {"version": 0}


@pytest.fixture
def golden(request):
    return request.config.rootpath / "tests" / "golden" / "dts-avro"


def test_the_key_is_the_first_tag_and_valid_json():
    told, _ = encode(change(key=Key(("id",)), process_time_ns=1_600_000_000_123_000_000))
    assert list(told["tags"]) == ["pk_uk_info", "readerThroughoutTime"]
    assert json.loads(told["tags"]["pk_uk_info"]) == {"PRIMARY": ["id"]}
    assert told["tags"]["readerThroughoutTime"] == "1600000000123"


def test_tags_of_a_record_follow_the_event():
    tags = {
        "thread_id": "1",
        "pk_uk_info": '{"uk":["c"],"PRIMARY":["c"]}',
        "readerThroughoutTime": "5",
    }
    event = decode(record(tags=tags))
    assert encode(event)[0]["tags"] == tags
    moved = msgspec.structs.replace(event, key=None, process_time_ns=None)
    assert encode(moved)[0]["tags"] == {"thread_id": "1"}


def test_the_key_of_a_message_is_null_unless_it_is_wished():
    event = change(key=Key(("note", "id")))
    codec = get_codec("dts-avro")
    assert codec.encode(event).messages[0].key is None
    codec = get_codec("dts-avro", message_key="primary_key")
    assert codec.encode(event).messages[0].key == b"a,1"
    assert codec.encode(change(key=None)).messages[0].key is None


def test_an_absent_column_is_none():
    schema = TableSchema((*SCHEMA.columns, Column("n", Integer(64))))
    event = change(after=ROW | {"n": UNAVAILABLE}, schema=schema)
    told, losses = encode(event)
    assert told["afterImages"][2] == branch("EmptyObject", "NONE")
    assert losses == ["unavailable"]
    assert encode(change(schema=schema))[1] == []


@pytest.mark.parametrize(
    ("product", "source_type", "losses"),
    [
        ("mysql", "MySQL", []),
        ("sqlserver", "SQLServer", []),
        ("hbase", "HBASE", []),
        (None, "OTHER", []),
        ("mariadb", "MySQL", ["source.product"]),
        ("informix", "OTHER", ["source.product"]),
    ],
)
def test_the_product_is_the_source_type(product, source_type, losses):
    told, found = encode(change(source=Source(product)))
    assert (told["source"]["sourceType"], found) == (source_type, losses)


@pytest.mark.parametrize(
    ("product", "wanted", "losses"),
    [
        ("mysql", 1_600_000_000, ["source_time"]),
        ("sqlserver", 1_600_000_000, ["source_time"]),
        ("postgresql", 1_600_000_000_123, []),
        ("redis", 1_600_000_000_123, []),
        (None, 1_600_000_000_123, []),
    ],
)
def test_the_unit_of_source_times_is_that_of_the_source(product, wanted, losses):
    event = change(source=Source(product), source_time_ns=1_600_000_000_123 * 10**6)
    told, found = encode(event)
    assert (told["sourceTimestamp"], found) == (wanted, losses)


def test_a_time_that_readers_take_for_another_unit_is_a_loss():
    assert encode(change(source_time_ns=10**19 + 10**9))[1] == ["source_time"]
    assert encode(change(source_time_ns=0))[1] == ["source_time"]
    event = change(source=Source("postgresql"), source_time_ns=10**15)
    assert encode(event)[1] == ["source_time"]


@pytest.mark.parametrize(
    ("position", "product", "text", "losses"),
    [
        (MySqlPosition("mysql-bin.000078", 72469), "mysql", "72469@78", []),
        (MySqlPosition("binlog.000078", 72469), "mysql", "72469@78", ["position.file"]),
        (MySqlPosition("mysql-bin.78", 72469), "mysql", "72469@78", ["position.file"]),
        (MySqlPosition("mysql-bin.000078", 4, 1), "mysql", "4@78", ["position.row"]),
        (MySqlPosition("log", 4), "mysql", "0@0", ["position"]),
        (MySqlPosition("mysql-bin.000078", 4), "postgresql", "0@0", ["position"]),
        (ScnPosition(5), "sqlserver", "0@0", ["position"]),
    ],
)
def test_positions_of_mysql_are_an_offset_in_a_numbered_file(position, product, text, losses):
    told, found = encode(change(position=position, source=Source(product)))
    assert (told["sourcePosition"], found) == (text, losses)


def test_a_gtid_is_a_tag():
    position = MySqlPosition("mysql-bin.000001", 4, 0, "u:1")
    marker = TransactionMarker("begin", Transaction("9"), position, MYSQL)
    told, losses = encode(marker)
    assert (told["tags"], told["sourceTxid"], losses) == ({"GTID": "u:1"}, "9", [])


@pytest.mark.parametrize(
    ("table", "name", "losses"),
    [
        (TableId("d.b", None, "t"), r"d\u002Eb.t", []),
        (TableId("d", "s", "t."), r"d.s.t\u002E", []),
        (TableId(None, "s", "t"), ".s.t", []),
        (TableId(None, None, "t"), ".t", []),
        (TableId("d", None, r"a\u002Eb"), r"d.a\u002Eb", ["table.name"]),
    ],
)
def test_object_names_are_escaped(table, name, losses):
    told, found = encode(change(table=table))
    assert (told["objectName"], found) == (name, losses)


def test_a_ddl_is_named_after_its_database_where_the_statement_says_the_rest():
    event = SchemaChange(TABLE, "drop", "DROP TABLE orders", source=MYSQL)
    told, losses = encode(event)
    assert (told["objectName"], told["afterImages"], losses) == ("shop", "DROP TABLE orders", [])
    other = msgspec.structs.replace(event, table=TableId("shop", None, "other"))
    assert encode(other)[0]["objectName"] == "shop.other"


def test_a_truncate_without_a_statement_gets_one():
    for table, product, sql in (
        (TABLE, "mysql", "TRUNCATE TABLE `shop`.`orders`"),
        (TableId("d", "s", 't"'), "postgresql", 'TRUNCATE TABLE "s"."t"""'),
    ):
        told, losses = encode(Truncate(table, source=Source(product)))
        assert (told["afterImages"], losses) == (sql, [])


def test_a_truncate_of_many_tables_is_written_for_its_own_only():
    codec = get_codec("dts-avro")
    sql = "truncate t1, t2"
    data = record(operation="DDL", objectName="d", fields=None, afterImages=sql)
    events = codec.decode(Message(data))
    for event, name in zip(events, ("t1", "t2"), strict=True):
        told, losses = encode(event)
        assert told["afterImages"] == f"TRUNCATE TABLE `d`.`{name}`"
        assert losses == ["event:truncate"]


@pytest.mark.parametrize(
    ("event", "losses"),
    [
        (SchemaChange(TABLE, "alter"), ["event:schema"]),
        (Watermark("resolved"), ["event:watermark"]),
        (Control("QUERY"), ["event:control"]),
    ],
)
def test_events_that_dts_does_not_have_are_told_and_not_written(event, losses):
    encoded = get_codec("dts-avro").encode(event, on_loss="ignore")
    assert encoded.messages == ()
    assert [field for field, _ in encoded.losses] == losses


def test_an_action_that_its_statement_does_not_tell_is_a_loss():
    event = SchemaChange(TABLE, "rename", "ALTER TABLE orders ADD c INT", source=MYSQL)
    assert encode(event)[1] == ["action"]


def test_a_control_event_of_dts_comes_back():
    data = record(operation="NOOP", objectName="d.t", fields=None, afterImages="x")
    assert read_by_fastavro(get_codec("dts-avro").encode(decode(data)).messages[0].value) == (
        read_by_fastavro(data)
    )


def test_details_that_are_no_fields_of_a_record_are_told():
    event = change(source=Source("mysql", "dts"), details={"id": 9, "extra": 1})
    told, losses = encode(event)
    assert (told["id"], losses) == (9, ["details.extra"])


@pytest.mark.parametrize("details", [{"id": "9"}, {"id": 2**64}, {"processTimestamps": ["x"]}])
def test_details_that_are_not_of_their_type_are_refused(details):
    event = change(source=Source("mysql", "dts"), details=details)
    with pytest.raises(EncodeError):
        get_codec("dts-avro").encode(event)


def test_a_row_needs_a_table():
    with pytest.raises(EncodeError, match="a row of no table"):
        get_codec("dts-avro").encode(change(table=TableId("shop")))


def test_a_lone_surrogate_is_refused():
    with pytest.raises(EncodeError):
        get_codec("dts-avro").encode(change(after=ROW | {"note": "\ud800"}))


def test_what_is_decoded_with_a_column_of_nulls_is_written_without_a_loss():
    for number in (3, 252, 20001):
        data = row(number, None)
        assert get_codec("dts-avro").encode(decode(data)).messages == (Message(data),)
    assert decode(row(3, integer(1))).after == {"c": 1}
