# SPDX-License-Identifier: Apache-2.0
"""TUPLE rows to events and back, and the schemas of their topics."""

import datetime as dt
import json
import math
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane import DecodeError, EncodeError, Message, get_codec
from changelane.conversion.join_update_halves import JoinHalves
from changelane.conversion.stateful import run
from changelane.errors import ConfigError
from changelane.event import (
    Completeness,
    DataChange,
    HalfUpdate,
    Key,
    KeyOrigin,
    Op,
    SchemaChange,
    Source,
    Tombstone,
    Truncate,
    Watermark,
)
from changelane.formats.datahub.tuple import table_schema, topic_schema
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.testing import compare
from changelane.testing.reference.upsert import MemoryTables
from changelane.types import (
    Boolean,
    Bytes,
    Float,
    InstantType,
    Integer,
    Json,
    String,
    Timestamp,
)
from changelane.types import Decimal as DecimalType

TUPLE = get_codec("datahub-tuple")

TOPIC = json.dumps(
    {
        "fields": [
            {"name": "_sequence_id_", "type": "STRING"},
            {"name": "_operation_type_", "type": "STRING"},
            {"name": "_excute_time_", "type": "BIGINT"},
            {"name": "id", "type": "BIGINT", "notnull": True},
            {"name": "price", "type": "DECIMAL", "comment": "with tax"},
            {"name": "rate", "type": "double"},
            {"name": "open", "type": "BOOLEAN"},
            {"name": "at", "type": "TIMESTAMP"},
            {"name": "note", "type": "STRING"},
            {"name": "small", "type": "TINYINT"},
        ]
    }
)


def row(operation="I", before="N", after="Y", **columns):
    return {
        "_sequence_id_": "1649991610688000000",
        "_operation_type_": operation,
        "_excute_time_": 1649991726000,
        "_source_table_": "orders",
        "_before_image_": before,
        "_after_image_": after,
        **columns,
    }


def decode(told, *, topic=None, **options):
    codec = get_codec("datahub-tuple", **options) if options else TUPLE
    return codec.decode(Message(json.dumps(told).encode(), topic=topic))


def one(told, **options):
    (event,) = decode(told, **options)
    return event


def refused(told, **options):
    with pytest.raises(DecodeError) as raised:
        decode(told, **options)
    return raised.value.code, raised.value.path


def change(op="c", sequence=5, **more):
    return DataChange(
        Op(op),
        **{
            "table": TableId(name="orders"),
            "before": {"id": 1, "note": "a"} if op in "ud" else None,
            "after": None if op == "d" else {"id": 1, "note": "b"},
            "position": None if sequence is None else SequencePosition(sequence),
            "source": Source(connector="datahub"),
            "source_time_ns": 1_649_991_726_000 * 10**6,
            **more,
        },
    )


def written(event, *, on_loss="raise", **options):
    codec = get_codec("datahub-tuple", **options)
    return [json.loads(m.value) for m in codec.encode(event, on_loss=on_loss).messages]


def losses(event, **options):
    codec = get_codec("datahub-tuple", **options)
    return dict(codec.encode(event, on_loss="warn").losses)


# -- reading -----------------------------------------------------------------------------------


def test_an_insert_and_a_delete_are_one_row_each():
    event = one(row(id=1, note="a"))
    assert event == change(
        after={"id": 1, "note": "a"},
        position=SequencePosition(1649991610688000000),
        after_holds=Completeness.FULL,
    )
    event = one(row("D", "Y", "N", id=1, note=None))
    assert (event.op, event.before, event.after) == (Op.DELETE, {"id": 1, "note": None}, None)


def test_an_update_is_two_rows_with_one_sequence():
    told = [row("U", "Y", "N", id=1, note="a"), row("U", "N", "Y", id=2, note="b")]
    halves = [one(part) for part in told]
    assert all(isinstance(half, HalfUpdate) for half in halves)
    for order in (halves, halves[::-1]):
        (update,) = run(JoinHalves(), order)
        assert (update.op, update.before, update.after) == (
            Op.UPDATE,
            {"id": 1, "note": "a"},
            {"id": 2, "note": "b"},
        )
    assert written(update) == told


