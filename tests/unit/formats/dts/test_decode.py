# SPDX-License-Identifier: Apache-2.0
"""What records of DTS mean: kinds of records, names, keys, times, positions."""

import datetime as dt
import json

import pytest
from dts_records import V1, branch, character, date_time, decode, integer, record, row

from changelane import DecodeError, Message, get_codec
from changelane.event import (
    Control,
    DataChange,
    Key,
    KeyOrigin,
    Op,
    SchemaChange,
    Source,
    Transaction,
    TransactionMarker,
    Truncate,
    Watermark,
    is_first_snapshot,
    is_key_change,
)
from changelane.position import MySqlPosition
from changelane.schema import TableId
from changelane.types import Bytes, Integer, String

HEARTBEAT = (
    "000280c0f0f50b06344031063440310230000c382e302e323810000002287265616465725468726f7567686f7574"
    "54696d651a313630303030303030303132330000000080c0f0f50b"
)
INSERT = (
    "00bcc8cf01b0b5afd20c1037323436394037381037323334374037380230000c382e302e323800020e6d796462"
    "2e7431000a166d65746156657273696f6e143331303935393933373214706b5f756b5f696e666f227b22505249"
    "4d415259223a5b2261225d7d287265616465725468726f7567686f757454696d651a3136393639383434303830"
    "3530127365727665725f6964103236393537313631127468726561645f69640c31363339333100040402611002"
    "62fa0300000404021012313233343536373839040e757466386d62342c7465737420696e736572742073746174"
    "656d656e742e00b0b5afd20c"
)


# -- the two vectors ---------------------------------------------------------------------------


def test_the_vector_of_a_heartbeat_is_a_heartbeat():
    event = decode(bytes.fromhex(HEARTBEAT))
    assert isinstance(event, Watermark)
    assert event.type == "heartbeat"
    assert event.source == Source("mysql", "dts")
    assert event.source_time_ns == 1_600_000_000 * 10**9
    assert event.process_time_ns == 1_600_000_000_123 * 10**6
    assert event.position == MySqlPosition("mysql-bin.000001", 4)
    assert event.details["id"] == 1


def test_the_vector_of_an_insert_is_an_insert():
    event = decode(bytes.fromhex(INSERT))
    assert isinstance(event, DataChange)
    assert event.op is Op.CREATE
    assert event.table == TableId("mydb", None, "t1")
    assert event.key == Key(("a",), KeyOrigin.PAYLOAD)
    assert event.before is None
    assert event.after == {"a": 123456789, "b": "test insert statement."}
    assert event.details["id"] == 1700382


def test_the_vector_of_an_insert_without_its_last_five_bytes_is_the_first_version():
    data = bytes.fromhex(INSERT)
    old = decode(data[:-5])
    assert old == decode(data)


@pytest.mark.parametrize("name", ["HEARTBEAT", "INSERT"])
def test_the_vectors_are_written_again_byte_for_byte(name):
    data = bytes.fromhex(globals()[name])
    codec = get_codec("dts-avro")
    native = get_codec("native-json")
    (told,) = native.encode(decode(data)).messages
    (event,) = native.decode(told)
    assert codec.encode(event).messages == (Message(data),)


# -- framing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, b"", b"\x00", b"\x00\x00", b"ab"])
def test_a_value_of_at_most_two_bytes_only_pushes_the_offset(value):
    assert get_codec("dts-avro").decode(Message(value)) == ()


def test_a_record_of_the_first_version_has_no_born_timestamp():
    event = decode(record(schema=V1))
    assert "bornTimestamp" not in event.details
    assert decode(record(bornTimestamp=5)).details["bornTimestamp"] == 5


def test_bytes_after_the_record_are_counted():
    assert decode(record() + b"abc").details["trailingBytes"] == 3


def test_bytes_after_the_record_are_refused_when_strict():
    with pytest.raises(DecodeError, match="bytes after the record"):
        decode(record() + b"abc", strict=True)


def test_a_record_has_no_registry_framing():
    framed = b"\x00\x00\x00\x00\x2a" + record()
    assert not get_codec("dts-avro").detects(Message(framed))
    assert get_codec("dts-avro").detects(Message(record()))


