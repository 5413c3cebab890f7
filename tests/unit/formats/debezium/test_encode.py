# SPDX-License-Identifier: Apache-2.0
"""Events to Debezium messages: schema blocks, keys, tombstones, what comes from other producers."""

import datetime as dt
import json
from decimal import Decimal

import pytest

from changelane import Message, get_codec
from changelane.conversion.join_update_halves import JoinHalves
from changelane.conversion.stateful import run
from changelane.event import (
    Control,
    DataChange,
    Key,
    LogicalMessage,
    Op,
    SchemaChange,
    Source,
    Tombstone,
    Transaction,
    TransactionMarker,
    Truncate,
    Watermark,
)
from changelane.position import MySqlPosition, OffsetPosition, PostgresPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.types import (
    UNAVAILABLE,
    Bits,
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
ID = Column("id", Integer(32), nullable=False)
SCHEMA = TableSchema(
    (
        ID,
        Column("total", DecimalType(12, 2), nullable=True),
        Column("at", Timestamp(6), nullable=True),
        Column("note", String(), nullable=True),
    )
)
ROW = {"id": 1, "total": Decimal("1.50"), "at": dt.datetime(2024, 2, 29), "note": "x"}
TABLE = TableId("shop", "public", "my orders")
SOURCE = Source("postgresql", "debezium", "dbz", "3.6.1.Final")
CANAL = Source("mysql", "canal")
MYSQL = Source("mysql", "debezium", "dbz", "3.6.1.Final")
UNSIGNED = TableSchema((ID, Column("n", Integer(64, unsigned=True), nullable=False)))


def change(op=Op.CREATE, **parts):
    found = {"key": Key(("id",)), "schema": SCHEMA, "source": SOURCE}
    return DataChange(op, TABLE, **(found | parts))


def written(event, **options):
    codec = get_codec("debezium-json", **options) if options else DEBEZIUM
    encoded = codec.encode(event, on_loss="warn")
    assert {what for what, _ in encoded.losses} <= {"source.connector"}
    return encoded.messages


def lost(event, **options):
    codec = get_codec("debezium-json", **options)
    return {what for what, _ in codec.encode(event, on_loss="warn").losses}


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


def test_a_partial_before_image_of_an_update_is_none():
    part = {"id": 1, "note": "y"}
    encoded = DEBEZIUM.encode(change(Op.UPDATE, before=part, after=part), on_loss="warn")
    assert encoded.losses == (("before", "a partial image"),)
    assert payload(encoded.messages[0])["before"] is None
    (event,) = DEBEZIUM.decode(encoded.messages[0])
    assert event.schema == SCHEMA
    assert (event.before, event.after) == (None, part)


def test_a_deleted_row_of_postgres_of_which_the_key_is_known_gets_debeziums_fillers():
    schema = TableSchema((*SCHEMA.columns, Column("n", Integer(32), nullable=False)))
    hidden = {name: UNAVAILABLE for name in schema.names if name != "id"}
    event = change(Op.DELETE, before={"id": 1, **hidden}, schema=schema)
    (message,) = written(event)
    assert payload(message)["before"] == {
        "id": 1, "total": None, "at": None, "note": None, "n": 0
    }  # fmt: skip
    (back,) = DEBEZIUM.decode(message)
    assert back.before == event.before


@pytest.mark.parametrize(
    "parts",
    [{}, {"position": OffsetPosition("t", 0, 1)}, {"after": ROW | {"id": UNAVAILABLE}}],
    ids=["nowhere", "carried-nowhere", "unknown-key"],
)
def test_a_key_change_that_nothing_proves_is_a_reported_loss(parts):
    event = change(Op.UPDATE, **({"before": ROW, "after": ROW | {"id": 2}} | parts))
    assert "key_change" in lost(event)
    messages = DEBEZIUM.encode(event, on_loss="ignore").messages
    back = list(run(JoinHalves(), (e for m in messages for e in DEBEZIUM.decode(m))))
    kinds = [e.op for e in back if isinstance(e, DataChange)]
    assert kinds == [Op.DELETE, Op.CREATE]


def test_the_create_of_a_key_change_has_the_columns_that_did_not_change():
    update = change(Op.UPDATE, before=ROW, after={"id": 2}, position=PostgresPosition(5))
    assert payload(written(update)[-1])["after"] == payload(written(change(after=ROW))[0])[
        "after"
    ] | {"id": 2}
    assert not lost(update)
    unknown = change(Op.UPDATE, before={"id": 1}, after={"id": 2}, position=PostgresPosition(5))
    assert "absent" in lost(unknown)


@pytest.mark.parametrize("parts", [{"position": PostgresPosition(5)}, {"source_time_ns": 7}])
def test_a_key_change_with_position_or_time_is_none(parts):
    after = ROW | {"id": 2}
    assert not lost(change(Op.UPDATE, before=ROW, after=after, **parts))


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
        (InstantType(), "0000-00-00 00:00:00"),
        (Date(), "2024-02-30"),
        (DecimalType(5, 1), Decimal("1.25")),
        (Time(3), "900000:00:00"),
        (Timestamp(3), dt.datetime(2024, 1, 1, 0, 0, 0, 1)),
    ],
)
def test_what_has_no_exact_form_is_a_reported_loss(kind, value):
    schema = TableSchema((ID, Column("v", kind, nullable=True)))
    encoded = DEBEZIUM.encode(change(after={"id": 1, "v": value}, schema=schema), on_loss="warn")
    assert payload(encoded.messages[0])["after"]["v"] is None
    assert len(encoded.losses) == 1


