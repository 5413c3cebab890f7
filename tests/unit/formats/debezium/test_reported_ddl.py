# SPDX-License-Identifier: Apache-2.0
"""Statements that an event trigger of PostgreSQL writes into the log as logical messages."""

import base64
import json

import pytest

from changelane import Message, get_codec
from changelane.errors import DecodeError
from changelane.event import LogicalMessage, SchemaChange
from changelane.formats.debezium_envelope.reported_ddl import DDL_PREFIX
from changelane.position import PostgresPosition
from changelane.schema import TableId

SCRIPT = (
    "ALTER TABLE orders ADD x int; UPDATE orders SET x = 1;"
    "ALTER TABLE orders RENAME x TO y; CREATE TABLE t (id int)"
)
UNKNOWN = 'ALTER TABLE "public"."orders"'


def message(content: bytes, prefix: str = DDL_PREFIX) -> Message:
    source = {"connector": "postgresql", "name": "shop", "db": "shop", "schema": "", "table": ""}
    value = {
        "op": "m",
        "ts_ms": 1,
        "source": source | {"lsn": 200, "sequence": '["100","200"]', "txId": 5, "version": "3.6.1"},
        "message": {"prefix": prefix, "content": base64.b64encode(content).decode()},
    }
    return Message(json.dumps(value).encode(), json.dumps({"prefix": prefix}).encode())


def statement(**content: object) -> SchemaChange:
    told = {"schema": "public", "table": "orders"} | content
    (event,) = get_codec("debezium-json").decode(message(json.dumps(told).encode()))
    assert isinstance(event, SchemaChange)
    return event


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "ALTER TABLE orders ADD x int"),
        (2, "ALTER TABLE orders RENAME x TO y"),
        (0, UNKNOWN),
        (3, UNKNOWN),  # the number of another kind of statement
        (4, UNKNOWN),
    ],
)
def test_number_selects_the_statement_of_a_script(number: int, text: str) -> None:
    event = statement(query=SCRIPT, number=number)
    assert event.ddl == text
    assert event.action == "alter"
    assert event.table == TableId("shop", "public", "orders")
    assert event.position == PostgresPosition(200, 100)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT change_tables()",
        "ALTER TABLE others ADD x int",
        "ALTER TABLE private.orders ADD x int",
        "ALTER TABLE orders SET SCHEMA public",  # the former schema is not in the text
        None,
    ],
)
def test_statement_that_the_text_does_not_show_is_one_that_cannot_be_parsed(
    query: str | None,
) -> None:
    assert statement(query=query, number=1).ddl == UNKNOWN


COUNTED = (
    "ALTER TABLE orders ADD UNIQUE (a); /* c */ DROP FOREIGN TABLE f; ALTER FOREIGN TABLE orders "
    "ADD z int; CREATE FOREIGN TABLE f (id int) SERVER s; CREATE INDEX ON orders (a); "
    "CREATE GLOBAL /* c */ TEMP TABLE t (id int); ALTER -- c\n TABLE orders RENAME a TO b"
)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "ALTER TABLE orders ADD UNIQUE (a)"),
        (2, UNKNOWN),
        (3, "ALTER -- c\n TABLE orders RENAME a TO b"),
        (4, UNKNOWN),
    ],
)
def test_statements_are_counted_by_the_tags_that_the_trigger_counts(number: int, text: str) -> None:
    assert statement(query=COUNTED, number=number).ddl == text


def test_renamed_table_has_its_former_name() -> None:
    event = statement(query="ALTER TABLE old RENAME TO orders", number=1)
    assert (event.table.name, event.action) == ("old", "rename")


def test_statement_of_the_catalog_is_taken_as_it_is() -> None:
    event = statement(ddl='DROP TABLE "public"."orders"', query=None)
    assert (event.ddl, event.action) == ('DROP TABLE "public"."orders"', "drop")


@pytest.mark.parametrize("content", [b"hello", b"{}", b"\xff", b'{"schema":1,"table":"t"}'])
def test_message_of_another_program_stays_a_message(content: bytes) -> None:
    (event,) = get_codec("debezium-json").decode(message(content))
    assert isinstance(event, LogicalMessage)
    assert event.content == content
    (event,) = get_codec("debezium-json").decode(
        message(b'{"schema":"s","table":"t","ddl":"DROP TABLE s.t"}', "another")
    )
    assert isinstance(event, LogicalMessage)


def test_statement_that_is_not_utf_8_is_an_error() -> None:
    content = '{"schema":"public","table":"t\u00e9","query":"ALTER TABLE t ADD x int","number":1}'
    with pytest.raises(DecodeError) as raised:
        get_codec("debezium-json").decode(message(content.encode("latin-1")))
    assert raised.value.code == "invalid_utf8"
