# SPDX-License-Identifier: Apache-2.0
"""``mongodb``: the profile of MongoDB's Kafka connector as a source.

Sources: https://www.mongodb.com/docs/kafka-connector/current/source-connector/, and the classes
``DefaultTopicMapper``, ``StartedMongoSourceTask`` and ``DefaultJson`` of mongodb/mongo-kafka.

A message is an event of a change stream as text, with the text of its key, as
``StringConverter`` writes both; Kafka chooses the partition by the key. The resume token, which is
the key without ``change.stream.document.key.as.key``, spreads the events of a document over
all partitions.
"""

from functools import partial
from typing import Any, Final

import msgspec

from changelane.errors import EncodeError
from changelane.event import ChangeEvent
from changelane.formats.mongodb.extended_json import loads, strict_text
from changelane.message import Message
from changelane.profiles.partitioners import with_key_partition
from changelane.profiles.profile import Formats, PartitionsOf, Profile, split_key_change, table_of
from changelane.schema import TableId

__all__ = ["FORMATS", "Options", "make"]

FORMATS: Final[Formats] = {"mongodb-change-stream-json": {}}
_ALL: Final = "*"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the profile ``mongodb``; they have the connector's own names.

    Attributes:
        topic_prefix: ``topic.prefix``.
        topic_suffix: ``topic.suffix``.
        topic_namespace_map: ``topic.namespace.map``: ``database.collection``, a database, or ``*``
            -> the name in the topic.
        document_key_as_key: ``change.stream.document.key.as.key``: the key is that of the document;
            ``False`` = the resume token, which only events of a change stream have.
    """

    topic_prefix: str = ""
    topic_suffix: str = ""
    topic_namespace_map: dict[str, str] = {}
    document_key_as_key: bool = True


def _topic(options: Options, table: TableId) -> str:
    names = options.topic_namespace_map
    database, collection = table.database or "", table.name or ""
    name = f"{database}.{collection}" if collection else database
    if name in names:
        name = names[name]
    elif database in names and collection:
        name = f"{names[database]}.{collection}"
    else:
        name = names.get(_ALL, name)
    parts = (options.topic_prefix.strip(), name, options.topic_suffix.strip())
    return ".".join(part for part in parts if part)


def _place(
    options: Options, event: ChangeEvent, message: Message, partitions_of: PartitionsOf
) -> tuple[Message, ...]:
    key: Any = None
    if options.document_key_as_key:
        key = None if message.key is None else loads(message.key.decode())
    else:
        token = loads((message.value or b"null").decode()).get("_id")
        if token is None:
            raise EncodeError(
                "the event has no resume token: set the option document_key_as_key of profile "
                "mongodb to true"
            )
        key = {"_id": token}
    placed = msgspec.structs.replace(
        message,
        topic=_topic(options, table_of(event)),
        key=None if key is None else strict_text(key, ", ").encode(),
    )
    return (with_key_partition(placed, partitions_of),)


def make(options: Options) -> Profile:
    """Return the profile."""
    return Profile(
        name="mongodb",
        formats=FORMATS,
        split=split_key_change,
        place=partial(_place, options),
        drops=frozenset({"transaction", "watermark", "tombstone"}),
    )
