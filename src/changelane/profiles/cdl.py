# SPDX-License-Identifier: Apache-2.0
"""``cdl``: the profile of CDL, of Huawei's MapReduce Service, in Kafka.

Source: https://support.huaweicloud.com/intl/en-us/cmpntguide-lts-mrs/mrs_01_24811.html and the
other pages of that guide on CDL.

- CDL runs on Kafka Connect, and its "Topic Table Mapping" chooses the topics.
- ``log.cleanup.policy`` must be ``delete``, so there are no tombstones.
- CDL does not write DDL.
- Heartbeats are changes of a table of the source.

CDL does not document these rules, so they are our choice: the message's key (the columns of
``unique``), the partition (chosen by Kafka by the key, as in Connect), and a key change (a delete
and an insert, so that the changes of each key stay in one partition).
"""

from functools import partial
from typing import Final

import msgspec

from changelane.errors import ConfigError
from changelane.event import ChangeEvent, Watermark
from changelane.message import Message
from changelane.profiles.partitioners import with_key_partition
from changelane.profiles.profile import Formats, PartitionsOf, Profile, split_key_change, table_of
from changelane.profiles.topic_names import check_template, topic_of

__all__ = ["FORMATS", "Options", "make"]

FORMATS: Final[Formats] = {"cdl-json": {}, "cdl-debezium-json": {}}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the profile ``cdl``.

    Attributes:
        topic: The topic of all tables; may contain ``{database}``, ``{schema}`` and ``{table}``.
        topics: "Topic Table Mapping": tables (full name or its last parts) -> topics.
        heartbeat_topic: The topic of changes of ``cdc_cdl.cdc_heartbeat``.
        null_keys: Accept tables without a key; their changes have no order.
    """

    topic: str | None = None
    topics: dict[str, str] = {}
    heartbeat_topic: str | None = None
    null_keys: bool = False


def _split(event: ChangeEvent) -> tuple[ChangeEvent, ...]:
    # only the heartbeats of CDL are changes of its heartbeat table
    if isinstance(event, Watermark) and "message" not in event.details:
        return ()
    return split_key_change(event)


def _place(
    options: Options, event: ChangeEvent, message: Message, partitions_of: PartitionsOf
) -> tuple[Message, ...]:
    if isinstance(event, Watermark):
        topic = options.heartbeat_topic or message.topic
    else:
        topic = topic_of(table_of(event), options.topics, options.topic, "cdl")
    placed = msgspec.structs.replace(message, topic=topic)
    return (with_key_partition(placed, partitions_of),)


def make(options: Options) -> Profile:
    """Return the profile.

    Raises:
        ConfigError: No message would have a topic.
    """
    if options.topic is None and not options.topics:
        raise ConfigError("profile cdl: set the option topics, or topic for all tables")
    check_template("cdl", "topic", options.topic)
    return Profile(
        name="cdl",
        formats=FORMATS,
        split=_split,
        place=partial(_place, options),
        drops=frozenset({"schema", "transaction", "tombstone"}),
        null_keys=options.null_keys,
    )
