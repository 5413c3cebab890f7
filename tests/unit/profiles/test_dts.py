# SPDX-License-Identifier: Apache-2.0
"""Where DTS's messages go, by each of its three policies."""

import pytest

from changelane import ConfigError, EncodeError, profiles
from changelane.event import (
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
from changelane.profiles.partitioners import hash_partition, java_hash
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNAVAILABLE, parse_type

ORDERS = TableId("shop", None, "orders")
SOURCE = Source(product="mysql")
POLICIES = ["partition_0", "table", "primary_key"]
FORMATS = ["dts-avro", "canal-json", "shareplex-json"]
COUNT = 7


def change(op=Op.CREATE, key=("id",), table=ORDERS, types=None, **parts):
    kinds = {"id": "int64", "x": "string"} if types is None else types
    schema = TableSchema(tuple(Column(name, parse_type(kind)) for name, kind in kinds.items()))
    images = {"after": {"id": 12, "x": "a"}} | parts
    return DataChange(
        op, table, key=Key(key) if key else None, schema=schema, source=SOURCE, **images
    )


def encoded(event, policy, format_name="dts-avro", **options):
    profile = profiles.load("dts", {"policy": policy, "topic": "task"} | options)
    codec = profile.codec(format_name)
    return profile.encode(event, lambda e: codec.encode(e, on_loss="ignore"), lambda _: COUNT)


def place(event, policy, format_name="dts-avro", **options):
    (message,) = encoded(event, policy, format_name, **options).messages
    assert message.key is None  # "not documented": none, rather than an invented one
    assert message.headers == ()
    return message.topic, message.partition


def hashed(text):
    return hash_partition(java_hash(text), COUNT)


@pytest.mark.parametrize("format_name", FORMATS)
def test_all_data_and_statements_go_to_partition_0(format_name):
    assert place(change(), "partition_0", format_name) == ("task", 0)
    if format_name != "shareplex-json":
        ddl = SchemaChange(ORDERS, "alter", "alter table orders add y int")
        assert place(ddl, "partition_0", format_name) == ("task", 0)


@pytest.mark.parametrize("format_name", FORMATS)
def test_data_and_statements_of_a_table_share_the_partition_of_its_name(format_name):
    expected = ("task", hashed("shop.orders"))
    assert expected[1] != 0
    assert place(change(), "table", format_name) == expected
    if format_name != "shareplex-json":
        ddl = SchemaChange(ORDERS, "alter", "alter table orders add y int")
        assert place(ddl, "table", format_name) == expected
        assert place(Truncate(ORDERS), "table", format_name) == expected


@pytest.mark.parametrize("policy", POLICIES)
def test_a_statement_of_no_table_goes_to_partition_0(policy):
    ddl = SchemaChange(TableId("shop"), "create_database", "create database shop")
    assert place(ddl, policy) == ("task", 0)


@pytest.mark.parametrize("format_name", FORMATS)
def test_rows_go_by_the_hash_of_their_primary_key(format_name):
    assert place(change(), "primary_key", format_name) == ("task", hashed("12"))
    two = change(key=("id", "x"))
    assert place(two, "primary_key", format_name) == ("task", hashed("12a"))


def test_with_primary_keys_statements_and_tables_without_key_go_to_partition_0():
    ddl = SchemaChange(ORDERS, "alter", "alter table orders add y int")
    assert place(ddl, "primary_key")[1] == 0
    assert place(Truncate(ORDERS), "primary_key")[1] == 0
    assert place(change(key=None), "primary_key")[1] == 0


def test_columns_of_the_users_choice_are_hashed_instead_of_the_key():
    columns = {"partition_columns": '{"orders": ["x"]}'}
    assert place(change(), "primary_key", **columns)[1] == hashed("a")
    other = change(table=TableId("shop", None, "others"))
    assert place(other, "primary_key", **columns)[1] == hashed("12")


def test_a_deleted_row_and_a_partial_update_have_the_partition_of_their_row():
    expected = hashed("12")
    delete = change(Op.DELETE, before={"id": 12}, after=None)
    update = change(Op.UPDATE, before={"id": 12, "x": "a"}, after={"x": "b"})
    moved = change(Op.UPDATE, before={"id": 5, "x": "a"}, after={"id": 12, "x": "a"})
    for event in (delete, update, moved):
        assert place(event, "primary_key")[1] == expected


def test_a_key_that_is_not_in_the_row_has_no_partition():
    event = change(Op.UPDATE, before=None, after={"id": UNAVAILABLE, "x": "a"})
    with pytest.raises(EncodeError, match="has no value of column 'id'"):
        place(event, "primary_key")


def test_null_counts_as_an_empty_text():
    event = change(key=("x",), after={"id": 1, "x": None})
    assert place(event, "primary_key")[1] == hashed("")


def test_heartbeats_and_transactions_go_to_the_topics_of_the_options():
    notices = [Watermark(), TransactionMarker("begin", Transaction("7"))]
    for event in notices:
        assert place(event, "table") == ("task", 0)
        sent = encoded(event, "table", non_row_events="broadcast").messages
        assert [message.partition for message in sent] == list(range(COUNT))
        dropped = encoded(event, "table", non_row_events="drop")
        assert (dropped.messages, len(dropped.losses)) == ((), 1)


def test_a_table_can_have_a_topic_of_its_own():
    topics = {"topics": '{"orders": "orders-only"}'}
    assert place(change(), "table", **topics)[0] == "orders-only"
    assert place(change(), "table", topic="dts.{database}.{table}")[0] == "dts.shop.orders"
    with pytest.raises(EncodeError, match="has no schema for its topic"):
        place(change(), "table", topic="dts.{schema}.{table}")
    hostile = change(table=TableId("shop", None, "a b"))
    with pytest.raises(EncodeError, match=r"'dts\.a b' is not a valid topic name"):
        place(hostile, "table", topic="dts.{table}")


def test_tombstones_are_not_written():
    assert encoded(Tombstone(ORDERS, {"id": 1}), "table").messages == ()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topic": "t"}, "set the option policy: partition_0, table or primary_key"),
        ({"policy": "table"}, "set the option topic"),
        ({"policy": "tabel", "topic": "t"}, "'tabel' is not one of .*did you mean 'table'"),
        ({"policy": "table", "topic": "{db}"}, "{db} is not one of"),
    ],
)
def test_errors_of_options_name_the_remedy(options, reason):
    with pytest.raises(ConfigError, match=reason):
        profiles.load("dts", options)
