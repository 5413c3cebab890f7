# SPDX-License-Identifier: Apache-2.0
"""``arcion``: how Arcion Replicant writes its JSON format to Kafka.

Arcion's documentation, https://docs.arcion.io/docs/references/cdc-format/json-cdc-format/:

- "JSON CDC format": the key is of "primary key, unique key, or row identifier key column", else
  null; a tombstone follows a delete; a changed key is a delete and an insert.
- "Destination Apache Kafka": ``shard-key``, ``shard-function``, ``split-topic``.
- "Mapper configuration": the delimiter in topic names, an underscore by default.

Arcion does not document these rules, so they are our choice:

- a character that no topic can have becomes ``_``;
- an option names the suffix of the topics of snapshots (``split-topic``);
- ``MOD`` of anything but whole numbers from zero is refused.
"""

from functools import partial
from typing import Final, Literal

import msgspec

from changelane.errors import EncodeError
from changelane.event import ChangeEvent, DataChange, Op
from changelane.formats.debezium_envelope.source_block import sanitised
from changelane.message import Message
from changelane.profiles.partitioners import with_key_partition
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
from changelane.schema import option_for_table

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
        snapshot_suffix: The suffix of the topics of snapshot rows, if ``split-topic`` is true.
        shard_key: Tables -> the column by which ``shard-function: MOD`` chooses the partition;
            other tables have ``NONE``, Kafka's choice by key.
    """

    delimiter: Literal["underscore", "dot"] = "underscore"
    topics: dict[str, str] = {}
    snapshot_suffix: str = ""
    shard_key: dict[str, str] = {}


def _topic(options: Options, event: ChangeEvent) -> str:
    table = table_of(event)
    topic = topic_of(table, options.topics, None, "arcion")
    if topic is None:
        parts = (part for part in (table.database, table.schema, table.name) if part)
        topic = sanitised(_DELIMITERS[options.delimiter].join(parts))
    if isinstance(event, DataChange) and (event.op is Op.READ or event.source.snapshot):
        topic += options.snapshot_suffix
    return topic


def _place(
    options: Options, event: ChangeEvent, message: Message, partitions_of: PartitionsOf
) -> tuple[Message, ...]:
    placed = msgspec.structs.replace(message, topic=_topic(options, event))
    column = option_for_table(options.shard_key, table_of(event))
    if column is None:
        return (with_key_partition(placed, partitions_of),)
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
