# SPDX-License-Identifier: Apache-2.0
"""``canal``: the profile of Canal's server, for flat and for binary messages in Kafka.

Source: https://github.com/alibaba/canal, classes ``FlatMessage``, ``MQMessageUtils``,
``CanalKafkaProducer`` and, for patterns, ``AviaterRegexFilter`` and ``PatternUtils``. Options have
the names of ``canal.mq.*``.

Messages have no key and no headers; the producer sets the partition itself. A key change is one
message in the partition of the new key, as in Canal.
"""

import re
from functools import partial
from typing import Any, Final, Literal

import msgspec

from changelane.errors import ConfigError, DecodeError, EncodeError
from changelane.event import ChangeEvent
from changelane.formats.canal.entries import EVENT_TYPES, ROWS, entries_of, row_of
from changelane.formats.canal.protobuf_wire import (
    ENTRY,
    HEADER,
    ROW_CHANGE,
    ROW_DATA,
)
from changelane.formats.contract import json
from changelane.formats.contract.protobuf import loads
from changelane.message import Message
from changelane.profiles.partitioners import hash_partition, java_hash, xor_hash
from changelane.profiles.profile import Formats, PartitionsOf, Profile, partition_count, unsplit

__all__ = ["FORMATS", "Options", "make"]

FORMATS: Final[Formats] = {"canal-json": {"dialect": "canal"}, "canal-protobuf": {}}

_WILD: Final = frozenset("*?+|(){}[]\\$^")
_PRIMARY_KEY: Final = "$pk$"

Hash = tuple[str, ...] | Literal["table", "primary_key"]
"""The input of a hash rule: the table's name, its primary key, or a list of columns."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the profile ``canal``, from ``canal.mq``.

    Attributes:
        topic: ``canal.mq.topic``, for messages that no rule of *dynamic_topic* matches.
        dynamic_topic: ``canal.mq.dynamicTopic``: ``topic:pattern`` or ``pattern``, separated by
            commas; without a topic it is the lower-case name of the table or database. Dots of
            the topic become underscores.
        partition: ``canal.mq.partition``, for all messages if there is no *partition_hash*.
        partition_hash: ``canal.mq.partitionHash``: ``pattern:column^column``, ``pattern:$pk$`` or
            ``pattern`` (by the table's name), separated by commas; the first match counts, and
            messages without a match go to partition 0.
        partitions_num: ``canal.mq.partitionsNum``; by default all partitions of the topic
            (Canal's own default is 1).
        dynamic_topic_partition_num: ``canal.mq.dynamicTopicPartitionNum``: ``pattern:number``,
            separated by commas, instead of *partitions_num* for topics that match.
        database_hash: ``canal.mq.database.hash``: the database's name is part of column hashes.
    """

    topic: str | None = None
    dynamic_topic: str = ""
    partition: int = 0
    partition_hash: str = ""
    partitions_num: int | None = None
    dynamic_topic_partition_num: str = ""
    database_hash: bool = True


