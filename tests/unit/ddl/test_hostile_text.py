# SPDX-License-Identifier: Apache-2.0
"""Texts that make a careless regular expression try every way to divide them.

Each has 100,000 characters: in quadratic time it takes minutes, in linear time milliseconds.
"""

import time

import pytest

from changelane import formats
from changelane.codec import get_codec
from changelane.ddl import parse as parse_statements
from changelane.ddl.parse_column import literal
from changelane.errors import DecodeError, EncodeError
from changelane.event import DataChange, Key, Op, Source
from changelane.formats.canal.table_plan import bare
from changelane.formats.dts.type_numbers import MYSQL, number_of, stated_charset
from changelane.message import Message
from changelane.schema import Column, TableId, TableSchema
from changelane.sql_types import mysql, oracle, postgresql
from changelane.testing.conformance import MOST_SECONDS
from changelane.transforms.canonical_text import canonical_text
from changelane.types import Array, Decimal, Enum, Integer, String, Time, Timestamp

SIZE = 100_000
PIECES = [
    " ",
    "(",
    "( ",
    "'",
    "' ",
    "'',",
    "'a',",
    "[",
    "[ ",
    "[]",
    "a ",
    "1 ",
    "collate ",
    "#",
    "\t",
    ".",
]
TYPE_TEXTS = [
    prefix + piece * (SIZE // len(piece)) + suffix
    for prefix in ("", "int", "enum(", "int(1", "numeric(", "char character set ")
    for piece in PIECES
    for suffix in ("", "!", ")")
]


@pytest.fixture(autouse=True)
def bounded():
    start = time.thread_time()
    yield
    assert time.thread_time() - start < MOST_SECONDS


@pytest.mark.parametrize("piece", PIECES)
def test_type_texts_are_read_in_one_pass(piece):
    for text in (text for text in TYPE_TEXTS if piece * 50 in text):
        mysql.parse(text)
        postgresql.parse(text[:1000])
        oracle.parse(text[:1000])
        bare(text)
        column = Column("a", String(), text)
        number_of(MYSQL, column)
        stated_charset(column)


@pytest.mark.parametrize("name", formats.names())
def test_type_texts_are_written_in_one_pass(name):
    codec = get_codec(name)
    for text in ("int" + " " * SIZE + "!", "enum(" + " " * SIZE + "!", "(" * SIZE):
        schema = TableSchema((Column("id", Integer()), Column("a", String(), text)))
        row = {"id": 1, "a": "x"}
        source = Source("mysql")
        key = Key(("id",))
        event = DataChange(
            Op.CREATE, TableId("d", None, "t"), key, None, row, schema, source=source
        )
        try:
            messages = codec.encode(event, on_loss="ignore").messages
        except EncodeError:
            continue
        for message in messages:
            codec.decode(message)


NUMBERS = ["0" * SIZE + "!", "-" + "1" * SIZE + ".x", "0." + "0" * SIZE + "!"]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: text[:3])
def test_texts_of_numbers_are_read_in_one_pass(number):
    rows = f'"data":[{{"a":"{number}"}}],"mysqlType":{{"a":"decimal(10,2)"}}'
    head = '"database":"d","table":"t","type":"INSERT","isDdl":false'
    with pytest.raises(DecodeError):
        get_codec("canal-json").decode(Message(f"{{{head},{rows}}}".encode()))
    blob = (
        '{"schema":{"dataColumn":[{"name":"a","type":"DECIMAL"}],"source":{"tableName":"t"}},'
        f'"payload":{{"op":"INSERT","after":{{"dataColumn":{{"a":"{number}"}}}}}},"version":"0.0.1"}}'
    )
    with pytest.raises(DecodeError):
        get_codec("datahub-blob").decode(Message(blob.encode()))


def test_texts_of_times_are_masked_and_compared_in_one_pass():
    text = "10:00:00." + "0" * SIZE + "x"
    assert canonical_text(Time(), text) == text
    assert canonical_text(Time(), "10:00:00.1200") == "10:00:00.12"
    assert canonical_text(Time(), "10:00:00.1020304") == "10:00:00.1020304"


@pytest.mark.parametrize(
    "text", ["'a'::" + " " * SIZE + "!", "'a'" + " " * SIZE + "!", "'" + "''" * SIZE]
)
def test_defaults_are_read_in_one_pass(text):
    assert literal(text, Decimal(10, 2)) is not None


@pytest.mark.parametrize(
    "text", ["/*!" + "'\\" * (SIZE // 2), "!" + '"\\' * (SIZE // 2), "/*" * SIZE]
)
def test_statements_are_read_in_one_pass(text):
    assert parse_statements(text, "mysql")


def test_what_the_expressions_match_stays_the_same():
    assert bare("ENUM('a','b')") == "enum"
    assert bare("decimal (10,2) unsigned") == "decimal unsigned"
    assert [bare(text) for text in ("int(", "int)", ")(", "a(b)c(d)e", "a\t(1)")] == [
        *("int(", "int)", ")(", "ae", "a"),
    ]
    assert mysql.parse("enum( 'a' , 'it''s' )").kind == Enum(("a", "it's"))
    assert mysql.parse("enum( )").kind == Enum(())
    assert mysql.parse("enum('a',)").kind == Enum(None)
    assert postgresql.parse("int4 [ 3 ] [] ") == Array(Integer(32))
    assert postgresql.parse("text array[4]") == postgresql.parse("text  array")
    assert postgresql.parse("text array array[]") == Array(String())
    assert oracle.parse("timestamp( 3 )") == Timestamp(3)
    assert number_of(MYSQL, Column("a", Integer(64, unsigned=True), "bigint(20) unsigned")) == 8
    assert number_of(MYSQL, Column("a", String(), "varchar(9) collate utf8_bin#15")) == 253
    assert stated_charset(Column("a", String(), "char(3) CHARACTER SET latin1")) == "latin1"
    assert literal("'3.50'::numeric(10,2)", Decimal(10, 2)) is not None
    assert literal("'3.50' :: character varying", String()) == "3.50"
    assert literal("'it''s'", String()) == "it's"
    assert literal("''", String()) == ""
