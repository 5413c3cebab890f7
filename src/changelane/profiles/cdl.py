# SPDX-License-Identifier: Apache-2.0
"""``cdl``: how CDL of Huawei's MapReduce Service writes to Kafka.

Sources: B 2.4 and the pages that it names. CDL runs on Kafka Connect; topics are chosen by its
"Topic Table Mapping"; ``log.cleanup.policy`` has to be ``delete``, so that there are no tombstones;
DDL is not transported; heartbeats are changes of a table of the source.

Not documented, and so a choice of ours: the message's key (that of the format: the columns of
``unique``), the partition (Kafka's choice by key, to which Connect leaves it), and a change of the
key (a delete and an insert, so that each key's changes stay in one partition).
"""

from functools import partial
from typing import Final

import msgspec

from changelane.errors import ConfigError
from changelane.event import ChangeEvent, Watermark
from changelane.message import Message
from changelane.profiles.partitioners import by_key
from changelane.profiles.profile import Formats, PartitionsOf, Profile, split_key_change, table_of
from changelane.profiles.topic_names import check_template, topic_of

__all__ = ["FORMATS", "Options", "make"]

FORMATS: Final[Formats] = {"cdl-json": {}, "cdl-debezium-json": {}}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the profile ``cdl``.

    Attributes:
        topic: The topic of all tables; may hold ``{database}``, ``{schema}`` and ``{table}``.
        topics: "Topic Table Mapping": tables, in full or by their last parts -> topics.
        heartbeat_topic: The topic of changes of ``cdc_cdl.cdc_heartbeat``.
        null_keys: Accept tables without key, whose changes then lie in no order.
    """

    topic: str | None = None
    topics: dict[str, str] = {}
    heartbeat_topic: str | None = None
    null_keys: bool = False


def _split(event: ChangeEvent) -> tuple[ChangeEvent, ...]:
    # of CDL's own heartbeats the whole message is kept; nobody else's is a change of its table
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
    return (by_key(placed, partitions_of),)


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
