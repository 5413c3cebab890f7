# SPDX-License-Identifier: Apache-2.0
"""CDL's Debezium JSON, message_version 2.0: what the page says beyond its one sample."""

import decimal
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from changelane import Message, get_codec
from changelane.errors import DecodeError, EncodeError, UnsupportedError
from changelane.event import DataChange, Key, KeyOrigin, Op, Source, Transaction, Watermark
from changelane.position import PostgresPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.testing import golden
from changelane.testing.event_strategies import events
from changelane.types import UNAVAILABLE, Bytes, Decimal, Integer, String, Timestamp

SAMPLES = Path(__file__).parents[3] / "golden" / "cdl-debezium-json" / "documentation-2024"
SAMPLE = golden.read_case(SAMPLES / "insert").messages[0].value
TABLE = TableId("cdl", "public", "ct_pg2hudi")
SCHEMA = TableSchema(
    (
        Column("id", Integer(32), nullable=False),
        Column("note", String(), nullable=True),
        Column("photo", Bytes(), nullable=True),
        Column("size", Integer(64), nullable=True),
    )
)
ROW = {"id": 1, "note": "x", "photo": b"\x01", "size": 5}
FIELDS = ["before", "after", "source", "op", "ts_ms", "message_version", "message_type"]


def parts(data):
    return msgspec.json.decode(data)


def spoilt(payload=None, source=None, **top):
    """The documented message with other fields."""
    value = parts(SAMPLE)
    value["payload"] |= payload or {}
    value["payload"]["source"] |= source or {}
    return msgspec.json.encode(value | top)


def read(value, *, key=None, **options):
    (event,) = get_codec("cdl-debezium-json", **options).decode(Message(value, key))
    return event


def change(op, before=None, after=None, **fields):
    told = {"schema": SCHEMA, "key": Key(("id",)), "source": Source("postgresql")} | fields
    return DataChange(Op(op), TABLE, before=before, after=after, **told)


def written(event, on_loss="ignore", **options):
    done = get_codec("cdl-debezium-json", **options).encode(event, on_loss=on_loss)
    (message,) = done.messages
    return parts(message.value), done.losses


def back(event, **options):
    done = get_codec("cdl-debezium-json", **options).encode(event, on_loss="ignore")
    return read(done.messages[0].value, **options)


# -- the envelope --------------------------------------------------------------------------------


def test_the_documented_message_comes_back_as_the_same_json_in_the_same_order():
    value, losses = written(read(SAMPLE), on_loss="raise")
    assert value == parts(SAMPLE)
    assert list(value["payload"]) == [*FIELDS, "LOB_COLUMNS", "unique"]
    assert list(value["payload"]["source"]) == list(parts(SAMPLE)["payload"]["source"])
    assert not losses


def test_the_schema_of_an_image_lists_columns_that_the_image_lacks():
    value, _ = written(change("d", {"id": 1}))
    for image in value["schema"]["fields"][:2]:
        assert [column["field"] for column in image["fields"]] == list(ROW)


def test_a_row_without_types_has_a_schema_of_null():
    event = change("c", after={"id": 1, "note": "x"}, schema=None)
    (message,) = get_codec("cdl-debezium-json").encode(event).messages
    value = parts(message.value)
    assert list(value) == ["schema", "payload"]
    assert value["schema"] is None
    assert message.key == b'{"schema":null,"payload":{"id":1}}'


def test_an_image_is_called_before_or_data_in_the_schema():
    value, _ = written(change("c", after=ROW))
    named = [(f["field"], f.get("name")) for f in value["schema"]["fields"]]
    assert named[:3] == [
        ("before", "before"),
        ("after", "data"),
        ("source", "io.debezium.connector.postgresql.Source"),
    ]
    assert value["schema"]["name"] == "public.ct_pg2hudi"


@pytest.mark.parametrize("version", ["1.0", "2.1", ""])
def test_another_message_version_is_refused(version):
    with pytest.raises(DecodeError) as error:
        read(spoilt({"message_version": version}))
    assert error.value.code == "unknown_version"
    assert error.value.path == "$.payload.message_version"


