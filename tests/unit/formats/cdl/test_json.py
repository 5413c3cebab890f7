# SPDX-License-Identifier: Apache-2.0
"""CDL JSON 1.0: the sample of its documentation, and what the words beside it say."""

import datetime as dt
import decimal
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane import DecodeError, Message, UnsupportedError, convert, get_codec
from changelane.apply import operations_of
from changelane.event import (
    Completeness,
    DataChange,
    Key,
    KeyOrigin,
    Op,
    Source,
    Tombstone,
    Transaction,
    Watermark,
)
from changelane.position import PostgresPosition, ScnPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNAVAILABLE, Decimal, Integer, String, Timestamp

CASE = Path(__file__).resolve().parents[3] / "golden" / "cdl-json" / "cdl-1.0" / "insert"
SAMPLE = (CASE / "value").read_bytes()
BLOCK = json.loads(SAMPLE)["schema"]
ROW = json.loads(SAMPLE)["payload"]
CDL = get_codec("cdl-json")


def message(*, schema=BLOCK, **changes):
    payload = {name: value for name, value in (ROW | changes).items() if value is not ...}
    text = payload if schema is None else {"schema": schema, "payload": payload}
    return Message(json.dumps(text, separators=(",", ":"), ensure_ascii=False).encode())


def decode(codec=CDL, **changes):
    (event,) = codec.decode(message(**changes))
    return event


def row(**changes):
    return ROW["data"] | changes


def written(event, codec=CDL, on_loss="raise"):
    (one,) = codec.encode(event, on_loss=on_loss).messages
    return one


def payload_of(event, codec=CDL, on_loss="raise"):
    return json.loads(written(event, codec, on_loss).value)["payload"]


# -- the sample ----------------------------------------------------------------------------------


def test_the_sample_comes_back_byte_for_byte():
    assert written(decode()).value == SAMPLE


def test_the_sample_comes_back_by_way_of_the_native_form():
    native = get_codec("native-json")
    (event,) = native.decode(native.encode(decode()).messages[0])
    assert written(event).value == SAMPLE


def test_the_short_way_reads_what_the_long_way_reads():
    codec = get_codec("cdl-json")
    assert codec.decode(Message(SAMPLE)) == codec.decode(Message(SAMPLE))
    assert codec.decode(Message(SAMPLE)) == codec.decode(Message(b" " + SAMPLE + b"\n"))


def test_the_schema_block_tells_types_names_and_what_may_be_null():
    columns = decode().schema.by_name
    assert list(columns) == ["count1", "id", "time1", "decimalNum"]
    assert (columns["count1"].type, columns["count1"].nullable) == (Integer(64), True)
    assert (columns["id"].type, columns["id"].nullable) == (Integer(32), False)
    assert columns["time1"].type == Timestamp(3)
    assert columns["decimalNum"].type == Decimal()


def test_values_are_read_by_the_types_of_the_schema_block():
    event = decode(data=row(time1=1707047996013, decimalNum="-0.10", count1=2**63 - 1))
    assert event.after == {
        "count1": 2**63 - 1,
        "id": 34,
        "time1": dt.datetime(2024, 2, 4, 11, 59, 56, 13000),
        "decimalNum": decimal.Decimal("-0.10"),
    }
    assert str(event.after["decimalNum"]) == "-0.10"
    assert payload_of(event)["data"] == row(
        time1=1707047996013, decimalNum="-0.10", count1=2**63 - 1
    )


# -- Table 1 -------------------------------------------------------------------------------------


def test_message_version_is_1_0():
    assert payload_of(decode())["message_version"] == "1.0"
    for version in ("2.0", "1.1", ""):
        with pytest.raises(DecodeError) as error:
            decode(message_version=version)
        assert (error.value.code, error.value.path) == (
            "unknown_version",
            "$.payload.message_version",
        )


@pytest.mark.parametrize(
    ("word", "op", "images"),
    [
        ("INSERT", Op.CREATE, {"data": ROW["data"], "before": None}),
        ("UPDATE", Op.UPDATE, {"data": row(count1=14), "before": ROW["data"]}),
        ("DELETE", Op.DELETE, {"data": None, "before": ROW["data"]}),
    ],
)
def test_operation_is_insert_update_or_delete(word, op, images):
    event = decode(OPERATION=word, DATA_STORE="MYSQL", **images)
    assert event.op is op
    assert event.before == images["before"]
    assert event.after == images["data"]
    assert payload_of(event) == ROW | {"OPERATION": word, "DATA_STORE": "MYSQL"} | images


