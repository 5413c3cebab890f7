# SPDX-License-Identifier: Apache-2.0
"""Other producers of Canal JSON: what they wrote, and what we write in their shape."""

import json
from decimal import Decimal

import pytest

from changelane import DecodeError, Message, UnsupportedError, get_codec
from changelane.event import (
    DataChange,
    Key,
    KeyOrigin,
    Op,
    SchemaChange,
    Source,
    Truncate,
    Watermark,
)
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.testing import conformance
from changelane.testing.event_strategies import events
from changelane.types import parse_type

DIALECTS = ["dts", "ticdc", "tencent", "huawei", "inlong", "flink"]
TABLE = TableId("shop", None, "products")
SOURCE = Source("mysql", "canal")
KEY = Key(("id",), KeyOrigin.PAYLOAD)
SCHEMA = TableSchema(
    (
        Column("id", parse_type("uint32"), "int(10) unsigned"),
        Column("name", parse_type("string"), "varchar(20)"),
        Column("price", parse_type("decimal(10,2)"), "decimal(10,2)"),
    )
)
OLD = {"id": 3000000000, "name": "a", "price": Decimal("1.50")}
NEW = OLD | {"name": None}


def change(op=Op.UPDATE, before=OLD, after=NEW, schema=SCHEMA, **more):
    return DataChange(op, TABLE, KEY, before, after, schema, source=SOURCE, **more)


def read(value, dialect="auto", **options):
    text = value if isinstance(value, bytes | str) else json.dumps(value)
    data = text.encode() if isinstance(text, str) else text
    return get_codec("canal-json", dialect=dialect, **options).decode(Message(data))


def encoded(event, dialect):
    return get_codec("canal-json", dialect=dialect).encode(event, on_loss="ignore")


def written(event, dialect):
    return [json.loads(message.value) for message in encoded(event, dialect).messages]


def lost(event, dialect):
    return [field for field, _ in encoded(event, dialect).losses]


def lines(path):
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line[:1] == "{"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_a_dialect_carries_comes_back(dialect):
    codec = get_codec("canal-json", dialect=dialect)

    def check(event):
        conformance._compare(codec, event, codec.reduce(event)[0])

    # where the statement alone says that it is a truncate, one is made: more comes back than went
    told = events(codec.carries).filter(lambda e: not isinstance(e, Truncate) or e.ddl is not None)
    conformance._examples(told, check, 30)


@pytest.mark.parametrize("dialect", ["ticdc", "tencent", "inlong", "flink"])
def test_a_dialect_loses_nothing_unsaid_and_writes_the_same_again(dialect):
    codec = get_codec("canal-json", dialect=dialect)
    conformance.check_honesty(codec, examples=20)
    conformance.check_stability(codec, examples=10)


# -- DTS -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["dts", "dts_legacy"])
@pytest.mark.parametrize("value", [1, 3000000000])
def test_dts_converts_unsigned_types_to_wider_ones(dialect, value):
    kinds = {"id": "uint32", "big": "uint64", "plain": "int32"}
    schema = TableSchema(tuple(Column(n, parse_type(kind)) for n, kind in kinds.items()))
    image = {"id": value, "big": value, "plain": 1}
    (message,) = written(change(Op.CREATE, None, image, schema), dialect)
    # LONG from UNSIGNED INTEGER, BIGDECIMAL from UNSIGNED LONG
    assert message["sqlType"] == {"id": -5, "big": 3, "plain": 4}
    (event,) = read(message, dialect)
    assert event.after == image
    assert event.details == {}


def test_the_id_of_dts_is_the_offset_of_its_cache():
    value = {"type": "DDL", "isDdl": True, "id": 58, "sql": "DROP TABLE t", "table": "t"}
    (event,) = read(value, "dts")
    assert event.details == {"id": 58}
    assert written(event, "dts")[0]["id"] == 58


def test_the_time_of_dts_is_in_milliseconds():
    value = {"type": "DDL", "isDdl": True, "es": 1600161894000, "ts": 1600161894771, "sql": "x"}
    (event,) = read(value, "dts")
    assert event.source_time_ns == 1600161894000 * 10**6
    assert event.process_time_ns == 1600161894771 * 10**6


# -- TiCDC -----------------------------------------------------------------------------------------


def test_ticdc_documents_are_read(corpus):
    drop, insert, watermark = [
        read(line)[0] for line in lines(corpus / "ticdc" / "docs_canal_json.jsonl")
    ]
    assert isinstance(drop, SchemaChange)
    assert (drop.action, drop.table) == ("drop_database", TableId("test"))
    assert drop.position == SequencePosition(429918007904436226)
    assert isinstance(insert, DataChange)
    assert insert.after["c_bigint"] == 9223372036854775807
    assert insert.position == SequencePosition(429918007904436226)
    assert insert.details == {}
    assert isinstance(watermark, Watermark)
    assert (watermark.type, watermark.position) == (
        "resolved",
        SequencePosition(429918007904436226),
    )
    assert watermark.source_time_ns == 1640007049196 * 10**6


