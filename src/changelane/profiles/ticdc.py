# SPDX-License-Identifier: Apache-2.0
"""``ticdc``: the profile of TiCDC in Kafka.

Sources: https://github.com/pingcap/tiflow, packages ``cdc/sink/dmlsink/mq/dispatcher`` and
``pkg/hash`` (``PositionInertia``), function ``ColumnValueString``; "Replicate Data to Kafka" and
"TiCDC Behavior in Splitting UPDATE Events" of TiDB's documentation. Options have the names of a
dispatcher.

A partition is the remainder of a hash: the XOR of CRC-32 sums over the names of database and table,
and over the name and the text of each column. A change of the key is a delete and an insert, each
with its own partition. Resolved times and statements are in all partitions, statements of Canal
JSON in partition 0.
"""

import math
import re
import zlib
from functools import partial
from typing import Any, Final, Literal

import msgspec

from changelane.errors import ConfigError, EncodeError
from changelane.event import ChangeEvent, DataChange
from changelane.message import Message
from changelane.position import SequencePosition
from changelane.profiles.profile import (
    Formats,
    PartitionsOf,
    Profile,
    broadcast,
    partition_count,
    split_key_change,
    table_of,
)
from changelane.profiles.row_values import row_of, value_of
from changelane.schema import TableId
from changelane.types import (
    Bits,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Enum,
    Float,
    Integer,
    Json,
    LogicalType,
    Set,
    String,
    Time,
    Timestamp,
    Year,
)
from changelane.types.forms import written_form
from changelane.types.values import iso_text, plain, plain_float

__all__ = ["FORMATS", "Options", "make"]

FORMATS: Final[Formats] = {
    "ticdc-open-json": {},
    "ticdc-simple-json": {},
    "ticdc-avro": {},
    "canal-json": {"dialect": "ticdc"},
}

_RULE: Final = re.compile(r"[A-Za-z0-9._-]*(\{schema\})?([A-Za-z0-9._-]*\{table\})?[A-Za-z0-9._-]*")
_NOT_IN_TOPICS: Final = re.compile(r"[^a-zA-Z0-9._-]")
_MOST_TOPIC_CHARACTERS: Final = 249
_DOTS: Final = {".": "_", "..": "__"}
_CANAL_STATEMENT: Final = b'"isDdl":true'
"""The mark of a statement in Canal JSON; within a text of other JSON, its quotes are escaped."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the profile ``ticdc``.

    Attributes:
        topic: The topic in the sink's URI: of all tables without a rule, and of statements without
            a table.
        topic_rule: ``topic`` of a dispatcher, such as ``{schema}_{table}``. Other characters of
            names become ``_``.
        partition: ``partition`` of a dispatcher: the hash of the table, of its key
            (``index-value``), of ``columns``, or the commit time (``ts``).
        columns: The columns of ``partition: columns``, and those of the index of ``index-value``.
    """

    topic: str = "ticdc"
    topic_rule: str = ""
    partition: Literal["table", "index-value", "columns", "ts"] = "table"
    columns: list[str] = []


def _topic(options: Options, table: TableId) -> str:
    """Return the topic of a table (``Expression.Substitute``)."""
    if not options.topic_rule or table.name is None:
        return options.topic
    name = options.topic_rule
    for placeholder, part in (("{schema}", table.database), ("{table}", table.name)):
        name = name.replace(placeholder, _NOT_IN_TOPICS.sub("_", part or ""))
    return _DOTS.get(name, name[:_MOST_TOPIC_CHARACTERS])


def _hash(event: DataChange, columns: tuple[str, ...]) -> int:
    """Return the hash of the names of a table and of columns with their values."""
    table = event.table
    names = f"{table.database or ''}{table.name or ''}"
    hashed = zlib.crc32(names.encode("utf-8", "surrogatepass"))
    kinds = {} if event.schema is None else event.schema.by_name
    row = row_of(event) if columns else {}
    for name in columns:
        kind = kinds[name].type if name in kinds else None
        value = value_of(event, row, name)
        text = b"null" if value is None else _text(kind, value)
        if text is None:
            raise EncodeError(
                f"the text of column {name!r}, which determines the partition, is not known: TiCDC "
                "computes it from values of TiDB"
            )
        hashed ^= zlib.crc32(name.encode("utf-8", "surrogatepass") + text)
    return hashed


def _text(kind: LogicalType | None, value: Any) -> bytes | None:
    """Return the bytes of a value as TiCDC hashes it; ``None`` if they are not known."""
    match kind:
        case Bytes():
            return bytes(value)
        case Integer() | Year():
            text = str(value)
        case Decimal():
            text = plain(value)
        case Boolean():
            text = str(int(value))
        case Float(64) if math.isfinite(value):
            text = plain_float(value)
        case Bits():
            text = str(int(value or "0", 2))
        case Enum(members) if members is not None and value in ("", *members):
            text = str(("", *members).index(value))
        case Set(members) if members is not None:
            labels = value.split(",") if value else []
            if not set(labels) <= set(members):
                return None
            text = str(sum(1 << members.index(label) for label in labels))
        case Date():
            text = value if isinstance(value, str) else iso_text(value)
        case Timestamp():
            text = str(written_form(kind, "sql")[1](value))
        case String() | Json() | Time():
            text = value
        case None if isinstance(value, str | int) and not isinstance(value, bool):
            text = str(value)
        case _:
            return None
    return text.encode("utf-8", "surrogatepass")


def _place(
    options: Options, event: ChangeEvent, message: Message, partitions_of: PartitionsOf
) -> tuple[Message, ...]:
    topic = _topic(options, table_of(event))
    message = msgspec.structs.replace(message, topic=topic)
    count = partition_count(topic, partitions_of)
    if not isinstance(event, DataChange):
        if _CANAL_STATEMENT in (message.value or b""):
            return (msgspec.structs.replace(message, partition=0),)
        return broadcast(message, count)
    partition = _partition(options, event) % count
    return (msgspec.structs.replace(message, partition=partition),)


def _partition(options: Options, event: DataChange) -> int:
    """Return the number whose remainder is the partition."""
    match options.partition:
        case "table":
            return _hash(event, ())
        case "ts":
            position = event.position
            if not isinstance(position, SequencePosition):
                raise EncodeError("partition: ts needs the commit time of TiDB as the position")
            return position.value
        case _:
            columns = tuple(options.columns) or (() if event.key is None else event.key.columns)
            if not columns:
                raise EncodeError(f"table {event.table} has no key for partition: index-value")
            return _hash(event, columns)


def make(options: Options) -> Profile:
    """Return the profile.

    Raises:
        ConfigError: The rule of topics is not valid, or the columns of the partition are missing.
    """
    if _RULE.fullmatch(options.topic_rule) is None:
        raise ConfigError(
            "profile ticdc: topic_rule must be [prefix]{schema}[middle]{table}[suffix]"
        )
    if options.partition == "columns" and not options.columns:
        raise ConfigError("profile ticdc: set the option columns")
    drops = {"transaction", "tombstone"}
    if options.topic_rule:  # resolved times go to all topics in use, which are not known here
        drops.add("watermark")
    return Profile(
        name="ticdc",
        formats=FORMATS,
        split=split_key_change,
        place=partial(_place, options),
        drops=frozenset(drops),
        tombstones=True,  # deletes in Avro have no value
    )