def test_a_message_without_version_is_refused_and_not_recognised():
    value = parts(SAMPLE)
    del value["payload"]["message_version"]
    with pytest.raises(DecodeError):
        read(msgspec.json.encode(value))
    assert not get_codec("cdl-debezium-json").detects(Message(msgspec.json.encode(value)))


def test_another_message_type_is_read_and_comes_back():
    event = read(spoilt({"message_type": "7"}))
    assert event.op is Op.CREATE
    assert written(event)[0]["payload"]["message_type"] == "7"


def test_a_heartbeat_identifier_is_kept_and_is_no_heartbeat():
    event = read(spoilt({"HEARTBEAT_IDENTIFIER": "279fb050"}))
    assert isinstance(event, DataChange)
    assert written(event)[0]["payload"]["HEARTBEAT_IDENTIFIER"] == "279fb050"
    assert "HEARTBEAT_IDENTIFIER" not in written(read(SAMPLE))[0]["payload"]


def test_a_change_of_the_heartbeat_table_is_a_heartbeat_and_comes_back():
    value = spoilt(source={"schema": "CDC_CDL", "table": "CDC_HEARTBEAT"})
    codec = get_codec("cdl-debezium-json")
    (event,) = codec.decode(Message(value, b"k", topic="t"))
    assert isinstance(event, Watermark)
    assert event.source_time_ns == 1707048891235 * 10**6
    assert codec.encode(event).messages == (Message(value, b"k", topic="t"),)
    assert isinstance(read(value, heartbeat_table=""), DataChange)


def test_fields_that_nobody_documents_are_kept_and_written_again():
    value = spoilt({"extra": [1]}, {"xmin": 9})
    event = read(value)
    again, _ = written(event)
    assert again["payload"]["extra"] == [1]
    assert again["payload"]["source"]["xmin"] == 9
    assert read(msgspec.json.encode(again)) == event


def test_an_unknown_operation_is_an_error():
    with pytest.raises(DecodeError, match="unknown operation"):
        read(spoilt({"op": "t"}))


# -- sources -------------------------------------------------------------------------------------


@pytest.mark.parametrize("product", ["postgresql", "opengauss", "drs-opengauss-json"])
def test_the_three_sources_are_written(product):
    value, losses = written(change("c", after=ROW, source=Source(product)))
    assert value["payload"]["source"]["connector"] == product
    assert not losses


@pytest.mark.parametrize("product", ["mysql", "oracle", "mariadb", "sqlserver"])
def test_any_other_source_is_refused_and_the_error_names_the_format_to_take(product):
    with pytest.raises(EncodeError, match=rf"{product}.*cdl-json") as error:
        written(change("c", after=ROW, source=Source(product)))
    assert not isinstance(error.value, UnsupportedError)


def test_a_source_that_is_not_known_is_null():
    value, _ = written(change("c", after=ROW, source=Source()))
    assert value["payload"]["source"]["connector"] is None


def test_lsn_and_transaction_are_those_of_the_source_block():
    event = read(SAMPLE)
    assert event.position == PostgresPosition(163955586912)
    assert event.transaction == Transaction("57227663")
    event = read(spoilt(source={"lsn": "163955586912", "txId": None}))
    assert event.position == PostgresPosition(163955586912)
    assert event.transaction is None


def test_an_lsn_beyond_int64_is_written_as_the_signed_number_that_it_is():
    event = change("c", after=ROW, position=PostgresPosition(2**64 - 1))
    assert written(event)[0]["payload"]["source"]["lsn"] == -1
    assert back(event).position == event.position


def test_a_row_of_a_snapshot_is_a_read_and_is_written_as_c():
    event = read(spoilt(source={"snapshot": "true"}))
    assert (event.op, event.source.snapshot) == (Op.READ, "true")
    payload = written(event)[0]["payload"]
    assert (payload["op"], payload["source"]["snapshot"]) == ("c", "true")


@pytest.mark.parametrize(("value", "op"), [(True, Op.READ), (False, Op.CREATE), (None, Op.CREATE)])
def test_snapshot_may_be_a_json_boolean_or_null(value, op):
    event = read(spoilt(source={"snapshot": value}))
    assert (event.op, event.source.snapshot) == (op, "true" if value else None)


