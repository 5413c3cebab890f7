# SPDX-License-Identifier: Apache-2.0
"""Where messages of Oracle GoldenGate's Kafka handler go."""

import pytest

from changelane import ConfigError, EncodeError, profiles
from changelane.event import DataChange, Key, Op, SchemaChange
from changelane.profiles.partitioners import kafka_partition
from changelane.schema import TableId

COUNT = 7
TABLE = TableId("PDB1", "HR", "EMPLOYEES")


def sent(event, formats=None, **options):
    profile = profiles.load("goldengate", options)
    codec = profile.codec("ogg-json", formats or {})
    encode = lambda part: codec.encode(part, on_loss="ignore")  # noqa: E731 - one line
    return profile.encode(event, encode, lambda _: COUNT).messages


def change(op=Op.CREATE, table=TABLE, **images):
    images = images or {"after": {"ID": 1, "B": "x"}}
    return DataChange(op, table, Key(("ID", "B")), **images)


@pytest.mark.parametrize(
    ("template", "topic"),
    [
        ("${tableName}", "EMPLOYEES"),
        ("ogg-${schemaName}.${tableName}", "ogg-HR.EMPLOYEES"),
        ("${fullyQualifiedTableName}", "PDB1.HR.EMPLOYEES"),
        ("all", "all"),
    ],
)
def test_the_topic_is_that_of_the_template(template, topic):
    (message,) = sent(change(), topic_mapping_template=template)
    assert (message.topic, message.key) == (topic, b"1_x")
    assert message.partition == kafka_partition(b"1_x", COUNT)


def test_an_update_is_one_message_at_the_new_key():
    event = change(Op.UPDATE, before={"ID": 1, "B": "x"}, after={"ID": 2, "B": "x"})
    assert [message.key for message in sent(event)] == [b"2_x"]


def test_what_the_template_or_the_order_lacks_is_refused():
    with pytest.raises(ConfigError, match="is not one of"):
        profiles.load("goldengate", {"topic_mapping_template": "${opType}"})
    with pytest.raises(EncodeError, match="no schemaName"):
        sent(change(table=TableId(name="T")), topic_mapping_template="${schemaName}")
    with pytest.raises(EncodeError, match="null_keys=true"):
        sent(change(), {"message_key": "none"})
    assert sent(change(), {"message_key": "none"}, null_keys="true")[0].partition is None
    assert not sent(SchemaChange(TABLE, "alter", "ALTER TABLE EMPLOYEES ADD C NUMBER"))
