# SPDX-License-Identifier: Apache-2.0
"""Events to Debezium messages: schema blocks, keys, tombstones, what comes from other producers."""

import datetime as dt
import json
from decimal import Decimal

import pytest

from changelane import Message, get_codec
from changelane.event import (
    Control,
    DataChange,
    Key,
    Op,
    SchemaChange,
    Source,
    Tombstone,
    Transaction,
    TransactionMarker,
    Truncate,
    Watermark,
)
from changelane.position import MySqlPosition, PostgresPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.transform import run
from changelane.transforms.join import JoinHalves
from changelane.types import (
    UNAVAILABLE,
    Bytes,
    Date,
    Float,
    Instant,
    InstantType,
    Integer,
    String,
    Time,
    Timestamp,
)
from changelane.types import (
    Decimal as DecimalType,
)

DEBEZIUM = get_codec("debezium-json")
SCHEMA = TableSchema(
    (
        Column("id", Integer(32), nullable=False),
        Column("total", DecimalType(12, 2), nullable=True),
        Column("at", Timestamp(6), nullable=True),
        Column("note", String(), nullable=True),
    )
)
ROW = {"id": 1, "total": Decimal("1.50"), "at": dt.datetime(2024, 2, 29), "note": "x"}
TABLE = TableId("shop", "public", "my orders")
SOURCE = Source("postgresql", "debezium", "dbz", "3.6.1.Final")
CANAL = Source("mysql", "canal")


def change(op=Op.CREATE, **parts):
    found = {"key": Key(("id",)), "schema": SCHEMA, "source": SOURCE}
    return DataChange(op, TABLE, **(found | parts))


def written(event, **options):
    codec = get_codec("debezium-json", **options) if options else DEBEZIUM
    return codec.encode(event).messages


def payload(message):
    return json.loads(message.value)["payload"]


def test_the_envelope_is_debeziums():
    (message,) = written(change(after=ROW, position=PostgresPosition(22, 11)))
    value = json.loads(message.value)
    assert message.topic == "dbz.public.my_orders"
    assert list(value) == ["schema", "payload"]
    assert list(value["payload"]) == [
        "before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"
    ]  # fmt: skip
    assert value["schema"]["name"] == "dbz.public.my_orders.Envelope"
    assert value["schema"]["version"] == 2
    after = value["schema"]["fields"][1]
    assert after["name"] == "dbz.public.my_orders.Value"
    assert [member["field"] for member in after["fields"]] == list(ROW)
    assert value["payload"]["source"]["sequence"] == '["11","22"]'
    assert value["payload"]["after"]["total"] == "AJY="
    assert value["payload"]["after"]["at"] == 1709164800000000
    assert json.loads(message.key) == {
        "schema": {
            "type": "struct",
            "fields": [{"type": "int32", "optional": False, "field": "id"}],
            "optional": False,
            "name": "dbz.public.my_orders.Key",
        },
        "payload": {"id": 1},
    }  # fmt: skip


def test_source_positions_are_not_invented():
    (message,) = written(change(after=ROW))
    source = payload(message)["source"]
    assert (source["lsn"], source["sequence"], source["ts_ms"]) == (None, None, None)
    lsn = next(f for f in json.loads(message.value)["schema"]["fields"][2]["fields"]
               if f["field"] == "ts_ms")  # fmt: skip
    assert lsn["optional"] is True  # required by Debezium, and null here


def test_an_event_without_schema_is_written_plain():
    (message,) = written(change(after={"id": 1, "f": Decimal("1.10")}, schema=None))
    assert b'"f":1.10' in message.value
    assert message.key == b'{"id":1}'


@pytest.mark.parametrize(
    ("source", "option", "count"),
    [(SOURCE, "auto", 1), (CANAL, "auto", 2), (Source(), "auto", 2), (SOURCE, "true", 2),
     (CANAL, "false", 1)],
)  # fmt: skip
def test_tombstones_follow_deletes_whose_stream_brings_none(source, option, count):
    messages = written(change(Op.DELETE, before=ROW, source=source), tombstones=option)
    assert len(messages) == count
    for tombstone in messages[1:]:
        assert tombstone.value is None
        assert tombstone.key == messages[0].key


@pytest.mark.parametrize("option", ["auto", "false"])
def test_a_key_change_is_delete_tombstone_create(option):
    after = ROW | {"id": 2}
    event = change(Op.UPDATE, before=ROW, after=after, position=PostgresPosition(22, 11),
                   transaction=Transaction("5:22", 3, 3))  # fmt: skip
    messages = written(event, tombstones=option)
    assert [payload(m)["op"] if m.value else None for m in messages] == (
        ["d", None, "c"] if option == "auto" else ["d", "c"]
    )
    assert messages[0].headers == (("__debezium.newkey", b'{"id":2}'),)
    assert messages[-1].headers == (("__debezium.oldkey", b'{"id":1}'),)
    assert payload(messages[-1])["transaction"]["total_order"] == 4
    back = list(run(JoinHalves(), (e for m in messages for e in DEBEZIUM.decode(m))))
    assert len(back) == 1
    assert (back[0].before, back[0].after, back[0].op) == (ROW, after, Op.UPDATE)
    assert back[0].transaction == event.transaction