def test_unjoined_rows_of_an_update_leave_the_row_after():
    told = [
        row(id=1, note="first"),
        row("U", "Y", "N", id=1, note="first"),
        row("U", "N", "Y", id=1, note="second"),
    ]
    for number, part in enumerate(told):
        part["_sequence_id_"] = str(max(number, 1))
    told[0]["_sequence_id_"] = "0"
    for order in (told, told[::-1]):
        tables = MemoryTables(keys={"orders": ("id",)})
        for part in order:
            tables.apply(decode(part))
        assert tables.rows(TableId(name="orders")) == [{"id": 1, "note": "second"}]


@pytest.mark.parametrize(
    "told",
    [
        row("I", "Y", "N"),
        row("I", "Y", "Y"),
        row("D", "N", "Y"),
        row("U", "Y", "Y"),
        row("U", "N", "N"),
        row("I", "n", "y"),
    ],
)
def test_images_that_the_operation_does_not_have_are_refused(told):
    assert refused(told) == ("wrong_image", "$._before_image_")


@pytest.mark.parametrize("operation", ["i", "INSERT", "", None, 1, "R"])
def test_unknown_operations_are_refused(operation):
    assert refused(row(operation)) == ("unknown_operation", "$._operation_type_")


@pytest.mark.parametrize("name", ["_operation_type_", "_before_image_", "_after_image_"])
def test_a_row_without_the_columns_that_tell_the_operation_is_refused(name):
    told = row(id=1)
    del told[name]
    assert refused(told) == ("missing_field", f"$.{name}")


def test_a_sequence_consists_of_digits():
    for sequence in ("-1", "x", "1.5"):
        assert refused(row() | {"_sequence_id_": sequence}) == ("wrong_type", "$._sequence_id_")
    assert refused(row() | {"_sequence_id_": [1]}) == ("wrong_type", "$._sequence_id_")
    assert one(row() | {"_sequence_id_": 17}).position == SequencePosition(17)
    assert one(row() | {"_sequence_id_": None}).position is None


def test_half_an_update_needs_its_sequence():
    told = row("U", "Y", "N", id=1) | {"_sequence_id_": None}
    assert refused(told) == ("missing_field", "$._sequence_id_")
    event = one(row("U", "N", "Y", id=1) | {"_sequence_id_": None})
    assert (event.op, event.before, event.after) == (Op.UPDATE, None, {"id": 1})


@pytest.mark.parametrize("name", ["_excute_time_", "_execute_time_"])
@pytest.mark.parametrize(
    ("told", "milliseconds"),
    [
        (1649991726000, 1649991726000),
        ("1649991726000", 1649991726000),
        (1649991726000000, 1649991726000),
        (None, None),
        (-1, None),
    ],
)
def test_the_time_is_read_in_both_spellings_as_number_text_or_timestamp(name, told, milliseconds):
    part = row()
    del part["_excute_time_"]
    time_ns = one(part | {name: told}).source_time_ns
    assert time_ns == (None if milliseconds is None else milliseconds * 10**6)


def test_a_time_that_would_be_read_as_microseconds_is_a_loss():
    event = change(source_time_ns=(10**14 + 1) * 1_000_000)
    assert losses(event) == {"source_time": "so great that readers interpret it as microseconds"}


def test_times_that_are_none_are_refused():
    for wrong in ("yesterday", True, 1.5, [1]):
        assert refused(row() | {"_excute_time_": wrong}) == ("wrong_type", "$._excute_time_")
    assert refused(row() | {"_excute_time_": 10**18}) == ("value_out_of_range", "$._excute_time_")
    assert refused(row(_execute_time_=1)) == ("malformed", "$._execute_time_")
    assert one(row(_execute_time_=1649991726000)).details == {}


def test_the_table_is_that_of_the_row_else_of_the_option_else_of_the_topic():
    told = row(id=1)
    assert one(told, table="shop.public.other").table == TableId("shop", "public", "orders")
    assert one(told, topic="t").table == TableId(name="orders")
    del told["_source_table_"]
    assert one(told, table="shop.orders").table == TableId("shop", None, "orders")
    assert one(told, topic="t").table == TableId(name="t")
    assert one(told, table="orders", topic="t").table == TableId(name="orders")
    assert one(told).table == TableId()
    assert refused(row() | {"_source_table_": 1}) == ("wrong_type", "$._source_table_")
    with pytest.raises(ConfigError):
        get_codec("datahub-tuple", table="a.b.c.d")


