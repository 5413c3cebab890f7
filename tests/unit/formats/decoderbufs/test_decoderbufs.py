# SPDX-License-Identifier: Apache-2.0
"""The messages of postgres-decoderbufs: images, types, names, refusals, and writing."""

import datetime as dt
import decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changelane import DecodeError, EncodeError, Message, get_codec
from changelane.event import DataChange, Key, KeyOrigin, Op, Transaction, TransactionMarker
from changelane.formats.contract.protobuf import dumps
from changelane.formats.decoderbufs.wire import DATUM, POINT, ROW, TYPE_INFO
from changelane.schema import Column, TableId, TableSchema
from changelane.types import (
    UNAVAILABLE,
    Float,
    Instant,
    InstantType,
    Integer,
    String,
    Text,
    Timestamp,
)

CODEC = get_codec("decoderbufs")
FULL = get_codec("decoderbufs", replica_identity="full", keys={"t": ["id"]})
TIME_US = 1640007049196123


def datum(name, number, **data):
    fields = {f"datum_{field}": value for field, value in data.items()}
    return dumps({"column_name": name, "column_type": number} | fields, DATUM)


def message(op=0, table="public.t", new=(), old=(), types=(), **more):
    infos = [dumps({"modifier": text, "value_optional": True}, TYPE_INFO) for text in types]
    head = {"transaction_id": 7, "commit_time": TIME_US, "table": table, "op": op} | more
    tuples = {"new_tuple": new, "old_tuple": old, "new_typeinfo": infos}
    return Message(dumps(head | tuples, ROW))


ID = datum("id", 23, int32=1)
NOTE = datum("note", 25, string="x")
NULL = datum("note", 25)
NO_NAME = dumps({"column_type": 23}, DATUM)


def decode(wire, codec=CODEC):
    (event,) = codec.decode(wire)
    return event


def value_of(number, **data):
    return decode(message(new=[datum("v", number, **data)])).after["v"]


def refused(wire, codec=CODEC):
    with pytest.raises(DecodeError) as caught:
        codec.decode(wire)
    return caught.value.code, caught.value.path


def test_an_update_has_the_columns_that_were_sent():
    missing = datum("note", 25, missing=True)
    event = decode(message(1, new=[ID, missing, datum("n", 23)]))
    assert event.op is Op.UPDATE
    assert event.after == {"id": 1, "note": UNAVAILABLE, "n": None}
    assert (event.transaction, event.source_time_ns) == (Transaction("7"), TIME_US * 1000)
    assert (event.before, event.key) == (None, None)


def test_a_column_of_an_old_row_without_a_value_is_null_in_whole_rows_only():
    wire = message(2, old=[ID, NULL])
    assert decode(wire).before == {"id": 1}
    event = decode(wire, FULL)
    assert event.before == {"id": 1, "note": None}
    assert event.key == Key(("id",), KeyOrigin.CONFIG)


def test_borders_of_transactions_are_markers():
    for op, status in ((3, "begin"), (4, "commit")):
        event = decode(message(op, table=None))
        assert event == TransactionMarker(
            status, Transaction("7"), source=event.source, source_time_ns=TIME_US * 1000
        )


@pytest.mark.parametrize(
    ("name", "schema", "table"),
    [
        ("public.t", "public", "t"),
        ('"My Schema"."a.""b"', "My Schema", 'a."b'),
        ("t", None, "t"),
        ('"a"x', None, '"a"x'),
        ("a.b.c", None, "a.b.c"),
    ],
)
def test_a_quoted_name_is_the_name_of_its_table(name, schema, table):
    assert decode(message(table=name, new=[ID])).table == TableId(None, schema, table)


def test_the_texts_of_types_are_those_of_the_message_or_of_their_numbers():
    event = decode(
        message(new=[ID, datum("n", 1700, string="1.50")], types=["integer", "numeric(9,2)"])
    )
    assert [column.source_type for column in event.schema.columns] == ["integer", "numeric(9,2)"]
    event = decode(message(new=[datum("n", 1700, string="1.50"), datum("m", 99999, bytes=b"ok")]))
    assert [column.source_type for column in event.schema.columns] == ["numeric", None]
    assert event.after == {"n": decimal.Decimal("1.50"), "m": "ok"}


@pytest.mark.parametrize(
    ("number", "data", "value"),
    [
        (1114, {"int64": -(1 << 63)}, "-infinity"),
        (1184, {"int64": (1 << 63) - 1}, "infinity"),
        (1184, {"int64": 5}, Instant.of(dt.datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=dt.UTC), 6)),
        (1184, {"int64": 1 << 60}, "+38504-08-17T21:30:06.846976Z"),
        (1082, {"int32": (1 << 31) - 1}, "infinity"),
        (1083, {"int64": 86_400_000_000}, "24:00:00"),
        (1083, {"int64": 1_500_000}, "00:00:01.5"),
        (1266, {"double": -3_600_000_000.0}, "23:00:00+00"),
        (1186, {"double": -1.0}, -1),
        (700, {"float": 0.1}, 0.1),
        (701, {"double": 1e300}, 1e300),
        (1007, {"bytes": b"{1,NULL}"}, [1, None]),
        (600, {"point": dumps({"x": 1.0, "y": 0.5}, POINT)}, "(1,0.5)"),
    ],
)
def test_a_value_is_that_of_its_type(number, data, value):
    assert value_of(number, **data) == value


