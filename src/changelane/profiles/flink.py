# SPDX-License-Identifier: Apache-2.0
"""``flink``: the profile of the connector ``upsert-kafka`` of Flink SQL.

Source: "Upsert Kafka SQL Connector",
https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/upsert-kafka/, and the
class ``DynamicKafkaRecordSerializationSchema`` of https://github.com/apache/flink-connector-kafka:

- topic: ``topic``, one for each table of Flink;
- key: the columns of the primary key, in the format of keys;
- the partition is Kafka's choice by the key, because the connector sets no partitioner;
- a delete, and the old row of a change of the key, is a message without a value.
"""

from functools import partial
from typing import Final

import msgspec

from changelane.event import ChangeEvent
from changelane.message import Message
from changelane.profiles.partitioners import with_key_partition
from changelane.profiles.profile import Formats, PartitionsOf, Profile, split_key_change, table_of
from changelane.profiles.topic_names import check_template, topic_of

__all__ = ["FORMATS", "Options", "make"]

FORMATS: Final[Formats] = {"plain-json": {}}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the profile ``flink``.

    Attributes:
        topic: The topic; may contain ``{database}``, ``{schema}`` and ``{table}``, because a topic
            has the rows of one table.
        topics: Tables (full name or its last parts) -> topics.
    """

    topic: str = "{table}"
    topics: dict[str, str] = {}


def _place(
    options: Options, event: ChangeEvent, message: Message, partitions_of: PartitionsOf
) -> tuple[Message, ...]:
    topic = topic_of(table_of(event), options.topics, options.topic, "flink")
    return (with_key_partition(msgspec.structs.replace(message, topic=topic), partitions_of),)


def make(options: Options) -> Profile:
    """Return the profile.

    Raises:
        ConfigError: The topic has an unknown placeholder.
    """
    check_template("flink", "topic", options.topic)
    kinds = {"schema", "truncate", "transaction", "watermark", "message", "control", "tombstone"}
    return Profile(
        name="flink",
        formats=FORMATS,
        split=split_key_change,
        place=partial(_place, options),
        drops=frozenset(kinds),
        tombstones=True,
    )
