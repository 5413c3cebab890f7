# SPDX-License-Identifier: Apache-2.0
"""``goldengate``: the profile of the Kafka handler of Oracle GoldenGate for Big Data.

Source: "Apache Kafka" and "Using Templates to Resolve the Topic Name and Message Key",
https://docs.oracle.com/en/middleware/goldengate/big-data/23/gadbd/apache-kafka-target.html:

- topic: ``topicMappingTemplate``, whose keywords are parts of the name of a table;
- key: ``keyMappingTemplate``, ``${primaryKeys}`` by the option ``message_key`` of the format;
- the handler sends records without a partition, so that Kafka chooses it by the key;
- an update is one message, also if it changes the key (``pkUpdateHandling=update``); no tombstones.

The text of a key's values is that of the format. The key of a change of the key is not documented:
here it is the new one.
"""

import re
from functools import partial
from typing import Final

import msgspec

from changelane.errors import ConfigError, EncodeError
from changelane.event import ChangeEvent
from changelane.message import Message
from changelane.profiles.partitioners import with_key_partition
from changelane.profiles.profile import Formats, PartitionsOf, Profile, table_of, unsplit
from changelane.schema import TableId

__all__ = ["FORMATS", "Options", "make"]

FORMATS: Final[Formats] = {"ogg-json": {}}

_KEYWORD: Final = re.compile(r"\$\{(\w+)\}")
_PARTS: Final = {"catalogName": "database", "schemaName": "schema", "tableName": "name"}
_FULL_NAME: Final = "fullyQualifiedTableName"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the profile ``goldengate``.

    Attributes:
        topic_mapping_template: ``topicMappingTemplate``, with ``${catalogName}``,
            ``${schemaName}``, ``${tableName}`` and ``${fullyQualifiedTableName}``.
        null_keys: Accept changes without a key; they have no order.
    """

    topic_mapping_template: str = "${tableName}"
    null_keys: bool = False


def _topic(template: str, table: TableId) -> str:
    def resolve(match: re.Match[str]) -> str:
        if match[1] == _FULL_NAME:
            parts = [part for part in (table.database, table.schema, table.name) if part]
            text = ".".join(parts)
        else:
            text = getattr(table, _PARTS[match[1]]) or ""
        if not text:
            raise EncodeError(
                f"table {str(table) or '(unknown)'} has no {match[1]} for its topic: see "
                "topic_mapping_template of profile goldengate"
            )
        return text

    return _KEYWORD.sub(resolve, template)


def _place(
    options: Options, event: ChangeEvent, message: Message, partitions_of: PartitionsOf
) -> tuple[Message, ...]:
    topic = _topic(options.topic_mapping_template, table_of(event))
    return (with_key_partition(msgspec.structs.replace(message, topic=topic), partitions_of),)


def make(options: Options) -> Profile:
    """Return the profile.

    Raises:
        ConfigError: The template has another keyword.
    """
    keywords = {_FULL_NAME, *_PARTS}
    for keyword in _KEYWORD.findall(options.topic_mapping_template):
        if keyword not in keywords:
            names = ", ".join(f"${{{name}}}" for name in sorted(keywords))
            msg = (
                f"profile goldengate: topic_mapping_template: ${{{keyword}}} is not one of {names}"
            )
            raise ConfigError(msg)
    return Profile(
        name="goldengate",
        formats=FORMATS,
        split=unsplit,
        place=partial(_place, options),
        drops=frozenset({"schema", "transaction", "watermark", "tombstone", "control"}),
        null_keys=options.null_keys,
    )