def test_a_snapshot_read_without_a_word_about_it_is_written_as_one_which_is_a_loss():
    value, losses = written(change("r", after=ROW))
    assert value["payload"]["source"]["snapshot"] == "true"
    assert ("source.snapshot", "written as true") in losses


# -- keys ----------------------------------------------------------------------------------------


def test_the_key_is_what_unique_says_and_else_the_message_key():
    assert read(SAMPLE).key == Key(("id",), KeyOrigin.PAYLOAD)
    other = spoilt({"unique": None})
    assert read(other, key=b'{"id":35}').key == Key(("id",), KeyOrigin.MESSAGE)
    assert read(other).key is None


def test_a_unique_that_does_not_agree_with_the_row_comes_back():
    event = read(spoilt({"unique": {"id": 36}}))
    assert event.key == Key(("id",), KeyOrigin.PAYLOAD)
    assert written(event)[0]["payload"]["unique"] == {"id": 36}


def test_a_change_of_the_key_is_a_delete_and_an_insert():
    event = change("u", ROW, ROW | {"id": 2})
    done = get_codec("cdl-debezium-json", before_image="full").encode(event, on_loss="warn")
    told = [parts(message.value)["payload"] for message in done.messages]
    assert [(one["op"], one["unique"]) for one in told] == [("d", {"id": 1}), ("c", {"id": 2})]


# -- large objects and values that were not sent -------------------------------------------------


@pytest.mark.parametrize("listed", ["time1,decimalNum", "time1; decimalNum", "decimalNum time1"])
def test_a_listed_column_that_an_update_has_as_null_was_not_sent(listed):
    event = read(spoilt({"op": "u", "LOB_COLUMNS": listed}))
    assert event.after["time1"] is UNAVAILABLE
    assert event.after["decimalNum"] is UNAVAILABLE
    assert written(event)[0]["payload"]["LOB_COLUMNS"] == listed


def test_a_listed_column_that_an_update_has_as_null_is_null_where_the_user_says_so():
    value = spoilt({"op": "u", "LOB_COLUMNS": "decimalNum"})
    assert read(value, lob_nulls="null").after["decimalNum"] is None
    event = change("u", after=ROW | {"note": UNAVAILABLE})
    payload = written(event, lob_nulls="null")[0]["payload"]
    assert "note" not in payload["after"]
    assert back(event, lob_nulls="null").after == event.after


def test_a_listed_column_that_is_missing_was_not_sent():
    event = read(
        spoilt(
            {"after": {"id": 35, "count1": 14, "time1": None}, "LOB_COLUMNS": "time1,decimalNum"}
        )
    )
    assert event.after["decimalNum"] is UNAVAILABLE
    assert event.after["time1"] is None  # of an insert: a value


def test_a_column_that_is_missing_and_not_listed_is_absent():
    assert "decimalNum" not in read(spoilt({"op": "u", "after": {"id": 35}})).after


def test_values_that_were_not_sent_are_listed():
    after = ROW | {"note": UNAVAILABLE, "size": UNAVAILABLE}
    value, losses = written(change("u", None, after))
    assert value["payload"]["LOB_COLUMNS"] == "note,size"
    assert value["payload"]["after"]["size"] is None
    assert back(change("u", None, after)).after == after
    assert not losses


def test_the_placeholder_of_debezium_is_a_value_that_was_not_sent():
    value, _ = written(change("c", after=ROW))
    value["payload"]["after"]["note"] = "__debezium_unavailable_value"
    event = read(msgspec.json.encode(value))
    assert event.after["note"] is UNAVAILABLE
    again, _ = written(event)
    assert again["payload"]["after"]["note"] == "__debezium_unavailable_value"
    plain = read(msgspec.json.encode(value), placeholder="null")
    assert plain.after["note"] == "__debezium_unavailable_value"


# -- deletes -------------------------------------------------------------------------------------


