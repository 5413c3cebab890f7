# SPDX-License-Identifier: Apache-2.0
"""Events to messages of wal2json, version 2."""

import json

import pytest

from changelane import EncodeError, get_codec
from changelane.event import DataChange, Key, LogicalMessage, Op, Transaction
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNAVAILABLE, Bytes, Decimal, Float, Integer, String

TABLE = TableId(schema="public", name="t")
SCHEMA = TableSchema(
    (Column("id", Integer(32)), Column("note", String(), "varchar(9)"), Column("b", Bytes()))
)
CODEC = get_codec("wal2json")
ROW = {"id": 1, "note": "a", "b": b"\0\xff"}


def change(op, before=None, after=None, schema=SCHEMA, key=("id",), **fields):
    return DataChange(op, TABLE, Key(key) if key else None, before, after, schema, **fields)


def written(event, on_loss="ignore"):
    (message,) = CODEC.encode(event, on_loss=on_loss).messages
    assert message.key is None
    return json.loads(message.value)


def losses(event):
    return {field for field, _ in CODEC.encode(event, on_loss="ignore").losses}


def test_an_insert_has_all_columns_and_the_key():
    event = change(
        Op.CREATE, None, ROW, transaction=Transaction("7"), source_time_ns=1_732_184_415_183_000_000
    )
    assert written(event, "raise") == {
        "action": "I",
        "xid": 7,
        "timestamp": "2024-11-21 10:20:15.183+00",
        "schema": "public",
        "table": "t",
        "columns": [
            {"name": "id", "type": "integer", "value": 1},
            {"name": "note", "type": "character varying(9)", "value": "a"},
            {"name": "b", "type": "bytea", "value": "00ff"},
        ],
        "pk": [{"name": "id", "type": "integer"}],
    }


@pytest.mark.parametrize(
    ("kind", "text", "written_text"),
    [
        (Integer(64), "bigint(20)", "bigint"),
        (Integer(32), "int", "integer"),
        (Integer(32), "int4", "int4"),
        (Float(32), "float", "real"),
        (Decimal(9, 2), "decimal(9,2)", "numeric(9,2)"),
        (Decimal(9, 2), "numeric(9,2)", "numeric(9,2)"),
    ],
)
def test_type_texts_are_those_that_postgresql_writes(kind, text, written_text):
    schema = TableSchema((Column("id", kind, text),))
    (column,) = written(change(Op.CREATE, None, {"id": None}, schema, key=()))["columns"]
    assert column["type"] == written_text


def test_an_update_has_its_key_as_identity_and_omits_unavailable_columns():
    event = change(Op.UPDATE, None, ROW | {"b": UNAVAILABLE})
    message = written(event)
    assert [column["name"] for column in message["columns"]] == ["id", "note"]
    assert [column["value"] for column in message["identity"]] == [1]
    assert losses(event) == {"schema"}
    (read,) = CODEC.decode(CODEC.encode(event, on_loss="ignore").messages[0])
    assert (read.before, read.after) == (None, {"id": 1, "note": "a"})


def test_a_row_without_key_has_an_empty_pk():
    message = written(change(Op.DELETE, ROW, key=()))
    assert message["pk"] == []
    assert len(message["identity"]) == 3
    assert "columns" not in message


def test_positions_are_not_written():
    # two changes of a row in one transaction would have one LSN
    event = change(Op.CREATE, None, ROW, position=SequencePosition(16, 1))
    assert "lsn" not in written(event)
    assert losses(event) == {"position"}


def test_what_wal2json_cannot_express_is_told():
    assert losses(change(Op.CREATE, None, {"id": 1, "note": "a"})) == {"absent"}
    assert losses(change(Op.UPDATE, {"id": 1}, ROW)) == {"before"}
    schema = TableSchema((Column("id", Integer(32)), Column("n", Decimal())))
    event = change(Op.CREATE, None, {"id": 1, "n": "x"}, schema)
    assert losses(event) == {"value:decimal"}
    assert losses(LogicalMessage("p", b"\xff")) == {"event:message"}
    assert losses(change(Op.CREATE, None, ROW, transaction=Transaction("a"))) == {"transaction.id"}
    with pytest.raises(EncodeError):
        CODEC.encode(DataChange(Op.CREATE, TableId(), after=ROW, schema=SCHEMA))


def test_a_key_that_did_not_change_is_no_old_row():
    schema = TableSchema(SCHEMA.columns[:2])
    event = change(Op.UPDATE, None, {"id": 1, "note": UNAVAILABLE}, schema)
    (message,) = CODEC.encode(event, on_loss="ignore").messages
    assert CODEC.decode(message)[0].before is None
