# SPDX-License-Identifier: Apache-2.0
"""``dms``: the profile of AWS Database Migration Service with a Kafka target.

Source: "Using Apache Kafka as a target for AWS Database Migration Service" of the user guide,
https://docs.aws.amazon.com/dms/latest/userguide/CHAP_Target.Kafka.html:

- topic: the endpoint's ``Topic``, else ``kafka-default-topic``; object mapping sends tables to
  topics of their own;
- key: the partition key, ``schema.table`` or the primary key (options of the format);
- an update is one message, also if it changes the key; no tombstones.

DMS does not document how it chooses the partition, so this rule is ours: Kafka chooses it by the
key.
"""

from functools import partial
from typing import Final

import msgspec

from changelane.event import ChangeEvent
from changelane.message import Message
from changelane.profiles.partitioners import with_key_partition
from changelane.profiles.profile import Formats, PartitionsOf, Profile, table_of, unsplit
from changelane.profiles.topic_names import check_template, topic_of

__all__ = ["FORMATS", "Options", "make"]

FORMATS: Final[Formats] = {"aws-dms-json": {}}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the profile ``dms``.

    Attributes:
        topic: The topic of all tables; may contain ``{database}``, ``{schema}`` and ``{table}``.
        topics: Tables (full name or its last parts) -> topics.
        null_keys: Accept changes without a partition key; they have no order.
    """

    topic: str = "kafka-default-topic"
    topics: dict[str, str] = {}
    null_keys: bool = False


def _place(
    options: Options, event: ChangeEvent, message: Message, partitions_of: PartitionsOf
) -> tuple[Message, ...]:
    topic = topic_of(table_of(event), options.topics, options.topic, "dms")
    return (with_key_partition(msgspec.structs.replace(message, topic=topic), partitions_of),)


def make(options: Options) -> Profile:
    """Return the profile.

    Raises:
        ConfigError: The topic has an unknown placeholder.
    """
    check_template("dms", "topic", options.topic)
    return Profile(
        name="dms",
        formats=FORMATS,
        split=unsplit,
        place=partial(_place, options),
        drops=frozenset({"schema", "transaction", "watermark", "tombstone"}),
        null_keys=options.null_keys,
    )
