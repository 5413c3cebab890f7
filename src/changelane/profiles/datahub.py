# SPDX-License-Identifier: Apache-2.0
"""``datahub``: BLOB topics of Alibaba Cloud DataHub, through its endpoint for Kafka clients.

Sources: "Compatibility with Kafka" of the DataHub documentation: topic ``project.topic``, a
partition is an active shard, the value is the BLOB, a key becomes the attribute ``__kafka_key__``;
"DataHub message formats" of DataWorks for what Data Integration writes: a database to one topic,
rows by primary key, without one by the table's name. So there is no key, and the partition is told.

TUPLE topics take one or two text columns from Kafka clients, which is not the TUPLE format.

Not documented, and so a choice of ours: the hash (A 4.4: MD5 of the key's texts, joined by U+0001,
over the whole range of 128 bits), where DDL goes (by the table's name, else to partition 0), and
where heartbeats and transactions go (an option).
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
    whole,
)
from changelane.profiles.row_values import row_of, texts_of
from changelane.schema import TableId, named

__all__ = ["FORMATS", "Options", "make"]

FORMATS: Final[Formats] = {"datahub-blob": {}}

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
_JOINT: Final = "\x01"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the profile ``datahub``.

    Attributes:
        project: DataHub's project.
        topic: Its BLOB topic, which takes all tables.
        keys: Tables, in full or by their last parts -> "custom primary keys".
        notices: Where heartbeats, transactions and control records go: to the first shard, to each
            shard, or nowhere.
    """

    project: str | None = None
    topic: str | None = None
    keys: dict[str, list[str]] = {}
    notices: Literal["first", "broadcast", "drop"] = "first"


class _Payload(msgspec.Struct):
    before: Any = None
    after: Any = None


class _Blob(msgspec.Struct):
    payload: _Payload


def hash_of(text: str) -> int:
    """Return the place of a key's text in the range of hash keys, which has 128 bits."""
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big")


def shard_of(text: str, count: int) -> int:
    """Return the shard of a key's text, where shards share the range of the hash evenly."""
    return hash_of(text) * count >> 128


def _place(
    options: Options, event: ChangeEvent, message: Message, partitions_of: PartitionsOf
) -> tuple[Message, ...]:
    topic = f"{options.project}.{options.topic}"
    placed = msgspec.structs.replace(message, topic=topic, key=None, headers=())
    is_about_table = isinstance(event, DataChange | HalfUpdate | SchemaChange | Truncate)
    if not is_about_table and options.notices == "broadcast":
        return broadcast(placed, partition_count(topic, partitions_of))
    text = _text(options, event, message)
    partition = 0
    if text is not None:
        partition = shard_of(text, partition_count(topic, partitions_of))
    return (msgspec.structs.replace(placed, partition=partition),)


def _text(options: Options, event: ChangeEvent, message: Message) -> str | None:
    """Return what is hashed of a message; ``None`` where nothing is."""
    change = event.change if isinstance(event, HalfUpdate) else event
    if not isinstance(change, DataChange):
        table = table_of(event)
        return str(table) if table.name else None
    columns = key_columns(options.keys, change)
    if not columns:
        return _without_key(change.table)
    return key_text(change, row_of_blob(change, message), columns)


def key_columns(keys: Mapping[str, Sequence[str]], change: DataChange) -> tuple[str, ...]:
    """Return the columns by which the rows of a table are sharded: the user's, else its key."""
    told = named(keys, change.table)
    if told is not None:
        return tuple(told)
    return () if change.key is None else change.key.columns


def key_text(change: DataChange, row: Image, columns: Sequence[str]) -> str:
    """Return the text of a key that is hashed.

    Raises:
        EncodeError: The row does not tell it.
    """
    return _JOINT.join(texts_of(change, row, columns))


def _without_key(table: TableId) -> str:
    # "Without a primary key ... Shard by table name"
    return str(table)


def row_of_blob(change: DataChange, message: Message) -> Image:
    """Return the row of a message: of an update told by two, each has its own."""
    try:
        payload = json.loads(message.value or b"", _Blob).payload
    except DecodeError:
        raise EncodeError("not a message of datahub-blob") from None
    return row_before(change) if payload.after is None else row_of(change)


def row_before(change: DataChange) -> Image:
    """Return the row before a change; a column that it leaves out did not change."""
    return {**(change.after or {}), **(change.before or {})}


def make(options: Options) -> Profile:
    """Return the profile.

    Raises:
        ConfigError: Project or topic are missing, or no names that DataHub keeps as they are.
    """
    for option, name in (("project", options.project), ("topic", options.topic)):
        if name is None or _NAME.fullmatch(name) is None:
            msg = (
                f"profile datahub: set the option {option}: a letter, then letters, digits and '_' "
                "(DataHub turns '.' and '-' into '_')"
            )
            raise ConfigError(msg)
    drops = {"tombstone"}
    if options.notices == "drop":
        drops |= {"watermark", "transaction", "control"}
    return Profile(
        name="datahub",
        formats=FORMATS,
        split=whole,
        place=partial(_place, options),
        drops=frozenset(drops),
    )