def test_absent_columns_are_not_in_the_schema_of_their_image():
    (message,) = written(change(Op.UPDATE, before=None, after={"id": 1, "note": "y"}))
    before, after = json.loads(message.value)["schema"]["fields"][:2]
    assert [member["field"] for member in before["fields"]] == list(ROW)
    assert [member["field"] for member in after["fields"]] == ["id", "note"]
    (event,) = DEBEZIUM.decode(message)
    assert event.after == {"id": 1, "note": "y"}
    assert event.schema == SCHEMA


def test_columns_that_no_image_has_stay_in_the_schema():
    part = {"id": 1, "note": "y"}
    (message,) = written(change(Op.UPDATE, before=part, after=part))
    (event,) = DEBEZIUM.decode(message)
    assert event.schema == SCHEMA
    assert event.before == event.after == part


def test_unavailable_values_are_placeholders_where_there_is_one():
    schema = TableSchema((*SCHEMA.columns, Column("raw", Bytes(), nullable=True)))
    event = change(after=ROW | {"note": UNAVAILABLE, "raw": UNAVAILABLE}, schema=schema)
    (message,) = written(event)
    assert payload(message)["after"]["note"] == "__debezium_unavailable_value"
    assert payload(message)["after"]["raw"] == "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
    assert DEBEZIUM.decode(message)[0].after == event.after
    encoded = DEBEZIUM.encode(change(after=ROW | {"total": UNAVAILABLE}), on_loss="warn")
    assert "total" not in payload(encoded.messages[0])["after"]
    assert encoded.losses == (
        ("unavailable", "decimal has no placeholder; written as an absent column"),
    )


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Timestamp(6), "0000-00-00 00:00:00"),
        (Date(), "2024-02-30"),
        (DecimalType(5, 1), Decimal("1.25")),
        (Time(3), "900000:00:00"),
        (Timestamp(3), dt.datetime(2024, 1, 1, 0, 0, 0, 1)),
    ],
)
def test_what_has_no_exact_form_is_a_reported_loss(kind, value):
    schema = TableSchema((Column("id", Integer(32)), Column("v", kind, nullable=True)))
    encoded = DEBEZIUM.encode(change(after={"id": 1, "v": value}, schema=schema), on_loss="warn")
    assert payload(encoded.messages[0])["after"]["v"] is None
    assert len(encoded.losses) == 1


def test_floats_that_are_no_numbers_are_quoted():
    schema = TableSchema((Column("id", Integer(32)), Column("v", Float(64), nullable=True)))
    for value, text in ((float("nan"), "NaN"), (float("-inf"), "-Infinity")):
        (message,) = written(change(after={"id": 1, "v": value}, schema=schema))
        assert payload(message)["after"]["v"] == text


def test_instants_keep_the_digits_of_their_producer():
    schema = TableSchema((Column("id", Integer(32)), Column("v", InstantType(), nullable=True)))
    value = Instant.of(dt.datetime(2024, 1, 1, tzinfo=dt.UTC), 1)
    (message,) = written(change(after={"id": 1, "v": value}, schema=schema))
    assert payload(message)["after"]["v"] == "2024-01-01T00:00:00.0Z"


@pytest.mark.parametrize(
    ("mode", "form"),
    [("auto", 1709164800000000), ("connect", 1709164800000), ("isostring", "2024-02-29T00:00:00Z"),
     ("nanoseconds", 1709164800000000000), ("microseconds", 1709164800000000)],
)  # fmt: skip
def test_time_precision_mode_is_the_writers_choice(mode, form):
    (message,) = written(change(after=ROW), time_precision_mode=mode)
    assert payload(message)["after"]["at"] == form


def test_decimal_format_numeric():
    (message,) = written(change(after=ROW), decimal_format="numeric")
    assert b'"total":1.50' in message.value


def test_a_full_before_image_of_postgres_says_so_when_a_reader_would_doubt_it():
    (message,) = written(change(Op.DELETE, before=ROW | {"note": None}))
    assert payload(message)["source"]["changelane.before"] == "full"
    assert DEBEZIUM.decode(message)[0].before == ROW | {"note": None}