def test_ticdc_tells_the_same_update_with_all_columns_and_with_the_changed_ones(corpus):
    path = corpus / "ticdc" / "docs_derived_update_delete.jsonl"
    full, changed, delete, old_delete = [read(line)[0] for line in lines(path)]
    assert full == changed
    assert (full.before["c_int"], full.after["c_int"]) == (2147483647, 0)
    assert delete == old_delete


def test_ticdc_bytes_come_out_as_they_went_in(corpus):
    codec = get_codec("canal-json", dialect="ticdc")
    for name in ("docs_canal_json", "docs_derived_update_delete"):
        for line in lines(corpus / "ticdc" / f"{name}.jsonl"):
            message = json.loads(line)
            (event,) = codec.decode(Message(line.encode()))
            (back,) = codec.encode(event).messages
            again = json.loads(back.value)
            assert list(again) == [
                "id", "database", "table", "pkNames", "isDdl", "type", "es", "ts", "sql",
                "sqlType", "mysqlType", "data", "old", "_tidb",
            ]  # fmt: skip
            if message["type"] == "UPDATE":
                message["old"] = [message["data"][0] | message["old"][0]]
            if message["type"] == "DELETE":
                message["old"] = None  # since 5.4.0
            assert again == message


def test_ticdc_types_have_no_parameters():
    (message,) = written(change(), "ticdc")
    assert message["mysqlType"] == {"id": "int unsigned", "name": "varchar", "price": "decimal"}
    # "unsigned promotion by value"
    assert message["sqlType"]["id"] == -5
    assert message["old"] == [{"id": "3000000000", "name": "a", "price": "1.50"}]


@pytest.mark.parametrize(("dialect", "text"), [("ticdc", "20000000"), ("dts", "2.0E7")])
def test_ticdc_prints_floats_as_go_does(dialect, text):
    schema = TableSchema((Column("id", parse_type("float64")),))
    (message,) = written(change(Op.CREATE, None, {"id": 2e7}, schema), dialect)
    assert message["data"] == [{"id": text}]


def test_ticdc_writes_ordinals_of_members_that_it_does_not_list():
    schema = TableSchema((Column("id", parse_type("enum('a','b')")),))
    event = change(Op.CREATE, None, {"id": "b"}, schema)
    assert written(event, "ticdc")[0]["data"] == [{"id": "2"}]
    assert lost(event, "ticdc") == ["type:enum"]


def test_ticdc_watermarks_are_written_with_their_time():
    event = Watermark("resolved", SequencePosition(7), SOURCE)
    (message,) = written(event, "ticdc")
    assert (message["type"], message["isDdl"], message["_tidb"]) == (
        "TIDB_WATERMARK", False, {"watermarkTs": 7},
    )  # fmt: skip
    assert (message["database"], message["data"]) == ("", None)
    assert lost(Watermark("heartbeat", SequencePosition(7), SOURCE), "ticdc") == ["event:watermark"]


@pytest.mark.parametrize(
    ("extension", "path"),
    [
        ({"commitTs": "7"}, "$._tidb.commitTs"),
        ({"commitTs": -1}, "$._tidb.commitTs"),
        ({"commitTs": True}, "$._tidb.commitTs"),
        ({"commitTs": 1 << 64}, "$._tidb.commitTs"),
        ({"commitTs": 7, "onlyHandleKey": True}, "$._tidb.onlyHandleKey"),
        ({"claimCheckLocation": "s3://x"}, "$._tidb.claimCheckLocation"),
        (7, "$._tidb"),
    ],
)
def test_an_extension_that_does_not_hold_the_row_is_refused(extension, path):
    with pytest.raises(DecodeError) as caught:
        read({"type": "INSERT", "data": [{"id": "1"}], "_tidb": extension})
    assert caught.value.path == path


def test_a_watermark_without_its_time_is_refused():
    with pytest.raises(DecodeError, match="has no time"):
        read({"type": "TIDB_WATERMARK", "isDdl": False, "_tidb": {}})


def test_a_link_to_a_row_without_a_type_is_rejected():
    extension = {"claimCheckLocation": "s3://x"}
    for kind in ("", "INSERT"):
        with pytest.raises(DecodeError) as caught:
            read({"type": kind, "isDdl": False, "data": None, "_tidb": extension})
        assert caught.value.code == "incomplete_row"


def test_a_delete_needs_no_more_than_the_key():
    value = {"type": "DELETE", "data": [{"id": "1"}], "_tidb": {"onlyHandleKey": True}}
    (event,) = read(value)
    assert event.before == {"id": "1"}
    assert event.details == {"_tidb": {"onlyHandleKey": True}}


def test_lines_of_a_file_of_ticdc_are_messages():
    line = b'{"type":"INSERT","data":[{"id":"%d"}]}'
    assert [event.after for event in read(line % 1 + b"\r\n" + line % 2 + b"\r\n")] == [
        {"id": "1"},
        {"id": "2"},
    ]
    with pytest.raises(DecodeError):
        read(line % 1 + b"\r\n{")


# -- Tencent, Huawei -------------------------------------------------------------------------------