@pytest.mark.parametrize(
    "value",
    [b"\x00" * 5, b"\x00" * 14, b"\x00" * 40, b"\x00\x00\x00\x00\x01\x02a", b'{"id": 1}' * 9],
)
def test_zeros_and_confluent_avro_are_not_taken_for_records(value):
    assert not get_codec("dts-avro").detects(Message(value))


# -- kinds of records --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "op"),
    [("INSERT", Op.CREATE), ("UPDATE", Op.UPDATE), ("DELETE", Op.DELETE), ("INIT", Op.READ)],
)
def test_rows_are_told_by_their_operation(operation, op):
    before = [integer(1)] if operation in {"UPDATE", "DELETE"} else None
    after = None if operation == "DELETE" else [integer(2)]
    event = decode(record(operation=operation, beforeImages=before, afterImages=after))
    assert event.op is op
    # a row of a full load is older than the changes of the stream
    assert is_first_snapshot(event.source) is (op is Op.READ)
    assert event.before == ({"c": 1} if before else None)
    assert event.after == ({"c": 2} if after else None)


def test_an_update_may_lack_its_before_image():
    event = decode(record(operation="UPDATE", afterImages=[integer(2)]))
    assert event.before is None
    assert event.after == {"c": 2}


@pytest.mark.parametrize(
    ("operation", "status"), [("BEGIN", "begin"), ("COMMIT", "commit"), ("ROLLBACK", "rollback")]
)
def test_the_ends_of_transactions_are_markers(operation, status):
    event = decode(bare(operation, tags={"GTID": "u:1"}))
    assert isinstance(event, TransactionMarker)
    assert event.status == status
    assert event.position == MySqlPosition("mysql-bin.000001", 200, 0, "u:1")


def bare(operation, **changes):
    told = {"objectName": None, "fields": None, "beforeImages": None, "afterImages": None}
    return record(operation=operation, **(told | changes))


@pytest.mark.parametrize(
    "operation",
    ["ABORT", "CHECKPOINT", "COMMAND", "FILL", "FINISH", "CONTROL", "RDB", "NOOP"],
)
def test_operations_without_a_meaning_of_their_own_are_kept(operation):
    event = decode(bare(operation, objectName="shop", afterImages="what it says"))
    assert isinstance(event, Control)
    assert (event.type, event.text, event.table) == (operation, "what it says", TableId("shop"))


def test_the_rows_of_a_control_record_are_kept():
    data = record(operation="NOOP", beforeImages=[integer(1)], afterImages=[integer(2)])
    event = decode(data)
    assert (event.details["before"], event.details["after"]) == ({"c": 1}, {"c": 2})


@pytest.mark.parametrize(
    ("operation", "field"),
    [("INSERT", "beforeImages"), ("INIT", "beforeImages"), ("DELETE", "afterImages")],
)
def test_an_image_that_the_operation_does_not_have_is_refused_unless_it_tells_nothing(
    operation, field
):
    images = {"beforeImages": [integer(1)], "afterImages": [integer(1)]}
    none = "NONE"
    event = decode(record(operation=operation, **images | {field: [none]}))
    assert (event.before, event.after).count(None) == 1
    with pytest.raises(DecodeError) as error:
        decode(record(operation=operation, **images))
    assert (error.value.code, error.value.path) == ("unexpected_image", f"$.{field}")


def test_what_else_a_marker_or_a_heartbeat_says_is_kept():
    for operation in ("BEGIN", "COMMIT", "HEARTBEAT"):
        event = decode(record(operation=operation, beforeImages="x", afterImages=[integer(2)]))
        told = {name: event.details[name] for name in ("objectName", "before", "after")}
        assert told == {"objectName": "shop.orders", "before": "x", "after": {"c": 2}}
    event = decode(bare("DDL", objectName="shop", beforeImages="x", afterImages="drop table t"))
    assert event.details["before"] == "x"


def test_a_ddl_is_named_after_its_database_and_its_statement():
    event = decode(bare("DDL", objectName="mydb", afterImages="create table t1(a bigint)"))
    assert isinstance(event, SchemaChange)
    assert event.table == TableId("mydb", None, "t1")
    assert (event.action, event.ddl) == ("create", "create table t1(a bigint)")


