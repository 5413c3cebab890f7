# SPDX-License-Identifier: Apache-2.0
"""Where messages of TiCDC go. The numbers are those of the producer's own tests.

``cdc/sink/dmlsink/mq/dispatcher/partition`` (``table_test.go``, ``index_value_test.go``) of
https://github.com/pingcap/tiflow; 16 partitions.
"""

import datetime as dt
import decimal

import pytest

from changelane import ConfigError, EncodeError, profiles
from changelane.event import DataChange, Key, Op, SchemaChange, Source, Watermark
from changelane.position import SequencePosition
from changelane.profiles.ticdc import _text
from changelane.schema import Column, TableId, TableSchema
from changelane.types import (
    Bits,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Enum,
    Float,
    InstantType,
    Integer,
    Set,
    String,
    Timestamp,
)

COUNT = 16
SCHEMA = TableSchema((Column("a", Integer(64)), Column("b", Integer(64))))


def sent(event, name="ticdc-open-json", **options):
    profile = profiles.load("ticdc", options)
    codec = profile.codec(name)
    encode = lambda part: codec.encode(part, on_loss="ignore")  # noqa: E731 - one line
    return profile.encode(event, encode, lambda _: COUNT).messages


def change(table="t1", key=("a",), op=Op.CREATE, **images):
    images = images or {"after": {"a": 11, "b": 22}}
    return DataChange(op, TableId("test", None, table), Key(key), **images, schema=SCHEMA)


@pytest.mark.parametrize(("table", "partition"), [("t1", 15), ("t2", 5), ("t3", 3)])
def test_the_partition_of_a_table_is_that_of_the_producer(table, partition):
    (message,) = sent(change(table))
    assert (message.topic, message.partition) == ("ticdc", partition)


@pytest.mark.parametrize(
    ("table", "key", "row", "partition"),
    [
        ("t1", ("a",), {"a": 11, "b": 22}, 2),
        ("t1", ("a",), {"a": 22, "b": 22}, 11),
        ("t1", ("a",), {"a": 11, "b": 33}, 2),
        ("t2", ("a", "b"), {"a": 11, "b": 22}, 5),
        ("t2", ("b", "a"), {"a": 11, "b": 22}, 5),
        ("t2", ("a", "b"), {"a": 11, "b": 0}, 14),
        ("t2", ("a", "b"), {"a": 11, "b": 33}, 2),
    ],
)
def test_the_partition_of_a_key_is_that_of_the_producer(table, key, row, partition):
    event = change(table, key, after=row)
    (message,) = sent(event, partition="index-value")
    assert message.partition == partition
    (message,) = sent(event, partition="columns", columns=list(key))
    assert message.partition == partition


def test_a_change_of_the_key_is_a_delete_and_an_insert():
    event = change(op=Op.UPDATE, before={"a": 22, "b": 1}, after={"a": 11, "b": 1})
    assert [message.partition for message in sent(event, partition="index-value")] == [11, 2]


def test_deletes_in_avro_have_no_value():
    event = change(op=Op.DELETE, before={"a": 11, "b": 1})
    (message,) = sent(event, "ticdc-avro", topic_rule="{schema}_{table}", partition="index-value")
    assert (message.topic, message.value, message.partition) == ("test_t1", None, 2)


def test_the_commit_time_may_be_the_partition():
    event = change()
    with pytest.raises(EncodeError, match="needs the commit time"):
        sent(event, partition="ts")
    event = DataChange(
        Op.CREATE, event.table, event.key, None, event.after, SCHEMA, SequencePosition(35)
    )
    assert sent(event, partition="ts")[0].partition == 3


def test_statements_and_resolved_times_are_in_all_partitions():
    statement = SchemaChange(TableId("test", None, "t 1"), "alter", "ALTER TABLE `t 1` ADD c int")
    messages = sent(statement, topic_rule="p-{schema}.{table}")
    assert {message.topic for message in messages} == {"p-test.t_1"}
    assert [message.partition for message in messages] == list(range(COUNT))
    (message,) = sent(statement, "canal-json")
    assert message.partition == 0
    source = Source(product="tidb", connector="ticdc")
    watermark = Watermark("resolved", SequencePosition(1 << 60), source, None)
    assert len(sent(watermark)) == COUNT
    assert not sent(watermark, topic_rule="{table}")


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (None, "x", b"x"),
        (String(), "\u20ac", "\u20ac".encode()),
        (Bytes(), b"\xff", b"\xff"),
        (Decimal(9, 2), decimal.Decimal("1.50"), b"1.50"),
        (Float(64), 1e21, b"1000000000000000000000"),
        (Float(64), 2.0, b"2"),
        (Float(64), -0.0, b"-0"),
        (Float(64), 1.5e-7, b"0.00000015"),
        (Float(64), float("inf"), None),
        (Boolean(), True, b"1"),
        (Bits(4), "0101", b"5"),
        (Enum(("a", "b")), "b", b"2"),
        (Set(("a", "b", "c")), "a,c", b"5"),
        (Date(), dt.date(2024, 2, 29), b"2024-02-29"),
        (Timestamp(3), dt.datetime(2024, 2, 29, 1, 2, 3), b"2024-02-29 01:02:03.000"),
        (InstantType(), dt.datetime(2024, 2, 29, tzinfo=dt.UTC), None),
        (Float(32), 0.1, None),
        (Enum(), "b", None),
        (Set(("a",)), "b", None),
        (None, True, None),
    ],
)
def test_values_have_the_texts_of_the_producer_or_none(kind, value, text):
    assert _text(kind, value) == text


def test_values_without_a_known_text_are_refused():
    row = {"a": 11, "b": 1.5}
    schema = TableSchema((Column("b", Float(32)),))
    event = DataChange(Op.CREATE, TableId("test", None, "t"), Key(("b",)), after=row, schema=schema)
    with pytest.raises(EncodeError, match="column 'b', which determines the partition"):
        sent(event, partition="index-value")
    with pytest.raises(EncodeError, match="no key for partition"):
        sent(change(key=()), partition="index-value")
    for options in ({"partition": "columns"}, {"topic_rule": "{table}{schema}"}):
        with pytest.raises(ConfigError):
            profiles.load("ticdc", options)