@pytest.mark.parametrize("word", ["READ", "insert", "c", "", "TRUNCATE"])
def test_another_operation_is_an_error(word):
    with pytest.raises(DecodeError) as error:
        decode(OPERATION=word)
    assert (error.value.code, error.value.path) == ("unknown_operation", "$.payload.OPERATION")


def test_before_and_data_are_the_row_before_and_after_the_change():
    event = decode(OPERATION="UPDATE", before=row(count1=12))
    assert (event.before["count1"], event.after["count1"]) == (12, 13)


def test_an_update_without_before_tells_the_new_row_only():
    event = decode(OPERATION="UPDATE")
    assert event.before is None
    assert payload_of(event)["before"] is None


@pytest.mark.parametrize("operation", ["INSERT", "UPDATE"])
def test_an_insert_or_update_without_data_is_an_error(operation):
    with pytest.raises(DecodeError) as error:
        decode(OPERATION=operation, data=None, before=ROW["data"])
    assert error.value.path == "$.payload.data"


def test_data_store_is_the_product():
    assert decode().source == Source("postgresql", "cdl")
    assert decode(DATA_STORE="ORACLE").source.product == "oracle"
    assert payload_of(decode(DATA_STORE="openGauss"))["DATA_STORE"] == "openGauss"


def test_timestamp_is_the_time_of_the_change_in_milliseconds():
    assert decode().source_time_ns == 1707047996013 * 10**6


def test_seg_owner_is_the_schema_and_table_name_the_table():
    assert decode().table == TableId(None, "public", "ct_pg2hudi")


def test_seg_owner_is_the_database_of_a_product_without_schemas():
    event = decode(DATA_STORE="MYSQL", SEG_OWNER="shop")
    assert event.table == TableId("shop", None, "ct_pg2hudi")
    assert payload_of(event)["SEG_OWNER"] == "shop"
    event = msgspec.structs.replace(decode(), table=TableId("cdl", "public", "t"))
    assert payload_of(event, on_loss="warn")["SEG_OWNER"] == "public"
    assert dict(CDL.encode(event, on_loss="warn").losses) == {"table.database": "not written"}


def test_seg_owner_is_the_database_where_the_user_says_so():
    codec = get_codec("cdl-json", owner="database")
    event = decode(codec)
    assert event.table == TableId("public", None, "ct_pg2hudi")
    assert written(event, codec).value == SAMPLE


def test_transaction_properties_are_position_and_transaction():
    event = decode()
    assert event.position == PostgresPosition(163955221008)
    assert event.transaction == Transaction("57227595")


def properties(**values):
    return {"properties": [{"name": name, "value": value} for name, value in values.items()]}


@pytest.mark.parametrize(
    ("block", "position", "transaction"),
    [
        (properties(lsn=-1), PostgresPosition(2**64 - 1), None),
        (properties(scn=7, txId=1), ScnPosition(7), Transaction("1")),
        (properties(txId=9, lsn=8), PostgresPosition(8), Transaction("9")),
        (properties(lsn=8, txId=9, other=3), PostgresPosition(8), Transaction("9")),
        (properties(lsn=None), None, None),
        (properties(lsn=2**64), None, None),
        (properties(), None, None),
        (
            {"properties": [{"name": "lsn", "value": 1, "more": 2}], "id": 3},
            PostgresPosition(1),
            None,
        ),
    ],
)
def test_other_properties_are_kept_and_written_again(block, position, transaction):
    event = decode(transaction=block)
    assert (event.position, event.transaction) == (position, transaction)
    assert payload_of(event)["transaction"] == block


def test_unique_is_the_primary_key():
    assert decode().key == Key(("id",), KeyOrigin.PAYLOAD)
    assert decode(unique={"id": 34, "count1": 13}).key.columns == ("id", "count1")
    assert decode(unique=None).key is None
    assert payload_of(decode(unique=None))["unique"] is None


def test_a_unique_of_no_column_is_no_key():
    event = decode(unique={})
    assert event.key is None
    assert payload_of(event)["unique"] == {}


def test_the_schema_of_a_unique_that_is_null_is_the_keys_whatever_came_before():
    event = decode(unique=None)
    one, other = (
        msgspec.structs.replace(event, key=Key(names)) for names in (("id", "time1"), ("none",))
    )
    codec = get_codec("cdl-json")
    written(one, codec, on_loss="warn")
    again = written(other, codec, on_loss="warn")
    assert again == written(other, get_codec("cdl-json"), on_loss="warn")