@pytest.mark.parametrize(
    ("sql", "action", "table"),
    [
        ("ALTER TABLE `a``b` ADD c INT", "alter", TableId("mydb", None, "a`b")),
        ("/* x */ drop table if exists other.t", "drop", TableId("other", None, "t")),
        ("rename table t1 to t2", "rename", TableId("mydb", None, "t1")),
        ("create unique index i on t1 (a)", "create_index", TableId("mydb", None, "t1")),
        ("drop index i on t1", "drop_index", TableId("mydb", None, "t1")),
        ("create view v as select 1", "other", TableId("mydb")),
        ("create table (", "create", TableId("mydb")),
    ],
)
def test_statements_are_told_apart(sql, action, table):
    event = decode(bare("DDL", objectName="mydb", afterImages=sql))
    assert (event.action, event.table) == (action, table)


@pytest.mark.parametrize(
    ("sql", "action"),
    [
        ("alter table t rename to u", "rename"),
        ("create database d", "create_database"),
        ("alter table t add index i (a)", "create_index"),
    ],
)
def test_a_ddl_has_the_action_that_it_has_in_every_format(sql, action):
    assert decode(bare("DDL", objectName="shop", afterImages=sql)).action == action


def test_a_ddl_of_postgresql_names_schema_and_table():
    sql = 'alter table "public".orders add c int'
    event = decode(bare("DDL", source="PostgreSQL", objectName="mydb", afterImages=sql))
    assert event.table == TableId("mydb", "public", "orders")


def test_a_statement_that_truncates_is_a_truncate_of_each_of_its_tables():
    codec = get_codec("dts-avro")
    for sql, names in (
        ("TRUNCATE TABLE t1", ["t1"]),
        ("truncate t1;", ["t1"]),
        ("truncate table t1, s.t2 restart identity", ["t1", "t2"]),
    ):
        events = codec.decode(Message(bare("DDL", objectName="mydb", afterImages=sql)))
        assert all(isinstance(event, Truncate) for event in events)
        assert [event.table.name for event in events] == names


def test_a_text_that_truncates_and_does_more_is_no_truncate():
    event = decode(bare("DDL", objectName="mydb", afterImages="truncate t1; drop table t2"))
    assert isinstance(event, SchemaChange)
    assert event.action == "other"


def test_a_structured_ddl_of_the_deliver_sdk_keeps_its_document():
    document = '{"opType":"CREATE_TABLE","columns":[]}'
    event = decode(bare("DDL", objectName="mydb.t1", afterImages=document))
    assert (event.action, event.ddl, event.table) == (
        "other",
        document,
        TableId("mydb", None, "t1"),
    )


def test_a_command_of_mongodb_is_a_change_of_schema():
    event = decode(bare("COMMAND", source="MongoDB", objectName="db", afterImages="{drop: 1}"))
    assert isinstance(event, SchemaChange)
    assert event.details["operation"] == "COMMAND"


def test_a_document_of_mongodb_has_no_fields():
    image = [branch("TextObject", type="JSON", value='{"a":1}'), character(b"5f")]
    data = record(source="MongoDB", objectName="db.c", fields=None, afterImages=image)
    event = decode(data)
    assert event.after == {"_value": '{"a":1}', "_id": "5f"}


# -- images ------------------------------------------------------------------------------------

NONE = branch("EmptyObject", "NONE")
NULL = branch("EmptyObject", "NULL")


def test_none_is_a_column_that_is_not_in_the_image():
    fields = [{"name": name, "dataTypeNumber": 3} for name in "abcd"]
    event = decode(record(fields=fields, afterImages=[integer(1), None, NULL, NONE]))
    assert event.after == {"a": 1, "b": None, "c": None}
    assert [column.name for column in event.schema.columns] == list("abcd")


@pytest.mark.parametrize("image", [[], [integer(1)], [integer(1)] * 3])
def test_an_image_has_as_many_values_as_there_are_fields(image):
    fields = [{"name": name, "dataTypeNumber": 3} for name in "ab"]
    with pytest.raises(DecodeError, match="not as many values as fields"):
        decode(record(fields=fields, afterImages=image))


def test_a_row_of_no_columns_is_read_to_its_end():
    nothing = {"fields": [], "beforeImages": [], "afterImages": []}
    event = decode(record(operation="UPDATE", **nothing), strict=True)
    assert (event.before, event.after, event.schema.columns) == ({}, {}, ())
    assert "bornTimestamp" not in event.details
    assert decode(record(operation="DELETE", **nothing | {"afterImages": None})).before == {}


