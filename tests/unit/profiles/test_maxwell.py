# SPDX-License-Identifier: Apache-2.0
"""Where Maxwell's messages go: topics, and partitions by its hash functions.

The hashes of Java are those of ``String.hashCode``; those of MurmurHash3 are from the package
mmh3 with Maxwell's seed.
"""

import decimal
import json

import pytest

from changelane import ConfigError, EncodeError, get_codec, profiles
from changelane.event import (
    Completeness,
    Control,
    DataChange,
    Key,
    Op,
    SchemaChange,
    Source,
    Transaction,
)
from changelane.event import TransactionMarker as Marker
from changelane.message import Message
from changelane.schema import TableId

TABLE = TableId("shop", None, "orders")
MAXWELL = Source("mysql", "maxwell")
DROP = SchemaChange(TABLE, "drop", "drop table orders", source=MAXWELL)


def change(op=Op.CREATE, key=("id",), **fields):
    fields = {"after": {"id": 7}, "source": MAXWELL} | fields
    return DataChange(op, TABLE, key=Key(key) if key else None, **fields)


def place(event, count=12, **options):
    profile = profiles.load("maxwell", options)
    codec = profile.codec("maxwell-json")
    (message,) = profile.encode(event, codec.encode, lambda _: count).messages
    return message.topic, message.partition


@pytest.mark.parametrize(
    ("options", "hashed"),
    [
        ({}, 3529462),  # "shop"
        ({"partition_by": "table"}, -1008770331),  # "orders"
        ({"partition_by": "primary_key"}, 55),  # "7"
        ({"partition_by": "transaction_id"}, 52687),  # "571"
        ({"partition_by": "thread_id"}, 1572),  # "15"
        ({"partition_hash": "murmur3"}, 226172948),
        ({"partition_by": "table", "partition_hash": "murmur3"}, 190045300),
        ({"partition_by": "primary_key", "partition_hash": "murmur3"}, 390675362),
    ],
)
def test_the_partition_is_the_absolute_remainder_of_the_hash(options, hashed):
    event = change(transaction=Transaction("571", last=True), details={"thread_id": 15})
    for count in (1, 7, 12, 64):
        assert place(event, count, **options) == ("maxwell", abs(hashed) % count)


def test_a_negative_hash_has_the_remainder_of_java():
    # in Java -1008770331 % 7 is -5, and 2 in Python
    assert place(change(), 7, partition_by="table")[1] == 1008770331 % 7


@pytest.mark.parametrize(
    ("row", "key", "text"),
    [
        ({"id": 7, "part2": "hello"}, ("id", "part2"), "7hello"),
        ({"id": 7, "part2": None}, ("id", "part2"), "7"),
        ({"id": None}, ("id",), "None"),
        ({"id": 'ä\n"q'}, ("id",), 'ä\n"q'),
        ({"id": decimal.Decimal("1.50")}, ("id",), "1.50"),
        ({"id": ["foo", "baz"]}, ("id",), "[foo, baz]"),
        ({"id": 7}, (), "shoporders"),
    ],
)
def test_the_primary_key_is_the_text_of_its_values_without_separators(row, key, text):
    from changelane.profiles.partitioners import java_hash

    _, partition = place(change(after=row, key=key), 997, partition_by="primary_key")
    assert partition == abs(java_hash(text)) % 997


def test_a_change_of_the_key_goes_where_the_new_key_belongs():
    update = change(Op.UPDATE, before={"id": 1}, before_holds=Completeness.FULL)
    assert place(update, partition_by="primary_key") == ("maxwell", 55 % 12)


def test_columns_determine_the_partition_or_the_fallback_does():
    options = {"partition_by": "column", "partition_columns": '["b","a"]'}
    event = change(after={"id": 7, "a": 1, "b": 2})
    assert place(event, **options)[1] == 1599 % 12  # "21"
    assert place(change(), **options)[1] == 3529462 % 12
    options["partition_by_fallback"] = "primary_key"
    assert place(change(), **options)[1] == 55 % 12
    with pytest.raises(ConfigError, match="partition_columns"):
        profiles.load("maxwell", {"partition_by": "column"})


def test_rows_without_a_transaction_have_the_text_null():
    assert place(change(), partition_by="transaction_id")[1] == 3392903 % 12


def test_the_topic_may_have_the_names_of_database_and_table():
    options = {"topic": "cdc.%{database}.%{table}"}
    assert place(change(), **options)[0] == "cdc.shop.orders"
    mark = Control("bootstrap-start", table=TABLE, source=MAXWELL)
    assert place(mark, **options)[0] == "cdc.shop.orders"
    assert place(DROP, ddl_topic="ddl", **options) == ("ddl", 3529462 % 12)
    with pytest.raises(EncodeError, match="ddl_topic"):
        place(DROP, **options)


def test_statements_go_by_their_database_whatever_rows_go_by():
    assert place(DROP, partition_by="primary_key") == ("maxwell", 3529462 % 12)


def test_events_that_maxwell_does_not_write_are_a_loss():
    profile = profiles.load("maxwell", {})
    codec = profile.codec("maxwell-json")
    encoded = profile.encode(Marker("begin", Transaction("1")), codec.encode, lambda _: 4)
    assert encoded.messages == ()
    assert encoded.losses == (("event:transaction", "maxwell does not write it"),)


def test_the_key_is_that_of_the_format():
    profile = profiles.load("maxwell", {})
    codec = profile.codec("maxwell-json", {"key_format": "array"})
    (message,) = profile.encode(change(), codec.encode, lambda _: 4).messages
    assert json.loads(message.key) == ["shop", "orders", [{"id": 7}]]
    assert get_codec("maxwell-json").decode(Message(message.value, message.key))[0].key
