# SPDX-License-Identifier: Apache-2.0
"""``datahub``: the profile of BLOB topics of Alibaba Cloud DataHub, for its Kafka endpoint.

Sources:

- "Compatibility with Kafka" of the DataHub documentation: the topic is ``project.topic``, a
  partition is an active shard, the value is the BLOB, and a key becomes the attribute
  ``__kafka_key__``.
- "DataHub message formats" of DataWorks, for Data Integration: a database has one topic, and rows
  are sharded by primary key or, without a primary key, by the table's name. So messages have no
  key, and the producer sets the partition.

Into TUPLE topics, Kafka clients write one or two text columns, which is not the TUPLE format.

DataHub does not document these rules, so they are our choice:

- the hash: MD5 of the key's texts, joined by U+0001, over the complete range of 128 bits;
- the partition of DDL: by the table's name, else 0;
- the partition of heartbeats and transactions: an option.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

import msgspec

from changelane.errors import ConfigError, DecodeError, EncodeError
from changelane.event import ChangeEvent, DataChange, HalfUpdate, Image, SchemaChange, Truncate
from changelane.formats.contract import json
from changelane.message import Message
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
from changelane.schema import TableId, option_for_table

__all__ = ["FORMATS", "Options", "make"]

FORMATS: Final[Formats] = {"datahub-blob": {}}

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
_SEPARATOR: Final = "\x01"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the profile ``datahub``.

    Attributes:
        project: The DataHub project.
        topic: The BLOB topic for all tables.
        keys: Tables (full name or its last parts) -> "custom primary keys".
        non_row_events: The shards for heartbeats, transactions and control records: the first
            shard, each shard, or none.
    """

    project: str | None = None
    topic: str | None = None
    keys: dict[str, list[str]] = {}
    non_row_events: Literal["first", "broadcast", "drop"] = "first"


class _Payload(msgspec.Struct):
    before: Any = None
    after: Any = None


class _Blob(msgspec.Struct):
    payload: _Payload


def hash_of(text: str) -> int:
    """Return the hash of a key's text, in the range of DataHub's 128-bit hash keys."""
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big")


def shard_of(text: str, count: int) -> int:
    """Return the shard of a key's text; the shards divide the hash range evenly."""
    return hash_of(text) * count >> 128


def _place(
    options: Options, event: ChangeEvent, message: Message, partitions_of: PartitionsOf
) -> tuple[Message, ...]:
    topic = f"{options.project}.{options.topic}"
    placed = msgspec.structs.replace(message, topic=topic, key=None, headers=())
    is_about_table = isinstance(event, DataChange | HalfUpdate | SchemaChange | Truncate)
    if not is_about_table and options.non_row_events == "broadcast":
        return broadcast(placed, partition_count(topic, partitions_of))
    text = _hash_text(options, event, message)
    partition = 0
    if text is not None:
        partition = shard_of(text, partition_count(topic, partitions_of))
    return (msgspec.structs.replace(placed, partition=partition),)


def _hash_text(options: Options, event: ChangeEvent, message: Message) -> str | None:
    """Return the text that determines a message's shard; ``None`` if there is none."""
    change = event.change if isinstance(event, HalfUpdate) else event
    if not isinstance(change, DataChange):
        table = table_of(event)
        return str(table) if table.name else None
    columns = key_columns(options.keys, change)
    if not columns:
        return _table_hash_text(change.table)
    return key_text(change, row_of_blob(change, message), columns)


def key_columns(keys: Mapping[str, Sequence[str]], change: DataChange) -> tuple[str, ...]:
    """Return the columns that determine a row's shard: the configured ones, else the key."""
    user_columns = option_for_table(keys, change.table)
    if user_columns is not None:
        return tuple(user_columns)
    return () if change.key is None else change.key.columns


def key_text(change: DataChange, row: Image, columns: Sequence[str]) -> str:
    """Return the text of a key for the hash.

    Raises:
        EncodeError: The row lacks a column of the key.
    """
    return _SEPARATOR.join(texts_of(change, row, columns))


def _table_hash_text(table: TableId) -> str:
    # "Without a primary key ... Shard by table name"
    return str(table)


def row_of_blob(change: DataChange, message: Message) -> Image:
    """Return the row of a message; the messages of an update have the row before and after."""
    try:
        payload = json.loads(message.value or b"", _Blob).payload
    except DecodeError:
        raise EncodeError("the message is not in the format datahub-blob") from None
    return row_before(change) if payload.after is None else row_of(change)


def row_before(change: DataChange) -> Image:
    """Return the row before a change; columns that the before image lacks did not change."""
    return {**(change.after or {}), **(change.before or {})}


def make(options: Options) -> Profile:
    """Return the profile.

    Raises:
        ConfigError: Project or topic is missing, or DataHub would change its name.
    """
    for option, name in (("project", options.project), ("topic", options.topic)):
        if name is None or _NAME.fullmatch(name) is None:
            msg = (
                f"profile datahub: set the option {option}: a letter, then letters, digits and '_' "
                "(DataHub replaces '.' and '-' with '_')"
            )
            raise ConfigError(msg)
    drops = {"tombstone"}
    if options.non_row_events == "drop":
        drops |= {"watermark", "transaction", "control"}
    return Profile(
        name="datahub",
        formats=FORMATS,
        split=unsplit,
        place=partial(_place, options),
        drops=frozenset(drops),
        has_sequence=True,
    )
