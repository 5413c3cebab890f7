# SPDX-License-Identifier: Apache-2.0
"""``maxwell``: the profile of Maxwell's daemon in Kafka.

Source: https://github.com/zendesk/maxwell, classes ``MaxwellKafkaProducer``,
``MaxwellKafkaPartitioner``, ``AbstractMaxwellPartitioner``, ``RowIdentity`` and ``RowMap``, and
https://maxwells-daemon.io/producers/. Options have the names of Maxwell's, without ``kafka_`` and
``producer_``.

A partition is ``abs(hash(text) % partitions)``; the text is the name of the database or table, an
id, or the values of columns. A change of the key is one message with the new key. Deletes have no
tombstones. Maxwell's ``partition_by = random`` is not supported: changes of a row have no order.

The values of columns are the texts in the message, which are those that Java prints for whole
numbers, decimals, texts and sets.
"""

from functools import partial
from typing import Any, Final, Literal

import msgspec

from changelane.errors import ConfigError, EncodeError
from changelane.event import ChangeEvent, DataChange, SchemaChange
from changelane.message import Message
from changelane.profiles.partitioners import java_abs, java_hash, java_rem, murmur3
from changelane.profiles.profile import Formats, PartitionsOf, Profile, partition_count, unsplit

__all__ = ["FORMATS", "Options", "make"]

FORMATS: Final[Formats] = {"maxwell-json": {}}

_MURMUR_SEED: Final = 25342
_NO_VALUES: Final = "None"
"""The text of a primary key whose values are all NULL."""

By = Literal["database", "table", "primary_key", "transaction_id", "thread_id", "column"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the profile ``maxwell``.

    Attributes:
        topic: ``kafka_topic``; may contain ``%{database}`` and ``%{table}``.
        ddl_topic: ``ddl_kafka_topic``, for statements; by default *topic*.
        partition_by: ``producer_partition_by``: the text that determines the partition.
        partition_columns: ``producer_partition_columns``, for ``partition_by: column``.
        partition_by_fallback: ``producer_partition_by_fallback``, for rows without these columns.
        partition_hash: ``kafka_partition_hash``: Java's ``hashCode`` (``default``), or ``murmur3``.
    """

    topic: str = "maxwell"
    ddl_topic: str | None = None
    partition_by: By = "database"
    partition_columns: list[str] = []
    partition_by_fallback: Literal["database", "table", "primary_key", "transaction_id"] = (
        "database"
    )
    partition_hash: Literal["default", "murmur3"] = "default"


class _Fields(msgspec.Struct):
    """The fields of a message that determine its topic and partition."""

    database: str | None = None
    table: str | None = None
    xid: int | None = None
    thread_id: int | None = None
    data: dict[str, msgspec.Raw] | None = None


_fields: Final = msgspec.json.Decoder(_Fields).decode


def _topic(options: Options, event: ChangeEvent, fields: _Fields) -> str:
    topic = options.topic
    if isinstance(event, SchemaChange):
        if options.ddl_topic is None and "%{" in topic:
            raise EncodeError("a statement has no topic: set ddl_topic of profile maxwell")
        return options.ddl_topic or topic
    topic = topic.replace("%{database}", fields.database or "")
    return topic.replace("%{table}", fields.table or "")


def _text(options: Options, event: ChangeEvent, fields: _Fields, by: By) -> str:
    """Return the text that determines the partition of a message."""
    database = fields.database or ""
    match by:
        case "database":
            return database
        case "table":
            return database if fields.table is None else fields.table
        case "primary_key":
            columns = event.key.columns if isinstance(event, DataChange) and event.key else ()
            if isinstance(event, DataChange) and not columns:
                return database + (fields.table or "")
            return _values(fields, columns) or _NO_VALUES
        case "transaction_id":
            return _java_text(fields.xid)
        case "thread_id":
            return _java_text(fields.thread_id)
        case "column":
            text = _values(fields, options.partition_columns)
            return text or _text(options, event, fields, options.partition_by_fallback)


def _values(fields: _Fields, columns: Any) -> str:
    """Return the texts of columns that are not NULL, without separators."""
    row = fields.data or {}
    raw_values = (bytes(row[name]) for name in columns if name in row)
    return "".join(_value_text(raw) for raw in raw_values if raw != b"null")


def _value_text(raw: bytes) -> str:
    """Return the text of a JSON value as Java prints it."""
    if raw.startswith((b'"', b"[")):
        value = msgspec.json.decode(raw)
        if isinstance(value, str):
            return value
        if all(isinstance(item, str) for item in value):
            return f"[{', '.join(value)}]"  # the labels of a SET
    return raw.decode()


def _java_text(number: int | None) -> str:
    return "null" if number is None else str(number)


def _place(
    options: Options, event: ChangeEvent, message: Message, partitions_of: PartitionsOf
) -> tuple[Message, ...]:
    fields = _fields(message.value or b"{}")
    topic = _topic(options, event, fields)
    by = "database" if isinstance(event, SchemaChange) else options.partition_by
    text = _text(options, event, fields, by)
    if options.partition_hash == "murmur3":
        number = murmur3(text.encode("utf-8", "surrogatepass"), _MURMUR_SEED)
    else:
        number = java_hash(text)
    partition = java_abs(java_rem(number, partition_count(topic, partitions_of)))
    return (msgspec.structs.replace(message, topic=topic, partition=partition),)


def make(options: Options) -> Profile:
    """Return the profile.

    Raises:
        ConfigError: The partition is by columns, and none is named.
    """
    if options.partition_by == "column" and not options.partition_columns:
        raise ConfigError("profile maxwell: set the option partition_columns")
    return Profile(
        name="maxwell",
        formats=FORMATS,
        split=unsplit,
        place=partial(_place, options),
        drops=frozenset({"transaction", "watermark", "tombstone"}),
    )
