# SPDX-License-Identifier: Apache-2.0
"""``arcion``: the profile of Arcion Replicant, for its JSON format in Kafka.

Arcion's documentation, https://docs.arcion.io/docs/references/cdc-format/json-cdc-format/:

- "JSON CDC format": the key is of "primary key, unique key, or row identifier key column", else
  null; a tombstone follows a delete; a key change is a delete and an insert.
- "Destination Apache Kafka": ``shard-key``, ``shard-function``, ``split-topic``.
- "Mapper configuration": the delimiter in topic names, an underscore by default.

Arcion does not document these rules, so they are our choice:

- a character that is not allowed in a topic name becomes ``_``;
- an option sets the suffix of the topics of snapshots (``split-topic``);
- ``MOD`` rejects values other than whole numbers from zero.
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

# "For each delete operation, Replicant generates a tombstone event". Tombstones of an Arcion stream
# as the source name no table, so they are dropped and generated again.
FORMATS: Final[Formats] = {"arcion-json": {"tombstones": "true"}}

_DELIMITERS: Final = {"underscore": "_", "dot": "."}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the profile ``arcion``.

    Attributes:
        delimiter: ``object-name-concat-delimiter``, between the parts of a table's name.
        topics: Tables (full name or its last parts) -> topics, as in the Mapper file.
        snapshot_suffix: The suffix of the topics of snapshot rows, if ``split-topic`` is true.
        shard_key: Tables -> the column for ``shard-function: MOD``, which determines the
            partition. Other tables have ``NONE``: Kafka chooses the partition by the key.
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
            "zero; Arcion documents MOD only for these"
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
        # schemas have a topic of their own (schema-dictionary)
        drops=frozenset({"schema", "transaction", "watermark", "tombstone"}),
        tombstones=True,
        null_keys=True,  # "Replicant uses the null value for the key"
    )
