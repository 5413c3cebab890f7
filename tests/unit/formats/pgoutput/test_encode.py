# SPDX-License-Identifier: Apache-2.0
"""Events to messages of pgoutput: each has what its row needs."""

import pytest

from changelane import EncodeError, UnsupportedError, get_codec
from changelane.event import DataChange, Key, Op, Transaction, TransactionMarker
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNAVAILABLE, Array, Float, Integer, String, Text

TABLE = TableId(schema="public", name="t")
SCHEMA = TableSchema((Column("id", Integer(32)), Column("note", String())))
CODEC = get_codec("pgoutput")


def change(op, before=None, after=None, schema=SCHEMA, table=TABLE, **fields):
    return DataChange(op, table, Key(("id",)), before, after, schema, **fields)


def again(event, on_loss="raise"):
    (message,) = CODEC.encode(event, on_loss=on_loss).messages
    (read,) = CODEC.decode(message)
    return message, read


def losses(event):
    return {field for field, _ in CODEC.encode(event, on_loss="ignore").losses}


def test_a_message_has_the_relation_and_the_place_of_its_row():
    event = change(
        Op.UPDATE,
        {"id": 1},
        {"id": 2, "note": UNAVAILABLE},
        position=SequencePosition(16, 5),
        transaction=Transaction("7"),
        source_time_ns=1_732_184_415_183_000_000,
    )
    message, read = again(event)
    assert message.key == b"\0\0\0\0\0\0\0\x10\0\0\0\x05"
    assert message.value.startswith(b"B")
    assert (read.before, read.after, read.key.columns) == (event.before, event.after, ("id",))
    assert (read.position, read.transaction) == (event.position, event.transaction)
    assert read.source_time_ns == event.source_time_ns


def test_changes_of_one_row_in_one_transaction_keep_their_order():
    events = [
        change(Op.UPDATE, None, {"id": 1, "note": str(n)}, position=SequencePosition(16, n))
        for n in range(3)
    ]
    keys = [again(event)[1].position.key() for event in events]
    assert keys == sorted(set(keys))


def test_a_row_of_no_known_transaction_has_no_begin():
    message, read = again(change(Op.CREATE, None, {"id": 1, "note": None}))
    assert message.value.startswith(b"R")
    assert (message.key, read.position, read.transaction) == (None, None, None)


def test_a_whole_old_row_keeps_the_key():
    row = {"id": 1, "note": "a"}
    for event in (change(Op.UPDATE, row, row | {"note": "b"}), change(Op.DELETE, row)):
        _, read = again(event)
        assert (read.before, read.key.columns) == (row, ("id",))
    one = TableSchema(SCHEMA.columns[:1])
    assert losses(change(Op.UPDATE, {"id": 1}, {"id": 2}, one)) == set()


def test_types_of_other_databases_become_those_of_postgresql():
    columns = (
        Column("id", Integer(32), "int(11)"),
        Column("f", Float(64), "float"),
        Column("e", Text("mood"), "mood"),
        Column("es", Array(Text("mood"))),
        Column("u", Integer(64, unsigned=True), "bigint unsigned"),
    )
    row = {"id": 1, "f": 1.5, "e": "sad", "es": ["sad", None], "u": 2**64 - 1}
    event = change(Op.CREATE, None, row, TableSchema(columns))
    _, read = again(event, "ignore")
    types = [str(column.type) for column in read.schema.columns]
    assert types == ["int32", "float64", "text('mood')", "array<text('mood')>", "decimal(20,0)"]
    assert read.after == row
    assert losses(event) == {"type:uint64"}


def test_what_pgoutput_cannot_express_is_told():
    with pytest.raises(EncodeError, match="zero byte"):
        CODEC.encode(
            change(Op.CREATE, None, {"id": 1, "note": "a"}, table=TableId(None, "p", "a\0"))
        )
    with pytest.raises(EncodeError, match="no table"):
        CODEC.encode(change(Op.CREATE, None, {"id": 1, "note": "a"}, table=TableId(None, "p")))
    with pytest.raises(UnsupportedError, match="before"):
        CODEC.encode(change(Op.UPDATE, {"note": "a"}, {"id": 1, "note": "b"}))
    no_schema = change(Op.CREATE, None, {"id": 1, "note": "a"}, table=TableId(name="t"))
    assert losses(no_schema) == {"table.schema"}
    rollback = TransactionMarker("rollback", Transaction("7"))
    assert losses(rollback) == {"event:transaction"}
    commit = TransactionMarker("commit", Transaction("7"), SequencePosition(16))
    assert losses(commit) == {"transaction.id"}