def test_floats_that_are_no_numbers_are_quoted():
    schema = TableSchema((ID, Column("v", Float(64), nullable=True)))
    for value, text in ((float("nan"), "NaN"), (float("-inf"), "-Infinity")):
        (message,) = written(change(after={"id": 1, "v": value}, schema=schema))
        assert payload(message)["after"]["v"] == text


def test_instants_keep_the_digits_of_their_producer():
    schema = TableSchema((ID, Column("v", InstantType(), nullable=True)))
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


@pytest.mark.parametrize(
    ("event", "option", "expected"),
    [
        (change(Op.DELETE, before=ROW), "auto", set()),
        (change(Op.DELETE, before=ROW | {"note": None}), "auto", {"before"}),
        (change(Op.DELETE, before=ROW | {"note": None}), "full", set()),
        (change(Op.DELETE, before=ROW | {"note": None}, key=None), "auto", set()),
        (change(Op.DELETE, before=ROW, schema=None, before_holds="full"), "auto",
         {"before", "type:unknown"}),  # and a datetime that no column tells
        (change(Op.DELETE, before=ROW, source=MYSQL), "auto", set()),
        (change(Op.DELETE, before=ROW | {"note": None}, source=MYSQL), "key", {"before"}),
    ],
)  # fmt: skip
def test_a_before_image_that_looks_like_fillers_is_a_reported_loss(event, option, expected):
    assert lost(event, before_image=option) == expected
    codec = get_codec("debezium-json", before_image=option)
    back = codec.decode(codec.encode(event, on_loss="ignore").messages[0])[0]
    assert (back.before == event.before) == (not expected)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (change(after=ROW, source=CANAL, details={"sqlType": {"id": 4}}),
         {"source.connector", "details"}),
        (change(after=ROW, source=CANAL, details={"source": {"x": 1}}),
         {"source.connector", "details"}),
        (change(after=ROW, details={"sqlType": {"id": 4}}), {"details"}),
        (change(after=ROW, source=Source("mysql", "canal", version="1.1.7")),
         {"source.connector", "source.version"}),
        (change(after=ROW, source=Source(), position=MySqlPosition("b.1", 4, 2)), set()),
        (change(after=ROW, position=PostgresPosition(5, 4, 3)), {"position"}),
        (change(after=ROW, transaction=Transaction("7", 1, 1, 2, last=True)),
         {"transaction.size", "transaction.last"}),
        (Truncate(TABLE, position=PostgresPosition(1), source=SOURCE), set()),
        (Truncate(TABLE, "TRUNCATE t", source=SOURCE), {"ddl"}),
        (Tombstone(TableId(), {"id": 1}, TableSchema((ID,))), set()),
        (Tombstone(TABLE, {"id": 1}, TableSchema((ID,))), {"event:tombstone"}),
        (TransactionMarker("begin", Transaction("7")), set()),
        (TransactionMarker("commit", Transaction("7", 1), PostgresPosition(1), SOURCE, 1, 2),
         {"transaction.order", "position", "source.product", "source.server", "source.version",
          "source_time", "process_time"}),
        (TransactionMarker("rollback", Transaction("7")), {"event:transaction"}),
        (Watermark("heartbeat", None, Source(server="dbz"), None, 5_000_000), set()),
        (Watermark("heartbeat", PostgresPosition(9), SOURCE, 5, 6),
         {"position", "source.product", "source.version", "source_time", "process_time"}),
        (Watermark("resolved"), {"event:watermark"}),
        (Control("other", "text"), {"event:control"}),
        (SchemaChange(TABLE, "alter", "ALTER TABLE a", SCHEMA, Key(("id",)), source=SOURCE), set()),
        (SchemaChange(TABLE, "rename", "RENAME TABLE a TO b", source=SOURCE), set()),
        (SchemaChange(TABLE, "rename", source=SOURCE), {"action"}),
        (SchemaChange(TABLE, "create", "CREATE TABLE a", UNSIGNED, source=SOURCE), {"type:uint64"}),
    ],
)  # fmt: skip
def test_what_debezium_has_no_place_for_is_reported_and_not_written(event, expected):
    encoded = DEBEZIUM.encode(event, on_loss="warn")
    assert {what for what, _ in encoded.losses} == expected
    for message in encoded.messages:
        assert b"changelane" not in (message.value or b"") + (message.key or b"")
        assert "changelane" not in str(message.headers) + str(message.topic)


