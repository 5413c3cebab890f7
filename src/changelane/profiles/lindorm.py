# SPDX-License-Identifier: Apache-2.0
"""``lindorm``: the profile of Alibaba Cloud Lindorm's change tracking in Kafka.

Source: "Data subscription" of the Lindorm user guide,
https://www.alibabacloud.com/help/en/lindorm/user-guide/real-time-data-subscription: a record is a
pair in which "the key is the primary key value of the row"; a subscription names one table and one
topic.

Lindorm does not document these rules, so they are our choice: the bytes of the key (the JSON object
of the format) and the partition (chosen by Kafka by the key). Lindorm's keys do not change; a key
change of another source is a delete and an insert. Lindorm writes no DDL and no heartbeats.
"""

from functools import partial
from typing import Final

import msgspec

from changelane.errors import ConfigError
from changelane.event import ChangeEvent
from changelane.message import Message
from changelane.profiles.partitioners import with_key_partition
from changelane.profiles.profile import Formats, PartitionsOf, Profile, split_key_change, table_of
from changelane.profiles.topic_names import check_template, topic_of

__all__ = ["FORMATS", "Options", "make"]

FORMATS: Final[Formats] = {"lindorm-json": {}}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the profile ``lindorm``.

    Attributes:
        topic: The topic of all tables; may contain ``{database}``, ``{schema}`` and ``{table}``.
        topics: Tables (full name or its last parts) -> topics, one per subscription.
        null_keys: Accept tables without a key, which Lindorm does not have; their changes have no
            order.
    """

    topic: str | None = None
    topics: dict[str, str] = {}
    null_keys: bool = False


def _place(
    options: Options, event: ChangeEvent, message: Message, partitions_of: PartitionsOf
) -> tuple[Message, ...]:
    topic = topic_of(table_of(event), options.topics, options.topic, "lindorm")
    return (with_key_partition(msgspec.structs.replace(message, topic=topic), partitions_of),)


def make(options: Options) -> Profile:
    """Return the profile.

    Raises:
        ConfigError: No message would have a topic.
    """
    if options.topic is None and not options.topics:
        raise ConfigError("profile lindorm: set the option topics, or topic for all tables")
    check_template("lindorm", "topic", options.topic)
    return Profile(
        name="lindorm",
        formats=FORMATS,
        split=split_key_change,
        place=partial(_place, options),
        drops=frozenset({"schema", "transaction", "watermark", "tombstone"}),
        null_keys=options.null_keys,
    )