def test_unique_of_another_row_is_kept():
    event = decode(OPERATION="UPDATE", unique={"id": 33}, before=row(id=33))
    assert event.key.columns == ("id",)
    assert payload_of(event)["unique"] == {"id": 33}


def test_a_key_change_is_one_update():
    event = decode(OPERATION="UPDATE", DATA_STORE="MYSQL", before=row(id=33))
    assert (event.before["id"], event.after["id"]) == (33, 34)
    assert payload_of(event)["before"] == row(id=33)


# -- deleted rows --------------------------------------------------------------------------------


def test_a_key_change_without_all_columns_does_not_null_the_others():
    told = decode(OPERATION="UPDATE", before=row(id=33), data=row())
    before, after = ({"id": number, "count1": 1} for number in (33, 34))
    event = msgspec.structs.replace(told, before=before, after=after)
    message = written(event)
    for image in json.loads(message.value)["schema"]["fields"][8:10]:
        assert [column["field"] for column in image["fields"]] == list(ROW["data"])
    (again,) = CDL.decode(message)
    assert (again.before, again.after) == (before, after)
    _, upsert = operations_of(again)
    assert not upsert.is_full_row


def test_a_deleted_row_may_stand_in_data():
    event = decode(OPERATION="DELETE", DATA_STORE="MYSQL")
    assert (event.before, event.after) == (ROW["data"], None)
    assert payload_of(event) == ROW | {"OPERATION": "DELETE", "DATA_STORE": "MYSQL"}


def test_a_deleted_row_may_be_told_by_its_key_only():
    changes = {"OPERATION": "DELETE", "data": None, "before": None}
    event = decode(**changes)
    assert (event.before, event.after) == ({"id": 34}, None)
    assert payload_of(event) == ROW | changes
    bare = decode(schema=None, **changes)
    assert bare.before_holds is Completeness.KEY


def test_a_delete_of_nothing_is_an_error():
    with pytest.raises(DecodeError) as error:
        decode(OPERATION="DELETE", data=None, before=None, unique=None)
    assert error.value.code == "missing_field"


@pytest.mark.parametrize("product", ["POSTGRESQL", "OPENGAUSS"])
def test_a_deleted_row_of_postgresql_is_believed_in_its_key_and_what_is_no_filler(product):
    """ "PG sources with default replica identity: DELETE carries PK only" """
    changes = {"OPERATION": "DELETE", "DATA_STORE": product, "data": None}
    event = decode(before=row(count1=None, decimalNum="1.5"), **changes)
    assert event.before == {
        "count1": UNAVAILABLE,
        "id": 34,
        "time1": UNAVAILABLE,
        "decimalNum": decimal.Decimal("1.5"),
    }
    assert payload_of(event, on_loss="ignore") == ROW | changes | {
        "before": row(count1=None, decimalNum="1.5")
    }


def test_a_deleted_row_is_believed_where_the_user_says_so():
    codec = get_codec("cdl-json", before_image="full")
    event = decode(codec, OPERATION="DELETE", data=None, before=row(count1=None))
    assert event.before == row(count1=None)


def test_nulls_of_a_deleted_row_of_postgresql_are_a_reported_loss():
    event = decode(OPERATION="DELETE", DATA_STORE="MYSQL", data=None, before=row())
    event = msgspec.structs.replace(event, source=Source("postgresql", "cdl"))
    with pytest.raises(UnsupportedError, match="before"):
        CDL.encode(event)


# -- large objects -------------------------------------------------------------------------------


def test_a_lob_column_that_an_update_has_as_null_is_unavailable():
    event = decode(OPERATION="UPDATE", LOB_COLUMNS="decimalNum", data=row(count1=None))
    assert event.after["decimalNum"] is UNAVAILABLE
    assert event.after["count1"] is None
    assert payload_of(event)["LOB_COLUMNS"] == "decimalNum"
    assert payload_of(event)["data"] == row(count1=None)