def test_tencent_messages_come_back_byte_for_byte(corpus):
    codec = get_codec("canal-json", dialect="tencent")
    for line in lines(corpus / "canal" / "tencent_ckafka_doc597_83345.jsonl"):
        (event,) = codec.decode(Message(line.encode()))
        assert event.action in {"create_database", "drop_database"}
        (back,) = codec.encode(event).messages
        assert back.value.decode() == line


def test_tencent_writes_seconds_full_rows_and_no_types():
    (message,) = written(change(source_time_ns=1655812326 * 10**9), "tencent")
    assert message["es"] == 1655812326
    assert (message["mysqlType"], message["sqlType"], message["pkNames"]) == (None, None, None)
    assert message["old"] == [{"id": "3000000000", "name": "a", "price": "1.50"}]
    assert "schema" in lost(change(), "tencent")


def test_huawei_puts_a_deleted_row_in_old():
    (message,) = written(change(Op.DELETE, after=None), "huawei")
    assert message["old"] == [{"id": "3000000000", "name": "a", "price": "1.50"}]
    assert message["data"] is None
    assert read(message, "huawei")[0] == change(Op.DELETE, after=None)


def test_huawei_has_codes_of_its_own():
    kinds = {"at": "timestamp(0)", "raw": "bytes"}
    texts = {"at": "datetime", "raw": "varbinary(4)"}
    schema = TableSchema(tuple(Column(n, parse_type(k), texts[n]) for n, k in kinds.items()))
    event = change(Op.CREATE, None, {"at": None, "raw": b"a"}, schema)
    assert written(event, "huawei")[0]["sqlType"] == {"at": 94, "raw": -3}


def test_huawei_ddl_of_a_full_load_is_told_by_its_statement():
    (event,) = read({"type": "INIT_DDL", "isDdl": True, "sql": "CREATE TABLE t (a int)"}, "huawei")
    assert event.action == "create"
    assert event.table.name == "t"


# -- numbers of JSON -------------------------------------------------------------------------------


def test_inlong_messages_keep_their_batch(corpus):
    path = corpus / "canal" / "inlong__canal-json-inlong-data.txt"
    codec = get_codec("canal-json", dialect="inlong")
    for line in lines(path):
        message = json.loads(line)
        (event,) = codec.decode(Message(line.encode()))
        assert event.details.get("batchId", 0) == message["batchId"]
        (back,) = codec.encode(event).messages
        again = json.loads(back.value)
        assert list(again) == list(message)
        # 0 is how it says that it does not know
        assert {**again, "es": again["es"] or 0} == message


def test_inlong_tells_the_row_before_in_a_key_of_its_own():
    (message,) = written(change(), "inlong")
    assert message["data"] == [{"id": 3000000000, "name": None, "price": 1.5}]
    assert message["updateBefore"] == [{"id": 3000000000, "name": "a", "price": 1.5}]
    assert message["opType"] == "UPDATE"
    (raw,) = encoded(change(), "inlong").messages
    assert b'"price":1.50' in raw.value
    (event,) = read(raw.value, "inlong")
    assert (event.before, event.after) == (OLD, NEW)


def test_flink_writes_an_update_as_a_delete_and_an_insert():
    delete, insert = written(change(), "flink")
    assert delete == {"data": [{"id": 3000000000, "name": "a", "price": 1.5}], "type": "DELETE"}
    assert insert == {"data": [{"id": 3000000000, "name": None, "price": 1.5}], "type": "INSERT"}
    assert "operation:u" in lost(change(), "flink")
    assert len(written(change(before=None), "flink")) == 1
    with pytest.raises(UnsupportedError):
        get_codec("canal-json", dialect="flink").encode(change())


def test_flink_has_no_messages_of_ddl():
    for dialect in ("flink", "inlong"):
        assert lost(Truncate(TABLE), dialect) == ["event:truncate"]
        assert written(SchemaChange(TABLE, "drop", "DROP TABLE t"), dialect) == []


def test_messages_of_flink_cdc_are_read(corpus):
    path = corpus / "canal" / "flinkcdc__mysqlToKafka-canal-json.txt"
    found = [event for line in lines(path) for event in read(line)]
    assert {event.op for event in found} <= {Op.CREATE, Op.UPDATE, Op.DELETE}
    assert all(event.key.columns == ("id",) for event in found)
    by_id = {event.after["id"]: event.after for event in found if event.after is not None}
    assert by_id[108]["weight"] == Decimal("0.1")


def test_canal_has_no_keys_of_the_others():
    more = {"batchId": 3, "_tidb": {"rowkey": "x"}}
    assert set(lost(change(details=more), "canal")) == {"details.batchId", "details._tidb"}


@pytest.mark.parametrize("position", [SequencePosition(1 << 64), SequencePosition(5, 1)], ids=str)
def test_a_position_that_is_no_time_stamp_of_tidb_is_a_loss(position):
    codec = get_codec("canal-json", dialect="ticdc")
    event = DataChange(Op.CREATE, TableId("shop", None, "t"), after={"id": "1"}, position=position)
    encoded = codec.encode(event, on_loss="ignore")
    assert ("position", "not a time stamp of TiDB") in encoded.losses
    assert codec.decode(encoded.messages[0])[0].position is None