def test_a_row_that_leaves_its_table_empty_is_of_the_table_of_the_option():
    told = row() | {"_source_table_": ""}
    assert one(told, table="shop.orders").table == TableId("shop", None, "orders")


@pytest.mark.parametrize("keys", ["id,note", ("id", "note")])
def test_the_key_is_configured(keys):
    assert one(row(id=1), keys=keys).key == Key(("id", "note"), KeyOrigin.CONFIG)
    assert one(row(id=1)).key is None
    event = change(key=Key(("id", "note")))
    assert losses(event).keys() == {"key"}
    assert losses(event, keys=keys) == {}
    assert losses(event, keys="id").keys() == {"key"}


def test_columns_with_underscores_on_both_sides_are_metadata_and_are_kept():
    event = one(row(id=1, _id=2, _shard_="x"))
    assert event.after == {"id": 1, "_id": 2}
    assert event.details == {"_shard_": "x"}
    assert written(event)[0]["_shard_"] == "x"


def test_without_a_topic_schema_values_are_what_json_says():
    event = one(row(id=1, price="1.10", open=True, at=None))
    assert event.after == {"id": 1, "price": "1.10", "open": True, "at": None}
    assert event.schema is None


# -- the schema of a topic ---------------------------------------------------------------------

TYPED = {
    "id": 1,
    "price": Decimal("1.10"),
    "rate": 0.1,
    "open": True,
    "at": dt.datetime(2016, 2, 19, 8, 15, 35, 1, tzinfo=dt.UTC),
    "note": "a",
    "small": -128,
}
AS_JSON = {
    "id": 1,
    "price": "1.10",
    "rate": 0.1,
    "open": True,
    "at": 1455869735000001,
    "note": "a",
    "small": -128,
}
AS_TEXT = {
    "id": "1",
    "price": "1.10",
    "rate": "1.0000000000000001e-01",
    "open": "true",
    "at": "1455869735000001",
    "note": "a",
    "small": "-128",
}


@pytest.mark.parametrize("told", [AS_JSON, AS_TEXT])
def test_values_are_of_their_column_s_type_whether_json_or_text(told):
    event = one(row(**told), topic_schema=TOPIC)
    assert event.after == TYPED
    assert [type(value) for value in event.after.values()][:4] == [int, Decimal, float, bool]
    assert event.schema.columns[0] == Column("id", Integer(64), "BIGINT")
    assert event.schema.names == table_schema(TOPIC).names
    assert written(event, topic_schema=TOPIC) == [
        row(**AS_JSON) | {"_sequence_id_": "1649991610688000000"}
    ]


def test_a_column_that_a_row_lacks_is_null():
    assert one(row(id=1), topic_schema=TOPIC).after == dict.fromkeys(TYPED) | {"id": 1}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("id", 2**63),
        ("id", "1.0"),
        ("small", 128),
        ("price", "x"),
        ("rate", "0.12345678901234567890"),
        ("open", 1),
        ("at", "2016-02-19"),
        ("note", 1),
    ],
)
def test_a_value_that_is_not_of_its_column_s_type_is_refused(column, value):
    assert refused(row(**{column: value}), topic_schema=TOPIC) == ("wrong_type", f"$.{column}")


def test_a_column_that_the_topic_does_not_have_is_refused_and_when_written_told():
    assert refused(row(more=1), topic_schema=TOPIC) == ("unknown_column", "$")
    event = change(after={"id": 1, "more": 2})
    assert losses(event, topic_schema=TOPIC).keys() == {"column"}
    assert losses(change(after={"id": 1, "_more_": 2})).keys() == {"column"}


def test_a_value_that_the_topic_cannot_hold_is_not_written():
    schema = TableSchema((Column("id", Integer(64)), Column("small", Integer(64))))
    event = change(schema=schema, after={"id": 1, "small": 128})
    with pytest.raises(EncodeError, match="'small': the value does not fit the topic's TINYINT"):
        written(event, topic_schema=TOPIC, on_loss="warn")
    schema = TableSchema((Column("id", Integer(64)), Column("note", Integer(64))))
    event = change(schema=schema, after={"id": 1, "note": 128})
    (told,) = written(event, topic_schema=TOPIC, on_loss="warn")
    assert told["note"] == "128"
    assert losses(event, topic_schema=TOPIC).keys() == {"type"}