def test_a_lob_column_that_an_update_has_as_null_is_null_where_the_user_says_so():
    codec = get_codec("cdl-json", lob_nulls="null")
    event = decode(codec, OPERATION="UPDATE", LOB_COLUMNS="decimalNum", data=row(count1=None))
    assert event.after["decimalNum"] is None
    after = event.after | {"decimalNum": UNAVAILABLE}
    details = {name: value for name, value in event.details.items() if name != "LOB_COLUMNS"}
    unavailable = msgspec.structs.replace(event, after=after, details=details)
    assert "decimalNum" not in payload_of(unavailable, codec)["data"]
    assert codec.decode(written(unavailable, codec))[0].after == after


def test_a_lob_column_that_is_missing_is_unavailable():
    data = {"id": 34, "count1": 1}
    event = decode(LOB_COLUMNS="decimalNum", data=data)
    assert event.after == data | {"decimalNum": UNAVAILABLE}
    assert payload_of(event)["data"] == data
    assert payload_of(event)["LOB_COLUMNS"] == "decimalNum"


def test_a_lob_column_that_an_insert_has_as_null_is_null():
    event = decode(LOB_COLUMNS="decimalNum")
    assert event.after["decimalNum"] is None
    assert payload_of(event)["LOB_COLUMNS"] == "decimalNum"


def test_a_lob_column_that_was_sent_has_its_value():
    event = decode(OPERATION="UPDATE", LOB_COLUMNS="decimalNum", data=row(decimalNum="1"))
    assert event.after["decimalNum"] == 1
    assert payload_of(event)["LOB_COLUMNS"] == "decimalNum"


@pytest.mark.parametrize(
    "text", ["time1,decimalNum", "time1, decimalNum", "time1;decimalNum", "time1 decimalNum other"]
)
def test_lob_columns_may_be_many(text):
    event = decode(OPERATION="UPDATE", LOB_COLUMNS=text)
    assert event.after["time1"] is event.after["decimalNum"] is UNAVAILABLE
    assert set(event.after) == set(ROW["data"])
    assert payload_of(event)["LOB_COLUMNS"] == text


def test_the_placeholder_of_a_value_that_was_not_got_is_no_value():
    """ "unchanged TOAST fields show up as __debezium_unavailable_value" """
    block = json.loads(SAMPLE)["schema"]
    for index in (8, 9):
        block["fields"][index]["fields"].append(
            {"type": "string", "optional": True, "field": "note"}
        )
    data = row(note="__debezium_unavailable_value")
    event = decode(schema=block, OPERATION="UPDATE", data=data)
    assert event.after["note"] is UNAVAILABLE
    assert payload_of(event)["data"] == data
    codec = get_codec("cdl-json", placeholder="null")
    assert decode(codec, schema=block, OPERATION="UPDATE", data=data).after == data


@pytest.mark.parametrize("op", [Op.CREATE, Op.UPDATE, Op.DELETE])
def test_what_is_unavailable_comes_back_unavailable(op):
    schema = TableSchema(
        (
            Column("id", Integer(64), nullable=False),
            Column("a b", String()),
            Column("doc", String()),
        )
    )
    image = {"id": 1, "a b": UNAVAILABLE, "doc": UNAVAILABLE}
    sides = {"before": image} if op is Op.DELETE else {"after": image}
    event = DataChange(op, TableId(None, "s", "t"), Key(("id",)), schema=schema, **sides)
    (again,) = CDL.decode(written(event, on_loss="warn"))
    assert (again.before, again.after) == (event.before, event.after)


# -- heartbeats ----------------------------------------------------------------------------------


def test_the_heartbeat_identifier_of_a_row_is_kept_and_means_nothing_else():
    assert decode().details["HEARTBEAT_IDENTIFIER"] == "279fb050-0143-45c1-b184-50bc48c2461c"
    event = decode(HEARTBEAT_IDENTIFIER=None)
    assert "HEARTBEAT_IDENTIFIER" not in event.details
    assert payload_of(event)["HEARTBEAT_IDENTIFIER"] is None


@pytest.mark.parametrize(
    ("owner", "table"), [("cdc_cdl", "cdc_heartbeat"), ("CDC_CDL", "CDC_HEARTBEAT")]
)
def test_a_change_of_the_heartbeat_table_is_a_heartbeat(owner, table):
    beat = message(SEG_OWNER=owner, TABLE_NAME=table, OPERATION="UPDATE")
    (event,) = CDL.decode(beat)
    assert isinstance(event, Watermark)
    assert event.position == PostgresPosition(163955221008)
    assert event.source_time_ns == 1707047996013 * 10**6
    assert written(event).value == beat.value