@pytest.mark.parametrize(
    ("wire", "refusal"),
    [
        (message(-1, new=[ID]), ("unknown_operation", "$.op")),
        (Message(dumps({"table": "t"}, ROW)), ("unknown_operation", "$.op")),
        (message(0), ("missing_image", "$.new_tuple")),
        (message(2, new=[ID], old=[ID]), ("unexpected_image", "$.new_tuple")),
        (message(0, new=[ID], old=[ID]), ("unexpected_image", "$.old_tuple")),
        (message(2), ("missing_image", "$.old_tuple")),
        (message(new=[ID], table=None), ("missing_field", "$.table")),
        (message(new=[ID], types=["integer", "text"]), ("wrong_length", "$.new_typeinfo")),
        (message(new=[ID, ID]), ("wrong_schema", "$.new_tuple")),
        (
            message(new=[dumps({"column_type": 23}, DATUM)]),
            ("missing_field", "$.new_tuple[0].column_name"),
        ),
        (message(new=[datum("a", 23, int32=1, string="x")]), ("malformed", "$.new_tuple[0]")),
        (message(new=[datum("a", 23, string="x")]), ("wrong_type", "$.new_tuple[0]")),
        (message(new=[datum("a", 21, int32=40000)]), ("value_out_of_range", "$.new_tuple[0]")),
        (message(new=[datum("a", 1007, bytes=b"\xff")]), ("invalid_utf8", "$.new_tuple[0]")),
        (message(new=[datum("a", 1266, double=0.5)]), ("wrong_type", "$.new_tuple[0]")),
        (message(new=[datum("a", 600, point=b"")]), ("wrong_type", "$.new_tuple[0]")),
        (message(new=[ID], transaction_id=1 << 40), ("value_out_of_range", "$.transaction_id")),
        (message(new=[ID], commit_time=1 << 62), ("value_out_of_range", "$.commit_time")),
    ],
)
def test_a_wrong_message_is_refused_with_its_path(wire, refusal):
    assert refused(wire) == refusal


# -- writing -------------------------------------------------------------------------------------

SCHEMA = TableSchema(
    (
        Column("Id", Integer(64)),
        Column("r", Float(32)),
        Column("at", Timestamp(6)),
        Column("seen", InstantType(6)),
        Column("note", String()),
    )
)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32, allow_nan=False),
    st.datetimes(),
    st.none() | st.text(st.characters(codec="utf-8"), max_size=5),
)
def test_a_row_comes_back(number, real, at, note):
    seen = Instant.of(at.replace(tzinfo=dt.UTC), 6)
    row = {"Id": number, "r": real, "at": at, "seen": seen, "note": note}
    table = TableId(None, "public", 'Odd "name"')
    event = DataChange(Op.UPDATE, table, None, row, row, SCHEMA)
    encoded = FULL.encode(event, on_loss="ignore")
    got = decode(encoded.messages[0], FULL)
    assert got.table == table
    for image in (got.before, got.after):
        assert image | {"r": None} == row | {"r": None}
        # the digits may be fewer, the bits are the same
        assert dumps({"datum_float": image["r"]}, DATUM) == dumps({"datum_float": real}, DATUM)


def losses(event, codec=CODEC):
    return {field for field, _ in codec.encode(event, on_loss="ignore").losses}


def test_what_readers_do_not_see_is_a_loss():
    schema = TableSchema((Column("id", Integer(32)), Column("note", String())))
    table = TableId(None, "public", "t")
    row = {"id": 1, "note": None}
    update = DataChange(Op.UPDATE, table, Key(("id",)), row, row, schema)
    assert losses(update) == {"key", "before"}
    assert losses(update, FULL) == set()
    part = DataChange(Op.DELETE, table, Key(("id",)), {"id": 1}, None, schema)
    assert losses(part, FULL) == {"absent"}
    for wrong in (
        DataChange(Op.DELETE, table, None, None, None, schema),
        DataChange(Op.CREATE, TableId(), None, None, row, schema),
        DataChange(Op.CREATE, table, None, None, {}, None),
    ):
        with pytest.raises(EncodeError):
            CODEC.encode(wrong, on_loss="ignore")


@pytest.mark.parametrize(
    ("kind", "source_type", "value"),
    [(Integer(32), "INT", 1), (Float(32), "float", 95.5), (Text("money"), "money", "$1.50")],
    ids=str,
)
def test_a_column_of_a_type_without_a_number_is_read_again(kind, source_type, value):
    schema = TableSchema((Column("v", kind, source_type),))
    event = DataChange(Op.DELETE, TableId(name="t"), before={"v": value}, schema=schema)
    (message,) = CODEC.encode(event, on_loss="ignore").messages
    assert CODEC.decode(message)[0].before == {"v": value}