def test_a_column_that_is_named_twice_is_refused():
    fields = [{"name": "a", "dataTypeNumber": 3}] * 2
    with pytest.raises(DecodeError, match=r"named twice at \$\.fields"):
        decode(record(fields=fields, afterImages=[None, None]))


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"fields": None}, "$.fields"),
        ({"afterImages": None}, "$.afterImages"),
        ({"afterImages": "text"}, "$.afterImages"),
        ({"operation": "DELETE", "beforeImages": None}, "$.beforeImages"),
        ({"operation": "DELETE", "beforeImages": "text"}, "$.beforeImages"),
        ({"objectName": None}, "$.objectName"),
        ({"objectName": "a.b.c.d"}, "$.objectName"),
        ({"operation": "DDL"}, "$.afterImages"),
        ({"sourceTimestamp": 1 << 62}, "$.sourceTimestamp"),
    ],
)
def test_a_record_that_says_too_little_is_refused_with_its_place(changes, path):
    with pytest.raises(DecodeError) as error:
        decode(record(**changes))
    assert error.value.path == path


def test_columns_of_bytes_and_text_share_a_number():
    for value, kind in (
        (character(b"x"), String()),
        (branch("BinaryObject", type="BLOB", value=b"x"), Bytes()),
    ):
        event = decode(row(252, value))
        assert event.schema.columns[0].type == kind


def test_a_column_of_two_types_in_one_record_is_refused():
    blob = branch("BinaryObject", type="BLOB", value=b"x")
    fields = [{"name": "c", "dataTypeNumber": 252}]
    data = record(
        operation="UPDATE", fields=fields, beforeImages=[character(b"x")], afterImages=[blob]
    )
    with pytest.raises(DecodeError, match="a column of two types"):
        decode(data)


@pytest.mark.parametrize(
    ("number", "before", "after"),
    [
        (253, character(b"x", "klingon"), character(b"x", "gbk")),
        (12, date_time(2020, 1, 1, 1, 1, 1, 0), date_time(2020, 1, 1, None, None, None, None)),
        (10, date_time(2020, 1, 1, 1, 1, 1, 0), date_time(2020, 1, 1, None, None, None, None)),
        (12, branch("Timestamp", timestamp=1, millis=0), date_time(2020, 1, 1, 1, 1, 1, 0)),
    ],
)
def test_both_images_have_to_hold_the_type_that_either_tells(number, before, after):
    fields = [{"name": "c", "dataTypeNumber": number}]
    for images in ((before, after), (after, before)):
        data = record(
            operation="UPDATE", fields=fields, beforeImages=[images[0]], afterImages=[images[1]]
        )
        with pytest.raises(DecodeError, match="a column of two types"):
            decode(data)


@pytest.mark.parametrize("number", [-2, -1, 2])
def test_a_boolean_as_a_number_is_0_or_1(number):
    with pytest.raises(DecodeError):
        decode(row(16, integer(number), source="PostgreSQL", objectName="d.s.t"))


def test_an_unsigned_bigint_says_so_only_where_it_must():
    fields = [{"name": "c", "dataTypeNumber": 8}]
    small, great = integer(1, 8), integer(2**64 - 1, 8)
    event = decode(
        record(operation="UPDATE", fields=fields, beforeImages=[small], afterImages=[great])
    )
    assert event.schema.columns[0].type == Integer(64, unsigned=True)
    assert (event.before, event.after) == ({"c": 1}, {"c": 2**64 - 1})


# -- names, keys, positions, times -------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("shop.orders", TableId("shop", None, "orders")),
        ("shop.public.orders", TableId("shop", "public", "orders")),
        (r"d\u002Eb.t", TableId("d.b", None, "t")),
        (r"shop.t\u002E", TableId("shop", None, "t.")),
        (r"\u002Ea.\u002E\u002E.b\u002Ec", TableId(".a", "..", "b.c")),
    ],
)
def test_object_names_are_split_before_they_are_unescaped(name, table):
    assert decode(record(objectName=name)).table == table