FOREIGN = [
    b'{"op":"c","table":{"name":"t"},"after":{"id":1}}',
    b'{"op":"+I","data":{"id":1}}',
    b'{"op":"c","id":1}',
    b'{"op":"x","after":{"id":1}}',
    b'{"ts_ms":1,"id":2}',
    b'{"status":"END","id":"1"}',
    b'{"data":[{"id":"1"}],"ddl":"","type":"INSERT"}',
]


@pytest.mark.parametrize("value", FOREIGN)
def test_messages_of_other_formats_are_not_claimed(value):
    assert not DEBEZIUM.detects(Message(value))


def test_all_of_debeziums_own_messages_are_claimed():
    for event in (
        change(after=ROW),
        Truncate(TABLE),
        TransactionMarker("begin", Transaction("7"), source_time_ns=0),
        Watermark("heartbeat", process_time_ns=0),
        LogicalMessage("p", b"x"),
        SchemaChange(TABLE, "drop", "DROP TABLE a"),
    ):
        (message,) = written(event)
        assert DEBEZIUM.detects(message)
        value = json.loads(message.value)
        if "payload" in value:
            assert DEBEZIUM.detects(Message(json.dumps(value["payload"]).encode()))
        else:
            assert DEBEZIUM.detects(Message(json.dumps({"schema": {"type": "struct", "fields": []},
                                                        "payload": value}).encode()))  # fmt: skip


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


@pytest.mark.parametrize("typed", [True, False])
def test_a_text_that_equals_the_placeholder_is_a_loss(typed):
    text = "__debezium_unavailable_value"
    schema = TableSchema((Column("id", Integer()), Column("note", String()))) if typed else None
    change = DataChange(
        Op.CREATE, TableId("shop", None, "t"), after={"id": 1, "note": text}, schema=schema
    )
    encoded = get_codec("debezium-json").encode(change, on_loss="warn")
    kind = "string" if typed else "unknown"
    assert (
        f"value:{kind}",
        "equals the placeholder: readers take it as not sent",
    ) in encoded.losses
    other = get_codec("debezium-json", placeholder="none such").encode(change, on_loss="warn")
    assert not any(field.startswith("value:") for field, _ in other.losses)