class Pattern(msgspec.Struct, frozen=True):
    """A name, compared without case, or a regular expression."""

    name: str
    regex: re.Pattern[str] | None = None

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches a name.

        As in ``Perl5Matcher.matches``, the expression has anchors and no group, and its first match
        must reach the end of the name: ``a|ab`` does not match the name ``ab``.
        """
        if self.regex is None:
            return name.lower() == self.name.lower()
        match = self.regex.match(name.lower())
        return match is not None and match.end() == len(name)


class Rules(msgspec.Struct, frozen=True):
    """The parsed options."""

    options: Options
    topics: tuple[tuple[str | None, Pattern], ...]
    hashes: tuple[tuple[Pattern, Hash], ...]
    counts: tuple[tuple[Pattern, int], ...]


class _Flat(msgspec.Struct, rename="camel"):
    """The fields of a message that determine its partition.

    Attributes:
        ignores_case: The columns of a rule are found without regard to case. So Canal's server
            finds them in binary messages (``checkPkNamesHasContain``), but not in flat ones.
    """

    database: str | None = None
    table: str | None = None
    is_ddl: bool | None = None
    data: list[dict[str, Any]] | None = None
    pk_names: list[str] | None = None
    ignores_case: bool = False


# -- the configuration -------------------------------------------------------------------------


def _items(option: str, text: str) -> list[str]:
    items = [item for item in re.split("[,;]", text) if item]
    for item in items:
        if item != item.strip():
            msg = f"profile canal: option {option}: remove the spaces around {item.strip()!r}"
            raise ConfigError(msg)
    return items


def _pattern(option: str, text: str) -> Pattern:
    if _WILD.isdisjoint(text):
        return Pattern(text)
    try:
        return Pattern(text, re.compile(f"^{text}$", re.IGNORECASE | re.DOTALL))
    except re.error as error:
        msg = f"profile canal: option {option}: {text!r} is not a regular expression: {error}"
        raise ConfigError(msg) from None


def _topics(text: str) -> tuple[tuple[str | None, Pattern], ...]:
    option = "dynamic_topic"
    rules: list[tuple[str | None, Pattern]] = []
    for item in _items(option, text):
        topic, colon, pattern = item.partition(":")
        if not colon:
            rules.append((None, _pattern(option, item)))
        elif topic.strip() and pattern.strip():
            rules.append((topic.strip(), _pattern(option, pattern.strip())))
        else:
            raise ConfigError(f"profile canal: option {option}: write TOPIC:PATTERN or PATTERN")
    return tuple(rules)


def _hashes(text: str) -> tuple[tuple[Pattern, Hash], ...]:
    rules: list[tuple[Pattern, Hash]] = []
    for item in _items("partition_hash", text):
        pattern, colon, columns = item.rpartition(":")
        hashed: Hash = "table"
        if pattern and colon:
            is_key = columns.lower() == _PRIMARY_KEY
            hashed = "primary_key" if is_key else tuple(c for c in columns.split("^") if c)
        rules.append((_pattern("partition_hash", pattern or item), hashed))
    return tuple(rules)


def _counts(text: str) -> tuple[tuple[Pattern, int], ...]:
    option = "dynamic_topic_partition_num"
    rules: list[tuple[Pattern, int]] = []
    for item in _items(option, text):
        pattern, _, number = item.rpartition(":")
        if not pattern or not number.isascii() or not number.isdigit() or int(number) < 1:
            msg = f"profile canal: option {option}: write PATTERN:NUMBER"
            raise ConfigError(msg)
        rules.append((_pattern(option, pattern), int(number)))
    return tuple(rules)


def _flat_of(value: bytes) -> _Flat:
    """Return the same fields of a binary message with one entry.

    Raises:
        DecodeError: The value is no such message.
    """
    entries = entries_of(value)
    entry = loads(entries[0] if entries else b"", ENTRY, "$")
    header = loads(entry.get("header", b""), HEADER, "$.header")
    change = {}
    if entry.get("entryType") == ROWS:
        change = loads(entry.get("storeValue", b""), ROW_CHANGE, "$.storeValue")
    is_delete = EVENT_TYPES[change.get("eventType", 0)] == "DELETE"
    image = "beforeColumns" if is_delete else "afterColumns"
    rows = [
        row_of(loads(row, ROW_DATA, "$").get(image, []), "$") for row in change.get("rowDatas", [])
    ]
    return _Flat(
        header.get("schemaName"),
        header.get("tableName"),
        change.get("isDdl"),
        [row for row, _, _ in rows],
        [name for _, columns, _ in rows[:1] for name, _, _, is_key in columns if is_key],
        ignores_case=True,
    )


# -- places ------------------------------------------------------------------------------------


def _topic(rules: Rules, flat: _Flat) -> str | None:
    """Return the topic of a message: by table and database if there are rules."""
    default = rules.options.topic
    if not rules.topics:
        return default
    topic = default
    if flat.database and flat.table:
        name = f"{flat.database}.{flat.table}"
        topic = _matching_topic(rules, name) or _matching_topic(rules, flat.database) or default
    return None if topic is None else topic.replace(".", "_")


def _matching_topic(rules: Rules, name: str) -> str | None:
    is_table = "." in name
    for topic, pattern in rules.topics:
        # an expression with "\." matches tables, any other one databases
        is_for = pattern.regex is None or ("\\." in pattern.name) is is_table
        if is_for and pattern.matches(name):
            return name.lower() if topic is None else topic
    return None


def _partition(rules: Rules, flat: _Flat, topic: str | None, partitions_of: PartitionsOf) -> int:
    if not rules.hashes:
        return rules.options.partition
    if flat.is_ddl or not flat.data:
        return 0
    name = f"{flat.database or ''}.{flat.table or ''}"
    hash_rule = next(
        (rule_hash for pattern, rule_hash in rules.hashes if pattern.matches(name)), None
    )
    if hash_rule is None:
        return 0
    count = next(
        (number for pattern, number in rules.counts if topic and pattern.matches(topic)),
        rules.options.partitions_num,
    )
    if count is None:
        count = partition_count(topic, partitions_of)
    if hash_rule == "table":
        return hash_partition(java_hash(flat.table or ""), count)
    columns = (flat.pk_names or ()) if hash_rule == "primary_key" else hash_rule
    if flat.ignores_case:
        names = {name.lower() for name in columns}
        columns = [name for name in flat.data[0] if name.lower() in names]
    start = java_hash(flat.database or "") if rules.options.database_hash else 0
    row_partitions = {hash_partition(_row_hash(row, columns, start), count) for row in flat.data}
    if len(row_partitions) > 1:
        raise EncodeError("the rows of one message belong to several partitions")
    return row_partitions.pop()


def _row_hash(row: dict[str, Any], columns: tuple[str, ...] | list[str], start: int) -> int:
    texts: list[str] = []
    for name in columns:
        value = row.get(name)
        if value is None:
            value = ""
        elif not isinstance(value, str):
            raise EncodeError(f"column {name!r} is not text, unlike all values of Canal's messages")
        texts.append(value)
    return xor_hash(texts, start)


def _place(
    rules: Rules, event: ChangeEvent, message: Message, partitions_of: PartitionsOf
) -> tuple[Message, ...]:
    del event  # Canal's rules use the message only
    value = message.value or b""
    try:
        flat = json.loads(value, _Flat) if value.startswith(b"{") else _flat_of(value)
    except DecodeError:
        raise EncodeError("not one of Canal's messages") from None
    topic = _topic(rules, flat)
    partition = _partition(rules, flat, topic, partitions_of)
    return (
        msgspec.structs.replace(message, topic=topic, key=None, headers=(), partition=partition),
    )


def make(options: Options) -> Profile:
    """Return the profile.

    Raises:
        ConfigError: A rule is invalid, or no message would have a topic.
    """
    if options.topic is None and not options.dynamic_topic:
        raise ConfigError("profile canal: set the option topic, or dynamic_topic")
    count = options.partitions_num
    if options.partition < 0 or (count is not None and count < 1):
        raise ConfigError("profile canal: partition must be at least 0, partitions_num at least 1")
    rules = Rules(
        options,
        _topics(options.dynamic_topic),
        _hashes(options.partition_hash),
        _counts(options.dynamic_topic_partition_num),
    )
    return Profile(
        name="canal",
        formats=FORMATS,
        split=unsplit,
        place=partial(_place, rules),
        # Canal's server filters the begin and end of transactions, and heartbeats
        drops=frozenset({"transaction", "watermark", "tombstone"}),
    )
