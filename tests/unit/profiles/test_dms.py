# SPDX-License-Identifier: Apache-2.0
"""Where messages of AWS DMS go."""

import pytest

from changelane import ConfigError, EncodeError, profiles
from changelane.event import DataChange, Key, Op, SchemaChange
from changelane.profiles.partitioners import kafka_partition
from changelane.schema import TableId

TABLE = TableId(schema="public", name="region")
COUNT = 5


def change(op=Op.CREATE, table=TABLE, **images):
    return DataChange(op, table, key=Key(("id",)), **({"after": {"id": 1}} | images))


def sent(event, formats=None, **options):
    profile = profiles.load("dms", options)
    codec = profile.codec("aws-dms-json", formats or {})
    encode = lambda part: codec.encode(part, on_loss="ignore")  # noqa: E731 - one line
    return profile.encode(event, encode, lambda _: COUNT)


def test_the_default_topic_is_the_producers():
    (message,) = sent(change()).messages
    assert (message.topic, message.key) == ("kafka-default-topic", b"public.region")
    assert message.partition == kafka_partition(b"public.region", COUNT)


def test_tables_may_have_topics_of_their_own():
    (message,) = sent(change(), topics='{"region": "regions"}').messages
    assert message.topic == "regions"
    (message,) = sent(change(), topic="{schema}.{table}").messages
    assert message.topic == "public.region"
    with pytest.raises(ConfigError, match="option topic"):
        profiles.load("dms", {"topic": "{owner}"})


def test_a_change_of_the_key_is_one_message_at_the_new_key():
    event = change(Op.UPDATE, before={"id": 1}, after={"id": 2})
    options = {"keys": {"region": ["id"]}, "partition_key": "primary-key"}
    (message,) = sent(event, options).messages
    assert (message.key, message.partition) == (b"2", kafka_partition(b"2", COUNT))


def test_a_change_without_a_partition_key_is_refused_unless_the_user_accepts_it():
    event, options = change(), {"partition_key": "primary-key"}
    with pytest.raises(EncodeError, match="null_keys=true"):
        sent(event, options)
    (message,) = sent(event, options, null_keys="true").messages
    assert (message.key, message.partition) == (None, None)


def test_schema_changes_are_dropped_and_counted():
    encoded = sent(SchemaChange(TABLE, "alter", "ALTER TABLE region ADD x INT"))
    assert encoded.messages == ()
    assert encoded.losses == (("event:schema", "dms does not write it"),)