def test_columns_of_mysql_are_written_as_its_connector_writes_them():
    """corpus/captured, types_all: a TINYINT is int16, a MEDIUMINT UNSIGNED int32, a DATETIME ms."""
    types = {
        "ti": (Integer(8), "tinyint(4)", "int16", ""),
        "mi": (Integer(32, unsigned=True), "mediumint(8) unsigned", "int32", ""),
        "dt": (Timestamp(), "datetime", "int64", "io.debezium.time.Timestamp"),
        "dt6": (Timestamp(6), "datetime(6)", "int64", "io.debezium.time.MicroTimestamp"),
    }
    columns = tuple(Column(name, told[0], told[1], True) for name, told in types.items())
    moment = dt.datetime(2024, 2, 29, 23, 59, 59)
    change = DataChange(
        Op.CREATE,
        TableId("shop", None, "t"),
        after={"ti": -3, "mi": 16777215, "dt": moment, "dt6": moment.replace(microsecond=1)},
        schema=TableSchema(columns),
        source=Source(product="mysql"),
    )
    encoded = get_codec("debezium-json").encode(change)
    fields = json.loads(encoded.messages[0].value)["schema"]["fields"][1]["fields"]
    wanted = [(kind, name) for _, _, kind, name in types.values()]
    assert [(field["type"], field.get("name", "")) for field in fields] == wanted
    (back,) = get_codec("debezium-json").decode(encoded.messages[0])
    assert back.after == change.after
    assert [column.type for column in back.schema.columns][:2] == [Integer(8), types["mi"][0]]


def test_one_bit_is_a_boolean_as_its_connectors_write_it():
    """``JdbcValueConverters``: "otherwise, it is just one bit so use a boolean"."""
    texts = {"b": "bit(1)", "v": "bit varying(1)", "n": None}
    columns = tuple(Column(name, Bits(1), text, True, default="1") for name, text in texts.items())
    event = change(after={"b": "1", "v": "1", "n": "1"}, schema=TableSchema(columns), key=None)
    encoded = DEBEZIUM.encode(event)
    assert ("type:bits", "written as boolean") in encoded.losses
    block = json.loads(encoded.messages[0].value)
    fields = {field["field"]: field for field in block["schema"]["fields"][1]["fields"]}
    assert [fields[name]["type"] for name in texts] == ["boolean", "bytes", "bytes"]
    assert fields["b"]["default"] is True
    assert block["payload"]["after"] == {"b": True, "v": "AQ==", "n": "AQ=="}


@pytest.mark.parametrize(("value", "is_optional"), [(1, False), (None, True)])
def test_a_key_whose_nullability_is_unknown_is_not_optional(value, is_optional):
    schema = TableSchema((Column("id", Integer(32)), Column("note", String())))
    encoded = DEBEZIUM.encode(change(after={"id": value, "note": "x"}, schema=schema))
    (message,) = encoded.messages
    key = json.loads(message.key)["schema"]["fields"]
    row = json.loads(message.value)["schema"]["fields"][1]["fields"]
    assert [field["optional"] for field in (*key, *row)] == [is_optional, is_optional, True]


@pytest.mark.parametrize("name", ["debezium-json", "debezium-flat-json"])
def test_source_types_are_in_the_schemas_unless_an_option_says_no(name):
    schema = TableSchema((Column("id", Integer(32), "int", False),))
    for has_types in (True, False):
        codec = get_codec(name, source_types=has_types)
        encoded = codec.encode(change(after={"id": 1}, schema=schema))
        (message,) = encoded.messages
        assert (b"__debezium.source.column.type" in message.key) is has_types
        assert (b"__debezium.source.column.type" in message.value) is has_types
        assert ("schema.source_type" in dict(encoded.losses)) is not has_types


def test_readers_of_full_before_images_get_no_fillers():
    hidden = dict.fromkeys(("total", "at", "note"), UNAVAILABLE)
    event = change(Op.DELETE, before={"id": 1, **hidden}, details={"fillers": {"note": ""}})
    codec = get_codec("debezium-json", before_image="full")
    encoded = codec.encode(event, on_loss="ignore")
    (back, *_) = codec.decode(encoded.messages[0])
    assert not {"", None} & set(back.before.values())
    assert "unavailable" in dict(encoded.losses)


@pytest.mark.parametrize("name", ["debezium-json", "debezium-flat-json", "arcion-json"])
def test_a_key_that_the_row_lacks_is_a_loss(name):
    event = change(Op.DELETE, before={"note": "x"})
    assert "key" in dict(get_codec(name).encode(event, on_loss="ignore").losses)


def test_an_update_that_lacks_columns_needs_the_schema_block():
    event = change(Op.UPDATE, before=None, after={"id": 1, "note": "y"})
    assert "absent" not in lost(event)
    assert "absent" in lost(event, schemas_enable=False)
