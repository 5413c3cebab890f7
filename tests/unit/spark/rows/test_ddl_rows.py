"""Statements become event rows of their own; what they empty becomes a truncate."""

import msgspec
import pytest

from changelane import get_codec
from changelane.event import SchemaChange, Source
from changelane.message import Message
from changelane.position import DELETE_PHASE, MySqlPosition, encode_order
from changelane.schema import TableId

builder = pytest.importorskip("changelane.spark.rows.builder", exc_type=ImportError)
rows = pytest.importorskip("changelane.spark.rows.schema", exc_type=ImportError)

NATIVE = get_codec("native-json")
AT = MySqlPosition("binlog.000001", 4711)


def told(text, **source):
    event = SchemaChange(
        TableId("shop", None, "t"),
        "alter",
        text,
        position=AT,
        source=Source(**{"product": "mysql", **source}),
    )
    (message,) = NATIVE.encode(event).messages
    found = builder.RowBuilder(NATIVE).rows(Message(message.value))
    return [dict(zip(rows.FIELD_INDEX, row, strict=True)) for row in found]


def test_a_statement_about_a_shape_is_a_row_with_its_text_and_place():
    (row,) = told("ALTER TABLE t ADD a int")
    assert (row["kind"], row["table_id"]) == ("ddl", '["shop",null,"t"]')
    assert row["order"] == encode_order(AT, phase=DELETE_PHASE)
    found = msgspec.json.decode(row["after"], type=rows.DdlText)
    assert found == rows.DdlText("ALTER TABLE t ADD a int", "mysql")


def test_a_statement_that_empties_tables_is_a_truncate_of_each():
    found = told("TRUNCATE TABLE t; TRUNCATE TABLE other.u; ALTER TABLE t DROP a")
    assert [row["kind"] for row in found] == ["truncate", "truncate", "ddl"]
    assert [row["table_id"] for row in found[:2]] == ['["shop",null,"t"]', '["other",null,"u"]']
    assert {row["order"] for row in found} == {encode_order(AT, phase=DELETE_PHASE)}


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("DROP TABLE IF EXISTS t", {"snapshot": "true"}),
        ("CREATE INDEX i ON t (a)", {}),
        ("ALTER TABLE t ADD a int", {"product": None}),
    ],
)
def test_other_statements_tell_of_no_row_and_no_shape(text, source):
    assert [row["kind"] for row in told(text, **source)] == ["other"]