@pytest.mark.parametrize(
    ("kind", "value", "is_kept"),
    [
        (Float(64), 0.1, False),
        (Float(64), 1e300, False),
        (Float(64), 0.5, True),
        (Float(64), math.nan, True),
        (Float(32), 0.1, True),
    ],
)
def test_a_double_is_in_a_float_of_the_topic_only_if_it_stays_equal(kind, value, is_kept):
    topic = TOPIC.replace('"double"', '"FLOAT"')
    schema = TableSchema((Column("id", Integer(64)), Column("rate", kind)))
    event = change(schema=schema, after={"id": 1, "rate": value})
    if is_kept:
        assert written(event, topic_schema=topic, on_loss="warn")
    else:
        with pytest.raises(EncodeError, match="'rate': the value does not fit"):
            written(event, topic_schema=topic, on_loss="warn")


def test_the_schema_of_a_topic_is_that_of_its_table_and_the_metadata_columns():
    schema = TableSchema(
        (
            Column("id", Integer(64), nullable=False),
            Column("count", Integer(64, unsigned=True)),
            Column("small", Integer(8, unsigned=True)),
            Column("rate", Float(32)),
            Column("open", Boolean()),
            Column("at", InstantType(6)),
            Column("local", Timestamp(6)),
            Column("price", DecimalType(10, 2)),
            Column("data", Bytes()),
            Column("doc", Json()),
            Column("note", String()),
        )
    )
    fields = json.loads(topic_schema(schema))["fields"]
    assert fields[:6] == [
        {"name": "_sequence_id_", "type": "STRING"},
        {"name": "_operation_type_", "type": "STRING"},
        {"name": "_excute_time_", "type": "BIGINT"},
        {"name": "_source_table_", "type": "STRING"},
        {"name": "_before_image_", "type": "STRING"},
        {"name": "_after_image_", "type": "STRING"},
    ]
    assert fields[6] == {"name": "id", "type": "BIGINT", "notnull": True}
    kinds = "BIGINT DECIMAL BIGINT DOUBLE BOOLEAN TIMESTAMP STRING DECIMAL STRING STRING STRING"
    assert [field["type"] for field in fields[6:]] == kinds.split()
    every = json.loads(topic_schema(schema, all_types=True, time_column="_execute_time_"))["fields"]
    assert every[2]["name"] == "_execute_time_"
    assert [field["type"] for field in every[6:10]] == ["BIGINT", "DECIMAL", "SMALLINT", "FLOAT"]


def test_a_table_read_from_its_topic_gives_the_topic_again():
    schema = table_schema(TOPIC)
    assert [str(column.type) for column in schema.columns] == [
        "int64",
        "decimal",
        "float64",
        "boolean",
        "instant(6)",
        "string",
        "int8",
    ]
    assert schema.columns[0].nullable is False
    assert table_schema(topic_schema(schema, all_types=True)) == schema


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"fields":[{"name":"id"}]}',
        '{"fields":[{"name":"id","type":"BLOB"}]}',
        '{"fields":[{"name":"id","type":"BIGINT"},{"name":"id","type":"BIGINT"}]}',
    ],
)
def test_what_is_no_schema_of_a_topic_is_a_wrong_configuration(text):
    with pytest.raises(ConfigError):
        get_codec("datahub-tuple", topic_schema=text)


def test_a_column_named_like_metadata_has_no_place_in_a_topic():
    with pytest.raises(ConfigError, match="_sequence_id_"):
        topic_schema(TableSchema((Column("_sequence_id_", String()),)))