def test_a_delete_of_postgresql_tells_its_key_and_what_cannot_be_a_filler():
    value, _ = written(change("c", after=ROW))
    row = value["payload"]["after"]
    value["payload"] |= {"op": "d", "before": row | {"photo": None}, "after": None}
    event = read(msgspec.json.encode(value))
    assert event.before == ROW | {"photo": UNAVAILABLE}
    full = read(msgspec.json.encode(value), before_image="full")
    assert full.before == ROW | {"photo": None}
    key = read(msgspec.json.encode(value), before_image="key")
    assert key.before["id"] == 1


@pytest.mark.parametrize("place", ["after", "unique"])
def test_a_deleted_row_may_stand_in_after_or_in_unique(place):
    value = parts(SAMPLE)
    payload = value["payload"]
    payload |= {"op": "d", "before": None}
    if place == "unique":
        payload["after"] = None
    event = read(msgspec.json.encode(value), before_image="full")
    assert event.before["id"] == 35
    assert event.after is None
    again, _ = written(event, before_image="full")
    assert again["payload"]["before"] is None
    assert again["payload"]["after"] == payload["after"]


def test_a_delete_of_nothing_is_refused():
    with pytest.raises(DecodeError) as error:
        read(spoilt({"op": "d", "after": None, "unique": None}))
    assert error.value.code == "missing_field"


def test_a_delete_told_by_a_key_of_another_type_is_refused_without_its_value():
    with pytest.raises(DecodeError) as error:
        read(spoilt({"op": "d", "after": None, "unique": {"id": "s3cr3t"}}))
    assert "s3cr3t" not in str(error.value)


def test_no_tombstone_follows_a_delete():
    codec = get_codec("cdl-debezium-json", before_image="full")
    assert len(codec.encode(change("d", before=ROW), on_loss="warn").messages) == 1


# -- types ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("vendor", ["com.xxx", "com.huawei", "COM.HUAWEI.mrs"])
def test_the_vendors_names_are_known_by_their_ends(vendor):
    value = SAMPLE.replace(b"com.xxx", vendor.encode())
    event = read(value)
    assert [column.type for column in event.schema.columns[2:]] == [Timestamp(), Decimal()]


def test_decimals_and_timestamps_are_text_under_the_vendors_names():
    schema = TableSchema(
        (
            Column("id", Integer(32), nullable=False),
            Column("price", Decimal(38, 10), nullable=True),
            Column("at", Timestamp(6), nullable=True),
        )
    )
    row = {"id": 1, "price": decimal.Decimal("1.0000000001"), "at": "infinity"}
    value, _ = written(change("c", after=row, schema=schema), vendor="com.mine")
    after = value["schema"]["fields"][1]["fields"]
    assert [(field["type"], field["name"]) for field in after[1:]] == [
        ("string", "com.mine.cdc.data.Decimal"),
        ("string", "com.mine.cdc.data.timestamp"),
    ]
    assert value["payload"]["after"] == {"id": 1, "price": "1.0000000001", "at": "infinity"}
    assert read(msgspec.json.encode(value)).after == row


TIMESTAMPS = [
    "2024-02-04",
    "2024-02-04 11:59",
    "2024-02-04T11:59:56+08:00",
    "2024-02-04 11:59:56.123456789",
    "0000-00-00 00:00:00",
    "0044-03-15 00:00:00 BC",
    "-infinity",
]


@pytest.mark.parametrize("text", TIMESTAMPS)
def test_a_timestamp_that_python_has_not_stays_text(text):
    assert read(spoilt({"after": {"id": 35, "time1": text}})).after["time1"] == text


@pytest.mark.parametrize("text", ["", "soon", "2024-02-04 soon", "11:59:56", "1.5"])
def test_a_text_that_is_no_timestamp_is_refused_without_it(text):
    with pytest.raises(DecodeError, match="not a value of timestamp") as error:
        read(spoilt({"after": {"id": 35, "time1": text}}))
    assert error.value.path == "$.payload.after.time1"
    assert "soon" not in str(error.value)


def test_generated_events_come_from_the_products_that_are_written():
    carries = get_codec("cdl-debezium-json").carries
    found = set()

    @settings(max_examples=30, database=None, derandomize=True, deadline=None)
    @given(events(carries))
    def collect(event):
        found.add(event.source.product)

    collect()
    assert found == {"postgresql"}