def test_the_heartbeat_table_is_a_table_where_the_user_says_so():
    codec = get_codec("cdl-json", heartbeat_table="")
    event = decode(codec, SEG_OWNER="cdc_cdl", TABLE_NAME="cdc_heartbeat")
    assert isinstance(event, DataChange)


def test_a_heartbeat_of_another_format_is_a_reported_loss():
    with pytest.raises(UnsupportedError, match="watermark"):
        CDL.encode(Watermark(), on_loss="raise")


# -- the rest of the message ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["1", "heartbeat", None])
def test_another_message_type_is_kept(kind):
    event = decode(message_type=kind)
    assert event.op is Op.CREATE
    assert payload_of(event)["message_type"] == kind


def test_fields_that_are_not_known_are_kept():
    event = decode(NEW_FIELD={"a": [1]})
    assert payload_of(event)["NEW_FIELD"] == {"a": [1]}


def test_key_and_topic_are_kept_as_they_are():
    event = decode()
    one = Message(SAMPLE, b"\xffkey", topic="shop_orders")
    (event,) = CDL.decode(one)
    again = written(event)
    assert (again.key, again.topic) == (one.key, one.topic)


def test_a_key_that_is_not_known_is_the_unique_columns():
    assert json.loads(written(decode()).key) == {
        "schema": {
            "type": "struct",
            "fields": [{"type": "int32", "optional": False, "field": "id"}],
            "optional": False,
            "name": "unique",
        },
        "payload": {"id": 34},
    }


def test_a_message_without_schema_block_has_values_without_types():
    event = decode(schema=None, data=row(time1=1707047996013))
    assert event.schema is None
    assert event.after["time1"] == 1707047996013
    assert event.after_holds is Completeness.FULL
    message = written(event)
    payload = ROW | {"data": row(time1=1707047996013)}
    assert json.loads(message.value) == {"schema": None, "payload": payload}
    assert message.key == b'{"schema":null,"payload":{"id":34}}'


@pytest.mark.parametrize("value", [None, b"", b"null"])
def test_a_message_without_value_is_a_tombstone(value):
    (event,) = CDL.decode(Message(value, b'{"id":1}'))
    assert isinstance(event, Tombstone)
    assert event.key == {"id": 1}


@pytest.mark.parametrize("name", ["OPERATION", "TABLE_NAME", "DATA_STORE"])
def test_a_message_without_its_three_fields_is_another_format(name):
    one = message(**{name: ...})
    assert not CDL.detects(one)
    with pytest.raises(DecodeError) as error:
        CDL.decode(one)
    assert error.value.path == f"$.payload.{name}"


def test_no_other_format_takes_the_sample_for_its_own():
    assert CDL.detects(Message(SAMPLE))
    for name in ("debezium-json", "canal-json", "native-json"):
        assert not get_codec(name).detects(Message(SAMPLE))


@pytest.mark.parametrize("where", ["data", "before"])
def test_a_value_of_another_type_is_an_error_that_names_its_column(where):
    with pytest.raises(DecodeError) as error:
        decode(OPERATION="UPDATE", **{where: row(decimalNum="s3cr3t")})
    assert error.value.path == f"$.payload.{where}.decimalNum"
    assert "s3cr3t" not in str(error.value)


# -- writing -------------------------------------------------------------------------------------


def change(columns, image, **changes):
    schema = TableSchema((Column("id", Integer(64), nullable=False), *columns))
    fields = {"key": Key(("id",)), "after": {"id": 1} | image, "schema": schema} | changes
    return DataChange(Op.CREATE, TableId(None, "s", "t"), **fields)


def fields_of(event, codec=CDL):
    block = json.loads(written(event, codec, "ignore").value)["schema"]
    data = next(field for field in block["fields"] if field["field"] == "data")
    return {field["field"]: field for field in data["fields"]}


