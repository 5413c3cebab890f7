# SPDX-License-Identifier: Apache-2.0
"""``dts``: the profile of Alibaba Cloud DTS in Kafka, with its three partition policies.

Source: "Specify the policy for synchronizing data to Kafka partitions" of the DTS user guide. The
page names the three policies, Java's ``hashCode()``, and the data of partition 0.

DTS does not document these rules, so they are our choice:

- the hashed text: names joined by dots, key values joined without a separator;
- the partition of a negative hash: as in Canal;
- the message's key: none, unless the format has one;
- the partition of a key change: by the new key.
"""

from functools import partial
from typing import Final, Literal

import msgspec

from changelane.errors import ConfigError
from changelane.event import ChangeEvent, DataChange, SchemaChange, Truncate
from changelane.message import Message
from changelane.profiles.partitioners import hash_partition, java_hash
from changelane.profiles.profile import (
    Formats,
    PartitionsOf,
    Profile,
    broadcast,
    partition_count,
    table_of,
    unsplit,
)
from changelane.profiles.row_values import row_of, texts_of
from changelane.profiles.topic_names import check_template, topic_of
from changelane.schema import option_for_table

__all__ = ["FORMATS", "Options", "make"]

FORMATS: Final[Formats] = {
    "dts-avro": {},
    "canal-json": {"dialect": "dts"},
    "shareplex-json": {"dialect": "dts"},
}

Policy = Literal["partition_0", "table", "primary_key"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the profile ``dts``.

    Attributes:
        policy: ``partition_0``: "Synchronize All Data to Partition 0"; ``table``: "... Based on
            Hash Values of Database and Table Names"; ``primary_key``: "... Based on Hash Values of
            Primary Keys".
        topic: The topic of the task; may contain ``{database}``, ``{schema}`` and ``{table}``.
        topics: Tables (full name or its last parts) -> topics ("You can use the table name mapping
            feature to change the topics").
        partition_columns: Tables -> columns that are hashed instead of the primary key ("You can
            specify one or more columns as partition keys").
        non_row_events: The partitions for heartbeats, transactions and control records: partition
            0, each partition, or none. DTS does not document it.
    """

    policy: Policy | None = None
    topic: str | None = None
    topics: dict[str, str] = {}
    partition_columns: dict[str, list[str]] = {}
    non_row_events: Literal["partition_0", "broadcast", "drop"] = "partition_0"


def _place(
    options: Options, event: ChangeEvent, message: Message, partitions_of: PartitionsOf
) -> tuple[Message, ...]:
    table = table_of(event)
    is_about_table = isinstance(event, DataChange | SchemaChange | Truncate)
    topics = options.topics if is_about_table else {}
    topic = topic_of(table, topics, options.topic, "dts")
    placed = msgspec.structs.replace(message, topic=topic, headers=())
    if not is_about_table and options.non_row_events == "broadcast":
        return broadcast(placed, partition_count(topic, partitions_of))
    number = _partition_hash(options, event)
    partition = 0
    if number is not None:
        partition = hash_partition(number, partition_count(topic, partitions_of))
    return (msgspec.structs.replace(placed, partition=partition),)


def _partition_hash(options: Options, event: ChangeEvent) -> int | None:
    """Return the hash that determines the partition of an event; ``None`` for partition 0."""
    match event:
        case DataChange() if options.policy == "primary_key":
            columns = option_for_table(options.partition_columns, event.table)
            if columns is None:
                columns = [] if event.key is None else list(event.key.columns)
            # "If a table does not have a primary key or unique key, DTS synchronizes the data and
            # DDL statements of the table to Partition 0"
            texts = texts_of(event, row_of(event), columns)
            return java_hash("".join(texts)) if columns else None
        case DataChange() | SchemaChange() | Truncate() if options.policy == "table":
            # "If a DDL statement is irrelevant to a table, for example, CREATE DATABASE, the
            # statement is synchronized to Partition 0."
            return java_hash(str(event.table)) if event.table.name else None
    return None


def make(options: Options) -> Profile:
    """Return the profile.

    Raises:
        ConfigError: The policy or the topic is missing.
    """
    if options.policy is None:
        raise ConfigError("profile dts: set the option policy: partition_0, table or primary_key")
    if options.topic is None and not options.topics:
        raise ConfigError("profile dts: set the option topic, or topics")
    check_template("dts", "topic", options.topic)
    drops = {"tombstone"}
    if options.non_row_events == "drop":
        drops |= {"watermark", "transaction", "control"}
    return Profile(
        name="dts",
        formats=FORMATS,
        split=unsplit,
        place=partial(_place, options),
        drops=frozenset(drops),
    )
