# SPDX-License-Identifier: Apache-2.0
"""``arcion``: how Arcion Replicant writes its JSON format to Kafka.

Sources: "JSON CDC format" (the key is of "primary key, unique key, or row identifier key column",
else null; a tombstone follows a delete; a changed key is a delete and an insert), "Destination
Apache Kafka" (``shard-key``, ``shard-function``, ``split-topic``) and "Mapper configuration" (the
delimiter in topic names) of Arcion's documentation; B 4.1 and 4.2.

Not documented, and so a choice of ours: what becomes of characters that no topic can have (``_``),
what ``split-topic`` calls the topics of snapshots (an option says it), and ``MOD`` of anything but
whole numbers from zero (refused).
"""

from functools import partial
from typing import Final, Literal

import msgspec

from changelane.errors import EncodeError
from changelane.event import ChangeEvent, DataChange, Op
from changelane.formats.debezium_envelope.source_block import sanitised
from changelane.message import Message
from changelane.profiles.partitioners import by_key
from changelane.profiles.profile import (
    Formats,
    PartitionsOf,
    Profile,
    partition_count,
    split_key_change,
    table_of,
)
from changelane.profiles.row_values import row_of
from changelane.profiles.topic_names import topic_of
from changelane.schema import named

__all__ = ["FORMATS", "Options", "make"]

# "For each delete operation, Replicant generates a tombstone event": also where the delete was read
# from Arcion's own stream, whose tombstones name no table and are dropped
FORMATS: Final[Formats] = {"arcion-json": {"tombstones": "true"}}

_DELIMITERS: Final = {"underscore": "_", "dot": "."}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the profile ``arcion``.

    Attributes:
        delimiter: ``object-name-concat-delimiter``, between the parts of a table's name.
        topics: Tables, in full or by their last parts -> topics, as the Mapper file maps them.
        snapshot_suffix: What the topics of snapshot rows end in, where ``split-topic`` is true.
        shard_key: Tables -> the column by which ``shard-function: MOD`` chooses the partition;
            other tables have ``NONE``, Kafka's choice by key.
    """

    delimiter: Literal["underscore", "dot"] = "underscore"
    topics: dict[str, str] = {}
    snapshot_suffix: str = ""
    shard_key: dict[str, str] = {}


def _topic(options: Options, event: ChangeEvent) -> str:
    table = table_of(event)
    found = topic_of(table, options.topics, None, "arcion")
    if found is None:
        parts = (part for part in (table.database, table.schema, table.name) if part)
        found = sanitised(_DELIMITERS[options.delimiter].join(parts))
    if isinstance(event, DataChange) and (event.op is Op.READ or event.source.snapshot):
        found += options.snapshot_suffix
    return found


def _place(
    options: Options, event: ChangeEvent, message: Message, partitions_of: PartitionsOf
) -> tuple[Message, ...]:
    placed = msgspec.structs.replace(message, topic=_topic(options, event))
    column = named(options.shard_key, table_of(event))
    if column is None:
        return (by_key(placed, partitions_of),)
    value = row_of(event).get(column) if isinstance(event, DataChange) else None
    if type(value) is not int or value < 0:
        raise EncodeError(
            f"the shard key {column!r} of table {table_of(event)} is not a whole number from "
            "zero: Arcion does not document what MOD is of others"
        )
    partition = value % partition_count(placed.topic, partitions_of)
    return (msgspec.structs.replace(placed, partition=partition),)


def make(options: Options) -> Profile:
    """Return the profile."""
    return Profile(
        name="arcion",
        formats=FORMATS,
        split=split_key_change,
        place=partial(_place, options),
        # schemas travel beside the stream (schema-dictionary)
        drops=frozenset({"schema", "transaction", "watermark", "tombstone"}),
        tombstones=True,
        null_keys=True,  # "Replicant uses the null value for the key"
    )