@pytest.mark.parametrize(
    "event",
    [
        change(after=ROW, source=CANAL, details={"sqlType": {"id": 4}}),
        change(after=ROW, source=Source(), position=MySqlPosition("b.1", 4, 2)),
        Truncate(TABLE, position=PostgresPosition(1), source=SOURCE),
        Tombstone(TABLE, {"id": 1}, TableSchema(SCHEMA.columns[:1])),
        TransactionMarker("rollback", Transaction("7"), source=CANAL, source_time_ns=1),
        Watermark("resolved", PostgresPosition(9), SOURCE, 5, 6),
        Control("other", "text", source=CANAL),
        SchemaChange(TABLE, "rename", "RENAME TABLE a TO b", SCHEMA, Key(("id",)), source=CANAL),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_debezium_has_no_place_for_comes_back(event):
    (message,) = written(event)
    (back,) = DEBEZIUM.decode(message)
    for name in event.__struct_fields__:
        if name == "details":
            assert event.details.items() <= back.details.items()
        elif name == "schema" and isinstance(event, SchemaChange):
            assert [c.type for c in back.schema.columns] == [c.type for c in event.schema.columns]
        elif name != "key":
            assert getattr(back, name) == getattr(event, name)


def test_annotations_can_be_switched_off():
    schema = TableSchema((Column("id", Integer(64, unsigned=True)), Column("t", Time(0))))
    event = change(after={"id": 1, "t": "10:00:00"}, source=CANAL, schema=schema)
    (message,) = written(event)
    assert b"changelane.column" in message.value
    (message,) = written(event, annotate=False)
    assert b"changelane.column" not in message.value


def test_several_tables_of_one_statement_are_several_events_and_one_message():
    told = [{"type": "DROP", "id": '"d"."a"', "table": None},
            {"type": "DROP", "id": '"d"."b""c"', "table": None}]  # fmt: skip
    value = {"source": {"connector": "mysql", "db": "d"}, "ts_ms": 1, "databaseName": "d",
             "schemaName": None, "ddl": "DROP TABLE a, b", "tableChanges": told}  # fmt: skip
    events = DEBEZIUM.decode(Message(json.dumps(value).encode()))
    assert [event.table.name for event in events] == ["a", 'b"c']
    assert [event.ddl for event in events] == ["DROP TABLE a, b", None]
    messages = [m for event in events for m in DEBEZIUM.encode(event).messages]
    assert len(messages) == 1
    assert json.loads(messages[0].value)["tableChanges"] == told


# -- the messages of others ----------------------------------------------------------------------


def test_every_type_of_mysql_as_debezium_2_writes_it(corpus):
    folder = corpus / "debezium" / "pingcap_tiflow"
    (path,) = folder.glob("*datatype.dbz.json")
    text = path.read_text("utf-8")
    value = text[text.index("*/") + 2 :] if text.startswith("/*") else text
    (event,) = DEBEZIUM.decode(Message(value.strip().encode()))
    row = event.after
    assert row["col_d_9999"] == dt.date(9999, 12, 31)
    assert row["col_dt_fsp_1"] == dt.datetime(2023, 11, 30, 12, 34, 56, 100000)
    assert row["col_dt_fsp_4"] == dt.datetime(2023, 11, 30, 12, 34, 56, 123500)
    assert row["col_t_neg"] == "-12:34:56.123456"
    assert row["col_ts_fsp_5"].text() == "2023-11-30T12:34:56.12346Z"
    assert row["col_bit_60"] == f"{16:060b}"
    assert row["col_bigint_unsigned"] == -1
    assert row["col_float"] == 12345.123
    assert row["col_enum_invalid"] == ""
    assert row["col_d_0000"] is None
    (message,) = DEBEZIUM.encode(event).messages
    again = json.loads(message.value)
    assert again["payload"]["after"] == json.loads(value)["payload"]["after"]
    assert again["schema"]["fields"][:2] == json.loads(value)["schema"]["fields"][:2]


SAMPLES = (
    "debezium_debezium/json__serde-update.json",
    "debezium_debezium/json__serde-with-schema.json",
    "debezium_debezium/json__serde-without-schema.json",
    "debezium_debezium/json__serde-unknown-property.json",
    "memiiso_debezium-server-iceberg/serde-update.json",
    "memiiso_debezium-server-iceberg/serde-with-schema.json",
    "memiiso_debezium-server-iceberg/serde-unnested-delete-val-withschema.json",
    "memiiso_debezium-server-iceberg/serde-unnested-order-val-withschema.json",
)


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_messages_of_other_projects_are_read(corpus, name):
    text = (corpus / "debezium" / name).read_text("utf-8")
    (event,) = DEBEZIUM.decode(Message(text.encode()))
    assert isinstance(event, DataChange)
    assert event.table.name
    assert (event.schema is None) == ("schema" not in json.loads(text))