VALUES = {
    "id": st.integers(-(2**63), 2**63 - 1),
    "price": st.decimals(allow_nan=False, allow_infinity=False, places=4),
    "rate": st.floats(allow_nan=False, allow_infinity=False),
    "open": st.booleans(),
    "at": st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)).map(
        lambda value: value.replace(tzinfo=dt.UTC)
    ),
    "note": st.text(st.characters(exclude_categories=["Cs"])),
    "small": st.integers(-128, 127),
}
rows = st.fixed_dictionaries(
    {
        name: values if name == "id" else st.one_of(st.none(), values)
        for name, values in VALUES.items()
    }
)
OF_TOPIC = get_codec("datahub-tuple", topic_schema=TOPIC)


@given(rows, rows, st.sampled_from("cdu"))
def test_what_a_topic_s_types_hold_comes_back_whole(before, after, op):
    event = change(
        op,
        before=None if op == "c" else before,
        after=None if op == "d" else after,
        schema=OF_TOPIC.decode(Message(json.dumps(row(id=1)).encode()))[0].schema,
    )
    encoded = OF_TOPIC.encode(event)
    (got,) = compare.decode_all(OF_TOPIC, encoded.messages)
    assert compare.differences(got, event, OF_TOPIC.carries) == ()


# -- writing -----------------------------------------------------------------------------------


def test_columns_are_written_in_the_producer_s_spelling_or_the_right_one():
    (told,) = written(change())
    assert list(told) == [
        "_sequence_id_",
        "_operation_type_",
        "_excute_time_",
        "_source_table_",
        "_before_image_",
        "_after_image_",
        "id",
        "note",
    ]
    (told,) = written(change(), time_column="_execute_time_")
    assert told["_execute_time_"] == 1649991726000
    assert "_excute_time_" not in told


def test_an_update_that_no_sequence_joins_is_a_delete_and_an_insert():
    event = change("u", None, after_holds=Completeness.FULL)
    assert [told["_operation_type_"] for told in written(event, on_loss="warn")] == ["D", "I"]
    assert losses(event).keys() == {"operation:u"}
    event = change("u", before=None, after_holds=Completeness.FULL)
    assert losses(event).keys() == {"operation:u"}
    (told,) = written(change("u", None, before=None, after_holds=Completeness.FULL))
    assert (told["_operation_type_"], told["_sequence_id_"]) == ("U", None)


def test_half_an_update_is_a_row_of_an_update():
    (told,) = written(HalfUpdate(change("d"), pair="5"))
    assert (told["_operation_type_"], told["_before_image_"]) == ("U", "Y")
    moved = HalfUpdate(change("d"), {"id": 2})
    assert losses(moved).keys() == {"half"}
    assert written(moved, on_loss="warn")[0]["_operation_type_"] == "D"


@pytest.mark.parametrize(
    "event",
    [
        SchemaChange(TableId(name="orders"), "alter", "ALTER TABLE orders ADD COLUMN c INT"),
        Watermark(),
        Truncate(TableId(name="orders")),
        Tombstone(TableId(name="orders"), {"id": 1}),
    ],
)
def test_ddl_and_heartbeats_have_no_row_and_are_a_loss_with_a_reason(event):
    assert written(event, on_loss="warn") == []
    ((field, reason),) = losses(event).items()
    assert field == f"event:{event.__struct_config__.tag}"
    assert reason == "the format has no such message"


def test_what_a_row_has_no_place_for_is_told():
    event = change(
        "r",
        -1,
        table=TableId("shop", "public", "orders"),
        process_time_ns=1,
        details={"x": 1},
    )
    told = {
        "operation:r",
        "position",
        "table.database",
        "table.schema",
        "process_time",
        "details.x",
    }
    assert losses(event).keys() == told
    assert losses(event, table="shop.public.orders").keys() == told - {
        "table.database",
        "table.schema",
    }
    assert losses(event, table="shop.own.orders").keys() == told - {"table.database"}
    absent = change(schema=one(row(id=1), topic_schema=TOPIC).schema, after={"id": 1})
    assert losses(absent, topic_schema=TOPIC).keys() == {"absent"}
    assert losses(msgspec.structs.replace(change(), source_time_ns=-1)).keys() == {"source_time"}


def test_a_message_that_is_no_row_is_refused():
    for data in (b"[]", b"1", b"{}", b'"I"', b"\xff"):
        with pytest.raises(DecodeError):
            TUPLE.decode(Message(data))
    assert TUPLE.decode(Message(None)) == (Tombstone(TableId()),)
