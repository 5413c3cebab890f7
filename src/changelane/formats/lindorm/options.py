# SPDX-License-Identifier: Apache-2.0
"""The options of ``lindorm-json``."""

from enum import StrEnum

import msgspec


class TableKind(StrEnum):
    """What kind of table the rows come from; no field of a message tells it."""

    AUTO = "auto"
    """HBase where a row has the column ``ROW`` and all its values are Base64 text."""
    SQL = "sql"
    HBASE = "hbase"


class SchemaBlock(StrEnum):
    """The ``schema`` of messages."""

    FULL = "full"
    """Generated from the payload."""
    EMPTY = "empty"
    """``{}``, as in the samples of the documentation."""
    NONE = "none"
    """No such field."""


class Order(StrEnum):
    """What says which of two changes of a key is newer."""

    SOURCE_TIME = "source_time"
    """``source.ts_ms``, ties by the message's offset: Lindorm tells nothing else."""
    OFFSET = "offset"
    """The place in the partition; for topics that keep the order of changes."""


class AbsentAfter(StrEnum):
    """What a column is that the schema has and an update without before image has not."""

    NULL = "null"
    UNCHANGED = "unchanged"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``lindorm-json``.

    Attributes:
        tables: The kind of the tables.
        split_families: Name the columns of HBase tables ``family:qualifier`` instead of
            ``family_qualifier``.
        families: Table name (or its last parts) -> its column families, for names with more than
            one ``_``; else the first one ends the family.
        keys: Table name (or its last parts) -> key columns, for messages without key.
        absent_after: What a column is that only the schema has, where there is no before image.
        order: What says which of two changes is newer.
        schema: The schema block of messages.
        version: ``source.version`` where the event does not tell one; empty = ``v1.0`` for SQL
            tables and ``v2.0`` for HBase tables.
    """

    tables: TableKind = TableKind.AUTO
    split_families: bool = False
    families: dict[str, list[str]] = {}
    keys: dict[str, list[str]] = {}
    absent_after: AbsentAfter = AbsentAfter.NULL
    order: Order = Order.SOURCE_TIME
    schema: SchemaBlock = SchemaBlock.FULL
    version: str = ""