@pytest.mark.parametrize(
    ("tag", "key"),
    [
        ('{"PRIMARY":["c"]}', ("c",)),
        ('{"uk_x":["x"],"PRIMARY":["c"]}', ("c",)),
        ('{"PRIMARY":["c"],"uk":["a\\b"]}', ("c",)),
        ('{"uk_"x":["x"],"PRIMARY":["c"]}', ("c",)),
        ("{}", None),
        ('{"uk_x":["c"]}', None),
        ('{"PRIMARY":["d"]}', None),
        ('{"PRIMARY":[]}', None),
        ("no JSON", None),
        ("", None),
    ],
)
def test_the_key_is_the_primary_one_of_pk_uk_info(tag, key):
    event = decode(record(tags={"pk_uk_info": tag}))
    assert (event.key.columns if event.key else None) == key


def test_a_key_whose_name_breaks_the_json_is_still_found():
    fields = [{"name": 'a"b', "dataTypeNumber": 3}]
    event = decode(record(fields=fields, tags={"pk_uk_info": '{"PRIMARY":["a"b"]}'}))
    assert event.key.columns == ('a"b',)


def test_the_unit_of_source_times_is_told_by_their_size():
    assert decode(record(sourceTimestamp=1_600_000_001)).source_time_ns == 1_600_000_001 * 10**9
    data = record(source="PostgreSQL", sourceTimestamp=1_600_000_001_234)
    assert decode(data).source_time_ns == 1_600_000_001_234 * 10**6
    assert decode(record(sourceTimestamp=0)).source_time_ns is None


def test_the_process_time_is_when_dts_read_the_change():
    tags = {"readerThroughoutTime": "1600000000123"}
    assert decode(record(tags=tags)).process_time_ns == 1_600_000_000_123 * 10**6
    assert decode(record(tags={"readerThroughoutTime": "soon"})).process_time_ns is None


@pytest.mark.parametrize(
    ("source", "text", "position"),
    [
        ("MySQL", "72469@78", MySqlPosition("mysql-bin.000078", 72469)),
        ("MySQL", "0@0", None),
        ("MySQL", "somewhere", None),
        ("PostgreSQL", "0/16B3748", None),
        ("Oracle", "200@1", None),
    ],
)
def test_only_positions_of_mysql_are_understood(source, text, position):
    event = decode(record(source=source, sourcePosition=text))
    assert event.position == position
    if position is None and text != "0@0":
        assert event.details["sourcePosition"] == text


def test_the_name_of_binary_log_files_is_an_option():
    event = decode(record(sourcePosition="4@1"), binlog_prefix="binlog")
    assert event.position == MySqlPosition("binlog.000001", 4)


def test_a_transaction_id_of_zero_is_none():
    assert decode(record(sourceTxid="0")).transaction is None
    assert decode(record(source="Oracle", sourceTxid="9.1.7")).transaction == Transaction("9.1.7")


@pytest.mark.parametrize(
    ("source", "product"),
    [("MySQL", "mysql"), ("SQLServer", "sqlserver"), ("PPAS", "ppas"), ("OTHER", None)],
)
def test_the_source_type_is_the_product(source, product):
    assert decode(record(source=source)).source == Source(product, "dts")


def test_what_the_record_says_besides_is_kept():
    tags = {"l_db_name": "logical", "l_tb_name": "orders", "traceid": "1"}
    event = decode(record(tags=tags, processTimestamps=[1, 2]))
    assert event.details == {
        "id": 7,
        "safeSourcePosition": "120@1",
        "sourceTxid": "0",
        "sourceVersion": "8.0.28",
        "processTimestamps": [1, 2],
        "tags": tags,
    }


def test_dates_of_a_record_are_in_no_zone():
    value = branch("Timestamp", timestamp=0, millis=0)
    assert decode(row(7, value)).after["c"] == dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def test_a_key_column_that_an_update_does_not_repeat_did_not_change():
    fields = [{"name": name, "dataTypeNumber": 3} for name in ("id", "v")]
    event = decode(
        record(
            operation="UPDATE",
            tags={"pk_uk_info": '{"PRIMARY":["id"]}'},
            fields=fields,
            beforeImages=[integer(1), integer(2)],
            afterImages=["NONE", integer(3)],
        )
    )
    assert not is_key_change(event)
    for name in ("debezium-json", "arcion-json"):
        (message,) = get_codec(name).encode(event, on_loss="ignore").messages
        assert json.loads(message.key)["payload"] == {"id": 1}
        assert json.loads(message.value)["payload"]["op"] == "u"
