# SPDX-License-Identifier: Apache-2.0
"""Where messages of DataHub's BLOB topics go through its endpoint for Kafka clients."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane import ConfigError, profiles
from changelane.event import DataChange, Key, Op, SchemaChange, Watermark
from changelane.position import SequencePosition
from changelane.profiles.datahub import shard_of
from changelane.schema import Column, TableId, TableSchema
from changelane.types import parse_type

TABLE = TableId("example_db", None, "t")
SCHEMA = TableSchema((Column("id", parse_type("int64")), Column("name", parse_type("string"))))
COUNT = 4


def change(op=Op.CREATE, key=("id",), **images):
    images = images or {"after": {"id": 1, "name": "joe"}}
    position = SequencePosition(1605339516000000005)
    key = Key(key) if key else None
    return DataChange(op, TABLE, key=key, schema=SCHEMA, position=position, **images)


def sent(event, **options):
    profile = profiles.load("datahub", {"project": "p", "topic": "t"} | options)
    codec = profile.codec("datahub-blob")
    found = profile.encode(event, lambda e: codec.encode(e, on_loss="ignore"), lambda _: COUNT)
    assert all((m.topic, m.key, m.headers) == ("p.t", None, ()) for m in found.messages)
    return found.messages


def test_rows_go_by_their_primary_key_or_the_users():
    assert [m.partition for m in sent(change())] == [shard_of("1", COUNT)]
    assert [m.partition for m in sent(change(key=("id", "name")))] == [shard_of("1\x01joe", COUNT)]
    custom = sent(change(), keys='{"example_db.t": ["name"]}')
    assert [m.partition for m in custom] == [shard_of("joe", COUNT)]


def test_rows_without_key_and_statements_go_by_the_tables_name():
    expected = shard_of("example_db.t", COUNT)
    assert [m.partition for m in sent(change(key=None))] == [expected]
    ddl = SchemaChange(TABLE, "alter", "alter table t add x int")
    assert [m.partition for m in sent(ddl)] == [expected]


def test_both_halves_of_an_update_lie_together_and_of_a_moved_row_each_by_its_key():
    after = {"id": 1, "name": "ann"}
    update = change(Op.UPDATE, before={"id": 1, "name": "joe"}, after=after)
    assert [m.partition for m in sent(update)] == [shard_of("1", COUNT)] * 2
    for number in range(2, 9):
        moved = change(Op.UPDATE, before={"id": number, "name": "joe"}, after=after)
        ops = [json.loads(m.value)["payload"]["op"] for m in sent(moved)]
        assert ops == ["UPDATE_BEFOR", "UPDATE_AFTER"]
        expected = [shard_of(str(number), COUNT), shard_of("1", COUNT)]
        assert [m.partition for m in sent(moved)] == expected


def test_heartbeats_go_to_the_topic_of_the_option():
    assert [m.partition for m in sent(Watermark())] == [0]
    assert [m.partition for m in sent(Watermark(), non_row_events="broadcast")] == [0, 1, 2, 3]
    assert sent(Watermark(), non_row_events="drop") == ()


@given(st.text(), st.integers(1, 64))
def test_shards_share_the_128_bits_of_md5_evenly(text, count):
    data = text.encode("utf-8", "surrogatepass")
    number = int(hashlib.md5(data, usedforsecurity=False).hexdigest(), 16)
    begins = [-(-(shard << 128) // count) for shard in range(count)]
    assert shard_of(text, count) == max(at for at in range(count) if begins[at] <= number)


@pytest.mark.parametrize(
    ("project", "topic"), [(None, "t"), ("p", None), ("p.q", "t"), ("p", "a-b"), ("p", "")]
)
def test_names_that_datahub_would_change_are_refused(project, topic):
    with pytest.raises(ConfigError, match=r"profile datahub: set the option (project|topic)"):
        profiles.load("datahub", {"project": project, "topic": topic})