@pytest.mark.parametrize(
    ("mode", "digits", "name", "value"),
    [
        ("auto", 3, "org.apache.kafka.connect.data.Timestamp", 1707047996013),
        ("auto", 0, "org.apache.kafka.connect.data.Timestamp", 1707047996013),
        ("auto", 6, "com.huawei.cdc.data.timestamp", "2024-02-04T11:59:56.013000"),
        ("auto", None, "com.huawei.cdc.data.timestamp", "2024-02-04T11:59:56.013000"),
        ("connect", 6, "org.apache.kafka.connect.data.Timestamp", 1707047996013),
        ("text", 3, "com.huawei.cdc.data.timestamp", "2024-02-04T11:59:56.013000"),
    ],
)
def test_timestamps_have_the_form_that_holds_their_digits(mode, digits, name, value):
    codec = get_codec("cdl-json", timestamps=mode)
    moment = dt.datetime(2024, 2, 4, 11, 59, 56, 13000)
    event = change((Column("at", Timestamp(digits), nullable=True),), {"at": moment})
    assert fields_of(event, codec)["at"]["name"] == name
    assert payload_of(event, codec)["data"]["at"] == value
    (again,) = codec.decode(written(event, codec))
    assert again.after["at"] == moment


def test_digits_below_the_millisecond_are_a_reported_loss_in_connects_form():
    codec = get_codec("cdl-json", timestamps="connect")
    moment = dt.datetime(2024, 2, 4, 11, 59, 56, 13001)
    event = change((Column("at", Timestamp(6), nullable=True),), {"at": moment})
    with pytest.raises(UnsupportedError, match="digits"):
        codec.encode(event)


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_decimals_of_any_size_come_back(number):
    event = change((Column("n", Decimal(38, 2), nullable=True),), {"n": number})
    (again,) = CDL.decode(written(event))
    assert again.after["n"] == number


def test_the_vendor_of_the_names_can_be_chosen():
    codec = get_codec("cdl-json", vendor="com.acme")
    event = change((Column("n", Decimal(38, 2), nullable=True),), {"n": decimal.Decimal(1)})
    assert fields_of(event, codec)["n"]["name"] == "com.acme.cdc.data.Decimal"


def test_what_is_not_known_is_null_and_optional():
    event = DataChange(
        Op.CREATE,
        TableId(),
        after={"id": 1},
        schema=TableSchema((Column("id", Integer(64), nullable=False),)),
    )
    block, payload = json.loads(written(event).value).values()
    for name in ("DATA_STORE", "SEG_OWNER", "TABLE_NAME", "TIMESTAMP"):
        assert payload[name] is None
        assert next(f for f in block["fields"] if f["field"] == name)["optional"] is True
    assert payload["transaction"] == {"properties": []}
    assert CDL.decode(written(event))[0].position is None


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"position": PostgresPosition(5, 4)}, "only the LSN"),
        ({"position": ScnPosition(5, 4)}, "only the SCN"),
        ({"position": ScnPosition(2**63)}, "64 bits"),
        ({"transaction": Transaction("804:332")}, "only its number"),
        ({"transaction": Transaction("ab")}, "not a number"),
        ({"transaction": Transaction("007")}, "not a number"),
    ],
)
def test_coordinates_that_have_no_number_are_a_reported_loss(part, told):
    with pytest.raises(UnsupportedError, match=told):
        CDL.encode(change((), {}, **part), on_loss="raise")


def test_a_key_whose_values_no_image_has_is_a_reported_loss():
    event = change((), {}, key=Key(("other",)))
    with pytest.raises(UnsupportedError, match="key"):
        CDL.encode(event)


def test_a_snapshot_read_is_written_as_an_insert_and_reported():
    event = change((), {}, source=Source("postgresql", "cdl", snapshot="true"))
    event = msgspec.structs.replace(event, op=Op.READ)
    done = CDL.encode(event, on_loss="warn")
    assert json.loads(done.messages[0].value)["payload"]["OPERATION"] == "INSERT"
    assert {field for field, _ in done.losses} == {"operation:r", "source.snapshot"}


def test_what_debezium_captured_becomes_cdl_json_and_comes_back():
    """What CDL JSON has no field for (the rows of Table 1 with a dash) is told."""
    text = (
        '{"before":null,"after":{"id":1,"name":"Ann"},"source":{"version":"3.6.1.Final","connector":'
        '"postgresql","name":"dbz","ts_ms":1795248398581,"db":"shop","schema":"public","table":"c",'
        '"txId":804,"lsn":33204552},"op":"c","ts_ms":1795248399061}'
    )
    done = convert(Message(text.encode()), "debezium-json", "cdl-json", on_loss="warn")
    (event,) = CDL.decode(done.messages[0])
    assert event.after == {"id": 1, "name": "Ann"}
    assert event.table == TableId(None, "public", "c")
    assert event.position == PostgresPosition(33204552)
    assert {field for field, _ in done.losses} >= {
        "table.database", "source.version", "source.server", "process_time"
    }  # fmt: skip
